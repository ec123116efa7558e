//! Counts the system calls of a command and of all its processes and threads, by stopping at each: ptrace(2).
//!
//! That slows the command many times, so nothing else is measured of such a run.

use std::collections::HashSet;
use std::io;
use std::thread;
use std::time::Duration;

use faultless_records::measurement::Ending;
use nix::libc;
use nix::sys::signal::{Signal, killpg};

use crate::launch::Launched;
use crate::signals::Signals;
use crate::tracer::{CALL_STOP, changes, ending, is_job_control};
use crate::watch::{WatchError, resume};

/// Between two looks for the end of what was killed.
const LOOK: Duration = Duration::from_millis(1);

/// How the command ended, and its calls since exec; fails when it does not end within `limit`, if there is one.
///
/// # Errors
/// [`WatchError`].
pub fn count(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Duration>,
) -> Result<(Ending, u64), WatchError> {
    let mut count = Count { pid: launched.pid(), inside: HashSet::new(), calls: 0, has_begun: false };
    let result = count.follow(launched, signals, limit);
    // What the command left behind is traced by us and would stop for ever.
    let _ = killpg(launched.pid, Signal::SIGKILL);
    // One that is cut off ends before we go on.
    let mut has_ended = result.is_ok();
    while !has_ended {
        match changes() {
            Ok(changes) if changes.is_empty() => thread::sleep(LOOK),
            Ok(changes) => {
                has_ended =
                    changes.iter().any(|(pid, status)| *pid == launched.pid() && ending(*status).is_some());
            }
            Err(_) => has_ended = true,
        }
    }
    let _ = changes();
    result.map(|ending| (ending, count.calls))
}

struct Count {
    pid: i32,
    /// Threads that have entered a call and not yet left it.
    inside: HashSet<i32>,
    calls: u64,
    /// The command has replaced our copy.
    has_begun: bool,
}

impl Count {
    fn follow(
        &mut self,
        launched: &Launched,
        signals: &Signals,
        limit: Option<Duration>,
    ) -> Result<Ending, WatchError> {
        loop {
            let changes = changes()?;
            let is_quiet = changes.is_empty();
            for (pid, status) in changes {
                if let Some(ending) = self.take(pid, status) {
                    return Ok(ending);
                }
            }
            let left = limit.map(|limit| limit.saturating_sub(launched.started.elapsed()));
            if left == Some(Duration::ZERO) {
                let reason = format!("no end after {} s", limit.unwrap_or_default().as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason).into());
            }
            // Threads that call all the time are never quiet, and we are asked to end nevertheless.
            let arrival = signals.next(if is_quiet { left } else { Some(Duration::ZERO) })?;
            if let Some(arrival) = arrival.filter(|arrival| arrival.is_interruption()) {
                return Err(WatchError::Interrupted(arrival.number));
            }
        }
    }

    /// Handles one change of one thread; the command's end, if it is that. Source: ptrace(2), "Stopped states".
    fn take(&mut self, pid: i32, status: i32) -> Option<Ending> {
        if let Some(ending) = ending(status) {
            self.inside.remove(&pid);
            return (pid == self.pid).then_some(ending);
        }
        if !libc::WIFSTOPPED(status) {
            return None;
        }
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            0 if signal == CALL_STOP => {
                let enters = self.inside.insert(pid);
                if enters {
                    self.calls += u64::from(self.has_begun);
                } else {
                    self.inside.remove(&pid);
                }
                resume(libc::PTRACE_SYSCALL, pid, 0);
            }
            0 => resume(libc::PTRACE_SYSCALL, pid, signal),
            _ if is_job_control(signal, event) => resume(libc::PTRACE_LISTEN, pid, 0),
            libc::PTRACE_EVENT_EXEC => {
                self.has_begun = true;
                resume(libc::PTRACE_SYSCALL, pid, 0);
            }
            _ => resume(libc::PTRACE_SYSCALL, pid, 0),
        }
        None
    }
}
