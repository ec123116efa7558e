//! What kind of memory a fault was on, from the mapping's name and flags.

use faultless_records::fault_recording::Place;
use faultless_records::mappings::DELETED;

/// A kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The heap that grows by `brk`.
    BrkHeap,
    /// Memory from `mmap` without a file: large blocks, arenas of threads, other allocators' heaps.
    Anonymous,
    /// The stack of the first thread.
    Stack,
    /// The stack of another thread.
    ThreadStack,
    /// Memory from `mmap` with code in it: a just-in-time compiler's.
    JitCode,
    /// Anonymous memory shared with children, System V or POSIX shared memory, memfd.
    SharedMemory,
    /// Pages of hugetlbfs.
    HugeTlb,
    /// Code of a program or library.
    Code(String),
    /// Data of a program or library: its variables, relocations, constants.
    Data(String),
    /// A file mapped to be read or written.
    File(String),
    /// The kernel's own pages in the process.
    Kernel,
    /// Private memory that a process has had since it was forked: a page is copied when it is first written.
    Inherited(Box<Kind>),
    /// Nothing was known to be mapped there.
    Unknown,
}

/// Ends the names of kinds of memory that a process has had since it was forked.
pub const INHERITED: &str = ", inherited";

const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;
const MAP_SHARED: u32 = 1;
const MAP_HUGETLB: u32 = 0x40000;

impl Kind {
    /// The kind of a place; `is_program` tells of a path whether it is a program's or library's, whose code was mapped, too.
    #[must_use]
    pub fn of(place: &Place, is_program: impl Fn(&str) -> bool) -> Self {
        let own = Self::of_own(place, is_program);
        let is_private = place.flags & MAP_SHARED == 0 && place.protection & PROT_WRITE != 0;
        match own {
            Self::BrkHeap | Self::Anonymous | Self::Stack | Self::ThreadStack | Self::Data(_)
                if place.is_inherited && is_private =>
            {
                Self::Inherited(Box::new(own))
            }
            own => own,
        }
    }

    fn of_own(place: &Place, is_program: impl Fn(&str) -> bool) -> Self {
        let name = place.mapping.strip_suffix(DELETED).unwrap_or(&place.mapping);
        if place.flags & MAP_HUGETLB != 0 {
            return Self::HugeTlb;
        }
        let file = || name.rsplit('/').next().unwrap_or(name).to_owned();
        match name {
            "" => Self::Unknown,
            "[heap]" => Self::BrkHeap,
            "[stack]" => Self::Stack,
            name if name.starts_with("[anon") => Self::anonymous(place),
            name if name.starts_with('[') => Self::Kernel,
            "//anon" => Self::anonymous(place),
            "/dev/zero" => Self::SharedMemory,
            name if ["/SYSV", "/memfd:", "/dev/shm/"].iter().any(|prefix| name.starts_with(prefix)) => {
                Self::SharedMemory
            }
            _ if place.protection & PROT_EXEC != 0 => Self::Code(file()),
            _ if is_library(name)
                || is_program(name)
                || (place.protection & PROT_WRITE != 0 && place.flags & MAP_SHARED == 0) =>
            {
                Self::Data(file())
            }
            _ => Self::File(file()),
        }
    }

    fn anonymous(place: &Place) -> Self {
        match () {
            () if place.flags & MAP_SHARED != 0 => Self::SharedMemory,
            () if place.is_stack => Self::ThreadStack,
            () if place.protection & PROT_EXEC != 0 => Self::JitCode,
            () => Self::Anonymous,
        }
    }

    /// A word or two for tables.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::BrkHeap => "heap (brk)".into(),
            Self::Anonymous => "anonymous (mmap)".into(),
            Self::Stack => "stack".into(),
            Self::ThreadStack => "thread stack".into(),
            Self::JitCode => "compiled code".into(),
            Self::SharedMemory => "shared memory".into(),
            Self::HugeTlb => "hugetlb pages".into(),
            Self::Code(file) => format!("code of {file}"),
            Self::Data(file) => format!("data of {file}"),
            Self::File(file) => format!("file {file}"),
            Self::Kernel => "kernel's own".into(),
            Self::Inherited(kind) => kind.name() + INHERITED,
            Self::Unknown => "unknown".into(),
        }
    }
}

/// `libx.so`, `libx.so.6`.
fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(mapping: &str, protection: u32, flags: u32, is_stack: bool) -> String {
        let place = Place { mapping: mapping.into(), protection, flags, is_stack, is_inherited: false };
        Kind::of(&place, |path| path == "/bin/shop").name()
    }

    #[test]
    fn what_a_child_has_of_its_parent_is_said_where_its_pages_are_copied_when_written() {
        for (mapping, protection, flags, expected) in [
            ("[heap]", 3, 2, "heap (brk), inherited"),
            ("//anon", 3, 2, "anonymous (mmap), inherited"),
            ("//anon", 3, 1, "shared memory"),
            ("[stack]", 3, 2, "stack, inherited"),
            ("/usr/lib/libc.so.6", 3, 2, "data of libc.so.6, inherited"),
            ("/usr/lib/libc.so.6", 1, 2, "data of libc.so.6"),
            ("/usr/lib/libc.so.6", 5, 2, "code of libc.so.6"),
        ] {
            let place =
                Place { mapping: mapping.into(), protection, flags, is_stack: false, is_inherited: true };
            assert_eq!(Kind::of(&place, |_| false).name(), expected, "{mapping}");
        }
    }

    #[test]
    fn every_kind_of_mapping_has_its_name() {
        for (mapping, protection, flags, is_stack, expected) in [
            ("[heap]", 3, 2, false, "heap (brk)"),
            ("//anon", 3, 2, false, "anonymous (mmap)"),
            ("//anon", 3, 2, true, "thread stack"),
            ("//anon", 7, 2, false, "compiled code"),
            ("[anon: glibc: malloc arena]", 3, 2, false, "anonymous (mmap)"),
            ("/dev/zero (deleted)", 3, 1, false, "shared memory"),
            ("/memfd:pool (deleted)", 3, 1, false, "shared memory"),
            ("/SYSV00000000 (deleted)", 3, 1, false, "shared memory"),
            ("/anon_hugepage (deleted)", 3, 2 | MAP_HUGETLB, false, "hugetlb pages"),
            ("[stack]", 3, 2, true, "stack"),
            ("/usr/lib/libc.so.6", 5, 2, false, "code of libc.so.6"),
            ("/usr/lib/libc.so.6", 1, 2, false, "data of libc.so.6"),
            ("/srv/table.bin", 1, 1, false, "file table.bin"),
            ("/srv/table.bin", 3, 1, false, "file table.bin"),
            ("/srv/table.bin", 1, 2, false, "file table.bin"),
            ("/srv/table.bin", 3, 2, false, "data of table.bin"),
            ("/bin/shop", 5, 2, false, "code of shop"),
            ("/bin/shop", 3, 2, false, "data of shop"),
            ("/bin/shop (deleted)", 1, 2, false, "data of shop"),
            ("[vdso]", 5, 2, false, "kernel's own"),
            ("", 0, 0, false, "unknown"),
        ] {
            assert_eq!(kind(mapping, protection, flags, is_stack), expected, "{mapping}");
        }
    }
}
