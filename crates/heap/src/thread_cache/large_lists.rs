//! A thread's lists of the large blocks that it freed and will allocate again, one for each length of their spans: what is in them takes
//! no lock and writes no line that others write, where what a shard keeps takes its lock twice.
//!
//! Revocable as the lists of small blocks, by the protocol of [`super`]; but the links are in the spans' records, and nothing is written
//! into the blocks, which may have no pages. A list grows by one where more blocks of one size than it can hold were missed one after the
//! other, is paid for from the budget, and is given back when idle or unused: who frees a large block now and then keeps none, and who has
//! few of many sizes does better with what was freed last, whatever its length, than with a span of each (docs/choices.md).

use super::{Bin, Budget, GATE, Home, ThreadCache};
use crate::granule::{Span, bytes_of};
use crate::large::{KEPT_LONGEST, Live, Told, Turns};
use crate::magazine::Magazine;
use crate::page_map::{Guarded32, GuardedSize, PageMap, State};
use crate::size_class::SMALL_MAX;
use core::sync::atomic::Ordering;

/// Lists, the first of which is not used.
pub const LENGTHS: usize = KEPT_LONGEST as usize + 1;
/// Granules that one list may hold: 2 MiB.
const LIST_GRANULES: u32 = 32;
/// Operations in the slow path, or blocks that were not found, after which it is looked whether the lists are of use.
const OLD: u32 = 64;
/// A list is of use if each block that it may hold is taken once for so many that are not found, other than of one size in a row.
const WORTH_PART: u32 = 8;

/// The lists of a thread that asked for two large blocks of one size one after the other. Blocks in them count as live in the books of large
/// blocks, which hear of turns by and by.
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

/// Blocks that a thread asked for and did not find in its lists.
///
/// SYNCHRONIZATION: that thread only.
pub struct Missed {
    /// Since it was last looked whether the lists are of use.
    count: Guarded32,
    /// The last ones in a row that were of one size.
    alike: Guarded32,
    /// Their bytes.
    bytes: GuardedSize,
}

impl Missed {
    /// None.
    pub const fn new() -> Self {
        Self { count: Guarded32::new(0), alike: Guarded32::new(0), bytes: GuardedSize::new(0) }
    }

    /// One of so many bytes.
    fn note(&self, bytes: usize) {
        let is_first = self.bytes.get() != bytes;
        self.bytes.set(bytes);
        self.count.set(self.count.get().saturating_add(1));
        self.alike.set(if is_first { 1 } else { self.alike.get().saturating_add(1) });
    }

    /// Whether a block of so many bytes was missed once, and once more for each that its list can hold.
    fn is_worth_more(&self, bytes: usize, list: &List) -> bool {
        self.bytes.get() == bytes && self.alike.get() >= list.bin.capacity.get() + 2
    }

    /// How many that were not among the last ones of one size.
    fn unlike(&self) -> u32 {
        self.count.get().saturating_sub(self.alike.get())
    }
}

/// Blocks whose spans are equally long.
struct List {
    /// Its head is the first granule of a span; its capacity is paid for.
    bin: Bin,
    /// Blocks taken since the last look. Synchronization: owner only.
    taken: Guarded32,
}

impl List {
    /// Takes the one that was kept last. By the owner.
    #[inline(always)]
    fn take<'map>(&self, map: &'map PageMap) -> Option<Live<'map>> {
        let mut block = None;
        self.bin.pop(|first| {
            let record = map.record(first as u32);
            block = Some(Live::new(first as u32, record));
            record.prev.get() as usize
        });
        let block = block?;
        self.taken.set(self.taken.get().saturating_add(1));
        Some(block)
    }

    /// Keeps the span that begins there, of which the page map says that it is kept; false if there is no room for it. By the owner.
    #[inline(always)]
    fn keep(&self, first: u32, map: &PageMap) -> bool {
        let is_full = self.bin.count_down();
        self.bin.push(is_full, first as usize, |next| map.record(first).prev.set(next as u32))
    }

    /// Whether it may hold one more, of so many granules.
    fn may_grow(&self, granules: u32, budget: &Budget) -> bool {
        let more = self.bin.capacity.get() + 1;
        (more == 1 || more * granules <= LIST_GRANULES) && budget.has_large(bytes_of(granules))
    }

    /// Makes room for one more, of so many granules, if it is to be had. Under the cache's lock, by the owner.
    fn grow(&self, granules: u32, home: Home, budget: &Budget) -> bool {
        // Who ends the keeping looks at this cache afterwards, or this thread calls it back.
        let grows = home.spans.may_list(granules) && budget.take_large(bytes_of(granules));
        if grows {
            let list = self.bin.list();
            self.bin.capacity.set(self.bin.capacity.get() + 1);
            self.bin.replace(list);
        }
        grows
    }

    /// Whether each block that it may hold was taken so often since the last look that this is worth its memory, where so many of many sizes
    /// were not found in any list. Counts anew.
    fn poll_use(&self, missed: u32) -> bool {
        let taken = self.taken.get();
        self.taken.set(0);
        taken > self.bin.capacity.get().saturating_mul(missed) / WORTH_PART
    }

    /// Takes its room away, where it is empty or revoked. Under the cache's lock.
    fn shrink(&self, granules: u32, budget: &Budget) {
        budget.give_large(bytes_of(granules * self.bin.capacity.get()));
        self.bin.capacity.set(0);
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

    /// Empties all that are `useless`, which then have no room: what was in them is `given`. Under the cache's lock, by the owner, or when
    /// there is none.
    fn empty(&self, budget: &Budget, useless: impl Fn(&List) -> bool, given: impl Fn(Magazine)) {
        for (granules, list) in self.all().filter(|(_, list)| useless(list)) {
            given(list.empty(granules, budget));
        }
    }
}

impl ThreadCache {
    /// The lists, once there are any.
    #[inline(always)]
    pub fn large_lists(&self) -> Option<&LargeLists> {
        // ORDERING: Acquire pairs with the Release in `make_large_lists`.
        let lists = self.large.load(Ordering::Acquire);
        // SAFETY: null or lists, which live as long as the process.
        unsafe { lists.as_ref() }
    }

    /// Makes lists of zeroed memory; null: there is none, so the thread may want them later. By the owner.
    pub fn make_large_lists(&self, lists: *mut LargeLists) {
        // ORDERING: Release publishes that it is zeroed.
        self.large.store(lists, Ordering::Release);
        if let Some(lists) = self.large_lists() {
            lists.looked_at.set(self.visits.get());
        }
        self.missed_large.count.set(0);
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

    /// A block of so many bytes was asked for that the lists do not have; without lists, whether it had better have some. By the owner.
    pub fn note_missed_large(&self, bytes: usize) -> bool {
        self.missed_large.note(bytes);
        self.large_lists().is_none() && self.missed_large.alike.get() > 1
    }

    /// Whether a list had better grow by this block, and may as far as the budget goes; by the owner.
    pub fn wants_large(&self, block: Live, budget: &Budget) -> bool {
        self.growing_list(block, budget).is_some()
    }

    /// The list that had better grow by this block, and its span.
    fn growing_list(&self, block: Live, budget: &Budget) -> Option<(&List, Span)> {
        let (lists, span) = (self.large_lists()?, block.kept_span()?);
        let list = lists.list(span.granules);
        let grows =
            self.missed_large.is_worth_more(block.bytes(), list) && list.may_grow(span.granules, budget);
        grows.then_some((list, span))
    }

    /// Keeps a block after [`ThreadCache::keep_large`] found no room, if some is worth making. By the owner.
    pub fn keep_more_large(&self, block: Live, home: Home, budget: &Budget) -> bool {
        // Before the lock is taken for nothing.
        let Some((list, Span { first, granules })) = self.growing_list(block, budget) else { return false };
        let _guard = self.lock.lock();
        self.visit();
        list.bin.open();
        let grows = list.grow(granules, home, budget);
        if grows {
            let (kept, record) = (list.bin.list(), home.spans.map.record(first));
            record.set_state(State::Cached);
            record.prev.set(kept.head as u32);
            list.bin.replace(Magazine { head: first as usize, count: kept.count + 1 });
            home.spans.note_listed(budget.large_bytes());
        }
        grows
    }

    /// Sees from time to time whether the lists are of use: gives those back that were not since the last time, and tells the books what
    /// became of the blocks. By the owner.
    #[inline]
    pub fn look_at_large(&self, home: Home, budget: &Budget) {
        if let Some(lists) = self.large_lists() {
            let is_too_much = home.spans.note_listed(budget.large_bytes());
            if is_too_much || self.is_time_to_look(lists) || lists.turns.are_many() {
                self.look_at(lists, is_too_much, home, budget);
                home.spans.note_listed(budget.large_bytes());
            }
        }
    }

    fn is_time_to_look(&self, lists: &LargeLists) -> bool {
        self.visits.get().wrapping_sub(lists.looked_at.get()) >= OLD || self.missed_large.count.get() >= OLD
    }

    #[cold]
    fn look_at(&self, lists: &LargeLists, is_too_much: bool, home: Home, budget: &Budget) {
        let _guard = self.lock.lock();
        if is_too_much {
            self.give_large(home, budget);
            return;
        }
        home.large.settle_turns(home.spans, self.shard(), &lists.turns);
        if !self.is_time_to_look(lists) {
            return;
        }
        lists.looked_at.set(self.visits.get());
        let unlike = self.missed_large.unlike();
        lists.empty(budget, |list| !list.poll_use(unlike), |list| self.free_list(list, home));
        self.missed_large.count.set(0);
    }

    fn free_list(&self, list: Magazine, home: Home) {
        home.large.give_back(home.spans, self.shard(), list, false);
    }

    /// Gives all of them back. Under the lock, by the owner, or when there is none.
    pub(super) fn give_large(&self, home: Home, budget: &Budget) {
        let Some(lists) = self.large_lists() else { return };
        home.large.settle_turns(home.spans, self.shard(), &lists.turns);
        lists.empty(budget, |_| true, |list| self.free_list(list, home));
        self.missed_large.alike.set(0);
    }

    /// Makes the lists of a thread that is gone empty; what was in them is lost. In a forked child.
    pub(super) fn forget_large(&self, budget: &Budget) {
        if let Some(lists) = self.large_lists() {
            lists.empty(budget, |_| true, |_| ());
        }
        self.missed_large.alike.set(0);
    }

    /// What the books were not told of its turns.
    pub fn untold_turns(&self) -> impl Iterator<Item = Told> {
        self.large_lists().into_iter().flat_map(|lists| lists.turns.each())
    }

    /// Calls `visit` with the bytes of each block in the lists, and the granules of its span. As exact as a statistic is while the owner goes
    /// on.
    pub fn each_large(&self, map: &PageMap, mut visit: impl FnMut(usize, u32)) {
        for (granules, list) in self.large_lists().into_iter().flat_map(LargeLists::all) {
            let mut next = list.first();
            for _ in 0..list.bin.capacity.get() {
                let Some(block) = listed(next, granules, map) else { break };
                visit(block.bytes, granules);
                next = block.next;
            }
        }
    }

    /// Whether there is any.
    pub fn has_large(&self) -> bool {
        self.large_lists().is_some_and(|lists| lists.all().any(|(_, list)| list.first() != 0))
    }
}

/// What is known of a block in a list.
struct Listed {
    bytes: usize,
    /// First granule of the span of the next one; 0 for none.
    next: u32,
}

/// A block in a list of spans of so many granules, as far as its record says so. The list may not be ours, and by now be anything; records
/// stay readable.
fn listed(first: u32, granules: u32, map: &PageMap) -> Option<Listed> {
    if first == 0 {
        return None;
    }
    let record = map.record(first);
    let (bytes, next) = (record.as_cached()?.bytes(), record.prev.get());
    let is_one = record.granules.get() == granules && bytes > SMALL_MAX && bytes <= bytes_of(granules);
    is_one.then_some(Listed { bytes, next })
}

/// Length of a list of spans of so many granules, if it is one of at most `most`.
pub fn walk(list: usize, granules: u32, most: u32, map: &PageMap) -> Option<u32> {
    let (mut next, mut length) = (list as u32, 0);
    while next != 0 {
        if length >= most {
            return None;
        }
        next = listed(next, granules, map)?.next;
        length += 1;
    }
    Some(length)
}

#[cfg(test)]
mod tests;
