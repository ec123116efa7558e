//! What a forked child does with the slabs that it has of its parent.

use super::*;
use crate::spans::SHARDS;

/// So many slabs are worth leaving alone.
const SLABS: usize = 80;

fn class() -> usize {
    size_class::class_of(512).unwrap()
}

fn in_slab(class: usize) -> usize {
    size_class::slab_blocks(class) as usize
}

/// A parent's heap, of whose slabs the first `slabs` have `free` free blocks each, and all blocks that these slabs ever had.
fn parents(class: usize, slabs: usize, free: usize) -> (Box<Heap>, Vec<usize>) {
    let heap = heap();
    let blocks: Vec<usize> = (0..SLABS * in_slab(class)).map(|_| heap.allocate_small(None, class)).collect();
    let go = blocks.chunks(in_slab(class)).take(slabs).flat_map(|slab| &slab[..free]);
    go.for_each(|&block| heap.free(None, block));
    (heap, blocks)
}

#[test]
fn a_child_takes_those_slabs_of_its_parent_of_which_more_than_half_is_free_until_its_heap_has_grown() {
    let half = in_slab(class()) / 2;
    for (is_child, free, takes) in [(false, half, true), (true, half, false), (true, half + 1, true)] {
        let (heap, blocks) = parents(class(), 20, free);
        let shard = if is_child { heap.central.leave_to_parent().unwrap() } else { 1 };
        let takes_parents = || {
            let all = u32::try_from(in_slab(class())).unwrap();
            blocks.contains(&heap.central.fetch(&heap.spans, shard, class(), all).unwrap().head)
        };
        assert_eq!(takes_parents(), takes, "{is_child}, {free}");
        heap.spans.take(0, heap.spans.used() / 8 + 1, 1, true).unwrap();
        assert!(takes_parents(), "{is_child}, {free}");
    }
}

#[test]
fn a_child_without_other_memory_has_the_few_free_blocks_of_its_parents_slabs() {
    let (heap, _) = parents(class(), 1, 3);
    let shard = heap.central.leave_to_parent().unwrap();
    heap.spans.take(0, heap.spans.counts().clean, 1, true).unwrap();
    let fetched = refusing(&[Call::Commit], || heap.central.fetch(&heap.spans, shard, class(), 8));
    assert_eq!(fetched.map(|magazine| magazine.count), Some(3));
}

#[test]
fn what_a_child_frees_of_its_parents_goes_home_unwritten_whatever_it_holds() {
    for bytes in [512, 513, 4000, 20_000] {
        let class = size_class::class_of(bytes).unwrap();
        let (heap, blocks) = parents(class, 0, 0);
        let cache = heap.caches.acquire().unwrap();
        let shard = heap.central.leave_to_parent().unwrap();
        heap.caches.keep_from(cache, shard);
        // A list of its own is open.
        let own = take_small(&heap, cache, class);
        give_small(&heap, cache, own);
        let free = || (heap.central.counts(&heap.spans.map, class).free_blocks, cache.held(class));
        let (in_slabs, cached) = free();
        // As the end of a list, as one of itself, of neighbours, and as none.
        let held = [(10, 0), (20, blocks[20]), (30, blocks[31]), (41, blocks[40]), (50, usize::MAX)];
        for (place, held) in held {
            let word = blocks[place] as *mut usize;
            // SAFETY: the test's own block, and afterwards memory of its slab.
            unsafe { word.write(held) };
            give_small(&heap, cache, blocks[place]);
            // SAFETY: as above.
            assert_eq!(unsafe { word.read() }, held, "{bytes}");
        }
        assert_eq!(free(), (in_slabs + held.len(), cached), "{bytes}");
        assert!((0..SHARDS).all(|_| heap.caches.acquire().unwrap().shard() >= shard), "other threads, too");
    }
}

#[test]
fn a_thread_of_a_child_returns_to_its_parents_shard_when_the_heap_has_grown() {
    let (heap, blocks) = parents(class(), 20, in_slab(class()) / 4);
    let cache = heap.caches.acquire().unwrap();
    let before = cache.shard();
    let shard = heap.central.leave_to_parent().unwrap();
    heap.caches.keep_from(cache, shard);
    let mut parents = blocks.into_iter().rev();
    for (granules, keeps_to) in [(1, shard), (heap.spans.used(), before)] {
        heap.spans.take(0, granules, 1, true).unwrap();
        heap.central.fetch(&heap.spans, shard, class(), in_slab(class()) as u32).unwrap();
        give_small(&heap, cache, parents.next().unwrap());
        assert_eq!(cache.shard(), keeps_to);
    }
}
