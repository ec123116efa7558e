//! The one lock: a futex word around a value.
//!
//! A thread that holds locks for a fork may take those again: handlers registered by others run inside our fork window
//! and allocate. It finds the state whole, since nobody else is in that critical section.
//!
//! A thread that ends the process for a mistake may hold locks, and a handler of SIGABRT allocate: it takes over what nobody
//! releases, since a process that hangs is worse than one that ends. So it is with a program's only thread that waits for itself: a signal
//! interrupted it while it held the lock, and it is in the handler, or was made to jump out of it. It is told, and ends.

use crate::message::say;
use crate::os;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
/// Bit: somebody holds the lock.
const HELD: u32 = 1;
/// Bit: somebody may sleep until it is released.
const CONTENDED: u32 = 2;
/// Bit: held across a fork, so that its holder may take it again.
const FOR_FORK: u32 = 4;

/// Looks of a thread at the lock before it sleeps: a pause after the first, twice as many after each of the next, at most
/// `2^LONGEST_PAUSE`; some ten microseconds in all, as much as to sleep and to be woken. Critical sections last tens to hundreds of ns; who
/// holds the lock may take it several times meanwhile, and what it guards stays in one CPU's cache. But where it is held half of the time, few
/// looks all find it held, though it was free again and again.
const LOOKS: u32 = if cfg!(loom) { 0 } else { 24 };
const LONGEST_PAUSE: u32 = 4;

/// Looks of a thread that ends the process before it takes a lock over, and the pause in ns between two.
const LAST_LOOKS: u32 = 100;
const LAST_PAUSE_NS: u64 = 1_000_000;
/// Looks, with the same pauses, after which a lock is held for good: other threads may have to wait for a CPU.
const PATIENT_LOOKS: u32 = 2000;

/// The thread pointer of the thread that holds every lock for a fork, or [`NOBODY`], which is not 0: so it lies on a page that each
/// process writes to.
#[cfg(not(loom))]
static FORKING: AtomicUsize = AtomicUsize::new(NOBODY);
#[cfg(not(loom))]
const NOBODY: usize = 1;

/// A value that one thread at a time may use.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: `lock` hands the value to one thread at a time, or to one that ends the process after a holder that does not go on.
unsafe impl<T: Send> Sync for Lock<T> {}

/// Leave to use the value; given back on drop.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Taken again by the forking thread: the outer holder releases it.
    nested: bool,
    /// It is as good as a `&mut T`: the lock's own `Sync` asks for less than sharing a guard does.
    value: PhantomData<&'a mut T>,
}

impl<T> Lock<T> {
    /// A free lock.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// A free lock.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        let nested = !self.take_free() && self.lock_contended();
        self.guard(nested)
    }

    #[inline]
    fn guard(&self, nested: bool) -> Guard<'_, T> {
        Guard { lock: self, nested, value: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    fn take_free(&self) -> bool {
        if is_alone() {
            // ORDERING: Relaxed, here and in `release`: no other thread exists, and one that is created sees all that was before.
            let is_free = self.word.load(Ordering::Relaxed) == FREE;
            if is_free {
                self.word.store(HELD, Ordering::Relaxed);
            }
            return is_free;
        }
        // ORDERING: Acquire on success pairs with the Release swap in `release`: the last holder's writes are seen.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // ORDERING: Relaxed; looked at first, since many may try again and again what one holds for long, each with its line to itself.
        let may_be_free = self.word.load(Ordering::Relaxed) == FREE;
        // Lazily: a guard made for a failure would release somebody else's lock when dropped.
        (may_be_free && self.take_free()).then(|| self.guard(false))
    }

    /// Whether it is free, or becomes free while this thread waits. It does not where this thread holds it: in a signal handler that
    /// interrupted it there.
    #[cold]
    pub fn comes_free(&self) -> bool {
        let mut looks = PATIENT_LOOKS;
        while self.try_lock().is_none() {
            if is_alone() || looks == 0 {
                return false;
            }
            // A fork ends, however long the kernel copies what is mapped.
            looks -= u32::from(!is_forking_elsewhere());
            os::sleep_ns(LAST_PAUSE_NS);
        }
        true
    }

    /// True if this thread already holds the lock, for a fork.
    #[cold]
    fn lock_contended(&self) -> bool {
        // ORDERING: Relaxed; if this thread is the one that forks, it wrote the bit itself.
        if is_forking() && self.word.load(Ordering::Relaxed) & FOR_FORK != 0 {
            return true;
        }
        let (mut looks, mut last_looks) = (LOOKS, LAST_LOOKS);
        loop {
            // ORDERING: Relaxed load only decides what to try; the exchange acquires as in `take_free`.
            let word = self.word.load(Ordering::Relaxed);
            // After the spinning others may sleep, too: the bit is kept so that `release` wakes one.
            let taken = if looks > 0 { HELD } else { HELD | CONTENDED };
            if word == FREE {
                if self.word.compare_exchange(FREE, taken, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return false;
                }
            } else if looks > 0 {
                let pauses = 1 << (LOOKS - looks).min(LONGEST_PAUSE);
                (0..pauses).for_each(|_| core::hint::spin_loop());
                looks -= 1;
            } else if os::is_dying() {
                // Who holds it is this thread, which never goes on there, or waits for what this thread holds.
                if last_looks == 0 {
                    return false;
                }
                last_looks -= 1;
                os::sleep_ns(LAST_PAUSE_NS);
            } else {
                sleep_until_released(&self.word, word);
            }
        }
    }

    fn release(&self) {
        if is_alone() {
            // ORDERING: Relaxed; nobody can sleep for it, or read what it guards.
            self.word.store(FREE, Ordering::Relaxed);
            return;
        }
        // ORDERING: Release publishes this holder's writes to the next Acquire in `lock`.
        if self.word.swap(FREE, Ordering::Release) & CONTENDED != 0 {
            os::futex_wake_one(&self.word);
        }
    }

    /// Takes the lock for the time of a fork: it stays taken until [`Lock::release_after_fork`].
    pub fn hold_for_fork(&self) {
        core::mem::forget(self.lock());
        // ORDERING: Relaxed; read by this thread only.
        self.word.fetch_or(FOR_FORK, Ordering::Relaxed);
    }

    /// Releases a lock taken by [`Lock::hold_for_fork`], in the parent, or in the child where nobody waits; any other is left alone.
    pub fn release_after_fork(&self) {
        let is_held = |word| (word & FOR_FORK != 0).then_some(FREE);
        // ORDERING: Release, as in `release`. In one step: of two who call this only one frees it.
        let before = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, is_held);
        if before.is_ok_and(|word| word & CONTENDED != 0) {
            os::futex_wake_one(&self.word);
        }
    }

    /// Makes the lock free in a forked child whose other threads, one of which may have held it, are gone.
    ///
    /// # Safety
    /// No other thread exists, and the value is made whole before it is used.
    pub unsafe fn reset_in_child(&self) {
        // ORDERING: Relaxed; there is one thread.
        self.word.store(FREE, Ordering::Relaxed);
    }
}

/// Whether no lock is needed against other threads: none exists, and none comes into being while this one is in here.
#[cfg(not(loom))]
#[inline]
fn is_alone() -> bool {
    os::is_single_threaded()
}

/// As far as the model goes there are always others.
#[cfg(loom)]
fn is_alone() -> bool {
    false
}

/// Sleeps until a lock is released whose word was `seen`, or for no reason. Ends the process where its only thread waits, for itself. Not
/// inlined: one copy serves the locks of all values.
#[cold]
#[inline(never)]
fn sleep_until_released(word: &AtomicU32, seen: u32) {
    if is_alone() {
        say(format_args!(
            "malloc or free was called by a signal handler in the middle of another call, or after a longjmp out of one"
        ));
        os::die();
    }
    let marked = seen | CONTENDED;
    // ORDERING: Relaxed; the bit asks for a wake and publishes nothing.
    if word.compare_exchange(seen, marked, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        os::futex_wait(word, marked);
    }
}

/// This thread is the one that forks, from now on: what it [holds for that](Lock::hold_for_fork) it may take again.
///
/// # Safety
/// Until [`end_fork`] this thread has one guard of a lock at a time, and nobody calls [`Lock::release_after_fork`]; none of those guards
/// is left then.
#[cfg(not(loom))]
pub unsafe fn begin_fork() {
    // ORDERING: Relaxed; only this thread recognises its own value.
    FORKING.store(os::thread_pointer(), Ordering::Relaxed);
}

/// The fork is over, in the parent or in the child.
#[cfg(not(loom))]
pub fn end_fork() {
    // ORDERING: Relaxed, as in `begin_fork`.
    FORKING.store(NOBODY, Ordering::Relaxed);
}

/// Whether this thread holds locks for a fork.
#[cfg(not(loom))]
pub fn is_forking() -> bool {
    // ORDERING: Relaxed; a thread can only read its own thread pointer here if it wrote it itself.
    FORKING.load(Ordering::Relaxed) == os::thread_pointer()
}

/// Whether this thread holds locks for a fork.
#[cfg(loom)]
pub fn is_forking() -> bool {
    false
}

/// Whether another thread holds locks for a fork.
#[cfg(not(loom))]
fn is_forking_elsewhere() -> bool {
    // ORDERING: Relaxed; who asks looks again.
    FORKING.load(Ordering::Relaxed) != NOBODY && !is_forking()
}

/// As far as the model goes nobody forks.
#[cfg(loom)]
fn is_forking_elsewhere() -> bool {
    false
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the lock word makes this thread the only user until drop.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock word makes this thread the only user until drop.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if !self.nested {
            self.lock.release();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn a_failed_try_leaves_the_lock_with_its_holder() {
        let lock = Lock::new(());
        let holder = lock.lock();
        for _ in 0..3 {
            assert!(lock.try_lock().is_none());
        }
        drop(holder);
        assert!(lock.try_lock().is_some());
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_lock_that_another_thread_releases_comes_free_and_that_of_an_interrupted_holder_does_not() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(!lock.comes_free());
        std::thread::scope(|scope| {
            let comes_free = scope.spawn(|| lock.comes_free());
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(held);
            assert!(comes_free.join().unwrap());
        });
        assert!(lock.comes_free() && lock.try_lock().is_some(), "a look leaves it free");
    }

    #[test]
    fn only_a_lock_held_for_a_fork_is_released_after_it() {
        let lock = Lock::new(());
        let holder = lock.lock();
        lock.release_after_fork();
        assert!(lock.try_lock().is_none(), "somebody else's");
        drop(holder);
        lock.hold_for_fork();
        assert!(lock.try_lock().is_none());
        lock.release_after_fork();
        assert!(lock.try_lock().is_some());
    }

    /// Two for types that are `Sync`, so that it is not known which is meant, and one for the others.
    trait Answers<Which> {
        fn is_not_sync() {}
    }
    impl<T> Answers<()> for T {}
    impl<T: Sync> Answers<u8> for T {}

    #[test]
    fn a_guard_is_shared_only_where_its_value_may_be() {
        fn is_sync<T: Sync>() {}
        fn is_send<T: Send>() {}
        is_sync::<Lock<Cell<u8>>>();
        is_send::<Guard<'static, Cell<u8>>>();
        is_sync::<Guard<'static, u8>>();
        // Does not compile where the guard is `Sync`.
        <Guard<'static, Cell<u8>> as Answers<_>>::is_not_sync();
    }
}
