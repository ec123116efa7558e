//! Looks at what a process has mapped for faults outside of all that is known: mremap(2) makes mappings without a record.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use faultless_probe::process::Process;

use crate::callers::Images;

/// Looks take one part in so many of the time at most, and some at the beginning: a process may have 60,000 mappings.
const PART: u32 = 20;
const AT_FIRST: Duration = Duration::from_millis(10);

/// What was spent on them.
#[derive(Debug)]
pub struct SecondLooks {
    began: Instant,
    spent: Duration,
    /// Processes looked at in this turn: what is not there now was gone before.
    looked_at: HashSet<i32>,
}

impl SecondLooks {
    /// None yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), spent: Duration::ZERO, looked_at: HashSet::new() }
    }

    /// Other records have come.
    pub fn turn(&mut self) {
        self.looked_at.clear();
    }

    /// Looks at the process, unless it was in this turn, is over, or too much time went into that.
    pub fn look(&mut self, pid: i32, images: &mut Images) {
        let began = Instant::now();
        let is_affordable = self.spent <= AT_FIRST + began.duration_since(self.began) / PART;
        if is_affordable
            && images.lives(pid)
            && self.looked_at.insert(pid)
            && let Ok(process) = Process::open(pid)
        {
            // One that cannot be read has memory that stays unknown.
            let _ = images.adopt_missing(&process);
            self.spent += began.elapsed();
        }
    }
}
