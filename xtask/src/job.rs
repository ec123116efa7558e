//! One command run to its end: with a time limit, its output kept in files, and proof of the preload.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{At, Failure, Result, wrong};
use crate::processes::Watch;
use crate::workspace::words;

/// How often a running job is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// A command that has not run yet.
pub struct Job {
    command: Command,
    /// The prefix of the files that keep its output.
    files: PathBuf,
    library: Option<PathBuf>,
    must_load: Vec<String>,
    limit: Duration,
}

/// What a job that succeeded has left: its standard output.
pub struct Done(Vec<u8>);

impl Done {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl Job {
    /// A job whose output goes to files that begin with `files`. With a `library`, the preload of that library is
    /// to be proven in the program itself.
    pub fn new(mut command: Command, files: PathBuf, library: Option<PathBuf>) -> Self {
        command.process_group(0).stdin(Stdio::null());
        Self { command, files, library, must_load: Vec::new(), limit: Duration::from_secs(600) }
    }

    /// Adds arguments.
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Adds one argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Gives the command a text on standard input.
    pub fn input(self, text: impl AsRef<[u8]>) -> Result<Self> {
        let path = self.files.with_extension("in");
        fs::write(&path, text).at(&path)?;
        self.input_file(&path)
    }

    /// Gives the command a file on standard input.
    pub fn input_file(mut self, path: &Path) -> Result<Self> {
        self.command.stdin(File::open(path).at(path)?);
        Ok(self)
    }

    /// Sets how long the command may run (ten minutes unless set).
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Requires that the library was seen in a process of this file name, somewhere in the job's tree.
    pub fn proven_in(mut self, name: &str) -> Self {
        self.must_load.push(name.to_owned());
        self
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// [`Failure::Wrong`] when it fails, outlives its limit, the library complains on standard error, or a
    /// process that was to have the library mapped did not.
    pub fn run(mut self) -> Result<Done> {
        let line = words(&self.command);
        let (out, err) = (self.files.with_extension("out"), self.files.with_extension("err"));
        self.command.stdout(File::create(&out).at(&out)?).stderr(File::create(&err).at(&err)?);
        let child = self.command.spawn();
        let mut child = child.map_err(|error| Failure::Wrong(format!("cannot start {line}: {error}")))?;
        let mut watch = self.library.as_deref().map(Watch::new);
        let ended = wait(&mut child, self.limit, |process| {
            if let Some(watch) = &mut watch {
                watch.look(process);
            }
        });
        let stdout = fs::read(&out).at(&out)?;
        let stderr = String::from_utf8_lossy(&fs::read(&err).at(&err)?).into_owned();
        let tails =
            || format!("{}{}", tail("stdout", &String::from_utf8_lossy(&stdout)), tail("stderr", &stderr));
        let line = if line.len() > 300 {
            format!("{}…", line.chars().take(300).collect::<String>())
        } else {
            line
        };
        match ended {
            None => return wrong(format!("{line}: still running after {:?}{}", self.limit, tails())),
            Some(status) if !status.success() => return wrong(format!("{line}: {status}{}", tails())),
            Some(_) => {}
        }
        if stderr.lines().any(|line| line.starts_with("faultless:")) {
            return wrong(format!("{line}: the library complained{}", tails()));
        }
        self.check_proof(&line, &watch.map(|watch| watch.proven()).unwrap_or_default())?;
        Ok(Done(stdout))
    }

    fn check_proof(&self, line: &str, proven: &BTreeSet<String>) -> Result<()> {
        match self.must_load.iter().find(|name| !proven.contains(*name)) {
            Some(name) if self.library.is_some() => {
                wrong(format!("{line}: the library was not seen in {name}, only in {proven:?}"))
            }
            _ => Ok(()),
        }
    }
}

/// Waits for a child, looking at it now and then; `None` when it had to be killed at the limit.
pub fn wait(child: &mut Child, limit: Duration, mut look: impl FnMut(u32)) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        look(child.id());
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(LOOK),
            _ => break,
        }
    }
    // The child leads a process group of its own (see `Job::new`), so that its children end with it.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The last lines of an output, for a message.
pub fn tail(name: &str, text: &str) -> String {
    const LINES: usize = 15;
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    if last.is_empty() { String::new() } else { format!("\n{name}: {}", last.join(&format!("\n{name}: "))) }
}
