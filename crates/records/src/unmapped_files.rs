//! Memory that a process holds by descriptors alone.

/// Files in memory (memfd, or deleted from a tmpfs) that a process has open and does not map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnmappedFiles {
    /// Files, each once however many descriptors it has.
    pub count: u64,
    /// Their memory, in swap or not.
    pub bytes: u64,
}
