//! `fork` and `__register_atfork`: the heap's fork handlers are registered when the process first forks, has a second thread, or has
//! others registered, not when it starts. Most processes do none of these, and registering brings in two pieces of libc, 64 KiB each.

use crate::libc::{ENOMEM, ENOSYS, set_errno};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use faultless_heap::global;
use faultless_heap::os::elf::{Object, objects};

type Fork = unsafe extern "C" fn() -> c_int;
type Handler = Option<unsafe extern "C" fn()>;
type Register = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;

/// The next `fork` and `__register_atfork` behind ours. Not 0 before they were looked for, so that they lie on a page that each process
/// writes to.
static NEXT_FORK: AtomicUsize = AtomicUsize::new(NOT_FOUND);
static NEXT_REGISTER: AtomicUsize = AtomicUsize::new(NOT_FOUND);
const NOT_FOUND: usize = 1;

/// What is in the loaded objects, in the order in which they are searched.
#[derive(Default)]
struct View {
    is_behind_ours: bool,
    /// Another has a name of ours before us.
    is_preceded: bool,
    fork: Option<usize>,
    register: Option<usize>,
}

impl View {
    /// True when everything was found.
    fn note(&mut self, object: &Object<'_>) -> bool {
        if self.is_behind_ours {
            self.fork = self.fork.or_else(|| object.find(c"fork"));
            self.register = self.register.or_else(|| object.find(c"__register_atfork"));
        } else if object.contains(look as *const () as usize) {
            self.is_behind_ours = true;
        } else {
            self.is_preceded |= object.find(c"fork").or_else(|| object.find(c"__register_atfork")).is_some();
        }
        self.fork.is_some() && self.register.is_some()
    }
}

/// Looks for the next functions, at the start of the process. Whether every call of these names comes here first.
pub fn look() -> bool {
    let mut view = View::default();
    objects(|object| view.note(&object));
    // ORDERING: Relaxed, both; addresses of code that was there before, the same whoever finds them.
    for (place, found) in [(&NEXT_FORK, view.fork), (&NEXT_REGISTER, view.register)] {
        place.store(found.unwrap_or(NOT_FOUND), Ordering::Relaxed);
    }
    !view.is_preceded && view.fork.is_some() && view.register.is_some()
}

/// The next function, 0 for none. It is known from the start on, but to those whose constructors run before ours: later a lock of the
/// loader would be taken for it, which whoever opens a library may hold while it waits for a thread that comes here.
fn next(place: &AtomicUsize) -> usize {
    // ORDERING: Relaxed, as in `look`.
    if place.load(Ordering::Relaxed) == NOT_FOUND {
        look();
    }
    // ORDERING: as above.
    Some(place.load(Ordering::Relaxed)).filter(|found| *found != NOT_FOUND).unwrap_or(0)
}

/// C `fork`.
///
/// # Safety
/// As for libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    global::handle_forks();
    let next = next(&NEXT_FORK);
    if next == 0 {
        set_errno(ENOSYS);
        return -1;
    }
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
    match next(&NEXT_REGISTER) {
        0 => ENOMEM,
        // SAFETY: the next function of that name, which has this type; the caller's contract is the same.
        next => unsafe { core::mem::transmute::<usize, Register>(next)(prepare, parent, child, library) },
    }
}
