//! A thread's lists of the large blocks that it freed and will allocate again, one for each length of their spans: what is in them takes
//! no lock and writes no line that others write, where what a shard keeps takes its lock twice.
//!
//! Revocable as the lists of small blocks, by the protocol of [`super`]; but the links are in the spans' records, and nothing is written
//! into the blocks, which may have no pages. A list grows by one where blocks of its length were missed more often than it can hold, is
//! paid for from the budget, and is given back when idle or unused: who frees a large block now and then keeps none.

use super::{Bin, Budget, GATE, Home, ThreadCache};
use crate::granule::{Span, bytes_of};
use crate::large::{KEPT_LONGEST, Live, Told, Turns};
use crate::magazine::Magazine;
use crate::page_map::{Guarded8, Guarded32, PageMap, State};
use core::sync::atomic::{Ordering, compiler_fence};

/// Lists, the first of which is not used.
pub const LENGTHS: usize = KEPT_LONGEST as usize + 1;
/// Granules that one list may hold: 2 MiB.
const LIST_GRANULES: u32 = 32;
/// Blocks that a thread without lists asked for before they are made for it.
const FIRST_MISSES: u8 = 2;
/// Operations in the slow path without a block taken from a list after which it is given back.
const OLD: u32 = 64;

/// The lists of a thread that has several large blocks in its life. Blocks in them count as live in the books of large blocks, which hear
/// of turns by and by.
///
/// Zeroed memory is lists without room.
#[repr(align(64))]
pub struct LargeLists {
    /// By length in granules.
    lists: [List; LENGTHS],
    /// The cache's `visits` when the owner last looked whether they are of use. Synchronization: the cache's lock.
    looked_at: Guarded32,
    /// What became of the blocks that were taken. Synchronization: written by the owner; others read it as a statistic.
    turns: Turns,
}

/// Blocks whose spans are equally long.
struct List {
    /// Its head is the first granule of a span; its capacity is paid for.
    bin: Bin,
    /// Blocks that were not found since the last look. Synchronization: owner only.
    missed: Guarded8,
    /// 1: one was taken since the last look. Synchronization: owner only.
    is_used: Guarded8,
}

impl List {
    /// Takes the one that was kept last. By the owner.
    #[inline(always)]
    fn take<'map>(&self, map: &'map PageMap) -> Option<Live<'map>> {
        let bin = &self.bin;
        // ORDERING: Relaxed and the fences, as in `ThreadCache::pop`.
        let room = bin.room.load(Ordering::Relaxed);
        bin.room.store(room.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let first = bin.head.load(Ordering::Relaxed);
        if first <= GATE {
            bin.room.store(room, Ordering::Relaxed);
            return None;
        }
        let record = map.record(first as u32);
        bin.head.store(record.prev.get() as usize, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.is_used.set(1);
        Some(Live::new(first as u32, record))
    }

    /// Keeps the span that begins there, of which the page map says that it is kept; false if there is no room for it. By the owner.
    #[inline(always)]
    fn keep(&self, first: u32, map: &PageMap) -> bool {
        let bin = &self.bin;
        // ORDERING: as above.
        let room = bin.room.load(Ordering::Relaxed);
        bin.room.store(room.wrapping_sub(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let head = bin.head.load(Ordering::Relaxed);
        if room <= 0 || head == GATE {
            bin.room.store(room, Ordering::Relaxed);
            return false;
        }
        map.record(first).prev.set(head as u32);
        compiler_fence(Ordering::SeqCst);
        bin.head.store(first as usize, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        true
    }

    /// Whether more were missed than it can hold.
    fn is_short(&self) -> bool {
        u32::from(self.missed.get()) > self.bin.capacity.get()
    }

    /// Makes room for one more, of so many granules, if that seems of use. Under the cache's lock, by the owner.
    fn grow(&self, granules: u32, home: Home, budget: &Budget) -> bool {
        let more = self.bin.capacity.get() + 1;
        // Who ends the keeping looks at this cache afterwards, or this thread calls it back.
        let grows = self.is_short()
            && (more == 1 || more * granules <= LIST_GRANULES)
            && home.spans.keeps()
            && budget.take_large(bytes_of(granules));
        if grows {
            let list = self.bin.list();
            self.bin.capacity.set(more);
            self.bin.replace(list);
        }
        grows
    }

    /// Takes its room away, where it is empty or revoked. Under the cache's lock.
    fn shrink(&self, granules: u32, budget: &Budget) {
        budget.give_large(bytes_of(granules * self.bin.capacity.get()));
        self.bin.capacity.set(0);
    }

    /// Takes out so many at most, and the room for them. Under the cache's lock, by the owner.
    fn give(&self, granules: u32, most: u32, map: &PageMap, budget: &Budget) -> Magazine {
        self.bin.open();
        let list = self.bin.list();
        let (given, mut rest) = (list.count.min(most), list);
        for _ in 0..given {
            rest = Magazine { head: map.record(rest.head as u32).prev.get() as usize, count: rest.count - 1 };
        }
        budget.give_large(bytes_of(granules * given));
        self.bin.capacity.set(self.bin.capacity.get() - given);
        self.bin.replace(rest);
        Magazine { head: list.head, count: given }
    }

    /// Takes what is in it, and its room. Under the cache's lock, by the owner, or when there is none.
    fn empty(&self, granules: u32, budget: &Budget) -> Magazine {
        self.bin.open();
        let list = self.bin.list();
        self.shrink(granules, budget);
        self.bin.replace(Magazine::EMPTY);
        list
    }

    /// The first in it, 0 for none, for who does not own it.
    fn first(&self) -> u32 {
        // ORDERING: Relaxed; a statistic.
        match self.bin.head.load(Ordering::Relaxed) {
            ..=GATE => 0,
            first => first as u32,
        }
    }
}

impl LargeLists {
    fn list(&self, granules: u32) -> &List {
        &self.lists[granules as usize]
    }

    /// All that are used, and their lengths.
    fn all(&self) -> impl Iterator<Item = (u32, &List)> {
        (0..).zip(&self.lists).skip(1)
    }

    /// The list of spans of so many granules, for a revoker.
    pub fn bin(&self, granules: u32) -> &Bin {
        &self.list(granules).bin
    }

    /// A revoker took what was in the list of such spans. Under the cache's lock.
    pub fn shrink(&self, granules: u32, budget: &Budget) {
        self.list(granules).shrink(granules, budget);
    }

    /// Makes the lists of a thread that is gone empty; what was in them is lost. Under the cache's lock.
    pub fn forget(&self, budget: &Budget) {
        for (granules, list) in self.all() {
            list.empty(granules, budget);
            list.missed.set(0);
        }
    }
}

impl ThreadCache {
    /// The lists, once there are any.
    #[inline(always)]
    pub fn large_lists(&self) -> Option<&LargeLists> {
        // ORDERING: Acquire pairs with the Release in `set_large_lists`.
        let lists = self.large.load(Ordering::Acquire);
        // SAFETY: null or lists, which live as long as the process.
        unsafe { lists.as_ref() }
    }

    /// Whether its thread had better have lists. By the owner.
    pub fn wants_large_lists(&self) -> bool {
        self.missed_large.get() >= FIRST_MISSES && self.large_lists().is_none()
    }

    /// Zeroed memory for them; null: there is none, so it may want them later. By the owner.
    pub fn set_large_lists(&self, lists: *mut LargeLists) {
        self.missed_large.set(0);
        // ORDERING: Release publishes that it is zeroed.
        self.large.store(lists, Ordering::Release);
    }

    /// Takes a block whose span has so many granules, and makes it one of so many bytes and this alignment; 0: there is none.
    ///
    /// # Safety
    /// This thread owns the cache, or the cache is [`ThreadCache::gated`].
    #[inline(always)]
    pub unsafe fn take_large(&self, granules: u32, bytes: usize, align: usize, home: Home) -> usize {
        let Some(lists) = self.large_lists() else { return 0 };
        match lists.list(granules).take(&home.spans.map) {
            Some(block) => home.large.allocate_kept(home.spans, block, bytes, align, &lists.turns),
            None => 0,
        }
    }

    /// Keeps a block, by its span, for [`ThreadCache::take_large`]; false if there is no room for it.
    ///
    /// # Safety
    /// This thread owns the cache (or the cache is gated) and the block, of which the page map says that it is kept.
    #[inline(always)]
    pub unsafe fn keep_large(&self, Span { first, granules }: Span, map: &PageMap) -> bool {
        self.large_lists().is_some_and(|lists| lists.list(granules).keep(first, map))
    }

    /// A block was wanted whose span has so many granules, and none was found. By the owner.
    pub fn note_missed_large(&self, granules: u32) {
        let missed = match self.large_lists() {
            Some(lists) => &lists.list(granules).missed,
            None => &self.missed_large,
        };
        missed.set(missed.get().saturating_add(1));
    }

    /// Keeps a block after [`ThreadCache::keep_large`] found no room, if some is worth making. By the owner, in a process with threads.
    pub fn keep_more_large(&self, Span { first, granules }: Span, home: Home, budget: &Budget) -> bool {
        let Some(lists) = self.large_lists() else { return false };
        let list = lists.list(granules);
        // Before the lock is taken for nothing.
        if !list.is_short() {
            return false;
        }
        let _guard = self.lock.lock();
        self.visit();
        list.bin.open();
        let grows = list.grow(granules, home, budget);
        if grows {
            let (kept, record) = (list.bin.list(), home.spans.map.record(first));
            record.set_state(State::Kept);
            record.prev.set(kept.head as u32);
            list.bin.replace(Magazine { head: first as usize, count: kept.count + 1 });
        }
        grows
    }

    /// Sees from time to time whether the lists are of use: gives those back that were not since the last time, and tells the books what
    /// became of the blocks. By the owner.
    #[inline]
    pub fn look_at_large(&self, home: Home, budget: &Budget) {
        if let Some(lists) = self.large_lists()
            && (self.is_time_to_look(lists) || lists.turns.are_many())
        {
            self.look_at(lists, home, budget);
        }
    }

    fn is_time_to_look(&self, lists: &LargeLists) -> bool {
        self.visits.get().wrapping_sub(lists.looked_at.get()) >= OLD
    }

    #[cold]
    fn look_at(&self, lists: &LargeLists, home: Home, budget: &Budget) {
        let _guard = self.lock.lock();
        home.large.settle_turns(home.spans, self.shard(), &lists.turns);
        if !self.is_time_to_look(lists) {
            return;
        }
        lists.looked_at.set(self.visits.get());
        for (granules, list) in lists.all() {
            if list.is_used.get() == 0 {
                home.large.give_back(home.spans, self.shard(), list.empty(granules, budget));
            }
            list.is_used.set(0);
            list.missed.set(0);
        }
    }

    /// Gives all of them back. Under the lock, by the owner, or when there is none.
    pub(super) fn give_large(&self, home: Home, budget: &Budget) {
        let Some(lists) = self.large_lists() else { return };
        home.large.settle_turns(home.spans, self.shard(), &lists.turns);
        for (granules, list) in lists.all() {
            home.large.give_back(home.spans, self.shard(), list.empty(granules, budget));
            list.missed.set(0);
        }
    }

    /// Gives something back for a block of so many granules for which no memory with pages was found: one that is longer, to be cut, or all
    /// of the longest that are shorter, whose neighbours may be free. False: there is nothing. By the owner.
    #[cold]
    pub fn give_large_for(&self, granules: u32, home: Home, budget: &Budget) -> bool {
        let Some(lists) = self.large_lists() else { return false };
        let has_any = |&(_, list): &(u32, &List)| list.first() != 0;
        let longer = lists.all().find(|found| found.0 > granules && has_any(found));
        let shorter = || lists.all().take_while(|found| found.0 < granules).filter(has_any).last();
        let Some((length, list)) = longer.or_else(shorter) else { return false };
        let _guard = self.lock.lock();
        let most = if longer.is_some() { 1 } else { u32::MAX };
        let given = list.give(length, most, &home.spans.map, budget);
        home.large.give_back(home.spans, self.shard(), given);
        given.count > 0
    }

    /// What the books were not told of its turns.
    pub fn untold_turns(&self) -> impl Iterator<Item = Told> {
        self.large_lists().into_iter().flat_map(|lists| lists.turns.each())
    }

    /// Calls `visit` with the bytes of each block in the lists, and the granules of its span. As exact as a statistic is while the owner goes
    /// on.
    pub fn each_large(&self, map: &PageMap, mut visit: impl FnMut(usize, u32)) {
        for (granules, list) in self.large_lists().into_iter().flat_map(LargeLists::all) {
            let mut first = list.first();
            for _ in 0..list.bin.capacity.get() {
                // Records stay readable, whatever becomes of their spans.
                let Some(block) = (first != 0).then(|| map.record(first).as_kept()).flatten() else { break };
                visit(block.bytes(), granules);
                first = map.record(first).prev.get();
            }
        }
    }

    /// Whether there is any.
    pub fn has_large(&self) -> bool {
        self.large_lists().is_some_and(|lists| lists.all().any(|(_, list)| list.first() != 0))
    }
}

/// Length of a list of spans of so many granules, if it is one of at most `most`. The list may not be ours; records stay readable.
pub fn walk(list: usize, granules: u32, most: u32, map: &PageMap) -> Option<u32> {
    let (mut first, mut length) = (list as u32, 0);
    while first != 0 {
        let record = map.record(first);
        if length >= most || record.state() != State::Kept || record.granules.get() != granules {
            return None;
        }
        length += 1;
        first = record.prev.get();
    }
    Some(length)
}

#[cfg(test)]
mod tests;
