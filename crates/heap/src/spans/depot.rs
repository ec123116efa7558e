//! What shards have too much of and others too little: batches of spans of large blocks that one thread frees and another allocates, or
//! that come and go in such numbers. A batch changes as a whole: its spans' records and neighbours, which are in other CPUs' caches, need
//! not be looked at, as the span heap would to join and to cut them.

use super::kept::{Batch, LONGEST};
use crate::lock::Lock;
use crate::page_map::{Hint8, Hint32, PageMap};

/// The batches that no shard has.
pub struct Depot {
    /// By length of the spans in granules; the first is not used.
    shelves: [Shelf; LONGEST as usize + 1],
    /// 1: there ever was a batch. Synchronization: the locks of the shards, of which one is held by who puts a batch in.
    is_used: Hint8,
}

/// Batches of spans of one length.
#[repr(align(64))]
struct Shelf {
    stack: Lock<Stack>,
    /// How many granules they are together. Synchronization: written under the lock.
    granules: Hint32,
    /// Whether a shard found none here and had none, since one had reason to keep more. Synchronization: none; a hint.
    is_wanted: Hint8,
}

/// Batches, linked by the records of their first spans.
struct Stack {
    /// 0 for none.
    head: u32,
    batches: u32,
    /// The fewest there were since [`Depot::end_round`].
    least: u32,
}

impl Depot {
    /// No batch.
    pub const fn new() -> Self {
        Self { shelves: [const { Shelf::new() }; LONGEST as usize + 1], is_used: Hint8::new(0) }
    }

    /// Whether spans of so many granules are missed; a hint.
    pub fn is_wanted(&self, granules: u32) -> bool {
        self.shelf(granules).is_wanted.get() != 0
    }

    /// Says that a shard has and finds none here, or that one has more from now on.
    pub fn set_wanted(&self, granules: u32, is_wanted: bool) {
        // Read first: a line that all threads read is written only when it changes.
        if self.is_wanted(granules) != is_wanted {
            self.shelf(granules).is_wanted.set(u8::from(is_wanted));
        }
    }

    /// Granules in all batches; may be old.
    pub fn granules(&self) -> u32 {
        self.shelves.iter().map(|shelf| shelf.granules.get()).sum()
    }

    /// Puts a batch in. Under the lock of what a shard keeps.
    pub fn put(&self, map: &PageMap, batch: Batch) {
        if self.is_used.get() == 0 {
            self.is_used.set(1);
        }
        let shelf = self.shelf(batch.granules);
        let mut stack = shelf.stack.lock();
        let record = map.record(batch.head);
        // While spans are kept nobody else uses these fields.
        record.prev.set(stack.head);
        record.first.set(batch.count);
        stack.head = batch.head;
        stack.batches += 1;
        shelf.granules.set(shelf.granules.get() + batch.count * batch.granules);
    }

    /// Takes a batch of spans of so many granules out.
    pub fn take(&self, map: &PageMap, granules: u32) -> Option<Batch> {
        let shelf = self.shelf(granules);
        if shelf.granules.get() == 0 {
            return None;
        }
        shelf.pop(&mut shelf.stack.lock(), map, granules)
    }

    /// Gives away what was not needed since the last call. `give` is called under a lock, batch by batch: who forks or runs out of memory
    /// waits for what is on its way.
    pub fn end_round(&self, map: &PageMap, mut give: impl FnMut(Batch)) {
        for (granules, shelf) in self.filled() {
            let unneeded = {
                let Stack { batches, least, .. } = &mut *shelf.stack.lock();
                core::mem::replace(least, *batches)
            };
            for _ in 0..unneeded {
                let mut stack = shelf.stack.lock();
                let Some(batch) = shelf.pop(&mut stack, map, granules) else { break };
                give(batch);
            }
        }
    }

    /// Gives any batch away, as [`Depot::end_round`]; false if there is none.
    pub fn give_any(&self, map: &PageMap, give: impl FnOnce(Batch)) -> bool {
        let popped = self.filled().find_map(|(granules, shelf)| {
            let mut stack = shelf.stack.lock();
            let batch = shelf.pop(&mut stack, map, granules)?;
            Some((stack, batch))
        });
        popped.map(|(_stack, batch)| give(batch)).is_some()
    }

    /// The shelves that have any, with the length of what is on them.
    fn filled(&self) -> impl Iterator<Item = (u32, &Shelf)> {
        (0..).zip(&self.shelves).filter(|(_, shelf)| shelf.granules.get() > 0)
    }

    fn shelf(&self, granules: u32) -> &Shelf {
        &self.shelves[granules as usize]
    }

    /// Takes the locks for the time of a fork, if there ever was a batch; nobody locks a shelf that is empty but who puts one in. After
    /// those of all shards.
    pub fn hold_for_fork(&self) {
        if self.is_used.get() != 0 {
            self.shelves.iter().for_each(|shelf| shelf.stack.hold_for_fork());
        }
    }

    /// The other half of [`Depot::hold_for_fork`].
    pub fn release_after_fork(&self) {
        self.shelves.iter().for_each(|shelf| shelf.stack.release_after_fork());
    }
}

impl Shelf {
    const fn new() -> Self {
        Self {
            stack: Lock::new(Stack { head: 0, batches: 0, least: 0 }),
            granules: Hint32::new(0),
            is_wanted: Hint8::new(0),
        }
    }

    /// Takes the batch out that was put in last.
    fn pop(&self, stack: &mut Stack, map: &PageMap, granules: u32) -> Option<Batch> {
        if stack.head == 0 {
            return None;
        }
        let record = map.record(stack.head);
        let batch = Batch { head: stack.head, count: record.first.get(), granules };
        stack.head = record.prev.get();
        stack.batches -= 1;
        stack.least = stack.least.min(stack.batches);
        self.granules.set(self.granules.get() - batch.count * granules);
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_locks_the_shelves_once_there_was_a_batch() {
        let (map, depot) = (PageMap::new(), Depot::new());
        let is_held = || {
            depot.hold_for_fork();
            let is_held = depot.shelf(2).stack.try_lock().is_none();
            depot.release_after_fork();
            is_held
        };
        assert!(!is_held());
        let first = map.reservation.grow(64, 0).unwrap().first;
        depot.put(&map, batch(&map, first));
        depot.take(&map, 2);
        assert!(is_held() && depot.shelf(2).stack.try_lock().is_some());
    }

    /// A batch of two spans of two granules.
    fn batch(map: &PageMap, head: u32) -> Batch {
        map.record(head).next.set(head + 2);
        Batch { head, count: 2, granules: 2 }
    }

    #[test]
    fn batches_are_taken_as_they_were_put_in_and_leave_when_nobody_needed_them_for_a_round() {
        let (map, depot) = (PageMap::new(), Depot::new());
        let first = map.reservation.grow(64, 0).unwrap().first;
        let batches = [0, 4, 8].map(|offset| batch(&map, first + offset));
        batches.into_iter().for_each(|batch| depot.put(&map, batch));
        assert_eq!((depot.granules(), depot.take(&map, 3)), (12, None));
        let left_by = |depot: &Depot| {
            let mut left = Vec::new();
            depot.end_round(&map, |batch| left.push(batch));
            left
        };
        assert_eq!(left_by(&depot), [], "new in this round");
        assert_eq!(depot.take(&map, 2), Some(batches[2]));
        depot.put(&map, batches[2]);
        assert_eq!(left_by(&depot), [batches[2], batches[1]], "one was needed");
        assert_eq!(left_by(&depot), [batches[0]]);
        batches.into_iter().for_each(|batch| depot.put(&map, batch));
        assert_eq!(left_by(&depot), []);
        assert!((0..2).all(|_| depot.give_any(&map, |_| ())), "others needed the memory");
        depot.put(&map, batches[1]);
        assert_eq!(left_by(&depot), [batches[1]], "one of the two was there all the time");
        assert_eq!(left_by(&depot), [batches[0]]);
        assert_eq!((depot.granules(), depot.give_any(&map, |_| ())), (0, false));
        depot.put(&map, batches[1]);
        assert!(depot.give_any(&map, |left| assert_eq!(left, batches[1])));
        assert_eq!((depot.granules(), depot.take(&map, 2)), (0, None));
    }
}
