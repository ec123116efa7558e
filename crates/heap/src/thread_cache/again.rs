//! A thread's place for one large block, which it freed and will allocate again: a turn takes no lock and writes no line that others
//! write, where what a shard keeps takes its lock twice.
//!
//! Revocable as a bin of capacity one, by the protocol of [`super`]; nothing is written into the block, which may have no pages.
//! There is a place for blocks of one size at a time, made when two of that size are freed one after the other outside it, paid for
//! from the budget, and given back when idle or unused: who frees a large block now and then keeps none.

use super::{Bin, Budget, GATE, Home, ThreadCache};
use crate::magazine::Magazine;
use crate::page_map::{Guarded32, Guarded64, GuardedSize};

use core::sync::atomic::{Ordering, compiler_fence};

/// Longest blocks that a place is made for, in bytes. For longer ones a lock's time is little beside that of using them.
const AGAIN_MAX: usize = 1 << 20;

/// Operations in the slow path without a block taken from the place after which it is given back.
const OLD: u32 = 64;

/// The place. Blocks in it count as live in the books of large blocks, which do not hear of each turn.
pub struct Again {
    /// Holds the block; its capacity is 1 while the place is paid for.
    bin: Bin,
    /// Bytes of the blocks it is for, 0 before the first. Synchronization: written by the owner under the cache's lock.
    bytes: GuardedSize,
    /// Blocks that were taken from it. Synchronization: owner only; others read it as a statistic.
    turns: Guarded64,
    /// Of these, what the books know. Synchronization: the cache's lock.
    told: Guarded64,
    /// `turns` when the owner last looked whether it is of use. Synchronization: the cache's lock.
    seen: Guarded64,
    /// The cache's `visits` at that look. Synchronization: the cache's lock.
    looked_at: Guarded32,
    /// Bytes of the large block last freed outside it. Synchronization: owner only.
    candidate: GuardedSize,
}

/// What the books of large blocks do not know of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgainStats {
    /// Bytes of its blocks.
    pub bytes: usize,
    /// Allocations.
    pub allocations: u64,
    /// Whether a block is in it, which therefore is not live.
    pub is_free: bool,
}

impl Again {
    pub const fn new() -> Self {
        Self {
            bin: Bin::gated(),
            bytes: GuardedSize::new(0),
            turns: Guarded64::new(0),
            told: Guarded64::new(0),
            seen: Guarded64::new(0),
            looked_at: Guarded32::new(0),
            candidate: GuardedSize::new(0),
        }
    }

    /// Makes one of zeroed memory.
    ///
    /// # Safety
    /// `place` is zeroed memory for one, and nobody else's.
    pub unsafe fn make(place: *mut Self) {
        // SAFETY: the caller's contract; all else is zero in `new`.
        unsafe { (&raw mut (*place).bin).write(Bin::gated()) };
    }

    /// Returns whether a block was taken since the last call. Under the cache's lock, by the owner.
    fn poll_use(&self) -> bool {
        let turns = self.turns.get();
        let is_of_use = self.seen.get() != turns;
        self.seen.set(turns);
        is_of_use
    }

    fn is_paid(&self) -> bool {
        self.bin.capacity.get() > 0
    }

    /// Tells the books what they do not know. Under the cache's lock.
    fn tell(&self, home: Home, shard: usize) {
        let turns = self.turns.get();
        if turns != self.told.get() {
            home.large.was_allocated_again(home.spans, shard, self.bytes.get(), turns - self.told.get());
            self.told.set(turns);
        }
    }

    /// Takes its capacity away from an empty or revoked place. Under the cache's lock.
    fn shrink(&self, budget: &Budget) {
        if self.is_paid() {
            self.bin.capacity.set(0);
            budget.give_large(self.bytes.get());
        }
    }

    /// Sends the owner to the slow path; what was in it then, if there is anything to take. Under the cache's lock, by a revoker.
    pub fn gate(&self) -> Option<usize> {
        // ORDERING: as in `revocation`.
        let is_open = self.is_paid() && self.bin.head.load(Ordering::Relaxed) != GATE;
        is_open.then(|| self.bin.head.swap(GATE, Ordering::SeqCst))
    }

    /// Ends what [`Again::gate`] began; true if the place is the revoker's now, and with it the block. Under the cache's lock.
    pub fn settle(&self, block: usize, passed: bool, budget: &Budget) -> bool {
        let length = u32::from(block != 0);
        let is_taken = if passed {
            super::revocation::settle_bin(&self.bin, block, || Some(length)).is_some()
        } else {
            super::revocation::undo(&self.bin, block);
            false
        };
        if is_taken {
            self.shrink(budget);
        }
        is_taken
    }

    /// Makes the place of a thread that is gone empty. Under the cache's lock.
    pub fn forget(&self, budget: &Budget) {
        self.shrink(budget);
        self.bin.replace(Magazine::EMPTY);
        self.candidate.set(0);
    }
}

impl ThreadCache {
    /// Takes the block of so many bytes that the thread freed last, or returns 0.
    ///
    /// # Safety
    /// This thread owns the cache, or the cache is [`ThreadCache::gated`].
    #[inline(always)]
    pub unsafe fn take_again(&self, bytes: usize) -> usize {
        let Again { bin, turns, .. } = &self.again;
        if self.again.bytes.get() != bytes {
            return 0;
        }
        // ORDERING: Relaxed and the fences, as in `pop`.
        let room = bin.room.load(Ordering::Relaxed);
        bin.room.store(room.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let block = bin.head.load(Ordering::Relaxed);
        if block <= GATE {
            bin.room.store(room, Ordering::Relaxed);
            return 0;
        }
        bin.head.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        turns.set(turns.get() + 1);
        block
    }

    /// Keeps a large block of so many bytes for [`ThreadCache::take_again`]; false if there is no place for it.
    ///
    /// # Safety
    /// This thread owns the cache (or the cache is gated) and the block, of which the page map says that it is kept.
    #[inline(always)]
    pub unsafe fn keep_again(&self, bytes: usize, block: usize) -> bool {
        let Again { bin, .. } = &self.again;
        if self.again.bytes.get() != bytes {
            return false;
        }
        // ORDERING: as above.
        let room = bin.room.load(Ordering::Relaxed);
        bin.room.store(room.wrapping_sub(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if room <= 0 || bin.head.load(Ordering::Relaxed) != 0 {
            bin.room.store(room, Ordering::Relaxed);
            return false;
        }
        bin.head.store(block, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// After [`ThreadCache::keep_again`] found no place: makes one for this block if that seems of use. Returns the block that is
    /// to be freed now: this one, the one that was in the place, or 0. By the owner, in a process with threads.
    pub fn make_place_again(&self, bytes: usize, block: usize, home: Home, budget: &Budget) -> usize {
        let again = &self.again;
        let was_candidate = again.candidate.get() == bytes;
        again.candidate.set(bytes);
        if bytes > AGAIN_MAX || !was_candidate {
            return block;
        }
        let _guard = self.lock.lock();
        self.visit();
        again.bin.open();
        // A place that is of use stays as it is. Who ends the keeping looks at this cache afterwards, or this thread calls it back.
        if (again.is_paid() && (again.bytes.get() == bytes || again.poll_use()))
            || !home.spans.keeps()
            || !budget.take_large(bytes)
        {
            return block;
        }
        let before = again.bin.list().head;
        again.shrink(budget);
        again.tell(home, self.shard());
        again.looked_at.set(self.visits.get());
        again.bytes.set(bytes);
        again.bin.capacity.set(1);
        home.large.set_kept(home.spans, block, true);
        again.bin.replace(Magazine { head: block, count: 1 });
        if before != 0 {
            home.large.set_kept(home.spans, before, false);
        }
        before
    }

    /// Whether it is time to see if the place is of use. By the owner.
    #[inline]
    pub fn may_give_again(&self) -> bool {
        self.visits.get().wrapping_sub(self.again.looked_at.get()) >= OLD && self.again.is_paid()
    }

    /// Gives the place back if it was of no use since the last call. By the owner.
    #[cold]
    pub fn give_unused_again(&self, home: Home, budget: &Budget) {
        let _guard = self.lock.lock();
        self.again.looked_at.set(self.visits.get());
        if !self.again.poll_use() {
            self.give_again(home, budget);
        }
    }

    /// Gives the place back, with the block in it. Under the lock, by the owner, or when there is none.
    pub(super) fn give_again(&self, home: Home, budget: &Budget) {
        let again = &self.again;
        again.bin.open();
        let block = again.bin.list().head;
        again.tell(home, self.shard());
        again.forget(budget);
        if block != 0 {
            home.large.give_back(home.spans, self.shard(), block);
        }
    }

    /// What the books do not know of the place.
    pub fn again(&self) -> AgainStats {
        let again = &self.again;
        AgainStats {
            bytes: again.bytes.get(),
            allocations: again.turns.get().saturating_sub(again.told.get()),
            // ORDERING: Relaxed; a statistic.
            is_free: again.bin.head.load(Ordering::Relaxed) > GATE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::large::{LargeBin, Pages};
    use crate::os;
    use core::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// As where there is a purger.
    fn heap_with_purger() -> Box<Heap> {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        heap
    }

    /// As `malloc` does it.
    fn take(heap: &Heap, cache: &ThreadCache, bytes: usize) -> usize {
        // SAFETY: the test has one thread for each cache.
        let again = unsafe { heap.allocate_again(|| cache, bytes) };
        if again != 0 { again } else { heap.allocate_large(Some(cache), bytes, 16, Pages::Any).address }
    }

    /// As `free` does it.
    fn give(heap: &Heap, cache: &ThreadCache, block: usize) {
        // SAFETY: as above.
        if !unsafe { heap.free_again(|| cache, block) } {
            heap.free(Some(cache), block);
        }
    }

    fn turn(heap: &Heap, cache: &ThreadCache, bytes: usize) -> usize {
        let block = take(heap, cache, bytes);
        give(heap, cache, block);
        block
    }

    fn turns(heap: &Heap, cache: &ThreadCache, bytes: usize, count: usize) {
        for _ in 0..count {
            turn(heap, cache, bytes);
        }
    }

    /// Whether turns of so many bytes stay out of the slow path.
    fn has_place(heap: &Heap, cache: &ThreadCache, bytes: usize) -> bool {
        let visits = cache.visits.get();
        let block = turn(heap, cache, bytes);
        (0..100).all(|_| turn(heap, cache, bytes) == block) && cache.visits.get() == visits
    }

    #[test]
    fn a_block_freed_twice_gets_a_place_and_longer_ones_and_single_ones_none() {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        turn(&heap, cache, 100_000);
        assert_eq!(cache.again().bytes, 0, "once");
        turn(&heap, cache, 100_000);
        assert!(has_place(&heap, cache, 100_000));
        assert!(cache.again().is_free);
        turns(&heap, cache, AGAIN_MAX + 4096, 3);
        assert_eq!(cache.again().bytes, 102_400, "too long for another");
        // Two live at a time: the second is freed as ever.
        let both = [take(&heap, cache, 100_000), take(&heap, cache, 100_000)];
        assert_ne!(both[0], both[1]);
        both.into_iter().for_each(|block| give(&heap, cache, block));
        // Another size takes the place when the first is not used any more.
        turns(&heap, cache, AGAIN_MAX, 4);
        assert!(has_place(&heap, cache, AGAIN_MAX));
        heap.trim(Some(cache));
        assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
    }

    #[test]
    fn the_books_know_all_that_went_through_a_place() {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        let other = heap.caches.acquire().unwrap();
        let without_a_place = heap.caches.acquire().unwrap();
        assert_eq!(without_a_place.again().bytes, 0);
        for cache in [cache, other] {
            turns(&heap, cache, 1 << 18, 10);
        }
        let bins = || {
            let mut bins: Vec<LargeBin> = Vec::new();
            heap.each_large_bin(|bin| bins.push(*bin));
            bins.iter().map(|bin| (bin.allocations, bin.live)).collect::<Vec<_>>()
        };
        assert_eq!((heap.large_totals().blocks, heap.large_totals().live, bins()), (0, 0, vec![(20, 0)]));
        let block = take(&heap, cache, 1 << 18);
        assert_eq!((heap.large_totals().blocks, bins()), (1, vec![(21, 1 << 18)]));
        heap.trim(Some(other));
        assert_eq!((heap.large_totals().blocks, bins()), (1, vec![(21, 1 << 18)]), "after the places went");
        give(&heap, cache, block);
        turns(&heap, cache, 1 << 18, 10);
        heap.caches.release(cache, heap.home());
        assert_eq!((heap.large_totals().live, bins()), (0, vec![(31, 0)]), "after the thread went");
    }

    #[test]
    fn the_places_of_threads_that_do_nothing_or_need_them_no_more_are_given_back() {
        let heap = heap_with_purger();
        let idle = heap.caches.acquire().unwrap();
        let busy = heap.caches.acquire().unwrap();
        for cache in [idle, busy] {
            turns(&heap, cache, 1 << 19, 3);
        }
        (0..OLD).for_each(|_| heap.free(Some(busy), heap.allocate_small(Some(busy), 3)));
        assert!(!busy.again().is_free, "of no use for long");
        assert!(idle.again().is_free);
        heap.look();
        assert!(idle.again().is_free, "it was in the slow path since the look before");
        heap.look();
        assert!(!idle.again().is_free);
        assert!(has_place(&heap, idle, 1 << 19) || has_place(&heap, idle, 1 << 19), "a new one");
    }

    #[test]
    fn places_are_paid_for_and_none_is_made_without_a_purger() {
        let heap = heap_with_purger();
        let caches: Vec<_> = (0..200).map(|_| heap.caches.acquire().unwrap()).collect();
        let use_all = || {
            caches.iter().for_each(|cache| turns(&heap, cache, AGAIN_MAX, 3));
        };
        use_all();
        let with_place = || caches.iter().filter(|cache| cache.again().is_free).count();
        let most = with_place();
        assert!(most >= 4 && most < caches.len(), "{most}");
        heap.trim(None);
        assert_eq!(with_place(), 0);
        use_all();
        assert_eq!(with_place(), most, "what was paid came back");
        heap.trim(None);
        heap.spans.set_purger(false);
        turns(&heap, caches[0], AGAIN_MAX, 3);
        assert_eq!(with_place(), 0);
    }

    #[test]
    fn who_comes_to_make_a_place_when_the_keeping_has_just_ended_makes_none() {
        for keeps in [true, false] {
            let heap = heap_with_purger();
            let cache = heap.caches.acquire().unwrap();
            let block = take(&heap, cache, 1 << 18);
            heap.spans.set_purger(keeps);
            let make = |_| cache.make_place_again(1 << 18, block, heap.home(), &heap.caches.budget);
            assert_eq!([0, 1].map(make), [block, if keeps { 0 } else { block }]);
        }
    }

    #[test]
    fn a_place_that_is_used_stays_and_what_is_in_it_is_no_block() {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        turns(&heap, cache, 1 << 19, 3);
        for _ in 0..3 {
            turn(&heap, cache, 1 << 19);
            turn(&heap, cache, 1 << 18);
            assert_eq!(cache.again().bytes, 1 << 19);
        }
        for _ in 0..3 * OLD {
            turn(&heap, cache, 1 << 19);
            heap.free(Some(cache), heap.allocate_small(Some(cache), 3));
        }
        let again = cache.again();
        assert!(again.bytes == 1 << 19 && again.allocations > u64::from(2 * OLD), "{again:?}");
        let block = turn(&heap, cache, 1 << 19);
        assert!(heap.large.find(&heap.spans, block).is_none(), "freed twice it would be noticed");
    }

    #[test]
    fn what_a_place_was_paid_for_comes_back_when_another_takes_it() {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        for turn in 0..1000 {
            let bytes = [AGAIN_MAX, AGAIN_MAX / 2][turn % 2];
            turns(&heap, cache, bytes, 4);
            assert_eq!(cache.again().bytes, bytes, "{turn}");
        }
    }

    #[test]
    fn a_block_in_the_place_of_another_thread_is_had_when_memory_runs_out() {
        let heap = heap_with_purger();
        let [owner, other] = [heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap()];
        turns(&heap, owner, 1 << 20, 3);
        assert!(owner.again().is_free);
        os::REFUSED.set(os::Call::Commit as u32);
        while take(&heap, other, 1 << 20) != 0 {}
        os::REFUSED.set(0);
        assert!(!owner.again().is_free);
    }

    #[test]
    fn no_block_is_handed_out_twice_while_places_are_taken_from_threads_that_use_them() {
        let heap = heap_with_purger();
        let is_over = AtomicBool::new(false);
        let taken = std::thread::scope(|scope| {
            for number in 1..=4_usize {
                let (heap, is_over) = (&heap, &is_over);
                scope.spawn(move || {
                    let cache = heap.caches.acquire().unwrap();
                    // ORDERING: Relaxed; only ends the loop.
                    while !is_over.load(Ordering::Relaxed) {
                        let block = take(heap, cache, 1 << 16);
                        let word = block as *mut usize;
                        // SAFETY: a live block of the thread, if the protocol holds.
                        let found = unsafe {
                            word.write_volatile(number);
                            core::hint::spin_loop();
                            word.read_volatile()
                        };
                        assert_eq!(found, number, "somebody else has the block, too");
                        give(heap, cache, block);
                    }
                });
            }
            let (begun, mut taken) = (Instant::now(), 0);
            // Beside much else that runs the first may be late.
            while begun.elapsed() < Duration::from_millis(500)
                || taken == 0 && begun.elapsed() < Duration::from_secs(60)
            {
                taken += heap.caches.revoke_all(None, heap.home());
            }
            is_over.store(true, Ordering::Relaxed);
            taken
        });
        assert!(taken > 0, "no place was taken in use");
        heap.caches.all().for_each(|cache| heap.caches.release(cache, heap.home()));
        assert_eq!(heap.large_totals().blocks, 0);
        heap.trim(None);
        assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
    }
}
