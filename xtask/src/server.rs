//! A server that runs in the background for as long as its guard lives.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{At, Failure, Result, wrong};
use crate::job::{tail, wait};
use crate::processes::{children, maps};
use crate::sandbox::Sandbox;

/// A running server; it is ended when this is dropped.
pub struct Server {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Server {
    /// Starts a server whose output goes to `NAME.log` in the sandbox.
    pub fn start(mut command: Command, name: &str, sandbox: &Sandbox) -> Result<Self> {
        let log = sandbox.path(&format!("{name}.log"));
        let file = File::create(&log).at(&log)?;
        let second = file.try_clone().at(&log)?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(second).spawn();
        let child = child.map_err(|error| Failure::Wrong(format!("cannot start {name}: {error}")))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// Waits until `ready` says yes.
    pub fn wait_until(&mut self, what: &str, mut ready: impl FnMut() -> bool) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(60);
        let start = Instant::now();
        while !ready() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return wrong(format!("{} ended before {what}: {status}{}", self.name, self.log_tail()));
            }
            if start.elapsed() > LIMIT {
                return wrong(format!("{}: no {what} within {LIMIT:?}{}", self.name, self.log_tail()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Checks that the server is alive, with the library mapped in it and in all its children.
    pub fn prove_loaded(&mut self, sandbox: &Sandbox) -> Result<()> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return wrong(format!("{} has ended: {status}{}", self.name, self.log_tail()));
        }
        let process = self.child.id();
        let without = |process: &u32| !maps(*process, sandbox.library());
        // A child may end between the two looks at it: then it has no maps at all.
        let alive =
            |process: &u32| fs::read(format!("/proc/{process}/maps")).is_ok_and(|maps| !maps.is_empty());
        match std::iter::once(process)
            .chain(children(process))
            .find(|process| without(process) && alive(process))
        {
            Some(process) => wrong(format!("{}: the library is not in process {process}", self.name)),
            None => Ok(()),
        }
    }

    /// Asks the server to end with a signal, and checks that it ends well.
    pub fn stop(mut self, signal: &str) -> Result<()> {
        self.signal(signal);
        let ended = wait(&mut self.child, Duration::from_secs(60), |_| {});
        let log = self.log_text();
        match ended {
            Some(status) if !status.success() => wrong(format!("{}: {status}{}", self.name, self.log_tail())),
            None => wrong(format!("{} did not end after SIG{signal}{}", self.name, self.log_tail())),
            Some(_) if log.lines().any(|line| line.starts_with("faultless:")) => {
                wrong(format!("{}: the library complained{}", self.name, self.log_tail()))
            }
            Some(_) => Ok(()),
        }
    }

    /// What the server has written so far.
    fn log_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn log_tail(&self) -> String {
        tail("log", &self.log_text())
    }

    fn signal(&self, signal: &str) {
        let process = self.child.id().to_string();
        let _ = Command::new("kill").args(["-s", signal, &process]).stderr(Stdio::null()).status();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("TERM");
            wait(&mut self.child, Duration::from_secs(10), |_| {});
        }
    }
}
