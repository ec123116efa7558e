//! What became of large blocks that their threads kept and allocated again, possibly with other sizes: the books are told by and by.

use super::books::{LargeBin, bin_of};
use super::{KEPT_BYTES, KEPT_LONGEST, UNIT_SHIFT};
use crate::granule::GRANULE_BYTES;
use crate::page_map::{Guarded16, Guarded64, GuardedSize};

/// The bins of blocks that threads keep, which may be as long as their spans.
const FIRST: usize = bin_of(*KEPT_BYTES.start());
const BINS: usize = bin_of(KEPT_LONGEST as usize * GRANULE_BYTES) - FIRST + 1;
/// Bytes by which blocks changed that are worth telling the books at once.
const MANY_BYTES: usize = 64 << 10;

/// The turns of one thread that the books were not told of. Zeroed memory is none.
///
/// SYNCHRONIZATION: written by that thread; others read it as a statistic.
pub struct Turns {
    bins: [Bin; BINS],
    /// Bytes by which blocks changed.
    changed: GuardedSize,
}

/// Turns that ended in one size bin, and what went to others.
struct Bin {
    allocations: Guarded64,
    /// Bytes that are live there beyond what the books know, modulo 2^64.
    live: GuardedSize,
    /// Of blocks that had other sizes before, in units; 0 for none.
    smallest: Guarded16,
    largest: Guarded16,
}

/// What a bin of the books is to be told.
pub struct Told {
    /// The bin.
    pub place: usize,
    /// Blocks allocated.
    pub allocations: u64,
    /// Bytes that are live beyond what the books know, modulo 2^64.
    pub live: usize,
    /// Sizes, if any were others than the books know.
    pub sizes: Option<[usize; 2]>,
}

impl Turns {
    fn bin(&self, bytes: usize) -> &Bin {
        &self.bins[bin_of(bytes) - FIRST]
    }

    /// A kept block was allocated, of so many bytes.
    #[inline]
    pub fn note(&self, bytes: usize) {
        let allocations = &self.bin(bytes).allocations;
        allocations.set(allocations.get() + 1);
    }

    /// It had `was` bytes when it was freed, not as many.
    pub fn note_resized(&self, was: usize, bytes: usize) {
        let (before, bin) = (self.bin(was), self.bin(bytes));
        before.live.set(before.live.get().wrapping_sub(was));
        bin.live.set(bin.live.get().wrapping_add(bytes));
        let units = (bytes >> UNIT_SHIFT) as u16;
        bin.smallest.set(if bin.smallest.get() == 0 { units } else { bin.smallest.get().min(units) });
        bin.largest.set(bin.largest.get().max(units));
        self.changed.set(self.changed.get() + was.abs_diff(bytes));
    }

    /// Whether the books had better be told.
    #[inline]
    pub fn are_many(&self) -> bool {
        self.changed.get() >= MANY_BYTES
    }

    /// What the books are to be told.
    pub fn each(&self) -> impl Iterator<Item = Told> {
        self.bins.iter().zip(FIRST..).map(|(bin, place)| bin.told(place)).filter(Told::is_any)
    }

    /// The books were told. By the thread.
    pub fn clear(&self) {
        self.bins.iter().for_each(Bin::clear);
        self.changed.set(0);
    }
}

impl Bin {
    fn told(&self, place: usize) -> Told {
        let sizes = [&self.smallest, &self.largest].map(|units| usize::from(units.get()) << UNIT_SHIFT);
        Told {
            place,
            allocations: self.allocations.get(),
            live: self.live.get(),
            sizes: (sizes[0] > 0).then_some(sizes),
        }
    }

    fn clear(&self) {
        self.allocations.set(0);
        self.live.set(0);
        self.smallest.set(0);
        self.largest.set(0);
    }
}

impl Told {
    fn is_any(&self) -> bool {
        self.allocations > 0 || self.live != 0
    }

    /// Adds it to what is known of its bin.
    pub fn add_to(&self, bin: &mut LargeBin) {
        bin.allocations += self.allocations;
        bin.live = bin.live.wrapping_add(self.live);
        if let Some([smallest, largest]) = self.sizes {
            bin.smallest = bin.smallest.min(smallest);
            bin.largest = bin.largest.max(largest);
        }
    }
}
