//! What a trap costs for each call, measured on a process of our own before the command starts; it also shows whether
//! the trap works here at all.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use faultless_records::perf_record::Content;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::clock::monotonic_ns;
use crate::memory_call_filter;
use crate::memory_call_trace::{Sight, Trace};
use crate::perf::{Event, Plan, Sampling, Scope, Session, What};
use crate::refused::Refused;
use crate::tracer::{call_of, ending};

/// Batches of calls timed with the trap, and as many without, and the calls of each. The median batch speaks: on a busy machine
/// others get the processor in the middle of some, for as long as thousands of calls take.
const BATCHES: usize = 20;
const BATCH_CALLS: u64 = 10;

/// Added time for each call, in nanoseconds: two stops, the way to us and back; not what the answer is used for.
///
/// # Errors
/// The kernel's reason, when it does not let us trace that way, or does not tell what a traced process calls.
pub fn of_call(is_filtered: bool) -> io::Result<f64> {
    if is_filtered {
        memory_call_filter::check()?;
    }
    let mut measured = Measured::start(if is_filtered { memory_call_filter::program() } else { Vec::new() })?;
    let pid = measured.pid;
    let mut options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    if is_filtered {
        options |= Options::PTRACE_O_TRACESECCOMP;
    }
    ptrace::seize(pid, options)?;
    if !is_filtered {
        ptrace::interrupt(pid)?;
    }
    measured.go();
    let is_told = serve(pid, is_filtered);
    measured.has_ended = true;
    if !is_told {
        return Err(io::Error::other(
            "the kernel does not tell what a traced process calls (PTRACE_GET_SYSCALL_INFO, from Linux 5.3 on)",
        ));
    }
    measured.added_ns()
}

/// The same where the kernel's records are read instead: nothing stops then.
///
/// # Errors
/// One line that says what would help.
pub fn of_traced_call(sight: Sight) -> Result<f64, Refused> {
    traced(sight).map(|(cost_ns, _)| cost_ns)
}

/// The same, and what the kernel told meanwhile, unread.
fn traced(sight: Sight) -> Result<(f64, Trace), Refused> {
    let mut measured = Measured::start(Vec::new())?;
    let trace = Trace::open(sight, &[measured.pid.as_raw()], false)?;
    trace.start()?;
    measured.go();
    Ok((measured.added_ns()?, trace))
}

/// What the kernel's probes at a function's first instruction and at its return cost for each call of it, in nanoseconds.
///
/// # Errors
/// One line that says what would help.
pub fn of_probed_call() -> Result<f64, Refused> {
    let (file, offset) = place_of_timed_function()?;
    let event = |is_return| Event {
        what: What::Function { file: file.clone(), offset, is_return },
        sampling: Sampling::Every(1),
        scope: Scope::User,
        starts_enabled: true,
    };
    let plan = Plan {
        events: vec![event(false), event(true)],
        content: Content { has_address: false, has_callchain: false, has_raw: false, stack_bytes: 8 },
        follows_processes: false,
        waits_for_exec: false,
        buffer_bytes: 1 << 20,
    };
    let mut measured = Measured::start(Vec::new())?;
    let session = Session::open(plan, &[measured.pid.as_raw()])?;
    session.start()?;
    measured.go();
    Ok(measured.added_ns()?)
}

/// The file and the offset in it of [`timed_call`].
fn place_of_timed_function() -> io::Result<(PathBuf, u64)> {
    let address = timed_call as *const () as u64;
    let maps = std::fs::read("/proc/self/maps")?;
    let mappings = faultless_records::mappings::parse(&maps).unwrap_or_default();
    let mapping = mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&address));
    let mapping = mapping.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok((PathBuf::from("/proc/self/exe").canonicalize()?, address - mapping.start + mapping.offset))
}

/// A child that times calls twice: by itself, and when it was told to go on.
struct Measured {
    pid: Pid,
    go: Option<OwnedFd>,
    answers: File,
    bare_ns: u64,
    has_ended: bool,
}

impl Measured {
    /// Starts it; when this returns it has timed its calls without us, and waits.
    fn start(filter: Vec<libc::sock_filter>) -> io::Result<Self> {
        let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
        let (answer_read, answer_write) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only async-signal-safe functions on what was prepared before the fork.
        let pid = match unsafe { fork()? } {
            ForkResult::Child => {
                // Our copy of the writing end, else the parent's death would never be seen.
                drop(go_write);
                be_measured(&filter, go_read.as_raw_fd(), answer_write.as_raw_fd())
            }
            ForkResult::Parent { child } => child,
        };
        drop((go_read, answer_write));
        let answers = File::from(answer_read);
        let mut measured = Self { pid, go: Some(go_write), answers, bare_ns: 0, has_ended: false };
        measured.bare_ns = read_number(&mut measured.answers)?;
        Ok(measured)
    }

    fn go(&mut self) {
        if let Some(go) = self.go.take() {
            let _ = nix::unistd::write(&go, &[1]);
        }
    }

    fn added_ns(&mut self) -> io::Result<f64> {
        let with_us_ns = read_number(&mut self.answers)?;
        Ok(with_us_ns.saturating_sub(self.bare_ns) as f64 / BATCH_CALLS as f64)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Without leave to go on it ends by itself.
        self.go = None;
        if !self.has_ended {
            let _ = nix::sys::wait::waitpid(self.pid, Some(nix::sys::wait::WaitPidFlag::__WALL));
        }
    }
}

fn read_number(answers: &mut File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    answers
        .read_exact(&mut bytes)
        .map_err(|_| io::Error::other("the process that was to be timed has ended"))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Resumes the child at each stop until it has ended; whether it was told what it calls.
fn serve(pid: Pid, is_filtered: bool) -> bool {
    let mut status = 0;
    let mut is_inside = false;
    let mut is_told = false;
    loop {
        // SAFETY: the pointer is valid for writing during the call.
        if unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL) } <= 0 {
            return is_told;
        }
        if ending(status).is_some() {
            return is_told;
        }
        is_told |= call_of(pid.as_raw(), memory_call_filter::ARCHITECTURE).is_some();
        is_inside = !is_inside;
        let request = if is_filtered && !is_inside { libc::PTRACE_CONT } else { libc::PTRACE_SYSCALL };
        crate::watch::resume(request, pid.as_raw(), 0);
    }
}

/// The child: times calls without and with the trap. Async-signal-safe, never returns.
fn be_measured(filter: &[libc::sock_filter], go: i32, answer: i32) -> ! {
    // SAFETY: plain system calls on descriptors that are open and on local memory. The timed call unmaps nothing: a
    // length of 0 is refused.
    unsafe {
        let mut byte = 0_u8;
        let bare_ns = time_calls();
        libc::write(answer, (&raw const bare_ns).cast(), 8);
        if libc::read(go, (&raw mut byte).cast(), 1) != 1 || memory_call_filter::install(filter).is_err() {
            libc::_exit(1);
        }
        let trapped_ns = time_calls();
        libc::write(answer, (&raw const trapped_ns).cast(), 8);
        libc::_exit(0)
    }
}

/// What one batch of calls takes, in nanoseconds.
fn time_calls() -> u64 {
    let mut batches = [0; BATCHES];
    for batch in &mut batches {
        let start = monotonic_ns();
        for _ in 0..BATCH_CALLS {
            timed_call();
        }
        *batch = monotonic_ns() - start;
    }
    median(batches)
}

fn median(mut batches: [u64; BATCHES]) -> u64 {
    batches.sort_unstable();
    batches[BATCHES / 2]
}

/// What is timed; a function by itself, so that a probe can be set at it.
#[inline(never)]
extern "C" fn timed_call() {
    // SAFETY: the kernel refuses a length of 0 before it looks at the address.
    unsafe { libc::syscall(libc::SYS_munmap, 0, 0) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]
mod tests {
    use super::*;
    use crate::memory_call_filter::where_refused;
    use crate::system_call_trap::Observer;
    use crate::tracer::GET_SYSCALL_INFO;
    use faultless_records::memory_call::MemoryEvent;
    use faultless_records::perf_record::{PerfRecord, Sample};

    #[test]
    fn a_trapped_call_costs_more_than_none() {
        for is_filtered in [true, false] {
            match of_call(is_filtered) {
                Ok(cost_ns) => assert!(cost_ns > 100.0, "{cost_ns} ns"),
                Err(error) => faultless_skipped::skipped(error),
            }
        }
        match of_probed_call() {
            Ok(cost_ns) => assert!(cost_ns > 50.0, "{cost_ns} ns"),
            Err(reason) => is_told(reason),
        }
    }

    /// As before Linux 5.3, and in gVisor.
    #[test]
    fn a_kernel_that_does_not_tell_calls_is_not_taken_for_one_without_any() {
        let tried = where_refused(libc::SYS_ptrace, Some(GET_SYSCALL_INFO), libc::EIO, || of_call(false));
        let reason = tried.unwrap_err().to_string();
        assert!(reason.contains("does not tell what a traced process calls"), "{reason}");
    }

    /// As in gVisor.
    #[test]
    fn a_kernel_without_performance_events_is_not_taken_for_one_whose_cpus_went_offline() {
        assert!(where_refused(libc::SYS_perf_event_open, None, libc::ENODEV, of_probed_call).is_err());
    }

    #[test]
    fn batches_in_which_others_had_the_processor_do_not_count() {
        let mut batches = [20_000; BATCHES];
        batches[3..11].fill(4_000_000);
        assert_eq!(median(batches), 20_000);
    }

    /// Calls that were refused, as all timed ones are.
    #[derive(Default)]
    struct Refused(usize);

    impl Observer for Refused {
        fn take(&mut self, event: MemoryEvent) {
            self.0 += usize::from(matches!(event, MemoryEvent::Call(call) if call.result.is_err()));
        }

        fn chain(&mut self, _: &PerfRecord, _: &Sample) -> Option<u32> {
            None
        }

        fn record(&mut self, _: &PerfRecord) {}

        fn code_changed(&mut self, _: i32) {}

        fn tick(&mut self) {}
    }

    #[test]
    fn what_is_timed_are_calls_that_the_tracepoints_see_and_the_records_of_mappings_do_not() {
        for (sight, seen) in [(Sight::Calls, BATCHES as u64 * BATCH_CALLS), (Sight::Mappings, 0)] {
            match traced(sight) {
                Ok((_, mut trace)) => {
                    let mut refused = Refused::default();
                    trace.read(&mut refused, true);
                    assert_eq!(refused.0, seen as usize, "{sight:?}");
                }
                Err(reason) => is_told(reason),
            }
        }
    }

    /// What this machine does not permit is one line, which the summary of the tests shows.
    fn is_told(refused: crate::refused::Refused) {
        let reason = refused.reason;
        assert!(!reason.contains('\n') && !reason.is_empty(), "{reason}");
        faultless_skipped::skipped(reason);
    }
}
