//! A process made to stand still for a moment, so that what is read of it belongs together.
//!
//! `PTRACE_SEIZE` and `PTRACE_INTERRUPT` rather than `SIGSTOP`: the process is sent no signal, its parent hears nothing, and a
//! process that is stopped already stays so. If we die, the kernel lets all of its threads go on.

use std::collections::HashSet;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use faultless_records::status;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::closed::{self, Access};
use crate::process::{Process, ProcessError};
use crate::tracer::{CALL_STOP, is_job_control};
use crate::watch::{Change, try_resume, wait_without_blocking};

/// How long threads have to stop; one that waits for a disk cannot.
const PATIENCE: Duration = Duration::from_millis(500);
/// When nothing was attached to for so long, it may be that nothing can be.
const AT_A_STANDSTILL: Duration = Duration::from_millis(5);
/// How long threads that were killed have to end.
const FAREWELL: Duration = Duration::from_millis(50);
/// How often, and for how long, new threads are looked for before the process counts as standing.
const MOST_ROUNDS: usize = 100;
const LONGEST: Duration = Duration::from_secs(2);

/// Why a process could not be made to stand still.
#[derive(Debug)]
pub enum StandstillError {
    /// Another tracer has it: a debugger, strace, ourselves in another run.
    Traced {
        /// Its number.
        pid: i32,
        /// The tracer's.
        tracer: i32,
    },
    /// The kernel does not let us attach.
    Denied(i32),
    /// It cannot be looked at any more.
    Process(ProcessError),
}

impl fmt::Display for StandstillError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traced { pid, tracer } => {
                write!(
                    out,
                    "cannot stop process {pid}: process {tracer} traces it already (end that, or leave --stop out)"
                )
            }
            Self::Denied(pid) => {
                let cure = closed::cure(*pid, Access::Attachment, "CAP_SYS_PTRACE");
                write!(out, "not permitted to stop process {pid}{cure}")
            }
            Self::Process(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for StandstillError {}

struct Held {
    thread: Pid,
    /// We had traced it before and go on tracing it.
    is_ours: bool,
    /// It is a process that we started: its end is for whoever waits for it.
    is_child: bool,
    is_stopped: bool,
    /// Its process is stopped by job control, and stays so.
    is_in_group_stop: bool,
    /// A signal that arrived meanwhile and is delivered when the thread goes on; 0 for none.
    signal: i32,
}

/// A process whose threads stand still; they go on when this is dropped.
pub struct Standstill {
    held: Vec<Held>,
    began: Instant,
}

impl Standstill {
    /// Stops all threads of a process; one that this thread launched and traces is interrupted as it is.
    ///
    /// # Errors
    /// [`StandstillError`]; then every thread goes on.
    pub fn begin(process: &Process) -> Result<Self, StandstillError> {
        let mut standstill = Self { held: Vec::new(), began: Instant::now() };
        let (tell, told) = channel();
        thread::scope(|scope| {
            let _ = thread::Builder::new().spawn_scoped(scope, move || take_notice_of_ends(&told));
            // Who is told no more ends.
            let tell = tell;
            standstill.stop_all(process, &tell)
        })?;
        Ok(standstill)
    }

    /// Tells of each thread whose end would be for us to take notice of.
    fn stop_all(&mut self, process: &Process, tell: &Sender<Pid>) -> Result<(), StandstillError> {
        for _ in 0..MOST_ROUNDS {
            let threads = process.threads().map_err(StandstillError::Process)?;
            let known: HashSet<Pid> = self.held.iter().map(|held| held.thread).collect();
            for thread in threads.into_iter().map(Pid::from_raw).filter(|thread| !known.contains(thread)) {
                self.seize(process, thread)?;
                let is_first = thread.as_raw() == process.pid();
                if self.held.last().is_some_and(|held| held.thread == thread && !held.is_ours && !is_first) {
                    let _ = tell.send(thread);
                }
            }
            if self.held.len() == known.len() || self.began.elapsed() > LONGEST {
                break;
            }
            self.wait_for_all();
        }
        Ok(())
    }

    /// When the first of them was told to stop.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Threads that could not be stopped in time, because they wait in the kernel.
    #[must_use]
    pub fn moving_threads(&self) -> usize {
        self.held.iter().filter(|held| !held.is_stopped).count()
    }

    /// Lets all threads go on; returns how long they stood.
    #[must_use]
    pub fn end(mut self) -> Duration {
        self.release();
        self.began.elapsed()
    }

    fn seize(&mut self, process: &Process, thread: Pid) -> Result<(), StandstillError> {
        let tracer = tracer_of(process, thread);
        let is_ours = tracer == Some(nix::unistd::gettid().as_raw());
        if !is_ours {
            match ptrace::seize(thread, Options::empty()) {
                Ok(()) => {}
                // It ended while we looked.
                Err(_) if process.thread_has_ended(thread.as_raw()) => return Ok(()),
                Err(_) => {
                    let pid = process.pid();
                    return Err(match tracer {
                        Some(tracer) => StandstillError::Traced { pid, tracer },
                        None => StandstillError::Denied(pid),
                    });
                }
            }
        }
        // One that has ended meanwhile answers when it is waited for.
        let _ = ptrace::interrupt(thread);
        let is_child = thread.as_raw() == process.pid() && is_child(process);
        self.held.push(Held::new(thread, is_ours, is_child));
        Ok(())
    }

    fn wait_for_all(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.held.retain_mut(|held| held.is_stopped || held.check());
            if self.moving_threads() == 0 || Instant::now() > until {
                return;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn release(&mut self) {
        let mut ended = Vec::new();
        for mut held in self.held.drain(..) {
            if !held.is_stopped && !held.check() {
                continue;
            }
            // A thread that does not stand cannot be let go; the kernel does it when we end.
            let request = match held.is_ours {
                true if held.is_in_group_stop => libc::PTRACE_LISTEN,
                true => libc::PTRACE_CONT,
                false => libc::PTRACE_DETACH,
            };
            let goes_on = try_resume(request, held.thread.as_raw(), held.signal);
            // One that never stopped may live on, and still not be let go.
            if !goes_on && held.is_stopped && !held.is_ours && !held.is_child {
                ended.push(held.thread);
            }
        }
        // Killed meanwhile, as by the first of them that became another program when it went on, and waits for their ends.
        let until = Instant::now() + FAREWELL;
        while !ended.is_empty() && Instant::now() < until {
            ended.retain(is_held);
            thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.release();
    }
}

impl Held {
    fn new(thread: Pid, is_ours: bool, is_child: bool) -> Self {
        Self { thread, is_ours, is_child, is_stopped: false, is_in_group_stop: false, signal: 0 }
    }

    /// Looks whether it stands by now; false when it has ended.
    fn check(&mut self) -> bool {
        let wait = |options| wait_without_blocking(self.thread.as_raw(), options);
        match wait(libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT) {
            Ok(Some(Change::Ended(_))) => {
                if !self.is_child {
                    let _ = wait(libc::WEXITED);
                }
                return false;
            }
            Ok(Some(Change::Stopped { .. })) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
        // One that was killed meanwhile shows its end at the next look.
        let Ok(Some(Change::Stopped { signal, event })) = wait(libc::WSTOPPED) else { return true };
        self.is_stopped = true;
        self.is_in_group_stop = is_job_control(signal, event);
        // It was about to take a signal: it takes it when it goes on. Stops at calls are marked by the bit.
        if event == 0 && signal != CALL_STOP {
            self.signal = signal;
        }
        true
    }
}

/// Takes notice of the ends of the threads that it is told of, while we attach to others. A thread that becomes another program waits for
/// that, and the kernel lets us attach to none meanwhile: `de_thread` in its fs/exec.c, `ptrace_attach` in its kernel/ptrace.c.
fn take_notice_of_ends(told: &Receiver<Pid>) {
    let mut held = Vec::new();
    loop {
        match told.recv_timeout(AT_A_STANDSTILL) {
            Ok(thread) => held.push(thread),
            Err(RecvTimeoutError::Timeout) => held.retain(is_held),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Whether a thread that we hold has not ended; if it has, its end has been taken notice of.
fn is_held(thread: &Pid) -> bool {
    let wait = |options| wait_without_blocking(thread.as_raw(), libc::WEXITED | options);
    // Asked so, the kernel tells of a tracee's stops, too, which are for another to take.
    match wait(libc::WNOWAIT) {
        Ok(Some(Change::Ended(_))) => {
            let _ = wait(0);
            false
        }
        told => told.is_ok(),
    }
}

/// Whether we started a process.
fn is_child(process: &Process) -> bool {
    let status = process.text("status").unwrap_or_default();
    status::number_of_field(&status, "PPid") == Some(std::process::id())
}

/// Who traces a thread.
fn tracer_of(process: &Process, thread: Pid) -> Option<i32> {
    status::tracer(&process.text(&format!("task/{thread}/status")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    fn state_of(process: &Process) -> Option<char> {
        let stat = process.text("stat").ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// A shell that is ready, and exits with status 7 at this signal.
    fn shell_that_waits_for(signal: &str) -> (Child, Process) {
        let script = format!("trap 'exit 7' {signal}; echo ready; while :; do sleep 0.01; done");
        let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
        let process = Process::open(child.id().cast_signed()).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, process)
    }

    #[test]
    fn a_process_stands_and_goes_on_and_its_signals_reach_it() {
        let (mut child, process) = shell_that_waits_for("USR1");
        let standstill = match Standstill::begin(&process) {
            Ok(standstill) => standstill,
            Err(error) => {
                // Where attaching is forbidden the message says what would help.
                assert!(error.to_string().contains("sudo"), "{error}");
                faultless_skipped::skipped(error);
                child.kill().unwrap();
                child.wait().unwrap();
                return;
            }
        };
        assert_eq!(standstill.moving_threads(), 0);
        assert_eq!(state_of(&process), Some('t'), "stopped by its tracer");
        nix::sys::signal::kill(Pid::from_raw(process.pid()), Signal::SIGUSR1).unwrap();
        let stood = standstill.end();
        assert!(stood < Duration::from_secs(5), "{stood:?}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "it went on and took its signal");
    }

    #[test]
    fn a_thread_that_has_ended_is_not_one_that_may_not_be_stopped() {
        let (process, pipe) = crate::process::tests::leaderless();
        let mut standstill = Standstill { held: Vec::new(), began: Instant::now() };
        let seized = standstill.seize(&process, Pid::from_raw(process.pid()));
        drop(pipe);
        nix::sys::wait::waitpid(Pid::from_raw(process.pid()), None).unwrap();
        assert!(seized.is_ok() && standstill.held.is_empty(), "{seized:?}");
    }

    #[test]
    fn a_real_time_signal_that_stops_a_thread_first_reaches_it() {
        let number = libc::SIGRTMIN() + 3;
        let (mut child, process) = shell_that_waits_for(&number.to_string());
        let thread = Pid::from_raw(process.pid());
        if ptrace::seize(thread, Options::empty()).is_err() {
            faultless_skipped::skipped("nobody may trace here");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        // SAFETY: a signal to a child of ours, which touches no memory.
        assert_eq!(unsafe { libc::kill(process.pid(), number) }, 0);
        while state_of(&process) != Some('t') {
            std::thread::yield_now();
        }
        let held = vec![Held::new(thread, false, true)];
        let mut standstill = Standstill { held, began: Instant::now() };
        standstill.wait_for_all();
        let stands = standstill.moving_threads() == 0;
        let _ = standstill.end();
        if !stands {
            child.kill().unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(7), "it went on and took its signal");
        assert!(stands, "it counts as standing");
    }

    #[test]
    fn a_process_with_another_tracer_is_named_with_it() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id().cast_signed()).unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let pid = process.pid();
        // A tracer is a thread: another of ours is another tracer.
        let tracer = std::thread::spawn(move || {
            let seized = ptrace::seize(Pid::from_raw(pid), Options::empty());
            send.send(seized.is_ok()).unwrap();
            let _ = wait.recv();
        });
        if receive.recv().unwrap() {
            let Err(error) = Standstill::begin(&process) else { panic!("it has a tracer") };
            assert!(matches!(error, StandstillError::Traced { .. }), "{error}");
        } else {
            faultless_skipped::skipped("nobody may trace here");
        }
        drop(done);
        tracer.join().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_command_of_ours_stays_stopped_by_job_control_and_its_end_is_for_whoever_waits_for_it() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id().cast_signed()).unwrap();
        let thread = Pid::from_raw(process.pid());
        if ptrace::seize(thread, Options::empty()).is_err() {
            faultless_skipped::skipped("nobody may trace here");
            child.kill().unwrap();
            child.wait().unwrap();
            return;
        }
        nix::sys::signal::kill(thread, Signal::SIGSTOP).unwrap();
        // As who follows a command answers: the signal is delivered, and its group stop is listened in.
        while !matches!(wait_without_blocking(process.pid(), libc::WSTOPPED), Ok(Some(_))) {
            std::thread::yield_now();
        }
        crate::watch::resume(libc::PTRACE_CONT, process.pid(), libc::SIGSTOP);
        let standstill = Standstill::begin(&process).unwrap();
        let is_in_group_stop = standstill.held.iter().all(|held| held.is_in_group_stop);
        let _ = standstill.end();
        let state = state_of(&process);
        let mut held = Held::new(thread, true, is_child(&process));
        child.kill().unwrap();
        while held.check() {
            std::thread::yield_now();
        }
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(is_in_group_stop && state == Some('t'), "{state:?}");
    }
}
