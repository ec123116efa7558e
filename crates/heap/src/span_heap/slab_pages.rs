//! Pages of partly used slabs that were purged, and that were wanted again, in the unit in which `decay` hears of them.

use super::{Purges, SpanHeap};
use crate::granule::GRANULE_BYTES;

/// Bytes, of each less than a granule so far.
pub struct SlabPages {
    purged: usize,
    wanted: usize,
}

impl SlabPages {
    /// None.
    pub const fn new() -> Self {
        Self { purged: 0, wanted: 0 }
    }

    /// So many bytes more were purged; returns whole granules.
    pub fn purged(&mut self, bytes: usize) -> u32 {
        granules(&mut self.purged, bytes)
    }

    /// So many bytes more were wanted again; returns whole granules.
    pub fn wanted(&mut self, bytes: usize) -> u32 {
        granules(&mut self.wanted, bytes)
    }
}

impl SpanHeap {
    /// Pages of partly used slabs were purged at `now`.
    pub fn slab_pages_purged(&mut self, purges: Purges, now: u64) {
        self.counts.purges.add(purges);
        let granules = self.slab_pages.purged(purges.bytes as usize);
        if granules > 0 {
            self.decay.purged(granules, now);
        }
    }

    /// Purged pages of slabs, so many bytes, were wanted again at `now`.
    pub fn slab_pages_wanted(&mut self, bytes: usize, now: u64) {
        let granules = self.slab_pages.wanted(bytes);
        if granules > 0 {
            self.decay.faulted(granules, now);
        }
    }
}

fn granules(sum: &mut usize, bytes: usize) -> u32 {
    *sum += bytes;
    let granules = *sum / GRANULE_BYTES;
    *sum %= GRANULE_BYTES;
    granules as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_purged_are_counted_and_missed_when_they_are_wanted_again() {
        let mut spans = SpanHeap::new();
        let purges = Purges { bytes: GRANULE_BYTES as u64, calls: 3, refused: 2 };
        spans.slab_pages_purged(purges, 0);
        assert!(spans.counts.purges == purges && spans.decay.is_releasing());
        spans.slab_pages_wanted(GRANULE_BYTES, 1);
        assert!(!spans.decay.is_releasing());
    }

    #[test]
    fn pages_of_any_size_add_up_to_granules() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let (mut pages, of) = (SlabPages::new(), GRANULE_BYTES / page);
            assert_eq!([pages.purged((of - 1) * page), pages.purged(2 * page)], [0, 1 + u32::from(of == 1)]);
            assert_eq!([pages.wanted((2 * of + of / 2) * page), pages.wanted(of.div_ceil(2) * page)], [2, 1]);
            assert_eq!(pages.purged((of - 1) * page), u32::from(of > 1));
        }
    }
}
