//! What is known about an observation besides its calls.

use faultless_records::churn_recording::Mechanism;
use faultless_records::malloc_recording::{MallocCost, MallocMechanism};
use faultless_records::measurement::Ending;

/// What is known about an observation of calls of the kernel.
#[derive(Debug, Clone, Default)]
pub struct Circumstances {
    /// What was looked at, in words.
    pub subject: String,
    /// When it began to look, in seconds of Unix time.
    pub started_unix_s: u64,
    /// How the command ended, if it came to its own end.
    pub ending: Option<Ending>,
    /// How the calls were seen.
    pub mechanism: Mechanism,
    /// A better way that was refused, and why.
    pub refused: Option<String>,
    /// How long it looked, in nanoseconds.
    pub observed_ns: u64,
    /// Some programs' calls were not seen at all.
    pub is_blind_to_some: bool,
    /// What looking at one call cost, in nanoseconds.
    pub cost_per_call_ns: Option<f64>,
    /// Call chains that the calls' stacks refer to.
    pub stacks: Vec<Vec<String>>,
    /// What could not be seen.
    pub remarks: Vec<String>,
}

/// What is known about an observation of calls of malloc.
#[derive(Debug, Clone, Default)]
pub struct MallocCircumstances {
    /// What was looked at, in words.
    pub subject: String,
    /// When it began to look, in seconds of Unix time.
    pub started_unix_s: u64,
    /// How the command ended, if it came to its own end.
    pub ending: Option<Ending>,
    /// How the calls were seen.
    pub mechanism: MallocMechanism,
    /// How long it looked, in nanoseconds.
    pub observed_ns: u64,
    /// What looking cost.
    pub cost: MallocCost,
    /// Call chains that the calls' stacks refer to.
    pub stacks: Vec<Vec<String>>,
    /// What could not be seen.
    pub remarks: Vec<String>,
}
