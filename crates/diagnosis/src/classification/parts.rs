//! Mappings divided by the claims on them, with their resident pages.

use std::collections::HashSet;

use faultless_records::contents::{Extent, PageRun};
use faultless_records::mappings::{Mapping, Usage};

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::extent_of;

/// A mapping, or a piece of one, of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its mapping's place in the list of mappings.
    pub mapping: usize,
    /// Where.
    pub extent: Extent,
    /// What.
    pub kind: Kind,
    /// How that is known.
    pub evidence: Evidence,
    /// Number of the claim that says so; none where only the kernel does.
    pub claim: Option<u32>,
    /// What of it is in memory; none where only `maps` was read.
    pub usage: Option<Usage>,
    /// Whether the figures are the mapping's divided by size, because the kernel does not tell where its pages are.
    pub is_estimated: bool,
}

struct Piece {
    extent: Extent,
    kind: Kind,
    evidence: Evidence,
    claim: Option<u32>,
}

/// Divides every mapping; the figures of its parts add up to its own.
#[must_use]
pub fn divide(sight: &Sight<'_>, claims: Claims) -> Vec<Part> {
    let programs = programs(sight.mappings);
    let mut parts = Vec::with_capacity(sight.mappings.len());
    for (place, mapping) in sight.mappings.iter().enumerate() {
        let extent = extent_of(mapping);
        let mut pieces: Vec<Piece> = Vec::new();
        let is_program = programs.contains(&(mapping.device, mapping.inode));
        let own = |extent| {
            let (kind, evidence) = by_name(mapping, is_program);
            Piece { extent, kind, evidence, claim: None }
        };
        let mut from = extent.start;
        for claim in claims.within(extent) {
            let Some(common) = claim.extent.overlap(&extent) else { continue };
            // The kernel's word on a named mapping stands against weaker evidence, where it says whose it is.
            let (kind, evidence) = by_name(mapping, is_program);
            if !matches!(kind, Kind::Unknown | Kind::Inaccessible | Kind::HugeTlb)
                && claim.evidence.strength < evidence.strength
            {
                continue;
            }
            if common.start > from {
                pieces.push(own(Extent { start: from, end: common.start }));
            }
            let claimed = Piece {
                extent: common,
                kind: claim.kind,
                evidence: claim.evidence,
                claim: Some(claim.number),
            };
            pieces.push(claimed);
            from = common.end;
        }
        if from < extent.end {
            pieces.push(own(Extent { start: from, end: extent.end }));
        }
        let extents: Vec<Extent> = pieces.iter().map(|piece| piece.extent).collect();
        let runs =
            if pieces.len() > 1 { sight.contents.and_then(|contents| contents.pages(extent)) } else { None };
        let usages = mapping.usage.map(|usage| allot(&usage, &extents, runs.as_deref()));
        let is_estimated = pieces.len() > 1 && runs.is_none() && mapping.usage.is_some();
        for (at, piece) in pieces.into_iter().enumerate() {
            let usage = usages.as_ref().map(|usages| usages[at]);
            let Piece { extent, kind, evidence, claim } = piece;
            parts.push(Part { mapping: place, extent, kind, evidence, claim, usage, is_estimated });
        }
    }
    parts
}

/// Files of which some part can be executed.
pub(super) fn programs(mappings: &[Mapping]) -> HashSet<((u32, u32), u64)> {
    let code = mappings.iter().filter(|mapping| mapping.is_executable() && mapping.inode != 0);
    code.map(|mapping| (mapping.device, mapping.inode)).collect()
}

/// What the kernel says of a mapping.
fn by_name(mapping: &Mapping, is_program: bool) -> (Kind, Evidence) {
    let name = mapping.name_text();
    let named = |kind| (kind, Evidence::plain(Strength::Kernel, "named by the kernel"));
    match &*name {
        // pmap writes anonymous memory as the last two.
        "" | "[ anon ]" | "[anon]" => nameless(mapping),
        "[heap]" => named(Kind::MainHeap),
        "[stack]" | "[ stack ]" => named(Kind::MainStack),
        other if other.starts_with("[stack:") => named(Kind::ThreadStack),
        other if other.starts_with("[anon:") || other.starts_with("[anon_shmem:") => {
            let word = other.split_once(':').map_or("", |(_, word)| word.trim_end_matches(']').trim_start());
            let kind = if other.starts_with("[anon_shmem:") { Kind::SharedMemory } else { by_own_name(word) };
            (kind, Evidence::with(Strength::Kernel, "named by the process itself", word.to_owned()))
        }
        other if other.starts_with('[') => named(Kind::Kernel),
        // The file is the kernel's own.
        "/anon_hugepage (deleted)" => match nameless(mapping) {
            (Kind::Unknown, _) => {
                (Kind::HugeTlb, Evidence::plain(Strength::Kernel, "anonymous and mapped with MAP_HUGETLB"))
            }
            other => other,
        },
        // A private mapping of zeros is as one of no file.
        "/dev/zero" if !mapping.is_shared() => nameless(mapping),
        path => (by_file(path, is_program), Evidence::plain(Strength::Kernel, "file of the mapping")),
    }
}

fn nameless(mapping: &Mapping) -> (Kind, Evidence) {
    let resident_bytes = mapping.usage.map_or(0, |usage| usage.rss_bytes.saturating_add(usage.swap_bytes));
    if mapping.is_shared() {
        (Kind::SharedMemory, Evidence::plain(Strength::Kernel, "named by the kernel"))
    } else if mapping.is_inaccessible() && resident_bytes == 0 {
        (Kind::Inaccessible, Evidence::plain(Strength::Kernel, "no access, nothing resident"))
    } else {
        (Kind::Unknown, Evidence::plain(Strength::Pattern, "nothing proves what it is"))
    }
}

fn by_file(name: &str, is_program: bool) -> Kind {
    let starts = |start: &str| name.starts_with(start);
    let is_shared_memory =
        ["/dev/shm/", "/SYSV", "/memfd:", "/secretmem (deleted)", "/dev/zero"].into_iter().any(starts);
    if starts("/memfd:java_heap") {
        // ZGC maps its heap from a file without a name on disk.
        Kind::JavaHeap
    } else if is_shared_memory {
        Kind::SharedMemory
    } else if starts("/dev/") || starts("anon_inode:") || starts("socket:") {
        Kind::Device
    } else if is_program {
        Kind::Program
    } else {
        Kind::MappedFile
    }
}

/// Names that runtimes and allocators give their anonymous memory where the kernel has names for it.
fn by_own_name(word: &str) -> Kind {
    use faultless_records::allocator::Allocator;
    const NAMES: &[(&str, Kind)] = &[
        ("glibc: malloc arena", Kind::GlibcHeap),
        ("glibc: malloc", Kind::GlibcLargeBlock),
        ("glibc: pthread", Kind::ThreadStack),
        ("glibc: loader", Kind::StaticData),
        ("jemalloc", Kind::Allocator(Allocator::Jemalloc)),
        ("tcmalloc", Kind::Allocator(Allocator::Tcmalloc)),
        ("mimalloc", Kind::Allocator(Allocator::Mimalloc)),
        ("scudo", Kind::Allocator(Allocator::Scudo)),
        ("faultless", Kind::Allocator(Allocator::Faultless)),
        ("Go: heap", Kind::GoHeap),
        ("Go:", Kind::GoRuntime),
        ("v8", Kind::V8Heap),
        ("V8", Kind::V8Heap),
        (".bss", Kind::StaticData),
    ];
    let found = NAMES.iter().find(|(start, _)| word.starts_with(start));
    found.map_or(Kind::OwnMapping, |(_, kind)| *kind)
}

/// Divides figures among pieces: by the pages that lie in each, else by size. The last piece with a share takes what rounding leaves.
fn allot(usage: &Usage, extents: &[Extent], runs: Option<&[PageRun]>) -> Vec<Usage> {
    if extents.len() == 1 {
        return vec![*usage];
    }
    let sizes: Vec<u64> = extents.iter().map(Extent::bytes).collect();
    let (resident, swapped) = match runs {
        Some(runs) => (pages_in(extents, runs, false), pages_in(extents, runs, true)),
        None => (sizes.clone(), sizes.clone()),
    };
    // Where pages came or went between the two looks there may be none of a kind that the figures still have.
    let or_sizes =
        |weights: Vec<u64>| if weights.iter().all(|weight| *weight == 0) { sizes.clone() } else { weights };
    let (resident, swapped) = (or_sizes(resident), or_sizes(swapped));
    let mut shares = vec![Usage::default(); extents.len()];
    let mut field = |get: fn(&mut Usage) -> &mut u64, weights: &[u64]| {
        let total = *get(&mut usage.clone());
        for (share, bytes) in shares.iter_mut().zip(in_proportion(total, weights)) {
            *get(share) = bytes;
        }
    };
    field(|usage| &mut usage.rss_bytes, &resident);
    field(|usage| &mut usage.pss_bytes, &resident);
    field(|usage| &mut usage.pss_dirty_bytes, &resident);
    field(|usage| &mut usage.shared_clean_bytes, &resident);
    field(|usage| &mut usage.shared_dirty_bytes, &resident);
    field(|usage| &mut usage.private_clean_bytes, &resident);
    field(|usage| &mut usage.private_dirty_bytes, &resident);
    field(|usage| &mut usage.anonymous_bytes, &resident);
    field(|usage| &mut usage.lazy_free_bytes, &resident);
    field(|usage| &mut usage.anonymous_huge_bytes, &resident);
    field(|usage| &mut usage.hugetlb_bytes, &resident);
    field(|usage| &mut usage.locked_bytes, &resident);
    field(|usage| &mut usage.swap_bytes, &swapped);
    shares
}

/// Bytes of the runs that lie in each piece; both are ascending.
fn pages_in(extents: &[Extent], runs: &[PageRun], is_swapped: bool) -> Vec<u64> {
    let mut bytes = vec![0; extents.len()];
    for run in runs.iter().filter(|run| run.is_swapped == is_swapped) {
        let first = extents.partition_point(|extent| extent.end <= run.extent.start);
        for (extent, bytes) in extents.iter().zip(&mut bytes).skip(first) {
            match extent.overlap(&run.extent) {
                Some(common) => *bytes += common.bytes(),
                None => break,
            }
        }
    }
    bytes
}

fn in_proportion(total: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let mut left = total;
    let mut shares: Vec<u64> = weights
        .iter()
        .map(|weight| {
            // Whole KiB, as the kernel counts; never more than what is left.
            let share = (u128::from(total) * u128::from(*weight)).checked_div(sum).unwrap_or(0);
            let share = u64::try_from(share).unwrap_or(0) / 1024 * 1024;
            left -= share;
            share
        })
        .collect();
    if let Some(last) = weights.iter().rposition(|weight| *weight > 0) {
        shares[last] += left;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;
    use proptest::prelude::*;

    fn kind_of(name: &str, permissions: &[u8; 4]) -> Kind {
        by_name(&mapping(0x1000, 0x2000, permissions, name), name.ends_with(".so")).0
    }

    #[test]
    fn the_kernels_names_are_understood() {
        for (name, kind) in [
            ("[heap]", Kind::MainHeap),
            ("[stack]", Kind::MainStack),
            ("[vvar_vclock]", Kind::Kernel),
            ("[anon: glibc: malloc arena]", Kind::GlibcHeap),
            ("[anon: glibc: pthread stack: 42]", Kind::ThreadStack),
            ("[anon:Go: heap reservation]", Kind::GoHeap),
            ("[anon:my pool]", Kind::OwnMapping),
            ("/lib/a.so", Kind::Program),
            ("/usr/lib/locale/C.utf8/LC_CTYPE", Kind::MappedFile),
            ("/dev/shm/x", Kind::SharedMemory),
            ("/SYSV00000000 (deleted)", Kind::SharedMemory),
            ("/memfd:x (deleted)", Kind::SharedMemory),
            ("/memfd:java_heap (deleted)", Kind::JavaHeap),
            ("/secretmem (deleted)", Kind::SharedMemory),
            ("/anon_hugepage (deleted)", Kind::HugeTlb),
            ("/dev/zero", Kind::Unknown),
            ("/dev/zero (deleted)", Kind::SharedMemory),
            ("/dev/nvidia0", Kind::Device),
            ("", Kind::Unknown),
            ("[ anon ]", Kind::Unknown),
            ("[anon]", Kind::Unknown),
        ] {
            assert_eq!(kind_of(name, b"rw-p"), kind, "{name}");
        }
        assert_eq!(kind_of("", b"---p"), Kind::Inaccessible);
        assert_eq!(kind_of("/anon_hugepage (deleted)", b"---p"), Kind::Inaccessible);
        assert_eq!(kind_of("/anon_hugepage (deleted)", b"rw-s"), Kind::SharedMemory);
    }

    #[test]
    fn whose_huge_pages_are_is_said_before_that_they_are_huge_pages() {
        let mappings = [mapping(0x1000, 0x9000, b"rw-p", "/anon_hugepage (deleted)")];
        let mut claims = Claims::default();
        let layout = Evidence::plain(Strength::Pattern, "test");
        claims.add(Extent { start: 0x1000, end: 0x4000 }, Kind::GlibcHeap, layout);
        let parts = divide(&Sight { mappings: &mappings, contents: None, threads: &[] }, claims);
        let seen: Vec<_> = parts.iter().map(|part| (part.kind, part.evidence.strength)).collect();
        assert_eq!(seen, [(Kind::GlibcHeap, Strength::Pattern), (Kind::HugeTlb, Strength::Kernel)]);
    }

    #[test]
    fn parts_of_a_mapping_have_the_pages_that_lie_in_them() {
        let mut memory = MadeUp::default();
        memory.put(0x1000, &[1]);
        memory.put(0x4000, &[1]);
        memory.put(0x5000, &[1]);
        let mut mapping = mapping(0x1000, 0x9000, b"rw-p", "");
        let usage = Usage { rss_bytes: 12 << 10, pss_bytes: 9 << 10, swap_bytes: 4096, ..Usage::default() };
        mapping.usage = Some(usage);
        let mappings = [mapping];
        let mut claims = Claims::default();
        let evidence = Evidence::plain(Strength::Contents, "test");
        claims.add(Extent { start: 0x4000, end: 0x6000 }, Kind::JavaHeap, evidence);
        let sight = Sight { mappings: &mappings, contents: Some(&memory), threads: &[] };
        let parts = divide(&sight, claims);
        let seen: Vec<(u64, Kind, u64, u64)> = parts
            .iter()
            .map(|part| {
                (part.extent.start, part.kind, part.usage.unwrap().rss_bytes, part.usage.unwrap().pss_bytes)
            })
            .collect();
        let expected = [
            (0x1000, Kind::Unknown, 4096, 3072),
            (0x4000, Kind::JavaHeap, 8192, 6144),
            (0x6000, Kind::Unknown, 0, 0),
        ];
        assert_eq!(seen, expected);
        let mut sum = Usage::default();
        parts.iter().for_each(|part| sum += part.usage.unwrap());
        assert_eq!(sum, usage);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_the_whole(
            kibibytes in 0_u64..1 << 40,
            weights in proptest::collection::vec(0_u64..1 << 50, 1..10),
        ) {
            let total = kibibytes << 10;
            let shares = in_proportion(total, &weights);
            let sum: u64 = shares.iter().sum();
            prop_assert_eq!(sum, if weights.iter().all(|weight| *weight == 0) { 0 } else { total });
        }
    }
}
