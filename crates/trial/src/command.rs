//! The command under trial and one run of it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use faultless_probe::launch::{Launch, Launched, Tracing, launch_traced};
use faultless_probe::orphans::Orphanage;
use faultless_probe::signals::Signals;
use faultless_probe::system_calls;
use faultless_probe::watch::{Limit, Moment, WatchError, watch_beside};
use faultless_probe::{process_files, process_list};
use faultless_records::allocator::Allocator;
use faultless_records::measurement::{Ending, Measurement, Orphan};
use faultless_records::program::program_of;
use faultless_records::signal;

use crate::environment::Environment;
use crate::output::Drain;

/// Time from one look at the sizes of processes to the next.
const SIZES_EVERY: Duration = Duration::from_millis(50);

/// What a process must have taken of the processor's time to be missed where it is in no figure.
const LEAST_PROCESSOR: Duration = Duration::from_millis(10);

/// A command whose program was found.
#[derive(Debug, Clone)]
pub struct Command {
    /// The executable file.
    pub program: PathBuf,
    /// All arguments, the name first.
    pub arguments: Vec<OsString>,
    /// A file that each run reads as its standard input, from the beginning; none for nothing.
    pub input: Option<PathBuf>,
    /// How long each run goes on, unless it ends before; none for its own end.
    pub limit: Option<Duration>,
}

impl Command {
    /// Of this program, with all arguments, the name first: it reads nothing and goes on to its own end.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, arguments: Vec<OsString>) -> Self {
        Self { program: program.into(), arguments, input: None, limit: None }
    }

    /// The name that it was called by, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        self.arguments[0].to_string_lossy().into_owned()
    }

    /// The words that it was typed as.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        self.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

/// One measured run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What was measured.
    pub measurement: Measurement,
    /// The end of what the command printed.
    pub output_tail: String,
}

/// A process when it was largest.
#[derive(Debug, Clone, Default)]
pub struct LargestView {
    /// Its resident bytes.
    pub bytes: u64,
    /// The files that it had mapped; the first is its program. None where they could not be seen.
    pub mapped_files: Vec<String>,
}

impl LargestView {
    /// The file of its program; none where it could not be seen.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        program_of(&self.mapped_files)
    }
}

/// Why a run has no result.
#[derive(Debug)]
pub enum RunError {
    /// A signal of this number asked the tool to end; the command was ended first.
    Interrupted(i32),
    /// The program could not be started.
    Start(io::Error),
    /// The kernel refused to let us follow it.
    Watch(io::Error),
    /// It did not end as it was to, in words.
    Ended(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(number) => write!(out, "interrupted by {}", signal::name(*number)),
            Self::Start(error) => write!(out, "cannot start: {error}"),
            Self::Watch(error) => write!(out, "cannot be followed: {error}"),
            Self::Ended(how) => out.write_str(how),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs the command apart from the terminal: input from its file or none, output read and dropped, a session of its own.
///
/// # Errors
/// [`RunError`].
pub fn run(command: &Command, environment: &Environment, signals: &Signals) -> Result<Run, RunError> {
    run_within(command, environment, signals, None)
}

/// A command as it is: its run, each of its processes when it was largest, by number, and what it left to itself.
#[derive(Debug)]
pub struct FirstLook {
    /// The run.
    pub run: Run,
    /// Its processes; those that live for a moment are missed.
    pub processes: HashMap<i32, LargestView>,
    /// What it did not wait for, and what is missed in its figures.
    pub orphans: Vec<Orphan>,
}

impl FirstLook {
    /// What serves it or the largest of its processes, where that is another allocator than the C library's.
    #[must_use]
    pub fn brought(&self) -> Option<Allocator> {
        brought(&self.run.measurement, self.processes.values())
    }
}

/// As [`run`], with more to tell. No other child of ours may live meanwhile.
///
/// # Errors
/// [`RunError`].
pub fn first_look(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
) -> Result<FirstLook, RunError> {
    let (mut orphanage, mut sizes) = (Orphanage::open(), Sizes::new());
    let run = run_beside(command, environment, signals, None, &mut |pid| {
        orphanage.wait_for_ended(Some(pid));
        Some(sizes.look(pid))
    })?;
    let orphans = orphanage.all().into_iter().filter(counts).collect();
    Ok(FirstLook { run, processes: sizes.largest, orphans })
}

/// Helpers that do next to nothing and end with their command change no figure.
fn counts(orphan: &Orphan) -> bool {
    orphan.goes_on || orphan.processor >= LEAST_PROCESSOR
}

/// What serves a command as it is, or the largest of its processes, where that is another allocator than the C library's.
pub fn brought<'view>(
    as_it_is: &Measurement,
    processes: impl IntoIterator<Item = &'view LargestView>,
) -> Option<Allocator> {
    let of_view = |view: &LargestView| Allocator::of_process(view.mapped_files.iter().map(String::as_str));
    let largest = processes.into_iter().max_by_key(|view| view.bytes).map(of_view);
    let served = [as_it_is.allocator(), largest].into_iter().flatten();
    served.into_iter().find(|allocator| *allocator != Allocator::Libc)
}

/// A run, and each of its processes when it was largest, by number.
#[derive(Debug)]
pub struct SizedRun {
    /// The run.
    pub run: Run,
    /// Its processes; those that live for a moment are missed.
    pub processes: HashMap<i32, LargestView>,
    /// The number of the first of them; none of one that ended before it was looked at.
    first: Option<i32>,
}

impl SizedRun {
    /// The first process when it was largest, where it became another program after that.
    #[must_use]
    pub fn before_exec(&self) -> Option<(i32, &LargestView)> {
        let (pid, at_end) = (self.first?, &self.run.measurement.mapped_files);
        let view = self.processes.get(&pid)?;
        let program = view.program().filter(|_| !at_end.is_empty())?;
        (!at_end.iter().any(|file| file == program)).then_some((pid, view))
    }
}

/// As [`run`]; also its processes when each was largest.
///
/// # Errors
/// [`RunError`].
pub fn run_with_sizes(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
) -> Result<SizedRun, RunError> {
    let (mut sizes, mut first) = (Sizes::new(), None);
    let run = run_beside(command, environment, signals, None, &mut |pid| {
        first = Some(pid);
        Some(sizes.look(pid))
    })?;
    Ok(SizedRun { run, processes: sizes.largest, first })
}

/// The processes of a command, looked at again and again.
struct Sizes {
    largest: HashMap<i32, LargestView>,
    next: Instant,
}

impl Sizes {
    fn new() -> Self {
        Self { largest: HashMap::new(), next: Instant::now() }
    }

    /// Looks if it is time for that. Returns when to come again.
    fn look(&mut self, pid: i32) -> Duration {
        if Instant::now() >= self.next {
            for member in process_list::family(pid) {
                let view = self.largest.entry(member).or_default();
                let bytes = process_files::resident_bytes(member).unwrap_or(0);
                if bytes > view.bytes {
                    *view = LargestView { bytes, mapped_files: process_files::mapped_files(member) };
                }
            }
            self.next = Instant::now() + SIZES_EVERY;
        }
        self.next.saturating_duration_since(Instant::now())
    }
}

/// As [`run_within`]; `observe` is called in between with the command's number, and says how long it can wait for its next turn.
fn run_beside(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
    limit: Option<Limit>,
    observe: &mut dyn FnMut(i32) -> Option<Duration>,
) -> Result<Run, RunError> {
    let (launched, drain) = start(command, environment, signals, Tracing::AtExit)?;
    let limit = limit.or(command.limit.map(Limit::End));
    let measurement = watch_beside(&launched, signals, limit, &mut |moment| match moment {
        Moment::Running => observe(launched.pid()),
        Moment::AtExit | Moment::FirstThreadAtExit | Moment::Ended(_) => None,
    })?;
    Ok(Run { measurement, output_tail: drain.tail() })
}

/// As [`run`]; a command that goes on for longer than `limit` is killed.
///
/// # Errors
/// [`RunError`].
pub fn run_within(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
    limit: Option<Duration>,
) -> Result<Run, RunError> {
    run_beside(command, environment, signals, limit.map(Limit::Kill), &mut |_| None)
}

/// Runs the command as [`run`] does and counts the system calls of all its processes, which slows it many times.
///
/// # Errors
/// [`RunError`]; also when it does not end within `limit`, or otherwise than `expected`.
pub fn count_system_calls(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
    limit: Option<Duration>,
    expected: Ending,
) -> Result<u64, RunError> {
    let (launched, drain) = start(command, environment, signals, Tracing::SystemCalls)?;
    let (ending, calls) = match system_calls::count(&launched, signals, limit) {
        Err(WatchError::System(error)) if error.kind() == io::ErrorKind::TimedOut => {
            return Err(RunError::Ended(error.to_string()));
        }
        counted => counted?,
    };
    if ending == expected {
        return Ok(calls);
    }
    let output = drain.tail();
    let last = output.lines().last().unwrap_or_default();
    Err(RunError::Ended(format!("it failed while its calls were counted: {last}")))
}

fn start(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
    tracing: Tracing,
) -> Result<(Launched, Drain), RunError> {
    if let Some(number) = signals.pending_interruption() {
        return Err(RunError::Interrupted(number));
    }
    let input = match &command.input {
        Some(path) => File::open(path),
        None => File::open("/dev/null").or_else(|_| ended_pipe()),
    };
    let input = input.map_err(RunError::Start)?;
    let (drain, output, errors) = Drain::start().map_err(RunError::Start)?;
    let start = Launch {
        program: command.program.clone(),
        arguments: command.arguments.clone(),
        environment: environment.variables().to_vec(),
        streams: [Some(input), Some(output), Some(errors)],
        is_detached: true,
    };
    Ok((launch_traced(start, signals, tracing).map_err(RunError::Start)?, drain))
}

/// What reads as `/dev/null` does, for where there is no `/dev`.
fn ended_pipe() -> io::Result<File> {
    let (reader, _) = io::pipe()?;
    Ok(File::from(OwnedFd::from(reader)))
}

impl From<WatchError> for RunError {
    fn from(error: WatchError) -> Self {
        match error {
            WatchError::Interrupted(number) => Self::Interrupted(number),
            WatchError::System(error) => Self::Watch(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_result_says_why_in_words() {
        let in_words = |error: WatchError| RunError::from(error).to_string();
        assert_eq!(in_words(WatchError::Interrupted(2)), "interrupted by SIGINT");
        assert_eq!(in_words(io::Error::other("no trace").into()), "cannot be followed: no trace");
        assert_eq!(RunError::Start(io::Error::other("no room")).to_string(), "cannot start: no room");
        assert_eq!(RunError::Ended("no end after 300 s".to_owned()).to_string(), "no end after 300 s");
    }
}
