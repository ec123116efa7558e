//! `faultless churn --malloc`: who asks malloc for what, how long it lives, and which thread frees it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use faultless_diagnosis::churn::circumstances::MallocCircumstances;
use faultless_diagnosis::churn::malloc_tally::MallocTally;
use faultless_diagnosis::preload::Purpose;
use faultless_probe::clock::{nanoseconds, own_processor_time, unix_s};
use faultless_probe::launch::{Launch, launch};
use faultless_probe::malloc_recorder::{self, DIRECTORY_VARIABLE, Observer};
use faultless_probe::place::{self, PrivateDirectory};
use faultless_probe::process::{Process, ProcessError};
use faultless_probe::signals::Signals;
use faultless_records::malloc_event::{MOST_BARE_RINGS, MOST_RINGS, MallocEvent, RecorderHead, RingCounts};
use faultless_records::malloc_recording::{MallocCost, MallocMechanism, MallocRecording};
use faultless_records::measurement::Ending;
use faultless_records::quantity::several;
use faultless_trial::call_stacks::CallStacks;
use faultless_trial::environment::Environment;

use crate::arguments::ChurnArguments;
use crate::failure::Failure;
use crate::library;
use crate::observing_progress::{Elsewhere, ObservingProgress};
use crate::target;

/// Processes of any user may make files here, and none may remove those of others.
const SHARED_DIRECTORY_MODE: u32 = 0o1777;

/// Runs the command with the recorder and returns what it recorded.
///
/// # Errors
/// [`Failure`] when a preload does not reach it, or it cannot be run.
pub fn look_at_command(arguments: &ChurnArguments, signals: &Signals) -> Result<MallocRecording, Failure> {
    let command = target::resolve(arguments.words.clone(), Purpose::Observation)?;
    let name = command.name();
    let shown = command.words().join(" ");
    let place = Place::make()?;

    let environment = Environment::new(std::env::vars_os());
    let preload = place::preload_value(&place.recorder, environment.get("LD_PRELOAD"));
    let environment =
        environment.with("LD_PRELOAD", preload).with(DIRECTORY_VARIABLE, place.recordings.path());
    let environment = environment.variables().to_vec();
    let start = Launch { environment, ..target::start(command, arguments.json)? };
    let launched = launch(start, signals).map_err(|error| Failure::of_start(&name, &error))?;
    let mut sums = Sums::begin(arguments);
    let (ending, observed) =
        malloc_recorder::follow(&launched, signals, arguments.limit, place.recordings.path(), &mut sums)
            .map_err(|error| Failure::of_watch(&name, error))?;
    Ok(sums.finish(shown, ending, nanoseconds(observed)))
}

/// Where the recorder lies, and where it writes.
struct Place {
    recorder: PathBuf,
    recordings: PrivateDirectory,
    /// Holds the recorder and is removed with it.
    _directory: PrivateDirectory,
}

impl Place {
    fn make() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::Failed(format!("cannot write the recorder: {error}"));
        let directory = PrivateDirectory::create().map_err(failed)?;
        let recorder = faultless_bundle::recorder_into(directory.path())
            .map_err(|error| library::unwritten("the recorder", directory.path(), &error))?;
        let recordings = PrivateDirectory::create_in_memory().map_err(failed)?;
        fs::set_permissions(recordings.path(), fs::Permissions::from_mode(SHARED_DIRECTORY_MODE))
            .map_err(failed)?;
        Ok(Self { recorder, recordings, _directory: directory })
    }
}

/// Sums while it looks.
struct Sums {
    started_unix_s: u64,
    tally: MallocTally,
    stacks: CallStacks,
    progress: ObservingProgress,
    heads: Vec<RecorderHead>,
    /// By program, what its process is called among call chains: its number in `/proc`, else one that is no process's.
    numbers: Vec<i32>,
    /// Programs whose process is known and has not ended, with its number in `/proc`.
    running: BTreeMap<usize, i32>,
    /// Programs that are over; the last that they wrote may not be taken yet.
    over: Vec<usize>,
    /// The last program of each process, which is told by its PID namespace and its number there, else by 0 and that in `/proc`.
    programs: HashMap<(u64, i32), usize>,
    describing_ns: Vec<u64>,
    calls: Vec<u64>,
    /// By program, of how many threads the counts cannot be read.
    uncounted: Vec<u64>,
    unrecorded: usize,
    tool_began_ns: f64,
}

impl Sums {
    fn begin(arguments: &ChurnArguments) -> Self {
        Self {
            started_unix_s: unix_s(),
            tally: MallocTally::default(),
            stacks: CallStacks::default(),
            progress: ObservingProgress::start("looking", arguments.limit, Elsewhere::Lines),
            heads: Vec::new(),
            numbers: Vec::new(),
            running: BTreeMap::new(),
            over: Vec::new(),
            programs: HashMap::new(),
            describing_ns: Vec::new(),
            calls: Vec::new(),
            uncounted: Vec::new(),
            unrecorded: 0,
            tool_began_ns: own_processor_time().as_nanos() as f64,
        }
    }

    fn finish(self, subject: String, ending: Option<Ending>, observed_ns: u64) -> MallocRecording {
        let counting_ns =
            self.heads.iter().zip(&self.calls).map(|(head, calls)| head.fast_ps as f64 / 1e3 * *calls as f64);
        let cost = MallocCost {
            counting_ns: counting_ns.sum(),
            describing_ns: self.describing_ns.iter().map(|time| *time as f64).sum(),
            tool_ns: own_processor_time().as_nanos() as f64 - self.tool_began_ns,
        };
        let mut remarks = Vec::new();
        if self.unrecorded > 0 {
            remarks.push(format!(
                "calls of programs that found no room for their records: {} (a limit of file sizes or addresses, ulimit -f or -v, below 1.2 GiB, or a full disk: set TMPDIR to a place with more)",
                self.unrecorded
            ));
        } else if self.calls.iter().all(|calls| *calls == 0) {
            remarks.push(
                "any call of malloc: it made none, or the program has an allocator of its own inside it (static, or linked before the preload), or it cleaned its environment, or the kernel wipes no memory of forked children (MADV_WIPEONFORK: before Linux 4.14, and in gVisor)"
                    .to_owned(),
            );
        }
        let overwritten: u64 = self.uncounted.iter().sum();
        if overwritten > 0 {
            remarks.push(format!(
                "calls of {}: the program wrote over their counts (a debugger, or AddressSanitizer, shows where)",
                several(overwritten, "thread")
            ));
        }
        let unringed = threads(&self.heads, |head| head.unringed);
        remarks.extend(of_threads(&self.heads, unringed));
        let runs_on =
            |(head, number): (&RecorderHead, &i32)| !head.has_ended && Process::open(*number).is_ok();
        let any_runs_on = self.heads.iter().zip(&self.numbers).any(runs_on);
        let mut recording = self.tally.finish(MallocCircumstances {
            subject,
            started_unix_s: self.started_unix_s,
            ending,
            mechanism: MallocMechanism::Recorder,
            observed_ns,
            cost,
            stacks: self.stacks.into_names(|module| module == faultless_bundle::RECORDER_FILE_NAME),
            remarks,
        });
        recording.uncounted_threads = overwritten.saturating_add(unringed);
        if any_runs_on {
            recording.live_blocks = None;
        }
        recording
    }

    /// Those that run still. What has ended holds nothing any more.
    fn running(&mut self) -> Vec<Process> {
        let mut open = Vec::new();
        let over = &mut self.over;
        self.running.retain(|program, number| match Process::open(*number) {
            Ok(process) => {
                open.push(process);
                true
            }
            Err(ProcessError::Missing(_) | ProcessError::Ended(_)) => {
                over.push(*program);
                false
            }
            // No descriptor was left to ask with.
            Err(_) => true,
        });
        open
    }
}

/// So many threads in all programs.
fn threads(heads: &[RecorderHead], of: impl Fn(&RecorderHead) -> u64) -> u64 {
    heads.iter().map(of).fold(0, u64::saturating_add)
}

/// Of which threads the calls were not described, and of which `unringed` ones not even counted, where there were any.
fn of_threads(heads: &[RecorderHead], unringed: u64) -> Vec<String> {
    let mut remarks = Vec::new();
    let bare = threads(heads, |head| head.bare_threads);
    if bare > 0 {
        let is_limit = heads.iter().any(|head| head.bare_threads > 0 && head.rings == MOST_RINGS);
        let why = match is_limit {
            true => "they are more than 1,024 of a process at once",
            false => "no room for their records (set TMPDIR to a place with more)",
        };
        remarks.push(format!(
            "callers and lives of {}, whose calls are counted alone: {why}",
            several(bare, "thread")
        ));
    }
    if unringed > 0 {
        let is_limit = heads.iter().any(|head| head.unringed > 0 && head.bare_rings == MOST_BARE_RINGS);
        let why = match is_limit {
            true => "they are more than 16,384 of a process at once",
            false => "no room for their records (set TMPDIR to a place with more)",
        };
        remarks.push(format!("calls of {}: {why}", several(unringed, "thread")));
    }
    remarks
}

impl Observer for Sums {
    fn began(&mut self, process: usize, head: &RecorderHead, number: Option<i32>, maps: &[u8]) {
        // The program that ran in this process before it is over.
        let identity = match number {
            _ if head.namespace != 0 => Some((head.namespace, head.pid)),
            number => number.map(|number| (0, number)),
        };
        if let Some(before) = identity.and_then(|identity| self.programs.insert(identity, process)) {
            self.tally.exec(before);
            self.running.remove(&before);
        }
        self.running.extend(number.map(|number| (process, number)));
        let unknown = i32::try_from(process).map_or(i32::MIN, |process| -2 - process);
        self.numbers.resize(self.numbers.len().max(process + 1), unknown);
        self.numbers[process] = number.unwrap_or(unknown);
        self.stacks.forget(self.numbers[process]);
        self.stacks.adopt_maps(self.numbers[process], maps);
    }

    fn take(&mut self, process: usize, mut event: MallocEvent) {
        let stack = match &mut event {
            MallocEvent::Allocated(block) => {
                let stack = std::mem::take(&mut block.stack);
                let number = self.numbers.get(process).copied().unwrap_or(i32::MIN);
                self.stacks.index_of(number, block.tid, block.registers, stack)
            }
            _ => None,
        };
        self.tally.take(process, &event, stack);
    }

    fn ended(&mut self, process: usize) {
        self.tally.end(process);
    }

    fn look(&mut self) {
        drop(self.running());
    }

    fn all_taken(&mut self) {
        self.over.drain(..).for_each(|program| self.tally.end(program));
    }

    fn counted(&mut self, process: usize, head: &RecorderHead, counts: Vec<RingCounts>) {
        let places = self.heads.len().max(process + 1);
        self.heads.resize(places, RecorderHead::default());
        self.describing_ns.resize(places, 0);
        self.calls.resize(places, 0);
        self.uncounted.resize(places, 0);
        self.heads[process] = *head;
        self.describing_ns[process] = counts.iter().map(|ring| ring.describing_ns).sum();
        self.calls[process] = counts.iter().map(RingCounts::all_calls).sum();
        let rings = head.rings.saturating_add(head.bare_rings);
        self.uncounted[process] = rings.saturating_sub(counts.len() as u64);
        let is_whole =
            !head.is_forked && !head.has_missed && head.unringed == 0 && self.uncounted[process] == 0;
        self.tally.set_counts(process, head.pid, counts);
        self.tally.set_counts_whole(process, is_whole);
    }

    fn unrecorded(&mut self, programs: usize) {
        self.unrecorded = programs;
    }

    fn tick(&mut self) {
        // Libraries may have come since the program began.
        for process in self.running() {
            self.stacks.adopt(&process);
        }
        let calls = several(self.tally.calls(), "call");
        self.progress.show(&format!("{calls} of malloc and its family"));
    }
}
