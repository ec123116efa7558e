//! The preload library and the demo programs as bytes inside the tool, and the functions that write them out.
//!
//! `build.rs` builds both; see there for the ways round it (`FAULTLESS_SO`).
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use unfinished::Unfinished;

pub mod unfinished;

mod embedded {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
}

/// The bytes of `libfaultless.so`; empty in builds made for linting or documentation only.
pub const LIBRARY: &[u8] = embedded::LIBRARY;

/// What the library that records calls of malloc is called.
pub const RECORDER_FILE_NAME: &str = "libfaultless-recorder.so";

/// The bytes of the library that records calls of malloc; empty where [`LIBRARY`] is.
pub const RECORDER: &[u8] = embedded::RECORDER;

/// Readable by every user and writable by the owner: a command may change its user and must still load the file.
const SHARED_FILE_MODE: u32 = 0o644;
const PROGRAM_MODE: u32 = 0o755;

/// A program of `crates/workloads` that the tool carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Name of its C file without the extension.
    pub name: &'static str,
    /// The executable, linked dynamically so that a preload reaches it.
    pub bytes: &'static [u8],
}

/// The carried program of that name.
#[must_use]
pub fn workload(name: &str) -> Option<Workload> {
    let (name, bytes) = embedded::PROGRAMS.iter().find(|(known, _)| *known == name)?;
    Some(Workload { name, bytes })
}

/// File name of the library, made from its contents so that versions never overwrite each other.
fn library_file_name() -> String {
    format!("libfaultless-{}.so", embedded::LIBRARY_HASH)
}

/// Puts the library into `directory`, which must exist, and returns its path.
///
/// A file of that name is used as it is when its contents are ours and it belongs to the same user as the
/// directory; otherwise it is replaced by renaming, so that a reader sees the old file or the new one.
///
/// # Errors
/// When this build carries no library, or the directory cannot be written.
pub fn library_into(directory: &Path) -> io::Result<PathBuf> {
    if LIBRARY.is_empty() {
        return Err(io::Error::other(
            "this build carries no library (it was built for linting or documentation)",
        ));
    }
    let path = directory.join(library_file_name());
    let owner = fs::metadata(directory)?.uid();
    let is_ours = fs::symlink_metadata(&path).is_ok_and(|file| file.is_file() && file.uid() == owner)
        && fs::read(&path).is_ok_and(|bytes| bytes == LIBRARY);
    if !is_ours {
        write_by_renaming(&path, LIBRARY, SHARED_FILE_MODE)?;
    }
    Ok(path)
}

/// Puts the recorder of malloc's calls into `directory`, which must exist, and returns its path.
///
/// # Errors
/// When this build carries none, or the directory cannot be written.
pub fn recorder_into(directory: &Path) -> io::Result<PathBuf> {
    if RECORDER.is_empty() {
        return Err(io::Error::other(
            "this build carries no recorder (it was built for linting or documentation)",
        ));
    }
    let path = directory.join(RECORDER_FILE_NAME);
    write_by_renaming(&path, RECORDER, SHARED_FILE_MODE)?;
    Ok(path)
}

/// Puts a carried program into `directory`, which must exist, and returns its path.
///
/// # Errors
/// When the directory cannot be written.
pub fn workload_into(directory: &Path, workload: Workload) -> io::Result<PathBuf> {
    let path = directory.join(workload.name);
    write_by_renaming(&path, workload.bytes, PROGRAM_MODE)?;
    Ok(path)
}

fn write_by_renaming(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut made = Unfinished::beside(path)?;
    made.file.write_all(bytes)?;
    made.file.set_permissions(fs::Permissions::from_mode(mode))?;
    made.rename(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn fresh_directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("faultless-bundle-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn library_is_written_once_and_replaced_when_its_contents_are_not_ours() {
        let directory = fresh_directory("library");
        let path = library_into(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        let inode = fs::metadata(&path).unwrap().ino();
        assert_eq!(library_into(&directory).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "an intact file is not written again");

        fs::write(&path, b"something else").unwrap();
        library_into(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "no unfinished file stays");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_a_killed_writer_of_our_number_left_keeps_no_library_away() {
        let directory = fresh_directory("left");
        let left = directory.join(format!("{}.{}.new", library_file_name(), std::process::id()));
        fs::write(left, "half").unwrap();
        let path = library_into(&directory).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// What a workload prints, run from where it was written.
    fn printed_by(name: &str, words: &[&str]) -> String {
        // A child that another test forks meanwhile would hold the file open to be written, and it could not be run.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock();
        let directory = fresh_directory(name);
        let program = workload_into(&directory, workload(name).unwrap()).unwrap();
        let output = std::process::Command::new(program).args(words).output().unwrap();
        assert!(output.status.success());
        fs::remove_dir_all(&directory).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn demo_program_runs_from_where_it_was_written() {
        assert!(printed_by("chem", &["1"]).starts_with("chem calls=1 checksum="));
    }

    #[test]
    fn a_pause_behind_the_last_burst_of_a_pool_parts_no_stretches() {
        // The four pauses that this seed draws are 0, 0, 2 and 292 ms long.
        let line = printed_by("pool", &["1", "small", "0", "random:887"]);
        assert!(line.contains(" stretches=1 "), "{line}");
    }

    #[test]
    fn unknown_workload_is_none() {
        assert_eq!(workload("no such program"), None);
    }
}
