//! Whether a process does nothing because somebody stopped it.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use faultless_records::status;

use crate::process::Process;

/// A thread that its tracer lets go on within this time is not held: `strace` stops threads at each call.
const MOMENT: Duration = Duration::from_millis(50);

/// Who stopped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halt {
    /// Job control, as by `SIGSTOP`.
    JobControl,
    /// A tracer, as a debugger.
    Tracer {
        /// Its number and name; none where it is not to be seen, as outside of our container.
        tracer: Option<(i32, String)>,
        /// Threads that it holds.
        held: usize,
        /// All.
        threads: usize,
    },
}

/// A thread that is stopped by its tracer.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    thread: i32,
    tracer: i32,
    /// How often it had to wait in its life: more when it ran in between.
    waits: Option<(u64, u64)>,
}

/// Who stopped this process, or some of its threads; none where all may run.
#[must_use]
pub fn of(process: &Process) -> Option<Halt> {
    let threads = process.threads().unwrap_or_default();
    if threads.first().is_some_and(|first| state(&text(process, *first)) == Some('T')) {
        return Some(Halt::JobControl);
    }
    let look = || threads.iter().filter_map(|thread| held(process, *thread)).collect::<Vec<_>>();
    let mut held = look();
    if !held.is_empty() {
        sleep(MOMENT);
        let again = look();
        held.retain(|held| again.contains(held));
    }
    let tracer = held.first()?.tracer;
    let name = fs::read(format!("/proc/{tracer}/comm")).ok();
    let tracer = name.map(|name| (tracer, String::from_utf8_lossy(&name).trim_end().to_owned()));
    Some(Halt::Tracer { tracer, held: held.len(), threads: threads.len() })
}

fn held(process: &Process, thread: i32) -> Option<Held> {
    let text = text(process, thread);
    let number = |name| status::number_of_field(&text, name);
    (state(&text) == Some('t')).then(|| Held {
        thread,
        tracer: status::tracer(&text).unwrap_or(0),
        waits: number("voluntary_ctxt_switches").zip(number("nonvoluntary_ctxt_switches")),
    })
}

fn text(process: &Process, thread: i32) -> String {
    process.text(&format!("task/{thread}/status")).unwrap_or_default()
}

fn state(status: &str) -> Option<char> {
    status::field(status, "State")?.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::process::{Child, Command};

    use nix::sys::ptrace::{self, Options};
    use nix::sys::signal::{Signal, kill};
    use nix::sys::wait::{WaitPidFlag, waitpid};
    use nix::unistd::Pid;

    fn sleeper() -> (Child, Process) {
        let child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id().try_into().unwrap()).unwrap();
        (child, process)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_is_stopped_by_job_control_is_told_from_who_runs() {
        let (child, process) = sleeper();
        assert_eq!(of(&process), None);
        kill(Pid::from_raw(process.pid()), Signal::SIGSTOP).unwrap();
        waitpid(Pid::from_raw(process.pid()), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(of(&process), Some(Halt::JobControl));
        end(child);
    }

    #[test]
    fn who_is_held_by_a_tracer_is_told_from_who_is_only_traced() {
        let (child, process) = sleeper();
        let pid = Pid::from_raw(process.pid());
        if ptrace::seize(pid, Options::empty()).is_err() {
            faultless_skipped::skipped("nobody may trace here");
            return end(child);
        }
        assert_eq!(of(&process), None, "it runs");
        ptrace::interrupt(pid).unwrap();
        waitpid(pid, None).unwrap();
        let Some(Halt::Tracer { tracer: Some((tracer, name)), held: 1, threads: 1 }) = of(&process) else {
            panic!("{:?}", of(&process));
        };
        assert_eq!(tracer, nix::unistd::gettid().as_raw());
        assert!(!name.is_empty());
        end(child);
    }
}
