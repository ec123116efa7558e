//! How the tool ends when it cannot do what was asked: one line and a documented status.

use std::fmt::Display;
use std::io;
use std::path::Path;

use faultless_probe::file_limit;
use faultless_probe::program::LookupError;
use faultless_probe::watch::WatchError;
use faultless_trial::command::RunError;

/// Why the tool stops. `docs/exit-status.md` documents the numbers.
#[derive(Debug)]
pub enum Failure {
    /// Something went wrong on the way: status 1.
    Failed(String),
    /// The request makes no sense: status 2.
    Usage(String),
    /// The command cannot be run, or not under a preload: status 126.
    Refused(String),
    /// There is no such command: status 127.
    NotFound(String),
    /// A signal of this number asked the tool to end: it ends by that signal.
    Interrupted(i32),
    /// Whoever read our output has gone: the tool ends by SIGPIPE, as others do.
    OutputClosed,
}

/// What to say, too, of a name that is not found but is the number of a running process; else nothing.
fn hint_of_process(name: &str) -> &'static str {
    let is_process = name.parse::<u32>().is_ok() && Path::new("/proc").join(name).exists();
    if is_process {
        "; doctor, watch, map, heap, faults and churn look at a running process by --pid"
    } else {
        ""
    }
}

/// What to say, too, of a file of `subcommand` that is not there: a command may have been meant, or a process.
pub fn hint_of_command(name: &str, subcommand: &str) -> String {
    format!(" (to run it: faultless {subcommand} -- {name}){}", hint_of_process(name))
}

/// What to say, too, of a name that is not found but is that of a result; else nothing.
fn hint_of_file(name: &str) -> &'static str {
    match name.ends_with(".json") {
        true => "; nor is there such a file (only run and bench take a name behind --json)",
        false => "",
    }
}

impl Failure {
    /// What would be said of it.
    #[must_use]
    pub fn into_message(self) -> String {
        match self {
            Self::Failed(message)
            | Self::Usage(message)
            | Self::Refused(message)
            | Self::NotFound(message) => message,
            Self::Interrupted(number) => format!("interrupted by signal {number}"),
            Self::OutputClosed => "whoever read our output has gone".to_owned(),
        }
    }

    /// The failures of several files in one; that of one does not hide the others.
    ///
    /// # Errors
    /// [`Failure::Failed`] where there is any.
    pub fn joined(outcomes: impl IntoIterator<Item = Result<(), Self>>) -> Result<(), Self> {
        let failed = outcomes.into_iter().filter_map(Result::err).map(Self::into_message);
        match failed.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            messages => Err(Self::Failed(messages.join("; "))),
        }
    }

    /// For a file that cannot be read, or is not what it is read as.
    #[must_use]
    pub fn of_reading(path: &Path, reason: impl Display) -> Self {
        Self::Failed(format!("cannot read {}: {reason}", path.display()))
    }

    /// For a file that cannot be written.
    #[must_use]
    pub fn of_writing(path: &Path, error: &io::Error) -> Self {
        Self::Failed(format!("cannot write {}: {error}", path.display()))
    }

    /// For words behind a file that `subcommand` reads.
    #[must_use]
    pub fn of_words_behind(path: &Path, subcommand: &str) -> Self {
        Self::Usage(format!("options stand before the file: faultless {subcommand} … {}", path.display()))
    }

    /// For a program that could not be found.
    #[must_use]
    pub fn of_lookup(name: &str, error: LookupError) -> Self {
        match error {
            LookupError::NotFound => Self::NotFound(format!(
                "no such command: {name}{}{}",
                hint_of_process(name),
                hint_of_file(name)
            )),
            LookupError::NotExecutable { path, reason } => {
                Self::Refused(format!("cannot run {}: {reason}", path.display()))
            }
        }
    }

    /// For a program that could not be started.
    #[must_use]
    pub fn of_start(name: &str, error: &io::Error) -> Self {
        const ENOEXEC: i32 = 8;
        match error.kind() {
            _ if file_limit::is_reached(error) => {
                Self::Failed(format!("cannot start {name}: {}", file_limit::NO_MORE_FILES))
            }
            _ if error.raw_os_error() == Some(ENOEXEC) => Self::Refused(format!(
                "cannot start {name}: it is neither a program for this machine nor a script with a #! line; put its interpreter before it"
            )),
            io::ErrorKind::NotFound => {
                Self::NotFound(format!("cannot start {name}: its interpreter is missing"))
            }
            io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
                Self::Failed(format!("cannot start {name}: {error}"))
            }
            _ => Self::Refused(format!("cannot start {name}: {error}")),
        }
    }

    /// For a measured run without a result.
    #[must_use]
    pub fn of_run(name: &str, error: RunError) -> Self {
        match error {
            RunError::Interrupted(number) => Self::Interrupted(number),
            RunError::Start(error) => Self::of_start(name, &error),
            RunError::Watch(error) => Self::of_lost(name, &error),
            RunError::Ended(how) => Self::Failed(format!("{name}: {how}")),
        }
    }

    /// For a command that was not followed to its end.
    #[must_use]
    pub fn of_watch(name: &str, error: WatchError) -> Self {
        match error {
            WatchError::Interrupted(number) => Self::Interrupted(number),
            WatchError::System(error) => Self::of_lost(name, &error),
        }
    }

    /// For a process that can be followed no longer.
    #[must_use]
    pub fn of_lost(name: &str, error: &io::Error) -> Self {
        Self::Failed(format!("lost sight of {name}: {error}"))
    }

    /// For output that could not be written.
    #[must_use]
    pub fn of_output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Failed(format!("cannot write the result: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_program_is_refused_with_what_to_do() {
        let refusal = Failure::of_start("./build", &io::Error::from_raw_os_error(8));
        assert!(matches!(refusal, Failure::Refused(says) if says.contains("#! line; put its interpreter")));
    }

    #[test]
    fn the_failure_of_one_file_does_not_hide_that_of_another() {
        let failed = |name: &str| Err(Failure::Failed(format!("cannot write {name}")));
        assert!(Failure::joined([Ok(()), Ok(())]).is_ok());
        let joined = Failure::joined([failed("a"), Ok(()), failed("b")]).unwrap_err();
        assert_eq!(joined.into_message(), "cannot write a; cannot write b");
    }

    #[test]
    fn who_names_a_file_is_told_that_it_is_not_there() {
        let said = |name| match Failure::of_lookup(name, LookupError::NotFound) {
            Failure::NotFound(line) => line,
            other => format!("{other:?}"),
        };
        assert_eq!(said("programm"), "no such command: programm");
        assert!(said("out.json").starts_with("no such command: out.json; nor is there such a file"));
    }

    #[test]
    fn what_the_tool_lacks_is_not_said_of_the_command() {
        let of = |number| Failure::of_start("x", &io::Error::from_raw_os_error(number));
        // EMFILE, ENFILE, EAGAIN and ENOMEM; then EACCES and ENOENT, which are the command's.
        for number in [24, 23, 11, 12] {
            assert!(matches!(of(number), Failure::Failed(_)), "{number}");
        }
        assert!(matches!(of(24), Failure::Failed(line) if line.contains("ulimit -n")));
        assert!(matches!((of(13), of(2)), (Failure::Refused(_), Failure::NotFound(_))));
    }
}
