//! Which pages had memory at one moment, for processes with pages in swap.
//!
//! Reading a page that is in swap brings it in, and pushes another out where memory is limited. Who asks for the states of pages as it
//! reads then finds in swap what it pushed out itself.

use super::pages::WINDOW_PAGES;
use super::{Area, Memory, PAGE_BYTES, Page};

/// The states of a process's writable pages at the moment when this was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageStates {
    /// Pages of one state, by their numbers, in ascending order; those between have no memory.
    runs: Vec<(std::ops::Range<u64>, Page)>,
}

impl PageStates {
    /// Asks for them; none where the memory cannot tell.
    #[must_use]
    pub fn of(memory: &dyn Memory, areas: &[Area]) -> Option<Self> {
        let mut states = Self { runs: Vec::new() };
        for area in areas.iter().filter(|area| area.is_writable) {
            let end = area.end / PAGE_BYTES;
            let present = |page: u64| memory.next_present(page * PAGE_BYTES, area.end) / PAGE_BYTES;
            let mut page = present(area.start / PAGE_BYTES);
            while page < end {
                let count = WINDOW_PAGES.min(end - page);
                // Of a process that has ended there are fewer states, or none.
                let answer = memory.pages(page * PAGE_BYTES, usize::try_from(count).ok()?)?;
                (page..).zip(answer).for_each(|(page, state)| states.push(page, state));
                page = present(page + count);
            }
        }
        Some(states)
    }

    fn push(&mut self, page: u64, state: Page) {
        match self.runs.last_mut() {
            _ if state == Page::Absent => {}
            Some((pages, last)) if pages.end == page && *last == state => pages.end += 1,
            _ => self.runs.push((page..page + 1, state)),
        }
    }

    /// As [`Memory::pages`].
    #[must_use]
    pub fn pages(&self, address: u64, count: usize) -> Vec<Page> {
        let first = address / PAGE_BYTES;
        let end = first.saturating_add(count as u64);
        let mut states = vec![Page::Absent; count];
        for (pages, state) in self.from(first).take_while(|(pages, _)| pages.start < end) {
            let place = |page: u64| usize::try_from(page.clamp(first, end) - first).unwrap_or(count);
            states[place(pages.start)..place(pages.end)].fill(*state);
        }
        states
    }

    /// As [`Memory::next_present`].
    #[must_use]
    pub fn next_present(&self, address: u64, end: u64) -> u64 {
        let next = self.from(address / PAGE_BYTES).next();
        next.map_or(end, |(pages, _)| (pages.start * PAGE_BYTES).max(address)).min(end)
    }

    /// The runs from the one on that has this page, or is the first behind it.
    fn from(&self, page: u64) -> impl Iterator<Item = &(std::ops::Range<u64>, Page)> {
        self.runs[self.runs.partition_point(|(pages, _)| pages.end <= page)..].iter()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// One page fits in: reading another brings it in and pushes that one out.
    struct Limited(RefCell<Vec<Page>>);

    impl Memory for Limited {
        fn read(&self, address: u64, _: &mut [u8]) -> bool {
            let mut pages = self.0.borrow_mut();
            pages.iter_mut().filter(|page| **page == Page::Resident).for_each(|page| *page = Page::Swapped);
            pages[usize::try_from(address / PAGE_BYTES).unwrap()] = Page::Resident;
            true
        }

        fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
            let first = usize::try_from(address / PAGE_BYTES).unwrap();
            Some(self.0.borrow().iter().copied().skip(first).take(count).collect())
        }
    }

    fn area(pages: std::ops::Range<u64>) -> Area {
        let [start, end] = [pages.start, pages.end].map(|page| page * PAGE_BYTES);
        Area { start, end, is_writable: true, is_anonymous: true, is_break: false }
    }

    /// A process of whose pages the kernel says this, whichever it is asked for.
    struct Answering(Option<Vec<Page>>);

    impl Memory for Answering {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            false
        }

        fn pages(&self, _: u64, _: usize) -> Option<Vec<Page>> {
            self.0.clone()
        }
    }

    #[test]
    fn pages_stay_what_they_were_before_the_first_was_read() {
        use Page::{Absent, Resident, Swapped};
        let before = vec![Absent, Resident, Swapped, Swapped, Absent, Swapped, Resident];
        let memory = Limited(RefCell::new(before.clone()));
        let states = PageStates::of(&memory, &[area(0..4), area(4..7)]).unwrap();
        assert!(memory.read(3 * PAGE_BYTES, &mut []));
        assert_ne!(memory.pages(0, 7).unwrap(), before);
        assert_eq!(states.pages(0, 7), before);
        assert_eq!(states.pages(2 * PAGE_BYTES + 5, 4), [Swapped, Swapped, Absent, Swapped]);
        assert_eq!(states.pages(6 * PAGE_BYTES, 3), [Resident, Absent, Absent]);
        let next =
            [0, 1, 2, 4, 7].map(|page| states.next_present(page * PAGE_BYTES, 9 * PAGE_BYTES) / PAGE_BYTES);
        assert_eq!(next, [1, 1, 2, 5, 9]);
        assert_eq!(states.next_present(PAGE_BYTES / 2, PAGE_BYTES), PAGE_BYTES);
    }

    #[test]
    fn a_process_that_ends_meanwhile_is_not_waited_for() {
        let ended = Answering(Some(Vec::new()));
        let states = PageStates::of(&ended, &[area(0..4), area(9..2 * WINDOW_PAGES)]).unwrap();
        assert_eq!(states.next_present(0, 5 * PAGE_BYTES), 5 * PAGE_BYTES);
    }

    #[test]
    fn what_the_kernel_cannot_tell_is_not_told() {
        assert_eq!(PageStates::of(&Answering(None), &[area(0..4)]), None);
    }
}
