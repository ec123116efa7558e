//! Processes whose first thread has ended.

use std::collections::HashMap;

/// The first thread may end before the others, which go on in the same memory or make another program of it. That none is left
/// shows at once, but what they did before is told only by records that may not have been read yet: the end of a process is
/// believed when all records up to then have been.
#[derive(Default)]
pub struct Leaderless {
    /// When no thread was found any more, in nanoseconds of the records' clock.
    gone_by_ns: HashMap<i32, Option<u64>>,
}

impl Leaderless {
    /// The first thread of this process has ended.
    pub fn insert(&mut self, pid: i32) {
        self.gone_by_ns.entry(pid).or_default();
    }

    /// The number is that of a first thread again: of another program's, or another process's. Whether it was here.
    pub fn remove(&mut self, pid: i32) -> bool {
        self.gone_by_ns.remove(&pid).is_some()
    }

    /// Looks for threads; to be called before records are read.
    pub fn look(&mut self, lives: impl Fn(i32) -> bool, now_ns: u64) {
        for (pid, gone_by_ns) in &mut self.gone_by_ns {
            if gone_by_ns.is_none() && !lives(*pid) {
                *gone_by_ns = Some(now_ns);
            }
        }
    }

    /// The processes that have ended, of which all is known when all records older than this moment have been taken.
    pub fn ended(&mut self, read_until_ns: u64) -> Vec<i32> {
        let is_over = |_: &i32, gone_by_ns: &mut Option<u64>| gone_by_ns.is_some_and(|by| by < read_until_ns);
        self.gone_by_ns.extract_if(is_over).map(|(pid, _)| pid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(i32) -> bool = |_| false;

    #[test]
    fn a_process_that_became_another_program_before_we_looked_has_not_ended() {
        // Another thread of it called exec, and the new program has ended, too, when the first record is read.
        let mut leaderless = Leaderless::default();
        leaderless.look(NONE, 100);
        leaderless.insert(7);
        assert!(leaderless.ended(90).is_empty());
        leaderless.look(NONE, 200);
        assert!(leaderless.ended(190).is_empty(), "the record of the exec may be of 195");
        assert!(leaderless.remove(7));
        leaderless.look(NONE, 300);
        assert!(leaderless.ended(u64::MAX).is_empty());
    }

    #[test]
    fn a_process_without_threads_has_ended_when_all_its_records_are_read() {
        let mut leaderless = Leaderless::default();
        leaderless.insert(7);
        leaderless.look(|_| true, 100);
        assert!(leaderless.ended(u64::MAX).is_empty(), "others go on");
        leaderless.look(NONE, 200);
        leaderless.look(NONE, 300);
        assert!(leaderless.ended(200).is_empty());
        assert_eq!(leaderless.ended(201), [7]);
        assert!(leaderless.ended(u64::MAX).is_empty(), "it ends once");
        assert!(!leaderless.remove(7));
    }
}
