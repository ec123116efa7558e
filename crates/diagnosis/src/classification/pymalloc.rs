//! CPython's arenas for small objects, by the headers of their pools.
//!
//! A pool is 16 KiB (4 KiB before 3.10) at a multiple of its size. Its header has the size class, the offset of the next block that was
//! never used, and the largest such offset, and each of these follows from the class: blocks of 16 bytes times the class's
//! number, from byte 48 on. Source: CPython's `obmalloc.c`, 3.3 to 3.14; free-threaded builds use mimalloc.

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::radix::joined;
use super::reader::Reader;

/// Sizes of pools, the newer first.
const POOL_BYTES: [u64; 2] = [16 << 10, 4 << 10];
const HEAD_BYTES: u64 = 48;
const CLASSES: u64 = 32;
const ALIGNMENT_BYTES: u64 = 16;

/// Pools that must stand in one mapping before they are believed.
const LEAST_POOLS: usize = 8;

/// Claims the pools, and the whole arena where they fill most of it.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    for gap in sight.unclaimed(claims) {
        for pool_bytes in POOL_BYTES {
            let pools = reader.headed(gap, pool_bytes, |page, words| {
                let pool = Extent::new(page, pool_bytes);
                (is_pool(words, pool_bytes) && sight.is_private(pool)).then_some(pool)
            });
            if pools.len() < LEAST_POOLS {
                continue;
            }
            for extent in joined(pools) {
                let evidence = Evidence::plain(Strength::Contents, "headers of pymalloc's pools");
                claims.add(extent, Kind::PythonObjects, evidence);
            }
            break;
        }
    }
}

/// Count, free block, next and previous pool, arena and class, the two offsets.
fn is_pool(words: &[u64], pool_bytes: u64) -> bool {
    let [count, _, _, _, arena_and_class, offsets, ..] = *words else { return false };
    let (class, next, most) = (arena_and_class >> 32, offsets & 0xffff_ffff, offsets >> 32);
    let block_bytes = (class + 1) * ALIGNMENT_BYTES;
    let blocks = pool_bytes / ALIGNMENT_BYTES;
    debug_assert!(pool_bytes >= PAGE_BYTES);
    (count & 0xffff_ffff) <= blocks
        && class < CLASSES
        && (most == pool_bytes - block_bytes)
        && next >= HEAD_BYTES + block_bytes
        && (next - HEAD_BYTES).is_multiple_of(block_bytes)
        && next <= pool_bytes + block_bytes
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    /// Twenty pools, of which the fourth states another largest offset than that of its class.
    fn twenty_pools(start: u64) -> MadeUp {
        let mut memory = MadeUp::default();
        for pool in 0..20_u64 {
            let class = pool % CLASSES;
            let block = (class + 1) * 16;
            let most = (16 << 10) - block + u64::from(pool == 3);
            let words = [5, 0, 0, 0, class << 32 | 1, (most << 32) | (48 + 3 * block)];
            memory.put(start + pool * (16 << 10), &words);
        }
        memory
    }

    #[test]
    fn pools_are_known_beside_a_mapping_of_which_nearly_nothing_was_touched() {
        let (start, sparse) = (0x4000_0000, 0x10_0000_0000);
        let mut memory = twenty_pools(start);
        memory.put(sparse + 0x1000, &[1]);
        let mappings = [
            mapping(start, start + (1 << 20), b"rw-p", ""),
            mapping(sparse, sparse + (512 << 30), b"rw-p", ""),
        ];
        let sight = Sight { mappings: &mappings, contents: Some(&memory), threads: &[] };
        let parts = super::super::classify(&sight);
        assert_eq!(parts[0].kind, Kind::PythonObjects);
    }

    #[test]
    fn pools_are_known_by_offsets_that_follow_from_their_class() {
        let start = 0x4000_0000;
        let memory = twenty_pools(start);
        let mappings = [mapping(start, start + (1 << 20), b"rw-p", "")];
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(&memory), &mut claims);
        let of = |pool: u64| claims.at(start + pool * (16 << 10)).map(|claim| claim.kind);
        assert_eq!(
            (of(0), of(3), of(19), of(20)),
            (Some(Kind::PythonObjects), None, Some(Kind::PythonObjects), None)
        );
    }
}
