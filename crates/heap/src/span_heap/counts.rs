//! What a span heap says of itself.

use super::Purges;

/// Sizes of what the span heap knows, in granules, and counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// In slabs and large blocks.
    pub used: u32,
    /// Most that was ever in slabs and large blocks.
    pub used_peak: u32,
    /// Free without pages.
    pub clean: u32,
    /// Free, maybe with pages.
    pub dirty: u32,
    /// What was purged of spans, and of the pages of slabs.
    pub purges: Purges,
    /// Huge pages brought in since the start.
    pub huge_pages: u64,
}

impl SpanCounts {
    /// And those of another heap. Of peaks the larger is one of both together for sure.
    pub fn add(&mut self, other: Self) {
        self.used += other.used;
        self.used_peak = self.used_peak.max(other.used_peak);
        self.clean += other.clean;
        self.dirty += other.dirty;
        self.purges.add(other.purges);
        self.huge_pages += other.huge_pages;
    }
}
