//! What a session observes.

use std::path::PathBuf;

use faultless_records::perf_record::Content;

/// An event to observe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is.
    pub what: What,
    /// How much of it is wanted.
    pub sampling: Sampling,
    /// Where it happens.
    pub scope: Scope,
    /// Whether it begins when the observed process becomes its command, or when the session starts; otherwise only
    /// [`super::Session::enable`] begins it.
    pub starts_enabled: bool,
}

/// Kinds of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Page faults served without I/O.
    MinorFaults,
    /// Page faults that needed I/O.
    MajorFaults,
    /// Processor time of a thread, in ns.
    ProcessorTime,
    /// A tracepoint of this number in tracefs, with an expression of which ones count (empty: all).
    Tracepoint {
        /// From the file `id`.
        id: u64,
        /// As written to the file `filter`.
        filter: String,
    },
    /// Entry to, or return from, the function at this offset of a file (uprobe).
    Function {
        /// The program or library.
        file: PathBuf,
        /// In bytes from the start of the file.
        offset: u64,
        /// The return instead of the entry.
        is_return: bool,
    },
}

/// How much of an event is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// Only its number.
    Count,
    /// A sample of every so many. (The kernel's own choice by frequency is not offered: what a sample then stands for is an
    /// estimate, in bursts of a few milliseconds one that was seen to be many times too much.)
    Every(u64),
}

/// Where an event happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In the program itself.
    User,
    /// In the kernel, on behalf of the program.
    Kernel,
    /// Both.
    All,
}

/// What a session observes, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The events; figures and samples name them by their place here.
    pub events: Vec<Event>,
    /// What each sample holds.
    pub content: Content,
    /// Whether mappings, names, starts and ends of threads are recorded, too.
    pub follows_processes: bool,
    /// Whether events wait for the execve of the observed process, instead of [`super::Session::start`].
    pub waits_for_exec: bool,
    /// Wanted size of the buffer of each CPU in bytes; smaller where there are many, and where the
    /// kernel's limit on locked memory says so.
    pub buffer_bytes: usize,
}

impl Plan {
    /// Events that write records.
    pub(super) fn sampled(&self) -> usize {
        self.events.iter().filter(|event| event.sampling != Sampling::Count).count()
    }

    /// Open files that each thread takes.
    pub(super) fn files_a_thread(&self, cpus: usize) -> usize {
        let sampled = self.sampled();
        cpus * (sampled + 1) + self.events.len() - sampled
    }
}
