//! `faultless check`: what the present permissions allow for each instrument.

use clap::Args;
use faultless_probe::{permissions, terminal};
use faultless_records::measurement::Ending;
use faultless_report::check;

use crate::examples;
use crate::failure::Failure;
use crate::subject;

/// `faultless check`
#[derive(Debug, Args)]
#[command(after_help = examples::and_statuses("check"))]
pub struct CheckArguments {
    /// Ask for the process with this number instead of for commands, own processes and those of others.
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = crate::subject::number)]
    pub pid: Option<i32>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Tries what the instruments need and prints what came of it.
///
/// # Errors
/// [`Failure`] when the process cannot be seen at all, or no process can be started to try things on.
pub fn check(arguments: &CheckArguments) -> Result<Ending, Failure> {
    subject::check_view()?;
    let process = arguments.pid.map(subject::process).transpose()?;
    let found = permissions::find_out(process.as_ref());
    let mut found =
        found.map_err(|error| Failure::Failed(format!("cannot start a process to try on: {error}")))?;
    found.is_32_bit = process.as_ref().is_some_and(subject::is_32_bit);
    let text = match arguments.json {
        true => check::json::json(&found),
        false => check::table::text(&found, terminal::columns()),
    };
    crate::print_report(&text)?;
    Ok(Ending::Exited(0))
}
