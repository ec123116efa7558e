//! jemalloc and both tcmallocs, by their own page maps.
//!
//! All three keep a tree that leads from a page to the record of the run of pages it belongs to: an array in static
//! data, whose entries point to leaves of 2^18 entries. Where the array lies is not exported, but any leaf gives it away: a
//! record states its own first page, and that page's place in the tree leads back to the start of the array. Whatever the tree
//! leads to is the allocator's, exactly and whoever asked for it. Where jemalloc was built on a machine with addresses of 57 bits,
//! its tree has nodes of 2^15 entries between the array and leaves of as many, whose entries have two words.
//! Sources: jemalloc 5.2 and 5.3, `rtree.h`, `edata.h`; gperftools 2.10, `pagemap.h`, `span.h`; tcmalloc, `pagemap.h`.

mod density;
mod tree;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::Claims;
use super::loaded::Loaded;
use super::reader::{Reader, mapping_at};
use density::Density;
use tree::Tree;

/// Entries of a leaf, as a power of two: of two levels, and of jemalloc's three for addresses of 57 bits.
const LEAF_BITS: u32 = 18;
const LEAF_ENTRIES: u64 = 1 << LEAF_BITS;
const WIDE_BITS: u32 = 15;

/// Leaves of one node that are followed: those of a TiB in wide trees.
const MOST_LEAVES: usize = 1 << 13;

/// jemalloc's tables begin with a line of the cache.
const TABLE_ALIGNMENT: u64 = 64;

/// Entries of a leaf looked at to find whether it is one.
const TRIED_ENTRIES: usize = 64;

/// Records that must agree with their place before a leaf is believed, and how many of those may not for each that does: records
/// of runs that were joined stay behind.
const LEAST_HITS: usize = 2;
const MISSES_PER_HIT: usize = 4;

/// Google's allocator takes addresses in pieces of this size and alignment.
const GOOGLE_REGION_BYTES: u64 = 1 << 30;

/// One allocator's tree.
struct Form {
    allocator: Allocator,
    /// Entries of a leaf, and of the nodes between the array and the leaves, as powers of two; without such nodes 0.
    leaf_bits: u32,
    node_bits: u32,
    /// Entries of the array that a process's addresses need with the smallest pages: 47 bits of addresses.
    root_entries: u64,
    /// Bytes of an entry of a leaf; the record is in the first word.
    entry_bytes: u64,
    /// What lies before the pointers in a leaf, in bytes.
    leaf_head_bytes: u64,
    /// Address of the record in an entry.
    record: fn(u64) -> u64,
    /// The run of pages that a record describes; `place` is that of its entry below the array, of so many bits.
    run: fn(&Reader<'_>, u64, u64, u32) -> Option<Run>,
}

impl Form {
    const TWO_LEVELS: Self = Self {
        allocator: Allocator::Tcmalloc,
        leaf_bits: LEAF_BITS,
        node_bits: 0,
        root_entries: 1 << 17,
        entry_bytes: 8,
        leaf_head_bytes: 0,
        record: itself,
        run: google_run,
    };

    fn leaf_entries(&self) -> u64 {
        1 << self.leaf_bits
    }

    /// Place of an entry below the array: that of the leaf in its node, and that in the leaf.
    fn place(&self, leaf: u64, entry: u64) -> u64 {
        (leaf & ((1 << self.node_bits) - 1)) << self.leaf_bits | entry
    }

    /// The leaves that an entry of the array leads to, each with its place among those; none where that is no node. A node has pointers to
    /// leaves that do not overlap, and nothing else: what programs keep looks like one for some words only, and to follow all of its
    /// pointers would take minutes.
    fn leaves(&self, sight: &Sight<'_>, reader: &Reader<'_>, entry: u64) -> Vec<(u64, u64)> {
        if self.node_bits == 0 {
            return vec![(0, entry)];
        }
        let node = Extent::new(entry, 8 << self.node_bits);
        if !entry.is_multiple_of(TABLE_ALIGNMENT) || !sight.is_private(node) {
            return Vec::new();
        }
        let leaf_bytes = self.entry_bytes * self.leaf_entries();
        let (mut leaves, mut taken) = (Vec::new(), BTreeSet::new());
        let mut is_node = true;
        let pages = Extent { start: node.start & !(PAGE_BYTES - 1), end: node.end };
        reader.each_page(pages, |page, words| {
            for (number, leaf) in words.iter().copied().enumerate().filter(|(_, word)| *word != 0) {
                let at = page + 8 * number as u64;
                if !node.contains(at) {
                    continue;
                }
                is_node = leaf.is_multiple_of(TABLE_ALIGNMENT)
                    && is_pointer(sight, leaf)
                    && taken
                        .range(leaf.saturating_sub(leaf_bytes - 1)..leaf.saturating_add(leaf_bytes))
                        .next()
                        .is_none()
                    && leaves.len() < MOST_LEAVES;
                if !is_node {
                    return true;
                }
                taken.insert(leaf);
                leaves.push(((at - node.start) / 8, leaf));
            }
            false
        });
        if is_node { leaves } else { Vec::new() }
    }
}

struct Run {
    /// A page of it, the first if possible; it gives the entry of the array.
    page: u64,
    extent: Extent,
}

const FORMS: &[Form] = &[
    Form { allocator: Allocator::Jemalloc, record: jemalloc_record, run: jemalloc_run, ..Form::TWO_LEVELS },
    Form {
        allocator: Allocator::Jemalloc,
        leaf_bits: WIDE_BITS,
        node_bits: WIDE_BITS,
        root_entries: 1 << WIDE_BITS,
        entry_bytes: 16,
        record: jemalloc_record,
        run: jemalloc_run,
        ..Form::TWO_LEVELS
    },
    Form { run: gperftools_run, ..Form::TWO_LEVELS },
    Form { leaf_head_bytes: LEAF_ENTRIES, ..Form::TWO_LEVELS },
    Form { leaf_head_bytes: 2 * LEAF_ENTRIES, ..Form::TWO_LEVELS },
];

fn itself(entry: u64) -> u64 {
    entry
}

/// Flags stand below the record's alignment, the size class above the 48 bits of addresses.
fn jemalloc_record(entry: u64) -> u64 {
    (entry << 16 >> 16) & !0x3f
}

/// Bits, address, size with a serial number in the lower bits.
fn jemalloc_run(reader: &Reader<'_>, record: u64, place: u64, bits: u32) -> Option<Run> {
    let [_, address, size] = *reader.words(record, 3) else { return None };
    let extent = Extent::new(address & !(PAGE_BYTES - 1), size & !(PAGE_BYTES - 1));
    let page = page_at(extent.start >> 12, place, bits)?;
    extent.contains(page << 12).then_some(Run { page, extent })
}

/// First page, number of pages.
fn gperftools_run(reader: &Reader<'_>, record: u64, place: u64, bits: u32) -> Option<Run> {
    let [first, pages] = *reader.words(record, 2) else { return None };
    let is_sane = first > 0 && first < 1 << 35 && pages > 0 && pages < 1 << 35;
    let page = page_at(first, place, bits).filter(|_| is_sane)?;
    (page < first + pages).then(|| Run { page, extent: Extent::new(first << 13, pages << 13) })
}

/// The first page from `first` on whose place is this.
fn page_at(first: u64, place: u64, bits: u32) -> Option<u64> {
    let entries = 1 << bits;
    let page = (first & !(entries - 1)) | place;
    if page < first { page.checked_add(entries) } else { Some(page) }
}

/// Somewhere in its first words a span has the number of its first page; where differs from version to version.
fn google_run(reader: &Reader<'_>, record: u64, place: u64, bits: u32) -> Option<Run> {
    let words = reader.words(record, 16);
    let page = words
        .into_iter()
        .find(|word| word & ((1 << bits) - 1) == place && (LEAF_ENTRIES..1 << 34).contains(word))?;
    Some(Run { page, extent: google_region(page << 13) })
}

fn google_region(address: u64) -> Extent {
    Extent::new(address & !(GOOGLE_REGION_BYTES - 1), GOOGLE_REGION_BYTES)
}

/// Claims what the page maps of all programs and libraries lead to, and the memory of their records.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for object in &loaded.objects {
        // It may be linked into any of them, under any name: libraries of DuckDB and polars have a jemalloc for themselves.
        let known = Allocator::of_file(&object.file_name());
        for data in &object.data {
            // A library of a known name is not taken for another's.
            let mut forms = FORMS.iter().filter(|form| {
                // Only static data that can hold the array is searched.
                known.is_none_or(|known| known == form.allocator) && data.bytes() >= 8 * form.root_entries
            });
            let density = OnceCell::new();
            let found = forms.find_map(|form| {
                let density = density.get_or_init(|| Density::of(sight, reader, *data));
                Some((form, root(sight, reader, *data, density, form)?))
            });
            if let Some((form, root)) = found {
                Tree { sight, reader, form, object, data: *data, root }.claim(claims);
            }
        }
    }
}

/// Where the array begins.
fn root(sight: &Sight<'_>, reader: &Reader<'_>, data: Extent, density: &Density, form: &Form) -> Option<u64> {
    let mut found = None;
    reader.each_page(data, |page, words| {
        if !density.may_hold_array(page, 8 * form.root_entries) {
            return false;
        }
        for (place, word) in words.iter().enumerate().filter(|(_, word)| is_pointer(sight, **word)) {
            let at = page + 8 * place as u64;
            let leaves = form.leaves(sight, reader, *word);
            let Some(run) = leaves.iter().find_map(|leaf| first_run(sight, reader, *leaf, form)) else {
                continue;
            };
            let root = at.checked_sub(8 * (run.page >> (form.leaf_bits + form.node_bits)));
            found = root.filter(|root| data.contains(*root));
            if found.is_some() {
                return true;
            }
        }
        false
    });
    found
}

/// Whether a word leads into private memory without a file.
fn is_pointer(sight: &Sight<'_>, word: u64) -> bool {
    word.is_multiple_of(8)
        && mapping_at(sight.mappings, word)
            .is_some_and(|mapping| mapping.inode == 0 && mapping.is_writable() && !mapping.is_shared())
}

/// A run of a leaf whose records agree with their places; none where they do not.
fn first_run(sight: &Sight<'_>, reader: &Reader<'_>, (number, leaf): (u64, u64), form: &Form) -> Option<Run> {
    let (mut found, mut last) = (None, 0);
    let (mut hits, mut misses) = (0, 0);
    each_entry(reader, leaf, form, &mut |place, entry| {
        let record = (form.record)(entry);
        if record == last {
            return false;
        }
        last = record;
        match run_at(sight, reader, form, record, form.place(number, place)) {
            Some(run) => {
                hits += 1;
                found = Some(run);
            }
            None => misses += 1,
        }
        hits + misses >= TRIED_ENTRIES
    });
    found.filter(|_| hits >= LEAST_HITS && misses <= hits * MISSES_PER_HIT)
}

/// The run in a record, if it lies in memory that can be the allocator's.
fn run_at(sight: &Sight<'_>, reader: &Reader<'_>, form: &Form, record: u64, place: u64) -> Option<Run> {
    if !is_pointer(sight, record) {
        return None;
    }
    let run = (form.run)(reader, record, place, form.leaf_bits + form.node_bits)?;
    let is_region = form.leaf_head_bytes > 0;
    let inside = if is_region { Extent::new(run.page << 13, 1) } else { run.extent };
    sight.is_private(inside).then_some(run)
}

/// Calls `look` with the place and value of each entry that is not zero, until it returns true.
fn each_entry(reader: &Reader<'_>, leaf: u64, form: &Form, look: &mut dyn FnMut(u64, u64) -> bool) {
    let entries =
        Extent::new(leaf.saturating_add(form.leaf_head_bytes), form.entry_bytes * form.leaf_entries());
    let pages = Extent { start: entries.start & !(PAGE_BYTES - 1), end: entries.end };
    reader.each_page(pages, |page, words| {
        words.iter().enumerate().filter(|(_, word)| **word != 0).any(|(number, word)| {
            let at = page + 8 * number as u64;
            let is_entry = entries.contains(at) && (at - entries.start).is_multiple_of(form.entry_bytes);
            is_entry && look((at - entries.start) / form.entry_bytes, *word)
        })
    });
}

/// Extents in order, those that touch or overlap made one.
#[must_use]
pub fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    let mut all: Vec<Extent> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some(last) if extent.start <= last.end => last.end = last.end.max(extent.end),
            _ => all.push(extent),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::kind::Kind;
    use super::super::loaded::Object;
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn a_tree_of_three_levels_leads_to_its_runs_and_no_record_of_another_place_does() {
        let (data, tables, runs) = (0x10_0000, 0x7f00_0000_0000, 0x7f12_3456_7000);
        let (node, leaf, records) = (tables + 0x40, tables + 0x10_0080, tables + 0x20_0000);
        let page = runs >> 12;
        let known = |path: &str, moved: u64| {
            let mut memory = MadeUp::default();
            memory.put(data + 120 + 8 * (page >> 30), &[node]);
            memory.put(node + 8 * ((page >> 15 & 0x7fff) + moved), &[leaf]);
            for run in 0..3 {
                memory.put(leaf + 16 * ((page & 0x7fff) + run), &[records + 128 * run, 5]);
                memory.put(records + 128 * run, &[9, runs + 4096 * run, 4096 | 3]);
            }
            let mappings =
                [mapping(tables, tables + 0x40_0000, b"rw-p", ""), mapping(runs, runs + 0x4000, b"rw-p", "")];
            let object =
                Object { path: path.into(), data: vec![Extent::new(data, 0x4_1000)], ..Object::default() };
            let mut claims = Claims::default();
            let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
            let loaded = Loaded { objects: vec![Object::default(), object] };
            claim(&sight, &Reader::new(&memory), &loaded, &mut claims);
            [runs, runs + 0x2fff, runs + 0x3000, leaf].map(|at| claims.at(at).map(|claim| claim.kind))
        };
        let jemalloc = Some(Kind::Allocator(Allocator::Jemalloc));
        // The second has it under names of its own.
        for path in ["/lib/libjemalloc.so.2", "/lib/_duckdb.so"] {
            assert_eq!(known(path, 0), [jemalloc, jemalloc, None, jemalloc], "{path}");
            assert_eq!(
                known(path, 1),
                [None; 4],
                "the node has the leaf at another place than the records say"
            );
        }
    }

    #[test]
    fn what_has_something_else_beside_leaves_is_no_node() {
        let tables = 0x7f00_0000_0000;
        let (node, leaf, form) = (tables + 0x40, tables + 0x10_0080, &FORMS[1]);
        let leaves = |words: &[u64]| {
            let mut memory = MadeUp::default();
            memory.put(node + 0x800, words);
            let mappings = [mapping(tables, tables + 0x40_0000, b"rw-p", "")];
            let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
            form.leaves(&sight, &Reader::new(&memory), node)
        };
        let bytes = form.entry_bytes * form.leaf_entries();
        assert_eq!(leaves(&[leaf, 0, leaf + bytes]), [(0x100, leaf), (0x102, leaf + bytes)]);
        for words in [[leaf, 7], [leaf, leaf + 8], [leaf, leaf + 64], [leaf + 64, leaf], [leaf, 0x10_0000]] {
            assert_eq!(leaves(&words), [], "{words:x?}");
        }
    }
}
