//! What a page map leads to: runs of pages, records, its own tables.

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::mappings::Mapping;
use faultless_records::pagemap::PAGE_BYTES;

use super::super::Sight;
use super::super::claim::{Claims, Evidence, Strength};
use super::super::kind::Kind;
use super::super::loaded::Object;
use super::super::reader::{Reader, extent_of, mapping_at};
use super::{Form, MISSES_PER_HIT, TRIED_ENTRIES, each_entry, google_region, is_pointer, joined, run_at};

/// jemalloc's blocks for its own records are at least this large.
const BASE_BLOCK_BYTES: u64 = 2 << 20;

/// A tree whose array was found.
pub(super) struct Tree<'tree> {
    pub sight: &'tree Sight<'tree>,
    pub reader: &'tree Reader<'tree>,
    pub form: &'tree Form,
    pub object: &'tree Object,
    pub data: Extent,
    pub root: u64,
}

impl Tree<'_> {
    /// Claims what it leads to.
    pub fn claim(&self, claims: &mut Claims) {
        let mut runs: Vec<Extent> = Vec::new();
        let mut records: Vec<u64> = Vec::new();
        let array =
            Extent { start: self.root, end: self.data.end.min(self.root + 8 * self.form.root_entries) };
        let pages = Extent { start: array.start & !(PAGE_BYTES - 1), end: array.end };
        let mut leaves = Vec::new();
        let mut found_leaves = Vec::new();
        self.reader.each_page(pages, |page, words| {
            for (number, word) in words.iter().enumerate() {
                let at = page + 8 * number as u64;
                if array.contains(at) && is_pointer(self.sight, *word) {
                    let first = ((at - array.start) / 8) << self.form.node_bits;
                    let more = self.form.leaves(self.sight, self.reader, *word);
                    leaves.extend(more.into_iter().map(|(place, leaf)| (first + place, leaf)));
                }
            }
            false
        });
        for (number, leaf) in &leaves {
            let (mut last, mut hits, mut misses) = (0, 0, 0);
            each_entry(self.reader, *leaf, self.form, &mut |place, entry| {
                let record = (self.form.record)(entry);
                if record == last {
                    return false;
                }
                last = record;
                // A run is entered at its first and last page, in two leaves where it spans them.
                match run_at(self.sight, self.reader, self.form, record, self.form.place(*number, place)) {
                    Some(run)
                        if run.page >> self.form.leaf_bits == *number
                            || run.extent.bytes() > self.form.leaf_entries() =>
                    {
                        hits += 1;
                        runs.push(run.extent);
                        records.push(record);
                    }
                    _ => misses += 1,
                }
                misses >= TRIED_ENTRIES && misses > hits * MISSES_PER_HIT
            });
            if hits > 0 {
                records.push(*leaf);
                found_leaves.push(*leaf);
            }
        }
        let kind = Kind::Allocator(self.form.allocator);
        let detail: std::rc::Rc<str> = format!("page map in {}", self.object.file_name()).into();
        let proof = "allocator's own page map";
        for run in joined(runs) {
            self.add(
                run,
                kind,
                Evidence::with(Strength::Contents, proof, std::rc::Rc::clone(&detail)),
                claims,
            );
        }
        self.claim_records(records, claims);
        found_leaves.into_iter().for_each(|leaf| self.claim_leaf(leaf, claims));
    }

    fn records_evidence(&self) -> Evidence {
        let detail = format!("page map in {}", self.object.file_name());
        Evidence::with(Strength::Contents, "records that its page map leads to", detail)
    }

    fn claim_leaf(&self, leaf: u64, claims: &mut Claims) {
        let bytes = self.form.leaf_head_bytes + self.form.entry_bytes * self.form.leaf_entries();
        let leaf =
            Extent { start: leaf & !(PAGE_BYTES - 1), end: (leaf + bytes).next_multiple_of(PAGE_BYTES) };
        claims.add(leaf, Kind::Allocator(self.form.allocator), self.records_evidence());
    }

    /// The memory that records lie in: jemalloc's base blocks and Google's regions have bounds, of others only their pages are known.
    fn claim_records(&self, mut records: Vec<u64>, claims: &mut Claims) {
        records.sort_unstable();
        records.dedup_by_key(|record| *record / PAGE_BYTES);
        let kind = Kind::Allocator(self.form.allocator);
        let mut pages = Vec::new();
        let mut blocks: Vec<(u64, Vec<Extent>)> = Vec::new();
        let mut done = 0;
        for record in records.into_iter().filter(|record| is_pointer(self.sight, *record)) {
            if record < done {
                continue;
            }
            let block = match self.form.allocator {
                Allocator::Jemalloc => {
                    let Some(mapping) = mapping_at(self.sight.mappings, record) else { continue };
                    if blocks.last().is_none_or(|(start, _)| *start != mapping.start) {
                        blocks.push((mapping.start, self.base_blocks(mapping, claims)));
                    }
                    let known = blocks.last().map(|(_, blocks)| blocks.as_slice()).unwrap_or_default();
                    known.iter().copied().find(|block| block.contains(record))
                }
                _ if self.form.leaf_head_bytes > 0 => Some(google_region(record)),
                _ => None,
            };
            match block {
                Some(block) => {
                    self.add(block, kind, self.records_evidence(), claims);
                    done = block.end;
                }
                None => pages.push(Extent::new(record & !(PAGE_BYTES - 1), PAGE_BYTES)),
            }
        }
        for extent in joined(pages) {
            self.add(extent, kind, self.records_evidence(), claims);
        }
    }

    /// Claims what of a range is private memory without a file.
    fn add(&self, extent: Extent, kind: Kind, evidence: Evidence, claims: &mut Claims) {
        if self.sight.is_private(extent) {
            claims.add(extent, kind, evidence);
            return;
        }
        let first = self.sight.mappings.partition_point(|mapping| mapping.end <= extent.start);
        for mapping in self.sight.mappings[first..].iter().take_while(|mapping| mapping.start < extent.end) {
            if let Some(piece) =
                extent_of(mapping).overlap(&extent).filter(|piece| self.sight.is_private(*piece))
            {
                claims.add(piece, kind, evidence.clone());
            }
        }
    }

    /// The blocks for records in what nobody has claimed of a mapping: each begins with its size and a pointer to another or none.
    fn base_blocks(&self, mapping: &Mapping, claims: &Claims) -> Vec<Extent> {
        let mut blocks: Vec<Extent> = Vec::new();
        for gap in claims.gaps(extent_of(mapping)) {
            self.reader.each_page(gap, |page, words| {
                let (bytes, next) = (words[0], words[1]);
                let block = Extent::new(page, bytes);
                let fits = bytes >= BASE_BLOCK_BYTES
                    && bytes.is_multiple_of(BASE_BLOCK_BYTES)
                    && block.end <= mapping.end
                    && (next == 0 || is_pointer(self.sight, next));
                if fits && blocks.last().is_none_or(|last| last.end <= page) {
                    blocks.push(block);
                }
                false
            });
        }
        blocks
    }
}
