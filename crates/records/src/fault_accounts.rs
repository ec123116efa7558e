//! The page faults and CPU time in a process's own accounts.

use crate::counters::Counters;
use crate::fault_recording::FaultCounts;

/// What a process and the children it waited for have used since they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultAccounts {
    /// Page faults of all its threads.
    pub own: FaultCounts,
    /// The same of its children.
    pub children: FaultCounts,
    /// CPU time in the program and in the kernel, in clock ticks.
    pub cpu_ticks: u64,
}

impl FaultAccounts {
    /// Reads the bytes of `/proc/PID/stat`; none when they are not whole.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let counters = Counters::parse(bytes)?;
        Some(Self {
            own: FaultCounts { minor: counters.minor_faults, major: counters.major_faults },
            children: FaultCounts {
                minor: counters.children_minor_faults,
                major: counters.children_major_faults,
            },
            cpu_ticks: counters.user_ticks.saturating_add(counters.system_ticks),
        })
    }

    /// Page faults with those of its children.
    #[must_use]
    pub fn all(&self) -> FaultCounts {
        self.own.plus(self.children)
    }
}
