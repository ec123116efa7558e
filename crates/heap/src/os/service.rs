//! Threads of ours that nobody waits for: how they are started, and what becomes of the process when one ends last.

use super::advice::find_libc_advise;
use super::elf;
use super::process::{process_id, thread_id};
use super::sandbox::{optional_call, permits_threads};
use super::syscall::number;
use super::thread::{SIG_SETMASK, found, keeping_errno, set_signals, sleep_ns};
use core::arch::asm;
use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What [`start_thread`] runs.
pub type ThreadBody = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type AttributesInit = unsafe extern "C" fn(*mut Attributes) -> c_int;
type AttributesSetSize = unsafe extern "C" fn(*mut Attributes, usize) -> c_int;
type LeastStack = unsafe extern "C" fn(*const Attributes) -> usize;
type AttributesSetDetached = unsafe extern "C" fn(*mut Attributes, c_int) -> c_int;
/// `pthread_create`.
pub(super) type Create =
    unsafe extern "C" fn(*mut usize, *const Attributes, ThreadBody, *mut c_void) -> c_int;

/// `pthread_attr_t`: 56 bytes on x86-64, 64 on aarch64.
#[repr(C, align(8))]
pub(super) struct Attributes([u8; 64]);

/// libc's own signals, 32 and 33, and musl's third, 34: by the last of them `setuid` waits for every thread. To glibc 34 is `SIGRTMIN`, a
/// program's to use, and no handler of a program's is to run in a thread of ours.
const LIBC_SIGNALS: u64 = if cfg!(target_env = "musl") { 0b111 << 31 } else { 0b11 << 31 };
/// The signals that are blocked in a thread of ours: all but [`LIBC_SIGNALS`], and the two that cannot be. Who starts one may be about to
/// start another already: to start one allocates.
const OUR_SIGNALS: u64 = !(LIBC_SIGNALS | 1 << 8 | 1 << 18);
/// Those that are blocked in who started one last.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Stack of a thread of ours, in bytes, besides what libc needs of it: the static thread-local variables of all libraries, and the frame of
/// a signal. Where libc does not say how much that is, more is tried.
const STACK_BYTES: [usize; 3] = [128 * 1024, 1024 * 1024, 16 * 1024 * 1024];

/// Starts a detached thread that gets no signals. False: refused, or no threads library is loaded; `errno` is as it was. May call
/// `malloc`.
pub fn start_thread(body: ThreadBody) -> bool {
    let signals = block_signals();
    if signals != OUR_SIGNALS {
        // ORDERING: Relaxed; the new thread begins afterwards.
        SIGNALS.store(signals, Ordering::Relaxed);
    }
    let start = |bytes| create(body, core::ptr::null_mut(), Some(bytes));
    let is_started = keeping_errno(|| STACK_BYTES.into_iter().any(start));
    unblock_signals(signals);
    is_started
}

/// Before a thread of ours ends that may be the process's last: libc runs the handlers of `exit` in the last one, and they need signals and
/// a stack as usual. Starts a thread with both, which ends when this one has; if that is refused, this one may be the last. May call
/// `malloc`.
pub fn leave_end_to_another() {
    create(end_after, core::ptr::without_provenance_mut(thread_id() as usize), None);
}

/// Creates a detached thread, with a stack of so many bytes or as usual. Whether there is one.
fn create(body: ThreadBody, argument: *mut c_void, stack_bytes: Option<usize>) -> bool {
    if !permits_threads() {
        return false;
    }
    // Who is built with ThreadSanitizer, as we are then, runs only in threads that it knows.
    let watched = found!(weak "__tsan_func_entry" as unsafe extern "C" fn(*mut c_void));
    let (Some(create), Some(init), Some(set_size), Some(set_detached)) = (
        if watched.is_some() { None } else { libc_create() }.or(found!("pthread_create" as Create)),
        found!("pthread_attr_init" as AttributesInit),
        found!("pthread_attr_setstacksize" as AttributesSetSize),
        found!("pthread_attr_setdetachstate" as AttributesSetDetached),
    ) else {
        return false;
    };
    const DETACHED: c_int = 1;
    let (mut attributes, mut thread) = (Attributes([0; 64]), 0);
    // SAFETY: the attributes are initialised before they are used; the body is a function of ours, and takes the argument for a number.
    unsafe {
        init(&mut attributes) == 0
            && stack_bytes
                .is_none_or(|bytes| set_size(&mut attributes, bytes + least_stack(&attributes)) == 0)
            && set_detached(&mut attributes, DETACHED) == 0
            && create(&mut thread, &attributes, body, argument) == 0
    }
}

unsafe extern "C" fn end_after(thread: *mut c_void) -> *mut c_void {
    const PAUSE_NS: u64 = 1_000_000;
    // ORDERING: Relaxed; the thread that started this one was started after it was written.
    set_signals(SIG_SETMASK, SIGNALS.load(Ordering::Relaxed));
    let process = process_id() as usize;
    // SAFETY: signal 0 only asks whether the thread is there.
    while unsafe { optional_call(number::TGKILL, [process, thread.addr(), 0, 0, 0, 0]) } == 0 {
        sleep_ns(PAUSE_NS);
    }
    core::ptr::null_mut()
}

/// libc's own `pthread_create`. libc stays loaded. Not null before it was found, and so beside where its flag is, on a page that each
/// process writes to.
static LIBC_CREATE: AtomicPtr<c_void> = AtomicPtr::new(NOT_FOUND);
const NOT_FOUND: *mut c_void = core::ptr::without_provenance_mut(1);
/// libc's function that tells how much of a thread's stack it needs itself.
static LIBC_LEAST_STACK: AtomicPtr<c_void> = AtomicPtr::new(NOT_FOUND);

/// Looks for libc's own `pthread_create`, for threads of ours: a tool's wrapper around it may hold a lock while libc allocates, and so
/// while we are here; and for its `madvise`. Early, because this takes a lock of the loader, which in a forked child a thread may hold that
/// is not there.
pub fn find_in_libc() {
    // Only libc has this name; before glibc 2.34 its threads are in a library of their own, which alone has the other.
    const OWN: &CStr = c"gnu_get_libc_version";
    const OF_THREADS: &CStr = c"__pthread_register_cancel";
    elf::objects(|object| {
        let is_libc = object.find(OWN).is_some();
        if is_libc {
            find_libc_advise(&object);
        }
        let Some(create) = object.find(OF_THREADS).and_then(|_| object.find(c"pthread_create")) else {
            return false;
        };
        let least_stack = object.find(c"__pthread_get_minstack");
        // ORDERING: Relaxed, both; an address of code that was there before it was written, the same whoever finds it.
        LIBC_CREATE.store(core::ptr::with_exposed_provenance_mut(create), Ordering::Relaxed);
        LIBC_LEAST_STACK
            .store(least_stack.map_or(NOT_FOUND, core::ptr::with_exposed_provenance_mut), Ordering::Relaxed);
        is_libc
    });
}

fn libc_create() -> Option<Create> {
    // ORDERING: Relaxed, as in `find_in_libc`.
    let known = || Some(LIBC_CREATE.load(Ordering::Relaxed)).filter(|place| *place != NOT_FOUND);
    let found = known().or_else(|| {
        // Before glibc 2.34 the library of threads may have come later.
        find_in_libc();
        known()
    });
    // SAFETY: libc's function of that name, which has these arguments and this result.
    found.map(|place| unsafe { core::mem::transmute::<*mut c_void, Create>(place) })
}

/// Bytes that libc needs of a stack; 0 where it does not say.
fn least_stack(attributes: &Attributes) -> usize {
    // ORDERING: Relaxed, as in `find_in_libc`.
    match LIBC_LEAST_STACK.load(Ordering::Relaxed) {
        NOT_FOUND => 0,
        // SAFETY: libc's function of that name, which only reads the attributes.
        found => unsafe { core::mem::transmute::<*mut c_void, LeastStack>(found)(attributes) },
    }
}

/// Blocks the signals of this thread that can be blocked, but libc's own. Returns the mask before, or any: who is refused this cannot set
/// it back either.
pub fn block_signals() -> u64 {
    set_signals(SIG_SETMASK, OUR_SIGNALS).unwrap_or_default()
}

/// Blocks those signals of this thread that [`block_signals`] found blocked.
pub fn unblock_signals(before: u64) {
    set_signals(SIG_SETMASK, before);
}
