//! What `faultless churn --malloc` saves: sums, small however long it looked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::churn_recording::Amount;
use crate::malloc_event::MallocFunction;
use crate::measurement::Ending;
use crate::saved_form::{self, Recording, check_calls};

/// Version of the saved form; a reader refuses others.
pub const FORMAT: &str = "faultless-churn-malloc-recording/1";

/// A way to see calls of malloc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MallocMechanism {
    /// A preloaded library counts them.
    #[default]
    Recorder,
    /// The kernel stops at the functions' first and last instructions.
    Uprobes,
}

impl MallocMechanism {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Recorder => "recorder",
            Self::Uprobes => "uprobes",
        }
    }
}

/// A number that was estimated from some of the calls, and the bytes of these.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// How many.
    pub count: f64,
    /// Bytes asked for together.
    pub bytes: f64,
}

impl Estimate {
    /// Adds a block that stands for so many.
    pub fn add(&mut self, weight: f64, size_bytes: u64) {
        self.count += weight;
        self.bytes += weight * size_bytes as f64;
    }

    /// Adds another, so many times.
    pub fn add_scaled(&mut self, other: Self, factor: f64) {
        self.add_by(other, Self { count: factor, bytes: factor });
    }

    /// Adds another, its count so many times, and its bytes so many.
    pub fn add_by(&mut self, other: Self, factors: Self) {
        self.count += other.count * factors.count;
        self.bytes += other.bytes * factors.bytes;
    }

    /// Its count so many times, and its bytes so many.
    #[must_use]
    pub fn times(self, factors: Self) -> Self {
        Self { count: self.count * factors.count, bytes: self.bytes * factors.bytes }
    }
}

/// Everything that one observation brought to light.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MallocRecording {
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
    pub mechanism: MallocMechanism,
    /// How long it looked, in nanoseconds.
    pub observed_ns: u64,
    /// Processes whose calls were seen.
    pub processes: u64,
    /// Programs that were started in them by exec and seen, after the first of each.
    #[serde(default)]
    pub execs: u64,
    /// Calls that got a block by function, exact, with their sizes by power of two.
    pub functions: BTreeMap<MallocFunction, FunctionSum>,
    /// Calls of free with a block, exact.
    pub frees: u64,
    /// Calls of realloc that freed a block, because no bytes were asked for, exact; not among `functions`.
    #[serde(default)]
    pub freed_by_realloc: u64,
    /// Calls that got no memory, exact.
    pub failed: u64,
    /// Calls that were described: what all estimates are made from.
    pub described: u64,
    /// Descriptions that were lost; by uprobes: hits of probes, whose calls are in no figure.
    pub lost: u64,
    /// Threads whose calls are in no figure.
    #[serde(default)]
    pub uncounted_threads: u64,
    /// What became of the blocks, by power of two of their size.
    pub sizes: BTreeMap<u8, BlockLives>,
    /// Most bytes that lived at once; where they are estimated, less two standard errors.
    pub peak_live_bytes: f64,
    /// Who held them then, most bytes first; nothing in recordings from before it was saved.
    #[serde(default)]
    pub held_at_peak: Vec<PeakHolder>,
    /// Standard error of the bytes that live at the end; 0 where nothing was estimated, and of recordings from before it was saved.
    #[serde(default)]
    pub live_error_bytes: f64,
    /// Blocks that live at the end, exact; none where that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live_blocks: Option<u64>,
    /// What threads allocated and freed.
    pub threads: Vec<ThreadSum>,
    /// Blocks that were freed by another thread than the one that allocated them.
    pub handovers: Vec<Handover>,
    /// Sums by caller.
    pub callers: Vec<MallocCaller>,
    /// Call chains that callers refer to, the innermost frame first.
    pub stacks: Vec<Vec<String>>,
    /// What looking cost.
    pub cost: MallocCost,
    /// What could not be seen, and what would show it.
    pub remarks: Vec<String>,
}

impl MallocRecording {
    /// Seconds that were observed.
    #[must_use]
    pub fn observed_s(&self) -> f64 {
        self.observed_ns as f64 / 1e9
    }

    /// Programs whose calls were seen: each has an end of its own.
    #[must_use]
    pub fn programs(&self) -> u64 {
        self.processes.saturating_add(self.execs)
    }

    /// Whether what lives at the end is among the blocks that were followed: where stretches of looking have pauses between them,
    /// what outlives its stretch is not.
    #[must_use]
    pub fn ends_are_known(&self) -> bool {
        let outlived: f64 = self.sizes.values().map(|lives| lives.unknown.count).sum();
        self.mechanism == MallocMechanism::Recorder || outlived < 0.5
    }

    /// Whether more was called than `functions` and the other counts say.
    #[must_use]
    pub fn counts_are_lower_bounds(&self) -> bool {
        self.uncounted_threads > 0 || (self.mechanism == MallocMechanism::Uprobes && self.lost > 0)
    }

    /// Calls by function with those of realloc that freed a block, of which no size is told.
    #[must_use]
    pub fn calls_by_function(&self) -> BTreeMap<MallocFunction, FunctionSum> {
        let mut functions = self.functions.clone();
        if self.freed_by_realloc > 0 {
            let amount = &mut functions.entry(MallocFunction::Realloc).or_default().amount;
            amount.count = amount.count.saturating_add(self.freed_by_realloc);
        }
        functions
    }

    /// Most bytes that lived at once. What lives at the end of a lone process lived at once, too: older recordings may
    /// say less.
    #[must_use]
    pub fn most_live_bytes(&self) -> f64 {
        let live_bytes: f64 = self.sizes.values().map(|lives| lives.live.bytes).sum();
        if self.programs() == 1 { self.peak_live_bytes.max(live_bytes) } else { self.peak_live_bytes }
    }
}

impl Recording for MallocRecording {
    const FORMAT: &'static str = FORMAT;

    fn check(&self) -> Result<(), String> {
        saved_form::check(&self.format, FORMAT)?;
        let functions = self.functions.values().flat_map(|sum| {
            let sizes = sum.sizes.values().map(|amount| amount.count);
            sizes.chain([sum.amount.count])
        });
        check_calls(functions.chain([self.frees, self.freed_by_realloc]))
    }
}

/// All calls of one function.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FunctionSum {
    /// Calls and bytes asked for.
    pub amount: Amount,
    /// The same by power of two at or below the size.
    pub sizes: BTreeMap<u8, Amount>,
}

/// What became of the blocks of one size class; all of it estimated.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BlockLives {
    /// Freed while it looked.
    pub freed: Estimate,
    /// Of these, freed by another thread than the one that allocated them.
    pub freed_elsewhere: Estimate,
    /// There at the end of the process, or of the look.
    pub live: Estimate,
    /// What became of them is not known.
    pub unknown: Estimate,
    /// Freed ones by the power of two at or below their life in nanoseconds.
    pub by_life: BTreeMap<u8, f64>,
}

/// A thread's part; all of it estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadSum {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// Its name.
    pub name: String,
    /// What it allocated.
    pub allocated: Estimate,
    /// What it freed of its own.
    pub freed_own: Estimate,
    /// What it freed of others.
    pub freed_of_others: Estimate,
}

/// Blocks that one thread allocated and another freed; estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handover {
    /// Index into [`MallocRecording::threads`] of the thread that allocated them.
    pub from: usize,
    /// And of the one that freed them.
    pub to: usize,
    /// How many.
    pub amount: Estimate,
}

/// Calls of one function from one place; estimated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MallocCaller {
    /// Index into [`MallocRecording::stacks`].
    pub stack: u32,
    /// The function that was called.
    pub function: MallocFunction,
    /// All calls.
    pub allocated: Estimate,
    /// What of it was there at the end.
    pub live: Estimate,
    /// What became of it is not known; nothing in recordings from before it was saved.
    #[serde(default)]
    pub unknown: Estimate,
    /// Of what was freed, the lives in nanoseconds, all added up.
    pub life_sum_ns: f64,
    /// How much was freed.
    pub freed: Estimate,
}

/// What one place held when most lived; estimated.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PeakHolder {
    /// Index into [`MallocRecording::stacks`].
    pub stack: u32,
    /// Bytes of its blocks.
    pub bytes: f64,
}

/// What looking cost.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct MallocCost {
    /// Counting all calls, in nanoseconds of the program's threads.
    pub counting_ns: f64,
    /// Describing some, in nanoseconds of the program's threads.
    pub describing_ns: f64,
    /// Processor time of the tool, in nanoseconds.
    pub tool_ns: f64,
}
