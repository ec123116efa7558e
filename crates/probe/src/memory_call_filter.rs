//! The calls that change mappings, by number, and the seccomp filter that stops a process at these alone: seccomp(2).

use std::io;

use faultless_records::memory_call::CallKind;
use nix::libc;

/// The calls: numbers on the machine this is built for, what they are, and the kernel's names.
pub(crate) const CALLS: &[(libc::c_long, CallKind, &str)] = &[
    (libc::SYS_mmap, CallKind::Mmap, "mmap"),
    (libc::SYS_munmap, CallKind::Munmap, "munmap"),
    (libc::SYS_brk, CallKind::Brk, "brk"),
    (libc::SYS_mremap, CallKind::Mremap, "mremap"),
    (libc::SYS_madvise, CallKind::Madvise, "madvise"),
    (libc::SYS_mprotect, CallKind::Mprotect, "mprotect"),
    (libc::SYS_pkey_mprotect, CallKind::Mprotect, "pkey_mprotect"),
];

/// `AUDIT_ARCH_*` of this machine: calls of other kinds (32-bit programs) have other numbers. Source: linux/audit.h.
pub const ARCHITECTURE: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };

/// Where `struct seccomp_data` has the number and the architecture. Source: linux/seccomp.h.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// What the call of this number is; none when it changes no mappings.
#[must_use]
pub fn kind_of(number: u64) -> Option<CallKind> {
    let number = libc::c_long::try_from(number).ok()?;
    CALLS.iter().find(|(known, _, _)| *known == number).map(|(_, kind, _)| *kind)
}

/// Whether this kernel knows filters that stop for a tracer.
///
/// # Errors
/// The kernel's reason, when it does not.
pub fn check() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_TRACE;
    // SAFETY: the call reads one number through a pointer that is valid for it.
    match unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The filter's instructions: stop at our calls, let all others pass.
#[must_use]
pub(crate) fn program() -> Vec<libc::sock_filter> {
    let calls = u8::try_from(CALLS.len()).unwrap_or(0);
    let mut program =
        vec![load(ARCHITECTURE_OFFSET), equals(ARCHITECTURE, 0, calls + 1), load(NUMBER_OFFSET)];
    for (place, (number, _, _)) in (0..calls).zip(CALLS) {
        // Over the comparisons that are left and over the answer "allow".
        program.push(equals(u32::try_from(*number).unwrap_or(u32::MAX), calls - place, 0));
    }
    program.extend([answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_TRACE)]);
    program
}

/// What `attempt` returns on a thread whose calls of this number, or those with this first argument alone, fail with this error.
///
/// # Panics
/// When the kernel takes no filter.
#[cfg(test)]
pub(crate) fn where_refused<T: Send>(
    call: libc::c_long,
    first_argument: Option<u32>,
    errno: i32,
    attempt: impl FnOnce() -> T + Send,
) -> T {
    const FIRST_ARGUMENT_OFFSET: u32 = 16;
    let argument = first_argument.map(|argument| [load(FIRST_ARGUMENT_OFFSET), equals(argument, 0, 1)]);
    let argument = argument.as_ref().map_or(&[][..], |steps| steps);
    let over = u8::try_from(argument.len() + 1).unwrap();
    let begin = [load(NUMBER_OFFSET), equals(u32::try_from(call).unwrap(), 0, over)];
    let end = [answer(libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()), answer(libc::SECCOMP_RET_ALLOW)];
    let filter = [&begin, argument, &end].concat();
    let attempt = || {
        install(&filter).unwrap();
        attempt()
    };
    std::thread::scope(|scope| scope.spawn(attempt).join().unwrap())
}

fn load(offset: u32) -> libc::sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn equals(number: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, then, otherwise)
}

fn answer(action: u32) -> libc::sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
}

/// Puts this process, which no other thread shares, under the filter; nothing for an empty one. Async-signal-safe.
///
/// Without the right to do so as it is, it also gives up gaining privileges by exec.
///
/// # Errors
/// The number of the error.
pub(crate) fn install(filter: &[libc::sock_filter]) -> Result<(), i32> {
    if filter.is_empty() {
        return Ok(());
    }
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_ptr().cast_mut(),
    };
    let install = || {
        // SAFETY: `program` and the instructions it points to live through the call, which only reads them.
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) == 0 }
    };
    if install() {
        return Ok(());
    }
    // SAFETY: a plain system call with numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0 && install() {
        return Ok(());
    }
    // SAFETY: the pointer is this thread's own error number.
    Err(unsafe { *libc::__errno_location() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn run(architecture: u32, number: u32) -> u32 {
        let program = program();
        let (mut place, mut accumulator) = (0, 0);
        loop {
            let instruction = program[place];
            place += 1;
            match u32::from(instruction.code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    accumulator = if instruction.k == ARCHITECTURE_OFFSET { architecture } else { number };
                }
                code if code == libc::BPF_RET | libc::BPF_K => return instruction.k,
                _ => {
                    let jump = if accumulator == instruction.k { instruction.jt } else { instruction.jf };
                    place += usize::from(jump);
                }
            }
        }
    }

    #[test]
    fn the_filter_stops_at_our_calls_of_our_architecture_only() {
        for number in 0..1000 {
            let expected = match kind_of(u64::from(number)) {
                Some(_) => libc::SECCOMP_RET_TRACE,
                None => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(run(ARCHITECTURE, number), expected, "{number}");
            assert_eq!(run(0x4000_0003, number), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!((0..1000).filter(|number| kind_of(*number).is_some()).count(), CALLS.len());
    }
}
