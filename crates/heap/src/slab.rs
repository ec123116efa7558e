//! Slabs: spans cut into equal blocks. Which blocks are free is out of band, one bit each, so that the pages of
//! free blocks can be purged too.
//!
//! SYNCHRONIZATION: every function here is called under the lock of the slab's class.

use crate::granule::bytes_of;
use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::{PageMap, State, Tag};
use crate::size_class::{self, Locator};
use core::sync::atomic::{Ordering, fence};

const CACHE_LINE_BYTES: usize = 64;
const WORD_BITS: u32 = 64;

/// Makes a slab of `class` from the span that starts at `first`, for the shard of that number: every block free.
pub fn format(map: &PageMap, first: u32, class: usize, shard: usize) {
    let granules = size_class::slab_granules(class);
    let blocks = size_class::slab_blocks(class);
    for granule in first..first + granules {
        map.record(granule).first.set(first);
    }
    let record = map.record(first);
    record.granules.set(granules);
    record.free_blocks.set(blocks as u16);
    record.hint.set(0);
    record.value.set(0);
    record.quiet.set(0);
    let bitmap = map.bitmap(first, granules);
    for word in 0..blocks.div_ceil(WORD_BITS) {
        let bits = (blocks - word * WORD_BITS).min(WORD_BITS);
        bitmap[word as usize].set(u64::MAX >> (WORD_BITS - bits));
    }
    record.set_state(State::Slab);
    set_shard(map, first, class, shard);
}

/// Makes a plain span of a slab whose blocks are all free.
pub fn dissolve(map: &PageMap, first: u32, class: usize) {
    debug_assert_eq!(u32::from(map.record(first).free_blocks.get()), size_class::slab_blocks(class));
    map.set_tag(first, size_class::slab_granules(class), Tag(0));
    map.record(first).set_state(State::Interior);
}

/// The slab that a granule of it belongs to.
pub fn slab_of(map: &PageMap, granule: u32) -> u32 {
    map.record(granule).first.get()
}

/// Says whose a slab is: a new one's, or another's from now on. Under the class lock of that shard, and of the one before.
pub fn set_shard(map: &PageMap, first: u32, class: usize, shard: usize) {
    let record = map.record(first);
    record.older.set(shard as u32);
    // ORDERING: Release publishes state and shard before the tag; pairs with the Acquire fence in `central::idle`, which reads them
    // without the lock to find out which lock that is.
    fence(Ordering::Release);
    map.set_tag(first, record.granules.get(), Tag::new(class, shard));
}

/// The number of the shard that a slab belongs to. May be read without a lock by whoever has a block, and again under the lock.
pub fn shard_of(map: &PageMap, first: u32) -> usize {
    map.record(first).older.get() as usize
}

/// Takes up to `want` free blocks, lowest addresses first.
///
/// Blocks smaller than a cache line leave by whole lines where that is possible, so that two threads do not
/// share one.
pub fn take(map: &PageMap, first: u32, class: usize, want: u32) -> Magazine {
    let record = map.record(first);
    let (size, base) = (size_class::size(class), map.address(first));
    let bitmap = map.bitmap(first, record.granules.get());
    let words = size_class::slab_blocks(class).div_ceil(WORD_BITS) as usize;
    let (mut head, mut tail, mut count) = (0, 0, 0);
    let mut purged = record.value.get();
    let mut word = record.hint.get() as usize;
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
        // SAFETY: the run's blocks, and `tail` before them, were free in the bitmap; the class lock makes them ours.
        unsafe {
            if tail == 0 {
                head = block;
            } else {
                magazine::set_next(tail, block);
            }
            tail = block;
            for _ in 1..taken {
                magazine::set_next(tail, tail + size);
                tail += size;
            }
        }
        count += taken;
        if purged != 0 {
            purged &= !pages_of(block - base, taken as usize * size, os::page_bytes());
        }
    }
    if tail != 0 {
        // SAFETY: as above.
        unsafe { magazine::set_next(tail, 0) };
    }
    record.hint.set(word as u16);
    record.quiet.set(0);
    record.value.set(purged);
    let free = u32::from(record.free_blocks.get());
    debug_assert!(count <= free);
    record.free_blocks.set((free - count) as u16);
    Magazine { head, count }
}

/// How many of `room` neighbouring blocks from `block` on to take so that the next begins a cache line; all where that would
/// leave nothing, since `before` is what was taken already.
fn whole_lines(block: usize, size: usize, room: u32, before: u32) -> u32 {
    let behind = block + room as usize * size;
    let over = if size < CACHE_LINE_BYTES { (behind % CACHE_LINE_BYTES / size) as u32 } else { 0 };
    if over < room || (over == room && before > 0) { room - over } else { room }
}

/// Puts back up to `count` blocks of the list that begins with `block`, as far as they belong to this slab. Returns how many,
/// and the block behind them. A block that is free already, or is none, ends the process.
///
/// # Safety
/// `block` is in this slab, and the list's blocks are the caller's.
pub unsafe fn put_run(map: &PageMap, first: u32, class: usize, block: usize, count: u32) -> (u32, usize) {
    let record = map.record(first);
    let granules = record.granules.get();
    let (base, bytes) = (map.address(first), bytes_of(granules));
    let (blocks, size, locator) =
        (size_class::slab_blocks(class), size_class::size(class), Locator::of(class));
    let bitmap = map.bitmap(first, granules);
    let (mut block, mut put, mut hint) = (block, 0, record.hint.get());
    // A word is read and written once for all blocks that come in a row.
    let (mut word, mut bits) = (usize::MAX, 0);
    while put < count {
        let offset = block.wrapping_sub(base);
        if offset >= bytes {
            break;
        }
        let (index, inside) = locator.locate(offset);
        if inside != 0 || index >= blocks {
            misuse(Misuse::InvalidPointer, block);
        }
        let (its_word, bit) = ((index / WORD_BITS) as usize, index % WORD_BITS);
        if its_word != word {
            if word != usize::MAX {
                bitmap[word].set(bits);
            }
            (word, bits) = (its_word, bitmap[its_word].get());
            hint = hint.min(word as u16);
        }
        // SAFETY: blocks of this slab's word, whose memory is committed: `run` goes on only to neighbours.
        let (mask, run, rest) = unsafe { neighbours(block, size, bit, blocks - index, count - put) };
        if bits & mask != 0 {
            misuse(Misuse::DoubleFree, block);
        }
        bits |= mask;
        put += run;
        block = rest;
    }
    if word != usize::MAX {
        bitmap[word].set(bits);
    }
    record.hint.set(hint);
    record.quiet.set(0);
    let free = u32::from(record.free_blocks.get()) + put;
    debug_assert!(free <= blocks);
    record.free_blocks.set(free as u16);
    (put, block)
}

/// The blocks that follow `block`, of bit `bit`, in its list and in its word, each the neighbour of the one before: their bits,
/// how many they are, and the block behind them. The slab holds `above` blocks from this one on, the list `left`.
///
/// What is freed in bulk comes in the order of its addresses, one way or the other; so a bit costs a few instructions.
///
/// # Safety
/// `block` is a block of a slab, and the caller's, as its list is.
unsafe fn neighbours(block: usize, size: usize, bit: u32, above: u32, left: u32) -> (u64, u32, usize) {
    // SAFETY: the caller says that `block` is one, in committed memory; every further one is its neighbour in the same slab.
    let next_of = |block| unsafe { magazine::next(block) };
    let (mut last, mut next, mut run) = (block, next_of(block), 1);
    if next.abs_diff(block) != size {
        return (1 << bit, 1, next);
    }
    if next == last.wrapping_sub(size) {
        let most = left.min(bit + 1);
        while run < most && next == last.wrapping_sub(size) {
            (last, next, run) = (next, next_of(next), run + 1);
        }
        return (u64::MAX >> (WORD_BITS - run) << (bit + 1 - run), run, next);
    }
    let most = left.min(above).min(WORD_BITS - bit);
    while run < most && next == last + size {
        (last, next, run) = (next, next_of(next), run + 1);
    }
    (u64::MAX >> (WORD_BITS - run) << bit, run, next)
}

/// Whether a block of the slab is in its bitmap, that is, free and in nobody's magazine.
pub fn is_free(map: &PageMap, first: u32, index: u32) -> bool {
    let bitmap = map.bitmap(first, map.record(first).granules.get());
    bitmap[(index / WORD_BITS) as usize].get() & (1 << (index % WORD_BITS)) != 0
}

/// Bits of the pages that a block touches. A slab has 64 pages at most.
fn pages_of(offset: usize, size: usize, page_bytes: usize) -> u64 {
    let (from, to) = (offset / page_bytes, (offset + size - 1) / page_bytes);
    (u64::MAX >> (63 - (to - from))) << from
}

/// Purges every run of pages in which all blocks are free and which were not purged before. Returns the bytes given back.
pub fn purge_free_pages(map: &PageMap, first: u32, class: usize) -> usize {
    let (record, page_bytes) = (map.record(first), os::page_bytes());
    let base = map.address(first);
    let pages = bytes_of(size_class::slab_granules(class)) / page_bytes;
    let whole = u64::MAX >> (64 - pages);
    let mut due = whole & !record.value.get() & !pages_in_use(map, first, class, page_bytes, whole);
    let mut total = 0;
    while due != 0 {
        let start = due.trailing_zeros();
        let length = (due >> start).trailing_ones();
        let run = (u64::MAX >> (64 - length)) << start;
        due &= !run;
        let bytes = length as usize * page_bytes;
        // SAFETY: pages of which every block is free in the bitmap, which the class lock guards.
        let is_done = unsafe {
            map.break_huge_pages(base + start as usize * page_bytes, bytes);
            os::purge(base + start as usize * page_bytes, bytes)
        };
        if is_done {
            record.value.set(record.value.get() | run);
            total += bytes;
        }
    }
    total
}

/// Bits of the pages that blocks out of the slab touch; `whole` are those of all its pages.
fn pages_in_use(map: &PageMap, first: u32, class: usize, page_bytes: usize, whole: u64) -> u64 {
    let (size, blocks) = (size_class::size(class), size_class::slab_blocks(class));
    let bitmap = map.bitmap(first, size_class::slab_granules(class));
    let mut in_use = 0;
    for word in 0..blocks.div_ceil(WORD_BITS) {
        let bits = (blocks - word * WORD_BITS).min(WORD_BITS);
        let mut used = !bitmap[word as usize].get() & (u64::MAX >> (WORD_BITS - bits));
        while used != 0 {
            let index = word * WORD_BITS + used.trailing_zeros();
            in_use |= pages_of(index as usize * size, size, page_bytes);
            used &= used - 1;
        }
        if in_use == whole {
            break;
        }
    }
    in_use
}
