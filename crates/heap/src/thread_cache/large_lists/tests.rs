use super::*;
use crate::granule::GRANULE_BYTES;
use crate::heap::Heap;
use crate::large::{LargeBin, Pages};
use crate::os;
use core::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// As where there is a purger.
fn heap_with_purger() -> Box<Heap> {
    let heap = Heap::boxed();
    heap.spans.set_purger(true);
    heap
}

/// As `malloc` does it.
fn take(heap: &Heap, cache: &ThreadCache, bytes: usize) -> usize {
    // SAFETY: the test has one thread for each cache.
    let again = unsafe { heap.allocate_again(|| cache, bytes, 16) };
    if again != 0 { again } else { heap.allocate_large(Some(cache), bytes, 16, Pages::Any).address }
}

/// As `free` does it.
fn give(heap: &Heap, cache: &ThreadCache, block: usize) {
    // SAFETY: as above.
    if !unsafe { heap.free_again(|| cache, block) } {
        heap.free(Some(cache), block);
    }
}

fn turn(heap: &Heap, cache: &ThreadCache, bytes: usize) -> usize {
    let block = take(heap, cache, bytes);
    give(heap, cache, block);
    block
}

fn turns(heap: &Heap, cache: &ThreadCache, bytes: usize, count: usize) {
    for _ in 0..count {
        turn(heap, cache, bytes);
    }
}

/// Takes so many blocks and frees them.
fn burst(heap: &Heap, cache: &ThreadCache, bytes: usize, count: usize) {
    let blocks: Vec<usize> = (0..count).map(|_| take(heap, cache, bytes)).collect();
    blocks.into_iter().for_each(|block| give(heap, cache, block));
}

/// The bytes of the blocks in the lists, the shortest spans first.
fn kept(heap: &Heap, cache: &ThreadCache) -> Vec<usize> {
    let mut kept = Vec::new();
    cache.each_large(&heap.spans.map, |bytes, _| kept.push(bytes));
    kept
}

/// Lets a thread do small operations in its slow path, so many or more.
fn visit(heap: &Heap, cache: &ThreadCache, count: u32) {
    (0..count).for_each(|_| heap.free(Some(cache), heap.allocate_small(Some(cache), 3)));
}

fn bins(heap: &Heap) -> Vec<LargeBin> {
    let mut bins = Vec::new();
    heap.each_large_bin(|bin| bins.push(*bin));
    bins
}

#[test]
fn a_block_is_kept_once_as_long_ones_were_missed_and_single_and_longer_ones_are_not() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    turn(&heap, cache, 100_000);
    turn(&heap, cache, MIB + 4096);
    assert!(cache.large_lists().is_none(), "one, and one that is too long");
    turns(&heap, cache, 100_000, 2);
    assert_eq!(kept(&heap, cache), [102_400]);
    let visits = cache.visits.get();
    let block = turn(&heap, cache, 100_000);
    assert!((0..100).all(|_| turn(&heap, cache, 100_000) == block));
    assert_eq!(cache.visits.get(), visits, "without the slow path");
    turns(&heap, cache, MIB, 2);
    assert_eq!(kept(&heap, cache), [102_400, MIB]);
    heap.trim(Some(cache));
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn a_list_holds_as_many_as_are_missed_and_no_more_than_2_mib() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    for (bytes, burst_of, most) in [(60_000, 9, 9), (60_000, 50, 32), (200_000, 20, 8)] {
        (0..4).for_each(|_| burst(&heap, cache, bytes, burst_of));
        assert_eq!(kept(&heap, cache).iter().filter(|&&kept| kept.abs_diff(bytes) < 4096).count(), most);
    }
}

#[test]
fn a_block_of_another_size_comes_from_the_list_of_its_length_and_lies_in_its_span() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    for align in [16, 4096] {
        burst(&heap, cache, 70_000, 8);
        let spans = |address: usize| address / GRANULE_BYTES;
        for bytes in (66_000..120_000).step_by(3_000) {
            // SAFETY: as in `take`.
            let block = unsafe { heap.allocate_again(|| cache, bytes, align) };
            assert_ne!(block, 0, "{bytes}");
            let usable = heap.usable_bytes(block);
            assert!((bytes..bytes + 4096).contains(&usable));
            assert!(spans(block) + 1 == spans(block + usable - 1), "{bytes}");
            assert!(align == 16 || block.is_multiple_of(align));
            give(&heap, cache, block);
        }
    }
}

#[test]
fn the_books_know_all_that_went_through_a_list() {
    let heap = heap_with_purger();
    let [cache, other] = [heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap()];
    for cache in [cache, other] {
        turns(&heap, cache, 200_704, 10);
    }
    let bins = || {
        bins(&heap)
            .iter()
            .map(|bin| (bin.smallest, bin.largest, bin.allocations, bin.live))
            .collect::<Vec<_>>()
    };
    let totals = || (heap.large_totals().blocks, heap.large_totals().live);
    assert_eq!((totals(), bins()), ((0, 0), vec![(200_704, 200_704, 20, 0)]));
    // Of another bin, and never asked for before.
    let block = take(&heap, cache, 256_000);
    let seen = vec![(200_704, 200_704, 20, 0), (258_048, 258_048, 1, 258_048)];
    assert_eq!((totals(), bins()), ((1, 258_048), seen.clone()));
    heap.trim(Some(other));
    assert_eq!((totals(), bins()), ((1, 258_048), seen), "after other lists went");
    give(&heap, cache, block);
    turns(&heap, cache, 258_048, 10);
    let seen = vec![(200_704, 200_704, 20, 0), (258_048, 258_048, 11, 0)];
    assert_eq!((totals(), bins()), ((0, 0), seen.clone()));
    heap.caches.release(cache, heap.home());
    heap.trim(None);
    assert_eq!((totals(), bins()), ((0, 0), seen), "after the thread went");
}

#[test]
fn what_lives_on_after_it_was_kept_is_told_to_the_books_before_it_is_much() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    for _ in 0..40 {
        // One that goes, and one that stays, by turns in the same span.
        turns(&heap, cache, 128_000, 3);
        assert_ne!(take(&heap, cache, 70_000), 0);
    }
    let live: usize = bins(&heap).iter().map(|bin| bin.live).sum();
    assert_eq!((heap.large_totals().live, live), (40 * 73_728, 40 * 73_728));
    assert!(heap.large_totals().live_peak <= live + (1 << 20), "{}", heap.large_totals().live_peak);
}

#[test]
fn the_lists_of_threads_that_do_nothing_or_need_them_no_more_are_given_back() {
    let heap = heap_with_purger();
    let [idle, busy] = [heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap()];
    for cache in [idle, busy] {
        burst(&heap, cache, MIB / 2, 3);
        burst(&heap, cache, MIB / 2, 3);
        assert_eq!(kept(&heap, cache).len(), 3);
    }
    (0..3).for_each(|_| visit(&heap, busy, OLD));
    assert_eq!(kept(&heap, busy), [], "of no use for long");
    assert_eq!(kept(&heap, idle).len(), 3);
    heap.look();
    assert_eq!(kept(&heap, idle).len(), 3, "it was in the slow path since the look before");
    heap.look();
    assert_eq!(kept(&heap, idle), []);
    turns(&heap, idle, MIB / 2, 3);
    assert_eq!(kept(&heap, idle).len(), 1, "a new one");
}

#[test]
fn a_list_that_is_used_stays_and_what_is_in_it_is_no_block() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    turns(&heap, cache, MIB / 2, 4);
    for _ in 0..3 * OLD {
        turn(&heap, cache, MIB / 2);
        visit(&heap, cache, 1);
    }
    assert_eq!(kept(&heap, cache), [MIB / 2]);
    let block = turn(&heap, cache, MIB / 2);
    assert!(heap.large.find(&heap.spans, block).is_none(), "freed twice it would be noticed");
}

#[test]
fn lists_are_paid_for_and_nothing_is_kept_without_a_purger() {
    let heap = heap_with_purger();
    let caches: Vec<_> = (0..200).map(|_| heap.caches.acquire().unwrap()).collect();
    let use_all = || caches.iter().for_each(|cache| turns(&heap, cache, MIB, 4));
    use_all();
    let with_block = || caches.iter().filter(|cache| cache.has_large()).count();
    let most = with_block();
    assert!(most >= 3 && most < caches.len(), "{most}");
    heap.trim(None);
    assert_eq!(with_block(), 0);
    use_all();
    assert_eq!(with_block(), most, "what was paid came back");
    heap.trim(None);
    heap.spans.set_purger(false);
    turns(&heap, caches[0], MIB, 4);
    assert_eq!(with_block(), 0);
}

#[test]
fn what_lists_were_paid_for_comes_back_however_they_go() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    for turn in 0..1000 {
        burst(&heap, cache, [MIB, MIB / 2, 60_000][turn % 3], 4);
        match turn % 4 {
            0 => visit(&heap, cache, 2 * OLD),
            1 => _ = heap.trim(None),
            2 => _ = heap.trim(Some(cache)),
            _ => {}
        }
    }
    heap.trim(None);
    let count = (0..).take_while(|_| heap.caches.budget.take_large(GRANULE_BYTES)).count();
    assert_eq!(count % 64, 0, "4 MiB for each CPU");
}

#[test]
fn who_keeps_more_when_the_keeping_has_just_ended_keeps_none() {
    for keeps in [true, false] {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        turns(&heap, cache, MIB / 4, 2);
        let block = take(&heap, cache, MIB / 4);
        heap.spans.set_purger(keeps);
        let before = kept(&heap, cache).len();
        let other = take(&heap, cache, MIB / 4);
        [block, other].into_iter().for_each(|block| heap.free(Some(cache), block));
        assert_eq!(kept(&heap, cache).len() > before, keeps);
    }
}

#[test]
fn a_block_in_the_list_of_another_thread_is_had_when_memory_runs_out() {
    let heap = heap_with_purger();
    let [owner, other] = [heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap()];
    turns(&heap, owner, MIB, 3);
    assert!(owner.has_large());
    os::REFUSED.set(os::Call::Commit as u32);
    while take(&heap, other, MIB) != 0 {}
    os::REFUSED.set(0);
    assert!(!owner.has_large());
}

#[test]
fn no_block_is_handed_out_twice_while_lists_are_taken_from_threads_that_use_them() {
    let heap = heap_with_purger();
    let is_over = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        for number in 1..=4_usize {
            let (heap, is_over) = (&heap, &is_over);
            scope.spawn(move || {
                let cache = heap.caches.acquire().unwrap();
                // ORDERING: Relaxed; only ends the loop.
                while !is_over.load(Ordering::Relaxed) {
                    let blocks: [usize; 3] = core::array::from_fn(|_| take(heap, cache, 60_000));
                    for block in blocks {
                        // SAFETY: a live block of the thread, if the protocol holds.
                        unsafe { (block as *mut usize).write_volatile(number) };
                    }
                    for block in blocks {
                        // SAFETY: as above.
                        let found = unsafe { (block as *mut usize).read_volatile() };
                        assert_eq!(found, number, "somebody else has the block, too");
                        give(heap, cache, block);
                    }
                }
            });
        }
        let (begun, mut taken) = (Instant::now(), 0);
        // Beside much else that runs the first may be late.
        while begun.elapsed() < Duration::from_millis(500)
            || taken == 0 && begun.elapsed() < Duration::from_secs(60)
        {
            taken += heap.caches.revoke_all(None, heap.home());
        }
        is_over.store(true, Ordering::Relaxed);
        taken
    });
    assert!(taken > 0, "no list was taken in use");
    heap.caches.all().for_each(|cache| heap.caches.release(cache, heap.home()));
    assert_eq!(heap.large_totals().blocks, 0);
    heap.trim(None);
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn a_list_goes_where_many_other_sizes_are_missed_for_each_block_that_is_taken_from_it() {
    for (misses_a_turn, stays) in [(4, false), (1, true)] {
        let heap = heap_with_purger();
        let cache = heap.caches.acquire().unwrap();
        (0..2).for_each(|_| burst(&heap, cache, 60_000, 4));
        assert_eq!(kept(&heap, cache).len(), 4);
        for size in 0..=OLD as usize {
            turn(&heap, cache, 140_000 + size * 4096);
            turns(&heap, cache, 60_000, usize::from(size % misses_a_turn == 0));
        }
        assert_eq!(kept(&heap, cache).contains(&61_440), stays, "{misses_a_turn}");
    }
}

#[test]
fn the_books_know_the_size_of_a_block_that_another_thread_allocated_and_this_one_kept() {
    let heap = heap_with_purger();
    let [cache, other] = [heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap()];
    assert_ne!(cache.shard(), other.shard());
    (0..2).for_each(|_| burst(&heap, cache, 60_000, 3));
    take(&heap, cache, 60_000);
    let block = take(&heap, other, 40_000);
    give(&heap, cache, block);
    assert_eq!(take(&heap, cache, 40_000), block);
    let sizes = || bins(&heap).iter().map(|bin| (bin.smallest, bin.largest)).collect::<Vec<_>>();
    let expected = [(40_960, 40_960), (61_440, 61_440)];
    assert_eq!(sizes(), expected);
    heap.caches.release(cache, heap.home());
    heap.trim(None);
    assert_eq!(sizes(), expected, "after the books were told");
}

#[test]
fn a_report_passes_by_what_is_no_block_any_more() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    (0..2).for_each(|_| burst(&heap, cache, 60_000, 4));
    let listed = || {
        let mut count = 0;
        heap.each_large_bin(|_| ());
        cache.each_large(&heap.spans.map, |_, _| count += 1);
        count
    };
    assert_eq!(listed(), 4);
    // As if its owner had taken it meanwhile, and a slab that was made there had left the span to a shard.
    let first = cache.large_lists().unwrap().list(1).first();
    let record = heap.spans.map.record(first);
    for state in [State::Kept, State::Cached] {
        record.make_large(0, 0);
        record.set_state(state);
        assert_eq!(listed(), 0);
    }
}

#[test]
fn what_was_idle_in_a_list_waits_no_longer_than_the_next_batch() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    (0..2).for_each(|_| burst(&heap, cache, 300_000, 6));
    assert_eq!(kept(&heap, cache).len(), 6);
    heap.spans.trim();
    (0..2).for_each(|_| _ = heap.look());
    assert_eq!(kept(&heap, cache), []);
    assert_eq!(heap.spans.counts().dirty, 0, "purged at the look that found them");
}
