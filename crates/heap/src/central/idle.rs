//! What `central` gives back when nobody wants it: magazines that stay in their stacks, and the free pages of slabs from which nothing
//! was taken and to which nothing came back.
//!
//! SYNCHRONIZATION: the slabs are found by their tags, in the order of addresses, and for a look where they [changed](super::changed).
//! Which lock guards a slab is read without that lock, in one load, and checked under it: a slab changes its class and shard only while
//! the lock of its class and shard is held.

use super::Central;
use crate::os;
use crate::page_map::{PageMap, State};
use crate::size_class::{self, CLASSES};
use crate::slab::{self, SETTLED};
use crate::span_heap::Purges;
use crate::spans::Spans;

/// Looks during which a slab must have been left alone before its free pages go.
const QUIET_LOOKS: u8 = 2;
/// To step over a span, its record has to be read, and each is a line of its own; of the tags of granules 16 are one. So longer spans
/// than this are stepped over, and others looked through.
const LONG_GRANULES: u32 = 128;

impl Central {
    /// Sends home the blocks of magazines that were not needed since the last call. The spans of slabs that are empty then go with the
    /// next batch. Returns whether magazines are left.
    pub fn return_idle_transit(&self, spans: &Spans) -> bool {
        let mut is_left = false;
        for shard in self.shards_in_use() {
            for class in (1..CLASSES).filter(|&class| shard.stacked[class].get() > 0) {
                let unneeded = shard.stacks[class].lock().least;
                self.send_home::<true>(spans, shard, class, unneeded);
                let mut stack = shard.stacks[class].lock();
                stack.least = stack.magazines;
                is_left |= stack.magazines > 0;
            }
        }
        is_left
    }

    /// Purges the free pages of slabs that were left alone for [`QUIET_LOOKS`] calls. Returns whether a later call has something
    /// to purge.
    pub fn purge_quiet_slabs(&self, spans: &Spans) -> bool {
        let map = &spans.map;
        let mut purges = Purges::NONE;
        let is_left = self.changed.look(map.reservation.limit(), |first| {
            let tag = map.tag(first);
            // Without its lock: it was not settled when its bit was set, and who finds that it is has seen a later look.
            let is_settled = || map.record(first).as_slab().is_none_or(|slab| slab.quiet() == SETTLED);
            if tag.class() == 0 || is_settled() {
                return false;
            }
            // The tag changes, and changes back, only under this lock.
            let _slabs = self.shards[tag.shard()].slabs[tag.class()].lock();
            if map.tag(first) != tag || is_settled() {
                return true;
            }
            let (slab, has_page) = (map.record(first).slab(), has_free_page(map, first, tag.class()));
            let is_left = has_page && slab.quiet() < QUIET_LOOKS;
            slab.set_quiet(if is_left { slab.quiet() + 1 } else { SETTLED });
            if has_page && !is_left {
                purges.add(slab::purge_free_pages(map, first, tag.class()));
            }
            is_left
        });
        spans.count_purges(purges);
        is_left
    }

    /// Purges the free pages of all partly used slabs. Returns the bytes given back.
    pub fn purge_slab_pages(&self, spans: &Spans) -> usize {
        self.purge_slabs(spans, |class, first| slab::purge_free_pages(&spans.map, first, class))
    }

    /// Purges the free pages of partly used slabs, except those of classes that [want them again](super::gone). Returns the bytes
    /// given back.
    pub fn purge_spread_pages(&self, spans: &Spans) -> usize {
        let next = self.gone.next();
        self.spread.note_gone();
        self.purge_slabs(spans, |class, first| {
            if next >> class & 1 == 0 {
                return Purges::NONE;
            }
            let purges = slab::purge_free_pages(&spans.map, first, class);
            self.gone.note(class, (purges.bytes as usize / os::page_bytes()) as u32);
            purges
        })
    }

    /// Calls `purge(class, first)` as [`Self::each_slab_with_free_blocks`] does, and counts what it purged. Returns the bytes given back.
    fn purge_slabs(&self, spans: &Spans, mut purge: impl FnMut(usize, u32) -> Purges) -> usize {
        let mut purges = Purges::NONE;
        self.each_slab_with_free_blocks(spans, |class, first| purges.add(purge(class, first)));
        spans.count_purges(purges);
        purges.bytes as usize
    }

    /// Calls `act(class, first)` for each slab that has at least a page of free blocks, under its class lock.
    fn each_slab_with_free_blocks(&self, spans: &Spans, mut act: impl FnMut(usize, u32)) {
        let map = &spans.map;
        let mut granule = map.reservation.first_granule();
        // There was no heap when `first_granule` was read. There may be one by now, but granule 0 has no record.
        if granule == 0 {
            return;
        }
        while granule < map.reservation.limit() {
            let first = granule;
            let tag = map.tag(first);
            let (class, shard) = (tag.class(), tag.shard());
            if class == 0 {
                granule = behind(map, first);
                continue;
            }
            granule += 1;
            if !has_free_page(map, first, class) {
                continue;
            }
            // The tag changes, and changes back, only under this lock.
            let _slabs = self.shards[shard].slabs[class].lock();
            if map.tag(first) == tag && has_free_page(map, first, class) {
                act(class, first);
            }
        }
    }
}

/// Whether a slab begins at this granule and has at least a page of free blocks; `class` is that of its tag.
fn has_free_page(map: &PageMap, first: u32, class: usize) -> bool {
    let free = map.record(first).as_slab().map_or(0, |slab| slab.free_blocks() as usize);
    free * size_class::size(class) >= os::page_bytes()
}

/// Where to go on behind a granule that belongs to no slab. Without a lock: the next look finds a slab that is made there meanwhile.
fn behind(map: &PageMap, first: u32) -> u32 {
    let record = map.record(first);
    let is_inside = record.state() == State::Interior;
    let next = first + if is_inside { 1 } else { record.granules.get().max(1) };
    if next - first >= LONG_GRANULES {
        return next;
    }
    let limit = map.reservation.limit();
    (next..limit).find(|&granule| map.tag(granule).class() != 0).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::os::{Call, REFUSED};
    use core::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_look_steps_over_blocks_and_free_memory_however_long_and_finds_the_slab_behind() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(1024).unwrap());
        let Heap { central, spans, .. } = &*heap;
        let free = spans.take(0, 3000, 1, true).unwrap().first;
        let large = spans.take(0, 2000, 1, true).unwrap().first;
        spans.map.record(large).make_large(1, 0);
        let magazine = central.fetch(spans, 0, class, 1).unwrap();
        assert!(spans.map.granule_of(magazine.head).unwrap() > large);
        spans.give(free, 3000, true);
        assert_eq!([free, large].map(|first| behind(&spans.map, first) - first), [3000, 2000]);
        let slab = spans.map.granule_of(magazine.head).unwrap();
        assert_eq!(behind(&spans.map, large + 1), slab, "inside");
        let mut found = Vec::new();
        central.each_slab_with_free_blocks(spans, |class, _| found.push(class));
        assert_eq!(found, [class]);
    }

    #[test]
    fn the_pages_of_a_slab_that_was_left_alone_are_given_back_once_also_where_the_kernel_refuses() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(1024).unwrap());
        let Heap { central, spans, .. } = &*heap;
        let [staying, used] = [1, 63].map(|count| central.fetch(spans, 0, class, count).unwrap());
        let look = |_| (central.purge_quiet_slabs(spans), spans.counts().purges.refused > 0);
        assert_eq!([0, 1, 2].map(look), [(false, false); 3], "it has no page that was used and is free");
        central.return_to_slabs(spans, class, used);
        REFUSED.set(Call::Purge as u32);
        assert_eq!([0, 1, 2].map(look), [(true, false), (true, false), (false, true)]);
        let once = spans.counts().purges;
        assert_eq!([0, 1].map(look), [(false, true); 2]);
        assert_eq!(spans.counts().purges, once);
        REFUSED.set(0);
        let again = central.fetch(spans, 0, class, 32).unwrap();
        assert_eq!([0, 1, 2].map(look), [(false, true); 3], "nothing came back since");
        central.return_to_slabs(spans, class, again);
        assert_eq!([0, 1].map(look), [(true, true); 2]);
        assert!(!central.purge_quiet_slabs(spans) && spans.counts().purges.bytes > once.bytes);
        central.return_to_slabs(spans, class, staying);
    }

    #[test]
    fn what_slabs_hold_that_are_made_and_dissolved_during_a_look_stays() {
        let heap = Heap::boxed();
        let Heap { central, spans, .. } = &*heap;
        let is_over = AtomicBool::new(false);
        let use_blocks = |user: usize| {
            (0..2000).all(|round| {
                let class = size_class::class_of([1024, 4096, 2048][(round + user) % 3]).unwrap();
                let magazine = central.fetch(spans, user, class, 2).unwrap();
                let link = size_of::<usize>();
                let (start, bytes) = ((magazine.head + link) as *mut u8, size_class::size(class) - link);
                // SAFETY: the thread's own block, but for the link to the next.
                let rest = unsafe { core::slice::from_raw_parts_mut(start, bytes) };
                rest.fill(1);
                std::thread::yield_now();
                let is_whole = rest.iter().all(|&byte| byte == 1);
                central.return_to_slabs(spans, class, magazine);
                is_whole
            })
        };
        let whole = std::thread::scope(|scope| {
            scope.spawn(|| {
                // ORDERING: Relaxed; only ends the loop.
                while !is_over.load(Ordering::Relaxed) {
                    central.purge_slab_pages(spans);
                }
            });
            let users = [0, 1].map(|user| scope.spawn(move || use_blocks(user)));
            let whole = users.map(|user| user.join());
            is_over.store(true, Ordering::Relaxed);
            whole.map(Result::unwrap)
        });
        assert_eq!(whole, [true; 2], "a block in use was purged");
    }
}
