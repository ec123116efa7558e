//! `faultless map`: what every mapping of a process, a command or a saved file is.

mod nmt;
pub mod saved;

use std::ffi::OsStr;
use std::path::Path;

use faultless_diagnosis::classification::totals::changes;
use faultless_diagnosis::classification::{Sight, classify};
use faultless_diagnosis::java_account::account;
use faultless_probe::contents::LiveContents;
use faultless_probe::process::{Process, ProcessError};
use faultless_probe::signals::Signals;
use faultless_probe::{machine, memory_group, terminal, thread_states, unmapped_files};
use faultless_records::contents::Contents;
use faultless_records::mappings;
use faultless_records::measurement::Ending;
use faultless_records::status;
use faultless_report::map;
use faultless_report::map::view::MapView;

use crate::arguments::MapArguments;
use crate::failure::Failure;
use crate::{subject, target};

/// Above so much resident memory, measuring walks so many pages that it may be felt: it takes some tenths of a second for each.
const LARGE_RSS_BYTES: u64 = 64 << 30;

/// Above so many mappings, too; the kernel needs about 9 µs for each.
const MANY_MAPPINGS: usize = 100_000;

/// How a process is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner<'a> {
    /// Measured at any size.
    pub is_full: bool,
    /// Set against what a Java process says: it is asked, or this file read.
    pub nmt: Option<&'a OsStr>,
}

impl<'a> Manner<'a> {
    fn of(arguments: &'a MapArguments) -> Self {
        Self { is_full: arguments.full, nmt: arguments.nmt.as_deref() }
    }
}

/// Looks at a process, a command or a file, and prints what was found.
///
/// # Errors
/// [`Failure`] when nothing could be seen.
pub fn map(
    arguments: MapArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    if let [before, after] = arguments.diff.as_slice() {
        let (before, after) = (saved::totals(before)?, saved::totals(after)?);
        let changes = changes(&before.totals, &after.totals);
        let text = match arguments.json {
            true => map::json::changes(&before, &after, &changes),
            false => map::change::text(&before, &after, &changes, terminal::columns()),
        };
        crate::print(text)?;
    } else if let Some(pid) = arguments.pid {
        let process = subject::process(pid)?;
        let mut view = look(&process, Manner::of(&arguments))?;
        view.remarks.extend(subject::larger_child(&process));
        show(&arguments, &view)?;
    } else if let Some(file) = &arguments.file {
        show(&arguments, &saved::view(file)?)?;
    } else if arguments.command.is_empty() {
        return Err(Failure::Usage(
            "nothing to look at: give --pid, a command after --, or a saved file".into(),
        ));
    } else {
        run(&arguments, &hold_signals()?)?;
    }
    Ok(Ending::Exited(0))
}

fn show(arguments: &MapArguments, view: &MapView) -> Result<(), Failure> {
    crate::print(match arguments.json {
        true => map::json::json(view, arguments.all),
        false => map::table::text(view, arguments.all, terminal::columns()),
    })
}

/// Looks at the command once: at the wanted time, else when it is about to end.
fn run(arguments: &MapArguments, signals: &Signals) -> Result<(), Failure> {
    let unseen =
        "ended unseen: this system does not let us trace it; --after DURATION looks at it while it runs";
    let (command, after) = (arguments.command.clone(), arguments.after);
    target::look_once(command, after, arguments.json, signals, unseen, &|process, _, said| {
        let mut view = look(process, Manner::of(arguments))?;
        view.remarks.extend(said);
        show(arguments, &view)
    })
}

/// Reads a live process.
///
/// # Errors
/// [`Failure`] when it cannot be read.
pub fn look(process: &Process, manner: Manner<'_>) -> Result<MapView, Failure> {
    subject::one_program(process, || look_once(process, manner))
}

fn look_once(process: &Process, manner: Manner<'_>) -> Result<MapView, Failure> {
    // Asked first: the answer makes the virtual machine start a thread.
    let memory = manner.nmt.map(|file| nmt::native_memory(process, Path::new(file))).transpose()?;
    let title = format!("{} ({})", process.name_now(), process.pid());
    let status_text = process.text("status").map_err(Failure::of_process)?;
    let counted_rss_bytes = status::bytes_of_field(&status_text, "VmRSS");
    let page_table_bytes = status::bytes_of_field(&status_text, "VmPTE");
    let begin = |mappings, parts| {
        let mut view = MapView::new(title, Some(process.pid()), mappings, parts);
        view.counted_rss_bytes = counted_rss_bytes;
        view.page_table_bytes = page_table_bytes;
        view.most_mappings = machine::most_mappings();
        view.has_own_malloc = target::has_own_malloc(process);
        view.unmapped_files = unmapped_files::of(process, &view.mappings).ok();
        view.group = memory_group::of(process);
        view
    };
    let outline = subject::mappings(process, "maps")?;
    let is_large = counted_rss_bytes.is_some_and(|bytes| bytes > LARGE_RSS_BYTES);
    if !manner.is_full && (is_large || outline.len() > MANY_MAPPINGS) {
        let parts = classify(&Sight { mappings: &outline, contents: None, threads: &[] });
        let mut view = begin(outline, parts);
        view.remarks.push(
            "it is so large that measuring it may hold it up, so kinds are by layout, without resident sizes; --full measures".into(),
        );
        return Ok(view);
    }
    let mappings = subject::mappings(process, "smaps")?;
    let kernel = process.text("smaps_rollup").ok().map(|text| mappings::rollup(text.as_bytes()));
    let mut remarks = Vec::new();
    let threads = thread_states::of(process).map_err(Failure::of_process)?;
    let live = match LiveContents::open(process, &mappings) {
        Ok(live) => Some(live),
        Err(ProcessError::Ended(pid)) => return Err(Failure::of_process(ProcessError::Ended(pid))),
        Err(error) => {
            remarks.push(format!(
                "{error}; without it heaps and stacks are known by their layout only, and large blocks not at all"
            ));
            None
        }
    };
    let contents = live.as_ref().map(|live| live as &dyn Contents);
    let parts = classify(&Sight { mappings: &mappings, contents, threads: &threads });
    let java = memory.map(|memory| account(&parts, &mappings, contents, &memory));
    drop(live);
    let mut view = begin(mappings, parts);
    view.kernel = kernel;
    view.java = java;
    view.remarks = remarks;
    Ok(view)
}
