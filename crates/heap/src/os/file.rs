//! Files: standard error, the report, and the kernel's word on CPU limits. Nothing here allocates.

use super::descriptor::stat_of;
use super::errno::Errno;
use super::syscall::{number, syscall};
use core::ffi::CStr;
use core::fmt::{self, Write};

const AT_FDCWD: usize = -100isize as usize;
const O_WRONLY_CREATE_TRUNCATE_CLOEXEC: usize = 0o2_001_101;
const O_WRONLY_APPEND_CLOEXEC: usize = 0o2_002_001;
const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
const MODE: usize = 0o644;

fn write_all(descriptor: usize, text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the kernel only reads `rest`.
        let answer =
            unsafe { syscall(number::WRITE, [descriptor, rest.as_ptr() as usize, rest.len(), 0, 0, 0]) };
        match Errno::check(answer) {
            Err(Errno::EINTR) => {}
            Ok(0) | Err(_) => return false,
            Ok(written) => rest = &rest[written.min(rest.len())..],
        }
    }
    true
}

/// Writes to standard error, as far as it can.
pub fn write_stderr(text: &[u8]) {
    write_all(2, text);
}

/// What a pipe takes in one piece (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// Standard error as a `fmt::Write` that never fails. Written in pieces as large as may be, the last of them on drop: what several
/// processes write does not mix.
pub struct StandardError {
    piece: [u8; PIECE_BYTES],
    used: usize,
}

impl StandardError {
    /// With nothing to be written yet.
    pub const fn new() -> Self {
        Self { piece: [0; PIECE_BYTES], used: 0 }
    }

    fn flush(&mut self) {
        write_stderr(&self.piece[..self.used]);
        self.used = 0;
    }
}

impl Default for StandardError {
    fn default() -> Self {
        Self::new()
    }
}

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.used == PIECE_BYTES {
                self.flush();
            }
            self.piece[self.used] = byte;
            self.used += 1;
        }
        Ok(())
    }
}

impl Drop for StandardError {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Which file it is, whatever its names and numbers: device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity(u64, u64);

impl FileIdentity {
    /// Of what standard error is now; `None` if it is closed.
    pub fn of_standard_error() -> Option<Self> {
        stat_of(2).ok().map(|stat| Self(stat[0], stat[1]))
    }
}

/// A file being written; closed on drop.
pub struct File(usize);

impl File {
    /// Creates or empties the file at `path`.
    pub fn create(path: &CStr) -> Option<Self> {
        let arguments = [AT_FDCWD, path.as_ptr() as usize, O_WRONLY_CREATE_TRUNCATE_CLOEXEC, MODE, 0, 0];
        // SAFETY: the path is a C string.
        let file = unsafe { syscall(number::OPENAT, arguments) };
        usize::try_from(file).ok().map(Self)
    }

    /// Opens the file at `path`, which must exist, to write at its end.
    pub fn append(path: &CStr) -> Option<Self> {
        let arguments = [AT_FDCWD, path.as_ptr() as usize, O_WRONLY_APPEND_CLOEXEC, 0, 0, 0];
        // SAFETY: the path is a C string.
        let file = unsafe { syscall(number::OPENAT, arguments) };
        usize::try_from(file).ok().map(Self)
    }

    /// Writes all of `bytes`. False: not all of them.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> bool {
        write_all(self.0, bytes)
    }
}

impl Write for File {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if write_all(self.0, text.as_bytes()) { Ok(()) } else { Err(fmt::Error) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours.
        unsafe { syscall(number::CLOSE, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// CPUs' worth of time that the process's control group, as mounted in a container, may use; `None` without a limit.
pub fn cpu_quota() -> Option<usize> {
    let mut text = [0; QUOTA_BYTES];
    let mut period = [0; QUOTA_BYTES];
    // Of version 2, which has one file for both, or else of version 1.
    if let Some(limit) = read(c"/sys/fs/cgroup/cpu.max", &mut text) {
        let mut words = limit.split(|&byte| byte == b' ');
        return cpus_of(words.next()?, words.next()?);
    }
    let quota = read(c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &mut text)?;
    cpus_of(quota, read(c"/sys/fs/cgroup/cpu/cpu.cfs_period_us", &mut period)?)
}

/// More than a quota and a period take, or a limit.
const QUOTA_BYTES: usize = 64;

/// Bytes that the process's control group, as mounted in a container, may have; `None` without a limit.
pub fn memory_limit() -> Option<usize> {
    let mut text = [0; QUOTA_BYTES];
    let limit = match read(c"/sys/fs/cgroup/memory.max", &mut text) {
        Some(limit) => number(limit),
        None => number(read(c"/sys/fs/cgroup/memory/memory.limit_in_bytes", &mut text)?),
    };
    // Version 1 says none as the largest multiple of a page.
    limit.filter(|&bytes| bytes < NO_LIMIT)
}

/// More than any machine has.
const NO_LIMIT: usize = 1 << 52;

/// CPUs' worth of time that `quota` of each `period` are, rounded up; `None` for a quota that is none: `max`, or -1.
fn cpus_of(quota: &[u8], period: &[u8]) -> Option<usize> {
    Some(number(quota)?.div_ceil(number(period)?.max(1)).max(1))
}

/// A number, and maybe the end of its line; `None` for anything else. Of bytes: a start should not bring in what reads text.
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let add = |number: usize, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// The file's beginning, as much as `text` takes; `None` where there is none to be read.
pub(super) fn read<'text>(path: &CStr, text: &'text mut [u8]) -> Option<&'text [u8]> {
    // SAFETY: the path is a C string; the kernel writes at most `text.len()` bytes to `text`.
    let length = unsafe {
        let file = syscall(number::OPENAT, [AT_FDCWD, path.as_ptr() as usize, O_RDONLY_CLOEXEC, 0, 0, 0]);
        if file < 0 {
            return None;
        }
        let length = syscall(number::READ, [file as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        syscall(number::CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        length
    };
    text.get(..usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_number_of_cpus_rounded_up_or_none() {
        assert_eq!(cpus_of(b"200000", b"100000\n"), Some(2));
        assert_eq!(cpus_of(b"150000\n", b"100000\n"), Some(2));
        assert_eq!(cpus_of(b"1000", b"100000"), Some(1));
        for none in ["max", "-1\n", "", "\n", "1 2", "99999999999999999999"] {
            assert_eq!(cpus_of(none.as_bytes(), b"100000\n"), None, "{none}");
        }
    }

    #[test]
    fn a_file_is_read_from_its_beginning_if_there_is_one() {
        let mut text = [0; 7];
        assert_eq!(read(c"/proc/self/status", &mut text[..5]), Some(b"Name:".as_slice()));
        assert_eq!(read(c"/proc/self/no_such_file", &mut text), None);
    }
}
