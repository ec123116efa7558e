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
}

impl Reservation<'_> {
    fn extent(&self) -> Extent {
        Extent::new(self.base, self.granules * GRANULE_BYTES)
    }
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
            let granules = COVERAGES.map(|bits| 1 << bits).find(|granules| fits(&near, base, *granules))?;
            Some(Reservation { object, base, granules })
        });
        found.is_some()
    });
    found
}

/// Claims what [`find`] finds.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for found in find(sight.mappings, reader, loaded) {
        let extent = found.extent();
        let detail = format!("{} GiB, base in {}", extent.bytes() >> 30, found.object.file_name());
        let proof = "base, records and bitmaps of the reservation";
        let evidence = Evidence::with(Strength::Contents, proof, detail);
        claims.add(connected(sight, extent), Kind::Allocator(Allocator::Faultless), evidence);
    }
}

fn is_base(mappings: &[Mapping], word: u64) -> bool {
    word != 0
        && word.is_multiple_of(GRANULE_BYTES)
        && mapping_at(mappings, word).is_some_and(|mapping| mapping.is_anonymous() && mapping.is_writable())
}

/// Whether the other addresses and the numbers of a range of so many granules are near.
fn fits(near: &[u64], base: u64, coverage: u64) -> bool {
    let records = base + (coverage * TAG_BYTES).next_multiple_of(GRANULE_BYTES);
    let bitmaps = records + (coverage * RECORD_BYTES).next_multiple_of(GRANULE_BYTES);
    if !near.contains(&records) || !near.contains(&bitmaps) {
        return false;
    }
    let tables_end = bitmaps + (coverage * BITMAP_BYTES).next_multiple_of(GRANULE_BYTES);
    let first_granule = (tables_end - base) / GRANULE_BYTES;
    let has_half =
        |number: u64| near.iter().any(|word| *word >> 32 == number || *word & 0xffff_ffff == number);
    let is_limit = |units: u64| {
        let limit = units / UNITS_IN_GRANULE;
        units.is_multiple_of(UNITS_IN_GRANULE)
            && (first_granule + 1..=coverage).contains(&limit)
            && has_half(limit)
    };
    has_half(first_granule) && near.iter().any(|word| is_limit(*word))
}

/// The part of a range that anonymous mappings cover without a hole.
fn connected(sight: &Sight<'_>, range: Extent) -> Extent {
    let mut end = range.start;
    while let Some(mapping) = mapping_at(sight.mappings, end).filter(|mapping| mapping.is_anonymous()) {
        end = mapping.end;
        if end >= range.end {
            break;
        }
    }
    Extent { start: range.start, end: end.min(range.end) }
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

    fn found_at(offset: u64) {
        let (first_granule, limit) = (0x2_4400, 0x2_4600);
        let numbers = [limit << 12, first_granule << 32 | limit];
        let found = found_with(offset, numbers).expect("the range has all of its addresses and numbers");
        assert_eq!(found.bytes(), 1 << 40);
    }

    #[test]
    fn pools_at_the_distances_of_a_reservation_are_none() {
        assert_eq!(found_with(0x100, [0, 0]), None);
        assert_eq!(found_with(0x100, [0x2_4600 << 12, 0x2_4600]), None, "without the first granule");
        assert_eq!(found_with(0x100, [0x2_4400 << 32, 0x2_4600]), None, "without the limit in two units");
    }

    fn found_with(offset: u64, numbers: [u64; 2]) -> Option<Extent> {
        let (base, data, coverage) = (0x7000_0000_0000, 0x10_0000, 1_u64 << 24);
        let mut memory = MadeUp::default();
        let records = base + 4 * coverage;
        memory.put(data + offset, &[1, records + (1 << 30), 2, base, 3, records, numbers[0], numbers[1]]);
        let whole = base + coverage * GRANULE_BYTES;
        let mappings = [
            mapping(data, data + 0x2000, b"rw-p", "/bin/a"),
            mapping(base, base + 0x4000_0000, b"rw-p", ""),
            mapping(base + 0x4000_0000, whole, b"---p", ""),
            mapping(whole, whole + 0x1000, b"rw-p", ""),
        ];
        let object =
            Object { path: b"/bin/a".to_vec(), data: vec![Extent::new(data, 0x2000)], ..Object::default() };
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &Loaded { objects: vec![object] }, &mut claims);
        assert_eq!(claims.at(whole), None);
        claims.at(base).map(|claim| claim.extent)
    }
}
