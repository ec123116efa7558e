//! The reservation: one range of address space, reserved without access and committed from the bottom up.
//!
//! Layout: tags, span records and slab bitmaps of every granule the range can ever have, then the granules
//! themselves. Granule `i` is at `base + i * 64 KiB`, the tables included, so the fast path of `free` needs one
//! subtraction. Only what is in use is committed, and untouched pages of the tables cost nothing.
//!
//! The range is 1 TiB. Where that is refused (`ulimit -v`, valgrind) a smaller range is *covered* by the tables
//! and reserved piece by piece at its end; a piece that somebody else's mapping occupies is skipped.

mod limited;

use crate::granule::{GRANULE_BYTES, GRANULE_SHIFT, Span, bytes_of};
use crate::lock::Lock;
use crate::os;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering};

/// Bytes of one span record; `page_map` asserts it.
pub const RECORD_BYTES: usize = 64;

/// Bytes of a granule's tag.
pub const TAG_BYTES: usize = 4;

/// Bytes of bitmap per granule: one bit per 16 bytes.
pub const BITMAP_BYTES: usize = GRANULE_BYTES / 16 / 8;

/// Granules covered, the tables included, where nothing limits us: 1 TiB.
pub const COVERAGE_MAX: u32 = 1 << 24;
/// Granules covered where qemu keeps some 24 bytes for each page that is reserved: 64 GiB, in pieces.
const COVERAGE_EMULATED: u32 = 1 << 20;
/// Fewest granules a range covers: 256 MiB, and where even the tables of that are refused a half or a quarter of it.
const COVERAGE_MIN: u32 = 1 << 12;
/// First, second and largest steps, in granules: 4, 32 and 64 MiB. The records of both ends of the first lie on one page.
const STEP_MIN: u32 = 64;
const SECOND_STEP: u32 = 512;
const STEP_MAX: u32 = 1024;
/// Where the program locked its memory (`mlockall`), which brings in all that is committed: 1 MiB.
const STEP_LOCKED: u32 = 16;
/// Least that is reserved in one piece: 16 GiB.
const WHOLE_MIN: u32 = 1 << 18;
/// Address space skipped, in granules, when the next piece is occupied: 1 GiB, or a sixteenth of a smaller range.
const SKIP: u32 = 16_384;

/// Where the tables of a range of `coverage` granules, they themselves included, lie, in bytes from its base.
#[derive(Clone, Copy, Debug)]
struct Layout {
    records: usize,
    bitmaps: usize,
    first_granule: u32,
}

impl Layout {
    fn of(coverage: u32) -> Self {
        let coverage = coverage as usize;
        let records = (coverage * TAG_BYTES).next_multiple_of(GRANULE_BYTES);
        let bitmaps = records + (coverage * RECORD_BYTES).next_multiple_of(GRANULE_BYTES);
        let end = bitmaps + (coverage * BITMAP_BYTES).next_multiple_of(GRANULE_BYTES);
        Self { records, bitmaps, first_granule: (end / GRANULE_BYTES) as u32 }
    }
}

/// Where huge pages are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HugePages {
    /// For slabs of a heap that is large; see `span_heap::huge_page`.
    Auto = 0,
    /// Nowhere.
    Never = 1,
    /// Wherever the kernel has them.
    Always = 2,
}

/// The address range all blocks come from.
pub struct Reservation {
    /// Start of the range, 0 until it exists.
    base: AtomicUsize,
    /// Granules from `base` whose tag may be read.
    limit: AtomicU32,
    /// The same as an offset from `base` in units of 16 bytes.
    limit_units: AtomicUsize,
    first_granule: AtomicU32,
    /// Granules covered by the tables, 0 before there are any.
    coverage: AtomicU32,
    records: AtomicUsize,
    bitmaps: AtomicUsize,
    growth: Lock<Growth>,
    /// A [`HugePages`].
    huge_pages: AtomicU8,
    /// Whether what is committed counts: the program has, or had, a limit of addresses or of data.
    is_limited: AtomicBool,
}

struct Growth {
    /// Granules from here on, and below `reserved`, are ours and not committed yet.
    next: u32,
    reserved: u32,
    /// The granules that have tables at present; there is a place for those of all.
    tables: core::ops::Range<u32>,
    /// Granules to commit next, if more than needed; 0 before the first.
    step: u32,
}

// ORDERING: every atomic here is written under `growth` before a block of the new memory exists; a thread that has such
// a block received it through something that orders (or allocated it under a lock), so Relaxed loads see the write.
const ORDER: Ordering = Ordering::Relaxed;

impl Reservation {
    /// No range yet.
    pub const fn new() -> Self {
        let growth = Growth { next: 0, reserved: 0, tables: 0..0, step: 0 };
        Self {
            base: AtomicUsize::new(0),
            limit: AtomicU32::new(0),
            limit_units: AtomicUsize::new(0),
            first_granule: AtomicU32::new(0),
            coverage: AtomicU32::new(0),
            records: AtomicUsize::new(0),
            bitmaps: AtomicUsize::new(0),
            growth: Lock::new(growth),
            huge_pages: AtomicU8::new(HugePages::Auto as u8),
            is_limited: AtomicBool::new(false),
        }
    }

    /// Start of the range; 0 until it exists.
    #[inline(always)]
    pub fn base(&self) -> usize {
        self.base.load(ORDER)
    }

    /// One past the last granule with tables.
    #[inline(always)]
    pub fn limit(&self) -> u32 {
        self.limit.load(ORDER)
    }

    /// The base and the granule of an address, if its tag may be read and the address is a multiple of 16.
    #[inline(always)]
    pub fn granule_of_block(&self, address: usize) -> Option<(usize, usize)> {
        let base = self.base();
        let distance = address.wrapping_sub(base);
        // The rotation moves the low bits to the top, so that one comparison serves both conditions. Nothing else waits for it.
        let units = distance.rotate_right(4);
        (units < self.limit_units.load(ORDER)).then_some((base, distance >> GRANULE_SHIFT))
    }

    fn set_limit(&self, limit: u32) {
        self.limit.store(limit, ORDER);
        self.limit_units.store((limit as usize) << (GRANULE_SHIFT - 4), ORDER);
    }

    /// The first granule after the tables.
    #[inline]
    pub fn first_granule(&self) -> u32 {
        self.first_granule.load(ORDER)
    }

    /// Bytes of the longest span that there can ever be.
    pub fn most_bytes(&self) -> usize {
        match self.coverage.load(ORDER) {
            0 => bytes_of(COVERAGE_MAX),
            coverage => bytes_of(coverage - self.first_granule()),
        }
    }

    /// Address of the span records.
    #[inline]
    pub fn records(&self) -> usize {
        self.records.load(ORDER)
    }

    /// Address of the slab bitmaps.
    #[inline]
    pub fn bitmaps(&self) -> usize {
        self.bitmaps.load(ORDER)
    }

    /// Address of a granule.
    #[inline]
    pub fn address(&self, granule: u32) -> usize {
        self.base() + bytes_of(granule)
    }

    /// Where huge pages are used in memory committed from now on.
    pub fn set_huge_pages(&self, wanted: HugePages) {
        self.huge_pages.store(wanted as u8, ORDER);
    }

    /// Whether the heap itself says where huge pages are used.
    pub fn are_huge_pages_auto(&self) -> bool {
        self.huge_pages.load(ORDER) == HugePages::Auto as u8
    }

    /// Whether the kernel may use huge pages in all memory.
    pub fn are_huge_pages_everywhere(&self) -> bool {
        self.huge_pages.load(ORDER) == HugePages::Always as u8
    }

    /// Replaces memory by a fresh mapping that reads as zero and joins its neighbours again. False: refused.
    ///
    /// # Safety
    /// The range is committed, and nobody needs its contents.
    pub unsafe fn renew(&self, address: usize, bytes: usize) -> bool {
        // SAFETY: the caller gives the contents up.
        let done = unsafe { os::renew(address, bytes) };
        if done {
            self.advise(address, bytes);
        }
        done
    }

    /// Tells the kernel what is wanted of huge pages in a committed range.
    pub fn advise(&self, address: usize, bytes: usize) {
        let everywhere = self.are_huge_pages_everywhere();
        let advice = if everywhere { os::HugePageAdvice::Always } else { os::HugePageAdvice::Never };
        // SAFETY: the callers pass a committed range of the reservation; advice changes no contents.
        unsafe { os::advise_huge_pages(address, bytes, advice) };
    }

    /// The lock to hold across a fork.
    pub fn hold_for_fork(&self) {
        self.growth.hold_for_fork();
    }

    /// The other half of [`Reservation::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.growth.release_after_fork();
    }

    /// Commits at least `granules` more at the end, or, where they follow directly, so many fewer as are `free` before the limit already.
    /// Returns the new ones; they read as zero.
    pub fn grow(&self, granules: u32, free: u32) -> Option<Span> {
        debug_assert!(free < granules);
        let mut growth = self.growth.lock();
        if self.base() == 0 && !self.establish(&mut growth) || self.limit() == 0 && !self.open() {
            return None;
        }
        let step = growth.step.max(STEP_MIN);
        let is_locked = if growth.next < growth.reserved {
            // SAFETY: reserved, and not committed: nobody uses it.
            unsafe { !os::discard_unless_locked(self.address(growth.next)) }
        } else {
            os::are_new_pages_locked()
        };
        let wanted = if is_locked { STEP_LOCKED } else { self.step_within_limits(step) };
        let ambitious = granules.max(wanted + free);
        let grown =
            self.extend(&mut growth, ambitious, free).or_else(|| self.extend(&mut growth, granules, free))?;
        growth.step = if step < SECOND_STEP { SECOND_STEP } else { STEP_MAX };
        Some(grown)
    }

    fn establish(&self, growth: &mut Growth) -> bool {
        let limit_bytes = os::resource_limit(os::ResourceLimit::AddressSpace);
        let keeps_to_commit = os::note_overcommit();
        if limit_bytes.is_some() || keeps_to_commit || os::resource_limit(os::ResourceLimit::Data).is_some() {
            self.count_committed();
        }
        let most = if os::is_emulated() { COVERAGE_EMULATED } else { COVERAGE_MAX };
        let whole = if limit_bytes.is_none() && most == COVERAGE_MAX { reserve_whole() } else { None };
        let Some(range) = whole.or_else(|| reserve_tables(limit_bytes, most)) else { return false };
        let Range { start, coverage, mut reserved } = range;
        let layout = Layout::of(coverage);
        // mmap aligns to pages; one granule is given up for alignment where that is not enough.
        let aligned = start.next_multiple_of(GRANULE_BYTES);
        reserved -= u32::from(aligned != start);
        let limit = layout.first_granule;
        debug_assert!(limit <= reserved);
        growth.next = limit;
        growth.reserved = reserved;
        growth.tables = 0..coverage;
        self.records.store(aligned + layout.records, ORDER);
        self.bitmaps.store(aligned + layout.bitmaps, ORDER);
        self.first_granule.store(limit, ORDER);
        self.coverage.store(coverage, ORDER);
        self.base.store(aligned, ORDER);
        if keeps_to_commit {
            // Of what it may promise the kernel leaves a 32nd of a process's addresses to others, up to 128 MiB.
            self.give_up(growth, 0);
        }
        true
    }

    /// Makes the tags of the tables themselves usable.
    fn open(&self) -> bool {
        let limit = self.first_granule();
        let bytes = (limit as usize * TAG_BYTES).next_multiple_of(GRANULE_BYTES);
        // SAFETY: the start of the reservation.
        unsafe { os::commit(self.base(), bytes) }.then(|| self.set_limit(limit)).is_some()
    }

    /// Commits exactly `granules` at the end of what is committed, without those `free` before the limit, reserving more first if needed.
    fn extend(&self, growth: &mut Growth, granules: u32, free: u32) -> Option<Span> {
        let coverage = self.coverage.load(ORDER);
        let mut first = growth.next;
        // A hole may follow the limit already.
        let missing = if first == self.limit() { granules - free } else { granules };
        let mut end = first.checked_add(missing)?;
        if end > growth.reserved {
            let mut from = growth.reserved;
            while !self.reserve_part(coverage, from, end)? {
                // Somebody else's mapping is in the way: leave a hole that no span ever covers.
                from = from.checked_add(SKIP.min(coverage / 16))?;
                first = from;
                end = first.checked_add(granules)?;
            }
            (growth.next, growth.reserved) = (first, end);
        } else if os::address_space_limit_met()
            .is_some_and(|limit| bytes_of(end - self.first_granule()) > limit)
        {
            // The kernel counted what is reserved when that was done: a limit set since stops nothing here.
            return None;
        }
        if !self.cover(growth, end) || !self.commit_tables(self.limit(), end) {
            return None;
        }
        let fresh = Span { first, granules: end - first };
        let (address, bytes) = (self.address(first), bytes_of(fresh.granules));
        // SAFETY: the range was reserved above or at the start.
        if !unsafe { os::commit(address, bytes) } {
            return None;
        }
        self.advise(address, bytes);
        growth.next = end;
        self.set_limit(end);
        Some(fresh)
    }

    /// Reserves granules `from..end`. `Some(false)`: occupied; `None`: the range or the address space is exhausted.
    fn reserve_part(&self, coverage: u32, from: u32, end: u32) -> Option<bool> {
        if end > coverage {
            return None;
        }
        let (address, bytes) = (self.address(from), bytes_of(end - from));
        if os::reserve_at(address, bytes) {
            return Some(true);
        }
        // Refused for want of address space, or occupied? As much elsewhere tells.
        let probe = os::reserve(bytes)?;
        // SAFETY: just reserved, and given to nobody.
        unsafe { os::unmap(probe, bytes) };
        Some(false)
    }

    /// The tags, records and bitmaps: where they lie, and the bytes that a granule has in them.
    fn tables(&self) -> [(usize, usize); 3] {
        [(self.base(), TAG_BYTES), (self.records(), RECORD_BYTES), (self.bitmaps(), BITMAP_BYTES)]
    }

    /// Makes the tables of granules `from..to` usable.
    fn commit_tables(&self, from: u32, to: u32) -> bool {
        self.tables().into_iter().all(|(table, bytes)| {
            let start = (table + from as usize * bytes) & !(GRANULE_BYTES - 1);
            let end = (table + to as usize * bytes).next_multiple_of(GRANULE_BYTES);
            // SAFETY: inside the table, whose place in the reservation ends at a granule boundary.
            unsafe { os::commit(start, end - start) }
        })
    }
}

/// Addresses from `start` on for a heap of `coverage` granules, of which the first `reserved` are reserved.
struct Range {
    start: usize,
    coverage: u32,
    reserved: u32,
}

/// Reserves as much as there is room for in one piece, down to [`WHOLE_MIN`].
fn reserve_whole() -> Option<Range> {
    halves(COVERAGE_MAX, WHOLE_MIN).find_map(|coverage| {
        os::reserve(bytes_of(coverage)).map(|start| Range { start, coverage, reserved: coverage })
    })
}

/// Reserves the tables of as large a heap as a limit leaves room for; it is covered in pieces. Not inlined into what a start runs.
#[inline(never)]
fn reserve_tables(limit_bytes: Option<usize>, most: u32) -> Option<Range> {
    let fitting = limited::coverage_bytes(limit_bytes).map_or(most, |bytes| {
        let granules = (bytes / GRANULE_BYTES).clamp(COVERAGE_MIN as usize, most as usize);
        (granules as u32).next_power_of_two()
    });
    halves(fitting, COVERAGE_MIN / 4).find_map(|coverage| {
        // One more than the tables: alignment may cost a granule.
        let reserved = Layout::of(coverage).first_granule + 1;
        let start = limited::reserve_below_space(bytes_of(reserved))?;
        Some(Range { start, coverage, reserved })
    })
}

/// `most`, a half of it, a quarter, down to `least`.
fn halves(most: u32, least: u32) -> impl Iterator<Item = u32> {
    core::iter::successors(Some(most), |granules| Some(granules / 2))
        .take_while(move |&granules| granules >= least)
}

impl Default for Reservation {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
impl Drop for Reservation {
    /// Tests make more heaps than fit into the address space with 1 TiB for each.
    fn drop(&mut self) {
        let reserved = self.growth.lock().reserved;
        if reserved >= COVERAGE_MAX - 1 {
            // SAFETY: in one piece, as `establish` reserved it; its test is over.
            unsafe { os::unmap(self.base(), bytes_of(reserved)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::limited::{LADDERS, reserve_below_space};
    use super::*;

    #[test]
    fn memory_is_committed_contiguously_and_reads_as_zero() {
        let reservation = Reservation::new();
        let Span { first, granules: count } = reservation.grow(3, 0).unwrap();
        assert_eq!((first, count), (reservation.first_granule(), STEP_MIN));
        let Span { first: next, granules: more } = reservation.grow(2 * STEP_MAX, 0).unwrap();
        assert_eq!((next, more), (first + count, 2 * STEP_MAX));
        let last = reservation.address(next + more) - 8;
        // SAFETY: the last word of the memory just committed.
        assert_eq!(unsafe { *(last as *const u64) }, 0);
    }

    #[test]
    fn what_others_have_mapped_is_never_taken_for_reserved() {
        let reservation = Reservation::new();
        let Span { first, granules: count } = reservation.grow(1, 0).unwrap();
        let end = first + count;
        let coverage = end + 64 * SKIP;
        // As if only this much had been reserved, and the rest of the range were somebody else's.
        {
            let mut growth = reservation.growth.lock();
            growth.reserved = end;
            reservation.coverage.store(coverage, ORDER);
        }
        for _ in 0..3 {
            assert_eq!(reservation.grow(1, 0), None);
        }
        assert_eq!(reservation.limit(), end);
        let behind = end + SKIP / 2;
        // SAFETY: of this test's reservation, and in no use.
        unsafe { os::unmap(reservation.address(behind), bytes_of(coverage - behind)) };
        os::REFUSED.set(os::Call::Commit as u32);
        assert_eq!(reservation.grow(1, 0), None);
        os::REFUSED.set(0);
        let next = reservation.grow(4, 3).unwrap();
        assert!(next.first >= behind, "{next:?}, and {end} to {behind} are not ours");
        assert_eq!(next.granules, SECOND_STEP + 3, "what is free before the limit does not continue there");
    }

    #[test]
    fn what_is_free_before_the_limit_need_not_be_committed_again() {
        let reservation = Reservation::new();
        let Span { first, granules } = reservation.grow(3 * STEP_MAX, 0).unwrap();
        let behind = Span { first: first + granules, granules: 2 * STEP_MAX };
        assert_eq!(reservation.grow(4 * STEP_MAX, 2 * STEP_MAX), Some(behind));
    }

    #[test]
    fn where_the_first_place_for_a_range_in_pieces_is_taken_another_has_room_behind_it_too() {
        let bytes = bytes_of(COVERAGE_MIN);
        let places: Vec<usize> = (0..3).map(|_| reserve_below_space(bytes).unwrap()).collect();
        let is_behind = |ladder: usize| move |place: &usize| (ladder..ladder + (1 << 36)).contains(place);
        for (place, ladder) in places.iter().zip(LADDERS) {
            assert!(is_behind(ladder)(place), "{place:#x}");
        }
        assert!(!LADDERS.iter().any(|&ladder| is_behind(ladder)(&places[2])), "both are taken");
        for place in places {
            // SAFETY: just reserved, and given to nobody.
            unsafe { os::unmap(place, bytes) };
        }
    }

    #[test]
    fn more_than_the_range_covers_is_refused_and_changes_nothing() {
        let reservation = Reservation::new();
        let Span { first, granules: count } = reservation.grow(1, 0).unwrap();
        assert_eq!(reservation.grow(u32::MAX - first, 0), None);
        assert_eq!(reservation.limit(), first + count);
    }

    #[test]
    fn tables_do_not_overlap() {
        for coverage in [COVERAGE_MIN, 1 << 16, COVERAGE_MAX] {
            let layout = Layout::of(coverage);
            assert!(layout.records >= coverage as usize * TAG_BYTES);
            assert!(layout.bitmaps >= layout.records + coverage as usize * RECORD_BYTES);
            assert!(bytes_of(layout.first_granule) >= layout.bitmaps + coverage as usize * BITMAP_BYTES);
        }
    }
}
