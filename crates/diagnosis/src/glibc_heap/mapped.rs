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

impl MappedBlocks {
    /// What malloc says of them.
    #[must_use]
    pub fn counted(parameters: &Parameters) -> Self {
        Self {
            blocks: u64::from(parameters.mmap_count),
            // Since 2.43 malloc counts some bytes more, also where no mapping is left.
            bytes: if parameters.mmap_count == 0 { 0 } else { parameters.mmapped_bytes & !(PAGE_BYTES - 1) },
            ..Self::default()
        }
    }

    fn may_have(&self, bytes: u64) -> bool {
        self.found_blocks < self.blocks && self.found_bytes + bytes <= self.bytes
    }

    fn add(&mut self, bytes: u64) {
        self.found_blocks += 1;
        self.found_bytes += bytes;
    }
}

/// Looks for the blocks that malloc counts, outside the stretches that arenas own.
pub fn find(
    memory: &dyn Memory,
    areas: &[Area],
    owned: &[(u64, u64)],
    (layout, parameters): (&Layout, &Parameters),
    pages: &mut Pages<'_>,
) -> MappedBlocks {
    let mut found = MappedBlocks::counted(parameters);
    for (start, bytes) in search(memory, areas, owned, (layout, found), pages) {
        found.add(bytes);
        let end = (start + bytes) / PAGE_BYTES;
        found.resident_bytes += pages.count(start / PAGE_BYTES, end, Page::Resident) * PAGE_BYTES;
    }
    found
}

/// Start and size of blocks outside of what is owned, ascending; no more of them than malloc counts and were not `found` yet.
pub fn search(
    memory: &dyn Memory,
    areas: &[Area],
    owned: &[(u64, u64)],
    (layout, mut found): (&Layout, MappedBlocks),
    pages: &mut Pages<'_>,
) -> Vec<(u64, u64)> {
    let mut blocks = Vec::new();
    let mut owned = owned.to_vec();
    owned.sort_unstable();
    let (mut done, mut row_end) = (0, 0);
    for (place, area) in areas.iter().enumerate() {
        if found.found_blocks >= found.blocks {
            break;
        }
        if !area.is_writable || !area.is_anonymous || area.is_break {
            continue;
        }
        if row_end < area.end {
            row_end = end_of_row(&areas[place..]);
        }
        for (start, end) in gaps(area, &owned) {
            // A block goes on behind pages of its own that may not be written, but not into an arena.
            let limit = if end == area.end { first_owned(&owned, end).min(row_end) } else { end };
            let within = (start.max(done), end, limit);
            done = search_in(memory, within, (layout, pages), &mut found, &mut blocks);
        }
    }
    blocks
}

/// The end of the anonymous areas that follow the first one without a hole.
fn end_of_row(areas: &[Area]) -> u64 {
    let follows = |pair: &&[Area]| pair[1].is_anonymous && !pair[1].is_break && pair[0].end == pair[1].start;
    let more = areas.windows(2).take_while(follows).count();
    areas[more].end
}

/// Where what is owned begins again from `address` on.
fn first_owned(owned: &[(u64, u64)], address: u64) -> u64 {
    let next = owned.partition_point(|(start, _)| *start < address);
    owned.get(next).map_or(u64::MAX, |(start, _)| *start)
}

/// What of an area nobody owns.
fn gaps(area: &Area, owned: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let first = owned.partition_point(|(_, end)| *end <= area.start);
    let mut gaps = Vec::new();
    let mut from = area.start;
    for (start, end) in owned[first..].iter().take_while(|(start, _)| *start < area.end) {
        gaps.push((from, *start));
        from = from.max(*end);
    }
    gaps.push((from, area.end));
    gaps.retain(|(start, end)| start < end);
    gaps
}

/// Looks for blocks that begin in a range and end before `limit`; returns where it ended.
fn search_in(
    memory: &dyn Memory,
    (start, end, limit): (u64, u64, u64),
    (layout, pages): (&Layout, &mut Pages<'_>),
    found: &mut MappedBlocks,
    blocks: &mut Vec<(u64, u64)>,
) -> u64 {
    let mut at = start;
    let mut probes = 0;
    while at < end && probes < MOST_PROBES && found.found_blocks < found.blocks {
        // A head was written, so its page has memory or lies in swap.
        if pages.state(at / PAGE_BYTES) == Page::Absent {
            at += PAGE_BYTES;
            continue;
        }
        probes += 1;
        match block_at(memory, at, limit, layout).filter(|bytes| found.may_have(*bytes)) {
            Some(bytes) => {
                found.add(bytes);
                blocks.push((at, bytes));
                at += bytes;
            }
            None => at += PAGE_BYTES,
        }
    }
    at
}

/// Bytes of the block whose head stands at `address`. Aligned blocks have another head further in, and keep this one.
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

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7f00_0000_0000;

    /// Heads of blocks by their address; every other word is zero.
    struct Heads(Vec<(u64, u64)>);

    impl Memory for Heads {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            buffer.fill(0);
            let head = self.0.iter().find(|(at, _)| *at == address);
            head.inspect(|(_, bytes)| buffer[8..16].copy_from_slice(&(bytes | 2).to_le_bytes()));
            true
        }

        fn pages(&self, _: u64, count: usize) -> Option<Vec<Page>> {
            Some(vec![Page::Resident; count])
        }
    }

    fn found(areas: &[Area], owned: &[(u64, u64)], heads: &[(u64, u64)]) -> (u64, u64) {
        let memory = Heads(heads.to_vec());
        let bytes = heads.iter().map(|(_, bytes)| bytes).sum();
        let layout = Layout::of((2, 36)).unwrap();
        let mut parameters = Parameters::parse(&[0; Parameters::BYTES], layout).unwrap();
        (parameters.mmap_count, parameters.mmapped_bytes) = (heads.len() as u32, bytes);
        let found = find(&memory, areas, owned, (layout, &parameters), &mut Pages::new(&memory));
        (found.found_blocks, found.found_bytes)
    }

    fn area(start: u64, end: u64, is_writable: bool) -> Area {
        Area { start: START + start, end: START + end, is_writable, is_anonymous: true, is_break: false }
    }

    #[test]
    fn a_block_whose_mapping_was_divided_is_found_whole() {
        let heads = [(START, 0x5000), (START + 0x5000, 0x1000)];
        let locked = [area(0, 0x2000, true), area(0x2000, 0x3000, true), area(0x3000, 0x6000, true)];
        assert_eq!(found(&super::super::joined(locked), &[], &heads), (2, 0x6000));
        let protected = [area(0, 0x2000, true), area(0x2000, 0x3000, false), area(0x3000, 0x6000, true)];
        assert_eq!(found(&super::super::joined(protected), &[], &heads), (2, 0x6000));
    }

    #[test]
    fn a_block_beside_an_arena_is_found_and_none_in_it_or_across_its_start() {
        let areas = [area(0, 0x9000, true)];
        let owned = [(START + 0x2000, START + 0x6000)];
        assert_eq!(found(&areas, &owned, &[(START, 0x2000), (START + 0x6000, 0x3000)]), (2, 0x5000));
        assert_eq!(found(&areas, &owned, &[(START, 0x3000), (START + 0x3000, 0x1000)]), (0, 0));
    }
}
