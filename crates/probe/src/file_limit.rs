//! How many files may be open at once: more is asked for, some stay free, and commands find the limit that we found.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};

/// Descriptors that watched processes leave free: for connections, files that are written, and a look into one process.
const RESERVE: rlim_t = 32;

/// The soft and the hard limit before we raised the first.
static FOUND: OnceLock<(rlim_t, rlim_t)> = OnceLock::new();

/// Asks for as many open files as may be had: an event is one, and there is one for each thread and CPU.
pub fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok()
    {
        let _ = FOUND.set((soft, hard));
    }
}

/// What a command is to find: programs that call `select` take no descriptor above 1023.
pub(crate) fn found() -> Option<(rlim_t, rlim_t)> {
    FOUND.get().copied()
}

/// Whether a file that was just opened is one too many: the kernel gives the lowest number that is free.
pub(crate) fn is_beyond(file: &impl AsFd) -> bool {
    let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) else { return false };
    let number = rlim_t::try_from(file.as_fd().as_raw_fd()).unwrap_or(0);
    number >= soft - RESERVE.min(soft / 2)
}

/// Why nothing more can be opened, and what helps.
pub const NO_MORE_FILES: &str =
    "no more files may be open; raise the limit (ulimit -n, LimitNOFILE= of a service)";

/// Whether the kernel refused because too many files are open, here or in all of the system.
#[must_use]
pub fn is_reached(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// The descriptors that are open now.
pub(crate) fn descriptors() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}
