//! Calls by which a process asks the kernel for memory and gives it back, and what a sequence of them is about.

use serde::{Deserialize, Serialize};

/// Second argument of a brk that was not seen itself: the heap ends at the first now, and had ended lower before. The third is
/// where it begins.
pub const BREAK_GREW: u64 = 1;

/// The system calls that change what a process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// mmap(2)
    Mmap,
    /// munmap(2)
    Munmap,
    /// brk(2)
    Brk,
    /// mremap(2)
    Mremap,
    /// madvise(2)
    Madvise,
    /// mprotect(2), pkey_mprotect(2)
    Mprotect,
}

impl CallKind {
    /// Its name in section 2 of the manual.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::Brk => "brk",
            Self::Mremap => "mremap",
            Self::Madvise => "madvise",
            Self::Mprotect => "mprotect",
        }
    }
}

impl CallKind {
    /// The arguments that it takes of what was in the registers for them: in the others is what was left there.
    #[must_use]
    pub fn arguments_of(self, mut registers: [u64; 5]) -> [u64; 5] {
        let taken = match self {
            Self::Brk => 1,
            Self::Munmap => 2,
            Self::Madvise | Self::Mprotect => 3,
            Self::Mmap | Self::Mremap => 5,
        };
        registers[taken..].fill(0);
        registers
    }
}

/// One finished call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCall {
    /// When it returned, in nanoseconds of any clock that goes forward.
    pub time_ns: u64,
    /// The process, as the tool sees it.
    pub pid: i32,
    /// The thread.
    pub tid: i32,
    /// Which call.
    pub kind: CallKind,
    /// Its first five arguments, as the kernel got them; 0 for those that it does not take.
    pub arguments: [u64; 5],
    /// What it returned, or the number of the error.
    pub result: Result<u64, i32>,
    /// Where it came from; none when it was not looked at.
    pub stack: Option<TakenStack>,
}

/// The call chain of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenStack {
    /// Index into the stacks of the recording.
    pub index: u32,
    /// How many calls it stands for, where only some chains are taken.
    pub weight: u32,
}

impl MemoryCall {
    /// Turns the register that a system call returns its answer in into answer or error.
    ///
    /// Source: syscall(2): -4095 to -1 are errors.
    ///
    /// # Errors
    /// The number of the call's error.
    pub fn result_of_register(register: i64) -> Result<u64, i32> {
        match register {
            -4095..=-1 => Err(i32::try_from(-register).unwrap_or(0)),
            value => Ok(value.cast_unsigned()),
        }
    }
}

/// Something that happens to a process while its calls are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryEvent {
    /// A call returned.
    Call(MemoryCall),
    /// The call chain of one of some calls, which are reported without.
    Chain {
        /// The process.
        pid: i32,
        /// Which call.
        kind: CallKind,
        /// Its arguments.
        arguments: [u64; 5],
        /// The chain.
        stack: TakenStack,
    },
    /// A process was made as a copy of another.
    Fork {
        /// The copied one.
        parent: i32,
        /// The copy.
        child: i32,
    },
    /// A process became another program: all of its mappings are gone.
    Exec {
        /// The process.
        pid: i32,
    },
    /// A thread was started in a process that is followed.
    Thread {
        /// The process.
        pid: i32,
    },
    /// A process ended, with all that it had mapped.
    Exit {
        /// The process.
        pid: i32,
    },
    /// Calls that the kernel could not report.
    Lost {
        /// How many.
        calls: u64,
    },
    /// Call chains that it could not report, of calls that it did.
    LostChains {
        /// How many.
        chains: u64,
    },
}

/// What a call did, as far as its arguments and its answer say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// mmap of memory without a file.
    MapAnonymous,
    /// mmap of addresses only, without access: memory comes later by mprotect.
    MapReserve,
    /// mmap of addresses only, without access, over what was mapped there: its pages are given back.
    MapPurge,
    /// mmap of a thread's stack.
    MapStack,
    /// mmap of shared memory without a file.
    MapShared,
    /// mmap of a file.
    MapFile,
    /// munmap
    Unmap,
    /// brk that asks where the heap ends.
    BreakQuery,
    /// brk that lets the heap grow.
    BreakGrow,
    /// brk that gives the top of the heap back.
    BreakTrim,
    /// mremap
    Remap,
    /// madvise MADV_DONTNEED, also of locked pages: pages are given back at once.
    AdviseDontneed,
    /// madvise MADV_FREE: pages are given back when the kernel wants them.
    AdviseFree,
    /// madvise MADV_REMOVE: pages are given back, and what stands in them in the file.
    AdviseRemove,
    /// madvise MADV_HUGEPAGE; in recordings of before the two that follow, these too.
    AdviseHugePages,
    /// madvise MADV_NOHUGEPAGE
    AdviseNoHugePages,
    /// madvise MADV_COLLAPSE: huge pages are made at once.
    AdviseCollapse,
    /// madvise with any other advice.
    AdviseOther,
    /// mprotect
    Protect,
}

/// Advice of madvise(2). Source: include/uapi/asm-generic/mman-common.h of the kernel.
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_REMOVE: u64 = 9;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;
const MADV_DONTNEED_LOCKED: u64 = 24;
const MADV_COLLAPSE: u64 = 25;

impl Operation {
    /// What a call of madvise with this advice is for.
    #[must_use]
    pub fn of_advice(advice: u64) -> Self {
        match advice {
            MADV_DONTNEED | MADV_DONTNEED_LOCKED => Self::AdviseDontneed,
            MADV_FREE => Self::AdviseFree,
            MADV_REMOVE => Self::AdviseRemove,
            MADV_HUGEPAGE => Self::AdviseHugePages,
            MADV_NOHUGEPAGE => Self::AdviseNoHugePages,
            MADV_COLLAPSE => Self::AdviseCollapse,
            _ => Self::AdviseOther,
        }
    }

    /// The call and what it was for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MapAnonymous => "mmap memory",
            Self::MapReserve => "mmap reserve",
            Self::MapPurge => "mmap purge",
            Self::MapStack => "mmap stack",
            Self::MapShared => "mmap shared",
            Self::MapFile => "mmap file",
            Self::Unmap => "munmap",
            Self::BreakQuery => "brk query",
            Self::BreakGrow => "brk grow",
            Self::BreakTrim => "brk trim",
            Self::Remap => "mremap",
            Self::AdviseDontneed => "madvise DONTNEED",
            Self::AdviseFree => "madvise FREE",
            Self::AdviseRemove => "madvise REMOVE",
            Self::AdviseHugePages => "madvise HUGEPAGE",
            Self::AdviseNoHugePages => "madvise NOHUGEPAGE",
            Self::AdviseCollapse => "madvise COLLAPSE",
            Self::AdviseOther => "madvise other",
            Self::Protect => "mprotect",
        }
    }

    /// The system call.
    #[must_use]
    pub fn kind(self) -> CallKind {
        match self {
            Self::MapAnonymous
            | Self::MapReserve
            | Self::MapPurge
            | Self::MapStack
            | Self::MapShared
            | Self::MapFile => CallKind::Mmap,
            Self::Unmap => CallKind::Munmap,
            Self::BreakQuery | Self::BreakGrow | Self::BreakTrim => CallKind::Brk,
            Self::Remap => CallKind::Mremap,
            Self::AdviseDontneed
            | Self::AdviseFree
            | Self::AdviseRemove
            | Self::AdviseHugePages
            | Self::AdviseNoHugePages
            | Self::AdviseCollapse
            | Self::AdviseOther => CallKind::Madvise,
            Self::Protect => CallKind::Mprotect,
        }
    }

    /// Whether it takes pages away that had to be faulted in.
    #[must_use]
    pub fn gives_back(self) -> bool {
        matches!(
            self,
            Self::MapPurge
                | Self::Unmap
                | Self::BreakTrim
                | Self::AdviseDontneed
                | Self::AdviseFree
                | Self::AdviseRemove
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_hold_an_answer_or_an_error() {
        assert_eq!(MemoryCall::result_of_register(0x7f00_0000_0000), Ok(0x7f00_0000_0000));
        assert_eq!(MemoryCall::result_of_register(-12), Err(12));
        assert_eq!(MemoryCall::result_of_register(-4096), Ok((-4096_i64).cast_unsigned()));
    }

    #[test]
    fn what_was_left_in_registers_is_no_argument() {
        assert_eq!(CallKind::Brk.arguments_of([1, 2, 3, 4, 5]), [1, 0, 0, 0, 0]);
        assert_eq!(CallKind::Madvise.arguments_of([1, 2, 3, 4, 5]), [1, 2, 3, 0, 0]);
        assert_eq!(CallKind::Mremap.arguments_of([1, 2, 3, 4, 5]), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn every_operation_belongs_to_the_call_that_its_name_begins_with() {
        use Operation::*;
        let maps = [MapAnonymous, MapReserve, MapPurge, MapStack, MapShared, MapFile];
        let advice = [AdviseDontneed, AdviseFree, AdviseRemove, AdviseHugePages, AdviseNoHugePages];
        let others = [Unmap, BreakQuery, BreakGrow, BreakTrim, Remap, AdviseCollapse, AdviseOther, Protect];
        for operation in maps.into_iter().chain(advice).chain(others) {
            assert!(operation.name().starts_with(operation.kind().name()), "{operation:?}");
        }
    }
}
