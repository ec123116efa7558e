//! A file that is written beside its place and gets its name when it is whole, so that a reader sees the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// A file without its name; it goes when it never gets it.
#[derive(Debug)]
pub struct Unfinished {
    /// To be written.
    pub file: File,
    /// Where it is; none once it has its name.
    path: Option<PathBuf>,
}

impl Unfinished {
    /// Makes the file, as `PLACE.<pid>.new`, which must not be there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn beside(place: &Path) -> io::Result<Self> {
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let path = PathBuf::from(name);
        let create = || OpenOptions::new().write(true).create_new(true).open(&path);
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_left_over(&path) => {
                fs::remove_file(&path)?;
                create()?
            }
            made => made?,
        };
        // Held until it has its name: who finds it without its writer may take it away.
        let _ = file.try_lock();
        Ok(Self { file, path: Some(path) })
    }

    /// Gives it its name, `place`.
    ///
    /// # Errors
    /// The kernel's; a file of that name is then as it was.
    pub fn rename(mut self, place: &Path) -> io::Result<()> {
        if let Some(path) = &self.path {
            fs::rename(path, place)?;
        }
        self.path = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a file was left by a writer of our number that was killed, as in a container, where numbers come again.
fn is_left_over(path: &Path) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    is_file && File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}
