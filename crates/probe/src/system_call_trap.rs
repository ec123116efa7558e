//! Follows the calls by which a family of processes changes its mappings, stopping each thread at them: ptrace(2).
//!
//! With a seccomp filter only these calls stop, twice each, and all others run at full speed; without it every system
//! call stops. Signals go through unchanged, and what the processes start is followed, too.

use std::collections::{HashMap, HashSet};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use faultless_records::measurement::Ending;
use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};
use faultless_records::perf_record::{News, PerfRecord, Sample};
use faultless_records::status;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::clock::monotonic_ns;
use crate::closed::{self, Access};
use crate::deadline::GRACE;
use crate::launch::Launched;
use crate::memory_call_filter::{ARCHITECTURE, kind_of};
use crate::process::Process;
use crate::signals::{Arrival, Signals};
use crate::tracer::{
    CALL_STOP, Stop, call_of, changes, ending, event_message, interrupt, is_job_control, sample_of, seize,
};
use crate::watch::{WatchError, resume};

/// How often the observer hears that time passes.
const TICK: Duration = Duration::from_millis(200);
/// How long no thread may have stopped before those that are left are let go by the kernel, at the end of who traces them: a
/// first thread that has ended does not stop, nor does one that waits for a disk or for its child of `vfork`.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who is told what happens.
pub trait Observer {
    /// The next event.
    fn take(&mut self, event: MemoryEvent);
    /// The call chain of a thread that is at a call: its index among all chains; none when it leads nowhere.
    fn chain(&mut self, record: &PerfRecord, sample: &Sample) -> Option<u32>;
    /// News of the kernel about names, mappings, starts and ends.
    fn record(&mut self, record: &PerfRecord);
    /// A process may have code where there was none.
    fn code_changed(&mut self, pid: i32);
    /// Time passes.
    fn tick(&mut self);
}

/// What is followed.
#[derive(Debug)]
pub enum Subject<'subject> {
    /// A command that we started.
    Command {
        /// Started with [`crate::launch::Tracing::Family`] or `FilteredFamily`.
        launched: &'subject Launched,
        /// With the filter.
        is_filtered: bool,
    },
    /// A process that ran before; it is let go at the end.
    Process(&'subject Process),
}

/// How it went.
#[derive(Debug)]
pub struct Followed {
    /// How the command ended; none for a process that went on, and for a command that was ended when its time was over.
    pub ending: Option<Ending>,
    /// How long it was followed, from exec or from the first look.
    pub observed: Duration,
    /// Programs of another architecture were started, whose calls are not seen.
    pub is_blind_to_some: bool,
}

/// Follows the subject to its end, or for so long.
///
/// A command of ours is ended when its time is over, because under the filter it could not go on without us.
///
/// # Errors
/// [`WatchError`]; a process that may not be traced.
pub fn follow(
    subject: &Subject<'_>,
    signals: &Signals,
    limit: Option<Duration>,
    observer: &mut (dyn Observer + Send),
) -> Result<Followed, WatchError> {
    let mut follow = || follow_from_here(subject, signals, limit, observer);
    match subject {
        // Its tracer is the thread that started it.
        Subject::Command { .. } => follow(),
        // The end of its tracer, a thread of its own, lets those go on that could not be let go: they may stop any time.
        Subject::Process(_) => thread::scope(|scope| {
            thread::Builder::new()
                .spawn_scoped(scope, follow)?
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }),
    }
}

fn follow_from_here(
    subject: &Subject<'_>,
    signals: &Signals,
    limit: Option<Duration>,
    observer: &mut dyn Observer,
) -> Result<Followed, WatchError> {
    let (pid, is_filtered, is_ours) = match subject {
        Subject::Command { launched, is_filtered } => (launched.pid(), *is_filtered, true),
        Subject::Process(process) => (process.pid(), false, false),
    };
    let mut family = Family::new(pid, is_filtered, is_ours);
    match subject {
        Subject::Command { .. } => drop(family.threads.insert(pid, Thread { pid, call: None })),
        Subject::Process(process) => family.attach(process)?,
    }
    family.follow(signals, limit, observer)?;
    let end = family.over.unwrap_or_else(Instant::now);
    let observed = family.began.map_or(Duration::ZERO, |began| end.saturating_duration_since(began));
    Ok(Followed { ending: family.own_ending, observed, is_blind_to_some: family.is_blind_to_some })
}

struct Thread {
    pid: i32,
    /// The call it is in, if that is one of ours.
    call: Option<(CallKind, [u64; 5], Option<TakenStack>)>,
}

#[derive(Default)]
struct Family {
    pid: i32,
    is_filtered: bool,
    is_ours: bool,
    threads: HashMap<i32, Thread>,
    /// New threads that stopped before their parent told of them, and when.
    early: HashMap<i32, Instant>,
    began: Option<Instant>,
    /// When counting stopped, if that was before the end of all.
    over: Option<Instant>,
    ending: Option<Ending>,
    /// The same, if it ended before its time was over.
    own_ending: Option<Ending>,
    /// Every thread is let go at its next stop.
    leaving: bool,
    is_blind_to_some: bool,
}

impl Family {
    fn new(pid: i32, is_filtered: bool, is_ours: bool) -> Self {
        Self { pid, is_filtered, is_ours, ..Self::default() }
    }

    fn attach(&mut self, process: &Process) -> Result<(), WatchError> {
        // Threads started meanwhile by one that is traced already are traced by themselves.
        loop {
            let threads = process.threads().map_err(|error| io::Error::other(error.to_string()))?;
            let is_complete = !self.attach_to(process, &threads)?;
            if is_complete && !(self.threads.is_empty() && process.is_alive()) {
                self.began = Some(Instant::now());
                return Ok(());
            }
        }
    }

    /// Attaches to those of these threads that are not traced yet; whether there were any.
    fn attach_to(&mut self, process: &Process, threads: &[i32]) -> Result<bool, WatchError> {
        let known = self.threads.len();
        let mut refused = None;
        for tid in threads {
            if self.threads.contains_key(tid) {
                continue;
            }
            match seize(*tid) {
                Ok(()) => drop(self.threads.insert(*tid, Thread { pid: self.pid, call: None })),
                Err(_) if process.thread_has_ended(*tid) => {}
                // Not for us, or traced by us since a moment ago.
                Err(error) => refused = Some(error),
            }
        }
        match refused.filter(|_| self.threads.is_empty()) {
            Some(error) => Err(io::Error::new(error.kind(), refusal(self.pid, &error)).into()),
            None => Ok(self.threads.len() > known),
        }
    }

    fn follow(
        &mut self,
        signals: &Signals,
        limit: Option<Duration>,
        observer: &mut dyn Observer,
    ) -> Result<(), WatchError> {
        let mut give_up_at: Option<Instant> = None;
        let mut next_tick = Instant::now() + TICK;
        while !self.threads.is_empty() || !self.early.is_empty() {
            let is_quiet = loop {
                let changes = match changes() {
                    Ok(changes) if changes.is_empty() => break true,
                    Ok(changes) => changes,
                    Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                        self.threads.clear();
                        self.early.clear();
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                };
                changes.into_iter().for_each(|(tid, status)| self.take(tid, status, observer));
                if Instant::now() >= next_tick {
                    break false;
                }
            };
            let now = Instant::now();
            self.adopt_orphans(now);
            if now >= next_tick {
                next_tick = now + TICK;
                observer.tick();
            }
            let is_over = limit.zip(self.began).is_some_and(|(limit, began)| now >= began + limit);
            if is_over && self.over.is_none() {
                self.stop(now, &mut give_up_at);
            }
            if self.leaving && !is_quiet {
                give_up_at = Some(now + PATIENCE);
            }
            if give_up_at.take_if(|at| now >= *at).is_some() {
                if self.leaving {
                    return Ok(());
                }
                self.signal_all(Signal::SIGKILL);
            }
            if self.threads.is_empty() && self.early.is_empty() {
                break;
            }
            let end =
                limit.zip(self.began).filter(|_| self.over.is_none()).map(|(limit, began)| began + limit);
            // Those that have stopped already send no further signal.
            let until = if is_quiet { end.map_or(next_tick, |end| end.min(next_tick)) } else { now };
            if let Some(arrival) = signals.next(Some(until.saturating_duration_since(now)))? {
                self.pass_on(arrival, &mut give_up_at);
            }
        }
        Ok(())
    }

    /// The time is over, or somebody wants it to be.
    fn stop(&mut self, now: Instant, give_up_at: &mut Option<Instant>) {
        self.over.get_or_insert(now);
        if self.is_ours {
            *give_up_at = Some(now + GRACE);
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        } else {
            self.leaving = true;
            *give_up_at = Some(now + PATIENCE);
            self.threads.keys().for_each(|tid| interrupt(*tid));
        }
    }

    fn pass_on(&mut self, arrival: Arrival, give_up_at: &mut Option<Instant>) {
        if arrival.is_about_child() {
            return;
        }
        if !self.is_ours {
            if arrival.is_interruption() {
                self.stop(Instant::now(), give_up_at);
            }
        } else if self.ending.is_some() {
            // The command has ended: what it left behind goes, too, when we are asked to.
            if arrival.is_interruption() {
                self.signal_all(Signal::SIGKILL);
            }
        } else if arrival.is_from_process
            && let Ok(signal) = Signal::try_from(arrival.number)
        {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    fn signal_all(&self, signal: Signal) {
        let known = self.threads.values().map(|thread| thread.pid);
        let pids: HashSet<i32> = known.chain(self.early.keys().copied()).collect();
        for pid in pids {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Handles one change of one thread. Source: ptrace(2), "Stopped states".
    fn take(&mut self, tid: i32, status: i32, observer: &mut dyn Observer) {
        if let Some(ending) = ending(status) {
            self.gone(tid, ending, observer);
        } else if libc::WIFSTOPPED(status) {
            self.stopped(tid, libc::WSTOPSIG(status), status >> 16, observer);
        }
    }

    fn gone(&mut self, tid: i32, ending: Ending, observer: &mut dyn Observer) {
        self.early.remove(&tid);
        let Some(thread) = self.threads.remove(&tid) else { return };
        if thread.pid != tid {
            return;
        }
        self.threads.retain(|_, other| other.pid != tid);
        if tid == self.pid {
            self.ending = Some(ending);
            self.own_ending = self.over.is_none().then_some(ending);
        }
        if self.is_counting() {
            observer.take(MemoryEvent::Exit { pid: tid });
        }
    }

    fn is_counting(&self) -> bool {
        self.began.is_some() && self.over.is_none()
    }

    fn stopped(&mut self, tid: i32, signal: i32, event: i32, observer: &mut dyn Observer) {
        if !self.threads.contains_key(&tid) {
            // Its parent will tell of it; until then it waits.
            self.early.insert(tid, Instant::now());
            return;
        }
        match event {
            0 if signal == CALL_STOP => self.at_call(tid, observer),
            0 => return self.go_on(tid, signal),
            _ if is_job_control(signal, event) && !self.leaving => {
                return resume(libc::PTRACE_LISTEN, tid, 0);
            }
            libc::PTRACE_EVENT_SECCOMP => self.at_call(tid, observer),
            libc::PTRACE_EVENT_EXEC => self.executed(tid, observer),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.started(tid, observer);
            }
            _ => {}
        }
        self.go_on(tid, 0);
    }

    /// Lets a thread go on to its next stop, or for ever.
    fn go_on(&mut self, tid: i32, signal: i32) {
        if self.leaving {
            resume(libc::PTRACE_DETACH, tid, signal);
            self.threads.remove(&tid);
            return;
        }
        let in_call = self.threads.get(&tid).is_some_and(|thread| thread.call.is_some());
        let every_call = !self.is_filtered && self.began.is_some();
        let request = if in_call || every_call { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        resume(request, tid, signal);
    }

    fn at_call(&mut self, tid: i32, observer: &mut dyn Observer) {
        let is_counting = self.is_counting();
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match call_of(tid, ARCHITECTURE) {
            Some(Stop::Entry { number, arguments }) => {
                let Some(kind) = kind_of(number).filter(|_| is_counting) else { return };
                let [first, second, third, fourth, fifth, _] = arguments;
                let sample = sample_of(tid);
                let record = PerfRecord { time_ns: 0, pid: thread.pid, tid, cpu: 0, news: News::Other };
                let index = sample.and_then(|sample| observer.chain(&record, &sample));
                let stack = index.map(|index| TakenStack { index, weight: 1 });
                thread.call = Some((kind, kind.arguments_of([first, second, third, fourth, fifth]), stack));
            }
            Some(Stop::Exit { answer }) => {
                let Some((kind, arguments, stack)) = thread.call.take() else { return };
                let result = MemoryCall::result_of_register(answer);
                let pid = thread.pid;
                let time_ns = monotonic_ns();
                if maps_code(kind, &arguments) {
                    observer.code_changed(pid);
                }
                observer.take(MemoryEvent::Call(MemoryCall {
                    time_ns,
                    pid,
                    tid,
                    kind,
                    arguments,
                    result,
                    stack,
                }));
            }
            None => self.is_blind_to_some |= is_foreign(tid),
        }
    }

    fn executed(&mut self, tid: i32, observer: &mut dyn Observer) {
        // The other threads are gone, and whichever called exec has the process's number now.
        self.threads.retain(|_, thread| thread.pid != tid);
        self.threads.insert(tid, Thread { pid: tid, call: None });
        if self.began.is_none() {
            self.began = Some(Instant::now());
        } else if self.is_counting() {
            observer.take(MemoryEvent::Exec { pid: tid });
        }
        observer.record(&news(tid, News::Name { name: String::new(), is_exec: true }));
    }

    fn started(&mut self, tid: i32, observer: &mut dyn Observer) {
        let (Some(new), Some(parent)) = (event_message(tid), self.threads.get(&tid).map(|thread| thread.pid))
        else {
            return;
        };
        let is_thread = std::fs::exists(format!("/proc/{parent}/task/{new}")).unwrap_or(false);
        let pid = if is_thread { parent } else { new };
        self.threads.entry(new).or_insert(Thread { pid, call: None });
        if self.is_counting() {
            observer.take(match is_thread {
                true => MemoryEvent::Thread { pid },
                false => MemoryEvent::Fork { parent, child: new },
            });
        }
        if self.early.remove(&new).is_some() {
            self.go_on(new, 0);
        }
    }

    /// Lets those go on whose parent was killed before it could tell of them. A parent that is only late still tells.
    fn adopt_orphans(&mut self, now: Instant) {
        let is_due = |since: &Instant| now.saturating_duration_since(*since) >= TICK;
        let orphans: Vec<i32> = self.early.extract_if(|_, since| is_due(since)).map(|(tid, _)| tid).collect();
        for tid in orphans {
            let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let pid = status::number_of_field(&status, "Tgid").unwrap_or(tid);
            self.threads.insert(tid, Thread { pid, call: None });
            self.go_on(tid, 0);
        }
    }
}

fn news(pid: i32, news: News) -> PerfRecord {
    PerfRecord { time_ns: 0, pid, tid: pid, cpu: 0, news }
}

/// Whether a call may have brought code: what is known about the process's code is old then.
fn maps_code(kind: CallKind, arguments: &[u64; 5]) -> bool {
    let protection = arguments[2];
    matches!(kind, CallKind::Mmap | CallKind::Mprotect) && protection & libc::PROT_EXEC as u64 != 0
}

/// Whether a stopped thread is at a call of another architecture.
fn is_foreign(tid: i32) -> bool {
    const OTHERS: [u32; 2] = [0x4000_0003, 0x4000_0028];
    OTHERS.iter().any(|architecture| call_of(tid, *architecture).is_some())
}

fn refusal(pid: i32, error: &io::Error) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if let Some(tracer) = status::tracer(&status) {
        return format!("cannot trace process {pid}: process {tracer} traces it already (end that)");
    }
    let cure = closed::cure(pid, Access::Attachment, "CAP_SYS_PTRACE");
    format!("not permitted to trace process {pid} ({error}){cure}; where a debugger traces it, end that")
}

#[cfg(test)]
mod tests;
