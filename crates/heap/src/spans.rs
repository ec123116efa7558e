//! The span heaps, each behind its lock: with their page map, the clock, the purging that happens outside the locks, and the spans that
//! shards keep.

mod depot;
mod gathering;
mod heaps;
mod huge;
mod keeping;
pub mod kept;
mod large;
mod recent;
mod rests;
mod traffic;

use crate::decay;
use crate::granule::Span;
use crate::lock::Lock;
use crate::os;
use crate::page_map::{Hint32, PageMap, State};
use crate::span_heap::{Due, PURGE_BATCH, PurgeMode, Purges, SpanCounts, SpanHeap, Taken};
use crate::trace::Event;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use depot::Depot;
pub use gathering::Gathered;
pub use heaps::UsedOfAll;
use heaps::{HEAPS, Told};
use keeping::KeptByShard;
use kept::SLAB_LONGEST;
pub use recent::PLACES as RECENT;
use recent::Recent;
use rests::Rests;
use traffic::Traffic;

/// Most shards; threads beyond share them.
pub const SHARDS: usize = 64;

/// Spans purged in one round between two takings of the lock.
const ROUND: usize = 16;
/// Rounds after which a thread among others leaves the rest to whoever comes next; otherwise one would purge for all.
const ROUNDS_AMONG_OTHERS: usize = 4;

/// What a purge is to reach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// What is due.
    Due,
    /// What is due, even less than a batch.
    DueOrFew,
    /// Every free span.
    All,
}

/// All spans of a heap.
#[repr(C)]
pub struct Spans {
    /// Spans that come and go between shards.
    depot: Depot,
    /// Spans that shards keep, while there is a purger; of large blocks also what a process of one thread freed last.
    kept: [KeptByShard; SHARDS],
    /// Span heaps beside the first, in a process with threads.
    others: [Lock<SpanHeap>; HEAPS - 1],
    /// What each tells others, but for `first_paged`.
    told: [Told; HEAPS],
    heap: Lock<SpanHeap>,
    /// What every granule is.
    pub map: PageMap,
    /// Large blocks that became smaller and left pages around them.
    rests: Lock<Rests>,
    /// Held while a huge page is brought in, in no list.
    populating: Lock<()>,
    /// Held while pages of free spans are moved to a block, and these are in no list: a fork and a thread that runs out of memory wait for
    /// them.
    gathering: Lock<()>,
    /// Held while spans are on their way to the kernel, in no list: a fork and a thread that runs out of memory wait for them.
    purging: Lock<()>,
    /// Bit `i`: something of heap `i` is to be purged; whoever leaves a slow path does it.
    due: AtomicU32,
    /// Nothing speaks for holding memory at present.
    is_releasing: AtomicBool,
    /// Whether there is a record of what becomes of spans.
    is_traced: AtomicBool,
    /// Whether there is a purger, so that all shards keep some. Synchronization: read under the lock of who wants to keep one.
    keeps: AtomicBool,
    /// Whether a move of page tables lost its target: a limit of the process refuses moves, and would take a span each time.
    pub loses_targets: AtomicBool,
    /// Granules of the first heap that may have pages, up to `heaps::WORTH_GRANULES`.
    first_paged: Hint32,
    /// How often threads go to what they share while there is no purger.
    traffic: Traffic,
    /// Span heaps in use beside the first.
    more_heaps: AtomicU8,
    /// Shards with an index below this ever kept any, or counted large blocks. Synchronization: written under `opening`.
    shards_used: AtomicU8,
    /// Held while a shard comes into use, and across a fork.
    opening: Lock<()>,
    /// What was freed last, in a process of one thread.
    recent: Recent,
    /// What is in use of all span heaps, where there are several.
    used: UsedOfAll,
}

impl Spans {
    /// No memory yet.
    pub const fn new() -> Self {
        Self {
            map: PageMap::new(),
            heap: Lock::new(SpanHeap::new()),
            rests: Lock::new(Rests::new()),
            populating: Lock::new(()),
            gathering: Lock::new(()),
            purging: Lock::new(()),
            due: AtomicU32::new(0),
            is_releasing: AtomicBool::new(false),
            is_traced: AtomicBool::new(false),
            depot: Depot::new(),
            kept: [const { KeptByShard::new() }; SHARDS],
            others: [const { Lock::new(SpanHeap::new()) }; HEAPS - 1],
            told: [const { Told::new() }; HEAPS],
            loses_targets: AtomicBool::new(false),
            first_paged: Hint32::new(0),
            traffic: Traffic::new(),
            more_heaps: AtomicU8::new(0),
            shards_used: AtomicU8::new(0),
            opening: Lock::new(()),
            keeps: AtomicBool::new(false),
            recent: Recent::new(),
            used: UsedOfAll::new(),
        }
    }

    /// Takes a span for a thread of this shard, see [`SpanHeap::take`]; what shards keep before fresh memory. Purges everything and tries
    /// again before it gives up.
    pub fn take(&self, shard: usize, granules: u32, align: u32, prefer_clean: bool) -> Option<Taken> {
        let used = if !prefer_clean && (self.has_kept() || self.heaps() > 1) {
            self.take_used_or_kept(shard, granules, align)
        } else {
            None
        };
        used.or_else(|| self.take_any(shard, granules, align, prefer_clean))
    }

    /// Takes a span of memory that may have pages, of what shards keep, too: they give back as much as it takes, this one first.
    fn take_used_or_kept(&self, shard: usize, granules: u32, align: u32) -> Option<Taken> {
        let take = || self.take_used(shard, granules, align);
        take().or_else(|| self.return_kept_until(shard, take))
    }

    /// Takes a span for a block that grows, see [`SpanHeap::take_to_grow`].
    pub fn take_to_grow(&self, shard: usize, granules: u32) -> Option<Taken> {
        let now = os::now_ns();
        self.with_in(self.heap_of_shard(shard), now, |heap, map| heap.take_to_grow(map, granules, now))
    }

    /// Takes `more` granules directly behind a used span of this shard's thread: what the shard keeps, what is free, see
    /// [`SpanHeap::take_behind`].
    pub fn take_behind(&self, shard: usize, span: Span, more: u32) -> Option<Taken> {
        let (end, wanted) = (span.first + span.granules, span.granules + more);
        let is_kept = || end < self.map.reservation.limit() && self.map.record(end).state() == State::Kept;
        let is_short = wanted <= SLAB_LONGEST && self.keeps();
        if is_kept() && self.keeps() {
            let taken = self.take_kept_behind(shard, span, more);
            // To copy so little takes less than to give back what the shard keeps, so that it joins.
            if taken.is_some() || is_short {
                return taken;
            }
        }
        let (place, now) = (self.heap_of(span.first), os::now_ns());
        let keeps_as_much = is_short && self.kept_by(shard).granules.get() >= wanted;
        let take =
            || self.with_in(place, now, |heap, map| heap.take_behind(map, span, more, keeps_as_much, now));
        take().or_else(|| (is_kept() && self.return_kept_by(self.kept_by(shard))).then(take).flatten())
    }

    /// Gives a span back. `zero`: it reads as zero and holds no pages.
    pub fn give(&self, first: u32, granules: u32, zero: bool) {
        let now = os::now_ns();
        self.with_in(self.heap_of(first), now, |heap, map| heap.give(map, first, granules, zero, now));
    }

    /// As [`Spans::with_in`], the first heap.
    fn with<R>(&self, now: u64, act: impl FnOnce(&mut SpanHeap, &PageMap) -> R) -> R {
        self.with_in(0, now, act)
    }

    /// Does something with a span heap.
    fn with_in<R>(&self, place: usize, now: u64, act: impl FnOnce(&mut SpanHeap, &PageMap) -> R) -> R {
        if place > 0 && self.recent.has_any() {
            self.return_recent();
        }
        let mut heap = self.heap_at(place).lock();
        if place == 0 && self.recent.has_any() {
            self.give_recent(&mut heap, now);
        }
        let result = act(&mut heap, &self.map);
        self.tell(place, &mut heap);
        let is_releasing = heap.mode == PurgeMode::Auto && heap.decay.is_releasing();
        if os::is_single_threaded() {
            self.recent.set_most(heap.most_held());
        }
        if heap.decay.has_purger() {
            self.recent.set_waits(false);
        } else if heap.waiting() > 0 {
            self.recent.set_waits(true);
        }
        // ORDERING: Relaxed; a hint. Read first: a line that all threads read is written only when it changes.
        if self.is_releasing.load(Ordering::Relaxed) != is_releasing {
            self.is_releasing.store(is_releasing, Ordering::Relaxed);
        }
        if heap.is_due(&self.map, false, now) {
            self.note_due(place);
        }
        result
    }

    /// Something of a heap is to be purged.
    fn note_due(&self, place: usize) {
        // ORDERING: Relaxed; only a hint to come and look, under the lock. Read first, as above.
        if self.due.load(Ordering::Relaxed) & 1 << place == 0 {
            self.due.fetch_or(1 << place, Ordering::Relaxed);
        }
    }

    /// Purges what is due. Called where no lock is held, at the end of every slow path.
    #[inline]
    pub fn settle(&self) {
        if self.recent.has_any() || self.recent.has_shelved() {
            self.settle_recent();
        }
        if self.recent.is_time_to_look() {
            self.look_at_waiting();
        }
        // ORDERING: Relaxed; a hint, see `note_due`.
        if self.due.load(Ordering::Relaxed) != 0 {
            self.purge_due();
        }
    }

    /// Sees to it that what waits goes when its time has come, where there is no purger.
    #[cold]
    fn look_at_waiting(&self) {
        let mut waits = self.give_rests(usize::MAX);
        for (place, heap) in self.each_heap() {
            waits |= heap.waiting() > 0 && !heap.decay.has_purger();
            if heap.is_due(&self.map, false, os::now_ns()) {
                self.note_due(place);
            }
        }
        self.recent.set_waits(waits);
    }

    #[cold]
    fn purge_due(&self) {
        // Who purges now sees what is due, too.
        let Some(_purging) = self.purging.try_lock() else { return };
        // ORDERING: Relaxed; a hint, see `note_due`.
        let due = self.due.swap(0, Ordering::Relaxed);
        for place in (0..self.heaps()).filter(|place| due & 1 << place != 0) {
            self.purge_rounds_of(place, Which::Due);
        }
    }

    /// Purges all whose time has come, also where it is little. Returns whether anything else waits for its time.
    pub fn purge_idle(&self) -> bool {
        {
            let _purging = self.purging.lock();
            self.purge_rounds(Which::DueOrFew);
        }
        self.has_waiting()
    }

    /// Whether any free span waits for its time.
    pub fn has_waiting(&self) -> bool {
        self.waiting() > 0
    }

    fn waiting(&self) -> u32 {
        self.each_heap().map(|(_, heap)| heap.waiting()).sum()
    }

    /// Purges every free span if they are worth a purge. Whether they were.
    pub fn purge_batch(&self) -> bool {
        self.waiting() >= PURGE_BATCH && self.purge_all() > 0
    }

    /// Purges every free span, whatever `decay` says. Returns the bytes given back.
    pub fn purge_all(&self) -> usize {
        self.return_kept();
        self.return_recent();
        // Who runs out of memory also waits for pieces on their way to a block.
        drop(self.gathering.lock());
        let _purging = self.purging.lock();
        self.purge_rounds(Which::All)
    }

    /// As [`Spans::purge_all`], for who asks for it (`malloc_trim`): also what the kernel refused to take before.
    pub fn trim(&self) -> usize {
        self.each_heap().for_each(|(_, mut heap)| heap.ask_again(&self.map));
        self.give_all_rests() + self.purge_all()
    }

    fn purge_rounds(&self, which: Which) -> usize {
        (0..self.heaps()).map(|place| self.purge_rounds_of(place, which)).sum()
    }

    fn purge_rounds_of(&self, place: usize, which: Which) -> usize {
        let mut purged_granules = 0;
        for round in 0.. {
            if which == Which::Due && round == ROUNDS_AMONG_OTHERS && !os::is_single_threaded() {
                self.note_due(place);
                break;
            }
            let mut due = [Due::NONE; ROUND];
            let count = {
                let now = os::now_ns();
                let mut heap = self.heap_at(place).lock();
                if which != Which::All && !heap.is_due(&self.map, which == Which::DueOrFew, now) {
                    break;
                }
                heap.take_due(&self.map, which == Which::All, now, &mut due)
            };
            if count == 0 {
                break;
            }
            let mut done = [false; ROUND];
            for (span, done) in due[..count].iter().zip(&mut done) {
                *done = span.purge(&self.map);
            }
            let mut heap = self.heap_at(place).lock();
            for (span, done) in due.into_iter().zip(done).take(count) {
                purged_granules += if done { span.granules() as usize } else { 0 };
                heap.purged(&self.map, span, done);
            }
            self.tell(place, &mut heap);
        }
        purged_granules * crate::granule::GRANULE_BYTES
    }

    /// Whether nothing speaks for holding memory at present; a hint.
    pub fn is_releasing(&self) -> bool {
        // ORDERING: Relaxed; a hint.
        self.is_releasing.load(Ordering::Relaxed)
    }

    /// The same in a process of one thread: then blocks that no slab knows to be free keep pages for nobody's use.
    pub fn is_releasing_alone(&self) -> bool {
        self.is_releasing() && os::is_single_threaded()
    }

    /// When free memory is given back.
    pub fn mode(&self) -> PurgeMode {
        self.heap.lock().mode
    }

    /// Pages of partly used slabs were purged, for nothing speaks for holding memory.
    pub fn slab_pages_purged(&self, purges: Purges) {
        let now = os::now_ns();
        self.with(now, |heap, _| heap.slab_pages_purged(purges, now));
    }

    /// Pages of blocks or partly used slabs were purged whatever speaks for holding memory: `decay` does not hear of it.
    pub fn count_purges(&self, purges: Purges) {
        if purges != Purges::NONE {
            self.heap.lock().counts.purges.add(purges);
        }
    }

    /// As [`PageMap::purge`], of pages that are the caller's, and counts it.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn purge(&self, address: usize, bytes: usize) -> bool {
        // SAFETY: the caller's contract is the same.
        let is_done = unsafe { self.map.purge(address, bytes) };
        let mut purges = Purges::NONE;
        purges.note(bytes, is_done);
        self.count_purges(purges);
        is_done
    }

    /// Purged pages of slabs, so many bytes, were wanted again.
    pub fn slab_pages_wanted(&self, bytes: usize) {
        let now = os::now_ns();
        self.with(now, |heap, _| heap.slab_pages_wanted(bytes, now));
    }

    /// Says whether there is a purger from now on: somebody who calls [`Spans::return_unused`] and [`Spans::purge_idle`] again and again.
    pub fn set_purger(&self, has_purger: bool) {
        let now = os::now_ns();
        self.each_heap().for_each(|(_, mut heap)| heap.decay.set_purger(has_purger));
        let keeps = self.with(now, |heap, _| {
            let event = if has_purger { Event::PurgerStarts } else { Event::PurgerEnds };
            heap.trace.record(event, 0, heap.counts.used, now);
            // A record is to show all that happens.
            has_purger && heap.mode == PurgeMode::Auto && !heap.trace.is_on()
        });
        // ORDERING: Relaxed; the locks that are taken below order it.
        self.keeps.store(keeps, Ordering::Relaxed);
        self.traffic.forget();
        // What the shard of the thread that was alone keeps is the purger's to give back.
        self.recent.set_shelved(0);
        if !keeps {
            // Whatever shard comes into use from now on reads that none keeps.
            drop(self.opening.lock());
            self.shards_in_use().iter().for_each(|shard| drop(shard.spans.lock()));
            self.return_kept();
        }
    }

    /// Records what becomes of spans from now on, in files whose names begin so; see [`crate::trace`].
    pub fn start_trace(&self, prefix: &[u8]) {
        // ORDERING: Relaxed; before the process has threads.
        self.is_traced.store(true, Ordering::Relaxed);
        self.heap.lock().trace.start(prefix);
    }

    /// Writes what is left of the record, if there is one; false: not all of it could be written. Else no lock is taken: a signal handler
    /// that interrupted who holds it may end the process.
    pub fn end_trace(&self) -> bool {
        // ORDERING: Relaxed, as in `start_trace`.
        if !self.is_traced.load(Ordering::Relaxed) {
            return true;
        }
        let now = os::now_ns();
        self.with(now, |heap, _| {
            heap.trace.record(Event::End, 0, heap.counts.used, now);
            heap.trace.is_on()
        })
    }

    /// What a MiB of idle memory is worth, in ns of CPU time a second; at least 1.
    pub fn set_price(&self, price_ns: u64) {
        let hold_max_ns = decay::hold_max_ns(price_ns);
        self.each_heap().for_each(|(_, mut heap)| heap.decay.set_hold_max(hold_max_ns));
        self.hold_rests_for(hold_max_ns);
    }

    /// The longest time in ns that free memory is held.
    pub fn hold_max_ns(&self) -> u64 {
        self.heap.lock().decay.hold_max_ns()
    }

    /// When free memory goes back from now on.
    pub fn set_mode(&self, mode: PurgeMode) {
        self.each_heap().for_each(|(_, mut heap)| heap.mode = mode);
    }

    /// Granules in slabs and large blocks, with what shards keep.
    pub fn used(&self) -> u32 {
        self.each_heap().map(|(_, heap)| heap.counts.used).sum()
    }

    /// Sizes and counts. The peak is of the whole: where there are several heaps, as exact as [`UsedOfAll`] is.
    pub fn counts(&self) -> SpanCounts {
        let kept = self.kept_granules();
        let (mut counts, stored) = self.with(os::now_ns(), |heap, _| (heap.counts, heap.huge_page.rest()));
        self.each_heap().skip(1).for_each(|(_, heap)| counts.add(heap.counts));
        if self.heaps() > 1 {
            counts.used_peak = counts.used_peak.max(self.used.peak()).max(counts.used);
        }
        counts.used = counts.used.saturating_sub(kept + stored);
        counts.dirty += kept + stored;
        counts
    }

    /// Takes the locks for the time of a fork.
    pub fn hold_for_fork(&self) {
        self.opening.hold_for_fork();
        self.shards_in_use().iter().for_each(|shard| shard.spans.hold_for_fork());
        self.depot.hold_for_fork();
        self.rests.hold_for_fork();
        self.populating.hold_for_fork();
        self.gathering.hold_for_fork();
        self.purging.hold_for_fork();
        // `divide` adds heaps under the lock of the first: how many there are stands only when that is held.
        self.heap.hold_for_fork();
        (1..self.heaps()).for_each(|place| self.heap_at(place).hold_for_fork());
        self.map.reservation.hold_for_fork();
    }

    /// The other half of [`Spans::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.map.reservation.release_after_fork();
        (0..self.heaps()).for_each(|place| self.heap_at(place).release_after_fork());
        self.purging.release_after_fork();
        self.gathering.release_after_fork();
        self.populating.release_after_fork();
        self.rests.release_after_fork();
        self.depot.release_after_fork();
        // This thread may have brought another into use meanwhile, whose lock is not held.
        self.shards_in_use().iter().for_each(|shard| shard.spans.release_after_fork());
        self.opening.release_after_fork();
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}
