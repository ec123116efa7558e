//! The page faults and CPU time in a process's own accounts.

use crate::counters::Counters;

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
    /// Reads the bytes of `/proc/PID/stat`; none when they are not whole.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let counters = Counters::parse(bytes)?;
        Some(Self {
            minor: counters.minor_faults,
            children_minor: counters.children_minor_faults,
            major: counters.major_faults,
            children_major: counters.children_major_faults,
            cpu_ticks: counters.user_ticks.saturating_add(counters.system_ticks),
        })
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
