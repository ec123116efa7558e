//! A walk that has to end before it is through.

use std::cell::Cell;

use super::*;
use crate::glibc_heap::arenas::{self, Search};
use crate::glibc_heap::walk;

/// Heaps of a process that goes on when the walk has asked so often whether it has to end.
struct Impatient {
    made: Made,
    questions_left: Cell<u32>,
    looks: Cell<u32>,
}

impl Impatient {
    fn new(made: &Made, questions: u32) -> Self {
        Self { made: made.clone(), questions_left: Cell::new(questions), looks: Cell::new(0) }
    }
}

impl Memory for Impatient {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.looks.update(|looks| looks + 1);
        self.made.read(address, buffer)
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        self.looks.update(|looks| looks + 1);
        self.made.pages(address, count)
    }

    fn changes(&self) -> bool {
        false
    }

    fn is_overdue(&self) -> bool {
        let left = self.questions_left.get();
        self.questions_left.set(left.saturating_sub(1));
        left == 0
    }
}

#[test]
fn a_walk_that_has_to_end_marks_what_it_did_not_come_to_and_a_later_one_knows_it() {
    let layout = Layout::of((2, 36)).unwrap();
    // Blocks of several windows.
    let blocks = [(0x1000, Make::Used), (0x1000, Make::Free)].repeat(100);
    let made = Made::new(layout, &blocks);
    let whole = made.walked(layout);
    assert!(whole.is_exact());
    let walked_in = |questions| {
        let memory = Impatient::new(&made, questions);
        let areas = made.areas();
        let data = Data::read(&memory, (DATA, DATA + DATA_BYTES)).unwrap();
        match choice::walk(&memory, &areas, &data, Some((2, 36))) {
            Outcome::Walked(walk) => *walk,
            outcome => panic!("{outcome:?}"),
        }
    };
    let mut cut = walked_in(1);
    assert_eq!(cut.arenas.len(), 2);
    assert_eq!((cut.arenas[0].flaw, cut.overdue_arenas()), (Some(Flaw::Overdue), 2));
    cut.improve(whole.clone());
    assert_eq!((cut.total, cut.arenas.len()), (whole.total.clone(), 2));
    let unhurried = walked_in(u32::MAX);
    assert_eq!((unhurried.is_exact(), unhurried.total), (true, whole.total));
}

#[test]
fn arenas_that_there_is_no_time_for_are_not_looked_at() {
    let layout = Layout::of((2, 36)).unwrap();
    let made = Made::new(layout, &[(0x1000, Make::Used), (0x1000, Make::Free)]);
    let (memory, areas) = (Impatient::new(&made, 0), made.areas());
    let data = Data::read(&memory, (DATA, DATA + DATA_BYTES)).unwrap();
    let Search::Arenas(ring) = arenas::search(&memory, &areas, &data, layout) else { panic!("no arenas") };
    let looks = memory.looks.get();
    assert_eq!(walk::walk(&memory, &areas, &ring).overdue_arenas(), 2);
    assert_eq!(memory.looks.get(), looks);
}
