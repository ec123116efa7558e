//! Follows a started command to its end: passes signals both ways, looks at it on its way out, adds up its use.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use faultless_records::measurement::{Ending, FinalView, Measurement};
use faultless_records::signal;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgid, getsid};

use crate::deadline::GRACE;
use crate::launch::Launched;
use crate::orphans;
use crate::process_files::{self, Others, Snapshot};
use crate::process_list;
use crate::signals::{Arrival, Signals};
use crate::tracer::{ending, is_job_control};

/// How often an untraced command is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);

/// Most processes that Linux numbers: `PID_MAX_LIMIT` in its include/linux/threads.h.
const MOST_PROCESSES: i32 = 4 << 20;

/// Uncertainty of the kernel's resident counters, and what the child may touch between our look and its exec, for telling the mark that
/// the command inherits from its own.
const RSS_MARGIN_BYTES: u64 = 2 * 1024 * 1024;

/// Why a command's figures are missing.
#[derive(Debug)]
pub enum WatchError {
    /// A signal of this number asked us to end; a detached command was ended first.
    Interrupted(i32),
    /// The kernel refused a call.
    System(io::Error),
}

impl fmt::Display for WatchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(number) => write!(out, "interrupted by {}", signal::name(*number)),
            Self::System(error) => write!(out, "cannot be followed: {error}"),
        }
    }
}

impl std::error::Error for WatchError {}

impl From<io::Error> for WatchError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// When a detached command that goes on is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It is killed after so long.
    Kill(Duration),
    /// After so long it is looked at and asked to end, and killed where it does not, with all that it leaves: it counts as one that
    /// timeout(1) has ended.
    End(Duration),
}

/// Follows the command to its end and returns its figures; a detached one that goes on for longer than `limit` is ended.
///
/// A command in our own process group gets the signals that processes send to us (the terminal's reach it anyway); a
/// detached one is ended, with all of its session, when we are asked to end.
///
/// # Errors
/// [`WatchError`].
pub fn watch(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Limit>,
) -> Result<Measurement, WatchError> {
    watch_beside(launched, signals, limit, &mut |_| None)
}

/// When the observer of [`watch_beside`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// While the command runs.
    Running,
    /// The command stands still on its way out, the memory and files as they were.
    AtExit,
    /// Its first thread does, and others go on: the end of those will not stop for us.
    FirstThreadAtExit,
    /// The command has ended with this status of wait(2), and its last counters are still to be read.
    Ended(i32),
}

/// As [`watch`]; `observe` is called in between, says how long it can wait for its next turn, and must be quick.
///
/// # Errors
/// [`WatchError`].
pub fn watch_beside(
    launched: &Launched,
    signals: &Signals,
    limit: Option<Limit>,
    observe: &mut dyn FnMut(Moment) -> Option<Duration>,
) -> Result<Measurement, WatchError> {
    let mut watch = Watch::new(launched, limit);
    let measurement = loop {
        if let Some(measurement) = watch.take_changes(observe)? {
            break measurement;
        }
        let patience = watch.patience().into_iter().chain(observe(Moment::Running)).min();
        if let Some(arrival) = signals.next(patience)? {
            watch.pass_on(arrival);
        }
        watch.sample();
        watch.end_when_due();
    };
    if let Some(number) = watch.interrupted {
        watch.signal_session(Signal::SIGKILL);
        return Err(WatchError::Interrupted(number));
    }
    if watch.is_overdue {
        watch.signal_session(Signal::SIGKILL);
    }
    Ok(measurement)
}

/// Follows a command step by step, for those who wait for other things, too; [`watch_beside`] does nothing else.
#[derive(Debug)]
pub struct Watch<'launched> {
    launched: &'launched Launched,
    last_look: Snapshot,
    /// The last look is that of its exit, or of the end of its time.
    looked_at_exit: bool,
    /// Whether its exit will stop for us.
    is_traced: bool,
    /// Time the command stood still because we looked at it; not its own.
    looking: Duration,
    interrupted: Option<i32>,
    end_at: Option<Instant>,
    kill_at: Option<Instant>,
    /// Its time was over.
    is_overdue: bool,
    /// It has been waited for: its number may be another process's by now.
    is_reaped: bool,
}

impl<'launched> Watch<'launched> {
    /// Before anything was seen of it.
    #[must_use]
    pub fn new(launched: &'launched Launched, limit: Option<Limit>) -> Self {
        let (end, kill) = match limit.filter(|_| launched.is_detached) {
            None => (None, None),
            Some(Limit::End(limit)) => (Some(limit), None),
            Some(Limit::Kill(limit)) => (None, Some(limit)),
        };
        let moment = |limit| launched.started + limit;
        Self {
            launched,
            last_look: Snapshot::default(),
            looked_at_exit: false,
            is_traced: launched.is_traced,
            looking: Duration::ZERO,
            interrupted: None,
            end_at: end.map(moment),
            kill_at: kill.map(moment),
            is_overdue: false,
            is_reaped: false,
        }
    }

    /// Handles all that the child has to say without waiting; returns its figures when it has ended. `observe` is called at
    /// its exit and at its end.
    ///
    /// # Errors
    /// When the kernel does not know the child.
    pub fn take_changes(
        &mut self,
        observe: &mut dyn FnMut(Moment) -> Option<Duration>,
    ) -> io::Result<Option<Measurement>> {
        let pid = self.launched.pid();
        while let Some(change) = wait_without_blocking(pid, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)? {
            match change {
                Change::Ended(status) => {
                    observe(Moment::Ended(status));
                    let usage = reap(pid)?;
                    self.is_reaped = true;
                    return Ok(ending(status).map(|ending| self.measurement(ending, &usage)));
                }
                // Taken out of the queue now; one that was killed meanwhile shows its end at the next turn.
                Change::Stopped { .. } => {
                    if let Some(Change::Stopped { signal, event }) =
                        wait_without_blocking(pid, libc::WSTOPPED)?
                    {
                        self.answer_stop(signal, event, observe);
                    }
                }
            }
        }
        // Those of a detached one are counted; `orphans::Orphanage` waits for them. While the command stands still none behind it is seen.
        if !self.launched.is_detached {
            orphans::wait_as_init(Some(pid));
        }
        Ok(None)
    }

    /// Source: ptrace(2), "Stopped states". Every signal is passed through unchanged.
    fn answer_stop(&mut self, signal: i32, event: i32, observe: &mut dyn FnMut(Moment) -> Option<Duration>) {
        let pid = self.launched.pid();
        match event {
            libc::PTRACE_EVENT_EXIT => {
                let start = Instant::now();
                if !self.looked_at_exit {
                    self.last_look = process_files::snapshot(pid);
                }
                // Only the first thread is traced.
                self.is_traced = false;
                let others = process_files::others(pid);
                match others {
                    Others::End => {
                        self.looked_at_exit = true;
                        observe(Moment::AtExit);
                    }
                    Others::GoOn => _ = observe(Moment::FirstThreadAtExit),
                    Others::Exec => {}
                }
                self.looking += start.elapsed();
                resume(libc::PTRACE_CONT, pid, 0);
                if others == Others::Exec {
                    self.is_traced = trace_again(pid);
                }
            }
            // It stays stopped, and we hear of its going on.
            _ if is_job_control(signal, event) => resume(libc::PTRACE_LISTEN, pid, 0),
            0 => resume(libc::PTRACE_CONT, pid, signal),
            _ => resume(libc::PTRACE_CONT, pid, 0),
        }
    }

    /// How long to wait for a signal before there is something else to do.
    fn patience(&self) -> Option<Duration> {
        let until_end = self.end_at.into_iter().chain(self.kill_at).min();
        let until_end = until_end.map(|at| at.saturating_duration_since(Instant::now()));
        let until_sample = (!self.is_traced && !self.looked_at_exit).then_some(SAMPLE_INTERVAL);
        until_end.into_iter().chain(until_sample).min()
    }

    /// Does with a signal what the command's kind asks for: passes it on, or ends a detached one. One that has ended gets none.
    pub fn pass_on(&mut self, arrival: Arrival) {
        if arrival.is_about_child() || self.is_reaped {
            return;
        }
        if self.launched.is_detached {
            if arrival.is_interruption() {
                let is_repeated = self.interrupted.replace(arrival.number).is_some();
                self.kill_at = Some(if is_repeated { Instant::now() } else { Instant::now() + GRACE });
                self.signal_session(Signal::SIGTERM);
            }
        } else if arrival.is_from_process
            && let Ok(signal) = Signal::try_from(arrival.number)
        {
            let _ = nix::sys::signal::kill(self.launched.pid, signal);
        }
    }

    fn end_when_due(&mut self) {
        if self.end_at.take_if(|at| *at <= Instant::now()).is_some() {
            // On its way out it may free what it has.
            self.look();
            (self.looked_at_exit, self.is_overdue) = (true, true);
            self.kill_at = Some(Instant::now() + GRACE);
            // What it started it ends and waits for, or not: if all were asked, who is counted would be chance.
            self.launched.send(libc::SIGTERM);
        }
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.signal_session(Signal::SIGKILL);
        }
    }

    /// Reaches every process of a detached command's session: its group, and groups that others made, as timeout(1) does.
    fn signal_session(&self, signal: Signal) {
        if !self.launched.is_detached {
            return;
        }
        let session = self.launched.pid;
        let _ = killpg(session, signal);
        let is_apart = |pid: &Pid| {
            getsid(Some(*pid)) == Ok(session) && getpgid(Some(*pid)).is_ok_and(|group| group != session)
        };
        // Where no more files may be open every number that there can be is tried, which takes none.
        let numbers = process_list::numbers().unwrap_or_else(|_| (1..=MOST_PROCESSES).collect());
        for pid in numbers.into_iter().map(Pid::from_raw).filter(is_apart) {
            let _ = nix::sys::signal::kill(pid, signal);
        }
    }

    /// Looks at a command whose end may come any time and will not stop for us.
    pub fn sample(&mut self) {
        if !self.is_traced && !self.looked_at_exit {
            self.look();
        }
    }

    fn look(&mut self) {
        let snapshot = process_files::snapshot(self.launched.pid());
        // A process on its way out shows no memory any more: the sample before counts.
        if snapshot.rss_bytes.is_some_and(|bytes| bytes > 0) {
            self.last_look = snapshot;
        }
    }

    fn measurement(&mut self, ending: Ending, usage: &libc::rusage) -> Measurement {
        Measurement {
            ending: if self.is_overdue { Ending::TIME_LIMIT } else { ending },
            user: duration(usage.ru_utime),
            system: duration(usage.ru_stime),
            elapsed: self.launched.started.elapsed().saturating_sub(self.looking),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            waits: count(usage.ru_nvcsw),
            peak_rss_bytes: self.peak_rss_bytes(usage),
            final_rss_bytes: self.last_look.rss_bytes,
            final_view: if self.looked_at_exit { FinalView::AtExit } else { FinalView::Sampled },
            mapped_files: std::mem::take(&mut self.last_look.mapped_files),
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

/// Traces the program that another thread became: it has the first one's number as soon as that is gone. Whether it will stop at its exit.
fn trace_again(pid: i32) -> bool {
    let seize = || ptrace::seize(Pid::from_raw(pid), ptrace::Options::PTRACE_O_TRACEEXIT).is_ok();
    (0..TRIES_TO_TRACE).any(|_| {
        std::thread::sleep(TRY_TO_TRACE_EVERY);
        seize()
    })
}

const TRIES_TO_TRACE: u32 = 50;
const TRY_TO_TRACE_EVERY: Duration = Duration::from_micros(100);

/// What became of a child.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended with this status of wait(2).
    Ended(i32),
    /// It stopped for a signal, or for an event of ptrace.
    Stopped { signal: i32, event: i32 },
}

/// What became of a child, if it is one of the `options`; stops of a traced child come with any of them.
pub(crate) fn wait_without_blocking(pid: i32, options: i32) -> io::Result<Option<Change>> {
    // SAFETY: siginfo_t is plain data; all zeros is a value of it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let (number, options) = (pid as libc::id_t, options | libc::WNOHANG | libc::__WALL);
    // SAFETY: the pointer is valid for writing during the call.
    if unsafe { libc::waitid(libc::P_PID, number, &raw mut info, options) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: waitid filled in the fields of a child, or left zeros.
    let (child, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((child == pid).then(|| change(info.si_code, status, || stop_of(pid))))
}

/// What waitid(2) tells by this code and status; `stop` is asked where it does not tell of which stop.
fn change(code: i32, status: i32, stop: impl FnOnce() -> Change) -> Change {
    match code {
        libc::CLD_EXITED => Change::Ended((status & 0xff) << 8),
        libc::CLD_KILLED if status == STOPPED_IN_GVISOR => stop(),
        libc::CLD_KILLED | libc::CLD_DUMPED => Change::Ended(status & 0x7f),
        _ => Change::Stopped { signal: status & 0xff, event: status >> 8 },
    }
}

/// The signal that killed a process, as gVisor says, which has only stopped; there is no such signal.
const STOPPED_IN_GVISOR: i32 = 0x7f;

/// Why a traced child stands still; as if by job control where the kernel does not tell. Source: ptrace(2), `PTRACE_GETSIGINFO`.
fn stop_of(pid: i32) -> Change {
    let by_job_control = Change::Stopped { signal: libc::SIGSTOP, event: libc::PTRACE_EVENT_STOP };
    ptrace::getsiginfo(Pid::from_raw(pid)).map_or(by_job_control, |info| {
        let is_event = info.si_code > 0 && info.si_code & 0xff == info.si_signo;
        Change::Stopped { signal: info.si_signo, event: if is_event { info.si_code >> 8 } else { 0 } }
    })
}

/// Takes a child that has ended out of the list of processes, and its use of resources.
fn reap(pid: i32) -> io::Result<libc::rusage> {
    // SAFETY: rusage is plain data; all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for writing during the call; a null status is not written.
    match unsafe { libc::wait4(pid, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL, &raw mut usage) } {
        reaped if reaped == pid => Ok(usage),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets a stopped tracee go on; one that was killed meanwhile is gone, and the next wait says so.
pub(crate) fn resume(request: libc::c_uint, pid: i32, signal: i32) {
    let _ = try_resume(request, pid, signal);
}

/// The same; whether it was not gone.
pub(crate) fn try_resume(request: libc::c_uint, pid: i32, signal: i32) -> bool {
    // SAFETY: these requests take no address; the last argument is a signal number, of the width of a pointer.
    let done = unsafe {
        libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), libc::c_long::from(signal))
    };
    done == 0
}

/// A time of wait4(2).
pub(crate) fn duration(time: libc::timeval) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
    seconds + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

fn count(number: libc::c_long) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_gvisor_tells_as_an_end_is_none() {
        let stop = || Change::Stopped { signal: libc::SIGTRAP, event: libc::PTRACE_EVENT_EXIT };
        assert_eq!(change(libc::CLD_KILLED, 0x7f, stop), stop());
        assert_eq!(change(libc::CLD_KILLED, libc::SIGKILL, stop), Change::Ended(libc::SIGKILL));
    }

    #[test]
    fn why_a_child_stands_still_is_asked_for_as_it_is_told() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        ptrace::seize(Pid::from_raw(pid), ptrace::Options::PTRACE_O_TRACEEXIT).unwrap();
        drop(child.stdin.take());
        let told = loop {
            let options = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
            if let Some(change) = wait_without_blocking(pid, options).unwrap() {
                break change;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!(told, Change::Stopped { signal: libc::SIGTRAP, event: libc::PTRACE_EVENT_EXIT });
        assert_eq!(stop_of(pid), told);
        resume(libc::PTRACE_CONT, pid, 0);
        child.wait().unwrap();
    }
}
