//! The command line: one definition gives parsing, help, man page and completions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueHint};
use faultless_records::bench::Size;
use faultless_records::churn_recording::Mechanism;

use crate::watch::arguments::WatchArguments;
use crate::{examples, exit_status};

/// Runs programs under the Faultless allocator and finds out what an allocator costs them.
#[derive(Debug, Parser)]
#[command(name = "faultless", version, max_term_width = 100, after_help = exit_status::of_all())]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Find out what the allocator costs a command and which remedy helps, or a running process; without either, on a demo.
    Doctor(DoctorArguments),
    /// Run a command under the allocator and sum up what it used.
    Run(RunArguments),
    /// Compare allocators on a command of your own, the programs that papers compare them with, and real ones.
    Bench(BenchArguments),
    /// Show what every mapping of a process is, how that is known, and how much of it is in memory.
    Map(MapArguments),
    /// Show what malloc holds in a process: in use, free, and free but resident.
    Heap(crate::heap::HeapArguments),
    /// Follow sizes, page faults and processor time of processes over time: a live chart, lines, recordings, plots.
    Watch(WatchArguments),
    /// Attribute the page faults of a command or process to functions, lines and kinds of memory; without either, of a demo.
    Faults(FaultsArguments),
    /// Count the calls by which a program gets memory (from the kernel, or from malloc) and gives it back; name thrash.
    Churn(ChurnArguments),
    /// Serve sizes, page faults, processor time and heaps of processes to Prometheus, or to node_exporter as a file.
    Export(crate::export::ExportArguments),
    /// Find out what the present permissions allow: for commands, own processes, those of others, or one.
    Check(crate::check::CheckArguments),
    /// Print the man page (roff) or a shell's completions.
    Manual(ManualArguments),
}

/// `faultless run`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("run"))]
pub struct RunArguments {
    /// Have the allocator print its statistics to standard error when the command exits.
    #[arg(long)]
    pub stats: bool,
    /// Write the summary to FILE as JSON instead of one line to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// `faultless doctor`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("doctor"), group = ArgGroup::new("subject").args(["pid", "command"]))]
pub struct DoctorArguments {
    /// Consult on the running process with this number: what it holds and does, as it is; nothing is tried on it.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number, conflicts_with_all = ["command", "runs"])]
    pub pid: Option<i32>,
    /// Observe the process for this long (10s, 500ms, 2m) [default: 10s]; look at a command after this long and end it, in each run
    /// [default: to its end].
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::time_span::parse, requires = "subject")]
    pub limit: Option<Duration>,
    /// Rounds: how often to run the command with each remedy, and as it is.
    #[arg(short = 'n', long = "rounds", alias = "runs", value_name = "ROUNDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Also write the report on a command to FILE, as one page of HTML with pictures.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// The command and its arguments. Each run reads the file that doctor gets (< FILE) from its beginning, or nothing; its output is
    /// dropped. A command that does not end by itself needs a limit, such as --for 30s.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Values that a recording has, too, by the names that they have in tables, with what `--help` says of each.
fn by_name<Value: Copy + Send + Sync + 'static, const COUNT: usize>(
    values: [(Value, &'static str); COUNT],
    name: fn(Value) -> &'static str,
) -> impl TypedValueParser<Value = Value> {
    let possible = values.map(|(value, help)| PossibleValue::new(name(value)).help(help));
    PossibleValuesParser::new(possible).try_map(move |word| {
        let named = values.iter().find(|(value, _)| name(*value) == word);
        named.map(|(value, _)| *value).ok_or("no such value")
    })
}

/// What `--help` says of the sizes of a workload's problem.
const SIZES: [(Size, &str); 2] = [
    (Size::Small, "Some tenths of a second"),
    (Size::Large, "About four times the work on eight times the memory"),
];

/// A run of `bench` is killed after 300 s, and its work takes up to a minute.
const LONGEST_IDLE_MS: i64 = 240_000;

/// `faultless bench`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("bench"))]
pub struct BenchArguments {
    /// Suites (sun, classic, programs, threads, drawn, seeds) and single workloads; without any, all suites (--quick: all but drawn and seeds).
    #[arg(value_name = "SUITE|WORKLOAD")]
    pub names: Vec<String>,
    /// Allocators: libc, faultless, the name of an installed one, or NAME=PATH of a library; settings for one alone stand before
    /// its library, as in 'NAME=VARIABLE=VALUE PATH' [default: all that are installed].
    #[arg(short, long, value_delimiter = ',', value_name = "NAME[=PATH],...")]
    pub allocators: Vec<String>,
    /// The allocator that the others are compared with [default: the first].
    #[arg(short, long, value_name = "NAME")]
    pub reference: Option<String>,
    /// Numbers of threads for the workloads of sun and classic, for churn and dgemm, and by turns for the programs of drawn [default: sun 1,2,4,6,8,10, classic, drawn and churn 1,2,8].
    #[arg(short, long, value_name = "THREADS,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Problem sizes: small, large [default: both].
    #[arg(short, long, value_delimiter = ',', value_name = "SIZE,...", value_parser = by_name(SIZES, Size::name))]
    pub sizes: Vec<Size>,
    /// Rounds: how often each allocator runs each workload [default: 10, or 3 with --quick].
    #[arg(short = 'n', long = "rounds", alias = "repeat", value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Small problems, fewer thread counts, three rounds, no idle time.
    #[arg(short, long)]
    pub quick: bool,
    /// Milliseconds that a workload idles at its end, so that memory given back late is seen [default: 1000].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(0..=LONGEST_IDLE_MS))]
    pub idle: Option<u32>,
    /// Draw the programs of drawn, and the sizes and pauses of the random forms of seeds, from N [default: from the clock; it is printed].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2_147_483_647))]
    pub seed: Option<u32>,
    /// Also count system calls, in one more run of each, which takes many times as long.
    #[arg(long)]
    pub system_calls: bool,
    /// Write every sample to FILE as JSON; - is standard output, and the table then goes to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with charts to FILE.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Draw time against memory, and time by threads, into FILE: SVG, or PNG when its name ends so.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Run nothing: show what an earlier --json wrote to FILE (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "allocators", "threads", "sizes", "repeat", "quick", "idle", "seed", "system_calls", "json", "command"])]
    pub load: Option<PathBuf>,
    /// List suites, workloads and the allocators that were found, and run nothing.
    #[arg(long, exclusive = true)]
    pub list: bool,
    /// A command of your own instead. Each run reads the file that bench gets (< FILE) from its beginning, or nothing; its output is
    /// dropped. A command that does not end by itself needs a limit, such as timeout 30 CMD.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["names", "threads", "sizes", "idle", "seed"])]
    pub command: Vec<OsString>,
}

/// `faultless churn`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("churn"))]
pub struct ChurnArguments {
    /// Count the calls of malloc and its family instead of those of the kernel.
    #[arg(long, conflicts_with = "by")]
    pub malloc: bool,
    /// Look at the process with this number instead of starting a command.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number, conflicts_with = "words")]
    pub pid: Option<i32>,
    /// Look for this long (10s, 500ms, 2m); a command that was started is ended then [default: to its end].
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::time_span::parse)]
    pub limit: Option<Duration>,
    /// See the calls only in this way [default: the best that is permitted].
    #[arg(long, value_name = "MECHANISM", value_parser = by_name(MECHANISMS, Mechanism::name))]
    pub by: Option<Mechanism>,
    /// Print the result as JSON; what a command prints then goes to standard error.
    #[arg(long)]
    pub json: bool,
    /// Save what was seen to FILE; `faultless churn FILE` shows it again.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a profile for pprof to FILE: calls and bytes of each call chain; with --malloc, a heap profile.
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Write folded stacks to FILE, a line for each call chain with its number of calls.
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Compare two recordings; - for standard input.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["words", "pid", "malloc", "limit", "by", "record", "pprof", "folded"])]
    pub diff: Vec<PathBuf>,
    /// The command and its arguments, or a file that --record wrote.
    #[arg(trailing_var_arg = true, value_name = "CMD|FILE")]
    pub words: Vec<OsString>,
}

/// What `--help` says of the ways to see calls.
const MECHANISMS: [(Mechanism, &str); 4] = [
    (Mechanism::Tracepoints, "The kernel's tracepoints: nothing stops; needs root"),
    (
        Mechanism::MmapRecords,
        "The kernel's records of new mappings: nothing stops, and what is given back is not seen",
    ),
    (Mechanism::Seccomp, "A filter that stops a command at these calls only"),
    (Mechanism::Ptrace, "Stops at every system call"),
];

/// `faultless map`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("map"))]
pub struct MapArguments {
    /// Look at the process with this number.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number, conflicts_with = "file")]
    pub pid: Option<i32>,
    /// Look at a started command after this time (10s, 500ms, 2m) [default: when it ends].
    #[arg(long, value_name = "DURATION", value_parser = crate::time_span::parse, conflicts_with_all = ["pid", "diff", "file"])]
    pub after: Option<Duration>,
    /// Compare two saved files: smaps, output of pmap -X, or what --json printed; - for standard input.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["pid", "file", "all"])]
    pub diff: Vec<PathBuf>,
    /// Also show each mapping.
    #[arg(short, long)]
    pub all: bool,
    /// Compare what a Java process says it uses with what is resident: asks it by jcmd, or reads from FILE what jcmd PID
    /// VM.native_memory printed.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["diff", "file", "command"])]
    pub nmt: Option<OsString>,
    /// Measure also a very large process (64 GiB of RSS, 100,000 mappings), though reading may delay it.
    #[arg(long, conflicts_with_all = ["diff", "file"])]
    pub full: bool,
    /// Print the result as JSON; what a command prints then goes to standard error.
    #[arg(long)]
    pub json: bool,
    /// A saved file: smaps, output of pmap -X, or - for standard input.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD", conflicts_with_all = ["pid", "diff", "file"])]
    pub command: Vec<OsString>,
}

/// `faultless faults`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("faults"))]
pub struct FaultsArguments {
    /// Observe the process with this number instead of starting a command, until it ends or Ctrl-C.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number, conflicts_with_all = ["words", "diff"])]
    pub pid: Option<i32>,
    /// Observe for this long (10s, 500ms, 2m); a command that was started is ended then [default: to its end].
    #[arg(long = "for", value_name = "DURATION", value_parser = crate::time_span::parse, conflicts_with = "diff")]
    pub limit: Option<Duration>,
    /// Look at one fault in N [default: at each of the first 10,000 and while they are few, at fewer while they are many].
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub every: Option<u64>,
    /// Look at this many bytes of the stack to find the callers [default: 8192].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(512..=61_440))]
    pub stack: Option<u32>,
    /// Print the analysis as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print the tree of calls instead of the table.
    #[arg(long, conflicts_with = "json")]
    pub tree: bool,
    /// Save the recording to FILE; `faultless faults FILE` shows it again, here or on another machine.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Write a flame graph to FILE: one page that needs no network.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write folded stacks to FILE, a line for each chain of calls.
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Write a profile for pprof to FILE.
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Compare two recordings; - for standard input.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["words", "tree", "record", "html", "folded", "pprof", "every", "stack"])]
    pub diff: Vec<PathBuf>,
    /// The command and its arguments, or a file that --record wrote; what the command prints goes to standard error.
    #[arg(trailing_var_arg = true, value_name = "CMD|FILE")]
    pub words: Vec<OsString>,
}

/// `faultless manual`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("manual"))]
pub struct ManualArguments {
    /// Completions for this shell instead of the man page.
    #[arg(long, value_name = "SHELL")]
    pub completions: Option<clap_complete::Shell>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definitions_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_commands_own_options_are_left_to_it() {
        let Ok(Arguments { action: Action::Run(run) }) =
            Arguments::try_parse_from(["faultless", "run", "--stats", "--", "ls", "--json", "-l"])
        else {
            panic!("expected a run");
        };
        assert!(run.stats && run.json.is_none());
        assert_eq!(run.command, ["ls", "--json", "-l"]);
    }
}
