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
        match self {
            Self::MainHeap => "main heap",
            Self::GlibcHeap => "glibc heaps",
            Self::GlibcLargeBlock => "glibc large blocks",
            Self::Allocator(allocator) => allocator.name(),
            Self::MainStack => "main stack",
            Self::ThreadStack => "thread stacks",
            Self::JavaThreadStack => "Java thread stacks",
            Self::JavaHeap => "Java heap",
            Self::JavaCode => "Java code cache",
            Self::JavaClasses => "Java metaspace",
            Self::JavaCollector => "Java collector's tables",
            Self::JavaOther => "other Java VM memory",
            Self::GoHeap => "Go heap",
            Self::GoRuntime => "Go runtime's tables",
            Self::V8Heap => "V8 heap",
            Self::PythonObjects => "Python objects",
            Self::PhpHeap => "PHP heap",
            Self::RubyObjects => "Ruby objects",
            Self::Program => "programs, libraries",
            Self::StaticData => "static data",
            Self::MappedFile => "mapped files",
            Self::SharedMemory => "shared memory",
            Self::OwnMapping => "own mappings",
            Self::Kernel => "kernel's pages",
            Self::Device => "devices",
            Self::Inaccessible => "reserved addresses",
            Self::Unknown => "unknown",
        }
    }

    /// Word for JSON, which stays the same when the name for people changes.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::MainHeap => "main_heap",
            Self::GlibcHeap => "glibc_heap",
            Self::GlibcLargeBlock => "glibc_large_block",
            Self::Allocator(allocator) => match allocator {
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
            },
            Self::MainStack => "main_stack",
            Self::ThreadStack => "thread_stack",
            Self::JavaThreadStack => "java_thread_stack",
            Self::JavaHeap => "java_heap",
            Self::JavaCode => "java_code",
            Self::JavaClasses => "java_classes",
            Self::JavaCollector => "java_collector",
            Self::JavaOther => "java_other",
            Self::GoHeap => "go_heap",
            Self::GoRuntime => "go_runtime",
            Self::V8Heap => "v8_heap",
            Self::PythonObjects => "python_objects",
            Self::PhpHeap => "php_heap",
            Self::RubyObjects => "ruby_objects",
            Self::Program => "program",
            Self::StaticData => "static_data",
            Self::MappedFile => "mapped_file",
            Self::SharedMemory => "shared_memory",
            Self::OwnMapping => "own_mapping",
            Self::Kernel => "kernel",
            Self::Device => "device",
            Self::Inaccessible => "inaccessible",
            Self::Unknown => "unknown",
        }
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
