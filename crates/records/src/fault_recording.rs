//! A recording of page faults: what `faultless faults --record` saves. It holds names already, so it can be read on
//! another machine.

use serde::{Deserialize, Serialize};

use crate::bench::Machine;
use crate::call_tree::CallTree;
use crate::saved_form::{self, Recording, check_sum};

/// Version of the saved form.
pub const FORMAT: &str = "faultless-faults-recording/1";

/// The page faults of a command or process, by where and by whom.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FaultRecording {
    /// [`FORMAT`] of the tool that wrote it.
    pub format: String,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// When it began, in seconds since 1970-01-01 UTC.
    pub started_unix_s: u64,
    /// How long it took, in ns.
    pub duration_ns: u64,
    /// Where.
    pub machine: Machine,
    /// What was observed.
    pub subject: Subject,
    /// How.
    pub method: Method,
    /// What the kernel counted.
    pub counters: Counters,
    /// What observing cost.
    pub cost: Cost,
    /// The processes.
    pub processes: Vec<FaultProcess>,
    /// Kinds of memory that were faulted on.
    pub places: Vec<Place>,
    /// Who faulted.
    pub tree: CallTree,
    /// The faults, those that differ in nothing together.
    pub faults: Vec<Faults>,
    /// What was not seen, in words; recordings of before it was saved have none.
    #[serde(default)]
    pub remarks: Vec<String>,
}

/// What was observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Subject {
    /// The command's words; empty for a process that ran already.
    pub command: Vec<String>,
    /// The (first) process.
    pub pid: i32,
    /// What it is called.
    pub name: String,
}

/// How faults were observed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Method {
    /// The steps of sampling, in which every so many faults one was looked at.
    pub steps: Vec<Step>,
    /// Of the user's stack at most so many bytes were looked at.
    pub stack_bytes: u32,
    /// Chains that could not be followed to their outermost call.
    pub cut_chains: u64,
    /// Samples that the buffers had no room for.
    pub lost_samples: u64,
    /// Records of mappings and names that the buffers had no room for.
    pub lost_news: u64,
    /// Size of each CPU's buffer in bytes.
    pub buffer_bytes: u64,
    /// Faults inside system calls were seen, too.
    pub sees_kernel: bool,
    /// Whether pages were huge could be seen.
    pub sees_huge_pages: bool,
}

/// One step of sampling and what was counted in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Step {
    /// One sample for so many minor faults.
    pub minor_period: u64,
    /// One sample for so many major faults.
    pub major_period: u64,
    /// Minor faults while the step was in force.
    pub minor_faults: u64,
    /// Major faults while the step was in force.
    pub major_faults: u64,
    /// Samples of it that the kernel said it lost; recordings of before it was saved have given theirs to others.
    #[serde(default)]
    pub lost_samples: u64,
    /// Threads that ended, those of processes included, and have samples of minor faults in it; recordings of before it was saved
    /// tell none.
    #[serde(default)]
    pub ended_threads: u64,
}

/// Minor and major faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Served without I/O.
    pub minor: u64,
    /// Needed I/O.
    pub major: u64,
}

impl FaultCounts {
    /// Both together.
    #[must_use]
    pub fn all(self) -> u64 {
        self.minor.saturating_add(self.major)
    }

    /// With others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (minor, major) = (self.minor.saturating_add(other.minor), self.major.saturating_add(other.major));
        Self { minor, major }
    }

    /// Without others, of each kind as far as there are any.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let (minor, major) = (self.minor.saturating_sub(other.minor), self.major.saturating_sub(other.major));
        Self { minor, major }
    }
}

/// What the kernel counted in the time of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Events in programs: exact, whatever was sampled.
    pub user: FaultCounts,
    /// Events inside system calls; none when that was not permitted.
    pub kernel: Option<FaultCounts>,
    /// What the processes' own accounts say (`ru_minflt`, `ru_majflt`), children included; none when it could not be read.
    pub accounts: Option<FaultCounts>,
    /// Of these, what happened before the command began: in our copy that became it.
    pub before: FaultCounts,
    /// The accounts were read a moment before the process ended, not at its end.
    pub accounts_are_late: bool,
}

/// What observing cost, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the observer while it observed.
    pub observer_cpu_ns: u64,
    /// CPU time of the observed processes, with what the kernel did for us in their time; none when it is not known.
    pub subject_cpu_ns: Option<u64>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultProcess {
    /// Its number.
    pub pid: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// A kind of memory that was faulted on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Path of the mapped file, `//anon`, `[heap]`, `[stack]` and the like; empty where nothing was known to be mapped.
    pub mapping: String,
    /// `PROT_*` of the mapping.
    pub protection: u32,
    /// `MAP_*`: of shared, private, locked and hugetlb those that hold.
    pub flags: u32,
    /// The mapping holds the stack of the thread that faulted.
    pub is_stack: bool,
    /// The process has had it since it was forked; recordings of before it was saved do not tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_inherited: bool,
}

/// Faults that differ in nothing but their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Faults {
    /// Index of the innermost call; none without a call chain.
    pub call: Option<usize>,
    /// Index of the place.
    pub place: usize,
    /// Index of the process.
    pub process: usize,
    /// They needed I/O.
    pub is_major: bool,
    /// They happened inside a system call.
    pub in_kernel: bool,
    /// The page was a huge one; none when it could not be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_huge: Option<bool>,
    /// Index of the step of sampling.
    pub step: usize,
    /// Samples.
    pub samples: u64,
    /// Samples; in recordings whose steps say nothing of losses with those that were lost in the same moments shared out.
    pub weight: f64,
}

impl FaultRecording {
    /// Seconds that were observed.
    #[must_use]
    pub fn observed_s(&self) -> f64 {
        self.duration_ns as f64 / 1e9
    }
}

impl Recording for FaultRecording {
    const FORMAT: &'static str = FORMAT;

    fn check(&self) -> Result<(), String> {
        saved_form::check(&self.format, FORMAT)?;
        self.tree.check()?;
        let is_wrong = |faults: &Faults| {
            faults.call.is_some_and(|call| call >= self.tree.calls.len())
                || faults.place >= self.places.len()
                || faults.process >= self.processes.len()
                || faults.step >= self.method.steps.len()
                || !(0.0..1e18).contains(&faults.weight)
        };
        if let Some(place) = self.faults.iter().position(is_wrong) {
            return Err(format!(
                "faults {place} name something that is not there, or weigh what nothing weighs"
            ));
        }
        check_sum(self.faults.iter().map(|faults| faults.samples), "page faults")?;
        let steps = self.method.steps.iter();
        check_sum(steps.flat_map(|step| [step.minor_faults, step.major_faults]), "page faults")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(step: Step, faults: Faults) -> FaultRecording {
        FaultRecording {
            format: FORMAT.into(),
            method: Method { steps: vec![step; 2], ..Method::default() },
            processes: vec![FaultProcess { pid: 1, name: "x".into() }],
            places: vec![Place::default()],
            faults: vec![faults; 2],
            ..FaultRecording::default()
        }
    }

    #[test]
    fn faults_that_name_what_is_not_there_are_refused() {
        for faults in [
            Faults { call: Some(0), ..Faults::default() },
            Faults { place: 1, ..Faults::default() },
            Faults { process: 1, ..Faults::default() },
            Faults { step: 2, ..Faults::default() },
            Faults { weight: -1.0, ..Faults::default() },
            Faults { weight: f64::NAN, ..Faults::default() },
        ] {
            let refusal = recording(Step::default(), faults).check().unwrap_err();
            assert!(refusal.starts_with("faults 0 name something that is not there"), "{refusal}");
        }
    }

    #[test]
    fn faults_are_refused_where_their_sums_have_no_room() {
        let recording = |samples, minor_faults, major_faults| {
            let step = Step { minor_faults, major_faults, ..Step::default() };
            recording(step, Faults { samples, ..Faults::default() })
        };
        assert_eq!(recording(7, 8, 9).check(), Ok(()));
        for (samples, minor_faults, major_faults) in [(1 << 63, 1, 1), (1, 1 << 63, 1), (1, 1 << 62, 1 << 62)]
        {
            let refusal = recording(samples, minor_faults, major_faults).check().unwrap_err();
            assert!(refusal.contains("more page faults than there can be"), "{refusal}");
        }
    }
}
