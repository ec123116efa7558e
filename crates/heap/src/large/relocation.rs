//! A block that grows where nothing is free behind it goes to a new span: its page tables do where that is cheaper, else it is copied.

use super::filled::{Written, written};
use super::gathering::{COPIED_MAX, lose_target, may_move, move_block};
use super::start::Start;
use super::{Large, Live, NewBlock, Pages};
use crate::granule::{GRANULE_BYTES, bytes_of};
use crate::os;
use crate::page_map::State;
use crate::spans::Spans;
use core::ops::Range;

/// From this size on page tables are moved; below, copying is cheaper than the mappings it costs.
const MOVE_BYTES_MIN: usize = 256 * 1024;
/// A block that grows by less than this part of itself has its pages moved to a span without any; one that grows by more is
/// copied to a span that has pages, where there is one: copying a page (0.2 us) costs a ninth of faulting one in.
const MOVED_GROWTH: usize = 8;
/// From this size on it is looked whether a block is filled: of one that is not pages are moved in any case. Copying would bring in all.
const LOOKED_AT_MIN: usize = os::HUGE_PAGE_BYTES;
/// One that is copied and grows by less than this part of itself will need little more next time, so room behind it serves it. Vectors
/// that double would seldom have enough, and leave none to others.
const ROOM_GROWTH: usize = 3;

/// A block that is to have a new span.
#[derive(Clone, Copy)]
struct Growth<'map> {
    block: Live<'map>,
    bytes: usize,
    new_bytes: usize,
    /// Whether its page tables may be moved.
    may_move: bool,
    /// Whether little of it is written.
    is_sparse: bool,
}

impl Growth<'_> {
    /// Whether the pages it has are worth more than those of another span.
    fn keeps_pages(&self) -> bool {
        self.is_sparse || self.new_bytes - self.bytes < self.bytes / MOVED_GROWTH
    }

    /// Bytes in whole pages between the start of its span and the block. They do not go along: to a block that grows pages behind it are
    /// worth more.
    fn skipped(&self) -> usize {
        self.block.offset() & !(os::page_bytes() - 1)
    }

    /// Bytes of its span that go along.
    fn moved_bytes(&self) -> usize {
        bytes_of(self.block.record.granules.get()) - self.skipped()
    }

    /// What the new span is to have. What else is needed is gathered behind what was moved.
    fn pages(&self) -> Pages {
        match self.may_move {
            true if self.keeps_pages() => Pages::None,
            _ if self.new_bytes - self.bytes < self.bytes / ROOM_GROWTH => Pages::Room,
            true => Pages::Zero,
            false => Pages::Any,
        }
    }

    /// Copies to the new block what is left of this one behind so many bytes that were moved from `source` on.
    fn copy_rest(&self, source: usize, done: usize, new: NewBlock) {
        let start = source + self.block.offset() - self.skipped();
        let rest = start.max(source + done)..start + self.bytes;
        let target = new.address + (rest.start - start);
        // SAFETY: a part of a live block that belongs to the caller of `realloc`, and as much of a new one.
        unsafe { copy(rest, target) }
    }
}

impl Large {
    /// Moves a block that grows to the first page of a new span; its page tables, if they may be moved.
    pub(super) fn relocate(
        &self,
        spans: &Spans,
        shard: usize,
        block: Live,
        new_bytes: usize,
    ) -> Option<usize> {
        let bytes = block.bytes();
        let may_move = bytes >= MOVE_BYTES_MIN && may_move(spans);
        // SAFETY: the block belongs to the caller of `realloc`.
        let is_sparse = may_move
            && bytes >= LOOKED_AT_MIN
            && unsafe { written(&spans.map, block.first, bytes) != Some(Written::All) };
        self.relocate_as(spans, shard, Growth { block, bytes, new_bytes, may_move, is_sparse })
    }

    fn relocate_as(&self, spans: &Spans, shard: usize, growth: Growth) -> Option<usize> {
        let (map, skipped, moved_bytes) = (&spans.map, growth.skipped(), growth.moved_bytes());
        let start = Start::At(growth.block.offset() - skipped);
        let new = self.allocate_at(spans, shard, growth.new_bytes, GRANULE_BYTES, start, growth.pages())?;
        let new_first = map.granule_of(new.address)?;
        let (source, target) = (map.address(growth.block.first) + skipped, map.address(new_first));
        // Moving to a span that has pages would throw these away, huge ones that were just brought in for it, too.
        let is_empty = new.zero && map.record(new_first).large().had_no_pages();
        let moves = growth.may_move && (is_empty || growth.keeps_pages());
        let (done, mut end) = if moves {
            // SAFETY: both spans are blocks that belong to the caller of `realloc`, and distinct.
            unsafe { move_block(spans, source, target, moved_bytes) }
        } else {
            (0, os::Moved::Refused)
        };
        if done > 0 {
            map.set_moved(new_first, true);
        }
        if end == os::Moved::Done {
            end = self.gather_behind(spans, new_first, moved_bytes);
        }
        match end {
            os::Moved::Done => {}
            os::Moved::Refused => {
                // The target may be a new mapping.
                if moves {
                    map.reservation.advise(target, bytes_of(map.record(new_first).granules.get()));
                }
                let is_untouched = moves && done == 0 && new.zero;
                if is_untouched && growth.keeps_pages() && growth.new_bytes <= COPIED_MAX {
                    self.give_untouched(spans, shard, new_first);
                    return self.relocate_as(spans, shard, Growth { may_move: false, ..growth });
                }
                growth.copy_rest(source, done, new);
            }
            os::Moved::TargetLost => return self.relocate_lost(spans, shard, growth, new, done),
        }
        self.leave(spans, shard, growth, end == os::Moved::Done);
        Some(new.address)
    }

    /// Copies a block whose target was lost when so many bytes were there. The target's span stays a block of nobody, and in no books: its
    /// addresses are not ours any more, but for what was moved.
    fn relocate_lost(
        &self,
        spans: &Spans,
        shard: usize,
        growth: Growth,
        lost: NewBlock,
        done: usize,
    ) -> Option<usize> {
        lose_target(spans);
        spans.in_shard(shard, |_| self.books.remove(shard, growth.new_bytes));
        // Where it was before it ended.
        let old = spans.map.address(growth.block.first) + growth.block.offset();
        let new = self.relocate_as(spans, shard, Growth { may_move: false, ..growth });
        let target = lost.address & !(GRANULE_BYTES - 1);
        let moved = lost.address..(target + done).max(lost.address);
        // SAFETY: what was moved of a live block, to where it was, or to the new one. The moves mapped what is purged, what that held was
        // copied, and the span is nobody's from now on.
        unsafe {
            copy(moved, new.unwrap_or(old));
            spans.map.purge_moved(target, done);
        }
        new
    }

    /// Gives back the span that a block left; whether its page tables were moved away.
    fn leave(&self, spans: &Spans, shard: usize, growth: Growth, is_moved_away: bool) {
        let (map, Live { first, record }) = (&spans.map, growth.block);
        let (granules, source, skipped) = (record.granules.get(), map.address(first), growth.skipped());
        record.set_state(State::Interior);
        spans.in_shard(shard, |kept| {
            self.books.remove(shard, growth.bytes);
            kept.note_growth();
        });
        // What lies in front of the block did not go along.
        // SAFETY: pages of a span that has no block and is in no list yet.
        let mut zero = is_moved_away && (skipped == 0 || unsafe { spans.purge(source, skipped) });
        if zero && record.is_moved() {
            // SAFETY: the pages were moved away, and the span is in no list yet.
            zero = unsafe { map.reservation.renew(source, bytes_of(granules)) };
            map.set_moved(first, !zero);
        }
        spans.give(first, granules, zero);
    }
}

/// Copies bytes to an address.
///
/// # Safety
/// They may be read, as many may be written there, and the two are distinct.
unsafe fn copy(from: Range<usize>, to: usize) {
    // SAFETY: as the caller promises.
    unsafe { core::ptr::copy_nonoverlapping(from.start as *const u8, to as *mut u8, from.len()) }
}
