//! Every interleaving of the allocator's lock, and of the magazine exchange under it, by loom.
//!
//! The lock is the real source file, compiled against loom's atomics; the futex is modelled so that a lost wake-up is a
//! deadlock, which loom reports. The other lock-free part, the revocation of thread caches, depends on a barrier that loom
//! does not know: `crates/heap/tests/revocation_model.rs` explores it.

#[path = "../../../crates/heap/src/lock.rs"]
pub mod lock;

/// The futex, as the kernel promises it: compare and sleep are one step, a wake wakes one sleeper.
pub mod os {
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// Sleeps if `word` is `expected`.
    pub fn futex_wait(word: &AtomicU32, expected: u32) {
        let Ok(kernel) = KERNEL.0.lock() else { return };
        // ORDERING: the kernel compares under its own lock.
        if word.load(Ordering::SeqCst) == expected {
            drop(KERNEL.1.wait(kernel));
        }
    }

    /// Wakes one sleeper.
    pub fn futex_wake_one(_word: &AtomicU32) {
        let Ok(_kernel) = KERNEL.0.lock() else { return };
        KERNEL.1.notify_one();
    }

    /// Nobody ends the process.
    pub fn is_dying() -> bool {
        false
    }

    /// For who does.
    pub fn sleep_ns(_duration_ns: u64) {}

    /// A thread that is alone and waits would; in the model none is alone.
    pub fn die() -> ! {
        unreachable!("there are always other threads")
    }
}

/// What a process says before it ends.
pub mod message {
    /// Nothing.
    pub fn say(_text: std::fmt::Arguments) {}
}

#[cfg(test)]
mod tests {
    use crate::lock::Lock;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn three_threads_never_hold_the_lock_at_once_and_none_sleeps_for_ever() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let counter = Arc::new(Lock::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let counter = counter.clone();
                    thread::spawn(move || *counter.lock() += 1)
                })
                .collect();
            *counter.lock() += 1;
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(*counter.lock(), 3);
        });
    }

    #[test]
    fn try_lock_fails_while_held_and_excludes() {
        loom::model(|| {
            let counter = Arc::new(Lock::new(0));
            let other = {
                let counter = counter.clone();
                thread::spawn(move || counter.try_lock().map(|mut value| *value += 1).is_some())
            };
            *counter.lock() += 1;
            let added = other.join().unwrap();
            assert_eq!(*counter.lock(), if added { 2 } else { 1 });
        });
    }

    #[test]
    fn a_failed_try_lets_nobody_else_in() {
        loom::model(|| {
            let value = Arc::new((Lock::new(()), UnsafeCell::new(0)));
            // SAFETY: under the lock, which loom checks by the cell.
            let add = |cell: &UnsafeCell<i32>| cell.with_mut(|value| unsafe { *value += 1 });
            let other = {
                let value = value.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let entered = value.0.try_lock();
                        if entered.is_some() {
                            add(&value.1);
                        }
                    }
                })
            };
            let guard = value.0.lock();
            add(&value.1);
            drop(guard);
            other.join().unwrap();
        });
    }

    /// A block's two words, with loom watching for unordered accesses.
    type Block = UnsafeCell<[usize; 2]>;

    /// The stack of a shard: head of the top magazine (0: none), linked through the magazines' first blocks.
    struct Exchange {
        blocks: [Block; 3],
        top: Lock<usize>,
    }

    impl Exchange {
        fn store(&self, magazine: usize) {
            let mut top = self.top.lock();
            // SAFETY: the magazine is this thread's until the lock is released.
            self.blocks[magazine].with_mut(|block| unsafe { (*block)[1] = *top });
            *top = magazine;
        }

        fn fetch(&self) -> Option<usize> {
            let mut top = self.top.lock();
            let magazine = *top;
            if magazine == 0 {
                return None;
            }
            // SAFETY: the stack's magazines belong to who holds the lock.
            *top = self.blocks[magazine].with(|block| unsafe { (*block)[1] });
            Some(magazine)
        }
    }

    // SAFETY: the blocks are only touched by their owner; loom checks that this is so.
    unsafe impl Sync for Exchange {}

    #[test]
    fn a_magazine_reaches_one_thread_and_its_links_with_it() {
        loom::model(|| {
            let exchange = Arc::new(Exchange {
                blocks: [Block::new([0; 2]), Block::new([0; 2]), Block::new([0; 2])],
                top: Lock::new(0),
            });
            let producer = {
                let exchange = exchange.clone();
                thread::spawn(move || {
                    for magazine in [1, 2] {
                        // SAFETY: not yet stored, so this thread's own.
                        exchange.blocks[magazine].with_mut(|block| unsafe { (*block)[0] = 100 + magazine });
                        exchange.store(magazine);
                    }
                })
            };
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.extend(exchange.fetch());
            }
            producer.join().unwrap();
            while let Some(magazine) = exchange.fetch() {
                seen.push(magazine);
            }
            for &magazine in &seen {
                // SAFETY: fetched, so this thread's own.
                exchange.blocks[magazine].with(|block| unsafe { assert_eq!((*block)[0], 100 + magazine) });
            }
            seen.sort_unstable();
            assert_eq!(seen, [1, 2]);
        });
    }
}
