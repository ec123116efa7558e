//! The walk on heaps made here: what they hold is known, for every layout; and however they are damaged, it ends.

mod overdue;

use faultless_records::glibc_heap::{LAYOUTS, Layout};
use proptest::prelude::*;

use super::arenas::Data;
use super::choice::{self, Outcome};
use super::walk::{Flaw, HeapWalk};
use super::{Area, Memory, PAGE_BYTES, Page, joined};

const DATA: u64 = 0x7f00_0000_0000;
const DATA_BYTES: u64 = 16 * PAGE_BYTES;
/// Where the made `malloc_state` and `malloc_par` stand in the data.
const STATE: u64 = DATA + 0x2a40;
const PARAMETERS: u64 = DATA + 0x1180;
const HEAP: u64 = 0x5555_0000_0000;
const THREAD_HEAP: u64 = 0x7e00_0000_0000;
const THREAD_HEAP_BYTES: u64 = 33 * PAGE_BYTES;

/// What a made chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Make {
    Used,
    Free,
    Fast,
    Cached,
}

#[derive(Clone)]
struct Made {
    data: Vec<u8>,
    heap: Vec<u8>,
    thread_heap: Vec<u8>,
    absent: Vec<u64>,
}

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        for (start, bytes) in [(DATA, &self.data), (HEAP, &self.heap), (THREAD_HEAP, &self.thread_heap)] {
            let offset = address.checked_sub(start).and_then(|offset| usize::try_from(offset).ok());
            let part = offset.and_then(|offset| bytes.get(offset..offset.checked_add(buffer.len())?));
            if let Some(part) = part {
                buffer.copy_from_slice(part);
                return true;
            }
        }
        false
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        let first = address / PAGE_BYTES;
        let state = |page| if self.absent.contains(&page) { Page::Absent } else { Page::Resident };
        Some((first..first + count as u64).map(state).collect())
    }
}

impl Made {
    fn put(&mut self, address: u64, word: u64) {
        let (start, bytes) = match address {
            address if address >= DATA => (DATA, &mut self.data),
            address if address >= THREAD_HEAP => (THREAD_HEAP, &mut self.thread_heap),
            _ => (HEAP, &mut self.heap),
        };
        let offset = (address - start) as usize;
        bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn put_half(&mut self, address: u64, half: u32) {
        let offset = (address - DATA) as usize;
        self.data[offset..offset + 4].copy_from_slice(&half.to_le_bytes());
    }

    /// A heap with these chunks in the main arena, one chunk in use in a thread's arena, and tops behind.
    fn new(layout: &Layout, chunks: &[(u64, Make)]) -> Self {
        let used: u64 = chunks.iter().map(|(bytes, _)| bytes).sum();
        let heap_bytes = (used + layout.cache_chunk_bytes() + 5 * PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let mut made = Self {
            data: vec![0; DATA_BYTES as usize],
            heap: vec![0; heap_bytes as usize],
            thread_heap: vec![0; THREAD_HEAP_BYTES as usize],
            absent: Vec::new(),
        };
        let state = THREAD_HEAP + layout.heap_info_bytes;
        made.put_main(layout, chunks, state);
        made.put_state(layout, state, STATE, &[], THREAD_HEAP_BYTES);
        made.put(THREAD_HEAP, state);
        made.put(THREAD_HEAP + 16, THREAD_HEAP_BYTES);
        made.put(THREAD_HEAP + 24, THREAD_HEAP_BYTES);
        if layout.heap_info_bytes > 32 {
            made.put(THREAD_HEAP + 32, PAGE_BYTES);
        }
        let first = THREAD_HEAP + layout.first_chunk();
        made.put(first + 8, 0x1000 | 5);
        made.put(first + 0x1000 + 8, (THREAD_HEAP_BYTES - layout.first_chunk() - 0x1000) | 1);
        made.put(state + layout.top as u64, first + 0x1000);
        made
    }

    fn put_main(&mut self, layout: &Layout, chunks: &[(u64, Make)], thread_state: u64) {
        let cache = HEAP;
        let mut at = HEAP + layout.cache_chunk_bytes();
        self.put(cache + 8, layout.cache_chunk_bytes() | 1);
        let (mut free, mut fast, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        let mut previous_is_used = 1;
        for (bytes, make) in chunks {
            self.put(at + 8, bytes | previous_is_used);
            previous_is_used = u64::from(*make != Make::Free);
            match make {
                Make::Used => {}
                Make::Free => {
                    self.put(at + bytes, *bytes);
                    free.push(at);
                }
                Make::Fast => fast.push(at),
                Make::Cached => cached.push(at),
            }
            at += bytes;
        }
        let heap_bytes = self.heap.len() as u64;
        self.put(at + 8, (HEAP + heap_bytes - at) | previous_is_used);
        self.put_state(layout, STATE, thread_state, &free, heap_bytes);
        self.put(STATE + layout.top as u64, at);
        if let Some(offset) = layout.fast_bins {
            let place = |list: usize| if list == 0 { STATE + offset as u64 } else { fast[list - 1] + 16 };
            for (list, chunk) in fast.iter().enumerate() {
                let mangle = if list > 0 && layout.links_are_mangled { place(list) >> 12 } else { 0 };
                self.put(place(list), chunk ^ mangle);
            }
            if let Some(last) = fast.last().filter(|_| layout.links_are_mangled) {
                self.put(last + 16, (last + 16) >> 12);
            }
        }
        self.put_cache(layout, cache + 16, &cached);
        self.put(PARAMETERS + 16, 128 * 1024);
        let after = PARAMETERS + layout.mmapped_bytes as u64;
        self.put(after + 16, HEAP);
        self.put(after + 24, 64);
        self.put(after + 40, 7);
    }

    /// All cached chunks have 32 bytes, so they are in the first list.
    fn put_cache(&mut self, layout: &Layout, cache: u64, chunks: &[u64]) {
        let lists = layout.cache.lists as u64;
        let number = |held: u64| if layout.cache.counts_down { 7 - held } else { held };
        for list in 0..lists {
            let held = if list == 0 { chunks.len() as u64 } else { 0 };
            let place = (cache + list * layout.cache.count_bytes as u64 - HEAP) as usize;
            let count_bytes = layout.cache.count_bytes;
            self.heap[place..place + count_bytes].copy_from_slice(&number(held).to_le_bytes()[..count_bytes]);
        }
        let first = cache + lists * layout.cache.count_bytes as u64;
        let mut place = first;
        for chunk in chunks {
            let mangle = if place != first && layout.links_are_mangled { place >> 12 } else { 0 };
            self.put(place, (chunk + 16) ^ mangle);
            place = chunk + 16;
        }
        if place != first && layout.links_are_mangled {
            self.put(place, place >> 12);
        }
    }

    /// An arena whose free chunks are all in the unsorted bin.
    fn put_state(&mut self, layout: &Layout, state: u64, next: u64, free: &[u64], system_bytes: u64) {
        for bin in 0..127 {
            let place = state + (layout.bins() + bin * 16) as u64;
            self.put(place, layout.bin_address(state, bin));
            self.put(place + 8, layout.bin_address(state, bin));
        }
        let head = layout.bin_address(state, 0);
        for (place, chunk) in free.iter().enumerate() {
            let before = if place == 0 { head } else { free[place - 1] };
            self.put(before + 16, *chunk);
            self.put(chunk + 24, before);
            self.put(chunk + 16, head);
            self.put(head + 24, *chunk);
        }
        self.put(state + layout.next() as u64, next);
        self.put(state + layout.next() as u64 + 16, 1);
        self.put(state + layout.next() as u64 + 24, system_bytes);
        self.put(state + layout.next() as u64 + 32, system_bytes);
    }

    fn areas(&self) -> Vec<Area> {
        let area = |start, bytes: &[u8], is_anonymous, is_break| Area {
            start,
            end: start + bytes.len() as u64,
            is_writable: true,
            is_anonymous,
            is_break,
        };
        vec![
            area(HEAP, &self.heap, true, true),
            area(THREAD_HEAP, &self.thread_heap, true, false),
            area(DATA, &self.data, false, false),
        ]
    }

    fn walk(&self, version: Option<(u32, u32)>) -> Outcome {
        let data = Data::read(self, (DATA, DATA + DATA_BYTES)).unwrap();
        choice::walk(self, &self.areas(), &data, version)
    }

    fn walked(&self, layout: &Layout) -> HeapWalk {
        match self.walk(Some((2, layout.since))) {
            Outcome::Walked(walk) => *walk,
            other => panic!("{other:?} of {layout:?}"),
        }
    }
}

const CHUNKS: &[(u64, Make)] = &[
    (64, Make::Used),
    (3 * 4096, Make::Free),
    (32, Make::Fast),
    (32, Make::Used),
    (32, Make::Cached),
    (32, Make::Cached),
    (2000, Make::Free),
    (4096, Make::Used),
    (32, Make::Fast),
];

fn chunks_of(layout: &Layout) -> Vec<(u64, Make)> {
    let exists = |(_, make): &&(u64, Make)| layout.fast_bins.is_some() || *make != Make::Fast;
    CHUNKS.iter().filter(exists).copied().collect()
}

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
            let (start, bytes) = match region {
                0 => (STATE, layout.state_bytes),
                1 => (HEAP, made.heap.len() as u64),
                _ => (THREAD_HEAP, layout.first_chunk() + 64),
            };
            made.put(start + place.index(bytes as usize / 8 - 1) as u64 * 8, word);
        }
        if let Outcome::Walked(walk) = made.walk(Some((2, layout.since))) {
            prop_assert!(walk.total.walked_bytes() <= 2 * (made.heap.len() as u64 + THREAD_HEAP_BYTES));
        }
        let _ = made.walk(None);
    }
}
