//! Whether an address of a process lies in a huge page now: `PAGEMAP_SCAN`, since Linux 6.7.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::libc;

/// The page tables of a process.
#[derive(Debug)]
pub struct PageTables {
    pagemap: File,
}

/// `struct pm_scan_arg`. Source: the kernel's include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_length: u64,
    most_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_any_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_HUGE: u64 = 1 << 6;
/// `PAGEMAP_SCAN`: read and write, 96 bytes, group 'f', number 16.
const SCAN: u64 = 3 << 30 | 96 << 16 | (b'f' as u64) << 8 | 16;

const PAGE_BYTES: u64 = 4096;

impl PageTables {
    /// Opens those of a process; none when that is not permitted or the process is gone.
    #[must_use]
    pub fn open(pid: i32) -> Option<Self> {
        File::open(format!("/proc/{pid}/pagemap")).ok().map(|pagemap| Self { pagemap })
    }

    /// Whether the page at an address is a huge one; none when nothing is there any more, or the kernel cannot tell.
    #[must_use]
    pub fn is_huge(&self, address: u64) -> Option<bool> {
        let start = address / PAGE_BYTES * PAGE_BYTES;
        let mut region = Region::default();
        let mut arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            start,
            end: start + PAGE_BYTES,
            regions: (&raw mut region).expose_provenance() as u64,
            regions_length: 1,
            category_mask: PAGE_IS_PRESENT,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_HUGE,
            ..ScanArguments::default()
        };
        // SAFETY: the request reads and writes the arguments, and writes at most one region; both live during the call.
        let found = unsafe { libc::ioctl(self.pagemap.as_raw_fd(), SCAN as _, &raw mut arguments) };
        (found == 1).then_some(region.categories & PAGE_IS_HUGE != 0)
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
    fn huge_pages_are_told_from_small_ones() {
        let tables = PageTables::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let small = touched(libc::MADV_NOHUGEPAGE);
        let Some(is_huge) = tables.is_huge(small) else {
            eprintln!("this kernel has no PAGEMAP_SCAN");
            return;
        };
        assert!(!is_huge);
        assert_eq!(tables.is_huge(small + 5 * PAGE_BYTES), None, "nothing is there");
        let setting =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if setting.contains("[never]") || setting.is_empty() {
            return;
        }
        // The kernel may have no huge page to give; then the whole range is not there.
        let huge = touched(libc::MADV_HUGEPAGE);
        let far = tables.is_huge(huge + 100 * PAGE_BYTES);
        assert_eq!(tables.is_huge(huge), Some(far.is_some()));
        assert_ne!(far, Some(false));
    }
}
