//! How often threads go to what they share while there is no purger: for a span, which nothing may keep for one of them, or to send blocks
//! home that would have waited for who needs some. Where that is often, a purger is worth it even for little memory.

use crate::page_map::{Hint32, Hint64};

/// Time in ns within which they are counted.
const WINDOW_NS: u64 = 50_000_000;
/// So many in that time are heavy traffic: 0.1 to 1 us each.
const HEAVY: u32 = 256;

/// What was counted in the present stretch of time.
///
/// SYNCHRONIZATION: hints; what two threads count at once may count as one.
pub struct Traffic {
    since_ns: Hint64,
    count: Hint32,
}

impl Traffic {
    /// None.
    pub const fn new() -> Self {
        Self { since_ns: Hint64::new(0), count: Hint32::new(0) }
    }

    /// One more, at that time in ns.
    pub fn note(&self, now: u64) {
        if now.wrapping_sub(self.since_ns.get()) > WINDOW_NS {
            self.since_ns.set(now);
            self.count.set(0);
        }
        self.count.set(self.count.get().saturating_add(1));
    }

    /// Whether there were many in a short time.
    #[inline]
    pub fn is_heavy(&self) -> bool {
        self.count.get() >= HEAVY
    }

    /// None from now on.
    pub fn forget(&self) {
        self.count.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_short_time_are_heavy_and_the_same_number_in_a_longer_one_is_not() {
        let traffic = Traffic::new();
        let start = 7_000_000_000;
        (0..10 * HEAVY).for_each(|ms| {
            traffic.note(start + u64::from(ms) * 1_000_000);
            assert!(!traffic.is_heavy());
        });
        let later = start + 20_000_000_000;
        (0..HEAVY).for_each(|step| traffic.note(later + u64::from(step) * 10_000));
        assert!(traffic.is_heavy());
        traffic.forget();
        assert!(!traffic.is_heavy());
    }
}
