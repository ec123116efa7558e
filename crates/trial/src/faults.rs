//! Records the page faults of a command, or of a process that runs already.

mod arrivals;
mod earlier_children;
mod ladder;
mod lives;
mod recorder;
mod sampling;
mod second_looks;
mod taken;

use std::fmt;
use std::fs::File;
use std::time::{Duration, Instant};

use faultless_probe::deadline::Deadline;
use faultless_probe::launch::{Launch, LaunchError, Tracing, launch_prepared};
use faultless_probe::perf::PerfError;
use faultless_probe::process::{Process, ProcessError};
use faultless_probe::signals::Signals;
use faultless_probe::watch::{Moment, watch_beside};
use faultless_records::fault_recording::{FaultCounts, FaultRecording, Subject};
use faultless_records::measurement::Ending;

use crate::command::{Command, RunError};
use crate::environment::Environment;
use recorder::{Accounts, Recorder};

/// How to record.
#[derive(Debug, Clone, Copy)]
pub struct FaultOptions {
    /// Look at one fault of so many; none adapts to their rate.
    pub every: Option<u64>,
    /// Look at this many bytes of the user's stack at most.
    pub stack_bytes: u32,
    /// End after this time.
    pub limit: Option<Duration>,
}

/// Why there is no recording.
#[derive(Debug)]
pub enum RecordError {
    /// The kernel does not let us observe.
    Perf(PerfError),
    /// The process cannot be seen.
    Process(ProcessError),
    /// The command could not be run or followed.
    Run(RunError),
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Perf(error) => write!(out, "cannot record page faults: {error}"),
            Self::Process(error) => error.fmt(out),
            Self::Run(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for RecordError {}

/// What is told while it goes on: samples so far, and faults so far.
pub type Progress<'call> = &'call mut dyn FnMut(u64);

/// Runs the command with our input and errors, its output on our errors, and records its faults and those of all it starts. Returns
/// how it ended, if not because its time was over: it is asked to end then, and recorded until it does, as its accounts are.
///
/// # Errors
/// [`RecordError`].
pub fn record_command(
    command: &Command,
    environment: &Environment,
    signals: &Signals,
    options: FaultOptions,
    progress: Progress,
) -> Result<(FaultRecording, Option<Ending>), RecordError> {
    let run = |error| RecordError::Run(RunError::Start(error));
    let output = faultless_probe::terminal::errors().map_err(run)?;
    let start = Launch {
        program: command.program.clone(),
        arguments: command.arguments.clone(),
        environment: environment.variables().to_vec(),
        streams: [None::<File>, Some(output), None],
        is_detached: false,
    };
    let started = launch_prepared(start, signals, Tracing::AtExit, |pid| Recorder::before_exec(pid, options));
    let (launched, mut recorder) = started.map_err(|error| match error {
        LaunchError::Start(error) => run(error),
        LaunchError::Observer(error) => RecordError::Perf(error),
    })?;
    let pid = launched.pid();
    let mut told = Instant::now();
    let mut deadline = Deadline::new(options.limit.map(|limit| told + limit));
    let measurement = watch_beside(&launched, signals, None, &mut |moment| {
        let patience = recorder.turn();
        if matches!(moment, Moment::AtExit | Moment::FirstThreadAtExit) {
            recorder.note_names(pid);
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            progress(recorder.samples());
        }
        deadline.due(Instant::now()).into_iter().for_each(|signal| launched.send(signal as i32));
        Some(patience)
    })
    .map_err(|error| RecordError::Run(error.into()))?;
    let subject = Subject { command: command.words(), pid, name: recorder.name(pid) };
    let accounts = Accounts {
        faults: Some(FaultCounts { minor: measurement.minor_faults, major: measurement.major_faults }),
        cpu: Some(measurement.processor()),
        are_late: false,
    };
    recorder.stop(None).map_err(RecordError::Perf)?;
    let recording = recorder.finish(subject, accounts).map_err(RecordError::Perf)?;
    Ok((recording, deadline.passed().is_none().then_some(measurement.ending)))
}

const TELL_EVERY: Duration = Duration::from_millis(200);

/// Records the faults of a process, its threads and all it starts, until it ends, the time is up, or a signal asks to end.
///
/// # Errors
/// [`RecordError`].
pub fn record_process(
    process: &Process,
    signals: &Signals,
    options: FaultOptions,
    progress: Progress,
) -> Result<FaultRecording, RecordError> {
    let mut recorder = Recorder::attach(process, options)?;
    let started = Instant::now();
    let mut told = started;
    loop {
        let patience = recorder.turn();
        recorder.read_accounts(process);
        let left = options.limit.map(|limit| limit.saturating_sub(started.elapsed()));
        if left == Some(Duration::ZERO) || !process.is_alive() {
            break;
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            progress(recorder.samples());
        }
        let patience = left.map_or(patience, |left| left.min(patience));
        let arrival =
            signals.next(Some(patience)).map_err(|error| RecordError::Run(RunError::Watch(error)))?;
        if arrival.is_some_and(|arrival| arrival.is_interruption()) {
            break;
        }
    }
    recorder.note_names(process.pid());
    let subject = Subject { command: Vec::new(), pid: process.pid(), name: process.name().to_owned() };
    let accounts = recorder.accounts_since_start(process);
    recorder.stop(Some(process)).map_err(RecordError::Perf)?;
    recorder.finish(subject, accounts).map_err(RecordError::Perf)
}
