//! Mappings to whose start a variable of a program or library points.
//!
//! That says whose the mapping is, not what it is for: where it is an allocator's library, its own memory; otherwise a mapping that
//! somebody made for himself. Where the mapping's first words point back at the same library's variables, both know each other.

use std::collections::HashMap;

use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::program;

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
                for word in words.iter().filter(|word| word.is_multiple_of(PAGE_BYTES) && **word != 0) {
                    if starts.get(word).is_some_and(|gap| add(sight, reader, object, *gap, claims)) {
                        starts.remove(word);
                    }
                }
                starts.is_empty()
            });
        }
    }
}

/// Returns whether it was claimed.
fn add(sight: &Sight<'_>, reader: &Reader<'_>, object: &Object, gap: Extent, claims: &mut Claims) -> bool {
    let name = object.file_name();
    let words = reader.words(gap.start, HEAD_WORDS);
    let is_mutual = words.iter().any(|word| object.data.iter().any(|data| data.contains(*word)));
    // glibc's loader still points to where ld.so.cache was, and what is mapped later may begin there.
    if !is_mutual && program::is_loader(&name) && !program::is_libc(&name) {
        return false;
    }
    let evidence = match is_mutual {
        true => Evidence::with(
            Strength::Contents,
            "a library's variable points to it, and it points back",
            format!("of {name}"),
        ),
        false => Evidence::with(Strength::Pointer, "a variable points to its start", format!("of {name}")),
    };
    let allocator = Allocator::of_file(&name);
    let kind = allocator.map_or(Kind::OwnMapping, Kind::Allocator);
    let whole = if is_mutual && allocator.is_some() { arena(sight, gap, &words) } else { gap };
    for gap in claims.gaps(whole) {
        claims.add(gap, kind, evidence.clone());
    }
    true
}

/// All of an allocator's arena, of which this is the first part: as large as it says of itself, or to the end of what follows
/// without a hole, where locked pages and advice divide it.
fn arena(sight: &Sight<'_>, first: Extent, words: &[u64]) -> Extent {
    let stated = words.windows(2).find(|pair| pair[0] == first.start && pair[1].is_multiple_of(PAGE_BYTES));
    let stated = stated.map(|pair| Extent::new(first.start, pair[1]));
    let whole = stated.filter(|stated| stated.end > first.end && sight.is_private(*stated));
    whole.unwrap_or(Extent { start: first.start, end: sight.end_of_row(first.start).max(first.end) })
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

    #[test]
    fn what_begins_where_the_loader_had_its_cache_is_not_the_loaders() {
        let (stale, data, reused, own) = (0x1000, 0x2000, 0x10_0000, 0x20_0000);
        let mut memory = MadeUp::default();
        memory.put(stale, &[reused, own]);
        memory.put(own, &[1, stale]);
        let object = |path: &str, start| Object {
            path: path.into(),
            data: vec![Extent::new(start, 0x1000)],
            ..Object::default()
        };
        let mappings = [reused, own].map(|start| mapping(start, start + 0x8000, b"rw-p", ""));
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        let known = |memory: &MadeUp| {
            let objects = vec![object("/lib64/ld-linux-x86-64.so.2", stale), object("/bin/a", data)];
            let mut claims = Claims::default();
            claim(&sight, &Reader::new(memory), &Loaded { objects }, &mut claims);
            [reused, own].map(|start| claims.at(start).map(|claim| claim.evidence.strength))
        };
        assert_eq!(known(&memory), [None, Some(Strength::Contents)]);
        memory.put(data, &[reused]);
        assert_eq!(
            known(&memory),
            [Some(Strength::Pointer), Some(Strength::Contents)],
            "the program points to it, too"
        );
    }

    #[test]
    fn an_arena_that_the_kernel_divided_is_known_whole_and_not_what_lies_behind_it() {
        let (data, arena) = (0x1000, 0x20_0000);
        let known = |words: &[u64]| {
            let mut memory = MadeUp::default();
            memory.put(data, &[arena]);
            memory.put(arena, words);
            let path = b"/lib/libmimalloc.so.3".to_vec();
            let object = Object { path, data: vec![Extent::new(data, 0x1000)], ..Object::default() };
            let mappings = [
                mapping(arena, arena + 0x1000, b"rw-p", ""),
                mapping(arena + 0x1000, arena + 0x2000, b"r--p", ""),
                mapping(arena + 0x2000, arena + 0x8000, b"rw-p", ""),
                mapping(arena + 0x8000, arena + 0x9000, b"---p", ""),
                mapping(arena + 0x9000, arena + 0xa000, b"rw-p", ""),
            ];
            let mut claims = Claims::default();
            let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
            claim(&sight, &Reader::new(&memory), &Loaded { objects: vec![object] }, &mut claims);
            let extent = Extent { start: arena, end: arena + 0x10_0000 };
            claims.within(extent).iter().map(|claim| claim.extent.bytes()).sum::<u64>()
        };
        assert_eq!(known(&[1, data]), 0x8000, "without a size it ends before a guard page");
        assert_eq!(known(&[arena, 0x4000, data]), 0x4000);
        assert_eq!(known(&[arena, 0x9000, data]), 0x9000);
        assert_eq!(known(&[arena, 0x10_0000, data]), 0x8000, "it is not as large as it says");
        assert_eq!(known(&[1, 2]), 0x1000, "who does not point back may be anything");
    }
}
