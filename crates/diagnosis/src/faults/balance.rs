//! How the figures agree with the kernel's own accounts of the processes, and what lies between them.

use faultless_records::fault_recording::{FaultCounts, FaultRecording};

/// The kernel's account of a process (`ru_minflt`, `ru_majflt`) and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// What the accounts say; none when they could not be read.
    pub accounts: Option<FaultCounts>,
    /// Events in programs.
    pub user: FaultCounts,
    /// Events inside system calls; none when they were not permitted to be seen.
    pub kernel: Option<FaultCounts>,
    /// Before the command began.
    pub before: FaultCounts,
    /// What is left: pages populated without an event (`MAP_POPULATE`, `MADV_POPULATE_*`, `mlock`, direct I/O, the stack that
    /// execve writes); and, where system calls could not be seen, the faults in them.
    pub without_event: Option<FaultCounts>,
    /// The events are more than the accounts: of processes that nobody waited for.
    pub beyond_accounts: FaultCounts,
}

impl Balance {
    /// The balance of a recording.
    #[must_use]
    pub fn of(recording: &FaultRecording) -> Self {
        let counters = recording.counters;
        let kernel = counters.kernel.unwrap_or_default();
        let known = counters.user.plus(kernel).plus(counters.before);
        let accounts = counters.accounts;
        Self {
            accounts,
            user: counters.user,
            kernel: counters.kernel,
            before: counters.before,
            without_event: accounts.map(|accounts| accounts.minus(known)),
            beyond_accounts: known.minus(accounts.unwrap_or(known)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::weight::tests::recording;
    use super::*;

    #[test]
    fn accounts_are_the_sum_of_their_parts() {
        let balance = Balance::of(&recording());
        assert_eq!(balance.without_event, Some(FaultCounts { minor: 30, major: 2 }));
        assert_eq!(balance.beyond_accounts, FaultCounts::default());
    }

    #[test]
    fn more_events_than_accounts_are_of_processes_nobody_waited_for() {
        let mut recording = recording();
        recording.counters.kernel = Some(FaultCounts { minor: 100, major: 0 });
        let balance = Balance::of(&recording);
        assert_eq!(balance.beyond_accounts.minor, 70);
        assert_eq!(balance.without_event, Some(FaultCounts { minor: 0, major: 2 }));
        recording.counters.accounts = None;
        assert_eq!(Balance::of(&recording).without_event, None);
    }
}
