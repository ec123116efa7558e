//! Which pages of a process have memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use faultless_records::pagemap::{self, ENTRY_BYTES, Page};

use crate::process::{Process, ProcessError};

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

    /// States of `count` pages from `address` on; those above the address space are absent.
    ///
    /// # Errors
    /// [`ProcessError`] when the process has ended.
    pub fn states(&self, address: u64, count: usize) -> Result<Vec<Page>, ProcessError> {
        let mut bytes = vec![0; count * ENTRY_BYTES];
        let start = address / self.page_bytes * ENTRY_BYTES as u64;
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], start + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) => {
                    let file = "pagemap".to_owned();
                    return Err(ProcessError::System { pid: self.pid, file, error });
                }
            }
        }
        // The file ends where the process's memory is gone, and where addresses end.
        bytes.truncate(filled / ENTRY_BYTES * ENTRY_BYTES);
        let mut pages = pagemap::parse(&bytes);
        pages.resize(count, Page::Absent);
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_process_are_seen_to_come() {
        let own = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let map = PageMap::open(&own).unwrap();
        let page = usize::try_from(map.page_bytes()).unwrap();
        // So large that malloc takes it fresh from the kernel, whatever other tests have freed.
        let mut block: Vec<u8> = Vec::with_capacity(40 << 20);
        let first = block.as_ptr().addr().next_multiple_of(page);
        let count = |pages: Vec<Page>| pages.iter().filter(|page| **page == Page::Resident).count();
        assert_eq!(count(map.states(first as u64, 60).unwrap()), 0);
        block.resize(64 * page, 1);
        assert_eq!(count(map.states(first as u64, 60).unwrap()), 60);
        assert_eq!(map.states(u64::MAX - 1, 3).unwrap(), [Page::Absent; 3]);
        drop(block);
    }
}
