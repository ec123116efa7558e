//! Central: the blocks that no thread cache holds. Per shard and size class, the slabs with free blocks, and magazines in
//! transit between threads. There are three shards a CPU, and each thread keeps to one, so that what it frees is not where others
//! look first. A slab stays with the shard that made it, unless another has nothing and this one much: then it moves.
//!
//! SYNCHRONIZATION: a stack lock and a slab lock ("class lock") per shard and class, one lock for the number of shards. Order:
//! number, [where slabs changed](changed), stack, class, spans; no two of one rank are held at once, except for a fork, and by who moves a
//! slab: the lower shard's first. Whose a slab is may be read without a lock by who has a block of it, and is read again under that shard's
//! lock.

mod changed;
mod fetching;
mod gone;
mod idle;
mod inherited;
mod sharing;
mod slabs;
mod spread;
mod stack;
mod transit;

use crate::lock::Lock;
use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::page_map::{Hint32, HintSize, PageMap};
use crate::size_class::{self, CLASSES};
use crate::slab::HomeSlabs;
use crate::spans::{SHARDS, Spans};
use changed::Changed;
use core::mem::offset_of;
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use gone::Gone;
use inherited::Inherited;
use slabs::Slabs;
use spread::Spread;
use stack::Stack;
use transit::{Regime, Transit, is_in_order};

/// Magazines of excess that go home at a time before memory without pages is used.
const RECLAIMED: u32 = 16;

/// A shard's bytes go into the sum of all when they have changed by this much: one line less that all CPUs write.
const OUT_BATCH: isize = 32 * 1024;

/// The blocks of a heap that no thread holds.
#[repr(C)]
pub struct Central {
    /// Shards with an index below this were ever used. Synchronization: written under `opening`.
    shards_used: AtomicUsize,
    /// Held while a shard comes into use, and across a fork.
    opening: Lock<()>,
    /// Bytes of blocks that are not in their slabs, but for what the shards have not added yet; and the most there ever were.
    out_bytes: AtomicIsize,
    out_bytes_peak: AtomicUsize,
    spread: Spread,
    inherited: Inherited,
    shards: [Shard; SHARDS],
    /// By class, what went to the kernel of its slabs. Behind all that each process writes.
    gone: Gone,
    /// Where slabs changed.
    changed: Changed,
}

/// What some threads share.
#[repr(align(64))]
struct Shard {
    stacks: [Lock<Stack>; CLASSES],
    slabs: [Lock<Slabs>; CLASSES],
    /// Magazines in the stacks. Synchronization: written under the stack lock.
    stacked: [Hint32; CLASSES],
    /// How many there may be.
    transit: Transit,
    /// Free blocks in the slabs. Synchronization: written under the class lock.
    free_blocks: [HintSize; CLASSES],
    /// Part of `out_bytes` not yet added to it.
    out_bytes: AtomicIsize,
}

/// Slabs and blocks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Slabs.
    pub slabs: usize,
    /// Free blocks in their slabs.
    pub free_blocks: usize,
    /// Free blocks in magazines in transit.
    pub transit_blocks: usize,
}

impl Central {
    /// Where the first shard ends, which each process writes.
    pub const FIRST_SHARD_END: usize = offset_of!(Self, shards) + size_of::<Shard>();

    /// No blocks.
    pub const fn new() -> Self {
        Self {
            shards: [const { Shard::new() }; SHARDS],
            shards_used: AtomicUsize::new(0),
            opening: Lock::new(()),
            out_bytes: AtomicIsize::new(0),
            out_bytes_peak: AtomicUsize::new(0),
            spread: Spread::new(),
            inherited: Inherited::new(),
            gone: Gone::new(),
            changed: Changed::new(),
        }
    }

    fn shard(&self, index: usize) -> &Shard {
        let shard = &self.shards[index];
        // ORDERING: Relaxed; the bound is only read to visit all shards, whose parts have locks of their own.
        if index >= self.shards_used.load(Ordering::Relaxed) {
            self.open_shard(index, shard);
        }
        shard
    }

    #[cold]
    fn open_shard(&self, index: usize, shard: &Shard) {
        let _opening = self.opening.lock();
        // ORDERING: Relaxed, as in `shard`; the lock makes writers take turns.
        let used = self.shards_used.load(Ordering::Relaxed);
        self.shards_used.store(used.max(index + 1), Ordering::Relaxed);
        // Writes, changing nothing: a page that is read first is faulted in twice. ORDERING: Relaxed; a statistic.
        _ = shard.out_bytes.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn shards_in_use(&self) -> &[Shard] {
        // ORDERING: Relaxed, as in `shard`.
        &self.shards[..self.shards_used.load(Ordering::Relaxed)]
    }

    /// Sends magazines home that a shard has in transit beyond the usual; false if there are none. Those of others are left to them
    /// until a purger sends them home: shards that all work would take memory from each other for ever.
    fn reclaim(&self, spans: &Spans, own: usize) -> bool {
        let shard = self.shard(own);
        let Some((class, excess)) = shard.transit.excess(shard) else { return false };
        self.send_home::<false>(spans, shard, class, excess.min(RECLAIMED));
        true
    }

    /// Returns so many magazines in transit, which are not needed there, to their slabs. `IDLE`: and were not for long.
    fn send_home<const IDLE: bool>(&self, spans: &Spans, shard: &Shard, class: usize, magazines: u32) {
        shard.transit.note_unneeded(class, magazines);
        for _ in 0..magazines {
            let Some(magazine) = shard.pop(spans, class) else { break };
            self.put_back::<IDLE>(spans, class, magazine);
        }
    }

    /// Notes that `bytes` more are out of their slabs.
    fn note_out(&self, shard: &Shard, bytes: isize) {
        // ORDERING: Relaxed, here and below; statistics.
        let own = shard.out_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if own.abs() < OUT_BATCH {
            return;
        }
        let own = shard.out_bytes.swap(0, Ordering::Relaxed);
        let all = self.out_bytes.fetch_add(own, Ordering::Relaxed) + own;
        self.note_peak(all);
    }

    fn note_peak(&self, bytes: isize) {
        let bytes = usize::try_from(bytes).unwrap_or(0);
        // ORDERING: Relaxed; a statistic.
        if bytes > self.out_bytes_peak.load(Ordering::Relaxed) {
            self.out_bytes_peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Takes a magazine over. It is passed on as it is, by the shard `own`, or its blocks go back to their slabs.
    pub fn store(&self, spans: &Spans, own: usize, class: usize, magazine: Magazine) {
        self.store_from(spans, own, class, magazine, false);
    }

    /// As [`Central::store`], of blocks of the shard `home` that a thread of another freed.
    pub fn store_foreign(&self, spans: &Spans, home: usize, class: usize, magazine: Magazine) {
        self.store_from(spans, home, class, magazine, true);
    }

    /// As [`Central::store`], of what a thread of the shard `own` freed that takes no such blocks: the shard `home`, whose blocks they most
    /// likely are, has the first place. False if their blocks went back to their slabs.
    pub fn store_unwanted(
        &self,
        spans: &Spans,
        own: usize,
        home: usize,
        class: usize,
        magazine: Magazine,
    ) -> bool {
        if magazine.is_empty() || self.pass_on(spans, home, class, magazine, own != home) {
            return true;
        }
        self.send_back(spans, home, class, magazine);
        false
    }

    fn store_from(&self, spans: &Spans, own: usize, class: usize, magazine: Magazine, is_foreign: bool) {
        if !magazine.is_empty() && !self.pass_on(spans, own, class, magazine, is_foreign) {
            self.send_back(spans, own, class, magazine);
        }
    }

    /// Takes over one of two magazines, and returns the other: `older` where that is passed on as it is, else `newer`, whose links the
    /// CPU's cache still has, and which are walked then.
    pub fn store_either(
        &self,
        spans: &Spans,
        own: usize,
        class: usize,
        older: Magazine,
        newer: Magazine,
    ) -> Magazine {
        if older.is_empty() || self.pass_on(spans, own, class, older, false) {
            return newer;
        }
        self.send_back(spans, own, class, newer);
        older
    }

    /// Keeps a magazine in transit in a shard; false where that has as many as it may.
    fn pass_on(&self, spans: &Spans, own: usize, class: usize, magazine: Magazine, is_foreign: bool) -> bool {
        let (shard, regime) = (self.shard(own), regime(spans));
        let transit = &shard.transit;
        transit.note_arrival(class, is_foreign);
        if shard.push(class, magazine, transit.most(regime, class, is_foreign)) {
            return true;
        }
        let most = transit.most_in_order(regime, class);
        shard.stacked[class].get() < most
            && is_in_order(&spans.map, class, magazine, is_foreign)
            && shard.push(class, magazine, most)
    }

    /// Puts the blocks of a magazine back that found no place in transit in the shard `own`, and of another if that may have fewer from now
    /// on. Blocks that belong to another shard may have a place there, where they are wanted: who only frees what others make would send
    /// each of them to its slab, and who makes them would take each from there.
    fn send_back(&self, spans: &Spans, own: usize, class: usize, magazine: Magazine) {
        let (shard, regime) = (self.shard(own), regime(spans));
        shard.transit.note_sent_home(regime, class, magazine);
        spans.note_traffic();
        while regime != Regime::WithPurger
            && shard.stacked[class].get() > shard.transit.most(regime, class, false)
            && let Some(other) = shard.pop(spans, class)
        {
            shard.transit.note_taken_home(class);
            self.return_to_slabs(spans, class, other);
        }
        let home = spans.map.shard_of_block(magazine.head);
        if home == own {
            self.return_to_slabs(spans, class, magazine);
        } else {
            self.store_foreign(spans, home, class, magazine);
        }
    }

    /// Puts every block of a magazine back into its slab, and empty slabs back into the span heap.
    pub fn return_to_slabs(&self, spans: &Spans, class: usize, magazine: Magazine) {
        self.put_back::<false>(spans, class, magazine);
    }

    /// As [`Central::return_to_slabs`], of what nobody needed for long: the spans of slabs that are empty then go with the next batch.
    pub fn return_idle_to_slabs(&self, spans: &Spans, class: usize, magazine: Magazine) {
        self.put_back::<true>(spans, class, magazine);
    }

    fn put_back<const IDLE: bool>(&self, spans: &Spans, class: usize, magazine: Magazine) {
        let rest = self.put_blocks::<IDLE>(spans, class, magazine);
        if rest != 0 {
            misuse(Misuse::CorruptedFreeList, rest);
        }
    }

    /// Puts so many blocks of a list back into their slabs; what the link of the last holds is returned.
    fn put_blocks<const IDLE: bool>(&self, spans: &Spans, class: usize, magazine: Magazine) -> usize {
        let homes = HomeSlabs::new(&spans.map, class);
        let (mut block, mut left) = (magazine.head, magazine.count);
        while left > 0 {
            let (mut slab, mut index) = homes.find(block);
            let home = slab.shard();
            let shard = &self.shards[home];
            let before = left;
            let mut slabs = shard.slabs[class].lock();
            while slab.shard() == home {
                // SAFETY: `find` found this block; those behind it in the list are looked at as they come.
                let next = unsafe { magazine::next(block) };
                let (put, rest) = if homes.may_hold(slab, next) {
                    // SAFETY: as above.
                    unsafe { homes.put_run(slab, (block, index), left) }
                } else {
                    // SAFETY: as above.
                    unsafe { homes.put_one(slab, block, index) };
                    (1, next)
                };
                if slab.unsettle() {
                    self.changed.note(slab.first);
                }
                slabs.note_put::<IDLE>(spans, slab, class, put);
                (block, left) = (rest, left - put);
                if left == 0 {
                    break;
                }
                (slab, index) = homes.find(block);
            }
            shard.free_blocks[class].set(slabs.free_blocks);
            drop(slabs);
            self.note_out(shard, -(((before - left) as usize * size_class::size(class)) as isize));
        }
        block
    }

    /// Returns all magazines in transit to their slabs.
    pub fn return_transit(&self, spans: &Spans) {
        for shard in self.shards_in_use() {
            for class in 1..CLASSES {
                while let Some(magazine) = shard.pop(spans, class) {
                    self.return_to_slabs(spans, class, magazine);
                }
            }
        }
    }

    /// Whether any magazine is in transit.
    pub fn has_transit(&self) -> bool {
        let mut stacks = self.shards_in_use().iter().flat_map(|shard| &shard.stacks);
        stacks.any(|stack| stack.lock().magazines > 0)
    }

    /// Slabs and free blocks of a class.
    pub fn counts(&self, map: &PageMap, class: usize) -> ClassCounts {
        let mut counts = ClassCounts::default();
        for shard in self.shards_in_use() {
            counts.transit_blocks += shard.stacks[class].lock().blocks(map);
            let slabs = shard.slabs[class].lock();
            counts.slabs += slabs.count as usize;
            counts.free_blocks += slabs.free_blocks;
        }
        counts
    }

    /// Whether no lock is held for good that [counts](Self::counts) are made under.
    pub fn can_be_counted(&self) -> bool {
        self.shards_in_use().iter().all(|shard| {
            shard.stacks.iter().all(Lock::comes_free) && shard.slabs.iter().all(Lock::comes_free)
        })
    }

    /// The most bytes of blocks that ever were out of their slabs: in use, in a thread's cache, or in transit. Less than that by at most
    /// 32 KiB a shard.
    pub fn out_bytes_peak(&self) -> usize {
        // ORDERING: Relaxed; statistics.
        let own =
            self.shards_in_use().iter().map(|shard| shard.out_bytes.load(Ordering::Relaxed)).sum::<isize>();
        self.note_peak(self.out_bytes.load(Ordering::Relaxed) + own);
        self.out_bytes_peak.load(Ordering::Relaxed)
    }

    /// Takes every lock in use for the time of a fork; no shard comes into use meanwhile, except by this thread. Returns how many
    /// shards that were.
    pub fn hold_for_fork(&self) -> usize {
        self.opening.hold_for_fork();
        self.changed.hold_for_fork();
        let shards = self.shards_in_use();
        shards.iter().flat_map(|shard| &shard.stacks).for_each(Lock::hold_for_fork);
        shards.iter().flat_map(|shard| &shard.slabs).for_each(Lock::hold_for_fork);
        shards.len()
    }

    /// The other half of [`Central::hold_for_fork`], which held `shards` shards.
    pub fn release_after_fork(&self, shards: usize) {
        let shards = &self.shards[..shards];
        shards.iter().flat_map(|shard| &shard.slabs).for_each(Lock::release_after_fork);
        shards.iter().flat_map(|shard| &shard.stacks).for_each(Lock::release_after_fork);
        self.changed.release_after_fork();
        self.opening.release_after_fork();
    }
}

impl Default for Central {
    fn default() -> Self {
        Self::new()
    }
}

/// What decides how many magazines may be in transit.
fn regime(spans: &Spans) -> Regime {
    if spans.keeps() {
        Regime::WithPurger
    } else if spans.is_releasing_alone() {
        Regime::Releasing
    } else {
        Regime::Usual
    }
}

impl Shard {
    const fn new() -> Self {
        Self {
            stacks: [const { Lock::new(Stack::new()) }; CLASSES],
            slabs: [const { Lock::new(Slabs::new()) }; CLASSES],
            stacked: [const { Hint32::new(0) }; CLASSES],
            transit: Transit::new(),
            free_blocks: [const { HintSize::new(0) }; CLASSES],
            out_bytes: AtomicIsize::new(0),
        }
    }

    /// Puts a magazine into transit unless `most` are.
    fn push(&self, class: usize, magazine: Magazine, most: u32) -> bool {
        if self.stacked[class].get() >= most {
            return false;
        }
        let mut stack = self.stacks[class].lock();
        let fits = stack.magazines < most;
        if fits {
            stack.push(magazine);
            self.stacked[class].set(stack.magazines);
            self.transit.note_stored(class, stack.magazines);
        }
        fits
    }

    fn pop(&self, spans: &Spans, class: usize) -> Option<Magazine> {
        if self.stacked[class].get() == 0 {
            return None;
        }
        let mut stack = self.stacks[class].lock();
        let magazine = stack.pop(&spans.map, class);
        self.stacked[class].set(stack.magazines);
        magazine
    }
}

#[cfg(test)]
mod tests;
