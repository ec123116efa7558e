//! Spans on their way to the kernel.

use crate::granule::bytes_of;
use crate::os;
use crate::page_map::PageMap;

/// A span on its way to the kernel: in no list, owned by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// First granule.
    pub first: u32,
    /// Length in granules.
    pub granules: u32,
    /// Whether its mapping is split and should be renewed.
    pub moved: bool,
}

impl Due {
    /// Gives its pages back to the kernel. False: refused.
    ///
    /// Whoever took it from a [`super::SpanHeap`] owns the span, so no lock is held.
    pub fn purge(self, map: &PageMap) -> bool {
        let (address, bytes) = (map.address(self.first), bytes_of(self.granules));
        // SAFETY: the span is in no list and no block lives in it, so its contents are nobody's.
        unsafe {
            map.break_huge_pages(address, bytes);
            let done =
                if self.moved { map.reservation.renew(address, bytes) } else { os::purge(address, bytes) };
            if done {
                map.purge_tables(self.first, self.granules);
            }
            done
        }
    }
}
