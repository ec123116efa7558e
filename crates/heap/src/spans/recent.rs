//! The span that was freed last in a process of one thread, if it would be held: who takes and gives the same again and again needs no
//! more of the span heap than this.

use crate::granule::Span;
use crate::page_map::{Guarded32, Record, State};

/// Slow paths after which it is given back.
const OLD: u32 = 64;

/// At most one span. It counts as used in the span heap.
///
/// SYNCHRONIZATION: the process's only thread; afterwards the span lock, under which it is given back.
pub struct Recent {
    first: Guarded32,
    /// Length in granules; 0 for no span.
    granules: Guarded32,
    /// Most granules that would be held.
    most: Guarded32,
    /// Slow paths since it was freed.
    age: Guarded32,
}

impl Recent {
    /// No span.
    pub const fn new() -> Self {
        Self {
            first: Guarded32::new(0),
            granules: Guarded32::new(0),
            most: Guarded32::new(0),
            age: Guarded32::new(0),
        }
    }

    /// Says how many granules would be held.
    pub fn set_most(&self, granules: u32) {
        self.most.set(granules);
    }

    /// Keeps the span of this record; false if it would not be held, or another is here.
    #[inline]
    pub fn keep(&self, first: u32, record: &Record) -> bool {
        let granules = record.granules.get();
        let keeps = self.granules.get() == 0 && granules <= self.most.get();
        if keeps {
            record.set_state(State::Kept);
            self.first.set(first);
            self.granules.set(granules);
            self.age.set(0);
        }
        keeps
    }

    /// Takes it; its record's state is the taker's to set.
    #[inline]
    pub fn take(&self) -> Option<Span> {
        let granules = self.granules.get();
        if granules == 0 {
            return None;
        }
        self.granules.set(0);
        Some(Span { first: self.first.get(), granules })
    }

    /// A slow path ends; true if there is a span that nobody wanted for long.
    #[inline]
    pub fn grows_old(&self) -> bool {
        if self.granules.get() == 0 {
            return false;
        }
        self.age.set(self.age.get() + 1);
        self.age.get() > OLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_span_is_kept_if_it_would_be_held_and_grows_old_when_nobody_wants_it() {
        let [short, fitting, long] = [1, 4, 5].map(|granules| {
            let record = Record::default();
            record.granules.set(granules);
            record
        });
        let first = 100;
        let recent = Recent::new();
        assert!(!recent.keep(first, &fitting), "nothing would be held");
        recent.set_most(4);
        assert!(!recent.keep(first, &long));
        assert!(recent.keep(first, &fitting));
        assert_eq!(fitting.state(), State::Kept);
        assert!(!recent.keep(first + 4, &short), "one is here");
        assert_eq!((1..).find(|_| recent.grows_old()), Some(OLD + 1));
        assert_eq!(recent.take(), Some(Span { first, granules: 4 }));
        assert_eq!(recent.take(), None);
        assert!(!recent.grows_old());
    }
}
