//! `faultless doctor`: looks at a command, derives remedies, tries them on the command itself, and says what helps; of a running
//! process it says what was found.

mod beside;
mod process;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use faultless_diagnosis::doubt::{self, Observed};
use faultless_diagnosis::effect::LEAST_ROUNDS;
use faultless_diagnosis::environment::{Facts, Finding, check};
use faultless_diagnosis::loaded_data;
use faultless_diagnosis::preload::Purpose;
use faultless_diagnosis::tuning::{Evidence, Tuning, derive};
use faultless_diagnosis::verdict::{ArmResult, Scope, Yardstick, do_endings_agree, is_killed, judge};
use faultless_probe::loader;
use faultless_probe::machine::{killed_for_memory, numa_nodes};
use faultless_probe::place::{self, PrivateDirectory};
use faultless_probe::proc_view;
use faultless_probe::process_files::page_bytes;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_records::allocator::Allocator;
use faultless_records::demo;
use faultless_records::heap_report::{self, HeapReport};
use faultless_records::measurement::{Ending, FinalView, Measurement, Orphan};
use faultless_records::preload_list;
use faultless_records::program::is_loader;
use faultless_records::quantity::{seconds_of, several, size};
use faultless_report::doctor;
use faultless_report::doctor::Consultation;
use faultless_report::doctor::html::html;
use faultless_trial::command::{Command, FirstLook, LargestView, Run, first_look, run_with_sizes};
use faultless_trial::comparison::{Arm, compare};
use faultless_trial::environment::Environment;

use crate::arguments::DoctorArguments;
use crate::failure::Failure;
use crate::input;
use crate::library;
use crate::output_file::OutputFile;
use crate::plan;
use crate::progress::Progress;
use crate::target;

/// Start of the names of the files that the observed processes write.
const REPORT_PREFIX: &str = "heap-report";

/// Consults on the command and prints what was found.
///
/// # Errors
/// [`Failure`] when no verdict could be reached.
pub fn doctor(arguments: DoctorArguments, signals: &Signals) -> Result<Ending, Failure> {
    if let Some(pid) = arguments.pid {
        if arguments.html.is_some() {
            return Err(Failure::Usage(format!(
                "--html draws what was tried on a command: without it, or with --json, doctor --pid {pid} prints what it found"
            )));
        }
        return process::consult(pid, &arguments, signals).map(|()| Ending::Exited(0));
    }
    let is_demo = arguments.command.is_empty();
    // What can be refused without writing anything is refused first.
    let given = if is_demo { None } else { Some(target::resolve(arguments.command, Purpose::Observation)?) };
    let page = arguments.html.as_deref().map(OutputFile::create).transpose()?;
    let files = Files::prepare()?;
    let command = match given {
        Some(command) => Command { input: input::file(), limit: arguments.limit, ..command },
        None => library::demo(files.directory.path())?,
    };
    let patient = Patient { command, is_demo, environment: Environment::new(std::env::vars_os()) };
    let consultation = consult(&patient, &files, arguments.runs, signals)?;
    drop(files);

    // A disk that is full by now costs its file and not the result.
    let drawn = page.map_or(Ok(()), |page| page.write(&html(&consultation)));
    let text = if arguments.json {
        doctor::json::json(&consultation)
    } else {
        consultation.text(terminal::columns())
    };
    signals.let_through();
    let printed = crate::print_report(&text);
    drawn.and(printed)?;
    Ok(Ending::Exited(i32::from(!consultation.verdict.endings_agree)))
}

/// Where the files of a consultation are; gone when it is over.
struct Files {
    directory: PrivateDirectory,
    library: PathBuf,
}

impl Files {
    fn prepare() -> Result<Self, Failure> {
        let (directory, library) = library::private()?;
        Ok(Self { directory, library })
    }
}

/// The command and the environment it is used in.
struct Patient {
    command: Command,
    is_demo: bool,
    environment: Environment,
}

impl Patient {
    /// The command in words, for the lines to paste.
    fn words(&self) -> Vec<String> {
        if self.is_demo { vec!["CMD".into()] } else { self.command.words() }
    }

    fn under_faultless(&self, files: &Files) -> Environment {
        plan::under_faultless(&self.environment, &files.library, &place::system_preload())
    }
}

fn consult(
    patient: &Patient,
    files: &Files,
    rounds: u32,
    signals: &Signals,
) -> Result<Consultation, Failure> {
    let progress = Progress::start();
    let name = patient.command.name();
    let until = patient.command.limit.map_or_else(
        || "until it ends".to_owned(),
        |limit| format!("for {} s at most", seconds_of(limit.as_secs_f64())),
    );
    progress.say(&format!("{name}: first look, as it is, {until} (Ctrl-C stops it)"));
    let first = match first_look(&patient.command, &patient.environment, signals) {
        Ok(looked) => looked,
        Err(error) => {
            drop(progress);
            // The demo ends.
            let failure = match patient.is_demo {
                true => Failure::of_run(&name, error),
                false => target::not_whole("doctor --for 30s --", &name, error),
            };
            return Err(failure);
        }
    };
    progress.say(&format!("{name}: observing its sizes under Faultless"));
    let observation = observe(patient, files, signals)?;
    let remedies = Remedies::derive(patient, &first, &observation);
    let tried = try_arms(patient, files, &first, &remedies, rounds, progress, signals)?;
    conclude(patient, first, observation, remedies, tried)
}

/// What is tried on a command.
struct Remedies {
    /// Settings of libc.
    tuning: Tuning,
    /// The allocator that the command has as it is.
    as_is: Allocator,
    /// Whether settings of libc reach it.
    is_libc_reachable: bool,
}

impl Remedies {
    fn derive(patient: &Patient, first: &FirstLook, observation: &Observation) -> Self {
        let as_is = first.brought().unwrap_or(Allocator::Libc);
        let tuning = derive(&Evidence {
            report: observation.largest.as_ref(),
            others: &observation.others,
            peak_rss_bytes: first.run.measurement.peak_rss_bytes,
            processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u64),
        });
        let is_libc_reachable = matches!(as_is, Allocator::Libc | Allocator::LibcDebug)
            || plan::preloads_allocator(&patient.environment);
        Self { tuning, as_is, is_libc_reachable }
    }
}

/// What came of it.
struct Tried {
    arms: Vec<ArmResult>,
    /// What the command printed last where it failed.
    failed_output: Option<String>,
    /// What the demo saw of its own memory.
    residence: Option<String>,
    /// How many processes the kernel killed for want of memory meanwhile, the command's or others.
    killed: u64,
}

fn try_arms(
    patient: &Patient,
    files: &Files,
    first: &FirstLook,
    remedies: &Remedies,
    rounds: u32,
    mut progress: Progress,
    signals: &Signals,
) -> Result<Tried, Failure> {
    let under_faultless = patient.under_faultless(files);
    let arms =
        plan::arms(&patient.environment, &remedies.tuning, under_faultless, remedies.is_libc_reachable);
    let (arms, roles): (Vec<Arm>, Vec<_>) = arms.into_iter().unzip();
    let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let killed_before = killed_for_memory();
    progress.plan(names.clone(), rounds, first.run.measurement.elapsed);
    let runs = compare(&patient.command, &arms, rounds, signals, &mut progress)
        .map_err(|error| Failure::of_run(&patient.command.name(), error))?;
    let killed =
        killed_for_memory().zip(killed_before).map_or(0, |(after, before)| after.saturating_sub(before));
    let failed_output = failed_output(&runs);
    let residence = if patient.is_demo { demo_residence(&names, &runs) } else { None };
    let of_arm = |((name, role), runs): (_, Vec<Run>)| {
        let runs = runs.into_iter().map(|run| run.measurement).collect();
        ArmResult { name, role, runs }
    };
    let arms: Vec<ArmResult> = names.into_iter().zip(roles).zip(runs).map(of_arm).collect();
    // Where the kernel killed nobody, another did.
    let killed = if arms.iter().any(is_killed) { killed } else { 0 };
    Ok(Tried { arms, failed_output, residence, killed })
}

fn conclude(
    patient: &Patient,
    first: FirstLook,
    observation: Observation,
    remedies: Remedies,
    tried: Tried,
) -> Result<Consultation, Failure> {
    let (look, orphans) = (first.run.measurement, first.orphans);
    let glibc = loader::glibc_version(&look.mapped_files);
    let arms = tried.arms;
    let mut doubts = doubts(patient, &look, &arms, observation.unreached);
    doubts.extend((tried.killed > 0).then(|| of_memory(tried.killed)));
    let scope = if tried.killed > 0 { Scope::Killed } else { scope(&arms, &doubts, &orphans) };
    let yardstick = Yardstick { page_bytes: page_bytes(), peaks_bytes: observation.peaks_bytes };
    let verdict =
        judge(&arms, scope, yardstick).ok_or_else(|| Failure::Failed("no run was measured".into()))?;
    let heap = observation.largest;
    let mut remarks = remarks(&arms, &remedies, observation.has_several_processes);
    remarks.extend(tried.residence);
    if patient.command.arguments.iter().any(|word| word.to_str().is_none()) {
        remarks.push("a word of the command is no UTF-8: in lines to paste \u{fffd} stands for the bytes that are none".into());
    }
    // Each arm is as it was set up, and nothing proves it.
    remarks.extend(
        proc_view::obstacle().map(|obstacle| format!("which allocator ran was not seen: {obstacle}")),
    );
    Ok(Consultation {
        command: patient.words(),
        is_demo: patient.is_demo,
        input: patient.command.input.as_ref().map(|_| input::name()),
        glibc,
        taken_out: plan::taken_out(&patient.environment),
        findings: check_environment(patient, &look, glibc),
        tuning: if remedies.is_libc_reachable { remedies.tuning } else { Tuning::default() },
        loaded_data: loaded_data::recognise(heap.as_ref(), &arms, &verdict.arms, numa_nodes()),
        heap,
        arms,
        verdict,
        remarks,
        doubts,
        failed_output: tried.failed_output,
        orphans,
    })
}

/// What a program has resident beside its heap, where nobody looked.
const SMALL_PROGRAM_BYTES: u64 = 4 << 20;

/// What one run under the library showed.
struct Observation {
    /// The report of its largest heap; none where a process that left no report was larger by far than those that did, as a server that
    /// its command kills.
    largest: Option<HeapReport>,
    /// Those of its other processes.
    others: Vec<HeapReport>,
    /// What is to be said of a large process that had not loaded the library.
    unreached: Option<String>,
    /// Whether there were several, reports or not.
    has_several_processes: bool,
    /// What these had at their peaks together; nothing of a single one.
    peaks_bytes: u64,
}

fn observe(patient: &Patient, files: &Files, signals: &Signals) -> Result<Observation, Failure> {
    let prefix = files.directory.path().join(REPORT_PREFIX);
    let mut option = OsString::from("report:");
    option.push(&prefix);
    let environment = patient.under_faultless(files).with_option("FAULTLESS", &option);
    let run = run_with_sizes(&patient.command, &environment, signals)
        .map_err(|error| Failure::of_run(&patient.command.name(), error))?;
    let mut reports = reports(files.directory.path());
    // What a program became reports of itself alone.
    if let Some((pid, before)) = run.before_exec()
        && reports.get(&pid).is_some_and(|of| doubt::is_far_larger(before.bytes, of.heap_peak_bytes))
    {
        reports.remove(&pid);
    }
    let views = run.processes;
    let is_reported = |pid: &i32| reports.contains_key(pid);
    let seen = |is_wanted: bool| {
        let fits = views.iter().filter(move |(pid, _)| is_reported(pid) == is_wanted);
        fits.map(|(_, view)| view.bytes).max().unwrap_or(0)
    };
    // Those that live for a moment are seen by their reports alone.
    let heap_of = |pid| reports.get(pid).map_or(0, |report: &HeapReport| report.heap_peak_bytes);
    let of_views = views.iter().map(|(pid, view)| view.bytes.max(heap_of(pid)));
    let unseen = reports.keys().filter(|pid| !views.contains_key(pid));
    let processes: Vec<u64> = of_views.chain(unseen.map(|pid| heap_of(pid) + SMALL_PROGRAM_BYTES)).collect();
    let peaks_bytes = if processes.len() > 1 { processes.iter().sum() } else { 0 };
    let heap_peak = reports.values().map(|report| report.heap_peak_bytes).max().unwrap_or(0);
    let is_missing = doubt::is_far_larger(seen(false), heap_peak.max(seen(true)));
    let mut reports: Vec<HeapReport> = reports.into_values().collect();
    reports.sort_by_key(|report| report.heap_peak_bytes);
    let largest = reports.pop();
    let mut own_mallocs = HashMap::new();
    let observed: Vec<Observed> = views.values().map(|view| observed(view, &mut own_mallocs)).collect();
    Ok(Observation {
        peaks_bytes,
        has_several_processes: !reports.is_empty() || views.len() > 1,
        largest: largest.filter(|_| !is_missing),
        others: reports,
        unreached: doubt::of_reach(&observed),
    })
}

/// What is known of programs that define `malloc` is kept: a build starts a compiler many times.
fn observed<'view>(view: &'view LargestView, own_mallocs: &mut HashMap<&'view str, bool>) -> Observed {
    let defines_malloc =
        |program| *own_mallocs.entry(program).or_insert_with(|| target::defines_malloc(program.as_ref()));
    let files = || view.mapped_files.iter().map(String::as_str);
    let program = files().next().unwrap_or_default();
    Observed {
        name: program.rsplit('/').next().unwrap_or_default().to_owned(),
        bytes: view.bytes,
        is_reached: files().next().is_none() || Allocator::of_process(files()) == Allocator::Faultless,
        is_static: !files().any(is_loader),
        has_own_malloc: view.program().is_some_and(defines_malloc),
    }
}

/// What processes reported, by number.
fn reports(directory: &Path) -> HashMap<i32, HeapReport> {
    let number = |name: &OsStr| -> Option<i32> {
        name.to_str()?.strip_prefix(REPORT_PREFIX)?.strip_prefix('.')?.parse().ok()
    };
    let files = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    files
        .filter_map(|file| {
            Some((number(&file.file_name())?, heap_report::parse(&fs::read_to_string(file.path()).ok()?)?))
        })
        .collect()
}

fn check_environment(patient: &Patient, look: &Measurement, glibc: Option<(u32, u32)>) -> Vec<Finding> {
    let variables: Vec<(String, String)> = patient
        .environment
        .variables()
        .iter()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .collect();
    let preload = patient.environment.get("LD_PRELOAD").map(|value| value.to_string_lossy());
    let is_missing = |entry: &&str| entry.contains('/') && !Path::new(entry).exists();
    let entries = preload_list::entries(preload.as_deref().unwrap_or_default());
    let missing_preloads: Vec<String> = entries.filter(is_missing).map(str::to_owned).collect();
    let tunables =
        target::loader(&patient.command.program).map(|path| loader::tunables(&path)).unwrap_or_default();
    check(&Facts {
        variables: &variables,
        glibc,
        tunables: &tunables,
        allocator: look.allocator().unwrap_or(Allocator::Libc),
        missing_preloads: &missing_preloads,
    })
}

/// What the runs printed last where they failed.
fn failed_output(runs: &[Vec<Run>]) -> Option<String> {
    runs.iter()
        .flatten()
        .find(|run| !run.measurement.ending.is_success() && !run.measurement.ending.is_time_limit())
        .map(|run| run.output_tail.clone())
}

/// What the demo saw of itself, in the last run of each arm: whether memory it freed was given back.
fn demo_residence(names: &[String], runs: &[Vec<Run>]) -> Option<String> {
    let seen = names.iter().zip(runs).map(|(name, runs)| {
        let residence = demo::parse(&runs.last()?.output_tail)?;
        Some(format!("{name} {} to {}", size(residence.start_bytes), size(residence.idle_bytes)))
    });
    let seen: Option<Vec<String>> = seen.collect();
    Some(format!("resident at the demo's start and after its idle second: {}", seen?.join("; ")))
}

/// Why the runs may not show what the command does elsewhere.
fn doubts(
    patient: &Patient,
    look: &Measurement,
    arms: &[ArmResult],
    unreached: Option<String>,
) -> Vec<String> {
    let mut doubts = doubt::of_runs(look, arms);
    // The program's own malloc is said once, of the process that matters if it is known.
    doubts.extend(unreached.or_else(|| target::own_malloc(&patient.command.program, [look.program()])));
    doubts.extend(input::unread().filter(|_| !patient.is_demo).map(str::to_owned));
    doubts
}

/// What is said where the kernel killed so many processes meanwhile, and the command was killed.
fn of_memory(killed: u64) -> String {
    format!(
        "the kernel killed {} for want of memory meanwhile, and takes the memory of such before they end: the figures are of what they did until then, and peak and final RSS may be of what was left",
        several(killed, "process")
    )
}

/// What a verdict on these runs speaks of.
fn scope(arms: &[ArmResult], doubts: &[String], orphans: &[Orphan]) -> Scope {
    let fails = arms.iter().flat_map(|arm| &arm.runs).all(|run| !run.ending.is_success());
    let is_doubtful = fails || !do_endings_agree(arms) || !doubts.is_empty();
    match (is_doubtful, orphans.is_empty()) {
        (true, _) => Scope::Doubtful,
        (false, false) => Scope::Part,
        (false, true) => Scope::All,
    }
}

/// What limits the conclusions.
fn remarks(arms: &[ArmResult], remedies: &Remedies, has_several_processes: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let rounds = arms.first().map_or(0, |arm| arm.runs.len());
    if rounds < LEAST_ROUNDS {
        let runs = if rounds == 1 { "one run".to_owned() } else { format!("{rounds} runs") };
        remarks.push(format!(
            "{runs} of each arm can tell from noise only what is half or twice as much; -n {LEAST_ROUNDS} or more tells smaller differences"
        ));
    }
    if !remedies.is_libc_reachable {
        remarks.push(format!(
            "the command brings {} along, so settings of libc do not reach it and none was tried",
            remedies.as_is
        ));
    }
    let is_sampled = |run: &Measurement| run.final_view == FinalView::Sampled;
    if arms.iter().flat_map(|arm| &arm.runs).any(is_sampled) {
        remarks.push("an exit was not seen (tracing was refused, or a first thread ended before others), so the final RSS is the last sample taken before the end".into());
    }
    if has_several_processes {
        remarks.push(
            "several processes took part: times and faults are of all that were waited for, peak RSS of the largest, \
             final RSS of the first"
                .into(),
        );
    }
    remarks
}
