//! Runs a campaign: every contender in every cell, round after round.
//!
//! Within a round all contenders run a cell one after the other, so that their runs lie close together in time.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use faultless_probe::machine::CpuTimes;
use faultless_probe::signals::Signals;
use faultless_records::allocator::Allocator;
use faultless_records::bench::{Figures, Sample, SystemCalls};
use faultless_records::measurement::{Ending, Measurement};
use faultless_records::workload_report::{self, marks};

use crate::command::{Command, LargestView, Run, RunError, brought, count_system_calls, run_within};
use crate::environment::Environment;
use crate::turns::{Turn, turns};

/// A run of one of our own programs that goes on for longer counts as hanging.
const LIMIT: Duration = Duration::from_secs(300);

/// What a cell runs.
#[derive(Debug, Clone)]
pub struct Job {
    /// The program with its arguments.
    pub command: Command,
    /// Whether it prints a workload's report; without one it has failed.
    pub reports: bool,
    /// After which a run counts as hanging; none for a command of the user's.
    limit: Option<Duration>,
    /// How a run must end.
    expected: Ending,
    /// What serves it without a preload, where that is another allocator than the C library's.
    brought: Option<Allocator>,
}

impl Job {
    /// One of our own programs.
    #[must_use]
    pub fn new(command: Command, reports: bool) -> Self {
        Self { command, reports, limit: Some(LIMIT), expected: Ending::Exited(0), brought: None }
    }

    /// A command of the user's, which was run as it is, and its processes, as they were seen then: it ends so under every allocator,
    /// however long it takes.
    #[must_use]
    pub fn of_user<'view>(
        command: Command,
        as_it_is: &Measurement,
        processes: impl IntoIterator<Item = &'view LargestView>,
    ) -> Self {
        let brought = brought(as_it_is, processes);
        Self { command, reports: false, limit: None, expected: as_it_is.ending, brought }
    }

    /// What serves it without a preload, where that is another allocator than the C library's.
    #[must_use]
    pub fn brought(&self) -> Option<Allocator> {
        self.brought
    }
}

/// How a contender is made to take part.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The environment with its preload.
    pub environment: Environment,
    /// The library that must be found in the mappings, without symbolic links; none for the C library's own allocator.
    pub library: Option<PathBuf>,
}

/// Makes all runs; `observe` hears of each before and after. An interruption ends it early: the samples so far are returned
/// beside the error.
pub fn run_all(
    jobs: &[Job],
    entries: &[Entry],
    rounds: u32,
    signals: &Signals,
    observe: &mut dyn FnMut(Turn, Option<&Sample>),
) -> (Vec<Sample>, Option<RunError>) {
    let mut samples = Vec::new();
    let files: Vec<_> = entries.iter().map(library_file).collect();
    for turn in turns(rounds, jobs.len(), entries.len()) {
        observe(turn, None);
        let (job, entry) = (&jobs[turn.cell], &entries[turn.contender]);
        let before = CpuTimes::now();
        let (judged, command_s) = match run_within(&job.command, &entry.environment, signals, job.limit) {
            Ok(run) => {
                let is_same = library_file(entry) == files[turn.contender];
                let judged = judge(job, entry, &run).and_then(|figures| match is_same {
                    true => Ok((figures, marks_of(job, &run))),
                    false => Err("its library was replaced since the campaign began".into()),
                });
                (judged, run.measurement.processor().as_secs_f64())
            }
            Err(error @ RunError::Interrupted(_)) => return (samples, Some(error)),
            Err(error) => (Err(error.to_string()), 0.0),
        };
        let foreign_cpu = match (before, CpuTimes::now()) {
            (Some(before), Some(after)) => after.foreign_since(&before, command_s),
            _ => 0.0,
        };
        let (figures, failure, marks) = match judged {
            Ok((figures, marks)) => (Some(figures), None, marks),
            Err(reason) => (None, Some(reason), Default::default()),
        };
        let Turn { round, cell, contender } = turn;
        let sample = Sample { cell, contender, round, figures, failure, foreign_cpu, marks };
        observe(turn, Some(&sample));
        samples.push(sample);
    }
    (samples, None)
}

/// The system calls of a run, or why they are not known.
pub type Counted = Result<u64, RunError>;

/// Counts the system calls of every contender in every cell, in a run each; `observe` hears of each before and after. An interruption
/// ends it early, as in [`run_all`].
pub fn count_calls(
    jobs: &[Job],
    entries: &[Entry],
    signals: &Signals,
    observe: &mut dyn FnMut(Turn, Option<&Counted>),
) -> (Vec<SystemCalls>, Option<RunError>) {
    let mut counts = Vec::new();
    for turn in turns(1, jobs.len(), entries.len()) {
        observe(turn, None);
        let Turn { cell, contender, .. } = turn;
        let (job, environment) = (&jobs[cell], &entries[contender].environment);
        match count_system_calls(&job.command, environment, signals, job.limit, job.expected) {
            Err(error @ RunError::Interrupted(_)) => return (counts, Some(error)),
            counted => {
                observe(turn, Some(&counted));
                counts.extend(counted.ok().map(|calls| SystemCalls { cell, contender, calls }));
            }
        }
    }
    (counts, None)
}

/// Which file an entry's library is: what was built meanwhile is another, under the same name.
fn library_file(entry: &Entry) -> Option<(u64, u64, u64, SystemTime)> {
    let file = fs::metadata(entry.library.as_ref()?).ok()?;
    Some((file.dev(), file.ino(), file.len(), file.modified().ok()?))
}

/// What a workload reported beyond the figures.
fn marks_of(job: &Job, run: &Run) -> BTreeMap<String, f64> {
    if job.reports { marks(&run.output_tail) } else { BTreeMap::new() }
}

/// The figures of a run, or why it does not count.
fn judge(job: &Job, entry: &Entry, run: &Run) -> Result<Figures, String> {
    let measured = &run.measurement;
    if measured.ending != job.expected {
        return Err(ending(job, measured, &run.output_tail));
    }
    prove(job, entry, measured)?;
    let report = workload_report::parse(&run.output_tail).filter(|_| job.reports);
    if job.reports && report.is_none() {
        return Err(format!("it printed no report{}", last_line(&run.output_tail)));
    }
    let seen = report.map(|report| [report.start_rss_bytes, report.end_rss_bytes, report.idle_rss_bytes]);
    // The kernel's mark lags behind by some pages for each CPU; what the workload read of itself is exact.
    let largest_seen_bytes = seen.into_iter().flatten().flatten().max().unwrap_or(0);
    Ok(Figures {
        elapsed_s: report.map_or(measured.elapsed.as_secs_f64(), |report| report.seconds),
        user_s: measured.user.as_secs_f64(),
        system_s: measured.system.as_secs_f64(),
        minor_faults: measured.minor_faults,
        major_faults: measured.major_faults,
        peak_rss_bytes: measured.peak_rss_bytes.max(largest_seen_bytes),
        start_rss_bytes: report.and_then(|report| report.start_rss_bytes),
        end_rss_bytes: report.and_then(|report| report.end_rss_bytes),
        idle_rss_bytes: report.and_then(|report| report.idle_rss_bytes),
        live_peak_bytes: report.map(|report| report.live_peak_bytes),
        mappings: report.and_then(|report| report.mappings),
        operations: report.map(|report| report.operations),
    })
}

/// Whether the mappings at the end show the library that should have been there; without one, no other allocator's. A program
/// that brings another has both, and the preloaded one comes first.
fn prove(job: &Job, entry: &Entry, measured: &Measurement) -> Result<(), String> {
    if measured.mapped_files.is_empty() {
        return Err("its mappings could not be read, so nothing proves which allocator ran".into());
    }
    let Some(library) = &entry.library else {
        return match measured.allocator() {
            None | Some(Allocator::Libc) => Ok(()),
            other if other == job.brought => Ok(()),
            Some(other) => Err(format!("{other} ran instead of libc's allocator")),
        };
    };
    let is_mapped = measured.mapped_files.iter().any(|file| file.as_str() == library.to_string_lossy());
    if is_mapped { Ok(()) } else { Err(format!("{} was not loaded", library.display())) }
}

fn ending(job: &Job, measured: &Measurement, output: &str) -> String {
    match (measured.ending, job.limit) {
        (Ending::Killed(9), Some(limit)) if measured.elapsed >= limit => {
            format!("no end after {} s", limit.as_secs())
        }
        (ending, _) if job.expected.is_success() => format!("{ending}{}", last_line(output)),
        (ending, _) => format!("{ending}, {} as it is{}", job.expected, last_line(output)),
    }
}

/// The last line of what a command printed, behind what is said of it; nothing of nothing.
#[must_use]
pub fn last_line(output: &str) -> String {
    output.lines().last().map_or(String::new(), |line| format!(": {}", line.replace('\t', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::measurement::FinalView;

    fn run(ending: Ending, mapped_files: &[&str], output: &str) -> Run {
        Run {
            measurement: Measurement {
                ending,
                user: Duration::from_millis(300),
                system: Duration::from_millis(20),
                elapsed: Duration::from_millis(900),
                minor_faults: 500,
                major_faults: 0,
                waits: 0,
                peak_rss_bytes: 4 << 20,
                final_rss_bytes: None,
                final_view: FinalView::AtExit,
                mapped_files: mapped_files.iter().map(|&file| file.into()).collect(),
            },
            output_tail: output.into(),
        }
    }

    fn command() -> Command {
        Command::new("/bin/true", Vec::new())
    }

    fn job(reports: bool) -> Job {
        Job::new(command(), reports)
    }

    fn entry(library: Option<&str>) -> Entry {
        Entry { environment: Environment::default(), library: library.map(PathBuf::from) }
    }

    #[test]
    fn the_workloads_own_time_counts_where_it_reports_it() {
        let line = "workload name=x operations=5 seconds=0.5 live_peak=100 rss_end_kib=7 mappings=3 cpu_s=1";
        let done = run(Ending::Exited(0), &["/l/libc.so.6"], line);
        let figures = judge(&job(true), &entry(None), &done).unwrap();
        assert_eq!((figures.elapsed_s, figures.end_rss_bytes), (0.5, Some(7 << 10)));
        let figures = judge(&job(false), &entry(None), &done).unwrap();
        assert_eq!(
            (figures.elapsed_s, figures.operations),
            (0.9, None),
            "a command may print such a line, too"
        );
        assert_eq!((marks_of(&job(true), &done).len(), marks_of(&job(false), &done).len()), (1, 0));
    }

    #[test]
    fn a_peak_is_no_less_than_what_was_there() {
        let peak_of = |end_kib: u64, idle_kib: i64| {
            let line = format!(
                "workload name=x operations=5 seconds=0.5 live_peak=100 rss_start_kib=900 rss_end_kib={end_kib} rss_idle_kib={idle_kib} mappings=3"
            );
            judge(&job(true), &entry(None), &run(Ending::Exited(0), &["/l/libc.so.6"], &line))
                .unwrap()
                .peak_rss_bytes
        };
        assert_eq!(
            [(4000, -1), (5000, 7), (5000, 6000)].map(|(end, idle)| peak_of(end, idle) >> 10),
            [4096, 5000, 6000]
        );
    }

    #[test]
    fn a_run_under_another_allocator_than_claimed_does_not_count() {
        let libc_only = run(Ending::Exited(0), &["/l/libc.so.6"], "");
        assert_eq!(
            judge(&job(false), &entry(Some("/p/libx.so")), &libc_only).unwrap_err(),
            "/p/libx.so was not loaded"
        );
        let jemalloc = run(Ending::Exited(0), &["/l/libjemalloc.so.2"], "");
        assert!(judge(&job(false), &entry(None), &jemalloc).unwrap_err().contains("jemalloc ran instead"));
        assert!(judge(&job(false), &entry(None), &run(Ending::Exited(0), &[], "")).is_err());
    }

    #[test]
    fn a_library_that_was_built_again_is_another_file() {
        let path = std::env::temp_dir().join(format!("faultless-built-{}.so", std::process::id()));
        fs::write(&path, "old").unwrap();
        let built = entry(path.to_str());
        let file = library_file(&built);
        assert!(file.is_some() && file == library_file(&built));
        fs::write(path.with_extension("new"), "new").unwrap();
        fs::rename(path.with_extension("new"), &path).unwrap();
        assert_ne!(file, library_file(&built));
        fs::remove_file(&path).unwrap();
        assert_eq!(library_file(&entry(None)), None);
    }

    #[test]
    fn a_command_of_the_users_ends_as_it_does_without_us_however_long_it_takes() {
        let files = ["/l/libc.so.6"];
        let job = Job::of_user(command(), &run(Ending::Exited(124), &files, "").measurement, &[]);
        assert_eq!((job.limit, job.brought()), (None, None));
        assert!(judge(&job, &entry(None), &run(Ending::Exited(124), &files, "")).is_ok());
        let other = run(Ending::Exited(0), &files, "done");
        assert_eq!(
            judge(&job, &entry(None), &other).unwrap_err(),
            "exit status 0, exit status 124 as it is: done"
        );
        let mut long = run(Ending::Killed(9), &files, "");
        long.measurement.elapsed = LIMIT * 2;
        assert_eq!(
            judge(&job, &entry(None), &long).unwrap_err(),
            "killed by SIGKILL, exit status 124 as it is"
        );
    }

    #[test]
    fn an_allocator_that_a_command_brings_is_the_one_that_it_has_as_it_is() {
        let linked = run(Ending::Exited(0), &["/l/libjemalloc.so.2"], "");
        let job = Job::of_user(command(), &linked.measurement, &[]);
        assert_eq!(job.brought().map(Allocator::name), Some("jemalloc"));
        assert!(judge(&job, &entry(None), &linked).is_ok());
        let shell = run(Ending::Exited(0), &["/l/libc.so.6"], "");
        let view = |bytes, file: &str| LargestView { bytes, mapped_files: vec![file.to_owned()] };
        let server =
            [view(1, "/l/libtcmalloc.so.4"), view(9, "/l/libjemalloc.so.2"), view(2, "/l/libc.so.6")];
        assert_eq!(Job::of_user(command(), &shell.measurement, &server).brought(), job.brought());
        let other = run(Ending::Exited(0), &["/l/libmimalloc.so.2"], "");
        assert!(judge(&job, &entry(None), &other).unwrap_err().contains("mimalloc ran instead"));
    }

    #[test]
    fn failures_say_why() {
        let files = ["/l/libc.so.6"];
        let failed = run(Ending::Exited(1), &files, "first\nout of memory");
        assert_eq!(judge(&job(true), &entry(None), &failed).unwrap_err(), "exit status 1: out of memory");
        let killed = run(Ending::Killed(11), &files, "");
        assert_eq!(judge(&job(true), &entry(None), &killed).unwrap_err(), "killed by SIGSEGV");
        assert!(judge(&job(true), &entry(None), &run(Ending::Exited(0), &files, "hello")).is_err());
    }
}
