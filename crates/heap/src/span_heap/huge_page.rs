//! Huge pages for slabs, in a heap that is large.
//!
//! A huge page is 2 MiB at once: one fault instead of 512, one entry of the TLB instead of 512, and 2 MiB resident for whoever needs 64
//! KiB. So they are for slabs of a heap in which blocks of 32 MiB and more are in use; slabs are cut from one huge page at a time, and
//! what is not cut yet is less than a sixteenth of what is in use. Large blocks get theirs one by one (`large::filled`), under the
//! same brake where they are slow or not to be had.
//!
//! The memory is advised, touched and advised back, so that the kernel's own helper (`khugepaged`) never fills what was purged. To
//! purge a part of a huge page it is broken up first (`PageMap::break_huge_pages`).

use super::SpanHeap;
use super::free_lists::FEW;
use crate::granule::{GRANULE_BYTES, Span};
use crate::os::HUGE_PAGE_BYTES;
use crate::page_map::PageMap;

/// Granules of a huge page.
pub const GRANULES: u32 = (HUGE_PAGE_BYTES / GRANULE_BYTES) as u32;

/// Bytes of small blocks in use from which on huge pages are used.
pub const WORTH_BYTES: usize = 16 * HUGE_PAGE_BYTES;

/// CPU time in ns of the 512 faults that a huge page saves: 1.4 us each, docs/choices.md.
const SAVED_NS: u64 = 700_000;

/// Slow huge pages cost, beyond what small ones would have, at most this part of what those would have cost.
const LOSS_PART: u64 = 16;

/// So many times in vain, and it is tried after every 2^10 huge pages' worth of memory only.
const FAILURES_MAX: u32 = 10;

/// The huge page that slabs are cut from.
pub struct HugePage {
    /// What is not cut yet.
    next: u32,
    end: u32,
    /// Granules for slabs that are to come from small pages before the next.
    to_skip: u32,
    /// How often in a row none was to be had, or much of one was not needed.
    failures: u32,
    /// Whether something was cut since the last look.
    is_needed: bool,
}

impl HugePage {
    /// None.
    pub const fn new() -> Self {
        Self { next: 0, end: 0, to_skip: 0, failures: 0, is_needed: false }
    }

    /// Cuts a span off, if that much is left.
    pub fn cut(&mut self, granules: u32) -> Option<u32> {
        if self.rest() < granules {
            return None;
        }
        let first = self.next;
        self.next += granules;
        self.is_needed = true;
        Some(first)
    }

    /// Counts a slab of `granules`. Returns whether another is wanted for it, and not a small page for once.
    pub fn next_is_wanted(&mut self, granules: u32) -> bool {
        let is_wanted = self.to_skip == 0;
        self.to_skip = self.to_skip.saturating_sub(granules);
        is_wanted
    }

    /// The memory from `first` on is to be cut from now on.
    pub fn set(&mut self, first: u32) {
        (self.next, self.end, self.is_needed) = (first, first + GRANULES, true);
    }

    /// It took so many ns to bring memory in, as a huge page or not.
    fn learn(&mut self, is_huge: bool, ns: u64) {
        if is_huge {
            self.failures /= 2;
            let lost = ns.saturating_sub(SAVED_NS) * LOSS_PART / SAVED_NS;
            self.to_skip = (lost as u32).saturating_mul(GRANULES);
        } else {
            self.fail();
        }
    }

    /// Takes out what is not cut yet.
    fn take_rest(&mut self) -> Option<Span> {
        let rest = Span { first: self.next, granules: self.rest() };
        self.next = self.end;
        if rest.granules > GRANULES / 2 {
            self.fail();
        }
        (rest.granules > 0).then_some(rest)
    }

    /// Takes out what is not cut yet, if nothing was cut since the last call.
    pub fn take_unneeded(&mut self) -> Option<Span> {
        if core::mem::take(&mut self.is_needed) { None } else { self.take_rest() }
    }

    /// Granules that are not cut yet.
    pub fn rest(&self) -> u32 {
        self.end - self.next
    }

    fn fail(&mut self) {
        self.failures = (self.failures + 1).min(FAILURES_MAX);
        self.to_skip = GRANULES << self.failures;
    }
}

impl SpanHeap {
    /// Takes a span for a slab of memory that may have pages, or of the huge page that slabs are cut from.
    pub fn take_used_or_huge(&mut self, map: &PageMap, granules: u32, now: u64) -> Option<u32> {
        let used = self.take_used(map, granules, 1, now).map(|taken| taken.first);
        used.or_else(|| self.huge_page.cut(granules))
    }

    /// Takes the clean memory of a whole huge page, for slabs to be cut from, if it is time for one; `granules` of it are wanted.
    /// It counts as used. What is left of the one before goes back.
    pub fn take_huge_page(&mut self, map: &PageMap, granules: u32, now: u64) -> Option<u32> {
        if !self.huge_page.next_is_wanted(granules) {
            return None;
        }
        self.give_huge_page(map, now);
        let padded = 2 * GRANULES - 1;
        let span = self.clean.best_fit(map, padded, FEW).or_else(|| self.reserve(map, padded))?;
        Some(self.take_of(map, span, GRANULES, GRANULES, now).first)
    }

    /// So many ns of CPU time were spent to bring memory in, as a huge page or not.
    pub fn note_huge_page(&mut self, is_huge: bool, ns: u64) {
        self.counts.huge_pages += u64::from(is_huge);
        self.huge_page.learn(is_huge, ns);
    }

    /// Gives back what is left of the huge page that slabs are cut from.
    pub fn give_huge_page(&mut self, map: &PageMap, now: u64) {
        if let Some(rest) = self.huge_page.take_rest() {
            self.give_unused(map, rest, now);
        }
    }
}

impl Default for HugePage {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_cut_until_nothing_is_left() {
        let mut page = HugePage::new();
        assert_eq!((page.cut(1), page.take_rest()), (None, None));
        page.set(64);
        let firsts: Vec<u32> = (0..7).map_while(|_| page.cut(4)).collect();
        assert_eq!(firsts, [64, 68, 72, 76, 80, 84, 88]);
        assert_eq!((page.rest(), page.take_unneeded()), (4, None), "cut since the last look");
        assert_eq!((page.take_unneeded(), page.rest()), (Some(Span { first: 92, granules: 4 }), 0));
        assert!(page.next_is_wanted(1));
    }

    #[test]
    fn a_new_one_is_clean_memory_between_others_and_what_is_left_of_the_one_before_goes_back() {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        spans.decay.set_purger(true);
        let mut take = |granules| spans.take(&map, granules, 1, true, 1).unwrap().first;
        // To the second granule of a huge page.
        let position = (map.address(take(1)) % HUGE_PAGE_BYTES / GRANULE_BYTES) as u32;
        take(GRANULES - position);
        let [short, _, long, _, before, _] = [40, 1, 63, 1, GRANULES, 1].map(take);
        spans.take(&map, spans.counts.clean, 1, true, 1).unwrap();
        spans.give(&map, short, 40, true, 1);
        spans.give(&map, long, 63, true, 1);
        spans.huge_page.set(before);
        spans.huge_page.cut(GRANULES - 1);
        let first = spans.take_huge_page(&map, 4, 1).unwrap();
        assert!(map.address(first).is_multiple_of(HUGE_PAGE_BYTES) && (long..long + 32).contains(&first));
        assert_eq!((spans.waiting(), spans.is_due(&map, true, 1)), (1, true));
    }

    /// Granules that come from small pages until a huge page is tried again.
    fn skipped(page: &mut HugePage) -> u32 {
        (0..).find(|_| page.next_is_wanted(1)).unwrap()
    }

    #[test]
    fn slow_huge_pages_are_used_so_rarely_that_they_cost_little() {
        let mut page = HugePage::new();
        page.learn(true, SAVED_NS);
        assert_eq!(skipped(&mut page), 0);
        page.learn(true, 3 * SAVED_NS);
        let skipped = u64::from(skipped(&mut page) / GRANULES);
        assert_eq!(skipped, 32);
        assert!(2 * SAVED_NS <= skipped * SAVED_NS / LOSS_PART);
    }

    #[test]
    fn where_none_is_to_be_had_it_is_tried_more_and_more_rarely() {
        let mut page = HugePage::new();
        let tries: Vec<u32> = (0..12)
            .map(|_| {
                page.learn(false, 5000);
                skipped(&mut page) / GRANULES
            })
            .collect();
        assert_eq!(tries, [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        page.learn(true, 100_000);
        assert_eq!(skipped(&mut page), 0);
    }

    #[test]
    fn a_huge_page_of_which_little_was_needed_counts_as_one_in_vain() {
        let mut page = HugePage::new();
        page.set(0);
        page.cut(1);
        assert_eq!(page.take_rest(), Some(Span { first: 1, granules: 31 }));
        assert_eq!(skipped(&mut page), 2 * GRANULES);
    }
}
