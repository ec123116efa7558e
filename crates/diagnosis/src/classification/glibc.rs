//! glibc's heaps and large blocks, by what its malloc writes at their start.
//!
//! A heap of an arena other than the main one is 64 MiB of addresses at a multiple of 64 MiB, or four huge pages at a multiple of that
//! (`glibc.malloc.hugetlb=2` up to glibc 2.42). It begins with its record: the arena, the heap before it, its size, how much of it is
//! accessible. A block of its own mapping begins with a word 0 and a word with its size and the flag 2.
//! Source: `heap_info` and `malloc_chunk` in glibc's malloc, of the versions in
//! `records::glibc_heap::VERSIONS`, 64 bits.

use faultless_records::contents::Extent;
use faultless_records::glibc_heap::heads_of_aligned;
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::{Reader, extent_of, mapping_at};

/// Addresses that a heap reserves, and their alignment.
pub const HEAP_BYTES: u64 = 64 << 20;

/// The same of a heap for huge pages of 2 MiB.
const HUGE_PAGES_HEAP_BYTES: u64 = 8 << 20;

const MAPPED: u64 = 2;
const FLAGS: u64 = 7;
const SMALLEST_CHUNK_BYTES: u64 = 32;

/// Alignments for which a large block may begin later than its mapping, the largest.
const LARGEST_ALIGNMENT_BYTES: u64 = 4 << 20;

/// Pages looked at in a mapping that does not begin with a large block.
const MOST_PAGES: usize = 1 << 14;

/// How much an arena of CPython's may lose before its first pool.
const MOST_ALIGNED_BYTES: u64 = 16 << 10;

/// The heaps of a process whose memory is read, each with all addresses that it reserves.
#[must_use]
pub fn heaps(sight: &Sight<'_>) -> Vec<Extent> {
    let mut heaps = Vec::new();
    if let Some(contents) = sight.contents {
        each_heap(sight, &Reader::new(contents), |extent, _| heaps.push(extent));
    }
    heaps
}

fn each_heap(sight: &Sight<'_>, reader: &Reader<'_>, mut take: impl FnMut(Extent, Heap)) {
    for mapping in sight.mappings.iter().filter(is_writable) {
        reader.each_multiple(extent_of(mapping), HUGE_PAGES_HEAP_BYTES, |base| {
            let heap = [HEAP_BYTES, HUGE_PAGES_HEAP_BYTES]
                .into_iter()
                .find_map(|reserved_bytes| Heap::read(sight, reader, base, reserved_bytes))?;
            let extent = Extent::new(base, heap.reserved_bytes);
            take(extent, heap);
            Some(extent.end)
        });
    }
}

/// Claims heaps, and the large blocks that their mappings begin with.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    each_heap(sight, reader, |extent, heap| {
        let arena = if heap.is_first { "of arena" } else { "added to arena" };
        let detail = format!("{arena} {:#x}, {} KiB in use", heap.arena, heap.used_bytes >> 10);
        let evidence = Evidence::with(Strength::Contents, "heap_info at its start", detail);
        claims.add(extent, Kind::GlibcHeap, evidence);
    });
    // All that lies in a row has one end; to follow it from each mapping would take the square of their number.
    let mut row = Extent { start: 0, end: 0 };
    for mapping in sight.mappings.iter().filter(is_writable) {
        for gap in claims.gaps(extent_of(mapping)) {
            if !row.contains(gap.start) {
                row = Extent { start: gap.start, end: sight.end_of_row(gap.start) };
            }
            claim_blocks(reader, gap, row.end, claims);
        }
    }
}

fn is_writable(mapping: &&Mapping) -> bool {
    mapping.is_anonymous() && mapping.is_writable()
}

struct Heap {
    arena: u64,
    is_first: bool,
    used_bytes: u64,
    reserved_bytes: u64,
}

impl Heap {
    /// The record at `base` of a heap of this size, if its parts agree with each other and with the mappings.
    fn read(sight: &Sight<'_>, reader: &Reader<'_>, base: u64, reserved_bytes: u64) -> Option<Self> {
        if !base.is_multiple_of(reserved_bytes) {
            return None;
        }
        let [arena, previous, used_bytes, accessible_bytes] = *reader.words(base, 4) else { return None };
        let is_first = previous == 0;
        let arena_fits = if is_first {
            (base + 32..base + 256).contains(&arena)
        } else {
            // The heap before it belongs to the same arena, and that lies in a heap of its own.
            previous.is_multiple_of(reserved_bytes)
                && reader.word(previous) == Some(arena)
                && reader.word(arena & !(reserved_bytes - 1)) == Some(arena)
        };
        let sizes_fit = used_bytes > 0
            && used_bytes <= accessible_bytes
            && accessible_bytes <= reserved_bytes
            && used_bytes.is_multiple_of(PAGE_BYTES)
            && sight.is_private(Extent { start: base, end: base.checked_add(accessible_bytes)? });
        // Behind what is accessible nothing is, up to its end: else something else begins there, and it is smaller.
        let end = base.checked_add(reserved_bytes)?;
        let behind = base + accessible_bytes.min(reserved_bytes).next_multiple_of(HUGE_PAGES_HEAP_BYTES);
        let first = sight.mappings.partition_point(|mapping| mapping.end <= behind);
        let is_alone = sight.mappings[first..]
            .iter()
            .take_while(|mapping| mapping.start.max(behind) < end)
            .all(Mapping::is_inaccessible);
        (arena_fits && sizes_fit && is_alone).then_some(Self { arena, is_first, used_bytes, reserved_bytes })
    }
}

fn claim_blocks(reader: &Reader<'_>, gap: Extent, end: u64, claims: &mut Claims) {
    let mut start = gap.start;
    while let Some(block) = large_block(reader, Extent { start, end }).filter(|_| start < gap.end) {
        claims.add(block, Kind::GlibcLargeBlock, block_evidence());
        start = block.end;
    }
}

/// Claims large blocks behind something else: where a row of them ends with the mapping, that is no coincidence.
pub fn claim_rows(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    for mapping in sight.mappings.iter().filter(is_writable) {
        for gap in claims.gaps(extent_of(mapping)) {
            let mut looked_at = 0;
            let mut row = Vec::new();
            reader.each_page(gap, |page, words| {
                looked_at += 1;
                if words[0] == 0 && words[1] & FLAGS == MAPPED {
                    row = row_of_blocks(sight, reader, page, gap.end);
                }
                !row.is_empty() || looked_at > MOST_PAGES
            });
            for block in row {
                claims.add(block, Kind::GlibcLargeBlock, block_evidence());
            }
        }
    }
}

/// How a block with a mapping of its own is known.
pub(super) fn block_evidence() -> Evidence {
    Evidence::plain(Strength::Contents, "header of a block of its own mapping")
}

/// Blocks one after the other that end where a mapping does, at `end` or beyond it, or so little before `end` that what is known from
/// there on was aligned up; none if they do not.
fn row_of_blocks(sight: &Sight<'_>, reader: &Reader<'_>, start: u64, end: u64) -> Vec<Extent> {
    let limit = sight.end_of_row(start);
    let mut blocks: Vec<Extent> = Vec::new();
    let mut start = start;
    while start < end {
        let Some(block) = large_block(reader, Extent { start, end: limit }) else { break };
        start = block.end;
        blocks.push(block);
    }
    let begins_mapping =
        |address| mapping_at(sight.mappings, address).is_none_or(|mapping| mapping.start == address);
    let is_untouched = || reader.pages(Extent { start, end }).is_empty();
    let is_bound = start == end
        || begins_mapping(start)
        || (end.saturating_sub(start) < MOST_ALIGNED_BYTES && !begins_mapping(end) && is_untouched());
    if is_bound { blocks } else { Vec::new() }
}

/// The block whose mapping begins where `extent` does and ends within it.
fn large_block(reader: &Reader<'_>, extent: Extent) -> Option<Extent> {
    let fits = |before: u64, bytes: u64| {
        bytes & FLAGS == MAPPED
            && (bytes & !FLAGS) >= SMALLEST_CHUNK_BYTES
            && before
                .checked_add(bytes & !FLAGS)
                .is_some_and(|whole| whole.is_multiple_of(PAGE_BYTES) && whole <= extent.bytes())
    };
    let by_head = |head: u64| {
        let (before, bytes) = (reader.word(head)?, reader.word(head + 8)?);
        (before == head - extent.start && fits(before, bytes)).then(|| before + (bytes & !FLAGS))
    };
    let first = by_head(extent.start);
    // An aligned block begins later; its header says how much lies before it. The one at the start is older than that, and what
    // realloc made of the block is not in it.
    let limit = extent.start + first.unwrap_or(LARGEST_ALIGNMENT_BYTES.min(extent.bytes()));
    let aligned = heads_of_aligned(extent.start).take_while(|head| *head < limit).find_map(by_head);
    Some(Extent::new(extent.start, aligned.or(first)?))
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const BASE: u64 = 0x7f00_0400_0000;

    fn kinds(memory: &MadeUp, mappings: &[Mapping], at: &[u64]) -> Vec<Option<Kind>> {
        let mut claims = Claims::default();
        let sight = Sight { mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(memory), &mut claims);
        claim_rows(&sight, &Reader::new(memory), &mut claims);
        at.iter().map(|address| claims.at(*address).map(|claim| claim.kind)).collect()
    }

    #[test]
    fn heaps_that_grew_together_are_told_apart_and_a_forged_one_is_not_believed() {
        let arena = BASE + 0x30;
        let mut memory = MadeUp::default();
        memory.put(BASE, &[arena, 0, HEAP_BYTES, HEAP_BYTES]);
        memory.put(BASE + HEAP_BYTES, &[arena, BASE, 0x21000, 0x21000]);
        memory.put(BASE + 4 * HEAP_BYTES, &[arena, 0, 0x21000, 0x21000]);
        let mappings = [
            mapping(BASE, BASE + HEAP_BYTES + 0x21000, b"rw-p", ""),
            mapping(BASE + HEAP_BYTES + 0x21000, BASE + 2 * HEAP_BYTES, b"---p", ""),
            mapping(BASE + 4 * HEAP_BYTES, BASE + 4 * HEAP_BYTES + 0x21000, b"rw-p", ""),
        ];
        let at = [BASE, BASE + HEAP_BYTES, BASE + 2 * HEAP_BYTES - 1, BASE + 4 * HEAP_BYTES];
        let heap = Some(Kind::GlibcHeap);
        assert_eq!(kinds(&memory, &mappings, &at), [heap, heap, heap, None]);
        let found = |contents| heaps(&Sight { mappings: &mappings, contents, threads: &[] });
        let whole = [BASE, BASE + HEAP_BYTES].map(|start| Extent::new(start, HEAP_BYTES));
        assert_eq!(found(Some(&memory)), whole);
        assert_eq!(found(None), [], "the layout alone proves nothing");
    }

    #[test]
    fn heaps_for_huge_pages_are_known_also_at_a_multiple_of_64_mib() {
        let small = HUGE_PAGES_HEAP_BYTES;
        let mut memory = MadeUp::default();
        memory.put(BASE, &[BASE + 0x30, 0, 0x21000, 0x21000]);
        memory.put(BASE + small, &[BASE + 0x30, BASE, small, small]);
        let mappings = [
            mapping(BASE, BASE + 0x21000, b"rw-p", ""),
            mapping(BASE + 0x21000, BASE + small, b"---p", ""),
            mapping(BASE + small, BASE + 2 * small + 0x1000, b"rw-p", ""),
        ];
        let at = [BASE, BASE + small - 1, BASE + small, BASE + 2 * small];
        let heap = Some(Kind::GlibcHeap);
        assert_eq!(kinds(&memory, &mappings, &at), [heap, heap, heap, None]);
    }

    #[test]
    fn a_heap_whose_mapping_was_divided_is_known_whole() {
        let mut memory = MadeUp::default();
        memory.put(BASE, &[BASE + 0x30, 0, 0x21000, 0x21000]);
        // A page is locked, another may only be read.
        let mappings = [
            mapping(BASE, BASE + 0x1000, b"rw-p", ""),
            mapping(BASE + 0x1000, BASE + 0x2000, b"rw-p", ""),
            mapping(BASE + 0x2000, BASE + 0x3000, b"r--p", ""),
            mapping(BASE + 0x3000, BASE + 0x21000, b"rw-p", ""),
        ];
        let heap = Some(Kind::GlibcHeap);
        assert_eq!(kinds(&memory, &mappings, &[BASE, BASE + 0x20000]), [heap, heap]);
        assert_eq!(kinds(&memory, &mappings[..3], &[BASE]), [None], "it says that it has more");
    }

    #[test]
    fn large_blocks_are_known_by_their_header_and_other_mappings_are_not_theirs() {
        let mut memory = MadeUp::default();
        memory.put(BASE, &[0, 0x3000 | MAPPED]);
        // An aligned one: header 0xff0 bytes in.
        memory.put(BASE + 0x3000 + 0xff0, &[0xff0, 0x3010 | MAPPED]);
        let mappings = [mapping(BASE, BASE + 0x8000, b"rw-p", "")];
        let block = Some(Kind::GlibcLargeBlock);
        let at = [BASE, BASE + 0x3000, BASE + 0x7000];
        assert_eq!(kinds(&memory, &mappings, &at), [block, block, None]);
        // Huge pages were advised for all of a block but its first page.
        let divided =
            [mapping(BASE, BASE + 0x1000, b"rw-p", ""), mapping(BASE + 0x1000, BASE + 0x3000, b"rw-p", "")];
        assert_eq!(kinds(&memory, &divided, &[BASE, BASE + 0x2000]), [block, block]);
        // A program's own 200 MiB, full of numbers.
        let mut own = MadeUp::default();
        own.put(BASE, &[0, 17, 34]);
        assert_eq!(kinds(&own, &[mapping(BASE, BASE + (200 << 20), b"rw-p", "")], &[BASE]), [None]);
    }

    #[test]
    fn an_aligned_block_is_as_long_as_realloc_made_it() {
        let block = Some(Kind::GlibcLargeBlock);
        for (first_bytes, bytes) in [(0x8000, 0x3000), (0x1000, 0x3000)] {
            let mut memory = MadeUp::default();
            memory.put(BASE, &[0, first_bytes | MAPPED]);
            memory.put(BASE + 0x30, &[0x30, (bytes - 0x30) | MAPPED]);
            let mappings = [mapping(BASE, BASE + 0x6000, b"rw-p", "")];
            let at = [BASE, BASE + 0x2000, BASE + 0x3000];
            assert_eq!(kinds(&memory, &mappings, &at), [block, block, None], "{first_bytes:#x}");
        }
        let mut other = MadeUp::default();
        other.put(BASE, &[u64::MAX, u64::MAX]);
        assert_eq!(kinds(&other, &[mapping(BASE, BASE + 0x6000, b"rw-p", "")], &[BASE]), [None]);
    }

    #[test]
    fn mappings_in_a_long_row_are_looked_at_in_time() {
        let memory = MadeUp::default();
        let mapping_at = |number: u64| {
            let permissions = if number.is_multiple_of(2) { b"rw-p" } else { b"r--p" };
            mapping(BASE + number * 4096, BASE + (number + 1) * 4096, permissions, "")
        };
        let mappings: Vec<Mapping> = (0..65_000).map(mapping_at).collect();
        let began = std::time::Instant::now();
        assert_eq!(kinds(&memory, &mappings, &[BASE]), [None]);
        assert!(began.elapsed().as_secs() < 20, "it took {:?}", began.elapsed());
    }

    #[test]
    fn blocks_behind_something_else_are_found_when_they_fill_the_rest() {
        let mut memory = MadeUp::default();
        memory.put(BASE, &[5, 6]);
        memory.put(BASE + 0x2000, &[0, 0x1000 | MAPPED]);
        memory.put(BASE + 0x3000, &[0, 0x1000 | MAPPED]);
        let whole = [mapping(BASE, BASE + 0x4000, b"rw-p", "")];
        let longer = [mapping(BASE, BASE + 0x5000, b"rw-p", "")];
        let block = Some(Kind::GlibcLargeBlock);
        let at = [BASE, BASE + 0x2000, BASE + 0x3000];
        assert_eq!(kinds(&memory, &whole, &at), [None, block, block]);
        assert_eq!(kinds(&memory, &longer, &at), [None, None, None]);
        // The header's page joined what lies below, the rest of the block has other advice and so a mapping of its own.
        let divided =
            [mapping(BASE, BASE + 0x3000, b"rw-p", ""), mapping(BASE + 0x3000, BASE + 0x6000, b"rw-p", "")];
        let mut split = MadeUp::default();
        split.put(BASE, &[5, 6]);
        split.put(BASE + 0x2000, &[0, 0x4000 | MAPPED]);
        assert_eq!(kinds(&split, &divided, &[BASE, BASE + 0x2000, BASE + 0x5000]), [None, block, block]);
    }

    #[test]
    fn a_block_is_found_that_ends_where_an_arena_of_pythons_begins() {
        let mut memory = MadeUp::default();
        memory.put(BASE, &[5, 6]);
        memory.put(BASE + 0x2000, &[0, 0x3000 | MAPPED]);
        let mappings = [mapping(BASE, BASE + 0x10_0000, b"rw-p", "")];
        let block_with_pools_at = |pools: u64, memory: &MadeUp| {
            let mut claims = Claims::default();
            let evidence = Evidence::plain(Strength::Contents, "headers of pymalloc's pools");
            claims.add(Extent::new(BASE + pools, 0x8000), Kind::PythonObjects, evidence);
            let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
            claim_rows(&sight, &Reader::new(memory), &mut claims);
            claims.at(BASE + 0x4000).map(|claim| claim.kind)
        };
        // Its first pool begins at a multiple of 16 KiB.
        assert_eq!(block_with_pools_at(0x8000, &memory), Some(Kind::GlibcLargeBlock));
        assert_eq!(block_with_pools_at(0xc000, &memory), None, "too far away");
        memory.put(BASE + 0x5000, &[1]);
        assert_eq!(block_with_pools_at(0x8000, &memory), None, "something lies between");
    }
}
