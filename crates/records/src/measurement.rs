//! What is measured of one run of a command.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::allocator::Allocator;
use crate::program::program_of;
use crate::signal;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// A signal of this number killed it.
    Killed(i32),
}

impl fmt::Display for Ending {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "exit status {status}"),
            Self::Killed(number) => write!(formatter, "killed by {}", signal::name(*number)),
        }
    }
}

impl Ending {
    /// That of `timeout` when it has ended its command.
    pub const TIME_LIMIT: Self = Self::Exited(124);

    /// What is said of a command that failed, behind its name; none of a success.
    #[must_use]
    pub fn failure(self) -> Option<String> {
        match self {
            Self::Exited(0) => None,
            Self::Exited(_) => Some(format!("ended with {self}")),
            Self::Killed(_) => Some(format!("was {self}")),
        }
    }

    /// Exit status 0.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }

    /// Whether its time was over.
    #[must_use]
    pub fn is_time_limit(self) -> bool {
        self == Self::TIME_LIMIT
    }

    /// Whether the kernel or somebody ended it by SIGKILL, or a process for which it waited, as a shell tells by its status.
    #[must_use]
    pub fn is_by_kill(self) -> bool {
        matches!(self, Self::Killed(9) | Self::Exited(137))
    }

    /// Its exit status; none when a signal killed it.
    #[must_use]
    pub fn exit_status(self) -> Option<i32> {
        match self {
            Self::Exited(status) => Some(status),
            Self::Killed(_) => None,
        }
    }

    /// The number of the signal that killed it.
    #[must_use]
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Exited(_) => None,
            Self::Killed(number) => Some(number),
        }
    }
}

/// A process that nobody of a command's waited for, as of a daemon: what it used is in no figure of the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Processor time of it and of the children that it waited for, when it has ended.
    pub processor: Duration,
    /// Whether it went on when the command had ended.
    pub goes_on: bool,
}

/// How the figures at the end of the process were obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalView {
    /// From the process itself, stopped on its way out.
    AtExit,
    /// From the last of the samples taken while it ran, because it could not be traced.
    Sampled,
}

/// Resource use of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// How it ended.
    pub ending: Ending,
    /// Processor time in the program, of it and the children it waited for.
    pub user: Duration,
    /// Processor time in the kernel, of it and the children it waited for.
    pub system: Duration,
    /// Wall-clock time from exec to the end.
    pub elapsed: Duration,
    /// Page faults served without I/O, of it and the children it waited for.
    pub minor_faults: u64,
    /// Page faults that needed I/O, of it and the children it waited for.
    pub major_faults: u64,
    /// How often a thread of it and of the children it waited for gave up its CPU to wait (voluntary context switches), as for a lock.
    pub waits: u64,
    /// Largest resident set of any one of these processes.
    pub peak_rss_bytes: u64,
    /// Resident set of the process at its exit, or when its time was over; its children are not in it.
    pub final_rss_bytes: Option<u64>,
    /// Where the figures at the end come from.
    pub final_view: FinalView,
    /// The files mapped at the end, the program first: the evidence for which allocator ran.
    pub mapped_files: Vec<String>,
}

impl Measurement {
    /// The allocator that ran; none when the mappings could not be read.
    #[must_use]
    pub fn allocator(&self) -> Option<Allocator> {
        (!self.mapped_files.is_empty())
            .then(|| Allocator::of_process(self.mapped_files.iter().map(String::as_str)))
    }

    /// The file of the program that it was in the end; none when the mappings could not be read.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        program_of(&self.mapped_files)
    }

    /// Whether the kernel counted its page faults, which no program starts without: gVisor counts none.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.minor_faults > 0
    }

    /// User and system time together.
    #[must_use]
    pub fn processor(&self) -> Duration {
        self.user + self.system
    }
}
