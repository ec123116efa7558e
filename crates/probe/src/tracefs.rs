//! The kernel's file system of tracepoints, wherever it is mounted; where it is not, a mount of our own that nobody else sees
//! and that goes with us.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use faultless_records::permission::{Answer, outside_of_container};
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::Mode;

use crate::permissions;
use crate::refused::Refused;

/// Where systems mount it.
const PLACES: &[&str] = &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// `FSCONFIG_CMD_CREATE` of linux/mount.h.
const CREATE: libc::c_uint = 6;

/// The file system, opened.
#[derive(Debug)]
pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// Finds or mounts it.
    ///
    /// # Errors
    /// One line that says what would help.
    pub fn open() -> Result<Self, Refused> {
        let mut refused = None;
        for place in PLACES {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let Ok(root) = nix::fcntl::open(Path::new(place), flags, Mode::empty()) else { continue };
            let tracefs = Self { root };
            match tracefs.text("events/syscalls/sys_enter_mmap/id") {
                Ok(_) => return Ok(tracefs),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(error),
                Err(_) => {}
            }
        }
        match (refused, mount()) {
            (_, Ok(root)) => Ok(Self { root }),
            (Some(_), Err(_)) => {
                Err(Refused::new(Answer::Denied, "tracepoints are shown to root only (sudo)"))
            }
            (None, Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let reason = match permissions::rights().user {
                    0 => format!(
                        "tracepoints need tracefs, which root of a container cannot mount: do so {}",
                        outside_of_container("SYS_ADMIN")
                    ),
                    _ => "tracepoints need tracefs, which only root can mount (sudo)".to_owned(),
                };
                Err(Refused::new(Answer::Denied, reason))
            }
            (None, Err(error)) => {
                let reason = format!(
                    "tracepoints need tracefs, which is not mounted (sudo mount -t tracefs tracefs /sys/kernel/tracing): {error}"
                );
                Err(Refused { reason, ..error.into() })
            }
        }
    }

    /// The number of a tracepoint, such as `syscalls/sys_enter_mmap`.
    ///
    /// # Errors
    /// The kernel's reason: it has no such tracepoint, or does not show it.
    pub fn id(&self, name: &str) -> io::Result<u64> {
        let text = self.text(&format!("events/{name}/id"))?;
        text.trim().parse().map_err(|_| io::Error::other(format!("{name} has no number")))
    }

    /// Adds lines to a file that takes commands.
    ///
    /// # Errors
    /// The kernel's reason to refuse one of them.
    pub fn append(&self, path: &str, lines: &str) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC;
        let file = openat(&self.root, path, flags, Mode::empty())?;
        File::from(file).write_all(lines.as_bytes())
    }

    /// What a file shows.
    ///
    /// # Errors
    /// The kernel's reason to refuse it.
    pub fn text(&self, path: &str) -> io::Result<String> {
        let file = openat(&self.root, path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let mut text = String::new();
        File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// A mount without a place. Source: fsopen(2), fsmount(2), Linux 5.2.
fn mount() -> io::Result<OwnedFd> {
    const CLOEXEC: libc::c_uint = 1;
    let name: &CStr = c"tracefs";
    // SAFETY: the name ends with NUL and lives during the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), CLOEXEC) })?;
    let nothing: *const libc::c_char = std::ptr::null();
    // SAFETY: this command takes neither key nor value.
    let made = unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), CREATE, nothing, nothing, 0) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: numbers only.
    owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), CLOEXEC, 0) })
}

fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(answer) {
        // SAFETY: the kernel made this descriptor for us a moment ago, and nobody else knows it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_have_numbers_or_the_refusal_says_what_helps() {
        let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
        let before = mounts();
        match Tracefs::open() {
            Ok(tracefs) => {
                assert!(tracefs.id("syscalls/sys_enter_munmap").unwrap() > 0);
                assert!(tracefs.id("syscalls/no_such_call").is_err());
            }
            Err(Refused { reason, .. }) => {
                assert!(reason.contains("sudo"), "{reason}");
                faultless_skipped::skipped(reason);
            }
        }
        assert_eq!(mounts(), before, "nothing is left mounted");
    }
}
