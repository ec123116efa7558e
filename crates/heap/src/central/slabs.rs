//! The slabs of one class and shard, by how full they are.

use super::gone::Gone;
use crate::magazine::Magazine;
use crate::os;
use crate::page_map::PageMap;
use crate::size_class::{self, CLASSES};
use crate::slab::{self, HomeSlab};
use crate::spans::Spans;

/// Slabs of a class are listed by how full they are.
const FILL_LISTS: usize = 8;
/// By class, lists for each free block, in 2^-32: a slab is listed without dividing.
static FILL: [u64; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        table[class] = ((FILL_LISTS as u64) << 32).div_ceil(size_class::slab_blocks(class) as u64 + 1);
        class += 1;
    }
    table
};
/// Where memory is given back at once, a slab gives its free pages when so few blocks are in use (and a quarter of them at most), and
/// at each halving from there: the last may never come, and one would keep 64 KiB.
const FEW_USED: u32 = 16;

/// The slabs of one class that have free blocks.
pub struct Slabs {
    /// First slab of each fullness, fullest first; 0 for none.
    pub heads: [u32; FILL_LISTS],
    /// All slabs of the class, also full ones.
    pub count: u32,
    /// Free blocks in all of them: 2^32 of 16 bytes are 64 GiB.
    pub free_blocks: usize,
}

impl Slabs {
    /// No slab.
    pub const fn new() -> Self {
        Self { heads: [0; FILL_LISTS], count: 0, free_blocks: 0 }
    }

    /// The fullest slab.
    pub fn fullest(&self) -> Option<u32> {
        self.heads.into_iter().find(|&head| head != 0)
    }

    /// The emptiest slab.
    pub fn emptiest(&self) -> Option<u32> {
        self.heads.into_iter().rfind(|&head| head != 0)
    }

    /// The emptiest slab of those of which more than half is free.
    pub fn emptiest_of_half_free(&self) -> Option<u32> {
        self.heads[FILL_LISTS / 2..].iter().copied().rfind(|&head| head != 0)
    }

    /// A slab with free blocks is one of these from now on.
    pub fn add(&mut self, map: &PageMap, first: u32, class: usize) {
        let free = map.record(first).slab().free_blocks();
        self.count += 1;
        self.free_blocks += free as usize;
        self.link(map, first, fill_list(class, free));
    }

    /// A slab with free blocks is none of these any more.
    pub fn remove(&mut self, map: &PageMap, first: u32) {
        self.count -= 1;
        self.free_blocks -= map.record(first).slab().free_blocks() as usize;
        self.unlink(map, first);
    }

    /// Takes up to `want` blocks of the slab at `first`. `gone` hears of pages that are wanted again.
    pub fn take(
        &mut self,
        spans: &Spans,
        gone: Option<&Gone>,
        first: u32,
        class: usize,
        want: u32,
    ) -> Magazine {
        let map = &spans.map;
        let purged = map.record(first).slab().purged_pages();
        let magazine = slab::take(map, first, class, want);
        self.free_blocks -= magazine.count as usize;
        let wanted = purged & !map.record(first).slab().purged_pages();
        if wanted != 0 {
            if let Some(gone) = gone {
                gone.note_wanted(class, wanted.count_ones());
            }
            spans.slab_pages_wanted(wanted.count_ones() as usize * os::page_bytes());
        }
        let free = map.record(first).slab().free_blocks();
        if free == 0 {
            self.unlink(map, first);
        } else {
            self.relink(map, first, fill_list(class, free));
        }
        magazine
    }

    /// Blocks were put back into a slab; one that is empty then is a slab no more. `IDLE`: nobody needed them for long.
    #[inline]
    pub fn note_put<const IDLE: bool>(
        &mut self,
        spans: &Spans,
        slab: HomeSlab<'_>,
        class: usize,
        blocks: u32,
    ) {
        self.free_blocks += blocks as usize;
        if slab.is_to_be_relisted() {
            self.note_change::<IDLE>(spans, slab, class, blocks);
        }
    }

    /// Not inlined: most blocks change nothing.
    #[inline(never)]
    fn note_change<const IDLE: bool>(
        &mut self,
        spans: &Spans,
        slab: HomeSlab<'_>,
        class: usize,
        blocks: u32,
    ) {
        let (map, first, free) = (&spans.map, slab.first, slab.free_blocks());
        let used = size_class::slab_blocks(class) - free;
        if used == 0 {
            if free > blocks {
                self.unlink(map, first);
            }
            self.free_blocks -= free as usize;
            self.count -= 1;
            slab::dissolve(map, first, class);
            let granules = size_class::slab_granules(class);
            if IDLE {
                spans.give_unused(first, granules);
            } else {
                spans.give_for(slab.shard(), first, granules);
            }
            return;
        }
        let (list, was_full) = (fill_list(class, free), free == blocks);
        if was_full {
            self.link(map, first, list);
        } else {
            self.relink(map, first, list);
        }
        map.record(first).slab().set_relist_at(relist_at(class, list));
        let has_halved = used.ilog2() < (used + blocks).ilog2();
        if !was_full && has_halved && used <= few_used(class) && spans.is_releasing() {
            spans.slab_pages_purged(slab::purge_free_pages(map, first, class));
        }
    }

    fn relink(&mut self, map: &PageMap, first: u32, list: usize) {
        if map.record(first).slab().list() != list {
            self.unlink(map, first);
            self.link(map, first, list);
        }
    }

    /// Lists a slab.
    fn link(&mut self, map: &PageMap, first: u32, list: usize) {
        let (record, head) = (map.record(first), self.heads[list]);
        record.slab().set_list(list);
        record.prev.set(0);
        record.next.set(head);
        if head != 0 {
            map.record(head).prev.set(first);
        }
        self.heads[list] = first;
    }

    /// Takes a slab out of its list; into which it belongs is seen when blocks come back.
    fn unlink(&mut self, map: &PageMap, first: u32) {
        let record = map.record(first);
        record.slab().set_relist_at(0);
        let (prev, next) = (record.prev.get(), record.next.get());
        if prev != 0 {
            map.record(prev).next.set(next);
        } else {
            self.heads[record.slab().list()] = next;
        }
        if next != 0 {
            map.record(next).prev.set(prev);
        }
    }
}

/// So few blocks of a slab are in use when it gives its free pages.
fn few_used(class: usize) -> u32 {
    FEW_USED.min(size_class::slab_blocks(class) / 4)
}

/// The list for a slab with `free` free blocks; the fullest slabs are in list 0.
fn fill_list(class: usize, free: u32) -> usize {
    ((u64::from(free) * FILL[class]) >> 32) as usize
}

/// With so many free blocks a slab of this list belongs into the next, or may give its free pages.
fn relist_at(class: usize, list: usize) -> u32 {
    let blocks = size_class::slab_blocks(class);
    let next_list = ((list as u32 + 1) * (blocks + 1)).div_ceil(FILL_LISTS as u32);
    next_list.min(blocks - few_used(class))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;

    /// Each slab with free blocks is in the list of its fill, and what is read without the lock is what the lock guards.
    fn assert_in_order(heap: &Heap, class: usize) {
        for shard in heap.central.shards_in_use() {
            let slabs = shard.slabs[class].lock();
            let mut free_blocks = 0;
            for (list, &head) in slabs.heads.iter().enumerate() {
                let mut first = head;
                while first != 0 {
                    let record = heap.spans.map.record(first);
                    let free = record.slab().free_blocks();
                    assert_eq!([record.slab().list(), fill_list(class, free)], [list; 2]);
                    assert!(record.slab().relist_at() <= relist_at(class, list));
                    free_blocks += free as usize;
                    first = record.next.get();
                }
            }
            assert_eq!([slabs.free_blocks, shard.free_blocks[class].get()], [free_blocks; 2]);
        }
    }

    #[test]
    fn slabs_are_where_they_are_looked_for_whatever_was_taken_and_put_back() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(512).unwrap());
        let mut taken = Vec::new();
        for step in 0..300 {
            taken.extend(heap.central.fetch(&heap.spans, step % 3, class, 1 + step as u32 % 50));
            if step % 3 == 2 {
                let magazine = taken.swap_remove(step * 7 % taken.len());
                heap.central.return_to_slabs(&heap.spans, class, magazine);
            }
            assert_in_order(&heap, class);
        }
    }

    #[test]
    fn a_full_slab_whose_blocks_all_come_back_at_once_takes_no_other_out_of_its_list() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(4096).unwrap());
        let fetch = |want| heap.central.fetch(&heap.spans, 0, class, want).unwrap();
        let whole = fetch(size_class::slab_blocks(class));
        assert_eq!(whole.count, size_class::slab_blocks(class));
        fetch(1);
        heap.central.return_to_slabs(&heap.spans, class, whole);
        assert_in_order(&heap, class);
    }

    #[test]
    fn the_slab_with_most_free_blocks_moves_to_another_shard() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(512).unwrap());
        heap.central.shard(1);
        let in_slab = size_class::slab_blocks(class) as usize;
        let blocks: Vec<usize> = (0..2 * in_slab).map(|_| heap.allocate_small(None, class)).collect();
        let go = blocks[..1].iter().chain(&blocks[in_slab + 28..]);
        go.for_each(|&block| heap.free(None, block));
        assert!(heap.central.move_slab(&heap.spans, class, 0, 1));
        assert_eq!(
            [0, 1].map(|shard| heap.central.shards[shard].free_blocks[class].get()),
            [1, in_slab - 28]
        );
        assert_in_order(&heap, class);
    }

    #[test]
    fn few_blocks_are_16_or_a_quarter_of_a_slab() {
        for class in 1..CLASSES {
            let most = (size_class::slab_blocks(class) / 4).min(16);
            assert_eq!(few_used(class), most, "{class}");
        }
    }

    #[test]
    fn a_slab_is_looked_at_where_its_list_ends_and_while_few_blocks_are_in_use() {
        for class in 1..CLASSES {
            let blocks = size_class::slab_blocks(class);
            for free in 1..=blocks {
                let looked_at = free >= relist_at(class, fill_list(class, free - 1));
                let moves = fill_list(class, free) != fill_list(class, free - 1);
                assert_eq!(
                    looked_at,
                    moves || blocks - free <= few_used(class),
                    "{class}: {free} of {blocks}"
                );
            }
        }
    }

    #[test]
    fn slabs_are_listed_by_equal_parts_of_their_blocks() {
        for class in 1..CLASSES {
            let blocks = size_class::slab_blocks(class);
            for free in 0..=blocks {
                let list = free as usize * FILL_LISTS / (blocks as usize + 1);
                assert_eq!(fill_list(class, free), list, "{free} of {blocks}");
            }
        }
    }
}
