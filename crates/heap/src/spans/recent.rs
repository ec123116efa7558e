//! What the only thread of a process freed last of large blocks, as far as it would be held. At hand are the spans of the last two: who
//! takes and gives the same again and again needs no more than this, and who works on one block often has another for the result. Who wants
//! another length finds the spans freed before these by their lengths, in what the thread's shard keeps ([`super::kept`]).

use crate::granule::Span;
use crate::os;
use crate::page_map::{Guarded8, Guarded32, Hint32, Record, State};

/// Spans at hand, at most.
pub const PLACES: usize = 2;
/// Slow paths in a round: what nobody wanted in a whole round is given back.
const ROUND: u32 = 64;

/// At most a span in each place. They count as used in the span heap, as those do that the shard keeps.
///
/// SYNCHRONIZATION: the process's only thread; afterwards the first span heap's lock, under which they are given back. Hints are read and
/// written by any thread.
pub struct Recent {
    places: [Place; PLACES],
    /// Granules of what the shard keeps.
    shelved: Hint32,
    /// Granules that the thread lists itself.
    listed: Hint32,
    /// Most granules that would be held.
    most: Guarded32,
    /// Slow paths in this round.
    visits: Guarded32,
    /// Slow paths until one looks whether the time has come of what waits in the span heaps; 0: nothing waits there, or a purger looks.
    /// Those that need a span look anyway.
    looks_in: Hint32,
}

struct Place {
    first: Guarded32,
    /// Length in granules; 0 for no span.
    granules: Guarded32,
    /// 1: since before this round.
    is_old: Guarded8,
}

impl Place {
    const fn new() -> Self {
        Self { first: Guarded32::new(0), granules: Guarded32::new(0), is_old: Guarded8::new(0) }
    }
}

impl Recent {
    /// No span.
    pub const fn new() -> Self {
        Self {
            places: [const { Place::new() }; PLACES],
            shelved: Hint32::new(0),
            listed: Hint32::new(0),
            most: Guarded32::new(0),
            visits: Guarded32::new(0),
            looks_in: Hint32::new(0),
        }
    }

    /// Somebody looked at what waits for its time. Says whether anything does that no purger looks at.
    pub fn set_waits(&self, waits: bool) {
        let looks_in = if waits { ROUND } else { 0 };
        // Read first: a line that all threads read is written only when it changes.
        if self.looks_in.get() != looks_in {
            self.looks_in.set(looks_in);
        }
    }

    /// A slow path ends. Whether it is to look at what waits for its time.
    #[inline(always)]
    pub fn is_time_to_look(&self) -> bool {
        let visits = self.looks_in.get();
        if visits > 0 {
            self.looks_in.set(visits - 1);
        }
        visits == 1
    }

    /// Says how many granules would be held.
    pub fn set_most(&self, granules: u32) {
        self.most.set(granules);
    }

    /// Says how many granules the shard keeps.
    pub fn set_shelved(&self, granules: u32) {
        self.shelved.set(granules);
    }

    /// Says how many granules the thread lists.
    pub fn set_listed(&self, granules: u32) {
        self.listed.set(granules);
    }

    /// Whether the shard keeps any.
    pub fn has_shelved(&self) -> bool {
        self.shelved.get() > 0
    }

    /// Whether so many granules more would be held.
    pub fn would_hold(&self, granules: u32) -> bool {
        os::is_single_threaded() && self.sum() + granules <= self.most.get()
    }

    /// Whether more is here than would be held now.
    pub fn is_too_much(&self) -> bool {
        self.sum() > self.most.get()
    }

    fn sum(&self) -> u32 {
        self.elsewhere() + self.places.iter().map(|place| place.granules.get()).sum::<u32>()
    }

    /// Granules of what is kept and not at hand.
    fn elsewhere(&self) -> u32 {
        self.shelved.get() + self.listed.get()
    }

    /// Keeps the span of this record in a place; false if it would not be held, or another is there.
    #[inline(always)]
    pub fn keep(&self, place: usize, first: u32, record: &Record) -> bool {
        let granules = record.granules.get();
        let others = (0..PLACES).filter(|&other| other != place);
        let kept: u32 = others.map(|other| self.places[other].granules.get()).sum();
        let place = &self.places[place];
        let sum = granules + kept + self.elsewhere();
        let keeps = place.granules.get() == 0 && sum <= self.most.get();
        if keeps {
            record.set_state(State::Cached);
            place.first.set(first);
            place.granules.set(granules);
            place.is_old.set(0);
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

    /// A slow path ends. Returns whether a round does.
    pub fn end_visit(&self) -> bool {
        let visits = self.visits.get() + 1;
        self.visits.set(visits % ROUND);
        visits == ROUND
    }

    /// Begins a round. Returns whether there is a span that nobody wanted in the last one.
    pub fn begin_round(&self) -> bool {
        let mut has_old = false;
        for place in self.places.iter().filter(|place| place.granules.get() > 0) {
            has_old |= place.is_old.get() == 1;
            place.is_old.set(1);
        }
        has_old
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
        assert_eq!(fitting.state(), State::Cached);
        assert!(!recent.keep(0, 110, &short), "one is here");
        assert!(!recent.keep(1, 104, &fitting), "more than would be held");
        recent.set_shelved(1);
        assert!(!recent.keep(1, 110, &short), "the same, with what the shard keeps");
        recent.set_shelved(0);
        assert!(recent.keep(1, 110, &short));
        assert_eq!(recent.take(0), Some(Span { first: 100, granules: 4 }));
        assert_eq!(recent.take(0), None);
        assert_eq!((1..).find(|_| recent.end_visit()), Some(ROUND));
        assert!(!recent.begin_round(), "new in the round");
        assert!(recent.begin_round());
        assert_eq!(recent.take(1), Some(Span { first: 110, granules: 1 }));
        assert!(!recent.has_any() && !recent.begin_round());
    }

    #[test]
    fn what_waits_is_looked_at_when_nobody_did_in_a_round() {
        let recent = Recent::new();
        let looks_after = || (1..=2 * ROUND).find(|_| recent.is_time_to_look());
        assert_eq!(looks_after(), None, "nothing waits");
        recent.set_waits(true);
        assert_eq!((looks_after(), looks_after()), (Some(ROUND), None));
        recent.set_waits(true);
        recent.set_waits(false);
        assert_eq!(looks_after(), None);
    }
}
