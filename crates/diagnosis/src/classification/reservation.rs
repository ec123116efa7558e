//! Faultless's reservation, by the addresses in the static data of the library or of the program it is linked into.
//!
//! The base of the range, the base of the span records and the base of the slab bitmaps stand near each other, and their distances
//! follow from the number of granules: a tag of 4 bytes and a record of 64 bytes each. Three addresses at such distances stand in the
//! data of many a Python interpreter, too (its lists of pools); so the numbers beside them must also be right: the first granule
//! after the tables, and the last one in use, which is stored in two units. Source: `crates/heap/src/reservation.rs`.

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::mappings::Mapping;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::loaded::{Loaded, Object};
use super::reader::{Reader, mapping_at};

const GRANULE_BYTES: u64 = 64 << 10;
const TAG_BYTES: u64 = 4;
const RECORD_BYTES: u64 = 64;
const BITMAP_BYTES: u64 = 512;

/// The limit is also stored in units of 16 bytes.
const UNITS_IN_GRANULE: u64 = GRANULE_BYTES / 16;

/// Numbers of granules that a range can cover, as powers of two: 256 MiB to 1 TiB.
const COVERAGES: std::ops::RangeInclusive<u32> = 12..=24;

/// Words around the base among which the others are searched.
const WINDOW_WORDS: u64 = 16;

/// Faultless in a process.
#[derive(Debug, Clone, Copy)]
pub struct Reservation<'loaded> {
    /// The library or the program that has it.
    pub object: &'loaded Object,
    base: u64,
    granules: u64,
    /// One past the last granule in use.
    limit: u64,
}

impl Reservation<'_> {
    /// The addresses of all blocks, also of those to come.
    #[must_use]
    pub fn blocks(&self) -> Extent {
        self.parts()[3].0
    }

    /// Tags, records, bitmaps and what blocks are made of, each with the end of what is in use of it. A program that limits its addresses
    /// has no records and bitmaps of the granules that the tables fill, and of each part only the beginning; others may be behind.
    fn parts(&self) -> [(Extent, u64); 4] {
        let Self { base, granules, limit, .. } = *self;
        let [records, bitmaps, blocks] = tables(base, granules);
        let kept_from = ((blocks - base) / GRANULE_BYTES) & !1023;
        let [kept_records, kept_bitmaps] =
            [records + kept_from * RECORD_BYTES, bitmaps + kept_from * BITMAP_BYTES];
        [
            (Extent { start: base, end: kept_records }, base + limit * TAG_BYTES),
            (Extent { start: kept_records, end: kept_bitmaps }, records + limit * RECORD_BYTES),
            (Extent { start: kept_bitmaps, end: blocks }, bitmaps + limit * BITMAP_BYTES),
            (Extent { start: blocks, end: base + granules * GRANULE_BYTES }, base + limit * GRANULE_BYTES),
        ]
    }
}

/// Where records, bitmaps and the first granule after them lie.
fn tables(base: u64, coverage: u64) -> [u64; 3] {
    let mut end = base;
    [TAG_BYTES, RECORD_BYTES, BITMAP_BYTES].map(|bytes| {
        end += (coverage * bytes).next_multiple_of(GRANULE_BYTES);
        end
    })
}

/// The reservation of each program or library that has one.
pub fn find<'loaded>(
    mappings: &[Mapping],
    reader: &Reader<'_>,
    loaded: &'loaded Loaded,
) -> impl Iterator<Item = Reservation<'loaded>> {
    let all = loaded.objects.iter().flat_map(|object| object.data.iter().map(move |data| (object, *data)));
    all.filter_map(|(object, data)| in_data(mappings, reader, object, data))
}

fn in_data<'loaded>(
    mappings: &[Mapping],
    reader: &Reader<'_>,
    object: &'loaded Object,
    data: Extent,
) -> Option<Reservation<'loaded>> {
    let mut found = None;
    reader.each_page(data, |page, words| {
        let mut bases = words.iter().copied().enumerate().filter(|(_, word)| is_base(mappings, *word));
        found = bases.find_map(|(place, base)| {
            let at = page + 8 * place as u64;
            let start = at.saturating_sub(8 * WINDOW_WORDS).max(data.start.next_multiple_of(8));
            // The page before may be one that nobody has touched.
            let near = (0..2 * WINDOW_WORDS).filter_map(|word| reader.word(start.checked_add(8 * word)?));
            let near: Vec<u64> = near.collect();
            COVERAGES.map(|bits| 1 << bits).find_map(|granules| {
                limit(&near, base, granules).map(|limit| Reservation { object, base, granules, limit })
            })
        });
        found.is_some()
    });
    found
}

/// Claims what [`find`] finds.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for found in find(sight.mappings, reader, loaded) {
        let gib = (found.granules * GRANULE_BYTES) >> 30;
        let detail = format!("{gib} GiB, base in {}", found.object.file_name());
        let proof = "base, records and bitmaps of the reservation";
        let evidence = Evidence::with(Strength::Contents, proof, detail);
        let parts = found.parts().map(|(part, used_to)| connected(sight, part, used_to));
        for joined in parts.chunk_by(|part, next| part.end == next.start) {
            let extent = Extent { start: joined[0].start, end: joined[joined.len() - 1].end };
            claims.add(extent, Kind::Allocator(Allocator::Faultless), evidence.clone());
        }
    }
}

fn is_base(mappings: &[Mapping], word: u64) -> bool {
    word != 0
        && word.is_multiple_of(GRANULE_BYTES)
        && mapping_at(mappings, word).is_some_and(|mapping| mapping.is_anonymous() && mapping.is_writable())
}

/// The limit of a range of so many granules, if its other addresses and numbers are near, too.
fn limit(near: &[u64], base: u64, coverage: u64) -> Option<u64> {
    let [records, bitmaps, blocks] = tables(base, coverage);
    if !near.contains(&records) || !near.contains(&bitmaps) {
        return None;
    }
    let first_granule = (blocks - base) / GRANULE_BYTES;
    let has_half =
        |number: u64| near.iter().any(|word| *word >> 32 == number || *word & 0xffff_ffff == number);
    let is_limit = |limit: &u64| (first_granule + 1..=coverage).contains(limit) && has_half(*limit);
    let units = near.iter().filter(|units| units.is_multiple_of(UNITS_IN_GRANULE));
    units.map(|units| units / UNITS_IN_GRANULE).find(is_limit).filter(|_| has_half(first_granule))
}

/// The beginning of a part that anonymous mappings cover without a hole. Behind what is in use only what nobody may touch is the heap's.
fn connected(sight: &Sight<'_>, part: Extent, used_to: u64) -> Extent {
    let mut end = part.start;
    while let Some(mapping) = mapping_at(sight.mappings, end).filter(|mapping| mapping.is_anonymous()) {
        if end >= used_to && !mapping.is_inaccessible() {
            break;
        }
        end = mapping.end;
        if end >= part.end {
            break;
        }
    }
    Extent { start: part.start, end: end.min(part.end) }
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn a_reservation_is_found_in_whatever_has_its_addresses() {
        found_at(0x100);
    }

    #[test]
    fn a_reservation_is_found_behind_a_page_that_nobody_has_touched() {
        found_at(0x1000);
    }

    const BASE: u64 = 0x7000_0000_0000;
    const END: u64 = BASE + (1 << 40);
    const NUMBERS: [u64; 2] = [0x2_4600 << 12, 0x2_4400 << 32 | 0x2_4600];

    fn found_at(offset: u64) {
        let found = found_with(offset, NUMBERS).expect("the range has all of its addresses and numbers");
        assert_eq!(found.bytes(), 1 << 40);
    }

    #[test]
    fn pools_at_the_distances_of_a_reservation_are_none() {
        assert_eq!(found_with(0x100, [0, 0]), None);
        assert_eq!(found_with(0x100, [0x2_4600 << 12, 0x2_4600]), None, "without the first granule");
        assert_eq!(found_with(0x100, [0x2_4400 << 32, 0x2_4600]), None, "without the limit in two units");
    }

    #[test]
    fn what_a_program_that_limits_its_addresses_gave_up_is_not_the_heaps() {
        let [tags, records, bitmaps, blocks] =
            [0, 0x491_0000, 0x4888_0000, 0x2_4400_0000].map(|at| BASE + at);
        let used = [(tags, 0xa_0000), (records, 0x1_0000), (bitmaps, 0x4_0000), (blocks, 0x2000_0000)];
        let mut mappings: Vec<_> = used.map(|(at, bytes)| mapping(at, at + bytes, b"rw-p", "")).into();
        let others = blocks + 0x2000_0000;
        mappings.insert(1, mapping(tags + 0xa_0000, tags + 0xc_0000, b"---p", ""));
        mappings.push(mapping(others, others + 0x1000, b"rw-p", ""));
        let claims = claims_with(0x100, NUMBERS, mappings);
        for (at, bytes) in [(tags, 0xc_0000), used[1], used[2], used[3]] {
            assert_eq!(claims.at(at).map(|claim| claim.extent), Some(Extent::new(at, bytes)));
        }
        assert_eq!(claims.at(others), None);
    }

    fn found_with(offset: u64, numbers: [u64; 2]) -> Option<Extent> {
        let mappings = vec![
            mapping(BASE, BASE + 0x4000_0000, b"rw-p", ""),
            mapping(BASE + 0x4000_0000, END, b"---p", ""),
            mapping(END, END + 0x1000, b"rw-p", ""),
        ];
        let claims = claims_with(offset, numbers, mappings);
        assert_eq!(claims.at(END), None);
        claims.at(BASE).map(|claim| claim.extent)
    }

    fn claims_with(offset: u64, numbers: [u64; 2], mut mappings: Vec<Mapping>) -> Claims {
        let (data, records) = (0x10_0000, BASE + 0x400_0000);
        let mut memory = MadeUp::default();
        memory.put(data + offset, &[1, records + (1 << 30), 2, BASE, 3, records, numbers[0], numbers[1]]);
        mappings.insert(0, mapping(data, data + 0x2000, b"rw-p", "/bin/a"));
        let object =
            Object { path: b"/bin/a".to_vec(), data: vec![Extent::new(data, 0x2000)], ..Object::default() };
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &Loaded { objects: vec![object] }, &mut claims);
        claims
    }
}
