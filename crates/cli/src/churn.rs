//! `faultless churn`: what a program asks the kernel for and gives back, and whether it does so in vain.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use faultless_diagnosis::churn::tally::{Circumstances, Tally};
use faultless_probe::launch::{Launch, Tracing, launch_traced};
use faultless_probe::signals::Signals;
use faultless_probe::system_call_trap::{self, Observer, Subject, monotonic_ns};
use faultless_probe::watch::WatchError;
use faultless_probe::{terminal, trap_cost};
use faultless_records::churn_recording::{ChurnRecording, Mechanism};
use faultless_records::malloc_recording::MallocRecording;
use faultless_records::measurement::Ending;
use faultless_records::memory_call::{MemoryEvent, TakenStack};
use faultless_report::{churn_json, churn_malloc_json, churn_malloc_table, churn_table};
use faultless_trial::command::Command;

use crate::arguments::{ChurnArguments, ChurnMechanism};
use crate::churn_progress::ChurnProgress;
use crate::failure::Failure;
use crate::output_file::OutputFile;
use crate::{churn_malloc, subject, target};

/// Most bytes of a saved recording.
const LARGEST_RECORDING_BYTES: u64 = 256 << 20;

/// Looks at a command, a process or a saved recording, and prints what was found.
///
/// # Errors
/// [`Failure`] when nothing could be seen.
pub fn churn(arguments: ChurnArguments, signals: &Signals) -> Result<Ending, Failure> {
    let record = arguments.record.as_deref().map(OutputFile::create).transpose()?;
    let seen = match saved(&arguments.words)? {
        Some(seen) => seen,
        None if arguments.malloc => Seen::Malloc(churn_malloc::look_at_command(&arguments, signals)?),
        None => Seen::Kernel(look(&arguments, signals)?),
    };
    if let Some(file) = record {
        file.write(&match &seen {
            Seen::Kernel(recording) => churn_json::saved(recording),
            Seen::Malloc(recording) => churn_malloc_json::saved(recording),
        })?;
    }
    let text = match (&seen, arguments.json) {
        (Seen::Kernel(recording), true) => churn_json::json(recording),
        (Seen::Kernel(recording), false) => churn_table::text(recording, terminal::columns()),
        (Seen::Malloc(recording), true) => churn_malloc_json::json(recording),
        (Seen::Malloc(recording), false) => churn_malloc_table::text(recording, terminal::columns()),
    };
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::of_output(&error))?;
    Ok(Ending::Exited(0))
}

/// What was looked at.
enum Seen {
    /// Calls of the kernel.
    Kernel(ChurnRecording),
    /// Calls of malloc.
    Malloc(MallocRecording),
}

/// The recording, if the only word is the name of one.
fn saved(words: &[OsString]) -> Result<Option<Seen>, Failure> {
    let [word] = words else { return Ok(None) };
    let path = Path::new(word);
    let mut head = [0; 128];
    let Ok(mut file) = File::open(path) else { return Ok(None) };
    let length = file.read(&mut head).unwrap_or(0);
    let is_of_malloc = churn_malloc_json::is_recording(&head[..length]);
    if !is_of_malloc && !churn_json::is_recording(&head[..length]) {
        return Ok(None);
    }
    let bad = |reason: String| Failure::Failed(format!("cannot read {}: {reason}", path.display()));
    let mut bytes = head[..length].to_vec();
    file.take(LARGEST_RECORDING_BYTES).read_to_end(&mut bytes).map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8_lossy(&bytes);
    let seen = match is_of_malloc {
        true => churn_malloc_json::load(&text).map(Seen::Malloc),
        false => churn_json::load(&text).map(Seen::Kernel),
    };
    seen.map(Some).map_err(bad)
}

fn look(arguments: &ChurnArguments, signals: &Signals) -> Result<ChurnRecording, Failure> {
    match arguments.pid {
        Some(pid) => look_at_process(pid, arguments, signals),
        None => look_at_command(arguments, signals),
    }
}

fn look_at_command(arguments: &ChurnArguments, signals: &Signals) -> Result<ChurnRecording, Failure> {
    let command = target::find(arguments.words.clone())?;
    let name = command.arguments[0].to_string_lossy().into_owned();
    let (mechanism, cost_per_call_ns) = choose(arguments.by)?;
    let is_filtered = mechanism == Mechanism::Seccomp;
    let words: Vec<String> =
        command.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let tracing = if is_filtered { Tracing::FilteredFamily } else { Tracing::Family };
    let launched = launch_traced(start(command, arguments.json)?, signals, tracing)
        .map_err(|error| Failure::of_start(&name, &error))?;
    let mut sums = Sums::begin(arguments);
    let subject = Subject::Command { launched: &launched, is_filtered };
    let followed = system_call_trap::follow(&subject, signals, arguments.limit, &mut sums)
        .map_err(|error| failure(&name, error))?;
    let mut remarks = Vec::new();
    if followed.is_blind_to_some {
        remarks.push("calls of 32-bit programs that it started; their numbers are others".to_owned());
    }
    Ok(sums.finish(words.join(" "), mechanism, followed.observed.as_nanos(), Some(cost_per_call_ns), remarks))
}

fn look_at_process(
    pid: i32,
    arguments: &ChurnArguments,
    signals: &Signals,
) -> Result<ChurnRecording, Failure> {
    let process = subject::process(pid)?;
    if arguments.by == Some(ChurnMechanism::Seccomp) {
        return Err(Failure::Usage(
            "a seccomp filter can only be given to a command that is started: use --by ptrace with --pid"
                .into(),
        ));
    }
    let name = format!("process {pid} ({})", process.name());
    let cost_per_call_ns = trap_cost::of_call(false).ok();
    let mut sums = Sums::begin(arguments);
    let followed = system_call_trap::follow(&Subject::Process(&process), signals, arguments.limit, &mut sums)
        .map_err(|error| failure(&name, error))?;
    let remarks = vec!["mappings made before we looked; what becomes of them has no lifetime".to_owned()];
    Ok(sums.finish(name, Mechanism::Ptrace, followed.observed.as_nanos(), cost_per_call_ns, remarks))
}

fn failure(name: &str, error: WatchError) -> Failure {
    match error {
        WatchError::Interrupted(number) => Failure::Interrupted(number),
        WatchError::System(error) => Failure::Failed(format!("lost sight of {name}: {error}")),
    }
}

/// The best way to follow a command that works here, and what it costs for each call, in nanoseconds.
fn choose(wanted: Option<ChurnMechanism>) -> Result<(Mechanism, f64), Failure> {
    let mechanisms = match wanted {
        None => &[Mechanism::Seccomp, Mechanism::Ptrace][..],
        Some(ChurnMechanism::Seccomp) => &[Mechanism::Seccomp],
        Some(ChurnMechanism::Ptrace) => &[Mechanism::Ptrace],
    };
    let mut refusals = Vec::new();
    for mechanism in mechanisms {
        match trap_cost::of_call(*mechanism == Mechanism::Seccomp) {
            Ok(cost_ns) => return Ok((*mechanism, cost_ns)),
            Err(error) => refusals.push(format!("{}: {error}", mechanism.name())),
        }
    }
    Err(Failure::Failed(format!(
        "this system lets us follow no calls ({}); in a container, it needs ptrace (docker run --cap-add SYS_PTRACE)",
        refusals.join("; ")
    )))
}

fn start(command: Command, is_apart: bool) -> Result<Launch, Failure> {
    Ok(Launch {
        program: command.program,
        arguments: command.arguments,
        environment: std::env::vars_os().collect(),
        streams: [None, standard_output(is_apart)?, None],
        is_detached: false,
    })
}

/// Where a command prints to: our standard error when our output must be the report alone.
///
/// # Errors
/// [`Failure::Failed`] when that cannot be shared.
pub fn standard_output(is_apart: bool) -> Result<Option<File>, Failure> {
    let errors = || std::io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let file = is_apart.then(errors).transpose();
    file.map_err(|error| Failure::Failed(format!("cannot share standard error: {error}")))
}

/// Sums while it looks.
struct Sums {
    tally: Tally,
    progress: ChurnProgress,
}

impl Sums {
    fn begin(arguments: &ChurnArguments) -> Self {
        Self { tally: Tally::begin(monotonic_ns()), progress: ChurnProgress::start(arguments.limit) }
    }

    fn finish(
        self,
        subject: String,
        mechanism: Mechanism,
        observed_ns: u128,
        cost_per_call_ns: Option<f64>,
        remarks: Vec<String>,
    ) -> ChurnRecording {
        self.tally.finish(Circumstances {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            subject,
            mechanism,
            observed_ns: u64::try_from(observed_ns).unwrap_or(u64::MAX),
            cost_per_call_ns,
            stacks: Vec::new(),
            remarks,
        })
    }
}

impl Observer for Sums {
    fn take(&mut self, event: MemoryEvent) {
        self.tally.take(&event);
    }

    fn stack(&mut self, _pid: i32, _tid: i32) -> Option<TakenStack> {
        None
    }

    fn tick(&mut self) {
        let calls = self.tally.calls();
        self.progress.show(&format!("{calls} calls"));
    }
}
