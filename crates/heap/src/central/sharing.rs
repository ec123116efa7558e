//! What a shard has of another: a slab with many free blocks, which is its own from then on; or a magazine, whose blocks go home when they
//! are freed.

use super::Central;
use crate::magazine::Magazine;
use crate::os;
use crate::size_class;
use crate::slab;
use crate::spans::Spans;

/// Slabs' worth of free blocks from which on a shard gives to others.
pub const GIVEN_FROM: usize = 4;

impl Central {
    /// A slab of another shard, where that has `many` free blocks, becomes one of this shard. Less is left to others, or threads that
    /// free and allocate in bulk would meet at each other's locks; and a slab, not blocks of it, or these would go home when freed.
    #[inline]
    pub(super) fn take_from_others(
        &self,
        spans: &Spans,
        own: usize,
        class: usize,
        want: u32,
        many: usize,
    ) -> Option<Magazine> {
        let others = self.shards_in_use().len();
        if others > 1 { self.find_giver(spans, own, class, want, many, others) } else { None }
    }

    /// As [`Central::take_from_others`], when memory is exhausted: whatever there is, whosever it is.
    pub(super) fn take_last(&self, spans: &Spans, own: usize, class: usize, want: u32) -> Option<Magazine> {
        self.forget_parent();
        self.take_from_others(spans, own, class, want, 1)
    }

    #[inline(never)]
    fn find_giver(
        &self,
        spans: &Spans,
        own: usize,
        class: usize,
        want: u32,
        many: usize,
        others: usize,
    ) -> Option<Magazine> {
        let has_many = |other: &usize| self.shards[*other].free_blocks[class].get() >= many;
        let mut givers = (1..others).map(|step| (own + step) % others).filter(has_many);
        givers.find(|&giver| self.move_slab(spans, class, giver, own))?;
        self.take_from_slabs(spans, own, class, want)
    }

    /// Moves the emptiest slab of a shard to another; false if it has none with free blocks.
    pub(super) fn move_slab(&self, spans: &Spans, class: usize, from: usize, to: usize) -> bool {
        let lock = |shard: usize| self.shards[shard].slabs[class].lock();
        let (mut giver, mut taker);
        if from < to {
            giver = lock(from);
            taker = lock(to);
        } else {
            taker = lock(to);
            giver = lock(from);
        }
        let emptiest = if self.is_still_inherited(spans, from) {
            giver.emptiest_of_half_free()
        } else {
            giver.emptiest()
        };
        let Some(first) = emptiest else { return false };
        giver.remove(&spans.map, first);
        slab::set_shard(&spans.map, first, class, to);
        taker.add(&spans.map, first, class);
        self.shards[from].free_blocks[class].set(giver.free_blocks);
        self.shards[to].free_blocks[class].set(taker.free_blocks);
        true
    }

    /// Before memory without pages is used, half a slab of free blocks is enough for a shard to give. Not of small ones: two shards'
    /// would share lines, and the giver's go home when freed. Not of pages and more: those cost memory of their own in any slab.
    pub(super) fn take_part_from_others(
        &self,
        spans: &Spans,
        own: usize,
        class: usize,
        want: u32,
    ) -> Option<Magazine> {
        if class <= size_class::GOING_HOME || size_class::size(class) >= os::page_bytes() {
            return None;
        }
        self.take_from_others(spans, own, class, want, size_class::slab_blocks(class).div_ceil(2) as usize)
    }

    /// A magazine of those that another shard has in transit, and [gives](super::transit::Transit::stays).
    pub(super) fn take_transit_of_other(&self, spans: &Spans, own: usize, class: usize) -> Option<Magazine> {
        if !spans.keeps() {
            return None;
        }
        let (before, behind) = self.shards_in_use().split_at(own);
        let mut others = behind.iter().skip(1).chain(before);
        let giver = others.find(|other| other.stacked[class].get() > other.transit.stays(class))?;
        giver.pop(spans, class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;

    /// A heap with a purger of which shard 0 has many magazines of a class in transit.
    fn heap_with_transit(store: impl Fn(&Heap, usize, Magazine)) -> (Box<Heap>, usize) {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        let class = size_class::class_of(256).unwrap();
        for _ in 0..6 {
            let most = size_class::magazine_max(class);
            let taken: Vec<_> =
                (0..40).map(|_| heap.central.fetch(&heap.spans, 0, class, most).unwrap()).collect();
            taken.into_iter().for_each(|magazine| store(&heap, class, magazine));
        }
        while heap.spans.return_unused() {}
        heap.spans.purge_all();
        (heap, class)
    }

    /// Magazines that shard 1 has of shard 0, and how much memory both use.
    fn given((heap, class): (Box<Heap>, usize)) -> (usize, u32) {
        let fetch = || heap.central.fetch(&heap.spans, 1, class, 1).unwrap();
        let of_other = |magazine: Magazine| heap.spans.map.tag_at(magazine.head).unwrap().shard() == 0;
        ((0..60).take_while(|_| of_other(fetch())).count(), heap.spans.used())
    }

    #[test]
    fn magazines_are_given_to_others_where_others_freed_their_blocks() {
        let own = heap_with_transit(|heap, class, magazine| {
            heap.central.store(&heap.spans, 0, class, magazine);
        });
        let before = own.0.spans.used();
        assert_eq!(given(own), (0, before + 1), "a slab of its own");
        let foreign = heap_with_transit(|heap, class, magazine| {
            heap.central.store_foreign(&heap.spans, 0, class, magazine);
        });
        assert_eq!(foreign.0.spans.used(), before);
        let in_transit = foreign.0.central.shards[0].stacked[foreign.1].get() as usize;
        assert!(in_transit > 30);
        assert_eq!(given(foreign), (in_transit - 2, before + 1), "but those that stay in any case");
    }

    #[test]
    fn slabs_that_move_both_ways_wait_neither_for_each_other_nor_for_a_fork() {
        const ROUNDS: usize = 20_000;
        let heap = Heap::boxed();
        let class = size_class::class_of(256).unwrap();
        for shard in [0, 1] {
            heap.central.fetch(&heap.spans, shard, class, 1).unwrap();
        }
        let heap: &'static Heap = Box::leak(heap);
        let moves = |from: usize, to: usize| {
            move || (0..ROUNDS).for_each(|_| _ = heap.central.move_slab(&heap.spans, class, from, to))
        };
        let forks = move || {
            for _ in 0..ROUNDS {
                // In the order of `hold_for_fork`.
                let _held = [0, 1].map(|shard| heap.central.shards[shard].slabs[class].lock());
            }
        };
        let (done, all_done) = std::sync::mpsc::channel();
        let acts: [Box<dyn FnOnce() + Send>; 3] =
            [Box::new(moves(0, 1)), Box::new(moves(1, 0)), Box::new(forks)];
        for act in acts {
            let done = done.clone();
            std::thread::spawn(move || {
                act();
                done.send(()).unwrap();
            });
        }
        for _ in 0..3 {
            all_done.recv_timeout(std::time::Duration::from_secs(120)).expect("nobody waits for ever");
        }
    }

    #[test]
    fn blocks_come_home_to_slabs_that_move_meanwhile() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(256).unwrap());
        let Heap { central, spans, .. } = &*heap;
        let magazine = central.fetch(spans, 0, class, 8).unwrap();
        let [mut giver, mut taker] = [0, 1].map(|shard| central.shards[shard].slabs[class].lock());
        std::thread::scope(|scope| {
            let comes_home = scope.spawn(|| central.return_to_slabs(spans, class, magazine));
            // Time to find the slab and wait for the giver's lock; later it finds it where it is then.
            std::thread::sleep(std::time::Duration::from_millis(20));
            // As `move_slab`.
            let first = giver.emptiest().unwrap();
            giver.remove(&spans.map, first);
            slab::set_shard(&spans.map, first, class, 1);
            taker.add(&spans.map, first, class);
            drop((giver, taker));
            comes_home.join().unwrap();
        });
        let free = [0, 1].map(|shard| central.shards[shard].slabs[class].lock().free_blocks);
        assert_eq!(free, [0; 2], "the slab is empty and gone");
        assert_eq!(spans.counts().used, 0);
    }
}
