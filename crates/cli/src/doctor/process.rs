//! `faultless doctor --pid`: looks at a running process with every instrument for a moment, and says what was found.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faultless_diagnosis::malloc_time::MallocTime;
use faultless_diagnosis::preload::{self, Purpose};
use faultless_probe::clock;
use faultless_probe::fault_cost;
use faultless_probe::halt;
use faultless_probe::process::{Process, ProcessError};
use faultless_probe::program;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_records::churn_recording::{ChurnRecording, Mechanism};
use faultless_records::counters::Counters;
use faultless_records::fault_recording::FaultRecording;
use faultless_records::mappings::DELETED;
use faultless_records::status;
use faultless_report::doctor::process::{Activity, ProcessConsultation, json};
use faultless_report::heap::HeapView;

use super::beside::{self, Beside};
use crate::arguments::{ChurnArguments, DoctorArguments, FaultsArguments};
use crate::failure::Failure;
use crate::heap::process::Manner;
use crate::{churn, faults, heap, input, map, subject, target};

/// How long a process is observed, unless said otherwise.
const USUAL: Duration = Duration::from_secs(10);

/// Of so much less than was asked for, the observation was interrupted.
const INTERRUPTED_PART: f64 = 0.9;

/// Consults on a running process and prints what was found. Nothing of it is changed, and nothing stops.
///
/// # Errors
/// [`Failure`] when the process cannot be seen, or has ended.
pub fn consult(pid: i32, arguments: &DoctorArguments, signals: &Signals) -> Result<(), Failure> {
    let process = subject::process(pid)?;
    let mut was_looked_at = false;
    let consultation = subject::one_program(&process, || {
        let is_anew = std::mem::replace(&mut was_looked_at, true);
        // By the name that it has now.
        let mut seen = look(&subject::process(pid)?, arguments, signals)?;
        seen.remarks.extend(is_anew.then(|| BEFORE_EXEC.into()));
        Ok(seen)
    })?;
    signals.let_through();
    crate::print_report(&match arguments.json {
        true => json(&consultation),
        false => consultation.text(terminal::columns()),
    })
}

/// Looks at a process for a while.
fn look(
    process: &Process,
    arguments: &DoctorArguments,
    signals: &Signals,
) -> Result<ProcessConsultation, Failure> {
    let pid = process.pid();
    let limit = arguments.limit.unwrap_or(USUAL);
    // What cannot be seen is refused before the time is spent.
    subject::mappings(process, "maps")?;
    let mut remarks = Vec::new();
    // What could not be seen is said in the end.
    let heap_before = heap::process::look(process, Manner::Running).ok();
    let before = Reading::whole(process)?;
    let beside = Beside::begin(process);
    let observed = observe(process, &before, limit, signals, &mut remarks);
    // Naming what was sampled takes a while.
    let after = Reading::whole(process)?;
    let beside = beside.and_then(Beside::end);
    // Else the recording has it among its remarks.
    if observed.faults.is_none() {
        remarks.extend(subject::unseen(process));
    }
    let map = map::look(process, map::Manner::default())?;
    let heap = heap::process::look(process, Manner::Running);
    let heap = heap.map_err(|failure| remarks.push(unseen("its heaps", failure))).ok();
    remarks.extend(map.remarks.iter().cloned());
    remarks.extend(heap.iter().flat_map(HeapView::on_walk));
    let waits = beside.as_ref().and_then(|beside| beside.waits.as_ref()).zip(heap.as_ref());
    let arena_waits = waits.and_then(|(waits, heap)| beside::at_arenas(waits, &heap.walks));
    let malloc_time = match beside.map(|beside| beside.time) {
        Some(Ok(samples)) => Some(MallocTime::of(&samples)),
        // Where the faults were kept from us, too, that is said already.
        Some(Err(error)) if observed.faults.is_some() => {
            remarks.push(format!("what malloc's calls take of its processor time: {error}"));
            None
        }
        _ => None,
    };
    let command = words(process);
    let settings = settings(process);
    Ok(ProcessConsultation {
        pid,
        name: process.name().to_owned(),
        program: program_instead(process, &command),
        command,
        directory: directory(process),
        input: input::name_of(pid),
        settings: settings.iter().filter(|setting| is_unlike_ours(setting)).cloned().collect(),
        environment: settings,
        obstacle: obstacle(process),
        absence: absence(process),
        is_halted: halt::of(process).is_some(),
        is_replaced: is_replaced(process),
        activity: Activity { fault_s: fault_cost::of_fresh_page_s(), ..after.since(&before) },
        map,
        heap,
        trapped_before_bytes: heap_before.as_ref().and_then(HeapView::trapped_bytes),
        malloc_before_bytes: heap_before.as_ref().and_then(HeapView::resident_bytes),
        churn: observed.churn,
        faults_beside_calls: observed.faults_beside_calls,
        faults: observed.faults,
        malloc_time,
        arena_waits,
        remarks,
    })
}

/// What is not told of a process that became another program meanwhile, and was looked at again.
const BEFORE_EXEC: &str = "what it did until it became another program, after which it was looked at anew";

/// What the process did while it was looked at.
#[derive(Default)]
struct Observed {
    churn: Option<ChurnRecording>,
    /// Page faults without I/O a second while its calls were looked at.
    faults_beside_calls: Option<f64>,
    faults: Option<FaultRecording>,
}

/// Half of the time for the calls, half for the faults: each instrument needs the signals for itself.
fn observe(
    process: &Process,
    before: &Reading,
    limit: Duration,
    signals: &Signals,
    remarks: &mut Vec<String>,
) -> Observed {
    let (pid, half) = (process.pid(), limit / 2);
    let mut observed = Observed::default();
    let begun = Instant::now();
    match churn::kernel::look(&of_churn(pid, half), signals) {
        Ok(recording) => {
            remarks.extend(kept_from_us(&recording));
            observed.churn = Some(recording);
            let after = Reading::of(process).ok();
            observed.faults_beside_calls = after.map(|after| after.since(before).minor_faults_per_second());
        }
        Err(failure) => remarks.push(unseen("what it gives back to the kernel and takes again", failure)),
    }
    let is_whole = begun.elapsed() >= half.mul_f64(INTERRUPTED_PART) || observed.churn.is_none();
    if is_whole {
        match faults::record(&of_faults(pid, half), signals) {
            Ok(recording) => {
                remarks.extend(recording.remarks.iter().cloned());
                observed.faults = Some(recording);
            }
            Err(failure) => remarks.push(unseen("which functions take its page faults", failure)),
        }
    }
    observed
}

/// Whether the process gives memory back only to take it again, where the calls are seen in part.
fn kept_from_us(recording: &ChurnRecording) -> Option<String> {
    let reason = recording.refused.as_deref().unwrap_or_default();
    (recording.mechanism == Mechanism::MmapRecords)
        .then(|| format!("what it gives back to the kernel and takes again: {reason}"))
}

fn unseen(what: &str, failure: Failure) -> String {
    format!("{what}: {}", failure.into_message())
}

fn of_churn(pid: i32, limit: Duration) -> ChurnArguments {
    ChurnArguments {
        malloc: false,
        pid: Some(pid),
        limit: Some(limit),
        by: None,
        json: false,
        record: None,
        pprof: None,
        folded: None,
        diff: Vec::new(),
        words: Vec::new(),
    }
}

fn of_faults(pid: i32, limit: Duration) -> FaultsArguments {
    FaultsArguments {
        pid: Some(pid),
        limit: Some(limit),
        every: None,
        stack: None,
        json: false,
        tree: false,
        record: None,
        html: None,
        folded: None,
        pprof: None,
        diff: Vec::new(),
        words: Vec::new(),
    }
}

/// The words of its command line; none of a process that has overwritten them, as servers do (`nginx: worker process`).
fn words(process: &Process) -> Vec<String> {
    let bytes = process.read("cmdline").unwrap_or_default();
    let Some((0, words)) = bytes.split_last() else { return Vec::new() };
    let words = words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let words: Vec<String> = words.collect();
    let program = process.link("exe").unwrap_or_default();
    let is_title =
        |first: &String| first.contains(' ') && Path::new(first).file_name() != program.file_name();
    if words.first().is_some_and(is_title) { Vec::new() } else { words }
}

/// Its current directory, where that is another than ours: paths in its command line begin there.
fn directory(process: &Process) -> Option<String> {
    let directory = process.link("cwd").ok().filter(|directory| directory.is_dir())?;
    let is_ours = std::env::current_dir().is_ok_and(|ours| ours == directory);
    (!is_ours).then(|| directory.to_string_lossy().into_owned())
}

/// What steers malloc in its environment.
fn settings(process: &Process) -> Vec<(String, String)> {
    let steers = |name: &str| {
        name.contains("MALLOC") || ["GLIBC_TUNABLES", "LD_PRELOAD", "USE_ZEND_ALLOC"].contains(&name)
    };
    let environment = process.read("environ").unwrap_or_default();
    let variables = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
        steers(name).then(|| (name.to_owned(), value.to_owned()))
    });
    variables.collect()
}

fn is_unlike_ours((name, value): &(String, String)) -> bool {
    std::env::var(name).as_ref() != Ok(value)
}

/// The file of its program, where the first word of its command line leads to none, as `-bash` of a login.
fn program_instead(process: &Process, command: &[String]) -> Option<String> {
    let name = command.first()?;
    let path = if name.contains('/') { process.link("cwd").ok()?.join(name) } else { name.into() };
    let program = process.link("exe").ok().filter(|program| program.is_file())?;
    program::find(path.as_os_str()).is_err().then(|| program.to_string_lossy().into_owned())
}

/// Why no preload reaches a new process of its program, as of one that is linked with musl, or takes the place of its malloc.
fn obstacle(process: &Process) -> Option<String> {
    let program = format!("/proc/{}/exe", process.pid());
    let mut chain = program::chain(Path::new(&program)).ok()?;
    chain.last_mut()?.path = process.name().into();
    preload::obstacle(&chain, Purpose::Allocator).or_else(|| {
        target::has_own_malloc(process).then(|| {
            format!(
                "{} defines malloc itself, which neither a preload nor a setting of libc's reaches",
                process.name()
            )
        })
    })
}

/// The path that led to its program's file, where that has been deleted.
fn deleted_program(process: &Process) -> Option<PathBuf> {
    let program = process.link("exe").ok()?;
    let path = program.as_os_str().as_bytes().strip_suffix(DELETED.as_bytes())?;
    Some(OsStr::from_bytes(path).into())
}

/// Whether another file stands in the place of its program's.
fn is_replaced(process: &Process) -> bool {
    deleted_program(process).is_some_and(|path| path.is_file())
}

/// Why its program cannot be started anew from here, where it cannot. After an upgrade another stands in its place, which can.
fn absence(process: &Process) -> Option<String> {
    if let Some(path) = deleted_program(process) {
        return (!path.is_file()).then(|| "its program's file has been deleted".into());
    }
    let program = process.link("exe").ok()?;
    let own = fs::metadata(format!("/proc/{}/exe", process.pid())).ok()?;
    let is_here = fs::metadata(&program).is_ok_and(|here| (here.dev(), here.ino()) == (own.dev(), own.ino()));
    (!is_here).then(|| {
        "its program is among other files than ours (a container): faultless doctor -- CMD in there starts one".into()
    })
}

/// What a process has and has used at one moment.
struct Reading {
    at: Instant,
    rss_bytes: u64,
    anonymous_bytes: Option<u64>,
    shared_bytes: Option<u64>,
    /// Only in [`whole`](Self::whole) ones: its mappings are walked for it.
    private_bytes: Option<u64>,
    peak_rss_bytes: Option<u64>,
    threads: u32,
    minor_faults: u64,
    major_faults: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl Reading {
    fn of(process: &Process) -> Result<Self, Failure> {
        let at = Instant::now();
        let text = process.text("status").map_err(Failure::of_process)?;
        let bytes = process.read("stat").map_err(Failure::of_process)?;
        let ended = || Failure::of_process(ProcessError::Ended(process.pid()));
        let counters = Counters::parse(&bytes).ok_or_else(ended)?;
        Ok(Self {
            at,
            rss_bytes: status::bytes_of_field(&text, "VmRSS").ok_or_else(ended)?,
            anonymous_bytes: status::bytes_of_field(&text, "RssAnon"),
            shared_bytes: status::bytes_of_field(&text, "RssShmem"),
            private_bytes: None,
            peak_rss_bytes: status::bytes_of_field(&text, "VmHWM"),
            threads: counters.threads,
            minor_faults: counters.minor_faults,
            major_faults: counters.major_faults,
            user_ticks: counters.user_ticks,
            system_ticks: counters.system_ticks,
        })
    }

    fn whole(process: &Process) -> Result<Self, Failure> {
        let sums = process.text("smaps_rollup").ok();
        // Of a file that only this process maps, a page is its own before it is written, too.
        let private_bytes = sums.and_then(|sums| {
            let [clean, dirty] =
                ["Private_Clean", "Private_Dirty"].map(|name| status::bytes_of_field(&sums, name));
            Some(clean? + dirty?)
        });
        Ok(Self { private_bytes, ..Self::of(process)? })
    }

    fn since(&self, before: &Self) -> Activity {
        let growth = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        let seconds = |now: u64, then: u64| now.saturating_sub(then) as f64 / clock::ticks_per_s();
        Activity {
            seconds: self.at.duration_since(before.at).as_secs_f64(),
            rss_before_bytes: before.rss_bytes,
            rss_after_bytes: self.rss_bytes,
            peak_rss_bytes: self.peak_rss_bytes,
            peak_rss_before_bytes: before.peak_rss_bytes,
            anonymous_growth_bytes: growth(self.anonymous_bytes, before.anonymous_bytes),
            shared_growth_bytes: growth(self.shared_bytes, before.shared_bytes),
            private_growth_bytes: growth(self.private_bytes, before.private_bytes),
            threads: self.threads,
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            user_s: seconds(self.user_ticks, before.user_ticks),
            system_s: seconds(self.system_ticks, before.system_ticks),
            fault_s: None,
        }
    }
}
