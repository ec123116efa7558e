//! Spans on huge pages: for slabs of a large heap, and for large blocks of sizes that are filled.

use super::Spans;
use crate::os;
use crate::span_heap::{Taken, huge_page};

impl Spans {
    /// Takes a span for a slab, when nobody keeps anything that serves. `is_large`: the heap is worth huge pages.
    pub fn take_for_slab(&self, shard: usize, granules: u32, is_large: bool) -> Option<Taken> {
        let huge = if is_large { self.take_of_huge_page(granules) } else { None };
        if let Some(first) = huge {
            return Some(Taken { first, zero: false });
        }
        // Where there is a purger the caller has looked.
        let used = if self.recent.has_shelved() { self.take_used_or_kept(shard, granules, 1) } else { None };
        used.or_else(|| self.take_any(shard, granules, 1, false))
    }

    /// Takes a span for a block that is to have huge pages: what has pages, or what can have them.
    pub fn take_for_huge(&self, shard: usize, granules: u32, align: u32) -> Option<Taken> {
        // Others would leave gaps that serve none of their kind.
        let is_whole = granules.is_multiple_of(huge_page::GRANULES);
        let wanted = if is_whole { align.max(huge_page::GRANULES) } else { align };
        self.take_used_or_kept(shard, granules, align)
            .or_else(|| self.take_any(shard, granules, wanted, true))
            .or_else(|| self.take_any(shard, granules, align, false))
    }

    /// Brings in the huge pages that lie whole in a clean span of the caller's, as far as they are worth it. Returns whether any is.
    pub fn populate_huge(&self, first: u32, granules: u32) -> bool {
        let map = &self.map;
        if !map.reservation.are_huge_pages_auto() {
            return false;
        }
        let (start, end) = (map.address(first), map.address(first + granules));
        let from = start.next_multiple_of(os::HUGE_PAGE_BYTES);
        let mut any = false;
        for address in (from..end).step_by(os::HUGE_PAGE_BYTES) {
            let Some(granule) = map.granule_of(address).filter(|_| end - address >= os::HUGE_PAGE_BYTES)
            else {
                break;
            };
            let now = os::now_ns();
            if !self.with(now, |heap, _| heap.huge_page.next_is_wanted(huge_page::GRANULES)) {
                continue;
            }
            let (is_huge, spent_ns) = self.bring_in(granule);
            any |= is_huge;
            self.with(now, |heap, _| heap.note_huge_page(is_huge, spent_ns));
        }
        any
    }

    /// Brings in a huge page of the caller's clean memory. Returns whether it is one, and the CPU time in ns that took.
    fn bring_in(&self, first: u32) -> (bool, u64) {
        let begun_ns = os::thread_time_ns();
        // SAFETY: the span is this thread's, of the size of a huge page, aligned as one, and clean.
        let is_huge = unsafe { os::populate_huge_page(self.map.address(first)) };
        if is_huge {
            self.map.set_huge(first);
        }
        (is_huge, os::thread_time_ns().saturating_sub(begun_ns))
    }

    /// Not inlined: a start should not bring it in.
    #[inline(never)]
    fn take_of_huge_page(&self, granules: u32) -> Option<u32> {
        if !self.map.reservation.are_huge_pages_auto() {
            return None;
        }
        let now = os::now_ns();
        let taken = self.with(now, |heap, map| heap.take_used_or_huge(map, granules, now));
        if taken.is_some() {
            return taken;
        }
        // While one thread brings in the next, others use small pages.
        let _populating = self.populating.try_lock()?;
        let first = self.with(now, |heap, map| heap.take_huge_page(map, granules, now))?;
        let (is_huge, spent_ns) = self.bring_in(first);
        self.with(now, |heap, _| {
            heap.note_huge_page(is_huge, spent_ns);
            heap.huge_page.set(first);
            heap.huge_page.cut(granules)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::Span;

    #[test]
    fn blocks_of_whole_huge_pages_begin_at_one_and_take_what_shards_keep_first() {
        let spans = Spans::new();
        spans.set_purger(true);
        let granules = 2 * huge_page::GRANULES;
        let taken: [u32; 2] = std::array::from_fn(|_| {
            spans.take(0, 1, 1, true).unwrap();
            spans.take_for_huge(0, granules, 1).unwrap().first
        });
        assert!(taken.iter().all(|&first| spans.map.address(first).is_multiple_of(os::HUGE_PAGE_BYTES)));
        spans.in_shard(0, |kept| spans.keep_large(kept, Span { first: taken[0], granules }));
        assert_eq!(spans.take_for_huge(0, granules, 1), Some(Taken { first: taken[0], zero: false }));
    }
}
