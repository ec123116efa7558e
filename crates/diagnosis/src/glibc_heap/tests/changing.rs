//! Caches of threads that go on while they are read.

use std::cell::{Cell, RefCell};

use super::super::trap::is_in_use;
use super::super::walk::HeapWalk;
use super::*;

/// Heaps whose process does something before each reading of its only thread's cache behind the walk.
struct Busy<Change> {
    made: RefCell<Made>,
    cache_bytes: usize,
    readings: Cell<u32>,
    change: Change,
    /// How many it has.
    threads: Option<usize>,
}

impl<Change: Fn(u32, &mut Made)> Memory for Busy<Change> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        if (address, buffer.len()) == (HEAP + 16, self.cache_bytes) {
            self.readings.set(self.readings.get() + 1);
            (self.change)(self.readings.get(), &mut self.made.borrow_mut());
        }
        self.made.borrow().read(address, buffer)
    }

    fn threads(&self) -> Option<usize> {
        self.threads
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        self.made.borrow().pages(address, count)
    }
}

fn walked_busy(layout: &Layout, made: Made, change: impl Fn(u32, &mut Made)) -> HeapWalk {
    walked_busy_of(None, layout, made, change)
}

fn walked_busy_of(
    threads: Option<usize>,
    layout: &Layout,
    made: Made,
    change: impl Fn(u32, &mut Made),
) -> HeapWalk {
    let areas = made.areas();
    let (made, cache_bytes, readings) = (RefCell::new(made), layout.cache.bytes(), Cell::new(0));
    let memory = Busy { made, cache_bytes, readings, change, threads };
    let data = Data::read(&memory, (DATA, DATA + DATA_BYTES)).unwrap();
    match choice::walk(&memory, &areas, &data, Some((2, layout.since))) {
        Outcome::Walked(walk) => *walk,
        outcome => panic!("{outcome:?}"),
    }
}

const SOME: [(u64, Make); 5] =
    [(32, Make::Used), (32, Make::Cached), (64, Make::Used), (48, Make::Cached), (32, Make::Cached)];

/// Where the cache has the first block of a list.
fn place_of_first(layout: &Layout, list: usize) -> u64 {
    HEAP + 16 + (layout.cache.lists * layout.cache.count_bytes + list * 8) as u64
}

#[test]
fn a_cache_that_changed_since_the_walk_met_it_is_counted_as_it_is_read() {
    for layout in &LAYOUTS {
        let mut more = SOME;
        more[0].1 = Make::Cached;
        let later = Made::new(layout, &more);
        let walk = walked_busy(layout, Made::new(layout, &SOME), |_, made| *made = later.clone());
        let total = &walk.total;
        assert_eq!((walk.caches, walk.changed_caches, walk.is_exact()), (1, 0, true), "{layout:?}");
        assert_eq!((total.cached.blocks, total.cached.bytes), (4, 3 * 32 + 48));
        assert_eq!(total.used.total().bytes, 64 + 4096);
    }
}

#[test]
fn a_list_that_holds_only_at_a_later_look_is_waited_for() {
    let layout = Layout::of((2, 36)).unwrap();
    let made = Made::new(layout, &SOME);
    let rest = made.clone();
    let walk = walked_busy(layout, made, |readings, made| {
        *made = rest.clone();
        if readings < 12 {
            made.put(place_of_first(layout, 1), HEAP + 16 * u64::from(readings));
        }
    });
    assert_eq!((walk.total.cached.blocks, walk.changed_caches), (3, 0));
}

#[test]
fn lists_that_hold_count_beside_one_that_changes_at_each_look_and_the_figures_are_not_exact() {
    for layout in &LAYOUTS {
        let walk = walked_busy(layout, Made::new(layout, &SOME), |readings, made| {
            made.put(place_of_first(layout, 1), HEAP + 16 * u64::from(1 + readings % 8));
        });
        assert_eq!((walk.caches, walk.changed_caches, walk.is_exact()), (1, 1, false), "{layout:?}");
        assert_eq!(walk.total.cached.bytes, 2 * 32);
        assert_eq!(walk.total.used.total().bytes, 32 + 64 + 48 + 4096);
    }
}

#[test]
fn a_cache_that_is_gone_before_it_is_read_is_one_that_changed() {
    let layout = Layout::of((2, 36)).unwrap();
    let walk = walked_busy(layout, Made::new(layout, &SOME), |_, made| made.heap[16..].fill(0xff));
    assert_eq!((walk.caches, walk.changed_caches), (0, 1));
}

#[test]
fn no_more_caches_changed_than_there_are_threads_without_one_that_was_read() {
    let layout = Layout::of((2, 36)).unwrap();
    let walked = |threads| {
        walked_busy_of(threads, layout, Made::new(layout, &SOME), |_, made| made.heap[16..].fill(0xff))
    };
    let changed = [Some(2), Some(1), Some(0), None].map(|threads| walked(threads).changed_caches);
    assert_eq!(changed, [1, 1, 0, 1], "a block of the program that is as long as a cache");
}

#[test]
fn a_block_that_was_free_as_its_arena_was_walked_is_not_counted_twice() {
    for layout in &LAYOUTS {
        let mut before = SOME;
        before[0].1 = Make::Free;
        let mut after = SOME;
        after[0].1 = Make::Cached;
        let later = Made::new(layout, &after);
        let walk = walked_busy(layout, Made::new(layout, &before), |_, made| *made = later.clone());
        let total = &walk.total;
        assert_eq!((total.binned.blocks, total.cached.blocks), (1, 3), "{layout:?}");
        assert_eq!((walk.caches, walk.changed_caches, walk.is_exact()), (1, 1, false));
        assert_eq!(total.walked_bytes(), later.heap.len() as u64 + THREAD_HEAP_BYTES);
    }
}

#[test]
fn a_list_whose_thread_was_halted_between_its_block_and_its_number_is_counted() {
    for layout in &LAYOUTS {
        for (number, expected) in [(0, 3), (1, 3), (2, 3), (3, 0)] {
            let mut made = Made::new(layout, &SOME);
            made.put_number(layout, 1, number);
            let walk = made.walked(layout);
            assert_eq!((walk.total.cached.blocks, walk.changed_caches), (expected, 0), "{number} {layout:?}");
        }
    }
}

#[test]
fn a_block_that_looks_like_a_cache_and_leads_nowhere_is_none_that_changed() {
    for layout in &LAYOUTS {
        let chunks = [&SOME[..], &[(layout.cache_chunk_bytes(), Make::Used)]].concat();
        let mut made = Made::new(layout, &chunks);
        let (own, bytes) = (16, layout.cache.bytes());
        let copied = made.heap[own..own + bytes].to_vec();
        let place = layout.cache_chunk_bytes() as usize + 32 + 32 + 64 + 48 + 32 + own;
        // Left over from a cache that had another block first.
        made.heap[place..place + bytes].copy_from_slice(&copied);
        let first = place_of_first(layout, 1) + place as u64 - own as u64;
        made.put(first, HEAP + layout.cache_chunk_bytes() + 16);
        let walk = made.walked(layout);
        assert_eq!((walk.caches, walk.changed_caches, walk.is_exact()), (1, 0, true), "{layout:?}");
        assert_eq!(walk.total.cached.blocks, 3);
    }
}

#[test]
fn that_nearly_all_is_in_use_is_not_said_where_caches_changed() {
    let layout = Layout::of((2, 36)).unwrap();
    let mut walk = Made::new(layout, &SOME).walked(layout);
    walk.mapped.resident_bytes = 64 << 20;
    assert!(is_in_use(&walk));
    walk.changed_caches = 1;
    assert!(!is_in_use(&walk));
}
