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

    pub fn push(&mut self, map: &PageMap, first: u32, granules: u32) {
        let record = map.record(first);
        record.older.set(self.newest);
        record.newer.set(0);
        if self.newest != 0 {
            map.record(self.newest).newer.set(first);
        } else {
            self.oldest = first;
        }
        self.newest = first;
        self.granules += granules;
    }

    pub fn remove(&mut self, map: &PageMap, first: u32, granules: u32) {
        let record = map.record(first);
        let (older, newer) = (record.older.get(), record.newer.get());
        if older != 0 {
            map.record(older).newer.set(newer);
        } else {
            self.oldest = newer;
        }
        if newer != 0 {
            map.record(newer).older.set(older);
        } else {
            self.newest = older;
        }
        self.granules -= granules;
    }
}
