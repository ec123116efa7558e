//! mimalloc 1 and 2, by the cookie in each segment.
//!
//! A segment begins at a multiple of its size; among its first words is its own address, exclusive-or a random word that the
//! library keeps in its static data, and then its size. Where the cookie stands differs from version to version, so every
//! word is tried: a random word of 64 bits does not agree by chance. Source: mimalloc's `types.h`, `segment.c`.
//! mimalloc 3 has no segments; its arenas are found by `pointers`.

use std::collections::HashMap;

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::loaded::Loaded;
use super::reader::{Reader, mapping_at};

/// Segments of version 2; those of version 1 are 4 MiB at multiples of 4 MiB.
const SEGMENT_BYTES: u64 = 32 << 20;
const OLD_SEGMENT_BYTES: u64 = 4 << 20;

/// A segment's size is counted in slices.
const SLICE_BYTES: u64 = 64 << 10;

/// Words in which the cookie is searched.
const HEAD_WORDS: usize = 96;

/// Static data read of one program or library at most.
const MOST_DATA_BYTES: u64 = 64 << 20;

/// Claims all segments.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    let mut candidates: HashMap<u64, Vec<Extent>> = HashMap::new();
    for gap in sight.unclaimed(claims) {
        reader.each_multiple(gap, OLD_SEGMENT_BYTES, |start| {
            note_candidates(reader, start, end_of_run(sight, start), &mut candidates);
            None
        });
    }
    if candidates.is_empty() {
        return;
    }
    for object in &loaded.objects {
        for data in object.data.iter().filter(|data| data.bytes() <= MOST_DATA_BYTES) {
            reader.each_page(*data, |_, words| {
                for word in words {
                    let Some(segments) = candidates.remove(word) else { continue };
                    for segment in segments {
                        let detail = format!("secret of {}", object.file_name());
                        let evidence = Evidence::with(Strength::Contents, "cookie of a segment", detail);
                        claims.add(segment, Kind::Allocator(Allocator::Mimalloc), evidence);
                    }
                }
                false
            });
        }
    }
}

/// The end of the anonymous mappings that follow without a hole: the rest of a segment need not be accessible yet.
fn end_of_run(sight: &Sight<'_>, from: u64) -> u64 {
    let mut end = from;
    while let Some(next) = mapping_at(sight.mappings, end).filter(|next| next.is_anonymous()) {
        end = next.end;
    }
    end
}

/// Every word that could be the cookie, by the secret it would give; the size stands behind it.
fn note_candidates(reader: &Reader<'_>, start: u64, end: u64, candidates: &mut HashMap<u64, Vec<Extent>>) {
    let words = reader.words(start, HEAD_WORDS);
    for pair in words.windows(2) {
        let [cookie, size] = *pair else { continue };
        let secret = cookie ^ start;
        // Small numbers and pointers give no secrets: those are random in all their bits.
        if cookie >> 48 == 0 {
            continue;
        }
        let slices = size.checked_mul(SLICE_BYTES).filter(|_| start.is_multiple_of(SEGMENT_BYTES));
        let old_bytes =
            Some(size).filter(|size| size.is_multiple_of(PAGE_BYTES) && *size >= OLD_SEGMENT_BYTES / 64);
        let bytes = slices.filter(|bytes| (1..=end - start).contains(bytes)).or(old_bytes);
        if let Some(bytes) = bytes.filter(|bytes| *bytes <= end - start) {
            candidates.entry(secret).or_default().push(Extent::new(start, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::loaded::Object;
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn a_segment_is_proven_by_the_secret_and_a_look_alike_is_not() {
        let (segment, secret, data) = (0x4000_0000, 0xdead_beef_1234_5678, 0x10_0000);
        let mut memory = MadeUp::default();
        memory.put(segment, &[7, 8, segment ^ secret, 512]);
        memory.put(segment + SEGMENT_BYTES, &[7, 8, 0x1111_2222_3333_4444, 512]);
        memory.put(data, &[3, secret]);
        let mappings = [
            mapping(data, data + 0x1000, b"rw-p", "/lib/libmimalloc.so"),
            mapping(segment, segment + 0x10_0000, b"rw-p", ""),
            mapping(segment + 0x10_0000, segment + SEGMENT_BYTES, b"---p", ""),
            mapping(segment + SEGMENT_BYTES, segment + 2 * SEGMENT_BYTES, b"rw-p", ""),
        ];
        let object = Object {
            path: b"/lib/libmimalloc.so".to_vec(),
            data: vec![Extent::new(data, 0x1000)],
            ..Object::default()
        };
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &Loaded { objects: vec![object] }, &mut claims);
        let found = claims.at(segment).unwrap();
        assert_eq!((found.kind, found.extent.bytes()), (Kind::Allocator(Allocator::Mimalloc), SEGMENT_BYTES));
        assert_eq!(claims.at(segment + SEGMENT_BYTES), None);
    }
}
