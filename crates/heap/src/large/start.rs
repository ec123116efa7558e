//! Where in its span a large block begins: somewhere in what its span has to spare ([`crate::colour`]). A block of 2 MiB
//! or more whose size is a multiple of 64 KiB has nothing to spare, and begins where its span does.

use super::UNIT_BYTES;
use crate::colour::{LINE_BYTES, position_of};
use crate::os::HUGE_PAGE_BYTES;

/// Lines in a page: all sets of a first-level cache.
const LINES: usize = UNIT_BYTES / LINE_BYTES;

/// Where in its span a large block begins.
#[derive(Clone, Copy)]
pub enum Start {
    /// Where it shares the fewest sets of the caches with others.
    Coloured,
    /// So many bytes from the span's start.
    At(usize),
}

impl Start {
    /// For a block of this alignment, a power of two.
    #[inline]
    pub fn for_align(align: usize) -> Self {
        if align <= LINE_BYTES { Self::Coloured } else { Self::At(0) }
    }

    /// What a block of so many bytes must have of its span beyond.
    pub fn at_least(self, bytes: usize) -> usize {
        match self {
            // A granule more where else there would be nothing to spare; of larger ones a huge page may hold all.
            Self::Coloured if bytes < HUGE_PAGE_BYTES => LINE_BYTES,
            Self::Coloured => 0,
            Self::At(offset) => offset,
        }
    }

    /// From the start of its span, of which it leaves `spare` bytes, to the block.
    pub fn offset_in(self, first: u32, spare: usize) -> usize {
        match self {
            Self::Coloured => offset(first, spare),
            Self::At(offset) => offset,
        }
    }
}

/// Bytes from the start of the span at `first` to its block, where the block leaves `spare` bytes of the span: some pages, and some lines.
///
/// The same lines, and the same part of the spare pages, for all blocks of a span: the longer one covers the shorter, so none touches
/// pages that others leave.
fn offset(first: u32, spare: usize) -> usize {
    debug_assert!(spare.is_multiple_of(UNIT_BYTES));
    if spare == 0 {
        return 0;
    }
    let lines = position_of(first, LINES as u32);
    let pages = (spare / UNIT_BYTES) as u64 * (lines & u64::from(u32::MAX));
    (pages >> 32) as usize * UNIT_BYTES + (lines >> 32) as usize * LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::{bytes_of, granules_for};

    #[test]
    fn blocks_of_one_size_share_few_sets_and_stay_in_their_spans() {
        for bytes in (36 << 10..4 << 20).step_by(UNIT_BYTES) {
            let granules = granules_for(bytes).unwrap();
            let spare = bytes_of(granules) - bytes;
            let mut blocks = [0; LINES];
            for block in 0..LINES as u32 {
                let offset = offset(16 + block * granules, spare);
                assert!(offset.is_multiple_of(LINE_BYTES) && offset + bytes <= bytes_of(granules));
                blocks[offset / LINE_BYTES % LINES] += 1;
            }
            let most = blocks.into_iter().max().unwrap();
            assert_eq!(spare == 0, most == LINES, "{bytes}");
            assert!(spare == 0 || most <= 8, "{most} of {bytes} bytes in one set");
        }
    }

    #[test]
    fn a_longer_block_covers_a_shorter_one_in_the_same_span() {
        let place = |first, pages| {
            let start = offset(first, (16 - pages) * UNIT_BYTES);
            (start, start + pages * UNIT_BYTES)
        };
        for first in 16..4096 {
            for pages in 9..16 {
                let (shorter, longer) = (place(first, pages), place(first, pages + 1));
                assert!(longer.0 <= shorter.0 && shorter.1 <= longer.1, "{first}, {pages}");
            }
        }
    }
}
