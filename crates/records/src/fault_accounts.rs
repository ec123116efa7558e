//! The page faults and CPU time in a process's own accounts: `/proc/PID/stat`.

/// What a process and the children it waited for have used since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultAccounts {
    /// Page faults served without I/O, of all its threads.
    pub minor: u64,
    /// The same of its children.
    pub children_minor: u64,
    /// Page faults that needed I/O.
    pub major: u64,
    /// The same of its children.
    pub children_major: u64,
    /// CPU time in the program and in the kernel, in clock ticks.
    pub cpu_ticks: u64,
}

impl FaultAccounts {
    /// Reads the file's text. Source: proc_pid_stat(5), fields 10 to 15.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fields = text.get(text.rfind(')')? + 1..)?;
        let mut numbers = fields.split_ascii_whitespace().skip(7).map(|word| word.parse::<u64>().ok());
        let mut next = || numbers.next()?;
        let (minor, children_minor, major, children_major) = (next()?, next()?, next()?, next()?);
        let cpu_ticks = next()?.saturating_add(next()?);
        Some(Self { minor, children_minor, major, children_major, cpu_ticks })
    }

    /// Minor faults with those of children.
    #[must_use]
    pub fn minor_with_children(&self) -> u64 {
        self.minor.saturating_add(self.children_minor)
    }

    /// Major faults with those of children.
    #[must_use]
    pub fn major_with_children(&self) -> u64 {
        self.major.saturating_add(self.children_major)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_whatever_the_name() {
        let text = "42 (a) b) S 1 20 20 0 -1 4194560 100 11 3 2 7 5 0 0 20 0 4 0 31415";
        let accounts = FaultAccounts::parse(text).unwrap();
        assert_eq!((accounts.minor_with_children(), accounts.major_with_children()), (111, 5));
        assert_eq!(accounts.cpu_ticks, 12);
        assert_eq!(FaultAccounts::parse("42 (a) S 1 2"), None);
        assert_eq!(FaultAccounts::parse(""), None);
    }
}
