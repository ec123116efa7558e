//! Spans that slabs left, kept by the shard that used them last: its next slab is made where its CPU's cache may still know the
//! memory, and needs neither the clock nor the one lock that all threads share. (Keeping the spans of large blocks, too, was tried:
//! they then lie where others would have grown.)

use crate::page_map::{PageMap, State};

/// Longest spans that are kept, in granules: the longest slabs.
const LONGEST: u32 = 4;

/// The spans one shard keeps. They count as used in the span heap.
pub struct Kept {
    /// By length in granules; the first is not used.
    lists: [List; LONGEST as usize + 1],
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

impl Kept {
    /// No span.
    pub const fn new() -> Self {
        Self { lists: [List { head: 0, count: 0, least: 0 }; LONGEST as usize + 1], granules: 0 }
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

    /// A span that was not needed since [`Kept::begin_round`], and its length.
    pub fn pop_unused(&mut self, map: &PageMap) -> Option<(u32, u32)> {
        let granules = self.lists.iter().position(|list| list.least > 0)?;
        let least = self.lists[granules].least - 1;
        let first = self.pop(map, granules as u32)?;
        self.lists[granules].least = least;
        Some((first, granules as u32))
    }

    /// Any span, and its length.
    pub fn pop_any(&mut self, map: &PageMap) -> Option<(u32, u32)> {
        let granules = self.lists.iter().position(|list| list.count > 0)? as u32;
        self.pop(map, granules).map(|first| (first, granules))
    }

    /// Begins a round: what stays until its end was not needed.
    pub fn begin_round(&mut self) {
        self.lists.iter_mut().for_each(|list| list.least = list.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_needed_in_a_round_is_unused() {
        let map = PageMap::new();
        assert!(map.reservation.grow(16).is_some());
        let base = map.reservation.first_granule();
        let mut kept = Kept::new();
        (0..4).for_each(|index| kept.push(&map, base + index, 1));
        kept.push(&map, base + 4, 3);
        assert_eq!(kept.granules, 7);
        assert_eq!(kept.pop_unused(&map), None, "new in this round");
        kept.begin_round();
        assert_eq!(kept.pop(&map, 1), Some(base + 3), "last in, first out");
        kept.push(&map, base + 3, 1);
        let unused = core::array::from_fn(|_| kept.pop_unused(&map).map(|(_, granules)| granules));
        assert_eq!(unused, [Some(1), Some(1), Some(1), Some(3), None]);
        assert_eq!(kept.pop_any(&map).map(|(_, granules)| granules), Some(1));
        assert_eq!(kept.pop_any(&map), None);
        assert_eq!(kept.granules, 0);
    }
}
