//! Whether free blocks that lie in caches and in transit keep many slabs from emptying. Blocks freed in no order are of as many slabs as
//! they are themselves, and stay where they are when the program goes on with another size. A purger sends them home when they were not
//! needed for a while; before that, and where there is none, whoever makes a slab looks whether the heap grows although much is free in
//! slabs.
//!
//! SYNCHRONIZATION: hints; of several threads that see it one sends home.

use super::{Central, Shard};
use crate::granule::GRANULE_BYTES;
use crate::page_map::Hint32;
use crate::size_class::{self, CLASSES};
use crate::spans::Spans;
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes free in a shard's slabs from which on caches are worth emptying: the faults of so much memory take longer than that.
const WORTH_BYTES: usize = 4 << 20;
/// So much, and a part of the heap, must come of it, or the heap grow by, for another time.
struct Further {
    bytes: usize,
    part: u32,
}

/// Where a purger sends home what is not needed for a while; and where nobody else does, and there is one cache.
const WITH_PURGER: Further = Further { bytes: WORTH_BYTES, part: 4 };
const ALONE: Further = Further { bytes: 1 << 20, part: 8 };
/// Granules by which the heap grows from one look to the next.
const STEP: u32 = 16;

/// What is known of it.
pub struct Spread {
    /// Granules in use from which on it is looked at.
    looked_at_from: Hint32,
    /// It is so, and nobody sends home or did since.
    is_found: AtomicBool,
}

impl Spread {
    /// Nothing known.
    pub const fn new() -> Self {
        Self { looked_at_from: Hint32::new(0), is_found: AtomicBool::new(false) }
    }
}

impl Central {
    /// A slab is made for a shard, of memory that no shard kept.
    pub(super) fn look_for_spread(&self, spans: &Spans, shard: &Shard) {
        let Spread { looked_at_from, is_found } = &self.spread;
        let used = spans.used();
        if used < looked_at_from.get() {
            return;
        }
        if free_bytes(shard) >= WORTH_BYTES {
            // ORDERING: Relaxed; a hint.
            is_found.store(true, Ordering::Relaxed);
        } else {
            looked_at_from.set(used + STEP);
        }
    }

    /// Whether what is cached and in transit had better go home.
    #[inline]
    pub fn is_spread(&self) -> bool {
        // ORDERING: Relaxed; a hint, who acts on it claims it.
        self.spread.is_found.load(Ordering::Relaxed)
    }

    /// Whether it is the caller's to send home, with so many granules in use: one thread's. Until the heap has grown others do not look.
    pub fn claim_spread(&self, spans: &Spans, before: u32) -> bool {
        // ORDERING: Relaxed; of those who see it the exchange chooses one.
        let is_own = self.spread.is_found.swap(false, Ordering::Relaxed);
        if is_own {
            self.spread.looked_at_from.set(before + further(spans, before));
        }
        is_own
    }

    /// It went home; so many granules were in use before.
    pub fn note_gathered(&self, spans: &Spans, before: u32) {
        let further = further(spans, before);
        let was_worth_it = before.saturating_sub(spans.used()) >= further;
        self.spread.looked_at_from.set(if was_worth_it { before } else { before + further });
    }
}

/// So many granules must come of it, or the heap, of which so many are in use, grow by, for another time.
fn further(spans: &Spans, used: u32) -> u32 {
    let Further { bytes, part } = if spans.keeps() { WITH_PURGER } else { ALONE };
    used / part + (bytes / GRANULE_BYTES) as u32
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
        central.look_for_spread(&heap.spans, shard);
        assert!(central.is_spread());
        let claims = [0; 2].map(|_| central.claim_spread(&heap.spans, 0));
        assert_eq!((claims, central.is_spread()), ([true, false], false));
        central.look_for_spread(&heap.spans, shard);
        assert!(!central.is_spread(), "nor do others find it before the heap has grown");
    }

    #[test]
    fn spread_memory_is_looked_for_as_the_heap_grows_and_again_when_gathering_was_worth_it() {
        for (has_purger, further) in [(false, ALONE), (true, WITH_PURGER)] {
            let heap = Heap::boxed();
            let Heap { central, spans, .. } = &*heap;
            spans.set_purger(has_purger);
            let shard = central.shard(0);
            let take = |more: u32| spans.take(0, more, 1, true).unwrap().first;
            let is_found = || {
                central.look_for_spread(spans, shard);
                central.is_spread()
            };
            take(1000);
            assert!(!is_found(), "nothing is free");
            // Class 1 is of 16 bytes.
            shard.free_blocks[1].set(WORTH_BYTES / 16);
            take(STEP - 1);
            assert!(!is_found());
            take(1);
            assert!(is_found());
            let before = spans.used();
            assert!(central.claim_spread(spans, before));
            central.note_gathered(spans, before);
            let further = before / further.part + (further.bytes / GRANULE_BYTES) as u32;
            take(further - 1);
            assert!(!is_found(), "in vain: a part of the heap and as much as is worth it later");
            let last = take(2 * further);
            assert!(is_found());
            let before = spans.used();
            assert!(central.claim_spread(spans, before));
            spans.give(last, 2 * further, false);
            central.note_gathered(spans, before);
            take(2 * further);
            assert!(is_found(), "worth it");
        }
    }
}
