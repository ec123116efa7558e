//! Spans for blocks that grow: a block is cut from a longer span, and grows into the rest, which stays with the shard.

use super::{Kept, LargeSpan, SLAB_LONGEST};
use crate::granule::Span;
use crate::page_map::{PageMap, State};

/// For each block that grows one that finds no span of its length has room behind it, and so many later, at most. Where few grow that
/// would only take what blocks of other lengths come back for.
const ROOMS: u32 = 4;
/// What a large block left is not cut for one shorter than this part of it: blocks so much longer than others would find it in pieces.
const CUT_PART: u32 = 16;
/// Spans of a list looked at for one that lies where it is wanted.
const LOOKS: usize = 4;

impl Kept {
    /// A block of this shard grew, so the next ones may, too.
    pub fn note_growth(&mut self) {
        self.rooms = (self.rooms + 1).min(ROOMS);
    }

    /// Returns whether a block that finds no span of its length is to have room behind it: one does for each that grew.
    pub fn use_room(&mut self) -> bool {
        let expects = self.rooms > 0;
        self.rooms -= u32::from(expects);
        expects
    }

    /// Cuts a span for a block that is expected to grow from a longer one: from that which a large block left last, or from one as long as
    /// those of slabs.
    pub fn cut_longer(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        let last = self.large.iter().position(|span| span.granules > 0);
        // Where that is not most of what is kept there are several such blocks, and others may wait for it. (`realloc_grow`, 8 threads,
        // takes a tenth less memory so.)
        let is_near =
            |span: &LargeSpan| span.granules > granules && span.granules.div_ceil(CUT_PART) <= granules;
        let is_cut = |span: &LargeSpan| is_near(span) && 2 * span.granules > self.granules;
        if let Some(place) = last.filter(|&place| is_cut(&self.large[place])) {
            return Some(self.cut_large(map, place, granules));
        }
        let has_longer = |longer: u32| longer > granules && self.lists[longer as usize].head != 0;
        let longer = (1..=SLAB_LONGEST).find(|&longer| has_longer(longer))?;
        let first = self.unlink(map, longer)?;
        self.keep_rest(map, Span { first, granules: longer }, granules);
        Some(first)
    }

    /// Takes `granules` at the beginning of the span that begins at `first`, if it is kept here and as long, and a few looks find it.
    pub fn take_at(&mut self, map: &PageMap, first: u32, granules: u32) -> bool {
        let is_it = |span: &LargeSpan| span.first == first && span.granules >= granules;
        if let Some(place) = self.large.iter().position(is_it) {
            self.cut_large(map, place, granules);
            return true;
        }
        // Another shard may keep it; then it is in no list here, however long.
        let length = map.record(first).granules.get();
        let found = (granules..=SLAB_LONGEST).contains(&length) && self.unlink_at(map, first, length);
        if found {
            self.keep_rest(map, Span { first, granules: length }, granules);
        }
        found
    }

    /// Takes the beginning of what a large block left. Returns where that is.
    fn cut_large(&mut self, map: &PageMap, place: usize, granules: u32) -> u32 {
        let LargeSpan { first, granules: length, is_old } = self.large[place];
        if length == granules {
            self.remove_large(map, place);
        } else {
            let rest = cut(map, Span { first, granules: length }, granules);
            self.large[place] = LargeSpan { first: rest.first, granules: rest.granules, is_old };
            self.granules -= granules;
        }
        first
    }

    /// Keeps all but the beginning of a span that was in a list.
    fn keep_rest(&mut self, map: &PageMap, span: Span, granules: u32) {
        if span.granules > granules {
            let rest = cut(map, span, granules);
            self.push(map, rest.first, rest.granules);
        } else {
            map.record(span.first).set_state(State::Interior);
        }
    }

    /// Takes a span out of the list of its length, if it is one of the last in it.
    fn unlink_at(&mut self, map: &PageMap, first: u32, granules: u32) -> bool {
        let head = self.lists[granules as usize].head;
        if head == first {
            return self.unlink(map, granules).is_some();
        }
        let listed = |span: u32| (span != 0).then_some(span);
        let spans = core::iter::successors(listed(head), |&span| listed(map.record(span).next.get()));
        let is_before = |span: &u32| map.record(*span).next.get() == first;
        let Some(before) = spans.take(LOOKS).find(is_before) else { return false };
        map.record(before).next.set(map.record(first).next.get());
        self.note_taken(granules);
        true
    }
}

/// Makes the beginning of a kept span one by itself, in use. Returns the rest, kept.
fn cut(map: &PageMap, Span { first, granules: length }: Span, granules: u32) -> Span {
    let (record, rest) = (map.record(first), map.record(first + granules));
    rest.heap.set(record.heap.get());
    rest.granules.set(length - granules);
    rest.set_state(State::Kept);
    map.set_moved(first + granules, record.is_moved());
    record.granules.set(granules);
    record.set_state(State::Interior);
    Span { first: first + granules, granules: length - granules }
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, Depot, MOST_LARGE};
    use super::*;

    /// Memory of so many granules, where it begins, and a shard that keeps none of it.
    fn memory(granules: u32) -> (PageMap, u32, Kept) {
        let map = PageMap::new();
        assert!(map.reservation.grow(granules, 0).is_some());
        let base = map.reservation.first_granule();
        (map, base, Kept::new())
    }

    /// Keeps a span that a large block leaves.
    fn keep(map: &PageMap, kept: &mut Kept, first: u32, granules: u32) {
        let record = map.record(first);
        record.granules.set(granules);
        record.heap.set(1);
        assert_eq!(kept.keep_large(map, &Depot::new(), Span { first, granules }), None);
    }

    fn state(map: &PageMap, first: u32) -> (State, u32, u8) {
        let record = map.record(first);
        (record.state(), record.granules.get(), record.heap.get())
    }

    #[test]
    fn a_block_is_expected_to_grow_for_each_that_grew_and_for_few_later() {
        let mut kept = Kept::new();
        let mut expected = |growths: u32| {
            (0..growths).for_each(|_| kept.note_growth());
            std::iter::from_fn(|| kept.use_room().then_some(())).count() as u32
        };
        assert_eq!([0, 1, 2, 2 * ROOMS, 0].map(&mut expected), [0, 1, 2, ROOMS, 0]);
    }

    #[test]
    fn a_span_is_cut_from_a_longer_one_but_not_from_a_much_longer_one() {
        for length in [SLAB_LONGEST, CUT_PART] {
            let (map, base, mut kept) = memory(64);
            keep(&map, &mut kept, base, length);
            assert_eq!([length, u32::MAX].map(|granules| kept.cut_longer(&map, granules)), [None; 2]);
            assert_eq!(kept.cut_longer(&map, 1), Some(base));
            assert_eq!(state(&map, base), (State::Interior, 1, 1));
            assert_eq!(state(&map, base + 1), (State::Kept, length - 1, 1));
            assert_eq!(kept.cut_longer(&map, 1), Some(base + 1));
            assert_eq!(kept.granules, length - 2);
            assert_eq!(kept.take_large(&map, length - 2), Some(base + 2), "the rest is found by its length");
            assert_eq!(kept.granules, 0);
        }
        let (map, base, mut kept) = memory(64);
        keep(&map, &mut kept, base, CUT_PART + 1);
        assert_eq!([1, 2].map(|granules| kept.cut_longer(&map, granules)), [None, Some(base)]);
    }

    #[test]
    fn of_what_large_blocks_left_that_is_cut_which_was_freed_last_if_it_is_most_of_what_is_kept() {
        let (map, base, mut kept) = memory(128);
        keep(&map, &mut kept, base, 30);
        keep(&map, &mut kept, base + 30, 31);
        assert_eq!(kept.cut_longer(&map, 10), Some(base + 30));
        assert_eq!(kept.cut_longer(&map, 10), None, "as much is kept besides");
        assert_eq!(kept.take_large(&map, 21), Some(base + 40));
        assert_eq!(kept.cut_longer(&map, 10), Some(base));
    }

    #[test]
    fn what_is_kept_behind_a_block_is_taken_in_whole_or_in_part() {
        for length in [3, 40] {
            let (map, base, mut kept) = memory(64);
            keep(&map, &mut kept, base, length);
            map.set_moved(base, true);
            assert!(!kept.take_at(&map, base, length + 1), "too short");
            assert!(!kept.take_at(&map, base + 1, 1), "no span begins there");
            assert!(kept.take_at(&map, base, 1));
            assert!(map.record(base + 1).is_moved(), "its mapping may be another, too");
            assert_eq!(kept.granules, length - 1);
            assert!(kept.take_at(&map, base + 1, length - 1));
            assert_eq!(state(&map, base + 1), (State::Interior, length - 1, 1));
            assert_eq!((kept.granules, kept.pop_any(&map)), (0, None));
        }
    }

    #[test]
    fn a_few_of_a_list_are_looked_at_and_those_of_other_shards_are_not_found() {
        let (map, base, mut kept) = memory(64);
        let mut other = Kept::new();
        keep(&map, &mut other, base + 60, 2);
        assert!(!kept.take_at(&map, base + 60, 1));
        let count = LOOKS as u32 + 2;
        (0..count).for_each(|index| {
            map.record(base + 2 * index).granules.set(2);
            kept.push(&map, base + 2 * index, 2);
        });
        assert!(!kept.take_at(&map, base, 2), "the first of {count} is the last");
        assert!(kept.take_at(&map, base + 2, 2) && kept.take_at(&map, base + 2 * (count - 1), 2));
        let left: Vec<u32> = std::iter::from_fn(|| kept.pop(&map, 2)).map(|first| first - base).collect();
        assert_eq!((left, kept.granules), (vec![8, 6, 4, 0], 0));
    }

    #[test]
    fn every_granule_is_kept_or_used_whatever_is_cut_and_taken() {
        const GRANULES: u32 = 400;
        let (map, base, mut kept) = memory(GRANULES);
        let (depot, mut random) = (Depot::new(), 1_u32);
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) % below
        };
        let mut used: Vec<(u32, u32)> = (0..GRANULES / 8).map(|index| (base + 8 * index, 8)).collect();
        used.iter().for_each(|&(first, granules)| {
            map.record(first).granules.set(granules);
            map.record(first).heap.set(1);
        });
        let all = |mut batch: Batch| -> Vec<(u32, u32)> {
            std::iter::from_fn(|| batch.pop(&map)).map(|span| (span.first, span.granules)).collect()
        };
        let mut cuts = 0;
        for _ in 0..20_000 {
            let index = next(used.len() as u32) as usize;
            match next(4) {
                0 if used.len() > MOST_LARGE => {
                    let (first, granules) = used.swap_remove(index);
                    let leaves = kept.keep_large(&map, &depot, Span { first, granules });
                    used.extend(leaves.into_iter().flat_map(all));
                }
                1 => {
                    let granules = 1 + next(6);
                    let first = kept.take_large(&map, granules);
                    let cut = if first.is_none() { kept.cut_longer(&map, granules) } else { first };
                    cuts += u32::from(first.is_none() && cut.is_some());
                    used.extend(cut.map(|first| (first, granules)));
                }
                _ => {
                    let (first, granules) = used[index];
                    let (end, more) = (first + granules, 1 + next(3));
                    if end < base + GRANULES && kept.take_at(&map, end, more) {
                        used[index].1 += more;
                        map.record(first).granules.set(granules + more);
                        cuts += 1;
                    }
                }
            }
            let in_use: u32 = used.iter().map(|&(_, granules)| granules).sum();
            assert_eq!(in_use + kept.granules, GRANULES);
        }
        assert!(cuts > 1000, "{cuts}");
        let mut spans = used;
        while let Some(batch) = kept.pop_any(&map) {
            spans.extend(all(batch));
        }
        spans.sort_unstable();
        let end = spans.iter().fold(base, |end, &(first, granules)| {
            assert_eq!(end, first);
            first + granules
        });
        assert_eq!(end, base + GRANULES);
    }
}
