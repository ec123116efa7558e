//! The span heaps: one; in a process with threads several where there are many CPUs, so that threads which take and give large blocks
//! seldom wait for each other.
//!
//! A piece of memory belongs to one of them for good: the one that asked for it when the heap grew. The records of its spans say which
//! ([`Record::heap`](crate::page_map::Record)); so what is freed goes back there, whoever frees it, and joins its own kind only. A thread
//! takes from the heap of its shard, then what has pages from others, and only then fresh memory.

use super::Spans;
use crate::granule::GRANULE_BYTES;
use crate::lock::{Guard, Lock};
use crate::os;
use crate::page_map::Hint32;
use crate::span_heap::{PurgeMode, SpanHeap, Taken};
use core::sync::atomic::{AtomicU32, Ordering};

/// Most span heaps.
pub const HEAPS: usize = 16;
/// One for so many CPUs: two threads seldom meet.
const CPUS_EACH: usize = 2;
/// But not fewer than this, or one for each CPU: what a thread freed last its CPU's cache still knows, so it should be the next block of
/// that thread and not of another.
const FEW: usize = 2;

/// Granules that may have pages from which on a process is worth a purger: 1 MiB.
pub const WORTH_GRANULES: u32 = 16;

/// Granules by which what one heap uses may differ from what it told.
const UNTOLD: u32 = 16;
/// Where it uses more, so great a part of that, up to as much, as in the books of large blocks.
const UNTOLD_PART: u32 = 16;
const UNTOLD_MOST: u32 = 64;

/// What one heap says of itself to those who do not have its lock, in granules, in a line of its own. Told where there are several.
#[repr(align(64))]
pub struct Told {
    /// Free, maybe with pages.
    dirty: Hint32,
    /// What may have pages, up to [`WORTH_GRANULES`]; not told of the first heap.
    paged: Hint32,
}

impl Told {
    /// Nothing.
    pub const fn new() -> Self {
        Self { dirty: Hint32::new(0), paged: Hint32::new(0) }
    }
}

/// What is in use of several heaps together, with what shards keep, and the most there was, in granules; each heap tells of its changes in
/// batches: of a MiB, or a sixteenth of what it uses, up to 4 MiB.
#[repr(align(64))]
pub struct UsedOfAll {
    now: AtomicU32,
    peak: AtomicU32,
    /// The limit for all of them, 0 for none. Each heeds what others' use leaves of it.
    limit: AtomicU32,
}

impl UsedOfAll {
    /// Nothing.
    pub const fn new() -> Self {
        Self { now: AtomicU32::new(0), peak: AtomicU32::new(0), limit: AtomicU32::new(0) }
    }

    // ORDERING: Relaxed throughout; statistics, and a limit that is set before there are several.

    /// The first heap is not the only one any more. Under its lock.
    fn begin(&self, first: &mut SpanHeap) {
        first.used_told = first.counts.used;
        self.now.store(first.counts.used, Ordering::Relaxed);
        self.peak.store(first.counts.used_peak, Ordering::Relaxed);
    }

    /// A heap tells what it uses, if that is much else than before. Under its lock.
    fn tell(&self, heap: &mut SpanHeap) {
        let (used, told) = (heap.counts.used, heap.used_told);
        if used.abs_diff(told) < (used / UNTOLD_PART).clamp(UNTOLD, UNTOLD_MOST) {
            return;
        }
        heap.used_told = used;
        let change = used.wrapping_sub(told);
        let now = self.now.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        heap.room.set_limit(self.limit.load(Ordering::Relaxed).saturating_sub(now.wrapping_sub(used)));
    }

    /// The most that heaps told of together.
    pub fn peak(&self) -> u32 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Spans {
    /// Heeds a limit of so many bytes on what the process may have: near it less is held. For a heap that has not been divided.
    pub fn set_limit(&self, bytes: usize) {
        let granules = u32::try_from(bytes / GRANULE_BYTES).unwrap_or(0);
        // ORDERING: Relaxed, as all of `used`.
        self.used.limit.store(granules, Ordering::Relaxed);
        self.heap.lock().room.set_limit(granules);
    }

    /// Uses as many span heaps as so many CPUs are worth from now on.
    pub fn divide(&self, cpus: usize) {
        let wanted = (cpus / CPUS_EACH).clamp(FEW.min(cpus), HEAPS);
        if wanted <= self.heaps() {
            return;
        }
        let mut first = self.heap.lock();
        // A limit leaves no room for steps of several heaps; a record is to show all that happens.
        if self.map.reservation.is_limited() || first.mode != PurgeMode::Auto || first.trace.is_on() {
            return;
        }
        if self.heaps() == 1 {
            self.used.begin(&mut first);
        }
        for place in self.heaps()..wanted {
            self.heap_at(place).lock().join(&first, place);
        }
        // ORDERING: Release pairs with the Acquire in `heaps`: who counts a heap finds it made.
        self.more_heaps.store(wanted as u8 - 1, Ordering::Release);
    }

    /// How many there are.
    pub(super) fn heaps(&self) -> usize {
        // ORDERING: Acquire, see `divide`. There are never fewer than before.
        usize::from(self.more_heaps.load(Ordering::Acquire)) + 1
    }

    /// One of them.
    pub(super) fn heap_at(&self, place: usize) -> &Lock<SpanHeap> {
        if place == 0 { &self.heap } else { &self.others[place - 1] }
    }

    /// All of them, locked one after the other.
    pub(super) fn each_heap(&self) -> impl Iterator<Item = (usize, Guard<'_, SpanHeap>)> {
        (0..self.heaps()).map(|place| (place, self.heap_at(place).lock()))
    }

    /// Whether no lock is held for good that [counts](Self::counts) and a trace's end are made under, and those of large blocks.
    pub fn can_be_counted(&self) -> bool {
        self.opening.comes_free()
            && self.shards_in_use().iter().all(|shard| shard.spans.comes_free())
            && (0..self.heaps()).all(|place| self.heap_at(place).comes_free())
    }

    /// The heap that threads of a shard take from first. A thread that is alone needs one.
    pub(super) fn heap_of_shard(&self, shard: usize) -> usize {
        if os::is_single_threaded() { 0 } else { shard % self.heaps() }
    }

    /// The heap that a span belongs to; of a part of one that of the whole.
    pub(super) fn heap_of(&self, first: u32) -> usize {
        usize::from(self.map.record(first).heap.get()).saturating_sub(1)
    }

    /// Tells others how much of a heap may have pages, and is in use.
    #[inline]
    pub(super) fn tell(&self, place: usize, heap: &mut SpanHeap) {
        let paged = (heap.counts.used + heap.counts.dirty).min(WORTH_GRANULES);
        let told_paged = if place == 0 { &self.first_paged } else { &self.told[place].paged };
        // Read first: a line that all threads read is written only when it changes.
        if told_paged.get() != paged {
            told_paged.set(paged);
        }
        if self.heaps() > 1 {
            let told = &self.told[place].dirty;
            if told.get() != heap.counts.dirty {
                told.set(heap.counts.dirty);
            }
            self.used.tell(heap);
        }
    }

    /// Whether so much may have pages, or threads go so often to what they share, that it is worth a purger; a hint.
    #[inline]
    pub fn are_worth_a_purger(&self) -> bool {
        let others = || (1..self.heaps()).map(|place| self.told[place].paged.get()).sum::<u32>();
        let first = self.first_paged.get();
        first >= WORTH_GRANULES || first + others() >= WORTH_GRANULES || self.traffic.is_heavy()
    }

    /// A span is taken, or a magazine sent home, that might have been kept beside a purger.
    #[inline]
    pub fn note_traffic(&self) {
        if !self.keeps() && !os::is_single_threaded() && !self.traffic.is_heavy() {
            self.traffic.note(os::now_ns());
        }
    }

    /// All heaps that may serve who wants free memory with pages, that of the shard first.
    fn heaps_for(&self, shard: usize, granules: u32) -> impl Iterator<Item = usize> {
        let (own, count) = (self.heap_of_shard(shard), self.heaps());
        let others = (1..count).map(move |step| (own + step) % count);
        core::iter::once(own).chain(others.filter(move |&other| self.told[other].dirty.get() >= granules))
    }

    /// Takes a span of free memory that may have pages, see [`SpanHeap::take_used`].
    pub(super) fn take_used(&self, shard: usize, granules: u32, align: u32) -> Option<Taken> {
        let now = os::now_ns();
        let take = |place| self.with_in(place, now, |heap, map| heap.take_used(map, granules, align, now));
        self.heaps_for(shard, granules).find_map(take)
    }

    /// As [`Spans::take`], when nobody keeps anything that serves.
    pub fn take_any(&self, shard: usize, granules: u32, align: u32, prefer_clean: bool) -> Option<Taken> {
        let now = os::now_ns();
        self.note_traffic();
        let take =
            |place| self.with_in(place, now, |heap, map| heap.take(map, granules, align, prefer_clean, now));
        take(self.heap_of_shard(shard)).or_else(|| {
            self.purge_all();
            (0..self.heaps()).find_map(take)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::{Span, bytes_of};
    use std::sync::atomic::AtomicUsize;

    /// Spans of two heaps: shards 0 and 1 take from one each.
    fn divided() -> Spans {
        let spans = Spans::new();
        spans.set_purger(true);
        spans.divide(2 * CPUS_EACH);
        assert_eq!(spans.heaps(), 2);
        spans
    }

    fn take(spans: &Spans, shard: usize, granules: u32) -> u32 {
        spans.take(shard, granules, 1, false).unwrap().first
    }

    fn dirty(spans: &Spans) -> Vec<u32> {
        spans.each_heap().map(|(_, heap)| heap.counts.dirty).collect()
    }

    #[test]
    fn what_is_freed_goes_back_to_its_heap_and_is_used_by_all_before_fresh_memory() {
        let spans = divided();
        let [a, b] = [0, 1].map(|shard| take(&spans, shard, 8));
        assert_eq!([a, b].map(|first| spans.heap_of(first)), [0, 1]);
        [a, b].into_iter().for_each(|first| spans.give(first, 8, false));
        assert_eq!(dirty(&spans), [8, 8]);
        assert_eq!([1, 1].map(|shard| take(&spans, shard, 8)), [b, a], "the own first");
        let fresh = take(&spans, 1, 8);
        assert_eq!((spans.heap_of(fresh), dirty(&spans)), (1, vec![0, 0]));
        assert_eq!((spans.used(), spans.counts().used), (24, 24));
    }

    #[test]
    fn near_a_limit_each_heap_holds_what_the_use_of_others_leaves_of_it() {
        let held = |others| {
            let spans = Spans::new();
            spans.set_limit(4000 * GRANULE_BYTES);
            spans.set_purger(true);
            spans.divide(2 * CPUS_EACH);
            let first = take(&spans, 1, 800);
            take(&spans, 0, others);
            spans.give(first, 800, false);
            spans.settle();
            dirty(&spans)[1]
        };
        assert_eq!([2000, 3000, 3200].map(held), [800, 800, 0], "seven eighths of 2000, 1000 and 800");
    }

    #[test]
    fn the_peak_of_all_is_what_was_in_use_at_one_time() {
        const MOST: u32 = 3200;
        let spans = divided();
        let used_by = |shard| {
            let first = take(&spans, shard, MOST);
            spans.give(first, MOST, false);
            spans.purge_all();
            spans.heap_of(first)
        };
        assert_eq!([0, 1, 0, 1].map(used_by), [0, 1, 0, 1]);
        assert_eq!(spans.counts().used_peak, MOST, "in turn");
        let [a, b] = [0, 1].map(|shard| take(&spans, shard, MOST));
        [a, b].into_iter().for_each(|first| spans.give(first, MOST, false));
        assert_eq!(spans.counts().used_peak, 2 * MOST, "together");
        // What was used before there were several, and little of each.
        let spans = Spans::new();
        let first = take(&spans, 0, 100);
        spans.give(first, 100, false);
        take(&spans, 0, 10);
        spans.divide(2 * CPUS_EACH);
        take(&spans, 1, 10);
        assert_eq!(spans.counts().used_peak, 100);
        take(&spans, 1, 200);
        assert_eq!(spans.counts().used_peak, 220);
    }

    #[test]
    fn a_mib_that_may_have_pages_is_worth_a_purger_whatever_heap_has_it() {
        let spans = divided();
        let half = WORTH_GRANULES / 2;
        assert!(!spans.are_worth_a_purger());
        let [a, b] = [(0, half), (1, half - 1)].map(|(shard, granules)| take(&spans, shard, granules));
        assert!(!spans.are_worth_a_purger());
        let last = take(&spans, 1, 1);
        assert!(spans.are_worth_a_purger());
        [(a, half), (b, half - 1), (last, 1)]
            .into_iter()
            .for_each(|(first, count)| spans.give(first, count, false));
        assert!(spans.are_worth_a_purger(), "free, but with pages");
        spans.purge_all();
        assert!(!spans.are_worth_a_purger());
    }

    #[test]
    fn neighbours_of_different_heaps_do_not_join_and_all_are_purged() {
        let spans = divided();
        let clean = |spans: &Spans, place: usize| spans.heap_at(place).lock().counts.clean;
        take(&spans, 0, 1);
        let last = take(&spans, 0, clean(&spans, 0));
        let next = take(&spans, 1, 8);
        let granules = next - last;
        assert_eq!(spans.map.record(last).granules.get(), granules, "side by side");
        spans.give(last, granules, false);
        spans.give(next, 8, false);
        assert_eq!(dirty(&spans), [granules, 8]);
        assert!(spans.has_waiting());
        assert_eq!(spans.purge_all(), bytes_of(granules + 8));
        assert!(!spans.has_waiting());
        assert_eq!((dirty(&spans), clean(&spans, 0)), (vec![0, 0], granules));
        assert_eq!([0, 1].map(|shard| take(&spans, shard, 8)), [last, next]);
    }

    #[test]
    fn a_block_does_not_grow_into_what_its_shard_keeps_of_another_heap() {
        let spans = divided();
        take(&spans, 0, 1);
        let clean = spans.heap_at(0).lock().counts.clean;
        let (block, behind) = (take(&spans, 0, clean), take(&spans, 1, 8));
        let span = Span { first: block, granules: behind - block };
        assert_eq!([block, behind].map(|first| spans.heap_of(first)), [0, 1]);
        let kept = Span { first: behind, granules: 8 };
        assert!(spans.in_shard(0, |of_shard| spans.keep_large(of_shard, kept)));
        assert_eq!(spans.take_kept_behind(0, span, 1), None);
        assert_eq!(spans.take_behind(0, span, 1), None, "nor when that was given back");
    }

    #[test]
    fn what_shards_keep_goes_back_to_the_heaps_it_came_from() {
        let spans = divided();
        let firsts: Vec<u32> = (0..6).map(|index| take(&spans, index % 2, 2)).collect();
        firsts.iter().for_each(|&first| spans.give_for(0, first, 2));
        spans.return_kept();
        assert_eq!(dirty(&spans), [6, 6]);
    }

    #[test]
    fn a_heap_with_a_record_or_that_gives_back_at_once_is_not_divided() {
        let spans = Spans::new();
        spans.set_mode(PurgeMode::Now);
        spans.divide(64);
        assert_eq!(spans.heaps(), 1);
        spans.set_mode(PurgeMode::Auto);
        spans.divide(1);
        assert_eq!(spans.heaps(), 1, "one CPU");
        spans.divide(1000);
        assert_eq!(spans.heaps(), HEAPS);
        spans.divide(4);
        assert_eq!(spans.heaps(), HEAPS, "never fewer");
        let recorded = Spans::new();
        recorded.start_trace(b"/nowhere/record");
        recorded.divide(1000);
        assert_eq!(recorded.heaps(), 1);
    }

    #[test]
    fn a_fork_that_waits_for_a_division_holds_the_new_heaps_too() {
        let spans = Spans::new();
        take(&spans, 0, 1);
        let first = spans.heap.lock();
        std::thread::scope(|scope| {
            let fork = scope.spawn(|| {
                spans.hold_for_fork();
                let held = [0, 1].map(|place| spans.heap_at(place).try_lock().is_none());
                spans.release_after_fork();
                held
            });
            // Time to reach the lock; later it sees both heaps in any case.
            std::thread::sleep(std::time::Duration::from_millis(20));
            // As `divide`.
            spans.heap_at(1).lock().join(&first, 1);
            spans.more_heaps.store(1, Ordering::Release);
            drop(first);
            assert_eq!(fork.join().unwrap(), [true, true]);
        });
        assert!(spans.heap_at(1).try_lock().is_some());
    }

    #[test]
    fn no_granule_has_two_users_whoever_takes_and_gives_it() {
        const THREADS: usize = 4;
        const GRANULES: usize = 1 << 14;
        let spans = Spans::new();
        spans.set_purger(true);
        spans.divide(THREADS * CPUS_EACH);
        let (users, given): (Vec<AtomicUsize>, _) =
            ((0..GRANULES).map(|_| AtomicUsize::new(0)).collect(), std::sync::Mutex::new(Vec::new()));
        let user_of = |granule: u32| &users[(granule - spans.map.reservation.first_granule()) as usize];
        let give = |(first, granules, user): (u32, u32, usize)| {
            for granule in first..first + granules {
                assert_eq!(user_of(granule).swap(0, Ordering::Relaxed), user);
            }
            spans.give(first, granules, false);
        };
        std::thread::scope(|scope| {
            for user in 1..=THREADS {
                let (spans, give, given, user_of) = (&spans, &give, &given, &user_of);
                scope.spawn(move || {
                    let mut random = user as u32;
                    let mut next = |below: u32| {
                        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (random >> 8) % below
                    };
                    let mut own = Vec::new();
                    for round in 0..3000 {
                        let granules = 1 + next(40);
                        let first = take(spans, user, granules);
                        for granule in first..first + granules {
                            assert_eq!(user_of(granule).swap(user, Ordering::Relaxed), 0);
                        }
                        own.push((first, granules, user));
                        if own.len() > 20 {
                            let span = own.swap_remove(next(own.len() as u32) as usize);
                            // Every other is given by another thread.
                            let other = {
                                let mut given = given.lock().unwrap();
                                given.push(span);
                                if given.len() > 10 { Some(given.remove(0)) } else { None }
                            };
                            other.into_iter().for_each(give);
                        }
                        if round % 500 == 0 {
                            spans.purge_all();
                        }
                    }
                    own.into_iter().for_each(give);
                });
            }
        });
        given.into_inner().unwrap().into_iter().for_each(give);
        assert_eq!(spans.used(), 0);
    }
}
