//! A child that does nothing until it is dropped.

use std::io;

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork, getpid};

/// The child.
#[derive(Debug)]
pub(crate) struct Sleeper {
    /// Its number.
    pub(crate) pid: Pid,
}

impl Sleeper {
    /// Starts it.
    ///
    /// # Errors
    /// The kernel's reason to make no process.
    pub(crate) fn start() -> io::Result<Self> {
        let parent = getpid().as_raw();
        // SAFETY: the child calls only async-signal-safe functions.
        match unsafe { fork()? } {
            // SAFETY: these calls take numbers alone; _exit never returns.
            ForkResult::Child => unsafe {
                // It ends with the thread that started it, which may have ended already.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
                while libc::getppid() == parent {
                    libc::pause();
                }
                libc::_exit(0)
            },
            ForkResult::Parent { child } => Ok(Self { pid: child }),
        }
    }
}

impl Drop for Sleeper {
    /// Not by a pipe's end: a sleeper that another thread starts has that end, too.
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = nix::sys::wait::waitpid(self.pid, None);
    }
}
