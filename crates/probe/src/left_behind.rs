//! Private directories of runs that were killed (SIGKILL), which the next run removes.
//!
//! A run holds a lock on each of its directories, which the kernel takes back whatever ends it: neither a number that another
//! process has by now nor a PID namespace misleads. What a killed run had started may still write there, and load its library
//! into programs to come: the directory stays until no process names it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc;
use nix::unistd::geteuid;

use crate::{file_limit, process_list};

/// What the names of all private directories begin with; the number of the process follows, and one of its own.
pub(crate) const PREFIX: &str = "faultless-";

/// So many are removed at once: each takes a descriptor meanwhile.
const MOST: usize = 64;

/// Locks a directory that was just made for as long as the answer lives.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when somebody who took it for left behind was faster; the kernel's reason when it cannot be opened.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    let directory = open(path)?;
    match directory.try_lock() {
        Ok(()) if is_at(&directory, path) => Ok(directory),
        Ok(()) | Err(TryLockError::WouldBlock) => Err(io::ErrorKind::NotFound.into()),
        // Where there are no locks nobody removes anything.
        Err(TryLockError::Error(_)) => Ok(directory),
    }
}

/// Removes from a place what killed runs of this user left there and nobody uses.
pub(crate) fn remove_from(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    // The locks are kept while we look, and taken before: of two that look at once one removes.
    let unheld = ours.filter_map(|entry| Some((entry.path(), lock_of_nobody(&entry.path())?)));
    let left: Vec<(PathBuf, File)> = unheld.take(MOST).collect();
    if left.is_empty() {
        return;
    }
    let Ok(named) = named_by_processes() else { return };
    let is_named = |path: &Path| named.iter().any(|text| text.contains(&*path.to_string_lossy()));
    for (path, directory) in &left {
        if !is_named(path) {
            let _ = fs::remove_dir_all(path);
        }
        // A child that was forked meanwhile has the descriptor until its exec, and with it the lock.
        let _ = directory.unlock();
    }
}

/// Whether a name is exactly as those of our directories are.
fn is_ours(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

/// The lock on a directory of this user that nobody holds.
fn lock_of_nobody(path: &Path) -> Option<File> {
    let directory = open(path).ok()?;
    let is_own = directory.metadata().is_ok_and(|metadata| metadata.uid() == geteuid().as_raw());
    (is_own && directory.try_lock().is_ok() && is_at(&directory, path)).then_some(directory)
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path)
}

/// Whether the path still leads to this directory.
fn is_at(directory: &File, path: &Path) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let there = fs::symlink_metadata(path).map(identity);
    directory.metadata().map(identity).is_ok_and(|own| there.is_ok_and(|there| there == own))
}

/// What processes have mapped and were started with: recorders and libraries by path, and the settings that name them.
///
/// # Errors
/// When they cannot be looked at, for want of descriptors or of a `/proc` of ours.
fn named_by_processes() -> io::Result<Vec<String>> {
    let numbers = process_list::numbers()?;
    if !numbers.contains(&std::process::id().cast_signed()) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut texts = Vec::new();
    for pid in numbers {
        for file in ["maps", "environ"] {
            match fs::read(format!("/proc/{pid}/{file}")) {
                Ok(bytes) => texts.push(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) if file_limit::is_reached(&error) => return Err(error),
                // It has ended, or is another user's.
                Err(_) => {}
            }
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::PrivateDirectory;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn only_whole_names_are_ours() {
        assert!(is_ours("faultless-12-0"));
        for name in ["faultless-12", "faultless-12-", "faultless-+1-0", "faultless-12-0x", "faultless-a-1"] {
            assert!(!is_ours(name), "{name}");
        }
        assert!(!is_ours("xfaultless-1-1"));
    }

    #[test]
    fn what_nobody_holds_goes_and_what_is_held_named_or_no_directory_stays() {
        let place = PrivateDirectory::create().unwrap();
        let path = |name: &str| place.path().join(name);
        let dead = |number: u32| path(&format!("{PREFIX}{}-{number}", i32::MAX));
        for number in 0..3 {
            fs::create_dir(dead(number)).unwrap();
            fs::write(dead(number).join("file"), "x").unwrap();
        }
        fs::write(dead(3), "x").unwrap();
        symlink(path("elsewhere"), dead(4)).unwrap();
        fs::create_dir(path("elsewhere")).unwrap();
        let held = hold(&dead(0)).unwrap();
        let mut user = Command::new("sleep").arg("100").env("FAULTLESS_RECORDER", dead(1)).spawn().unwrap();
        remove_from(place.path());
        user.kill().unwrap();
        user.wait().unwrap();
        let are_there = || (0..5).map(|number| dead(number).symlink_metadata().is_ok()).collect::<Vec<_>>();
        assert_eq!(are_there(), [true, true, false, true, true]);
        assert!(path("elsewhere").exists());
        // A child of another test may have the descriptor until its exec.
        held.unlock().unwrap();
        remove_from(place.path());
        assert_eq!(are_there(), [false, false, false, true, true]);
    }

    #[test]
    fn a_directory_that_was_removed_before_it_was_held_is_not_held() {
        let place = PrivateDirectory::create().unwrap();
        let path = place.path().join("made");
        assert_eq!(hold(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        let swept = lock_of_nobody(&path).unwrap();
        assert_eq!(hold(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        swept.unlock().unwrap();
        assert!(hold(&path).is_ok());
    }
}
