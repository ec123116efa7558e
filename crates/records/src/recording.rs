//! What `watch` sees, line by line: the form of its JSON output and of its recordings.
//!
//! A recording is a text of lines; each is one [`Line`]. The first is [`Line::Begin`], the last [`Line::End`] unless the
//! recording was cut off. All times are seconds since the first line; all counts are totals since the process began, so a
//! line that is missing costs resolution and no truth.

use serde::{Deserialize, Serialize};

/// Name and version of the form, in the first line.
pub const FORMAT: &str = "faultless-watch/1";

/// One line of a recording.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first line.
    Begin(Begin),
    /// A process comes into view, numbered from 0 in this order; or one that is known becomes another program.
    Process(Process),
    /// One look at a process.
    Sample(Sample),
    /// A control group comes into view; numbered from 0 in this order.
    Group(Group),
    /// One look at a control group.
    GroupSample(GroupSample),
    /// A control group is watched no longer.
    GroupLeft(GroupLeft),
    /// Something happened to a process.
    Event(Event),
    /// Something that the reader should know.
    Note(Note),
    /// The last line.
    End(End),
}

/// What is watched, and how.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: f64,
    /// Time from one sample to the next.
    pub interval_s: f64,
    /// What was asked for, in words.
    pub subject: String,
}

/// A process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// When it came into view.
    pub t: f64,
    /// Its place in the recording.
    pub process: u32,
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its command line, the words apart by blanks.
    pub command: String,
    /// When it began, in clock ticks after boot.
    pub start_ticks: u64,
}

/// Counters and sizes of a process at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub t: f64,
    /// Its place in the recording.
    pub process: u32,
    /// Address space; none of a process that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vsize_bytes: Option<u64>,
    /// Resident set by the kernel's running counter, or exact where the sample has `pss_bytes`; none of a process that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// The largest resident set so far, as the kernel keeps it; only in some samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_rss_bytes: Option<u64>,
    /// Share of the resident set, pages of several processes divided among them; only in some samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pss_bytes: Option<u64>,
    /// Whether the share was to be read and could not be: an earlier one holds no longer. It is not recorded.
    #[serde(skip)]
    pub lost_pss: bool,
    /// Memory in swap; only in some samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    /// Threads.
    pub threads: u32,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Minor faults of children that ended and were waited for.
    #[serde(default)]
    pub children_minor_faults: u64,
    /// Major faults of children that ended and were waited for.
    #[serde(default)]
    pub children_major_faults: u64,
    /// Processor time in the program.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
    /// Processor time in the program of children that ended and were waited for.
    #[serde(default)]
    pub children_user_s: f64,
    /// The same in the kernel.
    #[serde(default)]
    pub children_system_s: f64,
}

/// A control group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// When it came into view.
    pub t: f64,
    /// Its place in the recording.
    pub group: u32,
    /// Its directory.
    pub path: String,
    /// 1 or 2.
    pub version: u32,
}

/// What a control group says of its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupSample {
    /// When.
    pub t: f64,
    /// Its place in the recording.
    pub group: u32,
    /// Memory charged to it, page cache included.
    pub current_bytes: u64,
    /// The most that may be charged; none without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Its memory in swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    /// Anonymous memory in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
    /// Page cache in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Of its page cache, files in memory and shared memory, which have no place on a disk but swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Page faults of all kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<u64>,
    /// Page faults that needed I/O.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major_faults: Option<u64>,
    /// How often the limit was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_hits: Option<u64>,
    /// Processes killed for want of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<u64>,
    /// Above this its processes are slowed down and its memory is taken back; version 2 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_bytes: Option<u64>,
    /// How often that happened; version 2 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_hits: Option<u64>,
    /// How often an allocation was about to fail for want of memory; version 2 only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_events: Option<u64>,
}

/// A control group that was removed, or is not to be seen any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupLeft {
    /// When.
    pub t: f64,
    /// Its place in the recording.
    pub group: u32,
}

/// Who says that something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The kernel, as it happened.
    Kernel,
    /// The difference between two samples; the time is that of the second.
    Sampling,
}

/// Something happened to a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub t: f64,
    /// To which process.
    pub process: u32,
    /// Who says so.
    pub source: Source,
    /// What.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happens to processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Happening {
    /// It made a child of this number.
    Fork {
        /// The child's number.
        child: i32,
    },
    /// It became another program.
    Exec {
        /// Its new name.
        name: String,
    },
    /// It took another name and may or may not be another program.
    Rename {
        /// Its new name.
        name: String,
    },
    /// It ended.
    Exit {
        /// Its exit status, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<i32>,
        /// The signal that killed it, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// It goes on and is watched no longer: it went to another control group, or is not to be seen any more.
    Left,
}

/// Something that the reader should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// When.
    pub t: f64,
    /// One line.
    pub text: String,
}

/// What the watching itself cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The tool's own processor time, user and system.
    pub processor_s: f64,
    /// Part of it that went into `smaps_rollup`.
    pub rollup_s: f64,
    /// Time that the longest reading of `smaps_rollup` took.
    pub longest_rollup_s: f64,
    /// Readings of `smaps_rollup`.
    pub rollups: u64,
    /// Samples of processes.
    pub samples: u64,
    /// Rounds of samples that were left out because the time for them had passed.
    pub missed_rounds: u64,
}

/// What the started command and the children that it waited for used, in the kernel's own account (wait4).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Processor time in the program.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// Largest resident set of any one of them.
    pub peak_rss_bytes: u64,
}

/// The last line.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub t: f64,
    /// What it cost.
    pub cost: Cost,
    /// Of a started command: what it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Use>,
}

impl Line {
    /// When, in seconds since the first line.
    #[must_use]
    pub fn t(&self) -> f64 {
        match self {
            Self::Begin(_) => 0.0,
            Self::Process(line) => line.t,
            Self::Sample(line) => line.t,
            Self::Group(line) => line.t,
            Self::GroupSample(line) => line.t,
            Self::GroupLeft(line) => line.t,
            Self::Event(line) => line.t,
            Self::Note(line) => line.t,
            Self::End(line) => line.t,
        }
    }
}
