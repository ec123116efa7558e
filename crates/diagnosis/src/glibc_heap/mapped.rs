//! Blocks that have a mapping of their own: those above the mmap threshold. No list leads to them; their heads do, which stand
//! at the start of a page and give a size in whole pages.

use faultless_records::glibc_heap::{Layout, Parameters, SizeWord};

use super::pages::Pages;
use super::{Area, Memory, PAGE_BYTES, Page};

/// Pages looked at in one area before it is taken for something else's.
const MOST_PROBES: u64 = 1 << 16;

/// What was found of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappedBlocks {
    /// How many malloc says there are.
    pub blocks: u64,
    /// Bytes that malloc says they have.
    pub bytes: u64,
    /// How many were found.
    pub found_blocks: u64,
    /// Bytes of those.
    pub found_bytes: u64,
    /// Resident bytes of those.
    pub resident_bytes: u64,
}

/// Looks for the blocks that malloc counts, outside the stretches that arenas own.
pub fn find(
    memory: &dyn Memory,
    areas: &[Area],
    owned: &[(u64, u64)],
    (layout, parameters): (&Layout, &Parameters),
    pages: &mut Pages<'_>,
) -> MappedBlocks {
    let mut found = MappedBlocks {
        blocks: u64::from(parameters.mmap_count),
        bytes: parameters.mmapped_bytes,
        ..MappedBlocks::default()
    };
    let is_owned = |area: &Area| owned.iter().any(|(start, end)| *start < area.end && area.start < *end);
    for area in areas {
        if found.found_blocks >= found.blocks {
            break;
        }
        if area.is_writable && area.is_anonymous && !area.is_break && !is_owned(area) {
            find_in(memory, area, layout, pages, &mut found);
        }
    }
    found
}

fn find_in(
    memory: &dyn Memory,
    area: &Area,
    layout: &Layout,
    pages: &mut Pages<'_>,
    found: &mut MappedBlocks,
) {
    let mut at = area.start;
    let mut probes = 0;
    while at < area.end && probes < MOST_PROBES && found.found_blocks < found.blocks {
        let first = at / PAGE_BYTES;
        // A head was written, so its page has memory or lies in swap.
        if pages.state(first) == Page::Absent {
            at += PAGE_BYTES;
            continue;
        }
        probes += 1;
        match block_at(memory, at, area.end, layout).filter(|bytes| found.found_bytes + bytes <= found.bytes)
        {
            Some(bytes) => {
                found.found_blocks += 1;
                found.found_bytes += bytes;
                let end = (at + bytes) / PAGE_BYTES;
                found.resident_bytes += pages.count(first, end, Page::Resident) * PAGE_BYTES;
                at += bytes;
            }
            None => at += PAGE_BYTES,
        }
    }
}

/// Bytes of the block whose head stands at `address`. Aligned blocks have their head further in, and are not found.
fn block_at(memory: &dyn Memory, address: u64, end: u64, layout: &Layout) -> Option<u64> {
    let mut head = [0; 16];
    if !memory.read(address, &mut head) {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let size = SizeWord(word(8));
    let bytes = size.bytes().checked_add(layout.mapped_head_bytes)?;
    // The first word is how far the head stands from the start, and since 2.43 a flag of huge pages.
    let is_head = word(0) <= u64::from(layout.mapped_head_bytes > 0)
        && size.is_mapping()
        && !size.previous_is_used()
        && !size.is_of_thread_arena()
        && size.bytes() > 0
        && bytes.is_multiple_of(PAGE_BYTES)
        && bytes <= end - address;
    is_head.then_some(bytes)
}
