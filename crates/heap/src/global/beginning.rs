//! What is asked of libc once, at the process's start, and the handlers of forks: as early as another could need them, and before all others,
//! since libc runs those registered last first, and while ours hold the locks of the heap no other may wait for a thread that allocates.

use super::{EXIT_KEY, HEAP, attached, purger, thread_local};
use crate::fork;
use crate::os;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

// All that a start reads or writes here is not 0 at first, and so beside the caches in `global`, on a page that each process writes to.

/// Whether what is asked once is still to be asked.
static UNASKED: AtomicBool = AtomicBool::new(true);

/// Whether a process of one thread needs the handlers, too.
static ONE_NEEDS_HANDLERS: AtomicBool = AtomicBool::new(true);

/// Whether libc has the handlers: one of the constants, which are no addresses, or the thread pointer of who is registering them.
static HANDLERS: AtomicUsize = AtomicUsize::new(UNREGISTERED);
const UNREGISTERED: usize = 1;
const REGISTERED: usize = 2;
/// How often who forks looks whether another thread has registered them, and how long it waits between.
const LOOKS: usize = 10_000;
const PAUSE_NS: u64 = 100_000;

/// Whether the fork that is under way holds our locks. Synchronization: the thread that forks.
static FORK_HOLDS: AtomicBool = AtomicBool::new(true);

/// At the start of the process. `forks_are_announced`: from now on [`handle_forks`] is called before each fork, and before another
/// registers handlers. One thread then needs none of ours before that, and is spared the pages of libc that registering brings in.
pub fn begin(forks_are_announced: bool) {
    ask_once();
    let one_needs = !(forks_are_announced && os::is_single_threaded());
    // ORDERING: Relaxed; where there are other threads nothing changes.
    ONE_NEEDS_HANDLERS.store(one_needs, Ordering::Relaxed);
    if one_needs {
        handle_forks();
    }
}

/// A thread has its cache.
pub(super) fn note_thread() {
    ask_once();
    // ORDERING: Relaxed; it changes while there is one thread.
    if ONE_NEEDS_HANDLERS.load(Ordering::Relaxed) || !os::is_single_threaded() {
        register_handlers();
    }
}

#[inline(never)]
fn ask_once() {
    // ORDERING: Relaxed, both; whoever is first asks, nothing else depends on it.
    if UNASKED.load(Ordering::Relaxed) && UNASKED.swap(false, Ordering::Relaxed) {
        os::find_single_threaded_flag();
        os::find_in_libc();
        purger::note_first_process();
        // Not later: a sandbox may kill who opens a file then.
        if let Some(bytes) = os::memory_limit() {
            HEAP.spans.set_limit(bytes);
        }
    }
}

/// Registers the handlers if nobody has begun to; where libc refuses, for want of memory, the next thread asks again.
pub(super) fn register_handlers() {
    // ORDERING: Relaxed; only decides what to try.
    if HANDLERS.load(Ordering::Relaxed) != UNREGISTERED {
        return;
    }
    // A signal handler that forks could wait in libc for the thread that it interrupts.
    let signals = os::block_signals();
    let own = os::thread_pointer();
    // ORDERING: Relaxed, both; who reads this thread's pointer waits, or is this thread.
    if HANDLERS.compare_exchange(UNREGISTERED, own, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let is_done = os::at_fork(prepare, in_parent, in_child);
        // ORDERING: Release pairs with the Acquire below: who sees them registered forks with them.
        HANDLERS.store(if is_done { REGISTERED } else { UNREGISTERED }, Ordering::Release);
    }
    os::unblock_signals(signals);
}

/// Registers the handlers of forks, unless libc refuses: to be called before a fork, and before another registers handlers.
pub fn handle_forks() {
    register_handlers();
    for _ in 0..LOOKS {
        // ORDERING: Acquire, as above.
        let state = HANDLERS.load(Ordering::Acquire);
        // Whom a tool's function of libc's name calls for the registration itself must not wait for it.
        if [REGISTERED, UNREGISTERED, os::thread_pointer()].contains(&state) {
            return;
        }
        os::sleep_ns(PAUSE_NS);
    }
}

unsafe extern "C" fn prepare() {
    // One thread: parent and child both go on where they are, even inside a slow path that a signal handler interrupted to
    // fork. Taking locks would wait for ourselves.
    let is_alone = os::is_alone();
    // ORDERING: Relaxed; the same thread reads it after the fork, and others that fork now say the same: they are several.
    FORK_HOLDS.store(!is_alone, Ordering::Relaxed);
    if is_alone {
        return;
    }
    // A thread whose only act is to fork needs no cache, but has one afterwards, in parent and child alike.
    let own = attached();
    os::lock_stdio_list();
    EXIT_KEY.hold_for_fork();
    fork::before(&HEAP, own);
}

unsafe extern "C" fn in_parent() {
    // ORDERING: Relaxed, as in `prepare`.
    if FORK_HOLDS.load(Ordering::Relaxed) {
        fork::after_in_parent(&HEAP);
        EXIT_KEY.release_after_fork();
        os::unlock_stdio_list();
    }
}

unsafe extern "C" fn in_child() {
    purger::note_process();
    // ORDERING: Relaxed, as in `prepare`.
    if FORK_HOLDS.load(Ordering::Relaxed) {
        // SAFETY: libc calls this in the child before `fork` returns.
        unsafe { fork::after_in_child(&HEAP, attached()) };
        EXIT_KEY.release_after_fork();
        os::reset_stdio_list_lock();
        purger::forget();
    }
    let cache = thread_local::cache();
    if cache.is_owned_by(thread_local::identity()) {
        fork::leave_to_parent(&HEAP, cache);
    }
}
