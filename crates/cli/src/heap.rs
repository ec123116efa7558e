//! `faultless heap`: what glibc's malloc holds of a process, which of it is free, and which of the free part has memory.

use std::io::Write;

use clap::Args;
use faultless_diagnosis::glibc_heap::information;
use faultless_records::measurement::Ending;
use faultless_report::heap::HeapReport;
use faultless_report::{heap_json, heap_table};

use crate::arguments::EXIT_STATUS;
use crate::failure::Failure;
use crate::heap_process;
use crate::subject;

/// `faultless heap`
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct HeapArguments {
    /// Walk the heaps of the process with this number.
    #[arg(short, long, value_name = "PID", required = true)]
    pub pid: Option<i32>,
    /// Let the process stand still during the walk, so that its figures are exact; it notices nothing but the time.
    #[arg(short, long)]
    pub stop: bool,
    /// A row for each arena, however many there are.
    #[arg(short, long)]
    pub all: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    /// Print what malloc_info(3) would print in the process.
    #[arg(long, conflicts_with = "json")]
    pub malloc_info: bool,
}

/// Walks and prints.
///
/// # Errors
/// [`Failure`] when the process cannot be seen, or the result cannot be written.
pub fn heap(arguments: &HeapArguments) -> Result<Ending, Failure> {
    let report = match arguments.pid {
        Some(pid) => heap_process::look(&subject::process(pid)?, arguments.stop)?,
        None => return Err(Failure::Usage("a process is needed: --pid PID".into())),
    };
    let text = text(&report, arguments)?;
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::of_output(&error))?;
    Ok(Ending::Exited(0))
}

fn text(report: &HeapReport, arguments: &HeapArguments) -> Result<String, Failure> {
    if arguments.json {
        return Ok(heap_json::json(report));
    }
    if arguments.malloc_info {
        if report.walks.is_empty() {
            return Err(Failure::Failed(format!("glibc's malloc serves nothing in {}", report.name)));
        }
        return Ok(report.walks.iter().map(|walk| information::malloc_info(walk).to_string()).collect());
    }
    Ok(heap_table::text(report, arguments.all))
}
