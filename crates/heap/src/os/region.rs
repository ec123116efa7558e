//! Mappings of regions: aligned as asked, between two guard pages, populated, locked, moved.

use super::descriptor::{Descriptor, HUGE_SIZE_SHIFT};
use super::errno::Errno;
use super::memory::{Call, HugePageAdvice, refused};
use super::syscall::flag::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ_WRITE,
};
use super::syscall::{number, syscall};
use super::thread::page_bytes;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

const PROT_READ: usize = 1;
const MAP_SHARED: usize = 0x01;
const MAP_HUGETLB: usize = 0x4_0000;
const MREMAP_MAYMOVE_FIXED: usize = 1 | 2;
/// Since Linux 5.14.
const MADV_POPULATE_READ: usize = 22;
/// Since Linux 5.14.
const MADV_POPULATE_WRITE: usize = 23;
/// Since Linux 6.1.
const MADV_COLLAPSE: usize = 25;
/// Since Linux 4.4: pages are locked as they are faulted in.
const MLOCK_ONFAULT: usize = 1;
const FUTEX_CMP_REQUEUE_PRIVATE: usize = 4 | 128;
const PR_GET_THP_DISABLE: usize = 42;
/// Since Linux 6.18.
const PR_THP_DISABLE_EXCEPT_ADVISED: isize = 2;
const PR_SET_VMA: usize = 0x5356_4d41;
const PR_SET_VMA_ANON_NAME: usize = 0;

/// What stands behind a region's addresses.
#[derive(Clone, Copy, Debug)]
pub enum Store<'a> {
    /// Memory of this process alone.
    Private,
    /// The same, of huge pages of this many bytes from the kernel's pool.
    PrivateHuge(usize),
    /// A file in memory, or any other.
    File(&'a Descriptor),
}

/// Whether a mapping may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading alone.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    fn protection(self) -> usize {
        match self {
            Self::Read => PROT_READ,
            Self::ReadWrite => PROT_READ_WRITE,
        }
    }
}

fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    // SAFETY: every caller in this module owns the range it names, or asks for a new one.
    Errno::check(unsafe { syscall(number, arguments) })
}

fn unmap_range(from: usize, to: usize) {
    if to > from {
        // Only fails for arguments that are no range of pages.
        let _ = call(number::MUNMAP, [from, to - from, 0, 0, 0, 0]);
    }
}

/// Addresses between two pages without access, which a region is about to take: neighbours cannot grow together with it, and what
/// runs over its end is stopped there.
///
/// A kernel that refuses to put something in their place may have unmapped them before, depending on its version and the reason:
/// `mremap` looks at most limits afterwards (until Linux 6.16; at the commit limit always), `mmap` at a file's own (the pool of huge
/// pages), and until Linux 6.11 at what it may promise (`vm.overcommit_memory`). No error tells, and another thread may have mapped something there by then. So they begin with a mark by which they are
/// known again.
struct Place {
    base: usize,
    bytes: usize,
    /// `None`: there was no page for it.
    mark: Option<u32>,
}

impl Place {
    /// Reserves `bytes` at a multiple of `align`.
    fn reserve(bytes: usize, align: usize) -> Result<Self, Errno> {
        let guard = page_bytes();
        let whole = bytes.checked_add(align + 2 * guard).ok_or(Errno::ENOMEM)?;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        let start = call(number::MMAP, [0, whole, PROT_NONE, flags, usize::MAX, 0])?;
        let base = (start + guard).next_multiple_of(align);
        unmap_range(start, base - guard);
        unmap_range(base + bytes + guard, start + whole);
        Ok(Self { base, bytes, mark: mark(base) })
    }

    /// Gives back what is still ours, after the kernel refused to put something in its place.
    fn give_back(&self) {
        let (guard, end) = (page_bytes(), self.base + self.bytes);
        if self.is_ours() {
            unmap_range(self.base - guard, end + guard);
        } else {
            // The kernel never touches what lies around.
            unmap_range(self.base - guard, self.base);
            unmap_range(end, end + guard);
        }
    }

    /// Whether the mark is still there; a place without one counts as lost.
    fn is_ours(&self) -> bool {
        // With nobody to be woken or moved this compares a word and, other than a load, fails where nothing is mapped.
        let compare = |mark| {
            let arguments = [self.base, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, self.base, mark as usize];
            call(number::FUTEX, arguments).is_ok()
        };
        self.mark.is_some_and(compare)
    }
}

/// Writes a mark of its own to the first page of a place.
fn mark(base: usize) -> Option<u32> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    call(number::MPROTECT, [base, page_bytes(), PROT_READ_WRITE, 0, 0, 0]).ok()?;
    // An odd factor gives every count its own mark, and one that is unlikely to begin somebody else's memory.
    // ORDERING: Relaxed; the counts need only differ.
    let mark = COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b1);
    // SAFETY: the caller just reserved the page and has told nobody, and it is writable by the call above.
    unsafe { core::ptr::with_exposed_provenance_mut::<u32>(base).write(mark) };
    Some(mark)
}

/// Maps `bytes` (a multiple of the page size of `store`) at a multiple of `align`, with a guard page at either end.
///
/// # Errors
/// What `mmap` says.
pub fn map_region(bytes: usize, align: usize, store: Store<'_>, access: Access) -> Result<usize, Errno> {
    if refused(Call::MapRegion) {
        return Err(Errno::ENOMEM);
    }
    let place = Place::reserve(bytes, align)?;
    let (flags, file) = match store {
        Store::Private => (MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX),
        Store::PrivateHuge(page) => {
            let size = (page.trailing_zeros() as usize) << HUGE_SIZE_SHIFT;
            (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | size, usize::MAX)
        }
        Store::File(file) => (MAP_SHARED, file.number() as usize),
    };
    let arguments = [place.base, bytes, access.protection(), flags | MAP_FIXED, file, 0];
    call(number::MMAP, arguments).inspect_err(|_| place.give_back())
}

/// Unmaps a region with its guard pages.
///
/// # Safety
/// The range was mapped by this module and nothing refers to it any more.
pub unsafe fn unmap_region(base: usize, bytes: usize) {
    unmap_range(base - page_bytes(), base + bytes + page_bytes());
}

/// Moves a region's pages to a new place of `to_bytes`, more than now, and returns it.
///
/// # Errors
/// What the kernel says; the region is as it was.
///
/// # Safety
/// The range is a region of this module, and nothing refers to its addresses any more.
pub unsafe fn grow_region(base: usize, bytes: usize, to_bytes: usize, align: usize) -> Result<usize, Errno> {
    if refused(Call::Move) {
        return Err(Errno::ENOMEM);
    }
    let guard = page_bytes();
    let target = Place::reserve(to_bytes, align)?;
    let arguments = [base, bytes, to_bytes, MREMAP_MAYMOVE_FIXED, target.base, 0];
    let moved = call(number::MREMAP, arguments).inspect_err(|_| target.give_back())?;
    unmap_range(base - guard, base);
    unmap_range(base + bytes, base + bytes + guard);
    Ok(moved)
}

/// Gives back a region's end; what is left keeps its place.
///
/// # Errors
/// What the kernel says; the region is as it was.
///
/// # Safety
/// The range is a region of this module, and nothing refers to what is given back.
pub unsafe fn shrink_region(base: usize, bytes: usize, to_bytes: usize) -> Result<(), Errno> {
    let (end, guard) = (base + to_bytes, page_bytes());
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    call(number::MMAP, [end, bytes - to_bytes + guard, PROT_NONE, flags, usize::MAX, 0])?;
    unmap_range(end + guard, base + bytes + guard);
    Ok(())
}

/// Makes a region readable, or readable and writable.
///
/// # Errors
/// What `mprotect` says; nothing has changed.
///
/// # Safety
/// The range is a region of this module, and nobody writes to it once it is to be read only.
pub unsafe fn protect_region(base: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    if refused(Call::Protect) {
        return Err(Errno::ENOMEM);
    }
    call(number::MPROTECT, [base, bytes, access.protection(), 0, 0, 0]).map(drop)
}

/// Asks for transparent huge pages in a region, or for none.
///
/// # Errors
/// What `madvise` says: this kernel has none.
pub fn advise_region(base: usize, bytes: usize, advice: HugePageAdvice) -> Result<(), Errno> {
    call(number::MADVISE, [base, bytes, advice.number(), 0, 0, 0]).map(drop)
}

/// Brings all pages of a part of a region in, as if each was read, or written to without a change.
///
/// # Errors
/// What `madvise` says: `EINVAL` before Linux 5.14, what a filter says that refuses the call, `ENOMEM` when memory ran out, `EFAULT` where access would raise SIGBUS.
pub fn populate_region(from: usize, bytes: usize, access: Access) -> Result<(), Errno> {
    if refused(Call::Populate) {
        return Err(Errno::ENOMEM);
    }
    if refused(Call::KnowPopulate) {
        return Err(Errno::EINVAL);
    }
    if refused(Call::AllowPopulate) {
        return Err(Errno::EPERM);
    }
    let advice = match access {
        Access::Read => MADV_POPULATE_READ,
        Access::ReadWrite => MADV_POPULATE_WRITE,
    };
    call(number::MADVISE, [from, bytes, advice, 0, 0, 0]).map(drop)
}

/// Makes huge pages of a part of a region, each piece of which has a page already, whatever the system's settings are.
///
/// # Errors
/// What `madvise` says: `EINVAL` before Linux 6.1 or where the kernel will not, `ENOMEM`, `EAGAIN` or `EBUSY` when it could not.
pub fn collapse_region(from: usize, bytes: usize) -> Result<(), Errno> {
    if refused(Call::Collapse) {
        return Err(Errno::EINVAL);
    }
    call(number::MADVISE, [from, bytes, MADV_COLLAPSE, 0, 0, 0]).map(drop)
}

/// Keeps a region's pages in memory from the moment they are faulted in.
///
/// # Errors
/// What `mlock2` says: `ENOMEM` or `EPERM` for a limit, `ENOSYS` before Linux 4.4.
pub fn lock_region(base: usize, bytes: usize) -> Result<(), Errno> {
    if refused(Call::LockPages) {
        return Err(Errno::ENOMEM);
    }
    call(number::MLOCK2, [base, bytes, MLOCK_ONFAULT, 0, 0, 0]).map(drop)
}

/// Names a private region in `/proc/PID/maps`; kernels without `CONFIG_ANON_VMA_NAME` do not.
pub fn name_region(base: usize, bytes: usize, name: &CStr) {
    // SAFETY: the kernel reads a C string and remembers it with the mapping.
    unsafe {
        syscall(number::PRCTL, [PR_SET_VMA, PR_SET_VMA_ANON_NAME, base, bytes, name.as_ptr() as usize, 0])
    };
}

/// Whether this process was told to do without transparent huge pages, in memory that [asks for them](advise_region) or in other.
pub fn are_huge_pages_disabled(is_asked: bool) -> bool {
    // SAFETY: asks for flags.
    let flags = unsafe { syscall(number::PRCTL, [PR_GET_THP_DISABLE, 0, 0, 0, 0, 0]) };
    flags > 0 && !(is_asked && flags & PR_THP_DISABLE_EXCEPT_ADVISED != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Whether all of it is mapped, with any access.
    fn is_mapped(from: usize, bytes: usize) -> bool {
        let mut resident = vec![0u8; bytes / page_bytes()];
        // SAFETY: the kernel writes a byte for each page.
        let answer =
            unsafe { syscall(number::MINCORE, [from, bytes, resident.as_mut_ptr() as usize, 0, 0, 0]) };
        answer == 0
    }

    #[test]
    fn a_place_that_another_mapping_took_is_left_to_it() {
        // All of the place, and a part that leaves a hole; the first with a word that could be anything's.
        for (from, bytes) in [(0, MIB), (MIB / 2, MIB / 4)] {
            let place = Place::reserve(MIB, page_bytes()).unwrap();
            assert!(place.is_ours());
            // As the kernel and another thread leave it, without a moment in which other tests could map there.
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
            let other = [place.base, MIB, PROT_READ_WRITE, flags, usize::MAX, 0];
            call(number::MMAP, other).unwrap();
            assert!(!place.is_ours());
            unmap_range(place.base, place.base + from);
            unmap_range(place.base + from + bytes, place.base + MIB);
            place.give_back();
            assert!(is_mapped(place.base + from, bytes), "another's memory was unmapped");
            unmap_range(place.base + from, place.base + from + bytes);
        }
    }

    #[test]
    fn a_place_is_known_again_by_its_own_mark_alone() {
        let places = [0; 3].map(|_| Place::reserve(MIB, page_bytes()).unwrap());
        assert!(places.iter().all(Place::is_ours));
        for (place, other) in [(0, 1), (1, 2), (2, 0)] {
            assert!(!Place { mark: places[other].mark, ..places[place] }.is_ours());
        }
        assert!(!Place { mark: None, ..places[0] }.is_ours());
        places.iter().for_each(Place::give_back);
    }
}
