//! Finds in one process what it gives back and takes again soon after.

use std::collections::HashMap;

use faultless_records::churn_recording::{Amount, Cycle, Pattern, class_of};
use faultless_records::memory_call::Operation;

use super::address_space::{AddressSpace, Ended, Mapping};
use crate::setting::ARENA_HEAP_BYTES;

/// What is made again, or given back, within this time counts as churn: nobody needs memory back for so short a time.
const SOON_NS: u64 = 1_000_000_000;

/// How many places of purges, and mappings that were cut, are remembered in each process.
const PLACES: usize = 1 << 16;

/// Makes room for one more place: what is not recent goes, and everything where all is.
fn make_room<Kept>(places: &mut HashMap<u64, Kept>, is_recent: impl Fn(u64, &Kept) -> bool) {
    if places.len() >= PLACES {
        places.retain(|place, kept| is_recent(*place, kept));
        if places.len() >= PLACES {
            places.clear();
        }
    }
}

/// All cycles of an observation, by pattern and size.
#[derive(Debug, Default)]
pub struct Cycles {
    sums: HashMap<(Pattern, u8), Cycle>,
}

impl Cycles {
    fn add(&mut self, pattern: Pattern, bytes: u64, time_ns: u64, gap_ns: u64) {
        let cycle = self.of(pattern, bytes, time_ns);
        cycle.amount.add(bytes);
        cycle.gap_sum_ns = cycle.gap_sum_ns.saturating_add(gap_ns);
    }

    /// The sums for a pattern and so many bytes at a time, seen at this time.
    fn of(&mut self, pattern: Pattern, bytes: u64, time_ns: u64) -> &mut Cycle {
        let size_class = class_of(bytes);
        let cycle = self.sums.entry((pattern, size_class)).or_insert(Cycle {
            pattern,
            size_class,
            amount: Amount::default(),
            smallest_bytes: bytes,
            largest_bytes: bytes,
            seen_ns: (time_ns, time_ns),
            gap_sum_ns: 0,
        });
        cycle.smallest_bytes = cycle.smallest_bytes.min(bytes);
        cycle.largest_bytes = cycle.largest_bytes.max(bytes);
        cycle.seen_ns = (cycle.seen_ns.0.min(time_ns), cycle.seen_ns.1.max(time_ns));
        cycle
    }

    /// The cycles in a fixed order.
    #[must_use]
    pub fn into_sums(self) -> Vec<Cycle> {
        let mut sums: Vec<Cycle> = self.sums.into_values().collect();
        sums.sort_by_key(|cycle| (cycle.pattern, cycle.size_class));
        sums
    }
}

#[derive(Debug, Clone, Copy)]
struct GivenBack {
    /// What it is told as, if it is taken again.
    pattern: Pattern,
    time_ns: u64,
    bytes: u64,
    /// What has not been taken again.
    left_bytes: u64,
    /// How long it was there; none where that is not known.
    life_ns: Option<u64>,
}

/// What was given back lately and not taken again, the last at the end: that is taken again first.
#[derive(Debug, Clone, Default)]
struct Pool(Vec<GivenBack>);

impl Pool {
    fn give(&mut self, pattern: Pattern, bytes: u64, time_ns: u64, life_ns: Option<u64>) {
        if self.0.last().is_some_and(|last| time_ns.saturating_sub(last.time_ns) > SOON_NS) {
            self.0.clear();
        }
        self.0.push(GivenBack { pattern, time_ns, bytes, left_bytes: bytes, life_ns });
    }

    fn take(&mut self, cycles: &mut Cycles, bytes: u64, time_ns: u64) {
        let mut bytes = bytes;
        while bytes > 0
            && let Some(given) = self.0.last_mut()
        {
            let again_bytes = bytes.min(given.left_bytes);
            let away_ns = time_ns.saturating_sub(given.time_ns);
            if away_ns <= SOON_NS {
                let cycle = cycles.of(given.pattern, given.bytes, time_ns);
                // It is one cycle, in however many pieces it is taken again.
                if given.left_bytes == given.bytes {
                    cycle.amount.count += 1;
                    cycle.gap_sum_ns = cycle.gap_sum_ns.saturating_add(given.life_ns.unwrap_or(away_ns));
                }
                cycle.amount.bytes = cycle.amount.bytes.saturating_add(again_bytes);
            }
            bytes -= again_bytes;
            given.left_bytes -= again_bytes;
            if given.left_bytes == 0 {
                self.0.pop();
            }
        }
    }
}

/// A mapping of which pieces are gone and others are there.
#[derive(Debug, Clone, Default)]
struct Cut {
    gone_bytes: u64,
    /// Those of them that may have been touched.
    used_bytes: u64,
    /// How long the piece that went last was there.
    life_ns: u64,
}

/// Whether a mapping between these addresses may be a heap of a thread's arena.
fn is_heap((start, end, mapping): &(u64, u64, Mapping)) -> bool {
    mapping.origin == Operation::MapReserve
        && start.is_multiple_of(ARENA_HEAP_BYTES)
        && end - start == ARENA_HEAP_BYTES
}

/// What one process gave back lately.
#[derive(Debug, Clone, Default)]
pub struct Lately {
    mappings: Pool,
    shared: Pool,
    stacks: Pool,
    /// What was above the heap's end; the last of it lies lowest, and is taken again first.
    trims: Pool,
    /// What was accessible of heaps of threads' arenas.
    heaps: Pool,
    /// What is accessible of those that are there, by where they begin.
    accessible: HashMap<u64, u64>,
    /// Mappings that go in pieces, by their birth.
    cut: HashMap<u64, Cut>,
    /// When pages were given back last, by their first address.
    purged: HashMap<u64, u64>,
}

impl Lately {
    /// What mappings of an origin that end are told as, and where they are remembered.
    fn pool(&mut self, origin: Operation) -> Option<(Pattern, &mut Pool)> {
        match origin {
            Operation::MapAnonymous => Some((Pattern::Mapping, &mut self.mappings)),
            Operation::MapShared => Some((Pattern::Shared, &mut self.shared)),
            Operation::MapStack => Some((Pattern::Stack, &mut self.stacks)),
            _ => None,
        }
    }

    /// A mapping was made.
    pub fn mapped(&mut self, cycles: &mut Cycles, origin: Operation, bytes: u64, time_ns: u64) {
        if let Some((_, pool)) = self.pool(origin) {
            pool.take(cycles, bytes, time_ns);
        }
    }

    /// A mapping, where it is known, was made smaller or larger. What is resized is seldom a file, so others count as memory.
    pub fn resized(
        &mut self,
        cycles: &mut Cycles,
        mapping: Option<Mapping>,
        (old_bytes, new_bytes): (u64, u64),
        time_ns: u64,
    ) {
        if mapping.is_some_and(|mapping| mapping.is_own && mapping.origin != Operation::MapAnonymous) {
            return;
        }
        match new_bytes.checked_sub(old_bytes) {
            Some(more_bytes) => self.mappings.take(cycles, more_bytes, time_ns),
            None => self.mappings.give(Pattern::Resize, old_bytes - new_bytes, time_ns, None),
        }
    }

    /// A part of a mapping ended.
    pub fn unmapped(&mut self, ended: &Ended, time_ns: u64) {
        let life_ns = time_ns.saturating_sub(ended.mapping.born_ns);
        let origin = ended.mapping.origin;
        if ended.goes_on || !ended.mapping.is_own || life_ns > SOON_NS || self.pool(origin).is_none() {
            return;
        }
        let given = if ended.is_whole() { Some(ended.bytes) } else { self.last_of_pieces(ended, time_ns) };
        if let (Some(bytes), Some((pattern, pool))) = (given, self.pool(origin)) {
            pool.give(pattern, bytes, time_ns, Some(life_ns));
        }
    }

    /// The bytes that a mapping gave back in pieces, when the last of them goes: who keeps a piece may have cut off the others to align
    /// it. What went in the first half of the mapping's life was cut off so, and hardly touched.
    fn last_of_pieces(&mut self, ended: &Ended, time_ns: u64) -> Option<u64> {
        let born_ns = ended.mapping.born_ns;
        let life_ns = time_ns.saturating_sub(born_ns);
        make_room(&mut self.cut, |born_ns, _| time_ns.saturating_sub(born_ns) <= SOON_NS);
        let cut = self.cut.entry(born_ns).or_default();
        if cut.life_ns < life_ns / 2 {
            cut.used_bytes = 0;
        }
        cut.gone_bytes = cut.gone_bytes.saturating_add(ended.bytes);
        cut.used_bytes = cut.used_bytes.saturating_add(ended.bytes);
        cut.life_ns = life_ns;
        let used_bytes = cut.used_bytes;
        (cut.gone_bytes >= ended.mapping.made_bytes).then(|| {
            self.cut.remove(&born_ns);
            used_bytes
        })
    }

    /// The heap's top went down.
    pub fn trimmed(&mut self, bytes: u64, time_ns: u64) {
        self.trims.give(Pattern::TopTrim, bytes, time_ns, None);
    }

    /// The heap's top went up.
    pub fn grown(&mut self, cycles: &mut Cycles, bytes: u64, time_ns: u64) {
        self.trims.take(cycles, bytes, time_ns);
    }

    /// A range of addresses may be used from now on: so a heap of a thread's arena grows.
    pub fn opened(
        &mut self,
        cycles: &mut Cycles,
        space: &AddressSpace,
        (start, bytes): (u64, u64),
        time_ns: u64,
    ) {
        let Some((heap, ..)) = space.at(start).filter(is_heap) else { return };
        make_room(&mut self.accessible, |_, _| false);
        let accessible = self.accessible.entry(heap).or_default();
        let now_bytes = (start - heap).saturating_add(bytes).min(ARENA_HEAP_BYTES).max(*accessible);
        self.heaps.take(cycles, now_bytes - *accessible, time_ns);
        *accessible = now_bytes;
    }

    /// A range of addresses is about to be unmapped, which may be a whole heap of a thread's arena.
    pub fn closed(&mut self, space: &AddressSpace, (start, bytes): (u64, u64), time_ns: u64) {
        let Some((heap, _, mapping)) = space.at(start).filter(is_heap) else { return };
        let accessible_bytes = self.accessible.remove(&heap).unwrap_or_default();
        let life_ns = time_ns.saturating_sub(mapping.born_ns);
        if (heap, ARENA_HEAP_BYTES) == (start, bytes) && mapping.is_own && life_ns <= SOON_NS {
            self.heaps.give(Pattern::ArenaHeap, accessible_bytes, time_ns, Some(life_ns));
        }
    }

    /// Pages were given back without their addresses.
    pub fn purged(&mut self, cycles: &mut Cycles, space: &AddressSpace, range: (u64, u64), time_ns: u64) {
        let (start, bytes) = range;
        make_room(&mut self.purged, |_, at| time_ns.saturating_sub(*at) <= SOON_NS);
        let Some(before) = self.purged.insert(start, time_ns) else { return };
        let gap_ns = time_ns.saturating_sub(before);
        if gap_ns > SOON_NS {
            return;
        }
        let (pattern, bytes) = match space.at(start) {
            // Others, at the same address.
            Some((_, _, mapping)) if mapping.born_ns > before => return,
            // glibc does so when a thread ends, and keeps the stack for the next one.
            Some((_, _, mapping)) if mapping.origin == Operation::MapStack => {
                (Pattern::Stack, mapping.made_bytes)
            }
            Some(found) if is_heap(&found) => (Pattern::ArenaTrim, bytes),
            _ => (Pattern::Purge, bytes),
        };
        cycles.add(pattern, bytes, time_ns, gap_ns);
    }
}
