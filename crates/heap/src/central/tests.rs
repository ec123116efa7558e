use super::*;
use crate::heap::Heap;

/// With so many free blocks in the books of the first shard.
fn heap_with_free(class: usize, free: usize) -> Box<Heap> {
    let heap = Heap::boxed();
    heap.central.shard(0).slabs[class].lock().free_blocks = free;
    heap
}

#[test]
fn free_blocks_of_all_shards_are_counted_beyond_32_bits() {
    let heap = heap_with_free(1, 3 << 30);
    heap.central.shard(1).slabs[1].lock().free_blocks = 3 << 30;
    assert_eq!(heap.central.counts(&heap.spans.map, 1).free_blocks, 6 << 30);
}

#[test]
fn a_shard_with_2_to_the_32nd_free_blocks_has_some() {
    let before = (1 << 32) - size_class::slab_blocks(1) as usize + 1;
    let heap = heap_with_free(1, before);
    let counts = || heap.central.counts(&heap.spans.map, 1);
    heap.central.fetch(&heap.spans, 0, 1, 1).unwrap();
    assert_eq!((counts().slabs, counts().free_blocks), (1, 1 << 32));
    heap.central.fetch(&heap.spans, 0, 1, 1).unwrap();
    assert_eq!((counts().slabs, counts().free_blocks), (1, (1 << 32) - 1), "of the slab that has them");
}

#[test]
fn blocks_that_never_left_a_new_slab_come_one_by_one_and_read_as_zero_and_others_before_them() {
    let (heap, class) = (Heap::boxed(), size_class::class_of(20_000).unwrap());
    let fetch = || {
        let mut zero = false;
        let magazine = heap.central.fetch_zeroed(&heap.spans, 0, class, 2, &mut zero).unwrap();
        (magazine, zero)
    };
    // SAFETY: blocks of the class's size, which are the test's.
    let bytes_of = |magazine: Magazine| unsafe {
        core::slice::from_raw_parts_mut(magazine.head as *mut u8, size_class::size(class))
    };
    let [first, second] = [(); 2].map(|()| fetch());
    for (magazine, zero) in [first, second] {
        assert_eq!((magazine.count, zero), (1, true));
        assert!(bytes_of(magazine).iter().all(|&byte| byte == 0));
    }
    bytes_of(first.0).fill(1);
    // SAFETY: the end of a list of one.
    unsafe { crate::magazine::set_next(first.0.head, 0) };
    heap.central.return_to_slabs(&heap.spans, class, first.0);
    let (used, zero) = fetch();
    assert_eq!(
        (used.head, used.count, zero),
        (first.0.head, 2, false),
        "with the next, which is not told apart"
    );
    let (unused, zero) = fetch();
    assert!(zero && bytes_of(unused).iter().all(|&byte| byte == 0));
}

#[test]
fn a_slab_of_memory_that_was_used_gives_nothing_that_reads_as_zero() {
    let (heap, class) = (Heap::boxed(), size_class::class_of(20_000).unwrap());
    let granules = size_class::slab_granules(class);
    heap.spans.set_purger(true);
    let span = heap.spans.take(0, granules, 1, true).unwrap().first;
    heap.spans.give(span, granules, false);
    let mut zero = true;
    heap.central.fetch_zeroed(&heap.spans, 0, class, 1, &mut zero).unwrap();
    assert!(!zero);
}

/// Lists of the numbers below `blocks`, but 0: all, each second, … each seventh, upwards and downwards, one such behind the other, and in
/// no order.
fn orders(blocks: u32) -> Vec<Vec<u32>> {
    let rows = (1..=7).chain([63, 64, 65]).flat_map(|step| {
        let up: Vec<u32> = (1..blocks).step_by(step).collect();
        let down = up.iter().rev().copied().collect();
        [up, down]
    });
    let mut orders: Vec<Vec<u32>> = rows.collect();
    for step in [2, 3, 5] {
        let rests = (1..=step).rev().flat_map(|from| (from..blocks).step_by(step as usize));
        orders.push(rests.collect());
    }
    let mut random = 1_u64;
    let mut shuffled: Vec<(u64, u32)> = (1..blocks)
        .map(|number| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33, number)
        })
        .collect();
    shuffled.sort_unstable();
    orders.push(shuffled.into_iter().map(|(_, number)| number).collect());
    orders
}

#[test]
fn blocks_go_home_each_to_its_place_in_whatever_order_they_come() {
    for class in [1, 5, 20, 30, CLASSES - 1] {
        let blocks = size_class::slab_blocks(class);
        for order in orders(blocks) {
            let heap = Heap::boxed();
            let map = &heap.spans.map;
            let start = heap.central.fetch(&heap.spans, 0, class, blocks).unwrap().head;
            let address = |number: u32| start + number as usize * size_class::size(class);
            for pair in order.windows(2) {
                // SAFETY: blocks of the slab, which are all the test's.
                unsafe { magazine::set_next(address(pair[0]), address(pair[1])) };
            }
            if let Some(&last) = order.last() {
                // SAFETY: as above.
                unsafe { magazine::set_next(address(last), 0) };
                let list = Magazine { head: address(order[0]), count: order.len() as u32 };
                heap.central.return_to_slabs(&heap.spans, class, list);
            }
            let first = map.record(map.granule_of(start).unwrap()).first.get();
            let bitmap = map.bitmap(first, size_class::slab_granules(class));
            let is_free = |number: u32| bitmap[number as usize / 64].get() >> (number % 64) & 1 == 1;
            let free: Vec<u32> = (0..blocks).filter(|&number| is_free(number)).collect();
            assert_eq!(map.record(first).slab().free_blocks() as usize, free.len());
            let mut due = order;
            due.sort_unstable();
            assert_eq!(free, due, "class {class}");
        }
    }
}
