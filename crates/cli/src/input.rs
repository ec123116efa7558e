//! Standard input: ours, for a command that is run more than once; that of a process, for a line that starts it anew.

use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use faultless_probe::terminal;

/// The file that it is, to be opened for each run; none where it is no file, or was read in part, as the list of a shell's loop.
pub fn file() -> Option<PathBuf> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    let is_whole = input.metadata().ok()?.is_file() && input.stream_position().ok()? == 0;
    let again = PathBuf::from("/proc/self/fd/0");
    (is_whole && File::open(&again).is_ok()).then_some(again)
}

/// What is said where somebody gives it to us in a way that it can be read once only: no run had any of it.
pub fn unread() -> Option<&'static str> {
    terminal::is_input_waiting().then_some(
        "the command ran without input, and some waits on standard input, which can be read once only: give it a file (< FILE)",
    )
}

/// What stands for [`file()`] in a line to paste: its path, and `FILE` where none leads to it any more, as to the text of a shell.
pub fn name() -> String {
    name_behind(Path::new("/proc/self/fd/0"))
}

/// The same for the standard input of another process; none where that is no file, or is kept from us.
pub fn name_of(pid: i32) -> Option<String> {
    let link = PathBuf::from(format!("/proc/{pid}/fd/0"));
    link.is_file().then(|| name_behind(&link))
}

fn name_behind(link: &Path) -> String {
    let own = fs::metadata(link).map(|file| (file.dev(), file.ino()));
    let is_it = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| own.as_ref().is_ok_and(|own| *own == (file.dev(), file.ino())))
    };
    let path = fs::read_link(link).ok().filter(is_it);
    path.map_or("FILE".to_owned(), |path| path.to_string_lossy().into_owned())
}
