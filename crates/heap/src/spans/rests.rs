//! Pages of a large block's span that the block has no part of, its *rest*: in front of it, and behind it in the last granule. Memory
//! without pages has none there; where a block becomes smaller, or others were before, there are some, and nobody comes by them as long as
//! it lives. (Of the latter only those are looked at that have a whole granule to spare.)
//!
//! Blocks that become smaller and are replaced soon leave theirs to the next ones. So rests stay while they are little in all, and where it
//! was seen that blocks ended soon after their rests went, the more of them the younger they are. What has to go is that of the block that
//! became smaller first: it seems to stay.

use super::Spans;
use crate::decay::HOLD_MAX_NS;
use crate::granule::{GRANULE_BYTES, bytes_of};
use crate::os;
use crate::page_map::PageMap;
use crate::span_heap::{PurgeMode, Purges};
use core::ops::Range;

/// Fewer pages in a row are not worth a call.
const WORTH_PAGES: usize = 4;
/// So much may stay for good: a MiB, or this part of what is in use.
const LEFT_BYTES: usize = 1 << 20;
const LEFT_PART: usize = 16;
/// This part of what is in use may stay for a while where that was seen to be worth it.
const HELD_PART: usize = 8;
/// And this part for so long: blocks that are made and freed in bulk have the pages of those before them, but not at the same places.
const YOUNG_PART: usize = 2;
const YOUNG_NS: u64 = 30_000_000;
/// Rests that a thread among others gives back at once, at most.
const ROUND: usize = 64;

/// The blocks that have rests, in the order in which they became smaller.
///
/// SYNCHRONIZATION: all of it, and the links in the records, under the lock that `Spans` has it behind. A block's owner takes that before
/// the block ends or gets another size, so its rest is nobody else's until then.
pub struct Rests {
    oldest: u32,
    newest: u32,
    /// Sum of the rests.
    bytes: usize,
    /// How much was missed soon after it went, and so may stay for a while.
    depth: usize,
    /// For how long, ns; 0 for [`HOLD_MAX_NS`].
    hold_ns: u64,
}

/// How much may stay.
#[derive(Clone, Copy)]
struct Limits {
    /// For good.
    left: usize,
    /// For a while, if it is worth it.
    held: usize,
    /// For [`YOUNG_NS`], if it is worth it.
    young: usize,
}

impl Limits {
    const NONE: Self = Self { left: 0, held: 0, young: 0 };

    fn of_used(bytes: usize) -> Self {
        Self { left: LEFT_BYTES.max(bytes / LEFT_PART), held: bytes / HELD_PART, young: bytes / YOUNG_PART }
    }
}

impl Rests {
    /// No blocks.
    pub const fn new() -> Self {
        Self { oldest: 0, newest: 0, bytes: 0, depth: 0, hold_ns: 0 }
    }

    fn hold_ns(&self) -> u64 {
        if self.hold_ns == 0 { HOLD_MAX_NS } else { self.hold_ns }
    }

    /// The block at `first` became smaller, and has a rest of so many bytes.
    fn add(&mut self, map: &PageMap, first: u32, bytes: usize, now: u64) {
        let block = map.record(first).large();
        block.set_rest(bytes);
        block.set_has_lost_rest(false);
        block.set_rest_since(now);
        block.set_older(self.newest);
        block.set_newer(0);
        match self.newest {
            0 => self.oldest = first,
            newest => map.record(newest).large().set_newer(first),
        }
        self.newest = first;
        self.bytes += bytes;
    }

    fn remove(&mut self, map: &PageMap, first: u32) {
        let block = map.record(first).large();
        let (older, newer) = (block.older(), block.newer());
        match older {
            0 => self.oldest = newer,
            older => map.record(older).large().set_newer(newer),
        }
        match newer {
            0 => self.newest = older,
            newer => map.record(newer).large().set_older(older),
        }
        self.bytes -= block.rest();
    }

    /// Takes out the block that became smaller first, if its rest is to go.
    fn take_due(&mut self, map: &PageMap, limits: Limits, now: u64) -> Option<u32> {
        if self.bytes <= limits.left {
            return None;
        }
        let block = map.record(self.oldest).large();
        let age = now.saturating_sub(block.rest_since());
        let (is_over, is_young) = (age >= self.hold_ns(), age < YOUNG_NS);
        let most = if is_young { limits.young } else { limits.held };
        if !is_over && self.bytes <= self.depth.min(most) {
            return None;
        }
        // Not before: where less is in use for now, no less was missed.
        self.depth = self.depth.min(limits.young);
        if is_over || !is_young && self.depth > limits.held {
            // It stayed in vain.
            self.depth = self.depth.saturating_sub(block.rest());
        }
        let first = self.oldest;
        self.remove(map, first);
        block.set_has_lost_rest(true);
        block.set_rest_since(now);
        Some(first)
    }

    /// The block ends, or gets another size: what it left is wanted again, or not. Says nothing of one whose rest went long ago.
    /// Returns the bytes of those that are there.
    fn forget(&mut self, map: &PageMap, first: u32, is_wanted: bool, now: impl Fn() -> u64) -> usize {
        let block = map.record(first).large();
        let (bytes, is_lost) = (block.rest(), block.has_lost_rest());
        if !is_lost {
            self.remove(map, first);
        } else if is_wanted && now().saturating_sub(block.rest_since()) < self.hold_ns() {
            self.depth = self.depth.saturating_add(bytes);
        }
        block.set_rest(0);
        if is_lost { 0 } else { bytes }
    }
}

impl Spans {
    /// The large block at `first` became smaller, or grew and did not take all that it had left, by its owner, and left so many bytes, of
    /// which a part is free now.
    pub fn leave_rest(&self, first: u32, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let around: usize = rest_of(&self.map, first).map(|pages| pages.len()).sum();
        if around == 0 {
            return;
        }
        self.rests.lock().add(&self.map, first, bytes.min(around), os::now_ns());
        let is_left = self.give_rests(if os::is_single_threaded() { usize::MAX } else { ROUND });
        if is_left && !self.keeps() {
            self.recent.set_waits(true);
        }
    }

    /// The new large block at `first` has a granule more than it needs, with pages of others. With threads spans go round by their lengths,
    /// so the next such block has it. Not inlined: few have.
    #[cold]
    #[inline(never)]
    pub fn leave_spare_granule(&self, first: u32) {
        if os::is_single_threaded() {
            self.leave_rest(first, GRANULE_BYTES);
        }
    }

    /// A large block that has, or had, a rest ends, or gets another size; whether what it left is wanted again.
    #[cold]
    pub fn forget_rest(&self, first: u32, is_wanted: bool) -> usize {
        self.rests.lock().forget(&self.map, first, is_wanted, os::now_ns)
    }

    /// Gives back rests that are due, so many at most. Returns whether more are left than may stay for good.
    pub(super) fn give_rests(&self, most: usize) -> bool {
        // Mostly there are none, or few; what is in use is a sum.
        if self.rests.lock().bytes <= LEFT_BYTES {
            return false;
        }
        let limits = Limits::of_used(bytes_of(self.used()));
        if self.rests.lock().bytes <= limits.left || self.mode() == PurgeMode::Never {
            return false;
        }
        self.give_rests_beyond(limits, most);
        self.rests.lock().bytes > limits.left
    }

    /// Gives back all rests. Returns the bytes.
    pub(super) fn give_all_rests(&self) -> usize {
        self.give_rests_beyond(Limits::NONE, usize::MAX).bytes as usize
    }

    fn give_rests_beyond(&self, limits: Limits, most: usize) -> Purges {
        let (mut purges, now) = (Purges::NONE, os::now_ns());
        for _ in 0..most {
            // Held until its pages are gone: its owner waits for that.
            let mut rests = self.rests.lock();
            let Some(first) = rests.take_due(&self.map, limits, now) else { break };
            for pages in rest_of(&self.map, first) {
                // SAFETY: memory of the block's own span, of which its owner has none, and the span is its own until it gets the lock.
                purges.note(pages.len(), unsafe { self.map.purge(pages.start, pages.len()) });
            }
        }
        if purges != Purges::NONE {
            self.count_purges(purges);
        }
        purges
    }

    /// As [`Spans::set_price`] says.
    pub(super) fn hold_rests_for(&self, hold_ns: u64) {
        self.rests.lock().hold_ns = hold_ns;
    }
}

/// The pages around a large block that are worth a call each.
fn rest_of(map: &PageMap, first: u32) -> impl Iterator<Item = Range<usize>> {
    let (record, page) = (map.record(first), os::page_bytes());
    let (start, end) = (map.address(first), map.address(first + record.granules.get()));
    let from = start + record.large().offset();
    let behind = (from + record.large().bytes()).next_multiple_of(page);
    [start..from & !(page - 1), behind..end]
        .into_iter()
        .filter(move |pages| pages.len() >= WORTH_PAGES * page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::large::Pages;

    const REST: usize = 10;
    const MS: u64 = 1_000_000;

    /// A block in the middle of a span of so many granules, with so many pages in front of it and behind it.
    fn block(spans: &Spans, granules: u32, before: usize, behind: usize) -> u32 {
        let first = spans.take(0, granules, 1, false).unwrap().first;
        let bytes = bytes_of(granules) - (before + behind) * os::page_bytes();
        spans.map.record(first).make_large(bytes, before * os::page_bytes());
        first
    }

    fn has_lost(map: &PageMap, first: u32) -> bool {
        map.record(first).large().has_lost_rest()
    }

    /// Blocks that each left a rest of 40 KiB, a ms after the one before.
    fn with_blocks(count: u64) -> (Spans, Rests, Vec<u32>) {
        let (spans, mut rests) = (Spans::new(), Rests::new());
        let blocks: Vec<u32> = (0..count).map(|_| block(&spans, 1, 4, 6)).collect();
        for (now, &first) in blocks.iter().enumerate() {
            rests.add(&spans.map, first, REST, now as u64 * MS);
        }
        (spans, rests, blocks)
    }

    #[test]
    fn fewer_than_four_pages_are_worth_no_call() {
        let spans = Spans::new();
        for (before, behind, pages) in [(3, 3, vec![]), (4, 3, vec![4]), (3, 4, vec![4]), (5, 6, vec![5, 6])]
        {
            let rest = rest_of(&spans.map, block(&spans, 2, before, behind));
            assert_eq!(rest.map(|range| range.len() / os::page_bytes()).collect::<Vec<_>>(), pages);
        }
    }

    #[test]
    fn a_sixteenth_of_what_is_in_use_may_stay_and_what_goes_is_of_who_became_smaller_first() {
        let spans = Spans::new();
        let others = u32::try_from(LEFT_PART * 2 * LEFT_BYTES / GRANULE_BYTES).unwrap();
        spans.take(0, others, 1, false).unwrap();
        let rest = 10 * os::page_bytes();
        let leave = || {
            let first = block(&spans, 1, 4, 6);
            spans.leave_rest(first, rest);
            first
        };
        let first = leave();
        let blocks =
            1 + (0..).take_while(|_| !has_lost(&spans.map, leave()) && !has_lost(&spans.map, first)).count();
        let most = bytes_of(spans.used()) / LEFT_PART;
        assert!(blocks * rest <= most && (blocks + 1) * rest > most, "{blocks} of {most}");
        let purges = spans.counts().purges;
        assert_eq!((purges.bytes, purges.calls), (rest as u64, 2));
        assert!(spans.trim() >= blocks * rest, "all go with malloc_trim");
        assert_eq!(spans.rests.lock().bytes, 0);
    }

    #[test]
    fn what_was_missed_soon_after_it_went_stays_for_a_while_and_goes_if_nobody_wants_it() {
        let (spans, mut rests, blocks) = with_blocks(4);
        let map = &spans.map;
        let limits = Limits { left: REST, held: 2 * REST, young: 2 * REST };
        assert_eq!(
            [(); 4].map(|()| rests.take_due(map, limits, 4 * MS)).map(|due| due.unwrap_or(0)),
            [blocks[0], blocks[1], blocks[2], 0]
        );
        // Two of them end soon: as much may stay.
        blocks[..2].iter().for_each(|&first| _ = rests.forget(map, first, true, || 5 * MS));
        blocks[..2].iter().for_each(|&first| rests.add(map, first, REST, 6 * MS));
        assert_eq!(rests.take_due(map, limits, 6 * MS), Some(blocks[3]));
        assert_eq!(rests.take_due(map, limits, 6 * MS), None);
        // A hold later it has stayed in vain.
        assert_eq!(rests.take_due(map, limits, 6 * MS + HOLD_MAX_NS), Some(blocks[0]));
        assert_eq!((rests.take_due(map, limits, 7 * MS + HOLD_MAX_NS), rests.depth), (None, REST));
    }

    #[test]
    fn no_more_stays_for_a_while_than_a_part_of_what_is_in_use_however_much_was_missed() {
        let (spans, mut rests, blocks) = with_blocks(4);
        rests.depth = 4 * REST;
        let limits = Limits { left: 0, held: 2 * REST, young: 2 * REST };
        let due = [(); 3].map(|()| rests.take_due(&spans.map, limits, 4 * MS));
        assert_eq!(due, [Some(blocks[0]), Some(blocks[1]), None]);
    }

    #[test]
    fn half_of_what_is_in_use_stays_while_it_is_young_if_as_much_was_missed() {
        let limits = Limits { left: 0, held: REST, young: 3 * REST };
        for (missed, left) in [(0, 0), (2, 2), (9, 3)] {
            let (spans, mut rests, _) = with_blocks(4);
            rests.depth = missed * REST;
            let due = |rests: &mut Rests, now| {
                (0..).take_while(|_| rests.take_due(&spans.map, limits, now).is_some()).count()
            };
            assert_eq!(due(&mut rests, 4 * MS), 4 - left);
            assert_eq!(due(&mut rests, YOUNG_NS + (4 - left as u64) * MS - 1), 0);
            assert_eq!(due(&mut rests, YOUNG_NS + 4 * MS), left.saturating_sub(1), "one may stay longer");
            assert_eq!(rests.depth, left.min(1) * REST);
        }
        assert_eq!(Limits::of_used(64 * LEFT_BYTES).young, 32 * LEFT_BYTES);
    }

    #[test]
    fn who_ends_late_or_becomes_smaller_again_missed_nothing() {
        for (is_wanted, after, depth) in [(true, HOLD_MAX_NS, 0), (false, 1, 0), (true, 1, REST)] {
            let (spans, mut rests, blocks) = with_blocks(1);
            assert_eq!(rests.take_due(&spans.map, Limits::NONE, MS), Some(blocks[0]));
            assert_eq!(rests.forget(&spans.map, blocks[0], is_wanted, || MS + after), 0);
            assert_eq!((rests.depth, spans.map.record(blocks[0]).large().rest()), (depth, 0));
        }
    }

    #[test]
    fn blocks_end_in_any_order() {
        let (spans, mut rests, blocks) = with_blocks(4);
        for place in [1, 3, 0, 2] {
            assert_eq!(rests.forget(&spans.map, blocks[place], true, || 0), REST);
        }
        assert_eq!((rests.oldest, rests.newest, rests.bytes), (0, 0, 0));
    }

    /// A block of so many bytes at least four pages behind the start of its span, which became smaller.
    fn smaller(heap: &Heap, bytes: usize) -> usize {
        let far_in = |block: &usize| block % GRANULE_BYTES >= WORTH_PAGES * os::page_bytes();
        let coloured = || heap.allocate_large(None, 4 * bytes, 16, Pages::Any).address;
        let block = core::iter::repeat_with(coloured).find(far_in).unwrap();
        assert_eq!(heap.resize_large(None, block, bytes), block);
        block
    }

    fn rest(heap: &Heap, block: usize) -> usize {
        heap.spans.map.record_at(block).unwrap().1.large().rest()
    }

    #[test]
    fn nobody_gives_back_what_is_in_front_of_a_block_while_it_moves_there() {
        let heap = Heap::boxed();
        let block = smaller(&heap, 40_960);
        assert!(rest(&heap, block) > 0);
        std::thread::scope(|scope| {
            let giving_back = heap.spans.rests.lock();
            let moves = scope.spawn(|| heap.large.move_to_start(&heap.spans, block));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!moves.is_finished());
            drop(giving_back);
        });
    }

    #[test]
    fn what_is_left_around_a_block_that_grows_again_goes_in_its_turn() {
        let heap = Heap::boxed();
        for is_refused in [false, true] {
            let block = smaller(&heap, 40_960);
            let before = rest(&heap, block);
            let (bytes, call) = if is_refused { (1 << 30, os::Call::Commit as u32) } else { (45_056, 0) };
            os::REFUSED.set(call);
            let grown = heap.resize_large(None, block, bytes);
            os::REFUSED.set(0);
            assert_eq!(grown, if is_refused { 0 } else { block });
            assert_eq!(rest(&heap, block), before - if is_refused { 0 } else { 4096 });
        }
        heap.trim(None);
        assert_eq!(heap.spans.rests.lock().bytes, 0);
    }
}
