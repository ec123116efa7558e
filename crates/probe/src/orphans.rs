//! Processes that outlive who started them, as daemons do: nobody waits for them, so what they use is in nobody's figures. For the
//! time of one command they become our children, which shows who they are; where we are init they are ours anyway.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use faultless_records::counters::Counters;
use faultless_records::measurement::Orphan;
use nix::libc;
use nix::sys::prctl::set_child_subreaper;

use crate::process_list::{self, Candidate};
use crate::watch::duration;

/// Helpers that end when they see the end of their command are waited for so long.
const PATIENCE: Duration = Duration::from_millis(500);

/// Time from one look at them to the next.
const STEP: Duration = Duration::from_millis(10);

/// Takes in who is orphaned, until it is dropped.
#[derive(Debug)]
pub struct Orphanage {
    /// Children that we had before.
    earlier: HashSet<i32>,
    ended: Vec<Orphan>,
}

impl Orphanage {
    /// From now on. Where the kernel refuses, none is seen.
    #[must_use]
    pub fn open() -> Self {
        let earlier = children().map(|child| child.pid).collect();
        let _ = set_child_subreaper(true);
        Self { earlier, ended: Vec::new() }
    }

    /// Waits for those that have ended, as init would: who looks for one by its number must not find it for ever. The `command` is
    /// left to who follows it.
    pub fn wait_for_ended(&mut self, command: Option<i32>) {
        while let Some(pid) = ended_child(0).filter(|pid| Some(*pid) != command) {
            let name = name(pid);
            let Some(processor) = reap(pid) else { return };
            if !self.earlier.contains(&pid) {
                self.ended.push(Orphan { name, processor, goes_on: false });
            }
        }
    }

    /// All that there were, now that the command has ended and been waited for.
    #[must_use]
    pub fn all(mut self) -> Vec<Orphan> {
        let deadline = Instant::now() + PATIENCE;
        let living = loop {
            self.wait_for_ended(None);
            let living: Vec<Candidate> =
                children().filter(|child| !self.earlier.contains(&child.pid)).collect();
            if living.is_empty() || Instant::now() > deadline {
                break living;
            }
            std::thread::sleep(STEP);
        };
        for child in living {
            let (pid, name) = (child.pid, child.name);
            // Where there can be no thread it is waited for by init, after us.
            let _ = std::thread::Builder::new().spawn(move || reap(pid));
            self.ended.push(Orphan { name, processor: Duration::ZERO, goes_on: true });
        }
        std::mem::take(&mut self.ended)
    }
}

impl Drop for Orphanage {
    fn drop(&mut self) {
        let _ = set_child_subreaper(false);
    }
}

/// Waits for orphans that have ended, where we are the first process of a PID namespace, as in a container: nobody else does. The
/// `command` is left to who follows it, and to other threads of ours what they started.
pub fn wait_as_init(command: Option<i32>) {
    if std::process::id() != 1 {
        return;
    }
    while let Some(pid) = ended_child(libc::__WNOTHREAD).filter(|pid| Some(*pid) != command) {
        if reap(pid).is_none() {
            return;
        }
    }
}

/// Those that we have; none where they cannot be listed.
fn children() -> impl Iterator<Item = Candidate> {
    let own = std::process::id().cast_signed();
    process_list::numbers()
        .unwrap_or_default()
        .into_iter()
        .filter_map(Candidate::read)
        .filter(move |candidate| candidate.parent == own)
}

/// A child that is to be waited for, with more `options` of waitid(2); one that stands still for us is among them.
fn ended_child(options: i32) -> Option<i32> {
    // SAFETY: siginfo_t is plain data; all zeros is a value of it.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = options | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the pointer is valid for writing during the call.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) } != 0 {
        return None;
    }
    // SAFETY: waitid filled in the fields of a child, or left zeros.
    Some(unsafe { info.si_pid() }).filter(|pid| *pid != 0)
}

/// Waits for a child, and says what processor time it took with those that it waited for.
fn reap(pid: i32) -> Option<Duration> {
    // SAFETY: rusage is plain data; all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for writing during the call; a null status is not written.
    let reaped = unsafe { libc::wait4(pid, std::ptr::null_mut(), libc::__WALL, &raw mut usage) };
    (reaped == pid).then(|| duration(usage.ru_utime) + duration(usage.ru_stime))
}

/// The name of a process, which it keeps until it was waited for.
fn name(pid: i32) -> String {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let name = Counters::parse(&stat).map_or(&b""[..], |counters| counters.name);
    String::from_utf8_lossy(name).into_owned()
}
