//! The spans that were freed last in a process of one thread, if they would be held: who takes and gives the same again and again needs
//! no more of the span heap than this. Two of them: who works on one block often has another for the result.

use crate::granule::Span;
use crate::page_map::{Guarded32, Record, State};

/// Spans at most.
pub const PLACES: usize = 2;
/// Slow paths after which what nobody wanted is given back.
const OLD: u32 = 64;

/// At most a span in each place. They count as used in the span heap.
///
/// SYNCHRONIZATION: the process's only thread; afterwards the span lock, under which they are given back.
pub struct Recent {
    places: [Place; PLACES],
    /// Most granules that would be held.
    most: Guarded32,
}

struct Place {
    first: Guarded32,
    /// Length in granules; 0 for no span.
    granules: Guarded32,
    /// Slow paths since it was freed.
    age: Guarded32,
}

impl Place {
    const fn new() -> Self {
        Self { first: Guarded32::new(0), granules: Guarded32::new(0), age: Guarded32::new(0) }
    }
}

impl Recent {
    /// No span.
    pub const fn new() -> Self {
        Self { places: [const { Place::new() }; PLACES], most: Guarded32::new(0) }
    }

    /// Says how many granules would be held.
    pub fn set_most(&self, granules: u32) {
        self.most.set(granules);
    }

    /// Keeps the span of this record in a place; false if it would not be held, or another is there.
    #[inline(always)]
    pub fn keep(&self, place: usize, first: u32, record: &Record) -> bool {
        let granules = record.granules.get();
        let others = (0..PLACES).filter(|&other| other != place);
        let kept: u32 = others.map(|other| self.places[other].granules.get()).sum();
        let place = &self.places[place];
        let keeps = place.granules.get() == 0 && granules + kept <= self.most.get();
        if keeps {
            record.set_state(State::Kept);
            place.first.set(first);
            place.granules.set(granules);
            place.age.set(0);
        }
        keeps
    }

    /// Takes the span in a place; its record's state is the taker's to set.
    #[inline(always)]
    pub fn take(&self, place: usize) -> Option<Span> {
        let place = &self.places[place];
        let granules = place.granules.get();
        if granules == 0 {
            return None;
        }
        place.granules.set(0);
        Some(Span { first: place.first.get(), granules })
    }

    /// Whether there is a span in any place.
    #[inline(always)]
    pub fn has_any(&self) -> bool {
        self.places.iter().any(|place| place.granules.get() > 0)
    }

    /// A slow path ends; true if there is a span that nobody wanted for long.
    #[inline(always)]
    pub fn grow_old(&self) -> bool {
        self.has_any() && self.is_any_old_now()
    }

    #[inline(never)]
    fn is_any_old_now(&self) -> bool {
        let mut is_old = false;
        for place in self.places.iter().filter(|place| place.granules.get() > 0) {
            place.age.set(place.age.get() + 1);
            is_old |= place.age.get() > OLD;
        }
        is_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_kept_if_they_would_be_held_and_grow_old_when_nobody_wants_them() {
        let [short, fitting, long] = [1, 4, 6].map(|granules| {
            let record = Record::default();
            record.granules.set(granules);
            record
        });
        let recent = Recent::new();
        assert!(!recent.keep(0, 100, &fitting), "nothing would be held");
        recent.set_most(5);
        assert!(!recent.keep(0, 100, &long));
        assert!(recent.keep(0, 100, &fitting));
        assert_eq!(fitting.state(), State::Kept);
        assert!(!recent.keep(0, 110, &short), "one is here");
        assert!(!recent.keep(1, 104, &fitting), "more than would be held");
        assert!(recent.keep(1, 110, &short));
        assert_eq!(recent.take(0), Some(Span { first: 100, granules: 4 }));
        assert_eq!(recent.take(0), None);
        assert_eq!((1..).find(|_| recent.grow_old()), Some(OLD + 1));
        assert!(recent.keep(0, 112, &fitting));
        assert_eq!(recent.take(1), Some(Span { first: 110, granules: 1 }));
        assert!(!recent.grow_old(), "the other is young");
    }
}
