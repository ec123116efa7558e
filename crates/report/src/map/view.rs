//! Everything `faultless map` found, before it is written as a table or JSON.

use faultless_diagnosis::classification::claim::Strength;
use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::parts::Part;
use faultless_diagnosis::classification::totals::{self, Total};
use faultless_diagnosis::java_account::JavaAccount;
use faultless_records::allocator::Allocator;
use faultless_records::cgroup::MemoryGroup;
use faultless_records::mappings::{self, Mapping, Usage};
use faultless_records::unmapped_files::UnmappedFiles;

use crate::plain::plain;

/// A process's memory at one moment.
#[derive(Debug)]
pub struct MapView {
    /// Name and number, or the file.
    pub subject: String,
    /// Its number; none for a file that does not say.
    pub pid: Option<i32>,
    /// Its mappings, ascending.
    pub mappings: Vec<Mapping>,
    /// What they are.
    pub parts: Vec<Part>,
    /// The sums.
    pub totals: Vec<Total>,
    /// The kernel's own sum, `smaps_rollup`; none for files, and where it was too large to ask.
    pub kernel: Option<Usage>,
    /// The kernel's cheap counter, where mappings were not measured.
    pub counted_rss_bytes: Option<u64>,
    /// Files in memory that it holds by descriptors alone; none where these are not seen.
    pub unmapped_files: Option<UnmappedFiles>,
    /// Page tables, which the kernel keeps for it beside RSS; none of a saved file.
    pub page_table_bytes: Option<u64>,
    /// Mappings that it may have (`vm.max_map_count`); none of a saved file.
    pub most_mappings: Option<u64>,
    /// Whether its program defines `malloc` itself, which the loader finds before that of any library; false of a saved file.
    pub has_own_malloc: bool,
    /// Its control group.
    pub group: Option<MemoryGroup>,
    /// What its Java virtual machine says it uses, set against what is resident.
    pub java: Option<JavaAccount>,
    /// What was not seen, and what would show it.
    pub remarks: Vec<String>,
}

impl MapView {
    /// Adds up the parts.
    #[must_use]
    pub fn new(subject: String, pid: Option<i32>, mappings: Vec<Mapping>, parts: Vec<Part>) -> Self {
        let totals = totals::totals(&parts, &mappings);
        Self {
            subject: plain(&subject),
            pid,
            mappings,
            parts,
            totals,
            kernel: None,
            counted_rss_bytes: None,
            unmapped_files: None,
            page_table_bytes: None,
            most_mappings: None,
            has_own_malloc: false,
            group: None,
            java: None,
            remarks: Vec::new(),
        }
    }

    /// Whether what is in memory was measured, not only addresses.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.usage.is_some())
    }

    /// The sum over all mappings.
    #[must_use]
    pub fn sum(&self) -> Usage {
        totals::sum(&self.totals)
    }

    /// What is mapped at several addresses, and counted at each.
    #[must_use]
    pub fn mapped_again(&self) -> Usage {
        totals::mapped_again(&self.mappings)
    }

    /// Part of the resident bytes of which nothing proves what they are, from 0 to 1.
    #[must_use]
    pub fn unknown_share(&self) -> f64 {
        totals::unknown_share(&self.totals)
    }

    /// The allocator library that is loaded, if none of the memory is known as its by its records, or by name, and more may be its than
    /// its variables point to: a variable of the program's may point to a block that begins where its mapping does.
    #[must_use]
    pub fn unseen_allocator(&self) -> Option<Allocator> {
        let allocator = mappings::allocator(&self.mappings);
        let kind = Kind::Allocator(allocator);
        let is_another = !self.has_own_malloc && !matches!(allocator, Allocator::Libc | Allocator::LibcDebug);
        let is_unseen = is_another
            && !self.is_proven(|found| found == kind)
            && self.rss_bytes(kind) < self.bytes_of_nobody();
        is_unseen.then_some(allocator)
    }

    /// Whether the program's own `malloc` serves it, none of the memory is known as that one's, and some may be.
    #[must_use]
    pub fn is_own_malloc_unseen(&self) -> bool {
        let is_glibcs = |total: &Total| total.kind.is_glibcs() && total.usage.rss_bytes > 0;
        self.has_own_malloc
            && !self.is_allocator_proven()
            && !self.totals.iter().any(is_glibcs)
            && self.bytes_of_nobody() > 0
    }

    /// Resident bytes that may be what an allocator serves whose memory bears no mark.
    fn bytes_of_nobody(&self) -> u64 {
        self.rss_bytes(Kind::Unknown) + self.rss_bytes(Kind::OwnMapping)
    }

    /// Whether memory of another allocator than glibc's is known as its by its records, or by name.
    #[must_use]
    pub fn is_allocator_proven(&self) -> bool {
        self.is_proven(|kind| matches!(kind, Kind::MuslHeap | Kind::Allocator(_)))
    }

    fn is_proven(&self, is_meant: impl Fn(Kind) -> bool) -> bool {
        self.parts.iter().any(|part| is_meant(part.kind) && part.evidence.strength > Strength::Pointer)
    }

    /// Resident bytes of one kind.
    #[must_use]
    pub fn rss_bytes(&self, kind: Kind) -> u64 {
        self.totals.iter().find(|total| total.kind == kind).map_or(0, |total| total.usage.rss_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::claim::Evidence;
    use faultless_records::contents::Extent;

    /// What snmalloc's one variable points to, then what it serves.
    fn under_snmalloc(kind: Kind, strength: Strength) -> MapView {
        let smaps = "10000-20000 rw-p 00000000 00:00 0 \nRss: 4 kB\n\
                     20000-30000 rw-p 00000000 00:00 0 \nRss: 64 kB\n\
                     40000-50000 r-xp 00000000 08:01 7 /lib/libsnmalloc.so\nRss: 4 kB\n";
        let mappings = mappings::parse(smaps.as_bytes()).unwrap();
        let part = |place: usize, kind, strength| Part {
            mapping: place,
            extent: Extent { start: mappings[place].start, end: mappings[place].end },
            kind,
            evidence: Evidence::plain(strength, "test"),
            claim: None,
            usage: mappings[place].usage,
            is_estimated: false,
        };
        let parts = vec![
            part(0, Kind::Allocator(Allocator::Snmalloc), Strength::Pointer),
            part(1, kind, strength),
            part(2, Kind::Program, Strength::Kernel),
        ];
        MapView::new("x".into(), None, mappings, parts)
    }

    #[test]
    fn an_allocator_of_which_a_variable_shows_one_page_is_unseen() {
        let its = Kind::Allocator(Allocator::Snmalloc);
        for (kind, strength, unseen) in [
            (Kind::Unknown, Strength::Pattern, Some(Allocator::Snmalloc)),
            (Kind::OwnMapping, Strength::Pointer, Some(Allocator::Snmalloc)),
            (its, Strength::Pointer, None),
            (its, Strength::Contents, None),
        ] {
            assert_eq!(under_snmalloc(kind, strength).unseen_allocator(), unseen, "{kind:?}");
        }
    }
}
