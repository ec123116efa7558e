//! Whether free blocks in caches and in transit keep many slabs from emptying. Blocks freed in no order may each be of another slab, and
//! stay where they are when the program goes on with another size. A purger sends them home when they were not needed for a while. Before
//! that, and where there is no purger, whoever makes a slab checks whether the heap grows although much is free in slabs.
//!
//! SYNCHRONIZATION: hints; if several threads see it, one of them sends the blocks home.

use super::gone::Gone;
use super::{Central, Shard};
use crate::granule::GRANULE_BYTES;
use crate::os;
use crate::page_map::{Hint8, Hint32};
use crate::size_class::{self, CLASSES};
use crate::spans::Spans;
use core::sync::atomic::{AtomicBool, Ordering};

/// From so many free bytes in a shard's slabs on, emptying the caches pays: it takes less time than faulting in as much memory.
const WORTH_BYTES: usize = 4 << 20;
/// So much, and a part of what is out of the slabs, must have come of the last time, or must have been made slabs of memory without pages
/// since, before the next time.
const FURTHER_BYTES: usize = 1 << 20;
const FURTHER_PART: u32 = 8;
/// At least this part of the heap, all of whose granules are looked at.
const PART_OF_HEAP: u32 = 32;
/// Granules of slabs that are made of memory without pages between one look and the next, at least.
const STEP: u32 = 16;
/// How often the distance doubles, at most.
const IN_VAIN_MOST: u8 = 5;
const NS_PER_MS: u64 = 1_000_000;

/// What is known of it.
pub struct Spread {
    /// Granules of slabs that were made of memory without pages since the last look. These tell by how much memory grows; what is in use
    /// does not, since free pages of slabs in use may have gone.
    fresh: Hint32,
    /// How many more than [`STEP`] there must be for the next.
    further: Hint32,
    /// How many times in a row little came of it.
    in_vain: Hint8,
    /// Blocks were found spread, and nobody has claimed to send them home.
    is_found: AtomicBool,
    /// Pages were purged at least once. Until then nobody has to note what is wanted again.
    has_gone: AtomicBool,
    /// When the present turn began, ms, and how many granules' worth of pages went in it.
    turn_since: Hint32,
    turn_gone: Hint32,
}

impl Spread {
    /// Nothing known.
    pub const fn new() -> Self {
        Self {
            fresh: Hint32::new(0),
            further: Hint32::new(0),
            in_vain: Hint8::new(0),
            is_found: AtomicBool::new(false),
            has_gone: AtomicBool::new(false),
            turn_since: Hint32::new(0),
            turn_gone: Hint32::new(0),
        }
    }

    /// Pages went to the kernel.
    pub fn note_gone(&self) {
        // ORDERING: Relaxed, here and below; a hint.
        self.has_gone.store(true, Ordering::Relaxed);
    }

    /// The next look is due when so many more granules, but at least [`STEP`], were made slabs.
    fn look_after(&self, granules: u32) {
        self.fresh.set(0);
        self.further.set(granules.saturating_sub(STEP));
    }
}

impl Central {
    /// Notes that a slab of so many granules is made of memory without pages, and looks if that is due.
    pub(super) fn look_for_spread(&self, shard: &Shard, granules: u32) {
        let Spread { fresh, further, .. } = &self.spread;
        let now = fresh.get().saturating_add(granules);
        fresh.set(now);
        if now >= further.get().saturating_add(STEP) {
            self.look_at(shard);
        }
    }

    /// Not inlined, since it is rarely called.
    #[cold]
    fn look_at(&self, shard: &Shard) {
        self.spread.look_after(0);
        if free_bytes(shard) >= WORTH_BYTES {
            // ORDERING: Relaxed; a hint.
            self.spread.is_found.store(true, Ordering::Relaxed);
        }
    }

    /// Where to note that pages are wanted again, if any went.
    #[inline]
    pub(super) fn gone_if_any(&self) -> Option<&Gone> {
        // ORDERING: Relaxed; a hint.
        self.spread.has_gone.load(Ordering::Relaxed).then_some(&self.gone)
    }

    /// Whether what is cached and in transit had better go home.
    #[inline]
    pub fn is_spread(&self) -> bool {
        // ORDERING: Relaxed; a hint, who acts on it claims it.
        self.spread.is_found.load(Ordering::Relaxed)
    }

    /// Whether the caller is the one thread that is to send blocks home. The others do not look again until the heap has grown.
    pub fn claim_spread(&self, spans: &Spans) -> bool {
        // ORDERING: Relaxed; of those who see it the exchange chooses one.
        let is_own = self.spread.is_found.swap(false, Ordering::Relaxed);
        if is_own {
            self.spread.look_after(self.further(spans));
        }
        is_own
    }

    /// Whether pages between blocks may go. Where classes want them by turns, each time costs their faults. So there are turns as long as
    /// free memory is held at most; once as much went in one as is free in slabs, the rest of it is to pay for that.
    pub fn is_worth_purging(&self, spans: &Spans) -> bool {
        let Spread { turn_since, turn_gone, .. } = &self.spread;
        let now = (os::now_ns() / NS_PER_MS) as u32;
        if u64::from(now.wrapping_sub(turn_since.get())) >= spans.hold_max_ns() / NS_PER_MS {
            turn_since.set(now);
            turn_gone.set(0);
        }
        turn_gone.get() < self.free_granules()
    }

    /// Blocks went home and so many bytes to the kernel, where `before` granules had been in use. After each time in vain the next one is
    /// twice as far off.
    pub fn note_gathered(&self, spans: &Spans, before: u32, purged_bytes: usize) {
        let (further, in_vain) = (self.further(spans), &self.spread.in_vain);
        let emptied = before.saturating_sub(spans.in_use());
        let purged = (purged_bytes / GRANULE_BYTES) as u32;
        let turn_gone = &self.spread.turn_gone;
        turn_gone.set(turn_gone.get().saturating_add(purged));
        in_vain.set(if emptied + purged >= further / 4 { 0 } else { (in_vain.get() + 1).min(IN_VAIN_MOST) });
        self.spread.look_after(if emptied >= further { 0 } else { further << in_vain.get() });
    }

    fn free_granules(&self) -> u32 {
        (self.shards_in_use().iter().map(free_bytes).sum::<usize>() / GRANULE_BYTES) as u32
    }

    /// [`FURTHER_BYTES`] and [`FURTHER_PART`] in granules.
    fn further(&self, spans: &Spans) -> u32 {
        let used = spans.in_use();
        let out = used.saturating_sub(self.free_granules());
        (out / FURTHER_PART).max(used / PART_OF_HEAP) + (FURTHER_BYTES / GRANULE_BYTES) as u32
    }
}

/// Bytes of free blocks in a shard's slabs.
fn free_bytes(shard: &Shard) -> usize {
    (1..CLASSES).map(|class| shard.free_blocks[class].get() * size_class::size(class)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;

    #[test]
    fn of_those_who_find_memory_spread_one_sends_it_home() {
        let heap = Heap::boxed();
        let (central, shard) = (&heap.central, heap.central.shard(0));
        shard.free_blocks[1].set(WORTH_BYTES / 16);
        central.look_for_spread(shard, STEP);
        assert!(central.is_spread());
        let claims = [0; 2].map(|_| central.claim_spread(&heap.spans));
        assert_eq!((claims, central.is_spread()), ([true, false], false));
        central.look_for_spread(shard, 1);
        assert!(!central.is_spread(), "nor do others find it before more slabs were made");
    }

    #[test]
    fn spread_memory_is_looked_for_as_slabs_are_made_again_when_that_was_worth_it_and_later_each_time_when_not()
     {
        for has_purger in [false, true] {
            let heap = Heap::boxed();
            let Heap { central, spans, .. } = &*heap;
            spans.set_purger(has_purger);
            let shard = central.shard(0);
            let take = |more: u32| spans.take(0, more, 1, true).unwrap().first;
            let is_found_after = |granules: u32| {
                central.look_for_spread(shard, granules);
                central.is_spread()
            };
            take(1000);
            assert!(!is_found_after(STEP), "nothing is free");
            // Class 1 is of 16 bytes.
            shard.free_blocks[1].set(WORTH_BYTES / 16);
            assert!(!is_found_after(STEP - 1));
            assert!(is_found_after(1));
            let further = central.further(spans);
            for distance in [2 * further, 4 * further] {
                assert!(central.claim_spread(spans));
                central.note_gathered(spans, spans.used(), 0);
                assert!(!is_found_after(distance - 1), "in vain: twice as far off");
                assert!(is_found_after(1));
            }
            assert!(central.claim_spread(spans));
            central.note_gathered(spans, spans.used(), further as usize * GRANULE_BYTES);
            assert!(!is_found_after(further - 1));
            assert!(is_found_after(1), "pages went");
            assert!(central.claim_spread(spans));
            central.note_gathered(spans, spans.used() + further, 0);
            assert!(is_found_after(STEP), "slabs were empty then");
        }
    }

    #[test]
    fn memory_that_a_shard_keeps_after_blocks_went_home_was_not_sent_home_in_vain() {
        const GRANULES: u32 = 4;
        let heap = Heap::boxed();
        let Heap { central, spans, .. } = &*heap;
        spans.set_purger(true);
        let shard = central.shard(0);
        shard.free_blocks[1].set(WORTH_BYTES / 16);
        let take = |_| spans.take(0, GRANULES, 1, true).unwrap().first;
        let slabs: Vec<u32> = (0..500).map(take).collect();
        let before = spans.in_use();
        slabs.iter().for_each(|&first| spans.give_for(0, first, GRANULES));
        assert_eq!((spans.used(), spans.in_use()), (before, 0), "kept");
        central.note_gathered(spans, before, 0);
        central.look_for_spread(shard, STEP);
        assert!(central.is_spread(), "the next look is soon");
    }

    #[test]
    fn pages_between_blocks_do_not_go_while_as_much_as_is_free_in_slabs_went_lately() {
        let heap = Heap::boxed();
        let Heap { central, spans, .. } = &*heap;
        let free = WORTH_BYTES / GRANULE_BYTES;
        central.shard(0).free_blocks[1].set(WORTH_BYTES / 16);
        let is_worth_purging_after = |granules: usize| {
            central.note_gathered(spans, 0, granules * GRANULE_BYTES);
            central.is_worth_purging(spans)
        };
        assert!(central.is_worth_purging(spans), "nothing went");
        assert!(is_worth_purging_after(free - 1));
        assert!(!is_worth_purging_after(1));
        // The turn is over at once: a millisecond, in a clock of 10.
        spans.set_price(u64::MAX);
        std::thread::sleep(core::time::Duration::from_millis(20));
        assert!(central.is_worth_purging(spans));
        assert!(is_worth_purging_after(free - 1), "what went before does not count");
    }
}
