//! The calls of the kernel that `faultless churn` looks at: which way of seeing them is permitted, and the looking itself.

use std::time::Duration;

use faultless_diagnosis::churn::circumstances::Circumstances;
use faultless_diagnosis::churn::tally::Tally;
use faultless_diagnosis::classification::{self, glibc};
use faultless_probe::clock::{monotonic_ns, nanoseconds, unix_s};
use faultless_probe::contents::LiveContents;
use faultless_probe::launch::{LaunchError, Tracing, launch_prepared, launch_traced};
use faultless_probe::memory_call_trace::{self, Sight, Trace};
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_probe::system_call_trap::{self, Observer, Subject};
use faultless_probe::trap_cost;
use faultless_probe::watch::WatchError;
use faultless_records::churn_recording::{ChurnRecording, Mechanism};
use faultless_records::measurement::Ending;
use faultless_records::memory_call::MemoryEvent;
use faultless_records::perf_record::{News, PerfRecord, Sample};
use faultless_records::quantity::several;
use faultless_trial::call_stacks::CallStacks;

use crate::arguments::ChurnArguments;
use crate::churn::no_callers;
use crate::failure::Failure;
use crate::observing_progress::{Elsewhere, ObservingProgress};
use crate::{subject, target};

/// What the kernel's records of new mappings leave out.
const UNSEEN_BY_RECORDS: &str = "munmap, madvise, calls that fail, and callers: the kernel's records tell of new mappings only (an mprotect looks like one), each with the neighbours that it is joined to; bytes are those of addresses that were not mapped before, so what is mapped again where something was is not among them; --by ptrace sees all and stops the process at every system call";

/// What all other ways leave out.
const UNSEEN_PROGRAMS: &str =
    "calls of 32-bit programs, whose numbers are others; --by mmap-records sees what they map";

/// Looks at a command or a process.
///
/// # Errors
/// [`Failure`] when nothing may be seen.
pub fn look(arguments: &ChurnArguments, signals: &Signals) -> Result<ChurnRecording, Failure> {
    match arguments.pid {
        Some(pid) => look_at_process(pid, arguments, signals),
        None => look_at_command(arguments, signals),
    }
}

fn look_at_command(arguments: &ChurnArguments, signals: &Signals) -> Result<ChurnRecording, Failure> {
    subject::check_view_if_any()?;
    let command = target::find(arguments.words.clone())?;
    let name = command.name();
    let way = choose(arguments.by, &[Mechanism::Tracepoints, Mechanism::Seccomp, Mechanism::Ptrace])?;
    let shown = command.words().join(" ");
    let start = target::start(command, arguments.json)?;
    let mut sums = Sums::begin(arguments, &way, CallStacks::default());
    let cannot_start = |error: std::io::Error| Failure::of_start(&name, &error);
    let lost_sight = |error| Failure::of_watch(&name, error);
    let mut remarks = Vec::new();
    let followed = if let Some(sight) = way.sight() {
        let started =
            launch_prepared(start, signals, Tracing::AtExit, |pid| Trace::open(sight, &[pid], true));
        let (launched, trace) = started.map_err(|error| match error {
            LaunchError::Start(error) => cannot_start(error),
            LaunchError::Observer(refused) => Failure::Failed(refused.reason),
        })?;
        remarks.extend(trace.chains_refused().map(no_callers));
        let followed =
            memory_call_trace::follow_command(trace, &launched, signals, arguments.limit, &mut sums)
                .map_err(lost_sight)?;
        if sums.tally.calls() == 0 {
            remarks.push(format!("any call: {}; --by seccomp sees them", subject::CLOSED_TO_EVENTS));
        }
        followed
    } else {
        let is_filtered = way.mechanism == Mechanism::Seccomp;
        let tracing = if is_filtered { Tracing::FilteredFamily } else { Tracing::Family };
        let launched = launch_traced(start, signals, tracing).map_err(cannot_start)?;
        let subject = Subject::Command { launched: &launched, is_filtered };
        let followed =
            system_call_trap::follow(&subject, signals, arguments.limit, &mut sums).map_err(lost_sight)?;
        sums.is_blind_to_some |= followed.is_blind_to_some;
        followed
    };
    Ok(sums.finish(shown, way, followed.ending, followed.observed, remarks))
}

fn look_at_process(
    pid: i32,
    arguments: &ChurnArguments,
    signals: &Signals,
) -> Result<ChurnRecording, Failure> {
    let process = subject::process(pid)?;
    if arguments.by == Some(Mechanism::Seccomp) {
        return Err(Failure::Usage(
            "a seccomp filter can only be given to a command that is started: use --by ptrace with --pid"
                .into(),
        ));
    }
    let way = choose(arguments.by, &[Mechanism::Tracepoints, Mechanism::MmapRecords])?;
    let name = format!("process {pid} ({})", process.name());
    let mut stacks = CallStacks::default();
    stacks.adopt(&process);
    let mut sums = Sums::begin(arguments, &way, stacks);
    sums.tally.attach(pid);
    sums.know(&process, way.mechanism);
    let mut remarks = vec!["mappings made before we looked; what becomes of them has no lifetime".to_owned()];
    let observed = match way.sight() {
        Some(sight) => {
            let threads = process.threads().map_err(Failure::of_process)?;
            let trace =
                Trace::open(sight, &threads, false).map_err(|refused| Failure::Failed(refused.reason))?;
            remarks.extend(trace.chains_refused().map(no_callers));
            remarks.extend(subject::unseen(&process));
            memory_call_trace::follow_process(trace, &process, signals, arguments.limit, &mut sums)
                .map_err(|error| Failure::of_lost(&name, &error))?
        }
        None => {
            remarks.extend(subject::unseen(&process));
            let subject = Subject::Process(&process);
            let followed = system_call_trap::follow(&subject, signals, arguments.limit, &mut sums);
            let followed = followed.map_err(|error| match error {
                WatchError::Interrupted(number) => Failure::Interrupted(number),
                WatchError::System(error) => Failure::Failed(error.to_string()),
            })?;
            sums.is_blind_to_some |= followed.is_blind_to_some;
            followed.observed
        }
    };
    Ok(sums.finish(subject::names(&process), way, None, observed, remarks))
}

/// A way to see the calls that works here.
struct Way {
    mechanism: Mechanism,
    cost_per_call_ns: f64,
    /// Why better ones do not.
    refused: Option<String>,
}

impl Way {
    fn sight(&self) -> Option<Sight> {
        match self.mechanism {
            Mechanism::Tracepoints => Some(Sight::Calls),
            Mechanism::MmapRecords => Some(Sight::Mappings),
            Mechanism::Seccomp | Mechanism::Ptrace => None,
        }
    }
}

/// The first of these ways that works here, or the one that is wanted; tried out on a process of ours, which also shows what it
/// costs.
fn choose(wanted: Option<Mechanism>, usual: &[Mechanism]) -> Result<Way, Failure> {
    let mut refusals: Vec<String> = Vec::new();
    for mechanism in wanted.as_ref().map_or(usual, std::slice::from_ref) {
        let tried = match mechanism {
            Mechanism::Tracepoints => trap_cost::of_traced_call(Sight::Calls).map_err(String::from),
            Mechanism::MmapRecords => trap_cost::of_traced_call(Sight::Mappings).map_err(String::from),
            Mechanism::Seccomp => trap_cost::of_call(true).map_err(|error| error.to_string()),
            Mechanism::Ptrace => trap_cost::of_call(false).map_err(|error| error.to_string()),
        };
        match tried {
            Ok(cost_per_call_ns) => {
                let refused = (!refusals.is_empty()).then(|| refusals.join("; "));
                return Ok(Way { mechanism: *mechanism, cost_per_call_ns, refused });
            }
            Err(reason) => refusals.push(match reason.starts_with(mechanism.name()) {
                true => reason,
                false => format!("{}: {reason}", mechanism.name()),
            }),
        }
    }
    Err(Failure::Failed(format!("this system lets us follow no calls that way ({})", refusals.join("; "))))
}

/// Sums while it looks.
struct Sums {
    started_unix_s: u64,
    /// Processes stop at their calls; there are no records of the kernel's.
    stops: bool,
    /// A 32-bit program made calls.
    is_blind_to_some: bool,
    tally: Tally,
    stacks: CallStacks,
    progress: ObservingProgress,
}

impl Sums {
    fn begin(arguments: &ChurnArguments, way: &Way, stacks: CallStacks) -> Self {
        let begin = if way.mechanism == Mechanism::MmapRecords { Tally::of_records } else { Tally::begin };
        Self {
            started_unix_s: unix_s(),
            stops: way.sight().is_none(),
            is_blind_to_some: false,
            tally: begin(monotonic_ns()),
            stacks,
            progress: ObservingProgress::start("looking", arguments.limit, Elsewhere::Lines),
        }
    }

    /// What a process has mapped at the start, as far as it tells of what comes: records of new mappings have their neighbours with
    /// them, and of trims of an arena only the heap says what they are.
    fn know(&mut self, process: &Process, mechanism: Mechanism) {
        let mappings = process.mappings("maps").ok().and_then(Result::ok).unwrap_or_default();
        if mechanism == Mechanism::MmapRecords {
            for mapping in &mappings {
                self.tally.know(process.pid(), mapping.start, mapping.end);
            }
        } else if let Ok(contents) = LiveContents::open(process, &mappings) {
            let sight =
                classification::Sight { mappings: &mappings, contents: Some(&contents), threads: &[] };
            for heap in glibc::heaps(&sight) {
                self.tally.know_heap(process.pid(), heap);
            }
        }
    }

    fn finish(
        self,
        subject: String,
        way: Way,
        ending: Option<Ending>,
        observed: Duration,
        mut remarks: Vec<String>,
    ) -> ChurnRecording {
        if way.mechanism == Mechanism::MmapRecords {
            remarks.push(UNSEEN_BY_RECORDS.to_owned());
        }
        let is_blind_to_some = way.mechanism != Mechanism::MmapRecords
            && (self.is_blind_to_some || self.stacks.saw_foreign_code());
        if is_blind_to_some {
            remarks.push(UNSEEN_PROGRAMS.to_owned());
        }
        self.tally.finish(Circumstances {
            subject,
            started_unix_s: self.started_unix_s,
            ending,
            mechanism: way.mechanism,
            refused: way.refused,
            is_blind_to_some,
            observed_ns: nanoseconds(observed),
            // Records of mappings are written anyway when somebody reads them: nothing is added for each call.
            cost_per_call_ns: (way.mechanism != Mechanism::MmapRecords).then_some(way.cost_per_call_ns),
            stacks: self.stacks.into_names(|_| false),
            remarks,
        })
    }
}

impl Observer for Sums {
    fn take(&mut self, event: MemoryEvent) {
        // With records of ends, which come of each thread, these say when it is over.
        if let MemoryEvent::Exit { pid } = event
            && self.stops
        {
            self.stacks.end(pid);
        }
        self.tally.take(&event);
    }

    fn chain(&mut self, record: &PerfRecord, sample: &Sample) -> Option<u32> {
        self.stacks.index(record, sample)
    }

    fn record(&mut self, record: &PerfRecord) {
        self.stacks.take(record);
        // Its code is read as soon as it is there: a short process has ended when its first chain arrives.
        if matches!(record.news, News::Name { is_exec: true, .. })
            && let Ok(process) = Process::open(record.pid)
        {
            self.stacks.adopt(&process);
        }
    }

    fn code_changed(&mut self, pid: i32) {
        self.stacks.code_changed(pid);
    }

    fn tick(&mut self) {
        self.progress.show(&several(self.tally.calls(), "call"));
    }
}
