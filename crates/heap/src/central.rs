//! Central: the blocks that no thread cache holds. Per size class, the slabs with free blocks, and magazines in
//! transit between threads, sharded by CPU.
//!
//! SYNCHRONIZATION: a stack lock per shard and class, a slab lock per class. Order: stack, then class, then spans;
//! no two of one rank are held at once, except for a fork.

use crate::lock::Lock;
use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::PageMap;
use crate::size_class::{self, CLASSES};
use crate::slab;
use crate::spans::Spans;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Shards; CPUs beyond share them.
const SHARDS: usize = 64;
/// Magazines a shard keeps per class, and the most bytes of blocks in them: beyond, blocks go back to their slabs, or
/// slabs would never empty.
const STACK_MAX: u32 = 8;
const STACK_BYTES_MAX: usize = 64 * 1024;
/// Slabs of a class are listed by how full they are.
const FILL_LISTS: usize = 8;

/// The blocks of a heap that no thread holds.
pub struct Central {
    shards: [Shard; SHARDS],
    classes: [Lock<Slabs>; CLASSES],
    /// Shards with an index below this were ever used.
    shards_used: AtomicUsize,
    /// Bytes of blocks that are not in their slabs, and the most there ever were.
    out_bytes: AtomicUsize,
    out_bytes_peak: AtomicUsize,
}

struct Shard {
    stacks: [Lock<Stack>; CLASSES],
}

/// Magazines, linked through their first blocks.
struct Stack {
    top: Magazine,
    magazines: u32,
}

/// The slabs of one class that have free blocks.
struct Slabs {
    /// First slab of each fullness, fullest first; 0 for none.
    heads: [u32; FILL_LISTS],
    /// All slabs of the class, also full ones.
    count: u32,
    /// Free blocks in all of them.
    free_blocks: u32,
}

/// Slabs and blocks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Slabs.
    pub slabs: u32,
    /// Free blocks in their slabs.
    pub free_blocks: u32,
    /// Free blocks in magazines in transit.
    pub transit_blocks: u32,
}

impl Central {
    /// No blocks.
    pub const fn new() -> Self {
        Self {
            shards: [const { Shard::new() }; SHARDS],
            classes: [const { Lock::new(Slabs { heads: [0; FILL_LISTS], count: 0, free_blocks: 0 }) };
                CLASSES],
            shards_used: AtomicUsize::new(0),
            out_bytes: AtomicUsize::new(0),
            out_bytes_peak: AtomicUsize::new(0),
        }
    }

    fn shard_index(&self) -> usize {
        let index = os::current_cpu() % SHARDS;
        // ORDERING: Relaxed; the bound is only read to visit all shards, whose stacks have locks of their own.
        if index >= self.shards_used.load(Ordering::Relaxed) {
            self.shards_used.fetch_max(index + 1, Ordering::Relaxed);
        }
        index
    }

    fn shards_in_use(&self) -> &[Shard] {
        // ORDERING: Relaxed, as in `shard_index`.
        &self.shards[..self.shards_used.load(Ordering::Relaxed)]
    }

    /// A magazine of up to `want` blocks (a magazine in transit may hold more), `None` when memory is exhausted.
    pub fn fetch(&self, spans: &Spans, class: usize, want: u32) -> Option<Magazine> {
        let own = &self.shards[self.shard_index()];
        if let Some(magazine) = own.stacks[class].lock().pop(&spans.map, class) {
            return Some(magazine);
        }
        if let Some(magazine) = self.take_from_slabs(spans, class, want) {
            return Some(magazine);
        }
        for shard in self.shards_in_use() {
            if let Some(magazine) = shard.stacks[class].lock().pop(&spans.map, class) {
                return Some(magazine);
            }
        }
        self.take_from_new_slab(spans, class, want)
    }

    fn take_from_slabs(&self, spans: &Spans, class: usize, want: u32) -> Option<Magazine> {
        let mut slabs = self.classes[class].lock();
        let first = slabs.fullest()?;
        Some(self.note_taken(class, slabs.take(&spans.map, first, class, want)))
    }

    fn take_from_new_slab(&self, spans: &Spans, class: usize, want: u32) -> Option<Magazine> {
        let span = spans.take(size_class::slab_granules(class), 1, false)?;
        let mut slabs = self.classes[class].lock();
        slab::format(&spans.map, span.first, class);
        slabs.count += 1;
        slabs.free_blocks += size_class::slab_blocks(class);
        slabs.link(&spans.map, span.first, fill_list(class, size_class::slab_blocks(class)));
        Some(self.note_taken(class, slabs.take(&spans.map, span.first, class, want)))
    }

    fn note_taken(&self, class: usize, magazine: Magazine) -> Magazine {
        let bytes = magazine.count as usize * size_class::size(class);
        // ORDERING: Relaxed; statistics.
        let now = self.out_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if now > self.out_bytes_peak.load(Ordering::Relaxed) {
            self.out_bytes_peak.fetch_max(now, Ordering::Relaxed);
        }
        magazine
    }

    /// Takes a magazine over. It is passed on as it is, or its blocks go back to their slabs.
    pub fn store(&self, spans: &Spans, class: usize, magazine: Magazine) {
        if magazine.is_empty() {
            return;
        }
        let bytes = size_class::magazine_max(class) as usize * size_class::size(class);
        let most = STACK_MAX.min((STACK_BYTES_MAX / bytes) as u32);
        let shard = &self.shards[self.shard_index()];
        let refused = {
            let mut stack = shard.stacks[class].lock();
            if stack.magazines < most {
                stack.push(magazine);
                None
            } else {
                Some(magazine)
            }
        };
        if let Some(magazine) = refused {
            self.return_to_slabs(spans, class, magazine);
        }
    }

    /// Puts every block of a magazine back into its slab, and empty slabs back into the span heap.
    pub fn return_to_slabs(&self, spans: &Spans, class: usize, magazine: Magazine) {
        let mut slabs = self.classes[class].lock();
        let (mut block, mut left) = (magazine.head, magazine.count);
        while left > 0 {
            let (first, _) = check(&spans.map, class, block);
            // SAFETY: `check` found a block of this slab; those behind it in the list are checked there.
            let (put, rest) = unsafe { slab::put_run(&spans.map, first, class, block, left) };
            slabs.note_put(spans, first, class, put);
            (block, left) = (rest, left - put);
        }
        if block != 0 {
            misuse(Misuse::CorruptedFreeList, block);
        }
        // ORDERING: Relaxed; a statistic.
        self.out_bytes.fetch_sub(magazine.count as usize * size_class::size(class), Ordering::Relaxed);
    }

    /// Returns all magazines in transit to their slabs.
    pub fn return_transit(&self, spans: &Spans) {
        for shard in self.shards_in_use() {
            for class in 1..CLASSES {
                loop {
                    let popped = shard.stacks[class].lock().pop(&spans.map, class);
                    let Some(magazine) = popped else { break };
                    self.return_to_slabs(spans, class, magazine);
                }
            }
        }
    }

    /// Whether any magazine is in transit.
    pub fn has_transit(&self) -> bool {
        let mut stacks = self.shards_in_use().iter().flat_map(|shard| &shard.stacks);
        stacks.any(|stack| stack.lock().magazines > 0)
    }

    /// Purges the free pages of partly used slabs. Returns the bytes given back.
    pub fn purge_slab_pages(&self, spans: &Spans) -> usize {
        let mut bytes = 0;
        for class in 1..CLASSES {
            let slabs = self.classes[class].lock();
            for mut first in slabs.heads {
                while first != 0 {
                    bytes += slab::purge_free_pages(&spans.map, first, class, |address, bytes| {
                        // SAFETY: pages of which every block is free in the bitmap, which the class lock guards.
                        unsafe { os::purge(address, bytes) }
                    });
                    first = spans.map.record(first).next.get();
                }
            }
        }
        bytes
    }

    /// Slabs and free blocks of a class.
    pub fn counts(&self, map: &PageMap, class: usize) -> ClassCounts {
        let transit_blocks =
            self.shards_in_use().iter().map(|shard| shard.stacks[class].lock().blocks(map)).sum();
        let slabs = self.classes[class].lock();
        ClassCounts { slabs: slabs.count, free_blocks: slabs.free_blocks, transit_blocks }
    }

    /// The most bytes of blocks that ever were out of their slabs: in use, or in a thread's cache.
    pub fn out_bytes_peak(&self) -> usize {
        // ORDERING: Relaxed; a statistic.
        self.out_bytes_peak.load(Ordering::Relaxed)
    }

    /// Whether a block is known to be free: in its slab's bitmap.
    pub fn is_free(&self, map: &PageMap, class: usize, block: usize) -> bool {
        let (first, index) = check(map, class, block);
        let _slabs = self.classes[class].lock();
        slab::is_free(map, first, index)
    }

    /// Takes every lock in use for the time of a fork. Returns how many shards that were.
    pub fn hold_for_fork(&self) -> usize {
        let shards = self.shards_in_use();
        shards.iter().flat_map(|shard| &shard.stacks).for_each(Lock::hold_for_fork);
        self.classes.iter().for_each(Lock::hold_for_fork);
        shards.len()
    }

    /// The other half of [`Central::hold_for_fork`], which held `shards` shards.
    pub fn release_after_fork(&self, shards: usize) {
        self.classes.iter().for_each(Lock::release_after_fork);
        self.shards[..shards].iter().flat_map(|shard| &shard.stacks).for_each(Lock::release_after_fork);
    }

    /// In a forked child: empties the shards that came into use while the other `shards` were held. Their blocks are lost
    /// to the child.
    ///
    /// # Safety
    /// No other thread exists.
    pub unsafe fn forget_shards_beyond(&self, shards: usize) {
        for stack in self.shards_in_use().iter().skip(shards).flat_map(|shard| &shard.stacks) {
            // SAFETY: the caller is the only thread, and the stack is emptied before its next use.
            unsafe { stack.reset_in_child() };
            *stack.lock() = Stack { top: Magazine::EMPTY, magazines: 0 };
        }
    }
}

impl Default for Central {
    fn default() -> Self {
        Self::new()
    }
}

/// Slab and index of a block that is said to be of `class`; ends the process if it is not.
fn check(map: &PageMap, class: usize, block: usize) -> (u32, u32) {
    let granule = map.granule_of(block).filter(|&granule| map.class_of(granule) == class);
    let Some(granule) = granule else { misuse(Misuse::CorruptedFreeList, block) };
    let first = slab::slab_of(map, granule);
    let (index, offset) = size_class::locate(class, block - map.address(first));
    if offset != 0 || index >= size_class::slab_blocks(class) {
        misuse(Misuse::InvalidPointer, block);
    }
    (first, index)
}

/// The list for a slab with `free` free blocks; the fullest slabs are in list 0.
fn fill_list(class: usize, free: u32) -> usize {
    (free as usize * FILL_LISTS / (size_class::slab_blocks(class) as usize + 1)).min(FILL_LISTS - 1)
}

impl Shard {
    const fn new() -> Self {
        let stacks = [const { Lock::new(Stack { top: Magazine::EMPTY, magazines: 0 }) }; CLASSES];
        Self { stacks }
    }
}

impl Stack {
    fn push(&mut self, magazine: Magazine) {
        // SAFETY: the magazine's blocks are the caller's and become the stack's.
        unsafe { magazine::set_link(magazine.head, self.top.pack()) };
        self.top = magazine;
        self.magazines += 1;
    }

    fn pop(&mut self, map: &PageMap, class: usize) -> Option<Magazine> {
        let magazine = self.top;
        if magazine.is_empty() {
            return None;
        }
        // SAFETY: the first block of a magazine that this stack owns.
        let below = Magazine::unpack(unsafe { magazine::link(magazine.head) });
        if !below.is_empty() && map.granule_of(below.head).map(|granule| map.class_of(granule)) != Some(class)
        {
            misuse(Misuse::CorruptedFreeList, magazine.head);
        }
        self.top = below;
        self.magazines -= 1;
        Some(magazine)
    }

    fn blocks(&self, map: &PageMap) -> u32 {
        let (mut magazine, mut blocks) = (self.top, 0);
        for _ in 0..self.magazines {
            blocks += magazine.count;
            if map.granule_of(magazine.head).is_none() {
                break;
            }
            // SAFETY: a magazine of this stack, in committed memory.
            magazine = Magazine::unpack(unsafe { magazine::link(magazine.head) });
        }
        blocks
    }
}

impl Slabs {
    fn fullest(&self) -> Option<u32> {
        self.heads.into_iter().find(|&head| head != 0)
    }

    fn take(&mut self, map: &PageMap, first: u32, class: usize, want: u32) -> Magazine {
        let magazine = slab::take(map, first, class, want);
        self.free_blocks -= magazine.count;
        let free = u32::from(map.record(first).free_blocks.get());
        if free == 0 {
            self.unlink(map, first);
        } else {
            self.relink(map, first, fill_list(class, free));
        }
        magazine
    }

    /// Blocks were put back into a slab; one that is empty then is a slab no more.
    fn note_put(&mut self, spans: &Spans, first: u32, class: usize, blocks: u32) {
        let map = &spans.map;
        let free = u32::from(map.record(first).free_blocks.get());
        self.free_blocks += blocks;
        if free == size_class::slab_blocks(class) {
            if free > blocks {
                self.unlink(map, first);
            }
            self.free_blocks -= free;
            self.count -= 1;
            slab::dissolve(map, first, class);
            spans.give(first, size_class::slab_granules(class), false);
        } else if free == blocks {
            self.link(map, first, fill_list(class, free));
        } else {
            self.relink(map, first, fill_list(class, free));
        }
    }

    fn relink(&mut self, map: &PageMap, first: u32, list: usize) {
        if usize::from(map.record(first).bin.get()) != list {
            self.unlink(map, first);
            self.link(map, first, list);
        }
    }

    fn link(&mut self, map: &PageMap, first: u32, list: usize) {
        let (record, head) = (map.record(first), self.heads[list]);
        record.bin.set(list as u8);
        record.prev.set(0);
        record.next.set(head);
        if head != 0 {
            map.record(head).prev.set(first);
        }
        self.heads[list] = first;
    }

    fn unlink(&mut self, map: &PageMap, first: u32) {
        let record = map.record(first);
        let (prev, next) = (record.prev.get(), record.next.get());
        if prev != 0 {
            map.record(prev).next.set(next);
        } else {
            self.heads[usize::from(record.bin.get())] = next;
        }
        if next != 0 {
            map.record(next).prev.set(prev);
        }
    }
}
