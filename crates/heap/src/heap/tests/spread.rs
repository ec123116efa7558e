//! Blocks that stay, in many slabs, while the heap grows by another size.

use super::*;

const SMALL_BYTES: usize = 512;
const OTHER_BYTES: usize = 1024;
/// Blocks of each size: 20 MiB.
const TOTAL_BYTES: usize = 20 << 20;

fn take_filled(heap: &Heap, cache: &ThreadCache, bytes: usize) -> Vec<usize> {
    let class = size_class::class_of(bytes).unwrap();
    let blocks: Vec<usize> = (0..TOTAL_BYTES / bytes).map(|_| take_small(heap, cache, class)).collect();
    blocks.iter().for_each(|&block| fill(block, bytes, 1));
    blocks
}

fn resident_bytes(heap: &Heap) -> usize {
    let reservation = &heap.spans.map.reservation;
    let (first, limit) = (reservation.first_granule(), reservation.limit());
    let (start, bytes) = heap.spans.map.range(Span { first, granules: limit - first });
    resident_pages(start, bytes) * os::page_bytes()
}

/// The bytes resident after all blocks of one size came, most went, and as much of another size came.
fn resident_after_growth(mode: PurgeMode) -> usize {
    let heap = heap();
    heap.set_purge_mode(mode);
    let cache = heap.caches.acquire().unwrap();
    let small = take_filled(&heap, cache, SMALL_BYTES);
    // Of each 64 KiB 12 KiB stay, in more blocks than make a slab give its pages at once.
    let (stay, go): (Vec<_>, Vec<_>) =
        small.into_iter().partition(|&block| block % GRANULE_BYTES < 24 * SMALL_BYTES);
    go.into_iter().for_each(|block| give_small(&heap, cache, block));
    let other = take_filled(&heap, cache, OTHER_BYTES);
    assert!(stay.iter().all(|&block| holds(block, SMALL_BYTES, 1)));
    assert!(other.iter().all(|&block| holds(block, OTHER_BYTES, 1)));
    resident_bytes(&heap)
}

#[test]
fn pages_between_blocks_that_stay_go_when_the_heap_grows_by_another_size() {
    let resident = resident_after_growth(PurgeMode::Auto);
    assert!(resident < TOTAL_BYTES / 2 * 3, "{} KiB", resident >> 10);
}

#[test]
fn where_nothing_is_to_be_purged_they_stay() {
    let resident = resident_after_growth(PurgeMode::Never);
    assert!(resident >= TOTAL_BYTES / 8 * 15, "{} KiB", resident >> 10);
}
