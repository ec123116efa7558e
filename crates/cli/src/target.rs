//! The user's command, found, judged and made ready to start, and looked at once.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use faultless_diagnosis::preload::{self, Purpose};
use faultless_probe::launch::{Launch, launch};
use faultless_probe::machine::killed_for_memory;
use faultless_probe::process::Process;
use faultless_probe::signals::Signals;
use faultless_probe::watch::{Moment, watch_beside};
use faultless_probe::{program, terminal};
use faultless_records::counters::Counters;
use faultless_records::measurement::Ending;
use faultless_records::program::{ProgramFile, ProgramKind};
use faultless_records::quantity::{count, mebibytes, several};
use faultless_records::status;
use faultless_report::plain::plain;
use faultless_symbols::exported;
use faultless_trial::command::{Command, RunError};

use crate::failure::Failure;
use crate::subject;

/// Less memory that was there before the end is not spoken of.
const NOTABLE_BYTES: u64 = 16 << 20;

/// Fewer page faults of processes that have ended are not spoken of: to start one takes some hundreds.
const NOTABLE_FAULTS: u64 = 10_000;

/// Its number on every Linux.
const SIGKILL: i32 = 9;

/// Finds the program of a command and makes sure that a preload reaches it.
///
/// # Errors
/// [`Failure::NotFound`] or [`Failure::Refused`].
pub fn resolve(words: Vec<OsString>, purpose: Purpose) -> Result<Command, Failure> {
    let command = find(words)?;
    let shown = command.name();
    let chain = program::chain(&command.program).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::NotFound(format!("cannot run {shown}: {error}")),
        _ => Failure::Failed(format!("cannot inspect {shown}: {error}")),
    })?;
    match preload::obstacle(&chain, purpose) {
        Some(obstacle) => Err(Failure::Refused(obstacle)),
        None => Ok(command),
    }
}

/// Finds the program of a command, whether a preload reaches it or not.
///
/// # Errors
/// [`Failure::Usage`], [`Failure::NotFound`] or [`Failure::Refused`].
pub fn find(words: Vec<OsString>) -> Result<Command, Failure> {
    let Some(name) = words.first() else { return Err(Failure::Usage("no command was given".into())) };
    let shown = name.to_string_lossy().into_owned();
    let program = program::find(name).map_err(|error| Failure::of_lookup(&shown, error))?;
    Ok(Command::new(program, words))
}

/// Why the first look of a tool that compares whole runs has no result; who had to interrupt it is told what helps.
#[must_use]
pub fn not_whole(limited: &str, name: &str, error: RunError) -> Failure {
    if matches!(error, RunError::Interrupted(_)) {
        crate::say(&format!(
            "whole runs are compared: what does not end by itself needs a limit, as in: faultless {limited} {name} …"
        ));
    }
    Failure::of_run(name, error)
}

/// How to start a command as a shell would; where our output must be the report alone, what it prints `is_apart`, on our
/// standard error.
///
/// # Errors
/// [`Failure::Failed`] when standard error cannot be shared.
pub fn start(command: Command, is_apart: bool) -> Result<Launch, Failure> {
    let output = is_apart.then(terminal::errors).transpose();
    let output = output.map_err(|error| Failure::Failed(format!("cannot share standard error: {error}")))?;
    Ok(Launch {
        program: command.program,
        arguments: command.arguments,
        environment: std::env::vars_os().collect(),
        streams: [None, output, None],
        is_detached: false,
    })
}

/// What sees the process at a moment, and gets what is to be said of that.
type Look<'look> = dyn Fn(&Process, Moment, Vec<String>) -> Result<(), Failure> + 'look;

/// Starts the command and lets `look` see its process: after `after`, else when it is about to end and its memory is still
/// whole, or its first thread is, since the end of others cannot be waited for.
/// The command runs to its end. Where our output must be the report alone, what it prints `is_apart`.
///
/// # Errors
/// [`Failure`] when it cannot be started or looked at; `unseen` says what helps where it ended before.
pub fn look_once(
    words: Vec<OsString>,
    after: Option<Duration>,
    is_apart: bool,
    signals: &Signals,
    unseen: &str,
    look: &Look<'_>,
) -> Result<(), Failure> {
    subject::check_view()?;
    let command = find(words)?;
    let name = command.name();
    let killed_before = killed_for_memory();
    let launched =
        launch(start(command, is_apart)?, signals).map_err(|error| Failure::of_start(&name, &error))?;
    let began = Instant::now();
    let mut outcome: Option<Result<(), Failure>> = None;
    let mut observe = |moment: Moment| -> Option<Duration> {
        // Once it has ended its memory is gone.
        if outcome.is_some() || matches!(moment, Moment::Ended(_)) {
            return None;
        }
        if moment == Moment::Running || (moment == Moment::FirstThreadAtExit && after.is_some()) {
            let left = after?.checked_sub(began.elapsed());
            if left.is_some_and(|left| !left.is_zero()) {
                return left;
            }
        }
        let process = Process::open(launched.pid()).map_err(Failure::of_process);
        outcome = Some(process.and_then(|process| {
            let is_starved = moment == Moment::AtExit && killed_for_memory() != killed_before;
            let said = said_of(&process, moment, after, is_starved);
            look(&process, moment, said)
        }));
        None
    };
    let measurement = watch_beside(&launched, signals, None, &mut observe)
        .map_err(|error| Failure::of_watch(&name, error))?;
    say_ending(&name, measurement.ending);
    outcome.unwrap_or_else(|| Err(Failure::Failed(format!("{name} {unseen}"))))
}

/// What is to be said of a look at a command at this moment, where it was to be `after` its start; `is_starved` where the kernel
/// killed a process for want of memory meanwhile.
fn said_of(process: &Process, moment: Moment, after: Option<Duration>, is_starved: bool) -> Vec<String> {
    let of_moment = match moment {
        // The kernel does not wait for its exit to take its pages; `oom_reaper` in its mm/oom_kill.c.
        Moment::AtExit if is_starved && is_being_killed(process) => Some(
            "the kernel killed it for want of memory, and takes the pages of such before their end: this is what was left (--after DURATION looks while it runs)",
        ),
        Moment::AtExit if after.is_some() => {
            Some("it ended before the time it was to be looked at: this is how it was then")
        }
        Moment::FirstThreadAtExit if after.is_none() => Some(
            "its first thread ended before others: this is how it was then (--after DURATION looks when they work)",
        ),
        _ => None,
    };
    let mut said = Vec::from_iter(of_moment.map(String::from));
    if after.is_none() && matches!(moment, Moment::AtExit | Moment::FirstThreadAtExit) {
        said.extend(process.text("status").ok().and_then(|status| of_peak(&status)));
        said.extend(process.read("stat").ok().and_then(|stat| of_children(&stat)));
    }
    said.extend(subject::larger_child(process));
    said
}

/// Whether SIGKILL ends it: to the last it is among those that wait for the whole process.
fn is_being_killed(process: &Process) -> bool {
    let status = process.text("status").unwrap_or_default();
    let waiting = status::field(&status, "ShdPnd").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    waiting.is_some_and(|set| set & (1 << (SIGKILL - 1)) != 0)
}

/// What is said where little is left of what a process had resident, whose `status` this is.
fn of_peak(status: &str) -> Option<String> {
    let [peak_bytes, bytes] = ["VmHWM", "VmRSS"].map(|name| status::bytes_of_field(status, name));
    let (peak_bytes, bytes) = (peak_bytes?, bytes?);
    (peak_bytes >= 2 * bytes && peak_bytes - bytes >= NOTABLE_BYTES).then(|| {
        let [peak, now] = [peak_bytes, bytes].map(mebibytes);
        format!(
            "at its peak it had {peak} MiB resident, at its end {now} (--after DURATION looks while it runs)"
        )
    })
}

/// What is said where processes that it started took nearly all the page faults and have ended, by its `stat`.
fn of_children(stat: &[u8]) -> Option<String> {
    let counters = Counters::parse(stat)?;
    let (own, theirs) = (counters.minor_faults, counters.children_minor_faults);
    (theirs >= NOTABLE_FAULTS && theirs >= 4 * own).then(|| {
        format!(
            "processes that it started, and that have ended, took {}, it took {} (--after DURATION looks while they run)",
            several(theirs, "page fault"),
            count(own)
        )
    })
}

/// What is said where the kernel killed a command, or a process of it, for want of memory, by how it ended and by
/// [`killed_for_memory`] at its start: of which `figures` little may be left.
#[must_use]
pub fn of_starved(
    command: &str,
    figures: &str,
    ending: Ending,
    killed_before: Option<u64>,
) -> Option<String> {
    let killed = match ending {
        Ending::Killed(_) => command.into(),
        Ending::Exited(_) => format!("a process of {command}"),
    };
    let is_starved = ending.is_by_kill() && killed_for_memory() != killed_before;
    is_starved.then(|| {
        format!(
            "the kernel killed {killed} for want of memory, and takes the pages of such before their end: {figures} may be of what was left"
        )
    })
}

/// Says how a command ended, where that was no success and the report does not tell.
pub fn say_ending(name: &str, ending: Ending) {
    if let Some(failure) = ending.failure() {
        crate::say(&format!("{name} {failure}"));
    }
}

/// The dynamic loader named in the headers of what the command really runs.
#[must_use]
pub fn loader(program: &Path) -> Option<PathBuf> {
    match really_run(program)?.kind {
        ProgramKind::Elf(executable) => executable.loader.map(PathBuf::from),
        _ => None,
    }
}

/// Says of the first of a command's program, and of those that it was `seen` to become or to start, that defines `malloc`
/// itself, that no other serves it.
#[must_use]
pub fn own_malloc<'path>(
    program: &Path,
    seen: impl IntoIterator<Item = Option<&'path str>>,
) -> Option<String> {
    let first = really_run(program).map(|file| file.path);
    let seen = seen.into_iter().flatten().map(PathBuf::from);
    let path = first.into_iter().chain(seen).find(|path| defines_malloc(path))?;
    Some(format!(
        "{} defines malloc itself: neither a preloaded allocator nor a setting of libc's reaches it, only what it starts",
        plain(&path.to_string_lossy())
    ))
}

/// Whether a program exports a `malloc` of its own: the loader finds that before any preloaded one.
#[must_use]
pub fn defines_malloc(program: &Path) -> bool {
    File::open(program).is_ok_and(|file| exports_malloc(&file))
}

/// Whether the program of a running process does.
#[must_use]
pub fn has_own_malloc(process: &Process) -> bool {
    process.open_file("exe").is_ok_and(|file| exports_malloc(&file))
}

fn exports_malloc(file: &File) -> bool {
    exported::offsets(file, &["malloc"]).is_ok_and(|offsets| offsets[0].is_some())
}

/// The file that is run in the end; none where one on the way to it cannot be inspected.
#[must_use]
pub fn really_run(program: &Path) -> Option<ProgramFile> {
    program::chain(program).ok()?.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_that_is_far_above_the_end_is_told() {
        let status = |peak_kib, kib| of_peak(&format!("VmHWM:\t{peak_kib} kB\nVmRSS:\t{kib} kB\n"));
        let says =
            "at its peak it had 201.5 MiB resident, at its end 2.0 (--after DURATION looks while it runs)";
        assert_eq!(status(206_336, 2048).as_deref(), Some(says));
        assert_eq!(status(206_336, 110_000), None, "half of it and more is there");
        assert_eq!(status(16_000, 2048), None, "it is little");
        assert_eq!(of_peak(""), None);
    }

    #[test]
    fn what_others_took_that_a_launcher_waited_for_is_told() {
        let stat = |own, theirs| {
            let stat = format!("7 (run) S 1 7 7 0 -1 0 {own} {theirs} 0 0 0 0 0 0 20 0 1 0 5 4096 1 1 1 1 1");
            of_children(stat.as_bytes())
        };
        let says = "processes that it started, and that have ended, took 304,200 page faults, it took 433 (--after DURATION looks while they run)";
        assert_eq!(stat(433, 304_200).as_deref(), Some(says));
        assert_eq!([stat(433, 2_000), stat(200_000, 304_200)], [None, None], "little, or not much more");
        assert_eq!(of_children(b""), None);
    }
}
