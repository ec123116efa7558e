//! Pages of partly used slabs that were purged, and that were wanted again, in the unit in which `decay` hears of them.

/// Pages of 4 KiB in a granule.
const PAGES_OF_GRANULE: u32 = 16;

/// What is less than a granule so far.
pub struct SlabPages {
    purged: u32,
    wanted: u32,
}

impl SlabPages {
    /// None.
    pub const fn new() -> Self {
        Self { purged: 0, wanted: 0 }
    }

    /// So many more were purged; returns whole granules.
    pub fn purged(&mut self, pages: u32) -> u32 {
        granules(&mut self.purged, pages)
    }

    /// So many more were wanted again; returns whole granules.
    pub fn wanted(&mut self, pages: u32) -> u32 {
        granules(&mut self.wanted, pages)
    }
}

fn granules(sum: &mut u32, pages: u32) -> u32 {
    *sum += pages;
    let granules = *sum / PAGES_OF_GRANULE;
    *sum %= PAGES_OF_GRANULE;
    granules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_add_up_to_granules() {
        let mut pages = SlabPages::new();
        assert_eq!([pages.purged(15), pages.purged(2), pages.wanted(40)], [0, 1, 2]);
        assert_eq!([pages.purged(15), pages.wanted(8)], [1, 1]);
    }
}
