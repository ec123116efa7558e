//! The `faultless` program: parses the command line, calls the rooms that do the work, ends with the right status.
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod check;
mod churn;
mod doctor;
mod examples;
mod exit_status;
mod export;
mod failure;
mod faults;
mod followed;
mod heap;
mod input;
mod library;
mod manual;
mod map;
mod notes;
mod observing_progress;
mod output_file;
mod picture;
mod placement;
mod plan;
mod progress;
mod run;
mod saved_file;
mod subject;
mod target;
mod time_span;
mod watch;

use std::io::{Stdout, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use faultless_probe::signals::{self, Signals};
use faultless_probe::stack;
use faultless_probe::terminal;
use faultless_records::measurement::Ending;
use faultless_report::plain::{plain, trimmed};

use arguments::{Action, Arguments};
use failure::Failure;
use placement::BehindCommand;

/// SIGPIPE's number on every Linux this tool is built for.
const SIGPIPE: i32 = 13;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        watch::screen::restore();
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        say(&format!("this is a bug, please report it: {} at {place}", panic_message(panic)));
        std::process::exit(1);
    }));
    let result = stack::with_enough(|| match Arguments::try_parse() {
        Ok(arguments) => {
            let behind = BehindCommand::find(&arguments.action, &std::env::args_os().collect::<Vec<_>>());
            let result = act(arguments.action);
            // A command that never ran has kept nothing from us.
            let has_run = matches!(result, Ok(_) | Err(Failure::Failed(_)));
            behind.filter(|_| has_run).and_then(|behind| behind.remark()).iter().for_each(|line| say(line));
            result
        }
        Err(answer) => show(&answer),
    });
    let no_stack = |error| {
        let cure =
            "the limit of a stack is too small, and there is no memory for a larger one (ulimit -s 8192)";
        Err(Failure::Failed(format!("{cure}: {error}")))
    };
    match result.unwrap_or_else(no_stack) {
        Ok(Ending::Exited(status)) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Ok(Ending::Killed(number)) | Err(Failure::Interrupted(number)) => signals::die_by(number),
        Err(Failure::OutputClosed) => signals::die_by(SIGPIPE),
        Err(Failure::Failed(message)) => fail(1, &message),
        Err(Failure::Usage(message)) => fail(2, &message),
        Err(Failure::Refused(message)) => fail(126, &message),
        Err(Failure::NotFound(message)) => fail(127, &message),
    }
}

/// Shows help or the version that was asked for, or what is wrong with the command line.
fn show(answer: &clap::Error) -> Result<Ending, Failure> {
    if !answer.use_stderr() {
        output()?;
    }
    let printed = answer.print();
    if answer.kind() == ErrorKind::UnknownArgument
        && let Some(line) = placement::with_dashes(&std::env::args_os().collect::<Vec<_>>())
    {
        let _ = writeln!(std::io::stderr(), "\nA command of your own stands behind --: {}", plain(&line));
    }
    match printed {
        Err(error) if !answer.use_stderr() => Err(Failure::of_output(&error)),
        // Where the complaint cannot be shown its status still can.
        _ => Ok(Ending::Exited(answer.exit_code())),
    }
}

fn act(action: Action) -> Result<Ending, Failure> {
    let held = |signals: std::io::Result<Signals>| {
        signals.map_err(|error| Failure::Failed(format!("cannot hold back signals: {error}")))
    };
    let hold = || held(Signals::hold());
    // An instrument that looks at others until it is interrupted; a command that it starts finds signals as we found them.
    let hold_to_observe = |has_command: bool| {
        move || held(if has_command { Signals::hold() } else { Signals::hold_with_interrupt() })
    };
    match action {
        Action::Run(arguments) => run::run(arguments, &hold()?),
        Action::Doctor(arguments) => {
            let hold = hold_to_observe(arguments.pid.is_none());
            doctor::doctor(arguments, &hold()?)
        }
        Action::Bench(arguments) => bench::bench(&arguments, hold),
        Action::Churn(arguments) => {
            let hold = hold_to_observe(arguments.pid.is_none());
            churn::churn(arguments, hold)
        }
        Action::Map(arguments) => map::map(arguments, hold),
        Action::Faults(arguments) => faults::faults(&arguments, hold_to_observe(arguments.pid.is_none())),
        Action::Watch(arguments) => {
            let hold = hold_to_observe(!arguments.command.is_empty());
            watch::watch(arguments, hold)
        }
        Action::Export(arguments) => {
            let hold = hold_to_observe(!arguments.command.is_empty());
            export::export(&arguments, &hold()?)
        }
        Action::Heap(arguments) => heap::heap(arguments, hold),
        Action::Check(arguments) => check::check(&arguments),
        Action::Manual(arguments) => manual::print(&arguments).map(|()| Ending::Exited(0)),
    }
}

fn fail(status: u8, message: &str) -> ExitCode {
    say(message);
    ExitCode::from(status)
}

/// Standard output, where a result goes.
///
/// # Errors
/// [`Failure`] when it was closed before we were started: `/dev/null` stands in its place.
pub(crate) fn output() -> Result<Stdout, Failure> {
    match terminal::was_output_closed() {
        true => Err(Failure::Failed("cannot write the result: standard output is closed".into())),
        false => Ok(std::io::stdout()),
    }
}

/// Writes a result to standard output.
///
/// # Errors
/// [`Failure`] when it cannot be written.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    output()?.write_all(text.as_ref()).map_err(|error| Failure::of_output(&error))
}

/// Writes a report to standard output.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_report(text: &str) -> Result<(), Failure> {
    print(trimmed(text))
}

/// One line on standard error; a reader that has gone is no reason to fail.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "faultless: {}", plain(message));
}

fn panic_message<'panic>(panic: &'panic std::panic::PanicHookInfo<'_>) -> &'panic str {
    let text = panic.payload();
    text.downcast_ref::<&str>()
        .copied()
        .or_else(|| text.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("?")
}
