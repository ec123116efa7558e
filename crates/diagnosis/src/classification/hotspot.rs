//! The Java virtual machine HotSpot, by its own structures, without attaching to it.
//!
//! The bounds of the heap and the code cache are fields that `libjvm.so` describes for debuggers. Metaspace is where classes that are
//! loaded have their constant pools and methods. The collector's tables are ranges that objects state by a pair of bounds,
//! found from the heap's own object on.

use std::collections::{BTreeSet, HashSet};

use faultless_records::contents::Extent;
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::hotspot_structs::Structs;
use super::kind::Kind;
use super::loaded::{Loaded, Object};
use super::radix::joined;
use super::reader::{Reader, mapping_at};

/// Types whose fields are needed.
const TYPES: &[&str] = &[
    "Universe",
    "CollectedHeap",
    "CodeCache",
    "BarrierSet",
    "CardTableBarrierSet",
    "CardTable",
    "ClassLoaderDataGraph",
    "ClassLoaderData",
    "Klass",
    "InstanceKlass",
];

/// Metaspace is handed out in root chunks: 4 MiB at multiples of 4 MiB in JDK 17, 16 MiB since 21.
const ROOT_CHUNK_BYTES: u64 = 4 << 20;

/// Class loaders and classes followed at most.
const MOST_CLASSES: usize = 1 << 20;

/// Objects looked at from the heap's on, and how much of each: of the heap's own object, and of others.
const MOST_OBJECTS: usize = 20_000;
const HEAP_OBJECT_WORDS: usize = 512;
const OBJECT_WORDS: usize = 48;

/// Steps from the heap's object.
const DEPTH: u32 = 3;

/// Claims what the virtual machine says of itself.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    let Some(library) = loaded.named("libjvm") else { return };
    let Some(structs) = Structs::read(reader, library, TYPES).filter(|structs| !structs.is_empty()) else {
        return;
    };
    let machine = Machine { sight, reader, structs, library };
    machine.claim_heap(claims);
    machine.claim_code(claims);
    machine.claim_classes(claims);
    machine.claim_tables(claims);
}

struct Machine<'machine> {
    sight: &'machine Sight<'machine>,
    reader: &'machine Reader<'machine>,
    structs: Structs,
    library: &'machine Object,
}

impl Machine<'_> {
    fn heap_object(&self) -> Option<u64> {
        self.structs.static_word(self.reader, "Universe", "_collectedHeap").filter(|object| *object != 0)
    }

    fn claim_heap(&self, claims: &mut Claims) {
        let Some(heap) = self.heap_object() else { return };
        let Some(reserved) = self.structs.offset("CollectedHeap", "_reserved") else { return };
        let [start, words] = *self.reader.words(heap.saturating_add(reserved), 2) else { return };
        let extent = Extent::new(start, words.saturating_mul(8));
        // What was mapped into it from the archive of shared classes remains that file's.
        if start != 0 && extent.bytes() < 1 << 46 {
            for piece in self.anonymous_pieces(extent) {
                let evidence = Evidence::plain(Strength::Contents, "CollectedHeap::_reserved");
                claims.add(piece, Kind::JavaHeap, evidence);
            }
        }
    }

    fn claim_code(&self, claims: &mut Claims) {
        let bound = |field| self.structs.static_word(self.reader, "CodeCache", field);
        if let (Some(start), Some(end)) = (bound("_low_bound"), bound("_high_bound"))
            && self.is_private(Extent { start, end })
        {
            let evidence = Evidence::plain(Strength::Contents, "CodeCache::_low_bound, _high_bound");
            claims.add(Extent { start, end }, Kind::JavaCode, evidence);
        }
    }

    /// Follows class loaders, their classes, and what those have in metaspace.
    fn claim_classes(&self, claims: &mut Claims) {
        let (reader, structs) = (self.reader, &self.structs);
        let mut chunks: BTreeSet<u64> = BTreeSet::new();
        let mut classes = 0_usize;
        let mut note = |address: Option<u64>| {
            let Some(address) = address else { return };
            if mapping_at(self.sight.mappings, address).is_some_and(|mapping| mapping.is_anonymous()) {
                chunks.insert(address & !(ROOT_CHUNK_BYTES - 1));
            }
        };
        let mut loader = structs.static_word(reader, "ClassLoaderDataGraph", "_head");
        while let Some(data) = loader.filter(|data| *data != 0) {
            let mut class = structs.word(reader, data, "ClassLoaderData", "_klasses");
            while let Some(klass) = class.filter(|klass| *klass != 0) {
                classes += 1;
                if classes > MOST_CLASSES {
                    break;
                }
                note(Some(klass));
                for field in ["_constants", "_methods", "_local_interfaces"] {
                    note(structs.word(reader, klass, "InstanceKlass", field));
                }
                class = structs.word(reader, klass, "Klass", "_next_link");
            }
            classes += 1;
            if classes > MOST_CLASSES {
                break;
            }
            loader = structs.word(reader, data, "ClassLoaderData", "_next");
        }
        let extents = chunks.into_iter().map(|chunk| Extent::new(chunk, ROOT_CHUNK_BYTES)).collect();
        let detail = format!("of {classes} loaders and classes");
        for extent in joined(extents) {
            for piece in self.anonymous_pieces(extent) {
                let evidence =
                    Evidence::with(Strength::Contents, "classes and what they point to", detail.clone());
                claims.add(piece, Kind::JavaClasses, evidence);
            }
        }
    }

    fn claim_tables(&self, claims: &mut Claims) {
        let structs = &self.structs;
        let barrier = structs.static_word(self.reader, "BarrierSet", "_barrier_set");
        let cards =
            barrier.and_then(|set| structs.word(self.reader, set, "CardTableBarrierSet", "_card_table"));
        if let Some(table) = cards {
            let size = structs.word(self.reader, table, "CardTable", "_byte_map_size");
            let start = structs.word(self.reader, table, "CardTable", "_byte_map");
            let pages = start.zip(size).and_then(|(start, bytes)| pages_around(start, bytes));
            if let Some(pages) = pages.filter(|pages| self.is_private(*pages)) {
                let evidence = Evidence::plain(Strength::Contents, "CardTable::_byte_map");
                claims.add(pages, Kind::JavaCollector, evidence);
            }
        }
        let from_heap: Vec<u64> = self.heap_object().into_iter().chain(barrier).chain(cards).collect();
        self.claim_bounded(from_heap, Kind::JavaCollector, "bounds in the heap's own objects", claims);
        let mut variables = Vec::new();
        for data in &self.library.data {
            self.reader.each_page(*data, |_, words| {
                self.claim_ranges(
                    self.ranges(words).collect(),
                    Kind::JavaOther,
                    "bounds in libjvm's variables",
                    claims,
                );
                variables.extend(
                    (0..words.len()).filter(|place| self.is_object(words[*place])).map(|place| words[place]),
                );
                false
            });
        }
        self.claim_bounded(variables, Kind::JavaOther, "bounds in objects of libjvm's variables", claims);
    }

    /// Claims the ranges whose bounds stand side by side in these objects or in those they lead to.
    fn claim_bounded(&self, roots: Vec<u64>, kind: Kind, proof: &'static str, claims: &mut Claims) {
        let depth = if roots.len() <= 3 { DEPTH } else { 1 };
        let mut seen: HashSet<u64> = HashSet::new();
        let mut ranges = Vec::new();
        let mut level = roots;
        for step in 0..depth {
            let mut next = Vec::new();
            for object in level {
                if seen.len() >= MOST_OBJECTS || !seen.insert(object) {
                    continue;
                }
                let count = if step == 0 && depth == DEPTH { HEAP_OBJECT_WORDS } else { OBJECT_WORDS };
                let words = self.reader.words(object, count);
                ranges.extend(self.ranges(&words));
                next.extend(words.into_iter().filter(|word| self.is_object(*word)));
            }
            level = next;
        }
        self.claim_ranges(ranges, kind, proof, claims);
    }

    /// Private memory of which these words state first and last address, side by side.
    fn ranges(&self, words: &[u64]) -> impl Iterator<Item = Extent> {
        words.windows(2).filter_map(|pair| {
            let (start, end) = (pair[0], pair[1]);
            let is_of_pages = start.is_multiple_of(PAGE_BYTES) && end.is_multiple_of(PAGE_BYTES);
            let extent = Extent { start, end };
            (is_of_pages && 0 < start && start < end && self.is_private(extent)).then_some(extent)
        })
    }

    fn claim_ranges(&self, ranges: Vec<Extent>, kind: Kind, proof: &'static str, claims: &mut Claims) {
        for range in bounded(self.sight.mappings, ranges) {
            for gap in claims.gaps(range) {
                claims.add(gap, kind, Evidence::plain(Strength::Contents, proof));
            }
        }
    }

    /// Whether a word leads to something in writable memory that is not a Java object.
    fn is_object(&self, word: u64) -> bool {
        word.is_multiple_of(8)
            && word > PAGE_BYTES
            && mapping_at(self.sight.mappings, word).is_some_and(|mapping| {
                mapping.inode == 0 && mapping.is_writable() && mapping.start > 32 << 30
            })
    }

    fn is_private(&self, extent: Extent) -> bool {
        let pieces = self.anonymous_pieces(extent);
        let covered: u64 = pieces.iter().map(Extent::bytes).sum();
        extent.start < extent.end && covered == extent.bytes()
    }

    /// The parts of a range that are private memory without a file or name.
    fn anonymous_pieces(&self, extent: Extent) -> Vec<Extent> {
        let first = self.sight.mappings.partition_point(|mapping| mapping.end <= extent.start);
        let within = self.sight.mappings[first..].iter().take_while(|mapping| mapping.start < extent.end);
        let pieces = within
            .filter(|mapping| mapping.is_anonymous())
            .filter_map(|mapping| super::reader::extent_of(mapping).overlap(&extent));
        joined(pieces.collect())
    }
}

/// The pages that hold these bytes; `None` where no address space does, as a damaged JVM may state.
fn pages_around(start: u64, bytes: u64) -> Option<Extent> {
    let end = start.checked_add(bytes)?.checked_next_multiple_of(PAGE_BYTES)?;
    Some(Extent { start: start & !(PAGE_BYTES - 1), end })
}

/// Those that begin or end where a mapping does, or where one of the others that do. The kernel joins some mappings with their
/// neighbours, so one of two bounds is enough, and one between two others may have none of its own.
fn bounded(mappings: &[Mapping], mut ranges: Vec<Extent>) -> Vec<Extent> {
    let begins = |address| mapping_at(mappings, address).is_none_or(|mapping| mapping.start == address);
    let mut known = Vec::new();
    let mut bounds: HashSet<u64> = HashSet::new();
    loop {
        let is_bound = |address| begins(address) || bounds.contains(&address);
        let (found, rest): (Vec<_>, Vec<_>) =
            ranges.into_iter().partition(|range| is_bound(range.start) || is_bound(range.end));
        if found.is_empty() {
            return known;
        }
        bounds.extend(found.iter().flat_map(|range| [range.start, range.end]));
        known.extend(found);
        ranges = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::mappings;

    #[test]
    fn a_range_that_no_address_space_holds_has_no_pages() {
        assert_eq!(pages_around(0x1008, 0x1000), Some(Extent { start: 0x1000, end: 0x3000 }));
        assert_eq!(pages_around(0x1008, u64::MAX), None);
        assert_eq!(pages_around(u64::MAX - 1, 1), None);
    }

    #[test]
    fn a_table_between_others_in_one_mapping_is_known_by_the_one_that_ends_where_the_mapping_does() {
        // G1's two bitmaps of marks, behind what was reserved and never used, as the kernel joined them in a JVM 17.
        let smaps = "7fa7d5400000-7fa7d9400000 rw-p 00000000 00:00 0 \n7fa7f4600000-7fa7f4800000 rw-p 00000000 00:00 0 \n";
        let mappings = mappings::parse(smaps.as_bytes()).unwrap();
        let between = Extent { start: 0x7fa7_d740_0000, end: 0x7fa7_d840_0000 };
        let last = Extent { start: 0x7fa7_d840_0000, end: 0x7fa7_d940_0000 };
        let lone = Extent { start: 0x7fa7_d600_0000, end: 0x7fa7_d700_0000 };
        assert_eq!(bounded(&mappings, vec![between, lone, last]), [last, between]);
        assert_eq!(bounded(&mappings, vec![between, lone]), []);
    }
}
