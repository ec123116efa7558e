//! Go's heap, by the runtime's own map of it.
//!
//! The heap grows in arenas of 64 MiB. For each there is an entry in an array of 4 Mi words, 32 MiB of addresses, that leads to the
//! arena's record; the array is reachable from a variable of the runtime. An entry's place says the arena's address:
//! (address + 2^47) / 64 MiB. Source: Go's `runtime/malloc.go`, `mheap.go`, 1.11 to 1.26, linux/amd64.

use std::collections::HashSet;

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::loaded::{Loaded, Object};
use super::reader::{Reader, mapping_at};

const ARENA_BYTES: u64 = 64 << 20;
const ARENA_MAP_BYTES: u64 = 8 << 22;
const OFFSET: u64 = 1 << 47;

/// Pages of the array read at most.
const MOST_PAGES: usize = 1 << 12;

/// Variables that may be the array's, looked at at most.
const MOST_CANDIDATES: usize = 2000;

/// Entries of slices of the page allocator and heads of lists of small records, looked at in the runtime's variables.
const CHUNK_BYTES: u64 = 256 << 10;

/// Claims arenas and the runtime's tables.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for object in &loaded.objects {
        let Some(map) = arena_map(sight, reader, object) else { continue };
        let detail: std::rc::Rc<str> = format!("in {}", object.file_name()).into();
        for arena in &map.arenas {
            let evidence =
                Evidence::with(Strength::Contents, "runtime's map of arenas", std::rc::Rc::clone(&detail));
            claims.add(*arena, Kind::GoHeap, evidence);
        }
        let table = |extent, claims: &mut Claims| {
            let evidence =
                Evidence::with(Strength::Contents, "runtime's tables", std::rc::Rc::clone(&detail));
            claims.add(extent, Kind::GoRuntime, evidence);
        };
        table(Extent::new(map.start, ARENA_MAP_BYTES), claims);
        for record in map.records {
            if let Some(mapping) = mapping_at(sight.mappings, record).filter(|mapping| mapping.is_anonymous())
            {
                for gap in claims.gaps(super::reader::extent_of(mapping)) {
                    table(gap, claims);
                }
            }
        }
        claim_tables(sight, reader, object, &table, claims);
        return;
    }
}

struct ArenaMap {
    start: u64,
    arenas: Vec<Extent>,
    records: Vec<u64>,
}

/// The array that a variable points to: every entry leads to a record and stands for addresses that are mapped.
fn arena_map(sight: &Sight<'_>, reader: &Reader<'_>, object: &Object) -> Option<ArenaMap> {
    let (mut found, mut candidates) = (None, 0);
    for data in &object.data {
        reader.each_page(*data, |_, words| {
            for word in words.iter().filter(|word| word.is_multiple_of(PAGE_BYTES) && **word != 0) {
                let whole = mapping_at(sight.mappings, *word)
                    .filter(|mapping| mapping.is_anonymous() && mapping.is_writable());
                if whole.is_some()
                    && sight.is_private(Extent::new(*word, ARENA_MAP_BYTES))
                    && candidates < MOST_CANDIDATES
                {
                    candidates += 1;
                    found = arena_map_at(sight, reader, *word);
                    if found.is_some() {
                        return true;
                    }
                }
            }
            false
        });
        if found.is_some() {
            break;
        }
    }
    found
}

fn arena_map_at(sight: &Sight<'_>, reader: &Reader<'_>, start: u64) -> Option<ArenaMap> {
    let anonymous =
        |address| mapping_at(sight.mappings, address).is_some_and(|mapping| mapping.is_anonymous());
    let mut map = ArenaMap { start, arenas: Vec::new(), records: Vec::new() };
    let (mut pages, mut is_other) = (0, false);
    reader.each_page(Extent::new(start, ARENA_MAP_BYTES), |page, words| {
        pages += 1;
        for (number, record) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            let index = (page - start) / 8 + number as u64;
            let arena = (index * ARENA_BYTES).wrapping_sub(OFFSET);
            is_other |= !record.is_multiple_of(PAGE_BYTES) || !anonymous(*record) || !anonymous(arena);
            map.arenas.push(Extent::new(arena, ARENA_BYTES));
            map.records.push(*record);
        }
        is_other || pages >= MOST_PAGES
    });
    (!is_other && !map.arenas.is_empty()).then_some(map)
}

/// The page allocator's summaries are slices in variables of the runtime: start, length, capacity. Small records come from chunks of
/// 256 KiB, each of which begins with a pointer to the one before.
fn claim_tables(
    sight: &Sight<'_>,
    reader: &Reader<'_>,
    object: &Object,
    table: &dyn Fn(Extent, &mut Claims),
    claims: &mut Claims,
) {
    let anonymous = |address| mapping_at(sight.mappings, address).filter(|mapping| mapping.is_anonymous());
    let (mut found, mut chunks) = (Vec::new(), HashSet::new());
    for data in &object.data {
        reader.each_page(*data, |_, words| {
            for triple in words.windows(3) {
                let [start, length, capacity] = *triple else { continue };
                let is_slice = start.is_multiple_of(PAGE_BYTES) && length <= capacity && capacity >= 64;
                let Some(mapping) = anonymous(start).filter(|mapping| is_slice && mapping.start <= start)
                else {
                    continue;
                };
                // Summaries have 8 bytes an entry; what is reserved lies beyond what can be accessed.
                let end = start.saturating_add(capacity.saturating_mul(8));
                if capacity >= 1 << 10 && mapping.start == start {
                    found.push(Extent { start, end });
                }
            }
            for word in words.iter().filter(|word| word.is_multiple_of(PAGE_BYTES) && **word != 0) {
                small_records(sight, reader, *word, &mut chunks);
            }
            false
        });
    }
    found.extend(chunks.into_iter().map(|chunk| Extent::new(chunk, CHUNK_BYTES)));
    for extent in super::radix::joined(found) {
        let first = sight.mappings.partition_point(|mapping| mapping.end <= extent.start);
        for mapping in sight.mappings[first..].iter().take_while(|mapping| mapping.start < extent.end) {
            let piece = super::reader::extent_of(mapping).overlap(&extent).filter(|_| mapping.is_anonymous());
            let gaps = piece.map(|piece| claims.gaps(piece)).unwrap_or_default();
            gaps.into_iter().for_each(|gap| table(gap, claims));
        }
    }
}

/// Follows a list of chunks of small records up to one that was met before: many words may lead to one long list.
fn small_records(sight: &Sight<'_>, reader: &Reader<'_>, first: u64, met: &mut HashSet<u64>) {
    let anonymous =
        |address| mapping_at(sight.mappings, address).is_some_and(|mapping| mapping.is_anonymous());
    let mut chunk = first;
    while chunk.is_multiple_of(PAGE_BYTES)
        && !met.contains(&chunk)
        && sight.is_private(Extent::new(chunk, CHUNK_BYTES))
    {
        let Some(before) = reader.word(chunk) else { return };
        if before != 0 && !(before.is_multiple_of(PAGE_BYTES) && anonymous(before)) {
            return;
        }
        met.insert(chunk);
        chunk = before;
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn a_list_is_followed_once_however_many_words_lead_to_it_and_round_in_a_circle() {
        const START: u64 = 0x7f00_0000_0000;
        let place = |number: u64| START + number * CHUNK_BYTES;
        let mut memory = MadeUp::default();
        for number in 0..10 {
            memory.put(place(number), &[if number == 0 { 0 } else { place(number - 1) }]);
        }
        // One circle of two, and one list that leads out of what is mapped.
        memory.put(place(10), &[place(11)]);
        memory.put(place(11), &[place(10)]);
        memory.put(place(12), &[place(1000)]);
        let mappings = [mapping(START, place(13), b"rw-p", "")];
        let sight = Sight { mappings: &mappings, contents: Some(&memory), threads: &[] };
        let (reader, mut met) = (Reader::new(&memory), HashSet::new());
        let sizes = [9, 9, 4, 11, 10, 12].map(|number| {
            small_records(&sight, &reader, place(number), &mut met);
            met.len()
        });
        assert_eq!(sizes, [10, 10, 10, 12, 12, 12]);
    }
}
