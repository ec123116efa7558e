//! A child that does nothing until it is dropped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::{ForkResult, Pid, fork, pipe2};

/// The child.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Its number.
    pub(crate) pid: Pid,
    /// Closed, it wakes the child, which ends.
    pub(crate) wake: Option<OwnedFd>,
}

impl Sleeper {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's reason to make no pipe or no process.
    pub(crate) fn start() -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only async-signal-safe functions.
        match unsafe { fork()? } {
            ForkResult::Child => {
                drop(write);
                let mut byte = 0_u8;
                // SAFETY: the descriptor is open, and the byte lives through the call; _exit never returns.
                unsafe {
                    libc::read(read.as_raw_fd(), (&raw mut byte).cast(), 1);
                    libc::_exit(0)
                }
            }
            ForkResult::Parent { child } => Ok(Self { pid: child, wake: Some(write) }),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.wake = None;
        let _ = nix::sys::wait::waitpid(self.pid, None);
    }
}
