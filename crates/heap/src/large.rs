//! Large blocks: a span each. Grown in place where the neighbour is free, else moved by page tables, not by copying.

mod books;
mod filled;
mod gathering;
mod relocation;
mod start;
mod turns;

use crate::colour::LINE_BYTES;
use crate::granule::{GRANULE_BYTES, Span, bytes_of, granules_for};
use crate::magazine::Magazine;
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::{Record, State};
use crate::size_class::SMALL_MAX;
use crate::span_heap::Taken;
use crate::spans::{RECENT, Spans};
use books::Books;
pub use books::{LargeBin, LargeTotals, bin_of};
use core::ops::RangeInclusive;
use filled::Filled;
use gathering::shows_filled;
use start::Start;
pub use turns::{Told, Turns};

/// log2 of the unit in which the sizes of large blocks are counted: 4 KiB whatever the kernel's page is. Where that is larger, a span
/// is whole pages all the same; and no fast path asks for it.
const UNIT_SHIFT: usize = 12;
const UNIT_BYTES: usize = 1 << UNIT_SHIFT;
/// A block counts as used in full if at most one of so many of its pages is missing: to bring in all then costs no more than that.
pub const MISSING_PART: usize = 16;

/// A block of such a span is at most four times as long as what it has to spare.
const SHORT_GRANULES: u32 = 4;

/// Blocks that threads keep: longer than this, which small ones have where they need a granule's alignment, and up to a MiB. For longer ones
/// a lock's time is little beside that of using them.
const KEPT_BYTES: RangeInclusive<usize> = SMALL_MAX + 1..=1 << 20;
/// The longest of their spans, in granules.
pub const KEPT_LONGEST: u32 = (*KEPT_BYTES.end() + LINE_BYTES).div_ceil(GRANULE_BYTES) as u32;

/// The large blocks of a heap.
pub struct Large {
    books: Books,
    filled: Filled,
}

/// A block just allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBlock {
    /// Its address.
    pub address: usize,
    /// Whether it reads as zero.
    pub zero: bool,
}

/// What the pages of a new block are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Such as there are, wherever they are.
    Any,
    /// Zero: what would have to be cleared is not brought here from elsewhere.
    Zero,
    /// Such as there are in a span with room behind, for the block will grow again.
    Room,
    /// None: the caller brings its own.
    None,
}

/// A large block that a thread has, or keeps.
#[derive(Clone, Copy)]
pub struct Live<'map> {
    first: u32,
    record: &'map Record,
}

impl<'map> Live<'map> {
    /// The one whose span begins there, of which this is the record.
    #[inline]
    pub fn new(first: u32, record: &'map Record) -> Self {
        Self { first, record }
    }

    /// Bytes that the program may use.
    #[inline]
    pub fn bytes(self) -> usize {
        self.record.large().bytes()
    }

    /// From the start of its span to the block.
    #[inline]
    fn offset(self) -> usize {
        self.record.large().offset()
    }

    /// It ends, or gets another size; whether the pages that it left are wanted again. Returns the bytes of those that are there.
    #[inline(always)]
    fn forget_rest(self, spans: &Spans, is_wanted: bool) -> usize {
        if self.record.large().rest() > 0 { spans.forget_rest(self.first, is_wanted) } else { 0 }
    }

    /// Where its span lies, if a thread may keep it.
    #[inline]
    pub fn kept_span(self) -> Option<Span> {
        let granules = self.record.granules.get();
        (granules <= KEPT_LONGEST && self.bytes() > SMALL_MAX).then_some(Span { first: self.first, granules })
    }

    /// Says that a thread keeps it, or that it is live.
    #[inline]
    pub fn set_kept(self, is_kept: bool) {
        self.record.set_state(if is_kept { State::Cached } else { State::Large });
    }
}

impl NewBlock {
    /// What there is when memory is exhausted.
    pub const NONE: Self = Self { address: 0, zero: false };
}

impl Large {
    /// No blocks.
    pub const fn new() -> Self {
        Self { books: Books::new(), filled: Filled::new() }
    }

    /// Allocates `bytes` at a multiple of `align`, a power of two, for a thread of this shard.
    pub fn allocate(
        &self,
        spans: &Spans,
        shard: usize,
        bytes: usize,
        align: usize,
        pages: Pages,
    ) -> Option<NewBlock> {
        self.allocate_at(spans, shard, bytes, align, Start::for_align(align), pages)
    }

    fn allocate_at(
        &self,
        spans: &Spans,
        shard: usize,
        bytes: usize,
        align: usize,
        start: Start,
        pages: Pages,
    ) -> Option<NewBlock> {
        if bytes > isize::MAX as usize {
            return None;
        }
        let bytes = whole_units(bytes.max(1));
        let granules = granules_for(bytes + start.at_least(bytes))?;
        let align_granules = u32::try_from(align.div_ceil(GRANULE_BYTES)).ok()?;
        spans.shelve_recent(shard);
        let recent = spans.in_shard(shard, |kept| {
            self.settle(shard);
            let serves = align_granules <= 1 && pages != Pages::None;
            let taken =
                serves.then(|| spans.take_large(shard, kept, granules, pages != Pages::Room)).flatten();
            if taken.is_some() {
                self.books.add(shard, bytes);
            }
            taken
        });
        let taken = match recent {
            Some(first) => Taken { first, zero: false },
            None => self.take(spans, shard, bytes, granules, align_granules, pages)?,
        };
        let spare = bytes_of(granules) - bytes;
        let offset = start.offset_in(taken.first, spare);
        let record = spans.map.record(taken.first).make_large(bytes, offset);
        if recent.is_some() {
            record.set_had_no_pages(false);
        }
        // A granule that is there only for the block's place, and much beside it.
        if spare == GRANULE_BYTES && granules <= SHORT_GRANULES && !taken.zero {
            spans.leave_spare_granule(taken.first);
        }
        Some(NewBlock { address: spans.map.address(taken.first) + offset, zero: taken.zero })
    }

    /// Takes a span that nobody keeps, for a block of so many bytes that begins somewhere in it. Not inlined: who finds what its shard
    /// keeps should not save registers for this.
    #[inline(never)]
    fn take(
        &self,
        spans: &Spans,
        shard: usize,
        bytes: usize,
        granules: u32,
        align: u32,
        pages: Pages,
    ) -> Option<Taken> {
        let has_own = pages == Pages::None;
        let may_be_huge = !has_own && spans.map.reservation.are_huge_pages_auto();
        let wants_huge = self.filled.wants_huge(bytes) && may_be_huge;
        let (Taken { first, zero }, gathered) = if wants_huge && !spans.has_dirty(shard, granules) {
            (spans.take_for_huge(shard, granules, align)?, 0)
        } else {
            self.take_and_gather(spans, shard, granules, align, pages)?
        };
        spans.map.record(first).make_large(bytes, 0);
        let is_new = gathered == 0 || !wants_huge && shows_filled(gathered, granules);
        self.filled.allocated(spans, first, bytes, zero && !has_own && is_new);
        spans.in_shard(shard, |_| self.books.add(shard, bytes));
        Some(Taken { first, zero: zero && gathered == 0 })
    }

    /// Allocates what the process's only thread freed last, if that was as large and is still at hand; 0 otherwise.
    #[inline]
    pub fn allocate_last(&self, spans: &Spans, bytes: usize) -> usize {
        self.allocate_from(spans, 0, bytes).unwrap_or(0)
    }

    /// As [`Large::allocate_last`], what it freed beside that.
    pub fn allocate_beside(&self, spans: &Spans, bytes: usize) -> usize {
        (1..RECENT).find_map(|place| self.allocate_from(spans, place, bytes)).unwrap_or(0)
    }

    #[inline(always)]
    fn allocate_from(&self, spans: &Spans, place: usize, bytes: usize) -> Option<usize> {
        let bytes = whole_units(bytes);
        // More than there can be was never freed.
        if bytes == 0 || !self.books.was_freed_last(place, bytes) {
            return None;
        }
        let first = spans.take_recent(place)?;
        self.books.add_again(place);
        let block = Live { first, record: spans.map.record(first) };
        block.set_kept(false);
        Some(spans.map.address(first) + block.offset())
    }

    /// Frees a block of the process's only thread so that [`Large::allocate_last`] or [`Large::allocate_beside`] has it, if it is worth keeping.
    #[inline]
    pub fn keep_last(&self, spans: &Spans, block: Live) -> bool {
        self.keep_in(spans, 0, block) || self.keep_beside(spans, block)
    }

    /// Not inlined: who has one block at a time finds room in the first place.
    #[inline(never)]
    fn keep_beside(&self, spans: &Spans, block: Live) -> bool {
        (1..RECENT).any(|place| self.keep_in(spans, place, block))
    }

    #[inline(always)]
    fn keep_in(&self, spans: &Spans, place: usize, block: Live) -> bool {
        let bytes = block.bytes();
        let keeps = spans.keep_recent(place, block.first, block.record);
        if keeps {
            self.filled.freed(&spans.map, block.first, bytes);
            block.forget_rest(spans, true);
            self.books.remove_later(place, bytes);
        }
        keeps
    }

    /// How many granules the span of such a block has, if threads keep such.
    #[inline]
    pub fn kept_granules(bytes: usize, align: usize) -> Option<u32> {
        let at_least = Start::for_align(align).at_least(bytes);
        (KEPT_BYTES.contains(&bytes) && align <= GRANULE_BYTES)
            .then(|| (whole_units(bytes) + at_least).div_ceil(GRANULE_BYTES) as u32)
    }

    /// Makes a block, as long as [`Large::kept_granules`] says, of one that a thread kept and has taken out again. Returns where it begins.
    #[inline(always)]
    pub fn allocate_kept(
        &self,
        spans: &Spans,
        block: Live,
        bytes: usize,
        align: usize,
        turns: &Turns,
    ) -> usize {
        let bytes = whole_units(bytes);
        if block.bytes() == bytes {
            block.set_kept(false);
            turns.note(bytes);
        } else {
            self.resize_kept(spans, block, bytes, align, turns);
        }
        spans.map.address(block.first) + block.offset()
    }

    /// Not inlined: who takes and frees one size should not save registers for this.
    #[inline(never)]
    fn resize_kept(&self, spans: &Spans, block: Live, bytes: usize, align: usize, turns: &Turns) {
        let Live { first, record } = block;
        let was = block.bytes();
        block.forget_rest(spans, true);
        let spare = bytes_of(record.granules.get()) - bytes;
        record.make_large(bytes, Start::for_align(align).offset_in(first, spare));
        turns.note(bytes);
        turns.note_resized(was, bytes);
    }

    /// Tells the books of what a thread of this shard did. By that thread.
    pub fn settle_turns(&self, spans: &Spans, shard: usize, turns: &Turns) {
        spans.in_shard(shard, |_| self.books.add_turns(shard, turns));
        turns.clear();
    }

    /// Lets the large block at `address`, new and of nobody yet, begin at the start of its span. Returns where that is.
    pub fn move_to_start(&self, spans: &Spans, address: usize) -> usize {
        let block = self.look_up(spans, address);
        // One that a thread kept may have pages in front of it that are just being given back.
        let rest = block.forget_rest(spans, true);
        block.record.large().set_offset(0);
        spans.leave_rest(block.first, rest);
        address & !(GRANULE_BYTES - 1)
    }

    /// Whether most was written of the last block of about so many bytes that was looked at.
    pub fn are_written(&self, bytes: usize) -> bool {
        self.filled.are_written(whole_units(bytes))
    }

    /// The new block at `address`, of so many bytes, held something and was cleared.
    pub fn note_cleared(&self, spans: &Spans, address: usize, bytes: usize) {
        if bytes >= os::HUGE_PAGE_BYTES {
            // What it holds at its end was written since.
            self.look_up(spans, address).record.large().set_had_no_pages(true);
        }
    }

    /// Tells the books of a shard all. By the only thread, or under the lock of what the shard keeps.
    fn settle(&self, shard: usize) {
        if shard == 0 || os::is_single_threaded() {
            self.books.settle();
        }
    }

    /// The large block at `address`.
    #[inline]
    pub fn find<'a>(&self, spans: &'a Spans, address: usize) -> Option<Live<'a>> {
        let (first, record) = spans.map.record_at(address)?;
        let block = Live { first, record };
        (record.state() == State::Large && address % GRANULE_BYTES == block.offset()).then_some(block)
    }

    /// The large block at `address`; ends the process if there is none.
    #[inline]
    pub fn look_up<'a>(&self, spans: &'a Spans, address: usize) -> Live<'a> {
        match self.find(spans, address) {
            Some(block) => block,
            None => no_block(spans, address),
        }
    }

    /// Frees a large block, by a thread of this shard, which may keep it.
    pub fn free(&self, spans: &Spans, shard: usize, block: Live) {
        if let Some(Span { first, granules }) = self.end(spans, shard, block, true) {
            spans.give(first, granules, false);
        }
    }

    /// Frees the blocks of a list that a thread kept; `idle`: for so long that they need not wait again.
    pub fn give_back(&self, spans: &Spans, shard: usize, list: Magazine, idle: bool) {
        let mut next = list.head as u32;
        for _ in 0..list.count {
            let block = Live { first: next, record: spans.map.record(next) };
            next = block.record.prev.get();
            block.set_kept(false);
            match self.end(spans, shard, block, false) {
                Some(Span { first, granules }) if idle => spans.give_unused(first, granules),
                Some(Span { first, granules }) => spans.give(first, granules, false),
                None => {}
            }
        }
    }

    /// Returns the span of the block, unless the shard keeps it.
    fn end(&self, spans: &Spans, shard: usize, block: Live, may_keep: bool) -> Option<Span> {
        let (Live { first, record }, bytes) = (block, block.bytes());
        self.filled.freed(&spans.map, first, bytes);
        block.forget_rest(spans, true);
        record.set_state(State::Interior);
        let span = Span { first, granules: record.granules.get() };
        let leaves = spans.in_shard(shard, |kept| {
            self.books.remove(shard, bytes);
            !may_keep || !spans.keep_large(kept, span)
        });
        leaves.then_some(span)
    }

    /// Makes the large block at `address` hold `new_bytes`. Returns where it is then, or `None` if memory is exhausted (the
    /// block is as it was).
    pub fn resize(&self, spans: &Spans, shard: usize, address: usize, new_bytes: usize) -> Option<usize> {
        if new_bytes > isize::MAX as usize {
            return None;
        }
        let block = self.look_up(spans, address);
        let (Live { first, record }, old_bytes) = (block, block.bytes());
        let new_bytes = whole_units(new_bytes);
        let new = granules_for(new_bytes + block.offset())?;
        let (old, rest) = (record.granules.get(), block.forget_rest(spans, new_bytes > old_bytes));
        if new > old {
            let take_behind = || spans.take_behind(shard, Span { first, granules: old }, new - old);
            let taken = match take_behind() {
                Some(taken) => taken,
                None => {
                    let moved = self.relocate(spans, shard, block, new_bytes);
                    if moved.is_some() {
                        return moved;
                    }
                    // What was free behind it in two parts is one when memory ran out: all was purged.
                    let Some(taken) = take_behind() else {
                        spans.leave_rest(first, rest);
                        return None;
                    };
                    taken
                }
            };
            if !taken.zero {
                // What others left there would count as its own.
                record.large().set_had_no_pages(false);
            }
            let is_moved = record.is_moved() || spans.map.record(first + old).is_moved();
            spans.map.set_moved(first + old, false);
            spans.map.set_moved(first, is_moved);
            record.granules.set(new);
        } else if new < old {
            spans.map.set_moved(first + new, record.is_moved());
            spans.map.record(first + new).heap.set(record.heap.get());
            record.granules.set(new);
            spans.give(first + new, old - new, false);
        }
        record.large().set_bytes(new_bytes);
        spans.leave_rest(first, (rest + old_bytes).saturating_sub(new_bytes));
        spans.in_shard(shard, |kept| {
            self.settle(shard);
            self.books.remove(shard, old_bytes);
            self.books.add(shard, new_bytes);
            if new > old {
                kept.note_growth();
            }
        });
        Some(address)
    }
}

impl Default for Large {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends the process: no large block begins at this address.
#[cold]
fn no_block(spans: &Spans, address: usize) -> ! {
    let state = spans.map.record_at(address).map(|(_, record)| record.state());
    let is_free = address.is_multiple_of(LINE_BYTES)
        && matches!(state, Some(State::Clean | State::Dirty | State::Kept | State::Cached));
    misuse(if is_free { Misuse::DoubleFree } else { Misuse::InvalidPointer }, address)
}

/// What a large block of so many bytes holds; 0 for more than there can be.
#[inline]
pub fn whole_units(bytes: usize) -> usize {
    bytes.wrapping_add(UNIT_BYTES - 1) & !(UNIT_BYTES - 1)
}
