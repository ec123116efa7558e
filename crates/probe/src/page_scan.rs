//! `PAGEMAP_SCAN`, since Linux 6.7: which pages of a range are of some kind.

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::libc;

/// The page is in memory.
pub const PRESENT: u64 = 1 << 3;
/// The page is in swap.
pub const SWAPPED: u64 = 1 << 4;
/// The page is the kernel's page of zeros.
pub const ZERO: u64 = 1 << 5;
/// The page is part of a huge one.
pub const HUGE: u64 = 1 << 6;
/// The page is a guard (`MADV_GUARD_INSTALL`), which the kernel calls swapped, too. Kernels before 6.15 refuse to be asked.
pub const GUARD: u64 = 1 << 8;

/// Which pages are wanted, by the kernel's rules: all of `mask` hold, where those of `inverted` must not, and, if there are any, one
/// of `any_of`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Kinds that must hold.
    pub mask: u64,
    /// Those whose opposite is meant.
    pub inverted: u64,
    /// One of these must hold.
    pub any_of: u64,
    /// Kinds that the answer is to tell.
    pub told: u64,
}

/// Neighbouring pages of the same kinds: `struct page_region`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Kinds that hold of those asked for.
    pub categories: u64,
}

/// `struct pm_scan_arg`. Source: the kernel's include/uapi/linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct Request {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl =
    (3 << 30) | ((size_of::<Request>() as libc::Ioctl) << 16) | (0x66 << 8) | 16;

/// Fills `regions` with wanted pages from `start` on; how many, and where the walk ended. None when the kernel does not have the call,
/// or refuses.
#[must_use]
pub fn scan(
    pagemap: &File,
    start: u64,
    end: u64,
    wanted: Wanted,
    regions: &mut [Region],
) -> Option<(usize, u64)> {
    let mut request = Request {
        size: size_of::<Request>() as u64,
        start,
        end,
        regions: regions.as_mut_ptr().expose_provenance() as u64,
        region_count: regions.len() as u64,
        category_inverted: wanted.inverted,
        category_mask: wanted.mask,
        category_anyof: wanted.any_of,
        return_mask: wanted.told,
        ..Request::default()
    };
    // SAFETY: the request and the array it points to are valid for writing during the call, and as long as stated.
    let filled = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut request) };
    Some((usize::try_from(filled).ok()?, request.walk_end))
}
