//! Which free spans are due to go back to the kernel, and their way there.

use super::SpanHeap;
use crate::granule::{Span, bytes_of};
use crate::os;
use crate::page_map::{PageMap, State, Waiting};

/// Dirty memory, in granules, that may wait for a batch: one purge of 512 KiB costs a tenth, per page, of
/// eight of 64 KiB.
pub const PURGE_BATCH: u32 = 8;

/// Granules that one call to [`SpanHeap::take_due`] hands out at most: 64 MiB.
const PURGE_ROUND: u32 = 1024;

/// What went back to the kernel since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purges {
    /// Bytes that went.
    pub bytes: u64,
    /// Calls by which they did.
    pub calls: u64,
    /// Calls that the kernel refused.
    pub refused: u64,
}

impl Purges {
    /// Nothing.
    pub const NONE: Self = Self { bytes: 0, calls: 0, refused: 0 };

    /// So many bytes were to go; `done`: they did.
    pub fn note(&mut self, bytes: usize, done: bool) {
        self.bytes += if done { bytes as u64 } else { 0 };
        self.calls += u64::from(done);
        self.refused += u64::from(!done);
    }

    /// And so did these.
    pub fn add(&mut self, others: Self) {
        self.bytes += others.bytes;
        self.calls += others.calls;
        self.refused += others.refused;
    }
}

/// A span on its way to the kernel: in no list, owned by the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    pub(super) span: Span,
    /// Whether its mapping is split and should be renewed.
    pub(super) moved: bool,
}

impl Due {
    /// No span: what one is put in place of.
    pub const NONE: Self = Self { span: Span { first: 0, granules: 0 }, moved: false };

    /// Its length.
    pub fn granules(&self) -> u32 {
        self.span.granules
    }

    /// Gives its pages back to the kernel. False: refused, or its mapping is still split. Such a span stays known for one, as memory that may
    /// have pages: it is used before fresh memory, and `malloc_trim` and who frees it next renew it. Clean, it would pass the mark on to all
    /// that it joins and to each part that is cut.
    ///
    /// Only a [`super::SpanHeap`] makes one, and takes it back for good; so who has it owns the span, and no lock is held.
    pub fn purge(&self, map: &PageMap) -> bool {
        let (address, bytes) = map.range(self.span);
        // SAFETY: the span is in no list and no block lives in it, so its contents are nobody's.
        unsafe {
            map.break_huge_pages(address, bytes);
            // A limit of the process may refuse a new mapping. The pages go in any case.
            let is_renewed = self.moved && map.reservation.renew(address, bytes);
            let done = is_renewed || os::purge(address, bytes) && !self.moved;
            if done {
                map.purge_tables(self.span);
            }
            done
        }
    }
}

impl SpanHeap {
    /// Whether there is something to purge at `now`, even if it is less than a batch when `any` is set.
    pub fn is_due(&self, map: &PageMap, any: bool, now: u64) -> bool {
        self.pending.granules >= if any { 1 } else { PURGE_BATCH }
            || self.held.granules > self.room() + PURGE_BATCH
            || self.held.oldest().is_some_and(|span| self.is_hold_over(map, span, now))
    }

    /// Whether a span has been held for long enough at `now`, or is of a phase that is over.
    fn is_hold_over(&self, map: &PageMap, span: u32, now: u64) -> bool {
        let span = map.record(span).free();
        span.deadline() <= now || span.freed_at() < self.released_before
    }

    /// Granules that wait for their purge.
    pub fn waiting(&self) -> u32 {
        self.pending.granules + self.held.granules
    }

    /// Takes spans whose time has come, up to 64 MiB and `out.len()` of them; returns how many. `all`: also those
    /// whose time has not come.
    ///
    /// The caller purges them without the lock, then gives each to [`SpanHeap::purged`].
    pub fn take_due(&mut self, map: &PageMap, all: bool, now: u64, out: &mut [Due]) -> usize {
        // A heap that gives back at once has no use for the rest of a huge page; where there is a purger, `Spans::return_unused` sees to it.
        if all || self.decay.is_releasing() {
            self.give_huge_page(map, now);
        }
        let mut count = 0;
        let mut granules = 0;
        while count < out.len() && granules < PURGE_ROUND {
            let goes = all || self.held.granules > self.room();
            let expired = self.held.oldest().filter(|&span| goes || self.is_hold_over(map, span, now));
            let Some(first) = expired.or_else(|| self.pending.oldest()) else { break };
            let record = map.record(first);
            let span = Span { first, granules: record.granules.get() };
            if expired.is_some() && !all {
                match self.is_hold_over(map, first, now) {
                    true => self.room.expired(span.granules),
                    false => self.room.exceeded(span.granules, now),
                }
            }
            match record.free().waiting() {
                Waiting::Held if record.free().deadline() <= now => self.decay.expired(span.granules, now),
                _ => self.decay.purged(span.granules, now),
            }
            out[count] = Due { span, moved: record.is_moved() };
            self.unlink(map, first);
            granules += span.granules;
            count += 1;
        }
        count
    }

    /// Lets what the kernel refused to take wait for the next batch: it may have been locked then.
    pub fn ask_again(&mut self, map: &PageMap) {
        for first in self.dirty.all(map) {
            let record = map.record(first);
            if record.free().waiting() == Waiting::None {
                record.free().set_waiting(Waiting::Pending);
                self.pending.insert_behind(map, self.pending.newest(), first, record.granules.get());
            }
        }
    }

    /// Takes a span back that [`SpanHeap::take_due`] handed out; `done`: its pages are gone.
    pub fn purged(&mut self, map: &PageMap, due: Due, done: bool) {
        self.counts.purges.note(bytes_of(due.span.granules), done);
        if done {
            map.set_moved(due.span.first, false);
            let whole = self.add_clean(map, due.span);
            // SAFETY: the caller holds the lock, and the span is part of the whole, which is clean.
            unsafe { map.purge_tables_around(due.span, whole) };
        } else {
            // Not asked again but by [`SpanHeap::ask_again`]: a seccomp filter or locked memory will refuse the next time, too.
            self.merge(map, due.span, State::Dirty, Waiting::None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decay::HOLD_MAX_NS;

    #[test]
    fn a_batch_is_due_unless_any_is_asked_for() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        let first = spans.take(&map, PURGE_BATCH, 1, false, 0).unwrap().first;
        spans.give(&map, first, PURGE_BATCH - 1, false, 0);
        assert_eq!([false, true].map(|any| spans.is_due(&map, any, 0)), [false, true]);
        spans.give(&map, first + PURGE_BATCH - 1, 1, false, 0);
        assert!(spans.is_due(&map, false, 0));
    }

    #[test]
    fn what_is_held_is_due_when_it_is_a_batch_more_than_there_is_room_for() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        spans.decay.set_purger(true);
        let [first, _] = [16, 4].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
        spans.give(&map, first, 16, false, 1);
        for (peak, room) in [(9, 8), (8, 7)] {
            spans.counts.used_peak = peak;
            assert_eq!((spans.room(), spans.is_due(&map, false, 1)), (room, room + PURGE_BATCH < 16));
        }
    }

    #[test]
    fn what_had_to_go_and_was_missed_at_once_has_room_the_next_time() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        spans.decay.set_purger(true);
        let [first, _] = [40, 1].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
        spans.counts.used_peak = 24;
        let mut due = [Due::NONE; 1];
        for (round, count) in [(1, 1), (2, 0)] {
            spans.give(&map, first, 40, false, round);
            assert_eq!(spans.take_due(&map, false, round, &mut due), count, "{round}");
            if count == 1 {
                let [span] = core::mem::replace(&mut due, [Due::NONE; 1]);
                spans.purged(&map, span, true);
            }
            spans.take(&map, 40, 1, false, round).unwrap();
            spans.counts.used_peak = 32;
        }
    }

    #[test]
    fn what_is_held_in_vain_had_too_much_room_and_what_goes_with_all_says_nothing() {
        for (all, more) in [(true, 20), (false, 4)] {
            let (map, mut spans) = (PageMap::new(), SpanHeap::new());
            spans.decay.set_purger(true);
            let [first, _] = [16, 4].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
            spans.counts.used_peak = 800;
            spans.room.exceeded(20, 0);
            spans.room.faulted(20, 0);
            spans.give(&map, first, 16, false, 1);
            assert_eq!(spans.take_due(&map, all, 10 * HOLD_MAX_NS, &mut [Due::NONE; 1]), 1);
            assert_eq!(spans.room() + 4, 1100 + more);
        }
    }

    #[test]
    fn with_one_thread_what_was_held_in_vain_is_held_no_more_but_what_was_asked_for_is() {
        for (all, most_held) in [(false, 0), (true, 80)] {
            let (map, mut spans) = (PageMap::new(), SpanHeap::new());
            let [first, _] = [64, 1].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
            spans.decay.rescued(64, 0);
            spans.give(&map, first, 64, false, 1);
            let now = if all { 2 } else { 2 * HOLD_MAX_NS };
            assert_eq!(spans.take_due(&map, all, now, &mut [Due::NONE; 1]), 1);
            assert_eq!(spans.most_held(), most_held);
        }
    }

    #[test]
    fn the_rest_of_a_huge_page_goes_with_all_and_where_nothing_is_held() {
        for (has_purger, all, gone) in [(true, false, 0), (true, true, 31), (false, false, 31)] {
            let (map, mut spans) = (PageMap::new(), SpanHeap::new());
            spans.decay.set_purger(has_purger);
            let first = spans.take(&map, 32, 1, false, 0).unwrap().first;
            spans.huge_page.set(first);
            spans.huge_page.cut(1);
            let mut due = [Due::NONE; 1];
            spans.take_due(&map, all, 1, &mut due);
            assert_eq!(due[0].granules(), gone);
        }
    }

    #[test]
    fn no_more_than_64_mib_and_one_span_are_on_their_way_at_once() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        for granules in [PURGE_ROUND - 1, 8, 8] {
            let [first, _] =
                [granules, 1].map(|granules| spans.take(&map, granules, 1, true, 0).unwrap().first);
            spans.give(&map, first, granules, false, 0);
        }
        assert_eq!(spans.take_due(&map, true, 0, &mut [Due::NONE; 4]), 2);
    }

    #[test]
    fn purges_that_are_done_and_refused_add_up() {
        let mut purges = Purges::NONE;
        purges.note(4096, true);
        purges.note(8192, false);
        purges.add(purges);
        assert_eq!(purges, Purges { bytes: 8192, calls: 2, refused: 2 });
    }
}
