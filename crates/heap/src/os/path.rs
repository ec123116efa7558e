//! Paths that are put together without allocating.

use core::ffi::CStr;
use core::fmt;

const PATH_BYTES: usize = 512;

/// A path in a fixed buffer, ended by a zero byte; a longer one is refused.
#[derive(Clone)]
pub struct Path {
    bytes: [u8; PATH_BYTES],
    used: usize,
}

impl Path {
    /// An empty path.
    pub const fn new() -> Self {
        Self { bytes: [0; PATH_BYTES], used: 0 }
    }

    /// The path as a C string.
    pub fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).ok()
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.used
    }

    /// Adds a part to its end; `None`, and nothing is added, where there is no room for all of it.
    pub fn push(&mut self, part: &[u8]) -> Option<()> {
        let end = self.used + part.len();
        // One byte stays zero.
        let room = self.bytes.get_mut(self.used..end).filter(|_| end < PATH_BYTES)?;
        room.copy_from_slice(part);
        self.used = end;
        Some(())
    }

    /// The path with a part at its end.
    pub fn with(&self, part: &str) -> Option<Self> {
        let mut path = self.clone();
        path.push(part.as_bytes())?;
        Some(path)
    }

    /// Cuts the last name off; false when no more than `top` bytes would be left.
    pub fn go_up(&mut self, top: usize) -> bool {
        match self.bytes[..self.used].iter().rposition(|&byte| byte == b'/') {
            Some(end) if end >= top => {
                self.bytes[end..self.used].fill(0);
                self.used = end;
                true
            }
            _ => false,
        }
    }
}

impl Default for Path {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).ok_or(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;

    #[test]
    fn a_path_too_long_is_refused_whole() {
        let mut path = Path::new();
        assert!(path.write_str(&"x".repeat(511)).is_ok());
        assert!(path.write_str("y").is_err());
        assert_eq!(path.as_c_str().unwrap().to_bytes().len(), 511);
    }
}
