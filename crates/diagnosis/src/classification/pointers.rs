//! Mappings to whose start a variable of a program or library points.
//!
//! That says whose the mapping is, not what it is for: where it is an allocator's library, its own memory; otherwise a mapping that
//! somebody made for himself. Where the mapping's first words point back at the same library's variables, both know each other.

use std::collections::HashMap;

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::loaded::{Loaded, Object};
use super::reader::{Reader, extent_of};

/// Static data read of one program or library at most.
const MOST_DATA_BYTES: u64 = 64 << 20;

/// First words of a mapping that may point back.
const HEAD_WORDS: usize = 128;

/// Claims what nobody has claimed yet.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    let anonymous = sight.mappings.iter().filter(|mapping| mapping.is_anonymous() && mapping.is_writable());
    let mut starts: HashMap<u64, Extent> =
        anonymous.flat_map(|mapping| claims.gaps(extent_of(mapping))).map(|gap| (gap.start, gap)).collect();
    for object in &loaded.objects {
        for data in object.data.iter().filter(|data| data.bytes() <= MOST_DATA_BYTES) {
            reader.each_page(*data, |_, words| {
                for word in words.iter().filter(|word| word.is_multiple_of(4096) && **word != 0) {
                    if let Some(gap) = starts.remove(word) {
                        add(reader, object, gap, claims);
                    }
                }
                starts.is_empty()
            });
        }
    }
}

fn add(reader: &Reader<'_>, object: &Object, gap: Extent, claims: &mut Claims) {
    let name = object.file_name();
    let is_mutual = reader
        .words(gap.start, HEAD_WORDS)
        .iter()
        .any(|word| object.data.iter().any(|data| data.contains(*word)));
    let evidence = match is_mutual {
        true => Evidence::with(
            Strength::Contents,
            "a library's variable points to it, and it points back",
            format!("of {name}"),
        ),
        false => Evidence::with(Strength::Pointer, "a variable points to its start", format!("of {name}")),
    };
    let kind = Allocator::of_file(&name).map_or(Kind::OwnMapping, Kind::Allocator);
    claims.add(gap, kind, evidence);
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    #[test]
    fn whose_a_mapping_is_follows_from_who_points_to_it() {
        let (data, pool, arena, other) = (0x1000, 0x10_0000, 0x20_0000, 0x30_0000);
        let mut memory = MadeUp::default();
        memory.put(data, &[pool, 5]);
        memory.put(0x2000, &[arena]);
        memory.put(arena, &[1, 0x2010]);
        let object = |path: &str, start| Object {
            path: path.into(),
            data: vec![Extent::new(start, 0x1000)],
            ..Object::default()
        };
        let loaded =
            Loaded { objects: vec![object("/bin/a", data), object("/lib/libmimalloc.so.3", 0x2000)] };
        let mappings = [pool, arena, other].map(|start| mapping(start, start + 0x8000, b"rw-p", ""));
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &loaded, &mut claims);
        let of = |start| claims.at(start).map(|claim| (claim.kind, claim.evidence.strength));
        assert_eq!(of(pool), Some((Kind::OwnMapping, Strength::Pointer)));
        assert_eq!(of(arena), Some((Kind::Allocator(Allocator::Mimalloc), Strength::Contents)));
        assert_eq!(of(other), None);
    }
}
