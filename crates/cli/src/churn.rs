//! `faultless churn`: what a program asks the kernel for and gives back, and whether it does so in vain.

pub mod kernel;
pub mod malloc;
mod uprobe;

use std::ffi::OsString;
use std::path::Path;

use faultless_diagnosis::churn::comparison::Comparison;
use faultless_probe::signals::Signals;
use faultless_probe::terminal;
use faultless_records::churn_recording::ChurnRecording;
use faultless_records::malloc_recording::MallocRecording;
use faultless_records::measurement::Ending;
use faultless_report::churn;
use faultless_report::churn::profile::ChurnProfile;
use faultless_report::saved_form;

use crate::arguments::{Action, ChurnArguments};
use crate::failure::Failure;
use crate::output_file::{OutputFile, create_apart};
use crate::{placement, saved_file};

/// Looks at a command, a process or a saved recording, and prints what was found.
///
/// # Errors
/// [`Failure`] when nothing could be seen.
pub fn churn(
    arguments: ChurnArguments,
    hold_signals: impl FnOnce() -> Result<Signals, Failure>,
) -> Result<Ending, Failure> {
    if let [before, after] = arguments.diff.as_slice() {
        return compare(before, after, arguments.json);
    }
    if arguments.pid.is_none() && arguments.words.is_empty() {
        return Err(Failure::Usage(
            "nothing to look at: give --pid, a command after --, or a recording".into(),
        ));
    }
    // Before signals are held: a pipe that nobody writes into must not outlast them.
    let saved = saved(&arguments.words)?;
    let ordered = saved.as_ref().map(|_| placement::in_front(&arguments.words, "churn")).transpose()?;
    let arguments = match ordered.flatten() {
        Some(Action::Churn(ordered)) => ordered,
        _ => arguments,
    };
    let signals = &hold_signals()?;
    let read = saved.as_ref().and(arguments.words.first()).map(Path::new);
    // Places that cannot be written are found out before the work.
    let files = Files::create(&arguments, read)?;
    let seen = match saved {
        Some(_) if arguments.limit.is_some() || arguments.by.is_some() || arguments.malloc => {
            return Err(Failure::Usage(
                "--for, --by and --malloc are for looking, not for what was seen before".into(),
            ));
        }
        Some(seen) => seen,
        None if arguments.malloc => Seen::Malloc(match arguments.pid {
            Some(pid) => uprobe::look_at_process(pid, &arguments, signals)?,
            None => malloc::look_at_command(&arguments, signals)?,
        }),
        None => Seen::Kernel(kernel::look(&arguments, signals)?),
    };
    let written = files.write(&seen);
    let text = match (&seen, arguments.json) {
        (Seen::Kernel(recording), true) => churn::json::json(recording),
        (Seen::Kernel(recording), false) => churn::table::text(recording, terminal::columns()),
        (Seen::Malloc(recording), true) => churn::malloc_json::json(recording),
        (Seen::Malloc(recording), false) => churn::malloc_table::text(recording, terminal::columns()),
    };
    signals.let_through();
    // A disk that is full by now costs its file and not the result.
    let printed = crate::print_report(&text);
    written.and(printed)?;
    Ok(Ending::Exited(0))
}

/// What was looked at.
enum Seen {
    /// Calls of the kernel.
    Kernel(ChurnRecording),
    /// Calls of malloc.
    Malloc(MallocRecording),
}

impl Seen {
    fn saved(&self) -> String {
        match self {
            Self::Kernel(recording) => saved_form::write(recording),
            Self::Malloc(recording) => saved_form::write(recording),
        }
    }

    fn profile(&self) -> ChurnProfile<'_> {
        match self {
            Self::Kernel(recording) => ChurnProfile::of_kernel(recording),
            Self::Malloc(recording) => ChurnProfile::of_malloc(recording),
        }
    }
}

/// The files asked for.
struct Files {
    record: Option<OutputFile>,
    pprof: Option<OutputFile>,
    folded: Option<OutputFile>,
}

impl Files {
    /// None of them may be the one that is `read`.
    fn create(arguments: &ChurnArguments, read: Option<&Path>) -> Result<Self, Failure> {
        let paths = [&arguments.record, &arguments.pprof, &arguments.folded].map(Option::as_deref);
        let [record, pprof, folded] = create_apart(paths, read)?;
        Ok(Self { record, pprof, folded })
    }

    fn write(self, seen: &Seen) -> Result<(), Failure> {
        let recorded = self.record.map_or(Ok(()), |file| file.write(&seen.saved()));
        if self.pprof.is_none() && self.folded.is_none() {
            return recorded;
        }
        let profile = seen.profile();
        if !profile.has_callers() {
            crate::say("no call chains were seen: the profile has sums alone");
        }
        let profiled = self.pprof.map_or(Ok(()), |file| file.write_bytes(&profile.pprof()));
        let folded = self.folded.map_or(Ok(()), |file| file.write(&profile.folded()));
        Failure::joined([recorded, profiled, folded])
    }
}

/// That no call chains are taken, and why, as a remark.
pub fn no_callers(reason: &str) -> String {
    format!("callers: {reason}")
}

/// The recording, if the first word is the name of one.
fn saved(words: &[OsString]) -> Result<Option<Seen>, Failure> {
    let named = saved_file::named(words, "churn", is_recording)?;
    named.map(|(path, bytes)| parsed(path, &bytes)).transpose()
}

fn is_recording(head: &[u8]) -> bool {
    is_of_malloc(head) || saved_form::is_recording::<ChurnRecording>(head)
}

fn is_of_malloc(head: &[u8]) -> bool {
    saved_form::is_recording::<MallocRecording>(head)
}

fn parsed(path: &Path, bytes: &[u8]) -> Result<Seen, Failure> {
    let text = String::from_utf8_lossy(bytes);
    let seen = match is_of_malloc(bytes) {
        true => saved_form::load(&text).map(Seen::Malloc),
        false => saved_form::load(&text).map(Seen::Kernel),
    };
    seen.map_err(|reason| saved_file::unreadable(path, reason))
}

fn load(path: &Path) -> Result<Seen, Failure> {
    parsed(path, &saved_file::recording(path, "churn", is_recording)?)
}

fn compare(before: &Path, after: &Path, as_json: bool) -> Result<Ending, Failure> {
    let comparison = match (load(before)?, load(after)?) {
        (Seen::Malloc(before), Seen::Malloc(after)) => Comparison::of_malloc(&before, &after),
        (Seen::Kernel(before), Seen::Kernel(after)) => Comparison::of_kernel(&before, &after),
        _ => {
            return Err(Failure::Usage(
                "one recording is of malloc's calls (--malloc), the other of the kernel's: give two of a kind"
                    .into(),
            ));
        }
    };
    let text = if as_json {
        churn::diff::json(&comparison)
    } else {
        churn::diff::text(&comparison, terminal::columns())
    };
    crate::print_report(&text)?;
    Ok(Ending::Exited(0))
}
