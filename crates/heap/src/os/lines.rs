//! Text files of the kernel, read line by line into a fixed buffer.

use super::descriptor::Descriptor;
use core::ffi::CStr;

/// Longest line that is seen whole; the rest of a longer one is passed over.
const LINE_BYTES: usize = 1024;

/// The lines of an open file.
pub struct Lines {
    file: Descriptor,
    buffer: [u8; LINE_BYTES],
    /// The part of the buffer that was read and not yet given out.
    from: usize,
    to: usize,
}

impl Lines {
    /// Opens the file; `None` where that is refused.
    pub fn open(path: &CStr) -> Option<Self> {
        Some(Self { file: Descriptor::open(path).ok()?, buffer: [0; LINE_BYTES], from: 0, to: 0 })
    }

    /// The next line without its end; a line that does not fit is cut, one that is no UTF-8 is empty.
    pub fn next_line(&mut self) -> Option<&str> {
        loop {
            if let Some(end) = self.buffer[self.from..self.to].iter().position(|&byte| byte == b'\n') {
                let line = self.from..self.from + end;
                self.from = line.end + 1;
                return Some(core::str::from_utf8(&self.buffer[line]).unwrap_or_default());
            }
            if self.from > 0 {
                self.buffer.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            if self.to == LINE_BYTES {
                self.skip_to_next_line();
                return Some(core::str::from_utf8(&self.buffer[..LINE_BYTES]).unwrap_or_default());
            }
            let got = self.file.read(&mut self.buffer[self.to..]).unwrap_or(0);
            if got == 0 {
                let line = self.from..self.to;
                self.from = self.to;
                let text = core::str::from_utf8(&self.buffer[line]).unwrap_or_default();
                return (!text.is_empty()).then_some(text);
            }
            self.to += got;
        }
    }

    /// Passes over the rest of a line that fills the buffer, byte by byte since what follows it is wanted; rare.
    fn skip_to_next_line(&mut self) {
        (self.from, self.to) = (0, 0);
        let mut byte = [0];
        while self.file.read(&mut byte).unwrap_or(0) == 1 && byte[0] != b'\n' {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn lines_of(name: &str, text: &str) -> Vec<String> {
        let path = std::env::temp_dir().join(format!("faultless-lines-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let mut lines = Lines::open(&CString::new(path.to_str().unwrap()).unwrap()).unwrap();
        let mut found = Vec::new();
        while let Some(line) = lines.next_line() {
            found.push(line.to_owned());
        }
        std::fs::remove_file(&path).unwrap();
        found
    }

    #[test]
    fn lines_come_whole_also_across_reads_and_without_a_last_end() {
        let long: String = (0..500).map(|number| format!("line {number}\n")).collect();
        assert_eq!(lines_of("many", &(long.clone() + "end")).len(), 501);
        assert_eq!(lines_of("last", &(long + "end")).last().unwrap(), "end");
        assert_eq!(lines_of("empty", "a\n\nb\n"), ["a", "", "b"]);
    }

    #[test]
    fn a_line_too_long_is_cut_and_the_next_one_is_whole() {
        let text = format!("{}\nnext\n", "x".repeat(5000));
        let lines = lines_of("long", &text);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].len(), lines[1].as_str()), (LINE_BYTES, "next"));
    }

    #[test]
    fn a_file_that_is_not_there_has_no_lines() {
        assert!(Lines::open(c"/proc/no such file").is_none());
    }
}
