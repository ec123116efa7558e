//! How much memory may be used and held together: as much as was ever in use, and some more for what does not fit where it is wanted.
//! Near the limit of a container less.

use crate::decay::HOLD_MIN_NS;

/// So many eighths of the largest use more. (`realloc_grow`, whose buffers grow too long for the gaps between others: three times the
/// largest use instead took 1.2 to 1.9 times the memory and 0.97 of the time, a quarter more 0.9 and 1.06.)
const HELD_EIGHTHS: u32 = 3;
/// And so many granules, 2 MiB, where what had to go was missed at once; both together no more than the largest use.
const MORE_MAX: u32 = 32;
/// This part of a limit is spared for what is not of the heap, and what a large block brings in before anything goes.
const LIMIT_SPARED: u32 = 8;

/// What is known of the room that a heap's free memory needs; in granules, times in ns. Pure.
pub struct Room {
    /// Room beyond the usual, of which it was seen that it was missed.
    more: u32,
    /// What went before its time, for want of room, and was not missed yet.
    exceeded: u32,
    /// When that went last.
    exceeded_at: u64,
    /// What a limit leaves for all that the heap uses and holds; 0 for none.
    limit: u32,
}

impl Room {
    pub const fn new() -> Self {
        Self { more: 0, exceeded: 0, exceeded_at: 0, limit: 0 }
    }

    /// A limit leaves so much; 0: there is none.
    pub fn set_limit(&mut self, granules: u32) {
        self.limit = granules;
    }

    /// Most that may be used and held where so much is used, and was at most. What uses more than the limit is not all resident, and the
    /// limit says nothing about it.
    pub fn most(&self, used: u32, used_peak: u32) -> u32 {
        let eighth = used_peak / 8;
        let most = used_peak + eighth * HELD_EIGHTHS + self.more.min(eighth * (8 - HELD_EIGHTHS));
        if self.limit == 0 || used > self.limit {
            return most;
        }
        most.min(self.limit - self.limit / LIMIT_SPARED).max(used)
    }

    /// Held memory is being purged before its time: there is no room for it.
    pub fn exceeded(&mut self, granules: u32, now: u64) {
        self.exceeded = self.exceeded.saturating_add(granules);
        self.exceeded_at = now;
    }

    /// Held memory was not wanted in time: so much room was not needed.
    pub fn expired(&mut self, granules: u32) {
        self.more = self.more.saturating_sub(granules);
    }

    /// Memory without pages was taken: it would have been what went, had there been room.
    pub fn faulted(&mut self, granules: u32, now: u64) {
        if self.exceeded == 0 {
            return;
        }
        if now.saturating_sub(self.exceeded_at) > HOLD_MIN_NS {
            self.exceeded = 0;
            return;
        }
        let missed = granules.min(self.exceeded);
        self.exceeded -= missed;
        self.more = (self.more + missed).min(MORE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_three_eighths_of_the_largest_use_and_as_much_as_was_missed() {
        let mut room = Room::new();
        assert_eq!(room.most(0, 800), 1100);
        room.faulted(17, 1);
        assert_eq!(room.most(0, 800), 1100, "nothing had to go");
        room.exceeded(20, 1);
        room.faulted(17, 2);
        room.faulted(17, 2);
        assert_eq!(room.most(0, 800), 1120);
        room.exceeded(20, 3);
        room.faulted(20, 4 + HOLD_MIN_NS);
        assert_eq!(room.most(0, 800), 1120, "not soon");
        room.exceeded(2, 5 + HOLD_MIN_NS);
        room.faulted(20, 5 + HOLD_MIN_NS);
        assert_eq!(room.most(0, 800), 1122, "what went before that is not missed any more");
        room.expired(2);
        room.expired(15);
        assert_eq!(room.most(0, 800), 1105);
        room.expired(15);
        assert_eq!(room.most(0, 800), 1100);
    }

    #[test]
    fn it_is_never_more_than_2_mib_beyond_nor_twice_the_largest_use() {
        let mut room = Room::new();
        room.exceeded(1000, 0);
        room.faulted(1000, 0);
        assert_eq!([800, 80, 8].map(|used_peak| room.most(0, used_peak)), [1132, 142, 16]);
    }

    #[test]
    fn near_a_limit_less_is_held_and_nothing_where_seven_eighths_of_it_are_used() {
        let mut room = Room::new();
        let most = |room: &Room, used| room.most(used, 800);
        room.set_limit(2000);
        assert_eq!([0, 800].map(|used| most(&room, used)), [1100; 2], "far from it");
        room.set_limit(1000);
        assert_eq!([0, 700, 875, 900, 1000].map(|used| most(&room, used)), [875, 875, 875, 900, 1000]);
        assert_eq!(most(&room, 1001), 1100, "that is not all resident");
    }
}
