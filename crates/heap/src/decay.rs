//! When a free span goes back to the kernel. Pure: time and sizes are passed in.
//!
//! Keeping a free MiB costs what the machine could do with it; giving it back costs a purge now and a fault per
//! page when it is wanted again (256 pages x about 2 us, measured in ARCHITECTURE.md). While nothing speaks for
//! reuse a freed span is purged at once. A span wanted again soon after its purge is a *regret*: it is evidence
//! that this size comes back, and how soon. From then on as much memory as was seen to come back is held, for a
//! multiple of the gap seen between free and reuse, never longer than [`HOLD_MAX_NS`]: at that age holding has
//! cost as much as one purge and refault would (ski rental). Memory that is held in vain loses its evidence.

/// Longest time in ns that free memory is held: the age at which holding a page has cost one purge and refault.
pub const HOLD_MAX_NS: u64 = 250_000_000;

/// Shortest time in ns that memory is held once reuse was seen.
pub const HOLD_MIN_NS: u64 = 100_000;

/// Held for this many times the usual gap between free and reuse.
const GAPS_HELD: u64 = 16;

/// Number of size bins evidence is kept for: one per doubling of the size in granules.
pub const BINS: usize = 25;

/// The evidence bin of a span of `granules`.
pub fn bin_of(granules: u32) -> usize {
    (granules.max(1).ilog2() as usize).min(BINS - 1)
}

/// Length in granules of the smallest span of an evidence bin.
pub fn smallest_of(bin: u8) -> u32 {
    1 << bin
}

/// What becomes of a freed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks for reuse: give it back with the next batch.
    Purge,
    /// Hold it until this time in ns.
    HoldUntil(u64),
}

/// What is known about spans of one size bin; sizes in granules, times in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    /// Usual time between free and reuse (exponential mean over 8 reuses).
    gap_ns: u64,
    /// Memory that was seen to be reused, and so may be held.
    depth: u32,
    /// Memory held now.
    held: u32,
    /// Memory purged and not asked for again since.
    purged: u32,
    /// When memory of this bin was last purged.
    purged_at: u64,
}

/// The purge policy of one heap.
pub struct Decay {
    bins: [Evidence; BINS],
}

impl Decay {
    /// A policy that has seen nothing.
    pub const fn new() -> Self {
        Self { bins: [Evidence { gap_ns: 0, depth: 0, held: 0, purged: 0, purged_at: 0 }; BINS] }
    }

    /// A span of `granules` was freed at `now`. A verdict to hold counts it as held.
    pub fn freed(&mut self, granules: u32, now: u64) -> Verdict {
        let evidence = &mut self.bins[bin_of(granules)];
        if evidence.held.saturating_add(granules) > evidence.depth {
            return Verdict::Purge;
        }
        evidence.held += granules;
        let hold = (GAPS_HELD * evidence.gap_ns).clamp(HOLD_MIN_NS, HOLD_MAX_NS);
        Verdict::HoldUntil(now + hold)
    }

    /// Memory of `bin` that was held, `granules` of it, was taken for a new span after `gap_ns`.
    pub fn reused(&mut self, bin: usize, granules: u32, gap_ns: u64) {
        let evidence = &mut self.bins[bin];
        evidence.held = evidence.held.saturating_sub(granules);
        evidence.note_gap(gap_ns);
    }

    /// Memory freed with the verdict to purge was taken for a new span before its purge, after `gap_ns`.
    pub fn rescued(&mut self, granules: u32, gap_ns: u64) {
        let evidence = &mut self.bins[bin_of(granules)];
        evidence.depth = evidence.depth.saturating_add(granules);
        evidence.note_gap(gap_ns);
    }

    /// A span of `granules` was taken from memory that holds no pages: a regret if this bin was just purged.
    pub fn faulted(&mut self, granules: u32, now: u64) {
        let evidence = &mut self.bins[bin_of(granules)];
        let gap_ns = now.saturating_sub(evidence.purged_at);
        if evidence.purged == 0 || gap_ns > HOLD_MAX_NS {
            evidence.purged = 0;
            return;
        }
        let regretted = granules.min(evidence.purged);
        evidence.purged -= regretted;
        evidence.depth = evidence.depth.saturating_add(regretted);
        evidence.note_gap(gap_ns);
    }

    /// Memory of `bin` freed without evidence is being purged, `granules` of it.
    pub fn purged(&mut self, bin: usize, granules: u32, now: u64) {
        let evidence = &mut self.bins[bin];
        evidence.purged = evidence.purged.saturating_add(granules);
        evidence.purged_at = now;
    }

    /// A span held in `bin` was not reused in time and is being purged: that much evidence is gone.
    pub fn expired(&mut self, bin: usize, granules: u32, now: u64) {
        let evidence = &mut self.bins[bin];
        evidence.held = evidence.held.saturating_sub(granules);
        evidence.depth = evidence.depth.saturating_sub(granules);
        evidence.purged = evidence.purged.saturating_add(granules);
        evidence.purged_at = now;
    }

    /// Held memory moves from one bin to another because its span was merged or cut.
    pub fn rebinned(&mut self, from: usize, to: usize, granules: u32) {
        self.bins[from].held = self.bins[from].held.saturating_sub(granules);
        self.bins[to].held = self.bins[to].held.saturating_add(granules);
    }
}

impl Default for Decay {
    fn default() -> Self {
        Self::new()
    }
}

impl Evidence {
    fn note_gap(&mut self, gap_ns: u64) {
        let gap_ns = gap_ns.min(HOLD_MAX_NS);
        self.gap_ns = if self.gap_ns == 0 { gap_ns } else { self.gap_ns - self.gap_ns / 8 + gap_ns / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn without_evidence_memory_is_given_back_at_once() {
        let mut decay = Decay::new();
        assert_eq!(decay.freed(64, MS), Verdict::Purge);
        decay.purged(bin_of(64), 64, MS);
        assert_eq!(decay.freed(64, 1000 * MS), Verdict::Purge);
    }

    #[test]
    fn one_regret_teaches_to_hold_that_much_and_no_more() {
        let mut decay = Decay::new();
        assert_eq!(decay.freed(64, MS), Verdict::Purge);
        decay.purged(bin_of(64), 64, MS);
        decay.faulted(64, 2 * MS);
        assert_eq!(decay.freed(64, 3 * MS), Verdict::HoldUntil(3 * MS + 16 * MS));
        assert_eq!(decay.freed(64, 3 * MS), Verdict::Purge);
    }

    #[test]
    fn memory_wanted_again_only_after_a_long_time_is_no_regret() {
        let mut decay = Decay::new();
        decay.purged(bin_of(64), 64, 0);
        decay.faulted(64, HOLD_MAX_NS + 1);
        assert_eq!(decay.freed(64, HOLD_MAX_NS + 2), Verdict::Purge);
    }

    #[test]
    fn holding_in_vain_forgets() {
        let mut decay = Decay::new();
        decay.purged(bin_of(64), 64, 0);
        decay.faulted(64, MS);
        assert!(matches!(decay.freed(64, MS), Verdict::HoldUntil(_)));
        decay.expired(bin_of(64), 64, 300 * MS);
        assert_eq!(decay.freed(64, 900 * MS), Verdict::Purge);
    }

    #[test]
    fn a_hold_is_never_longer_than_the_ski_rental_bound() {
        let mut decay = Decay::new();
        decay.purged(0, 1, 0);
        decay.faulted(1, HOLD_MAX_NS);
        assert_eq!(decay.freed(1, HOLD_MAX_NS), Verdict::HoldUntil(2 * HOLD_MAX_NS));
    }
}
