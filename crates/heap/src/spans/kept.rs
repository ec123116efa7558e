//! Spans that slabs left, kept by the shard that used them last: its next slab is made where its CPU's cache may still know the
//! memory, and needs neither the clock nor the one lock that all threads share. And the spans of the large blocks that were freed
//! last: who takes and gives such again and again needs no more than them.

use crate::granule::Span;
use crate::page_map::{PageMap, State};

/// Longest spans that are kept, in granules: the longest slabs.
const LONGEST: u32 = 4;

/// Spans of large blocks that are kept besides those that are no longer than slabs. (Four cost `large_blocks` 11 % more memory than none,
/// two 5 %, and are as fast.)
const MOST_LARGE: usize = 2;
/// Spans of each of those lengths that large blocks leave.
const MOST_OF_LENGTH: u32 = 4;

/// The spans one shard keeps. They count as used in the span heap.
pub struct Kept {
    /// By length in granules; the first is not used.
    lists: [List; LONGEST as usize + 1],
    /// Those of large blocks, the one freed last first; with gaps.
    large: [LargeSpan; MOST_LARGE],
    /// Sum of their lengths.
    pub granules: u32,
}

/// Spans of one length.
#[derive(Clone, Copy)]
struct List {
    /// The one kept last, 0 for none.
    head: u32,
    count: u32,
    /// The fewest there were since [`Kept::begin_round`].
    least: u32,
}

/// The span of a large block.
#[derive(Clone, Copy)]
struct LargeSpan {
    first: u32,
    /// 0 for no span.
    granules: u32,
    /// Since before [`Kept::begin_round`].
    is_old: bool,
}

impl LargeSpan {
    const NONE: Self = Self { first: 0, granules: 0, is_old: false };
}

impl Kept {
    /// No span.
    pub const fn new() -> Self {
        Self {
            lists: [List { head: 0, count: 0, least: 0 }; LONGEST as usize + 1],
            large: [LargeSpan::NONE; MOST_LARGE],
            granules: 0,
        }
    }

    /// Keeps the span of a large block. Returns the one that has to leave for it.
    pub fn keep_large(&mut self, map: &PageMap, Span { first, granules }: Span) -> Option<Span> {
        if granules <= LONGEST && self.lists[granules as usize].count < MOST_OF_LENGTH {
            self.push(map, first, granules);
            return None;
        }
        let is_free = |span: &LargeSpan| span.granules == 0;
        let gap = self.large.iter().position(is_free).unwrap_or(MOST_LARGE - 1);
        let leaves = self.remove_large(map, gap);
        for place in (0..gap).rev() {
            self.large[place + 1] = self.large[place];
        }
        self.large[0] = LargeSpan { first, granules, is_old: false };
        map.record(first).set_state(State::Kept);
        self.granules += granules;
        leaves
    }

    /// The span of a large block of so many granules that was freed last.
    pub fn take_large(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        if let Some(place) = self.large.iter().position(|span| span.granules == granules) {
            return self.remove_large(map, place).map(|span| span.first);
        }
        if granules <= LONGEST { self.pop(map, granules) } else { None }
    }

    /// Takes a span out.
    fn remove_large(&mut self, map: &PageMap, place: usize) -> Option<Span> {
        let LargeSpan { first, granules, .. } = self.large[place];
        if granules == 0 {
            return None;
        }
        self.large[place] = LargeSpan::NONE;
        map.record(first).set_state(State::Interior);
        self.granules -= granules;
        Some(Span { first, granules })
    }

    /// Keeps a span.
    pub fn push(&mut self, map: &PageMap, first: u32, granules: u32) {
        let (list, record) = (&mut self.lists[granules as usize], map.record(first));
        record.next.set(list.head);
        record.set_state(State::Kept);
        list.head = first;
        list.count += 1;
        self.granules += granules;
    }

    /// The span of so many granules that was kept last.
    pub fn pop(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        let list = &mut self.lists[granules as usize];
        let first = list.head;
        if first == 0 {
            return None;
        }
        let record = map.record(first);
        record.set_state(State::Interior);
        list.head = record.next.get();
        list.count -= 1;
        list.least = list.least.min(list.count);
        self.granules -= granules;
        Some(first)
    }

    /// A span that was not needed since [`Kept::begin_round`].
    pub fn pop_unused(&mut self, map: &PageMap) -> Option<Span> {
        if let Some(place) = self.large.iter().position(|span| span.is_old) {
            return self.remove_large(map, place);
        }
        let granules = self.lists.iter().position(|list| list.least > 0)?;
        let least = self.lists[granules].least - 1;
        let first = self.pop(map, granules as u32)?;
        self.lists[granules].least = least;
        Some(Span { first, granules: granules as u32 })
    }

    /// Any span.
    pub fn pop_any(&mut self, map: &PageMap) -> Option<Span> {
        if let Some(place) = self.large.iter().position(|span| span.granules > 0) {
            return self.remove_large(map, place);
        }
        let granules = self.lists.iter().position(|list| list.count > 0)? as u32;
        self.pop(map, granules).map(|first| Span { first, granules })
    }

    /// Begins a round: what stays until its end was not needed.
    pub fn begin_round(&mut self) {
        self.lists.iter_mut().for_each(|list| list.least = list.count);
        self.large.iter_mut().for_each(|span| span.is_old = span.granules > 0);
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_needed_in_a_round_is_unused() {
        let map = PageMap::new();
        assert!(map.reservation.grow(16, 0).is_some());
        let base = map.reservation.first_granule();
        let mut kept = Kept::new();
        (0..4).for_each(|index| kept.push(&map, base + index, 1));
        kept.push(&map, base + 4, 3);
        assert_eq!(kept.granules, 7);
        assert_eq!(kept.pop_unused(&map), None, "new in this round");
        kept.begin_round();
        assert_eq!(kept.pop(&map, 1), Some(base + 3), "last in, first out");
        kept.push(&map, base + 3, 1);
        let unused = core::array::from_fn(|_| kept.pop_unused(&map).map(|span| span.granules));
        assert_eq!(unused, [Some(1), Some(1), Some(1), Some(3), None]);
        assert_eq!(kept.pop_any(&map).map(|span| span.granules), Some(1));
        assert_eq!(kept.pop_any(&map), None);
        assert_eq!(kept.granules, 0);
    }

    #[test]
    fn spans_of_large_blocks_as_long_as_slabs_are_kept_by_length_too() {
        let map = PageMap::new();
        assert!(map.reservation.grow(64, 0).is_some());
        let base = map.reservation.first_granule();
        let mut kept = Kept::new();
        let span = |offset, granules| Span { first: base + offset, granules };
        let most = MOST_OF_LENGTH + MOST_LARGE as u32;
        for index in 0..most {
            assert_eq!(kept.keep_large(&map, span(2 * index, 2)), None);
        }
        assert!(kept.keep_large(&map, span(2 * most, 2)).is_some(), "one leaves");
        assert_eq!((kept.granules, kept.take_large(&map, 1)), (2 * most, None));
        assert!((0..most).all(|_| kept.take_large(&map, 2).is_some()));
        kept.push(&map, base, 3);
        assert_eq!(kept.take_large(&map, 3), Some(base), "what a slab left");
        assert_eq!((kept.granules, kept.take_large(&map, 2)), (0, None));
    }

    #[test]
    fn spans_of_large_blocks_are_taken_by_length_and_leave_by_age() {
        let map = PageMap::new();
        assert!(map.reservation.grow(64, 0).is_some());
        let base = map.reservation.first_granule();
        let mut kept = Kept::new();
        let span = |offset, granules| Span { first: base + offset, granules };
        assert_eq!(kept.keep_large(&map, span(0, 8)), None);
        assert_eq!(kept.keep_large(&map, span(10, 8)), None);
        assert_eq!((kept.granules, map.record(base).state()), (16, State::Kept));
        assert_eq!(kept.take_large(&map, 8), Some(base + 10), "freed last");
        assert_eq!(kept.take_large(&map, 7), None);
        assert_eq!(kept.keep_large(&map, span(20, 9)), None);
        assert_eq!(kept.keep_large(&map, span(30, 11)), Some(span(0, 8)), "the oldest leaves");
        kept.begin_round();
        assert_eq!(kept.take_large(&map, 9), Some(base + 20));
        assert_eq!(kept.keep_large(&map, span(20, 9)), None);
        let unused = core::array::from_fn(|_| kept.pop_unused(&map).map(|span| span.granules));
        assert_eq!(unused, [Some(11), None]);
        assert_eq!(kept.pop_any(&map), Some(span(20, 9)));
        assert_eq!((kept.granules, kept.pop_any(&map)), (0, None));
    }
}
