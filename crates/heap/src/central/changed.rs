//! Where slabs changed since a look: one bit for 16 granules, whose tags are one line. So a look at a heap of many GiB visits few of them.
//!
//! A slab is *settled* once its free pages went, or if it has none, until blocks come back to it. Any other has its bit set, but while a
//! look is under way there.
//!
//! SYNCHRONIZATION: `settled` in the slab's record is under the lock of its class. Who makes a slab unsettled sets the bit afterwards; a look
//! takes the bits first, so what it finds is at least as new.

use crate::lock::Lock;
use crate::reservation::COVERAGE_MAX;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Granules of a bit.
const GRANULES: u32 = 16;
/// Granules of a word.
const WORD_GRANULES: u32 = GRANULES * u64::BITS;
const WORDS: usize = (COVERAGE_MAX / WORD_GRANULES) as usize;

/// Where slabs changed.
pub struct Changed {
    words: [AtomicU64; WORDS],
    /// Held while the bits of a word are out: a forked child would have lost them.
    looking: Lock<()>,
}

impl Changed {
    /// Nowhere.
    pub const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS], looking: Lock::new(()) }
    }

    /// The slab that begins at this granule is not settled any more.
    pub fn note(&self, first: u32) {
        let bit = 1 << (first % WORD_GRANULES / GRANULES);
        // ORDERING: Release pairs with the Acquire in `look`: who finds the bit sees the slab as it is now.
        self.words[(first / WORD_GRANULES) as usize].fetch_or(bit, Ordering::Release);
    }

    /// Calls `is_unsettled` for each granule below `limit` where slabs changed. Returns whether any said so of itself: the next look comes by
    /// there again.
    pub fn look(&self, limit: u32, mut is_unsettled: impl FnMut(u32) -> bool) -> bool {
        let words = limit.div_ceil(WORD_GRANULES);
        let mut is_left = false;
        for (number, word) in (0..words).zip(&self.words) {
            // ORDERING: Relaxed; what was set a moment ago is for the next look.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let _looking = self.looking.lock();
            // ORDERING: Acquire, see `note`.
            let changed = word.swap(0, Ordering::Acquire);
            let mut left = 0;
            for bit in (0..u64::BITS).filter(|bit| changed >> bit & 1 == 1) {
                let granules = Self::granules(number, bit, limit);
                if granules.fold(false, |any, granule| any | is_unsettled(granule)) {
                    left |= 1 << bit;
                }
            }
            // ORDERING: Relaxed; the next look has this lock, too, or is this thread's.
            word.fetch_or(left, Ordering::Relaxed);
            is_left |= left != 0;
        }
        is_left
    }

    fn granules(number: u32, bit: u32, limit: u32) -> Range<u32> {
        let first = number * WORD_GRANULES + bit * GRANULES;
        first..(first + GRANULES).min(limit)
    }

    /// See [`super::Central::hold_for_fork`].
    pub fn hold_for_fork(&self) {
        self.looking.hold_for_fork();
    }

    /// See [`super::Central::release_after_fork`].
    pub fn release_after_fork(&self) {
        self.looking.release_after_fork();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_at(changed: &Changed, limit: u32, stays: u32) -> (Vec<u32>, bool) {
        let mut granules = Vec::new();
        let is_left = changed.look(limit, |granule| {
            granules.push(granule);
            granule == stays
        });
        (granules, is_left)
    }

    #[test]
    fn a_look_visits_what_changed_and_comes_again_where_something_is_not_settled() {
        static CHANGED: Changed = Changed::new();
        assert_eq!(looked_at(&CHANGED, 5000, 0), (vec![], false));
        [17, 31, 1024, 4990].into_iter().for_each(|first| CHANGED.note(first));
        let groups = [16..32, 1024..1040, 4976..4991];
        assert_eq!(looked_at(&CHANGED, 4991, 1030), (groups.into_iter().flatten().collect(), true));
        assert_eq!(looked_at(&CHANGED, 4991, 0), ((1024..1040).collect(), false));
        assert_eq!(looked_at(&CHANGED, 4991, 0), (vec![], false));
    }

    #[test]
    fn what_changes_during_a_look_is_for_the_next() {
        static CHANGED: Changed = Changed::new();
        CHANGED.note(40);
        CHANGED.look(100, |granule| {
            if granule == 35 {
                CHANGED.note(34);
            }
            false
        });
        assert_eq!(looked_at(&CHANGED, 100, 0), ((32..48).collect(), false));
    }
}
