//! Files: standard error, and the report. Nothing here allocates.

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

/// The file's beginning, as much as `text` takes; `None` where there is none to be read.
#[inline(never)]
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
    fn a_file_is_read_from_its_beginning_if_there_is_one() {
        let mut text = [0; 7];
        assert_eq!(read(c"/proc/self/status", &mut text[..5]), Some(b"Name:".as_slice()));
        assert_eq!(read(c"/proc/self/no_such_file", &mut text), None);
    }
}
