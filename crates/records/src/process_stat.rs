//! `/proc/PID/stat`: what a process is called, what state it is in, when it began.

/// The fields of `/proc/PID/stat` that say which process it is.
///
/// Source: proc_pid_stat(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStat {
    /// The name, at most 15 bytes; may hold any byte but NUL.
    pub name: String,
    /// One letter: R, S, D, T, t, Z, X, I.
    pub state: char,
    /// Kernel flags of the task.
    pub flags: u32,
    /// When it began, in clock ticks after boot; together with the number it names a process for ever.
    pub start_ticks: u64,
}

/// Source: PF_KTHREAD in the kernel's include/linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

impl ProcessStat {
    /// Reads the file's text; the name may hold parentheses and blanks, so it ends at the last `)`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (start, end) = (text.find('(')?, text.rfind(')')?);
        let name = text.get(start + 1..end)?.to_owned();
        let mut fields = text.get(end + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        // Fields are numbered from 1; the state is the third.
        let flags = fields.nth(9 - 4)?.parse().ok()?;
        let start_ticks = fields.nth(22 - 10)?.parse().ok()?;
        Some(Self { name, state, flags, start_ticks })
    }

    /// Whether it has no memory of its own: a thread of the kernel.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether it has ended and only waits for its parent to take notice.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str =
        " S 1 20 20 0 -1 4194560 100 0 3 0 7 2 0 0 20 0 4 0 31415 1000000 200 18446744073709551615 1 1 0";

    #[test]
    fn names_with_parentheses_and_blanks_are_read_whole() {
        let stat = ProcessStat::parse(&format!("42 (a) b (c){REST}")).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.start_ticks), ("a) b (c", 'S', 31415));
        assert!(!stat.is_kernel_thread() && !stat.is_ended());
    }

    #[test]
    fn kernel_threads_and_zombies_are_told_apart() {
        let kernel =
            ProcessStat::parse("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0").unwrap();
        assert!(kernel.is_kernel_thread());
        let zombie =
            ProcessStat::parse("9 (sh) Z 1 9 9 0 -1 4227084 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0").unwrap();
        assert!(zombie.is_ended() && !zombie.is_kernel_thread());
    }

    #[test]
    fn damaged_texts_are_refused() {
        for text in
            ["", "1", "1 (", ") (", "1 (x)", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 y 1 1 1 1 1 1 1 1 1 1 1 1 1 1"]
        {
            assert_eq!(ProcessStat::parse(text), None, "{text}");
        }
    }
}
