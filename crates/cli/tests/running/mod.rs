//! Processes that a test starts, and what becomes of them.
#![allow(dead_code, reason = "each test uses a part")]

use std::fmt::Display;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes here on a busy machine, and shorter than what it must not wait for.
pub const SOON: Duration = Duration::from_secs(20);

/// A child that does not outlive the test, whatever becomes of that.
pub struct Running(pub Child);

impl Running {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Starts a command that says `ready` when it is.
    pub fn ready(command: &mut Command) -> Self {
        let mut running = Self::start(command.stdout(Stdio::piped()));
        let mut line = String::new();
        // It says no more until it is asked, so nothing is lost with the buffer.
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        running
    }

    /// Its number.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// How it ended; none where that has not come within a time.
    pub fn end_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let mut status = None;
        is_so_within(time, || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal by the shell's own kill: the program of that name is not on every machine.
#[track_caller]
pub fn send(signal: &str, pid: impl Display) {
    let kill = format!("kill -{signal} {pid}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success(), "{kill}");
}

/// The letter of a process's state, `Z` for one that has ended and was not waited for; none where it is gone.
pub fn state(pid: impl Display) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// A process's resident set in KiB.
#[track_caller]
pub fn resident_kib(pid: impl Display) -> u64 {
    kib(pid, "VmRSS:")
}

/// What a line of a process's status says in KiB.
#[track_caller]
pub fn kib(pid: impl Display, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// A process that was stopped and does nothing until it is let go on.
pub fn stopped() -> Running {
    let running = Running::start(Command::new("sleep").arg("600"));
    // Stopped earlier it would have no malloc yet.
    let has_libc = || fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap().contains("/libc");
    wait_until(|| has_libc() && state(running.pid()) == Some('S'));
    send("STOP", running.pid());
    wait_until(|| state(running.pid()) == Some('T'));
    running
}

/// Whether a process has ended, waited for or not.
pub fn has_ended(pid: impl Display) -> bool {
    state(pid).is_none_or(|state| state == 'Z')
}

/// Waits until a line has been written into a file; the line.
#[track_caller]
pub fn written_line(file: &str) -> String {
    let written = || fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'));
    wait_until(|| written().is_some());
    written().unwrap().trim().to_owned()
}

/// Waits until something is so, and fails the test where it does not come to be.
#[track_caller]
pub fn wait_until(is_so: impl FnMut() -> bool) {
    assert!(is_so_within(SOON, is_so), "it did not come to be");
}

/// Waits until something is so; whether it came to be in time.
pub fn is_so_within(time: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > time {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}
