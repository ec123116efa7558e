//! Children that a process had before it was observed. Their whole lives enter its accounts when it waits for them, and no event
//! counted what they did.

use std::time::{Duration, Instant};

use faultless_probe::process::Process;
use faultless_probe::process_list::{Refused, Selection};
use faultless_records::fault_accounts::FaultAccounts;
use faultless_records::fault_recording::FaultCounts;

use super::recorder::accounts;

/// How often their accounts are read: what they do after the last time, before they end, is not known.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The children, and what their accounts said last.
pub struct EarlierChildren {
    children: Vec<Child>,
    looked: Instant,
}

struct Child {
    process: Process,
    accounts: FaultAccounts,
    is_there: bool,
}

impl EarlierChildren {
    /// Those that a process has now; none where they cannot be listed.
    pub fn of(process: &Process) -> Self {
        let pid = process.pid();
        let selection = Selection { matcher: None, with_children: true };
        let found = Refused::default().search(&selection, &|parent| parent == pid).unwrap_or_default();
        let child = |pid| {
            let process = Process::open(pid).ok()?;
            Some(Child { accounts: accounts(&process)?, process, is_there: true })
        };
        let own = found.into_iter().filter(|candidate| candidate.parent == pid);
        Self { children: own.filter_map(|candidate| child(candidate.pid)).collect(), looked: Instant::now() }
    }

    /// Reads their accounts, if it is time.
    pub fn look_sometimes(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.look();
        }
    }

    /// Reads their accounts.
    pub fn look(&mut self) {
        self.looked = Instant::now();
        for child in self.children.iter_mut().filter(|child| child.is_there) {
            // One that has ended has its accounts until it is waited for.
            match accounts(&child.process) {
                Some(accounts) => child.accounts = accounts,
                None => child.is_there = false,
            }
        }
    }

    /// The faults of those that were waited for.
    pub fn gone(&self) -> FaultCounts {
        let gone = self.children.iter().filter(|child| !child.is_there);
        gone.fold(FaultCounts::default(), |sum, child| sum.plus(child.accounts.all()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_child_did_before_is_known_when_it_has_been_waited_for() {
        let mut parent = Command::new("sh")
            .args(["-c", "sh -c 'read first; exit'; read second"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::open(parent.id().cast_signed()).unwrap();
        let mut children = EarlierChildren::of(&process);
        // The shell starts it when it likes, and it becomes the other shell when that likes.
        while children
            .children
            .iter()
            .all(|child| child.process.name() != "sh" || child.accounts.own.minor < 50)
        {
            children = EarlierChildren::of(&process);
        }
        assert_eq!(children.gone(), FaultCounts::default());
        let before = accounts(&process).unwrap();
        let input = parent.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
        while children.gone() == FaultCounts::default() {
            children.look();
        }
        let since = accounts(&process).unwrap().children.minor - before.children.minor;
        assert!(since >= children.gone().minor, "{since} and {:?}", children.gone());
        parent.stdin.take();
        parent.wait().unwrap();
    }
}
