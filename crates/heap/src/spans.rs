//! The span heap behind its lock: with its page map, the clock, and the purging that happens outside the lock.

use crate::decay;
use crate::lock::Lock;
use crate::os;
use crate::page_map::PageMap;
use crate::span_heap::{self, Due, PurgeMode, SpanCounts, SpanHeap, Taken};
use crate::trace::Event;
use core::sync::atomic::{AtomicBool, Ordering};

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
pub struct Spans {
    /// What every granule is.
    pub map: PageMap,
    heap: Lock<SpanHeap>,
    /// Held while spans are on their way to the kernel, in no list: a fork and a thread that runs out of memory wait for them.
    purging: Lock<()>,
    /// Something is to be purged; whoever leaves a slow path does it.
    due: AtomicBool,
    /// Nothing speaks for holding memory at present.
    is_releasing: AtomicBool,
}

impl Spans {
    /// No memory yet.
    pub const fn new() -> Self {
        Self {
            map: PageMap::new(),
            heap: Lock::new(SpanHeap::new()),
            purging: Lock::new(()),
            due: AtomicBool::new(false),
            is_releasing: AtomicBool::new(false),
        }
    }

    /// Takes a span, see [`SpanHeap::take`]; purges everything and tries again before it gives up.
    pub fn take(&self, granules: u32, align: u32, prefer_clean: bool) -> Option<Taken> {
        let now = os::now_ns();
        let taken = self.with(now, |heap, map| heap.take(map, granules, align, prefer_clean, now));
        if taken.is_some() {
            return taken;
        }
        self.purge_all();
        self.with(now, |heap, map| heap.take(map, granules, align, prefer_clean, now))
    }

    /// Takes `granules` directly behind the span that ends at `end`, if they are free.
    pub fn take_behind(&self, end: u32, granules: u32) -> bool {
        let now = os::now_ns();
        self.with(now, |heap, map| heap.take_behind(map, end, granules, now))
    }

    /// Gives a span back. `zero`: it reads as zero and holds no pages.
    pub fn give(&self, first: u32, granules: u32, zero: bool) {
        let now = os::now_ns();
        self.with(now, |heap, map| heap.give(map, first, granules, zero, now));
    }

    fn with<R>(&self, now: u64, act: impl FnOnce(&mut SpanHeap, &PageMap) -> R) -> R {
        let mut heap = self.heap.lock();
        let result = act(&mut heap, &self.map);
        let is_releasing = heap.mode == PurgeMode::Auto && heap.decay.is_releasing();
        // ORDERING: Relaxed; a hint. Read first: a line that all threads read is written only when it changes.
        if self.is_releasing.load(Ordering::Relaxed) != is_releasing {
            self.is_releasing.store(is_releasing, Ordering::Relaxed);
        }
        if heap.is_due(&self.map, false, now) {
            // ORDERING: Relaxed; only a hint to come and look, under the lock.
            self.due.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Purges what is due. Called where no lock is held, at the end of every slow path.
    #[inline]
    pub fn settle(&self) {
        // ORDERING: Relaxed; a hint, see `with`.
        if self.due.load(Ordering::Relaxed) {
            self.purge_due();
        }
    }

    #[cold]
    fn purge_due(&self) {
        // Who purges now sees what is due, too.
        let Some(_purging) = self.purging.try_lock() else { return };
        // ORDERING: Relaxed; a hint, see `with`.
        if self.due.swap(false, Ordering::Relaxed) {
            self.purge_rounds(Which::Due);
        }
    }

    /// Purges all whose time has come, also where it is little. Returns whether anything else waits for its time.
    pub fn purge_idle(&self) -> bool {
        {
            let _purging = self.purging.lock();
            self.purge_rounds(Which::DueOrFew);
        }
        self.heap.lock().has_waiting()
    }

    /// Purges every free span, whatever `decay` says. Returns the bytes given back.
    pub fn purge_all(&self) -> usize {
        let _purging = self.purging.lock();
        self.purge_rounds(Which::All)
    }

    fn purge_rounds(&self, which: Which) -> usize {
        let mut purged_granules = 0;
        for round in 0.. {
            if which == Which::Due && round == ROUNDS_AMONG_OTHERS && !os::is_single_threaded() {
                // ORDERING: Relaxed; a hint, see `with`.
                self.due.store(true, Ordering::Relaxed);
                break;
            }
            let mut due = [Due { first: 0, granules: 0, moved: false }; ROUND];
            let count = {
                let now = os::now_ns();
                let mut heap = self.heap.lock();
                if which != Which::All && !heap.is_due(&self.map, which == Which::DueOrFew, now) {
                    break;
                }
                heap.take_due(&self.map, which == Which::All, now, &mut due)
            };
            if count == 0 {
                break;
            }
            let due = &due[..count];
            let mut done = [false; ROUND];
            for (span, done) in due.iter().zip(&mut done) {
                *done = span_heap::purge(&self.map, *span);
            }
            let mut heap = self.heap.lock();
            for (span, &done) in due.iter().zip(&done) {
                heap.purged(&self.map, *span, done);
                purged_granules += if done { span.granules as usize } else { 0 };
            }
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

    /// Pages of partly used slabs were purged.
    pub fn slab_pages_purged(&self, pages: u32) {
        let now = os::now_ns();
        self.with(now, |heap, _| heap.slab_pages_purged(pages, now));
    }

    /// Purged pages of slabs were wanted again.
    pub fn slab_pages_wanted(&self, pages: u32) {
        let now = os::now_ns();
        self.with(now, |heap, _| heap.slab_pages_wanted(pages, now));
    }

    /// Whether somebody calls [`Spans::purge_idle`] again and again.
    pub fn set_timed(&self, is_timed: bool) {
        let now = os::now_ns();
        self.with(now, |heap, _| {
            heap.decay.set_timed(is_timed);
            let event = if is_timed { Event::Timed } else { Event::Untimed };
            heap.trace.record(event, 0, heap.counts.used, now);
        });
    }

    /// Records what becomes of spans from now on, in files whose names begin so; see [`crate::trace`].
    pub fn start_trace(&self, prefix: &[u8]) {
        self.heap.lock().trace.start(prefix);
    }

    /// Writes what is left of the record.
    pub fn end_trace(&self) {
        let now = os::now_ns();
        self.with(now, |heap, _| heap.trace.record(Event::End, 0, heap.counts.used, now));
    }

    /// What a MiB of idle memory is worth, in ns of CPU time a second; at least 1.
    pub fn set_price(&self, price_ns: u64) {
        self.with(os::now_ns(), |heap, _| heap.decay.set_hold_max(decay::hold_max_ns(price_ns)));
    }

    /// When free memory goes back from now on.
    pub fn set_mode(&self, mode: PurgeMode) {
        self.heap.lock().mode = mode;
    }

    /// Sizes and counts.
    pub fn counts(&self) -> SpanCounts {
        self.heap.lock().counts
    }

    /// Takes the locks for the time of a fork.
    pub fn hold_for_fork(&self) {
        self.purging.hold_for_fork();
        self.heap.hold_for_fork();
        self.map.reservation.hold_for_fork();
    }

    /// The other half of [`Spans::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.map.reservation.release_after_fork();
        self.heap.release_after_fork();
        self.purging.release_after_fork();
    }
}

impl Default for Spans {
    fn default() -> Self {
        Self::new()
    }
}
