//! What was learnt of a process's heaps, as the table and the JSON show it.

pub mod json;
pub(crate) mod remedy;
pub mod table;

use std::time::Duration;

use faultless_diagnosis::glibc_heap::trap::LEAST_TRAPPED_BYTES;
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::faultless_page::FaultlessPage;
use faultless_records::quantity::{several, size};

use remedy::SHARED;

/// Less of what is trapped is not worth a remark.
const NOTABLE_PART: u64 = 10;

/// Where the figures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A running process; how it was stopped, if it was.
    Process(Option<Stop>),
    /// A process on its way out, which changes no more.
    AtExit,
    /// A core file of this name.
    Core(String),
}

/// How a process was made to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// For how long.
    pub stood: Duration,
    /// Threads that could not be stopped.
    pub moving_threads: usize,
    /// Arenas that were still to be walked when it had stood for long enough: their figures are of later, while it ran.
    pub overdue_arenas: usize,
}

/// Memory of an allocator whose inside is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Regions {
    /// Mappings.
    pub count: u64,
    /// Their address space.
    pub reserved_bytes: u64,
    /// What of it can be written.
    pub accessible_bytes: u64,
    /// What of it has memory.
    pub resident_bytes: u64,
}

/// What a Faultless process publishes of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultlessHeap {
    /// The figures.
    pub page: FaultlessPage,
    /// How old they are.
    pub age: Duration,
    /// What has memory of all that blocks may lie in, counted now.
    pub resident_bytes: u64,
}

/// Everything about one process.
#[derive(Debug, Clone, PartialEq)]
pub struct HeapView {
    /// Its number, where it is known.
    pub pid: Option<i32>,
    /// Its name.
    pub name: String,
    /// Where the figures come from.
    pub source: Source,
    /// How long the walk took.
    pub took: Duration,
    /// Version of its glibc, where a file told.
    pub glibc: Option<(u32, u32)>,
    /// Whether its C library is linked into the program, where no preload reaches it.
    pub is_static: bool,
    /// Resident bytes of the whole process, by the kernel's cheap counter (`VmRSS`); none where it is not known.
    pub counted_rss_bytes: Option<u64>,
    /// One walk for each glibc whose malloc was used; seldom more than one.
    pub walks: Vec<HeapWalk>,
    /// Another allocator, by name, with the anonymous mappings that are nobody else's.
    pub other: Option<(String, Regions)>,
    /// The inside of that allocator, where it is Faultless and publishes it.
    pub faultless: Option<FaultlessHeap>,
    /// What limits the figures, in sentences.
    pub remarks: Vec<String>,
}

impl HeapView {
    /// What is free inside glibc's malloc and resident, as far as that is known; none where no heap of glibc's was found.
    #[must_use]
    pub fn trapped_bytes(&self) -> Option<u64> {
        let known = self.walks.iter().filter(|walk| walk.residency_is_known);
        (!self.walks.is_empty()).then(|| known.map(|walk| walk.total.trapped_bytes()).sum())
    }

    /// What of the memory that is free inside malloc other processes have, too, as a remark, where so much of its heaps is shared.
    #[must_use]
    pub fn on_shared(&self, shared_bytes: u64) -> Option<String> {
        let trapped = self.trapped_bytes()?;
        let shared = shared_bytes.min(trapped);
        (shared >= LEAST_TRAPPED_BYTES.max(trapped / NOTABLE_PART)).then(|| {
            format!(
                "Up to {} of what is trapped are shared with other processes since a fork: they are in the RSS of each, and in \
                 memory once. {SHARED}",
                size(shared)
            )
        })
    }

    /// Resident bytes of glibc's malloc, as far as they are known; none where no heap of glibc's was found.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let known = self.walks.iter().filter(|walk| walk.residency_is_known);
        let resident = known.map(|walk| walk.total.holding.resident_bytes + walk.mapped.resident_bytes);
        (!self.walks.is_empty()).then(|| resident.sum())
    }

    /// Threads' caches that changed under the walks.
    #[must_use]
    pub fn changed_caches(&self) -> usize {
        self.walks.iter().map(|walk| walk.changed_caches).sum()
    }

    /// What the walk means for its figures, and for the process, as remarks.
    pub fn on_walk(&self) -> impl Iterator<Item = String> {
        self.on_changed_caches().into_iter().chain(self.on_swapped())
    }

    fn on_swapped(&self) -> Option<String> {
        let swapped = self.walks.iter().map(|walk| walk.total.holding.swapped_bytes).sum();
        (swapped > 0).then(|| {
            format!(
                "{} of the heaps were in swap. The walk brought in the pages with heads of blocks, and others went out for them \
                 where memory is limited; resident and in swap is what was so before it.",
                size(swapped)
            )
        })
    }

    fn on_changed_caches(&self) -> Option<String> {
        let changed = self.changed_caches();
        let cure = match (&self.source, self.pid) {
            (Source::Process(None), Some(pid)) => {
                format!(" faultless heap --stop --pid {pid} reads them at rest.")
            }
            _ => String::new(),
        };
        (changed > 0).then(|| {
            format!(
                "The malloc caches of {} changed while they were read: a part of what they hold counts as in use.{cure}",
                several(changed as u64, "thread")
            )
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use faultless_diagnosis::glibc_heap::account::Account;
    use faultless_diagnosis::glibc_heap::mapped::MappedBlocks;
    use faultless_diagnosis::glibc_heap::pages::Holding;
    use faultless_diagnosis::glibc_heap::sizes::Amount;
    use faultless_records::glibc_heap::LAYOUTS;

    use super::*;

    /// A process of which so many caches changed under the walk.
    pub(crate) fn with_changed_caches(source: Source, changed_caches: usize) -> HeapView {
        let walk = HeapWalk {
            layout: &LAYOUTS[0],
            parameters: None,
            arenas: Vec::new(),
            total: Account::default(),
            caches: 4,
            changed_caches,
            mapped: MappedBlocks { resident_bytes: 100 << 20, ..MappedBlocks::default() },
            residency_is_known: true,
        };
        HeapView {
            pid: Some(7),
            name: "server".into(),
            source,
            took: Duration::ZERO,
            glibc: Some((2, 36)),
            is_static: false,
            counted_rss_bytes: None,
            walks: vec![walk],
            other: None,
            faultless: None,
            remarks: Vec::new(),
        }
    }

    #[test]
    fn the_account_tells_what_is_free_and_what_of_it_is_resident() {
        let mut view = with_changed_caches(Source::Process(None), 0);
        view.counted_rss_bytes = Some(400 << 20);
        let mib = |mib: u64| mib << 20;
        let amount = |blocks, bytes| Amount { blocks, bytes };
        let walk = &mut view.walks[0];
        walk.mapped = MappedBlocks {
            blocks: 3,
            bytes: mib(120),
            found_blocks: 2,
            resident_bytes: mib(100),
            ..walk.mapped
        };
        walk.total = Account {
            binned: amount(2, mib(3)),
            fast: amount(4, mib(2)),
            cached: amount(6, mib(1)),
            top_bytes: mib(5),
            largest_free_bytes: mib(4),
            holding: Holding {
                resident_bytes: mib(40),
                swapped_bytes: mib(1),
                whole_free_bytes: mib(8),
                pinned_bytes: mib(1),
            },
            cached_resident_bytes: mib(1),
            returnable_bytes: mib(6),
            ..Account::default()
        };
        (0..2).for_each(|_| walk.total.used.add(mib(2)));
        walk.total.free.add(mib(3));
        let lines = |view: &HeapView| -> Vec<String> {
            let text = table::text(view, false, None);
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        let all = lines(&view);
        let first = all.iter().position(|line| line.starts_with("The process has")).unwrap();
        let expected = [
            "The process has 400.0 MiB resident; 140.0 of it, 35.0 %, in malloc's heaps and mapped blocks.",
            "faultless map --pid 7 names the rest.",
            "",
            "MiB",
            "reserved 0.0 0 arenas, 0 heaps",
            "in use 4.0 2 blocks",
            "free 11.0 bins 3.0, fast bins 2.0, threads' caches 1.0 (4 found), tops 5.0; the largest 4.0",
            "resident 40.0 and 1.0 MiB in swap",
            "trapped 10.0 fragmentation 25.0 %",
            "trim 6.0 malloc_trim(0) would give it back",
            "left 2.0 whole free pages that it would not give back",
            "pinned 1.0 free parts of pages in use",
            "cached 1.0 in threads' caches",
            "mapped 120.0 3 blocks with a mapping of their own, in use; 2 found, with 100.0 resident",
        ];
        assert_eq!(all[first..][..expected.len()], expected);
        assert!(all.iter().any(|line| line == "2,097,152 to 4,194,303 2 4.0 1 3.0"), "{all:#?}");
        view.walks[0].residency_is_known = false;
        let unknown = lines(&view);
        let has = |expected: &str| unknown.iter().any(|line| line == expected);
        assert!(
            has("resident ? and 1.0 MiB in swap") && has("trim 6.0 malloc_trim(0) would give back at most")
        );
        view.counted_rss_bytes = Some(mib(150));
        assert!(lines(&view).contains(&"The process has 150.0 MiB resident; 140.0 of it, 93.3 %, in malloc's heaps and mapped blocks.".to_owned()));
    }

    #[test]
    fn pages_that_the_walk_brought_in_from_swap_are_a_remark() {
        let mut view = with_changed_caches(Source::Process(None), 0);
        assert_eq!(view.on_walk().count(), 0);
        view.walks[0].total.holding.swapped_bytes = 90 << 20;
        for text in [table::text(&view, false, Some(1000)), json::json(&view)] {
            assert!(text.contains("90 MiB of the heaps were in swap."), "{text}");
        }
    }

    #[test]
    fn what_a_forked_process_shares_is_a_remark_where_it_is_much_of_what_is_free() {
        let mut view = with_changed_caches(Source::Process(None), 0);
        view.walks[0].total.holding.whole_free_bytes = 90 << 20;
        assert_eq!(view.trapped_bytes(), Some(90 << 20));
        let remark = |shared_mib: u64| view.on_shared(shared_mib << 20);
        assert!(remark(95).unwrap().starts_with("Up to 90 MiB of what is trapped are shared"));
        assert!(remark(40).unwrap().starts_with("Up to 40 MiB"));
        assert_eq!(remark(8), None);
        view.walks.clear();
        assert_eq!(view.on_shared(90 << 20), None);
    }

    #[test]
    fn caches_that_changed_are_a_remark_and_nothing_is_said_to_be_in_use() {
        let view = with_changed_caches(Source::Process(None), 3);
        let says = "The malloc caches of 3 threads changed while they were read";
        let cure = "faultless heap --stop --pid 7 reads them at rest.";
        for text in [table::text(&view, false, Some(1000)), json::json(&view)] {
            assert!(text.contains(says) && text.contains(cure), "{text}");
            assert!(!text.contains("Nearly all"), "{text}");
        }
        let stop = Stop { stood: Duration::from_secs(2), moving_threads: 0, overdue_arenas: 1 };
        let ran_on = with_changed_caches(Source::Process(Some(stop)), 1);
        let remark = ran_on.on_walk().next().unwrap();
        assert!(remark.starts_with("The malloc caches of 1 thread changed") && !remark.contains("--stop"));
        let at_rest = table::text(&with_changed_caches(Source::Process(None), 0), false, None);
        assert!(at_rest.contains("Nearly all") && !at_rest.contains("changed"), "{at_rest}");
    }
}
