//! Spans that slabs left, kept by the shard that used them last: its next slab is made where its CPU's cache may still know the
//! memory, and needs neither the clock nor the lock of a span heap, which threads share. And the spans of the large blocks that were freed
//! last: who takes and gives such again and again needs no more than them. Where that is seen to be worth it more of a length are kept, and
//! change in batches, most of them by the [`Depot`], so that threads seldom meet at that lock.

mod growing;

use super::depot::Depot;
use crate::granule::Span;
use crate::page_map::{PageMap, State};

/// Longest spans of slabs, in granules.
pub const SLAB_LONGEST: u32 = 4;
/// Longest spans of which many may be kept, in granules: 2 MiB. To write what is longer takes much longer than to wait for a lock.
pub const LONGEST: u32 = 32;

/// Spans of large blocks that are kept besides those of a length, until one finds none as long as it is.
const MOST_LARGE: usize = 4;
/// Spans of one length that large blocks leave, at first, where slabs may be as long; of others none.
const MOST_OF_LENGTH: u32 = 4;
/// The same at most, in granules: 16 MiB.
const MOST_GRANULES: u32 = 256;
/// So many misses of one length, each among as many, are worth a list of those that are longer than slabs: blocks of many different
/// lengths would each keep some. (`large_blocks`, 64 KiB to 8 MiB, took a tenth more memory.)
const MISSES: u32 = 4;
/// Spans that a shard gives or takes at once, at most.
const BATCH: u32 = 32;

/// The spans one shard keeps. They count as used in the span heap.
pub struct Kept {
    /// By length in granules; the first is not used.
    lists: [List; LONGEST as usize + 1],
    /// Those of large blocks, the one freed last first; with gaps.
    large: [LargeSpan; MOST_LARGE],
    /// Sum of their lengths.
    pub granules: u32,
    /// Large blocks that found none, modulo 2^32.
    misses: u32,
    /// So many blocks are to have room behind them, see [`Kept::note_growth`].
    rooms: u32,
}

/// Spans of one length.
#[derive(Clone, Copy)]
struct List {
    /// The one kept last, 0 for none.
    head: u32,
    count: u32,
    /// The fewest there were since [`Kept::begin_round`].
    least: u32,
    /// How many more than at first large blocks may make it: they were seen to come and go in such numbers.
    more: u32,
    /// How often in a row, nearly, spans of this length were what was missed since that grew.
    misses: u32,
    /// What [`Kept::misses`] was then.
    missed_at: u32,
}

impl List {
    const EMPTY: Self = Self { head: 0, count: 0, least: 0, more: 0, misses: 0, missed_at: 0 };

    /// How many spans of so many granules large blocks may make it.
    fn most(&self, granules: u32) -> u32 {
        self.more + if granules <= SLAB_LONGEST { MOST_OF_LENGTH } else { 0 }
    }

    /// Whether large blocks of so many granules were seen to miss it.
    fn was_missed(&self, granules: u32) -> bool {
        self.misses >= if granules <= SLAB_LONGEST { 1 } else { MISSES }
    }

    /// Lets a span of a large block fit in, if need be for others that leave. Returns whether it does.
    fn make_room(&mut self, granules: u32, depot: &Depot) -> bool {
        self.count < self.most(granules) || self.grow(granules, depot) || self.more > 0
    }

    /// Makes room for twice as many spans of large blocks, if these are wanted: here, or by another shard.
    #[cold]
    fn grow(&mut self, granules: u32, depot: &Depot) -> bool {
        let most = self.most(granules);
        let more = most.max(1);
        let grows = (most + more) * granules <= MOST_GRANULES
            && (self.was_missed(granules) || depot.is_wanted(granules));
        if grows {
            self.more += more;
            self.misses = 0;
            depot.set_wanted(granules, false);
        }
        grows
    }

    /// How many come and go at once.
    fn batch(&self, granules: u32) -> u32 {
        if self.more == 0 { 1 } else { (self.most(granules) / 2).clamp(1, BATCH) }
    }
}

/// Spans of one length that change together, linked by their records and in no list; in a depot marked as kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// 0 for none.
    pub head: u32,
    pub count: u32,
    pub granules: u32,
}

impl Batch {
    /// No span.
    const fn new(granules: u32) -> Self {
        Self { head: 0, count: 0, granules }
    }

    /// One span.
    pub fn of(map: &PageMap, Span { first, granules }: Span) -> Self {
        let mut batch = Self::new(granules);
        batch.push(map, first);
        batch
    }

    /// Adds the span that begins there, which is in no list and kept.
    fn push(&mut self, map: &PageMap, first: u32) {
        map.record(first).next.set(self.head);
        self.head = first;
        self.count += 1;
    }

    /// Takes one out, for who has a use for it.
    pub fn pop(&mut self, map: &PageMap) -> Option<Span> {
        let Self { head: first, granules, .. } = *self;
        if first == 0 {
            return None;
        }
        let record = map.record(first);
        record.set_state(State::Interior);
        self.head = record.next.get();
        self.count -= 1;
        Some(Span { first, granules })
    }
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
            lists: [List::EMPTY; LONGEST as usize + 1],
            large: [LargeSpan::NONE; MOST_LARGE],
            granules: 0,
            misses: 0,
            rooms: 0,
        }
    }

    /// Keeps the span of a large block. Returns those that have to leave for it.
    pub fn keep_large(&mut self, map: &PageMap, depot: &Depot, span: Span) -> Option<Batch> {
        if self
            .list_of(span)
            .is_some_and(|list| list.most(span.granules) > 0 && list.make_room(span.granules, depot))
        {
            return self.keep_by_length(map, span);
        }
        let leaves = self.keep_last(map, span)?;
        if leaves.granules > SLAB_LONGEST
            && self.list_of(leaves).is_some_and(|list| list.make_room(leaves.granules, depot))
        {
            return self.keep_by_length(map, leaves);
        }
        Some(Batch::of(map, leaves))
    }

    /// The list of what is as long, if there is one.
    fn list_of(&mut self, span: Span) -> Option<&mut List> {
        self.lists.get_mut(span.granules as usize)
    }

    /// Keeps a span in the list of its length, for which there is [room](List::make_room). Returns those that have to leave for it.
    #[inline]
    fn keep_by_length(&mut self, map: &PageMap, Span { first, granules }: Span) -> Option<Batch> {
        let list = self.lists[granules as usize];
        let leaves =
            (list.count >= list.most(granules)).then(|| self.pop_batch(map, granules, list.batch(granules)));
        self.push(map, first, granules);
        leaves
    }

    /// Keeps the span of the large block that was freed last, whatever its length. Returns the one that has to leave for it.
    fn keep_last(&mut self, map: &PageMap, Span { first, granules }: Span) -> Option<Span> {
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

    #[inline(never)]
    fn pop_batch(&mut self, map: &PageMap, granules: u32, count: u32) -> Batch {
        let mut batch = Batch::new(granules);
        (0..count).map_while(|_| self.unlink(map, granules)).for_each(|first| batch.push(map, first));
        batch
    }

    /// Half of the spans of so many granules, or as many as may go at once; none, if there is one.
    pub fn take_half(&mut self, map: &PageMap, granules: u32) -> Option<Batch> {
        let count = (self.lists[granules as usize].count / 2).min(BATCH);
        (count > 0).then(|| self.pop_batch(map, granules, count))
    }

    /// Keeps a batch of a length of which there are none, but for one, which it returns.
    pub fn adopt(&mut self, map: &PageMap, Batch { head, count, granules }: Batch) -> Option<u32> {
        let list = &mut self.lists[granules as usize];
        debug_assert_eq!(list.head, 0);
        (list.head, list.count) = (head, count);
        self.granules += count * granules;
        self.pop(map, granules)
    }

    /// The span of a large block of so many granules that was freed last.
    pub fn take_large(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        if let Some(place) = self.large.iter().position(|span| span.granules == granules) {
            return self.remove_large(map, place).map(|span| span.first);
        }
        if granules <= LONGEST { self.pop(map, granules) } else { None }
    }

    /// Whether there is any that a large block left, of those kept whatever their length.
    pub fn has_last(&self) -> bool {
        self.large.iter().any(|span| span.granules > 0)
    }

    /// A span that a large block left, of those kept whatever their length, and that is `wanted` by its first granule.
    pub fn pop_last(&mut self, map: &PageMap, wanted: impl Fn(u32) -> bool) -> Option<Span> {
        let place = self.large.iter().position(|span| span.granules > 0 && wanted(span.first))?;
        self.remove_large(map, place)
    }

    /// A large block found no span here or in the depot. How many to take for it and the next ones; 1: no more than it needs are worth it.
    pub fn miss_large(&mut self, depot: &Depot, granules: u32) -> u32 {
        self.misses = self.misses.wrapping_add(1);
        let list = &mut self.lists[granules as usize];
        let is_near = self.misses.wrapping_sub(list.missed_at) <= MISSES;
        list.misses = if is_near { list.misses + 1 } else { 1 };
        list.missed_at = self.misses;
        if list.was_missed(granules) {
            depot.set_wanted(granules, true);
        }
        // Who frees none of them has no list of many.
        let few = (list.misses / MISSES).min(MOST_GRANULES / 2 / granules);
        list.batch(granules).max(few.min(BATCH))
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
    #[inline]
    pub fn pop(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        let first = self.unlink(map, granules)?;
        map.record(first).set_state(State::Interior);
        Some(first)
    }

    #[inline(always)] // Into `pop`, of which it is the greater part, and into a loop.
    fn unlink(&mut self, map: &PageMap, granules: u32) -> Option<u32> {
        let list = &mut self.lists[granules as usize];
        let first = list.head;
        if first == 0 {
            return None;
        }
        list.head = map.record(first).next.get();
        self.note_taken(granules);
        Some(first)
    }

    /// One of so many granules is in its list no more.
    #[inline(always)] // As `unlink`, of which it is a part.
    fn note_taken(&mut self, granules: u32) {
        let list = &mut self.lists[granules as usize];
        list.count -= 1;
        list.least = list.least.min(list.count);
        self.granules -= granules;
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

    /// Any spans.
    pub fn pop_any(&mut self, map: &PageMap) -> Option<Batch> {
        if let Some(span) = self.pop_last(map, |_| true) {
            return Some(Batch::of(map, span));
        }
        let granules = self.lists.iter().position(|list| list.count > 0)? as u32;
        let list = &mut self.lists[granules as usize];
        // Who wants them had no other memory.
        (list.more, list.misses) = (0, 0);
        Some(self.pop_batch(map, granules, BATCH))
    }

    /// Begins a round: what stays until its end was not needed.
    pub fn begin_round(&mut self) {
        for (granules, list) in (0..).zip(&mut self.lists) {
            let half = list.most(granules) / 2;
            if list.least > half {
                list.more = list.more.saturating_sub(list.most(granules) - half);
            }
            list.least = list.count;
        }
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

    /// Memory of so many granules, where it begins, a shard that keeps none of it, and an empty depot.
    fn memory(granules: u32) -> (PageMap, u32, Kept, Depot) {
        let map = PageMap::new();
        assert!(map.reservation.grow(granules, 0).is_some());
        let base = map.reservation.first_granule();
        (map, base, Kept::new(), Depot::new())
    }

    #[test]
    fn what_was_not_needed_in_a_round_is_unused() {
        let (map, base, mut kept, _) = memory(16);
        (0..4).for_each(|index| kept.push(&map, base + index, 1));
        kept.push(&map, base + 4, 3);
        assert_eq!(kept.granules, 7);
        assert_eq!(kept.pop_unused(&map), None, "new in this round");
        kept.begin_round();
        assert_eq!(kept.pop(&map, 1), Some(base + 3), "last in, first out");
        kept.push(&map, base + 3, 1);
        let unused = core::array::from_fn(|_| kept.pop_unused(&map).map(|span| span.granules));
        assert_eq!(unused, [Some(1), Some(1), Some(1), Some(3), None]);
        assert_eq!(
            kept.pop_any(&map).and_then(|mut batch| batch.pop(&map)).map(|span| span.granules),
            Some(1)
        );
        assert_eq!(kept.pop_any(&map), None);
        assert_eq!(kept.granules, 0);
    }

    #[test]
    fn spans_of_large_blocks_as_long_as_slabs_are_kept_by_length_too() {
        let (map, base, mut kept, depot) = memory(64);
        let span = |offset, granules| Span { first: base + offset, granules };
        let most = MOST_OF_LENGTH + MOST_LARGE as u32;
        for index in 0..most {
            assert_eq!(kept.keep_large(&map, &depot, span(2 * index, 2)), None);
        }
        assert!(kept.keep_large(&map, &depot, span(2 * most, 2)).is_some(), "one leaves");
        assert_eq!((kept.granules, kept.take_large(&map, 1)), (2 * most, None));
        assert!((0..most).all(|_| kept.take_large(&map, 2).is_some()));
        kept.push(&map, base, 3);
        assert_eq!(kept.take_large(&map, 3), Some(base), "what a slab left");
        assert_eq!((kept.granules, kept.take_large(&map, 2)), (0, None));
    }

    #[test]
    fn spans_of_large_blocks_are_taken_by_length_and_leave_by_age() {
        let (map, base, mut kept, depot) = memory(64);
        let span = |offset, granules| Span { first: base + offset, granules };
        assert_eq!(kept.keep_large(&map, &depot, span(0, 8)), None);
        assert_eq!(kept.keep_large(&map, &depot, span(10, 8)), None);
        assert_eq!((kept.granules, map.record(base).state()), (16, State::Kept));
        assert_eq!(kept.take_large(&map, 8), Some(base + 10), "freed last");
        assert_eq!(kept.take_large(&map, 7), None);
        for (offset, granules) in [(40, 12), (50, 13), (20, 9)] {
            assert_eq!(kept.keep_large(&map, &depot, span(offset, granules)), None);
        }
        assert_eq!(
            kept.keep_large(&map, &depot, span(30, 11)),
            Some(Batch::of(&map, span(0, 8))),
            "the oldest leaves"
        );
        assert_eq!(
            [12, 13].map(|granules| kept.take_large(&map, granules)),
            [Some(base + 40), Some(base + 50)]
        );
        kept.begin_round();
        assert_eq!(kept.take_large(&map, 9), Some(base + 20));
        assert_eq!(kept.keep_large(&map, &depot, span(20, 9)), None);
        let unused = core::array::from_fn(|_| kept.pop_unused(&map).map(|span| span.granules));
        assert_eq!(unused, [Some(11), None]);
        assert_eq!(kept.pop_any(&map), Some(Batch::of(&map, span(20, 9))));
        assert_eq!((kept.granules, kept.pop_any(&map)), (0, None));
    }

    #[test]
    fn large_blocks_that_come_and_go_in_numbers_find_their_spans_which_change_in_batches() {
        let (map, base, mut kept, depot) = memory(512);
        // 100 blocks are freed and wanted again: how often spans left, how many blocks found none, and how many one would be given then.
        let round = |kept: &mut Kept| {
            let spans = (base..base + 200).step_by(2).map(|first| Span { first, granules: 2 });
            let left = spans.filter(|&span| kept.keep_large(&map, &depot, span).is_some()).count();
            let missed = (0..100).filter(|_| kept.take_large(&map, 2).is_none()).count();
            (left, missed, kept.miss_large(&depot, 2))
        };
        assert_eq!(round(&mut kept), (92, 92, 1), "nobody was seen to miss them");
        assert_eq!(round(&mut kept), (23, 92, 4));
        assert_eq!([(); 5].map(|()| round(&mut kept).1), [88, 80, 64, 0, 0]);
        for first in (base..base + 200).step_by(2) {
            assert_eq!(kept.keep_large(&map, &depot, Span { first, granules: 2 }), None);
        }
        kept.begin_round();
        kept.begin_round();
        assert_eq!(kept.lists[2].most(2), 64, "not needed in a round");
        while kept.pop_any(&map).is_some() {}
        assert_eq!((kept.lists[2].most(2), kept.granules), (4, 0), "others needed the memory");
    }

    #[test]
    fn however_many_large_blocks_of_a_length_come_and_go_no_more_than_16_mib_are_kept_for_them() {
        for granules in [1, 3, LONGEST] {
            let (map, base, mut kept, depot) = memory(2048);
            let mut most = 0;
            for _ in 0..12 {
                for number in 0..2048 / granules {
                    let _ = kept.keep_large(&map, &depot, Span { first: base + number * granules, granules });
                    most = most.max(kept.granules);
                }
                for _ in 0..2048 / granules {
                    if kept.take_large(&map, granules).is_none() {
                        kept.miss_large(&depot, granules);
                    }
                }
            }
            let last = MOST_LARGE as u32 * granules;
            assert!((MOST_GRANULES / 2..=MOST_GRANULES + last).contains(&most), "{most} of {granules}");
        }
    }
}
