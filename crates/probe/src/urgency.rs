//! A time in which our thread gets a CPU before those of programs.
//!
//! Hundreds of threads that run into probes take every CPU. A tool that waits for its turn among them reads too late what the kernel
//! tells, and takes the probes out later yet.

use std::io;

use nix::libc::{self, c_int, c_long};

/// Until it is dropped our thread goes first; processes that it starts do not.
#[derive(Debug)]
pub(crate) struct Urgency;

impl Urgency {
    /// Begins it.
    ///
    /// # Errors
    /// The kernel's: it takes CAP_SYS_NICE, or a limit (RTPRIO) that allows it. A policy that somebody has chosen for us stays.
    pub(crate) fn begin() -> io::Result<Self> {
        // SAFETY: a number only.
        let found = answer(unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) })?;
        if found != libc::SCHED_OTHER {
            // Somebody has chosen for us.
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        set(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, 1)?;
        Ok(Self)
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        // Less is always granted.
        let _ = set(libc::SCHED_OTHER, 0);
    }
}

/// Sets the policy of our thread, by the system call: musl's function refuses.
fn set(policy: c_int, priority: c_int) -> io::Result<c_int> {
    // The kernel's structure is this one number; those of libraries may have more.
    let parameter = &raw const priority;
    // SAFETY: the kernel reads one number, which lives during the call.
    answer(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, parameter) })
}

fn answer(answer: c_long) -> io::Result<c_int> {
    c_int::try_from(answer).ok().filter(|answer| *answer >= 0).ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_thread_goes_first_for_a_while_and_what_it_starts_does_not() {
        // SAFETY: a number only.
        let policy = |pid: i32| unsafe { libc::syscall(libc::SYS_sched_getscheduler, pid) };
        let before = policy(0);
        let urgency = match Urgency::begin() {
            Ok(urgency) => urgency,
            Err(error) => return faultless_skipped::skipped(error),
        };
        assert_eq!(policy(0), c_long::from(libc::SCHED_RR | libc::SCHED_RESET_ON_FORK));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let of_child = policy(child.id().cast_signed());
        child.kill().unwrap();
        child.wait().unwrap();
        drop(urgency);
        assert_eq!((of_child, policy(0)), (before, before));
    }
}
