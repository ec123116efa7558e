//! Whose processes `/proc` shows: ours only where it was mounted in our PID namespace.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Why numbers of processes mean nothing in `/proc`; shown as one line with what helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// There is none.
    Absent,
    /// It is that of another PID namespace: what has a process's number there is another process.
    Foreign,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Absent => "/proc is not mounted, so no process can be seen (mount -t proc proc /proc)",
            Self::Foreign => {
                "/proc shows another PID namespace than ours, so a number means another process there (unshare --mount-proc, or mount -t proc proc /proc)"
            }
        };
        out.write_str(text)
    }
}

/// What stands between us and our processes; none where `/proc` shows them.
#[must_use]
pub fn obstacle() -> Option<Obstacle> {
    static FOUND: LazyLock<Option<Obstacle>> = LazyLock::new(|| {
        let own = Path::new("/proc/self");
        match fs::read_link(own) {
            Ok(link) => (link.as_os_str() != &*std::process::id().to_string()).then_some(Obstacle::Foreign),
            // Where we have no number it leads nowhere.
            Err(_) if own.is_symlink() => Some(Obstacle::Foreign),
            Err(_) => Some(Obstacle::Absent),
        }
    });
    *FOUND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stands_between_us_and_our_processes() {
        assert_eq!(obstacle(), None);
    }
}
