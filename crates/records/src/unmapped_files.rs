//! Memory that a process holds by descriptors alone.

/// Files in memory (memfd, or deleted from a tmpfs) that a process has open and does not map, and what else has memory of the kernel's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnmappedFiles {
    /// Files, each once however many descriptors it has.
    pub count: u64,
    /// Their memory, in swap or not.
    pub bytes: u64,
    /// Pipes, of which it may have both ends: what waits in them is memory of the kernel's.
    pub pipes: u64,
    /// Sockets, which have buffers there, too.
    pub sockets: u64,
}
