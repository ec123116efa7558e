//! The span heaps: one; in a process with threads several where there are many CPUs, so that threads which take and give large blocks
//! seldom wait for each other.
//!
//! A piece of memory belongs to one of them for good: the one that asked for it when the heap grew. The records of its spans say which
//! ([`Record::heap`](crate::page_map::Record)); so what is freed goes back there, whoever frees it, and joins its own kind only. A thread
//! takes from the heap of its shard, then what has pages from others, and only then fresh memory.

use super::Spans;
use crate::lock::{Guard, Lock};
use crate::os;
use crate::page_map::Hint32;
use crate::span_heap::{PurgeMode, SpanHeap, Taken};
use core::sync::atomic::{AtomicU8, Ordering};

/// Most span heaps.
pub const HEAPS: usize = 8;
/// One for so many CPUs: two threads seldom meet.
const CPUS_EACH: usize = 2;

/// What is known of the span heaps without their locks.
pub struct Known {
    /// How many are in use, less the first.
    more: AtomicU8,
    dirty: [Dirty; HEAPS],
}

/// Granules of one heap that may have pages; a hint, and a line of its own. Kept where there are several.
#[repr(align(64))]
struct Dirty(Hint32);

impl Known {
    /// One heap.
    pub const fn new() -> Self {
        Self { more: AtomicU8::new(0), dirty: [const { Dirty(Hint32::new(0)) }; HEAPS] }
    }
}

impl Spans {
    /// Uses as many span heaps as so many CPUs are worth from now on.
    pub fn divide(&self, cpus: usize) {
        let wanted = (cpus / CPUS_EACH).clamp(1, HEAPS);
        if wanted <= self.heaps() {
            return;
        }
        let first = self.heap.lock();
        // A limit leaves no room for steps of several heaps; a record is to show all that happens.
        if self.map.reservation.is_limited() || first.mode != PurgeMode::Auto || first.trace.is_on() {
            return;
        }
        for place in self.heaps()..wanted {
            self.heap_at(place).lock().join(&first, place);
        }
        // ORDERING: Release pairs with the Acquire in `heaps`: who counts a heap finds it made.
        self.known.more.store(wanted as u8 - 1, Ordering::Release);
    }

    /// How many there are.
    pub(super) fn heaps(&self) -> usize {
        // ORDERING: Acquire, see `divide`. There are never fewer than before.
        usize::from(self.known.more.load(Ordering::Acquire)) + 1
    }

    /// One of them.
    pub(super) fn heap_at(&self, place: usize) -> &Lock<SpanHeap> {
        if place == 0 { &self.heap } else { &self.others[place - 1] }
    }

    /// All of them, locked one after the other.
    pub(super) fn each_heap(&self) -> impl Iterator<Item = (usize, Guard<'_, SpanHeap>)> {
        (0..self.heaps()).map(|place| (place, self.heap_at(place).lock()))
    }

    /// The heap that threads of a shard take from first. A thread that is alone needs one.
    pub(super) fn heap_of_shard(&self, shard: usize) -> usize {
        if os::is_single_threaded() { 0 } else { shard % self.heaps() }
    }

    /// The heap that a span belongs to; of a part of one that of the whole.
    pub(super) fn heap_of(&self, first: u32) -> usize {
        usize::from(self.map.record(first).heap.get()).saturating_sub(1)
    }

    /// Notes what others are to know of a heap.
    pub(super) fn note_known(&self, place: usize, heap: &SpanHeap) {
        if self.heaps() > 1 {
            self.known.dirty[place].0.set(heap.counts.dirty);
        }
    }

    /// All heaps that may serve who wants free memory with pages, that of the shard first.
    fn heaps_for(&self, shard: usize, granules: u32) -> impl Iterator<Item = usize> {
        let (own, count) = (self.heap_of_shard(shard), self.heaps());
        let others = (1..count).map(move |step| (own + step) % count);
        core::iter::once(own).chain(others.filter(move |&other| self.known.dirty[other].0.get() >= granules))
    }

    /// Takes a span of free memory that may have pages.
    pub(super) fn take_free(&self, shard: usize, granules: u32, align: u32) -> Option<Taken> {
        let now = os::now_ns();
        let take = |place| self.with_in(place, now, |heap, map| heap.take_used(map, granules, align, now));
        self.heaps_for(shard, granules).find_map(take)
    }

    /// As [`Spans::take`], when nobody keeps anything that serves.
    pub fn take_any(&self, shard: usize, granules: u32, align: u32, prefer_clean: bool) -> Option<Taken> {
        let now = os::now_ns();
        let take =
            |place| self.with_in(place, now, |heap, map| heap.take(map, granules, align, prefer_clean, now));
        take(self.heap_of_shard(shard)).or_else(|| {
            self.purge_all();
            (0..self.heaps()).find_map(take)
        })
    }
}
