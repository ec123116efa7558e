//! The memory of a live process, read without changing it: only pages that are there are read from it, and what a file mapping
//! has not brought in is read from the file.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use faultless_records::contents::{Contents, Extent, PageRun};
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::Page;

use crate::page_scan::{self, Wanted};
use crate::pagemap::PageMap;
use crate::process::{Memory, Process, ProcessError};

/// Largest range whose `pagemap` is read entry by entry, where the kernel has no call that skips holes: 64 GiB.
const LARGEST_READ_BYTES: u64 = 64 << 30;

/// Pages whose entries are read in one piece: 256 KiB of them.
const PAGES_AT_ONCE: usize = 32_768;

/// The memory of a process and the mappings it had when they were read.
pub struct LiveContents<'process> {
    process: &'process Process,
    mappings: &'process [Mapping],
    memory: Memory,
    pagemap: PageMap,
    page_bytes: u64,
    /// Files of mappings, opened when first needed; none where that failed.
    files: RefCell<HashMap<u64, Option<File>>>,
}

impl<'process> LiveContents<'process> {
    /// Opens the memory of the process.
    ///
    /// # Errors
    /// [`ProcessError`]; needs the right to attach.
    pub fn open(process: &'process Process, mappings: &'process [Mapping]) -> Result<Self, ProcessError> {
        let memory = process.memory()?;
        let pagemap = PageMap::open(process)?;
        let page_bytes = pagemap.page_bytes();
        Ok(Self { process, mappings, memory, pagemap, page_bytes, files: RefCell::default() })
    }

    fn mapping(&self, address: u64) -> Option<&'process Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings[..after].last().filter(|mapping| address < mapping.end)
    }

    /// Reads within one page.
    fn read_in_page(&self, address: u64, buffer: &mut [u8]) -> bool {
        match self.pagemap.entries(address, 1).as_deref() {
            Ok([Page::Resident]) => self.memory.read_at(address, buffer).is_ok(),
            Ok([Page::Absent]) => self.read_file(address, buffer),
            _ => false,
        }
    }

    fn read_file(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(mapping) = self.mapping(address).filter(|mapping| mapping.path().is_some()) else {
            return false;
        };
        let mut files = self.files.borrow_mut();
        let file = files.entry(mapping.start).or_insert_with(|| {
            let path = mapping.path()?;
            // Reading a device may have effects; only plain files are read.
            self.process
                .open_mapped(mapping.start, mapping.end, path, mapping.inode)
                .ok()
                .filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))
        });
        let offset = mapping.offset.saturating_add(address - mapping.start);
        file.as_ref().is_some_and(|file| file.read_exact_at(buffer, offset).is_ok())
    }

    /// By `PAGEMAP_SCAN`, which skips what is not there and knows the zero page; kernels before 6.7 do not have it.
    fn scan(&self, extent: Extent) -> Option<Vec<PageRun>> {
        let mut found = Vec::new();
        self.pagemap.scan(extent.start, extent.end, NOT_ZERO, |region| {
            found.push(PageRun {
                extent: Extent { start: region.start, end: region.end },
                is_swapped: region.categories & page_scan::SWAPPED != 0,
            });
        })?;
        Some(found)
    }

    fn read_entries(&self, extent: Extent) -> Option<Vec<PageRun>> {
        if extent.bytes() > LARGEST_READ_BYTES {
            return None;
        }
        let mut found: Vec<PageRun> = Vec::new();
        let mut address = extent.start / self.page_bytes * self.page_bytes;
        while address < extent.end {
            let pages = (extent.end - address).div_ceil(self.page_bytes);
            let count = usize::try_from(pages).ok()?.min(PAGES_AT_ONCE);
            let pages = self.pagemap.entries(address, count).ok().filter(|pages| pages.len() == count)?;
            for page in pages {
                if page != Page::Absent {
                    let is_swapped = page == Page::Swapped;
                    match found.last_mut() {
                        Some(last) if last.extent.end == address && last.is_swapped == is_swapped => {
                            last.extent.end = address + self.page_bytes;
                        }
                        _ => {
                            let extent = Extent::new(address, self.page_bytes);
                            found.push(PageRun { extent, is_swapped });
                        }
                    }
                }
                address = address.saturating_add(self.page_bytes);
            }
        }
        Some(found)
    }
}

impl Contents for LiveContents<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let in_page = self.page_bytes - address % self.page_bytes;
            let bytes = rest.len().min(usize::try_from(in_page).unwrap_or(rest.len()));
            let (piece, after) = rest.split_at_mut(bytes);
            if !self.read_in_page(address, piece) {
                return false;
            }
            let Some(next) = address.checked_add(bytes as u64) else { return false };
            (address, rest) = (next, after);
        }
        true
    }

    fn pages(&self, extent: Extent) -> Option<Vec<PageRun>> {
        self.scan(extent).or_else(|| self.read_entries(extent))
    }
}

/// In memory or in swap, and not the zero page.
const NOT_ZERO: Wanted = Wanted {
    mask: page_scan::ZERO,
    inverted: page_scan::ZERO,
    any_of: page_scan::PRESENT | page_scan::SWAPPED,
    told: page_scan::SWAPPED,
};

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::mappings;
    use nix::libc;

    fn own() -> (Process, Vec<Mapping>) {
        let process = Process::open(std::process::id().cast_signed()).unwrap();
        let mappings = mappings::parse(&process.read("maps").unwrap()).unwrap();
        (process, mappings)
    }

    #[test]
    fn pages_are_read_where_they_are_and_looking_brings_none_in() {
        let pages = 64;
        let bytes = 4096 * pages;
        // Of the kernel's own: malloc may give what another test has used, and a huge page may come with the first byte.
        // SAFETY: a private mapping of our own at a place of the kernel's choice; what is written lies inside.
        let block = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let block = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            assert_ne!(block, libc::MAP_FAILED);
            libc::madvise(block, bytes, libc::MADV_NOHUGEPAGE);
            block.cast::<u8>().add(4096 * 10).write_bytes(7, 4096 * 2);
            block
        };
        let start = block.addr() as u64;
        let (process, mappings) = own();
        let contents = LiveContents::open(&process, &mappings).unwrap();
        let mut byte = [0];
        assert!(contents.read(start + 4096 * 11 + 5, &mut byte) && byte == [7]);
        assert!(!contents.read(start + 4096 * 40, &mut byte), "never touched");
        let written = Extent::new(start + 4096 * 10, 4096 * 2);
        for found in [
            contents.scan(Extent::new(start, bytes as u64)),
            contents.read_entries(Extent::new(start, bytes as u64)),
        ] {
            // A kernel without the call gives none.
            let Some(found) = found else { continue };
            let extents: Vec<Extent> = found.iter().map(|run| run.extent).collect();
            assert!(extents == [written] && !found[0].is_swapped, "{found:?}");
        }
        // SAFETY: mapped above with this length, and nothing points into it any more.
        unsafe { libc::munmap(block, bytes) };
    }

    #[test]
    fn what_a_file_mapping_has_not_brought_in_comes_from_the_file() {
        let (process, mappings) = own();
        let contents = LiveContents::open(&process, &mappings).unwrap();
        let program = std::env::current_exe().unwrap();
        let is_program = |mapping: &&Mapping| mapping.path() == Some(program.as_os_str().as_encoded_bytes());
        for mapping in mappings.iter().filter(is_program).filter(|mapping| !mapping.is_writable()) {
            let mut bytes = vec![0; usize::try_from(mapping.bytes()).unwrap()];
            assert!(contents.read_file(mapping.start, &mut bytes[..64]));
        }
        assert!(!contents.read(8, &mut [0]));
    }
}
