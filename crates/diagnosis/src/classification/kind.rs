//! The kinds of memory.

use faultless_records::allocator::Allocator;

/// What a piece of address space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `[heap]`, what `brk` has moved, and what glibc's main arena took by `mmap` where `brk` could not go on.
    MainHeap,
    /// A heap of 64 MiB of one of glibc's other arenas, used and reserved part.
    GlibcHeap,
    /// A block that glibc gave a mapping of its own.
    GlibcLargeBlock,
    /// A mapping of musl's malloc.
    MuslHeap,
    /// Memory of another allocator.
    Allocator(Allocator),
    /// Stack of the first thread.
    MainStack,
    /// Stack of another thread.
    ThreadStack,
    /// Stack of a thread that the Java virtual machine started.
    JavaThreadStack,
    /// Heap of Java objects.
    JavaHeap,
    /// Compiled Java code.
    JavaCode,
    /// Metaspace: classes and methods.
    JavaClasses,
    /// Tables of the garbage collector: cards, marks, offsets.
    JavaCollector,
    /// Other memory that the Java virtual machine says is its own.
    JavaOther,
    /// Heap of Go objects and goroutines' stacks.
    GoHeap,
    /// Tables of Go's runtime.
    GoRuntime,
    /// Heap of V8 (JavaScript), code included.
    V8Heap,
    /// Python's arenas for objects of up to 512 bytes.
    PythonObjects,
    /// PHP's heap: Zend's memory manager.
    PhpHeap,
    /// Ruby's pages of objects.
    RubyObjects,
    /// Programs and libraries: the file part.
    Program,
    /// Programs and libraries: zero-initialised data, thread-local storage, the loader's records.
    StaticData,
    /// Other mapped files.
    MappedFile,
    /// Memory shared with other processes, or made to be.
    SharedMemory,
    /// A mapping that a program or library made for itself.
    OwnMapping,
    /// Huge pages of the kernel's pool (`MAP_HUGETLB`) that the program mapped itself.
    HugeTlb,
    /// Pages that the kernel puts into every process.
    Kernel,
    /// Memory of a device.
    Device,
    /// Reserved addresses that nobody may touch.
    Inaccessible,
    /// Nothing proves what it is.
    Unknown,
}

/// All kinds.
const KINDS: &[Kind] = &[
    Kind::MainHeap,
    Kind::GlibcHeap,
    Kind::GlibcLargeBlock,
    Kind::MuslHeap,
    Kind::MainStack,
    Kind::ThreadStack,
    Kind::JavaThreadStack,
    Kind::JavaHeap,
    Kind::JavaCode,
    Kind::JavaClasses,
    Kind::JavaCollector,
    Kind::JavaOther,
    Kind::GoHeap,
    Kind::GoRuntime,
    Kind::V8Heap,
    Kind::PythonObjects,
    Kind::PhpHeap,
    Kind::RubyObjects,
    Kind::Program,
    Kind::StaticData,
    Kind::MappedFile,
    Kind::SharedMemory,
    Kind::OwnMapping,
    Kind::HugeTlb,
    Kind::Kernel,
    Kind::Device,
    Kind::Inaccessible,
    Kind::Unknown,
    Kind::Allocator(Allocator::Libc),
    Kind::Allocator(Allocator::Faultless),
    Kind::Allocator(Allocator::Jemalloc),
    Kind::Allocator(Allocator::Tcmalloc),
    Kind::Allocator(Allocator::Mimalloc),
    Kind::Allocator(Allocator::Snmalloc),
    Kind::Allocator(Allocator::Rpmalloc),
    Kind::Allocator(Allocator::Tbbmalloc),
    Kind::Allocator(Allocator::Hoard),
    Kind::Allocator(Allocator::HardenedMalloc),
    Kind::Allocator(Allocator::Scudo),
    Kind::Allocator(Allocator::LibcDebug),
];

impl Kind {
    /// The kind with this word.
    #[must_use]
    pub fn of_key(key: &str) -> Option<Self> {
        KINDS.iter().copied().find(|kind| kind.key() == key)
    }

    /// Name for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.key_and_name().1
    }

    /// Word for JSON, which stays the same when the name for people changes.
    #[must_use]
    pub fn key(self) -> &'static str {
        self.key_and_name().0
    }

    /// Whether glibc's malloc hands out of such memory.
    #[must_use]
    pub fn is_glibcs(self) -> bool {
        matches!(self, Self::MainHeap | Self::GlibcHeap | Self::GlibcLargeBlock)
    }

    /// Whether malloc does, whichever serves.
    #[must_use]
    pub fn is_mallocs(self) -> bool {
        self.is_glibcs() || matches!(self, Self::MuslHeap | Self::Allocator(_))
    }

    /// What tells, in a process or of it, how much of such memory is in use: a runtime's own heap, whose inside is not looked at.
    #[must_use]
    pub fn account(self) -> Option<&'static str> {
        match self {
            Self::GoHeap => Some(
                "runtime.ReadMemStats inside (HeapInuse, HeapIdle less HeapReleased, StackInuse) or GODEBUG=gctrace=1 at its start",
            ),
            Self::PythonObjects => Some("sys._debugmallocstats() inside"),
            Self::JavaHeap => Some("jcmd PID GC.heap_info"),
            Self::V8Heap => Some("process.memoryUsage() inside"),
            Self::PhpHeap => Some("memory_get_usage() inside"),
            Self::RubyObjects => Some("GC.stat inside"),
            _ => None,
        }
    }

    fn key_and_name(self) -> (&'static str, &'static str) {
        match self {
            Self::MainHeap => ("main_heap", "main heap"),
            Self::GlibcHeap => ("glibc_heap", "glibc heaps"),
            Self::GlibcLargeBlock => ("glibc_large_block", "glibc large blocks"),
            Self::MuslHeap => ("musl_heap", "musl heaps"),
            Self::Allocator(allocator) => (key_of(allocator), allocator.name()),
            Self::MainStack => ("main_stack", "main stack"),
            Self::ThreadStack => ("thread_stack", "thread stacks"),
            Self::JavaThreadStack => ("java_thread_stack", "Java thread stacks"),
            Self::JavaHeap => ("java_heap", "Java heap"),
            Self::JavaCode => ("java_code", "Java code cache"),
            Self::JavaClasses => ("java_classes", "Java metaspace"),
            Self::JavaCollector => ("java_collector", "Java collector's tables"),
            Self::JavaOther => ("java_other", "other Java VM memory"),
            Self::GoHeap => ("go_heap", "Go heap"),
            Self::GoRuntime => ("go_runtime", "Go runtime's tables"),
            Self::V8Heap => ("v8_heap", "V8 heap"),
            Self::PythonObjects => ("python_objects", "Python objects"),
            Self::PhpHeap => ("php_heap", "PHP heap"),
            Self::RubyObjects => ("ruby_objects", "Ruby objects"),
            Self::Program => ("program", "programs, libraries"),
            Self::StaticData => ("static_data", "static data"),
            Self::MappedFile => ("mapped_file", "mapped files"),
            Self::SharedMemory => ("shared_memory", "shared memory"),
            Self::OwnMapping => ("own_mapping", "own mappings"),
            Self::HugeTlb => ("hugetlb_pages", "hugetlb pages"),
            Self::Kernel => ("kernel", "kernel's pages"),
            Self::Device => ("device", "devices"),
            Self::Inaccessible => ("inaccessible", "reserved addresses"),
            Self::Unknown => ("unknown", "unknown"),
        }
    }
}

fn key_of(allocator: Allocator) -> &'static str {
    match allocator {
        Allocator::Libc => "allocator_libc",
        Allocator::Faultless => "allocator_faultless",
        Allocator::Jemalloc => "allocator_jemalloc",
        Allocator::Tcmalloc => "allocator_tcmalloc",
        Allocator::Mimalloc => "allocator_mimalloc",
        Allocator::Snmalloc => "allocator_snmalloc",
        Allocator::Rpmalloc => "allocator_rpmalloc",
        Allocator::Tbbmalloc => "allocator_tbbmalloc",
        Allocator::Hoard => "allocator_hoard",
        Allocator::HardenedMalloc => "allocator_hardened_malloc",
        Allocator::Scudo => "allocator_scudo",
        Allocator::LibcDebug => "allocator_libc_debug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words_that_differ() {
        let mut keys: Vec<&str> = KINDS.iter().map(|kind| kind.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), KINDS.len());
        assert!(keys.iter().all(|key| key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')));
    }
}
