//! Whether free blocks that lie in caches and in transit keep many slabs from emptying. Blocks freed in no order are of as many slabs as
//! they are themselves, and stay where they are when the program goes on with another size. A purger sends them home when they were not
//! needed for a while; before that, and where there is none, whoever makes a slab looks whether the heap grows although much is free in
//! slabs.
//!
//! SYNCHRONIZATION: hints; of several threads one may send home what another did already.

use super::{Central, Shard};
use crate::granule::GRANULE_BYTES;
use crate::page_map::{Hint8, Hint32};
use crate::size_class::{self, CLASSES};
use crate::spans::Spans;

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
    /// 1: it is so, and nothing was sent home since.
    is_found: Hint8,
}

impl Spread {
    /// Nothing known.
    pub const fn new() -> Self {
        Self { looked_at_from: Hint32::new(0), is_found: Hint8::new(0) }
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
            is_found.set(1);
        } else {
            looked_at_from.set(used + STEP);
        }
    }

    /// Whether what is cached and in transit had better go home.
    #[inline]
    pub fn is_spread(&self) -> bool {
        self.spread.is_found.get() == 1
    }

    /// It went home; so many granules were in use before.
    pub fn note_gathered(&self, spans: &Spans, before: u32) {
        let Further { bytes, part } = if spans.keeps() { WITH_PURGER } else { ALONE };
        let now = spans.used();
        let part = before / part + (bytes / GRANULE_BYTES) as u32;
        let was_worth_it = before.saturating_sub(now) >= part;
        self.spread.looked_at_from.set(if was_worth_it { before } else { before + part });
        self.spread.is_found.set(0);
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
            central.note_gathered(spans, before);
            let further = before / further.part + (further.bytes / GRANULE_BYTES) as u32;
            take(further - 1);
            assert!(!is_found(), "in vain: a part of the heap and as much as is worth it later");
            let last = take(2 * further);
            assert!(is_found());
            let before = spans.used();
            spans.give(last, 2 * further, false);
            central.note_gathered(spans, before);
            take(2 * further);
            assert!(is_found(), "worth it");
        }
    }
}
