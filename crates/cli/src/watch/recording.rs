//! The recording of a watch: lines that are written as soon as they are known, and whole.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::line_file::LineFile;
use crate::failure::Failure;

/// The recording.
pub struct Recording {
    file: LineFile,
    path: PathBuf,
    waiting: Vec<u8>,
}

impl Recording {
    /// Into a file that is open at its end; `is_own` as of [`LineFile`].
    pub fn new(file: File, path: PathBuf, is_own: bool) -> Self {
        Self { file: LineFile::new(file, is_own), path, waiting: Vec::new() }
    }

    /// Takes a line that is to be written.
    pub fn push(&mut self, line: &str) {
        self.waiting.extend_from_slice(line.as_bytes());
    }

    /// Writes what was taken; what cannot be written is lost.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason; nothing is to follow then.
    pub fn write(&mut self) -> Result<(), Failure> {
        let waiting = std::mem::take(&mut self.waiting);
        let mut left = waiting.as_slice();
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(self.failure(&io::ErrorKind::WriteZero.into())),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(&error)),
            }
        }
        Ok(())
    }

    fn failure(&mut self, error: &io::Error) -> Failure {
        match (Failure::of_writing(&self.path, error), self.file.cut_back()) {
            (Failure::Failed(text), true) => Failure::Failed(format!("{text}; it ends with a whole line")),
            (failure, _) => failure,
        }
    }
}
