//! How many magazines of a class may be in transit in a shard, instead of going home to their slabs.
//!
//! Passing a magazine on as it is costs nothing per block. But its blocks keep slabs from emptying, and a list in no order, once the
//! CPU's cache has forgotten it, is slower to use than what a slab hands out by address. So a few are always passed on; more as
//! were wanted again soon after they had been sent home: many where there is a purger, which takes back what is not needed, elsewhere a
//! MiB in all, and half as many with each that goes home, so that what is freed in bulk leaves none. Before memory without pages is used, they
//! go home after all.

use super::Shard;
use crate::magazine::{self, Magazine};
use crate::page_map::{Hint8, Hint32, Hint64, PageMap};
use crate::size_class::{self, CLASSES};

/// Magazines of a class that are passed on in any case: 66 KiB at most, and 8; none of blocks above 8 KiB, of which one holds more.
static ALWAYS: [u32; CLASSES] = size_class::magazines_in(66 * 1024, 8);
/// As many may be in transit beyond whatever the order of their blocks: as fit into a CPU's cache, for a block that does not lie beside the
/// one before costs a miss there; of those that threads of other shards freed 256 KiB, for they are in other CPUs' caches.
static UNORDERED: [u32; CLASSES] = size_class::magazines_in(NEAR_KIB * 1024, u32::MAX);
static UNORDERED_FOREIGN: [u32; CLASSES] = size_class::magazines_in(256 << 10, u32::MAX);
/// The most bytes beyond that are in transit in a shard.
const DEEP_BYTES: usize = 128 << 20;
/// KiB that a shard sends home meanwhile: after more, what was sent home is not in the CPU's cache any more, and nothing is gained by
/// passing it on.
const NEAR_KIB: u32 = 1024;
const NEAR_BYTES: usize = NEAR_KIB as usize * 1024;
/// Blocks are in order if three of four of their first links lead no farther than this: what was built and is freed as a whole comes back so,
/// whatever the order within, and is in the CPU's nearest cache when it is used.
const NEAR_BLOCKS_BYTES: usize = 32 << 10;
const FIRST_LINKS: u32 = 8;
/// In a foreign magazine all links but one in so many are between neighbours, so many blocks apart at most. Each magazine begins and ends
/// somewhere, and so breaks up what was in order a little more: looked at less strictly, that goes on.
const LINKS_FOR_ONE: u32 = 20;
const NEIGHBOURS: usize = 4;
/// Other shards are given some where of the last magazines so many more were [foreign](Transit::note_arrival) than not, and what of that
/// counts at most.
const FOREIGN: u8 = 32;
const FOREIGN_MOST: u8 = 63;

/// What is known of the magazines in transit in a shard.
///
/// SYNCHRONIZATION: hints; threads of one shard may overwrite each other's, and say it again with the next magazine.
pub struct Transit {
    classes: [ClassTransit; CLASSES],
    /// KiB of blocks that were sent home, modulo 2^32.
    clock: Hint32,
    /// Bit per class: more than usual are in transit.
    deep: Hint64,
    /// By class, how many more of the last magazines were foreign than not.
    foreign: [Hint8; CLASSES],
}

struct ClassTransit {
    /// Magazines that may be in transit: beyond the usual, where there is a purger; elsewhere in all.
    allowed: Hint32,
    /// Magazines that found no place and were not wanted again since.
    sent_home: Hint32,
    /// The clock when one was sent home last.
    sent_at: Hint32,
}

/// What decides how many may be in transit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// One thread, and nothing speaks for holding memory: as many as had gone home and were wanted again.
    Releasing,
    /// The same, but never none.
    Usual,
    /// There is a purger, which takes back what is not needed.
    WithPurger,
}

fn magazine_bytes(class: usize) -> usize {
    size_class::magazine_max(class) as usize * size_class::size(class)
}

impl Transit {
    /// Nothing known.
    pub const fn new() -> Self {
        Self {
            classes: [const {
                ClassTransit { allowed: Hint32::new(0), sent_home: Hint32::new(0), sent_at: Hint32::new(0) }
            }; CLASSES],
            clock: Hint32::new(0),
            deep: Hint64::new(0),
            foreign: [const { Hint8::new(0) }; CLASSES],
        }
    }

    /// How many magazines may be in transit in all, whatever the order of their blocks; `is_foreign`: for one that threads of other shards
    /// freed.
    pub fn most(&self, regime: Regime, class: usize, is_foreign: bool) -> u32 {
        let allowed = self.classes[class].allowed.get();
        let unordered = if is_foreign { UNORDERED_FOREIGN[class] } else { UNORDERED[class] };
        match regime {
            Regime::Releasing => allowed.min(UNORDERED[class]),
            Regime::Usual => allowed.min(UNORDERED[class]).max(ALWAYS[class]),
            Regime::WithPurger => ALWAYS[class] + allowed.min(unordered),
        }
    }

    /// How many, for one whose blocks are [in order](is_in_order); 0 where order makes no difference.
    pub fn most_in_order(&self, regime: Regime, class: usize) -> u32 {
        match regime {
            Regime::Releasing | Regime::Usual => 0,
            Regime::WithPurger => ALWAYS[class] + self.classes[class].allowed.get(),
        }
    }

    /// A magazine comes; `is_foreign`: threads of other shards freed its blocks.
    pub fn note_arrival(&self, class: usize, is_foreign: bool) {
        let known = &self.foreign[class];
        let before = known.get();
        let now = if is_foreign { (before + 1).min(FOREIGN_MOST) } else { before.saturating_sub(1) };
        if now != before {
            known.set(now);
        }
    }

    /// How many magazines stay, at least, when threads of other shards need some. All, unless blocks change between CPUs anyway: else each
    /// of them would cost a miss of the CPU's cache.
    pub fn stays(&self, class: usize) -> u32 {
        if self.foreign[class].get() < FOREIGN { u32::MAX } else { ALWAYS[class] }
    }

    /// So many are in transit now.
    pub fn note_stored(&self, class: usize, magazines: u32) {
        let (deep, bit) = (self.deep.get(), 1 << class);
        if magazines > ALWAYS[class] && deep & bit == 0 {
            self.deep.set(deep | bit);
        }
    }

    /// A magazine found no place and goes home.
    pub fn note_sent_home(&self, regime: Regime, class: usize, magazine: Magazine) {
        let kib = (magazine.count as usize * size_class::size(class)).div_ceil(1024) as u32;
        let clock = self.clock.get().wrapping_add(kib);
        self.clock.set(clock);
        let known = &self.classes[class];
        if regime == Regime::WithPurger {
            let was_near = clock.wrapping_sub(known.sent_at.get()) <= NEAR_KIB;
            known.sent_home.set(if was_near { known.sent_home.get().saturating_add(1) } else { 1 });
            known.sent_at.set(clock);
        } else {
            known.allowed.set(known.allowed.get().min(UNORDERED[class]) / 2);
            self.note_taken_home(class);
        }
    }

    /// One that was in transit goes home, too, for there may be fewer.
    pub fn note_taken_home(&self, class: usize) {
        let sent_home = &self.classes[class].sent_home;
        sent_home.set(sent_home.get().saturating_add(1));
    }

    /// Blocks are wanted, and none are in transit.
    pub fn note_wanted(&self, regime: Regime, class: usize) {
        let known = &self.classes[class];
        let sent_home = known.sent_home.get();
        if sent_home == 0 {
            return;
        }
        known.sent_home.set(sent_home - 1);
        let allowed = known.allowed.get();
        let (more, least, most_bytes) = match regime {
            Regime::WithPurger if self.clock.get().wrapping_sub(known.sent_at.get()) > NEAR_KIB => return,
            Regime::WithPurger => (allowed + 1, 0, DEEP_BYTES),
            Regime::Releasing | Regime::Usual if ALWAYS[class] == 0 => return,
            // By two, for some of what is wanted again comes from new slabs, and is not told.
            Regime::Releasing => (allowed + 2, ALWAYS[class], NEAR_BYTES),
            Regime::Usual => (allowed.max(ALWAYS[class]) + 2, 0, NEAR_BYTES),
        };
        let bytes = self.allowed_bytes() + (more - allowed) as usize * magazine_bytes(class);
        let more = if bytes <= most_bytes { more } else { more.min(least) };
        known.allowed.set(more.max(allowed));
    }

    fn allowed_bytes(&self) -> usize {
        (1..CLASSES).map(|class| self.classes[class].allowed.get() as usize * magazine_bytes(class)).sum()
    }

    /// So many of those in transit are not needed.
    pub fn note_unneeded(&self, class: usize, magazines: u32) {
        let known = &self.classes[class];
        known.allowed.set(known.allowed.get().saturating_sub(magazines));
    }

    /// The class that has the most bytes in transit beyond the usual, and how many magazines that are.
    pub fn excess(&self, shard: &Shard) -> Option<(usize, u32)> {
        let mut deep = self.deep.get();
        let mut most = None;
        while deep != 0 {
            let class = deep.trailing_zeros() as usize;
            deep &= deep - 1;
            let excess = shard.stacked[class].get().saturating_sub(ALWAYS[class]);
            if excess == 0 {
                self.deep.set(self.deep.get() & !(1 << class));
            } else {
                most = most.max(Some((excess as usize * magazine_bytes(class), class, excess)));
            }
        }
        most.map(|(_, class, excess)| (class, excess))
    }
}

/// Whether the blocks of a magazine lie near each other; where another CPU's cache has them, beside each other.
pub fn is_in_order(map: &PageMap, class: usize, magazine: Magazine, is_foreign: bool) -> bool {
    let links = magazine.count.saturating_sub(1);
    let (looks, most, reach) = if is_foreign {
        (links, links / LINKS_FOR_ONE, NEIGHBOURS * size_class::size(class))
    } else {
        let looks = links.min(FIRST_LINKS);
        (looks, looks / 4, NEAR_BLOCKS_BYTES)
    };
    let (mut block, mut far) = (magazine.head, 0);
    for _ in 0..looks {
        if map.class_of_block(block) != class {
            return false;
        }
        // SAFETY: a place in a slab, which is committed memory.
        let next = unsafe { magazine::next(block) };
        far += u32::from(next.abs_diff(block) > reach);
        if far > most {
            return false;
        }
        block = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::central::Central;
    use crate::heap::Heap;

    const CLASS: usize = 10;
    const OTHER: usize = 20;

    fn full(class: usize) -> Magazine {
        Magazine { head: 0, count: size_class::magazine_max(class) }
    }

    /// Magazines of another class, of a MiB and more, go home.
    fn pass_a_mib(transit: &Transit) {
        for _ in 0..=NEAR_BYTES / magazine_bytes(OTHER) {
            transit.note_sent_home(Regime::WithPurger, OTHER, full(OTHER));
        }
    }

    #[test]
    fn with_a_purger_each_magazine_that_is_wanted_soon_after_it_went_home_makes_room_for_one_more() {
        let transit = Transit::new();
        let allowed = || transit.most_in_order(Regime::WithPurger, CLASS) - ALWAYS[CLASS];
        let send = || transit.note_sent_home(Regime::WithPurger, CLASS, full(CLASS));
        let want = || transit.note_wanted(Regime::WithPurger, CLASS);
        pass_a_mib(&transit);
        send();
        (0..2).for_each(|_| want());
        assert_eq!(allowed(), 1);
        send();
        pass_a_mib(&transit);
        want();
        assert_eq!(allowed(), 1, "late");
        send();
        pass_a_mib(&transit);
        send();
        (0..2).for_each(|_| want());
        assert_eq!(allowed(), 2, "what went home long before does not add up");
        for _ in 0..2 * DEEP_BYTES / magazine_bytes(CLASS) {
            send();
            want();
        }
        let deep = u32::try_from(DEEP_BYTES / magazine_bytes(CLASS)).unwrap();
        assert_eq!(allowed(), deep);
        for (is_foreign, unordered) in [(false, UNORDERED[CLASS]), (true, UNORDERED_FOREIGN[CLASS])] {
            assert_eq!(transit.most(Regime::WithPurger, CLASS, is_foreign), ALWAYS[CLASS] + unordered);
        }
        transit.note_unneeded(CLASS, 3);
        assert_eq!(allowed(), deep - 3);
    }

    #[test]
    fn without_a_purger_as_many_stay_as_were_wanted_again_up_to_a_mib_in_all_and_half_at_each_that_goes_home()
    {
        for (regime, least) in [(Regime::Releasing, 0), (Regime::Usual, ALWAYS[CLASS])] {
            let transit = Transit::new();
            let most = |class| transit.most(regime, class, false);
            let send = |class, times| {
                (0..times).for_each(|_| transit.note_sent_home(regime, class, full(class)));
            };
            let want = |class, times| {
                (0..times).for_each(|_| transit.note_wanted(regime, class));
                most(class)
            };
            assert_eq!(want(CLASS, 1), least, "nothing went home");
            send(CLASS, 9);
            transit.note_taken_home(CLASS);
            assert_eq!(want(CLASS, 99), least + 20);
            send(CLASS, 1);
            assert_eq!(most(CLASS), (least + 20) / 2);

            send(CLASS, 999);
            assert_eq!(most(CLASS), least, "freed in bulk");
            let near = (NEAR_BYTES / magazine_bytes(CLASS)) as u32;
            assert!((near - 1..=near).contains(&want(CLASS, 999)));
            let other = CLASS + 1;
            send(other, 9);
            assert_eq!(want(other, 9), ALWAYS[other], "a MiB is the first class's");
        }
    }

    /// Lets two lists of so many blocks change places at each link, so that neither's lie as they did to each other.
    fn interleave(one: Magazine, other: Magazine) {
        let (mut at, mut beside) = (one.head, other.head);
        for _ in 1..one.count {
            // SAFETY: the test owns the blocks, and the lists are equally long.
            unsafe {
                let next = [magazine::next(beside), magazine::next(at)];
                magazine::set_next(at, next[0]);
                magazine::set_next(beside, next[1]);
                [at, beside] = next;
            }
        }
    }

    #[test]
    fn of_what_was_freed_in_no_order_little_stays_in_transit_and_less_if_others_freed_it() {
        const COUNT: u32 = 300;
        let stay = |in_order: bool, is_foreign: bool| {
            let heap = Heap::boxed();
            heap.spans.set_purger(true);
            let shard = heap.central.shard(0);
            shard.transit.classes[CLASS].allowed.set(COUNT);
            let most = size_class::magazine_max(CLASS);
            let fetch = || heap.central.fetch(&heap.spans, 0, CLASS, most).unwrap();
            let full = core::iter::repeat_with(fetch).filter(|magazine| magazine.count == most);
            let magazines: Vec<Magazine> = full.take(COUNT as usize).collect();
            if !in_order {
                let (first, second) = magazines.split_at(magazines.len() / 2);
                first.iter().zip(second).for_each(|(one, other)| interleave(*one, *other));
            }
            let store = if is_foreign { Central::store_foreign } else { Central::store };
            magazines.into_iter().for_each(|magazine| store(&heap.central, &heap.spans, 0, CLASS, magazine));
            shard.stacked[CLASS].get()
        };
        assert_eq!([stay(true, true), stay(true, false)], [COUNT; 2]);
        let unordered = [UNORDERED[CLASS], UNORDERED_FOREIGN[CLASS]].map(|most| ALWAYS[CLASS] + most);
        assert_eq!([stay(false, false), stay(false, true)], unordered);
        assert!(unordered[1] < unordered[0] && unordered[0] < COUNT);
    }

    #[test]
    fn what_threads_of_another_shard_free_stays_where_it_belongs_once_it_was_wanted_there() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(1024).unwrap());
        heap.spans.set_purger(true);
        let most = size_class::magazine_max(class);
        let in_transit = || {
            let fetch = |_| heap.central.fetch(&heap.spans, 0, class, most).unwrap();
            let taken: Vec<Magazine> = (0..60).map(fetch).collect();
            taken.into_iter().for_each(|magazine| heap.central.store(&heap.spans, 1, class, magazine));
            [0, 1].map(|shard: usize| heap.central.shard(shard).stacked[class].get())
        };
        assert_eq!(in_transit(), [ALWAYS[class]; 2], "nobody wanted it yet");
        let [home, other] = [(); 8].map(|()| in_transit())[7];
        assert!(home > 3 * ALWAYS[class], "{home}");
        assert_eq!(other, ALWAYS[class], "nobody wants it there");
    }

    /// All blocks of a new slab, each a magazine by itself.
    fn slab(heap: &Heap, class: usize) -> Vec<Magazine> {
        let mut rest = heap.central.fetch(&heap.spans, 0, class, size_class::slab_blocks(class)).unwrap();
        let one = || {
            // SAFETY: the test's own list.
            let (one, others) = unsafe { rest.split(1) };
            rest = others;
            (!one.is_empty()).then_some(one)
        };
        core::iter::from_fn(one).collect()
    }

    #[test]
    fn what_becomes_free_when_64_magazines_of_excess_go_home_is_used_before_fresh_memory() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(8192).unwrap());
        let Heap { central, spans, .. } = &*heap;
        spans.set_purger(true);
        central.shard(0).transit.classes[class].allowed.set(100);
        let free = slab(&heap, class);
        // One block of each of the others stays.
        let others: Vec<Magazine> = (0..4).flat_map(|_| slab(&heap, class).into_iter().skip(1)).collect();
        let (below, above) = others.split_at(ALWAYS[class] as usize + 16 - free.len());
        let stored = below.iter().chain(&free).chain(&above[..48]);
        stored.for_each(|&magazine| central.store(spans, 0, class, magazine));
        assert_eq!(central.shard(0).stacked[class].get(), ALWAYS[class] + 64);
        let other = size_class::class_of(12288).unwrap();
        let block = central.fetch(spans, 0, other, 1).unwrap().head;
        let [used, freed] = [block, free[0].head].map(|block| spans.map.granule_of(block).unwrap());
        assert_eq!(spans.map.record(used).first.get(), spans.map.record(freed).first.get());
    }

    #[test]
    fn the_class_with_most_bytes_beyond_the_usual_goes_home_first() {
        let heap = Heap::boxed();
        let shard = heap.central.shard(0);
        let few = (1..CLASSES).min_by_key(|&class| magazine_bytes(class)).unwrap();
        let many = (1..CLASSES).max_by_key(|&class| magazine_bytes(class)).unwrap();
        assert_eq!(shard.transit.excess(shard), None);
        for (class, excess) in [(few, 2), (many, 1)] {
            shard.stacked[class].set(ALWAYS[class] + excess);
            shard.transit.note_stored(class, ALWAYS[class] + excess);
        }
        assert!(2 * magazine_bytes(few) < magazine_bytes(many));
        assert_eq!(shard.transit.excess(shard), Some((many, 1)));
    }

    /// Whether blocks of these numbers in a slab, linked so, are in order: those of a thread's own shard, and another's.
    fn are_in_order(numbers: &[usize]) -> [bool; 2] {
        let (heap, class) = (Heap::boxed(), size_class::class_of(64).unwrap());
        let start = heap.central.fetch(&heap.spans, 0, class, 192).unwrap().head;
        let blocks: Vec<usize> = numbers.iter().map(|number| start + number * 64).collect();
        for pair in blocks.windows(2) {
            // SAFETY: the test owns the blocks.
            unsafe { magazine::set_next(pair[0], pair[1]) };
        }
        let magazine = Magazine { head: blocks[0], count: blocks.len() as u32 };
        [false, true].map(|is_foreign| is_in_order(&heap.spans.map, class, magazine, is_foreign))
    }

    #[test]
    fn most_of_the_first_blocks_of_a_magazine_in_order_lie_near_each_other() {
        assert_eq!(are_in_order(&[0, 1, 2, 3, 40]), [true, false]);
        assert_eq!(are_in_order(&[0, 500, 40, 200, 20]), [true, false]);
        assert_eq!(are_in_order(&[0, 600, 1, 2, 3]), [false; 2], "two of four links");
        assert_eq!(are_in_order(&[0, 1, 2, 600, 601, 602, 3, 4, 5]), [true, false], "two of eight");
        assert_eq!(are_in_order(&[0, 1, 2, 600, 601, 602, 3, 4, 603]), [false; 2], "three of eight");
        assert_eq!(are_in_order(&[7]), [true; 2]);
    }

    #[test]
    fn of_a_foreign_magazine_in_order_nineteen_blocks_of_twenty_are_neighbours() {
        let pieces = |pieces: &[(usize, usize)]| -> Vec<usize> {
            pieces.iter().flat_map(|&(first, count)| (first..first + count).rev()).collect()
        };
        assert_eq!(are_in_order(&pieces(&[(0, 81)])), [true; 2]);
        assert_eq!(are_in_order(&pieces(&[(0, 41), (100, 40)])), [true; 2]);
        let with_five = [(0, 17), (100, 16), (40, 16), (140, 16), (70, 16)];
        assert_eq!(are_in_order(&pieces(&with_five)), [true; 2], "four of 80 links");
        let with_six = [(0, 10), (100, 15), (40, 15), (140, 15), (70, 15), (20, 9)];
        assert_eq!(are_in_order(&pieces(&with_six)), [true, false], "five of 78 links");
    }
}
