//! `fork` and `__register_atfork`: the heap's fork handlers are registered when the process first forks, has a second thread, or has
//! others registered, not when it starts. Most processes do none of these, and registering brings in two pieces of libc, 64 KiB each.

use crate::libc::{ENOMEM, ENOSYS, set_errno};
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use faultless_heap::global;
use faultless_heap::os::elf::{Object, objects};

type Fork = unsafe extern "C" fn() -> c_int;
type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// What this library has before others have it.
const NAMES: [&CStr; 2] = [c"fork", c"__register_atfork"];
const FORK: usize = 0;
const REGISTER: usize = 1;

/// Where the next ones of these names are. Not 0 before they were looked for, so that they lie on a page that each process writes to.
static NEXT: [AtomicUsize; 2] = [const { AtomicUsize::new(NOT_FOUND) }; 2];
const NOT_FOUND: usize = 1;

/// What is in the loaded objects, in the order in which they are searched; 0 for nothing.
#[derive(Default)]
struct View {
    is_behind_ours: bool,
    next: [usize; 2],
    /// Before ours: somebody's in a preload before this one, or libc's where this library came later than it did.
    earlier: [usize; 2],
}

impl View {
    /// True when everything was found.
    fn note(&mut self, object: &Object<'_>) -> bool {
        if object.contains(look as *const () as usize) {
            self.is_behind_ours = true;
            return false;
        }
        let found = if self.is_behind_ours { &mut self.next } else { &mut self.earlier };
        for (place, name) in found.iter_mut().zip(NAMES).filter(|(place, _)| **place == 0) {
            *place = object.find(name).unwrap_or(0);
        }
        !self.next.contains(&0)
    }
}

/// Looks for the next functions, at the start of the process. Whether every call of these names comes here first.
pub fn look() -> bool {
    let mut view = View::default();
    objects(|object| view.note(&object));
    for name in [FORK, REGISTER] {
        let found = if view.next[name] != 0 { view.next[name] } else { view.earlier[name] };
        // ORDERING: Relaxed; an address of code that was there before, the same whoever finds it.
        NEXT[name].store(found.max(NOT_FOUND), Ordering::Relaxed);
    }
    view.earlier == [0, 0] && !view.next.contains(&0)
}

/// Where the next function is. It is known from the start on, but to those whose constructors run before ours: later a lock of the
/// loader would be taken for it, which whoever opens a library may hold while it waits for a thread that comes here.
fn next(name: usize) -> Option<usize> {
    // ORDERING: Relaxed, both, as in `look`.
    if NEXT[name].load(Ordering::Relaxed) == NOT_FOUND {
        look();
    }
    Some(NEXT[name].load(Ordering::Relaxed)).filter(|found| *found != NOT_FOUND)
}

/// C `fork`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    global::handle_forks();
    let Some(next) = next(FORK) else {
        set_errno(ENOSYS);
        return -1;
    };
    // SAFETY: the next function of that name, which has this type.
    unsafe { core::mem::transmute::<usize, Fork>(next)() }
}

/// What glibc's `pthread_atfork` calls. The heap's handlers come first: those registered last are called first, and while the heap's hold
/// its locks no other may wait for a thread that allocates.
///
/// # Safety
/// As for libc's: the handlers stay in `library`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __register_atfork(
    prepare: Handler,
    parent: Handler,
    child: Handler,
    library: *mut c_void,
) -> c_int {
    global::handle_forks();
    let Some(next) = next(REGISTER) else { return ENOMEM };
    // SAFETY: the next function of that name, which has this type; the caller's contract is the same.
    unsafe { core::mem::transmute::<usize, Register>(next)(prepare, parent, child, library) }
}
