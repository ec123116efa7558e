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
