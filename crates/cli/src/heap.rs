//! `faultless heap`: what glibc's malloc holds of a process, which of it is free, and which of the free part has memory.

mod command;
mod core;
mod faultless;
pub mod process;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{IsTerminal, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_records::core_file::{self, HEADER_BYTES};
use faultless_records::measurement::Ending;
use faultless_report::heap;
use faultless_report::heap::HeapView;
use faultless_report::malloc_info;

use crate::arguments::Action;
use crate::examples;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::{placement, saved_file, subject};
use process::Manner;

/// `faultless heap`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("heap"))]
pub struct HeapArguments {
    /// Walk the heaps of the process with this number.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number, conflicts_with = "words")]
    pub pid: Option<i32>,
    /// Stop the process during the walk, for 2 s at most, so that its figures are exact; it notices nothing but the time.
    #[arg(short, long)]
    pub stop: bool,
    /// Walk a command's heaps after this time (10s, 500ms, 2m) [default: at its exit].
    #[arg(long, value_name = "DURATION", value_parser = crate::time_span::parse, conflicts_with = "pid")]
    pub after: Option<Duration>,
    /// Show a row for each arena, however many there are.
    #[arg(short, long)]
    pub all: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print what malloc_info(3) would print in the process.
    #[arg(long, conflicts_with = "json")]
    pub malloc_info: bool,
    /// A command and its arguments, whose output then goes to standard error; or a core file.
    #[arg(trailing_var_arg = true, value_name = "CMD|CORE")]
    pub words: Vec<OsString>,
}

/// Walks and prints.
///
/// # Errors
/// [`Failure`] when there is nothing to walk, or the result cannot be written.
pub fn heap(
    arguments: HeapArguments,
    hold: impl Fn() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    let manner = if arguments.stop { Manner::Standing } else { Manner::Running };
    let show = |report: &HeapView| crate::print_report(&text(report, &arguments)?);
    match (arguments.pid, arguments.words.as_slice()) {
        (Some(pid), _) => {
            let process = subject::process(pid)?;
            let progress = progress(&format!("walking the heaps of {}", process.name()));
            let mut report = process::look(&process, manner)?;
            // Where malloc traps little, nobody asks what of it is shared.
            if report.on_shared(u64::MAX).is_some() {
                let shared = process::shared_bytes(&process, &report).unwrap_or_default();
                report.remarks.extend(report.on_shared(shared));
            }
            report.remarks.extend(subject::larger_child(&process).as_deref().map(command::sentence));
            drop(progress);
            show(&report)?;
        }
        (None, []) => {
            return Err(Failure::Usage(
                "nothing to walk: give --pid, a command after --, or a core file".into(),
            ));
        }
        (None, [word]) if is_core(Path::new(word)) => {
            if arguments.stop || arguments.after.is_some() {
                return Err(Failure::Usage(
                    "--stop and --after are for processes, not for a core file".into(),
                ));
            }
            let progress = progress("walking the heaps of the core file");
            let report = core::look(Path::new(word));
            drop(progress);
            show(&report?)?;
        }
        (None, [first, ..]) if is_core(Path::new(first)) => {
            return match placement::in_front(&arguments.words, "heap")? {
                Some(Action::Heap(ordered)) => heap(ordered, hold),
                _ => Err(Failure::of_words_behind(Path::new(first), "heap")),
            };
        }
        (None, words) => {
            saved_file::refuse_unread(words, "heap", "core file")?;
            command::look(words.to_vec(), arguments.after, manner, &hold()?, &show)?;
        }
    }
    Ok(Ending::Exited(0))
}

/// Shows that something goes on, where somebody looks at a terminal.
fn progress(message: &str) -> Option<Progress> {
    std::io::stderr().is_terminal().then(|| {
        let progress = Progress::start();
        progress.say(message);
        progress
    })
}

/// Whether a file is a core file, or is called like one: what may be executed is a command.
fn is_core(path: &Path) -> bool {
    let mut head = [0; HEADER_BYTES];
    let Ok(mut file) = File::open(path) else { return false };
    let length = file.read(&mut head).unwrap_or(0);
    core_file::is_core(&head[..length])
        || path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            let is_data = |file: fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 == 0;
            (name == "core" || name.starts_with("core.")) && path.metadata().is_ok_and(is_data)
        })
}

fn text(report: &HeapView, arguments: &HeapArguments) -> Result<String, Failure> {
    if arguments.json {
        return Ok(heap::json::json(report));
    }
    if arguments.malloc_info {
        if report.walks.is_empty() {
            return Err(Failure::Failed(format!("glibc's malloc serves nothing in {}", report.name)));
        }
        return Ok(report.walks.iter().map(malloc_info::text).collect());
    }
    Ok(heap::table::text(report, arguments.all, terminal::columns()))
}
