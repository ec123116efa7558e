//! When page tables are moved to a block, and of how many mappings it may consist then.
//!
//! A block for which no free memory with pages is long enough gets the pages of what there is in pieces: to move them costs a fraction
//! of faulting others in, and no more is resident.

use super::{Large, Pages, UNIT_BYTES};
use crate::granule::{GRANULE_BYTES, Span, bytes_of};
use crate::os;
use crate::page_map::State;
use crate::span_heap::Taken;
use crate::spans::{Gathered, Spans};
use core::sync::atomic::Ordering;

/// Moved spans at most: each may split a mapping in three, and a process has 65,530 of them.
const MOVED_MAX: usize = 4096;
/// With so many no pages are gathered, which may be several mappings for each: [`GATHERED_MAPPINGS`] at most.
const GATHERED_MAX: usize = MOVED_MAX / 4;
/// What was gathered is no more mappings than this, however long the block is.
const GATHERED_MAPPINGS: usize = 16;
/// And of short ones [`MAPPINGS`] and one more for so many bytes: what was gathered is several mappings often, and given back in parts.
const BYTES_A_GATHERED_MAPPING: usize = 128 << 10;
/// Mappings of a block whose pages are moved, at most, and one more for so many bytes. Each move leaves it with one more: what was moved
/// never joins what lies behind. One of more is copied, and so is of one again.
const MAPPINGS: usize = 4;
const BYTES_A_MAPPING: usize = 4 << 20;
/// While [`GATHERED_MAX`] spans were not moved, it is one more for so many bytes, up to so many in all: to move one costs 10 us, to fault
/// in what it has ten times as much.
const BYTES_A_MAPPING_OF_FEW: usize = 512 << 10;
const MAPPINGS_OF_FEW: usize = 32;
/// A block of up to so many bytes that is copied for its mappings goes to memory that has pages. That may be several mappings, too, and the
/// block be copied again as soon as it grows; longer ones, which no cache holds, cost more so than their faults.
pub(super) const COPIED_MAX: usize = 4 << 20;
/// A block shows that it was filled if at least one of so many of its pages was new.
const NEW_PART: u32 = 4;

impl Large {
    /// Takes a span, and gathers pages for it if it is to have any and has none. Also returns how many of its granules have such pages.
    pub(super) fn take_and_gather(
        &self,
        spans: &Spans,
        shard: usize,
        granules: u32,
        align: u32,
        pages: Pages,
    ) -> Option<(Taken, u32)> {
        if pages == Pages::Room
            && let Some(taken) = spans.take_to_grow(shard, granules)
        {
            return Some((taken, 0));
        }
        loop {
            let taken = spans.take(shard, granules, align, pages == Pages::None)?;
            if !taken.zero || pages != Pages::Any {
                return Some((taken, 0));
            }
            if let Some(gathered) = gather(spans, Span { first: taken.first, granules }, 0) {
                return Some((taken, gathered));
            }
            // A block of nobody; and none is lost again.
            spans.map.record(taken.first).make_large(UNIT_BYTES, 0);
        }
    }

    /// Gathers pages for what a block has behind so many bytes that were moved to its span.
    pub(super) fn gather_behind(&self, spans: &Spans, first: u32, moved_bytes: usize) -> os::Moved {
        let record = spans.map.record(first);
        let granules = record.granules.get();
        match gather(spans, Span { first, granules }, moved_bytes.div_ceil(GRANULE_BYTES) as u32) {
            Some(gathered) => {
                let had_no_pages = record.large().had_no_pages();
                record.large().set_had_no_pages(had_no_pages && shows_filled(gathered, granules));
                os::Moved::Done
            }
            None => os::Moved::TargetLost,
        }
    }

    /// Gives back a new block without pages to which nothing was moved: what is copied had better be so to memory that has some.
    pub(super) fn give_untouched(&self, spans: &Spans, shard: usize, first: u32) {
        let record = spans.map.record(first);
        let (granules, bytes) = (record.granules.get(), record.large().bytes());
        record.set_state(State::Interior);
        spans.in_shard(shard, |_| self.books.remove(shard, bytes));
        spans.give(first, granules, true);
    }
}

/// As [`Spans::gather`], if pages may be moved: how many granules from `from` on have pages then. `None`: the span is lost.
fn gather(spans: &Spans, span: Span, from: u32) -> Option<u32> {
    if !may_move(spans) || spans.map.moved_spans() >= GATHERED_MAX {
        return Some(0);
    }
    let parts = bytes_of(span.granules - from) / BYTES_A_GATHERED_MAPPING;
    let most = (MAPPINGS + parts).min(GATHERED_MAPPINGS);
    match spans.gather(span, from, most) {
        Gathered::UpTo(end) => Some(end - from),
        Gathered::Lost => {
            lose_target(spans);
            None
        }
    }
}

/// Whether page tables may be moved.
pub(super) fn may_move(spans: &Spans) -> bool {
    // ORDERING: Relaxed; a hint.
    spans.map.moved_spans() < MOVED_MAX && !spans.loses_targets.load(Ordering::Relaxed)
}

/// A move lost its target: none is tried again.
pub(super) fn lose_target(spans: &Spans) {
    // ORDERING: Relaxed; a hint, as in `may_move`.
    spans.loses_targets.store(true, Ordering::Relaxed);
}

/// Whether a block of so many granules shows that it was filled, although so many of them had pages.
pub(super) fn shows_filled(gathered: u32, granules: u32) -> bool {
    gathered <= granules - granules / NEW_PART
}

/// Moves the page tables of a block of so many bytes, unless it is too many mappings. How many bytes were moved, and how that ended.
///
/// # Safety
/// As for [`os::move_pages`].
pub(super) unsafe fn move_block(
    spans: &Spans,
    source: usize,
    target: usize,
    bytes: usize,
) -> (usize, os::Moved) {
    let mut most = mappings_in(bytes);
    if spans.map.moved_spans() < GATHERED_MAX {
        most = most.max(MAPPINGS_OF_FEW.min(MAPPINGS + bytes / BYTES_A_MAPPING_OF_FEW));
    }
    // SAFETY: as the caller promises.
    unsafe { os::move_pages(source, target, bytes, &mut most) }
}

/// Of how many mappings so many bytes may consist, however many spans were moved.
fn mappings_in(bytes: usize) -> usize {
    MAPPINGS + bytes / BYTES_A_MAPPING
}
