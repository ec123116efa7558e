//! Starts a command so that it is traced from its first instruction.
//!
//! The child waits on a pipe until it is seized; only then does it become the command. `PTRACE_SEIZE` rather than
//! `PTRACE_TRACEME`, because only a seized process can be left stopped by job control.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::file_limit;
use crate::memory_call_filter;
use crate::process_files;
use crate::signals::Signals;
use crate::tracer::{FAMILY, is_job_control};
use crate::watch::{Change, resume, wait_without_blocking};

/// How long a child that a signal stopped before it became the command may wait for us.
const STOP_INTERVAL_MS: i32 = 2;

/// Set in the reason that a child gives when it was not exec but the filter that failed.
const FILTER_REFUSED: i32 = 1 << 16;

/// How closely a command is traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracing {
    /// It stops once, on its way out.
    AtExit,
    /// It, its threads and its children stop at every system call; for [`crate::system_calls::count`] only.
    SystemCalls,
    /// It, its threads and its children report to [`crate::system_call_trap::follow`] from exec on.
    Family,
    /// As `Family`, and a seccomp filter stops them at the calls that change mappings.
    FilteredFamily,
}

impl Tracing {
    fn options(self) -> Options {
        match self {
            Self::AtExit => Options::PTRACE_O_TRACEEXIT,
            Self::SystemCalls | Self::Family => FAMILY,
            // Without a tracer the filtered calls would fail, so nobody outlives us.
            Self::FilteredFamily => FAMILY | Options::PTRACE_O_TRACESECCOMP | Options::PTRACE_O_EXITKILL,
        }
    }
}

/// What to start.
#[derive(Debug)]
pub struct Launch {
    /// The executable file.
    pub program: PathBuf,
    /// All arguments, the name first.
    pub arguments: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Standard input, output and error; none leaves ours.
    pub streams: [Option<File>; 3],
    /// Whether the command lives apart: in a session of its own and killed when we are.
    pub is_detached: bool,
}

/// A command that was started.
#[derive(Debug)]
pub struct Launched {
    pub(crate) pid: Pid,
    pub(crate) is_traced: bool,
    pub(crate) is_detached: bool,
    pub(crate) started: Instant,
    /// What it had resident before it became the command, a part of ours, which the kernel counts into its high-water mark.
    pub(crate) inherited_rss_bytes: u64,
}

impl Launched {
    /// Process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Sends it a signal; nothing happens when it has ended, because it is still ours to wait for.
    pub fn send(&self, signal: i32) {
        if let Ok(signal) = nix::sys::signal::Signal::try_from(signal) {
            let _ = nix::sys::signal::kill(self.pid, signal);
        }
    }

    /// Whether the kernel let us trace it; otherwise the figures at the end are samples.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.is_traced
    }
}

/// Everything the child needs, prepared before the fork: afterwards it may not allocate.
struct Prepared {
    program: CString,
    argument_pointers: Vec<*const libc::c_char>,
    environment_pointers: Vec<*const libc::c_char>,
    stream_descriptors: [Option<RawFd>; 3],
    mask: SigSet,
    /// What the command finds done about signals that we need otherwise.
    actions: [(i32, libc::sighandler_t); 2],
    /// The limit of open files, where we raised ours.
    file_limit: Option<(rlim_t, rlim_t)>,
    is_detached: bool,
    /// Installed before the command begins; empty for none.
    filter: Vec<libc::sock_filter>,
    go: OwnedFd,
    failure: OwnedFd,
    /// Owns what the pointers point to.
    _strings: Vec<CString>,
}

/// Starts the command.
///
/// # Errors
/// When no process can be made, or with the kernel's reason when the program cannot be executed.
pub fn launch(launch: Launch, signals: &Signals) -> io::Result<Launched> {
    launch_traced(launch, signals, Tracing::AtExit)
}

/// As [`launch`], traced as closely as `tracing` says.
///
/// # Errors
/// As [`launch`]; and when the kernel refuses to trace system calls.
pub fn launch_traced(launch: Launch, signals: &Signals, tracing: Tracing) -> io::Result<Launched> {
    let (launched, ()) = launch_prepared(launch, signals, tracing, |_| Ok::<(), io::Error>(()))
        .map_err(|(LaunchError::Start(error) | LaunchError::Observer(error))| error)?;
    Ok(launched)
}

/// Why a command with an observer was not started; nothing has run then.
#[derive(Debug)]
pub enum LaunchError<E> {
    /// No process can be made or traced, or the program cannot be executed.
    Start(io::Error),
    /// What the observer says.
    Observer(E),
}

impl<E> From<io::Error> for LaunchError<E> {
    fn from(error: io::Error) -> Self {
        Self::Start(error)
    }
}

/// As [`launch_traced`]; `open_observer` gets the process's number while it waits to become the command, and when it fails
/// nothing has run.
///
/// # Errors
/// [`LaunchError`].
pub fn launch_prepared<T, E>(
    launch: Launch,
    signals: &Signals,
    tracing: Tracing,
    open_observer: impl FnOnce(i32) -> Result<T, E>,
) -> Result<(Launched, T), LaunchError<E>> {
    let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
    let (failure_read, failure_write) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
    let is_detached = launch.is_detached;
    let mut options = tracing.options();
    if is_detached {
        options |= Options::PTRACE_O_EXITKILL;
    }
    let mut prepared = prepare(&launch, signals, go_read, failure_write)?;
    if tracing == Tracing::FilteredFamily {
        prepared.filter = memory_call_filter::program();
    }

    let pid = waiting_child(prepared, go_write.as_raw_fd())?;
    let seized = ptrace::seize(pid, options);
    let is_traced = seized.is_ok();
    let ready = open_observer(pid.as_raw()).map_err(LaunchError::Observer).and_then(|observer| {
        match tracing {
            Tracing::AtExit => {}
            Tracing::SystemCalls => seized.and_then(|()| stop_at_calls(pid)).map_err(io::Error::from)?,
            Tracing::Family | Tracing::FilteredFamily => seized.map_err(io::Error::from)?,
        }
        Ok(observer)
    });
    let observer = match ready {
        Ok(observer) => observer,
        Err(error) => {
            // Without our leave to go on it ends by itself.
            drop(go_write);
            reap(pid);
            return Err(error);
        }
    };
    let inherited_rss_bytes = process_files::peak_resident_bytes(pid.as_raw())
        .or_else(process_files::own_resident_bytes)
        .unwrap_or(0);
    let started = Instant::now();
    let _ = nix::unistd::write(&go_write, &[1]);
    drop(go_write);

    let launched = Launched { pid, is_traced, is_detached, started, inherited_rss_bytes };
    if tracing == Tracing::SystemCalls {
        // It cannot tell of a failure while it waits for us at each call; it ends with status 127 then.
        return Ok((launched, observer));
    }
    if is_traced {
        answer_stops_until_readable(pid, &failure_read);
    }
    if let Some(error) = failure(failure_read) {
        reap(pid);
        return Err(error.into());
    }
    Ok((launched, observer))
}

/// A child that becomes the command as soon as it is told so by a byte; it ends where the pipe does.
fn waiting_child(prepared: Prepared, go_write: RawFd) -> io::Result<Pid> {
    // It takes no signal before it has its tracer and is about to become the command.
    let mut own_mask = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut own_mask))?;
    // SAFETY: the child calls only async-signal-safe functions (see `become_command`), so locks held by other threads
    // of ours at this moment are never waited for.
    let forked = unsafe { fork() };
    if !matches!(forked, Ok(ForkResult::Child)) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&own_mask), None);
    }
    match forked? {
        ForkResult::Child => become_command(&prepared, go_write),
        ForkResult::Parent { child } => Ok(child),
    }
}

/// Why the child did not become the command, as it wrote it into the pipe; none when it did, which closed the pipe.
fn failure(pipe: OwnedFd) -> Option<io::Error> {
    let mut reason = [0_u8; 4];
    File::from(pipe).read_exact(&mut reason).ok()?;
    let reason = i32::from_ne_bytes(reason);
    let error = io::Error::from_raw_os_error(reason & !FILTER_REFUSED);
    if reason & FILTER_REFUSED == 0 {
        return Some(error);
    }
    let text = format!("the kernel refused the seccomp filter: {error}");
    Some(io::Error::new(io::ErrorKind::Unsupported, text))
}

/// Lets a seized child go on whenever a signal stops it before it has become the command, with the signal, until the pipe
/// has something to say: that it failed, or by its end that it became the command or is gone.
fn answer_stops_until_readable(pid: Pid, pipe: &OwnedFd) {
    let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is valid for one element during the call.
    while unsafe { libc::poll(&raw mut poll, 1, STOP_INTERVAL_MS) } == 0 {
        // Looked at first: the stop at exec is for whoever follows the command.
        let look = |options| wait_without_blocking(pid.as_raw(), libc::WSTOPPED | options);
        let Ok(Some(Change::Stopped { event, .. })) = look(libc::WNOWAIT) else { continue };
        if event == libc::PTRACE_EVENT_EXEC {
            return;
        }
        if let Ok(Some(Change::Stopped { signal, event })) = look(0) {
            match event {
                _ if is_job_control(signal, event) => resume(libc::PTRACE_LISTEN, pid.as_raw(), 0),
                0 => resume(libc::PTRACE_CONT, pid.as_raw(), signal),
                _ => resume(libc::PTRACE_CONT, pid.as_raw(), 0),
            }
        }
    }
}

/// Makes a seized process stop at its next system call, and at each after that.
fn stop_at_calls(pid: Pid) -> nix::Result<()> {
    ptrace::interrupt(pid)?;
    nix::sys::wait::waitpid(pid, None)?;
    ptrace::syscall(pid, None)
}

fn prepare(launch: &Launch, signals: &Signals, go: OwnedFd, failure: OwnedFd) -> io::Result<Prepared> {
    let program = CString::new(launch.program.clone().into_os_string().into_vec())?;
    let mut strings = Vec::new();
    for argument in &launch.arguments {
        strings.push(CString::new(argument.clone().into_vec())?);
    }
    let arguments = strings.len();
    for (name, value) in &launch.environment {
        let mut entry = name.clone();
        entry.push("=");
        entry.push(value);
        strings.push(CString::new(entry.into_vec())?);
    }
    let pointers = |strings: &[CString]| {
        let ends_with_null = [std::ptr::null()];
        strings.iter().map(|string| string.as_ptr()).chain(ends_with_null).collect::<Vec<_>>()
    };
    Ok(Prepared {
        program,
        argument_pointers: pointers(&strings[..arguments]),
        environment_pointers: pointers(&strings[arguments..]),
        stream_descriptors: launch.streams.each_ref().map(|file| file.as_ref().map(AsRawFd::as_raw_fd)),
        mask: *signals.original_mask(),
        actions: signals.original_actions(),
        file_limit: file_limit::found(),
        is_detached: launch.is_detached,
        filter: Vec::new(),
        go,
        failure,
        _strings: strings,
    })
}

/// The child's side of the fork: never returns, calls only async-signal-safe functions, allocates nothing.
fn become_command(prepared: &Prepared, go_write: RawFd) -> ! {
    // SAFETY: each is an async-signal-safe system call on descriptors and memory prepared before the fork; the
    // pointer arrays end with null and their strings live in `prepared`.
    unsafe {
        // Our copy of the writing end, else the parent's death would never be seen.
        libc::close(go_write);
        if prepared.is_detached {
            libc::setsid();
        }
        for (target, descriptor) in (0..).zip(prepared.stream_descriptors) {
            if let Some(descriptor) = descriptor {
                libc::dup2(descriptor, target);
            }
        }
        for (signal, action) in prepared.actions {
            libc::signal(signal, action);
        }
        if let Some((soft, hard)) = prepared.file_limit {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        }
        let mut go = 0_u8;
        let received = loop {
            let received = libc::read(prepared.go.as_raw_fd(), (&raw mut go).cast(), 1);
            if received >= 0 || *libc::__errno_location() != libc::EINTR {
                break received;
            }
        };
        if received == 1 {
            let mut reason = 0;
            if let Err(refusal) = memory_call_filter::install(&prepared.filter) {
                reason = refusal | FILTER_REFUSED;
            } else {
                let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&prepared.mask), None);
                libc::execve(
                    prepared.program.as_ptr(),
                    prepared.argument_pointers.as_ptr(),
                    prepared.environment_pointers.as_ptr(),
                );
                reason |= *libc::__errno_location();
            }
            let reason = reason.to_ne_bytes();
            libc::write(prepared.failure.as_raw_fd(), reason.as_ptr().cast(), reason.len());
        }
        libc::_exit(127)
    }
}

/// Ends and waits for a child that did not become the command; it may stop once on its way out when traced.
fn reap(pid: Pid) {
    let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
    let mut status = 0;
    loop {
        // SAFETY: the pointer is valid for writing during the call.
        let changed = unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL) };
        match changed {
            changed if changed == pid.as_raw() && libc::WIFSTOPPED(status) => {
                resume(libc::PTRACE_CONT, pid.as_raw(), 0);
            }
            changed if changed < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::measurement::Ending;
    use nix::sys::signal::kill;

    #[test]
    fn a_command_has_run_when_its_observer_could_begin_and_not_when_it_could_not() {
        let signals = Signals::hold().unwrap();
        let made = std::env::temp_dir().join(format!("faultless-launch-{}", std::process::id()));
        let start = || Launch {
            program: "/bin/sh".into(),
            arguments: ["sh".into(), "-c".into(), ": > \"$0\"".into(), made.clone().into()].into(),
            environment: Vec::new(),
            streams: [None, None, None],
            is_detached: false,
        };
        for tracing in [Tracing::AtExit, Tracing::Family] {
            let refused = launch_prepared(start(), &signals, tracing, |_| Err::<(), _>("no room"));
            assert!(matches!(refused, Err(LaunchError::Observer("no room"))));
            assert!(!made.exists(), "{tracing:?}");
        }
        let (launched, seen) = launch_prepared(start(), &signals, Tracing::AtExit, Ok::<i32, ()>).unwrap();
        followed(&launched);
        assert!(seen == launched.pid() && made.exists());
        std::fs::remove_file(&made).unwrap();
    }

    fn waiting() -> Launch {
        Launch {
            program: "/bin/sh".into(),
            arguments: ["sh".into(), "-c".into(), "exit 7".into()].into(),
            environment: Vec::new(),
            streams: [None, None, None],
            is_detached: false,
        }
    }

    /// By hand: where several tests run, the news of a child may reach a thread that does not wait for it.
    fn followed(launched: &Launched) -> Ending {
        loop {
            let mut status = 0;
            // SAFETY: the pointer is valid for writing during the call.
            let waited = unsafe { libc::waitpid(launched.pid(), &raw mut status, libc::__WALL) };
            assert_eq!(waited, launched.pid());
            if let Some(ending) = crate::tracer::ending(status) {
                return ending;
            }
            let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
            resume(libc::PTRACE_CONT, launched.pid(), signal);
        }
    }

    #[test]
    fn signals_that_come_before_the_command_begins_hold_nobody_up_and_reach_it() {
        let signals = Signals::hold().unwrap();
        let start = |numbers: &'static [Signal], tracing| {
            let send = |pid| numbers.iter().try_for_each(|number| kill(Pid::from_raw(pid), *number));
            launch_prepared(waiting(), &signals, tracing, send).unwrap().0
        };
        let harmless = &[Signal::SIGWINCH, Signal::SIGURG, Signal::SIGSTOP, Signal::SIGCONT];
        assert_eq!(followed(&start(harmless, Tracing::AtExit)), Ending::Exited(7));
        let ends = &[Signal::SIGWINCH, Signal::SIGALRM];
        assert_eq!(followed(&start(ends, Tracing::AtExit)), Ending::Killed(libc::SIGALRM));
        // The stop at its exec is left to who follows it.
        let launched = start(harmless, Tracing::Family);
        let (pid, mut status) = (launched.pid(), 0);
        // SAFETY: the pointer is valid for writing during the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }, pid);
        assert_eq!(status >> 16, libc::PTRACE_EVENT_EXEC, "{status:#x}");
        reap(launched.pid);
    }

    #[test]
    fn a_child_that_is_stopped_before_it_becomes_the_command_goes_on_when_it_is_told_to() {
        let signals = Signals::hold().unwrap();
        let stop = |pid| {
            kill(Pid::from_raw(pid), Signal::SIGSTOP)?;
            std::thread::spawn(move || {
                let stands = || {
                    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                    stat.contains(") t ") || stat.contains(") T ")
                };
                while !stands() {
                    std::thread::yield_now();
                }
                kill(Pid::from_raw(pid), Signal::SIGCONT)
            });
            Ok::<(), nix::Error>(())
        };
        let (launched, ()) = launch_prepared(waiting(), &signals, Tracing::AtExit, stop).unwrap();
        assert_eq!(followed(&launched), Ending::Exited(7));
    }
}
