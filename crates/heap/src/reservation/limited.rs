//! A program that limits its addresses while it runs: what is reserved and not used would count, and is given up. The heap goes on in
//! pieces at its end, as where there was a limit from the start; the tables, which have their place, are reserved again further.

use super::{COVERAGE_MIN, Growth, ORDER, Reservation, bytes_of};
use crate::granule::GRANULE_BYTES;
use crate::os;
use core::ops::Range;
use core::sync::atomic::Ordering;

/// Where a limit counts what is committed, which leaves less for stacks and mappings, the heap grows by 1 MiB, in granules, or by this
/// part of itself.
const STEP_LEAST: u32 = 16;
const STEP_PART: u32 = 16;
/// Where the program locked its memory under a limit, the tables count against it: they cover so many times as much, and take a
/// fourteenth of it.
const LOCKED_COVERAGE: usize = 8;
/// So often it is tried to have the lock: a child of `fork` that handlers knew nothing of waits for ever for who held it.
const TRIES: u32 = 1000;

/// Where to look for free address space when it must grow at its end; far from what kernels and runtimes use, with 47 bits of
/// addresses or more, and with 39.
pub(super) const LADDERS: [usize; 2] = [0x1a00_0000_0000, 0x1a_0000_0000];

impl Reservation {
    /// Commits little more than is needed from now on: a limit counts it.
    pub fn count_committed(&self) {
        // ORDERING: Relaxed; a heap that grows meanwhile does so by a step as before.
        self.is_limited.store(true, Ordering::Relaxed);
    }

    /// Whether what is committed counts.
    pub fn is_limited(&self) -> bool {
        // ORDERING: Relaxed, as in `count_committed`.
        self.is_limited.load(Ordering::Relaxed)
    }

    /// How much to commit next, where it would be `step` without a limit.
    pub(super) fn step_within_limits(&self, step: u32) -> u32 {
        if !self.is_limited() {
            return step;
        }
        ((self.limit() - self.first_granule()) / STEP_PART).clamp(STEP_LEAST, step)
    }

    /// Gives up addresses that a heap under a limit of so many bytes does not need. None, if all that is reserved leaves as much again to
    /// the rest of the process.
    pub fn keep_within(&self, limit_bytes: usize) {
        if self.base() != 0 && limit_bytes / 2 >= bytes_of(self.coverage.load(ORDER)) {
            return;
        }
        self.count_committed();
        let mut growth = (0..TRIES).find_map(|_| {
            let growth = self.growth.try_lock();
            if growth.is_none() {
                os::yield_now();
            }
            growth
        });
        let Some(growth) = growth.as_mut().filter(|_| self.base() != 0) else { return };
        self.give_up(growth, u32::try_from(limit_bytes / GRANULE_BYTES).unwrap_or(u32::MAX));
    }

    /// Gives up what is reserved and not committed, but for the tables of so many granules more, or of a small heap.
    pub(super) fn give_up(&self, growth: &mut Growth, granules: u32) {
        let Range { start, end } = growth.tables.clone();
        // Of the granules that the tables themselves fill nothing is asked but tags. Of 1,024, records and bitmaps end with a granule.
        let wanted_from = start.max(self.first_granule() & !1023);
        let wanted_to = end.min(growth.next.saturating_add(granules.max(COVERAGE_MIN)));
        let unused = self.table_parts(start..wanted_from).into_iter().skip(1);
        for part in unused.chain(self.table_parts(wanted_to..end)) {
            // SAFETY: reserved, and not committed.
            unsafe { os::unmap(part.start, part.len()) };
        }
        growth.tables = wanted_from..wanted_to;
        // SAFETY: as above.
        unsafe { os::unmap(self.address(growth.next), bytes_of(growth.reserved - growth.next)) };
        growth.reserved = growth.next;
    }

    /// Reserves the tables up to a granule of the range again, if they were given up. False: somebody else is in their place.
    pub(super) fn cover(&self, growth: &mut Growth, end: u32) -> bool {
        debug_assert!(end <= self.coverage.load(ORDER));
        let covered = growth.tables.end;
        if end <= covered {
            return true;
        }
        let parts = self.table_parts(covered..end);
        let is_refused = |part: &Range<usize>| !part.is_empty() && !os::reserve_at(part.start, part.len());
        let Some(taken) = parts.iter().position(is_refused) else {
            growth.tables.end = end;
            return true;
        };
        for part in &parts[..taken] {
            // SAFETY: just reserved, and given to nobody.
            unsafe { os::unmap(part.start, part.len()) };
        }
        false
    }

    /// The addresses of the tags, records and bitmaps that only these granules need.
    fn table_parts(&self, granules: Range<u32>) -> [Range<usize>; 3] {
        self.tables().map(|(table, bytes)| {
            let [start, end] = [granules.start, granules.end]
                .map(|granule| table + (granule as usize * bytes).next_multiple_of(GRANULE_BYTES));
            start..end
        })
    }
}

/// How large a heap has tables, in bytes, given the limit of addresses: less where what is mapped is locked, and a limit counts that.
pub(super) fn coverage_bytes(limit_bytes: Option<usize>) -> Option<usize> {
    let are_locked = os::are_new_pages_locked();
    let locked_bytes = are_locked.then(|| os::resource_limit(os::ResourceLimit::LockedMemory)).flatten();
    let coverage_bytes = locked_bytes.map(|bytes| bytes.saturating_mul(LOCKED_COVERAGE));
    limit_bytes.into_iter().chain(coverage_bytes).min()
}

/// Reserves a range that is covered in pieces where there is room behind it. Address bits that differ from run to run keep its place
/// unpredictable.
pub(super) fn reserve_below_space(bytes: usize) -> Option<usize> {
    let offset = os::thread_pointer() & 0xf_ffff_0000 & !(GRANULE_BYTES - 1);
    let place = LADDERS.map(|ladder| ladder + offset).into_iter().find(|&place| os::reserve_at(place, bytes));
    place.or_else(|| os::reserve(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{BITMAP_BYTES, RECORD_BYTES};
    use super::*;
    use crate::granule::Span;

    const LIMIT: usize = 1 << 30;

    fn limited() -> Reservation {
        let reservation = Reservation::new();
        reservation.grow(1, 0).unwrap();
        reservation.keep_within(LIMIT);
        reservation
    }

    fn covered(reservation: &Reservation) -> u32 {
        reservation.growth.lock().tables.end
    }

    /// So much that the present tables do not suffice.
    fn beyond_tables(reservation: &Reservation) -> u32 {
        covered(reservation) - reservation.limit() + 1
    }

    #[test]
    fn where_a_limit_counts_what_is_committed_a_sixteenth_of_the_heap_is_committed_in_advance() {
        let reservation = Reservation::new();
        reservation.count_committed();
        let grown = |granules| reservation.grow(granules, 0).unwrap().granules;
        assert_eq!([grown(1), grown(1), grown(1600), grown(1)], [STEP_LEAST, STEP_LEAST, 1600, 102]);
    }

    #[test]
    fn where_the_kernel_promises_no_more_than_it_has_neither_memory_nor_addresses_are_had_in_advance() {
        let reservation = Reservation::new();
        os::REFUSED.set(os::Call::Overcommit as u32 | os::Call::Commit as u32);
        assert_eq!((reservation.grow(1, 0), reservation.grow(1, 0)), (None, None));
        os::REFUSED.set(0);
        let base = reservation.base();
        let Span { first, granules } = reservation.grow(1, 0).unwrap();
        assert_eq!((reservation.base(), granules), (base, STEP_LEAST), "a refusal leaves what was reserved");
        assert_eq!(covered(&reservation), first + COVERAGE_MIN);
        assert_eq!(reservation.growth.lock().reserved, first + granules);
        assert!(reservation.grow(beyond_tables(&reservation), 0).is_some());
    }

    #[test]
    fn under_a_limit_of_twice_what_is_reserved_nothing_is_given_up() {
        let reservation = Reservation::new();
        reservation.grow(1, 0).unwrap();
        let all = bytes_of(reservation.coverage.load(ORDER));
        let state = || (reservation.is_limited(), reservation.growth.lock().reserved);
        let before = state();
        reservation.keep_within(2 * all);
        assert_eq!(state(), before);
        reservation.keep_within(2 * all - 1);
        assert_ne!(state(), before);
    }

    #[test]
    fn what_was_given_up_is_reserved_again_when_it_is_needed() {
        let reservation = limited();
        let before = covered(&reservation);
        assert_eq!(before, reservation.limit() + (LIMIT / GRANULE_BYTES) as u32);
        let Span { first, granules } = reservation.grow(beyond_tables(&reservation), 0).unwrap();
        assert!(first + granules > before);
        assert_eq!(covered(&reservation), first + granules, "more would count");
        for (table, bytes) in [(reservation.records(), RECORD_BYTES), (reservation.bitmaps(), BITMAP_BYTES)] {
            let last = table + (first + granules) as usize * bytes - 8;
            // SAFETY: the last word that the last granule has in this table.
            assert_eq!(unsafe { (last as *const u64).read_volatile() }, 0);
        }
    }

    #[test]
    fn what_others_mapped_where_something_was_given_up_stays_when_the_limit_is_lowered() {
        let reservation = limited();
        let places = [reservation.bitmaps(), reservation.address(reservation.limit())];
        for place in places {
            assert!(os::reserve_at(place, GRANULE_BYTES), "given up");
        }
        reservation.keep_within(LIMIT / 2);
        for place in places {
            assert!(!os::reserve_at(place, GRANULE_BYTES), "still there");
            // SAFETY: just reserved, and given to nobody.
            unsafe { os::unmap(place, GRANULE_BYTES) };
        }
    }

    #[test]
    fn where_somebody_else_is_in_the_place_of_tables_the_heap_ends() {
        let reservation = limited();
        let from = covered(&reservation);
        let granules = beyond_tables(&reservation) + from;
        let [tags, _, bitmaps] = reservation.table_parts(from..2 * from);
        assert!(os::reserve_at(bitmaps.start, GRANULE_BYTES));
        assert_eq!(reservation.grow(granules, 0), None);
        assert_eq!(covered(&reservation), from);
        assert!(os::reserve_at(tags.start, GRANULE_BYTES), "what was reserved in vain is not kept");
        for place in [tags.start, bitmaps.start] {
            // SAFETY: just reserved, and given to nobody.
            unsafe { os::unmap(place, GRANULE_BYTES) };
        }
        assert!(reservation.grow(granules, 0).is_some());
    }
}
