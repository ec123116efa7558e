//! Ruby's pages of objects, by their headers.
//!
//! A page is 64 KiB (16 KiB before 3.2) at a multiple of its size. It begins with a pointer to its description, which has the size
//! and number of the slots and points back to the first of them. Source: Ruby's `gc.c`, 2.7 to 3.4; tried with 3.1. Where
//! Ruby takes its pages from malloc, they are malloc's.

use faultless_records::contents::Extent;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::radix::joined;
use super::reader::Reader;

const PAGE_BYTES: u64 = 64 << 10;
const OLD_PAGE_BYTES: u64 = 16 << 10;
const SLOT_BYTES: u64 = 40;

/// Words of a description in which the pointer back is searched.
const DESCRIPTION_WORDS: usize = 8;

/// Pages that must stand in one mapping before they are believed.
const LEAST_PAGES: usize = 4;

/// Claims the pages.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    for gap in sight.unclaimed(claims) {
        let pages = reader.headed(gap, OLD_PAGE_BYTES, |address, words| {
            page(reader, address, words[0]).filter(|whole| sight.is_private(*whole))
        });
        if pages.len() < LEAST_PAGES {
            continue;
        }
        for extent in joined(pages) {
            let evidence = Evidence::plain(Strength::Contents, "headers of Ruby's pages of objects");
            claims.add(extent, Kind::RubyObjects, evidence);
        }
    }
}

/// The page that begins here, if its description says so.
fn page(reader: &Reader<'_>, start: u64, description: u64) -> Option<Extent> {
    if description == 0 || !description.is_multiple_of(8) {
        return None;
    }
    let words = reader.words(description, DESCRIPTION_WORDS);
    let counts = *words.first()?;
    let (first, second) = (counts & 0xffff, counts >> 16 & 0xffff);
    // Before slots had sizes their number stood first.
    let is_sized = first.is_multiple_of(SLOT_BYTES)
        && (first / SLOT_BYTES).is_power_of_two()
        && first * second > OLD_PAGE_BYTES / 2;
    let (slot, slots) = if is_sized { (first, second) } else { (SLOT_BYTES, first) };
    let bytes = if slot * slots > OLD_PAGE_BYTES { PAGE_BYTES } else { OLD_PAGE_BYTES };
    let fills = slot * slots > bytes / 2 && slot * slots < bytes;
    let points_back =
        words.iter().skip(1).any(|word| *word > start && *word <= start + 8 + slot + SLOT_BYTES);
    (fills && points_back && start.is_multiple_of(bytes)).then(|| Extent::new(start, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const START: u64 = 0x4000_0000;
    const DESCRIPTIONS: u64 = 0x1000_0000;

    /// Which of six pages of this size are known; the description of the third points elsewhere.
    fn known(page_bytes: u64, counts: u64) -> Vec<bool> {
        let mut memory = MadeUp::default();
        for page in 0..6 {
            let (start, description) = (START + page * page_bytes, DESCRIPTIONS + page * 0x100);
            memory.put(start, &[description]);
            let first_slot = if page == 2 { START } else { start + 40 };
            memory.put(description, &[counts, 0, 0, first_slot, 0]);
        }
        let mappings = [
            mapping(DESCRIPTIONS, DESCRIPTIONS + 0x1000, b"rw-p", "[heap]"),
            mapping(START, START + (1 << 20), b"rw-p", ""),
        ];
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &mut claims);
        let kinds = (0..7).map(|page| claims.at(START + page * page_bytes + 4096).map(|claim| claim.kind));
        kinds.map(|kind| kind == Some(Kind::RubyObjects)).collect()
    }

    #[test]
    fn pages_are_known_by_descriptions_that_point_back() {
        let expected = [true, true, false, true, true, true, false];
        assert_eq!(known(PAGE_BYTES, 160 | 409 << 16), expected);
        assert_eq!(known(OLD_PAGE_BYTES, 40 | 409 << 16), expected);
        assert_eq!(known(OLD_PAGE_BYTES, 408), expected);
        // Slots that fill no page.
        assert_eq!(known(OLD_PAGE_BYTES, 40 | 20 << 16), [false; 7]);
    }
}
