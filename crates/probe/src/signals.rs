//! Signals taken synchronously: held back from the first moment, then waited for together with the child.
//!
//! No handler runs anywhere, so nothing can be interrupted half-way and every exit path cleans up.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

/// Signals that ask the tool to end.
const INTERRUPTIONS: &[Signal] = &[Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Further signals that are meant for the command and passed on to it.
const MESSAGES: &[Signal] = &[Signal::SIGUSR1, Signal::SIGUSR2];

/// Ends the waiting of who draws on a terminal that has another size now; it asks for nothing.
const NEWS: Signal = Signal::SIGWINCH;

/// Whether SIGPIPE was ignored when we were started (services of systemd begin so); Rust's runtime ignores it before `main`.
static WAS_PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look_at_pipe;

extern "C" fn look_at_pipe() {
    // ORDERING: Relaxed; there is one thread yet.
    WAS_PIPE_IGNORED.store(is_ignored(Signal::SIGPIPE).unwrap_or(false), Ordering::Relaxed);
}

/// The tool's grip on its signals; made once, before any thread is started.
#[derive(Debug)]
pub struct Signals {
    original_mask: SigSet,
    was_child_ignored: bool,
    held: SigSet,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Its number.
    pub number: i32,
    /// A process sent it to us; otherwise the kernel did, and a terminal's signal also reached the command.
    pub is_from_process: bool,
}

impl Arrival {
    /// Whether it asks the tool to end.
    #[must_use]
    pub fn is_interruption(self) -> bool {
        INTERRUPTIONS.iter().any(|signal| *signal as i32 == self.number)
    }

    /// Whether it only says that a child changed its state.
    #[must_use]
    pub fn is_about_child(self) -> bool {
        self.number == libc::SIGCHLD
    }
}

impl Signals {
    /// Holds back the signals that are not ignored already (`nohup` and background jobs ignore some). A file beyond the limit
    /// of its size (`ulimit -f`) is from now on a refused write and no longer our end.
    ///
    /// # Errors
    /// When the kernel refuses a signal call, which it has no reason to.
    pub fn hold() -> io::Result<Self> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        let was_child_ignored = is_ignored(Signal::SIGCHLD)?;
        // SAFETY: the default action runs no code of ours; an inherited "ignore" would make the kernel reap our child.
        unsafe { sigaction(Signal::SIGCHLD, &default)? };
        let mut held = SigSet::empty();
        held.add(Signal::SIGCHLD);
        for signal in INTERRUPTIONS.iter().chain(MESSAGES).chain([&NEWS]) {
            if !is_ignored(*signal)? {
                held.add(*signal);
            }
        }
        let mut blocked = held;
        blocked.add(Signal::SIGXFSZ);
        let mut original_mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut original_mask))?;
        Ok(Self { original_mask, was_child_ignored, held })
    }

    /// As [`Signals::hold`], for what goes on until it is interrupted and starts no command, which would find its signals changed.
    /// SIGINT counts also where it is ignored: a shell without job control does that to all in the background, and a script
    /// ends an instrument by it.
    ///
    /// # Errors
    /// As [`Signals::hold`].
    pub fn hold_with_interrupt() -> io::Result<Self> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(Signal::SIGINT, &default)? };
        Self::hold()
    }

    /// What was done about SIGPIPE and SIGCHLD before us: default or "ignore"; a child finds it so.
    pub(crate) fn original_actions(&self) -> [(i32, libc::sighandler_t); 2] {
        let action = |is_ignored| if is_ignored { libc::SIG_IGN } else { libc::SIG_DFL };
        // ORDERING: Relaxed; written before `main`.
        let was_pipe_ignored = WAS_PIPE_IGNORED.load(Ordering::Relaxed);
        [(libc::SIGPIPE, action(was_pipe_ignored)), (libc::SIGCHLD, action(self.was_child_ignored))]
    }

    /// The mask that was in force before; a child gets it back.
    pub(crate) fn original_mask(&self) -> &SigSet {
        &self.original_mask
    }

    /// The signals that are held back.
    pub(crate) fn held(&self) -> &SigSet {
        &self.held
    }

    /// Waits for the next held signal, without end or for at most `timeout`.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn next(&self, timeout: Option<Duration>) -> io::Result<Option<Arrival>> {
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        loop {
            // SAFETY: siginfo_t is plain data; all zeros is a value of it.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: the three pointers are valid for the call; a null timeout waits without end.
            let number = unsafe { libc::sigtimedwait(self.held.as_ref(), &raw mut info, limit) };
            if number > 0 {
                return Ok(Some(Arrival { number, is_from_process: info.si_code <= 0 }));
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
                error => return Err(error),
            }
        }
    }

    /// An interruption that is waiting, taken out of the queue.
    #[must_use]
    pub fn pending_interruption(&self) -> Option<i32> {
        while let Ok(Some(arrival)) = self.next(Some(Duration::ZERO)) {
            if arrival.is_interruption() {
                return Some(arrival.number);
            }
        }
        None
    }

    /// The work is done and nothing is left to be cleaned up: those that ask us to end do so at once from here on, however long a
    /// reader takes for the result. One that came before asked for the end of the work.
    pub fn let_through(&self) {
        while self.pending_interruption().is_some() {}
        let mut interruptions = SigSet::empty();
        for signal in INTERRUPTIONS.iter().filter(|signal| !self.original_mask.contains(**signal)) {
            interruptions.add(*signal);
        }
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&interruptions), None);
    }
}

fn is_ignored(signal: Signal) -> io::Result<bool> {
    // SAFETY: sigaction is plain data; all zeros is a value of it.
    let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks; `current` is valid for writing.
    if unsafe { libc::sigaction(signal as i32, ptr::null(), &raw mut current) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(current.sa_sigaction == libc::SIG_IGN)
}

/// Ends this process by the signal that ended the command, so that a shell sees the same; leaves no core file.
///
/// The caller has cleaned up: nothing runs after this.
pub fn die_by(number: i32) -> ! {
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    if let Ok(signal) = Signal::try_from(number) {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        let _ = unsafe { sigaction(signal, &default) };
        let mut mask = SigSet::empty();
        mask.add(signal);
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&mask), None);
    }
    // SAFETY: raising a signal touches no memory; it may end the process here.
    unsafe { libc::raise(number) };
    // Signals that do not end a process (or numbers beyond our range) fall through to the shell's convention.
    std::process::exit(128_i32.saturating_add(number) & 0xff)
}

/// Stops this process and all others of its group, as Ctrl-Z stops a job; returns when it is continued.
pub fn stop_job() {
    // A terminal that is read key by key sends no signal: the group stands for what it would have stopped.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(0), Signal::SIGTSTP);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruptions_are_told_from_news_about_children() {
        let arrival = |number| Arrival { number, is_from_process: true };
        assert!(arrival(libc::SIGTERM).is_interruption());
        assert!(!arrival(libc::SIGUSR1).is_interruption());
        assert!(arrival(libc::SIGCHLD).is_about_child());
    }
}
