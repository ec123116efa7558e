//! A command of the user's own in a benchmark.

use std::ffi::OsString;
use std::path::Path;

use faultless_diagnosis::preload::Purpose;
use faultless_probe::signals::Signals;
use faultless_records::bench::{Cell, Contender};
use faultless_report::orphans;
use faultless_trial::benchmark::campaign::{self, Job};
use faultless_trial::benchmark::catalogue;
use faultless_trial::command::{self, Command, FirstLook, LargestView};
use faultless_trial::environment::Environment;

use crate::failure::Failure;
use crate::{input, plan, say, target};

/// What the row without a preload is called where that is not libc's malloc.
const AS_IS: &str = "as-is";

/// The command of these words, if there are any, once it is known that a preload reaches it.
///
/// # Errors
/// As [`target::resolve`].
pub fn find(words: &[OsString]) -> Result<Option<Command>, Failure> {
    if words.is_empty() {
        return Ok(None);
    }
    let command = target::resolve(words.to_vec(), Purpose::Observation)?;
    Ok(Some(Command { input: input::file(), ..command }))
}

/// Its cell.
#[must_use]
pub fn cell(command: &Command) -> Cell {
    let name = command.name();
    let file = Path::new(&name).file_name().map(|file| file.to_string_lossy().into_owned());
    catalogue::of_command(&file.unwrap_or(name))
}

/// Runs the command once as it is, which tells how it ends and what serves it; what that is, is what the contender without a preload
/// is called after.
///
/// # Errors
/// [`Failure`] when it is not to be compared.
pub fn look(
    command: &Command,
    own: &Environment,
    contenders: &mut [Contender],
    signals: &Signals,
) -> Result<Job, Failure> {
    let name = command.name();
    say(&format!("{name}: first look, as it is, until it ends (Ctrl-C stops it)"));
    let looked = command::first_look(command, &plan::with_defaults(own), signals);
    let FirstLook { run: look, processes, orphans } =
        looked.map_err(|error| target::not_whole("bench -- timeout 30", &name, error))?;
    let ending = look.measurement.ending;
    let last_line = campaign::last_line(&look.output_tail);
    if ending.signal().is_some() {
        return Err(Failure::Failed(format!("{name} cannot be compared: {ending} as it is{last_line}")));
    }
    if !ending.is_success() {
        say(&format!("{name} ends with {ending} as it is, and so must each run{last_line}"));
    }
    if let Some(unread) = input::unread() {
        say(unread);
    }
    if let Some(missed) = orphans::in_no_figure(&orphans) {
        say(&missed);
    }
    let largest = processes.values().max_by_key(|view| view.bytes).and_then(LargestView::program);
    if let Some(obstacle) = target::own_malloc(&command.program, [look.measurement.program(), largest]) {
        say(&obstacle);
    }
    let job = Job::of_user(command.clone(), &look.measurement, processes.values());
    if let Some(brought) = job.brought() {
        say(&format!("{name} brings {brought}, which is what it is compared with, and not libc's malloc"));
        let bare = |contender: &&mut Contender| contender.library.is_none() && contender.settings.is_empty();
        contenders.iter_mut().filter(bare).for_each(|contender| AS_IS.clone_into(&mut contender.name));
    }
    Ok(job)
}
