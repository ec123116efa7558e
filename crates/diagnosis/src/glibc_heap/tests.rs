//! The walk on heaps made here: what they hold is known, for every layout; and however they are damaged, it ends.

mod changing;
mod overdue;

use faultless_records::glibc_heap::{LAYOUTS, Layout};
use faultless_records::mappings::Mapping;
use proptest::prelude::*;

use super::account::Account;
use super::arenas::Data;
use super::choice::{self, Outcome};
use super::made::*;
use super::pages::Holding;
use super::sizes::Amount;
use super::walk::Flaw;
use super::{Area, Memory, PAGE_BYTES, Page, areas, joined};

#[test]
fn every_layout_is_walked_exactly() {
    for layout in &LAYOUTS {
        let made = Made::new(layout, &chunks_of(layout));
        let walk = made.walked(layout);
        assert!(walk.is_exact(), "{:?}", walk.arenas.iter().map(|arena| arena.flaw).collect::<Vec<_>>());
        assert_eq!(walk.arenas.len(), 2);
        assert_eq!(walk.parameters.unwrap().main_start, HEAP);
        let total = &walk.total;
        let fast = if layout.fast_bins.is_some() { 2 } else { 0 };
        assert_eq!((total.binned.blocks, total.binned.bytes), (2, 3 * 4096 + 2000));
        assert_eq!((total.fast.blocks, total.cached.blocks, walk.caches), (fast, 2, 1));
        assert_eq!(total.used.total().bytes, 64 + 32 + 4096 + 4096);
        assert_eq!(total.walked_bytes(), made.heap.len() as u64 + THREAD_HEAP_BYTES);
        let holding = total.holding;
        assert_eq!(holding.resident_bytes, total.walked_bytes(), "all pages are resident");
        assert!(total.trapped_bytes() <= holding.resident_bytes);
    }
}

#[test]
fn figures_of_arenas_add_up_and_what_is_free_of_the_resident_is_trapped() {
    let amount = |blocks| Amount { blocks, bytes: blocks * 100 };
    let holding =
        Holding { resident_bytes: 8000, swapped_bytes: 70, whole_free_bytes: 900, pinned_bytes: 1000 };
    let one = Account {
        binned: amount(1),
        fast: amount(2),
        cached: amount(3),
        top_bytes: 4000,
        largest_free_bytes: 300,
        overhead_bytes: 50,
        holding,
        cached_resident_bytes: 100,
        returnable_bytes: 600,
        ..Account::default()
    };
    assert_eq!((one.free_bytes(), one.walked_bytes(), one.kept_bytes()), (4600, 4650, 300));
    assert_eq!((one.trapped_bytes(), one.fragmentation()), (2000, Some(0.25)));
    let mut both = one.clone();
    both.merge(&one);
    let double =
        Holding { resident_bytes: 16_000, swapped_bytes: 140, whole_free_bytes: 1800, pinned_bytes: 2000 };
    let expected = Account {
        binned: amount(2),
        fast: amount(4),
        cached: amount(6),
        top_bytes: 8000,
        overhead_bytes: 100,
        holding: double,
        cached_resident_bytes: 200,
        returnable_bytes: 1200,
        ..one
    };
    assert_eq!(both, expected);
}

#[test]
fn areas_are_joined_where_a_heap_goes_on_across_mappings() {
    let mapping = |start, permissions: &[u8; 4], name: &str, inode| Mapping {
        start,
        end: start + PAGE_BYTES,
        permissions: *permissions,
        name: name.into(),
        inode,
        ..Mapping::default()
    };
    let ends = |pair: [Mapping; 2]| areas(&pair).iter().map(|area| area.end / PAGE_BYTES).collect::<Vec<_>>();
    let page = PAGE_BYTES;
    let ([rw, no], named) = ([*b"rw-p", *b"---p"], "[anon:x]");
    for (first, second, joins) in [
        (mapping(page, &rw, "", 0), mapping(2 * page, &rw, named, 0), true),
        (mapping(page, &rw, "[heap]", 0), mapping(2 * page, &no, "[heap]", 0), true),
        (mapping(page, &rw, "", 0), mapping(2 * page, &no, "", 0), false),
        (mapping(page, &no, "", 0), mapping(2 * page, &rw, "", 0), false),
        (mapping(page, &rw, "[heap]", 0), mapping(2 * page, &rw, "", 0), false),
        (mapping(page, &rw, "/a", 7), mapping(2 * page, &rw, "", 0), false),
        (mapping(page, &rw, "", 0), mapping(2 * page, &rw, "/a", 7), false),
        (mapping(page, &rw, "", 0), mapping(3 * page, &rw, "", 0), false),
    ] {
        let last = second.end / PAGE_BYTES;
        let expected = if joins { vec![last] } else { vec![2, last] };
        assert_eq!(ends([first.clone(), second.clone()]), expected, "{first:?} {second:?}");
    }
    let area = areas(&[mapping(page, &rw, "", 0)]).remove(0);
    assert_eq!([page - 1, page, 2 * page].map(|address| area.holds(address)), [false, true, false]);
}

#[test]
fn a_layout_that_nobody_names_is_found_by_what_it_explains() {
    for layout in &LAYOUTS {
        let made = Made::new(layout, &chunks_of(layout));
        let Outcome::Walked(walk) = made.walk(None) else { panic!("{layout:?}") };
        assert!(walk.is_exact() && walk.caches == 1, "{layout:?}");
        assert_eq!(walk.layout.cache, layout.cache);
        assert_eq!(walk.layout.heap_info_bytes, layout.heap_info_bytes);
    }
}

#[test]
fn a_trim_takes_whole_pages_behind_headers_and_joins_fast_chunks_first() {
    let layout = Layout::of((2, 36)).unwrap();
    let front = layout.cache_chunk_bytes();
    // The free chunk ends in the middle of page 3, the fast chunks behind it reach page 4 only together with it.
    let rest = 4 * PAGE_BYTES - front - 3 * PAGE_BYTES - 96 - 32;
    let chunks = [
        (96, Make::Used),
        (3 * PAGE_BYTES, Make::Free),
        (32, Make::Fast),
        (rest, Make::Free),
        (64, Make::Used),
    ];
    let mut made = Made::new(layout, &chunks);
    let returnable = |made: &Made| made.walked(layout).arenas[0].account.returnable_bytes / PAGE_BYTES;
    let top = |made: &Made| {
        let bytes = made.walked(layout).arenas[0].account.top_bytes;
        (bytes - 33) / PAGE_BYTES
    };
    assert_eq!(returnable(&made), 3 + top(&made));
    made.absent.push(HEAP / PAGE_BYTES + 2);
    assert_eq!(returnable(&made), 2 + top(&made), "a page without memory gives nothing back");
}

/// Heaps of which one page cannot be read.
struct Guarded {
    made: Made,
    page: u64,
}

impl Memory for Guarded {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let end = address + buffer.len() as u64;
        (end <= self.page || address >= self.page + PAGE_BYTES) && self.made.read(address, buffer)
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        self.made.pages(address, count)
    }
}

#[test]
fn a_block_that_begins_with_a_page_that_nobody_can_read_is_passed() {
    let layout = Layout::of((2, 36)).unwrap();
    let header_bytes = 16;
    let front = 2 * PAGE_BYTES - layout.cache_chunk_bytes() - header_bytes;
    let made = Made::new(layout, &[(front, Make::Used), (3 * PAGE_BYTES, Make::Used), (4096, Make::Free)]);
    let whole = made.walked(layout);
    let guarded = Guarded { made: made.clone(), page: HEAP + 2 * PAGE_BYTES };
    let data = Data::read(&guarded, (DATA, DATA + DATA_BYTES)).unwrap();
    let outcome = choice::walk(&guarded, &made.areas(), &data, Some((2, 36)));
    let Outcome::Walked(walk) = outcome else { panic!("{outcome:?}") };
    assert_eq!(walk.arenas[0].flaw, None);
    assert!(walk.total == whole.total);
}

#[test]
fn a_heap_whose_mapping_was_divided_is_walked_whole() {
    let layout = Layout::of((2, 36)).unwrap();
    let made = Made::new(layout, CHUNKS);
    let data = Data::read(&made, (DATA, DATA + DATA_BYTES)).unwrap();
    let whole = made.areas();
    let mut pieces = Vec::new();
    // The page in the middle may not be written: it belongs to the heap all the same.
    for (start, end, is_writable) in [(0, 1, true), (1, 2, false), (2, 5, true)] {
        let (start, end) = (HEAP + start * PAGE_BYTES, HEAP + end * PAGE_BYTES);
        pieces.push(Area { start, end: end.min(whole[0].end), is_writable, ..whole[0].clone() });
    }
    pieces.push(Area { start: HEAP + 5 * PAGE_BYTES, ..whole[0].clone() });
    pieces.extend_from_slice(&whole[1..]);
    let areas = joined(pieces);
    assert_eq!(areas, whole);
    let Outcome::Walked(walk) = choice::walk(&made, &areas, &data, None) else { panic!("no heap") };
    assert!(walk.is_exact());
}

#[test]
fn lists_and_chunks_that_disagree_are_a_flaw() {
    let layout = Layout::of((2, 41)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    // The last chunk is taken out of the unsorted bin, as a thread does a moment before it is in use.
    let head = layout.bin_address(STATE, 0);
    let first = HEAP + layout.cache_chunk_bytes() + 64;
    made.put(first + 16, head);
    made.put(head + 24, first);
    let walk = made.walked(layout);
    assert!(matches!(walk.arenas[0].flaw, Some(Flaw::Differs { .. })), "{:?}", walk.arenas[0].flaw);
    assert_eq!(walk.arenas[1].flaw, None);
    // Nothing moves here, so it is not walked for ever, and not said to have moved.
    assert!(walk.arenas[0].has_lasting_flaw() && !walk.arenas[1].has_lasting_flaw());
    assert_eq!((walk.arenas[0].attempts, walk.arenas[1].attempts), (3, 1));
}

#[test]
fn a_heap_that_leads_back_to_itself_ends_the_walk() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    // The heap before the first is the first, and the arena says that it had 2^50 bytes.
    made.put(THREAD_HEAP + 8, THREAD_HEAP);
    made.put(THREAD_HEAP + layout.heap_info_bytes + layout.next() as u64 + 32, 1 << 50);
    assert_eq!(made.walked(layout).arenas[1].flaw, Some(Flaw::Unreadable));
}

/// A thread's arena of two heaps of 8 MiB, the first of them full up to a fencepost of so many bytes.
fn with_full_heap(layout: &Layout, fencepost_bytes: u64) -> Made {
    let mut made = Made::new(layout, CHUNKS);
    let state = THREAD_HEAP + layout.heap_info_bytes;
    let (second, second_bytes) = (THREAD_HEAP + (8 << 20), 4 * PAGE_BYTES);
    made.thread_heap.resize((8 << 20) + second_bytes as usize, 0);
    // Its top is in use, and a second fencepost follows.
    let old_top = THREAD_HEAP + layout.first_chunk() + 0x1000;
    let fencepost = THREAD_HEAP + THREAD_HEAP_BYTES - 16 - fencepost_bytes;
    made.put(old_top + 8, (fencepost - old_top) | 5);
    made.put(fencepost + 8, fencepost_bytes | 1);
    made.put(fencepost + fencepost_bytes + 8, 1);
    for (place, word) in [state, THREAD_HEAP, second_bytes, second_bytes, PAGE_BYTES].into_iter().enumerate()
    {
        made.put(second + place as u64 * 8, word);
    }
    let top = second + layout.heap_info_bytes;
    made.put(top + 8, (second_bytes - layout.heap_info_bytes) | 1);
    made.put(state + layout.top as u64, top);
    for place in [24, 32] {
        made.put(state + layout.next() as u64 + place, THREAD_HEAP_BYTES + second_bytes);
    }
    made
}

#[test]
fn heaps_of_8_mib_are_told_from_one_of_64_that_would_begin_at_the_same_address() {
    let layout = Layout::of((2, 36)).unwrap();
    let walk = with_full_heap(layout, 16).walked(layout);
    let arena = &walk.arenas[1];
    assert_eq!((arena.flaw, arena.heaps.len(), arena.reserved_bytes()), (None, 2, 16 << 20));
}

#[test]
fn a_heap_whose_top_had_48_bytes_left_ends_with_one_larger_fencepost() {
    let layout = Layout::of((2, 36)).unwrap();
    let arena = with_full_heap(layout, 32).walked(layout).arenas.remove(1);
    assert_eq!((arena.flaw, arena.account.used.total().blocks), (None, 2));
}

#[test]
fn a_malloc_that_was_never_used_is_told_from_none() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    assert_eq!(Made { data: vec![0; DATA_BYTES as usize], ..made.clone() }.walk(None), Outcome::Nothing);
    let initial_top = layout.bin_address(STATE, 0);
    made.put_state(layout, STATE, STATE, &[], 0);
    made.put(STATE + layout.top as u64, initial_top);
    assert_eq!(made.walk(Some((2, 36))), Outcome::Unused);
    // As libc's file has it, before another allocator or a first call made malloc set itself up.
    made.data.fill(0);
    made.put(STATE + layout.next() as u64, STATE);
    made.put(STATE + layout.next() as u64 + 16, 1);
    assert_eq!(made.walk(Some((2, 36))), Outcome::Unused);
    made.put(STATE + 64, 1);
    assert_eq!(made.walk(Some((2, 36))), Outcome::Nothing);
}

#[test]
fn a_malloc_whose_blocks_all_have_mappings_of_their_own_is_no_unused_one() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    let after = PARAMETERS + layout.mmapped_bytes as u64;
    made.data.fill(0);
    made.put_state(layout, STATE, STATE, &[], 0);
    made.put(STATE + layout.top as u64, layout.bin_address(STATE, 0));
    made.put(after + 24, 64);
    for place in [layout.mmap_count, layout.mmap_count + 8] {
        made.put_half(PARAMETERS + place as u64, 2);
    }
    for place in [after, after + 8] {
        made.put(place, 8 * PAGE_BYTES);
    }
    let walk = made.walked(layout);
    assert_eq!((walk.mapped.blocks, walk.mapped.bytes, walk.is_exact()), (2, 8 * PAGE_BYTES, true));
}

#[test]
fn a_threshold_that_somebody_set_to_0_or_to_the_most_is_believed() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    for bytes in [0, i64::MAX as u64, u64::MAX] {
        made.put(PARAMETERS + 16, bytes);
        assert_eq!(made.walked(layout).parameters.map(|found| found.mmap_threshold_bytes), Some(bytes));
    }
}

#[test]
fn a_count_of_mapped_bytes_that_each_mremap_shifts_is_believed() {
    // What glibc 2.43 counted in a CPython with three mapped blocks: eleven times 16 bytes too many.
    for (mappings, bytes, shown) in [(3, 0xc_40b0, 0xc_4000), (0, 0xb0, 0)] {
        let layout = Layout::of((2, 43)).unwrap();
        let mut made = Made::new(layout, CHUNKS);
        let after = PARAMETERS + layout.mmapped_bytes as u64;
        made.put_half(PARAMETERS + layout.mmap_count as u64, mappings);
        made.put_half(PARAMETERS + layout.mmap_count as u64 + 8, 3);
        made.put(after, bytes);
        made.put(after + 8, 0x18_80b0);
        let walk = made.walked(layout);
        assert_eq!((walk.is_exact(), walk.mapped.bytes), (true, shown));
        assert_eq!(walk.parameters.map(|found| found.main_start), Some(HEAP));
    }
}

#[test]
fn parameters_that_make_no_sense_are_not_believed() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut made = Made::new(layout, CHUNKS);
    made.put_half(PARAMETERS + layout.mmap_count as u64, 3);
    assert_eq!(made.walked(layout).parameters, None, "three mapped blocks, and never more than none");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn no_damage_makes_the_walk_panic_or_run_on(
        layout in 0..LAYOUTS.len(),
        damage in proptest::collection::vec((0..3_usize, any::<prop::sample::Index>(), prop_oneof![any::<u64>(), 0..0x9000_u64, HEAP..HEAP + 0x9000]), 1..8),
    ) {
        let layout = &LAYOUTS[layout];
        let mut made = Made::new(layout, &chunks_of(layout));
        for (region, place, word) in damage {
            made.damage(layout, region, place.index(usize::MAX), word);
        }
        if let Outcome::Walked(walk) = made.walk(Some((2, layout.since))) {
            prop_assert!(walk.total.walked_bytes() <= 2 * (made.heap.len() as u64 + THREAD_HEAP_BYTES));
        }
        let _ = made.walk(None);
    }
}
