//! Huge pages for large blocks: where blocks of that size were seen to be filled.
//!
//! A huge page is one fault instead of 512, but 2 MiB resident even if one byte is touched. So a block has small pages while nobody
//! knows whether blocks of its size are filled. When such a block, of memory that had no pages before, is freed, a few of its pages are
//! read: one that was never written holds zeros. (`mincore` would tell pages of zeros from those, but systemd's `@system-service` does
//! not list it, so services would be ended for it.) So are those of one that `calloc` cleared. From then on blocks of its size bin get
//! huge pages when they come from memory without pages. One in [`LOOK_AGAIN`] stays small, to see whether they are still filled; where one
//! is not, more must be before the next. A block gets more than 64 MiB at once only when several like it were filled, one after the other:
//! one that is sparse after all is no reason for gigabytes. What has small pages keeps them: to purge it for the sake of huge ones cost a
//! third of `churn` with threads, of which twelve turns do not bring it back.
//!
//! Where the last block of a size bin was written to two thirds or more `calloc` keeps what pages others have, and clears them.

use super::MISSING_PART;
use super::books::{BINS, bin_of};
use crate::granule::{GRANULE_BYTES, bytes_of};
use crate::os::{self, HUGE_PAGE_BYTES};
use crate::page_map::PageMap;
use crate::spans::Spans;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Pages of a block that are read.
const SAMPLES: usize = 128;
/// From one of them to the next, modulo their number: a prime near the golden section of it, so that the first few tell of the whole block.
const STRIDE: usize = 463;
/// Less than one page in so many of those read must hold zeros in a block of which most is written.
const MOST_PART: usize = 3;
/// One of so many blocks is looked at again, of sizes that are filled and of those that mostly are not.
const LOOK_AGAIN: u8 = 8;
/// Bytes of huge pages that a block gets where one was seen filled; twice as many with each further one.
const REACH_BYTES: usize = 64 << 20;
/// A block that is not filled takes back what so many that are have shown, at most.
const DEBT_MAX: u8 = 64;

/// What is known of each size bin.
pub struct Filled {
    bins: [Evidence; BINS],
}

/// What the blocks of a size bin have shown.
struct Evidence {
    /// 0: nothing known; 1: filled; more: so many less one must be seen filled first.
    state: AtomicU8,
    /// Blocks of which one in [`LOOK_AGAIN`] is looked at.
    unseen: AtomicU8,
    /// Blocks that were seen filled since one was not.
    in_a_row: AtomicU8,
    /// Whether most of the last one that was looked at was written.
    is_written: AtomicBool,
}

/// How much of a block holds something else than zeros, as far as samples tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Less than two thirds of its pages.
    Part,
    /// Two thirds or more.
    Most,
    /// Nearly all.
    All,
}

impl Evidence {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(0),
            unseen: AtomicU8::new(0),
            in_a_row: AtomicU8::new(0),
            is_written: AtomicBool::new(false),
        }
    }

    /// Bytes of huge pages that a block gets at most.
    fn reach(&self) -> usize {
        // ORDERING: Relaxed; evidence, not exact.
        let further = self.in_a_row.load(Ordering::Relaxed).saturating_sub(1);
        REACH_BYTES << further.min(20)
    }
}

impl Filled {
    /// Nothing known.
    pub const fn new() -> Self {
        Self { bins: [const { Evidence::new() }; BINS] }
    }

    /// Whether a block of so many bytes should have huge pages, where the heap says which should.
    #[inline]
    pub fn wants_huge(&self, bytes: usize) -> bool {
        // ORDERING: Relaxed throughout; evidence, not exact.
        bytes >= HUGE_PAGE_BYTES && self.bins[bin_of(bytes)].state.load(Ordering::Relaxed) == 1
    }

    /// Whether `calloc` had better clear a block of so many bytes than give its pages back.
    pub fn are_written(&self, bytes: usize) -> bool {
        // ORDERING: Relaxed, as above.
        self.bins[bin_of(bytes)].is_written.load(Ordering::Relaxed)
    }

    /// A block of so many bytes was allocated. `zero`: its memory has no pages.
    #[inline]
    pub fn allocated(&self, spans: &Spans, first: u32, bytes: usize, zero: bool) {
        let is_huge = zero && self.wants_huge(bytes) && self.bring_in(spans, first, bytes);
        spans.map.record(first).large().set_had_no_pages(zero && !is_huge);
    }

    /// Brings in huge pages for a new block as far as evidence reaches; returns whether it need not be looked at when freed.
    #[cold]
    fn bring_in(&self, spans: &Spans, first: u32, bytes: usize) -> bool {
        let (known, granules) = (&self.bins[bin_of(bytes)], spans.map.record(first).granules.get());
        // ORDERING: Relaxed, as above.
        let unseen = known.unseen.fetch_add(1, Ordering::Relaxed);
        if unseen % LOOK_AGAIN == LOOK_AGAIN - 1 {
            return false;
        }
        let is_whole = bytes <= known.reach();
        let part = if is_whole { granules } else { (known.reach() / GRANULE_BYTES) as u32 };
        spans.populate_huge(first, part) && is_whole
    }

    /// A block of so many bytes is freed.
    #[inline]
    pub fn freed(&self, map: &PageMap, first: u32, bytes: usize) {
        if bytes >= HUGE_PAGE_BYTES && map.record(first).large().had_no_pages() {
            self.look(map, first, bytes);
        }
    }

    #[cold]
    fn look(&self, map: &PageMap, first: u32, bytes: usize) {
        map.record(first).large().set_had_no_pages(false);
        let Some(blocks) = self.stands_for(bytes) else { return };
        // SAFETY: the block is being freed: nobody else's.
        if let Some(written) = unsafe { written(map, first, bytes) } {
            self.note(bytes, blocks, written);
        }
    }

    /// For how many blocks one of so many bytes speaks that is freed; `None`: for none, it is not looked at. A look at what is not filled
    /// costs nine faults.
    fn stands_for(&self, bytes: usize) -> Option<u8> {
        let known = &self.bins[bin_of(bytes)];
        // ORDERING: Relaxed, as above.
        if known.state.load(Ordering::Relaxed) < LOOK_AGAIN {
            return Some(1);
        }
        known.unseen.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_AGAIN).then_some(LOOK_AGAIN)
    }

    fn note(&self, bytes: usize, blocks: u8, written: Written) {
        let (is_filled, known) = (written == Written::All, &self.bins[bin_of(bytes)]);
        // ORDERING: Relaxed, as above.
        known.is_written.store(written != Written::Part, Ordering::Relaxed);
        let state = &known.state;
        let before = state.load(Ordering::Relaxed);
        let after = match (before, is_filled) {
            (0 | 1, true) => 1,
            (0, false) => 3,
            (debt, true) => debt.saturating_sub(blocks).max(1),
            (debt, false) => debt.saturating_mul(2).saturating_add(1).min(DEBT_MAX),
        };
        state.store(after, Ordering::Relaxed);
        let in_a_row = &known.in_a_row;
        let seen = in_a_row.load(Ordering::Relaxed).saturating_add(blocks);
        in_a_row.store(if is_filled { seen } else { 0 }, Ordering::Relaxed);
    }
}

/// How much of a block of so many bytes holds something else than zeros. To read a page that is not in memory costs a fault, so it ends at
/// the first page too many for a block that is filled. None where pages are in swap: it ends soon after it had to wait for one.
///
/// # Safety
/// Nobody writes to the block meanwhile.
pub unsafe fn written(map: &PageMap, first: u32, bytes: usize) -> Option<Written> {
    let record = map.record(first);
    let bytes = bytes.min(bytes_of(record.granules.get()));
    let address = (map.address(first) + record.large().offset()) & !(os::page_bytes() - 1);
    let samples = SAMPLES.min(bytes / os::page_bytes());
    let step = bytes / os::page_bytes() / samples;
    let zeros = samples / MISSING_PART + 1;
    let (waited, mut is_in_swap) = (os::thread_faults_with_io(), false);
    let last = (0..samples)
        .map(|turn| turn * STRIDE % samples)
        // Not always the same page of each step: programs, too, touch every so many pages.
        .map(|sample| address + (sample * step + sample % step) * os::page_bytes())
        .enumerate()
        .take_while(|&(turn, _)| {
            is_in_swap = turn.is_power_of_two() && os::thread_faults_with_io() > waited;
            !is_in_swap
        })
        // SAFETY: the page lies in the block, whose pages are committed, and the caller guarantees the rest.
        .filter(|&(_, page)| unsafe { os::holds_zeros(page) })
        .nth(zeros - 1);
    match last {
        None if is_in_swap => None,
        None => Some(Written::All),
        Some((turn, _)) if turn >= MOST_PART * zeros => Some(Written::Most),
        Some(_) => Some(Written::Part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::granule::Span;
    use core::ffi::{c_int, c_void};

    const BYTES: usize = 8 << 20;
    const PROT_READ_WRITE: c_int = 3;
    const MAP_PRIVATE: c_int = 2;
    const MAP_FIXED: c_int = 16;
    const MADV_RANDOM: c_int = 1;
    const POSIX_FADV_DONTNEED: c_int = 4;

    unsafe extern "C" {
        fn mmap(
            address: *mut c_void,
            length: usize,
            access: c_int,
            flags: c_int,
            file: c_int,
            at: i64,
        ) -> *mut c_void;
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
        fn posix_fadvise(file: c_int, at: i64, length: i64, advice: c_int) -> c_int;
    }

    #[test]
    fn blocks_of_a_size_that_was_seen_filled_are_worth_huge_pages_until_one_is_not() {
        let filled = Filled::new();
        assert!(!filled.wants_huge(BYTES));
        filled.note(BYTES, 1, Written::All);
        assert!(filled.wants_huge(BYTES));
        assert!(!filled.wants_huge(2 * BYTES) && !filled.wants_huge(BYTES / 2), "other sizes");
        filled.note(BYTES, 1, Written::Part);
        let needed = |filled: &Filled| {
            (1..).find(|_| {
                filled.note(BYTES, 1, Written::All);
                filled.wants_huge(BYTES)
            })
        };
        assert_eq!(needed(&filled), Some(2));
        let all: Vec<_> = (0..7)
            .map(|_| {
                filled.note(BYTES, 1, Written::Part);
                filled.note(BYTES, 1, Written::Part);
                needed(&filled).unwrap()
            })
            .collect();
        assert!(all.iter().all(|&seen| seen > 2 && seen < i32::from(DEBT_MAX)), "{all:?}");
    }

    #[test]
    fn the_more_blocks_of_a_size_were_filled_in_a_row_the_more_huge_pages_one_gets_at_once() {
        let filled = Filled::new();
        let reach = |filled: &Filled| filled.bins[bin_of(BYTES)].reach();
        let after = |is_filled: bool| {
            filled.note(BYTES, 1, if is_filled { Written::All } else { Written::Part });
            reach(&filled)
        };
        assert_eq!(
            [true, true, true, false, true].map(after).map(|bytes| bytes / REACH_BYTES),
            [1, 2, 4, 1, 1]
        );
        (0..300).for_each(|_| filled.note(BYTES, 1, Written::All));
        assert_eq!(reach(&filled), REACH_BYTES << 20, "64 TiB");
    }

    #[test]
    fn of_a_size_that_is_not_filled_again_and_again_one_block_in_eight_is_looked_at_and_stands_for_all() {
        let filled = Filled::new();
        let looks = |filled: &Filled| (0..80).filter(|_| filled.stands_for(BYTES).is_some()).count();
        assert_eq!(looks(&filled), 80);
        (0..8).for_each(|_| filled.note(BYTES, 1, Written::Part));
        assert_eq!(looks(&filled), 10);
        let freed = (1..).find(|_| {
            filled.stands_for(BYTES).into_iter().for_each(|blocks| filled.note(BYTES, blocks, Written::All));
            filled.wants_huge(BYTES)
        });
        assert_eq!(
            freed,
            Some(usize::from(DEBT_MAX) - 7),
            "as many as if each were looked at, but for seven"
        );
    }

    #[test]
    fn a_block_of_memory_that_had_pages_before_shows_nothing() {
        let map = PageMap::new();
        let Span { first, .. } = map.reservation.grow((BYTES >> 16) as u32, 0).unwrap();
        map.record(first).granules.set((BYTES >> 16) as u32);
        let block = map.record(first).make_large(BYTES, 0);
        // SAFETY: committed, and nobody else's.
        unsafe { (map.address(first) as *mut u8).write_bytes(1, BYTES) };
        let filled = Filled::new();
        for had_none in [false, true] {
            block.set_had_no_pages(had_none);
            filled.freed(&map, first, BYTES);
            assert_eq!(filled.wants_huge(BYTES), had_none);
        }
    }

    #[test]
    fn one_of_eight_blocks_of_a_size_that_is_filled_stays_small_and_one_of_memory_with_pages_is_not_looked_at()
     {
        let heap = crate::heap::Heap::boxed();
        let (filled, spans) = (Filled::new(), &heap.spans);
        let first = spans.take(0, (BYTES >> 16) as u32, 1, true).unwrap().first;
        spans.map.record(first).make_large(BYTES, 0);
        filled.allocated(spans, first, BYTES, false);
        let had_no_pages = || spans.map.record(first).large().had_no_pages();
        assert!(!had_no_pages());
        filled.note(BYTES, 1, Written::All);
        let small: Vec<u8> = (0..3 * LOOK_AGAIN)
            .filter(|_| {
                filled.allocated(spans, first, BYTES, true);
                had_no_pages()
            })
            .collect();
        // All, where the kernel has no huge pages.
        assert!([7, 15, 23].iter().all(|block| small.contains(block)), "{small:?}");
    }

    #[test]
    fn small_blocks_are_worth_none() {
        let filled = Filled::new();
        filled.note(1 << 20, 1, Written::All);
        assert!(!filled.wants_huge(1 << 20));
    }

    #[test]
    fn a_block_is_filled_if_one_page_in_sixteen_is_missing_and_not_if_more_are() {
        for bytes in [2 << 20, 5 << 20, 64 << 20] {
            let map = PageMap::new();
            let granules = u32::try_from(bytes >> 16).unwrap();
            let Span { first, .. } = map.reservation.grow(granules, 0).unwrap();
            map.record(first).granules.set(granules);
            map.record(first).make_large(bytes, 0);
            let address = map.address(first);
            let touch = |skipped: usize| {
                for page in (0..bytes / 4096).filter(|page| page % skipped != 0) {
                    // SAFETY: committed, and nobody else's.
                    unsafe { ((address + page * 4096) as *mut u8).write_volatile(1) };
                }
            };
            // SAFETY: committed, and nobody else's.
            let look = || unsafe { written(&map, first, bytes) } == Some(Written::All);
            assert!(!look(), "{bytes}");
            touch(10);
            assert!(!look(), "{bytes}");
            touch(40);
            assert!(look(), "{bytes}");
        }
    }

    /// Its pages are a file's, not those of swap, which a test cannot have.
    #[test]
    fn a_block_whose_pages_would_have_to_be_read_from_a_disk_is_left_alone() {
        use std::os::fd::AsRawFd;
        let path = std::env::temp_dir().join(format!("faultless-filled-{}", std::process::id()));
        std::fs::write(&path, vec![1; 2 << 20]).unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.sync_all().unwrap();
        let map = PageMap::new();
        let Span { first, .. } = map.reservation.grow(32, 0).unwrap();
        map.record(first).granules.set(32);
        map.record(first).make_large(2 << 20, 0);
        let length = 2 << 20;
        // SAFETY: the pages are committed, and nobody else's; the file is open.
        unsafe {
            assert_eq!(posix_fadvise(file.as_raw_fd(), 0, length as i64, POSIX_FADV_DONTNEED), 0);
            let block = map.address(first) as *mut c_void;
            let flags = MAP_PRIVATE | MAP_FIXED;
            assert_eq!(mmap(block, length, PROT_READ_WRITE, flags, file.as_raw_fd(), 0), block);
            assert_eq!(madvise(block, length, MADV_RANDOM), 0);
        }
        // SAFETY: as above.
        let look = || unsafe { written(&map, first, length) };
        let before = os::thread_faults_with_io();
        let seen = look();
        let reads = os::thread_faults_with_io() - before;
        if reads == 0 {
            return faultless_skipped::skipped("files stay in memory here");
        }
        assert_eq!((seen, reads), (None, 1));
        // SAFETY: as above; what is written to a private mapping is memory of this process alone.
        unsafe { (map.address(first) as *mut u8).write_bytes(2, length) };
        assert_eq!(look(), Some(Written::All), "they are in memory now");
    }

    #[test]
    fn blocks_are_cleared_while_most_of_the_last_one_of_their_size_was_written() {
        let filled = Filled::new();
        let seen = [Written::Most, Written::Part, Written::All].map(|written| {
            filled.note(BYTES, 1, written);
            (filled.are_written(BYTES), filled.wants_huge(BYTES))
        });
        assert_eq!(seen, [(true, false), (false, false), (true, false)]);
        assert!(!filled.are_written(2 * BYTES), "another size");
    }

    #[test]
    fn most_of_a_block_is_written_or_not_wherever_that_lies() {
        for (bytes, part) in [(2 << 20, 0), (5 << 20, 1), (64 << 20, 0), (64 << 20, 1)] {
            let map = PageMap::new();
            let Span { first, .. } = map.reservation.grow((bytes >> 16) as u32, 0).unwrap();
            map.record(first).granules.set((bytes >> 16) as u32);
            map.record(first).make_large(bytes, 0);
            // SAFETY: committed, and nobody else's.
            let look = || unsafe { written(&map, first, bytes) };
            let fill = |from: usize, bytes: usize| {
                // SAFETY: as above.
                unsafe { ((map.address(first) + from) as *mut u8).write_bytes(1, bytes) };
            };
            fill(part * bytes / 2, bytes / 2);
            assert_eq!(look(), Some(Written::Part), "{bytes} {part}");
            fill(part * bytes / 4, 3 * bytes / 4);
            assert_eq!(look(), Some(Written::Most), "{bytes} {part}");
            fill(0, bytes);
            assert_eq!(look(), Some(Written::All), "{bytes} {part}");
        }
    }
}
