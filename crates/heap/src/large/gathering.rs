//! When page tables are moved to a block, and of how many mappings it may consist then.
//!
//! A block for which no free memory with pages is long enough gets the pages of what there is in pieces: to move them costs a fraction
//! of faulting others in, and no more is resident.

use super::Large;
use crate::granule::{GRANULE_BYTES, Span};
use crate::os;
use crate::spans::{Gathered, Spans};
use core::sync::atomic::Ordering;

/// Moved spans at most: each may split a mapping in three, and a process has 65,530 of them.
const MOVED_MAX: usize = 4096;
/// Mappings of a block whose pages are moved, at most, and one more for so many bytes. Each move leaves it with one more: what was moved
/// never joins what lies behind. One of more is copied, and so is of one again.
const MAPPINGS: usize = 4;
const BYTES_A_MAPPING: usize = 4 << 20;
/// A block shows whether it was filled if at least one of so many of its pages is new.
const NEW_PART: u32 = 4;

impl Large {
    /// As [`Spans::gather`], for a block that begins at `first`, if pages may be moved: how many of its granules from `from` on have pages
    /// then. `None`: its span stays a block of nobody, and it is not tried again.
    pub(super) fn gather(&self, spans: &Spans, first: u32, from: u32) -> Option<u32> {
        let record = spans.map.record(first);
        let granules = record.granules.get();
        if !self.may_move(spans) {
            return Some(0);
        }
        let gathered = match spans.gather(Span { first, granules }, from, mappings_in) {
            Gathered::UpTo(end) => end - from,
            Gathered::Lost => {
                self.lose_target();
                return None;
            }
        };
        if gathered > granules - granules / NEW_PART {
            record.large().set_had_no_pages(false);
        }
        Some(gathered)
    }

    /// As [`Large::gather`], behind so many bytes that were moved to the block's span.
    pub(super) fn gather_behind(&self, spans: &Spans, first: u32, moved_bytes: usize) -> os::Moved {
        let from = moved_bytes.div_ceil(GRANULE_BYTES) as u32;
        self.gather(spans, first, from).map_or(os::Moved::TargetLost, |_| os::Moved::Done)
    }

    /// Whether page tables may be moved.
    pub(super) fn may_move(&self, spans: &Spans) -> bool {
        // ORDERING: Relaxed; a hint.
        spans.map.moved_spans() < MOVED_MAX && !self.loses_targets.load(Ordering::Relaxed)
    }

    /// A move lost its target: none is tried again.
    pub(super) fn lose_target(&self) {
        // ORDERING: Relaxed; a hint, as in `may_move`.
        self.loses_targets.store(true, Ordering::Relaxed);
    }
}

/// Of how many mappings so many bytes that were moved may consist.
pub(super) fn mappings_in(bytes: usize) -> usize {
    MAPPINGS + bytes / BYTES_A_MAPPING
}
