//! What a forked child has of its parent: slabs whose pages both share until one of them writes there. A link in a free block, or a block
//! of the child's between the parent's, costs the child a copy of the page. So its threads keep to shards of their own, what they free of
//! the parent's goes home unwritten, and of the parent's slabs they take those more than half free. Once the heap has grown by an eighth
//! since the fork, or there is no other memory, the child is as any other process: memory that only it still has is not to lie idle.
//! (Figures: docs/choices.md, "Memory that a forked child shares".)
//!
//! SYNCHRONIZATION: the numbers are written while the process has one thread, or set to 0 later, by any; until others see that they act as
//! before.

use super::Central;
use crate::magazine::Magazine;
use crate::page_map::Hint32;
use crate::spans::{SHARDS, Spans};
use core::sync::atomic::Ordering;

/// Bytes of small blocks from which on a parent's slabs are left alone: what its thread cache holds is used in any case.
const WORTH_BYTES: isize = 4 << 20;
/// The part of the heap by which that may grow.
const PART: u32 = 8;

/// Whose the slabs are.
pub struct Inherited {
    /// Shards below this one are the parent's; 0: none, or no matter.
    shards: Hint32,
    /// With so many granules in use it does not matter any more; 0: to be said by who seeks memory, since that takes a lock.
    granules_most: Hint32,
}

impl Inherited {
    /// Nobody's.
    pub const fn new() -> Self {
        Self { shards: Hint32::new(0), granules_most: Hint32::new(0) }
    }
}

impl Central {
    /// In the child of a fork that has one thread, wherever that is: takes no lock. The first shard for its own slabs, unless that is
    /// not worth it, or there is none left.
    pub fn leave_to_parent(&self) -> Option<usize> {
        // ORDERING: Relaxed, both; there is one thread.
        let (used, out_bytes) =
            (self.shards_used.load(Ordering::Relaxed), self.out_bytes.load(Ordering::Relaxed));
        if used >= SHARDS || out_bytes < WORTH_BYTES {
            return None;
        }
        self.inherited.granules_most.set(0);
        self.inherited.shards.set(used as u32);
        Some(used)
    }

    /// Whether a shard's slabs are the parent's, and had better be left alone.
    pub fn is_inherited(&self, shard: usize) -> bool {
        shard < self.inherited.shards.get() as usize
    }

    /// Whether there are any.
    #[inline(always)]
    pub fn shares_with_parent(&self) -> bool {
        self.inherited.shards.get() > 0
    }

    /// As [`Central::is_inherited`], where memory is sought; the last time if the heap has grown.
    pub(super) fn is_still_inherited(&self, spans: &Spans, shard: usize) -> bool {
        if !self.is_inherited(shard) {
            return false;
        }
        let (used, most) = (spans.used(), &self.inherited.granules_most);
        if most.get() == 0 {
            most.set(used.saturating_add(used / PART));
        }
        if used >= most.get() {
            self.forget_parent();
        }
        used < most.get()
    }

    /// Whose slabs they were is no matter from now on.
    pub(super) fn forget_parent(&self) {
        self.inherited.shards.set(0);
    }

    /// Puts a block that the caller gives up back into its slab without writing there. Not inlined: forked children alone come here.
    #[cold]
    #[inline(never)]
    pub fn put_unwritten(&self, spans: &Spans, class: usize, block: usize) {
        // No link was written: what is in its place leads nowhere.
        self.put_blocks::<false>(spans, class, Magazine { head: block, count: 1 });
    }
}
