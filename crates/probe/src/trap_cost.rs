//! What a trap costs for each call, measured on a process of our own before the command starts; it also shows whether
//! the trap works here at all.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use nix::fcntl::OFlag;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use crate::memory_call_filter;
use crate::system_call_trap::monotonic_ns;
use crate::tracer::call_of;

/// Calls timed with the trap, and as many without.
const CALLS: u64 = 200;

/// Added time for each call, in nanoseconds: two stops, the way to us and back; not what the answer is used for.
///
/// # Errors
/// The kernel's reason, when it does not let us trace that way.
pub fn of_call(is_filtered: bool) -> io::Result<f64> {
    if is_filtered {
        memory_call_filter::check()?;
    }
    let (go_read, go_write) = pipe2(OFlag::O_CLOEXEC)?;
    let (answer_read, answer_write) = pipe2(OFlag::O_CLOEXEC)?;
    let filter = if is_filtered { memory_call_filter::program() } else { Vec::new() };
    // SAFETY: the child calls only async-signal-safe functions on what was prepared before the fork.
    let pid = match unsafe { fork()? } {
        ForkResult::Child => be_measured(&filter, go_read.as_raw_fd(), answer_write.as_raw_fd()),
        ForkResult::Parent { child } => child,
    };
    drop((go_read, answer_write));
    let mut answers = File::from(answer_read);
    // It is seized only after it has timed its calls without us.
    let bare_ns = read_number(&mut answers)?;
    let mut options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL;
    if is_filtered {
        options |= Options::PTRACE_O_TRACESECCOMP;
    }
    if let Err(error) = ptrace::seize(pid, options) {
        drop(go_write);
        let _ = nix::sys::wait::waitpid(pid, None);
        return Err(error.into());
    }
    if !is_filtered {
        ptrace::interrupt(pid)?;
    }
    let _ = nix::unistd::write(&go_write, &[1]);
    drop(go_write);
    serve(pid, is_filtered);
    let trapped_ns = read_number(&mut answers)?;
    Ok(trapped_ns.saturating_sub(bare_ns) as f64 / CALLS as f64)
}

fn read_number(answers: &mut File) -> io::Result<u64> {
    let mut bytes = [0; 8];
    answers
        .read_exact(&mut bytes)
        .map_err(|_| io::Error::other("the process that was to be timed has ended"))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Resumes the child at each stop until it has ended.
fn serve(pid: Pid, is_filtered: bool) {
    let mut status = 0;
    let mut is_inside = false;
    loop {
        // SAFETY: the pointer is valid for writing during the call.
        if unsafe { libc::waitpid(pid.as_raw(), &raw mut status, libc::__WALL) } <= 0 {
            return;
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return;
        }
        let _ = call_of(pid.as_raw(), memory_call_filter::ARCHITECTURE);
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

fn time_calls() -> u64 {
    let start = monotonic_ns();
    for _ in 0..CALLS {
        // SAFETY: the kernel refuses a length of 0 before it looks at the address.
        unsafe { libc::syscall(libc::SYS_munmap, 0, 0) };
    }
    monotonic_ns() - start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trapped_call_costs_more_than_none() {
        // Where tracing is forbidden the reason is told.
        for is_filtered in [true, false] {
            match of_call(is_filtered) {
                Ok(cost_ns) => assert!(cost_ns > 100.0, "{cost_ns} ns"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}
