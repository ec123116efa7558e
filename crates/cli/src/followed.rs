//! What `watch` and `export` follow: processes by number, name or command line, control groups, a command of their own.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use faultless_probe::file_limit;
use faultless_probe::launch::{Launch, Launched, launch};
use faultless_probe::process_list::{Candidate, Matcher, Selection};
use faultless_probe::sampler::Sampler;
use faultless_probe::signals::Signals;
use faultless_probe::watched_group::WatchedGroup;
use faultless_report::plain::plain;
use faultless_trial::command::Command;
use regex_lite::Regex;

use crate::failure::Failure;
use crate::target;

/// Source: `TASK_COMM_LEN`, 16 with the zero at the end; proc_pid_comm(5).
const NAME_BYTES: usize = 15;

/// Looked at; more there are nowhere, but numbers that are given anew could lead in a circle.
const MOST_ANCESTORS: usize = 100;

/// Who is followed.
#[derive(Debug, Args)]
pub struct FollowedArguments {
    /// Processes with these numbers.
    #[arg(short, long, value_delimiter = ',', value_name = "PID,...", allow_negative_numbers = true, value_parser = crate::subject::number)]
    pub pid: Vec<i32>,
    /// Processes with these names, also those that begin later: as ps -o comm shows them (at most 15 bytes).
    #[arg(short, long, value_delimiter = ',', value_name = "NAME,...")]
    pub name: Vec<String>,
    /// Processes whose command line matches this regular expression, also those that begin later.
    #[arg(short = 'm', long = "match", value_name = "REGEX")]
    pub pattern: Option<String>,
    /// A control group, its memory and its processes, also those that come later: its directory, or its path as in
    /// /proc/PID/cgroup.
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Also the children of all these, and theirs.
    #[arg(short, long)]
    pub children: bool,
}

impl FollowedArguments {
    /// Who is followed, in words.
    ///
    /// # Errors
    /// [`Failure::Usage`] where nobody is.
    pub fn in_words(&self, command: &[OsString]) -> Result<String, Failure> {
        let mut parts = Vec::new();
        if !command.is_empty() {
            let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
            parts.push(plain(&words.join(" ")));
        }
        if !self.pid.is_empty() {
            let numbers: Vec<String> = self.pid.iter().map(ToString::to_string).collect();
            parts.push(format!("process {}", numbers.join(", ")));
        }
        if !self.name.is_empty() {
            parts.push(format!("processes named {}", plain(&self.name.join(", "))));
        }
        if let Some(pattern) = &self.pattern {
            parts.push(format!("processes matching {}", plain(pattern)));
        }
        if !self.cgroup.is_empty() {
            let paths: Vec<_> = self.cgroup.iter().map(|path| path.to_string_lossy()).collect();
            parts.push(format!("control group {}", plain(&paths.join(", "))));
        }
        if parts.is_empty() {
            return Err(Failure::Usage(
                "nothing to watch: give --pid, --name, --match, --cgroup, or a command after --".into(),
            ));
        }
        let children = if self.children { " with children" } else { "" };
        Ok(parts.join(" and ") + children)
    }

    /// Begins to look at them; `pss` is the time between two readings of `smaps_rollup`, zero for none.
    ///
    /// # Errors
    /// [`Failure`] for what is not there or makes no sense.
    pub fn sampler(&self, pss: Duration) -> Result<Sampler, Failure> {
        file_limit::raise();
        let groups = self.cgroup.iter().map(|path| WatchedGroup::find(path));
        let groups = groups
            .collect::<Result<Vec<_>, _>>()
            .map_err(|reason| Failure::Failed(format!("--cgroup: {}", plain(&reason))))?;
        let selection = Selection { matcher: self.matcher()?, with_children: self.children };
        let mut sampler = Sampler::new(selection, (!pss.is_zero()).then_some(pss));
        for pid in &self.pid {
            if *pid <= 0 {
                return Err(Failure::Usage(format!("a process number is above 0, not {pid}")));
            }
            sampler.add(*pid).map_err(Failure::of_process)?;
        }
        for group in groups {
            sampler.add_group(group);
        }
        Ok(sampler)
    }

    /// Decides by name or command line.
    fn matcher(&self) -> Result<Option<Matcher>, Failure> {
        // As of a variable that is not set: it would wait for ever.
        if self.name.iter().any(String::is_empty) {
            return Err(Failure::Usage("--name wants names of processes, and one of these is empty".into()));
        }
        let names: Vec<String> = self.name.iter().map(|name| as_kept(name)).collect();
        let pattern = self.pattern.as_deref().map(Regex::new).transpose().map_err(|error| {
            Failure::Usage(format!(
                "--match wants a regular expression: {}",
                error.to_string().replace('\n', " ")
            ))
        })?;
        if names.is_empty() && pattern.is_none() {
            return Ok(None);
        }
        let fits = Fits { pattern, callers: callers() };
        Ok(Some(Box::new(move |name, command| {
            names.iter().any(|wanted| wanted == name) || fits.fits(command)
        })))
    }
}

/// Decides by command line.
struct Fits {
    pattern: Option<Regex>,
    callers: HashSet<String>,
}

impl Fits {
    fn fits(&self, command: &dyn Fn() -> String) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| {
            let command = command();
            pattern.is_match(&command) && !self.callers.contains(&command)
        })
    }
}

/// The command lines of those who run us, as `timeout` and `sudo` do, with our own call in them: what fits there is the pattern itself.
/// A shell that was not told of us on its command line is none of them.
fn callers() -> HashSet<String> {
    let mut words = std::env::args_os();
    let program = words.next().map(PathBuf::from);
    let program = program.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let call = format!("{program} {}", words.next().unwrap_or_default().to_string_lossy());
    let own = Candidate::read(std::process::id().cast_signed());
    let ancestors =
        std::iter::successors(own, |one| Candidate::read(one.parent)).skip(1).take(MOST_ANCESTORS);
    ancestors.map(|one| one.command()).filter(|command| command.contains(&call)).collect()
}

/// What the kernel keeps of a name, and tells.
fn as_kept(name: &str) -> String {
    let kept = &name.as_bytes()[..name.len().min(NAME_BYTES)];
    // As names are read: a character may be cut.
    String::from_utf8_lossy(kept).into_owned()
}

/// The command, if there is one.
///
/// # Errors
/// [`Failure`] where its program cannot be found or run.
pub fn command_of(words: &[OsString]) -> Result<Option<Command>, Failure> {
    (!words.is_empty()).then(|| target::find(words.to_vec())).transpose()
}

/// Starts a command and lets the sampler look at it.
///
/// # Errors
/// [`Failure`] where it cannot be started.
pub fn start(
    command: Command,
    streams: [Option<File>; 3],
    sampler: &mut Sampler,
    signals: &Signals,
) -> Result<Launched, Failure> {
    let name = command.name();
    let start = Launch { streams, ..target::start(command, false)? };
    let launched = launch(start, signals).map_err(|error| Failure::of_start(&name, &error))?;
    if let Err(error) = sampler.add_started(launched.pid()) {
        sampler.note(&format!("the command was not seen: {error}"));
    }
    Ok(launched)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_as_the_kernel_cuts_it() {
        assert_eq!(as_kept("postgres"), "postgres");
        assert_eq!(as_kept("systemd-journal"), "systemd-journal");
        assert_eq!(as_kept("systemd-journald"), "systemd-journal");
        assert_eq!(as_kept("fourteen-bytes\u{e9}"), "fourteen-bytes\u{fffd}");
    }
}
