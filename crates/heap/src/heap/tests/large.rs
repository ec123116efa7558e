//! Where large blocks come from and go to when the kernel refuses.

use super::*;
use crate::granule::{bytes_of, granules_for};
use crate::span_heap::PurgeMode;

/// A block of 1 MiB that cannot grow in place.
fn enclosed(heap: &Heap) -> usize {
    let (block, _blocker) = (exact(heap, 1 << 20), exact(heap, 1 << 20));
    fill(block, 1 << 20, 5);
    block
}

#[test]
fn after_a_move_that_lost_its_target_blocks_are_copied() {
    let heap = heap();
    let grow = || {
        let block = enclosed(&heap);
        let before = heap.spans.counts().used;
        let blocks = heap.large_totals().blocks;
        let moved = refusing(&[Call::KeepTarget], || heap.resize_large(None, block, 3 << 20));
        assert!(moved != block && holds(moved, 1 << 20, 5));
        assert_eq!(heap.large_totals().blocks, blocks, "the lost one is no block of the program's");
        heap.spans.counts().used - before
    };
    let grown = granules_for(2 << 20).unwrap();
    assert_eq!((grow(), grow()), (grown + granules_for(3 << 20).unwrap(), grown), "a span is lost once");
}

#[test]
fn a_block_that_was_moved_in_part_keeps_its_contents() {
    for (call, moves, has_more) in [Call::Move, Call::KeepTarget].into_iter().flat_map(|call| {
        [(0, true), (1, true), (2, true), (1, false), (2, false)]
            .map(|(moves, has_more)| (call, moves, has_more))
    }) {
        let (heap, bytes) = (heap(), (1 << 20) + 4096);
        let place = exact(&heap, bytes);
        let block = enclosed(&heap);
        // Mappings of their own: of a page, and in front of it and behind.
        let page = block + (256 << 10);
        let _ = os::advise_region(page, os::page_bytes(), os::HugePageAdvice::Always);
        heap.free(None, place);
        heap.trim(None);
        let before = heap.large_totals();
        MOVES_BEFORE.set(moves);
        let grown = if has_more {
            refusing(&[call], || heap.resize_large(None, block, bytes))
        } else {
            let place = granules_for(bytes).unwrap();
            let rest = heap.spans.counts().clean - place;
            heap.spans.take(0, rest, 1, true).unwrap();
            refusing(&[call, Call::Commit], || heap.resize_large(None, block, bytes))
        };
        MOVES_BEFORE.set(0);
        let is_refused = call == Call::KeepTarget && !has_more;
        assert_eq!(grown == 0, is_refused, "{call:?} after {moves}");
        let at = if is_refused { block } else { grown };
        assert!(holds(at, 1 << 20, 5), "{call:?} after {moves}");
        let after = heap.large_totals();
        let more = if is_refused { 0 } else { 4096 };
        assert_eq!((after.blocks, after.live), (before.blocks, before.live + more));
        if call == Call::KeepTarget {
            // What was moved to the lost one is in memory nowhere.
            assert_eq!(resident_pages(place, 1 << 20), if at == place { 257 } else { 0 });
        }
    }
}

#[test]
fn what_lies_in_front_of_a_block_whose_pages_are_moved_is_zero_afterwards() {
    let heap = heap();
    heap.spans.set_mode(PurgeMode::Never);
    let (bytes, span_bytes) = (1 << 20, (1 << 20) + GRANULE_BYTES);
    let in_used_memory = || {
        let (place, _blocker) = (exact(&heap, span_bytes), exact(&heap, span_bytes));
        fill(place, span_bytes, 7);
        heap.free(None, place);
        let block = large(&heap, bytes);
        let in_front = block.wrapping_sub(place) & !(os::page_bytes() - 1);
        (0 < in_front && in_front < GRANULE_BYTES).then_some((place, block, in_front))
    };
    let (place, block, in_front) = (0..100).find_map(|_| in_used_memory()).unwrap();
    assert!(holds(place, in_front, 7));
    fill(block, bytes, 5);
    let before = heap.spans.counts().purges.bytes;
    let grown = heap.resize_large(None, block, bytes + span_bytes / 16);
    assert!(grown != block && holds(grown, bytes, 5));
    assert!(heap.spans.map.record(heap.spans.map.granule_of(grown).unwrap()).is_moved());
    assert!(holds(place, in_front, 0));
    assert_eq!(heap.spans.counts().purges.bytes - before, in_front as u64);
}

#[test]
fn a_block_that_is_hardly_written_takes_its_pages_along_however_much_it_grows() {
    let bytes = 4 << 20;
    for is_filled in [false, true] {
        let heap = heap();
        heap.spans.set_mode(PurgeMode::Never);
        let used = exact(&heap, 4 * bytes);
        let (block, _blocker) = (exact(&heap, bytes), exact(&heap, bytes));
        fill(block, if is_filled { bytes } else { 4096 }, 5);
        fill(used, 4 * bytes, 7);
        heap.free(None, used);
        let grown = heap.resize_large(None, block, 2 * bytes);
        assert!(holds(grown, 4096, 5) && holds(grown + bytes - 4096, 4096, if is_filled { 5 } else { 0 }));
        assert_eq!(grown == used, is_filled, "what is filled is copied to memory that has pages");
        assert_eq!(resident_pages(grown, bytes) < 16, !is_filled);
    }
}

#[test]
fn blocks_are_copied_when_so_many_were_moved_that_mappings_may_run_out() {
    for (moved_before, moved_after) in [(4095, 4096), (4096, 4096)] {
        let heap = heap();
        let others = heap.spans.map.granule_of(large(&heap, 4096 << 16)).unwrap();
        (others..others + moved_before).for_each(|granule| heap.spans.map.set_moved(granule, true));
        let block = enclosed(&heap);
        let moved = heap.resize_large(None, block, 3 << 20);
        assert!(moved != block && holds(moved, 1 << 20, 5));
        assert_eq!(heap.spans.map.moved_spans(), moved_after as usize);
    }
}

/// Protects parts of a block of 1 MiB, as a program does: mappings in front of each, of it, and behind.
fn in_mappings(block: usize, protected: usize) {
    for part in 1..=protected {
        let page = (block & !(os::page_bytes() - 1)) + part * (256 << 10);
        // SAFETY: a page of the block, which is read alone from now on.
        unsafe { os::protect_region(page, os::page_bytes(), os::Access::Read).unwrap() };
    }
}

#[test]
fn a_block_of_few_mappings_is_moved_and_one_of_many_copied() {
    let many = 1024;
    for (moved_before, protected, moves) in
        [(0, 0, true), (0, 2, true), (0, 3, false), (many, 1, true), (many, 2, false)]
    {
        let heap = heap();
        let others = heap.spans.map.granule_of(large(&heap, 2048 << 16)).unwrap();
        (others..others + moved_before).for_each(|granule| heap.spans.map.set_moved(granule, true));
        let block = enclosed(&heap);
        in_mappings(block, protected);
        let grown = heap.resize_large(None, block, (1 << 20) + 4096);
        assert!(holds(grown, 1 << 20, 5));
        let first = heap.spans.map.granule_of(grown).unwrap();
        assert_eq!(heap.spans.map.record(first).is_moved(), moves, "{moved_before} {protected}");
    }
}

#[test]
fn a_block_of_many_mappings_is_copied_to_memory_that_has_pages() {
    let heap = heap();
    heap.spans.set_mode(PurgeMode::Never);
    let (free, _blocker) = (exact(&heap, 2 << 20), exact(&heap, 1 << 20));
    fill(free, 2 << 20, 7);
    let block = enclosed(&heap);
    in_mappings(block, 3);
    heap.free(None, free);
    let counts = || (heap.spans.counts().clean, heap.large_totals().live);
    let (clean, live) = counts();
    let grown = heap.resize_large(None, block, (1 << 20) + 4096);
    assert_eq!(heap.spans.map.granule_of(grown), heap.spans.map.granule_of(free));
    assert!(holds(grown, 1 << 20, 5));
    assert_eq!(counts(), (clean, live + 4096), "what it was to be moved to is free again");
}

#[test]
fn free_memory_with_pages_and_without_serves_as_one_when_there_is_no_other() {
    for (grows, is_cached) in [(false, false), (true, false), (true, true)] {
        let heap = heap();
        heap.spans.set_mode(PurgeMode::Never);
        let cache = heap.caches.acquire().unwrap();
        let first = exact(&heap, 1 << 20);
        // Behind it, a part with pages, and the rest, which has none.
        if is_cached {
            give_small(&heap, cache, take_small(&heap, cache, size_class::class_of(32 << 10).unwrap()));
        } else {
            heap.free(None, exact(&heap, 1 << 20));
        }
        let all = (heap.spans.map.reservation.limit() - heap.spans.map.granule_of(first).unwrap()) as usize;
        let got = refusing(&[Call::Commit], || {
            if grows {
                heap.resize_large(Some(cache), first, all << 16)
            } else {
                exact(&heap, (all - 16) << 16)
            }
        });
        assert!(got != 0 && (!grows || got == first), "grows: {grows}, cached: {is_cached}");
    }
}

#[test]
fn blocks_of_one_size_begin_in_different_sets_of_the_caches_and_keep_their_place_in_the_page() {
    let heap = heap();
    let of_size = |bytes| -> Vec<_> { (0..40).map(|_| large(&heap, bytes)).collect() };
    // What is a multiple of 64 KiB has a span that is longer.
    for bytes in [64 << 10, 1 << 20, 300_000] {
        let mut starts: Vec<_> = of_size(bytes).into_iter().map(|block| block % 4096).collect();
        starts.sort_unstable();
        starts.dedup();
        assert!(starts.len() >= 20, "{bytes}: {starts:?}");
    }
    let blocks = of_size(300_000);
    for (tag, &block) in (1..).zip(&blocks) {
        fill(block, 300_000, tag);
    }
    for (tag, &block) in (1..).zip(&blocks) {
        // By its pages, in place, and back.
        let mut place = block;
        for bytes in [700_000, 720_000, 1 << 20, 40_000, 400_000] {
            place = heap.resize_large(None, place, bytes);
            assert_eq!(place % 4096, block % 4096, "{bytes}");
            assert!(holds(place, bytes.min(40_000), tag) && heap.usable_bytes(place) >= bytes);
        }
        heap.free(None, place);
    }
    let block = large(&heap, 100_000);
    fill(block, 100_000, 7);
    let _behind = large(&heap, 100_000);
    let copied = heap.resize_large(None, block, 200_000);
    assert!(copied != block && holds(copied, 100_000, 7));
}

#[test]
fn blocks_of_large_alignment_and_those_that_fill_their_spans_begin_where_these_do() {
    let heap = heap();
    // Of less than 256 KiB, which are copied when they grow.
    let block = heap.allocate_large(None, 100_000, 4096, Pages::Any).address;
    let _behind = large(&heap, 100_000);
    assert_eq!(heap.resize_large(None, block, 150_000) % 4096, 0);
    for (bytes, align) in
        [(300_000, 128), (300_000, 4096), (300_000, 1 << 16), (300_000, 1 << 20), (2 << 20, 16)]
    {
        let block = heap.allocate_large(None, bytes, align, Pages::Any).address;
        assert_eq!(block % align.max(1 << 16), 0, "{bytes} at {align}");
    }
}

#[test]
fn a_request_for_more_than_can_ever_be_leaves_free_memory_and_caches_alone() {
    let heap = heap();
    heap.set_purge_mode(PurgeMode::Never);
    let [own, other] = [0; 2].map(|_| heap.caches.acquire().unwrap());
    let small = take_small(&heap, other, 3);
    give_small(&heap, other, small);
    let [live, freed] = [1 << 20; 2].map(|bytes| large(&heap, bytes));
    heap.free(None, freed);
    let state = || (heap.spans.counts(), other.held(3));
    let before = state();
    assert!(before.0.dirty > 0 && before.1 > 0);
    for bytes in [1 << 40, 1 << 46, isize::MAX as usize, usize::MAX] {
        assert_eq!(heap.allocate_large(Some(own), bytes, 16, Pages::Any), NewBlock::NONE);
        assert_eq!(heap.resize_large(Some(own), live, bytes), 0);
    }
    assert_eq!(heap.allocate_large(Some(own), 1 << 20, 1 << 41, Pages::Any), NewBlock::NONE);
    // Nor one for more than the kernel promises.
    refusing(&[Call::Promise], || {
        assert_eq!(heap.allocate_large(Some(own), 1 << 30, 16, Pages::Any), NewBlock::NONE);
        assert_eq!(heap.resize_large(Some(own), live, 2 << 30), 0);
    });
    assert_eq!(state(), before);
}

#[test]
fn a_block_that_grows_asks_for_what_it_grows_by_alone() {
    let heap = heap();
    let block = large(&heap, 2 << 30);
    refusing(&[Call::Promise], || {
        assert_eq!(heap.resize_large(None, block, 3 << 30), 0);
        let grown = heap.resize_large(None, block, (3 << 30) - 1);
        assert_ne!(grown, 0);
        assert_eq!(heap.resize_large(None, grown, 1 << 30), grown, "shrinks");
        assert_ne!(large(&heap, (1 << 30) - 4096), 0);
    });
}

#[test]
fn without_a_purger_what_is_freed_goes_back_by_batches_while_others_run() {
    let heap = heap();
    heap.spans.set_mode(PurgeMode::Never);
    let blocks: Vec<usize> = (0..32).map(|_| exact(&heap, GRANULE_BYTES)).collect();
    let purges = blocks.into_iter().filter(|&block| {
        heap.free(None, block);
        heap.spans.purge_batch()
    });
    assert_eq!(purges.count(), 32 * GRANULE_BYTES / (512 << 10));
    assert_eq!(heap.spans.counts().dirty, 0);
}

#[test]
fn what_a_block_grows_over_does_not_show_that_it_was_filled() {
    let (short, long) = (1 << 20, 32 << 20);
    for had_pages in [true, false] {
        let heap = heap();
        heap.set_purge_mode(PurgeMode::Never);
        let block = exact(&heap, short);
        if had_pages {
            let behind = exact(&heap, long - short);
            fill(behind, long - short, 1);
            heap.free(None, behind);
        }
        assert_eq!(heap.resize_large(None, block, long), block);
        if !had_pages {
            fill(block, long, 1);
        }
        heap.free(None, block);
        assert_eq!(heap.large.are_written(long), !had_pages);
    }
}

#[test]
fn what_the_kernel_refused_to_take_goes_when_it_is_asked_for_again() {
    const BYTES: usize = 1 << 20;
    let heap = heap();
    let blocks = [0; 3].map(|_| exact(&heap, BYTES));
    blocks.iter().for_each(|&block| fill(block, BYTES, 1));
    refusing(&[Call::Purge], || {
        heap.free(None, blocks[0]);
        heap.free(None, blocks[2]);
        assert_eq!(heap.trim(None), 0);
    });
    assert_eq!(heap.spans.purge_all(), 0, "only who asks for it wants another try");
    assert_eq!((heap.trim(None), heap.trim(None)), (2 * BYTES, 0));
    assert_eq!(heap.spans.counts().dirty, 0);
    assert!(holds(blocks[1], BYTES, 1));
}

#[test]
fn a_block_that_grows_into_memory_to_which_pages_were_moved_or_from_such_is_one_span_of_these() {
    for moved_part in 0..2 {
        let heap = heap();
        heap.spans.set_mode(PurgeMode::Never);
        let parts = [1 << 20, 1 << 20, GRANULE_BYTES].map(|bytes| exact(&heap, bytes));
        let granules = parts.map(|part| heap.spans.map.granule_of(part).unwrap());
        heap.spans.map.set_moved(granules[moved_part], true);
        heap.free(None, parts[1]);
        assert_eq!(heap.resize_large(None, parts[0], 2 << 20), parts[0]);
        assert_eq!((heap.spans.map.moved_spans(), heap.spans.map.record(granules[0]).is_moved()), (1, true));
    }
}

#[test]
fn a_block_that_grows_a_little_goes_where_it_has_room_to_grow_again() {
    const UNIT: usize = 1 << 18;
    for (grown, goes_far) in [(5, true), (6, false)] {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire();
        let take = |units| heap.allocate_large(cache, units * UNIT, 128, Pages::Any).address;
        let [fitting, _, roomy, _, mut block, _] = [6, 1, 12, 1, 4, 1].map(take);
        for free in [fitting, roomy] {
            heap.free(cache, free);
        }
        // What the shard keeps goes by length.
        heap.spans.return_unused();
        heap.spans.return_unused();
        fill(block, 4 * UNIT, 1);
        block = heap.resize_large(cache, block, grown * UNIT);
        assert_eq!(block, if goes_far { roomy } else { fitting }, "by a fourth, by a half");
        for units in 6..=if goes_far { 12 } else { 6 } {
            assert_eq!(heap.resize_large(cache, block, units * UNIT), block);
        }
        assert!(holds(block, 4 * UNIT, 1));
    }
}

#[test]
fn what_a_block_that_shrinks_leaves_goes_back_to_the_heap_that_it_is_of() {
    let heap = heap();
    heap.spans.set_purger(true);
    heap.spans.divide(4);
    let block = heap.large.allocate(&heap.spans, 1, 1 << 20, 4096, Pages::Any).unwrap().address;
    let before = heap.spans.counts();
    assert_eq!(heap.large.resize(&heap.spans, 0, block, 256 << 10), Some(block));
    let after = heap.spans.counts();
    assert_eq!((before.dirty, after.dirty), (0, before.used - after.used));
    assert!(after.dirty >= 12);
    let of_other = heap.large.allocate(&heap.spans, 1, 640 << 10, 4096, Pages::Any).unwrap().address;
    assert!((block..block + (1 << 20)).contains(&of_other), "of the same heap");
}

#[test]
fn blocks_that_become_smaller_keep_few_pages_in_front_of_them_and_behind_them() {
    const SMALL: usize = 36 << 10;
    let heap = heap();
    // It holds the pages that others leave in front of each block and behind it.
    heap.spans.set_purger(true);
    // Only what blocks leave is purged meanwhile, however slow the machine is.
    heap.set_price(1);
    let before = exact(&heap, 32 << 20);
    fill(before, 32 << 20, 1);
    heap.free(None, before);
    let shrunk = || {
        let block = large(&heap, 200 << 10);
        fill(block, SMALL, 7);
        let before = heap.spans.counts().purges;
        assert_eq!(heap.resize_large(None, block, SMALL), block);
        assert!(holds(block, SMALL, 7));
        (block, heap.spans.counts().purges != before)
    };
    let blocks: Vec<(usize, bool)> = (0..64).map(|_| shrunk()).collect();
    let kept = blocks.iter().take_while(|(_, is_purged)| !is_purged).count();
    assert!((11..=40).contains(&kept), "{kept} that leave 28 to 92 KiB each, of a MiB");
    let is_lean = |block| {
        let offset = block % bytes_of(1);
        let span = bytes_of(granules_for(offset + SMALL).unwrap());
        resident_pages(block - offset, span) * os::page_bytes() <= SMALL + (7 << 12)
    };
    let lean: Vec<bool> = blocks.iter().map(|&(block, _)| is_lean(block)).collect();
    assert!(lean[..20].iter().all(|&is_lean| is_lean), "those that became smaller first");
    assert!(lean.iter().filter(|&&is_lean| is_lean).count() >= 24);
    blocks.into_iter().for_each(|(block, _)| heap.free(None, block));
    // Of short lives they are left to the next.
    for round in 0..300 {
        let (block, is_purged) = shrunk();
        assert!(!is_purged, "{round}");
        heap.free(None, block);
    }
    heap.set_purge_mode(PurgeMode::Never);
    assert!((0..64).all(|_| !shrunk().1));
}
