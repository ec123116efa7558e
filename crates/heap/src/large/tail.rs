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
