//! What `faultless churn` saves: sums of all calls, small however long it looked.
//!
//! No rate and no verdict is saved: everything printed can be computed again from these sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measurement::Ending;
use crate::memory_call::Operation;
use crate::saved_form::{self, Recording, check_calls};

/// Version of the saved form; a reader refuses others.
pub const FORMAT: &str = "faultless-churn-recording/1";

/// How many steps a timeline has at most.
pub const TIMELINE_STEPS: usize = 240;

/// A way to see the calls of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// The kernel's tracepoints, through perf_event_open(2).
    #[default]
    Tracepoints,
    /// The kernel's records of new mappings, through perf_event_open(2): no munmap, no madvise, no callers.
    MmapRecords,
    /// A seccomp filter that stops the command at these calls only.
    Seccomp,
    /// ptrace(2): every system call stops.
    Ptrace,
}

impl Mechanism {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracepoints => "tracepoints",
            Self::MmapRecords => "mmap-records",
            Self::Seccomp => "seccomp",
            Self::Ptrace => "ptrace",
        }
    }
}

/// Everything that one observation brought to light.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChurnRecording {
    /// [`FORMAT`] of the tool that wrote it.
    pub format: String,
    /// Version of the tool that looked.
    pub tool_version: String,
    /// What was looked at, in words.
    pub subject: String,
    /// When it began to look, in seconds of Unix time; 0 where that was not saved.
    #[serde(default)]
    pub started_unix_s: u64,
    /// How the command ended; none for a process, and for a command whose time was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// How the calls were seen.
    pub mechanism: Mechanism,
    /// A better way that was refused, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How long it looked, in nanoseconds.
    pub observed_ns: u64,
    /// Processes seen, the first included.
    pub processes: u64,
    /// Threads seen to start, the first ones not included.
    pub threads_started: u64,
    /// Programs started by exec after the first.
    pub execs: u64,
    /// Calls that were lost.
    pub lost_calls: u64,
    /// Some programs' calls were not seen at all: those of 32-bit ones, whose numbers are others.
    #[serde(default)]
    pub is_blind_to_some: bool,
    /// What looking at one call cost the program, in nanoseconds, measured on this machine; none when it was not.
    pub cost_per_call_ns: Option<f64>,
    /// Sums by what the calls did.
    pub operations: BTreeMap<Operation, OperationSum>,
    /// Mappings made and ended while it looked, by size.
    pub ended_mappings: BTreeMap<u8, Lifetimes>,
    /// Anonymous mappings made while it looked that were there at the end.
    pub live_mappings: Amount,
    /// Those of them whose call chains were taken, by chain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub live_callers: Vec<CallerSum>,
    /// Memory given back and made again soon.
    pub cycles: Vec<Cycle>,
    /// The course of time.
    pub timeline: Timeline,
    /// The call chains that callers are known from.
    #[serde(default)]
    pub chains: Chains,
    /// Sums by caller.
    pub callers: Vec<CallerSum>,
    /// Call chains that callers refer to, the innermost frame first.
    pub stacks: Vec<Vec<String>>,
    /// What could not be seen, and what would show it.
    pub remarks: Vec<String>,
}

/// Call chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Chains {
    /// Taken, each of one call.
    pub taken: u64,
    /// Lost on the way.
    pub lost: u64,
}

/// How many and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// How many.
    pub count: u64,
    /// How much together, in bytes.
    pub bytes: u64,
}

impl Amount {
    /// One more, of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// All calls that did the same.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OperationSum {
    /// Those that succeeded, with the bytes they were about.
    pub amount: Amount,
    /// Those that failed.
    pub failed: u64,
    /// Those that succeeded, by the power of two at or below their size.
    pub sizes: BTreeMap<u8, Amount>,
}

/// How long things of one size lived.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lifetimes {
    /// How many ended, and their bytes.
    pub amount: Amount,
    /// How many, by the power of two at or below their life in nanoseconds.
    pub by_life: BTreeMap<u8, u64>,
}

/// What happens again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// A mapping is made and given back soon after, as a whole or in pieces.
    Mapping,
    /// The top of the heap is given back and grown again soon after.
    TopTrim,
    /// The same pages of a thread's arena are given back again.
    ArenaTrim,
    /// A heap of a thread's arena is made and given back soon after.
    ArenaHeap,
    /// The same pages, not of an arena of glibc, are given back again.
    Purge,
    /// A thread's stack is made and given back soon after.
    Stack,
    /// A mapping is made smaller, and as much is mapped again soon after.
    Resize,
    /// Shared memory without a file is mapped and given back soon after.
    Shared,
    /// What malloc keeps is given back because the program calls malloc_trim; told from others by call chains alone, so in no cycle.
    MallocTrim,
}

/// One pattern at one size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// What happens.
    pub pattern: Pattern,
    /// Power of two at or below the bytes given back at a time.
    pub size_class: u8,
    /// How often, and the bytes given back.
    pub amount: Amount,
    /// Fewest bytes at a time.
    pub smallest_bytes: u64,
    /// Most bytes at a time.
    pub largest_bytes: u64,
    /// When it was seen first and last, in nanoseconds from the beginning.
    pub seen_ns: (u64, u64),
    /// Time between making and giving back (or giving back and making again), in nanoseconds, all added up.
    pub gap_sum_ns: u64,
}

/// Equal steps of time from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a step in nanoseconds.
    pub step_ns: u64,
    /// Calls in each step.
    pub calls: Vec<u64>,
    /// Bytes given back in each step.
    pub returned_bytes: Vec<u64>,
}

/// Calls of one kind from one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerSum {
    /// Index into [`ChurnRecording::stacks`].
    pub stack: u32,
    /// What they did.
    pub operation: Operation,
    /// How many, and their bytes; scaled up where only some stacks were taken.
    pub amount: Amount,
}

impl ChurnRecording {
    /// Seconds that were observed.
    #[must_use]
    pub fn observed_s(&self) -> f64 {
        self.observed_ns as f64 / 1e9
    }

    /// Bytes that went back to the kernel, by whichever calls.
    #[must_use]
    pub fn bytes_given_back(&self) -> u64 {
        self.bytes_where(Operation::gives_back)
    }

    /// Bytes of these operations.
    #[must_use]
    pub fn bytes_of(&self, operations: &[Operation]) -> u64 {
        self.bytes_where(|operation| operations.contains(&operation))
    }

    fn bytes_where(&self, is_meant: impl Fn(Operation) -> bool) -> u64 {
        let sums = self.operations.iter().filter(|(operation, _)| is_meant(**operation));
        sums.map(|(_, sum)| sum.amount.bytes).fold(0, u64::saturating_add)
    }
}

impl Recording for ChurnRecording {
    const FORMAT: &'static str = FORMAT;

    fn check(&self) -> Result<(), String> {
        saved_form::check(&self.format, FORMAT)?;
        let operations = self.operations.values().flat_map(|sum| {
            let sizes = sum.sizes.values().map(|amount| amount.count);
            sizes.chain([sum.amount.count, sum.failed])
        });
        check_calls(operations)?;
        check_calls(self.cycles.iter().map(|cycle| cycle.amount.count))?;
        check_calls(self.callers.iter().map(|caller| caller.amount.count))?;
        check_calls(self.timeline.calls.iter().copied())
    }
}

/// The power of two at or below a number, as its exponent; 0 for 0.
#[must_use]
pub fn class_of(number: u64) -> u8 {
    u8::try_from(number.checked_ilog2().unwrap_or(0)).unwrap_or(63)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 135_168, u64::MAX].map(class_of), [0, 0, 1, 1, 2, 17, 63]);
    }
}
