//! What shards keep for large blocks, and where these take spans from when it does not serve.

use super::Spans;
use super::kept::{Batch, Kept, LONGEST, SLAB_LONGEST};
use crate::granule::Span;
use crate::os;
use crate::span_heap::Taken;

/// How a span of free memory is to fit a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// As nearly as there is one.
    Tight,
    /// With room behind, if there is one: the block will grow.
    Room,
}

impl Spans {
    /// Keeps the span of a large block, if there is a purger, or one thread and no more than would be held; what has to leave for it goes
    /// back. False: it is not kept.
    #[inline]
    pub fn keep_large(&self, kept: &mut Kept, span: Span) -> bool {
        // Who ends the keeping takes the lock afterwards.
        let for_all = self.keeps();
        if !for_all && !self.recent.would_hold(span.granules) {
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
        let grows = own.is_none() && or_free && self.keeps() && kept.use_room();
        let fit = or_free.then_some(if grows { Fit::Room } else { Fit::Tight });
        let first = own
            .or_else(|| grows.then(|| kept.cut_longer(&self.map, granules)).flatten())
            .or_else(|| self.take_large_batch(shard, kept, granules))
            .or_else(|| self.give_last_and_take(shard, kept, granules, fit));
        // Another thread's shard is not the one that keeps them.
        if self.recent.has_shelved() && os::is_single_threaded() {
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
        self.note_traffic();
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
        if granules > LONGEST {
            return None;
        }
        if !self.keeps() {
            // Longer ones are of more use joined: what needs more would find them in pieces.
            if granules <= SLAB_LONGEST && os::is_single_threaded() {
                kept.miss_large(&self.depot, granules);
            }
            return None;
        }
        // Who finds nothing in the span heap from now on asks this shard, too.
        self.kept_by(shard).granules.set(kept.granules + granules);
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_a_shard_keeps_is_known_while_it_looks_for_spans_elsewhere() {
        let spans = Spans::new();
        spans.set_purger(true);
        let first = spans.take(0, 100, 1, true).unwrap().first;
        assert!(spans.in_shard(0, |kept| spans.keep_large(kept, Span { first, granules: 100 })));
        let heap = spans.heap.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| spans.in_shard(0, |kept| spans.take_large(0, kept, 2, true)));
            // Time to wait for the span heap.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(spans.kept[0].granules.get() >= 100);
            drop(heap);
        });
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
}
