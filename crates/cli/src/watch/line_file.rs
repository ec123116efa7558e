//! A file of lines that ends with a whole one, also where the disk is full.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// The file.
pub struct LineFile {
    file: File,
    /// Nobody else writes there, so that what we wrote last stands at its end.
    is_own: bool,
    /// Bytes written since the end of the last whole line.
    begun_bytes: u64,
}

impl LineFile {
    /// Of a file that is open at its end; `is_own` where nobody else writes there.
    pub fn new(file: File, is_own: bool) -> Self {
        Self { file, is_own, begun_bytes: 0 }
    }

    /// Whether nobody else writes there.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Writes a part of these bytes, how much is returned.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        let last = bytes[..written].iter().rposition(|byte| *byte == b'\n');
        self.begun_bytes = match last {
            Some(at) => (written - at - 1) as u64,
            None => self.begun_bytes + written as u64,
        };
        Ok(written)
    }

    /// Takes back the part of a line that no more will follow; whether an own file ends with a whole line now.
    pub fn cut_back(&mut self) -> bool {
        let cut = |file: &File| {
            let of = file.metadata()?;
            let whole_bytes = of.len().checked_sub(self.begun_bytes).filter(|_| of.is_file());
            whole_bytes.map_or(Err(io::ErrorKind::NotSeekable.into()), |bytes| file.set_len(bytes))
        };
        let is_cut = self.is_own && (self.begun_bytes == 0 || cut(&self.file).is_ok());
        if is_cut {
            self.begun_bytes = 0;
        }
        is_cut
    }
}

impl AsFd for LineFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_was_begun_is_taken_back_from_an_own_file_alone() {
        let path = std::env::temp_dir().join(format!("faultless-lines-{}", std::process::id()));
        let open = |is_own| {
            fs::write(&path, "before\n").unwrap();
            LineFile::new(File::options().append(true).open(&path).unwrap(), is_own)
        };
        for (pieces, left) in [
            (&["one\ntwo"][..], "before\none\n"),
            (&["t", "w", "o"], "before\n"),
            (&["one\n"], "before\none\n"),
            (&[], "before\n"),
        ] {
            let mut lines = open(true);
            pieces.iter().for_each(|piece| assert_eq!(lines.write(piece.as_bytes()).unwrap(), piece.len()));
            assert!(lines.cut_back() && lines.cut_back());
            assert_eq!(fs::read_to_string(&path).unwrap(), left);
        }
        let mut shared = open(false);
        shared.write(b"one\ntwo").unwrap();
        assert!(!shared.cut_back());
        assert_eq!(fs::read_to_string(&path).unwrap(), "before\none\ntwo");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_pipe_is_not_cut() {
        let (taker, giver) = io::pipe().unwrap();
        let mut lines = LineFile::new(File::from(std::os::fd::OwnedFd::from(giver)), true);
        lines.write(b"on").unwrap();
        assert!(!lines.cut_back());
        drop(taker);
    }
}
