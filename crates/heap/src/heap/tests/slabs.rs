//! What becomes of the pages of slabs, and of blocks on their way.

use super::*;
use crate::span_heap::Purges;

fn class_of(bytes: usize) -> usize {
    size_class::class_of(bytes).unwrap()
}

/// All blocks of new slabs of a class, without a cache.
fn fill_slabs(heap: &Heap, class: usize, slabs: u32) -> Vec<usize> {
    let blocks = (0..slabs * size_class::slab_blocks(class)).map(|_| heap.allocate_small(None, class));
    blocks.inspect(|&block| fill(block, size_class::size(class), 1)).collect()
}

/// Pages in memory of the slab that starts with this block.
fn resident(slab: usize, class: usize) -> usize {
    resident_pages(slab, crate::granule::bytes_of(size_class::slab_granules(class)))
}

#[test]
fn blocks_keep_their_contents_when_the_free_pages_between_them_go() {
    let heap = heap();
    for (class, step) in (1..CLASSES).flat_map(|class| [2, 3, 7].map(|step| (class, step))) {
        let size = size_class::size(class);
        let (stay, go): (Vec<(usize, usize)>, _) =
            fill_slabs(&heap, class, 2).into_iter().enumerate().partition(|(number, _)| number % step == 0);
        stay.iter().for_each(|&(number, block)| fill(block, size, number as u8 | 1));
        go.into_iter().for_each(|(_, block)| heap.free(None, block));
        heap.trim(None);
        let is_whole = |&(number, block): &(usize, usize)| holds(block, size, number as u8 | 1);
        assert!(stay.iter().all(is_whole), "blocks of {size} bytes, one in {step}");
        stay.into_iter().for_each(|(_, block)| heap.free(None, block));
    }
}

#[test]
fn pages_that_were_used_again_are_purged_again() {
    let (heap, class) = (heap_with_purger(), class_of(512));
    let blocks = fill_slabs(&heap, class, 1);
    for round in 0..3 {
        blocks[1..].iter().for_each(|&block| heap.free(None, block));
        assert_eq!(resident(blocks[0], class), 16, "held where there is a purger, round {round}");
        assert_eq!((heap.trim(None), resident(blocks[0], class)), (15 * 4096, 1), "round {round}");
        let purges = Purges { bytes: (round + 1) * 15 * 4096, calls: round + 1, refused: 0 };
        assert_eq!(heap.spans.counts().purges, purges);
        blocks[1..].iter().for_each(|_| fill(heap.allocate_small(None, class), 512, 2));
    }
}

#[test]
fn pages_that_were_used_again_by_many_blocks_at_once_are_purged_again() {
    for class in [48, 512, 1536, 3072, 4096].map(class_of) {
        let heap = heap_with_purger();
        let map = &heap.spans.map;
        let blocks = fill_slabs(&heap, class, 4);
        let slab_of = |block| map.record(map.granule_of(block).unwrap()).first.get();
        let slabs: std::collections::BTreeSet<u32> = blocks.iter().map(|&block| slab_of(block)).collect();
        let resident = || slabs.iter().map(|&slab| resident(map.address(slab), class)).sum::<usize>();
        let in_slab = blocks.len() / slabs.len();
        let (full, mut free) = (resident(), blocks);
        let mut stay = 0;
        free.retain(|_| (stay += 1, stay % in_slab != in_slab / 2).1);
        free.into_iter().for_each(|block| heap.free(None, block));
        heap.trim(None);
        let few = resident();
        assert!(few * 4 <= full, "{few} of {full} pages");
        let mut taken = Vec::new();
        while resident() < full - slabs.len() {
            let magazine = heap.central.fetch(&heap.spans, 0, class, 100).unwrap();
            let mut block = magazine.head;
            for _ in 0..magazine.count {
                // SAFETY: a block of the magazine's.
                let next = unsafe { crate::magazine::next(block) };
                fill(block, size_class::size(class), 1);
                taken.push(block);
                block = next;
            }
        }
        taken.into_iter().for_each(|block| heap.free(None, block));
        heap.trim(None);
        assert_eq!(resident(), few, "blocks of {} bytes", size_class::size(class));
    }
}

#[test]
fn pages_whose_purge_was_refused_are_purged_later_and_a_single_one_is_enough() {
    let (heap, class) = (heap_with_purger(), class_of(512));
    let blocks = fill_slabs(&heap, class, 1);
    blocks[8..16].iter().for_each(|&block| heap.free(None, block));
    assert_eq!(refusing(&[Call::Purge], || heap.trim(None)), 0);
    assert_eq!((heap.trim(None), resident(blocks[0], class)), (4096, 15));
}

#[test]
fn neighbours_in_two_slabs_go_home_each_to_its_own() {
    // Of a slab without a gap, whose last block's bit has others behind it in its word.
    let is_tight = |&class: &usize| {
        let (blocks, granules) = (size_class::slab_blocks(class), size_class::slab_granules(class));
        blocks % 64 != 0 && size_class::size(class) * blocks as usize == crate::granule::bytes_of(granules)
    };
    let (heap, class) = (heap(), (1..CLASSES).find(is_tight).unwrap());
    let blocks = fill_slabs(&heap, class, 2);
    let in_slab = size_class::slab_blocks(class) as usize;
    let [last, first] = [blocks[in_slab - 1], blocks[in_slab]];
    assert_eq!(first - last, size_class::size(class));
    for [head, next] in [[last, first], [first, last]] {
        // SAFETY: blocks of the test's own.
        unsafe {
            crate::magazine::set_next(head, next);
            crate::magazine::set_next(next, 0);
        }
        heap.central.return_to_slabs(&heap.spans, class, crate::magazine::Magazine { head, count: 2 });
        let free_in = |block| {
            let granule = heap.spans.map.granule_of(block).unwrap();
            heap.spans.map.record(granule).slab().free_blocks()
        };
        assert_eq!([free_in(last), free_in(first)], [1, 1]);
        assert_eq!([0; 2].map(|_| heap.allocate_small(None, class)).iter().sum::<usize>(), last + first);
    }
}

#[test]
fn blocks_that_lie_equally_far_apart_go_home_whatever_lies_between_and_behind() {
    for (class, step) in (1..CLASSES).flat_map(|class| [1, 2, 3, 5, 64, 100].map(|step| (class, step))) {
        let heap = heap();
        let mut blocks = fill_slabs(&heap, class, 3);
        blocks.sort_unstable();
        // Up and down, each block once, by equal steps, and a larger one between two turns; through all slabs.
        let turns = (0..step).flat_map(|start| {
            let turn: Vec<usize> = blocks.iter().copied().skip(start).step_by(step).collect();
            if start % 2 == 0 { turn } else { turn.into_iter().rev().collect() }
        });
        let order: Vec<usize> = turns.collect();
        let (go, stay) = order.split_at(order.len() * 2 / 3);
        let link = |list: &[usize]| {
            // SAFETY: blocks of the test's own.
            list.windows(2).for_each(|pair| unsafe { crate::magazine::set_next(pair[0], pair[1]) });
            // SAFETY: as above.
            list.last().iter().for_each(|&&last| unsafe { crate::magazine::set_next(last, 0) });
            crate::magazine::Magazine { head: list[0], count: list.len() as u32 }
        };
        heap.central.return_to_slabs(&heap.spans, class, link(go));
        let counts = || heap.central.counts(&heap.spans.map, class);
        let all_free = |slabs: usize| slabs * size_class::slab_blocks(class) as usize - stay.len();
        assert_eq!(counts().free_blocks, all_free(counts().slabs), "class {class}, step {step}");
        heap.central.return_to_slabs(&heap.spans, class, link(stay));
        assert_eq!((counts().slabs, heap.spans.counts().used), (0, 0), "class {class}, step {step}");
    }
}

#[test]
fn only_slabs_that_are_left_alone_between_looks_give_their_free_pages() {
    let (heap, class) = (heap_with_purger(), class_of(512));
    let blocks = fill_slabs(&heap, class, 1);
    let free = |blocks: &[usize]| blocks.iter().for_each(|&block| heap.free(None, block));
    let looks = |count: usize| {
        let is_left = (0..count).map(|_| heap.central.purge_quiet_slabs(&heap.spans)).last();
        (is_left, resident(blocks[0], class))
    };
    free(&blocks[64..]);
    assert_eq!(looks(2), (Some(true), 16));
    heap.allocate_small(None, class);
    assert_eq!(looks(2), (Some(true), 16), "one was taken");
    free(&blocks[63..64]);
    assert_eq!(looks(2), (Some(true), 16), "one came back");
    assert_eq!(looks(1), (Some(false), 9));
    let purges = heap.spans.counts().purges;
    assert_eq!((purges.bytes, looks(3), heap.spans.counts().purges), (7 * 4096, (Some(false), 9), purges));
    free(&blocks[32..63]);
    assert_eq!(looks(3), (Some(false), 5), "what came back after the purge goes, too");
}

#[test]
fn pages_of_slabs_that_are_wanted_again_are_held() {
    let (heap, class) = (heap(), class_of(512));
    let mut blocks = fill_slabs(&heap, class, 32);
    let mut held = 0;
    for round in 0..6 {
        blocks
            .iter()
            .enumerate()
            .filter(|(number, _)| number % 128 != 0)
            .for_each(|(_, &b)| heap.free(None, b));
        held = blocks.iter().step_by(128).map(|&slab| resident(slab, class)).sum::<usize>();
        assert!(round > 0 || held == 32, "nothing spoke for holding them: {held} pages");
        blocks.iter_mut().enumerate().filter(|(number, _)| number % 128 != 0).for_each(|(_, block)| {
            *block = heap.allocate_small(None, class);
            fill(*block, 512, 1);
        });
        blocks.sort_unstable();
    }
    assert!(held > 16 * 16, "{held} of 512 pages");
}

#[test]
fn blocks_that_share_a_cache_line_leave_a_slab_together() {
    for (bytes, want, count) in [(16, 5, 4), (16, 3, 3), (32, 7, 6), (64, 5, 5)] {
        let heap = heap();
        let magazine = heap.central.fetch(&heap.spans, 0, class_of(bytes), want).unwrap();
        assert_eq!(magazine.count, count, "of {want} blocks of {bytes} bytes");
    }
}

#[test]
fn bytes_out_of_their_slabs_are_what_was_taken_less_what_came_back() {
    let (heap, class) = (heap(), class_of(1024));
    let few = heap.central.fetch(&heap.spans, 0, class, 4).unwrap();
    assert_eq!(heap.central.out_bytes_peak(), 4 * 1024, "of little all shards need not hear");
    heap.central.return_to_slabs(&heap.spans, class, few);
    for _ in 0..8 {
        fill_slabs(&heap, class, 16).into_iter().for_each(|block| heap.free(None, block));
    }
    let peak = heap.central.out_bytes_peak();
    assert!((15 << 16..=16 << 16).contains(&peak), "{peak}");
}

#[test]
fn where_there_is_no_other_memory_a_shard_gets_the_few_free_blocks_of_another() {
    let (heap, class) = (heap(), class_of(512));
    let blocks = fill_slabs(&heap, class, 1);
    heap.spans.take(0, heap.spans.counts().clean, 1, true).unwrap();
    blocks[..3].iter().for_each(|&block| heap.free(None, block));
    let fetched = refusing(&[Call::Commit], || heap.central.fetch(&heap.spans, 1, class, 8));
    assert_eq!(fetched.map(|magazine| magazine.count), Some(3));
}

#[test]
fn who_takes_one_block_of_a_magazine_without_a_cache_loses_none_of_the_others() {
    let (heap, class) = (heap(), class_of(64));
    round(&heap, class, 2);
    assert!(heap.central.has_transit());
    let block = heap.allocate_small(None, class);
    heap.free(None, block);
    heap.trim(None);
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn of_magazines_in_transit_those_that_were_needed_since_the_last_look_stay() {
    let (heap, class) = (heap_with_purger(), class_of(64));
    let in_transit = || {
        heap.central.counts(&heap.spans.map, class).transit_blocks / size_class::magazine_max(class) as usize
    };
    round(&heap, class, 5);
    heap.central.return_idle_transit(&heap.spans);
    assert_eq!(in_transit(), 5);
    round(&heap, class, 2);
    assert!(heap.central.return_idle_transit(&heap.spans));
    assert_eq!(in_transit(), 2);
    assert!(!heap.central.return_idle_transit(&heap.spans));
    assert_eq!(in_transit(), 0);
}

#[test]
fn where_memory_is_exhausted_a_shard_has_the_last_block_of_another() {
    let heap = heap();
    let class = size_class::class_of(48).unwrap();
    let magazine = heap.central.fetch(&heap.spans, 0, class, 1).unwrap();
    refusing(&[Call::Commit], || {
        while heap.spans.take(0, 1, 1, false).is_some() {}
        let others = heap.central.counts(&heap.spans.map, class).free_blocks;
        let taken = (0..others).map_while(|_| heap.central.fetch(&heap.spans, 1, class, 1)).count();
        assert_eq!(taken, others);
        assert_eq!(heap.central.fetch(&heap.spans, 1, class, 1), None);
    });
    heap.central.return_to_slabs(&heap.spans, class, magazine);
    assert!(heap.central.fetch(&heap.spans, 1, class, 1).is_some());
}

#[test]
fn magazines_in_transit_are_few_where_nobody_comes_by() {
    let (heap, class) = (heap(), size_class::class_of(64).unwrap());
    let bytes_after = |rounds, magazines| {
        (0..rounds).for_each(|_| round(&heap, class, magazines));
        heap.central.counts(&heap.spans.map, class).transit_blocks * 64
    };
    assert!((66 * 1024..=1 << 20).contains(&bytes_after(6, 64)), "wanted again each time");
    assert!(bytes_after(1, 512) <= 66 * 1024, "freed in bulk");
}
