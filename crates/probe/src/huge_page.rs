//! Whether an address of a process lies in a huge page now: `PAGEMAP_SCAN`, since Linux 6.7.

use std::fs::File;
use std::io;

use nix::libc;

use crate::page_scan::{self, Region, Wanted};
use crate::process_files::page_bytes;

/// The page tables of a process.
#[derive(Debug)]
pub struct PageTables {
    pagemap: File,
    page_bytes: u64,
}

/// Why page tables cannot be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// The process has ended.
    Gone,
    /// It is not permitted.
    Refused,
}

impl Closed {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::Gone,
            _ => Self::Refused,
        }
    }
}

impl PageTables {
    /// Opens those of a process.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn open(pid: i32) -> Result<Self, Closed> {
        let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(|error| Closed::of(&error))?;
        Ok(Self { pagemap, page_bytes: page_bytes() })
    }

    /// Whether the page at an address is a huge one; none when nothing is there any more, or the kernel cannot tell.
    #[must_use]
    pub fn is_huge(&self, address: u64) -> Option<bool> {
        let start = address / self.page_bytes * self.page_bytes;
        let wanted = Wanted {
            mask: page_scan::PRESENT,
            told: page_scan::PRESENT | page_scan::HUGE,
            ..Wanted::default()
        };
        let mut regions = [Region::default()];
        let (found, _) =
            page_scan::scan(&self.pagemap, start, start + self.page_bytes, wanted, &mut regions)?;
        (found == 1).then_some(regions[0].categories & page_scan::HUGE != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two huge pages' worth of fresh memory, of which the second half holds an aligned huge page.
    fn touched(advice: i32) -> u64 {
        const HUGE: usize = 2 << 20;
        // SAFETY: a private mapping of our own at a place of the kernel's choice; the touched byte lies inside.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let base = libc::mmap(std::ptr::null_mut(), 2 * HUGE, protection, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let aligned = base.cast::<u8>().add(base.align_offset(HUGE));
            libc::madvise(aligned.cast(), HUGE, advice);
            aligned.write_volatile(1);
            aligned.expose_provenance() as u64
        }
    }

    #[test]
    fn a_process_that_is_gone_is_told_from_one_that_is_closed_to_us() {
        assert_eq!(PageTables::open(i32::MAX).unwrap_err(), Closed::Gone);
        let of = |number| Closed::of(&io::Error::from_raw_os_error(number));
        let kinds = [libc::ESRCH, libc::EACCES, libc::EPERM].map(of);
        assert_eq!(kinds, [Closed::Gone, Closed::Refused, Closed::Refused]);
    }

    #[test]
    fn huge_pages_are_told_from_small_ones() {
        let tables = PageTables::open(std::process::id().cast_signed()).unwrap();
        let small = touched(libc::MADV_NOHUGEPAGE);
        let Some(is_huge) = tables.is_huge(small) else {
            faultless_skipped::skipped("this kernel has no PAGEMAP_SCAN");
            return;
        };
        assert!(!is_huge);
        assert_eq!(tables.is_huge(small + 5 * tables.page_bytes), None, "nothing is there");
        let setting =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if setting.contains("[never]") || setting.is_empty() {
            faultless_skipped::skipped("this machine makes no huge pages of anonymous memory");
            return;
        }
        // The kernel may have no huge page to give; then the whole range is not there.
        let huge = touched(libc::MADV_HUGEPAGE);
        let far = tables.is_huge(huge + 20 * tables.page_bytes);
        assert_eq!(tables.is_huge(huge), Some(far.is_some()));
        assert_ne!(far, Some(false));
    }
}
