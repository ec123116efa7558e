//! What is known of the large blocks by size, for the statistics and for `faultless doctor`.
//!
//! SYNCHRONIZATION: a shard's part is guarded by the lock of what the shard keeps (`spans`). Peaks need the sum over the shards; so
//! that threads do not meet at one line with every block, a shard tells of its changes in batches.

use super::{Large, Turns, UNIT_SHIFT};
use crate::granule::GRANULE_BYTES;
use crate::os;
use crate::page_map::{Guarded32, Guarded64, GuardedSize};
use crate::reservation::COVERAGE_MAX;
use crate::spans::{RECENT, SHARDS, Spans};
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Size bins: four per doubling, from the unit of 4 KiB on that all sizes are multiples of, up to all that a heap can reserve.
pub const BINS: usize = 4 * ((COVERAGE_MAX as usize * GRANULE_BYTES).ilog2() as usize - UNIT_SHIFT);
/// Bytes more than before that a shard may not have told of, and bytes less: so many that a block of a MiB that comes and goes does
/// not need the lines that all shards write (256 KiB, two threads: each turn wrote four times there).
const BATCH: isize = 256 * 1024;
const BATCH_FREED: isize = 1024 * 1024;
/// Where it has more, so great a part of that may be untold, up to as much: else with many CPUs these lines take longest of all. (16 CPUs,
/// each 100 blocks of 300 kB again and again: 78 % of the time.)
const UNTOLD_PART: isize = 16;
const BATCH_MOST: isize = 4 * 1024 * 1024;
/// Blocks of a bin, in a shard, up to which each is told of: what is rare is exact.
const FEW: u64 = 64;

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
    /// Most that ever were live at once; in processes with threads less than that by at most 256 KiB a shard, or more by at most
    /// 1 MiB a shard and 4 MiB a CPU; where a shard has many, either may be a sixteenth of these, up to 4 MiB.
    pub live_peak: usize,
}

/// Sums over all bins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeTotals {
    /// Blocks live now.
    pub blocks: usize,
    /// Bytes live now.
    pub live: usize,
    /// Most bytes ever live at once; as exact as [`LargeBin::live_peak`].
    pub live_peak: usize,
}

/// The books of all shards.
pub struct Books {
    /// Synchronization: the process's only thread; afterwards the first shard's lock.
    unsettled: [Unsettled; RECENT],
    shards: [ShardBooks; SHARDS],
    bins: [Level; BINS],
    all: Level,
}

/// Bytes in use as far as the shards have told, and the most there were.
struct Level {
    live: AtomicIsize,
    peak: AtomicUsize,
}

/// In this order, so that what usual sizes need lies on one page.
#[repr(C, align(64))]
struct ShardBooks {
    all: Change,
    /// Blocks allocated less blocks freed by threads of this shard, modulo 2^64.
    blocks: GuardedSize,
    bins: [ShardBin; BINS],
}

/// What the books were not told yet of a block that is freed and allocated again and again while the process has one thread.
struct Unsettled {
    /// Bytes of the block freed last, which counts as live; 0 for none.
    freed: GuardedSize,
    /// Bytes of those allocated again, and how many they were.
    bytes: GuardedSize,
    allocations: Guarded64,
}

struct ShardBin {
    /// Sizes asked for, in units; 0 where others know them.
    smallest: Guarded32,
    largest: Guarded32,
    allocations: Guarded64,
    change: Change,
}

/// Bytes allocated less bytes freed by threads of a shard, modulo 2^64: since the start, and since it last told of them.
struct Change {
    live: GuardedSize,
    untold: GuardedSize,
}

/// The bin of a block.
pub const fn bin_of(bytes: usize) -> usize {
    let log = bytes.ilog2() as usize;
    let bin = (log - UNIT_SHIFT) * 4 + ((bytes >> (log - 2)) & 3);
    if bin < BINS { bin } else { BINS - 1 }
}

fn units_of(bytes: usize) -> u32 {
    (bytes >> UNIT_SHIFT) as u32
}

fn bytes_of(units: u32) -> usize {
    (units as usize) << UNIT_SHIFT
}

impl Books {
    /// Nothing seen.
    pub const fn new() -> Self {
        Self {
            unsettled: [const { Unsettled::new() }; RECENT],
            shards: [const { ShardBooks::new() }; SHARDS],
            bins: [const { Level::new() }; BINS],
            all: Level::new(),
        }
    }

    /// A block of so many bytes, a multiple of 4 KiB, was allocated by a thread of this shard. Under the shard's lock.
    pub fn add(&self, shard: usize, bytes: usize) {
        let (books, place) = (&self.shards[shard], bin_of(bytes));
        books.bins[place].add(1, Some([bytes; 2]));
        books.blocks.set(books.blocks.get().wrapping_add(1));
        self.change(shard, place, bytes);
    }

    /// A block of so many bytes was freed by a thread of this shard. Under the shard's lock.
    pub fn remove(&self, shard: usize, bytes: usize) {
        let books = &self.shards[shard];
        books.blocks.set(books.blocks.get().wrapping_sub(1));
        self.change(shard, bin_of(bytes), bytes.wrapping_neg());
    }

    /// As [`Books::remove`] by the process's only thread, which keeps the block in this place; told with the next change unless it is
    /// [allocated again](Books::add_again) before.
    #[inline(always)]
    pub fn remove_later(&self, place: usize, bytes: usize) {
        let unsettled = &self.unsettled[place];
        if unsettled.freed.get() != 0 || unsettled.bytes.get() != bytes {
            self.settle_place(unsettled);
        }
        unsettled.freed.set(bytes);
        unsettled.bytes.set(bytes);
    }

    /// Whether the block that was freed last into this place had so many bytes, which are not 0.
    #[inline]
    pub fn was_freed_last(&self, place: usize, bytes: usize) -> bool {
        self.unsettled[place].freed.get() == bytes
    }

    /// A block as the one that was freed last into this place was allocated.
    #[inline]
    pub fn add_again(&self, place: usize) {
        let unsettled = &self.unsettled[place];
        unsettled.freed.set(0);
        unsettled.allocations.set(unsettled.allocations.get() + 1);
    }

    /// Counts what was not told yet of the process's only thread. Under the first shard's lock.
    pub fn settle(&self) {
        self.unsettled.iter().for_each(|unsettled| self.settle_place(unsettled));
    }

    #[inline(never)]
    fn settle_place(&self, unsettled: &Unsettled) {
        let (freed, allocations) = (unsettled.freed.get(), unsettled.allocations.get());
        if allocations > 0 {
            unsettled.allocations.set(0);
            self.add_past(0, unsettled.bytes.get(), allocations);
        }
        if freed != 0 {
            unsettled.freed.set(0);
            self.remove(0, freed);
        }
    }

    /// Blocks of so many bytes were allocated as many times as freed since. Under the shard's lock.
    fn add_past(&self, shard: usize, bytes: usize, allocations: u64) {
        self.shards[shard].bins[bin_of(bytes)].add(allocations, Some([bytes; 2]));
    }

    /// A thread of this shard allocated blocks that it had kept. Under the shard's lock.
    pub fn add_turns(&self, shard: usize, turns: &Turns) {
        for told in turns.each() {
            self.shards[shard].bins[told.place].add(told.allocations, told.sizes);
            self.change(shard, told.place, told.live);
        }
    }

    fn change(&self, shard: usize, place: usize, bytes: usize) {
        let books = &self.shards[shard];
        let bin = &books.bins[place];
        let is_exact = os::is_single_threaded() || bin.allocations.get() <= FEW;
        bin.change.note(bytes, is_exact, &self.bins[place]);
        books.all.note(bytes, is_exact, &self.all);
    }

    /// Sums over all large blocks, to which `untold` adds what is not in the books, modulo 2^64.
    pub fn totals(&self, untold: impl FnOnce(&mut LargeTotals)) -> LargeTotals {
        let sum = |of: fn(&ShardBooks) -> usize| self.shards.iter().map(of).fold(0, usize::wrapping_add);
        let (blocks, live) = (sum(|shard| shard.blocks.get()), sum(|shard| shard.all.live.get()));
        let mut totals = LargeTotals { blocks, live, live_peak: 0 };
        untold(&mut totals);
        let [blocks, live] = [totals.blocks, totals.live].map(no_giant);
        LargeTotals { blocks, live, live_peak: self.all.peak_with(live) }
    }

    /// Calls `visit` with every size bin that was ever used, smallest first, to which `untold` adds what is not in the books.
    pub fn each_bin(&self, untold: impl Fn(usize, &mut LargeBin), mut visit: impl FnMut(&LargeBin)) {
        for place in 0..BINS {
            let mut sum = LargeBin { smallest: usize::MAX, ..LargeBin::default() };
            for shard in &self.shards {
                let bin = &shard.bins[place];
                let [smallest, largest] = [&bin.smallest, &bin.largest].map(|units| bytes_of(units.get()));
                if smallest > 0 {
                    sum.smallest = sum.smallest.min(smallest);
                }
                sum.largest = sum.largest.max(largest);
                sum.allocations += bin.allocations.get();
                sum.live = sum.live.wrapping_add(bin.change.live.get());
            }
            untold(place, &mut sum);
            if sum.allocations == 0 {
                continue;
            }
            sum.live = no_giant(sum.live);
            sum.live_peak = self.bins[place].peak_with(sum.live);
            visit(&sum);
        }
    }
}

impl Unsettled {
    const fn new() -> Self {
        Self { freed: GuardedSize::new(0), bytes: GuardedSize::new(0), allocations: Guarded64::new(0) }
    }
}

impl ShardBooks {
    const fn new() -> Self {
        Self { all: Change::new(), blocks: GuardedSize::new(0), bins: [const { ShardBin::new() }; BINS] }
    }
}

impl ShardBin {
    const fn new() -> Self {
        Self {
            smallest: Guarded32::new(0),
            largest: Guarded32::new(0),
            allocations: Guarded64::new(0),
            change: Change::new(),
        }
    }
}

impl ShardBin {
    /// Blocks were allocated, of these sizes and others between; or of such as some shard knows.
    fn add(&self, allocations: u64, sizes: Option<[usize; 2]>) {
        // First, as it writes at once: a page that is read before it is written is faulted in twice.
        self.allocations.set(self.allocations.get() + allocations);
        if let Some([smallest, largest]) = sizes.map(|sizes| sizes.map(units_of)) {
            let before = self.smallest.get();
            self.smallest.set(if before == 0 { smallest } else { before.min(smallest) });
            self.largest.set(self.largest.get().max(largest));
        }
    }
}

impl Change {
    const fn new() -> Self {
        Self { live: GuardedSize::new(0), untold: GuardedSize::new(0) }
    }

    fn note(&self, bytes: usize, is_exact: bool, level: &Level) {
        let live = self.live.get().wrapping_add(bytes);
        self.live.set(live);
        let untold = self.untold.get().wrapping_add(bytes) as isize;
        if is_exact || !(-BATCH_FREED..BATCH).contains(&untold) && is_much(untold, live as isize) {
            level.add(untold);
            self.untold.set(0);
        } else {
            self.untold.set(untold as usize);
        }
    }
}

/// What shards counted, read one after the other: a block may be seen freed and not allocated.
fn no_giant(sum: usize) -> usize {
    if sum > isize::MAX as usize { 0 } else { sum }
}

/// Whether so many bytes untold, of so many in all, are worth telling.
#[cold]
fn is_much(untold: isize, live: isize) -> bool {
    untold.saturating_abs() >= (live / UNTOLD_PART).saturating_abs().min(BATCH_MOST)
}

impl Level {
    const fn new() -> Self {
        Self { live: AtomicIsize::new(0), peak: AtomicUsize::new(0) }
    }

    fn add(&self, bytes: isize) {
        // ORDERING: Relaxed throughout; statistics. With one thread nobody can come between the load and the store.
        let live = if os::is_single_threaded() {
            let live = self.live.load(Ordering::Relaxed) + bytes;
            self.live.store(live, Ordering::Relaxed);
            live
        } else {
            self.live.fetch_add(bytes, Ordering::Relaxed) + bytes
        };
        if live > self.peak.load(Ordering::Relaxed) as isize {
            self.peak.fetch_max(live as usize, Ordering::Relaxed);
        }
    }

    fn peak_with(&self, live: usize) -> usize {
        // ORDERING: Relaxed; statistics.
        self.peak.load(Ordering::Relaxed).max(live)
    }
}

impl Large {
    /// Sums over all large blocks; `untold` as in [`Books::totals`].
    pub fn totals(&self, spans: &Spans, untold: impl FnOnce(&mut LargeTotals)) -> LargeTotals {
        self.settle_all(spans);
        self.books.totals(untold)
    }

    /// Calls `visit` with every size bin that was ever used, smallest first; `untold` as in [`Books::each_bin`].
    pub fn each_bin(
        &self,
        spans: &Spans,
        untold: impl Fn(usize, &mut LargeBin),
        visit: impl FnMut(&LargeBin),
    ) {
        self.settle_all(spans);
        self.books.each_bin(untold, visit);
    }

    fn settle_all(&self, spans: &Spans) {
        (0..spans.shards()).for_each(|shard| spans.in_shard(shard, |_| self.settle(shard)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_comes_and_goes_is_told_of_once() {
        let books = Box::new(Books::new());
        for bytes in [256 << 10, 1 << 20] {
            (0..=FEW).for_each(|_| books.add(0, bytes));
            (0..=FEW).for_each(|_| books.remove(0, bytes));
            books.add(0, bytes);
            let told = || books.all.live.load(Ordering::Relaxed);
            let before = told();
            for _ in 0..100 {
                books.remove(0, bytes);
                assert_eq!(told(), before, "{bytes}, freed");
                books.add(0, bytes);
                assert_eq!(told(), before, "{bytes}, allocated");
            }
            assert_eq!(books.totals(|_| ()).live, bytes);
            books.remove(0, bytes);
            assert_eq!(books.totals(|_| ()).live, 0);
        }
        assert!(books.totals(|_| ()).live_peak + BATCH_MOST as usize >= (FEW as usize + 1) << 20);
    }

    #[test]
    fn a_shard_that_has_much_tells_of_a_sixteenth_of_it_and_of_4_mib_at_once() {
        let (books, bytes) = (Box::new(Books::new()), 64 << 10);
        let told = || books.all.live.load(Ordering::Relaxed);
        let untold_most = |blocks: usize| {
            let untold = (0..blocks).map(|_| {
                books.add(0, bytes);
                books.totals(|_| ()).live - told() as usize
            });
            untold.max().unwrap()
        };
        assert_eq!(untold_most(48), 0, "few are told of one by one");
        assert_eq!(untold_most(80), 448 << 10, "of up to 8 MiB");
        assert_eq!(untold_most(1920), (4 << 20) - bytes, "of up to 128 MiB");
    }

    fn bins(books: &Books) -> Vec<LargeBin> {
        let mut bins = Vec::new();
        books.each_bin(|_, _| (), |bin| bins.push(*bin));
        bins
    }

    #[test]
    fn a_bin_knows_its_smallest_and_largest_and_peaks_are_no_less_than_what_lives() {
        let (books, unit) = (Box::new(Books::new()), 1 << UNIT_SHIFT);
        [17, 16, 19, 18].into_iter().for_each(|units| books.add(0, units * unit));
        let bin = bins(&books)[0];
        assert_eq!((bin.smallest, bin.largest, bin.allocations), (16 * unit, 19 * unit, 4));
        for _ in 0..=2 * FEW {
            books.add(0, 16 * unit);
            let (totals, bin) = (books.totals(|_| ()), bins(&books)[0]);
            assert_eq!([totals.live_peak, bin.live_peak], [totals.live, bin.live]);
        }
    }

    #[test]
    fn what_came_and_went_in_a_place_is_counted_when_it_is_settled() {
        let (books, bytes) = (Box::new(Books::new()), 1 << 20);
        let counts = || (books.totals(|_| ()).blocks, books.totals(|_| ()).live, bins(&books)[0].allocations);
        (0..2).for_each(|_| books.add(0, bytes));
        for _ in 0..3 {
            books.remove_later(0, bytes);
            assert!(books.was_freed_last(0, bytes));
            books.add_again(0);
            assert!(!books.was_freed_last(0, bytes));
        }
        (0..2).for_each(|_| books.settle());
        assert_eq!(counts(), (2, 2 * bytes, 5));
        books.remove_later(0, bytes);
        books.remove_later(0, bytes);
        books.add(0, 2 * bytes);
        books.add_again(0);
        books.remove_later(0, 2 * bytes);
        (0..2).for_each(|_| books.settle());
        assert_eq!(counts(), (1, bytes, 6));
    }

    #[test]
    fn of_what_is_freed_while_the_books_are_read_no_giant_is_told() {
        let books = Box::new(Books::new());
        books.remove(0, 1 << 20);
        assert_eq!(books.totals(|_| ()).live, 0);
    }

    #[test]
    fn blocks_freed_by_another_shard_than_allocated_them_are_counted_right() {
        let books = Box::new(Books::new());
        for _ in 0..100 {
            books.add(0, 25 << 12);
        }
        (0..100).for_each(|_| books.remove(1, 25 << 12));
        books.add(1, 1 << 20);
        assert_eq!((books.totals(|_| ()).blocks, books.totals(|_| ()).live), (1, 1 << 20));
        let peak = books.totals(|_| ()).live_peak;
        assert!(peak <= 100 * (25 << 12) && peak + 2 * BATCH as usize > 100 * (25 << 12), "{peak}");
        let bins = bins(&books);
        assert_eq!(
            bins.iter().map(|bin| (bin.allocations, bin.live)).collect::<Vec<_>>(),
            [(100, 0), (1, 1 << 20)]
        );
        assert_eq!((bins[0].smallest, bins[0].largest, bins[1].live_peak), (25 << 12, 25 << 12, 1 << 20));
    }
}
