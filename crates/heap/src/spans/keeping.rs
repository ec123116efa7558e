//! Free spans that are no part of the span heap for a while: what shards keep, and what is at hand in a process of one thread.

use super::kept::{Batch, Kept, LONGEST};
use super::{RECENT, Spans};
use crate::granule::Span;
use crate::lock::Lock;
use crate::os;
use crate::page_map::{Hint32, PageMap, Record, State};
use crate::span_heap::{SpanHeap, Taken};
use core::sync::atomic::Ordering;

/// What one shard keeps.
#[repr(align(64))]
pub struct KeptByShard {
    pub spans: Lock<Kept>,
    /// How much that is. Synchronization: written under the lock.
    pub granules: Hint32,
}

impl KeptByShard {
    /// No span.
    pub const fn new() -> Self {
        Self { spans: Lock::new(Kept::new()), granules: Hint32::new(0) }
    }

    /// Does something with the spans.
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let mut spans = self.spans.lock();
        let result = act(&mut spans);
        self.granules.set(spans.granules);
        result
    }
}

/// How a span of free memory is to fit a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// As nearly as there is one.
    Tight,
    /// With room behind, if there is one: the block will grow.
    Room,
}

impl Spans {
    /// Takes a span for a slab of a shard, of memory that may have pages: what the shard keeps, free spans, what others keep.
    pub fn take_used_for(&self, shard: usize, granules: u32) -> Option<u32> {
        if !self.keeps() {
            return None;
        }
        let own = self.take_kept_by(&self.kept[shard], granules);
        if own.is_some() {
            return own;
        }
        let take_free = || self.take_used(shard, granules, 1).map(|taken| taken.first);
        let take_others = || self.from(shard).find_map(|shard| self.take_kept_by(shard, granules));
        // Others may be cut, or join.
        take_free().or_else(take_others).or_else(|| self.return_kept_until(shard, take_free))
    }

    /// What shards keep, that of one first, then in their order: so that not all meet at the same.
    fn from(&self, shard: usize) -> impl Iterator<Item = &KeptByShard> {
        let (before, behind) = self.kept.split_at(shard);
        behind.iter().chain(before)
    }

    fn take_kept_by(&self, shard: &KeptByShard, granules: u32) -> Option<u32> {
        if shard.granules.get() < granules { None } else { shard.with(|kept| kept.pop(&self.map, granules)) }
    }

    /// Gives the span of a shard's slab back.
    pub fn give_for(&self, shard: usize, first: u32, granules: u32) {
        if !(self.keeps() && self.keep(shard, first, granules)) {
            self.give(first, granules, false);
        }
    }

    /// Does something under the lock of what a shard keeps.
    #[inline]
    pub fn in_shard<R>(&self, shard: usize, act: impl FnOnce(&mut Kept) -> R) -> R {
        self.kept[shard].with(act)
    }

    /// Keeps the span of a large block, if there is a purger, or one thread and no more than would be held; what has to leave for it goes
    /// back. False: it is not kept.
    #[inline]
    pub fn keep_large(&self, kept: &mut Kept, span: Span) -> bool {
        // Who ends the keeping takes the lock afterwards.
        let for_all = self.keeps();
        if !for_all && !self.recent.may_shelve(span.granules) {
            return false;
        }
        if let Some(leaves) = kept.keep_large(&self.map, &self.depot, span) {
            // What one thread has too much of nobody else misses.
            if for_all && leaves.count > 1 {
                self.depot.put(&self.map, leaves);
            } else {
                self.give_batch(leaves);
            }
        }
        if !for_all {
            self.recent.set_shelved(kept.granules);
        }
        true
    }

    /// As [`Kept::take_large`], for this shard; if there is none, as many as it may need, of which it keeps all but one; else, if `or_free`,
    /// one of free memory that may have pages.
    #[inline]
    pub fn take_large(&self, shard: usize, kept: &mut Kept, granules: u32, or_free: bool) -> Option<u32> {
        let own = kept.take_large(&self.map, granules);
        let grows = own.is_none() && or_free && self.keeps() && kept.expects_growth();
        let fit = or_free.then_some(if grows { Fit::Room } else { Fit::Tight });
        let first = own
            .or_else(|| grows.then(|| kept.cut_longer(&self.map, granules)).flatten())
            .or_else(|| self.take_large_batch(shard, kept, granules))
            .or_else(|| self.give_last_and_take(shard, kept, granules, fit));
        if self.recent.has_shelved() {
            self.recent.set_shelved(kept.granules);
        }
        first
    }

    /// Takes `more` granules directly behind a used span of this shard's thread, if the shard keeps them.
    pub(super) fn take_kept_behind(&self, shard: usize, span: Span, more: u32) -> Option<Taken> {
        let end = span.first + span.granules;
        if self.heap_of(end) != self.heap_of(span.first) {
            return None; // Each part goes back to its own one day.
        }
        let takes = self.in_shard(shard, |kept| kept.take_at(&self.map, end, more));
        takes.then_some(Taken { first: end, zero: false })
    }

    /// Gives back what large blocks of other lengths left last, and takes a span that fits like this, if any is wanted: it is cut from that
    /// then, which the CPU's cache still knows, and not from colder memory. Under the shard's lock, as [`Spans::take_large_batch`]. Not
    /// inlined for the same reason.
    #[inline(never)]
    fn give_last_and_take(
        &self,
        shard: usize,
        kept: &mut Kept,
        granules: u32,
        fit: Option<Fit>,
    ) -> Option<u32> {
        let place = self.heap_of_shard(shard);
        while let Some(span) = kept.pop_last(&self.map, |first| self.heap_of(first) != place) {
            self.give_batch(Batch::of(&self.map, span));
        }
        if fit.is_none() && !kept.has_last() {
            return None;
        }
        let now = os::now_ns();
        self.with_in(place, now, |heap, map| {
            while let Some(Span { first, granules }) = kept.pop_last(map, |_| true) {
                heap.give(map, first, granules, false, now);
            }
            let roomy = (fit? == Fit::Room).then(|| heap.take_to_grow(map, granules, now)).flatten();
            roomy.or_else(|| heap.take_used(map, granules, 1, now)).map(|taken| taken.first)
        })
    }

    /// Takes what others left, or spans of memory that may have pages, if more than one is worth it: one thread meets nobody. Under the
    /// shard's lock: who forks or runs out of memory waits for what is on its way. Not inlined: who finds what its shard keeps should not
    /// save registers for this.
    #[inline(never)]
    fn take_large_batch(&self, shard: usize, kept: &mut Kept, granules: u32) -> Option<u32> {
        if granules > LONGEST || !self.keeps() {
            return None;
        }
        // Who finds nothing in the span heap from now on asks this shard, too.
        self.kept[shard].granules.set(granules);
        if let Some(batch) = self.depot.take(&self.map, granules) {
            return kept.adopt(&self.map, batch);
        }
        let count = kept.miss_large(&self.depot, granules);
        if count == 1 {
            return None;
        }
        let now = os::now_ns();
        let taken = self.with_in(self.heap_of_shard(shard), now, |heap, map| {
            let mut take = || heap.take_used(map, granules, 1, now).map(|taken| taken.first);
            let first = take();
            (1..count).map_while(|_| take()).for_each(|more| kept.push(map, more, granules));
            first
        });
        taken.or_else(|| kept.adopt(&self.map, self.take_half_of_other(shard, granules)?))
    }

    /// Half of what another shard keeps of a length. Who has its own lock does not wait for another's.
    fn take_half_of_other(&self, shard: usize, granules: u32) -> Option<Batch> {
        let mut others = self.from(shard).skip(1).filter(|other| other.granules.get() > granules);
        others.find_map(|other| {
            let mut spans = other.spans.try_lock()?;
            let half = spans.take_half(&self.map, granules)?;
            other.granules.set(spans.granules);
            Some(half)
        })
    }

    /// Gives spans back that a shard kept, under its lock for the same reason.
    fn give_batch(&self, mut batch: Batch) {
        let now = os::now_ns();
        while batch.count > 0 {
            let place = self.heap_of(batch.head);
            self.with_in(place, now, |heap, map| {
                while batch.count > 0 && self.heap_of(batch.head) == place {
                    if let Some(Span { first, granules }) = batch.pop(map) {
                        heap.give(map, first, granules, false, now);
                    }
                }
            });
        }
    }

    fn keep(&self, shard: usize, first: u32, granules: u32) -> bool {
        self.kept[shard].with(|kept| {
            // Who ends the keeping takes this lock afterwards.
            let keeps = self.keeps();
            if keeps {
                kept.push(&self.map, first, granules);
            }
            keeps
        })
    }

    /// Whether shards keep spans, and threads what they may need again: there is a purger who takes back what they do not, and nobody
    /// said otherwise (a purge mode, a trace).
    pub fn keeps(&self) -> bool {
        // ORDERING: Relaxed; where it matters a lock orders it.
        self.keeps.load(Ordering::Relaxed)
    }

    /// Whether shards may keep any.
    pub(super) fn has_kept(&self) -> bool {
        self.keeps() || self.recent.has_shelved()
    }

    /// Purges, with the next batch, what shards keep and did not need since the last call. Returns whether they keep more.
    pub fn return_unused(&self) -> bool {
        let now = os::now_ns();
        let is_left = self.with(now, |heap, map| {
            if let Some(rest) = heap.huge_page.take_unneeded() {
                heap.give_unused(map, rest, now);
            }
            heap.huge_page.rest() > 0
        });
        self.end_round(|Span { first, granules }| self.give_unused(first, granules)) > 0 || is_left
    }

    /// As [`Spans::give`], of what nobody needed for long: it is purged with the next batch.
    pub fn give_unused(&self, first: u32, granules: u32) {
        let now = os::now_ns();
        let give = |heap: &mut SpanHeap, map: &PageMap| heap.give_unused(map, Span { first, granules }, now);
        self.with_in(self.heap_of(first), now, give);
    }

    /// Takes from the shards what they did not need since the last call. Returns the granules that they keep.
    fn end_round(&self, give: impl Fn(Span)) -> u32 {
        let mut left = 0;
        for shard in self.kept.iter().filter(|shard| shard.granules.get() > 0) {
            while let Some(span) = shard.with(|kept| kept.pop_unused(&self.map)) {
                give(span);
            }
            shard.with(Kept::begin_round);
            left += shard.granules.get();
        }
        self.depot
            .end_round(&self.map, |mut batch| core::iter::from_fn(|| batch.pop(&self.map)).for_each(&give));
        left + self.depot.granules()
    }

    /// Gives back what shards keep.
    pub(super) fn return_kept(&self) {
        let by_shards = || self.kept.iter().for_each(|shard| _ = self.return_kept_by(shard));
        by_shards();
        while self.return_of_depot() {}
        // What a shard had taken out meanwhile.
        by_shards();
        self.recent.set_shelved(0);
    }

    /// Gives back what shards keep, one by one from `shard` on, and the depot, until `take` finds what it wants.
    pub(super) fn return_kept_until<T>(&self, shard: usize, take: impl Fn() -> Option<T>) -> Option<T> {
        let by_shard = |shard| self.return_kept_by(shard).then(&take).flatten();
        let mut shards = self.from(shard);
        let of_own = shards.next().and_then(by_shard);
        if !self.keeps() {
            // The only thread's shard alone has any.
            self.recent.set_shelved(0);
            return of_own;
        }
        let of_depot = || core::iter::from_fn(|| self.return_of_depot().then(&take)).flatten().next();
        of_own.or_else(of_depot).or_else(|| shards.find_map(by_shard))
    }

    /// Gives back what one shard keeps; false if that is nothing.
    pub(super) fn return_kept_by(&self, shard: &KeptByShard) -> bool {
        let any = shard.granules.get() > 0;
        if any {
            while shard.with(|kept| kept.pop_any(&self.map).map(|batch| self.give_batch(batch))).is_some() {}
        }
        any
    }

    /// Gives back a batch of the depot; false if it has none.
    fn return_of_depot(&self) -> bool {
        self.depot.give_any(&self.map, |batch| self.give_batch(batch))
    }

    /// Keeps the span of a large block at hand in this place, in a process of one thread; false if it would not be held, or another is.
    #[inline(always)]
    pub fn keep_recent(&self, place: usize, first: u32, record: &Record) -> bool {
        self.recent.keep(place, first, record)
    }

    /// Takes the span that is kept at hand in this place, if it still is; its record's state is the taker's to set.
    #[inline(always)]
    pub fn take_recent(&self, place: usize) -> Option<u32> {
        self.recent.take(place).map(|span| span.first)
    }

    #[inline(never)]
    pub(super) fn give_recent(&self, heap: &mut SpanHeap, now: u64) {
        for Span { first, granules } in (0..RECENT).filter_map(|place| self.recent.take(place)) {
            self.map.record(first).set_state(State::Interior);
            match self.heap_of(first) {
                0 => heap.give(&self.map, first, granules, false, now),
                place => self.heap_at(place).lock().give(&self.map, first, granules, false, now),
            }
        }
    }

    pub(super) fn return_recent(&self) {
        // Whoever takes the lock through `with` gives it back.
        self.with(os::now_ns(), |_, _| ());
    }

    /// Makes what is at hand part of what the shard keeps, in a process of one thread: it is found by its length there.
    #[inline]
    pub fn shelve_recent(&self, shard: usize) {
        if self.recent.has_any() && os::is_single_threaded() {
            (0..RECENT).filter_map(|place| self.recent.take(place)).for_each(|span| self.shelve(shard, span));
        }
    }

    #[inline(never)]
    fn shelve(&self, shard: usize, span: Span) {
        self.map.record(span.first).set_state(State::Interior);
        if !self.in_shard(shard, |kept| self.keep_large(kept, span)) {
            self.give(span.first, span.granules, false);
        }
    }

    /// Ends a slow path where something is at hand, or was: gives back what is too much, or nobody wanted for a round.
    #[inline(never)]
    pub(super) fn settle_recent(&self) {
        if !os::is_single_threaded() || self.recent.is_too_much() {
            self.return_recent();
            self.return_kept();
        } else if self.recent.ends_round() {
            if self.recent.begin_round() {
                self.return_recent();
            }
            let left = self.end_round(|Span { first, granules }| self.give(first, granules, false));
            self.recent.set_shelved(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span_heap::{PurgeMode, huge_page};

    /// Spans with a purger, three of one granule each that shards 0 and 1 keep and that is free, with used ones between.
    fn kept_and_free() -> (Spans, [u32; 3]) {
        let spans = Spans::new();
        spans.set_purger(true);
        let take = || spans.take(0, 1, 1, false).unwrap().first;
        let [by_0, _, by_1, _, free, _] = std::array::from_fn(|_| take());
        spans.give_for(0, by_0, 1);
        spans.give_for(1, by_1, 1);
        spans.give(free, 1, false);
        (spans, [by_0, by_1, free])
    }

    #[test]
    fn a_slab_is_made_of_what_its_shard_kept_then_of_what_is_free_then_of_what_others_keep() {
        let (spans, [by_0, by_1, free]) = kept_and_free();
        let taken = std::array::from_fn(|_| spans.take_used_for(1, 1));
        assert_eq!(taken, [Some(by_1), Some(free), Some(by_0), None]);
    }

    #[test]
    fn who_misses_spans_of_a_length_often_has_half_of_what_another_keeps_and_what_that_has_too_much_of() {
        let spans = Spans::new();
        spans.set_purger(true);
        let give = |first| {
            assert!(spans.in_shard(0, |kept| spans.keep_large(kept, Span { first, granules: 2 })));
        };
        let take = || spans.in_shard(1, |kept| spans.take_large(1, kept, 2, false));
        let taken: Vec<u32> = (0..16).map(|_| spans.take(0, 2, 1, true).unwrap().first).collect();
        taken[..4].iter().for_each(|&first| give(first));
        let missed = (0..).take_while(|_| take().is_none()).count();
        assert_eq!((missed, take()), (7, Some(taken[3])), "half");
        assert_eq!(take(), Some(taken[1]), "half of the rest");
        assert_eq!((take(), spans.counts().dirty), (None, 2), "a shard's last is left to it");
        // Wanted, and so gathered for others.
        taken[4..].iter().for_each(|&first| give(first));
        let others = spans.depot.granules();
        assert!(others > 0 && take().is_some() && spans.depot.granules() < others);
        spans.return_kept();
        assert_eq!((spans.depot.granules(), spans.counts().dirty + spans.used()), (0, 2 * 16));
    }

    #[test]
    fn a_block_that_finds_no_span_of_its_length_is_cut_from_what_was_freed_last() {
        let spans = Spans::new();
        spans.set_purger(true);
        let take = |granules| spans.take(0, granules, 1, false).unwrap().first;
        let [cold, _, hot] = [80, 1, 50].map(take);
        spans.give(cold, 80, false);
        let keep = |first, granules| {
            assert!(spans.in_shard(0, |kept| spans.keep_large(kept, Span { first, granules })));
        };
        let take_large =
            |granules, or_free| spans.in_shard(0, |kept| spans.take_large(0, kept, granules, or_free));
        keep(hot, 50);
        assert_eq!(take_large(50, true), Some(hot), "as long");
        for or_free in [true, false] {
            keep(hot, 50);
            let found = take_large(40, or_free);
            assert_eq!(found, or_free.then_some(hot));
            let first = found.unwrap_or_else(|| take(40));
            assert_eq!(first, hot);
            spans.give(first, 40, false);
            assert_eq!(take(50), hot, "the rest was free");
        }
    }

    #[test]
    fn a_block_grows_into_what_its_shard_keeps_or_goes_there_and_not_into_memory_without_pages() {
        let spans = Spans::new();
        spans.set_purger(true);
        let take = |granules| spans.take(0, granules, 1, false).unwrap().first;
        let keep = |first, granules| {
            assert!(spans.in_shard(0, |kept| spans.keep_large(kept, Span { first, granules })));
        };
        let [long, block, behind] = [4, 1, 3].map(take);
        let grow = |granules, more| {
            let taken = spans.take_behind(0, Span { first: block, granules }, more);
            spans.map.record(block).granules.set(granules + taken.map_or(0, |_| more));
            taken.map(|taken| taken.first)
        };
        assert_eq!(grow(1, 1), None, "in use");
        keep(behind, 3);
        assert_eq!(spans.take_behind(1, Span { first: block, granules: 1 }, 1), None, "another shard's");
        assert_eq!(grow(1, 1), Some(behind));
        assert_eq!(grow(2, 3), None, "more than is kept there");
        assert_eq!(grow(2, 2), Some(behind + 1));
        keep(long, 4);
        spans.map.record(block).granules.set(3);
        spans.give(behind + 2, 1, true);
        assert_eq!(grow(3, 1), None, "without pages, and as much is kept");
        assert_eq!(spans.in_shard(0, |kept| spans.take_large(0, kept, 4, true)), Some(long));
        assert_eq!(grow(3, 1), Some(behind + 2));
        assert_eq!(spans.used(), 8);
    }

    #[test]
    fn where_blocks_grow_the_next_has_room_behind_it() {
        let spans = Spans::new();
        spans.set_purger(true);
        let taken = [6, 1, 8, 1, 4, 1].map(|granules| spans.take(0, granules, 1, false).unwrap().first);
        let [tight, _, roomy, _, kept, _] = taken;
        [(tight, 6), (roomy, 8)].into_iter().for_each(|(first, granules)| spans.give(first, granules, false));
        let take = |granules| spans.in_shard(0, |kept| spans.take_large(0, kept, granules, true));
        let give = |first, granules| spans.give(first, granules, false);
        let note_growth = || spans.in_shard(0, |kept| kept.note_growth());
        let found = take(4);
        assert_eq!(found, Some(tight));
        give(tight, 4);
        note_growth();
        let found = take(4);
        assert_eq!(found, Some(roomy), "twice as long");
        give(roomy, 4);
        assert!(spans.in_shard(0, |of_shard| spans.keep_large(of_shard, Span { first: kept, granules: 4 })));
        note_growth();
        assert_eq!(take(3), Some(kept), "what the shard keeps is nearer");
        assert_eq!(take(3), Some(tight), "one for each that grew");
    }

    #[test]
    fn what_is_kept_or_waits_is_left_until_a_round_in_which_nobody_needs_it() {
        let (spans, _) = kept_and_free();
        assert!(spans.has_waiting());
        assert_eq!([spans.return_unused(), spans.return_unused()], [true, false]);
        assert_eq!((spans.counts().used, spans.used()), (3, 3));
        let first = spans.take(0, huge_page::GRANULES, 1, true).unwrap().first;
        spans.heap.lock().huge_page.set(first);
        assert_eq!((spans.counts().used, spans.used()), (3, 3 + huge_page::GRANULES));
        assert_eq!([spans.return_unused(), spans.return_unused()], [true, false]);
        assert_eq!(spans.used(), 3);
    }

    #[test]
    fn nothing_is_kept_where_memory_goes_back_at_once_or_only_when_asked() {
        for (mode, keeps) in [(PurgeMode::Auto, true), (PurgeMode::Now, false), (PurgeMode::Never, false)] {
            let spans = Spans::new();
            spans.set_mode(mode);
            spans.set_purger(true);
            assert_eq!(spans.keeps(), keeps, "{mode:?}");
        }
    }
}
