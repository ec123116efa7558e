mod caches;
mod forked;
mod gathering;
mod large;
mod slabs;
mod spread;

use super::*;
use crate::granule::Span;
use crate::os::{Call, MOVES_BEFORE, REFUSED, resident_pages};
use crate::stats::Snapshot;

/// Runs `act` while the kernel refuses `calls`.
fn refusing<R>(calls: &[Call], act: impl FnOnce() -> R) -> R {
    REFUSED.set(calls.iter().map(|&call| call as u32).sum());
    let result = act();
    REFUSED.set(0);
    result
}

fn heap() -> Box<Heap> {
    Heap::boxed()
}

fn large(heap: &Heap, bytes: usize) -> usize {
    heap.allocate_large(None, bytes, 16, Pages::Any).address
}

/// As [`large`], but at the start of a span of no more than these bytes.
fn exact(heap: &Heap, bytes: usize) -> usize {
    heap.allocate_large(None, bytes, 128, Pages::Any).address
}

fn fill(address: usize, bytes: usize, tag: u8) {
    // SAFETY: the test owns the block.
    unsafe { (address as *mut u8).write_bytes(tag, bytes) };
}

fn holds(address: usize, bytes: usize, tag: u8) -> bool {
    // SAFETY: the test owns the block.
    unsafe { core::slice::from_raw_parts(address as *const u8, bytes) }.iter().all(|&byte| byte == tag)
}

/// Allocates and frees as the fast paths do.
fn take_small(heap: &Heap, cache: &ThreadCache, class: usize) -> usize {
    // SAFETY: this thread owns the cache.
    let block = unsafe { cache.take(class) };
    if block != 0 { block } else { heap.allocate_small(Some(cache), class) }
}

fn give_small(heap: &Heap, cache: &ThreadCache, block: usize) {
    // SAFETY: this thread owns the cache, and the block, here and below.
    let is_kept = match unsafe { cache.own_place(heap.spans.map.tag_at(block).unwrap()) } {
        // SAFETY: as above.
        Ok(place) => unsafe { cache.push(place, block) },
        // SAFETY: as above.
        Err(rest) => unsafe { cache.push_foreign(rest, block, &heap.central) },
    };
    if !is_kept {
        heap.free(Some(cache), block);
    }
}

#[test]
fn refused_memory_is_answered_by_none_and_the_heap_goes_on() {
    let heap = heap();
    let first = large(&heap, 100_000);
    fill(first, 100_000, 7);
    refusing(&[Call::Commit], || {
        assert_eq!(large(&heap, 1 << 30), 0);
        assert_eq!(heap.resize_large(None, first, 1 << 30), 0);
    });
    assert!(holds(first, 100_000, 7));
    let small = refusing(&[Call::Commit], || heap.allocate_small(None, 3));
    assert_ne!(small, 0, "committed memory serves small blocks without the kernel");
    assert_ne!(large(&heap, 1 << 30), 0);
}

#[test]
fn refused_purges_keep_every_block_correct() {
    let heap = heap();
    refusing(&[Call::Purge], || {
        for round in 0..5 {
            let block = heap.allocate_large(None, 1 << 20, 16, Pages::Any);
            assert!(!block.zero || holds(block.address, 1 << 20, 0), "round {round}");
            fill(block.address, 1 << 20, 9);
            heap.free(None, block.address);
        }
    });
    let purges = heap.spans.counts().purges;
    assert_eq!((purges.bytes, purges.calls), (0, 0));
    assert!(purges.refused > 0);
}

#[test]
fn a_request_that_fails_leaves_no_trace_in_the_books() {
    let heap = heap();
    large(&heap, 100_000);
    let before = Snapshot::take(&heap).large;
    assert_eq!(large(&heap, 100 << 40), 0);
    refusing(&[Call::Commit], || assert_eq!(large(&heap, 1 << 30), 0));
    assert_eq!(Snapshot::take(&heap).large, before);
}

#[test]
fn a_block_that_cannot_be_moved_is_copied() {
    for calls in [&[Call::Move][..], &[Call::KeepTarget], &[]] {
        let heap = heap();
        let block = large(&heap, 1 << 20);
        let _blocker = large(&heap, 1 << 20);
        fill(block, 1 << 20, 5);
        let moved = refusing(calls, || heap.resize_large(None, block, 3 << 20));
        assert_ne!(moved, block);
        assert!(holds(moved, 1 << 20, 5));
        let reused = heap.allocate_large(None, 1 << 20, 16, Pages::Any);
        assert!(!reused.zero || holds(reused.address, 1 << 20, 0));
    }
}

#[test]
fn a_large_block_grows_and_shrinks_in_place_where_its_neighbour_is_free() {
    let heap = heap();
    let block = large(&heap, 200_000);
    fill(block, 200_000, 3);
    assert_eq!(heap.resize_large(None, block, 5 << 20), block);
    assert!(holds(block, 200_000, 3));
    assert_eq!(heap.resize_large(None, block, 70_000), block);
    assert_eq!(heap.usable_bytes(block), 73_728);
    assert_eq!(heap.spans.counts().used as usize, (block % (1 << 16) + 73_728).div_ceil(1 << 16));
}

#[test]
fn what_is_allocated_and_freed_leaves_no_span_in_use() {
    let heap = heap();
    let cache = heap.caches.acquire().unwrap();
    let mut blocks = Vec::new();
    for class in 1..size_class::CLASSES {
        blocks.extend((0..300).map(|_| take_small(&heap, cache, class)));
    }
    let used: usize = (1..size_class::CLASSES).map(|class| 300 * size_class::size(class)).sum();
    assert_eq!(Snapshot::take(&heap).small_used_bytes(), used);
    blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    assert_eq!(Snapshot::take(&heap).small_used_bytes(), 0);
    heap.trim(Some(cache));
    assert_eq!(heap.spans.counts().used, 0);
    assert_eq!(heap.spans.counts().dirty, 0);
}

#[test]
fn without_a_cache_blocks_come_from_and_return_to_the_slabs_at_once() {
    let heap = heap();
    let blocks: Vec<usize> = (0..1000).map(|_| heap.allocate_small(None, 2)).collect();
    let mut sorted = blocks.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), 1000);
    blocks.into_iter().for_each(|block| heap.free(None, block));
    assert_eq!(heap.spans.counts().used, 0);
}

#[test]
fn free_pages_of_a_partly_used_slab_are_purged_once() {
    let heap = heap();
    let class = size_class::class_of(512).unwrap();
    let of_a_slab = size_class::slab_blocks(class) as usize;
    let blocks: Vec<usize> = (0..of_a_slab).map(|_| heap.allocate_small(None, class)).collect();
    blocks.iter().for_each(|&block| fill(block, 512, 1));
    blocks[1..].iter().for_each(|&block| heap.free(None, block));
    // Nothing spoke for holding them, so they went with the last block.
    assert_eq!(heap.trim(None), 0);
    assert!(holds(blocks[0], 512, 1));
    assert!(heap.central.counts(&heap.spans.map, class).free_blocks == of_a_slab - 1);
    let again = heap.allocate_small(None, class);
    fill(again, 512, 2);
    heap.free(None, again);
    assert!(heap.trim(None) <= 4096);
}

#[test]
fn moved_blocks_that_were_freed_and_purged_do_not_count_against_later_moves() {
    let heap = heap();
    for _ in 0..20 {
        let block = large(&heap, 1 << 20);
        let blocker = large(&heap, 1 << 20);
        fill(block, 1 << 20, 5);
        let moved = heap.resize_large(None, block, 2 << 20);
        assert_ne!(moved, block);
        assert_eq!(heap.spans.map.moved_spans(), 1);
        let others = [1 << 20; 2].map(|bytes| large(&heap, bytes));
        let again = heap.resize_large(None, moved, 4 << 20);
        assert_ne!(again, moved);
        assert_eq!(heap.spans.map.moved_spans(), 1, "what they were moved away from again is renewed");
        others.into_iter().for_each(|block| heap.free(None, block));
        heap.free(None, again);
        heap.free(None, blocker);
        heap.trim(None);
        assert_eq!(heap.spans.map.moved_spans(), 0);
    }
}

#[test]
fn a_mapping_that_could_not_be_renewed_is_known_to_be_split_until_it_can() {
    let heap = heap();
    let [block, _blocker] = [large(&heap, 1 << 20), large(&heap, 1 << 20)];
    fill(block, 1 << 20, 5);
    let moved = heap.resize_large(None, block, 2 << 20);
    refusing(&[Call::Renew], || {
        heap.free(None, moved);
        heap.spans.purge_all();
    });
    let (resident, refused) = (resident_pages(moved, 1 << 20), heap.spans.counts().purges.refused);
    assert_eq!((heap.spans.map.moved_spans(), resident, refused), (1, 0, 1));
    heap.spans.purge_all();
    assert_eq!(heap.spans.counts().purges.refused, refused, "asked again only by who trims");
    heap.trim(None);
    assert_eq!((heap.spans.map.moved_spans(), heap.spans.counts().dirty), (0, 0));
}

#[test]
fn blocks_are_split_off_a_magazine_without_loss() {
    let heap = heap();
    let class = size_class::class_of(256).unwrap();
    let magazine = heap.central.fetch(&heap.spans, 0, class, 20).unwrap();
    // SAFETY: the magazine is this test's.
    let (kept, rest) = unsafe { magazine.split(7) };
    assert_eq!((kept.count, rest.count), (7, magazine.count - 7));
    heap.central.return_to_slabs(&heap.spans, class, kept);
    heap.central.return_to_slabs(&heap.spans, class, rest);
    assert_eq!(heap.spans.counts().used, 0);
}

/// A heap as where there is a purger.
fn heap_with_purger() -> Box<Heap> {
    let heap = heap();
    heap.spans.set_purger(true);
    heap
}

/// Takes full magazines of a class and passes all of them on.
fn round(heap: &Heap, class: usize, magazines: usize) {
    let most = size_class::magazine_max(class);
    let taken: Vec<_> =
        (0..magazines).map(|_| heap.central.fetch(&heap.spans, 0, class, most).unwrap()).collect();
    taken.into_iter().for_each(|magazine| heap.central.store(&heap.spans, 0, class, magazine));
}

#[test]
fn spans_that_a_shard_keeps_are_used_before_fresh_memory_and_given_back_when_unused() {
    let heap = heap_with_purger();
    let class = size_class::class_of(8192).unwrap();
    round(&heap, class, 20);
    heap.central.return_transit(&heap.spans);
    let counts = heap.spans.counts();
    assert_eq!((counts.used, counts.dirty), (0, 20), "10 slabs of 15 blocks, each two magazines");
    let block = exact(&heap, 12 << 16);
    assert_eq!(heap.spans.counts().dirty, 8, "of what the shard kept");
    heap.free(None, block);
    round(&heap, class, 10);
    heap.central.return_transit(&heap.spans);
    assert_eq!(heap.spans.counts().dirty, 20);
    heap.look();
    assert_eq!(heap.spans.counts().dirty, 20, "kept for a round at least");
    heap.look();
    assert_eq!(heap.spans.counts().dirty, 10, "what no shard keeps is held for its time");
    round(&heap, class, 6);
    heap.central.return_transit(&heap.spans);
    heap.spans.set_purger(false);
    heap.trim(None);
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn both_parts_of_a_moved_block_that_shrinks_know_that_pages_were_moved_there() {
    let heap = heap_with_purger();
    let (block, _blocker) = (large(&heap, 1 << 20), large(&heap, 1 << 20));
    fill(block, 1 << 20, 5);
    let moved = heap.resize_large(None, block, 2 << 20);
    assert_eq!((heap.resize_large(None, moved, 1 << 20), heap.spans.map.moved_spans()), (moved, 2));
    heap.free(None, moved);
    heap.trim(None);
    assert_eq!(heap.spans.map.moved_spans(), 0);
}

#[test]
fn what_shards_keep_goes_back_when_there_is_no_purger_any_more() {
    let heap = heap_with_purger();
    let block = large(&heap, 1 << 20);
    fill(block, 1 << 20, 1);
    heap.free(None, block);
    assert_eq!(resident_pages(block, 1 << 20), 256);
    heap.spans.set_purger(false);
    heap.spans.settle();
    // Whether a purge did anything is looked at once in a process, and a look brings in the kernel's page of zeros.
    assert!(resident_pages(block, 1 << 20) <= 1);
}

#[test]
fn large_blocks_freed_last_stay_with_their_shard_and_serve_others_before_fresh_memory() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire();
    let take = |bytes| heap.allocate_large(cache, bytes, 128, Pages::Any).address;
    let block = take(2 << 20);
    heap.free(cache, block);
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 32));
    assert_eq!(take(2 << 20), block);
    let other = take(3 << 20);
    heap.free(cache, other);
    heap.free(cache, block);
    assert_eq!(take(5 << 20), block, "both together, since nothing else has pages");
    heap.free(cache, block);
    let small = heap.allocate_small(cache, 3);
    assert!((block..block + (5 << 20)).contains(&small), "slabs, too");
    heap.look();
    heap.look();
    assert_eq!(
        heap.spans.counts().dirty,
        79,
        "nobody took it between two looks; the rest is held for its time"
    );
    // Grown in place where a shard keeps the neighbour.
    heap.trim(cache);
    let (first, behind) = (take(1 << 20), take(1 << 20));
    heap.free(None, behind); // the thread itself would keep it
    assert_eq!(heap.resize_large(cache, first, 2 << 20), first);
    assert_eq!(heap.large_totals().blocks, 1);
}

#[test]
fn magazines_wanted_again_soon_stay_in_transit_and_go_home_before_fresh_memory_is_used() {
    let heap = heap_with_purger();
    let (class, other) = (size_class::class_of(12288).unwrap(), size_class::class_of(48).unwrap());
    let most = size_class::slab_blocks(class) as usize / 2; // a magazine of all would leave few
    (0..6).for_each(|_| round(&heap, class, 16));
    let counts = heap.central.counts(&heap.spans.map, class);
    assert_eq!((counts.transit_blocks, counts.free_blocks), (16 * most, 0), "no slab was asked");
    let before = heap.spans.counts();
    round(&heap, other, 16);
    let counts = heap.spans.counts();
    assert_eq!(counts.used + counts.dirty, before.used + before.dirty, "no fresh memory");
    assert!(heap.central.counts(&heap.spans.map, class).transit_blocks < 16 * most);
    // What is wanted only after much else was sent home is not passed on.
    round(&heap, size_class::class_of(4096).unwrap(), 4096);
    heap.look();
    heap.look();
    assert_eq!(heap.central.counts(&heap.spans.map, class).transit_blocks, 0);
}

#[test]
fn slabs_whose_blocks_lay_in_transit_for_long_are_not_kept_as_well() {
    let heap = heap_with_purger();
    let class = size_class::class_of(12288).unwrap();
    (0..4).for_each(|_| round(&heap, class, 35));
    assert_ne!(heap.central.counts(&heap.spans.map, class).transit_blocks, 0);
    heap.look();
    assert_ne!(heap.spans.counts().used, 0, "in transit for a round at least");
    heap.look();
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

/// Small blocks of 48 MiB, each filled with its number.
fn large_heap(heap: &Heap, cache: &ThreadCache) -> Vec<usize> {
    let class = size_class::class_of(512).unwrap();
    let blocks: Vec<usize> = (0..96 << 10).map(|_| take_small(heap, cache, class)).collect();
    blocks.iter().enumerate().for_each(|(number, &block)| fill(block, 512, number as u8));
    blocks
}

#[test]
fn slabs_of_a_large_heap_are_cut_from_huge_pages_and_a_part_of_one_goes_back() {
    let heap = heap();
    let cache = heap.caches.acquire().unwrap();
    let blocks = large_heap(&heap, cache);
    let huge_pages = heap.spans.counts().huge_pages;
    assert!(huge_pages > 0 || !are_there_huge_pages());
    assert!(huge_pages <= 8, "one for each 2 MiB above the first 32");
    // All but one block in 16 KiB go: every huge page is broken up, and three pages of four go back.
    let (stay, go): (Vec<(usize, usize)>, _) =
        blocks.into_iter().enumerate().partition(|(number, _)| number % 32 == 0);
    go.into_iter().for_each(|(_, block)| give_small(&heap, cache, block));
    heap.trim(Some(cache));
    assert!(stay.iter().all(|&(number, block)| holds(block, 512, number as u8)));
    let reservation = &heap.spans.map.reservation;
    let (first, limit) = (reservation.first_granule(), reservation.limit());
    let (start, bytes) = heap.spans.map.range(Span { first, granules: limit - first });
    let resident = resident_pages(start, bytes);
    assert!((stay.len()..stay.len() + 64).contains(&resident), "{resident} pages of {} blocks", stay.len());
    stay.into_iter().for_each(|(_, block)| give_small(&heap, cache, block));
    heap.trim(Some(cache));
    assert_eq!(
        (heap.spans.counts().used, heap.spans.counts().dirty, resident_pages(start, bytes)),
        (0, 0, 0)
    );
}

#[test]
fn where_no_huge_page_is_to_be_had_a_large_heap_is_made_of_small_pages() {
    let heap = heap();
    let cache = heap.caches.acquire().unwrap();
    let blocks = refusing(&[Call::HugePage], || large_heap(&heap, cache));
    assert_eq!(heap.spans.counts().huge_pages, 0);
    assert!(blocks.iter().enumerate().all(|(number, &block)| holds(block, 512, number as u8)));
    blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    heap.trim(Some(cache));
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn what_is_left_of_a_huge_page_goes_back_when_no_slab_is_cut_for_long() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    let blocks = large_heap(&heap, cache);
    let stored = || heap.spans.counts().dirty;
    if stored() == 0 {
        return faultless_skipped::skipped("no huge pages here");
    }
    heap.spans.return_unused();
    assert_ne!(stored(), 0, "slabs were cut just before");
    heap.spans.return_unused();
    heap.spans.purge_idle();
    assert_eq!(stored(), 0);
    blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    heap.trim(Some(cache));
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn a_new_heap_is_all_zeros_so_that_it_takes_no_room_in_the_library() {
    static NEW: Heap = Heap::new();
    // SAFETY: nobody writes to it; what lies between its fields is written by the linker.
    let bytes = unsafe { core::slice::from_raw_parts((&raw const NEW).cast::<u8>(), size_of::<Heap>()) };
    assert_eq!(bytes.iter().position(|&byte| byte != 0), None);
}

/// Whether the kernel gives one to whoever asks.
fn are_there_huge_pages() -> bool {
    let heap = heap();
    let block = heap.allocate_large(None, 4 << 20, crate::os::HUGE_PAGE_BYTES, Pages::Any);
    // SAFETY: the test's own fresh block, aligned to a huge page.
    unsafe { crate::os::populate_huge_page(block.address) }
}

#[test]
fn large_blocks_of_a_size_that_is_filled_get_huge_pages_and_others_do_not() {
    const BYTES: usize = 16 << 20;
    for (touched, wanted, calls) in
        [(BYTES, true, &[][..]), (BYTES / 4, false, &[]), (BYTES, false, &[Call::HugePage])]
    {
        let heap = heap();
        let first = large(&heap, BYTES);
        fill(first, touched, 1);
        heap.free(None, first);
        heap.trim(None);
        let second = refusing(calls, || heap.allocate_large(None, BYTES, 16, Pages::Any));
        let huge_pages = heap.spans.counts().huge_pages as usize;
        assert!(second.zero && holds(second.address, BYTES / 64, 0));
        if !wanted {
            assert_eq!(
                (huge_pages, resident_pages(second.address + BYTES / 2, BYTES / 2)),
                (0, 0),
                "{touched}"
            );
        } else if are_there_huge_pages() {
            assert!((1..=BYTES / crate::os::HUGE_PAGE_BYTES).contains(&huge_pages));
            assert!(resident_pages(second.address, BYTES) >= 512 * huge_pages);
        }
        heap.free(None, second.address);
        heap.trim(None);
        assert_eq!(resident_pages(second.address, BYTES), 0);
    }
}

#[test]
fn a_block_that_grows_into_huge_pages_is_copied_and_not_moved_over_them() {
    const BYTES: usize = 16 << 20;
    let heap = heap();
    let seen = large(&heap, BYTES);
    fill(seen, BYTES, 1);
    heap.free(None, seen);
    heap.trim(None);
    let block = large(&heap, BYTES / 2);
    let neighbour = large(&heap, BYTES / 16);
    fill(block, BYTES / 2, 2);
    let grown = heap.resize_large(None, block, BYTES);
    assert!(grown != block && holds(grown, BYTES / 2, 2));
    if heap.spans.counts().huge_pages > 0 {
        assert_eq!(heap.spans.map.moved_spans(), 0);
    }
    for block in [grown, neighbour] {
        heap.free(None, block);
    }
}
