//! The caches of threads. Their blocks look used to the arenas, and no symbol leads to them; but a cache is itself a chunk of
//! known size whose lists lead to chunks of the right sizes, each as long as it says.

use std::collections::HashSet;

use faultless_records::glibc_heap::{CHUNK_HEADER_BYTES, CacheLayout, Layout, SizeWord, link, word};

use super::Memory;
use super::chunks::{Chunk, Kind};
use super::window::Window;

/// Most blocks of one list, by the kind of its count.
const MOST_BLOCKS: u16 = u16::MAX;

/// By how much the chunk of a cache may be too large: 2.43 rounds its size up twice where it is made together with an arena, and
/// a rest too small for a chunk of its own stays with the chunk before it.
const MOST_SLACK_BYTES: u64 = 32;

/// A chunk that looks like a thread's cache; not yet believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The chunk.
    pub chunk: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Number and first block of each list.
    lists: Vec<(u16, u64)>,
}

/// The blocks of one thread's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The chunk that holds the lists.
    pub chunk: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Chunks in its lists, with their sizes.
    pub blocks: Vec<(u64, u64)>,
}

/// Whether a chunk that the walk met may be a thread's cache.
pub fn candidate(window: &mut Window<'_>, chunk: Chunk, layout: &Layout) -> Option<Candidate> {
    let wanted = layout.cache_chunk_bytes();
    if chunk.kind != Kind::Used || !(wanted..=wanted + MOST_SLACK_BYTES).contains(&chunk.bytes) {
        return None;
    }
    let bytes = window.slice(chunk.address + CHUNK_HEADER_BYTES, layout.cache.bytes())?;
    let lists = plausible_lists(bytes, &layout.cache)?;
    Some(Candidate { chunk: chunk.address, bytes: chunk.bytes, lists })
}

fn plausible_lists(bytes: &[u8], cache: &CacheLayout) -> Option<Vec<(u16, u64)>> {
    let mut lists = Vec::with_capacity(cache.lists);
    for list in 0..cache.lists {
        let (number, first) = cache.list(bytes, list)?;
        if !first.is_multiple_of(16) || (!cache.counts_down && (number == 0) != (first == 0)) {
            return None;
        }
        lists.push((number, first));
    }
    // Without a block in it a cache is not told from a block of zeros, and makes no difference.
    lists.iter().any(|(_, first)| *first != 0).then_some(lists)
}

/// Follows the lists of every candidate and keeps the real ones. `capacity` is what a list may hold, where it is known.
#[must_use]
pub fn confirm(
    memory: &dyn Memory,
    candidates: &[Candidate],
    layout: &Layout,
    capacity: Option<u64>,
) -> Vec<Cache> {
    let mut seen = HashSet::new();
    let mut caches = Vec::new();
    for candidate in candidates {
        let blocks = follow(memory, candidate, layout, capacity);
        let Some(blocks) = blocks else { continue };
        // A stale copy of a cache would lead to the same blocks.
        if blocks.iter().any(|(chunk, _)| seen.contains(chunk)) {
            continue;
        }
        seen.extend(blocks.iter().map(|(chunk, _)| *chunk));
        caches.push(Cache { chunk: candidate.chunk, bytes: candidate.bytes, blocks });
    }
    caches
}

fn follow(
    memory: &dyn Memory,
    candidate: &Candidate,
    layout: &Layout,
    capacity: Option<u64>,
) -> Option<Vec<(u64, u64)>> {
    let mut blocks = Vec::new();
    let mut sums = HashSet::new();
    for (list, (number, first)) in candidate.lists.iter().enumerate() {
        let mut length = 0_u16;
        let mut block = *first;
        while block != 0 {
            let mut bytes = [0; 16];
            if !block.is_multiple_of(16) || !memory.read(block.checked_sub(8)?, &mut bytes) {
                return None;
            }
            let size = SizeWord(word(&bytes, 0)?);
            if size.is_mapping() && list < layout.cache.small_lists || !layout.cache.takes(list, size.bytes())
            {
                return None;
            }
            length = length.checked_add(1).filter(|length| *length < MOST_BLOCKS)?;
            if !layout.cache.counts_down && length > *number {
                return None;
            }
            blocks.push((block - CHUNK_HEADER_BYTES, size.bytes()));
            block = link(block, word(&bytes, 8)?, layout);
        }
        if layout.cache.counts_down {
            sums.insert(u64::from(length) + u64::from(*number));
        } else if length != *number {
            return None;
        }
    }
    let is_consistent = match capacity {
        _ if !layout.cache.counts_down => true,
        Some(capacity) => sums.iter().all(|sum| *sum == capacity),
        None => sums.len() == 1,
    };
    (is_consistent && !blocks.is_empty()).then_some(blocks)
}
