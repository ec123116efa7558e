//! Follows a started command to its end: passes signals both ways, looks at it on its way out, adds up its use.

use std::io;
use std::time::{Duration, Instant};

use faultless_records::measurement::{Ending, FinalView, Measurement};
use nix::libc;
use nix::sys::signal::{Signal, killpg};

use crate::launch::Launched;
use crate::process_files::{self, Snapshot};
use crate::signals::{Arrival, Signals};

/// How often an untraced command is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// How long a detached command has between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(2);

/// Uncertainty of the kernel's resident counters, for telling our own mark from the command's.
const RSS_MARGIN_BYTES: u64 = 1024 * 1024;

/// Why a command's figures are missing.
#[derive(Debug)]
pub enum WatchError {
    /// A signal of this number asked us to end; a detached command was ended first.
    Interrupted(i32),
    /// The kernel refused a call.
    System(io::Error),
}

impl From<io::Error> for WatchError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Follows the command to its end and returns its figures; a detached one that goes on for longer than `limit` is killed.
///
/// A command in our own process group gets the signals that processes send to us (the terminal's reach it anyway); a
/// detached one is ended, with all of its session, when we are asked to end.
///
/// # Errors
/// [`WatchError`].
pub fn watch(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Duration>,
) -> Result<Measurement, WatchError> {
    watch_beside(launched, signals, limit, &mut |_| None)
}

/// When the observer of [`watch_beside`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// While the command runs.
    Running,
    /// The command's first process stands still on its way out, its memory and files as they were.
    AtExit,
}

/// As [`watch`]; `observe` is called in between, says how long it can wait for its next turn, and must be quick.
///
/// # Errors
/// [`WatchError`].
pub fn watch_beside(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Duration>,
    observe: &mut dyn FnMut(Moment) -> Option<Duration>,
) -> Result<Measurement, WatchError> {
    let mut watch = Watch {
        launched,
        last_look: Snapshot::default(),
        looked_at_exit: false,
        looking: Duration::ZERO,
        interrupted: None,
        kill_at: limit.filter(|_| launched.is_detached).map(|limit| launched.started + limit),
    };
    let (ending, usage) = loop {
        if let Some(end) = watch.take_changes(observe)? {
            break end;
        }
        let patience = watch.patience().into_iter().chain(observe(Moment::Running)).min();
        if let Some(arrival) = signals.next(patience)? {
            watch.pass_on(arrival);
        }
        watch.sample();
        watch.kill_when_due();
    };
    if let Some(number) = watch.interrupted {
        watch.signal_group(Signal::SIGKILL);
        return Err(WatchError::Interrupted(number));
    }
    Ok(watch.measurement(ending, &usage))
}

struct Watch<'launched> {
    launched: &'launched Launched,
    last_look: Snapshot,
    looked_at_exit: bool,
    /// Time the command stood still because we looked at it; not its own.
    looking: Duration,
    interrupted: Option<i32>,
    kill_at: Option<Instant>,
}

impl Watch<'_> {
    /// Handles all that the child has to say; returns its end.
    fn take_changes(
        &mut self,
        observe: &mut dyn FnMut(Moment) -> Option<Duration>,
    ) -> io::Result<Option<(Ending, libc::rusage)>> {
        while let Some((status, usage)) = wait_without_blocking(self.launched.pid())? {
            if libc::WIFEXITED(status) {
                return Ok(Some((Ending::Exited(libc::WEXITSTATUS(status)), usage)));
            }
            if libc::WIFSIGNALED(status) {
                return Ok(Some((Ending::Killed(libc::WTERMSIG(status)), usage)));
            }
            if libc::WIFSTOPPED(status) {
                self.answer_stop(libc::WSTOPSIG(status), status >> 16, observe);
            }
        }
        Ok(None)
    }

    /// Source: ptrace(2), "Stopped states". Every signal is passed through unchanged.
    fn answer_stop(&mut self, signal: i32, event: i32, observe: &mut dyn FnMut(Moment) -> Option<Duration>) {
        let pid = self.launched.pid();
        let stops_process = matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
        match event {
            libc::PTRACE_EVENT_EXIT => {
                let start = Instant::now();
                self.last_look = process_files::snapshot(pid);
                observe(Moment::AtExit);
                self.looked_at_exit = true;
                self.looking += start.elapsed();
                resume(libc::PTRACE_CONT, pid, 0);
            }
            // Stopped by job control: it stays stopped, and we hear of its going on.
            libc::PTRACE_EVENT_STOP if stops_process => resume(libc::PTRACE_LISTEN, pid, 0),
            0 => resume(libc::PTRACE_CONT, pid, signal),
            _ => resume(libc::PTRACE_CONT, pid, 0),
        }
    }

    /// How long to wait for a signal before there is something else to do.
    fn patience(&self) -> Option<Duration> {
        let until_kill = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let until_sample = (!self.launched.is_traced).then_some(SAMPLE_INTERVAL);
        until_kill.into_iter().chain(until_sample).min()
    }

    fn pass_on(&mut self, arrival: Arrival) {
        if arrival.is_about_child() {
            return;
        }
        if self.launched.is_detached {
            if arrival.is_interruption() {
                let is_repeated = self.interrupted.replace(arrival.number).is_some();
                self.kill_at = Some(if is_repeated { Instant::now() } else { Instant::now() + GRACE });
                self.signal_group(Signal::SIGTERM);
            }
        } else if arrival.is_from_process
            && let Ok(signal) = Signal::try_from(arrival.number)
        {
            let _ = nix::sys::signal::kill(self.launched.pid, signal);
        }
    }

    fn kill_when_due(&mut self) {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.signal_group(Signal::SIGKILL);
        }
    }

    /// Reaches every process of a detached command's session that kept its group.
    fn signal_group(&self, signal: Signal) {
        if self.launched.is_detached {
            let _ = killpg(self.launched.pid, signal);
        }
    }

    fn sample(&mut self) {
        if self.launched.is_traced {
            return;
        }
        let snapshot = process_files::snapshot(self.launched.pid());
        // A process on its way out shows no memory any more: the sample before counts.
        if snapshot.rss_bytes.is_some_and(|bytes| bytes > 0) {
            self.last_look = snapshot;
        }
    }

    fn measurement(self, ending: Ending, usage: &libc::rusage) -> Measurement {
        Measurement {
            ending,
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            elapsed: self.launched.started.elapsed().saturating_sub(self.looking),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            peak_rss_bytes: self.peak_rss_bytes(usage),
            final_rss_bytes: self.last_look.rss_bytes,
            final_view: if self.looked_at_exit { FinalView::AtExit } else { FinalView::Sampled },
            mapped_files: self.last_look.mapped_files,
        }
    }

    /// The kernel's mark in `rusage` covers waited-for children but also the moment between fork and exec, when the
    /// child was a copy of us; a mark no higher than that says nothing, and the process's own mark is taken.
    fn peak_rss_bytes(&self, usage: &libc::rusage) -> u64 {
        let of_tree_bytes = count(usage.ru_maxrss).saturating_mul(1024);
        let is_ours = of_tree_bytes <= self.launched.inherited_rss_bytes + RSS_MARGIN_BYTES;
        match self.last_look.peak_rss_bytes {
            Some(own_bytes) if is_ours => own_bytes,
            Some(own_bytes) => own_bytes.max(of_tree_bytes),
            None => of_tree_bytes,
        }
    }
}

fn wait_without_blocking(pid: i32) -> io::Result<Option<(i32, libc::rusage)>> {
    let mut status = 0;
    // SAFETY: rusage is plain data; all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for writing during the call.
    let changed = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
    match changed {
        0 => Ok(None),
        changed if changed == pid => Ok(Some((status, usage))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a stopped tracee go on; one that was killed meanwhile is gone, and the next wait says so.
pub(crate) fn resume(request: libc::c_uint, pid: i32, signal: i32) {
    // SAFETY: these requests take no address; the last argument is a signal number, of the width of a pointer.
    let _ = unsafe {
        libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), libc::c_long::from(signal))
    };
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn count(number: libc::c_long) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
