//! Used spans that grow in place, into what is free behind them.

use super::free_lists::FEW;
use super::{SpanHeap, Taken};
use crate::granule::Span;
use crate::page_map::{PageMap, State};

/// A span that grows by this part of itself or more, and has clean memory behind it, is copied to memory with pages, where that has room:
/// to fault in a page costs as much as copying four that no cache holds, or twenty that one does.
const COPIED_GROWTH: u32 = 6;

/// Of a free span for a block that grows: so many times as long as the block, it will have room behind it when that grows again.
const ROOM: u32 = 2;

impl SpanHeap {
    /// Takes a span for a block that grows out of one with pages in which it has room to grow again; `None` if there is none.
    pub fn take_to_grow(&mut self, map: &PageMap, granules: u32, now: u64) -> Option<Taken> {
        let span = self.used_fit(map, granules.checked_mul(ROOM)?, 1, granules)?;
        Some(self.take_of(map, span, granules, 1, now))
    }

    /// Takes `more` granules directly behind a used span, if they are free, or if new memory continues what is; not such without pages
    /// for a span that grows by much, where memory with pages has room for both, or its shard keeps as much.
    pub fn take_behind(
        &mut self,
        map: &PageMap,
        span: Span,
        more: u32,
        keeps_as_much: bool,
        now: u64,
    ) -> Option<Taken> {
        let (end, wanted) = (span.first + span.granules, span.granules + more);
        let grows_little = more < span.granules / COPIED_GROWTH;
        let is_free = if self.free_from(map, end) >= more {
            grows_little
                || map.record(end).state() == State::Dirty
                || !keeps_as_much && self.used_fit(map, wanted, 1, wanted).is_none()
        } else {
            (grows_little || !keeps_as_much) && self.reserve_behind(map, span, more)
        };
        is_free.then(|| self.take_of(map, end, more, 1, now))
    }

    /// Length of the free span that begins at a granule, 0 for none.
    fn free_from(&self, map: &PageMap, granule: u32) -> u32 {
        if granule >= map.reservation.limit() {
            return 0;
        }
        let record = map.record(granule);
        let is_free = self.is_own(record) && matches!(record.state(), State::Clean | State::Dirty);
        if is_free { record.granules.get() } else { 0 }
    }

    /// Makes `more` granules behind a used span free, where nothing used follows it; not where memory with pages has room for both.
    #[cold]
    fn reserve_behind(&mut self, map: &PageMap, span: Span, more: u32) -> bool {
        let (end, limit) = (span.first + span.granules, map.reservation.limit());
        let is_last = end == limit || self.clean_at_limit(map).first == end;
        if !is_last || self.dirty.best_fit(map, span.granules + more, FEW).is_some() {
            return false;
        }
        let Some(fresh) = map.reservation.grow(more, limit - end) else { return false };
        self.add_clean(map, fresh);
        // Elsewhere, if somebody else's mapping was in the way.
        self.free_from(map, end) >= more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_again_before_its_purge_is_evidence_for_holding_it() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        let first = spans.take(&map, 64, 1, false, 0).unwrap().first;
        spans.give(&map, first, 64, false, 1);
        assert!(spans.decay.is_releasing());
        assert_eq!(spans.take(&map, 64, 1, false, 2).unwrap().first, first);
        assert!(!spans.decay.is_releasing());
    }
}
