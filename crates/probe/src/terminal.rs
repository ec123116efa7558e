//! The terminal that somebody reads on.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::libc;

/// Columns of the terminal that standard output is; none when it is none, or does not know.
#[must_use]
pub fn columns() -> Option<usize> {
    size().map(|(columns, _)| columns).filter(|columns| *columns > 0)
}

/// Columns and rows of the terminal that standard output is; none when it is none.
#[must_use]
pub fn size() -> Option<(usize, usize)> {
    // SAFETY: winsize is plain data; all zeros is a value of it.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one winsize, and `size` is valid for that.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0).then_some((usize::from(size.ws_col), usize::from(size.ws_row)))
}

/// Whether terminals here can be drawn on, and not only printed on, as in a window of Emacs.
#[must_use]
pub fn can_be_drawn_on() -> bool {
    std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

/// Standard error once more, for a command whose output must not mix with ours on standard output.
///
/// # Errors
/// When it is closed.
pub fn errors() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
