//! Thread caches: per thread and class, a magazine in use and a spare one. No atomic read-modify-write on the fast path.
//!
//! A cache is *revocable*: another thread can take the magazines of a thread that does nothing, without a fence or an
//! extra store on the owner's fast path. Per bin, `head` is the list, [`GATE`] or 0, and `room` is how many more
//! blocks it may hold. Only the owner writes `room`; `room + length == capacity` of a list whenever the owner is outside an
//! operation. The owner changes `room` *before* it reads `head`; [`revoke`](revocation::revoke) exchanges `head` with GATE, makes every
//! thread pass a barrier, and takes the list only if `head` is still GATE and the sum holds: an operation that was
//! under way has either shown itself in `room` or will read GATE and come to the slow path, which waits for the
//! cache's lock. Where stores may pass each other a second barrier follows when the sum holds.
//! `tests/revocation_model.rs` checks all interleavings of this on x86-TSO and on aarch64, and that it breaks without a barrier.

mod ahead;
mod bin;
mod budget;
mod demand;
mod first_use;
mod large_lists;
mod registry;
mod revocation;
mod room;

pub use budget::Budget;
pub use registry::Caches;

use crate::central::Central;
use crate::large::{Large, NewBlock};
use crate::lock::Lock;
use crate::magazine::{self, Magazine};
use crate::page_map::{Guarded32, GuardedSize, Hint32, Tag};
use crate::size_class::{self, CLASSES, GOING_HOME};
use crate::spans::Spans;
use bin::{BINS, OwnTag, class_of_bin, foreign_bin};
pub use bin::{Bin, GATE, Place, Rest};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use first_use::FirstUse;
use large_lists::{LargeLists, Missed};
use room::{Growth, Room, most_in};

/// Where blocks come from and go to that no cache holds.
#[derive(Clone, Copy)]
pub struct Home<'a> {
    /// Small blocks.
    pub central: &'a Central,
    /// Spans.
    pub spans: &'a Spans,
    /// Large blocks.
    pub large: &'a Large,
}

/// One thread's free blocks.
#[repr(C, align(64))]
pub struct ThreadCache {
    /// First, so that a class tells how far behind the cache's beginning its list is.
    bins: [Bin; BINS],
    /// A second magazine per class, packed; 0 for none. Synchronization: the cache's lock.
    spares: [GuardedSize; CLASSES],
    /// Lists of large blocks, null before the thread has some. Synchronization: written by the owner, once.
    large: AtomicPtr<LargeLists>,
    /// How much more than the least its bins hold.
    room: Room,
    /// The tag of no class in the shard of `central` that it keeps to. Synchronization: owner only.
    tag: OwnTag,
    /// Held by the owner in its slow path, and by a revoker.
    lock: Lock<()>,
    /// The shard that its thread left as the child of a fork, plus one; 0: none. Synchronization: owner only.
    left_shard: Guarded32,
    /// The next of all caches ever made. Synchronization: written once, under the registry's lock.
    next: AtomicPtr<ThreadCache>,
    /// Whether a thread has it, and if not, whether it is empty. Synchronization: the registry's lock.
    state: Guarded32,
    /// Operations in the slow path, modulo 2^32. Synchronization: written under the cache's lock.
    visits: Hint32,
    /// `visits` when idle caches were last looked for. Synchronization: the registry's lock.
    visits_seen: Guarded32,
    /// What the thread does with memory without pages.
    pub first_use: FirstUse,
    /// The next idle cache. Synchronization: the registry's lock.
    next_idle: AtomicPtr<ThreadCache>,
    /// Large blocks that were asked for and not found in its lists, or for want of lists.
    missed_large: Missed,
    /// What tells its thread from others; 0 without one. Synchronization: set by that thread, cleared when the cache is taken back.
    owner: AtomicUsize,
}

impl ThreadCache {
    /// A cache that sends every operation to the slow path, until somebody fills it: what a thread starts with.
    pub const fn gated(shard: usize) -> Self {
        Self {
            bins: [const { Bin::gated() }; BINS],
            spares: [const { GuardedSize::new(0) }; CLASSES],
            large: AtomicPtr::new(core::ptr::null_mut()),
            room: Room::new(),
            tag: OwnTag::new(shard),
            lock: Lock::new(()),
            left_shard: Guarded32::new(0),
            next: AtomicPtr::new(core::ptr::null_mut()),
            state: Guarded32::new(0),
            next_idle: AtomicPtr::new(core::ptr::null_mut()),
            missed_large: Missed::new(),
            owner: AtomicUsize::new(0),
            visits: Hint32::new(0),
            visits_seen: Guarded32::new(0),
            first_use: FirstUse::new(),
        }
    }

    /// Makes one of zeroed memory. Only what is not zero is written: to make it elsewhere and to copy it would call libc's functions,
    /// which may not be in memory yet, 64 KiB of them (docs/choices.md, "The small process").
    ///
    /// # Safety
    /// `place` is zeroed memory for one, and nobody else's.
    unsafe fn make_gated(place: *mut Self, shard: usize) {
        // SAFETY: the caller's contract; all else is zero in `gated`, too (a test compares them).
        unsafe {
            for bin in 0..BINS {
                (&raw mut (*place).bins[bin]).write(Bin::gated());
            }
            (&raw mut (*place).tag).write(OwnTag::new(shard));
        }
    }

    /// Says whose it is from now on: a number that no other living thread has.
    pub fn set_owner(&self, identity: usize) {
        // ORDERING: Relaxed; only who has that identity finds it here, or who comes after it on its stack.
        self.owner.store(identity, Ordering::Relaxed);
    }

    /// Whether it is this thread's, or that of one which ended on the same stack without giving it back.
    pub fn is_owned_by(&self, identity: usize) -> bool {
        // ORDERING: Relaxed; only a thread of this identity ever writes it, libc's taking over of a stack orders those, and what
        // others write is not it.
        self.owner.load(Ordering::Relaxed) == identity
    }

    /// As [`Bin::take`], a block of `class`.
    ///
    /// # Safety
    /// As there.
    #[cfg(test)]
    pub unsafe fn take(&self, class: usize) -> usize {
        // SAFETY: the caller's contract.
        unsafe { self.bins[class].take() }
    }

    /// Where blocks of a slab with this tag are kept, if it is one of the cache's shard; else what [`ThreadCache::push_foreign`] needs.
    ///
    /// # Safety
    /// This thread owns the cache, or the cache is gated.
    #[inline(always)]
    pub unsafe fn own_place(&self, tag: Tag) -> Result<Place, Rest> {
        // SAFETY: the caller's contract.
        Place::of_own(tag, unsafe { self.tag.get_own() })
    }

    /// Keeps a free block of a slab of the cache's shard; false: the list is full or revoked, or the block is at its head already.
    ///
    /// # Safety
    /// This thread owns the cache (or the cache is gated) and the block, whose place it is.
    #[inline(always)]
    pub unsafe fn push(&self, place: Place, block: usize) -> bool {
        let bin = place.of(&self.bins);
        let is_full = bin.count_down();
        // SAFETY: the caller gives the block up.
        bin.push(is_full, block, |next| unsafe { magazine::set_next(block, next) })
    }

    /// As [`ThreadCache::push`], a block of another shard's slab; false, too, if it had better be left unwritten.
    ///
    /// # Safety
    /// This thread owns the cache (or the cache is gated) and the block, which is of that slab.
    #[inline(always)]
    pub unsafe fn push_foreign(&self, rest: Rest, block: usize, central: &Central) -> bool {
        let place = Place::of_foreign(rest);
        // Where there is a list of such blocks alone, that is gated.
        if place.is_own() && central.shares_with_parent() {
            return false;
        }
        // SAFETY: the caller's contract.
        unsafe { self.push(place, block) }
    }

    /// The shard that its thread keeps to.
    pub fn shard(&self) -> usize {
        self.tag.get().shard()
    }

    /// Its thread keeps to another shard from now on. By that thread, or before it has one.
    pub fn set_shard(&self, shard: usize) {
        self.tag.set(shard);
    }

    /// Its thread, that of a forked child, keeps to another shard until it [returns](ThreadCache::return_to_shard).
    pub fn leave_shard_for(&self, shard: usize) {
        self.left_shard.set(self.shard() as u32 + 1);
        self.set_shard(shard);
        self.gate_empty_foreign();
    }

    /// Blocks of this shard are foreign, and none that had better be left alone: if its thread left it, that is over. By that thread.
    fn return_to_shard(&self, shard: usize) {
        if self.left_shard.get() == shard as u32 + 1 {
            self.left_shard.set(0);
            self.set_shard(shard);
        }
    }

    /// Sends who frees other shards' blocks to the slow path, where the list is empty. By the owner, wherever it is: one that was about to put
    /// a block there does so.
    fn gate_empty_foreign(&self) {
        for bin in &self.bins[CLASSES..] {
            // ORDERING: Relaxed; owner only.
            if bin.head.load(Ordering::Relaxed) == 0 {
                bin.head.store(GATE, Ordering::Relaxed);
            }
        }
    }

    fn bin_of(&self, tag: Tag) -> usize {
        if tag.shard() == self.shard() { tag.class() } else { foreign_bin(tag.class()) }
    }

    /// Whether `block` is the first of its list: freeing it now would be a double free.
    pub fn is_head(&self, tag: Tag, block: usize) -> bool {
        // ORDERING: Relaxed; owner only.
        self.bins[self.bin_of(tag)].head.load(Ordering::Relaxed) == block
    }

    /// Takes a block of `class` after [`Bin::take`] found none, from the spare magazine or from `central`; `zeroed`: one that
    /// reads as zero if there is no other at hand. [`NewBlock::NONE`] when memory is exhausted.
    pub fn refill(
        &self,
        class: usize,
        zeroed: bool,
        central: &Central,
        spans: &Spans,
        budget: &Budget,
    ) -> NewBlock {
        let _guard = self.lock.lock();
        self.visit();
        let bin = &self.bins[class];
        bin.open();
        bin.note_wanted();
        let (mut list, mut zero) = (bin.list(), false);
        if list.is_empty() {
            list = self.take_spare(class);
        }
        if list.is_empty() {
            list = self.take_foreign(class);
        }
        if list.is_empty() {
            if self.grow(class, spans, budget) == Growth::Refused {
                self.make_room(central, spans, budget);
            }
            let want = bin.capacity.get().max(1);
            let fetched = if zeroed {
                central.fetch_zeroed(spans, self.shard(), class, want, &mut zero)
            } else {
                central.fetch(spans, self.shard(), class, want)
            };
            match fetched {
                Some(magazine) => list = magazine,
                None => {
                    // The capacity may have grown.
                    bin.replace(Magazine::EMPTY);
                    return NewBlock::NONE;
                }
            }
        }
        let block = list.head;
        // SAFETY: a block that this cache owns now.
        let rest = Magazine { head: unsafe { magazine::next(block) }, count: list.count - 1 };
        let capacity = bin.capacity.get();
        if rest.count > capacity && budget.take(&self.room.paid, rest.count - capacity, class) {
            bin.capacity.set(rest.count);
        }
        // A magazine filled by a cache that was allowed more: what does not fit here goes on.
        // SAFETY: this cache owns the list.
        let (kept, excess) = unsafe { rest.split(bin.capacity.get()) };
        central.store(spans, self.shard(), class, excess);
        bin.replace(kept);
        bin.look_ahead(kept);
        NewBlock { address: block, zero }
    }

    /// The blocks of other shards, if they are many: a few would be used beside those of others, many fill lines of their own, and
    /// who frees and takes what others made need not send it home each time. Under the cache's lock, by the owner.
    fn take_foreign(&self, class: usize) -> Magazine {
        let bin = &self.bins[foreign_bin(class)];
        let most = most_in(foreign_bin(class));
        let many = most - most / 4;
        if class > GOING_HOME || bin.capacity.get() < many {
            return Magazine::EMPTY;
        }
        bin.open();
        let list = bin.list();
        if list.count < many {
            return Magazine::EMPTY;
        }
        bin.replace(Magazine::EMPTY);
        list
    }

    /// Keeps a free block after [`ThreadCache::push`] found no room: the full list becomes the spare, and the former spare goes to
    /// `central`, or the other way about. A list of other shards' blocks goes to the shard of the last one, and so does one of a class
    /// that this thread does not take.
    pub fn flush(&self, tag: Tag, block: usize, central: &Central, spans: &Spans, budget: &Budget) {
        let _guard = self.lock.lock();
        self.visit();
        let (class, place) = (tag.class(), self.bin_of(tag));
        if tag.shard() != self.shard() && central.is_inherited(tag.shard()) {
            return central.put_unwritten(spans, class, block);
        }
        if place != class {
            self.return_to_shard(tag.shard());
        }
        let bin = &self.bins[place];
        bin.open();
        let mut list = bin.list();
        let is_unwanted = place == class && !bin.is_wanted();
        let is_enough = is_unwanted && bin.capacity.get() >= demand::enough_unwanted(class);
        if list.count >= bin.capacity.get() && (is_enough || self.grow(place, spans, budget) != Growth::Grown)
        {
            // Before the list is walked: whoever finds a mistake there ends the process, and a handler of SIGABRT allocates.
            bin.replace(Magazine::EMPTY);
            // Only what the budget paid for is kept as a spare.
            let capacity = bin.capacity.get();
            if place != class {
                central.store_foreign(spans, tag.shard(), class, list);
            } else if is_unwanted {
                let is_passed_on = central.store_unwanted(spans, self.shard(), tag.shard(), class, list);
                if bin.note_sent(is_passed_on) {
                    self.grow(place, spans, budget);
                }
            } else if capacity > size_class::magazine_min(class) && !spans.is_releasing_alone() {
                let spare = Magazine::unpack(self.spares[class].get());
                let kept = central.store_either(spans, self.shard(), class, spare, list);
                self.spares[class].set(kept.pack());
            } else {
                central.store(spans, self.shard(), class, list);
            }
            let is_foreign = place == class && tag.shard() != self.shard();
            if is_foreign && capacity >= demand::enough_unwanted(class) {
                bin.note_foreign();
            }
            list = Magazine::EMPTY;
            if capacity == 0 {
                // SAFETY: the caller gave the block up.
                unsafe { magazine::set_next(block, 0) };
                central.store(spans, tag.shard(), class, Magazine { head: block, count: 1 });
                return;
            }
        }
        // SAFETY: the caller gave the block up.
        unsafe { magazine::set_next(block, list.head) };
        bin.replace(Magazine { head: block, count: list.count + 1 });
        bin.fetch_next();
    }

    /// Makes an empty cache ready for a thread. Before it has an owner.
    fn prepare(&self) {
        for bin in 1..BINS {
            self.bins[bin].capacity.set(size_class::magazine_min(class_of_bin(bin)));
            self.bins[bin].replace(Magazine::EMPTY);
        }
    }

    /// Gives everything back. By the owner, or when there is none. Returns the small blocks that it held.
    fn empty(&self, home: Home, budget: &Budget, to_slabs: bool) -> usize {
        let _guard = self.lock.lock();
        let Home { central, spans, .. } = home;
        self.give_large(home, budget);
        let mut blocks = 0;
        for bin in 1..BINS {
            let class = class_of_bin(bin);
            self.bins[bin].open();
            let list = self.bins[bin].list();
            self.shrink(bin, budget);
            self.bins[bin].replace(Magazine::EMPTY);
            for magazine in [list, self.take_spare(bin)] {
                blocks += magazine.count as usize;
                if to_slabs {
                    central.return_to_slabs(spans, class, magazine);
                } else {
                    central.store(spans, spans.map.shard_of_block(magazine.head), class, magazine);
                }
            }
        }
        blocks
    }

    /// The spare of a bin, if it has one. Under the cache's lock.
    fn has_spare(&self, bin: usize) -> bool {
        self.spares.get(bin).is_some_and(|spare| spare.get() != 0)
    }

    fn take_spare(&self, bin: usize) -> Magazine {
        let Some(spare) = self.spares.get(bin) else { return Magazine::EMPTY };
        let magazine = Magazine::unpack(spare.get());
        spare.set(0);
        magazine
    }

    /// The owner comes to the slow path. Under the lock.
    #[inline]
    fn visit(&self) {
        self.visits.set(self.visits.get().wrapping_add(1));
    }

    /// Returns whether its owner was not in the slow path since the last call. Under the registry's lock.
    fn poll_idle(&self) -> bool {
        let visits = self.visits.get();
        let was_idle = self.visits_seen.get() == visits;
        self.visits_seen.set(visits);
        was_idle
    }

    /// Blocks held per class: in the list and in the spare. Exact only for the owner.
    pub fn held(&self, class: usize) -> u32 {
        let listed = |bin: usize| {
            let bin = &self.bins[bin];
            // ORDERING: Relaxed; a statistic.
            let gated = bin.head.load(Ordering::Relaxed) <= GATE;
            if gated { 0 } else { (bin.capacity() - bin.room.load(Ordering::Relaxed)).max(0) as u32 }
        };
        let foreign = if foreign_bin(class) == class { 0 } else { listed(foreign_bin(class)) };
        listed(class) + foreign + Magazine::unpack(self.spares[class].get()).count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::MaybeUninit;

    const SHARD: usize = 5;
    static GATED: ThreadCache = ThreadCache::gated(SHARD);

    #[test]
    fn lists_hold_less_than_14_kib_outside_the_budget() {
        let bytes = (1..BINS).map(class_of_bin);
        let bytes: usize =
            bytes.map(|class| size_class::magazine_min(class) as usize * size_class::size(class)).sum();
        assert!((13 << 10..14 << 10).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_list_that_a_fork_gates_in_the_middle_of_a_slow_path_is_as_empty_as_before() {
        let cache = ThreadCache::gated(SHARD);
        cache.prepare();
        cache.leave_shard_for(SHARD + 1);
        let bin = &cache.bins[foreign_bin(1)];
        assert_eq!((bin.head.load(Ordering::Relaxed), bin.list()), (GATE, Magazine::EMPTY));
    }

    #[test]
    fn one_made_of_zeroed_memory_is_one_that_is_gated() {
        let mut made = MaybeUninit::<ThreadCache>::zeroed();
        // SAFETY: zeroed, and ours.
        unsafe { ThreadCache::make_gated(made.as_mut_ptr(), SHARD) };
        // SAFETY: bytes of a static, and of what was zeroed before anything was written into it.
        let bytes_of = |cache: *const ThreadCache| unsafe { *cache.cast::<[u8; size_of::<ThreadCache>()]>() };
        assert!(bytes_of(made.as_ptr()) == bytes_of(&GATED));
    }
}
