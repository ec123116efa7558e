//! Whether a thread takes blocks of a class, or only frees what others make.
//!
//! A list of blocks that nobody takes is memory that the makers miss, and a second one beside it is as much again. So such a list is short,
//! has no spare, and goes to the shard whose blocks it holds. It becomes longer only where those go to their slabs one by one all the same,
//! because the makers have enough of them: then whole magazines are the cheaper way. (Figures: docs/choices.md, "Thread caches".)

use super::Bin;
use crate::page_map::Guarded8;
use crate::size_class;

/// So many full lists of other shards' blocks after the last refill blocks of the class are still wanted: who frees in bulk allocates so.
const LISTS: u8 = 8;
/// What a list adds to the pressure that found no place in transit; one that found some takes 1 off.
const REFUSED: u8 = 2;
/// The pressure at which a list becomes longer.
const PRESSING: u8 = 8;

const PRESSURE_SHIFT: u32 = 4;
const WANTED: u8 = (1 << PRESSURE_SHIFT) - 1;
const _: () = assert!(LISTS <= WANTED && PRESSING + REFUSED - 1 <= u8::MAX >> PRESSURE_SHIFT);

/// What is known of a bin, two numbers in a byte. Synchronization: the cache's lock.
pub struct Demand(Guarded8);

impl Demand {
    /// Nobody took any.
    pub const fn new() -> Self {
        Self(Guarded8::new(0))
    }

    /// Lists that may fill with others' blocks before the class counts as unwanted. 0 at first: who takes blocks begins with a refill.
    fn wanted(&self) -> u8 {
        self.0.get() & WANTED
    }

    fn set_wanted(&self, lists: u8) {
        self.0.set(self.pressure() << PRESSURE_SHIFT | lists);
    }

    /// How much oftener than not the last lists found no place in transit.
    fn pressure(&self) -> u8 {
        self.0.get() >> PRESSURE_SHIFT
    }

    fn set_pressure(&self, pressure: u8) {
        self.0.set(pressure << PRESSURE_SHIFT | self.wanted());
    }
}

/// A list of an unwanted class that may hold so many blocks does not grow, unless it is pressed.
pub fn enough_unwanted(class: usize) -> u32 {
    (size_class::magazine_max(class) / 4).max(1)
}

impl Bin {
    /// The thread wanted a block, and there was none.
    pub fn note_wanted(&self) {
        self.demand.set_wanted(LISTS);
    }

    /// The list was full, and the block that found no room is another shard's.
    pub fn note_foreign(&self) {
        self.demand.set_wanted(self.demand.wanted().saturating_sub(1));
    }

    /// Whether the thread takes blocks of the class, too.
    pub fn is_wanted(&self) -> bool {
        self.demand.wanted() > 0
    }

    /// An unwanted list went away, and was passed on as a whole or not. Returns whether longer ones are worth it.
    pub fn note_sent(&self, is_passed_on: bool) -> bool {
        let before = self.demand.pressure();
        let pressure = if is_passed_on { before.saturating_sub(1) } else { before + REFUSED };
        let is_pressing = pressure >= PRESSING;
        self.demand.set_pressure(if is_pressing { 0 } else { pressure });
        is_pressing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::size_class::class_of;
    use crate::thread_cache::{Budget, ThreadCache};

    const MAKER: usize = 0;
    const FREER: usize = 1;

    /// A heap with a purger, a class whose blocks have no list of their own for other shards', and a cache for it.
    fn heap_and_cache() -> (Box<Heap>, Budget, ThreadCache, usize) {
        let heap = Heap::boxed();
        heap.spans.set_purger(true);
        let (budget, cache) = (Budget::new(), ThreadCache::gated(FREER));
        budget.share_among(1);
        cache.prepare();
        (heap, budget, cache, class_of(1024).unwrap())
    }

    /// So many blocks of a shard.
    fn make(heap: &Heap, shard: usize, class: usize, count: usize) -> Vec<usize> {
        let fetch = || heap.central.fetch(&heap.spans, shard, class, 1).unwrap();
        let mut blocks = Vec::new();
        while blocks.len() < count {
            let mut magazine = fetch();
            while magazine.count > 0 {
                blocks.push(magazine.head);
                // SAFETY: the test's own list.
                magazine = unsafe { magazine.split(1) }.1;
            }
        }
        blocks
    }

    /// Frees blocks as the fast path and the slow one do.
    fn free(heap: &Heap, budget: &Budget, cache: &ThreadCache, blocks: Vec<usize>) {
        for block in blocks {
            let tag = heap.spans.map.tag_at(block).unwrap();
            // SAFETY: the test owns the cache.
            let is_kept = match unsafe { cache.own_place(tag) } {
                // SAFETY: the test owns the cache and the block.
                Ok(place) => unsafe { cache.push(place, block) },
                // SAFETY: as above.
                Err(rest) => unsafe { cache.push_foreign(rest, block, &heap.central) },
            };
            if !is_kept {
                cache.flush(tag, block, &heap.central, &heap.spans, budget);
            }
        }
    }

    #[test]
    fn who_only_frees_what_others_make_keeps_few_and_the_makers_have_the_rest() {
        let (heap, budget, cache, class) = heap_and_cache();
        for _ in 0..100 {
            let blocks = make(&heap, MAKER, class, 10);
            free(&heap, &budget, &cache, blocks);
            assert!(cache.held(class) < 2 * enough_unwanted(class));
        }
        let slabs = heap.central.counts(&heap.spans.map, class).slabs;
        assert_eq!(slabs, 1, "what was freed is made again");
    }

    #[test]
    fn lists_become_longer_where_their_blocks_go_to_slabs_one_by_one() {
        let (heap, budget, cache, class) = heap_and_cache();
        let blocks = make(&heap, MAKER, class, 2000);
        free(&heap, &budget, &cache, blocks);
        assert_eq!(cache.bins[class].capacity.get(), size_class::magazine_max(class));
        assert_eq!(cache.spares[class].get(), 0, "but none is kept");
    }

    #[test]
    fn who_takes_blocks_too_has_whole_magazines_and_a_spare_for_some_lists_longer() {
        let (heap, budget, cache, class) = heap_and_cache();
        let most = size_class::magazine_max(class);
        let lists = most as usize * LISTS as usize;
        cache.refill(class, false, &heap.central, &heap.spans, &budget);
        let blocks = make(&heap, MAKER, class, 2 * lists);
        let (some, more) = blocks.split_at(lists - 1);
        free(&heap, &budget, &cache, some.to_vec());
        assert!(cache.bins[class].is_wanted());
        assert_eq!(cache.bins[class].capacity.get(), most);
        assert_ne!(cache.spares[class].get(), 0);
        free(&heap, &budget, &cache, more.to_vec());
        assert!(!cache.bins[class].is_wanted());
        cache.refill(class, false, &heap.central, &heap.spans, &budget);
        assert!(cache.bins[class].is_wanted());
    }

    #[test]
    fn lists_that_find_no_place_twice_as_often_as_some_press_in_the_end() {
        let bin = Bin::gated();
        assert_eq!([false; 4].map(|passed| bin.note_sent(passed)), [false, false, false, true]);
        assert!((0..100).all(|turn| !bin.note_sent(turn % 3 < 2)), "once in three times");
    }
}
