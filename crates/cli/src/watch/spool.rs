//! What a command prints while the chart has the terminal: kept in a file, and printed afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};

use faultless_probe::place::PrivateDirectory;

use crate::failure::Failure;

/// The file; it has no name any more and goes with us.
pub struct Spool {
    file: File,
}

impl Spool {
    /// Makes it.
    ///
    /// # Errors
    /// [`Failure::Failed`] where there is no place for it.
    pub fn create() -> Result<Self, Failure> {
        let make = || -> io::Result<File> {
            let directory = PrivateDirectory::create()?;
            // Appending, so that both streams of the command find the end.
            OpenOptions::new().read(true).append(true).create_new(true).open(directory.path().join("output"))
        };
        let failed = |error| {
            Failure::Failed(format!("cannot keep the command's output: {error} (--lines needs no file)"))
        };
        make().map(|file| Self { file }).map_err(failed)
    }

    /// No input, and both outputs into the file: the terminal belongs to the chart.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason.
    pub fn streams(&self) -> Result<[Option<File>; 3], Failure> {
        let failed = |error| Failure::Failed(format!("cannot redirect the command: {error}"));
        Ok([
            Some(File::open("/dev/null").map_err(failed)?),
            Some(self.file.try_clone().map_err(failed)?),
            Some(self.file.try_clone().map_err(failed)?),
        ])
    }

    /// Prints what was kept.
    pub fn print(mut self) {
        if self.file.seek(SeekFrom::Start(0)).is_ok() {
            let _ = io::copy(&mut self.file, &mut io::stdout());
        }
    }
}
