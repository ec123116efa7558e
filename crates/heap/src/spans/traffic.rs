//! How many large blocks threads take of the span heaps while there is no purger. What is free there waits for its time, but nothing may be
//! kept for one thread, so all meet at those locks. Where that is often, a purger is worth it even for little memory.

use crate::page_map::{Hint32, Hint64};

/// Time in ns within which the takes are counted.
const WINDOW_NS: u64 = 50_000_000;
/// So many in that time are heavy traffic: half a microsecond each, a part in 400 of it.
const HEAVY: u32 = 256;

/// Takes in the present stretch of time.
///
/// SYNCHRONIZATION: hints; what two threads count at once may count as one.
pub struct Traffic {
    since_ns: Hint64,
    takes: Hint32,
}

impl Traffic {
    /// None.
    pub const fn new() -> Self {
        Self { since_ns: Hint64::new(0), takes: Hint32::new(0) }
    }

    /// One more, at that time in ns.
    pub fn note(&self, now: u64) {
        if now.wrapping_sub(self.since_ns.get()) > WINDOW_NS {
            self.since_ns.set(now);
            self.takes.set(0);
        }
        self.takes.set(self.takes.get().saturating_add(1));
    }

    /// Whether there were many in a short time.
    #[inline]
    pub fn is_heavy(&self) -> bool {
        self.takes.get() >= HEAVY
    }

    /// None from now on.
    pub fn forget(&self) {
        self.takes.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_in_a_short_time_are_heavy_and_the_same_number_in_a_longer_one_is_not() {
        let traffic = Traffic::new();
        let start = 7_000_000_000;
        (0..10 * HEAVY).for_each(|take| {
            traffic.note(start + u64::from(take) * 1_000_000);
            assert!(!traffic.is_heavy());
        });
        let later = start + 20_000_000_000;
        (0..HEAVY).for_each(|take| traffic.note(later + u64::from(take) * 10_000));
        assert!(traffic.is_heavy());
        traffic.forget();
        assert!(!traffic.is_heavy());
    }
}
