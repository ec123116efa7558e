//! The policies that are held against each other.

use faultless_heap::decay::{Decay, Verdict};

/// When a free span goes back. The names are those of `faultless_heap::decay`, the first implementation.
pub trait Policy {
    /// A span was freed while `held` granules are held.
    fn freed(&mut self, granules: u32, held: u32, now: u64) -> Verdict;
    /// Whether all that is held goes, too.
    fn is_phase_over(&self) -> bool {
        false
    }
    /// From now on a thread purges what is due, or no longer.
    fn set_purger(&mut self, _has_purger: bool) {}
    /// Held memory was taken again.
    fn reused(&mut self, _gap_ns: u64) {}
    /// Memory to be purged was taken before it was.
    fn rescued(&mut self, _granules: u32, _gap_ns: u64) {}
    /// Memory without pages was taken.
    fn faulted(&mut self, _granules: u32, _now: u64) {}
    /// Memory is purged that was not held.
    fn purged(&mut self, _granules: u32, _now: u64) {}
    /// Memory is purged that was held in vain.
    fn expired(&mut self, _granules: u32, _now: u64) {}
}

impl Policy for Decay {
    fn freed(&mut self, granules: u32, held: u32, now: u64) -> Verdict {
        Decay::freed(self, granules, held, now)
    }

    fn is_phase_over(&self) -> bool {
        Decay::is_phase_over(self)
    }

    fn set_purger(&mut self, has_purger: bool) {
        Decay::set_purger(self, has_purger);
    }

    fn reused(&mut self, gap_ns: u64) {
        Decay::reused(self, gap_ns);
    }

    fn rescued(&mut self, granules: u32, gap_ns: u64) {
        Decay::rescued(self, granules, gap_ns);
    }

    fn faulted(&mut self, granules: u32, now: u64) {
        Decay::faulted(self, granules, now);
    }

    fn purged(&mut self, granules: u32, now: u64) {
        Decay::purged(self, granules, now);
    }

    fn expired(&mut self, granules: u32, now: u64) {
        Decay::expired(self, granules, now);
    }
}

/// Holds everything for the same time; `u64::MAX` for ever, 0 not at all.
pub struct Fixed(pub u64);

impl Policy for Fixed {
    fn freed(&mut self, _granules: u32, _held: u32, now: u64) -> Verdict {
        match self.0 {
            0 => Verdict::Purge,
            hold_ns => Verdict::HoldUntil(now.saturating_add(hold_ns)),
        }
    }
}
