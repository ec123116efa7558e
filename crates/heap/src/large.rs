//! Large blocks: a span each. Grown in place where the neighbour is free, else moved by page tables, not by copying.

use crate::granule::{GRANULE_BYTES, bytes_of, granules_for};
use crate::lock::Lock;
use crate::message::{Misuse, misuse};
use crate::os;
use crate::page_map::State;
use crate::spans::Spans;

/// From this size on page tables are moved; below, copying is cheaper than the mappings it costs.
const MOVE_BYTES_MIN: usize = 256 * 1024;
/// A block that grows by less than this part of itself has its pages moved to a span without any; one that grows by more is
/// copied to a span that has pages, where there is one: copying a page (0.2 us) costs a ninth of faulting one in.
const MOVED_GROWTH: usize = 8;
/// Moved spans at most: each may split a mapping in three, and a process has 65,530 of them.
const MOVED_MAX: usize = 4096;
/// Size bins of the statistics: four per doubling.
const BINS: usize = 4 * 48;

/// What was seen of the large blocks of one size bin; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeBin {
    /// Smallest size asked for.
    pub smallest: usize,
    /// Largest size asked for.
    pub largest: usize,
    /// Blocks allocated since the start.
    pub allocations: u64,
    /// Bytes asked for and not freed.
    pub live: usize,
    /// Most that ever were live at once.
    pub live_peak: usize,
}

/// Sums over all bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeTotals {
    /// Blocks live now.
    pub blocks: usize,
    /// Bytes live now.
    pub live: usize,
    /// Most bytes ever live at once.
    pub live_peak: usize,
}

struct Books {
    bins: [LargeBin; BINS],
    totals: LargeTotals,
}

/// The large blocks of a heap.
pub struct Large {
    books: Lock<Books>,
}

/// A large block just allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeBlock {
    /// Its address.
    pub address: usize,
    /// Whether it reads as zero.
    pub zero: bool,
}

fn bin_of(bytes: usize) -> usize {
    let log = bytes.ilog2() as usize;
    (log * 4 + ((bytes >> (log - 2)) & 3)).min(BINS - 1)
}

impl Large {
    /// No blocks.
    pub const fn new() -> Self {
        const BIN: LargeBin = LargeBin { smallest: 0, largest: 0, allocations: 0, live: 0, live_peak: 0 };
        let totals = LargeTotals { blocks: 0, live: 0, live_peak: 0 };
        Self { books: Lock::new(Books { bins: [BIN; BINS], totals }) }
    }

    /// Allocates `bytes` at a multiple of `align`, a power of two.
    pub fn allocate(
        &self,
        spans: &Spans,
        bytes: usize,
        align: usize,
        prefer_clean: bool,
    ) -> Option<LargeBlock> {
        if bytes > isize::MAX as usize {
            return None;
        }
        let bytes = page_rounded(bytes.max(1));
        let granules = granules_for(bytes)?;
        let align = u32::try_from(align.div_ceil(GRANULE_BYTES)).ok()?;
        let taken = spans.take(granules, align, prefer_clean)?;
        let record = spans.map.record(taken.first);
        record.value.set(bytes as u64);
        record.set_state(State::Large);
        self.books.lock().add(bytes);
        Some(LargeBlock { address: spans.map.address(taken.first), zero: taken.zero })
    }

    /// First granule and usable bytes of the large block at `address`; ends the process if there is none.
    pub fn look_up(&self, spans: &Spans, address: usize) -> (u32, usize) {
        let map = &spans.map;
        let granule = map.granule_of(address).filter(|&granule| granule >= map.reservation.first_granule());
        let Some(granule) = granule else { misuse(Misuse::InvalidPointer, address) };
        let record = map.record(granule);
        match record.state() {
            State::Large if map.address(granule) == address => (granule, record.value.get() as usize),
            State::Clean | State::Dirty | State::Kept if map.address(granule) == address => {
                misuse(Misuse::DoubleFree, address)
            }
            _ => misuse(Misuse::InvalidPointer, address),
        }
    }

    /// Frees the large block at `address`.
    pub fn free(&self, spans: &Spans, address: usize) {
        let (first, bytes) = self.look_up(spans, address);
        let record = spans.map.record(first);
        record.set_state(State::Interior);
        self.books.lock().remove(bytes);
        spans.give_recent(first, record.granules.get());
    }

    /// Makes the large block at `address` hold `new_bytes`. Returns where it is then, or `None` if memory is exhausted (the
    /// block is as it was).
    pub fn resize(&self, spans: &Spans, address: usize, new_bytes: usize) -> Option<usize> {
        if new_bytes > isize::MAX as usize {
            return None;
        }
        let (first, old_bytes) = self.look_up(spans, address);
        let new_bytes = page_rounded(new_bytes);
        let record = spans.map.record(first);
        let (old, new) = (record.granules.get(), granules_for(new_bytes)?);
        if new > old {
            if !spans.take_behind(first + old, new - old) {
                return self.relocate(spans, first, old_bytes, new_bytes);
            }
            let is_moved = record.is_moved() || spans.map.record(first + old).is_moved();
            spans.map.set_moved(first + old, false);
            spans.map.set_moved(first, is_moved);
            record.granules.set(new);
        } else if new < old {
            spans.map.set_moved(first + new, record.is_moved());
            record.granules.set(new);
            spans.give(first + new, old - new, false);
        }
        record.value.set(new_bytes as u64);
        let mut books = self.books.lock();
        books.remove(old_bytes);
        books.add(new_bytes);
        Some(address)
    }

    /// Moves a block that grows to a new span.
    fn relocate(&self, spans: &Spans, first: u32, old_bytes: usize, new_bytes: usize) -> Option<usize> {
        let map = &spans.map;
        let may_move = old_bytes >= MOVE_BYTES_MIN && map.moved_spans() < MOVED_MAX;
        let grows_little = new_bytes - old_bytes < old_bytes / MOVED_GROWTH;
        let block = self.allocate(spans, new_bytes, GRANULE_BYTES, may_move && grows_little)?;
        let target = map.granule_of(block.address)?;
        let source = map.address(first);
        let granules = map.record(first).granules.get();
        let mut moved = os::Moved::Refused;
        // Moving to a span that has pages would throw these away.
        if may_move && (block.zero || grows_little) {
            // SAFETY: both spans are blocks that belong to the caller of `realloc`, and distinct.
            moved = unsafe { os::move_pages(source, block.address, bytes_of(granules)) };
        }
        match moved {
            os::Moved::Done => map.set_moved(target, true),
            os::Moved::Refused => {
                // The target may be a new mapping.
                map.reservation.advise(block.address, bytes_of(map.record(target).granules.get()));
                // SAFETY: distinct live blocks of at least `old_bytes`.
                unsafe {
                    core::ptr::copy_nonoverlapping(source as *const u8, block.address as *mut u8, old_bytes)
                };
            }
            // The target span stays a block of nobody: its addresses are not ours any more.
            os::Moved::TargetLost => return None,
        }
        let record = map.record(first);
        record.set_state(State::Interior);
        self.books.lock().remove(old_bytes);
        let mut zero = moved == os::Moved::Done;
        if zero && record.is_moved() {
            // SAFETY: the pages were moved away, and the span is in no list yet.
            zero = unsafe { map.reservation.renew(source, bytes_of(granules)) };
            map.set_moved(first, !zero);
        }
        spans.give(first, granules, zero);
        Some(block.address)
    }

    /// Sums over all large blocks.
    pub fn totals(&self) -> LargeTotals {
        self.books.lock().totals
    }

    /// Calls `visit` with every size bin that was ever used, smallest first.
    pub fn each_bin(&self, mut visit: impl FnMut(&LargeBin)) {
        for bin in 0..BINS {
            // One bin under the lock at a time: `visit` may take long or allocate.
            let copy = self.books.lock().bins[bin];
            if copy.allocations > 0 {
                visit(&copy);
            }
        }
    }

    /// Takes the lock for the time of a fork.
    pub fn hold_for_fork(&self) {
        self.books.hold_for_fork();
    }

    /// The other half of [`Large::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.books.release_after_fork();
    }
}

impl Default for Large {
    fn default() -> Self {
        Self::new()
    }
}

fn page_rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(4096)
}

impl Books {
    fn add(&mut self, bytes: usize) {
        let bin = &mut self.bins[bin_of(bytes)];
        bin.smallest = if bin.allocations == 0 { bytes } else { bin.smallest.min(bytes) };
        bin.largest = bin.largest.max(bytes);
        bin.allocations += 1;
        bin.live += bytes;
        bin.live_peak = bin.live_peak.max(bin.live);
        self.totals.blocks += 1;
        self.totals.live += bytes;
        self.totals.live_peak = self.totals.live_peak.max(self.totals.live);
    }

    fn remove(&mut self, bytes: usize) {
        self.bins[bin_of(bytes)].live -= bytes;
        self.totals.blocks -= 1;
        self.totals.live -= bytes;
    }
}
