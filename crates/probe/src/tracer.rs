//! Single requests of ptrace(2) and the waiting for what traced threads have to say.

use std::io;

use faultless_records::measurement::Ending;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::perf_record::{Registers, Sample};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

/// With these a thread tells of its calls by stops of their own, and whatever it starts is traced, too.
pub(crate) const FAMILY: Options = Options::PTRACE_O_TRACESYSGOOD
    .union(Options::PTRACE_O_TRACECLONE)
    .union(Options::PTRACE_O_TRACEFORK)
    .union(Options::PTRACE_O_TRACEVFORK)
    .union(Options::PTRACE_O_TRACEEXEC);

/// The signal of a stop at a call, under `PTRACE_O_TRACESYSGOOD`; that of a breakpoint lacks the bit.
pub(crate) const CALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// A call that a thread stands at, or comes back from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Before the call.
    Entry {
        /// Its number.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// After it, with the register of its answer.
    Exit {
        /// Answer, or error below zero.
        answer: i64,
    },
}

/// `struct ptrace_syscall_info` up to its last member. Source: linux/ptrace.h.
#[repr(C)]
#[derive(Default)]
struct CallInfo {
    op: u8,
    padding: [u8; 3],
    architecture: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// Entry and seccomp: number, then arguments. Exit: answer, then whether it is an error.
    words: [u64; 8],
}

pub(crate) const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;
const EXIT: u8 = 2;
const SECCOMP: u8 = 3;

/// The call that a stopped thread is at; none when it is at none, is gone, or the call is of another architecture.
#[must_use]
pub fn call_of(tid: i32, architecture: u32) -> Option<Stop> {
    let mut info = CallInfo::default();
    // SAFETY: the kernel writes at most the given number of bytes into a struct of that size, of integers only.
    let written = unsafe {
        libc::ptrace(
            GET_SYSCALL_INFO,
            tid,
            std::mem::size_of::<CallInfo>(),
            (&raw mut info).cast::<libc::c_void>(),
        )
    };
    if written <= 0 {
        return None;
    }
    match info.op {
        ENTRY | SECCOMP if info.architecture == architecture => {
            let [number, arguments @ .., _] = info.words;
            Some(Stop::Entry { number, arguments })
        }
        EXIT => Some(Stop::Exit { answer: info.words[0].cast_signed() }),
        _ => None,
    }
}

/// Bytes of the stack that are read from a stopped thread.
const STACK_BYTES: usize = 16 << 10;

/// Registers and stack of a stopped thread, as a sample of performance events holds them; none when it is gone.
#[must_use]
pub fn sample_of(tid: i32) -> Option<Sample> {
    let registers = registers(tid)?;
    let mut stack = vec![0; STACK_BYTES];
    let read = read_memory(tid, registers.sp, &mut stack);
    stack.truncate(read);
    Some(Sample { ip: registers.ip, registers: Some(registers), stack, ..Sample::default() })
}

#[cfg(target_arch = "x86_64")]
fn registers(tid: i32) -> Option<Registers> {
    let all = ptrace::getregs(Pid::from_raw(tid)).ok()?;
    Some(Registers { ip: all.rip, sp: all.rsp, fp: all.rbp, lr: 0 })
}

#[cfg(target_arch = "aarch64")]
fn registers(tid: i32) -> Option<Registers> {
    let all = ptrace::getregset::<ptrace::regset::NT_PRSTATUS>(Pid::from_raw(tid)).ok()?;
    Some(Registers { ip: all.pc, sp: all.sp, fp: all.regs[29], lr: all.regs[30] })
}

/// Reads up to where nothing is mapped; how many bytes that were.
fn read_memory(tid: i32, address: u64, buffer: &mut [u8]) -> usize {
    let end = address.saturating_add(buffer.len() as u64);
    let mut remote = Vec::new();
    let mut at = address;
    // A piece for each page: the kernel reads whole pieces only.
    while at < end {
        // In the last page of all addresses there is no next one.
        let next = (at | (PAGE_BYTES - 1)).checked_add(1).map_or(end, |next| next.min(end));
        remote.push(libc::iovec { iov_base: at as *mut libc::c_void, iov_len: (next - at) as usize });
        at = next;
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most the buffer's length into it; what it reads is another process's.
    let read = unsafe {
        libc::process_vm_readv(tid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    usize::try_from(read).unwrap_or(0)
}

/// The number that came with an event: a new thread's, or of one that exec left behind.
#[must_use]
pub fn event_message(tid: i32) -> Option<i32> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one number through the pointer.
    let answer = unsafe {
        libc::ptrace(
            libc::PTRACE_GETEVENTMSG,
            tid,
            std::ptr::null_mut::<libc::c_void>(),
            (&raw mut message).cast::<libc::c_void>(),
        )
    };
    (answer == 0).then(|| i32::try_from(message).ok()).flatten()
}

/// Begins to trace a thread of another process, with options for what it starts, and asks it to stop.
///
/// # Errors
/// The kernel's reason, such as missing rights or another tracer.
pub fn seize(tid: i32) -> io::Result<()> {
    ptrace::seize(Pid::from_raw(tid), FAMILY)?;
    interrupt(tid);
    Ok(())
}

/// Asks a traced thread to stop; one that is gone does not.
pub fn interrupt(tid: i32) {
    crate::watch::resume(libc::PTRACE_INTERRUPT, tid, 0);
}

/// All that the threads which this thread traces have to say now; the error `ECHILD` when there are none left.
///
/// All are heard before one is answered: who stops again at once would be heard before the others, over and over.
///
/// # Errors
/// The kernel's reason.
pub fn changes() -> io::Result<Vec<(i32, i32)>> {
    let mut changes = Vec::new();
    loop {
        let mut status = 0;
        // SAFETY: the pointer is valid for writing during the call.
        match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD) }
        {
            0 => return Ok(changes),
            pid if pid > 0 => changes.push((pid, status)),
            // The next look says so, too.
            _ if !changes.is_empty() => return Ok(changes),
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// How a process or thread ended, by a status of wait(2); none when it did not.
pub(crate) fn ending(status: i32) -> Option<Ending> {
    if libc::WIFEXITED(status) {
        return Some(Ending::Exited(libc::WEXITSTATUS(status)));
    }
    libc::WIFSIGNALED(status).then(|| Ending::Killed(libc::WTERMSIG(status)))
}

/// Whether a seized thread stopped because job control stopped its process. Source: ptrace(2), "Group-stop".
pub(crate) fn is_job_control(signal: i32, event: i32) -> bool {
    let stops_process = matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU);
    event == libc::PTRACE_EVENT_STOP && stops_process
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_up_to_where_nothing_is_mapped_and_never_beyond_the_last_page() {
        let own = std::process::id().cast_signed();
        let (bytes, mut copy) = (*b"some bytes", [0; 10]);
        assert_eq!(read_memory(own, bytes.as_ptr().addr() as u64, &mut copy), 10);
        assert_eq!(copy, bytes);
        for at in [0, u64::MAX, u64::MAX - 7, u64::MAX - 4095] {
            assert_eq!(read_memory(own, at, &mut [0; 8192]), 0, "{at:#x}");
        }
    }

    #[test]
    fn of_threads_that_stop_all_the_time_each_has_its_turn() {
        use std::process::{Command, Stdio};
        let start = || Command::new("yes").stdout(Stdio::null()).spawn().unwrap();
        let mut children = [start(), start(), start(), start()];
        let pids = children.each_ref().map(|child| child.id().cast_signed());
        let mut stops = [0_u32; 4];
        let seized = pids.iter().try_for_each(|pid| seize(*pid));
        let have_had_turns = |stops: &[u32]| stops.iter().all(|stops| *stops > 100);
        // On busy CPUs one may begin long after the others.
        while seized.is_ok() && !have_had_turns(&stops) && stops.iter().sum::<u32>() < 40_000 {
            for (pid, status) in changes().unwrap() {
                assert!(libc::WIFSTOPPED(status), "{status:#x}");
                stops[pids.iter().position(|other| *other == pid).unwrap()] += 1;
                crate::watch::resume(libc::PTRACE_SYSCALL, pid, 0);
                // Time enough to stop again before it is asked who did.
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        match seized {
            // Those heard last stopped once while those heard first stopped thousands of times.
            Ok(()) => assert!(have_had_turns(&stops), "{stops:?}"),
            Err(error) => faultless_skipped::skipped(format!("nobody may trace here: {error}")),
        }
    }
}
