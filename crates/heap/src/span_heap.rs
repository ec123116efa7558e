//! Free spans: best fit, coalescing, and which of them wait for their purge.
//!
//! Clean spans (they read as zero and hold no pages) and dirty ones are kept apart and only merge with their own kind, so
//! that memory with pages is used first and a purge never gives back what is not there.
//!
//! SYNCHRONIZATION: everything here happens under the lock that `spans` has for each span heap, of which there are up to 16; purging
//! itself happens outside of it.

mod counts;
mod due;
mod free_lists;
mod growing;
pub mod huge_page;
mod pieces;
mod room;
mod slab_pages;
mod waiting;

use crate::decay::{self, Decay, Verdict, bin_of};
use crate::granule::Span;
use crate::page_map::{PageMap, Record, State, Waiting};
use crate::trace::{Event, Trace};
pub use counts::SpanCounts;
pub use due::{Due, PURGE_BATCH, Purges};
use free_lists::{ALL, FEW, FreeLists, MANY};
use huge_page::HugePage;
pub use pieces::{PIECE_MIN, Piece};
use room::Room;
use slab_pages::SlabPages;
use waiting::{TimeList, mean};

/// Memory held for large spans is not cut for a request smaller than this part of one: its size is expected back.
const CUT_MAX: u32 = 8;
/// Nor is less joined to more than so much, 32 MiB: what comes and goes beside it would keep it. (Also to less: blocks of three sizes that
/// come and go, 8 threads, 70,000 faults instead of 64,000.)
const JOINED_MAX: u32 = 512;

/// A span taken from the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// First granule.
    pub first: u32,
    /// Whether it reads as zero.
    pub zero: bool,
}

/// When free memory goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeMode {
    /// As `decay` says.
    Auto,
    /// Everything at once.
    Now,
    /// Only when the program asks (`malloc_trim`) or memory runs out.
    Never,
}

/// The free spans of one heap.
#[repr(C)]
pub struct SpanHeap {
    /// What became of spans, where that is asked for.
    pub trace: Trace,
    clean: FreeLists,
    dirty: FreeLists,
    pending: TimeList,
    held: TimeList,
    /// When free memory goes back, if `mode` leaves that to it.
    pub decay: Decay,
    slab_pages: SlabPages,
    /// What slabs of a large heap are cut from.
    pub huge_page: HugePage,
    /// Spans freed before this time are held no more.
    released_before: u64,
    /// When free memory goes back.
    pub mode: PurgeMode,
    /// Sizes and counts.
    pub counts: SpanCounts,
    /// How much of it may be held.
    pub room: Room,
    /// Its number.
    place: u8,
    /// What others know of `counts.used`, see `UsedOfAll`.
    pub used_told: u32,
}

impl SpanHeap {
    /// A heap without memory.
    pub const fn new() -> Self {
        Self {
            clean: FreeLists::new(),
            dirty: FreeLists::new(),
            pending: TimeList::new(),
            held: TimeList::new(),
            decay: Decay::new(),
            slab_pages: SlabPages::new(),
            huge_page: HugePage::new(),
            released_before: 0,
            room: Room::new(),
            mode: PurgeMode::Auto,
            counts: SpanCounts {
                used: 0,
                used_peak: 0,
                clean: 0,
                dirty: 0,
                purges: Purges::NONE,
                huge_pages: 0,
            },
            trace: Trace::new(),
            place: 0,
            used_told: 0,
        }
    }

    /// Begins, as another beside the first, with its settings.
    pub fn join(&mut self, first: &Self, place: usize) {
        self.place = place as u8;
        self.mode = first.mode;
        self.decay = first.decay.with_nothing_seen();
    }

    /// What the records of its spans say.
    fn mark(&self) -> u8 {
        self.place + 1
    }

    /// Takes a span of `granules` whose first granule is a multiple of `align` granules by address.
    /// The caller sets its state. `None`: no memory; purging what is dirty may help.
    ///
    /// `prefer_clean` is for who brings pages along; memory with pages is used first otherwise, also where it must be cleared:
    /// clearing a page costs a fraction of faulting one in.
    pub fn take(
        &mut self,
        map: &PageMap,
        granules: u32,
        align: u32,
        prefer_clean: bool,
        now: u64,
    ) -> Option<Taken> {
        debug_assert!(granules > 0 && align.is_power_of_two());
        let dirty = self.dirty.best_aligned(map, granules, align, FEW);
        let clean = || self.clean.best_aligned(map, granules, align, FEW);
        let found = match dirty {
            Some(span) if !prefer_clean && !self.is_held_back(map, span, granules, granules) => Some(span),
            Some(span) => clean().or(Some(span)),
            None => clean(),
        };
        let span = match found {
            Some(span) => span,
            None => self.grow(map, granules, align)?,
        };
        let dirty = if align > 1 || prefer_clean { None } else { self.dirty_before(map, span, granules) };
        let both = dirty.map(|dirty| self.take_both(map, dirty, span, granules, now));
        Some(both.unwrap_or_else(|| self.take_of(map, span, granules, align, now)))
    }

    /// As [`SpanHeap::take`], only from memory that may have pages.
    pub fn take_used(&mut self, map: &PageMap, granules: u32, align: u32, now: u64) -> Option<Taken> {
        let span = self.used_fit(map, granules, align, granules)?;
        Some(self.take_of(map, span, granules, align, now))
    }

    /// The free span that may have pages and would be taken for `granules`, with room for `padded` from a multiple of `align` on.
    fn used_fit(&self, map: &PageMap, padded: u32, align: u32, granules: u32) -> Option<u32> {
        let span = self.dirty.best_aligned(map, padded, align, FEW)?;
        (!self.is_held_back(map, span, granules, granules)).then_some(span)
    }

    /// Whether a dirty span is expected back as a whole, and so not to be cut for `granules`, instead of which `fresh` would be used.
    fn is_held_back(&self, map: &PageMap, span: u32, granules: u32, fresh: u32) -> bool {
        let span = map.record(span).free();
        // Fresh memory beside what is held must not make the heap larger than the program ever made it.
        self.counts.used + self.counts.dirty + fresh <= self.counts.used_peak
            && span.waiting() == Waiting::Held
            && decay::smallest_of(span.bin()) / CUT_MAX > granules
    }

    /// The dirty span directly before a clean one, if it has half of `granules` or more: who takes larger and larger blocks brings in
    /// no more than each is longer. Fewer pages are not worth that the whole does not read as zero.
    fn dirty_before(&self, map: &PageMap, clean: u32, granules: u32) -> Option<u32> {
        let is_clean = map.record(clean).state() == State::Clean;
        let first = is_clean.then(|| self.free_before(map, clean, State::Dirty)).flatten()?;
        (granules.div_ceil(2)..granules).contains(&(clean - first)).then_some(first)
    }

    /// Takes a dirty span and the beginning of the clean one behind it, `granules` in all.
    fn take_both(&mut self, map: &PageMap, dirty: u32, clean: u32, granules: u32, now: u64) -> Taken {
        self.cut(map, dirty, 0, clean - dirty, now);
        self.cut(map, clean, 0, granules - (clean - dirty), now);
        map.record(dirty).granules.set(granules);
        self.note_taken(granules, now);
        Taken { first: dirty, zero: false }
    }

    /// Takes `granules` of a free span that is long enough.
    fn take_of(&mut self, map: &PageMap, span: u32, granules: u32, align: u32, now: u64) -> Taken {
        let offset = map.offset_to(span, align);
        let zero = map.record(span).state() == State::Clean;
        self.cut(map, span, offset, granules, now);
        self.note_taken(granules, now);
        Taken { first: span + offset, zero }
    }

    fn note_taken(&mut self, granules: u32, now: u64) {
        self.counts.used += granules;
        self.counts.used_peak = self.counts.used_peak.max(self.counts.used);
        self.trace.record(Event::Take, granules, self.counts.used, now);
    }

    /// A free span with room for `granules` from a multiple of `align` on: what a longer search of the old memory finds, new memory, or,
    /// when there is none, what a full search finds.
    #[cold]
    fn grow(&mut self, map: &PageMap, granules: u32, align: u32) -> Option<u32> {
        let old = |spans: &Self, looks| {
            let clean = spans.clean.best_aligned(map, granules, align, looks);
            clean.or_else(|| spans.dirty.best_aligned(map, granules, align, looks))
        };
        old(self, MANY)
            .or_else(|| self.reserve(map, granules.checked_add(align - 1)?))
            .or_else(|| old(self, ALL))
    }

    /// A clean span of at least `granules`, of new memory and what is clean directly before it.
    fn reserve(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        let last = self.clean_at_limit(map);
        if last.granules >= granules {
            return Some(last.first);
        }
        let mut grow = |free| {
            let fresh = map.reservation.grow(granules, free)?;
            self.add_clean(map, fresh);
            // New memory is linked first, so a few looks find it.
            Some(self.clean.best_fit(map, granules, FEW))
        };
        // Another heap's may have come between.
        grow(last.granules)?.or_else(|| grow(0)?)
    }

    /// The clean span that ends at the limit, maybe of no granules.
    fn clean_at_limit(&self, map: &PageMap) -> Span {
        let limit = map.reservation.limit();
        let first = self.free_before(map, limit, State::Clean).unwrap_or(limit);
        Span { first, granules: limit - first }
    }

    /// Where the free span of this kind begins that ends before a granule.
    fn free_before(&self, map: &PageMap, granule: u32, state: State) -> Option<u32> {
        if granule <= map.reservation.first_granule() {
            return None;
        }
        let last = map.record(granule - 1);
        (self.is_own(last) && last.state() == state).then(|| last.first.get())
    }

    /// Whether it is the record of the first granule of a span of this heap, or of the last, if that is free. What others do meanwhile with
    /// records of theirs is the same: those never say so.
    fn is_own(&self, record: &Record) -> bool {
        record.heap.get() == self.mark()
    }

    /// Takes a free span out of its lists for use and puts back what is before `offset` and behind `offset + granules`.
    fn cut(&mut self, map: &PageMap, span: u32, offset: u32, granules: u32, now: u64) {
        let (waiting, freed_at) = self.cut_out(map, span, offset, granules);
        match waiting {
            Some(waiting) => self.note_reused(waiting, granules, now.saturating_sub(freed_at)),
            None => {
                self.room.faulted(granules, now);
                self.decay.faulted(granules, now);
            }
        }
    }

    /// As [`SpanHeap::cut`], but says only what a dirty span waited for, and when it was freed.
    #[inline(always)]
    fn cut_out(&mut self, map: &PageMap, span: u32, offset: u32, granules: u32) -> (Option<Waiting>, u64) {
        let record = map.record(span);
        let length = record.granules.get();
        let (state, moved, free) = (record.state(), record.is_moved(), record.free());
        let (waiting, bin, place) = (free.waiting(), free.bin(), free.older());
        let (freed_at, deadline) = (free.freed_at(), free.deadline());
        self.unlink(map, span);
        let rest = length - offset - granules;
        for (first, count) in [(span, offset), (span + offset + granules, rest)] {
            if count == 0 {
                continue;
            }
            map.record(first).free().set_times(bin, freed_at, deadline);
            map.set_moved(first, moved);
            self.link(map, first, count, state, waiting, place);
        }
        // A used span is marked by its owner; nothing of the free one stays.
        let (record, last) = (map.record(span + offset), map.record(span + offset + granules - 1));
        debug_assert_eq!([record.state(), last.state()], [State::Interior; 2]);
        map.set_moved(span + offset, moved);
        record.heap.set(self.mark());
        record.granules.set(granules);
        ((state == State::Dirty).then_some(waiting), freed_at)
    }

    /// Gives a used span back at time `now`. `zero`: it reads as zero and holds no pages.
    pub fn give(&mut self, map: &PageMap, first: u32, granules: u32, zero: bool, now: u64) {
        debug_assert!(self.counts.used >= granules);
        self.counts.used -= granules;
        let event = if zero { Event::GiveClean } else { Event::Give };
        self.trace.record(event, granules, self.counts.used, now);
        if zero {
            self.add_clean(map, Span { first, granules });
            return;
        }
        let verdict = match self.mode {
            PurgeMode::Auto => self.decay.freed(granules, self.held.granules, now),
            PurgeMode::Now => Verdict::Purge,
            PurgeMode::Never => Verdict::HoldUntil(u64::MAX),
        };
        if verdict == Verdict::Purge && self.decay.is_phase_over() {
            self.released_before = now.max(self.released_before) + 1;
        }
        self.put(map, Span { first, granules }, verdict, now);
    }

    /// Gives a used span back that nobody needed for long: it goes with the next batch.
    pub fn give_unused(&mut self, map: &PageMap, span: Span, now: u64) {
        debug_assert!(self.counts.used >= span.granules);
        self.counts.used -= span.granules;
        self.trace.record(Event::Give, span.granules, self.counts.used, now);
        self.put(map, span, Verdict::Purge, now);
    }

    fn put(&mut self, map: &PageMap, span: Span, verdict: Verdict, now: u64) {
        let (waiting, freed_at, deadline) = match verdict {
            Verdict::Purge => (Waiting::Pending, now, 0),
            // The last release may be of the same tick of the clock.
            Verdict::HoldUntil(time) => (Waiting::Held, now.max(self.released_before), time),
        };
        map.record(span.first).free().set_times(bin_of(span.granules) as u8, freed_at, deadline);
        let place = self.list_of(waiting).map_or(0, |list| list.newest());
        self.merge(map, span, State::Dirty, waiting, place);
    }

    /// How much more would be held at present of what is freed. As much less is used then, so there is room for it.
    pub fn most_held(&self) -> u32 {
        let decides = self.mode == PurgeMode::Auto && !self.trace.is_on();
        if decides { self.decay.most_held(self.held.granules) } else { 0 }
    }

    /// How much may be held, and a batch more before it is too much: what was freed first goes then.
    fn room(&self) -> u32 {
        if self.mode != PurgeMode::Auto {
            return u32::MAX - PURGE_BATCH;
        }
        self.room.most(self.counts.used, self.counts.used_peak) - self.counts.used
    }

    /// Returns the clean span that it is part of then.
    fn add_clean(&mut self, map: &PageMap, span: Span) -> Span {
        debug_assert!(!map.record(span.first).is_moved());
        let whole = self.merge(map, span, State::Clean, Waiting::None, 0);
        // SAFETY: the caller holds the lock, and the span is part of the whole, which is clean.
        unsafe { map.purge_huge_around(span, whole) };
        whole
    }

    /// Links a free span after joining it with free neighbours of the same kind that wait for the same; not with a held one of which it is
    /// a small part, or what comes and goes would keep what is idle beside it. The whole's time is its parts' mean, weighted by size;
    /// alone it is put behind `place`. Returns the whole.
    fn merge(
        &mut self,
        map: &PageMap,
        Span { first, granules }: Span,
        state: State,
        waiting: Waiting,
        mut place: u32,
    ) -> Span {
        // Before the neighbours are read: a page of records that is read before it is written is faulted in twice.
        map.record(first).set_state(State::Interior);
        let most = if waiting == Waiting::Held { JOINED_MAX.max(CUT_MAX * granules) } else { u32::MAX };
        let joins = |granule: u32| {
            let record = map.record(granule);
            let is_free = self.is_own(record) && record.state() == state;
            is_free && record.free().waiting() == waiting && record.granules.get() <= most
        };
        let end = first + granules;
        let right = (end < map.reservation.limit() && joins(end)).then_some(end);
        let left = self.free_before(map, first, state).filter(|&left| joins(left));

        let record = map.record(first);
        let (mut bin, mut moved) = (record.free().bin(), record.is_moved());
        let (mut freed_at, mut deadline) = (record.free().freed_at(), record.free().deadline());
        let (mut start, mut length, mut largest) = (first, granules, granules);
        for part in [left, right].into_iter().flatten() {
            let record = map.record(part);
            let free = record.free();
            let part_granules = record.granules.get();
            debug_assert!(part == end || part + part_granules == first);
            freed_at = mean(freed_at, length, free.freed_at(), part_granules);
            deadline = mean(deadline, length, free.deadline(), part_granules);
            if part_granules > largest {
                largest = part_granules;
                place = free.older();
            } else if place == part {
                place = free.older();
            }
            moved |= record.is_moved();
            bin = bin.max(free.bin());
            length += part_granules;
            start = start.min(part);
            self.unlink(map, part);
            map.set_moved(part, false);
        }
        map.set_moved(first, false);
        map.record(start).free().set_times(bin, freed_at, deadline);
        map.set_moved(start, moved);
        self.link(map, start, length, state, waiting, place);
        Span { first: start, granules: length }
    }

    fn list_of(&mut self, waiting: Waiting) -> Option<&mut TimeList> {
        match waiting {
            Waiting::Pending => Some(&mut self.pending),
            Waiting::Held => Some(&mut self.held),
            Waiting::None => None,
        }
    }

    /// Puts a free span into its lists; in that of its time behind `place`.
    fn link(&mut self, map: &PageMap, first: u32, granules: u32, state: State, waiting: Waiting, place: u32) {
        let record = map.record(first);
        record.granules.set(granules);
        record.heap.set(self.mark());
        record.set_state(state);
        record.free().set_waiting(waiting);
        let last = map.record(first + granules - 1);
        last.heap.set(self.mark());
        last.set_state(state);
        last.first.set(first);
        match state {
            State::Clean => {
                self.clean.insert(map, first, granules);
                self.counts.clean += granules;
            }
            _ => {
                self.dirty.insert(map, first, granules);
                self.counts.dirty += granules;
            }
        }
        if let Some(list) = self.list_of(waiting) {
            list.insert_behind(map, place, first, granules);
        }
    }

    fn unlink(&mut self, map: &PageMap, first: u32) {
        let record = map.record(first);
        let granules = record.granules.get();
        match record.state() {
            State::Clean => {
                self.clean.remove(map, first, granules);
                self.counts.clean -= granules;
            }
            _ => {
                self.dirty.remove(map, first, granules);
                self.counts.dirty -= granules;
            }
        }
        if let Some(list) = self.list_of(record.free().waiting()) {
            list.remove(map, first, granules);
        }
        record.free().set_waiting(Waiting::None);
        record.set_state(State::Interior);
        map.record(first + granules - 1).set_state(State::Interior);
    }
}

impl Default for SpanHeap {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
