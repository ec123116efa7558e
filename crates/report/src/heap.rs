//! What was learnt of a process's heaps, as the table and the JSON show it.

pub mod json;
pub(crate) mod remedy;
pub mod table;

use std::time::Duration;

use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::faultless_page::FaultlessPage;

/// Where the figures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A running process; how it was stopped, if it was.
    Process(Option<Stop>),
    /// A process on its way out, which changes no more.
    AtExit,
    /// A core file of this name.
    Core(String),
}

/// How a process was made to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// For how long.
    pub stood: Duration,
    /// Threads that could not be stopped.
    pub moving_threads: usize,
    /// Arenas that were still to be walked when it had stood for long enough: their figures are of later, while it ran.
    pub overdue_arenas: usize,
}

/// Memory of an allocator whose inside is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Regions {
    /// Mappings.
    pub count: u64,
    /// Their address space.
    pub reserved_bytes: u64,
    /// What of it can be written.
    pub accessible_bytes: u64,
    /// What of it has memory.
    pub resident_bytes: u64,
}

/// What a Faultless process publishes of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultlessHeap {
    /// The figures.
    pub page: FaultlessPage,
    /// How old they are.
    pub age: Duration,
    /// What has memory of all that blocks may lie in, counted now.
    pub resident_bytes: u64,
}

/// Everything about one process.
#[derive(Debug, Clone, PartialEq)]
pub struct HeapView {
    /// Its number, where it is known.
    pub pid: Option<i32>,
    /// Its name.
    pub name: String,
    /// Where the figures come from.
    pub source: Source,
    /// How long the walk took.
    pub took: Duration,
    /// Version of its glibc, where a file told.
    pub glibc: Option<(u32, u32)>,
    /// Resident bytes of the whole process, by the kernel's cheap counter (`VmRSS`); none where it is not known.
    pub counted_rss_bytes: Option<u64>,
    /// One walk for each glibc whose malloc was used; seldom more than one.
    pub walks: Vec<HeapWalk>,
    /// Another allocator, by name, with the anonymous mappings that are nobody else's.
    pub other: Option<(String, Regions)>,
    /// The inside of that allocator, where it is Faultless and publishes it.
    pub faultless: Option<FaultlessHeap>,
    /// What limits the figures, in sentences.
    pub remarks: Vec<String>,
}
