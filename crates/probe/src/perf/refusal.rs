//! Why the kernel does not let us observe, in one line with the cure.

use std::fmt;
use std::io;

use faultless_records::permission::Rights;
use nix::errno::Errno;

use crate::closed::{self, Access};

/// The least sane buffer, as the text names it, in KiB for each CPU.
const SMALLEST_BUFFER_KIB: usize = super::ring::SMALLEST_BYTES / 1024;

/// Why a session cannot be; shown as one line with what would help.
#[derive(Debug)]
pub enum PerfError {
    /// The kernel was built without performance events, or something pretends so.
    Absent {
        /// A seccomp filter is in force.
        is_filtered: bool,
    },
    /// The setting for users without privileges is too strict.
    Paranoid(i64),
    /// The setting allows it and it is refused all the same: a seccomp filter or security module does that.
    Filtered,
    /// The process is not ours to observe.
    NotOurs(i32),
    /// Probes at functions want more than other events.
    Probes,
    /// This kernel has no probes at functions, or does not show them.
    NoProbes(String),
    /// The process ended meanwhile.
    Ended(i32),
    /// Not even small buffers fit into the limit on locked memory.
    LockedMemory {
        /// `kernel.perf_event_mlock_kb`.
        limit_kib: Option<u64>,
    },
    /// It was not opened in the time that it may take.
    Late,
    /// So many threads would be held up while events are opened for each, on each CPU.
    ManyThreads(usize),
    /// More files than the limit allows.
    Files {
        /// How many the session needs.
        needed: usize,
    },
    /// Anything else the kernel answered.
    System {
        /// What was refused.
        what: String,
        /// The kernel's reason.
        error: io::Error,
    },
}

impl PerfError {
    /// Reads the kernel's answer to opening an event on a process.
    pub(super) fn of_open(pid: i32, errno: Errno, rights: &Rights) -> Self {
        /// From here on Debian's and Ubuntu's kernels let nobody without privileges in.
        const CLOSED: i64 = 3;
        let Rights { paranoid, may_observe, is_filtered, .. } = *rights;
        match errno {
            Errno::ENOSYS => Self::Absent { is_filtered },
            Errno::ENOENT if paranoid.is_none() => Self::Absent { is_filtered },
            Errno::ESRCH => Self::Ended(pid),
            Errno::EMFILE | Errno::ENFILE => Self::Files { needed: 0 },
            Errno::EACCES | Errno::EPERM => match paranoid {
                Some(paranoid) if paranoid >= CLOSED && !may_observe => Self::Paranoid(paranoid),
                _ if is_filtered => Self::Filtered,
                None => Self::Absent { is_filtered },
                // A process of our own is always ours.
                _ if pid == 0 => Self::Filtered,
                _ => Self::NotOurs(pid),
            },
            errno => Self::System { what: "a performance event".into(), error: errno.into() },
        }
    }

    /// Whether it is a matter of permission, and not a failure.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Absent { .. }
                | Self::Paranoid(_)
                | Self::Filtered
                | Self::NotOurs(_)
                | Self::Probes
                | Self::LockedMemory { .. }
        )
    }
}

impl fmt::Display for PerfError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent { is_filtered: false } => {
                write!(
                    out,
                    "this kernel has no performance events (perf_event_open): it was built without them"
                )
            }
            Self::Absent { is_filtered: true } => write!(
                out,
                "performance events are hidden by a seccomp filter: allow perf_event_open in the container's profile (docker run --security-opt seccomp=unconfined --cap-add PERFMON)"
            ),
            Self::Paranoid(paranoid) => write!(
                out,
                "performance events are closed to users: kernel.perf_event_paranoid is {paranoid} and must be 2 or lower (sudo sysctl kernel.perf_event_paranoid=2), or run with CAP_PERFMON (sudo)"
            ),
            Self::Filtered => write!(
                out,
                "performance events are refused by a seccomp filter or a security module: allow perf_event_open there (docker run --security-opt seccomp=unconfined --cap-add PERFMON)"
            ),
            Self::NotOurs(pid) => {
                let cure = closed::cure(*pid, Access::Sight, "CAP_PERFMON");
                write!(out, "not permitted to observe process {pid}{cure}")
            }
            Self::Probes => write!(out, "not permitted to probe functions{}", closed::cure_of_probes()),
            Self::NoProbes(reason) => {
                write!(out, "this kernel shows no uprobes (CONFIG_UPROBE_EVENTS, /sys mounted): {reason}")
            }
            Self::Ended(pid) => write!(out, "process {pid} has ended"),
            Self::Late => write!(out, "to begin took too long"),
            Self::ManyThreads(threads) => {
                write!(out, "to open events for {threads} threads would hold the process up")
            }
            Self::LockedMemory { limit_kib } => {
                let limit = limit_kib.map_or("unknown".into(), |limit| limit.to_string());
                write!(
                    out,
                    "no memory may be locked for buffers of {SMALLEST_BUFFER_KIB} KiB a CPU: kernel.perf_event_mlock_kb is {limit} for all of a user's sessions; end others, raise it (sudo sysctl kernel.perf_event_mlock_kb=4096) or ulimit -l, or get CAP_IPC_LOCK"
                )
            }
            Self::Files { needed } => write!(
                out,
                "too many open files: one for each event, thread and CPU, with buffers and what is read meanwhile, makes {needed} (ulimit -n {needed}, or observe a process with fewer threads)"
            ),
            Self::System { what, error } => write!(out, "the kernel refuses {what}: {error}"),
        }
    }
}

impl std::error::Error for PerfError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(errno: Errno, paranoid: Option<i64>, is_filtered: bool, pid: i32) -> String {
        let rights = Rights { paranoid, is_filtered, ..Rights::default() };
        PerfError::of_open(pid, errno, &rights).to_string()
    }

    #[test]
    fn each_refusal_names_its_cure() {
        for level in [3, 4] {
            let text = line(Errno::EACCES, Some(level), false, 0);
            assert!(text.contains(&format!("perf_event_paranoid is {level} and must be 2")), "{text}");
            assert!(text.contains("sysctl kernel.perf_event_paranoid=2"), "{text}");
        }
        assert!(line(Errno::EPERM, Some(2), true, 0).contains("seccomp"));
        assert!(line(Errno::ENOSYS, Some(2), true, 0).contains("seccomp"));
        assert!(line(Errno::ENOSYS, None, false, 0).contains("built without"));
        assert!(line(Errno::EACCES, Some(2), false, 77).contains("not permitted to observe process 77"));
        assert!(line(Errno::ESRCH, Some(2), false, 77).contains("has ended"));
        assert!(line(Errno::EINVAL, Some(2), false, 77).contains("Invalid argument"));
    }

    #[test]
    fn every_line_is_one_line() {
        let errors = [
            PerfError::Absent { is_filtered: false },
            PerfError::LockedMemory { limit_kib: Some(516) },
            PerfError::Files { needed: 70_000 },
            PerfError::NotOurs(1),
            PerfError::Probes,
            PerfError::NoProbes("No such file or directory".into()),
        ];
        for error in errors {
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
