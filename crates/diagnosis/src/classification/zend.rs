//! PHP's heap (Zend's memory manager), by its chunks.
//!
//! A chunk is 2 MiB at a multiple of 2 MiB. It begins with a pointer to its heap, which lies 64 bytes into the heap's first chunk,
//! and with its neighbours in the ring of chunks. Blocks that are larger stand in a list, whose head the heap has before its
//! pointer to the first chunk. Behind that it has the list of the chunks that are kept for later: those that one request freed
//! hold the pointer to the heap still, those of requests that have ended only the one to the next. Source: PHP's
//! `Zend/zend_alloc.c`, 7.0 to 8.4; tried with 8.2.

use std::collections::BTreeSet;

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::reader::Reader;

const CHUNK_BYTES: u64 = 2 << 20;
const HEAP_OFFSET: u64 = 64;
/// Words of the heap in which its pointer to the first chunk is searched: 30 lists of free blocks stand before it.
const HEAP_WORDS: usize = 64;

/// Claims the chunks of all heaps and their large blocks.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    let mut heaps = BTreeSet::new();
    for gap in sight.unclaimed(claims) {
        reader.each_multiple(gap, CHUNK_BYTES, |chunk| {
            let whole = Extent::new(chunk, CHUNK_BYTES);
            let heap = heap_of(reader, chunk).filter(|_| sight.is_private(whole))?;
            heaps.insert(heap);
            let evidence = Evidence::plain(Strength::Contents, "header of a chunk of PHP");
            claims.add(whole, Kind::PhpHeap, evidence);
            Some(whole.end)
        });
    }
    for lists in heaps.into_iter().filter_map(|heap| Lists::of(reader, heap)) {
        let large = large_blocks(reader, lists.large_blocks);
        let kept = kept_chunks(reader, lists.kept_chunks);
        for (found, what) in [(large, "PHP's list of large blocks"), (kept, "PHP's list of kept chunks")] {
            for extent in found.into_iter().filter(|extent| sight.is_private(*extent)) {
                claims.add(extent, Kind::PhpHeap, Evidence::plain(Strength::Contents, what));
            }
        }
    }
}

/// The heap of what may be a chunk. The ring of chunks is no proof: pages of a running process are read one after the other.
fn heap_of(reader: &Reader<'_>, chunk: u64) -> Option<u64> {
    let [heap, next, ..] = *reader.words(chunk, 3).as_slice() else { return None };
    let first = heap.checked_sub(HEAP_OFFSET)?;
    let is_heap = first != 0 && first.is_multiple_of(CHUNK_BYTES) && reader.word(first) == Some(heap);
    (is_heap && next.is_multiple_of(CHUNK_BYTES) && Lists::of(reader, heap).is_some()).then_some(heap)
}

/// What a heap has before and after its pointer to the first chunk.
struct Lists {
    large_blocks: u64,
    kept_chunks: u64,
}

impl Lists {
    fn of(reader: &Reader<'_>, heap: u64) -> Option<Self> {
        let words = reader.words(heap, HEAP_WORDS);
        let around = words.windows(3).find(|around| around[1] == heap - HEAP_OFFSET)?;
        Some(Self { large_blocks: around[0], kept_chunks: around[2] })
    }
}

/// The chunks of a heap that wait for its next request, each with the next one behind its first word.
fn kept_chunks(reader: &Reader<'_>, mut chunk: u64) -> Vec<Extent> {
    let mut seen = BTreeSet::new();
    while chunk != 0 && chunk.is_multiple_of(CHUNK_BYTES) && seen.insert(chunk) {
        chunk = reader.word(chunk + 8).unwrap_or(0);
    }
    seen.into_iter().map(|chunk| Extent::new(chunk, CHUNK_BYTES)).collect()
}

/// Start, size and next one of each block in the heap's list.
fn large_blocks(reader: &Reader<'_>, mut entry: u64) -> Vec<Extent> {
    let mut blocks = Vec::new();
    let mut seen = BTreeSet::new();
    // A damaged list may bite its tail.
    while entry != 0 && seen.insert(entry) {
        let [start, bytes, next] = *reader.words(entry, 3).as_slice() else { break };
        let is_block = start.is_multiple_of(CHUNK_BYTES)
            && bytes.is_multiple_of(PAGE_BYTES)
            && start.checked_add(bytes).is_some();
        if !is_block || start == 0 || bytes == 0 {
            break;
        }
        blocks.push(Extent::new(start, bytes));
        entry = next;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const FIRST: u64 = 0x4000_0000;
    const HEAP: u64 = FIRST + HEAP_OFFSET;
    const LARGE: u64 = 0x8000_0000;

    fn found(memory: &MadeUp) -> Vec<Option<Kind>> {
        let mappings = [
            // A page of the second chunk is locked.
            mapping(FIRST, FIRST + CHUNK_BYTES + 8192, b"rw-p", ""),
            mapping(FIRST + CHUNK_BYTES + 8192, FIRST + CHUNK_BYTES + 12288, b"rw-p", ""),
            mapping(FIRST + CHUNK_BYTES + 12288, FIRST + 4 * CHUNK_BYTES, b"rw-p", ""),
            mapping(LARGE, LARGE + 2 * CHUNK_BYTES, b"rw-p", ""),
        ];
        let mut claims = Claims::default();
        let sight = Sight { mappings: &mappings, contents: None, threads: &[] };
        claim(&sight, &Reader::new(memory), &mut claims);
        let at = |address: u64| claims.at(address).map(|claim| claim.kind);
        vec![
            at(FIRST),
            at(FIRST + CHUNK_BYTES),
            at(FIRST + 2 * CHUNK_BYTES),
            at(FIRST + 3 * CHUNK_BYTES),
            at(LARGE),
        ]
    }

    fn heap_of_two_chunks(large: &[u64]) -> MadeUp {
        let mut memory = MadeUp::default();
        let second = FIRST + CHUNK_BYTES;
        memory.put(FIRST, &[HEAP, second, second]);
        memory.put(second, &[HEAP, FIRST, FIRST]);
        // One that is kept for later, and something else that looks a little alike.
        memory.put(FIRST + 2 * CHUNK_BYTES, &[HEAP, 0, 7]);
        memory.put(FIRST + 3 * CHUNK_BYTES, &[HEAP + 8, 0, 0]);
        memory.put(HEAP + 40 * 8, &[second + 4096, FIRST]);
        memory.put(second + 4096, large);
        memory
    }

    #[test]
    fn chunks_and_large_blocks_of_a_heap_are_known() {
        let php = Some(Kind::PhpHeap);
        assert_eq!(found(&heap_of_two_chunks(&[LARGE, CHUNK_BYTES, 0])), [php, php, php, None, php]);
        // A size that is none ends the list.
        assert_eq!(found(&heap_of_two_chunks(&[LARGE, 5, 0])), [php, php, php, None, None]);
        // A list that bites its tail ends, too.
        let entry = FIRST + CHUNK_BYTES + 4096;
        assert_eq!(found(&heap_of_two_chunks(&[LARGE, CHUNK_BYTES, entry])), [php, php, php, None, php]);
    }

    #[test]
    fn chunks_that_are_kept_between_requests_are_known_by_their_heaps_list() {
        let php = Some(Kind::PhpHeap);
        let [second, third] = [1, 2].map(|place| FIRST + place * CHUNK_BYTES);
        let mut memory = MadeUp::default();
        memory.put(FIRST, &[HEAP, FIRST, FIRST]);
        memory.put(HEAP + 40 * 8, &[0, FIRST, third]);
        // PHP clears the header but for the next one; the last one's leads back here.
        memory.put(third, &[0, second, 0]);
        memory.put(second, &[0, third, 0]);
        assert_eq!(found(&memory), [php, php, php, None, None]);
        // What is no list of chunks.
        memory.put(HEAP + 42 * 8, &[third + 8]);
        assert_eq!(found(&memory), [php, None, None, None, None]);
    }

    #[test]
    fn a_heap_is_known_whose_ring_changed_while_it_was_read() {
        let php = Some(Kind::PhpHeap);
        let mut memory = heap_of_two_chunks(&[0]);
        memory.put(FIRST + CHUNK_BYTES, &[0, 0, 0]);
        assert_eq!(found(&memory), [php, None, php, None, None]);
    }

    #[test]
    fn a_pointer_to_itself_is_no_heap() {
        let mut memory = MadeUp::default();
        memory.put(FIRST, &[HEAP, FIRST, 5 * CHUNK_BYTES]);
        assert_eq!(found(&memory), [None; 5]);
    }
}
