//! V8's heap, by the headers of its pages.
//!
//! A page of V8 begins at a multiple of 256 KiB with its size, its flags, its heap, and where its objects begin and end; further on
//! stands the reservation it lies in, again with start and size. All must agree, and at least two pages must name the same
//! heap. Source: V8's `basic-memory-chunk.h`, tried with Node 20 (V8 11.3).

use std::collections::HashMap;

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::{Reader, extent_of};

/// Size and alignment of what V8 calls ordinary pages; large ones have one object and any size.
const CHUNK_BYTES: u64 = 256 << 10;

/// Words of the header in which the reservation is searched.
const HEAD_WORDS: usize = 24;

/// Bytes in which the first object must begin.
const HEAD_BYTES: u64 = 32 << 10;

/// Claims pages of all heaps that have at least two.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    let mut heaps: HashMap<u64, Vec<Extent>> = HashMap::new();
    for mapping in sight.mappings.iter().filter(|mapping| mapping.is_anonymous() && mapping.is_readable()) {
        for gap in claims.gaps(extent_of(mapping)) {
            reader.each_multiple(gap, CHUNK_BYTES, |start| {
                let (heap, extent) = page(reader, start)?;
                heaps.entry(heap).or_default().push(extent);
                Some(extent.end)
            });
        }
    }
    for pages in heaps.into_values().filter(|pages| pages.len() > 1) {
        for extent in pages {
            let evidence = Evidence::plain(Strength::Contents, "header of a page of V8");
            claims.add(extent, Kind::V8Heap, evidence);
        }
    }
}

/// The heap and the range of a page.
fn page(reader: &Reader<'_>, start: u64) -> Option<(u64, Extent)> {
    let size = reader.word(start)?;
    let extent = Extent::new(start, size);
    let is_sane = size.is_multiple_of(PAGE_BYTES) && (8192..1 << 40).contains(&size);
    if !is_sane {
        return None;
    }
    let words = reader.words(start, HEAD_WORDS);
    let [_, _, heap, from, to, ..] = *words.as_slice() else { return None };
    let bounds_fit = from > start && from < start + HEAD_BYTES && to > from && to <= extent.end;
    let states_reservation = words.windows(2).skip(5).any(|pair| {
        let [at, bytes] = *pair else { return false };
        at == start && bytes.checked_next_multiple_of(PAGE_BYTES) == Some(size)
            || at <= start && at > 0 && at.checked_add(bytes) == Some(extent.end)
    });
    (heap != 0 && heap.is_multiple_of(8) && bounds_fit && states_reservation).then_some((heap, extent))
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const START: u64 = 0x2000_0000;

    fn put(memory: &mut MadeUp, start: u64, heap: u64) {
        let head =
            [CHUNK_BYTES, 0x18, heap, start + 0x110, start + CHUNK_BYTES, 5, 0, 0, 7, 9, start, CHUNK_BYTES];
        memory.put(start, &head);
    }

    #[test]
    fn pages_of_one_heap_are_found_and_a_lone_one_is_not_believed() {
        let mut memory = MadeUp::default();
        put(&mut memory, START, 0x1000);
        put(&mut memory, START + CHUNK_BYTES, 0x1000);
        put(&mut memory, START + 2 * CHUNK_BYTES, 0x5000);
        let mappings = [mapping(START, START + 4 * CHUNK_BYTES, b"rw-p", "")];
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &mut claims);
        let of = |page: u64| claims.at(START + page * CHUNK_BYTES).map(|claim| claim.kind);
        assert_eq!([of(0), of(1), of(2), of(3)], [Some(Kind::V8Heap), Some(Kind::V8Heap), None, None]);
    }

    #[test]
    fn a_page_that_states_a_reservation_larger_than_any_address_space_is_none() {
        let mut memory = MadeUp::default();
        let head = [CHUNK_BYTES, 0x18, 0x1000, START + 0x110, START + CHUNK_BYTES, START, u64::MAX];
        memory.put(START, &head);
        assert_eq!(page(&Reader::new(&memory), START), None);
    }
}
