//! What thread caches hold, and whose blocks.

use super::*;
use crate::granule::bytes_of;
use crate::page_map::GuardedSize;
use crate::spans::SHARDS;
use core::sync::atomic::{AtomicBool, Ordering};

#[test]
fn caches_of_idle_threads_are_taken_when_the_budget_is_used_up() {
    let heap = heap();
    let (idle, busy) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    let class = size_class::class_of(64).unwrap();
    let blocks: Vec<usize> = (0..200).map(|_| heap.allocate_small(Some(idle), class)).collect();
    blocks.into_iter().for_each(|block| heap.free(Some(idle), block));
    assert!(idle.held(class) > 64);
    let others = GuardedSize::new(0);
    let visit = || {
        while heap.caches.budget.take(&others, 1, class) {}
        heap.free(Some(busy), heap.allocate_small(Some(busy), class));
    };
    // The first look only notes what each cache did so far.
    visit();
    assert!(idle.held(class) > 64);
    std::thread::sleep(std::time::Duration::from_millis(120));
    visit();
    assert_eq!(idle.held(class), 0);
}

#[test]
fn room_goes_from_the_classes_that_had_it_first_to_those_that_want_it() {
    let heap = heap();
    let cache = heap.caches.acquire().unwrap();
    let (early, late) = (size_class::class_of(512).unwrap(), size_class::class_of(2048).unwrap());
    let turn = |class, count| {
        let blocks: Vec<usize> = (0..count).map(|_| take_small(&heap, cache, class)).collect();
        blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    };
    // Others have all but 40 KiB.
    let others = GuardedSize::new(0);
    while heap.caches.budget.take(&others, 1, early) {}
    heap.caches.budget.give(&others, 40, early);
    (0..10).for_each(|_| turn(early, 200));
    let before = cache.held(early);
    assert!(before >= 16, "one class alone gives nothing to itself: {before}");
    (0..100).for_each(|_| turn(late, 4));
    let after = (cache.held(late), cache.held(early));
    assert!(after.0 >= 4 && after.1 <= before / 2, "{before} {after:?}");
    heap.trim(Some(cache));
    assert!(heap.caches.budget.take(&others, 40, early), "what it had paid for is given back");
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn what_a_cache_that_was_taken_had_room_for_others_may_have() {
    for has_blocks in [true, false] {
        let heap = heap();
        let idle = heap.caches.acquire().unwrap();
        let class = size_class::class_of(512).unwrap();
        let others = GuardedSize::new(0);
        while heap.caches.budget.take(&others, 1, class) {}
        heap.caches.budget.give(&others, 40, class);
        for _ in 0..10 {
            let blocks: Vec<usize> = (0..200).map(|_| take_small(&heap, idle, class)).collect();
            blocks.into_iter().for_each(|block| give_small(&heap, idle, block));
        }
        while !has_blocks && idle.held(class) > 0 {
            take_small(&heap, idle, class);
        }
        assert!(!heap.caches.budget.take(&others, 40, class));
        heap.caches.revoke_all(None, heap.home());
        assert!(heap.caches.budget.take(&others, 40, class));
    }
}

#[test]
fn a_few_small_blocks_of_another_shard_go_home_and_many_are_used() {
    let heap = heap();
    let (maker, user) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    let class = size_class::class_of(16).unwrap();
    let few: Vec<usize> = (0..8).map(|_| take_small(&heap, maker, class)).collect();
    let line = |block: usize| block / 64;
    for _ in 0..100 {
        few.iter().for_each(|&block| give_small(&heap, user, block));
        assert!(user.held(class) >= 8);
        let own: Vec<usize> = (0..8).map(|_| take_small(&heap, user, class)).collect();
        assert!(own.iter().all(|own| few.iter().all(|few| line(*own) != line(*few))), "no line is shared");
        own.into_iter().for_each(|block| give_small(&heap, user, block));
        // They come home: who made them takes them again.
        heap.caches.revoke_all(None, heap.home());
        let again: Vec<usize> = (0..8).map(|_| take_small(&heap, maker, class)).collect();
        assert_eq!(again.iter().filter(|block| few.contains(block)).count(), 8);
    }
    let enough = size_class::magazine_max(class) as usize * 7 / 16;
    let many: Vec<usize> = (0..enough).map(|_| take_small(&heap, maker, class)).collect();
    many.iter().for_each(|&block| give_small(&heap, user, block));
    let own: Vec<usize> = (0..enough).map(|_| take_small(&heap, user, class)).collect();
    assert_eq!(own.iter().filter(|block| many.contains(block)).count(), enough, "not sent home");
    own.into_iter().chain(few).for_each(|block| give_small(&heap, user, block));
    heap.trim(Some(user));
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn what_a_cache_holds_is_used_before_anything_else() {
    let heap = heap();
    let (cache, class) = (heap.caches.acquire().unwrap(), size_class::class_of(64).unwrap());
    let most = 4 * size_class::magazine_max(class);
    for _ in 0..3 {
        let blocks: Vec<usize> = (0..most).map(|_| take_small(&heap, cache, class)).collect();
        blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    }
    let (held, elsewhere) = (cache.held(class), heap.central.counts(&heap.spans.map, class));
    assert!(held > size_class::magazine_max(class), "a list and a spare: {held}");
    assert!((0..held).all(|_| take_small(&heap, cache, class) != 0));
    assert_eq!((cache.held(class), heap.central.counts(&heap.spans.map, class)), (0, elsewhere));
}

#[test]
fn what_a_thread_leaves_goes_to_the_shard_of_its_blocks() {
    let heap = heap();
    let (_first, cache) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    let (shard, class) = (cache.shard(), size_class::class_of(512).unwrap());
    let blocks: Vec<usize> = (0..4).map(|_| take_small(&heap, cache, class)).collect();
    blocks.iter().for_each(|&block| give_small(&heap, cache, block));
    heap.caches.release(cache, heap.home());
    let magazine = heap.central.fetch(&heap.spans, shard, class, 1).unwrap();
    assert!(shard > 0 && magazine.count > 1 && blocks.contains(&magazine.head));
}

#[test]
fn small_blocks_of_another_shard_that_overflow_a_cache_go_to_their_own() {
    let heap = heap();
    let (maker, user) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    let class = size_class::class_of(512).unwrap();
    let made: Vec<usize> = (0..512).map(|_| take_small(&heap, maker, class)).collect();
    made.iter().step_by(8).for_each(|&block| give_small(&heap, user, block));
    let has_some = |shard: usize| {
        let magazine = heap.central.fetch(&heap.spans, shard, class, 8).unwrap();
        made.contains(&magazine.head)
    };
    assert!(!has_some(user.shard()) && has_some(maker.shard()));
}

#[test]
fn a_slab_moves_to_the_shard_that_has_nothing_and_its_blocks_follow() {
    let heap = heap();
    let (maker, user) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    let class = size_class::class_of(64).unwrap();
    let made: Vec<usize> = (0..16 * 1024).map(|_| take_small(&heap, maker, class)).collect();
    made.iter().step_by(2).for_each(|&block| give_small(&heap, maker, block));
    heap.caches.revoke_all(Some(maker), heap.home());
    heap.central.return_transit(&heap.spans);
    let before = heap.central.counts(&heap.spans.map, class);
    let taken: Vec<usize> = (0..2000).map(|_| take_small(&heap, user, class)).collect();
    let tag_of = |block: &usize| heap.spans.map.tag_at(*block).unwrap();
    // SAFETY: this thread owns the cache.
    let is_own = |block: &usize| unsafe { user.own_place(tag_of(block)) }.is_ok();
    assert!(taken.iter().all(|block| made.contains(block) && is_own(block)));
    assert_eq!(heap.central.counts(&heap.spans.map, class).slabs, before.slabs);
    // What the maker still holds of the moved slabs goes to their new shard.
    made.iter().skip(1).step_by(2).for_each(|&block| give_small(&heap, maker, block));
    taken.into_iter().for_each(|block| give_small(&heap, user, block));
    heap.trim(Some(user));
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

#[test]
fn a_shard_uses_half_a_slab_of_another_before_fresh_memory_where_pages_are_shared_and_lines_are_not() {
    for (bytes, slabs) in [(2048, 1), (64, 2), (4096, 2)] {
        let heap = heap();
        let (maker, user) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
        let class = size_class::class_of(bytes).unwrap();
        let made = take_small(&heap, maker, class);
        let taken = take_small(&heap, user, class);
        assert_eq!(heap.central.counts(&heap.spans.map, class).slabs, slabs, "blocks of {bytes} bytes");
        // Now less than half of that slab is free, and the maker has a slab of its own.
        let more: Vec<usize> =
            (0..size_class::slab_blocks(class) / 2).map(|_| take_small(&heap, user, class)).collect();
        let again: Vec<usize> =
            (0..size_class::slab_blocks(class) / 2).map(|_| take_small(&heap, maker, class)).collect();
        assert_eq!(heap.central.counts(&heap.spans.map, class).slabs, 2, "blocks of {bytes} bytes");
        more.into_iter().chain([taken]).for_each(|block| give_small(&heap, user, block));
        again.into_iter().chain([made]).for_each(|block| give_small(&heap, maker, block));
        heap.trim(Some(user));
        assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
    }
}

#[test]
fn a_block_of_another_shard_freed_twice_is_found() {
    let heap = heap();
    let (maker, user) = (heap.caches.acquire().unwrap(), heap.caches.acquire().unwrap());
    for bytes in [16, 128, 1024] {
        let class = size_class::class_of(bytes).unwrap();
        let block = take_small(&heap, maker, class);
        let tag = heap.spans.map.tag_at(block).unwrap();
        // SAFETY: this thread owns the cache.
        let rest = unsafe { user.own_place(tag) }.unwrap_err();
        assert_eq!(tag.class(), class);
        give_small(&heap, user, block);
        assert!(user.is_head(tag, block));
        // SAFETY: refused, for it is at the head.
        assert!(!unsafe { user.push_foreign(rest, block, &heap.central) });
    }
}

#[test]
fn slabs_of_a_thread_that_did_nothing_for_long_are_not_kept_as_well() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    let block = take_small(&heap, cache, 3);
    give_small(&heap, cache, block);
    heap.look();
    assert_ne!(heap.spans.counts().used, 0, "the thread may come back");
    heap.look();
    if cache.held(3) > 0 {
        return faultless_skipped::skipped("no membarrier here");
    }
    assert_eq!((heap.spans.counts().used, heap.spans.counts().dirty), (0, 0));
}

/// Gives a cache 20 blocks of a class and ends its thread.
fn live_and_exit(heap: &Heap, class: usize) {
    let cache = heap.caches.acquire().unwrap();
    let blocks: Vec<usize> = (0..20).map(|_| take_small(heap, cache, class)).collect();
    blocks.into_iter().for_each(|block| give_small(heap, cache, block));
    heap.caches.release(cache, heap.home());
}

#[test]
fn what_an_exited_thread_leaves_serves_the_next_and_goes_when_none_comes() {
    let heap = heap_with_purger();
    live_and_exit(&heap, 3);
    let next = heap.caches.acquire().unwrap();
    let left = next.held(3);
    assert!(left >= 10, "{left}");
    let block = take_small(&heap, next, 3);
    assert_eq!(next.held(3), left - 1);
    give_small(&heap, next, block);
    heap.caches.release(next, heap.home());
    assert!(heap.look(), "somebody was here since the last look");
    assert_eq!(next.held(3), left);
    heap.look();
    assert_eq!((next.held(3), heap.spans.counts().used), (0, 0));
    assert!(core::ptr::eq(heap.caches.acquire().unwrap(), next));
    take_small(&heap, next, 3);
}

#[test]
fn exited_threads_leave_nothing_where_nobody_comes_by_for_it_and_little_elsewhere() {
    let holding = |heap: &Heap| heap.caches.all().filter(|cache| cache.held(3) > 0).count();
    let alone = heap();
    live_and_exit(&alone, 3);
    assert_eq!(holding(&alone), 0);

    let heap = heap_with_purger();
    let caches: Vec<_> = (0..2 * SHARDS).map(|_| heap.caches.acquire().unwrap()).collect();
    for cache in &caches {
        let blocks = [take_small(&heap, cache, 3), take_small(&heap, cache, 3)];
        blocks.into_iter().for_each(|block| give_small(&heap, cache, block));
    }
    assert_eq!(holding(&heap), caches.len());
    caches.iter().for_each(|cache| heap.caches.release(cache, heap.home()));
    assert!((1..=SHARDS).contains(&holding(&heap)), "{}", holding(&heap));
    heap.trim(None);
    assert_eq!((holding(&heap), heap.spans.counts().used), (0, 0));
    live_and_exit(&heap, 3);
    assert_eq!(holding(&heap), 1, "there is room for others again");
    (0..SHARDS).for_each(|_| live_and_exit(&heap, 3));
    assert_eq!(holding(&heap), 1, "who goes on with what another left makes room");
}

#[test]
fn blocks_cached_in_no_order_do_not_keep_the_memory_of_one_size_from_the_next() {
    const BYTES: usize = 8 << 20;
    let heap = heap();
    let cache = heap.caches.acquire().unwrap();
    // Memory that comes back is held.
    let granules = (2 * BYTES / GRANULE_BYTES) as u32;
    for _ in 0..2 {
        let span = heap.spans.take(0, granules, 1, false).unwrap();
        heap.spans.give(span.first, granules, false);
    }
    let mut random = 1_u64;
    for class in [48, 64, 80, 96, 112, 128, 160].map(|bytes| size_class::class_of(bytes).unwrap()) {
        let count = BYTES / size_class::size(class);
        let mut blocks: Vec<usize> = (0..count).map(|_| take_small(&heap, cache, class)).collect();
        while !blocks.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            give_small(&heap, cache, blocks.swap_remove((random >> 33) as usize % blocks.len()));
        }
    }
    let peak = heap.spans.counts().used_peak as usize * GRANULE_BYTES;
    assert!(peak <= 5 * BYTES / 2, "8 MiB of one size at a time: {peak} bytes");
}

#[test]
fn threads_begin_and_end_while_the_purger_takes_the_caches_of_many_others() {
    let heap = heap_with_purger();
    let caches: Vec<_> = (0..1000).map(|_| heap.caches.acquire().unwrap()).collect();
    caches.iter().for_each(|cache| give_small(&heap, cache, take_small(&heap, cache, 3)));
    heap.caches.revoke_idle(heap.home());
    let is_over = AtomicBool::new(false);
    let begun = std::thread::scope(|scope| {
        let threads = scope.spawn(|| {
            let mut begun = 0;
            // ORDERING: Relaxed, here and below; only ends the loop.
            while !is_over.load(Ordering::Relaxed) {
                let cache = heap.caches.acquire().unwrap();
                heap.caches.release(cache, heap.home());
                let (newest, oldest) = (caches[caches.len() - 1], caches[0]);
                begun += usize::from(newest.held(3) == 0 && oldest.held(3) > 0);
            }
            begun
        });
        heap.caches.revoke_idle(heap.home());
        is_over.store(true, Ordering::Relaxed);
        threads.join().unwrap()
    });
    assert!(caches.iter().all(|cache| cache.held(3) == 0));
    assert!(begun >= 5, "{begun} threads");
}

#[test]
fn caches_in_use_are_counted_and_those_of_threads_that_a_fork_left_behind_are_not() {
    let heap = heap();
    let [own, left, other] = std::array::from_fn(|_| heap.caches.acquire().unwrap());
    assert_eq!((heap.caches.counts(), heap.caches.budget.threads()), ((3, 3), 3));
    left.set_owner(7);
    heap.caches.release(left, heap.home());
    assert!(!left.is_owned_by(7));
    assert_eq!((heap.caches.counts(), heap.caches.budget.threads()), ((2, 3), 2));
    // SAFETY: no thread uses the other cache.
    unsafe { heap.caches.forget_others(Some(own)) };
    assert_eq!((heap.caches.counts(), heap.caches.budget.threads()), ((1, 3), 1));
    let first = heap.caches.acquire().unwrap();
    assert_eq!(heap.caches.counts(), (2, 3), "the most stays");
    let again = [first, heap.caches.acquire().unwrap()];
    assert!([left, other].iter().all(|cache| again.iter().any(|found| std::ptr::eq(*found, *cache))));
}

#[test]
fn who_has_a_cache_tells_whether_a_thread_is_alone() {
    let heap = heap();
    let alone = || (heap.caches.is_alone_again(), heap.caches.is_alone_since_fork());
    assert_eq!(alone(), (true, false), "none of any");
    let own = heap.caches.acquire().unwrap();
    assert_eq!(alone(), (false, false), "one of one");
    // SAFETY: no other thread uses this heap.
    unsafe { heap.caches.forget_others(Some(own)) };
    assert_eq!(alone(), (false, true));
    let other = heap.caches.acquire().unwrap();
    assert_eq!(alone(), (false, false), "two of two");
    heap.caches.release(other, heap.home());
    assert_eq!(alone(), (true, false), "one of two");
}

#[test]
fn a_look_at_idle_caches_tells_whether_threads_were_busy_whatever_others_did() {
    let heap = heap_with_purger();
    for busy in [0, 1].map(|_| heap.caches.acquire().unwrap()) {
        heap.allocate_small(Some(busy), 3);
        assert_eq!([0; 2].map(|_| heap.caches.revoke_idle(heap.home())), [true, false]);
    }
    let [older, newer] = std::array::from_fn(|place| heap.caches.all().nth(1 - place).unwrap());
    for busy in [older, newer] {
        heap.allocate_small(Some(busy), 3);
        assert_eq!([0; 2].map(|_| heap.caches.revoke_idle(heap.home())), [true, false]);
    }
}

#[test]
fn large_blocks_have_room_for_each_cpu() {
    let heap = heap();
    heap.caches.acquire().unwrap();
    let cpus = os::cpu_quota().unwrap_or(usize::MAX).min(os::cpus_allowed());
    assert_eq!((0..).take_while(|_| heap.caches.budget.take_large(4 << 20)).count(), cpus);
}

#[test]
fn a_large_block_that_a_thread_keeps_is_free_memory_in_the_statistics() {
    let heap = heap_with_purger();
    let cache = heap.caches.acquire().unwrap();
    let bytes = 1 << 18;
    let is_counted = |free_bytes: usize| {
        let (snapshot, counts) = (Snapshot::take(&heap), heap.spans.counts());
        // Its place in its span takes a granule.
        let free_granules = bytes_of(if free_bytes > 0 { 5 } else { 0 });
        assert_eq!(snapshot.used_bytes(), bytes - free_bytes);
        assert_eq!(snapshot.span_bytes, bytes_of(counts.used) - free_granules);
        assert_eq!(snapshot.dirty_bytes, bytes_of(counts.dirty) + free_granules);
    };
    for _ in 0..2 {
        let block = heap.allocate_large(Some(cache), bytes, 16, Pages::Any).address;
        heap.free(Some(cache), block);
    }
    assert!(cache.has_large());
    is_counted(bytes);
    // SAFETY: this thread owns the cache.
    assert_ne!(unsafe { heap.allocate_again(|| cache, bytes, 16) }, 0);
    is_counted(0);
}
