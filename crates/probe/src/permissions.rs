//! Tries what the tool's instruments need, on processes of our own, on one of another user and on one that is asked for, and
//! writes down what the kernel answers. What is tried changes nothing: files are opened, not read; events are never begun.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use faultless_records::permission::{Answer, Attempt, Mechanism, Permissions, Rights, Subject};
use faultless_records::status;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::{ForkResult, fork, geteuid, pipe2};

use crate::memory_call_trace::Sight;
use crate::perf::{self, Access, PerfError};
use crate::process::{Process, ProcessError};
use crate::process_events::ProcessEvents;
use crate::process_list::{self, Candidate};
use crate::sleeper::Sleeper;
use crate::trap_cost;

/// Files of `/proc/PID` that are opened, and what each stands for.
const FILES: [(&str, Mechanism); 3] =
    [("smaps", Mechanism::Sizes), ("pagemap", Mechanism::Pages), ("mem", Mechanism::Memory)];

/// So many processes of others are tried, where one after the other is closed.
const MOST_EXAMPLES: usize = 100;

/// Tries everything; on one process only, when it is given.
///
/// # Errors
/// When no process of our own can be started to try things on.
pub fn find_out(given: Option<&Process>) -> io::Result<Permissions> {
    let mut found = Permissions {
        rights: rights(),
        given: given.map(|process| (process.pid(), process.name().to_owned())),
        is_32_bit: false,
        attempts: Vec::new(),
    };
    match given {
        Some(process) => {
            found.attempts.extend(files(process, Subject::Given));
            found.attempts.push(attach_by_right(process, Subject::Given));
            found.attempts.extend(events(process, Subject::Given, &name_of(process)));
        }
        None => {
            let sleeper = Sleeper::start()?;
            let process =
                Process::open(sleeper.pid.as_raw()).map_err(|error| io::Error::other(error.to_string()))?;
            found.attempts.extend(files(&process, Subject::Command));
            found.attempts.push(stops(false));
            found.attempts.push(stops(true));
            found.attempts.extend(events(&process, Subject::Command, "a child"));
            found.attempts.extend(files_from_a_stranger(&process)?);
            found.attempts.extend(events(&process, Subject::Own, "a child (Yama has no say in events)"));
            let others = others(&found);
            found.attempts.extend(others);
        }
    }
    let of_the_machine = [tracepoints(), uprobes(), connector()];
    found.attempts.extend(of_the_machine);
    Ok(found)
}

/// Who we are, and the settings that decide what we may.
pub(crate) fn rights() -> Rights {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    Rights::parse(geteuid().as_raw(), &status, paranoid.as_deref(), scope.as_deref())
}

fn name_of(process: &Process) -> String {
    format!("process {} ({})", process.pid(), process.name())
}

fn attempt(mechanism: Mechanism, subject: Subject, answer: Answer, evidence: String) -> Attempt {
    Attempt { mechanism, subject, answer, evidence }
}

/// How an error of opening or tracing is to be read.
fn answer_of(errno: Option<Errno>) -> Answer {
    match errno {
        None => Answer::Failed,
        Some(Errno::EACCES | Errno::EPERM) => Answer::Denied,
        Some(Errno::ENOENT | Errno::ENOSYS) => Answer::Absent,
        Some(_) => Answer::Failed,
    }
}

/// Opens the files of a process, and one that it maps.
fn files(process: &Process, subject: Subject) -> Vec<Attempt> {
    let name = if subject == Subject::Command { "a child".to_owned() } else { name_of(process) };
    let mut attempts: Vec<Attempt> = FILES
        .iter()
        .map(|(file, mechanism)| match process.open_file(file) {
            Ok(_) => attempt(*mechanism, subject, Answer::Allowed, format!("{file} of {name} was opened")),
            Err(error) => {
                let (answer, reason) = in_words(&error);
                attempt(*mechanism, subject, answer, format!("{file} of {name}: {reason}"))
            }
        })
        .collect();
    let direct = match first_mapped(process) {
        Some(file) => process.open_file(&file).map(drop).map_err(|error| match error {
            ProcessError::Ended(_) if process.is_alive() => "its first thread has ended".to_owned(),
            error => in_words(&error).1,
        }),
        None => Err("its mappings are not shown".to_owned()),
    };
    attempts.push(match (direct, process.open_file("root")) {
        (Ok(()), _) => {
            attempt(Mechanism::Files, subject, Answer::Allowed, format!("map_files of {name} was followed"))
        }
        (Err(reason), Ok(_)) => attempt(
            Mechanism::Files,
            subject,
            Answer::Allowed,
            format!("root of {name} was opened (map_files: {reason}; deleted files stay closed)"),
        ),
        (Err(_), Err(error)) => {
            let (answer, reason) = in_words(&error);
            attempt(Mechanism::Files, subject, answer, format!("root of {name}: {reason}"))
        }
    });
    attempts
}

fn in_words(error: &ProcessError) -> (Answer, String) {
    match error {
        ProcessError::Denied { .. } => (Answer::Denied, "permission denied".to_owned()),
        ProcessError::System { error, .. } => {
            (answer_of(error.raw_os_error().map(Errno::from_raw)), error.to_string())
        }
        error => (Answer::Failed, error.to_string()),
    }
}

/// The link in `/proc/PID` to the first file that it maps.
fn first_mapped(process: &Process) -> Option<String> {
    let mappings = process.mappings("maps").ok()?.ok()?;
    let mapping = mappings.iter().find(|mapping| mapping.inode != 0)?;
    Some(format!("map_files/{:x}-{:x}", mapping.start, mapping.end))
}

/// Whether it could be traced, without doing so: `mem` asks for the same right, nobody else may trace it, and a seccomp filter that
/// refuses the call refuses it on a child of ours, too.
fn attach_by_right(process: &Process, subject: Subject) -> Attempt {
    let name = name_of(process);
    let tracer = process.text("status").ok().and_then(|text| status::tracer(&text));
    let (answer, evidence) = match (process.open_file("mem"), tracer) {
        (Ok(_), Some(tracer)) => (
            Answer::Taken,
            format!("process {tracer} traces {name} already, and there can be one tracer only"),
        ),
        (Ok(_), _) => {
            let right = format!("not done; mem of {name}, which needs the same right, was opened");
            match attach_to_child() {
                Ok(()) => (Answer::Allowed, right),
                Err(error) => {
                    let answer = answer_of(error.raw_os_error().map(Errno::from_raw));
                    (answer, format!("{right}, but attaching to a child of ours: {error}"))
                }
            }
        }
        (Err(error), _) => {
            let (answer, reason) = in_words(&error);
            (answer, format!("not done; mem of {name}, which needs the same right: {reason}"))
        }
    };
    attempt(Mechanism::Attach, subject, answer, evidence)
}

/// Whether ptrace is to be had at all.
fn attach_to_child() -> io::Result<()> {
    let sleeper = Sleeper::start()?;
    // It does not stop, and is let go by its end.
    ptrace::seize(sleeper.pid, ptrace::Options::empty()).map_err(io::Error::from)
}

/// Opens events on a process, in programs and in the kernel.
fn events(process: &Process, subject: Subject, name: &str) -> [Attempt; 2] {
    // The first thread may have ended before the others.
    let thread = process.threads().ok().and_then(|threads| threads.first().copied());
    let found = perf::access_to(thread.unwrap_or(process.pid()));
    let refusal = |error: &PerfError| {
        let answer = match error {
            PerfError::Absent { .. } => Answer::Absent,
            error if error.is_refusal() => Answer::Denied,
            _ => Answer::Failed,
        };
        (answer, error.to_string())
    };
    let opened = |what: &str| (Answer::Allowed, format!("an event {what} was opened on {name}"));
    let (user, kernel) = match &found {
        Ok(Access::UserAndKernel) => (opened("of programs"), opened("of the kernel")),
        Ok(Access::User) => {
            let reason = format!("an event of the kernel on {name}: permission denied");
            (opened("of programs"), (Answer::Denied, reason))
        }
        Err(error) => (refusal(error), refusal(error)),
    };
    [(Mechanism::UserEvents, user), (Mechanism::KernelEvents, kernel)]
        .map(|(mechanism, (answer, evidence))| attempt(mechanism, subject, answer, evidence))
}

/// Whether a child of ours stops at its system calls, at all of them or by a filter.
fn stops(is_filtered: bool) -> Attempt {
    let (mechanism, seen, tried) = match is_filtered {
        false => (Mechanism::Trace, "a child was traced through its system calls", "tracing a child"),
        true => (Mechanism::Filter, "a child was stopped by its filter at munmap", "a child under a filter"),
    };
    let (answer, evidence) = match trap_cost::of_call(is_filtered) {
        Ok(_) => (Answer::Allowed, seen.to_owned()),
        Err(error) => (answer_of(error.raw_os_error().map(Errno::from_raw)), format!("{tried}: {error}")),
    };
    attempt(mechanism, Subject::Command, answer, evidence)
}

/// What a process that is no parent of the other one may do with it: Yama asks for that.
fn files_from_a_stranger(process: &Process) -> io::Result<Vec<Attempt>> {
    let mut paths: Vec<(Mechanism, String)> =
        FILES.iter().map(|(file, mechanism)| (*mechanism, (*file).to_owned())).collect();
    paths.push((Mechanism::Files, "root".to_owned()));
    let errors = stranger(process.pid(), paths.iter().map(|(_, file)| file.as_str()))?;
    let mut attempts = Vec::new();
    for ((mechanism, file), number) in paths.iter().zip(&errors) {
        attempts.push(tried_by_stranger(*mechanism, &format!("opening {file}"), *number));
    }
    let number = errors.get(paths.len()).copied().unwrap_or(libc::ENOSYS);
    attempts.push(tried_by_stranger(Mechanism::Attach, "attaching", number));
    Ok(attempts)
}

fn tried_by_stranger(mechanism: Mechanism, what: &str, number: i32) -> Attempt {
    const WHOM: &str = "between two children of ours, neither the other's parent";
    let (answer, evidence) = match number {
        0 => (Answer::Allowed, format!("{what} {WHOM}: done")),
        number => {
            let error = io::Error::from_raw_os_error(number);
            (answer_of(Some(Errno::from_raw(number))), format!("{what} {WHOM}: {error}"))
        }
    };
    attempt(mechanism, Subject::Own, answer, evidence)
}

/// A process of another user, if one is to be seen; else what the capabilities say, and what came of the same on a command.
fn others(found: &Permissions) -> Vec<Attempt> {
    let rights = &found.rights;
    let is_of_another = |pid: &i32| {
        fs::metadata(format!("/proc/{pid}")).is_ok_and(|directory| directory.uid() != rights.user)
            && Candidate::read(*pid).is_some()
    };
    let others = process_list::numbers().unwrap_or_default().into_iter().filter(is_of_another);
    if let Some(process) = example(others, |process| process.open_file("mem").is_ok()) {
        let mut attempts = files(&process, Subject::Others);
        attempts.push(attach_by_right(&process, Subject::Others));
        attempts.extend(events(&process, Subject::Others, &name_of(&process)));
        return attempts;
    }
    let by = |mechanism, has, capability: &str| {
        let (answer, state) =
            if has { (Answer::Allowed, "in force") } else { (Answer::Denied, "not in force") };
        let nobody = "no process of another user can be seen here";
        let on_command = if mechanism == Mechanism::Attach { Mechanism::Trace } else { mechanism };
        let (answer, evidence) = match found.attempt(on_command, Subject::Command) {
            // A seccomp filter asks for no capability.
            Some(own) if has && own.answer != Answer::Allowed => {
                (own.answer, format!("{nobody}; {capability} is {state}, but {}", own.evidence))
            }
            _ => (answer, format!("{nobody}; {capability} is {state}")),
        };
        attempt(mechanism, Subject::Others, answer, evidence)
    };
    let mut attempts: Vec<Attempt> =
        [Mechanism::Sizes, Mechanism::Pages, Mechanism::Memory, Mechanism::Files, Mechanism::Attach]
            .map(|mechanism| by(mechanism, rights.may_trace, "CAP_SYS_PTRACE"))
            .into();
    let events = [Mechanism::UserEvents, Mechanism::KernelEvents];
    attempts.extend(events.map(|mechanism| by(mechanism, rights.may_observe, "CAP_PERFMON")));
    attempts
}

/// The one that stands for others: the first that is open to us, else the first that is there. Some are closed to all but root, as those
/// in another user namespace and, often, the first of all, init.
fn example(others: impl Iterator<Item = i32>, is_open: impl Fn(&Process) -> bool) -> Option<Process> {
    let mut first = None;
    for process in others.filter_map(|pid| Process::open(pid).ok()).take(MOST_EXAMPLES) {
        if is_open(&process) {
            return Some(process);
        }
        first = first.or(Some(process));
    }
    first
}

fn tracepoints() -> Attempt {
    let (answer, evidence) = match trap_cost::of_traced_call(Sight::Calls) {
        Ok(_) => (Answer::Allowed, "calls of a child were seen by tracepoints".to_owned()),
        Err(refused) => (refused.answer, refused.reason),
    };
    attempt(Mechanism::Tracepoints, Subject::Machine, answer, evidence)
}

fn uprobes() -> Attempt {
    let (answer, evidence) = match trap_cost::of_probed_call() {
        Ok(_) => (Answer::Allowed, "a probe at a function of a child was hit".to_owned()),
        Err(refused) => (refused.answer, format!("a probe at a function of a child: {refused}")),
    };
    attempt(Mechanism::Uprobes, Subject::Machine, answer, evidence)
}

fn connector() -> Attempt {
    let (answer, evidence) = match ProcessEvents::open() {
        Ok(_) => (Answer::Allowed, "the kernel agreed to tell of forks, execs and exits".to_owned()),
        Err(refused) => (refused.answer, refused.reason),
    };
    attempt(Mechanism::ProcessConnector, Subject::Machine, answer, evidence)
}

/// A child that opens these files of another child and attaches to it: for each the number of the error, 0 for success.
fn stranger<'file>(target: i32, files: impl Iterator<Item = &'file str>) -> io::Result<Vec<i32>> {
    let paths: Vec<CString> =
        files.map(|file| CString::new(format!("/proc/{target}/{file}"))).collect::<Result<_, _>>()?;
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: the child calls only async-signal-safe functions on what was prepared before the fork.
    let child = match unsafe { fork()? } {
        ForkResult::Child => be_stranger(target, &paths, write.as_raw_fd()),
        ForkResult::Parent { child } => child,
    };
    drop(write);
    let mut bytes = Vec::new();
    let outcome = File::from(read).read_to_end(&mut bytes);
    let _ = nix::sys::wait::waitpid(child, None);
    outcome?;
    Ok(bytes.as_chunks().0.iter().map(|number| i32::from_ne_bytes(*number)).collect())
}

/// The child: tries, tells, ends. Async-signal-safe, never returns; what it attached to is let go by its end.
fn be_stranger(target: i32, paths: &[CString], tell: i32) -> ! {
    let say = |has_worked: bool| {
        // SAFETY: the pointer is this thread's own error number; the written bytes are a local's.
        unsafe {
            let number = if has_worked { 0 } else { *libc::__errno_location() };
            libc::write(tell, (&raw const number).cast(), 4);
        }
    };
    for path in paths {
        // SAFETY: the path ends with NUL and lives through the call.
        say(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) } >= 0);
    }
    let nothing: *mut libc::c_void = std::ptr::null_mut();
    // SAFETY: this request takes neither address nor data, and does not stop the process.
    say(unsafe { libc::ptrace(libc::PTRACE_SEIZE, target, nothing, nothing) } == 0);
    // SAFETY: never returns.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_tried_on_everybody_once_and_leaves_no_child() {
        let found = find_out(None).unwrap();
        let count = |subject| found.attempts.iter().filter(|attempt| attempt.subject == subject).count();
        let counts = [Subject::Command, Subject::Own, Subject::Others, Subject::Machine].map(count);
        assert_eq!(counts, [8, 7, 7, 3], "{found:?}");
        for attempt in &found.attempts {
            assert!(!attempt.evidence.is_empty() && !attempt.evidence.contains('\n'), "{attempt:?}");
        }
        assert!(found.allows(Mechanism::Sizes, Subject::Command), "{found:?}");
        assert!(found.allows(Mechanism::Sizes, Subject::Own), "{found:?}");
    }

    #[test]
    fn a_process_that_is_traced_is_said_to_be() {
        let sleeper = Sleeper::start().unwrap();
        let process = Process::open(sleeper.pid.as_raw()).unwrap();
        let before = attach_by_right(&process, Subject::Given);
        if crate::tracer::seize(sleeper.pid.as_raw()).is_err() {
            faultless_skipped::skipped("nobody may trace here");
            return;
        }
        let after = attach_by_right(&process, Subject::Given);
        let pid = sleeper.pid;
        let _ = nix::sys::wait::waitpid(pid, Some(nix::sys::wait::WaitPidFlag::__WALL));
        crate::watch::resume(libc::PTRACE_DETACH, pid.as_raw(), 0);
        assert_eq!(before.answer, Answer::Allowed, "{before:?}");
        assert_eq!(after.answer, Answer::Taken, "{after:?}");
    }

    #[test]
    fn a_process_that_is_closed_does_not_stand_for_those_that_are_open() {
        let sleeper = Sleeper::start().unwrap();
        let (closed, open) = (std::process::id().cast_signed(), sleeper.pid.as_raw());
        let of = |is_open: &dyn Fn(i32) -> bool| {
            example([closed, open].into_iter(), |process| is_open(process.pid())).map(|process| process.pid())
        };
        assert_eq!(of(&|pid| pid == open), Some(open));
        assert_eq!(of(&|_| false), Some(closed));
    }

    #[test]
    fn a_given_process_is_the_only_one_looked_at() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let found = find_out(Some(&own)).unwrap();
        let is_fit = |attempt: &Attempt| matches!(attempt.subject, Subject::Given | Subject::Machine);
        assert!(found.attempts.iter().all(is_fit), "{found:?}");
        assert!(found.allows(Mechanism::Memory, Subject::Given));
    }
}
