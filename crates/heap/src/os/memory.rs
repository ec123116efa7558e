//! Address space: reserve, commit, purge, move, and the calls that may be refused.

mod moving;

use super::advice::{MADV_DONTNEED, announce, discard};
use super::errno::Errno;
use super::sandbox::{is_in_sandbox, optional_call};
use super::syscall::flag::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ_WRITE,
};
use super::syscall::{number, syscall};
use super::{exact_now_ns, page_bytes};
use core::sync::atomic::{AtomicU8, Ordering};
pub use moving::{Moved, move_pages, note_overcommit};

const MAP_FIXED_NOREPLACE: usize = 0x10_0000;
const MADV_DONTDUMP: usize = 16;
const MADV_DODUMP: usize = 17;
/// Since Linux 5.4.
const MADV_COLD: usize = 20;

/// Calls that fault injection can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// Making reserved pages usable.
    Commit = 1,
    /// Giving pages back.
    Purge = 2,
    /// Moving page tables.
    Move = 4,
    /// Mapping a region.
    MapRegion = 8,
    /// Populating a region.
    Populate = 16,
    /// Making huge pages out of what is there.
    Collapse = 32,
    /// Locking a region's pages.
    LockPages = 64,
    /// Making a region read-only or writable again.
    Protect = 128,
    /// Making a memory file.
    CreateFile = 256,
    /// Starting a thread.
    StartThread = 512,
    /// Populating, as a kernel does that has no call for it.
    KnowPopulate = 1024,
    /// Using a huge page.
    HugePage = 2048,
    /// Keeping the target of a move that is refused.
    KeepTarget = 4096,
    /// Promising memory.
    Promise = 8192,
    /// Moving page tables, when the kernel has unmapped the target already.
    MoveLate = 32_768,
    /// Replacing a mapping by a fresh one.
    Renew = 16_384,
    /// Populating, as a filter does that does not allow the call.
    AllowPopulate = 65_536,
    /// Promising more memory than there is.
    Overcommit = 131_072,
}

#[cfg(test)]
std::thread_local! {
    /// Bits of the [`Call`]s that fail on this thread from now on.
    pub static REFUSED: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
    /// So many mappings are moved before a move fails.
    pub static MOVES_BEFORE: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

#[cfg(test)]
pub(super) fn refused(call: Call) -> bool {
    REFUSED.get() & call as u32 != 0
}

#[cfg(not(test))]
pub(super) fn refused(_call: Call) -> bool {
    false
}

fn map(address: usize, bytes: usize, protection: usize, extra_flags: usize) -> Option<usize> {
    map_counted(address, bytes, protection, MAP_NORESERVE | extra_flags)
}

/// As [`map`], and the kernel counts what may be written as memory that it promises, unless it is told not to.
fn map_counted(address: usize, bytes: usize, protection: usize, extra_flags: usize) -> Option<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | extra_flags;
    // SAFETY: the public functions of this module that pass MAP_FIXED own the range; without it, and with
    // MAP_FIXED_NOREPLACE, the kernel never touches an existing mapping.
    let answer = unsafe { syscall(number::MMAP, [address, bytes, protection, flags, usize::MAX, 0]) };
    Errno::check(answer).ok()
}

/// Reserves `bytes` of address space without access, anywhere. Core dumps leave it out.
pub fn reserve(bytes: usize) -> Option<usize> {
    map(0, bytes, PROT_NONE, 0).inspect(|&address| set_dumped(address, bytes, false))
}

/// Reserves exactly `address..address + bytes`; fails if anything is mapped there. Core dumps leave it out.
pub fn reserve_at(address: usize, bytes: usize) -> bool {
    match map(address, bytes, PROT_NONE, MAP_FIXED_NOREPLACE) {
        Some(got) if got == address => {
            set_dumped(address, bytes, false);
            true
        }
        // A kernel before 4.17 takes the address as a hint only.
        Some(elsewhere) => {
            // SAFETY: just mapped by us, and given to nobody.
            unsafe { unmap(elsewhere, bytes) };
            false
        }
        None => false,
    }
}

/// Whether dumps include a range of ours: gdb's `gcore` writes what is merely reserved as zeros, on and on. Where the kernel refuses,
/// dumps are larger or smaller than they should be.
fn set_dumped(address: usize, bytes: usize, is_dumped: bool) {
    let advice = if is_dumped { MADV_DODUMP } else { MADV_DONTDUMP };
    // SAFETY: the advice changes no contents.
    _ = unsafe { advise(address, bytes, advice) };
}

/// Maps `bytes` of zeroed memory for the allocator's own records.
pub fn map_records(bytes: usize) -> Option<usize> {
    map(0, bytes, PROT_READ_WRITE, 0)
}

/// Whether the kernel promises nobody so many bytes, as there is not that much memory (`vm.overcommit_memory=0`). It is not asked where
/// memory is committed, which may stay untouched: the answer would be about the step, not about what the program wants. False where
/// a limit of the process is in the way: that decides by itself.
pub fn is_more_than_memory(bytes: usize) -> bool {
    let grants = |flags| {
        let address = map_counted(0, bytes, PROT_READ_WRITE, flags);
        if let Some(address) = address {
            // SAFETY: just mapped by us, and given to nobody.
            unsafe { unmap(address, bytes) };
        }
        address.is_some()
    };
    if refused(Call::Promise) {
        return true;
    }
    // To ask would bring it in.
    !are_new_pages_locked() && !grants(0) && grants(MAP_NORESERVE)
}

/// Whether what is mapped from now on is locked, so that it gets pages at once (`mlockall`).
pub fn are_new_pages_locked() -> bool {
    let bytes = page_bytes();
    let Some(page) = map(0, bytes, PROT_NONE, 0) else { return false };
    // SAFETY: just mapped by us, and given to nobody.
    unsafe {
        let is_locked = !discard_unless_locked(page);
        unmap(page, bytes);
        is_locked
    }
}

/// Unmaps a range.
///
/// # Safety
/// The range was mapped by this module and nothing refers to it any more.
pub unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller owns the range.
    unsafe { syscall(number::MUNMAP, [address, bytes, 0, 0, 0, 0]) };
}

/// Makes reserved pages readable and writable; they read as zero. False: the kernel refused, nothing changed.
///
/// # Safety
/// The range lies in a reservation of this module.
pub unsafe fn commit(address: usize, bytes: usize) -> bool {
    // SAFETY: the caller's range is reserved for the allocator, so nobody relies on its protection.
    let is_done = !refused(Call::Commit)
        && unsafe { syscall(number::MPROTECT, [address, bytes, PROT_READ_WRITE, 0, 0, 0]) } == 0;
    if is_done {
        set_dumped(address, bytes, true);
    }
    is_done
}

/// Gives the pages of a committed range back; they read as zero afterwards. False: refused (a seccomp filter, locked pages),
/// the contents may be partly gone, and are else as they were: records of free granules go this way, too.
///
/// # Safety
/// The range is committed, and nobody needs its contents.
pub unsafe fn purge(address: usize, bytes: usize) -> bool {
    // ORDERING: Relaxed; what is known of the kernel, and whoever finds out finds the same.
    let known = PURGES.load(Ordering::Relaxed);
    if refused(Call::Purge) || known == PURGES_DO_NOTHING {
        return false;
    }
    // SAFETY: the caller gives the contents up.
    let discard = || unsafe { discard(address, bytes) };
    // Who freed locked pages needs them locked no more. Who locks all memory wants no faults, and would fault it in again.
    let give_back = || match discard() {
        Err(Errno::EINVAL) => !locks_all() && unlock(address, bytes) && discard().is_ok(),
        result => result.is_ok(),
    };
    if known == PURGES_CLEAR {
        return give_back();
    }
    let mark = core::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: committed memory, whose contents the caller gives up; volatile, for the kernel changes them.
    unsafe {
        let before = mark.read_volatile();
        mark.write_volatile(1);
        let is_done = give_back();
        let is_clear = mark.read_volatile() == 0;
        if !is_clear {
            mark.write_volatile(before);
        }
        if is_done {
            // ORDERING: Relaxed, as above.
            PURGES.store(if is_clear { PURGES_CLEAR } else { PURGES_DO_NOTHING }, Ordering::Relaxed);
        }
        is_done && is_clear
    }
}

/// Whether pages that were given back read as zero; 0 until the first time. qemu-user before 7.1 says that it has done it and does
/// nothing, and what `calloc` takes for clean would not be.
static PURGES: AtomicU8 = AtomicU8::new(0);
const PURGES_CLEAR: u8 = 1;
const PURGES_DO_NOTHING: u8 = 2;

/// `madvise`.
///
/// # Safety
/// What the advice does to the range is no harm to anybody.
unsafe fn advise(address: usize, bytes: usize, advice: usize) -> Result<usize, Errno> {
    // SAFETY: the caller's contract is the same.
    Errno::check(unsafe { syscall(number::MADVISE, [address, bytes, advice, 0, 0, 0]) })
}

/// `munlock`. False: a filter refused it.
fn unlock(address: usize, bytes: usize) -> bool {
    // SAFETY: which pages are locked changes no contents.
    Errno::check(unsafe { optional_call(number::MUNLOCK, [address, bytes, 0, 0, 0, 0]) }).is_ok()
}

/// Discards what the page at an address holds, unless it is locked. Returns whether it is not; also true where the kernel does not tell.
///
/// # Safety
/// Nobody needs its contents.
pub unsafe fn discard_unless_locked(address: usize) -> bool {
    // SAFETY: the caller gives the contents up.
    unsafe { advise(address, page_bytes(), MADV_DONTNEED) != Err(Errno::EINVAL) }
}

/// Whether the process locks all of its memory, or all that is to come (`mlockall`): whether pages are locked that only that could lock.
#[cold]
fn locks_all() -> bool {
    /// Of a page inside nothing is ever used.
    static UNUSED: [AtomicU8; 2 * 4096] = [const { AtomicU8::new(0) }; 2 * 4096];
    let page = page_bytes();
    // SAFETY: pages that nobody uses.
    unsafe {
        let unused = (&raw const UNUSED).addr().next_multiple_of(page);
        page <= UNUSED.len() / 2 && !discard_unless_locked(unused) || are_new_pages_locked()
    }
}

/// Replaces a committed range by a fresh mapping, which also joins mappings that [`move_pages`] split. False: a limit of the process or a
/// filter refused it, and the range is as it was.
///
/// Before Linux 6.12 the kernel first unmaps what it replaces and then looks whether it may promise as much, which it does here only with
/// `vm.overcommit_memory=2`: other processes may have got it meanwhile, and a hole be left that others map into. So there [`move_pages`]
/// splits nothing, and there is nothing to be renewed.
///
/// # Safety
/// The range is committed, and nobody needs its contents.
pub unsafe fn renew(address: usize, bytes: usize) -> bool {
    if refused(Call::Purge) || refused(Call::Renew) {
        return false;
    }
    // SAFETY: the caller gives the contents up.
    unsafe { announce(address, bytes) };
    map(address, bytes, PROT_READ_WRITE, MAP_FIXED).is_some()
}

/// What the kernel may do with huge pages in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePageAdvice {
    /// Never use them here.
    Never,
    /// Use them where possible.
    Always,
}

impl HugePageAdvice {
    pub(super) fn number(self) -> usize {
        const MADV_HUGEPAGE: usize = 14;
        const MADV_NOHUGEPAGE: usize = 15;
        match self {
            Self::Never => MADV_NOHUGEPAGE,
            Self::Always => MADV_HUGEPAGE,
        }
    }
}

/// Tells the kernel about huge pages; a refusal changes nothing that matters.
///
/// # Safety
/// The range lies in a reservation of this module.
pub unsafe fn advise_huge_pages(address: usize, bytes: usize, advice: HugePageAdvice) {
    // SAFETY: this advice changes no contents.
    _ = unsafe { advise(address, bytes, advice.number()) };
}

/// Bytes of the huge page that the kernel uses where pages are of 4 KiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A page that is in the page tables is read within this time in ns, one that must be faulted in is not.
const PRESENT_NS: u64 = 150;

/// Brings in one huge page, where the kernel has one. Returns whether it is one, as far as the time tells that the next pages take.
/// The advice holds no longer than this takes: in what was purged of such memory later the kernel would put huge pages by itself.
///
/// # Safety
/// The range is committed, a multiple of [`HUGE_PAGE_BYTES`] in address, and the caller's own; it reads as zero.
pub unsafe fn populate_huge_page(address: usize) -> bool {
    if refused(Call::HugePage) {
        return false;
    }
    // SAFETY: advice changes no contents.
    unsafe { advise_huge_pages(address, HUGE_PAGE_BYTES, HugePageAdvice::Always) };
    // SAFETY: the caller's own memory.
    let touch = |page: usize| unsafe { ((address + page * page_bytes()) as *mut u8).write_volatile(0) };
    touch(0);
    let fastest = (1..4)
        .map(|page| {
            let begun_ns = exact_now_ns();
            touch(page);
            exact_now_ns() - begun_ns
        })
        .min();
    // SAFETY: as above.
    unsafe { advise_huge_pages(address, HUGE_PAGE_BYTES, HugePageAdvice::Never) };
    fastest.is_some_and(|fastest_ns| fastest_ns < PRESENT_NS)
}

/// Makes small pages of the huge page that `address` lies in, so that a part of it can be given back: without, the kernel keeps
/// the memory of what is purged until the rest goes, too, or it runs short. No huge page, or an older kernel: nothing happens.
///
/// # Safety
/// The page at `address` is committed, and nobody needs its contents.
pub unsafe fn break_huge_page(address: usize) {
    // SAFETY: advice changes no contents.
    _ = unsafe { advise(address, page_bytes(), MADV_COLD) };
}

/// Whether a page holds nothing but zeros.
///
/// # Safety
/// It is committed, and nobody writes to it meanwhile.
pub unsafe fn holds_zeros(page: usize) -> bool {
    let words = page_bytes() / size_of::<usize>();
    // SAFETY: all of the page is readable, which the caller guarantees; volatile, as nobody need have written it.
    (0..words).all(|word| unsafe { (page as *const usize).add(word).read_volatile() } == 0)
}

/// What the kernel says of each page of a range that starts with one, the highest byte.
#[cfg(test)]
fn page_states(address: usize, bytes: usize) -> impl Iterator<Item = u8> {
    use std::os::unix::fs::FileExt;
    let page = page_bytes();
    let mut entries = vec![0; bytes.div_ceil(page) * 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut entries, (address / page * 8) as u64).unwrap();
    (7..entries.len()).step_by(8).map(move |place| entries[place])
}

/// Pages of a range that are in memory.
#[cfg(test)]
pub fn resident_pages(address: usize, bytes: usize) -> usize {
    page_states(address, bytes / page_bytes() * page_bytes()).filter(|state| state & 0x80 != 0).count()
}

/// Pages of a range that are neither in memory nor on their way from one place there to another.
#[cfg(test)]
pub fn missing_pages(address: usize, bytes: usize) -> usize {
    page_states(address, bytes).filter(|state| state & 0xc0 == 0).count()
}

/// A limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ResourceLimit {
    /// Largest file that it may make, also in memory.
    FileSize = 1,
    /// Private writable memory.
    Data = 2,
    /// Locked memory.
    LockedMemory = 8,
    /// Addresses.
    AddressSpace = 9,
}

/// The soft limit in bytes, if there is one.
pub fn resource_limit(limit: ResourceLimit) -> Option<usize> {
    let mut pair = [0; 2];
    // SAFETY: only the pair is written.
    let answer = unsafe { change_limit(0, limit as u32, core::ptr::null(), &mut pair) };
    (answer == 0 && pair[0] != u64::MAX).then_some(pair[0] as usize)
}

/// As [`resource_limit`], after the start: of a program that restricts its system calls it is not known.
#[inline(never)]
pub fn later_resource_limit(limit: ResourceLimit) -> Option<usize> {
    if is_in_sandbox() { None } else { resource_limit(limit) }
}

/// A soft and a hard limit, as the kernel has them.
pub type LimitPair = [u64; 2];

/// Sets a limit of a process (0: this one), and tells what it was before. 0, or the negative number of an error.
///
/// # Safety
/// `new` is null or may be read, `old` is null or may be written.
pub unsafe fn change_limit(pid: i32, resource: u32, new: *const LimitPair, old: *mut LimitPair) -> isize {
    let arguments = [pid as usize, resource as usize, new as usize, old as usize, 0, 0];
    // SAFETY: the caller's contract is the same.
    unsafe { syscall(number::PRLIMIT64, arguments) }
}

/// The limit on addresses, where it may be what keeps this process from mapping more. As long as there is room the kernel is not asked for
/// the limit itself: a program may have left itself a few system calls by now, which include those for mapping.
pub fn address_space_limit_met() -> Option<usize> {
    match map(0, 1, PROT_NONE, 0) {
        Some(page) => {
            // SAFETY: just mapped by us, and given to nobody.
            unsafe { unmap(page, 1) };
            None
        }
        None => later_resource_limit(ResourceLimit::AddressSpace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_purge_that_is_refused_leaves_what_it_looked_at() {
        let address = map_records(page_bytes()).unwrap() + 8;
        let byte = core::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the test's own page; the kernel refuses what begins inside one.
        unsafe {
            byte.write_volatile(7);
            PURGES.store(0, Ordering::Relaxed);
            assert!(!purge(address, 8));
            assert_eq!(byte.read_volatile(), 7);
            unmap(address - 8, page_bytes());
        }
    }
}
