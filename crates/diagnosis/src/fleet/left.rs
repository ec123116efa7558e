//! Who left what is followed and goes on: where one comes back, its life so far is not counted again.

use std::collections::{HashSet, VecDeque};

/// So many are remembered, the latest.
const MOST: usize = 10_000;

/// The number of a process, and when it began in clock ticks after boot.
type Identity = (i32, u64);

/// Processes that left.
#[derive(Debug, Default)]
pub(super) struct Left {
    known: HashSet<Identity>,
    /// In the order in which they left.
    order: VecDeque<Identity>,
}

impl Left {
    pub(super) fn add(&mut self, who: Identity) {
        if self.known.insert(who) {
            self.order.push_back(who);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether it left and was not back since.
    pub(super) fn take(&mut self, who: Identity) -> bool {
        let was_known = self.known.remove(&who);
        if was_known {
            self.order.retain(|other| *other != who);
        }
        was_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_known_until_it_is_back_or_many_others_have_left() {
        let mut left = Left::default();
        left.add((1, 10));
        assert!(!left.take((1, 11)) && left.take((1, 10)) && !left.take((1, 10)));
        left.add((1, 10));
        (0..MOST as u64).for_each(|ticks| left.add((2, ticks)));
        assert!(!left.take((1, 10)) && left.take((2, 0)));
        assert_eq!((left.known.len(), left.order.len()), (MOST - 1, MOST - 1));
    }
}
