//! What one arena holds, added up chunk by chunk; and what `malloc_trim(0)` would give back of it.

use faultless_records::glibc_heap::{CHUNK_STRUCT_BYTES, LEAST_CHUNK_BYTES};

use super::bins::Met;
use super::chunks::{Chunk, Kind};
use super::pages::{Holding, Pages, Tally};
use super::sizes::{Amount, Sizes};
use super::{PAGE_BYTES, Page};

/// A chunk of a bin, as the walk met it: its stored size, and its neighbours in the bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeChunk {
    /// Size and flags as stored.
    pub stored: u64,
    /// The next one.
    pub next: u64,
    /// The one before.
    pub previous: u64,
}

/// Figures of one arena or of several, in bytes of chunks with their headers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// Blocks that the program has.
    pub used: Sizes,
    /// Chunks in bins, fast bins and threads' caches, by size.
    pub free: Sizes,
    /// Chunks in bins.
    pub binned: Amount,
    /// Chunks in fast bins.
    pub fast: Amount,
    /// Chunks in the caches of threads.
    pub cached: Amount,
    /// Top chunks: what is left at the end.
    pub top_bytes: u64,
    /// The largest free chunk, top chunks included.
    pub largest_free_bytes: u64,
    /// malloc's own: heads of heaps, arenas, threads' caches, fenceposts.
    pub overhead_bytes: u64,
    /// What the pages hold.
    pub holding: Holding,
    /// Resident bytes of chunks in threads' caches; whole pages and parts.
    pub cached_resident_bytes: u64,
    /// Resident pages that `malloc_trim(0)` would give back.
    pub returnable_bytes: u64,
}

impl Account {
    /// Free bytes of all kinds.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.binned.bytes + self.fast.bytes + self.cached.bytes + self.top_bytes
    }

    /// Bytes of blocks that the program has.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used.total().bytes
    }

    /// All bytes that were walked.
    #[must_use]
    pub fn walked_bytes(&self) -> u64 {
        self.used_bytes() + self.free_bytes() + self.overhead_bytes
    }

    /// Free whole pages with memory that a trim leaves: tops of threads' arenas, first pages of free chunks.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.holding.whole_free_bytes.saturating_sub(self.returnable_bytes)
    }

    /// Resident bytes that are free.
    #[must_use]
    pub fn trapped_bytes(&self) -> u64 {
        self.holding.whole_free_bytes + self.holding.pinned_bytes + self.cached_resident_bytes
    }

    /// Resident and free, as a part of what is resident.
    #[must_use]
    pub fn fragmentation(&self) -> Option<f64> {
        let resident = self.holding.resident_bytes;
        (resident > 0).then(|| self.trapped_bytes() as f64 / resident as f64)
    }

    /// Counts all of another.
    pub fn merge(&mut self, other: &Self) {
        self.used.merge(&other.used);
        self.free.merge(&other.free);
        self.binned.merge(other.binned);
        self.fast.merge(other.fast);
        self.cached.merge(other.cached);
        self.top_bytes += other.top_bytes;
        self.largest_free_bytes = self.largest_free_bytes.max(other.largest_free_bytes);
        self.overhead_bytes += other.overhead_bytes;
        self.holding.resident_bytes += other.holding.resident_bytes;
        self.holding.swapped_bytes += other.holding.swapped_bytes;
        self.holding.whole_free_bytes += other.holding.whole_free_bytes;
        self.holding.pinned_bytes += other.holding.pinned_bytes;
        self.cached_resident_bytes += other.cached_resident_bytes;
        self.returnable_bytes += other.returnable_bytes;
    }
}

/// What decides how much of the end of the main arena a trim gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimming {
    /// Whether the arena is the main one: only its top is trimmed.
    pub is_main: bool,
    /// Unit of what is given back at the end, in bytes.
    pub unit_bytes: u64,
    /// Where `brk` stands; the top is trimmed only if it ends there.
    pub break_address: Option<u64>,
}

/// Adds up one stretch of an arena.
pub struct Accountant<'account, 'pages, 'memory> {
    account: &'account mut Account,
    tally: Tally<'pages, 'memory>,
    trimming: Trimming,
    /// Where the free chunks began that end where the walk stands; a trim first joins fast chunks with their neighbours.
    run: Option<u64>,
    /// Chunks of bins that were met.
    pub met: &'account mut Met,
}

impl<'account, 'pages, 'memory> Accountant<'account, 'pages, 'memory> {
    /// Begins a stretch.
    pub fn new(
        account: &'account mut Account,
        pages: &'pages mut Pages<'memory>,
        trimming: Trimming,
        met: &'account mut Met,
    ) -> Self {
        Self { account, tally: Tally::new(pages), trimming, run: None, met }
    }

    /// Counts malloc's own bytes in front of the first chunk.
    pub fn own(&mut self, start: u64, end: u64) {
        self.account.overhead_bytes += end - start;
        self.tally.add(start, end, false);
    }

    /// Counts a chunk.
    pub fn chunk(&mut self, chunk: Chunk) {
        let Chunk { address, bytes, kind } = chunk;
        let end = address + bytes;
        let account = &mut *self.account;
        match kind {
            Kind::Used => account.used.add(bytes),
            Kind::Fencepost => account.overhead_bytes += bytes,
            Kind::Binned { stored, next, previous } => {
                account.binned.add(bytes);
                account.free.add(bytes);
                self.met.insert(address, FreeChunk { stored, next, previous });
            }
            Kind::Fast => {
                account.fast.add(bytes);
                account.free.add(bytes);
            }
            Kind::Top => account.top_bytes += bytes,
        }
        let is_free = !matches!(kind, Kind::Used | Kind::Fencepost);
        if is_free {
            account.largest_free_bytes = account.largest_free_bytes.max(bytes);
            self.run.get_or_insert(address);
        } else {
            self.close_run(address);
        }
        if kind == Kind::Top {
            let start = self.run.take().unwrap_or(address);
            self.trim_top(start, end);
        }
        self.tally.add(address, end, is_free);
    }

    /// Ends the stretch at `end`; from there to `limit` lies what the arena has given up but not unmapped.
    pub fn close(mut self, end: u64, limit: u64) {
        self.close_run(end);
        if end < limit {
            self.tally.add(end, limit, true);
        }
        self.tally.close();
        let holding = self.tally.holding;
        let sum = &mut self.account.holding;
        sum.resident_bytes += holding.resident_bytes;
        sum.swapped_bytes += holding.swapped_bytes;
        sum.whole_free_bytes += holding.whole_free_bytes;
        sum.pinned_bytes += holding.pinned_bytes;
    }

    /// What `malloc_trim` gives back inside: the whole pages of a free chunk behind its header and links.
    fn close_run(&mut self, end: u64) {
        let Some(start) = self.run.take() else { return };
        if end - start < PAGE_BYTES + CHUNK_STRUCT_BYTES {
            return;
        }
        let first = (start + CHUNK_STRUCT_BYTES).div_ceil(PAGE_BYTES);
        self.give_back(first, end / PAGE_BYTES);
    }

    /// What it gives back at the end of the main arena, through `brk`.
    fn trim_top(&mut self, start: u64, end: u64) {
        if !self.trimming.is_main || self.trimming.break_address != Some(end) {
            return;
        }
        let area_bytes = (end - start).saturating_sub(LEAST_CHUNK_BYTES + 1);
        let extra_bytes = area_bytes - area_bytes % self.trimming.unit_bytes;
        self.give_back((end - extra_bytes).div_ceil(PAGE_BYTES), end / PAGE_BYTES);
    }

    fn give_back(&mut self, first: u64, end: u64) {
        if first < end {
            self.account.returnable_bytes +=
                self.tally.pages().count(first, end, Page::Resident) * PAGE_BYTES;
        }
    }
}
