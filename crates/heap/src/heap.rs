//! A heap: allocation, free, resizing, over the layers below. The slow halves; the fast ones are in `global`.

use crate::central::Central;
use crate::granule::GRANULE_BYTES;
use crate::large::{Large, LargeBin, LargeTotals, Live, NewBlock, Pages, bin_of, whole_units};
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::Tag;
use crate::reservation::HugePages;
use crate::size_class::{self, CLASSES, SMALL_MAX};
use crate::span_heap::PurgeMode;
use crate::spans::Spans;
use crate::thread_cache::{Caches, Home, ThreadCache};

/// Everything the allocator knows. Here and in `Spans`, `SpanHeap` and `Central` the order is that of memory, so that what each process
/// writes lies side by side, on few pages: the end of `spans`, `caches`, the beginning of `central` with its first shard.
#[repr(C, align(4096))]
pub struct Heap {
    _ahead: [u8; AHEAD_BYTES],
    /// Large blocks.
    pub(crate) large: Large,
    /// Address range, page map, free spans.
    pub(crate) spans: Spans,
    /// Thread caches.
    pub(crate) caches: Caches,
    /// Blocks no thread holds.
    pub(crate) central: Central,
}

/// How much of the end of `spans` each process reads or writes: from the end of the first span heap's trace on, which its lists follow.
const SPANS_END_BYTES: usize = 1472;
/// Puts that at the beginning of a page.
const AHEAD_BYTES: usize =
    PAGE_BYTES - (size_of::<Large>() + size_of::<Spans>() - SPANS_END_BYTES) % PAGE_BYTES;
const PAGE_BYTES: usize = 4096;
const _: () = assert!(
    SPANS_END_BYTES + size_of::<Caches>() + Central::FIRST_SHARD_END <= 2 * PAGE_BYTES,
    "what each process reads or writes lies on two pages"
);

/// From this size on the kernel is asked whether there is so much memory: what the heap maps it does not count.
const ASKED_BYTES: usize = 1 << 30;
/// Below, a request or an alignment is never more than the heap can hold.
const HUGE_BYTES: usize = 128 << 20;

impl Heap {
    /// A heap without memory, which does not fit on a thread's stack.
    #[cfg(test)]
    pub(crate) fn boxed() -> Box<Self> {
        // SAFETY: zero bytes are a new heap, as a test of it shows.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// A heap without memory; all zero bytes.
    pub const fn new() -> Self {
        Self {
            _ahead: [0; AHEAD_BYTES],
            spans: Spans::new(),
            central: Central::new(),
            caches: Caches::new(),
            large: Large::new(),
        }
    }

    /// When free memory goes back from now on.
    pub fn set_purge_mode(&self, mode: PurgeMode) {
        self.spans.set_mode(mode);
    }

    /// When free memory is given back.
    pub fn purge_mode(&self) -> PurgeMode {
        self.spans.mode()
    }

    /// Where huge pages are used in memory committed from now on.
    pub fn set_huge_pages(&self, wanted: HugePages) {
        self.spans.map.reservation.set_huge_pages(wanted);
    }

    /// What a MiB of idle memory is worth, in ns of CPU time a second; at least 1.
    pub fn set_price(&self, price_ns: u64) {
        self.spans.set_price(price_ns);
    }

    /// Records what becomes of spans from now on, in files whose names begin so; see [`crate::trace`].
    pub fn start_trace(&self, prefix: &[u8]) {
        self.spans.start_trace(prefix);
    }

    /// Writes what is left of the record, if there is one. False: not all of it could be written.
    pub fn end_trace(&self) -> bool {
        self.spans.end_trace()
    }

    /// Whether it can be [counted](crate::stats::Snapshot::take) without waiting for ever: not in a signal handler that interrupted this
    /// thread where it holds a lock.
    pub fn can_be_counted(&self) -> bool {
        self.caches.can_be_counted() && self.central.can_be_counted() && self.spans.can_be_counted()
    }

    /// Where blocks come from and go to that no cache holds.
    pub(crate) fn home(&self) -> Home<'_> {
        Home { central: &self.central, spans: &self.spans, large: &self.large }
    }

    /// Allocates a block of `class` that the thread's cache did not have; 0 when memory is exhausted.
    pub(crate) fn allocate_small(&self, cache: Option<&ThreadCache>, class: usize) -> usize {
        self.new_small(cache, class, false).address
    }

    /// As [`Heap::allocate_small`]; `zeroed`: one that reads as zero if there is no other at hand. Without a cache: straight from the slabs.
    pub(crate) fn new_small(&self, cache: Option<&ThreadCache>, class: usize, zeroed: bool) -> NewBlock {
        let mut block = self.try_allocate_small(cache, class, zeroed);
        if block.address == 0 && self.gather(cache) {
            block = self.try_allocate_small(cache, class, zeroed);
        }
        if self.central.is_spread() {
            self.gather_spread(cache);
        }
        self.settle(cache);
        block
    }

    /// What is left to do at the end of a slow path, with no lock held.
    fn settle(&self, own: Option<&ThreadCache>) {
        // A purger finds idle caches without asking the clock at every slow path of a busy one.
        if self.caches.budget.is_exhausted() && !self.spans.keeps() {
            self.caches.relieve(own, self.home());
        }
        self.spans.settle();
    }

    fn try_allocate_small(&self, cache: Option<&ThreadCache>, class: usize, zeroed: bool) -> NewBlock {
        match cache {
            Some(cache) => {
                cache.first_use.look();
                cache.refill(class, zeroed, &self.central, &self.spans, &self.caches.budget)
            }
            None => NewBlock { address: self.allocate_uncached(class), zero: false },
        }
    }

    /// Brings all cached blocks home, so that empty slabs become free spans: what is left to do when memory runs out. False if
    /// there were none.
    fn gather(&self, own: Option<&ThreadCache>) -> bool {
        // A program that runs into its limit again and again finds nothing cached, and pays only for this look.
        let cached = self.caches.all().any(|cache| (1..CLASSES).any(|class| cache.held(class) > 0))
            || self.caches.all().any(ThreadCache::has_large);
        if !cached && !self.central.has_transit() {
            return false;
        }
        self.caches.revoke_all(own, self.home());
        self.central.return_transit(&self.spans);
        true
    }

    /// As [`Heap::gather`], where cached blocks keep much memory from other use. Where there is no purger, pages without
    /// blocks go then: the heap grows by others.
    #[cold]
    fn gather_spread(&self, own: Option<&ThreadCache>) {
        if !self.central.claim_spread(&self.spans) {
            return;
        }
        let before = self.spans.in_use();
        self.gather(own);
        // A purger gives them back in time by itself; meanwhile many are wanted again.
        let purges = self.spans.mode() != PurgeMode::Never
            && !self.spans.keeps()
            && self.central.is_worth_purging(&self.spans);
        let purged_bytes = if purges { self.central.purge_spread_pages(&self.spans) } else { 0 };
        self.central.note_gathered(&self.spans, before, purged_bytes);
    }

    fn allocate_uncached(&self, class: usize) -> usize {
        let Some(magazine) = self.central.fetch(&self.spans, 0, class, 1) else { return 0 };
        if magazine.count > 1 {
            // SAFETY: the magazine is ours; its rest goes back at once.
            let rest = unsafe { crate::magazine::next(magazine.head) };
            let rest = crate::magazine::Magazine { head: rest, count: magazine.count - 1 };
            self.central.return_to_slabs(&self.spans, class, rest);
        }
        magazine.head
    }

    /// Allocates a large block that this thread freed, if one as long is still at hand; 0 otherwise. Not inlined: a start should not
    /// bring it in.
    ///
    /// # Safety
    /// `cache` gives a cache that this thread owns, or one that is gated.
    #[inline(never)]
    pub(crate) unsafe fn allocate_again<'a>(
        &self,
        cache: impl FnOnce() -> &'a ThreadCache,
        bytes: usize,
        align: usize,
    ) -> usize {
        if os::is_single_threaded() {
            let last = self.large.allocate_last(&self.spans, bytes);
            if last != 0 {
                return last;
            }
        }
        // SAFETY: the caller's contract.
        unsafe { self.allocate_kept(bytes, align, cache()) }
    }

    /// Not inlined, as what frees them: who has the only thread, and one block at a time, should not save registers for this.
    ///
    /// # Safety
    /// This thread owns the cache, or it is gated.
    #[inline(never)]
    unsafe fn allocate_kept(&self, bytes: usize, align: usize, cache: &ThreadCache) -> usize {
        let granules = Large::kept_granules(bytes, align);
        // SAFETY: the caller's contract.
        let kept =
            granules.map_or(0, |granules| unsafe { cache.take_large(granules, bytes, align, self.home()) });
        if kept == 0 && os::is_single_threaded() {
            return self.large.allocate_beside(&self.spans, bytes);
        }
        kept
    }

    /// Frees the large block at `address` so that [`Heap::allocate_again`] has it; false if there is no room for it.
    ///
    /// # Safety
    /// As for [`Heap::allocate_again`].
    #[inline]
    pub(crate) unsafe fn free_again<'a>(
        &self,
        cache: impl FnOnce() -> &'a ThreadCache,
        address: usize,
    ) -> bool {
        let (block, cache) = (self.large.look_up(&self.spans, address), cache());
        if os::is_single_threaded() && cache.large_lists().is_none() {
            return self.large.keep_last(&self.spans, block);
        }
        // SAFETY: the caller's contract; the block was live, and whoever frees it gives it up.
        unsafe { self.keep(block, cache) }
    }

    /// # Safety
    /// This thread owns the cache, or it is gated, and gives the block up.
    #[inline(never)]
    unsafe fn keep(&self, block: Live, cache: &ThreadCache) -> bool {
        if let Some(span) = block.kept_span() {
            block.set_kept(true);
            // SAFETY: the caller's contract.
            if unsafe { cache.keep_large(span, &self.spans.map) } {
                return true;
            }
            block.set_kept(false);
        }
        // Where a list had better grow, that is for the slow path.
        os::is_single_threaded()
            && !cache.wants_large(block, &self.caches.budget)
            && self.large.keep_last(&self.spans, block)
    }

    /// Whether there cannot be such a block, of which so many bytes are new: nothing is to be given back for it.
    #[cold]
    fn is_impossible(&self, bytes: usize, align: usize, new_bytes: usize) -> bool {
        // What alignment may cost beyond a granule's.
        let padding = align.saturating_sub(GRANULE_BYTES);
        bytes.saturating_add(padding) > self.spans.map.reservation.most_bytes()
            || new_bytes >= ASKED_BYTES && os::is_more_than_memory(new_bytes)
    }

    /// Allocates a large block; [`NewBlock::NONE`] when memory is exhausted.
    pub(crate) fn allocate_large(
        &self,
        cache: Option<&ThreadCache>,
        bytes: usize,
        align: usize,
        pages: Pages,
    ) -> NewBlock {
        if bytes | align >= HUGE_BYTES && self.is_impossible(bytes, align, bytes) {
            return NewBlock::NONE;
        }
        if let Some(cache) = cache {
            cache.first_use.look();
            let granules = Large::kept_granules(bytes, align);
            if granules.is_some_and(|granules| self.spans.may_list(granules)) {
                self.caches.note_missed_large(cache, whole_units(bytes));
            }
        }
        let shard = cache.map_or(0, ThreadCache::shard);
        let mut block = self.large.allocate(&self.spans, shard, bytes, align, pages);
        if block.is_none() && self.gather(cache) {
            block = self.large.allocate(&self.spans, shard, bytes, align, pages);
        }
        self.spans.settle();
        block.unwrap_or(NewBlock::NONE)
    }

    /// Frees a block that the thread's cache did not take and that its caller gives up, or something that is no block at all.
    pub(crate) fn free(&self, cache: Option<&ThreadCache>, address: usize) {
        match self.spans.map.tag_at(address) {
            Some(tag) if tag.class() > 0 => self.free_small(cache, tag, address),
            _ => self.free_large(cache, address),
        }
        if let Some(cache) = cache {
            cache.look_at_large(self.home(), &self.caches.budget);
        }
        self.settle(cache);
    }

    fn free_large(&self, cache: Option<&ThreadCache>, address: usize) {
        let block = self.large.look_up(&self.spans, address);
        if let Some(cache) = cache
            && cache.keep_more_large(block, self.home(), &self.caches.budget)
        {
            return;
        }
        self.large.free(&self.spans, cache.map_or(0, ThreadCache::shard), block);
    }

    fn free_small(&self, cache: Option<&ThreadCache>, tag: Tag, address: usize) {
        match cache {
            Some(cache) if cache.is_head(tag, address) => misuse(Misuse::DoubleFree, address),
            Some(cache) => cache.flush(tag, address, &self.central, &self.spans, &self.caches.budget),
            None => {
                // SAFETY: the caller of `free` gives the block up.
                unsafe { crate::magazine::set_next(address, 0) };
                let magazine = crate::magazine::Magazine { head: address, count: 1 };
                self.central.return_to_slabs(&self.spans, tag.class(), magazine);
            }
        }
    }

    /// Bytes that the program may use in a live block.
    pub(crate) fn usable_bytes(&self, address: usize) -> usize {
        match self.spans.map.class_of_block(address) {
            0 => self.large.look_up(&self.spans, address).bytes(),
            class => size_class::size(class),
        }
    }

    /// As [`Heap::usable_bytes`]; `None` where no block of ours can be.
    pub(crate) fn bytes_of_ours(&self, address: usize) -> Option<usize> {
        match self.spans.map.class_of_block(address) {
            0 => self.large.find(&self.spans, address).map(|block| block.bytes()),
            class => Some(size_class::size(class)),
        }
    }

    /// Resizes a large block that stays large, in place or by moving it. Returns 0 when memory is exhausted.
    pub(crate) fn resize_large(&self, cache: Option<&ThreadCache>, address: usize, bytes: usize) -> usize {
        debug_assert!(bytes > SMALL_MAX);
        if bytes >= HUGE_BYTES {
            let old_bytes = self.large.look_up(&self.spans, address).bytes();
            if self.is_impossible(bytes, 1, bytes.saturating_sub(old_bytes)) {
                return 0;
            }
        }
        let shard = cache.map_or(0, ThreadCache::shard);
        let mut resized = self.large.resize(&self.spans, shard, address, bytes);
        if resized.is_none() && self.gather(cache) {
            resized = self.large.resize(&self.spans, shard, address, bytes);
        }
        self.spans.settle();
        resized.unwrap_or(0)
    }

    /// Sums over all large blocks.
    pub(crate) fn large_totals(&self) -> LargeTotals {
        self.large.totals(&self.spans, |totals| {
            for cache in self.caches.all() {
                let changed = cache.untold_turns().fold(0, |sum: usize, told| sum.wrapping_add(told.live));
                totals.live = totals.live.wrapping_add(changed);
                cache.each_large(&self.spans.map, |bytes, _| {
                    totals.blocks = totals.blocks.wrapping_sub(1);
                    totals.live = totals.live.wrapping_sub(bytes);
                });
            }
        })
    }

    /// Calls `visit` with every size bin of large blocks that was ever used, smallest first.
    pub(crate) fn each_large_bin(&self, visit: impl FnMut(&LargeBin)) {
        let untold = |place: usize, bin: &mut LargeBin| {
            for cache in self.caches.all() {
                cache.untold_turns().filter(|told| told.place == place).for_each(|told| told.add_to(bin));
                cache.each_large(&self.spans.map, |bytes, _| {
                    if bin_of(bytes) == place {
                        bin.live = bin.live.wrapping_sub(bytes);
                    }
                });
            }
        };
        self.large.each_bin(&self.spans, untold, visit);
    }

    /// One look of the purger: gives back what lay idle since the looks before. Returns whether a later look may find more.
    pub(crate) fn look(&self) -> bool {
        let caches = self.caches.revoke_idle(self.home());
        let transit = self.central.return_idle_transit(&self.spans);
        let slabs = self.central.purge_quiet_slabs(&self.spans);
        let kept = self.spans.return_unused();
        let spans = self.spans.purge_idle();
        caches || transit || slabs || kept || spans
    }

    /// Gives back every page that can be given back, also from the caches of other threads. Returns the bytes.
    pub(crate) fn trim(&self, own: Option<&ThreadCache>) -> usize {
        self.caches.revoke_all(own, self.home());
        self.central.return_transit(&self.spans);
        let pages = self.central.purge_slab_pages(&self.spans);
        pages + self.spans.trim()
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
