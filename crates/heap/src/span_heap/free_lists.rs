//! Free spans by size: exact lists up to 32 granules, four per doubling above.

use crate::page_map::PageMap;

const EXACT: u32 = 32;
/// Lists: 32 exact ones, then four for each doubling up to 2^25 granules.
const LISTS: usize = EXACT as usize + 4 * 20;
/// Spans looked at in one list, usually. Only the first list, of about the size asked for, may hold shorter ones; in the
/// others the first fits.
pub const FEW: usize = 16;
/// As [`FEW`], before address space grows: a search of some microseconds.
pub const MANY: usize = 1024;
/// As [`FEW`], when memory has run out otherwise.
pub const ALL: usize = usize::MAX;

/// The list of spans of `granules`.
fn list_of(granules: u32) -> usize {
    if granules <= EXACT {
        return granules as usize - 1;
    }
    let log = granules.ilog2();
    let quarter = (granules >> (log - 2)) & 3;
    (EXACT as usize + (log as usize - 5) * 4 + quarter as usize).min(LISTS - 1)
}

/// Lists of free spans of one kind.
pub struct FreeLists {
    heads: [u32; LISTS],
    /// Bit `i`: list `i` is not empty.
    filled: u128,
}

impl FreeLists {
    pub const fn new() -> Self {
        Self { heads: [0; LISTS], filled: 0 }
    }

    pub fn insert(&mut self, map: &PageMap, first: u32, granules: u32) {
        let list = list_of(granules);
        let head = self.heads[list];
        let record = map.record(first);
        record.prev.set(0);
        record.next.set(head);
        if head != 0 {
            map.record(head).prev.set(first);
        }
        self.heads[list] = first;
        self.filled |= 1 << list;
    }

    pub fn remove(&mut self, map: &PageMap, first: u32, granules: u32) {
        let record = map.record(first);
        let (prev, next) = (record.prev.get(), record.next.get());
        if next != 0 {
            map.record(next).prev.set(prev);
        }
        if prev != 0 {
            map.record(prev).next.set(next);
            return;
        }
        let list = list_of(granules);
        debug_assert_eq!(self.heads[list], first);
        self.heads[list] = next;
        if next == 0 {
            self.filled &= !(1 << list);
        }
    }

    /// The smallest span of at least `granules`; the lowest among equals, as far as `looks` in each list find them.
    pub fn best_fit(&self, map: &PageMap, granules: u32, looks: usize) -> Option<u32> {
        let mut candidates = self.filled & (u128::MAX << list_of(granules));
        while candidates != 0 {
            let list = candidates.trailing_zeros() as usize;
            if let Some(best) = self.best_in(map, list, granules, looks) {
                return Some(best);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// As [`FreeLists::best_fit`], of those that have so many granules from a multiple of `align` on, by address: what such a block left
    /// has, although it is no longer. There are many lists of spans that may not serve, so looks at all together are no more than
    /// [`MANY`], if not at one list; then the first of those serves that are long enough wherever they begin.
    pub fn best_aligned(&self, map: &PageMap, granules: u32, align: u32, looks: usize) -> Option<u32> {
        if align == 1 {
            return self.best_fit(map, granules, looks);
        }
        let mut candidates = self.filled & (u128::MAX << list_of(granules));
        let mut left = looks.max(MANY);
        while candidates != 0 {
            let spans = self.spans_in(map, candidates.trailing_zeros() as usize).take(looks.min(left).max(1));
            let lengths = spans.map(|span| {
                left = left.saturating_sub(1);
                (map.record(span).granules.get(), span)
            });
            let has_room = |&(length, span): &(u32, u32)| {
                length.checked_sub(granules).is_some_and(|spare| spare >= map.offset_to(span, align))
            };
            if let Some((_, best)) = lengths.filter(has_room).min() {
                return Some(best);
            }
            candidates &= candidates - 1;
        }
        None
    }

    /// One of the longest spans of less than `granules`, and of `least` or more, if there is any; of about as many, as far as `looks` find it.
    pub fn longest(&self, map: &PageMap, granules: u32, least: u32, looks: usize) -> Option<u32> {
        let list = list_of(granules);
        let mut about = self.spans_in(map, list).take(looks);
        let nearly = about.find(|&span| map.record(span).granules.get() < granules);
        let shorter = self.filled & !(u128::MAX << list) & (u128::MAX << list_of(least));
        nearly.or_else(|| (shorter != 0).then(|| self.heads[shorter.ilog2() as usize]))
    }

    /// All spans.
    pub fn all(&self, map: &PageMap) -> impl Iterator<Item = u32> {
        (0..LISTS).flat_map(|list| self.spans_in(map, list))
    }

    fn spans_in(&self, map: &PageMap, list: usize) -> impl Iterator<Item = u32> {
        let listed = |span: u32| (span != 0).then_some(span);
        core::iter::successors(listed(self.heads[list]), move |&span| listed(map.record(span).next.get()))
    }

    fn best_in(&self, map: &PageMap, list: usize, granules: u32, looks: usize) -> Option<u32> {
        let sized = self.spans_in(map, list).take(looks).map(|span| (map.record(span).granules.get(), span));
        sized.filter(|(length, _)| *length >= granules).min().map(|(_, span)| span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of spans of these lengths, and where these begin.
    fn listed(lengths: &[u32]) -> (PageMap, FreeLists, Vec<u32>) {
        let (map, mut lists) = (PageMap::new(), FreeLists::new());
        let mut next = map.reservation.grow(lengths.iter().sum(), 0).unwrap().first;
        let firsts = lengths.iter().map(|&granules| {
            let first = next;
            map.record(first).granules.set(granules);
            lists.insert(&map, first, granules);
            next += granules;
            first
        });
        let firsts = firsts.collect();
        (map, lists, firsts)
    }

    #[test]
    fn the_shortest_that_is_long_enough_fits_best_and_the_lowest_of_these() {
        let (map, lists, firsts) = listed(&[30, 42, 44, 42, 41, 47, 100]);
        let fits = [31, 42, 43, 48, 101].map(|granules| lists.best_fit(&map, granules, FEW));
        assert_eq!(fits, [Some(firsts[4]), Some(firsts[1]), Some(firsts[2]), Some(firsts[6]), None]);
    }

    #[test]
    fn many_spans_of_a_list_that_are_too_short_are_not_all_looked_at() {
        let lengths: Vec<u32> = core::iter::once(47).chain(core::iter::repeat_n(41, FEW)).collect();
        let (map, lists, firsts) = listed(&lengths);
        assert_eq!([FEW, FEW + 1].map(|looks| lists.best_fit(&map, 47, looks)), [None, Some(firsts[0])]);
        assert_eq!(lists.best_fit(&map, 41, FEW), Some(firsts[1]));
    }

    #[test]
    fn a_span_serves_who_asks_for_alignment_if_what_is_left_of_it_from_there_is_long_enough() {
        let (map, lists, firsts) = listed(&[400, 3, 4, 70, 300]);
        let fit = |granules, align| lists.best_aligned(&map, granules, align, FEW).unwrap();
        assert_eq!(fit(3, 1), firsts[1]);
        for (granules, align) in [(1, 4), (2, 2), (4, 4), (3, 32), (60, 8), (200, 64)] {
            let has_room = |&first: &u32| {
                let length = map.record(first).granules.get();
                length >= granules + map.offset_to(first, align)
            };
            let length = |first: u32| map.record(first).granules.get();
            let shortest = firsts.iter().copied().filter(has_room).map(length).min().unwrap();
            assert_eq!(length(fit(granules, align)), shortest, "{granules} at {align}");
        }
        assert_eq!(lists.best_aligned(&map, 401, 2, FEW), None);
    }

    #[test]
    fn so_many_that_do_not_serve_aligned_end_the_search_in_all_lists_together_and_one_that_is_longer_serves()
    {
        const EACH: u32 = MANY as u32 / 4 * 3;
        let (map, mut lists) = (PageMap::new(), FreeLists::new());
        let base = map.reservation.grow(16 * EACH + 32, 0).unwrap().first;
        let mut next = base + map.offset_to(base, 4);
        let mut insert = |from: u32, granules: u32| {
            let first = next + from;
            next += 8;
            map.record(first).granules.set(granules);
            lists.insert(&map, first, granules);
            first
        };
        let (long, fits) = (insert(1, 5), insert(0, 2));
        (0..2 * EACH).for_each(|index| _ = insert(1, 1 + index % 2));
        let found = [FEW, MANY, ALL].map(|looks| lists.best_aligned(&map, 1, 4, looks));
        assert_eq!(found, [Some(long), Some(long), Some(fits)]);
    }

    #[test]
    fn the_longest_is_shorter_than_what_is_wanted_and_no_shorter_than_the_least() {
        let (map, lists, firsts) = listed(&[2, 8, 20, 41, 47]);
        let longest = [48, 47, 41, 20, 8].map(|granules| lists.longest(&map, granules, 4, FEW));
        assert_eq!(longest, [Some(firsts[4]), Some(firsts[3]), Some(firsts[2]), Some(firsts[1]), None]);
    }

    #[test]
    fn lists_are_ordered_by_size() {
        for granules in 1..100_000 {
            assert!(list_of(granules) <= list_of(granules + 1));
        }
        assert!(list_of(1 << 24) < LISTS);
        assert!((1..=EXACT).zip(0..).all(|(granules, list)| list_of(granules) == list));
        let quarters = (5..24).flat_map(|log| (4..8).map(move |quarter| (quarter << (log - 2)) + 1));
        assert!(quarters.zip(EXACT as usize..).all(|(granules, list)| list_of(granules) == list));
    }
}
