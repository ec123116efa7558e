//! What malloc holds of processes, in figures that allocators have in common.

use faultless_records::faultless_page::FaultlessPage;

use crate::glibc_heap::walk::HeapWalk;

/// The name of glibc's malloc here.
pub const GLIBC: &str = "glibc";

/// The name of what is not known: another C library's malloc, or one inside a static program.
pub const UNKNOWN: &str = "unknown";

/// Sums over processes; what an allocator does not tell is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heap {
    /// Its name.
    pub allocator: String,
    /// Processes that it serves.
    pub processes: u64,
    /// Bytes of blocks that the programs have.
    pub used_bytes: Option<u64>,
    /// Bytes that are free, with memory or without.
    pub free_bytes: Option<u64>,
    /// Bytes with memory, used or free.
    pub resident_bytes: Option<u64>,
    /// Bytes with memory that are free, and why they are kept.
    pub trapped_bytes: Vec<(&'static str, u64)>,
    /// glibc's arenas.
    pub arenas: Option<u64>,
    /// Bytes that were given back to the kernel since the process began.
    pub purged_bytes: Option<u64>,
}

impl Heap {
    /// An allocator whose inside is not known.
    #[must_use]
    pub fn of_another(allocator: &str) -> Self {
        Self { allocator: allocator.to_owned(), processes: 1, ..Self::default() }
    }

    /// glibc's malloc, by the walks of `faultless heap`.
    #[must_use]
    pub fn of_glibc(walks: &[HeapWalk]) -> Self {
        let sum = |figure: fn(&HeapWalk) -> u64| walks.iter().map(figure).fold(0, u64::saturating_add);
        let residency_is_known = walks.iter().all(|walk| walk.residency_is_known);
        let trapped = [
            ("returnable", sum(|walk| walk.total.returnable_bytes)),
            ("kept", sum(|walk| walk.total.kept_bytes())),
            ("pinned", sum(|walk| walk.total.holding.pinned_bytes)),
            ("cached", sum(|walk| walk.total.cached_resident_bytes)),
        ];
        Self {
            allocator: GLIBC.to_owned(),
            processes: 1,
            used_bytes: Some(sum(|walk| walk.total.used_bytes().saturating_add(walk.mapped.bytes))),
            free_bytes: Some(sum(|walk| walk.total.free_bytes())),
            resident_bytes: residency_is_known
                .then(|| sum(|walk| walk.total.holding.resident_bytes + walk.mapped.resident_bytes)),
            trapped_bytes: if residency_is_known { trapped.to_vec() } else { Vec::new() },
            arenas: Some(sum(|walk| walk.arenas.len() as u64)),
            purged_bytes: None,
        }
    }

    /// Faultless, by the page that it publishes, and what was counted from outside: free spans and caches may have memory or not.
    #[must_use]
    pub fn of_faultless(page: &FaultlessPage, resident_bytes: u64) -> Self {
        let free = [page.cached_bytes(), page.free_in_slabs_bytes(), page.dirty_bytes];
        Self {
            used_bytes: Some(page.used_bytes()),
            free_bytes: Some(free.into_iter().fold(0, u64::saturating_add)),
            resident_bytes: Some(resident_bytes),
            purged_bytes: Some(page.purged_bytes),
            ..Self::of_another("faultless")
        }
    }

    /// Adds another process of the same allocator.
    pub fn merge(&mut self, other: &Self) {
        self.processes += other.processes;
        for (sum, more) in [
            (&mut self.used_bytes, other.used_bytes),
            (&mut self.free_bytes, other.free_bytes),
            (&mut self.resident_bytes, other.resident_bytes),
            (&mut self.arenas, other.arenas),
            (&mut self.purged_bytes, other.purged_bytes),
        ] {
            super::add(sum, more);
        }
        for (kind, more) in &other.trapped_bytes {
            match self.trapped_bytes.iter_mut().find(|(known, _)| known == kind) {
                Some((_, sum)) => *sum = sum.saturating_add(*more),
                None => self.trapped_bytes.push((kind, *more)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glibc_heap::made::{Made, chunks_of};
    use faultless_records::faultless_page::Class;
    use faultless_records::glibc_heap::LAYOUTS;

    #[test]
    fn what_one_process_does_not_tell_is_left_out_of_the_sum() {
        let known = |used: u64| Heap {
            used_bytes: Some(used),
            trapped_bytes: vec![("pinned", used / 2)],
            ..Heap::of_another("glibc")
        };
        let mut sum = known(10);
        sum.merge(&known(30));
        sum.merge(&Heap::of_another("glibc"));
        assert_eq!((sum.processes, sum.used_bytes, sum.free_bytes), (3, Some(40), None));
        assert_eq!(sum.trapped_bytes, [("pinned", 20)]);
    }

    #[test]
    fn the_page_of_faultless_has_used_and_free_and_what_is_resident_is_counted() {
        let page = FaultlessPage {
            large_bytes: 4096,
            dirty_bytes: 100,
            purged_bytes: 7,
            ..FaultlessPage::default()
        };
        let heap = Heap::of_faultless(&page, 4120);
        assert_eq!((heap.used_bytes, heap.free_bytes, heap.purged_bytes), (Some(4096), Some(100), Some(7)));
        assert!(heap.resident_bytes == Some(4120) && heap.trapped_bytes.is_empty());
    }

    #[test]
    fn sums_of_what_no_process_can_have_end_at_the_largest_number() {
        let page = FaultlessPage { large_bytes: u64::MAX, dirty_bytes: u64::MAX, ..FaultlessPage::default() };
        let cached = Class { block_bytes: 64, cached: u64::MAX, slabs: 1, ..Class::default() };
        let heap = Heap::of_faultless(&FaultlessPage { classes: vec![cached], ..page }, 4120);
        let mut sum = heap.clone();
        sum.merge(&heap);
        assert_eq!((sum.used_bytes, sum.free_bytes), (Some(u64::MAX), Some(u64::MAX)));
        let mut walk = Made::new(&LAYOUTS[0], &chunks_of(&LAYOUTS[0])).walked(&LAYOUTS[0]);
        walk.mapped.bytes = u64::MAX;
        assert_eq!(Heap::of_glibc(&[walk]).used_bytes, Some(u64::MAX));
    }
}
