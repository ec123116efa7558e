//! Slabs: spans cut into equal blocks. Which blocks are free is out of band, one bit each, so that the pages of
//! free blocks can be purged too.
//!
//! SYNCHRONIZATION: slabs are made, read and changed under the lock of their class and shard. What finds a block's slab and its shard
//! ([`HomeSlabs::find`], [`HomeSlab::shard`]) may be called by who has the block without it, to know which lock that is.

use crate::granule::bytes_of;
use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::{PageMap, SlabRecord, State, Tables, Tag};
use crate::size_class::{self, Locator};
use crate::span_heap::{Purges, Taken};

const CACHE_LINE_BYTES: usize = 64;
const WORD_BITS: u32 = 64;
/// `quiet` of a slab that nobody has to look at.
pub const SETTLED: u8 = u8::MAX;

/// Makes a slab of `class` from a span, for the shard of that number: every block free.
pub fn format(map: &PageMap, span: Taken, class: usize, shard: usize) {
    let first = span.first;
    let granules = size_class::slab_granules(class);
    let blocks = size_class::slab_blocks(class);
    for granule in first..first + granules {
        map.record(granule).first.set(first);
    }
    let slab = map.record(first).make_slab(granules, blocks, if span.zero { 0 } else { blocks });
    slab.set_start((map.address(first) + size_class::slab_offset(class, first)) as u32);
    // What has no pages has none to give back.
    slab.set_quiet(if span.zero { SETTLED } else { 0 });
    let bitmap = map.bitmap(first, granules);
    for word in 0..blocks.div_ceil(WORD_BITS) {
        let bits = (blocks - word * WORD_BITS).min(WORD_BITS);
        bitmap[word as usize].set(u64::MAX >> (WORD_BITS - bits));
    }
    set_shard(map, first, class, shard);
}

/// Makes a plain span of a slab whose blocks are all free.
pub fn dissolve(map: &PageMap, first: u32, class: usize) {
    debug_assert_eq!(map.record(first).slab().free_blocks(), size_class::slab_blocks(class));
    map.set_tag(first, size_class::slab_granules(class), Tag(0));
    map.record(first).set_state(State::Interior);
}

/// Says whose a slab is: a new one's, or another's from now on. Under the class lock of that shard, and of the one before.
pub fn set_shard(map: &PageMap, first: u32, class: usize, shard: usize) {
    let record = map.record(first);
    record.slab().set_shard(shard);
    map.set_tag(first, record.granules.get(), Tag::new(class, shard));
}

/// Takes up to `want` free blocks, lowest addresses first.
///
/// Blocks smaller than a cache line leave by whole lines where that is possible, so that two threads do not
/// share one.
pub fn take(map: &PageMap, first: u32, class: usize, want: u32) -> Magazine {
    let slab = map.record(first).slab();
    let (size, span) = (size_class::size(class), map.address(first));
    let base = span + slab.start().wrapping_sub(span as u32) as usize;
    let bitmap = map.bitmap(first, slab.granules());
    let words = size_class::slab_blocks(class).div_ceil(WORD_BITS) as usize;
    let (mut head, mut pending, mut count) = (0, (0, 0), 0);
    let mut behind = 0;
    let mut purged = slab.purged_pages();
    let mut word = usize::from(slab.hint());
    while word < words && count < want {
        let bits = bitmap[word].get();
        if bits == 0 {
            word += 1;
            continue;
        }
        let start = bits.trailing_zeros();
        let block = base + (word as u32 * WORD_BITS + start) as usize * size;
        let run = (bits >> start).trailing_ones();
        let taken = if run > want - count { whole_lines(block, size, want - count, count) } else { run };
        if taken == 0 {
            break;
        }
        bitmap[word].set(bits & !(u64::MAX >> (WORD_BITS - taken) << start));
        if taken > FEW {
            fetch_run(block, size, taken);
        }
        // SAFETY: the blocks before this run were free in the bitmap, as it is; the class lock makes them ours.
        unsafe { link_run(pending, size, block) };
        if head == 0 {
            head = block;
        }
        pending = (block, taken);
        count += taken;
        behind = word as u32 * WORD_BITS + start + taken;
        if purged != 0 {
            purged &= !pages_of(block - span, taken as usize * size, os::page_bytes());
        }
    }
    // SAFETY: as above.
    unsafe { link_run(pending, size, 0) };
    slab.set_hint(word as u16);
    if slab.quiet() != SETTLED {
        slab.set_quiet(0);
    }
    slab.set_purged_pages(purged);
    slab.set_unused_from(slab.unused_from().max(behind));
    let free = slab.free_blocks();
    debug_assert!(count <= free);
    slab.set_free_blocks(free - count);
    Magazine { head, count }
}

/// Of a run of no more blocks fetching the lines costs more than it saves.
const FEW: u32 = 4;

/// Fetches the lines of `count` neighbouring blocks that are about to be linked, all at once: else the links wait for one line after the
/// other, and who releases a lock behind them waits for all.
#[inline(always)]
fn fetch_run(block: usize, size: usize, count: u32) {
    let (lines, distance) = if size < CACHE_LINE_BYTES {
        ((count as usize * size).div_ceil(CACHE_LINE_BYTES), CACHE_LINE_BYTES)
    } else {
        (count as usize, size)
    };
    (0..lines).for_each(|line| magazine::fetch_to_write(block + line * distance));
}

/// Links so many neighbouring blocks from one on, if there are any, each before the next and the last before `behind`.
///
/// # Safety
/// They are the caller's.
#[inline(always)]
unsafe fn link_run((mut block, count): (usize, u32), size: usize, behind: usize) {
    if block == 0 {
        return;
    }
    for _ in 1..count {
        // SAFETY: the caller says so.
        unsafe { magazine::set_next(block, block + size) };
        block += size;
    }
    // SAFETY: as above.
    unsafe { magazine::set_next(block, behind) };
}

/// Whether the next block taken is one that never left its slab since the memory came from the kernel: all that are free are such.
pub fn gives_unused(map: &PageMap, first: u32, class: usize) -> bool {
    let slab = map.record(first).slab();
    slab.free_blocks() + slab.unused_from() == size_class::slab_blocks(class)
}

/// How many of `room` neighbouring blocks from `block` on to take so that the next begins a cache line; all where that would
/// leave nothing, since `before` is what was taken already.
fn whole_lines(block: usize, size: usize, room: u32, before: u32) -> u32 {
    let behind = block + room as usize * size;
    let over = if size < CACHE_LINE_BYTES { (behind % CACHE_LINE_BYTES / size) as u32 } else { 0 };
    if over < room || (over == room && before > 0) { room - over } else { room }
}

/// Finds the slabs that blocks of one class come back to; what all of them have in common is looked up once.
#[derive(Clone, Copy)]
pub struct HomeSlabs<'map> {
    tables: Tables<'map>,
    class: usize,
    locator: Locator,
    blocks: u32,
    /// Bytes of all blocks of a slab.
    blocks_bytes: u32,
}

/// A slab that blocks come back to.
#[derive(Clone, Copy)]
pub struct HomeSlab<'map> {
    /// Its first granule.
    pub first: u32,
    record: SlabRecord<'map>,
}

impl HomeSlab<'_> {
    /// The number of the shard that it belongs to. May be read without a lock by whoever has a block, and again under the lock.
    #[inline]
    pub fn shard(self) -> usize {
        self.record.shard()
    }

    /// The number of free blocks.
    #[inline]
    pub fn free_blocks(self) -> u32 {
        self.record.free_blocks()
    }

    /// Whether it is to be looked at if it belongs into another list of its class. Under the lock.
    #[inline]
    pub fn is_to_be_relisted(self) -> bool {
        self.record.free_blocks() >= self.record.relist_at()
    }

    /// Blocks came back to it. Returns whether it was settled: its free pages were gone, or it had none. Under the lock.
    #[inline]
    pub fn unsettle(self) -> bool {
        let quiet = self.record.quiet();
        if quiet != 0 {
            self.record.set_quiet(0);
        }
        quiet == SETTLED
    }
}

impl<'map> HomeSlabs<'map> {
    /// Of blocks of a class.
    #[inline]
    pub fn new(map: &'map PageMap, class: usize) -> Self {
        let (locator, blocks) = (Locator::of(class), size_class::slab_blocks(class));
        let blocks_bytes = blocks * locator.size() as u32;
        Self { tables: map.tables(), class, locator, blocks, blocks_bytes }
    }

    /// The slab of a block, and the block's index. What is no block of the class ends the process.
    #[inline(always)] // It is much of what `Central::put_blocks` does.
    pub fn find(&self, block: usize) -> (HomeSlab<'map>, u32) {
        let Some((first, record)) = self.tables.slab_of(block, self.class) else {
            misuse(Misuse::CorruptedFreeList, block)
        };
        // What lies before the first block appears to lie far behind the last.
        let (index, inside) = self.locator.locate((block as u32).wrapping_sub(record.start()) as usize);
        if inside != 0 || index >= self.blocks {
            misuse(Misuse::InvalidPointer, block);
        }
        (HomeSlab { first, record }, index)
    }

    /// Whether an address lies among a slab's blocks, or a multiple of 4 GiB away from there, which [`HomeSlabs::put_run`] finds out.
    #[inline(always)]
    pub fn may_hold(&self, slab: HomeSlab<'map>, block: usize) -> bool {
        (block as u32).wrapping_sub(slab.record.start()) < self.blocks_bytes
    }

    /// Puts a block back. One that is free already ends the process.
    ///
    /// # Safety
    /// [`HomeSlabs::find`] found `slab` and `index` for `block`, which is the caller's.
    #[inline(always)] // As `find`.
    pub unsafe fn put_one(&self, slab: HomeSlab<'map>, block: usize, index: u32) {
        // SAFETY: the caller says that there is such a block.
        let word = unsafe { self.tables.bitmap_word(slab.first, index) };
        let (bits, bit) = (word.get(), 1 << (index % WORD_BITS));
        if bits & bit != 0 {
            misuse(Misuse::DoubleFree, block);
        }
        word.set(bits | bit);
        let record = slab.record;
        record.set_hint(record.hint().min((index / WORD_BITS) as u16));
        record.set_free_blocks(record.free_blocks() + 1);
    }

    /// Puts back up to `count` blocks of the list that begins with `block`, the one of `index` in `slab`, as far as they belong there.
    /// Returns how many, and the block behind them. A block that is free already ends the process.
    ///
    /// # Safety
    /// [`HomeSlabs::find`] found `slab` and `index` for `block`, and the list's blocks are the caller's.
    #[inline(always)] // As `find`.
    pub unsafe fn put_run(
        &self,
        slab: HomeSlab<'map>,
        (block, index): (usize, u32),
        count: u32,
    ) -> (u32, usize) {
        let (record, size, blocks) = (slab.record, self.locator.size(), self.blocks);
        let (base, end) = (block - index as usize * size, self.blocks_bytes as usize);
        let bitmap = self.tables.bitmap(slab.first, record.granules());
        let (mut block, mut index, mut left, mut hint) = (block, index, count, record.hint());
        // How far apart the last two blocks were; at first, these two.
        // SAFETY: the caller's block.
        let mut distance = unsafe { magazine::next(block) }.wrapping_sub(block);
        // A word is read and written once for all blocks that come in a row.
        let mut word = (index / WORD_BITS) as usize;
        let mut bits = bitmap[word].get();
        loop {
            let bit = index % WORD_BITS;
            // SAFETY: a block of this slab, whose memory is committed.
            let next = unsafe { magazine::next(block) };
            let (mut mask, mut run, mut rest) = (1 << bit, 1, next);
            let is_regular = next.wrapping_sub(block) == distance;
            distance = next.wrapping_sub(block);
            if is_regular && (distance == size || distance == size.wrapping_neg()) {
                // SAFETY: as above.
                (mask, run, rest) = unsafe { neighbours(block, next, bit, blocks - index, left) };
            }
            if bits & mask != 0 {
                misuse(Misuse::DoubleFree, block);
            }
            (bits, left) = (bits | mask, left - run);
            block = rest;
            let offset = block.wrapping_sub(base);
            if left == 0 || offset >= end {
                break;
            }
            let inside;
            (index, inside) = self.locator.locate(offset);
            if inside != 0 {
                break;
            }
            let its_word = (index / WORD_BITS) as usize;
            if its_word != word {
                bitmap[word].set(bits);
                hint = hint.min(word as u16);
                (word, bits) = (its_word, bitmap[its_word].get());
            }
        }
        let put = count - left;
        bitmap[word].set(bits);
        record.set_hint(hint.min(word as u16));
        let free = slab.free_blocks() + put;
        debug_assert!(free <= blocks);
        record.set_free_blocks(free);
        (put, block)
    }
}

/// `block`, of bit `bit`, and its neighbour `next`, which follows it in its list, and those that follow there, each the neighbour of the
/// one before and in the same word: their bits, how many they are, and the block behind them. The slab holds `above` blocks from this
/// one on, the list `left`.
///
/// What is freed in bulk comes in the order of its addresses, one way or the other; so a bit costs a few instructions.
///
/// # Safety
/// `block` is a block of a slab, and the caller's, as its list is.
unsafe fn neighbours(block: usize, next: usize, bit: u32, above: u32, left: u32) -> (u64, u32, usize) {
    // SAFETY: the caller says that `block` is one, in committed memory; every further one is its neighbour in the same slab.
    let next_of = |block| unsafe { magazine::next(block) };
    let step = next.wrapping_sub(block);
    let (mut last, mut next, mut run) = (block, next, 1);
    let is_down = (step as isize) < 0;
    let most = left.min(if is_down { bit + 1 } else { above.min(WORD_BITS - bit) });
    while run < most && next == last.wrapping_add(step) {
        (last, next, run) = (next, next_of(next), run + 1);
    }
    let lowest = if is_down { bit + 1 - run } else { bit };
    (u64::MAX >> (WORD_BITS - run) << lowest, run, next)
}

/// Bits of the pages that a block touches. A slab has 64 pages at most.
fn pages_of(offset: usize, size: usize, page_bytes: usize) -> u64 {
    let (from, to) = (offset / page_bytes, (offset + size - 1) / page_bytes);
    (u64::MAX >> (63 - (to - from))) << from
}

/// Pages of a slab.
pub fn pages(class: usize) -> u32 {
    (bytes_of(size_class::slab_granules(class)) / os::page_bytes()) as u32
}

/// Purges every run of pages in which all blocks are free and which were not purged before.
pub fn purge_free_pages(map: &PageMap, first: u32, class: usize) -> Purges {
    let (slab, page_bytes) = (map.record(first).slab(), os::page_bytes());
    let base = map.address(first);
    let whole = u64::MAX >> (64 - pages(class));
    let mut due = whole & !slab.purged_pages() & !pages_in_use(map, first, class, page_bytes, whole);
    let mut purges = Purges::NONE;
    while due != 0 {
        let start = due.trailing_zeros();
        let length = (due >> start).trailing_ones();
        let run = (u64::MAX >> (64 - length)) << start;
        due &= !run;
        let bytes = length as usize * page_bytes;
        // SAFETY: pages of which every block is free in the bitmap, which the class lock guards.
        let is_done = unsafe { map.purge(base + start as usize * page_bytes, bytes) };
        purges.note(bytes, is_done);
        if is_done {
            slab.set_purged_pages(slab.purged_pages() | run);
        }
    }
    purges
}

/// Bits of the pages that blocks out of the slab touch; `whole` are those of all its pages.
fn pages_in_use(map: &PageMap, first: u32, class: usize, page_bytes: usize, whole: u64) -> u64 {
    let (size, blocks) = (size_class::size(class), size_class::slab_blocks(class));
    let offset = size_class::slab_offset(class, first);
    let bitmap = map.bitmap(first, size_class::slab_granules(class));
    let mut in_use = 0;
    for word in 0..blocks.div_ceil(WORD_BITS) {
        let bits = (blocks - word * WORD_BITS).min(WORD_BITS);
        let mut used = !bitmap[word as usize].get() & (u64::MAX >> (WORD_BITS - bits));
        while used != 0 {
            let index = word * WORD_BITS + used.trailing_zeros();
            in_use |= pages_of(offset + index as usize * size, size, page_bytes);
            used &= used - 1;
        }
        if in_use == whole {
            break;
        }
    }
    in_use
}
