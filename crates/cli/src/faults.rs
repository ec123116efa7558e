//! `faultless faults`: which functions take the page faults of a program, and on what memory.

use std::ffi::OsString;
use std::path::Path;

use faultless_diagnosis::faults::comparison::Comparison;
use faultless_probe::place::PrivateDirectory;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_records::fault_recording::{FaultCounts, FaultRecording};
use faultless_records::measurement::Ending;
use faultless_records::program::ProgramKind;
use faultless_records::quantity::several;
use faultless_report::faults;
use faultless_report::{flame, saved_form};
use faultless_trial::command::Command;
use faultless_trial::environment::Environment;
use faultless_trial::faults::{FaultOptions, RecordError, record_command, record_process};

use crate::arguments::{Action, FaultsArguments};
use crate::failure::Failure;
use crate::library;
use crate::observing_progress::{Elsewhere, ObservingProgress};
use crate::output_file::{OutputFile, create_apart};
use crate::{placement, saved_file, subject, target};

/// Bytes of the stack that are looked at, unless said otherwise.
const STACK_BYTES: u32 = 8192;

/// Records, or shows what was saved.
///
/// # Errors
/// [`Failure`] when nothing could be seen.
pub fn faults(
    arguments: &FaultsArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    if let [before, after] = arguments.diff.as_slice() {
        return compare(before, after, arguments.json);
    }
    // Before signals are held: a pipe that nobody writes into must not outlast them.
    let saved = saved(&arguments.words)?;
    let ordered = saved.as_ref().map(|_| placement::in_front(&arguments.words, "faults")).transpose()?;
    let arguments = match &ordered {
        Some(Some(Action::Faults(ordered))) => ordered,
        _ => arguments,
    };
    let signals = &hold_signals()?;
    let read = saved.as_ref().and(arguments.words.first()).map(Path::new);
    // Places that cannot be written are found out before the work.
    let files = Files::create(arguments, read)?;
    let recording = match saved {
        Some(_) if arguments.limit.is_some() || arguments.every.is_some() || arguments.stack.is_some() => {
            return Err(Failure::Usage(
                "--for, --every and --stack are for recording, not for what was recorded".into(),
            ));
        }
        Some(recording) => recording,
        None => record(arguments, signals)?,
    };
    // A disk that is full by now costs its file and not the result.
    let written = files.write(&recording);
    let text = match (arguments.json, arguments.tree) {
        (true, _) => faults::json::json(&recording),
        (false, true) => faults::tree::text(&recording),
        (false, false) => faults::table::text(&recording, terminal::columns()),
    };
    signals.let_through();
    let printed = crate::print_report(&text);
    written.and(printed)?;
    Ok(Ending::Exited(0))
}

/// The files asked for.
struct Files {
    record: Option<OutputFile>,
    html: Option<OutputFile>,
    folded: Option<OutputFile>,
    pprof: Option<OutputFile>,
}

impl Files {
    /// None of them may be the one that is `read`.
    fn create(arguments: &FaultsArguments, read: Option<&Path>) -> Result<Self, Failure> {
        let paths = [&arguments.record, &arguments.html, &arguments.folded, &arguments.pprof];
        let [record, html, folded, pprof] = create_apart(paths.map(Option::as_deref), read)?;
        Ok(Self { record, html, folded, pprof })
    }

    fn write(self, recording: &FaultRecording) -> Result<(), Failure> {
        let write = |file: Option<OutputFile>, bytes: &dyn Fn() -> Vec<u8>| {
            file.map_or(Ok(()), |file| file.write_bytes(&bytes()))
        };
        Failure::joined([
            write(self.record, &|| saved_form::write(recording).into_bytes()),
            write(self.html, &|| flame::html(recording).into_bytes()),
            write(self.folded, &|| faults::tree::folded(recording).into_bytes()),
            write(self.pprof, &|| faults::pprof::profile(recording)),
        ])
    }
}

/// The recording, if the first word is the name of one.
fn saved(words: &[OsString]) -> Result<Option<FaultRecording>, Failure> {
    let named = saved_file::named(words, "faults", saved_form::is_recording::<FaultRecording>)?;
    named.map(|(path, bytes)| parsed(path, &bytes)).transpose()
}

fn load(path: &Path) -> Result<FaultRecording, Failure> {
    parsed(path, &saved_file::recording(path, "faults", saved_form::is_recording::<FaultRecording>)?)
}

fn parsed(path: &Path, bytes: &[u8]) -> Result<FaultRecording, Failure> {
    saved_form::load(&String::from_utf8_lossy(bytes)).map_err(|reason| saved_file::unreadable(path, reason))
}

fn compare(before: &Path, after: &Path, as_json: bool) -> Result<Ending, Failure> {
    let comparison = Comparison::of(&load(before)?, &load(after)?);
    let text = if as_json {
        faults::json::diff(&comparison)
    } else {
        faults::diff::text(&comparison, terminal::columns())
    };
    crate::print_report(&text)?;
    Ok(Ending::Exited(0))
}

/// Records the faults of a command, a process or the demo.
///
/// # Errors
/// [`Failure`] when nothing could be seen.
pub fn record(arguments: &FaultsArguments, signals: &Signals) -> Result<FaultRecording, Failure> {
    let stack_bytes = arguments.stack.unwrap_or(STACK_BYTES);
    let options = FaultOptions { every: arguments.every, stack_bytes, limit: arguments.limit };
    let mut progress = ObservingProgress::start("recording", arguments.limit, Elsewhere::Silence);
    let mut tell = |samples: u64| {
        progress.show(&format!("{} looked at (Ctrl-C ends it)", several(samples, "page fault")));
    };
    if let Some(pid) = arguments.pid {
        let process = subject::process(pid)?;
        if subject::is_32_bit(&process) {
            return Err(Failure::Refused(format!("process {pid} ({}) {NOT_32_BIT}", process.name())));
        }
        let unseen = subject::unseen(&process);
        let mut recording = record_process(&process, signals, options, &mut tell)
            .map_err(|error| failed(&format!("process {pid}"), error))?;
        recording.remarks.extend(unseen);
        return Ok(recording);
    }
    subject::check_view_if_any()?;
    // The demo's file goes with its directory, when the recording has its names.
    let (command, _directory) = match arguments.words.as_slice() {
        [] => {
            let directory = PrivateDirectory::create()
                .map_err(|error| Failure::Failed(format!("cannot write the demo: {error}")))?;
            (library::demo(directory.path())?, Some(directory))
        }
        words => (target::find(words.to_vec())?, None),
    };
    let name = command.name();
    refuse_32_bit_program(&command, &name)?;
    let environment = Environment::new(std::env::vars_os());
    let (recording, ending) = record_command(&command, &environment, signals, options, &mut tell)
        .map_err(|error| failed(&name, error))?;
    drop(progress);
    if was_closed(&recording) {
        return Err(Failure::Failed(format!(
            "cannot record page faults of {name}: {}",
            subject::CLOSED_TO_EVENTS
        )));
    }
    if let Some(ending) = ending {
        target::say_ending(&name, ending);
    }
    Ok(recording)
}

fn failed(name: &str, error: RecordError) -> Failure {
    match error {
        RecordError::Run(error) => Failure::of_run(name, error),
        RecordError::Process(error) => Failure::of_process(error),
        RecordError::Perf(_) => Failure::Failed(error.to_string()),
    }
}

/// No program begins without a fault, so the kernel has kept them from us.
fn was_closed(recording: &FaultRecording) -> bool {
    let counters = &recording.counters;
    counters.user == FaultCounts::default()
        && counters.accounts.is_some_and(|accounts| accounts.minor > counters.before.minor)
}

const NOT_32_BIT: &str = "is a 32-bit program: its stacks cannot be followed by this 64-bit tool";

fn refuse_32_bit_program(command: &Command, name: &str) -> Result<(), Failure> {
    match target::really_run(&command.program).map(|file| file.kind) {
        Some(ProgramKind::Elf(executable)) if !executable.is_64_bit => {
            Err(Failure::Refused(format!("{name} {NOT_32_BIT}")))
        }
        _ => Ok(()),
    }
}
