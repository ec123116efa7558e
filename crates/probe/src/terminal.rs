//! The terminal that somebody reads on.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat};

/// Whether standard output was closed when we were started (`>&-`); Rust's runtime opens `/dev/null` in its place before `main`.
static WAS_OUTPUT_CLOSED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_output;

extern "C" fn look_at_output() {
    // SAFETY: the request takes a number of any kind and writes nothing.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    // ORDERING: Relaxed; there is one thread yet.
    WAS_OUTPUT_CLOSED.store(flags == -1, Ordering::Relaxed);
}

/// Whether nobody can read what is written to standard output, because it was closed before we were started.
#[must_use]
pub fn was_output_closed() -> bool {
    // ORDERING: Relaxed; as in `look_at_output`.
    WAS_OUTPUT_CLOSED.load(Ordering::Relaxed)
}

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

/// Whether somebody has written into the pipe or socket that standard input is, and nobody has read it.
#[must_use]
pub fn is_input_waiting() -> bool {
    let input = io::stdin();
    let kind = fstat(input.as_fd()).map(|found| SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT);
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    matches!(kind, Ok(SFlag::S_IFIFO | SFlag::S_IFSOCK))
        && poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLIN))
}

/// Standard error once more, for a command whose output must not mix with ours on standard output.
///
/// # Errors
/// When it is closed.
pub fn errors() -> io::Result<File> {
    io::stderr().as_fd().try_clone_to_owned().map(File::from)
}
