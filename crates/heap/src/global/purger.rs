//! The purger: a thread of ours that gives back what the program leaves lying, whether or not the program calls us again.
//!
//! There is one only in a process that has threads. It looks every 175 ms (at another price of memory at other times, see
//! [`pause_ns`]), every 50 ms at free spans while any wait for their time, and never takes more than a fifth of one CPU's time.
//! When nothing was left to give back for a while it ends. Where the program's threads all ended by `pthread_exit` the process lives until
//! then, so who ends last wakes it.
//! It holds no cache, allocates nothing, and opens no file: a sandbox may have closed around it.
//!
//! It is started at the end of an allocation, never by a free: libc frees blocks of threads that ended, as long as the thread-local
//! variables of a library are, under a lock that `pthread_create` takes (glibc's `__nptl_free_stacks`), but allocates under none.

use super::HEAP;
use super::beginning::register_handlers;
use crate::decay::{HOLD_MAX_NS, HOLD_MIN_NS, pause_ns};
use crate::lock;
use crate::os;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Not 0, so that what says it lies on a page that each process writes to, also the child of a fork.
const ABSENT: u32 = 1;
const PRESENT: u32 = 2;
const OFF: u32 = 3;
/// None could be started: a limit on threads or memory, or a filter; or none is to be for now.
const REFUSED: u32 = 4;

/// Time between two looks at everything at the usual price, ns. So often it wakes at least: where one thread is left it is to end soon.
const PAUSE_NS: u64 = pause_ns(HOLD_MAX_NS);
/// Time between two looks at free spans, ns: these are held for at most that much longer than `decay` says.
const STEP_NS: u64 = HOLD_MIN_NS;
/// The purger pauses for at least so many times the CPU time that its last look took. What it purges was held for as long as is
/// worth a purge, so the work is worth its time; this is for a program that makes more of it than that.
const REST: u64 = 4;
/// Looks at the usual price without anything to give back after which it ends where one thread is left.
const PATIENCE_ALONE: u32 = 3;
/// The same where there are others: 2 s at first, and up to a minute where it was missed.
const PATIENCE_MIN: u32 = 12;
const PATIENCE_MAX: u32 = 344;
/// A purger that comes so soon after a thread stood in for it, in ns, was missed: what went is wanted again.
const MISSED_NS: u64 = HOLD_MAX_NS;
/// Time until another attempt after one that was refused, ns.
const RETRY_NS: u64 = 1_000_000_000;

/// Whether there is a purger. Synchronization: from [`ABSENT`] or [`REFUSED`] by exchange, back by the purger itself or a forked child.
static STATE: AtomicU32 = AtomicU32::new(ABSENT);
/// The process that this memory is of, by its number, not 0 before that is known: so it lies on a page that each process writes to. A
/// child of `vfork` has the same memory, and a thread that it started would end with it, maybe with a lock of ours.
static PROCESS: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = u32::MAX;
/// Before that time in ns there is no other attempt.
static RETRY_AT: AtomicU64 = AtomicU64::new(0);
/// Time between two looks for other threads in a forked child, ns, and when the next may be.
const LOOK_PAUSE_NS: u64 = 1_000_000;
static LOOK_AT: AtomicU64 = AtomicU64::new(0);
/// Looks without anything to give back after which it ends. Programs that work on a large block for longer, free it and take another
/// would fault each of them in.
static PATIENCE: AtomicU32 = AtomicU32::new(PATIENCE_MIN);
/// When a thread gave back what a purger would have held, ns; 0: not since the last one came.
static STOOD_IN_AT: AtomicU64 = AtomicU64::new(0);
/// How often the program's last thread with a cache ended; the purger sleeps on it. Not 0 at first, as [`STATE`]. Synchronization: any
/// thread counts up.
static ENDS: AtomicU32 = AtomicU32::new(1);
/// Looks so far, and the CPU time in ns that they took.
static LOOKS: AtomicU64 = AtomicU64::new(0);
static LOOKS_NS: AtomicU64 = AtomicU64::new(0);

/// Starts a purger if there is none and a process like this has one. In a slow path, with no lock held, and not
/// in a free.
#[inline]
pub fn call() {
    // ORDERING: Relaxed; a hint, `start` decides by exchange.
    let state = STATE.load(Ordering::Relaxed);
    if state == ABSENT && is_worth_it() {
        start(state);
    } else if state == REFUSED {
        try_again();
    }
}

#[cold]
fn try_again() {
    // ORDERING: Relaxed; a time that is a little old costs one attempt.
    if os::now_ns() >= RETRY_AT.load(Ordering::Relaxed) && is_worth_it() {
        start(REFUSED);
    }
}

/// After a large free: gives back at once, batch by batch, what a purger would give back later, if there is none. The next allocation
/// starts one. Not where one was refused: that may last, and what is wanted again and again would be faulted in each time.
#[inline]
pub fn stand_in() {
    // ORDERING: Relaxed; a hint. Who leaves meanwhile looks once more afterwards.
    if STATE.load(Ordering::Relaxed) == ABSENT && is_worth_it() && HEAP.spans.purge_batch() {
        // ORDERING: Relaxed; a hint.
        STOOD_IN_AT.store(os::now_ns(), Ordering::Relaxed);
    }
}

fn is_worth_it() -> bool {
    HEAP.spans.are_worth_a_purger()
        && !lock::is_forking()
        && !HEAP.caches.is_alone_again()
        && match os::has_threads() {
            // In a forked child libc's flag says what it said in the parent (glibc 2.36).
            Some(has_threads) => has_threads && (!HEAP.caches.is_alone_since_fork() || others_ran()),
            None => HEAP.caches.has_several() || others_ran(),
        }
}

/// Whether another thread ran since the start, or the fork that made this process. One that waits for a CPU since it was made is not seen.
#[cold]
#[inline(never)]
fn others_ran() -> bool {
    let now = os::now_ns();
    // ORDERING: Relaxed; a pace.
    if now < LOOK_AT.load(Ordering::Relaxed) {
        return false;
    }
    LOOK_AT.store(now + LOOK_PAUSE_NS, Ordering::Relaxed);
    // In this order: what this thread does in between is no other's.
    let all = os::process_time_ns();
    // For a thread that ran for a moment the kernel may book no time, as where a virtual machine's CPU was taken away meanwhile.
    all > os::thread_time_ns() || os::others_left_a_cpu()
}

#[cold]
fn start(before: u32) {
    if !is_own_process() {
        return;
    }
    // A fork inside libc, as `forkpty`'s, is not announced: the child would have what the purger was at.
    register_handlers();
    // ORDERING: Acquire pairs with the Release in `step_down`: what the last one said when it left does not overtake what is said here.
    if STATE.compare_exchange(before, PRESENT, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    // ORDERING: Relaxed, both; hints.
    let stood_in_at = STOOD_IN_AT.swap(0, Ordering::Relaxed);
    let was_missed = stood_in_at != 0 && os::now_ns().saturating_sub(stood_in_at) < MISSED_NS;
    PATIENCE.store(next_patience(PATIENCE.load(Ordering::Relaxed), was_missed), Ordering::Relaxed);
    HEAP.spans.divide(HEAP.caches.budget.cpus());
    HEAP.spans.set_purger(true);
    if !os::start_thread(run) {
        HEAP.spans.set_purger(false);
        // ORDERING: Relaxed, as in `try_again`.
        RETRY_AT.store(os::now_ns() + RETRY_NS, Ordering::Relaxed);
        STATE.store(REFUSED, Ordering::Relaxed);
    }
}

fn next_patience(patience: u32, was_missed: bool) -> u32 {
    if was_missed { (patience * 2).min(PATIENCE_MAX) } else { (patience / 2).max(PATIENCE_MIN) }
}

unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    os::name_thread(c"faultless");
    let (mut slept_ns, mut rest_ns, mut idle_ns) = (0_u64, 0, 0);
    let (mut spans_wait, mut ends_seen) = (true, 0);
    let pause_among_others_ns = pause_ns(HEAP.spans.hold_max_ns());
    loop {
        // ORDERING: Acquire pairs with the Release in `note_end`: who is seen to have ended is not among the threads any more.
        let ends = ENDS.load(Ordering::Acquire);
        if ends != ends_seen {
            ends_seen = ends;
            if HEAP.caches.budget.threads() == 0 {
                leave_at_end();
                return null_mut();
            }
        }
        let pause_ns = if HEAP.caches.is_alone_again() { PAUSE_NS } else { pause_among_others_ns };
        let step_ns = if spans_wait { STEP_NS } else { PAUSE_NS }.min(pause_ns.saturating_sub(slept_ns));
        os::futex_wait_for(&ENDS, ends, step_ns.max(rest_ns));
        slept_ns += step_ns;
        let looks_at_all = slept_ns >= pause_ns;
        let begun_ns = os::thread_time_ns();
        let is_left = looks_at_all && HEAP.look();
        spans_wait = if looks_at_all { HEAP.spans.has_waiting() } else { HEAP.spans.purge_idle() };
        let spent_ns = os::thread_time_ns().saturating_sub(begun_ns);
        // ORDERING: Relaxed; statistics.
        LOOKS.fetch_add(1, Ordering::Relaxed);
        LOOKS_NS.fetch_add(spent_ns, Ordering::Relaxed);
        rest_ns = spent_ns * REST;
        if !looks_at_all {
            continue;
        }
        idle_ns = if is_left { 0 } else { idle_ns + slept_ns };
        slept_ns = 0;
        // ORDERING: Relaxed; a hint.
        let patience =
            if HEAP.caches.is_alone_again() { PATIENCE_ALONE } else { PATIENCE.load(Ordering::Relaxed) };
        if idle_ns >= u64::from(patience) * PAUSE_NS {
            if leave() {
                end_before_another();
                return null_mut();
            }
            idle_ns = 0;
        }
    }
}

/// Ends the purger's time where no thread has a cache: mostly the process is to end. For one that has a thread yet which never allocates
/// all is given back that can be.
fn leave_at_end() {
    step_down();
    HEAP.trim(None);
    end_before_another();
}

/// After a thread gave its cache back: was it the last that had one, a purger sleeps no longer.
pub fn note_end() {
    if HEAP.caches.budget.threads() == 0 {
        // ORDERING: Release pairs with the Acquire in `run`.
        ENDS.fetch_add(1, Ordering::Release);
        os::futex_wake_one(&ENDS);
    }
}

/// There is no purger any more; the caller is to look once more.
fn step_down() {
    HEAP.spans.set_purger(false);
    // ORDERING: Release pairs with the Acquire in `start` and `leave`. Who left work under a lock before that look takes it is seen to; who
    // takes the lock after the look reads ABSENT, which the look's release of it published. The look passes over what a hint says is
    // empty; so all threads pass a barrier first: either the look sees the hint, or who wrote it reads ABSENT afterwards.
    STATE.store(ABSENT, Ordering::Release);
    HEAP.caches.pass_barrier();
}

/// Ends the purger's time; false if there is something left after all.
fn leave() -> bool {
    step_down();
    if !HEAP.look() || STATE.compare_exchange(ABSENT, PRESENT, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return true;
    }
    HEAP.spans.set_purger(true);
    false
}

/// Sees to it that no thread of ours that ends is the process's last, if no other has a cache.
pub fn end_before_another() {
    if HEAP.caches.counts().0 > 0 {
        return;
    }
    // What the new thread's making allocates is no reason for a purger.
    // ORDERING: Relaxed, as in `try_again`.
    RETRY_AT.store(os::now_ns() + RETRY_NS, Ordering::Relaxed);
    let _ = STATE.compare_exchange(ABSENT, REFUSED, Ordering::Relaxed, Ordering::Relaxed);
    os::leave_end_to_another();
}

/// Whether this process is the one that the memory is of: a child of `vfork` has its parent's.
pub fn is_own_process() -> bool {
    /// In a namespace of its own a child of `vfork` has this number, as its parent may in another.
    const FIRST: u32 = 1;
    let own = os::process_id();
    // ORDERING: Relaxed; written before the process had another thread.
    if PROCESS.load(Ordering::Relaxed) == own {
        return own != FIRST || os::is_thread_of_libc() != Some(false);
    }
    // A fork inside libc, as `daemon`'s, told nobody, nor does a raw `clone`.
    let is_forked = os::is_thread_of_libc() == Some(true) || os::differs_from_parent();
    if is_forked {
        note_process();
    }
    is_forked
}

/// As [`note_process`], at the start; nothing where the process is known.
pub fn note_first_process() {
    // ORDERING: Relaxed, as in `start`.
    if PROCESS.load(Ordering::Relaxed) == UNKNOWN {
        note_process();
    }
}

/// This process is the one that the memory is of: at its start, and in the child of a fork. Before it has threads.
pub fn note_process() {
    // ORDERING: Relaxed, as in `start`.
    PROCESS.store(os::process_id(), Ordering::Relaxed);
}

/// Where a thread comes that has no cache yet: the child of a raw `clone` or `_Fork`, of which no handler told, has a copy of its
/// parent's memory, and threads of its own. That of `vfork` is one thread, with the number of its process.
pub fn note_thread() {
    let own = os::process_id();
    // ORDERING: Relaxed; all threads of a process store the same.
    if PROCESS.load(Ordering::Relaxed) != own && os::thread_id() != own {
        PROCESS.store(own, Ordering::Relaxed);
    }
}

/// Makes the child of a fork, in which no purger is, know that.
pub fn forget() {
    // ORDERING: Relaxed; the child has one thread.
    if STATE.load(Ordering::Relaxed) != OFF {
        STATE.store(ABSENT, Ordering::Relaxed);
        HEAP.spans.set_purger(false);
    }
}

/// Lets the process have none. Before it has threads.
pub fn switch_off() {
    // ORDERING: Relaxed; before other threads are.
    STATE.store(OFF, Ordering::Relaxed);
}

/// Looks so far, and the CPU time in ns that they took together.
pub fn work() -> (u64, u64) {
    // ORDERING: Relaxed; statistics.
    (LOOKS.load(Ordering::Relaxed), LOOKS_NS.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_longer_each_time_that_it_was_missed_and_less_long_each_time_that_it_was_not() {
        let mut patience = PATIENCE_MIN;
        let mut next = |was_missed| {
            patience = next_patience(patience, was_missed);
            patience
        };
        assert_eq!([next(false), next(true), next(true), next(false)], [12, 24, 48, 24]);
        assert_eq!((0..10).map(|_| next(true)).last(), Some(PATIENCE_MAX));
        assert_eq!((0..10).map(|_| next(false)).last(), Some(PATIENCE_MIN));
    }
}
