//! Which block `malloc` fetches ahead, since its link will be read.
//!
//! The next one of the list, as a rule: of more nothing is known before its link is there. That is too late where the list is longer than the
//! processor's cache, and a turn shorter than its memory's latency. A list whose links are equally long tells where its further
//! blocks lie. (Figures: docs/choices.md, "Thread caches".)

use super::Bin;
use crate::magazine::{self, Magazine};
use core::sync::atomic::{AtomicU16, Ordering};

/// So many blocks behind the next one lies the one that is fetched.
const BLOCKS: isize = 8;
/// So many links of a list must be equally long. The blocks that they lead to are near the processor then.
const LINKS: u32 = BLOCKS as u32;
/// What is added to the distance, so that it is not negative.
const BIAS: u16 = 1 << 15;

/// How many bytes behind the next block of a list the one lies that is fetched; a hint. Synchronization: owner only.
pub struct Ahead(AtomicU16);

impl Ahead {
    /// The next one itself.
    pub const fn new() -> Self {
        Self(AtomicU16::new(BIAS))
    }

    /// The address to fetch when `next` is the next block. By the owner.
    #[inline(always)]
    pub fn of(&self, next: usize) -> usize {
        // SAFETY: only the owner writes it, and reads it here. A plain read, which the compiler does not widen twice, as it does an atomic's.
        let distance = unsafe { self.0.as_ptr().read() };
        next.wrapping_add(distance.into()).wrapping_sub(BIAS.into())
    }

    fn set(&self, bytes: i16) {
        // ORDERING: Relaxed; owner only. Who takes over a cache is ordered by its lock.
        self.0.store(BIAS.wrapping_add_signed(bytes), Ordering::Relaxed);
    }
}

impl Bin {
    /// What is in the list was freed by its owner, in whatever order.
    pub fn fetch_next(&self) {
        self.ahead.set(0);
    }

    /// The list came as a whole. Under the cache's lock, by the owner.
    pub fn look_ahead(&self, list: Magazine) {
        // SAFETY: a list of this bin, which the owner does not change meanwhile.
        self.ahead.set(unsafe { equal_links(list) }.unwrap_or(0));
    }
}

/// How many bytes [`BLOCKS`] blocks are apart, if the first [`LINKS`] links of a list of twice as many or more are equally long.
///
/// # Safety
/// The caller owns the list.
unsafe fn equal_links(list: Magazine) -> Option<i16> {
    if list.count < 2 * LINKS {
        return None;
    }
    // SAFETY: a block of the caller's list, which is longer than all that is walked.
    let next_of = |block| unsafe { magazine::next(block) };
    let mut block = next_of(list.head);
    let step = block.wrapping_sub(list.head);
    let distance = i16::try_from((step as isize).checked_mul(BLOCKS)?).ok()?;
    for link in 1..LINKS {
        let next = next_of(block);
        if next.wrapping_sub(block) != step {
            return None;
        }
        if link == 1 {
            // All at once; else the walk waits for one after the other.
            (2..LINKS as usize)
                .for_each(|blocks| magazine::fetch_ahead(next.wrapping_add(step.wrapping_mul(blocks))));
        }
        block = next;
    }
    Some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 64;

    /// What is fetched ahead of a list of the blocks with these numbers, in bytes behind the next one.
    fn ahead(numbers: impl IntoIterator<Item = usize>) -> isize {
        let memory = vec![0_u128; 1 << 16];
        let blocks: Vec<usize> =
            numbers.into_iter().map(|number| memory.as_ptr().addr() + number * SIZE).collect();
        for link in blocks.windows(2) {
            // SAFETY: the test's own memory.
            unsafe { magazine::set_next(link[0], link[1]) };
        }
        let bin = Bin::gated();
        bin.look_ahead(Magazine { head: blocks[0], count: blocks.len() as u32 });
        bin.ahead.of(blocks[1]).wrapping_sub(blocks[1]) as isize
    }

    #[test]
    fn of_equal_links_the_block_eight_behind_the_next_is_fetched() {
        let size = SIZE as isize;
        assert_eq!(ahead(0..16), 8 * size);
        assert_eq!(ahead((0..16).rev()), -8 * size);
        assert_eq!(ahead((0..64).step_by(4)), 32 * size);
        assert_eq!(ahead((0..9).chain(100..108)), 8 * size, "what comes later is not looked at");
    }

    #[test]
    fn else_the_next_one_is() {
        assert_eq!(ahead(0..15), 0, "a short list");
        assert_eq!(ahead((0..8).chain(100..108)), 0, "another link among the first");
        assert_eq!(ahead((0..16).map(|number| number * 64)), 0, "too far apart");
        assert_eq!(ahead((0..16).rev().map(|number| number * 64)), -(1 << 15), "the farthest");
        assert_eq!(ahead((0..16).rev().map(|number| number * 65)), 0);
    }

    #[test]
    fn what_the_owner_freed_says_nothing() {
        let bin = Bin::gated();
        bin.ahead.set(512);
        bin.fetch_next();
        assert_eq!(bin.ahead.of(4096), 4096);
    }
}
