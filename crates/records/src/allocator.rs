//! Which allocator a process uses, judged by the files it has mapped.

use std::fmt;

/// An allocator library that can stand in for the C library's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Allocator {
    /// The C library's own, or one linked into the program where no file shows it.
    Libc,
    /// `libfaultless.so`.
    Faultless,
    /// jemalloc.
    Jemalloc,
    /// gperftools or google tcmalloc.
    Tcmalloc,
    /// mimalloc.
    Mimalloc,
    /// snmalloc.
    Snmalloc,
    /// rpmalloc.
    Rpmalloc,
    /// The allocator of oneTBB.
    Tbbmalloc,
    /// Hoard.
    Hoard,
    /// GrapheneOS's hardened_malloc.
    HardenedMalloc,
    /// The Scudo hardened allocator.
    Scudo,
    /// glibc's debugging allocator (`libc_malloc_debug.so`).
    LibcDebug,
}

/// Start of the file name of each library, and the allocator in it.
const LIBRARIES: &[(&str, Allocator)] = &[
    ("libfaultless", Allocator::Faultless),
    ("libjemalloc", Allocator::Jemalloc),
    ("libtcmalloc", Allocator::Tcmalloc),
    ("libmimalloc", Allocator::Mimalloc),
    ("libsnmalloc", Allocator::Snmalloc),
    ("librpmalloc", Allocator::Rpmalloc),
    ("libtbbmalloc", Allocator::Tbbmalloc),
    ("libhoard", Allocator::Hoard),
    ("libhardened_malloc", Allocator::HardenedMalloc),
    ("libscudo", Allocator::Scudo),
    ("libclang_rt.scudo", Allocator::Scudo),
    ("libc_malloc_debug", Allocator::LibcDebug),
];

/// Start of the name of what `faultless churn --malloc` preloads, which is no allocator.
const RECORDER: &str = "libfaultless-recorder";

impl Allocator {
    /// The allocator whose library `path` is.
    #[must_use]
    pub fn of_file(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().filter(|name| !name.starts_with(RECORDER))?;
        LIBRARIES.iter().find(|(start, _)| name.starts_with(start)).map(|(_, allocator)| *allocator)
    }

    /// The allocator of a process that has these files mapped.
    ///
    /// A library that is mapped without taking the place of `malloc` is judged wrongly; two at once are resolved in
    /// favour of ours, which the tool preloads first.
    #[must_use]
    pub fn of_process<'path>(mapped_files: impl IntoIterator<Item = &'path str>) -> Self {
        let mut found: Vec<Self> = mapped_files.into_iter().filter_map(Self::of_file).collect();
        found.sort_unstable();
        found.first().copied().unwrap_or(Self::Libc)
    }

    /// Name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Libc => "libc",
            Self::Faultless => "Faultless",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Mimalloc => "mimalloc",
            Self::Snmalloc => "snmalloc",
            Self::Rpmalloc => "rpmalloc",
            Self::Tbbmalloc => "tbbmalloc",
            Self::Hoard => "Hoard",
            Self::HardenedMalloc => "hardened_malloc",
            Self::Scudo => "Scudo",
            Self::LibcDebug => "libc (debugging)",
        }
    }
}

impl fmt::Display for Allocator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_file_name() {
        assert_eq!(
            Allocator::of_file("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
            Some(Allocator::Jemalloc)
        );
        assert_eq!(Allocator::of_file("/usr/lib/libtcmalloc_minimal.so.4"), Some(Allocator::Tcmalloc));
        assert_eq!(Allocator::of_file("/usr/lib/libc.so.6"), None);
        assert_eq!(Allocator::of_file("/tmp/libfaultless-recorder.so"), None);
        assert_eq!(Allocator::of_file(""), None);
    }

    #[test]
    fn a_process_without_any_of_them_uses_libc() {
        assert_eq!(Allocator::of_process(["/usr/bin/cat", "/usr/lib/libc.so.6"]), Allocator::Libc);
    }

    #[test]
    fn ours_wins_over_a_library_the_program_brings_itself() {
        let files = ["/usr/bin/redis-server", "/usr/lib/libjemalloc.so.2", "/c/libfaultless-1.so"];
        assert_eq!(Allocator::of_process(files), Allocator::Faultless);
    }
}
