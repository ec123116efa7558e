//! File descriptors: memory files that regions share, and files that are opened to be mapped.

use super::errno::Errno;
use super::memory::{Call, refused};
use super::syscall::{number, syscall};
use super::thread::without_ending_by_writes;
use core::ffi::CStr;

const AT_FDCWD: usize = -100isize as usize;
/// Without waiting for who writes into a pipe of that name: that it cannot be mapped is found out afterwards.
const O_RDONLY_NONBLOCK_CLOEXEC: usize = 0o2_004_000;
const F_DUPFD_CLOEXEC: usize = 1030;
const F_ADD_SEALS: usize = 1033;
const F_GET_SEALS: usize = 1034;
const MFD_CLOEXEC: usize = 1;
const MFD_ALLOW_SEALING: usize = 2;
const MFD_HUGETLB: usize = 4;
/// log2 of the huge page's bytes stands from this bit on, in `memfd_create` and in `mmap`.
pub(super) const HUGE_SIZE_SHIFT: u32 = 26;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// What a sealed file refuses for ever: becoming smaller, becoming larger, new writable mappings and writes.
const SEAL_SHRINK_GROW_FUTURE_WRITE: usize = SEAL_SHRINK | 4 | 16;
const SEAL_SHRINK: usize = 2;

/// An open file of our own; closed on drop.
#[derive(Debug)]
pub struct Descriptor(usize);

impl Descriptor {
    /// Makes an empty memory file that shows as `name` in `/proc/PID/maps`; with a size, of huge pages.
    ///
    /// # Errors
    /// What `memfd_create` says.
    pub fn create_memory(name: &CStr, huge_page_bytes: Option<usize>) -> Result<Self, Errno> {
        if refused(Call::CreateFile) {
            return Err(Errno::EPERM);
        }
        let huge = huge_page_bytes
            .map_or(0, |bytes| MFD_HUGETLB | (bytes.trailing_zeros() as usize) << HUGE_SIZE_SHIFT);
        // Hugetlb files take seals since Linux 4.16, as do all since 3.17.
        let flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | huge;
        // SAFETY: the name is a C string.
        let file = unsafe { syscall(number::MEMFD_CREATE, [name.as_ptr() as usize, flags, 0, 0, 0, 0]) };
        Errno::check(file).map(Self)
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// What `openat` says.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let arguments = [AT_FDCWD, path.as_ptr() as usize, O_RDONLY_NONBLOCK_CLOEXEC, 0, 0, 0];
        // SAFETY: the path is a C string.
        let file = unsafe { syscall(number::OPENAT, arguments) };
        Errno::check(file).map(Self)
    }

    /// A descriptor of our own for somebody's open file.
    ///
    /// # Errors
    /// What `fcntl` says: the number is no open file, or there are too many.
    pub fn duplicate(number: i32) -> Result<Self, Errno> {
        let number = usize::try_from(number).map_err(|_| Errno(9))?;
        // SAFETY: makes a new descriptor; memory is not touched.
        let file = unsafe { syscall(number::FCNTL, [number, F_DUPFD_CLOEXEC, 0, 0, 0, 0]) };
        Errno::check(file).map(Self)
    }

    /// The number, for passing the file on.
    pub fn number(&self) -> i32 {
        self.0 as i32
    }

    /// Reads up to `bytes.len()` bytes from where the last read ended.
    ///
    /// # Errors
    /// What `read` says.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        loop {
            // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`.
            let got =
                unsafe { syscall(number::READ, [self.0, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
            match Errno::check(got) {
                Err(Errno::EINTR) => {}
                other => return other.map(|got| got.min(bytes.len())),
            }
        }
    }

    /// Makes the file exactly so long.
    ///
    /// # Errors
    /// What `ftruncate` says.
    pub fn resize(&self, bytes: usize) -> Result<(), Errno> {
        // SAFETY: mappings beyond the new end belong to the caller, who gives them up first.
        let resize = || unsafe { syscall(number::FTRUNCATE, [self.0, bytes, 0, 0, 0, 0]) };
        Errno::check(without_ending_by_writes(resize)).map(drop)
    }

    /// Bytes of the file.
    ///
    /// # Errors
    /// What `fstat` says.
    pub fn bytes(&self) -> Result<usize, Errno> {
        self.stat().map(|stat| stat[6] as usize)
    }

    /// Bytes of its pages that are there, whoever brought them in; of a file in memory those that were swapped out, too.
    pub fn allocated_bytes(&self) -> Option<usize> {
        self.stat().ok().map(|stat| stat[8] as usize * 512)
    }

    /// How many names it has.
    pub(super) fn links(&self) -> Option<u32> {
        let word = self.stat().ok()?[2];
        Some((if cfg!(target_arch = "x86_64") { word } else { word >> 32 }) as u32)
    }

    fn stat(&self) -> Result<[u64; 18], Errno> {
        stat_of(self.0)
    }

    /// Bytes of its pages where they are huge pages of the kernel's pool.
    pub fn huge_page_bytes(&self) -> Option<usize> {
        // struct statfs: 120 bytes; f_type and f_bsize are its first two words.
        let mut statfs = [0i64; 15];
        // SAFETY: the kernel writes one struct statfs.
        let answer = unsafe { syscall(number::FSTATFS, [self.0, statfs.as_mut_ptr() as usize, 0, 0, 0, 0]) };
        (answer == 0 && statfs[0] == HUGETLBFS_MAGIC).then_some(statfs[1] as usize)
    }

    /// Whether it may not become smaller any more.
    pub fn is_sealed_against_shrinking(&self) -> bool {
        // SAFETY: asks for flags.
        let seals = unsafe { syscall(number::FCNTL, [self.0, F_GET_SEALS, 0, 0, 0, 0]) };
        // Files that take no seals answer with an error.
        seals > 0 && seals as usize & SEAL_SHRINK != 0
    }

    /// Lets nobody change the size any more, nor map the file for writing; false: this kernel (before 5.1) cannot.
    pub fn seal(&self) -> bool {
        // SAFETY: changes what later calls may do; memory is not touched.
        unsafe { syscall(number::FCNTL, [self.0, F_ADD_SEALS, SEAL_SHRINK_GROW_FUTURE_WRITE, 0, 0, 0]) == 0 }
    }
}

/// struct stat: 144 bytes on x86-64, 128 on aarch64, which begins with st_dev and st_ino in both; st_size is at 48, st_blocks at 64.
/// st_nlink is the third word, on aarch64 its second half.
pub(super) fn stat_of(descriptor: usize) -> Result<[u64; 18], Errno> {
    let mut stat = [0; 18];
    // SAFETY: the kernel writes one struct stat.
    let answer = unsafe { syscall(number::FSTAT, [descriptor, stat.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    Errno::check(answer).map(|_| stat)
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}
