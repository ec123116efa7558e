//! What can be read of a process's memory, whoever reads it: a live process, a core file, a test.

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
}

impl Extent {
    /// From `start`, so many bytes; cut where addresses end.
    #[must_use]
    pub fn new(start: u64, bytes: u64) -> Self {
        Self { start, end: start.saturating_add(bytes) }
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether the address lies in it.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }

    /// What both have in common.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Option<Self> {
        let common = Self { start: self.start.max(other.start), end: self.end.min(other.end) };
        (common.start < common.end).then_some(common)
    }
}

/// A run of pages in the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Where.
    pub extent: Extent,
    /// Swapped out rather than in memory.
    pub is_swapped: bool,
}

/// The memory of a process.
pub trait Contents {
    /// Fills `buffer` from `address` on; false where that is not possible without bringing pages into memory.
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool;

    /// The pages from `start` to `end` that are in memory or in swap, ascending; pages that read as zero because nobody wrote to
    /// them are neither. None where the kernel does not tell.
    fn pages(&self, extent: Extent) -> Option<Vec<PageRun>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_overlap_or_do_not() {
        let extent = Extent::new(10, 10);
        assert_eq!(extent.overlap(&Extent::new(15, 100)), Some(Extent { start: 15, end: 20 }));
        assert_eq!(extent.overlap(&Extent::new(20, 1)), None);
        assert!(extent.contains(19) && !extent.contains(20));
        assert_eq!(Extent::new(u64::MAX, 10).bytes(), 0);
    }
}
