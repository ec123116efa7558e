//! Taking from caches what their owners do not use, by the protocol of [`super`]: gate all bins of a few caches, let every thread pass a
//! barrier, then decide of each bin whose its list is.

use super::large_lists::{self, LENGTHS};
use super::{BINS, Bin, Budget, GATE, Home, ThreadCache, class_of_bin};
use crate::lock::Lock;
use crate::magazine::{self, Magazine};
use crate::os;
use crate::page_map::PageMap;
use crate::size_class;
use core::sync::atomic::{Ordering, fence};

/// Caches revoked under one barrier.
pub const GROUP: usize = 8;
/// Looks at a bin whose owner is in the middle of an operation before it is left to the owner.
const TRIES: u32 = 20;

/// The caches of one barrier; the last may be missing.
pub type Group<'a> = [Option<&'a ThreadCache>; GROUP];

/// What is taken from caches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taking {
    /// All that they hold.
    All,
    /// The same, which nobody needed for long.
    Idle,
    /// Large blocks.
    Large,
}

/// What a cache held when it was gated: the blocks at the heads of its lists, 0 for an empty one, or [`LEFT_ALONE`].
struct Gated {
    heads: [usize; BINS],
    large: [usize; LENGTHS],
}

/// No head that was gated.
const LEFT_ALONE: usize = GATE;

/// What the caches of a group held. Not on the stack: a coroutine's may be of 8 KiB in all.
///
/// Synchronization: its lock; where there is one heap, that of the registry would do.
static GATED: Lock<[Gated; GROUP]> =
    Lock::new([const { Gated { heads: [0; BINS], large: [0; LENGTHS] } }; GROUP]);

/// Empties the caches of a group, as far as their owners do nothing in them. Returns the blocks. Under the registry's lock.
pub fn revoke(group: &Group<'_>, taking: Taking, budget: &Budget, home: Home<'_>) -> usize {
    let mut gated = GATED.lock();
    let _guards = group.map(|cache| cache.map(|cache| cache.lock.lock()));
    let mut any = false;
    for (cache, gated) in group.iter().flatten().zip(gated.iter_mut()) {
        any |= cache.gate(gated, taking);
    }
    let passed = any && os::barrier_all_threads();
    let caches = group.iter().flatten().zip(gated.iter());
    caches.map(|(cache, gated)| cache.settle(gated, passed, taking, budget, home)).sum()
}

impl ThreadCache {
    /// Sends the owner to the slow path wherever there is something to take; false if that is nowhere. Under the cache's lock.
    fn gate(&self, gated: &mut Gated, taking: Taking) -> bool {
        let mut any = false;
        let mut gate = |head: &mut usize, bin: &Bin, least: u32| {
            *head = gate_bin(bin, least).unwrap_or(LEFT_ALONE);
            any |= *head != LEFT_ALONE;
        };
        // The first of each holds nothing.
        for (place, head) in gated.heads.iter_mut().enumerate().skip(1).filter(|_| taking != Taking::Large) {
            gate(head, &self.bins[place], size_class::magazine_min(class_of_bin(place)));
        }
        for (granules, head) in (0..).zip(&mut gated.large).skip(1) {
            match self.large_lists() {
                Some(lists) => gate(head, lists.bin(granules), 0),
                None => *head = LEFT_ALONE,
            }
        }
        any
    }

    /// Ends what [`ThreadCache::gate`] began, and takes the spares; `passed`: every thread passed a barrier since. Returns the blocks, which
    /// are where they belong then. Under the cache's lock.
    fn settle(&self, gated: &Gated, passed: bool, taking: Taking, budget: &Budget, home: Home<'_>) -> usize {
        let (mut blocks, idle) = (0, taking == Taking::Idle);
        let map = &home.spans.map;
        for (granules, &head) in (0..).zip(&gated.large).skip(1).filter(|(_, head)| **head != LEFT_ALONE) {
            let Some(lists) = self.large_lists() else { break };
            let bin = lists.bin(granules);
            let length = || large_lists::walk(head, granules, bin.capacity.get(), map);
            if let Some(list) = settle_list(bin, head, passed, length) {
                lists.shrink(granules, budget);
                blocks += list.count as usize;
                home.large.give_back(home.spans, self.shard(), list, idle);
            }
        }
        for (place, &head) in gated.heads.iter().enumerate().skip(1).filter(|_| taking != Taking::Large) {
            let class = class_of_bin(place);
            let list = Some(head).filter(|&head| head != LEFT_ALONE);
            // Of a parked thread that is so for all of them, look after look.
            if list.is_none() && !self.has_spare(place) {
                continue;
            }
            let bin = &self.bins[place];
            let length = |list| move || walk(list, class, bin.capacity.get(), map);
            let taken = list.and_then(|list| settle_list(bin, list, passed, length(list)));
            if taken.is_some() {
                // The owner reads the capacity when it opens the bin, under the lock.
                self.shrink(place, budget);
            }
            for magazine in [taken.unwrap_or_default(), self.take_spare(place)] {
                blocks += magazine.count as usize;
                if idle {
                    home.central.return_idle_to_slabs(home.spans, class, magazine);
                } else {
                    home.central.return_to_slabs(home.spans, class, magazine);
                }
            }
        }
        blocks
    }
}

/// The list of a gated bin, given its length if it is one, if it is ours now.
fn settle_list(bin: &Bin, list: usize, passed: bool, length: impl Fn() -> Option<u32>) -> Option<Magazine> {
    if !passed {
        undo(bin, list);
        return None;
    }
    settle_bin(bin, list, length)
}

/// Gates a bin that has blocks, or more room than the `least`; what was at its head. Under the cache's lock.
fn gate_bin(bin: &Bin, least: u32) -> Option<usize> {
    // ORDERING: Relaxed look; the exchange is SeqCst, so that it precedes the barrier.
    let head = bin.head.load(Ordering::Relaxed);
    let has_something = head > GATE || (head == 0 && bin.capacity.get() > least);
    // It cannot become GATE meanwhile: only revokers write that, under this lock, and a forked child's only thread.
    has_something.then(|| bin.head.swap(GATE, Ordering::SeqCst))
}

/// Decides whose the list of a gated bin is, given its length if it is one: `Some` if it is ours. Under the cache's lock, after the barrier.
fn settle_bin(bin: &Bin, list: usize, length: impl Fn() -> Option<u32>) -> Option<Magazine> {
    for _ in 0..TRIES {
        // ORDERING: Acquire, then the walk, then the fence, then `head`: if an operation that was under way commits, its
        // store to `head` is either seen below or `room` has shown it.
        let room = bin.room.load(Ordering::Acquire);
        let length = length();
        fence(Ordering::Acquire);
        if bin.head.load(Ordering::Acquire) != GATE {
            return None;
        }
        if let Some(length) = length.filter(|&length| room + length as i32 == bin.capacity()) {
            // ORDERING: Where stores may pass each other, what made the sum fit may be seen before the operation's store to `head`;
            // after another barrier that is seen, too.
            if cfg!(not(target_arch = "x86_64")) {
                if !os::barrier_all_threads() {
                    break;
                }
                if bin.head.load(Ordering::Acquire) != GATE {
                    return None;
                }
            }
            return Some(Magazine { head: list, count: length });
        }
        os::yield_now();
    }
    undo(bin, list);
    None
}

/// Gives a gated list back, unless its owner already has.
fn undo(bin: &Bin, list: usize) {
    // ORDERING: SeqCst as the exchange that gated it; failure means that the owner won.
    let _ = bin.head.compare_exchange(GATE, list, Ordering::SeqCst, Ordering::SeqCst);
}

/// Length of a list, if it is one of at most `most` blocks. The list may not be ours: every address is checked before it
/// is read, and slab memory stays readable for ever.
fn walk(list: usize, class: usize, most: u32, map: &PageMap) -> Option<u32> {
    let (mut block, mut length) = (list, 0);
    while block != 0 {
        if length >= most || map.class_of_block(block) != class {
            return None;
        }
        length += 1;
        // SAFETY: an aligned address in a slab.
        block = unsafe { magazine::next(block) };
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: u32 = 8;
    const LIST: usize = 0x1000;
    const LATER: usize = 0x2000;

    /// A bin that holds a list of so many blocks.
    fn bin(count: u32) -> Bin {
        let bin = Bin::gated();
        bin.capacity.set(CAPACITY);
        bin.replace(Magazine { head: if count > 0 { LIST } else { 0 }, count });
        bin
    }

    /// What an owner's operation does to a bin before it reads `head`, at the place where it may be stopped for long.
    fn begin(bin: &Bin, change: i32) {
        bin.room.fetch_add(change, Ordering::Relaxed);
    }

    fn head(bin: &Bin) -> usize {
        bin.head.load(Ordering::Relaxed)
    }

    #[test]
    fn a_bin_with_blocks_or_room_is_gated_and_one_with_neither_is_left_alone() {
        for (count, least, found) in [(3, CAPACITY, Some(LIST)), (0, 1, Some(0)), (0, CAPACITY, None)] {
            let bin = bin(count);
            assert_eq!(gate_bin(&bin, least), found);
            assert_eq!(head(&bin) == GATE, found.is_some());
            assert_ne!(gate_bin(&bin, least), Some(GATE), "once");
        }
    }

    #[test]
    fn a_list_is_taken_from_an_owner_outside_an_operation_and_left_to_one_inside() {
        let resting = bin(3);
        let list = gate_bin(&resting, 1).unwrap();
        assert_eq!(settle_bin(&resting, list, || Some(3)), Some(Magazine { head: LIST, count: 3 }));
        assert_eq!(head(&resting), GATE);
        for change in [1, -1] {
            let busy = bin(3);
            begin(&busy, change);
            let list = gate_bin(&busy, 1).unwrap();
            assert_eq!(settle_bin(&busy, list, || Some(3)), None);
            assert_eq!(head(&busy), LIST, "it goes on where it was");
        }
        // What is read of a list that is another's by now need not be one.
        let broken = bin(3);
        let list = gate_bin(&broken, 1).unwrap();
        assert_eq!((settle_bin(&broken, list, || None), head(&broken)), (None, LIST));
    }

    #[test]
    fn an_owner_that_ends_its_operation_behind_the_gate_has_won() {
        // While the list is walked, and after the last look: the sum fits again, or never did.
        let bin = bin(3);
        begin(&bin, 1);
        let list = gate_bin(&bin, 1).unwrap();
        let ends = || {
            bin.head.store(LATER, Ordering::Relaxed);
            Some(2)
        };
        assert_eq!((settle_bin(&bin, list, ends), head(&bin)), (None, LATER));
        undo(&bin, list);
        assert_eq!(head(&bin), LATER, "what it stored stays");
    }

    #[test]
    fn all_threads_pass_one_barrier_for_each_group_that_has_something() {
        let (heap, class) = (crate::heap::Heap::boxed(), size_class::class_of(64).unwrap());
        let caches: Vec<_> = (0..=GROUP).map(|_| heap.caches.acquire().unwrap()).collect();
        for cache in &caches {
            let block = heap.allocate_small(Some(cache), class);
            heap.free(Some(cache), block);
        }
        if !os::barrier_all_threads() {
            return faultless_skipped::skipped("no membarrier here");
        }
        // On other machines each list that is taken has another.
        let lists = if cfg!(target_arch = "x86_64") { 0 } else { caches.len() as u32 };
        let before = os::BARRIERS.get();
        assert!(heap.caches.revoke_all(None, heap.home()) >= caches.len());
        assert!(caches.iter().all(|cache| cache.held(class) == 0));
        assert_eq!(os::BARRIERS.get() - before, 2 + lists);
    }

    #[test]
    fn a_walk_ends_where_the_list_leaves_its_slabs_or_is_too_long() {
        let heap = crate::heap::Heap::boxed();
        let class = size_class::class_of(64).unwrap();
        let Magazine { head, count } = heap.central.fetch(&heap.spans, 0, class, 5).unwrap();
        let walk = |class, most| walk(head, class, most, &heap.spans.map);
        assert_eq!((count, walk(class, 5), walk(class, 4), walk(class + 1, 5)), (5, Some(5), None, None));
        // SAFETY: the test's own blocks.
        unsafe { magazine::set_next(magazine::next(head), 0x10) };
        assert_eq!(walk(class, 5), None, "a link to nowhere");
        // SAFETY: as above.
        unsafe { magazine::set_next(magazine::next(head), head) };
        assert_eq!(walk(class, 5), None, "a ring");
    }
}
