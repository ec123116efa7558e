//! Somebody who reads a watch's lines along, and may be slow to take them; or a recording, which may be a pipe, too.
//!
//! What they have not taken waits here and not in a call of ours: while we stand in a call no signal is taken, and a started
//! command that stops for us stays stopped.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use faultless_probe::wakeup;

use super::line_file::LineFile;
use crate::failure::Failure;

/// Bytes that a pipe takes at once or not at all. Source: PIPE_BUF, pipe(7).
const PIECE_BYTES: usize = 4096;

/// So much may wait before no more is asked for.
const MOST_BYTES: usize = 4 << 20;

/// The reader.
pub struct Reader {
    file: LineFile,
    /// None for a stream that we were given.
    path: Option<PathBuf>,
    waiting: Vec<u8>,
    /// Bytes of these that are written.
    written: usize,
}

impl Reader {
    /// Of what is written to this file, which has this name.
    pub fn new(file: LineFile, path: Option<PathBuf>) -> Self {
        Self { file, path, waiting: Vec::new(), written: 0 }
    }

    /// Takes text that is to be written.
    pub fn push(&mut self, text: &str) {
        self.waiting.extend_from_slice(text.as_bytes());
    }

    /// Writes what is taken without waiting.
    ///
    /// # Errors
    /// The kernel's reason: it will take no more.
    pub fn write(&mut self) -> io::Result<()> {
        while self.is_waited_for() && wakeup::is_writable(self.file.as_fd())? {
            let waiting = &self.waiting[self.written..];
            match self.file.write(if self.file.is_own() { waiting } else { piece(waiting) }) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.waiting.drain(..self.written);
        self.written = 0;
        Ok(())
    }

    /// What is said of this error, with which the writing ended. A file of ours ends with a whole line then.
    pub fn failure(&mut self, error: &io::Error) -> Failure {
        let is_whole = self.file.cut_back();
        let Some(path) = &self.path else { return Failure::of_output(error) };
        match Failure::of_writing(path, error) {
            Failure::Failed(text) if is_whole => {
                Failure::Failed(format!("{text}; it ends with a whole line"))
            }
            failure => failure,
        }
    }

    /// Whether they have not taken all.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// Whether so much waits that nothing should be added.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.waiting.len() > MOST_BYTES
    }

    /// Can be written when they take more.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The first bytes, whole lines where that is possible: others may write to the same place.
fn piece(bytes: &[u8]) -> &[u8] {
    let first = &bytes[..bytes.len().min(PIECE_BYTES)];
    let lines = first.iter().rposition(|byte| *byte == b'\n').map_or(first.len(), |at| at + 1);
    &first[..lines]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    fn reader_of(giver: io::PipeWriter) -> Reader {
        Reader::new(LineFile::new(File::from(OwnedFd::from(giver)), false), None)
    }

    #[test]
    fn a_reader_that_takes_nothing_is_not_waited_for_and_gets_all_later() {
        let (mut taker, giver) = io::pipe().unwrap();
        let mut reader = reader_of(giver);
        let line = format!("{}\n", "x".repeat(99));
        for _ in 0..2000 {
            reader.push(&line);
            reader.write().unwrap();
        }
        assert!(reader.is_waited_for() && !reader.is_behind());
        let all = std::thread::spawn(move || {
            let mut all = String::new();
            taker.read_to_string(&mut all).map(|_| all)
        });
        while reader.is_waited_for() {
            reader.write().unwrap();
        }
        drop(reader);
        assert_eq!(all.join().unwrap().unwrap(), line.repeat(2000));
    }

    #[test]
    fn a_reader_that_has_gone_is_told_of() {
        let (taker, giver) = io::pipe().unwrap();
        drop(taker);
        let mut reader = reader_of(giver);
        reader.push("x");
        assert_eq!(reader.write().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn pieces_end_with_a_line_unless_it_is_longer() {
        assert_eq!(piece(b"a\nb\nc"), b"a\nb\n");
        assert_eq!(piece(b"abc"), b"abc");
        assert_eq!(piece(&[b'x'; 5000]).len(), PIECE_BYTES);
    }
}
