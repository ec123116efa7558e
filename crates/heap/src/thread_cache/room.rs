//! How many blocks each bin of a cache may hold: what the budget gives the cache, spread over its bins.
//!
//! A bin that is empty or full when it is wanted doubles its room. Once the budget gives no more, room comes from the cache's own bins:
//! each refill that was refused looks at one, by turns, which gives half of what it has unless it asked since its last turn. So room goes
//! to where it saves visits to the slow path, whatever class came first. (Figures: docs/choices.md, "Thread caches".)

use super::{BINS, Budget, ThreadCache, class_of_bin};
use crate::central::Central;
use crate::page_map::{Guarded32, Guarded64, GuardedSize};
use crate::size_class;
use crate::spans::Spans;

/// What a cache's bins hold beyond the least. Synchronization: the cache's lock.
pub struct Room {
    /// Bytes that the budget gave.
    pub paid: GuardedSize,
    /// The bin that had its turn last.
    turn: Guarded32,
    /// Bit per bin: it asked for more since its last turn.
    asked: Guarded64,
}

const _: () = assert!(BINS <= u64::BITS as usize);

/// The most blocks that a bin's list holds. Those of other shards are of no use here.
pub fn most_in(bin: usize) -> u32 {
    let class = class_of_bin(bin);
    size_class::magazine_max(class) / if bin == class { 1 } else { 2 }
}

/// Bytes of a list of blocks that are few in one, where one thread gives memory back and nothing speaks for holding it.
const LEAN_BYTES: usize = 24 * 1024;

/// As [`most_in`], or [`LEAN_BYTES`] where that is enough.
fn most_at_present(bin: usize, spans: &Spans) -> u32 {
    let class = class_of_bin(bin);
    let is_lean = size_class::has_few(class) && spans.is_releasing_alone();
    if is_lean { (LEAN_BYTES / size_class::size(class)).max(1) as u32 } else { most_in(bin) }
}

/// What became of a bin that asked for room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// It has more.
    Grown,
    /// It has as much as it may.
    AtMost,
    /// The budget gives no more.
    Refused,
}

impl Room {
    /// The least.
    pub const fn new() -> Self {
        Self { paid: GuardedSize::new(0), turn: Guarded32::new(0), asked: Guarded64::new(0) }
    }

    /// The bin whose turn it is to give, unless it asked since the last time.
    fn next_to_give(&self) -> Option<usize> {
        let bin = self.turn.get() as usize % (BINS - 1) + 1;
        self.turn.set(bin as u32);
        let (asked, bit) = (self.asked.get(), 1 << bin);
        self.asked.set(asked & !bit);
        (asked & bit == 0).then_some(bin)
    }
}

impl ThreadCache {
    /// Doubles a bin's capacity if the class and the budget allow it. Under the lock, by the owner, who sets the bin's `room` afterwards.
    pub(super) fn grow(&self, bin: usize, spans: &Spans, budget: &Budget) -> Growth {
        let (class, capacity) = (class_of_bin(bin), self.bins[bin].capacity.get());
        let more = capacity.max(1).min(most_at_present(bin, spans).saturating_sub(capacity));
        if more == 0 {
            return Growth::AtMost;
        }
        self.room.asked.set(self.room.asked.get() | 1 << bin);
        if !budget.take(&self.room.paid, more, class) {
            return Growth::Refused;
        }
        self.bins[bin].capacity.set(capacity + more);
        Growth::Grown
    }

    /// A bin that may hold more was refused to: the one whose turn it is gives half of its own to whoever asks next. Under the lock, by the
    /// owner.
    pub(super) fn make_room(&self, central: &Central, spans: &Spans, budget: &Budget) {
        let Some(bin) = self.room.next_to_give() else { return };
        let (least, capacity) = (size_class::magazine_min(class_of_bin(bin)), self.bins[bin].capacity.get());
        if capacity > least {
            self.reduce(bin, capacity.midpoint(least), central, spans, budget);
        }
    }

    /// Sends home what a bin holds beyond `capacity`, which is less than it has.
    #[cold]
    fn reduce(&self, bin: usize, capacity: u32, central: &Central, spans: &Spans, budget: &Budget) {
        self.bins[bin].open();
        // SAFETY: this cache owns the list.
        let (kept, excess) = unsafe { self.bins[bin].list().split(capacity) };
        self.lower(bin, capacity, budget);
        self.bins[bin].replace(kept);
        for magazine in [excess, self.take_spare(bin)] {
            central.store(spans, spans.map.shard_of_block(magazine.head), class_of_bin(bin), magazine);
        }
    }

    /// Resets a bin's capacity to what an unused class has. Under the lock, for an empty or revoked bin.
    pub(super) fn shrink(&self, bin: usize, budget: &Budget) {
        self.lower(bin, size_class::magazine_min(class_of_bin(bin)), budget);
    }

    /// Gives the budget back what a bin's capacity is beyond this one. The caller sets `room` afterwards.
    fn lower(&self, bin: usize, capacity: u32, budget: &Budget) {
        let more = self.bins[bin].capacity.get().saturating_sub(capacity);
        budget.give(&self.room.paid, more, class_of_bin(bin));
        self.bins[bin].capacity.set(capacity);
    }
}
