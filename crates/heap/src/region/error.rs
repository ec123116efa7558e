//! Why a region could not be had: which limit or which call, in figures, and what to do.

use crate::os::Errno;
use core::fmt;

/// A limit that is looked at before memory is populated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `RLIMIT_AS`: addresses of the process.
    AddressSpace,
    /// `RLIMIT_DATA`: private writable memory of the process.
    Data,
    /// `RLIMIT_FSIZE`: size of a file, also of one in memory; running into it would be a SIGXFSZ.
    FileSize,
    /// `RLIMIT_MEMLOCK`: locked memory of the process.
    LockedMemory,
    /// The commit limit of `vm.overcommit_memory=2`.
    Commit,
    /// `memory.limit_in_bytes` of the process's cgroup (v1) or one above it.
    CgroupV1,
    /// `memory.max` of the process's cgroup (v2) or one above it.
    CgroupV2,
    /// Free pages in the kernel's pool of huge pages of this many bytes.
    HugePagePool {
        /// Bytes of one of them.
        page_bytes: usize,
    },
    /// Memory that the machine can give without swapping.
    Memory,
}

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Addresses and a mapping.
    Map,
    /// A file in memory, or its size.
    File,
    /// Opening what another process made.
    Open,
    /// Pages.
    Populate,
    /// Locked pages.
    Lock,
    /// Another size.
    Resize,
    /// Other access.
    Protect,
}

/// Why a region could not be had or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The request makes no sense; what to ask for instead.
    Argument(&'static str),
    /// A limit is too low. Found before anything is populated, or where others took the memory meanwhile.
    Limit {
        /// Which one.
        limit: Limit,
        /// Bytes that it would have to allow beyond what is used of it.
        needed_bytes: usize,
        /// Bytes that it does allow.
        available_bytes: usize,
    },
    /// The kernel refused a call.
    Refused {
        /// What was asked for.
        step: Step,
        /// The kernel's reason.
        errno: Errno,
        /// For how many bytes.
        bytes: usize,
    },
    /// Populating was cancelled.
    Cancelled {
        /// Bytes populated until then.
        done_bytes: usize,
        /// Bytes to populate.
        total_bytes: usize,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Argument(advice) => formatter.write_str(advice),
            Self::Limit { limit, needed_bytes, available_bytes } => {
                let (needed, available) = (Size(needed_bytes), Size(available_bytes));
                write_limit(formatter, limit, needed, available)
            }
            Self::Refused { step, errno, bytes } => write_refusal(formatter, step, errno, Size(bytes)),
            Self::Cancelled { done_bytes, total_bytes } => write!(
                formatter,
                "populating was cancelled after {} of {}",
                Size(done_bytes),
                Size(total_bytes)
            ),
        }
    }
}

impl core::error::Error for RegionError {}

fn write_limit(out: &mut fmt::Formatter<'_>, limit: Limit, needed: Size, available: Size) -> fmt::Result {
    write!(out, "the region needs {needed} but ")?;
    match limit {
        Limit::AddressSpace => {
            write!(out, "the limit on address space leaves {available}; raise it (ulimit -v) or ask for less")
        }
        Limit::Data => {
            write!(out, "the limit on data leaves {available}; raise it (ulimit -d), or map it shared")
        }
        Limit::FileSize => write!(
            out,
            "the limit on file sizes is {available} and holds for memory files too; raise it (ulimit -f), or map it private"
        ),
        Limit::LockedMemory => write!(
            out,
            "{available} may be locked; raise the limit (ulimit -l, LimitMEMLOCK=, --ulimit memlock=), give CAP_IPC_LOCK, or \
             do not lock it"
        ),
        Limit::Commit => write!(
            out,
            "the commit limit leaves {available}; raise vm.overcommit_ratio or vm.overcommit_kbytes, or set \
             vm.overcommit_memory=0"
        ),
        Limit::CgroupV1 => write!(
            out,
            "the memory limit of its cgroup leaves {available}; raise memory.limit_in_bytes (the container's memory limit)"
        ),
        Limit::CgroupV2 => write!(
            out,
            "the memory limit of its cgroup leaves {available}; raise memory.max (the container's memory limit)"
        ),
        Limit::HugePagePool { page_bytes } => write!(
            out,
            "the pool of huge pages of {} has {available} free; enlarge it (echo COUNT > \
             /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages, COUNT at least {} more than now), or want huge pages instead of \
             requiring them",
            Size(page_bytes),
            page_bytes >> 10,
            needed.0.saturating_sub(available.0).div_ceil(page_bytes)
        ),
        Limit::Memory => write!(
            out,
            "the machine has {available} to give without swapping; free memory, ask for less, or populate by use"
        ),
    }
}

fn write_refusal(out: &mut fmt::Formatter<'_>, step: Step, errno: Errno, size: Size) -> fmt::Result {
    match step {
        Step::Map => write!(out, "the kernel refused to map {size} ({errno})")?,
        Step::File => write!(out, "the kernel refused a memory file of {size} ({errno})")?,
        Step::Open => write!(out, "the file cannot be opened and mapped ({errno})")?,
        Step::Populate => write!(out, "the kernel stopped populating {size} ({errno})")?,
        Step::Lock => write!(out, "the kernel refused to lock {size} ({errno})")?,
        Step::Resize => write!(out, "the kernel refused to change the size to {size} ({errno})")?,
        Step::Protect => write!(out, "the kernel refused to change the access to {size} ({errno})")?,
    }
    let advice = match (step, errno.0) {
        (Step::Map | Step::Open | Step::Resize, 12) => {
            "see ulimit -v, vm.max_map_count and vm.overcommit_memory, for huge pages the cgroup's hugetlb limit"
        }
        (Step::Map, 22) | (Step::File, 19) => {
            "see /sys/kernel/mm/hugepages for the sizes of this kernel's huge pages"
        }
        (Step::File | Step::Resize, 27) => "raise the limit on file sizes (ulimit -f), or map it private",
        (Step::File | Step::Open, 23 | 24) => "too many open files; raise the limit (ulimit -n)",
        (Step::File, 1 | 38) => "a seccomp filter or an old kernel has no memfd_create; map it private",
        (Step::Resize, 1 | 38) => {
            "a frozen region keeps its size; else a filter refuses mremap: map a new one"
        }
        (Step::Open, 2) => {
            "no file has this name; /proc/PID/fd/NUMBER names a memory file of a running process"
        }
        (Step::Open, 9) => "the number must be of a file that is open for reading",
        (Step::Open, 19) => "only a file of a file system or of memory can be mapped, no directory or device",
        (Step::Open, 1 | 13) => {
            "ask the file's owner for the right to read it; a number must be of a file that is open for reading"
        }
        (Step::Populate, 12) => "memory or its limit ran out meanwhile; free memory, or ask for less",
        (Step::Populate, 14) => "the file behind it has become shorter",
        (Step::Populate, 133) => "the memory is damaged; see the kernel's log",
        (Step::Lock, 1 | 12) => "raise the limit on locked memory (ulimit -l), or do not lock it",
        _ => return Ok(()),
    };
    write!(out, "; {advice}")
}

/// Bytes in words.
#[derive(Clone, Copy)]
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.0 {
            0..1024 => return write!(formatter, "{} B", self.0),
            1024..0x10_0000 => (10, "KiB"),
            0x10_0000..0x4000_0000 => (20, "MiB"),
            _ => (30, "GiB"),
        };
        let (whole, rest) = (self.0 >> shift, self.0 & ((1 << shift) - 1));
        let tenths = whole * 10 + ((rest * 10 + (1 << (shift - 1))) >> shift);
        match tenths % 10 {
            0 => write!(formatter, "{} {unit}", tenths / 10),
            rest => write!(formatter, "{}.{rest} {unit}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_in_figures_with_its_cure() {
        let error = RegionError::Limit {
            limit: Limit::LockedMemory,
            needed_bytes: 1 << 30,
            available_bytes: 8 << 20,
        };
        let text = error.to_string();
        assert!(
            text.starts_with("the region needs 1 GiB but 8 MiB may be locked; raise the limit"),
            "{text}"
        );
        let limit = Limit::HugePagePool { page_bytes: 2 << 20 };
        let text = RegionError::Limit { limit, needed_bytes: 5 << 20, available_bytes: 2 << 20 }.to_string();
        assert!(text.contains("hugepages-2048kB/nr_hugepages, COUNT at least 2 more"), "{text}");
    }

    #[test]
    fn a_refusal_names_the_call_the_reason_and_a_way_out_where_there_is_one() {
        let refused = |step, errno, bytes| RegionError::Refused { step, errno, bytes }.to_string();
        let text = refused(Step::Populate, Errno::ENOMEM, 1536 << 20);
        assert!(text.starts_with("the kernel stopped populating 1.5 GiB (ENOMEM); memory"), "{text}");
        assert_eq!(
            refused(Step::Protect, Errno(5), 100),
            "the kernel refused to change the access to 100 B (error 5)"
        );
        for errno in [Errno::EPERM, Errno::ENOSYS] {
            let text = refused(Step::Resize, errno, 100);
            assert!(
                text.contains("filter refuses mremap"),
                "a private region has no file to be sealed: {text}"
            );
        }
    }
}
