//! A file that appears whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file to be written at the end of long work; it is made now, so that a place that cannot be written is known now.
pub struct OutputFile {
    path: PathBuf,
    file: File,
    /// Where it is written before it gets its name; none for devices and pipes.
    unfinished: Option<PathBuf>,
}

impl OutputFile {
    /// Makes the file beside `path`.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let is_other = fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir());
        let made = if is_other {
            OpenOptions::new().write(true).open(path).map(|file| (file, None))
        } else {
            let mut name = path.as_os_str().to_owned();
            name.push(OsString::from(format!(".{}.new", std::process::id())));
            let unfinished = PathBuf::from(name);
            match path.is_dir() {
                true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
                false => File::create(&unfinished).map(|file| (file, Some(unfinished))),
            }
        };
        let (file, unfinished) = made.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { path: path.to_owned(), file, unfinished })
    }

    /// Writes it and gives it its name.
    ///
    /// # Errors
    /// [`Failure::Failed`] with the kernel's reason; a file of that name is then as it was.
    pub fn write(self, text: &str) -> Result<(), Failure> {
        self.write_bytes(text.as_bytes())
    }

    /// The same of bytes that are no text.
    ///
    /// # Errors
    /// As [`Self::write`].
    /// As [`OutputFile::write`], for what is no text.
    ///
    /// # Errors
    /// The same.
    pub fn write_bytes(mut self, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.file.write_all(bytes).and_then(|()| match &self.unfinished {
            Some(unfinished) => fs::rename(unfinished, &self.path),
            None => Ok(()),
        });
        written.map_err(|error| cannot_write(&self.path, &error))?;
        self.unfinished = None;
        Ok(())
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(unfinished) = &self.unfinished {
            let _ = fs::remove_file(unfinished);
        }
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_when_it_is_written_and_not_before() {
        let directory = std::env::temp_dir().join(format!("faultless-output-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let path = directory.join("result");
        drop(OutputFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        OutputFile::create(&path).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(OutputFile::create(&directory).is_err());
        OutputFile::create(Path::new("/dev/null")).unwrap().write("text").unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
