//! What the Java virtual machine says it uses (NMT), set against what is resident, line by line, and what it cannot see.

use std::collections::BTreeMap;

use faultless_records::contents::{Contents, Extent};
use faultless_records::mappings::Mapping;
use faultless_records::nmt::{Category, NativeMemory};

use crate::classification::kind::Kind;
use crate::classification::parts::Part;

/// A category of NMT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What NMT says of it; what came from malloc lies somewhere in malloc's memory.
    pub said: Category,
    /// Resident in its own mappings; malloc's part is not in it.
    pub resident_bytes: u64,
}

/// The account: `lines`, `malloc_resident_bytes` and `unseen` add up to the resident bytes of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JavaAccount {
    /// NMT's categories.
    pub lines: Vec<Line>,
    /// All that NMT knows to come from malloc.
    pub malloc_bytes: u64,
    /// Resident in malloc's memory, whatever allocator: NMT's share, other libraries' blocks, free memory, malloc's own records.
    pub malloc_resident_bytes: u64,
    /// Resident outside malloc and of no category, by kind, the largest first.
    pub unseen: Vec<(Kind, u64)>,
    /// Whether the ranges of NMT's details were used; otherwise categories are matched with kinds.
    pub has_regions: bool,
}

/// The category that a part is, where no ranges say it.
fn category_of(part: &Part, mappings: &[Mapping], has: impl Fn(&str) -> bool) -> Option<&'static str> {
    match part.kind {
        // Archives of classes; the objects in them, which lie in the Java heap's range, are counted here, too.
        Kind::MappedFile if mappings.get(part.mapping)?.name.ends_with(b".jsa") => Some("Shared class space"),
        Kind::JavaHeap => Some("Java Heap"),
        Kind::JavaCode => Some("Code"),
        Kind::JavaThreadStack => Some("Thread"),
        Kind::JavaCollector => Some("GC"),
        Kind::JavaClasses if has("Metaspace") => Some("Metaspace"),
        Kind::JavaClasses => Some("Class"),
        _ => None,
    }
}

/// Sets one against the other.
#[must_use]
pub fn account(
    parts: &[Part],
    mappings: &[Mapping],
    contents: Option<&dyn Contents>,
    memory: &NativeMemory,
) -> JavaAccount {
    let mut resident: BTreeMap<String, u64> = BTreeMap::new();
    let mut unseen: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut malloc_resident_bytes = 0;
    let has = |name: &str| memory.categories.iter().any(|category| category.name == name);
    for part in parts {
        let rss_bytes = part.usage.map_or(0, |usage| usage.rss_bytes);
        let mut left = rss_bytes;
        for (category, bytes) in shares(part, rss_bytes, contents, memory) {
            let bytes = bytes.min(left);
            left -= bytes;
            add(resident.entry(category).or_default(), bytes);
        }
        let category = if memory.regions.is_empty() { category_of(part, mappings, has) } else { None };
        match category.filter(|name| has(name)) {
            Some(name) => add(resident.entry(name.to_owned()).or_default(), left),
            None if part.kind.is_mallocs() => add(&mut malloc_resident_bytes, left),
            None => add(unseen.entry(part.kind).or_default(), left),
        }
    }
    let mut unseen: Vec<(Kind, u64)> = unseen.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    unseen.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let mut lines: Vec<Line> = memory
        .categories
        .iter()
        .map(|said| Line { said: said.clone(), resident_bytes: resident.remove(&said.name).unwrap_or(0) })
        .collect();
    // A range of a category that the summary leaves out keeps its line.
    lines.extend(resident.into_iter().map(|(name, resident_bytes)| Line {
        said: Category { name, ..Category::default() },
        resident_bytes,
    }));
    JavaAccount {
        malloc_bytes: lines.iter().map(|line| line.said.malloc_bytes).fold(0, u64::saturating_add),
        lines,
        malloc_resident_bytes,
        unseen,
        has_regions: !memory.regions.is_empty(),
    }
}

/// A file may say what no process has.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// What of a part lies in ranges of categories; whole where a range covers it, else by its pages.
fn shares(
    part: &Part,
    rss_bytes: u64,
    contents: Option<&dyn Contents>,
    memory: &NativeMemory,
) -> Vec<(String, u64)> {
    let first = memory.regions.partition_point(|region| region.extent.end <= part.extent.start);
    let touching = memory.regions[first..].iter().take_while(|region| region.extent.start < part.extent.end);
    touching
        .filter_map(|region| {
            let common = region.extent.overlap(&part.extent)?;
            let bytes = if common == part.extent { rss_bytes } else { pages_in(common, contents) };
            // Stacks are listed by another name than their category.
            let name = if region.category == "Thread Stack" { "Thread" } else { &region.category };
            Some((name.to_owned(), bytes))
        })
        .collect()
}

fn pages_in(extent: Extent, contents: Option<&dyn Contents>) -> u64 {
    let runs = contents.and_then(|contents| contents.pages(extent)).unwrap_or_default();
    runs.iter()
        .filter(|run| !run.is_swapped)
        .filter_map(|run| run.extent.overlap(&extent))
        .map(|common| common.bytes())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classification::totals::tests::part;
    use faultless_records::nmt::Region;

    fn category(name: &str, malloc_bytes: u64) -> Category {
        Category { name: name.into(), malloc_bytes, ..Category::default() }
    }

    fn parts() -> Vec<Part> {
        vec![
            part(0, 0, 100, Kind::JavaHeap, 60),
            part(0, 200, 300, Kind::JavaThreadStack, 20),
            part(0, 400, 500, Kind::GlibcHeap, 50),
            part(0, 600, 700, Kind::Program, 7),
        ]
    }

    fn sum(account: &JavaAccount) -> u64 {
        let lines: u64 = account.lines.iter().map(|line| line.resident_bytes).sum();
        let unseen: u64 = account.unseen.iter().map(|(_, bytes)| bytes).sum();
        lines + account.malloc_resident_bytes + unseen
    }

    #[test]
    fn every_resident_byte_stands_in_one_line() {
        let mut memory = NativeMemory {
            categories: vec![category("Java Heap", 0), category("Thread", 3), category("GC", 9)],
            ..NativeMemory::default()
        };
        let by_kind = account(&parts(), &[], None, &memory);
        let region =
            |start, end, category: &str| Region { extent: Extent { start, end }, category: category.into() };
        memory.regions = vec![region(0, 100, "Java Heap"), region(200, 300, "Thread Stack")];
        let by_range = account(&parts(), &[], None, &memory);
        for account in [&by_kind, &by_range] {
            assert_eq!(sum(account), 137);
            assert_eq!((account.malloc_resident_bytes, account.malloc_bytes), (50, 12));
            assert_eq!(account.lines[0].resident_bytes, 60);
            assert_eq!(account.lines[1].resident_bytes, 20);
            assert_eq!(account.unseen, [(Kind::Program, 7)]);
        }
        assert!(by_range.has_regions && !by_kind.has_regions);
    }

    #[test]
    fn sums_that_no_process_has_are_as_large_as_numbers_get() {
        let memory = NativeMemory {
            categories: vec![category("Java Heap", 1 << 63), category("Thread", 1 << 63)],
            ..NativeMemory::default()
        };
        let half = |kind| part(0, 0, 100, kind, 1 << 63);
        let kinds = [Kind::JavaHeap, Kind::GlibcHeap, Kind::Program];
        let parts: Vec<Part> = kinds.into_iter().flat_map(|kind| [half(kind), half(kind)]).collect();
        let found = account(&parts, &[], None, &memory);
        let resident = (found.lines[0].resident_bytes, found.malloc_resident_bytes, found.unseen[0].1);
        assert_eq!((found.malloc_bytes, resident), (u64::MAX, (u64::MAX, u64::MAX, u64::MAX)));
    }

    #[test]
    fn archives_of_classes_are_shared_class_space_where_no_ranges_say_it() {
        let mapping = |name: &str| Mapping { name: name.into(), ..Mapping::default() };
        let mappings = [mapping("/jdk/lib/server/classes.jsa"), mapping("/jdk/lib/modules")];
        let parts = [part(0, 0, 100, Kind::MappedFile, 60), part(1, 200, 300, Kind::MappedFile, 9)];
        let shared = category("Shared class space", 0);
        let memory = NativeMemory { categories: vec![shared], ..NativeMemory::default() };
        let found = account(&parts, &mappings, None, &memory);
        assert_eq!((found.lines[0].resident_bytes, sum(&found)), (60, 69));
        assert_eq!(found.unseen, [(Kind::MappedFile, 9)]);
        let found = account(&parts, &mappings, None, &NativeMemory::default());
        assert_eq!(found.unseen, [(Kind::MappedFile, 69)], "a JVM whose NMT has no such category");
    }
}
