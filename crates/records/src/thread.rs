//! What the kernel tells of a thread: `status` and `syscall` under `/proc/PID/task/TID`.

use crate::status;

/// A thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its number, as the process itself knows it: in its own PID namespace.
    pub number: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Where its stack ends at the moment; none while it runs, or where we may not see it.
    pub stack_pointer: Option<u64>,
}

impl Thread {
    /// From the texts of the two files; the second is none where it may not be read. Source: proc_pid_status(5).
    #[must_use]
    pub fn parse(status_text: &str, system_call: Option<&str>) -> Option<Self> {
        let own = status::innermost_number(status_text);
        let number = own.or_else(|| status::number_of_field(status_text, "Pid"))?;
        let name = status::field(status_text, "Name").unwrap_or_default().to_owned();
        Some(Self { number, name, stack_pointer: system_call.and_then(stack_pointer) })
    }
}

/// The system call that a thread waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCall {
    /// Its number, which is another on each architecture.
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

impl SystemCall {
    /// From the text of `syscall`; none of a thread that runs, or waits elsewhere, as in a page fault. Source: proc_pid_syscall(5).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Self { number, arguments })
    }
}

/// `0 0x3 0x7f… … 0x7ffd… 0x7f…`: the last word but one. `running` has none. Source: proc_pid_syscall(5).
fn stack_pointer(system_call: &str) -> Option<u64> {
    let mut words = system_call.split_ascii_whitespace().rev();
    let _instruction = words.next()?;
    let pointer = words.next()?.strip_prefix("0x")?;
    u64::from_str_radix(pointer, 16).ok().filter(|pointer| *pointer != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_own_number_and_its_stack_pointer() {
        let status = "Name:\tGC Thread#0\nPid:\t700\nNSpid:\t700\t12\n";
        let call = "202 0x7f01 0x80 0x2 0x0 0x0 0x0 0x7ffd0010 0x7f45\n";
        let thread = Thread::parse(status, Some(call)).unwrap();
        assert_eq!(
            (thread.number, thread.name.as_str(), thread.stack_pointer),
            (12, "GC Thread#0", Some(0x7ffd_0010))
        );
    }

    #[test]
    fn a_system_call_has_a_number_and_six_arguments() {
        let call = SystemCall::parse("202 0x7f01 0x80 0x2 0x0 0x0 0xffffffffffffffff 0x7ffd0010 0x7f45\n");
        assert_eq!(call, Some(SystemCall { number: 202, arguments: [0x7f01, 0x80, 2, 0, 0, u64::MAX] }));
        for text in
            ["running\n", "", "-1 0x7ffd0000 0x55\n", "-1", "202 0x1 0x2\n", "x 0x0 0x0 0x0 0x0 0x0 0x0"]
        {
            assert_eq!(SystemCall::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_thread_that_runs_or_is_hidden_has_no_stack_pointer() {
        let status = "Name:\tx\nPid:\t7\n";
        for call in [Some("running\n"), Some(""), Some("-1"), Some("-1 0x0 0x0\n"), None] {
            assert_eq!(Thread::parse(status, call).unwrap().stack_pointer, None, "{call:?}");
        }
        assert_eq!(Thread::parse("Name:\tx\n", None), None);
        let blocked = Thread::parse(status, Some("-1 0x7ffd0000 0x55\n")).unwrap();
        assert_eq!(blocked.stack_pointer, Some(0x7ffd_0000));
    }
}
