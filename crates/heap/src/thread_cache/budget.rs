//! How many bytes of free blocks all thread caches together may hold: bounded by CPUs, not by threads.
//!
//! Shared by who asks first while most of it is free; what is left then only by those who have less than their share of it. (Without that the first
//! few of many threads had all, and each operation of the others was a slow path. Two CPUs, small, CPU seconds and peak RSS before and after: `parked` 0.59 and 0.30,
//! `pools` 0.91 and 0.73, 24 and 24, 35 and 35 MiB; with 8 threads nothing changes.)

use crate::page_map::GuardedSize;
use crate::size_class;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};

/// Bytes of blocks that thread caches may hold beyond their minimum, per CPU.
const BUDGET_PER_CPU: isize = 6 << 20;
/// While less than this part of it is used nobody looks who has how much.
const PLENTY: isize = 4;
/// The same for large blocks.
const LARGE_PER_CPU: isize = 4 << 20;
/// What all caches together may still grow by.
pub struct Budget {
    /// Taken so far. Zero at the start, so that the whole heap lies in `.bss`.
    used_bytes: AtomicIsize,
    /// The same for places of large blocks, which have a budget of their own.
    large_bytes: AtomicIsize,
    /// CPUs beyond the first.
    extra_cpus: AtomicIsize,
    /// Somebody was refused since the last look.
    exhausted: AtomicBool,
    /// Threads among which it is shared.
    threads: AtomicUsize,
}

impl Budget {
    /// The budget of one CPU.
    pub const fn new() -> Self {
        Self {
            used_bytes: AtomicIsize::new(0),
            large_bytes: AtomicIsize::new(0),
            extra_cpus: AtomicIsize::new(0),
            exhausted: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
        }
    }

    /// A list and its spare both grow by `blocks`; lists that have no spare, of other shards' blocks or of a class that is only freed, pay as
    /// much.
    fn bytes(blocks: u32, class: usize) -> isize {
        (2 * blocks as usize * size_class::size(class)) as isize
    }

    // ORDERING: Relaxed throughout; counters that publish nothing.

    /// Room for `blocks` more of `class` in a cache that has `own` bytes of room, if the budget allows: while much of it is free, who
    /// comes first has it; what is left then is for those who have less than their share.
    pub fn take(&self, own: &GuardedSize, blocks: u32, class: usize) -> bool {
        let bytes = Self::bytes(blocks, class);
        let limit = self.limit(BUDGET_PER_CPU);
        let used = self.used_bytes.load(Ordering::Relaxed) + bytes;
        let own_bytes = own.get() + bytes.cast_unsigned();
        let threads = self.threads.load(Ordering::Relaxed);
        let is_allowed =
            used <= limit && (used <= limit / PLENTY || own_bytes * threads <= limit.cast_unsigned());
        if is_allowed {
            own.set(own_bytes);
            // Several at once may go beyond the limit; they are few, and what they take is.
            self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        } else if !self.exhausted.load(Ordering::Relaxed) {
            self.exhausted.store(true, Ordering::Relaxed);
        }
        is_allowed
    }

    /// Whether somebody was refused.
    #[inline]
    pub fn is_exhausted(&self) -> bool {
        // ORDERING: Relaxed, as above.
        self.exhausted.load(Ordering::Relaxed)
    }

    /// `blocks` of `class` are not needed any more in a cache that has `own` bytes of room.
    pub fn give(&self, own: &GuardedSize, blocks: u32, class: usize) {
        let bytes = Self::bytes(blocks, class);
        own.set(own.get().wrapping_sub(bytes.cast_unsigned()));
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether there is room for a large block, at a look.
    pub fn has_large(&self, bytes: usize) -> bool {
        self.large_bytes.load(Ordering::Relaxed) + bytes.cast_signed() <= self.limit(LARGE_PER_CPU)
    }

    /// Bytes of large blocks that there is room for, all threads together.
    pub fn large_bytes(&self) -> usize {
        self.large_bytes.load(Ordering::Relaxed).cast_unsigned()
    }

    /// Room for a large block, if the budget allows.
    pub fn take_large(&self, bytes: usize) -> bool {
        let limit = self.limit(LARGE_PER_CPU);
        let bytes = bytes.cast_signed();
        let is_allowed = self.large_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= limit;
        if !is_allowed {
            self.large_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_allowed
    }

    /// A large block of so many bytes needs no room any more.
    pub fn give_large(&self, bytes: usize) {
        self.large_bytes.fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
    }

    /// What is refused from now on is [exhaustion](Budget::is_exhausted).
    pub fn begin_look(&self) {
        self.exhausted.store(false, Ordering::Relaxed);
    }

    /// It is for so many threads from now on.
    pub fn share_among(&self, threads: usize) {
        self.threads.store(threads, Ordering::Relaxed);
    }

    /// Threads that it is shared among.
    pub fn threads(&self) -> usize {
        // ORDERING: Relaxed, as above.
        self.threads.load(Ordering::Relaxed)
    }

    /// It is that of so many CPUs from now on.
    pub fn extend(&self, cpus: usize) {
        // ORDERING: Relaxed, as above.
        self.extra_cpus.store(cpus as isize - 1, Ordering::Relaxed);
    }

    /// CPUs that it is of.
    pub fn cpus(&self) -> usize {
        // ORDERING: Relaxed, as above.
        1 + self.extra_cpus.load(Ordering::Relaxed).cast_unsigned()
    }

    /// What all CPUs get together.
    fn limit(&self, per_cpu: isize) -> isize {
        self.cpus().cast_signed() * per_cpu
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASS: usize = 20;

    /// Takes room block by block until there is none; returns how many bytes that was.
    fn take_all(budget: &Budget, own: &GuardedSize) -> usize {
        let before = own.get();
        while budget.take(own, 1, CLASS) {}
        own.get() - before
    }

    #[test]
    fn one_thread_may_have_all_and_what_is_given_can_be_taken_again() {
        let budget = Budget::new();
        budget.share_among(1);
        let own = GuardedSize::new(0);
        let all = take_all(&budget, &own);
        assert!(all.abs_diff(BUDGET_PER_CPU as usize) < 4096, "{all}");
        assert!(budget.is_exhausted());
        budget.begin_look();
        budget.give(&own, 3, CLASS);
        assert!(!budget.is_exhausted() && budget.take(&own, 3, CLASS) && !budget.take(&own, 1, CLASS));
        budget.extend(2);
        assert!(take_all(&budget, &own).abs_diff(BUDGET_PER_CPU as usize) < 4096);
    }

    #[test]
    fn of_many_threads_the_first_have_a_part_and_the_last_their_share() {
        let budget = Budget::new();
        budget.share_among(64);
        let share = BUDGET_PER_CPU as usize / 64;
        let caches: [GuardedSize; 64] = core::array::from_fn(|_| GuardedSize::new(0));
        let taken: Vec<usize> = caches.iter().map(|own| take_all(&budget, own)).collect();
        assert!(taken[0].abs_diff((BUDGET_PER_CPU / PLENTY) as usize) < 4096, "{taken:?}");
        let shares = taken.iter().filter(|bytes| bytes.abs_diff(share) < 4096).count();
        assert!(shares >= 40, "{taken:?}");
        assert!(taken.iter().sum::<usize>() <= BUDGET_PER_CPU as usize);
    }

    #[test]
    fn large_blocks_have_room_of_their_own() {
        let budget = Budget::new();
        let count = (0..).take_while(|_| budget.take_large(1 << 20)).count();
        assert_eq!(count, LARGE_PER_CPU as usize >> 20);
        assert!(budget.take(&GuardedSize::new(0), 1, CLASS));
        budget.give_large(1 << 20);
        assert!(budget.take_large(1 << 20) && !budget.take_large(4096));
    }
}
