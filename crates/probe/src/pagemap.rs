//! Which pages of a process have memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use faultless_records::pagemap::{self, ENTRY_BYTES, Page};

use crate::page_scan::{self, Region, Wanted};
use crate::process::{Process, ProcessError};

/// Pages that were read and never written: the kernel's page of zeros, which `pagemap` calls present and RSS does not count.
const ZERO_PAGES: Wanted = Wanted { mask: page_scan::ZERO, inverted: 0, any_of: 0, told: page_scan::ZERO };

/// Pages in memory or in swap.
const PRESENT_PAGES: Wanted = Wanted {
    mask: 0,
    inverted: 0,
    any_of: page_scan::PRESENT | page_scan::SWAPPED,
    told: page_scan::PRESENT | page_scan::SWAPPED,
};

/// The same without guards, which have no memory.
const PRESENT_NO_GUARDS: Wanted =
    Wanted { mask: page_scan::GUARD, inverted: page_scan::GUARD, ..PRESENT_PAGES };

/// A process's `pagemap`, held open.
#[derive(Debug)]
pub struct PageMap {
    pid: i32,
    file: File,
    page_bytes: u64,
}

impl PageMap {
    /// Opens it.
    ///
    /// # Errors
    /// [`ProcessError`]; needs the right to look into the process.
    pub fn open(process: &Process) -> Result<Self, ProcessError> {
        let file = process.open_file("pagemap")?;
        Ok(Self { pid: process.pid(), file, page_bytes: crate::process_files::page_bytes() })
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// States of `count` pages from `address` on; those above the address space are absent. So are those that were only read, where
    /// the kernel tells (Linux 6.7).
    ///
    /// # Errors
    /// [`ProcessError`] when the process has ended.
    pub fn states(&self, address: u64, count: usize) -> Result<Vec<Page>, ProcessError> {
        let mut pages = self.entries(address, count).map_err(|error| {
            let file = "pagemap".to_owned();
            ProcessError::System { pid: self.pid, file, error }
        })?;
        pages.resize(count, Page::Absent);
        if pages.contains(&Page::Resident) {
            self.leave_out_zeros(address / self.page_bytes * self.page_bytes, &mut pages);
        }
        Ok(pages)
    }

    /// The first page from `start` on that is in memory or in swap, or `end` if there is none below. None where the kernel does not tell
    /// (before Linux 6.7).
    #[must_use]
    pub fn next_present(&self, start: u64, end: u64) -> Option<u64> {
        if start >= end {
            return Some(end);
        }
        let mut first = [Region::default()];
        let mut scan = |wanted| page_scan::scan(&self.file, start, end, wanted, &mut first);
        let (filled, _) = scan(PRESENT_NO_GUARDS).or_else(|| scan(PRESENT_PAGES))?;
        Some(if filled == 0 { end } else { first[0].start })
    }

    fn leave_out_zeros(&self, first: u64, pages: &mut [Page]) {
        let end = first.saturating_add(pages.len() as u64 * self.page_bytes);
        let place = |address: u64| usize::try_from((address - first) / self.page_bytes).unwrap_or(usize::MAX);
        // A kernel without the call leaves them in.
        let _ = self.scan(first, end, ZERO_PAGES, |zeros| {
            pages[place(zeros.start)..place(zeros.end)].fill(Page::Absent);
        });
    }

    /// What the file says of `count` pages from `address` on: of fewer where the process's memory is gone, and where addresses end.
    pub(crate) fn entries(&self, address: u64, count: usize) -> io::Result<Vec<Page>> {
        let mut bytes = vec![0; count * ENTRY_BYTES];
        let start = address / self.page_bytes * ENTRY_BYTES as u64;
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], start + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(pagemap::parse(&bytes[..filled]))
    }

    /// Hands over the runs of wanted pages, by address. None when the kernel does not have the call, or refuses.
    pub(crate) fn scan(
        &self,
        mut start: u64,
        end: u64,
        wanted: Wanted,
        mut take: impl FnMut(&Region),
    ) -> Option<()> {
        let mut regions = [Region::default(); 512];
        while start < end {
            let (filled, walk_end) = page_scan::scan(&self.file, start, end, wanted, &mut regions)?;
            regions.get(..filled)?.iter().for_each(&mut take);
            if walk_end <= start {
                break;
            }
            start = walk_end;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_process_are_seen_to_come() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let map = PageMap::open(&own).unwrap();
        let page = usize::try_from(map.page_bytes()).unwrap();
        // So large that malloc takes it fresh from the kernel, whatever other tests have freed.
        let mut block: Vec<u8> = Vec::with_capacity(40 << 20);
        let first = block.as_ptr().addr().next_multiple_of(page);
        let count = |pages: Vec<Page>| pages.iter().filter(|page| **page == Page::Resident).count();
        assert_eq!(count(map.states(first as u64, 60).unwrap()), 0);
        block.resize(64 * page, 1);
        assert_eq!(count(map.states(first as u64, 60).unwrap()), 60);
        // Other pages of the block may not have been touched.
        let (start, end) =
            (block.as_ptr().addr() as u64 + (20 << 20), block.as_ptr().addr() as u64 + (39 << 20));
        let aligned = |address: u64| address.next_multiple_of(map.page_bytes());
        if let Some(none) = map.next_present(aligned(start), aligned(end)) {
            assert_eq!(none, aligned(end));
            assert_eq!(map.next_present(first as u64, aligned(end)), Some(first as u64));
            block.resize(30 << 20, 1);
            assert_eq!(map.next_present(aligned(start), aligned(end)), Some(aligned(start)));
        }
        assert_eq!(map.states(u64::MAX - 1, 3).unwrap(), [Page::Absent; 3]);
        drop(block);
    }

    #[test]
    fn pages_that_were_only_read_have_no_memory() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let map = PageMap::open(&own).unwrap();
        let page = usize::try_from(map.page_bytes()).unwrap();
        // As large as several answers of the kernel, and so large that it comes fresh.
        let mut block: Vec<u8> = vec![0; 40 << 20];
        let first = block.as_ptr().addr().next_multiple_of(page);
        let from = first - block.as_ptr().addr();
        let count = block.len() / page - 1;
        for place in 0..count {
            let at = from + place * page;
            if place.is_multiple_of(7) {
                block[at] = 1
            } else {
                assert_eq!(std::hint::black_box(block[at]), 0)
            }
        }
        let mut told = [Region::default()];
        if page_scan::scan(&map.file, first as u64, (first + page) as u64, ZERO_PAGES, &mut told).is_none() {
            faultless_skipped::skipped("this kernel has no PAGEMAP_SCAN");
            return;
        }
        let states = map.states(first as u64, count).unwrap();
        let resident: Vec<usize> = (0..count).filter(|place| states[*place] == Page::Resident).collect();
        assert_eq!(resident, (0..count).step_by(7).collect::<Vec<_>>());
    }

    #[test]
    fn guards_have_no_memory_and_are_not_in_swap() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let map = PageMap::open(&own).unwrap();
        let page = usize::try_from(map.page_bytes()).unwrap();
        let block: Vec<u8> = vec![1; 40 << 20];
        let first = block.as_ptr().addr().next_multiple_of(page);
        let guards = |advice| {
            let start = block.as_ptr().with_addr(first + page).cast_mut().cast();
            // SAFETY: these pages of the block are ours, and nobody reads them before the guards are gone.
            unsafe { nix::libc::madvise(start, 8 * page, advice) }
        };
        let (install, remove) = (102, 103);
        if guards(install) != 0 {
            faultless_skipped::skipped("this kernel has no guards");
            return;
        }
        let (second, end) = ((first + page) as u64, (first + 10 * page) as u64);
        let only_guards = Wanted { mask: page_scan::GUARD, told: page_scan::GUARD, ..Wanted::default() };
        let told = page_scan::scan(&map.file, second, end, only_guards, &mut [Region::default()]);
        let (states, next) = (map.states(first as u64, 10), map.next_present(second, end));
        assert_eq!(guards(remove), 0);
        if told.is_none() {
            faultless_skipped::skipped("this kernel does not tell guards from what is in swap");
            return;
        }
        let mut expected = [Page::Absent; 10];
        (expected[0], expected[9]) = (Page::Resident, Page::Resident);
        assert_eq!(states.unwrap(), expected);
        assert_eq!(next, Some(end - page as u64));
        drop(block);
    }
}
