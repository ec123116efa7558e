//! Pages of a large block's span that the block has no part of: in front of it, and behind it in the last granule. Memory without pages has
//! none there; where a block becomes smaller, or others were before, there are some, and nobody comes by them as long as it lives.
//!
//! Blocks that become smaller and go at once leave theirs to the next ones. So they stay while they are little in all, and beyond that go
//! when a block becomes smaller.

use super::{Large, Live};
use crate::granule::bytes_of;
use crate::os;
use crate::span_heap::{PurgeMode, Purges};
use crate::spans::Spans;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Fewer pages in a row are not worth a call.
const WORTH_PAGES: usize = 4;
/// So much may lie around blocks that became smaller: a MiB, or this part of what is in use.
const LEFT_BYTES: usize = 1 << 20;
const LEFT_PART: usize = 16;

impl Live<'_> {
    /// The pages around it that are worth a call each.
    fn around(self, spans: &Spans) -> impl Iterator<Item = Range<usize>> {
        let (Live { first, record }, page) = (self, os::page_bytes());
        let (start, end) = (spans.map.address(first), spans.map.address(first + record.granules.get()));
        let from = start + self.offset();
        let behind = (from + self.bytes()).next_multiple_of(page);
        [start..from & !(page - 1), behind..end]
            .into_iter()
            .filter(move |pages| pages.len() >= WORTH_PAGES * page)
    }
}

impl Large {
    /// The block became smaller, by its owner.
    pub(super) fn leave_around(&self, spans: &Spans, block: Live<'_>) {
        let bytes: usize = block.around(spans).map(|pages| pages.len()).sum();
        // ORDERING: Relaxed, both; a sum that decides about speed only.
        let left = self.left_around.load(Ordering::Relaxed) + bytes;
        let most = LEFT_BYTES.max(bytes_of(spans.used()) / LEFT_PART);
        if left <= most || spans.mode() == PurgeMode::Never {
            self.left_around.fetch_add(bytes, Ordering::Relaxed);
            block.record.large().set_left_around(bytes);
            return;
        }
        let mut purges = Purges::NONE;
        for pages in block.around(spans) {
            // SAFETY: memory of the block's own span, of which its owner has none.
            purges.note(pages.len(), unsafe { spans.map.purge(pages.start, pages.len()) });
        }
        spans.count_purges(purges);
    }

    /// The block ends, or gets another size.
    #[inline(always)]
    pub(super) fn forget_around(&self, block: Live<'_>) {
        if block.record.large().left_around() > 0 {
            self.forget_left(block);
        }
    }

    #[cold]
    fn forget_left(&self, block: Live<'_>) {
        let record = block.record.large();
        // ORDERING: Relaxed, as above.
        self.left_around.fetch_sub(record.left_around(), Ordering::Relaxed);
        record.set_left_around(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::GRANULE_BYTES;
    use crate::heap::Heap;

    /// A block in the middle of a span of so many granules, with so many pages in front of it and behind it.
    fn block(spans: &Spans, granules: u32, before: usize, behind: usize) -> Live<'_> {
        let first = spans.take(0, granules, 1, false).unwrap().first;
        let record = spans.map.record(first);
        record
            .make_large(bytes_of(granules) - (before + behind) * os::page_bytes(), before * os::page_bytes());
        Live { first, record }
    }

    #[test]
    fn fewer_than_four_pages_are_worth_no_call() {
        let heap = Heap::boxed();
        for (before, behind, pages) in [(3, 3, vec![]), (4, 3, vec![4]), (3, 4, vec![4]), (5, 6, vec![5, 6])]
        {
            let around = block(&heap.spans, 2, before, behind).around(&heap.spans);
            assert_eq!(around.map(|range| range.len() / os::page_bytes()).collect::<Vec<_>>(), pages);
        }
    }

    #[test]
    fn a_sixteenth_of_what_is_in_use_may_lie_around_blocks() {
        let heap = Heap::boxed();
        let Heap { spans, large, .. } = &*heap;
        let others = u32::try_from(LEFT_PART * 2 * LEFT_BYTES / GRANULE_BYTES).unwrap();
        spans.take(0, others, 1, false).unwrap();
        // Each leaves ten pages.
        let leaves = || {
            large.leave_around(spans, block(spans, 1, 4, 6));
            spans.counts().purges == Purges::NONE
        };
        let left = (0..).take_while(|_| leaves()).count() * 10 * os::page_bytes();
        let most = bytes_of(spans.used()) / LEFT_PART;
        assert!(left <= most && left + 10 * os::page_bytes() > most, "{left} of {most}");
    }
}
