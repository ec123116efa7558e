//! musl's malloc (`mallocng`, since musl 1.2.1), by its groups.
//!
//! A group of slots of one size begins with a pointer to its record, and the record points back at the group and says how many
//! pages the mapping has that begins there; a large block is a group of one slot. Groups without a mapping of their own lie in
//! slots of larger ones. Records lie behind each other in pages that begin with a secret. Source: musl's `src/malloc/mallocng/meta.h`.

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::Reader;

/// What stands before the records of a page, and the bytes of a record.
const AREA_HEAD_BYTES: u64 = 24;
const RECORD_BYTES: u64 = 40;
/// The class of large blocks; the others are below [`CLASSES`].
const LARGE: u64 = 63;
const CLASSES: u64 = 48;

/// Claims all groups that have mappings of their own.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    for gap in sight.unclaimed(claims) {
        let groups = reader.headed(gap, PAGE_BYTES, |start, words| {
            group(reader, start, words).filter(|group| sight.is_private(*group))
        });
        for group in groups {
            let evidence = Evidence::plain(Strength::Contents, "record of a group that points back at it");
            claims.add(group, Kind::MuslHeap, evidence);
        }
    }
}

/// The mapping that begins with this group.
fn group(reader: &Reader<'_>, start: u64, words: &[u64]) -> Option<Extent> {
    let [record, active, ..] = *words else { return None };
    let in_area = (record % PAGE_BYTES).checked_sub(AREA_HEAD_BYTES)?;
    if record < PAGE_BYTES || !in_area.is_multiple_of(RECORD_BYTES) {
        return None;
    }
    let [_, _, group, _, bits] = *reader.words(record, 5).as_slice() else { return None };
    let [secret, _, records] = *reader.words(record - record % PAGE_BYTES, 3).as_slice() else { return None };
    let (last_slot, class, pages) = (bits & 31, (bits >> 6) & 63, bits >> 12);
    let is_group = group == start && active & 31 <= last_slot && (class < CLASSES || class == LARGE);
    let is_area = secret != 0 && in_area / RECORD_BYTES < records & 0xffff_ffff;
    let bytes = pages.checked_mul(PAGE_BYTES).filter(|bytes| *bytes > 0)?;
    let end = start.checked_add(bytes)?;
    (is_group && is_area).then_some(Extent { start, end })
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn groups_and_large_blocks_are_known_by_their_records_and_what_looks_alike_is_not() {
        let (records, base) = (0x55_5000_0000, 0x7f00_0000_0000);
        let record = |place: u64| records + AREA_HEAD_BYTES + place * RECORD_BYTES;
        let bits = |pages: u64, class: u64, last_slot: u64| (pages << 12) | (class << 6) | last_slot;
        let mut memory = MadeUp::default();
        memory.put(records, &[0x1234_5678_9abc_def0, 0, 101]);
        let (group, large, damaged, forged) = (base, base + 0x4000, base + 0x8000, base + 0x9000);
        for (place, start, bits) in [
            (0, group, bits(4, 20, 15)),
            (1, large, bits(3, LARGE, 0)),
            (2, damaged, bits(0, 20, 15)),
            // One record only belongs to a group.
            (3, group, bits(1, 20, 15)),
        ] {
            memory.put(record(place), &[0, 0, start, 0, bits]);
        }
        memory.put(group, &[record(0), 7]);
        memory.put(large, &[record(1), 0]);
        memory.put(damaged, &[record(2), 0]);
        memory.put(forged, &[record(3), 0]);
        let mappings = [
            mapping(records, records + 0x1000, b"rw-p", "[heap]"),
            mapping(base, base + 0x10_0000, b"rw-p", ""),
        ];
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        let mut claims = Claims::default();
        claim(&sight, &Reader::new(&memory), &mut claims);
        let bytes = |address| claims.at(address).map(|found| (found.kind, found.extent.bytes()));
        assert_eq!(bytes(group + 0x3fff), Some((Kind::MuslHeap, 0x4000)));
        assert_eq!(bytes(large), Some((Kind::MuslHeap, 0x3000)));
        assert_eq!((bytes(large + 0x3000), bytes(damaged), bytes(forged)), (None, None, None));
    }
}
