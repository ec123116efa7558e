//! Sums by kind, and the difference between two.

use std::collections::{BTreeMap, HashSet};

use faultless_records::mappings::{Mapping, Usage};

use super::claim::Strength;
use super::kind::Kind;
use super::parts::Part;

/// All of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// What.
    pub kind: Kind,
    /// Number of pieces: the used and the reserved part of a heap count once, and so do the segments of a file.
    pub count: u64,
    /// Bytes of address space.
    pub reserved_bytes: u64,
    /// Bytes that can be accessed.
    pub accessible_bytes: u64,
    /// What of it is in memory.
    pub usage: Usage,
    /// What was found, how strong it is, and in how many pieces, the most frequent first.
    pub proofs: Vec<(&'static str, Strength, u64)>,
}

/// Sums by kind, the most resident first.
#[must_use]
pub fn totals(parts: &[Part], mappings: &[Mapping]) -> Vec<Total> {
    let mut by_kind: BTreeMap<Kind, Total> = BTreeMap::new();
    let mut last: Option<&Part> = None;
    let mut counted: HashSet<u32> = HashSet::new();
    for part in parts {
        let total = by_kind.entry(part.kind).or_insert_with(|| Total {
            kind: part.kind,
            count: 0,
            reserved_bytes: 0,
            accessible_bytes: 0,
            usage: Usage::default(),
            proofs: Vec::new(),
        });
        // What another claim stands in the middle of is still one: a block that holds the stack of a thread.
        let goes_on = match part.claim {
            Some(claim) => !counted.insert(claim),
            None => last.is_some_and(|last| is_next_segment(last, part, mappings)),
        };
        last = Some(part);
        total.reserved_bytes = total.reserved_bytes.saturating_add(part.extent.bytes());
        if !mappings[part.mapping].is_inaccessible() {
            total.accessible_bytes = total.accessible_bytes.saturating_add(part.extent.bytes());
        }
        total.usage += part.usage.unwrap_or_default();
        if goes_on {
            continue;
        }
        total.count += 1;
        let evidence = &part.evidence;
        match total.proofs.iter_mut().find(|(proof, ..)| *proof == evidence.proof) {
            Some((_, _, count)) => *count += 1,
            None => total.proofs.push((evidence.proof, evidence.strength, 1)),
        }
    }
    let mut totals: Vec<Total> = by_kind.into_values().collect();
    for total in &mut totals {
        total.proofs.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
    }
    let weight =
        |total: &Total| (total.usage.rss_bytes.saturating_add(total.usage.swap_bytes), total.reserved_bytes);
    totals.sort_by_key(|total| std::cmp::Reverse(weight(total)));
    totals
}

/// Whether a part is a file's next segment.
fn is_next_segment(last: &Part, part: &Part, mappings: &[Mapping]) -> bool {
    let name = &mappings[part.mapping].name;
    let is_named_alike = !name.is_empty() && mappings[last.mapping].name == *name;
    last.claim.is_none() && last.kind == part.kind && is_named_alike
}

/// The sum over all kinds.
#[must_use]
pub fn sum(totals: &[Total]) -> Usage {
    let mut sum = Usage::default();
    totals.iter().for_each(|total| sum += total.usage);
    sum
}

/// Shared mappings of one process that show the same part of a file, which RSS counts in each of them: the heap of ZGC before its
/// generations, rings, code that is written at one address and run at another.
#[must_use]
pub fn mapped_again(mappings: &[Mapping]) -> Usage {
    let shared = mappings.iter().filter(|mapping| mapping.is_shared() && mapping.inode != 0);
    let mut by_place: Vec<&Mapping> = shared.collect();
    by_place.sort_by_key(|mapping| (mapping.device, mapping.inode, mapping.offset));
    let end = |mapping: &Mapping| mapping.offset.saturating_add(mapping.bytes());
    let mut sum = Usage::default();
    let files = by_place.chunk_by(|left, right| (left.device, left.inode) == (right.device, right.inode));
    for file in files {
        let mut reached = 0;
        for (place, mapping) in file.iter().enumerate() {
            let follows = file.get(place + 1).is_some_and(|next| next.offset < end(mapping));
            if mapping.offset < reached || follows {
                sum += mapping.usage.unwrap_or_default();
            }
            reached = reached.max(end(mapping));
        }
    }
    sum
}

/// Part of the resident bytes that nothing proves, from 0 to 1.
#[must_use]
pub fn unknown_share(totals: &[Total]) -> f64 {
    let rss_bytes = sum(totals).rss_bytes;
    let unknown = totals.iter().find(|total| total.kind == Kind::Unknown);
    let unknown_bytes = unknown.map_or(0, |total| total.usage.rss_bytes);
    if rss_bytes == 0 { 0.0 } else { unknown_bytes as f64 / rss_bytes as f64 }
}

/// One kind before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What.
    pub kind: Kind,
    /// Number of pieces, before and after.
    pub count: (u64, u64),
    /// Bytes of address space, before and after.
    pub reserved_bytes: (u64, u64),
    /// Before.
    pub before: Usage,
    /// After.
    pub after: Usage,
}

/// All kinds of either, the largest change of resident bytes first.
#[must_use]
pub fn changes(before: &[Total], after: &[Total]) -> Vec<Change> {
    let mut kinds: Vec<Kind> = before.iter().chain(after).map(|total| total.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of = |totals: &[Total], kind| totals.iter().find(|total| total.kind == kind).cloned();
    let mut changes: Vec<Change> = kinds
        .into_iter()
        .map(|kind| {
            let (before, after) = (of(before, kind), of(after, kind));
            let pair =
                |get: fn(&Total) -> u64| (before.as_ref().map_or(0, get), after.as_ref().map_or(0, get));
            Change {
                kind,
                count: pair(|total| total.count),
                reserved_bytes: pair(|total| total.reserved_bytes),
                before: before.as_ref().map(|total| total.usage).unwrap_or_default(),
                after: after.as_ref().map(|total| total.usage).unwrap_or_default(),
            }
        })
        .collect();
    changes.sort_by_key(|change| {
        std::cmp::Reverse((
            change.after.rss_bytes.abs_diff(change.before.rss_bytes),
            change.reserved_bytes.0.abs_diff(change.reserved_bytes.1),
        ))
    });
    changes
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::claim::Evidence;
    use super::*;
    use faultless_records::contents::Extent;

    /// A part of a mapping, by its place, that is known by its contents.
    pub fn part(mapping: usize, start: u64, end: u64, kind: Kind, rss_bytes: u64) -> Part {
        Part {
            mapping,
            extent: Extent { start, end },
            kind,
            evidence: Evidence::plain(Strength::Contents, "test"),
            claim: None,
            usage: Some(Usage { rss_bytes, ..Usage::default() }),
            is_estimated: false,
        }
    }

    fn of(parts: &[Part]) -> Vec<Total> {
        let names: [&str; 4] = ["/lib/a.so", "", "", "/lib/a.so"];
        let mappings = [0, 1, 2, 3].map(|place: usize| Mapping {
            name: names[place].into(),
            permissions: if place == 1 { *b"---p" } else { *b"rw-p" },
            ..Mapping::default()
        });
        totals(parts, &mappings)
    }

    #[test]
    fn what_one_claim_covers_counts_once_and_so_do_segments_of_a_file() {
        let claimed = |mut part: Part, claim| {
            part.claim = Some(claim);
            part
        };
        let parts = [
            part(0, 0x500, 0x600, Kind::Program, 1),
            part(3, 0x600, 0x700, Kind::Program, 1),
            claimed(part(2, 0x1000, 0x2000, Kind::GlibcHeap, 8), 1),
            claimed(part(1, 0x2000, 0x9000, Kind::GlibcHeap, 0), 1),
            claimed(part(1, 0x9000, 0xa000, Kind::GlibcHeap, 0), 2),
            part(2, 0xf000, 0xf100, Kind::Unknown, 30),
            part(2, 0xf100, 0xf200, Kind::Unknown, 0),
        ];
        let totals = of(&parts);
        let find = |kind| totals.iter().find(|total| total.kind == kind).unwrap();
        let heap = find(Kind::GlibcHeap);
        assert_eq!((heap.count, heap.reserved_bytes, heap.accessible_bytes), (2, 0x9000, 0x1000));
        assert_eq!((find(Kind::Program).count, find(Kind::Unknown).count), (1, 2));
        assert_eq!(totals[0].kind, Kind::Unknown, "the most resident first");
        assert!((unknown_share(&totals) - 0.75).abs() < 1e-9);
        assert_eq!(sum(&totals).rss_bytes, 40);
    }

    #[test]
    fn a_block_with_a_stack_in_it_is_one_block() {
        let claimed = |claim, start, kind| Part { claim: Some(claim), ..part(1, start, start + 10, kind, 1) };
        let block = Kind::GlibcLargeBlock;
        let totals = of(&[claimed(2, 0, block), claimed(1, 10, Kind::ThreadStack), claimed(2, 20, block)]);
        let counts = totals.iter().map(|total| (total.kind, total.count, total.proofs[0].2));
        let mut counts: Vec<_> = counts.collect();
        counts.sort_unstable();
        let mut expected = [(block, 1, 1), (Kind::ThreadStack, 1, 1)];
        expected.sort_unstable();
        assert_eq!(counts, expected);
    }

    #[test]
    fn changes_name_kinds_of_either_side_the_largest_first() {
        let before = of(&[part(0, 0, 10, Kind::JavaHeap, 100)]);
        let after = of(&[part(0, 0, 20, Kind::JavaHeap, 90), part(1, 20, 40, Kind::GlibcHeap, 50)]);
        let changes = changes(&before, &after);
        assert_eq!(changes[0].kind, Kind::GlibcHeap);
        assert_eq!((changes[0].before.rss_bytes, changes[0].after.rss_bytes), (0, 50));
        assert_eq!((changes[1].count, changes[1].reserved_bytes), ((1, 1), (10, 20)));
    }

    #[test]
    fn only_shared_mappings_of_one_part_of_a_file_are_mapped_again() {
        let mapping = |start: u64, permissions: &[u8; 4], offset, inode| Mapping {
            start,
            end: start + 0x2000,
            permissions: *permissions,
            offset,
            inode,
            usage: Some(Usage { rss_bytes: 0x2000, pss_bytes: 0x1000, ..Usage::default() }),
            ..Mapping::default()
        };
        let twice = [mapping(0x1_0000, b"rw-s", 0x1000, 7), mapping(0x5_0000, b"rw-s", 0x2000, 7)];
        let others = [
            mapping(0x2_0000, b"rw-s", 0x4000, 7),
            mapping(0x3_0000, b"rw-s", 0x1000, 8),
            mapping(0x4_0000, b"r--p", 0x1000, 7),
            mapping(0x6_0000, b"rw-s", 0, 0),
            mapping(0x7_0000, b"rw-s", 0, 0),
        ];
        assert_eq!(mapped_again(&others), Usage::default());
        let all = mapped_again(&[&twice[..], &others].concat());
        assert_eq!((all.rss_bytes, all.pss_bytes), (0x4000, 0x2000));
    }
}
