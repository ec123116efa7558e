//! Dirty spans in the order in which they were freed.

use crate::page_map::PageMap;

/// A list of dirty spans, oldest first.
pub struct TimeList {
    oldest: u32,
    newest: u32,
    /// Sum of their lengths.
    pub granules: u32,
}

impl TimeList {
    pub const fn new() -> Self {
        Self { oldest: 0, newest: 0, granules: 0 }
    }

    pub fn oldest(&self) -> Option<u32> {
        (self.oldest != 0).then_some(self.oldest)
    }

    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Adds a span behind `older`, which is in the list, or 0 for its front.
    #[inline(always)] // Into `SpanHeap::link`, of which it is a part each time; the other caller is rare.
    pub fn insert_behind(&mut self, map: &PageMap, older: u32, first: u32, granules: u32) {
        let newer = if older != 0 { map.record(older).free().newer() } else { self.oldest };
        let span = map.record(first).free();
        span.set_older(older);
        span.set_newer(newer);
        if older != 0 {
            map.record(older).free().set_newer(first);
        } else {
            self.oldest = first;
        }
        if newer != 0 {
            map.record(newer).free().set_older(first);
        } else {
            self.newest = first;
        }
        self.granules += granules;
    }

    pub fn remove(&mut self, map: &PageMap, first: u32, granules: u32) {
        let span = map.record(first).free();
        let (older, newer) = (span.older(), span.newer());
        if older != 0 {
            map.record(older).free().set_newer(newer);
        } else {
            self.oldest = newer;
        }
        if newer != 0 {
            map.record(newer).free().set_older(older);
        } else {
            self.newest = older;
        }
        self.granules -= granules;
    }
}

/// The mean of two times, weighted by the lengths of what they are of.
pub fn mean(time: u64, granules: u32, other: u64, other_granules: u32) -> u64 {
    let ((early, early_granules), (late, late_granules)) = if time <= other {
        ((time, granules), (other, other_granules))
    } else {
        ((other, other_granules), (time, granules))
    };
    if late == u64::MAX {
        return late;
    }
    // Lengths are below 2^24, so the product fits.
    let apart = (late - early).min(1 << 39);
    early + apart * u64::from(late_granules) / (u64::from(early_granules) + u64::from(late_granules))
}

#[cfg(test)]
mod tests {
    use super::super::{Due, SpanHeap};
    use super::*;
    use crate::decay::bin_of;

    #[test]
    fn times_are_weighted_by_length_and_never_is_later_than_all() {
        for [time, granules, other, other_granules, mean_of_both] in
            [[100, 3, 200, 1, 125], [200, 1, 100, 3, 125], [u64::MAX, 1, 0, 9, u64::MAX]]
        {
            assert_eq!(mean(time, granules as u32, other, other_granules as u32), mean_of_both);
        }
        assert!(mean(0, 1, u64::MAX - 1, (1 << 24) - 1) > 0, "no overflow");
    }

    #[test]
    fn what_joins_something_longer_waits_in_its_place_until_the_mean_of_their_times() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        spans.decay.set_purger(true);
        let mut take = |granules| spans.take(&map, granules, 1, false, 0).unwrap().first;
        let [before, long, behind, _, other, _] = [8, 48, 8, 1, 16, 1].map(&mut take);
        map.set_moved(long, true);
        let mut deadline_of = |first, granules, now| {
            spans.give(&map, first, granules, false, now);
            map.record(first).free().deadline()
        };
        let deadline = deadline_of(long, 48, 1000);
        deadline_of(other, 16, 1200);
        deadline_of(behind, 8, 1800);
        assert_eq!(deadline_of(before, 8, 1900) - deadline, 212);
        assert_eq!(map.record(before).free().freed_at(), 1212);
        assert_eq!((map.record(before).is_moved(), map.moved_spans()), (true, 1));
        assert_eq!(map.record(before).free().bin(), bin_of(48) as u8, "what is expected back");
        let mut due = [Due::NONE; 2];
        assert_eq!(spans.take_due(&map, false, deadline + 212, &mut due), 2);
        assert_eq!(due.map(|due| due.granules()), [64, 16]);
    }
}
