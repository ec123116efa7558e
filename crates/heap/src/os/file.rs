//! Files: standard error, the report, and the kernel's word on CPU limits. Nothing here allocates.

use super::syscall::{number, syscall};
use core::ffi::CStr;
use core::fmt::{self, Write};

const AT_FDCWD: usize = -100isize as usize;
const O_WRONLY_CREATE_TRUNCATE_CLOEXEC: usize = 0o2_001_101;
const O_WRONLY_APPEND_CLOEXEC: usize = 0o2_002_001;
const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
/// A signal came first.
const EINTR: isize = -4;
const MODE: usize = 0o644;

fn write_all(descriptor: usize, text: &[u8]) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the kernel only reads `rest`.
        let written =
            unsafe { syscall(number::WRITE, [descriptor, rest.as_ptr() as usize, rest.len(), 0, 0, 0]) };
        if written == EINTR {
            continue;
        }
        if written <= 0 {
            return false;
        }
        rest = &rest[(written as usize).min(rest.len())..];
    }
    true
}

/// Writes to standard error, as far as it can.
pub fn write_stderr(text: &[u8]) {
    write_all(2, text);
}

/// Standard error as a `fmt::Write` that never fails.
pub struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_stderr(text.as_bytes());
        Ok(())
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

/// CPUs' worth of time that the process's cgroup (v2, as mounted in a container) may use; `None` without a limit.
pub fn cpu_quota() -> Option<usize> {
    let path = c"/sys/fs/cgroup/cpu.max";
    let mut text = [0u8; 64];
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
    let text = core::str::from_utf8(text.get(..usize::try_from(length).ok()?)?).ok()?;
    let mut words = text.split_ascii_whitespace();
    let (quota, period): (usize, usize) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(quota.div_ceil(period.max(1)).max(1))
}
