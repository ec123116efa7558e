//! Blocks that have a mapping of their own: those above the mmap threshold. No list leads to them; their heads do, which stand
//! at the start of a page and give a size in whole pages.

use faultless_records::glibc_heap::{Layout, Parameters, SizeWord, heads_of_aligned};

use super::pages::Pages;
use super::{Area, Memory, PAGE_BYTES, Page};

/// Pages looked at in one area before it is taken for something else's.
const MOST_PROBES: u64 = 1 << 16;

/// Of more doubtful candidates the first are taken.
const MOST_DOUBTFUL: usize = 64;

/// Choices of doubtful candidates that are tried.
const MOST_TRIES: u32 = 1 << 16;

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
    (layout, found): (&Layout, MappedBlocks),
    pages: &mut Pages<'_>,
) -> Vec<(u64, u64)> {
    let mut candidates = Candidates { found, seen: found, sure: Vec::new(), doubtful: Vec::new() };
    let mut owned = owned.to_vec();
    owned.sort_unstable();
    let (mut done, mut row_end) = (0, 0);
    for (place, area) in areas.iter().enumerate() {
        if candidates.are_all() {
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
            let (blocks, reached) =
                search_in(memory, (start.max(done), end, limit), (layout, pages), &candidates);
            candidates.add((start, end), &blocks);
            done = reached;
        }
    }
    candidates.chosen()
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

/// Looks for what may be blocks that begin in a range and end before `limit`; these, and where it ended.
fn search_in(
    memory: &dyn Memory,
    (start, end, limit): (u64, u64, u64),
    (layout, pages): (&Layout, &mut Pages<'_>),
    candidates: &Candidates,
) -> (Vec<(u64, u64)>, u64) {
    let mut blocks = Vec::new();
    let mut at = start;
    let mut probes = 0;
    while at < end && probes < MOST_PROBES {
        // A head was written, so its page has memory or lies in swap.
        if pages.state(at / PAGE_BYTES) == Page::Absent {
            at = memory.next_present(at + PAGE_BYTES, end);
            continue;
        }
        probes += 1;
        match block_at(memory, (at, limit), layout, pages).filter(|bytes| candidates.found.may_have(*bytes)) {
            Some(bytes) => {
                blocks.push((at, bytes));
                at += bytes;
            }
            None => at += PAGE_BYTES,
        }
    }
    (blocks, at)
}

/// Bytes of the block that begins at `address`. An aligned one keeps the head that malloc wrote before it moved it, and the moved one
/// says what realloc made of the block since.
fn block_at(
    memory: &dyn Memory,
    (address, end): (u64, u64),
    layout: &Layout,
    pages: &mut Pages<'_>,
) -> Option<u64> {
    let first = bytes_by_head(memory, address, 0, layout)?;
    let moved = heads_of_aligned(address)
        .take_while(|head| *head - address < first)
        .filter(|head| pages.lone_state(head / PAGE_BYTES) != Page::Absent)
        .find_map(|head| bytes_by_head(memory, head, head - address, layout));
    Some(moved.unwrap_or(first)).filter(|bytes| *bytes <= end - address)
}

/// Bytes of a block by a head at `address`, which lies so far behind its start.
fn bytes_by_head(memory: &dyn Memory, address: u64, distance: u64, layout: &Layout) -> Option<u64> {
    let mut head = [0; 16];
    if !memory.read(address, &mut head) {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let size = SizeWord(word(8));
    let bytes = distance.checked_add(size.bytes())?.checked_add(layout.mapped_head_bytes)?;
    // The first word is how far the head stands from the start, and since 2.43 a flag of huge pages.
    let flag = word(0).checked_sub(distance)?;
    let is_head = flag <= u64::from(layout.mapped_head_bytes > 0)
        && size.is_mapping()
        && !size.previous_is_used()
        && !size.is_of_thread_arena()
        && size.bytes() > 0
        && bytes.is_multiple_of(PAGE_BYTES);
    is_head.then_some(bytes)
}

/// What looks like blocks. Other memory holds words that look like a head, too: of metaspace, say.
struct Candidates {
    /// Those known before.
    found: MappedBlocks,
    /// With all that were seen.
    seen: MappedBlocks,
    /// They begin or end where what nobody owns does, or where another of these does.
    sure: Vec<(u64, u64)>,
    doubtful: Vec<(u64, u64)>,
}

impl Candidates {
    /// Nothing is to be looked for any more: it is malloc's count to the byte.
    fn are_all(&self) -> bool {
        let MappedBlocks { blocks, bytes, .. } = self.seen;
        self.found.found_blocks >= blocks
            || (self.seen.found_blocks, self.seen.found_bytes) == (blocks, bytes)
    }

    /// Adds those of one gap, which are in ascending order.
    fn add(&mut self, (start, end): (u64, u64), blocks: &[(u64, u64)]) {
        blocks.iter().for_each(|(_, bytes)| self.seen.add(*bytes));
        let mut edge = start;
        let ascending = blocks.iter().take_while(|(at, bytes)| {
            let is_next = *at == edge;
            edge = at + bytes;
            is_next
        });
        let first_doubtful = ascending.count();
        let mut edge = end;
        let descending = blocks[first_doubtful..].iter().rev().take_while(|(at, bytes)| {
            let is_next = at + bytes == edge;
            edge = *at;
            is_next
        });
        let end_of_doubtful = blocks.len() - descending.count();
        self.sure.extend(&blocks[..first_doubtful]);
        self.sure.extend(&blocks[end_of_doubtful..]);
        self.doubtful.extend(&blocks[first_doubtful..end_of_doubtful]);
    }

    /// The sure ones, and of the others those that make it malloc's count to the byte; else the first that it has room for.
    fn chosen(self) -> Vec<(u64, u64)> {
        let mut found = self.found;
        let mut chosen = Vec::new();
        for block in self.sure {
            if found.may_have(block.1) {
                found.add(block.1);
                chosen.push(block);
            }
        }
        let mut exact = Vec::new();
        let missing =
            (found.blocks.saturating_sub(found.found_blocks), found.bytes.saturating_sub(found.found_bytes));
        let is_exact = self.doubtful.len() <= MOST_DOUBTFUL
            && complete(&self.doubtful, missing, &mut exact, &mut { MOST_TRIES });
        for block in if is_exact { exact } else { self.doubtful } {
            if found.may_have(block.1) {
                found.add(block.1);
                chosen.push(block);
            }
        }
        chosen.sort_unstable();
        chosen
    }
}

/// Finds blocks of this number and these bytes together; whether there are.
fn complete(
    blocks: &[(u64, u64)],
    (count, bytes): (u64, u64),
    chosen: &mut Vec<(u64, u64)>,
    tries: &mut u32,
) -> bool {
    if count == 0 || *tries == 0 || (blocks.len() as u64) < count {
        return count == 0 && bytes == 0;
    }
    *tries -= 1;
    if let Some(rest) = bytes.checked_sub(blocks[0].1) {
        chosen.push(blocks[0]);
        if complete(&blocks[1..], (count - 1, rest), chosen, tries) {
            return true;
        }
        chosen.pop();
    }
    complete(&blocks[1..], (count, bytes), chosen, tries)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7f00_0000_0000;

    /// Heads of blocks by their address; every other word is zero.
    struct Heads(Vec<(u64, u64)>);

    /// Words by their address; every other word is zero.
    struct Words(Vec<(u64, u64)>);

    impl Memory for Words {
        fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
            for (place, word) in buffer.chunks_exact_mut(8).enumerate() {
                let at = address + 8 * place as u64;
                let value = self.0.iter().find(|(start, _)| *start == at).map_or(0, |(_, value)| *value);
                word.copy_from_slice(&value.to_le_bytes());
            }
            true
        }

        fn pages(&self, _: u64, count: usize) -> Option<Vec<Page>> {
            Some(vec![Page::Resident; count])
        }
    }

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
        found_beside(areas, owned, heads, &[])
    }

    /// The same where other memory holds what looks like these heads.
    fn found_beside(
        areas: &[Area],
        owned: &[(u64, u64)],
        heads: &[(u64, u64)],
        alike: &[(u64, u64)],
    ) -> (u64, u64) {
        let memory = Heads([alike, heads].concat());
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
    fn a_block_behind_memory_that_nobody_touched_is_found_without_a_look_at_each_page() {
        struct Sparse(Heads, std::cell::Cell<u32>);
        impl Memory for Sparse {
            fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
                self.0.read(address, buffer)
            }
            fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
                self.1.set(self.1.get() + 1);
                let state = |page: u64| match self.0.0[0].0 == address + page * PAGE_BYTES {
                    true => Page::Resident,
                    false => Page::Absent,
                };
                Some((0..count as u64).map(state).collect())
            }
            fn next_present(&self, address: u64, end: u64) -> u64 {
                let head = self.0.0[0].0;
                if head < address { end } else { head.min(end) }
            }
        }
        let bytes = 64 << 30;
        let memory = Sparse(Heads(vec![(START + bytes - 0x3000, 0x3000)]), std::cell::Cell::new(0));
        let layout = Layout::of((2, 36)).unwrap();
        let mut parameters = Parameters::parse(&[0; Parameters::BYTES], layout).unwrap();
        (parameters.mmap_count, parameters.mmapped_bytes) = (1, 0x3000);
        let areas = [area(0, bytes, true)];
        let found = find(&memory, &areas, &[], (layout, &parameters), &mut Pages::new(&memory));
        assert_eq!((found.found_blocks, found.resident_bytes), (1, 0x1000));
        assert!(memory.1.get() < 10, "{}", memory.1.get());
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
    fn an_aligned_block_is_as_long_as_realloc_made_it() {
        let layout = Layout::of((2, 36)).unwrap();
        for (alignment, first_bytes, bytes) in
            [(64, 0x64000, 0x30000), (64, 0x10000, 0x30000), (0x4000, 0x64000, 0x30000)]
        {
            let distance = alignment - 16;
            let next = START + bytes;
            let words = [
                (START + 8, first_bytes | 2),
                (START + distance, distance),
                (START + distance + 8, (bytes - distance) | 2),
                (next + 8, 0x5000 | 2),
            ];
            let memory = Words(words.to_vec());
            let mut parameters = Parameters::parse(&[0; Parameters::BYTES], layout).unwrap();
            (parameters.mmap_count, parameters.mmapped_bytes) = (2, bytes + 0x5000);
            let areas = [area(0, bytes + 0x5000, true)];
            let found = find(&memory, &areas, &[], (layout, &parameters), &mut Pages::new(&memory));
            assert_eq!((found.found_blocks, found.found_bytes), (2, bytes + 0x5000), "{alignment:#x}");
        }
    }

    #[test]
    fn a_block_beside_an_arena_is_found_and_none_in_it_or_across_its_start() {
        let areas = [area(0, 0x9000, true)];
        let owned = [(START + 0x2000, START + 0x6000)];
        assert_eq!(found(&areas, &owned, &[(START, 0x2000), (START + 0x6000, 0x3000)]), (2, 0x5000));
        assert_eq!(found(&areas, &owned, &[(START, 0x3000), (START + 0x3000, 0x1000)]), (0, 0));
    }

    #[test]
    fn words_that_look_like_the_head_of_a_block_are_not_taken_for_it_where_malloc_counts_fewer() {
        let areas = [area(0, 0x9000, true), area(0x10000, 0x18000, true), area(0x20000, 0x30000, true)];
        let alike = [(START + 0x1000, 0x5000)];
        // At the edges of a mapping and beside those; in the middle of one that is joined.
        let blocks = [(START + 0x10000, 0x2000), (START + 0x12000, 0x1000), (START + 0x17000, 0x1000)];
        assert_eq!(found_beside(&areas, &[], &blocks, &alike), (3, 0x4000));
        let blocks = [(START + 0x10000, 0x2000), (START + 0x21000, 0x3000), (START + 0x25000, 0x3000)];
        assert_eq!(found_beside(&areas, &[], &blocks, &alike), (3, 0x8000));
    }
}
