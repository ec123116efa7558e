//! Live processes that were too many to keep: who reads along learns of them all the same.

use std::collections::HashMap;

use super::{MOST_ITEMS, Track};

/// Of each the latest samples: of these are rates.
const SAMPLES: usize = 32;

/// By their numbers in the lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Passing {
    tracks: HashMap<u32, Track>,
    /// Those that have ended, until another comes.
    ended: Vec<u32>,
}

impl Passing {
    pub(super) fn add(&mut self, place: u32, track: Track) {
        self.ended.drain(..).for_each(|ended| drop(self.tracks.remove(&ended)));
        if self.tracks.len() < MOST_ITEMS {
            self.tracks.insert(place, track);
        }
    }

    pub(super) fn get(&self, place: u32) -> Option<&Track> {
        self.tracks.get(&place)
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Track> {
        self.tracks.get_mut(&place)
    }

    /// Nothing more will come of it, but who reads along may still ask for its name.
    pub(super) fn end(&mut self, place: u32) {
        self.ended.push(place);
    }

    /// Leaves the latest samples.
    pub(super) fn shorten(track: &mut Track) {
        track.samples.drain(..track.samples.len().saturating_sub(SAMPLES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_ended_is_known_until_another_comes() {
        let mut passing = Passing::default();
        passing.add(7, Track::default());
        passing.end(7);
        assert!(passing.get(7).is_some());
        passing.add(8, Track::default());
        assert!(passing.get(7).is_none() && passing.get_mut(8).is_some());
    }
}
