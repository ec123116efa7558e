//! Which pages of a stretch have memory, and what of it is free: whole pages, and free parts of pages in use.

use super::{Memory, PAGE_BYTES, Page};

/// Pages asked for at once: those of 64 MiB.
pub(super) const WINDOW_PAGES: u64 = 16 * 1024;

/// Pages asked for at once somewhere else: blocks in the cache of a thread lie near each other, and each call costs more than its
/// pages.
const NEAR_PAGES: u64 = 128;

/// The states of pages, read ahead.
pub struct Pages<'memory> {
    memory: &'memory dyn Memory,
    first: u64,
    states: Vec<Page>,
    /// The first of some pages somewhere else, and their states; none where the memory could not tell.
    near: Option<(u64, Option<Vec<Page>>)>,
    is_known: bool,
}

impl<'memory> Pages<'memory> {
    /// Knows nothing yet.
    pub fn new(memory: &'memory dyn Memory) -> Self {
        Self { memory, first: 0, states: Vec::new(), near: None, is_known: true }
    }

    /// Whether the memory could tell; otherwise every page is taken for resident.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.is_known
    }

    /// State of the page with this number.
    pub fn state(&mut self, page: u64) -> Page {
        self.look_at(page);
        usize::try_from(page - self.first)
            .ok()
            .and_then(|index| self.states.get(index))
            .copied()
            .unwrap_or(Page::Absent)
    }

    /// State of a page somewhere else: what is read ahead stays, and only a few neighbours are asked for.
    pub fn lone_state(&mut self, page: u64) -> Page {
        if self.has(page) {
            return self.state(page);
        }
        let first = page - page % NEAR_PAGES;
        let (_, states) = match self.near.take() {
            Some(near) if near.0 == first => self.near.insert(near),
            _ => {
                let states = self.memory.pages(first.saturating_mul(PAGE_BYTES), index(NEAR_PAGES));
                self.near.insert((first, states))
            }
        };
        match states {
            Some(states) => states.get(index(page - first)).copied().unwrap_or(Page::Absent),
            None => Page::Resident,
        }
    }

    /// How many pages from `first` up to `end`, numbers of pages, are in this state.
    pub fn count(&mut self, first: u64, end: u64, state: Page) -> u64 {
        let mut counted = 0;
        let mut page = first;
        while page < end {
            if !self.has(page) {
                // Memory that is mapped and was never touched may be without measure.
                let [address, limit] = [page, end].map(|page| page.saturating_mul(PAGE_BYTES));
                page = self.memory.next_present(address, limit) / PAGE_BYTES;
                if page >= end {
                    break;
                }
            }
            self.look_at(page);
            // No page is looked at then: the range may be as long as a damaged core file says.
            if !self.is_known {
                return counted + if state == Page::Resident { end - page } else { 0 };
            }
            let have = self.first + self.states.len() as u64;
            let until = end.min(have);
            let range = index(page - self.first)..index(until - self.first);
            counted += self.states[range].iter().filter(|page| **page == state).count() as u64;
            page = until;
        }
        counted
    }

    /// Whether the state of this page was read.
    fn has(&self, page: u64) -> bool {
        (self.first..self.first + self.states.len() as u64).contains(&page)
    }

    fn look_at(&mut self, page: u64) {
        if self.has(page) {
            return;
        }
        self.first = page;
        self.states = match self.memory.pages(page.saturating_mul(PAGE_BYTES), index(WINDOW_PAGES)) {
            Some(states) if !states.is_empty() => states,
            answer => {
                self.is_known &= answer.is_some();
                let state = if self.is_known { Page::Absent } else { Page::Resident };
                vec![state; index(WINDOW_PAGES)]
            }
        };
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What the pages of an arena hold, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// Pages with memory.
    pub resident_bytes: u64,
    /// Pages in swap.
    pub swapped_bytes: u64,
    /// Resident pages in which nothing is in use.
    pub whole_free_bytes: u64,
    /// Free parts of resident pages in which something is in use.
    pub pinned_bytes: u64,
}

/// Adds up stretches of used and free bytes, which come in ascending order without a gap between.
pub struct Tally<'pages, 'memory> {
    pages: &'pages mut Pages<'memory>,
    page: u64,
    used_bytes: u64,
    free_bytes: u64,
    /// What was added up.
    pub holding: Holding,
}

impl<'pages, 'memory> Tally<'pages, 'memory> {
    /// Nothing yet.
    pub fn new(pages: &'pages mut Pages<'memory>) -> Self {
        Self { pages, page: 0, used_bytes: 0, free_bytes: 0, holding: Holding::default() }
    }

    /// The pages behind it.
    pub fn pages(&mut self) -> &mut Pages<'memory> {
        self.pages
    }

    /// Counts the bytes from `start` to `end`.
    pub fn add(&mut self, start: u64, end: u64, is_free: bool) {
        let mut at = start;
        while at < end {
            let page = at / PAGE_BYTES;
            if page != self.page {
                self.close();
                self.page = page;
            }
            let until = ((page + 1) * PAGE_BYTES).min(end);
            let is_whole = at == page * PAGE_BYTES && end - at >= PAGE_BYTES;
            if is_whole {
                let behind = end / PAGE_BYTES;
                self.add_whole(page, behind, is_free);
                at = behind * PAGE_BYTES;
                continue;
            }
            *(if is_free { &mut self.free_bytes } else { &mut self.used_bytes }) += until - at;
            at = until;
        }
    }

    /// Counts the last page, too.
    pub fn close(&mut self) {
        let (used, free) = (std::mem::take(&mut self.used_bytes), std::mem::take(&mut self.free_bytes));
        if used + free == 0 {
            return;
        }
        match self.pages.state(self.page) {
            Page::Absent => {}
            Page::Swapped => self.holding.swapped_bytes += PAGE_BYTES,
            Page::Resident => {
                self.holding.resident_bytes += PAGE_BYTES;
                *(if used == 0 {
                    &mut self.holding.whole_free_bytes
                } else {
                    &mut self.holding.pinned_bytes
                }) += free;
            }
        }
    }

    fn add_whole(&mut self, first: u64, end: u64, is_free: bool) {
        let resident_bytes = self.pages.count(first, end, Page::Resident) * PAGE_BYTES;
        self.holding.resident_bytes += resident_bytes;
        if is_free {
            self.holding.whole_free_bytes += resident_bytes;
        }
        // Most heaps have nothing in swap, but counting is cheap beside reading.
        self.holding.swapped_bytes += self.pages.count(first, end, Page::Swapped) * PAGE_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages with these numbers are resident.
    struct Few(Vec<u64>);

    impl Memory for Few {
        fn read(&self, _: u64, _: &mut [u8]) -> bool {
            false
        }

        fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
            let first = address / PAGE_BYTES;
            let state = |page| if self.0.contains(&page) { Page::Resident } else { Page::Absent };
            Some((first..first + count as u64).map(state).collect())
        }
    }

    #[test]
    fn a_page_is_free_as_a_whole_or_pinned_by_what_is_used_in_it() {
        let memory = Few(vec![1, 2, 3, 5]);
        let mut pages = Pages::new(&memory);
        let mut tally = Tally::new(&mut pages);
        tally.add(4096, 4096 + 96, false);
        tally.add(4096 + 96, 3 * 4096 + 160, true);
        tally.add(3 * 4096 + 160, 5 * 4096, false);
        tally.add(5 * 4096, 6 * 4096, true);
        tally.close();
        let expected = Holding {
            resident_bytes: 4 * 4096,
            swapped_bytes: 0,
            whole_free_bytes: 2 * 4096,
            pinned_bytes: 4000 + 160,
        };
        assert_eq!(tally.holding, expected);
    }

    #[test]
    fn where_no_page_is_known_all_are_resident_however_many_there_are() {
        struct Untold;
        impl Memory for Untold {
            fn read(&self, _: u64, _: &mut [u8]) -> bool {
                false
            }
            fn pages(&self, _: u64, _: usize) -> Option<Vec<Page>> {
                None
            }
        }
        let mut pages = Pages::new(&Untold);
        let counted = [Page::Resident, Page::Swapped].map(|state| pages.count(7, 1 << 50, state));
        assert_eq!((counted, pages.is_known()), ([(1 << 50) - 7, 0], false));
    }

    #[test]
    fn pages_between_those_that_have_memory_are_not_asked_for() {
        struct Sparse(std::cell::Cell<u32>);
        const LAST: u64 = 1 << 36;
        impl Memory for Sparse {
            fn read(&self, _: u64, _: &mut [u8]) -> bool {
                false
            }
            fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
                self.0.set(self.0.get() + 1);
                Few(vec![3, LAST]).pages(address, count)
            }
            fn next_present(&self, address: u64, end: u64) -> u64 {
                let pages = [3, LAST].map(|page| page * PAGE_BYTES);
                pages.into_iter().find(|page| *page >= address).unwrap_or(end).min(end)
            }
        }
        let memory = Sparse(std::cell::Cell::new(0));
        let mut pages = Pages::new(&memory);
        assert_eq!(pages.count(0, LAST + 5, Page::Resident), 2);
        assert_eq!(pages.count(LAST + 1, 2 * LAST, Page::Resident), 0);
        assert_eq!(memory.0.get(), 2);
    }

    #[test]
    fn neighbours_somewhere_else_are_asked_for_once() {
        struct Counted(std::cell::Cell<u32>);
        impl Memory for Counted {
            fn read(&self, _: u64, _: &mut [u8]) -> bool {
                false
            }
            fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
                self.0.set(self.0.get() + 1);
                Few(vec![7, 5 * WINDOW_PAGES + 3, 5 * WINDOW_PAGES + NEAR_PAGES]).pages(address, count)
            }
        }
        let memory = Counted(std::cell::Cell::new(0));
        let mut pages = Pages::new(&memory);
        assert_eq!(pages.state(7), Page::Resident);
        let resident = |page: &u64| pages.lone_state(*page) == Page::Resident;
        let elsewhere = 5 * WINDOW_PAGES..5 * WINDOW_PAGES + 2 * NEAR_PAGES;
        let found: Vec<u64> = [7, 8].into_iter().chain(elsewhere).filter(resident).collect();
        assert_eq!(found, [7, 5 * WINDOW_PAGES + 3, 5 * WINDOW_PAGES + NEAR_PAGES]);
        assert_eq!(memory.0.get(), 3);
    }

    #[test]
    fn pages_are_counted_across_the_ends_of_what_is_read_ahead() {
        let memory = Few(vec![10, WINDOW_PAGES + 9, WINDOW_PAGES + 10, 3 * WINDOW_PAGES]);
        let mut pages = Pages::new(&memory);
        assert_eq!(pages.count(10, 3 * WINDOW_PAGES, Page::Resident), 3);
        assert_eq!(pages.count(0, 10, Page::Resident), 0);
        assert_eq!(pages.state(10), Page::Resident);
        assert!(pages.is_known());
    }
}
