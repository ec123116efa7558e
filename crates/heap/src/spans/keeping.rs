//! Free spans that are no part of the span heap for a while: what shards keep ([`super::large`]: for large blocks), and what is at hand in
//! a process of one thread.

use super::kept::{Batch, Kept};
use super::{RECENT, Spans};
use crate::granule::{GRANULE_BYTES, Span};
use crate::lock::Lock;
use crate::os;
use crate::page_map::{Hint32, PageMap, Record, State};
use crate::span_heap::SpanHeap;
use core::sync::atomic::Ordering;

/// What one shard keeps.
#[repr(align(64))]
pub struct KeptByShard {
    pub spans: Lock<Kept>,
    /// How much that is. Synchronization: written under the lock.
    pub granules: Hint32,
}

impl KeptByShard {
    /// No span.
    pub const fn new() -> Self {
        Self { spans: Lock::new(Kept::new()), granules: Hint32::new(0) }
    }

    /// Does something with the spans.
    #[inline]
    fn with<R>(&self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let mut spans = self.spans.lock();
        let result = act(&mut spans);
        self.granules.set(spans.granules);
        result
    }
}

impl Spans {
    /// What a shard keeps, which comes into use by this.
    #[inline]
    pub(super) fn kept_by(&self, shard: usize) -> &KeptByShard {
        let kept = &self.kept[shard];
        // ORDERING: Acquire pairs with the Release in `open_shard`: who finds it in use has seen what whoever opened it saw.
        if shard >= usize::from(self.shards_used.load(Ordering::Acquire)) {
            self.open_shard(shard, kept);
        }
        kept
    }

    #[cold]
    fn open_shard(&self, shard: usize, kept: &KeptByShard) {
        let _opening = self.opening.lock();
        // ORDERING: Relaxed load; writers take turns. The Release pairs with the Acquire in `kept_by`.
        let used = self.shards_used.load(Ordering::Relaxed);
        self.shards_used.store(used.max(shard as u8 + 1), Ordering::Release);
        // Writes, changing nothing: a page that is read first is faulted in twice.
        drop(kept.spans.lock());
    }

    /// How many shards are in use: all that keep any, or have books, are below.
    pub fn shards(&self) -> usize {
        // ORDERING: Relaxed; a bound to visit all. Who must not miss any that keeps held `opening` before.
        usize::from(self.shards_used.load(Ordering::Relaxed))
    }

    pub(super) fn shards_in_use(&self) -> &[KeptByShard] {
        &self.kept[..self.shards()]
    }

    /// Takes a span for a slab of a shard, of memory that may have pages: what the shard keeps, free spans, what others keep.
    pub fn take_used_for(&self, shard: usize, granules: u32) -> Option<u32> {
        if !self.keeps() {
            return None;
        }
        let own = self.take_kept_by(self.kept_by(shard), granules);
        if own.is_some() {
            return own;
        }
        let take_free = || self.take_used(shard, granules, 1).map(|taken| taken.first);
        let take_others = || self.from(shard).find_map(|shard| self.take_kept_by(shard, granules));
        // Others may be cut, or join.
        take_free().or_else(take_others).or_else(|| self.return_kept_until(shard, take_free))
    }

    /// Granules in slabs and large blocks, without what shards keep: that serves whoever needs memory next.
    pub fn in_use(&self) -> u32 {
        self.used().saturating_sub(self.kept_granules())
    }

    /// How much shards and their depot keep.
    pub(super) fn kept_granules(&self) -> u32 {
        let shards: u32 = self.shards_in_use().iter().map(|shard| shard.granules.get()).sum();
        shards + self.depot.granules()
    }

    /// What shards keep, that of one first, then in their order: so that not all meet at the same.
    pub(super) fn from(&self, shard: usize) -> impl Iterator<Item = &KeptByShard> {
        self.kept_by(shard);
        let (before, behind) = self.shards_in_use().split_at(shard);
        behind.iter().chain(before)
    }

    fn take_kept_by(&self, shard: &KeptByShard, granules: u32) -> Option<u32> {
        if shard.granules.get() < granules { None } else { shard.with(|kept| kept.pop(&self.map, granules)) }
    }

    /// Gives the span of a shard's slab back.
    pub fn give_for(&self, shard: usize, first: u32, granules: u32) {
        if !(self.keeps() && self.keep(shard, first, granules)) {
            self.give(first, granules, false);
        }
    }

    /// Does something under the lock of what a shard keeps.
    #[inline]
    pub fn in_shard<R>(&self, shard: usize, act: impl FnOnce(&mut Kept) -> R) -> R {
        self.kept_by(shard).with(act)
    }

    /// Gives spans back that a shard kept, under its lock for the same reason.
    pub(super) fn give_batch(&self, mut batch: Batch) {
        let now = os::now_ns();
        while batch.count > 0 {
            let place = self.heap_of(batch.head);
            self.with_in(place, now, |heap, map| {
                while batch.count > 0 && self.heap_of(batch.head) == place {
                    if let Some(Span { first, granules }) = batch.pop(map) {
                        heap.give(map, first, granules, false, now);
                    }
                }
            });
        }
    }

    fn keep(&self, shard: usize, first: u32, granules: u32) -> bool {
        self.kept_by(shard).with(|kept| {
            // Who ends the keeping takes this lock afterwards.
            let keeps = self.keeps();
            if keeps {
                kept.push(&self.map, first, granules);
            }
            keeps
        })
    }

    /// Whether shards keep spans, and threads what they may need again: there is a purger who takes back what they do not, and nobody
    /// said otherwise (a purge mode, a trace).
    pub fn keeps(&self) -> bool {
        // ORDERING: Relaxed; where it matters a lock orders it.
        self.keeps.load(Ordering::Relaxed)
    }

    /// Whether a thread may list so many granules more of large blocks that it keeps: there is a purger, or it is the only one, and they would
    /// be held.
    pub fn may_list(&self, granules: u32) -> bool {
        self.keeps() || self.recent.would_hold(granules)
    }

    /// Says how many bytes threads list. Whether that is more than would be held, where the only thread has them and no purger looks.
    #[inline]
    pub fn note_listed(&self, bytes: usize) -> bool {
        if !os::is_single_threaded() || self.keeps() {
            return false;
        }
        self.recent.set_listed((bytes / GRANULE_BYTES) as u32);
        bytes > 0 && self.recent.is_too_much()
    }

    /// Whether shards may keep any.
    pub(super) fn has_kept(&self) -> bool {
        self.keeps() || self.recent.has_shelved()
    }

    /// Purges, with the next batch, what shards keep and did not need since the last call. Returns whether they keep more.
    pub fn return_unused(&self) -> bool {
        let rests = self.give_rests(usize::MAX);
        let now = os::now_ns();
        let is_left = self.with(now, |heap, map| {
            if let Some(rest) = heap.huge_page.take_unneeded() {
                heap.give_unused(map, rest, now);
            }
            heap.huge_page.rest() > 0
        });
        self.end_round(|Span { first, granules }| self.give_unused(first, granules)) > 0 || is_left || rests
    }

    /// As [`Spans::give`], of what nobody needed for long: it is purged with the next batch.
    pub fn give_unused(&self, first: u32, granules: u32) {
        let now = os::now_ns();
        let give = |heap: &mut SpanHeap, map: &PageMap| heap.give_unused(map, Span { first, granules }, now);
        self.with_in(self.heap_of(first), now, give);
    }

    /// Takes from the shards what they did not need since the last call, and gives it away under their locks for the same reason. Returns
    /// the granules that they keep.
    fn end_round(&self, give: impl Fn(Span)) -> u32 {
        let mut left = 0;
        for shard in self.shards_in_use().iter().filter(|shard| shard.granules.get() > 0) {
            while shard.with(|kept| kept.pop_unused(&self.map).map(&give)).is_some() {}
            shard.with(Kept::begin_round);
            left += shard.granules.get();
        }
        self.depot
            .end_round(&self.map, |mut batch| core::iter::from_fn(|| batch.pop(&self.map)).for_each(&give));
        left + self.depot.granules()
    }

    /// Gives back what shards keep.
    pub(super) fn return_kept(&self) {
        let by_shards = || self.shards_in_use().iter().for_each(|shard| _ = self.return_kept_by(shard));
        by_shards();
        while self.return_of_depot() {}
        // What a shard had taken out meanwhile.
        by_shards();
        self.recent.set_shelved(0);
    }

    /// Gives back what shards keep, one by one from `shard` on, and the depot, until `take` finds what it wants.
    pub(super) fn return_kept_until<T>(&self, shard: usize, take: impl Fn() -> Option<T>) -> Option<T> {
        let by_shard = |shard| self.return_kept_by(shard).then(&take).flatten();
        let mut shards = self.from(shard);
        let of_own = shards.next().and_then(by_shard);
        if !self.keeps() {
            // The only thread's shard alone has any.
            self.recent.set_shelved(0);
            return of_own;
        }
        let of_depot = || core::iter::from_fn(|| self.return_of_depot().then(&take)).flatten().next();
        of_own.or_else(of_depot).or_else(|| shards.find_map(by_shard))
    }

    /// Gives back what one shard keeps; false if that is nothing.
    pub(super) fn return_kept_by(&self, shard: &KeptByShard) -> bool {
        let any = shard.granules.get() > 0;
        if any {
            while shard.with(|kept| kept.pop_any(&self.map).map(|batch| self.give_batch(batch))).is_some() {}
        }
        any
    }

    /// Gives back a batch of the depot; false if it has none.
    fn return_of_depot(&self) -> bool {
        self.depot.give_any(&self.map, |batch| self.give_batch(batch))
    }

    /// Keeps the span of a large block at hand in this place, in a process of one thread; false if it would not be held, or another is.
    #[inline(always)]
    pub fn keep_recent(&self, place: usize, first: u32, record: &Record) -> bool {
        self.recent.keep(place, first, record)
    }

    /// Takes the span that is kept at hand in this place, if it still is; its record's state is the taker's to set.
    #[inline(always)]
    pub fn take_recent(&self, place: usize) -> Option<u32> {
        self.recent.take(place).map(|span| span.first)
    }

    #[inline(never)]
    pub(super) fn give_recent(&self, heap: &mut SpanHeap, now: u64) {
        for Span { first, granules } in (0..RECENT).filter_map(|place| self.recent.take(place)) {
            self.map.record(first).set_state(State::Interior);
            match self.heap_of(first) {
                0 => heap.give(&self.map, first, granules, false, now),
                place => {
                    let mut heap = self.heap_at(place).lock();
                    heap.give(&self.map, first, granules, false, now);
                    self.tell(place, &mut heap);
                }
            }
        }
    }

    pub(super) fn return_recent(&self) {
        // Whoever takes the lock through `with` gives it back.
        self.with(os::now_ns(), |_, _| ());
    }

    /// Makes what is at hand part of what the shard keeps, in a process of one thread: it is found by its length there.
    #[inline]
    pub fn shelve_recent(&self, shard: usize) {
        if self.recent.has_any() && os::is_single_threaded() {
            (0..RECENT).filter_map(|place| self.recent.take(place)).for_each(|span| self.shelve(shard, span));
        }
    }

    #[inline(never)]
    fn shelve(&self, shard: usize, span: Span) {
        self.map.record(span.first).set_state(State::Interior);
        if !self.in_shard(shard, |kept| self.keep_large(kept, span)) {
            self.give(span.first, span.granules, false);
        }
    }

    /// Ends a slow path where something is at hand, or was: gives back what is too much, or nobody wanted for a round.
    #[inline(never)]
    pub(super) fn settle_recent(&self) {
        if !os::is_single_threaded() || self.recent.is_too_much() {
            self.return_recent();
            self.return_kept();
        } else if self.recent.end_visit() {
            if self.recent.begin_round() {
                self.return_recent();
            }
            let left = self.end_round(|Span { first, granules }| self.give(first, granules, false));
            self.recent.set_shelved(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHARDS;
    use super::*;
    use crate::span_heap::{PurgeMode, huge_page};

    /// Spans with a purger, three of one granule each that shards 0 and 1 keep and that is free, with used ones between.
    fn kept_and_free() -> (Spans, [u32; 3]) {
        let spans = Spans::new();
        spans.set_purger(true);
        let take = || spans.take(0, 1, 1, false).unwrap().first;
        let [by_0, _, by_1, _, free, _] = std::array::from_fn(|_| take());
        spans.give_for(0, by_0, 1);
        spans.give_for(1, by_1, 1);
        spans.give(free, 1, false);
        (spans, [by_0, by_1, free])
    }

    #[test]
    fn a_slab_is_made_of_what_its_shard_kept_then_of_what_is_free_then_of_what_others_keep() {
        let (spans, [by_0, by_1, free]) = kept_and_free();
        let taken = std::array::from_fn(|_| spans.take_used_for(1, 1));
        assert_eq!(taken, [Some(by_1), Some(free), Some(by_0), None]);
    }

    #[test]
    fn what_is_kept_or_waits_is_left_until_a_round_in_which_nobody_needs_it() {
        let (spans, _) = kept_and_free();
        assert!(spans.has_waiting());
        assert_eq!([spans.return_unused(), spans.return_unused()], [true, false]);
        assert_eq!((spans.counts().used, spans.used()), (3, 3));
        let first = spans.take(0, huge_page::GRANULES, 1, true).unwrap().first;
        spans.heap.lock().huge_page.set(first);
        assert_eq!((spans.counts().used, spans.used()), (3, 3 + huge_page::GRANULES));
        assert_eq!([spans.return_unused(), spans.return_unused()], [true, false]);
        assert_eq!(spans.used(), 3);
    }

    #[test]
    fn who_forks_or_runs_out_of_memory_waits_for_what_nobody_needed_on_its_way() {
        let (spans, [by_0, by_1, _]) = kept_and_free();
        let given = std::cell::RefCell::new(Vec::new());
        let give = |span: Span| {
            let is_held = |shard: usize| spans.kept[shard].spans.try_lock().is_none();
            given.borrow_mut().push((span.first, [0, 1].map(is_held)));
        };
        assert_eq!([spans.end_round(give), spans.end_round(give)], [2, 0]);
        assert_eq!(given.into_inner(), [(by_0, [true, false]), (by_1, [false, true])]);
    }

    #[test]
    fn shards_that_nobody_uses_are_not_locked_by_a_fork_and_those_that_come_into_use_in_it_are_free_after_it()
    {
        let (spans, _) = kept_and_free();
        let is_held = |shard: usize| spans.kept[shard].spans.try_lock().is_none();
        spans.hold_for_fork();
        assert_eq!((spans.shards(), [0, 1, 2].map(is_held)), (2, [true, true, false]));
        // SAFETY: one guard at a time, and the fork ends before anything is released.
        unsafe { crate::lock::begin_fork() };
        spans.in_shard(4, |_| ());
        crate::lock::end_fork();
        spans.release_after_fork();
        assert_eq!((spans.shards(), [0, 1, 4].map(is_held)), (5, [false; 3]));
        spans.in_shard(5, |_| ());
        assert_eq!(spans.shards(), 6);
    }

    #[test]
    fn what_a_shard_keeps_that_comes_into_use_late_goes_when_the_keeping_ends() {
        let spans = Spans::new();
        spans.set_purger(true);
        let first = spans.take(0, 1, 1, false).unwrap().first;
        spans.give_for(SHARDS - 1, first, 1);
        assert_eq!((spans.shards(), spans.counts().dirty, spans.used()), (SHARDS, 1, 1));
        spans.set_purger(false);
        assert_eq!((spans.counts().used, spans.used()), (0, 0));
    }

    #[test]
    fn nothing_is_kept_where_memory_goes_back_at_once_or_only_when_asked() {
        for (mode, keeps) in [(PurgeMode::Auto, true), (PurgeMode::Now, false), (PurgeMode::Never, false)] {
            let spans = Spans::new();
            spans.set_mode(mode);
            spans.set_purger(true);
            assert_eq!(spans.keeps(), keeps, "{mode:?}");
        }
    }

    #[test]
    fn who_comes_to_keep_a_span_when_the_keeping_has_just_ended_keeps_none() {
        let spans = Spans::new();
        let first = spans.take(0, 1, 1, false).unwrap().first;
        spans.set_purger(true);
        spans.set_purger(false);
        assert!(!spans.keep(0, first, 1));
        assert_eq!(spans.kept[0].granules.get(), 0);
    }
}
