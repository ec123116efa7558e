//! The lists of free chunks that an arena keeps, followed and checked; they must name the chunks that the walk met.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use faultless_records::glibc_heap::{
    ArenaState, BINS, CHUNK_HEADER_BYTES, LEAST_CHUNK_BYTES, Layout, SizeWord, link, word,
};

use super::Memory;
use super::account::FreeChunk;
use super::sizes::Amount;

/// One list as `malloc_info` shows it; sizes in the regular bins come with their flags, as glibc prints them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listed {
    /// Smallest.
    pub from: u64,
    /// Largest.
    pub to: u64,
    /// Sum.
    pub total: u64,
    /// How many.
    pub count: u64,
}

/// What the lists of an arena say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lists {
    /// The fast bins.
    pub fast: Vec<Listed>,
    /// The regular bins, the unsorted one first.
    pub bins: Vec<Listed>,
    /// Chunks and bytes in the regular bins.
    pub binned: Amount,
    /// Chunks in bins that the walk did not meet.
    pub unmet: Vec<u64>,
    /// Whether every link led back, every size was possible, and every list ended.
    pub is_sound: bool,
}

/// Chunks of the fast bins; none where a list does not end, or leads to something that is no chunk of its size.
#[must_use]
pub fn fast_chunks(
    memory: &dyn Memory,
    state: &ArenaState,
    layout: &Layout,
) -> Option<(HashSet<u64>, Vec<Listed>)> {
    let mut chunks = HashSet::new();
    let mut lists = Vec::new();
    let most = state.system_bytes / LEAST_CHUNK_BYTES + 1;
    for (head, size) in state.fast_bins.iter().zip((LEAST_CHUNK_BYTES..).step_by(16)) {
        let mut listed = Listed::default();
        let mut address = *head;
        while address != 0 {
            let mut bytes = [0; 16];
            if !address.is_multiple_of(16) || !memory.read(address.checked_add(8)?, &mut bytes) {
                return None;
            }
            let chunk_bytes = SizeWord(word(&bytes, 0)?).bytes();
            if chunk_bytes != size || !chunks.insert(address) || chunks.len() as u64 > most {
                return None;
            }
            listed.count += 1;
            address = link(address + CHUNK_HEADER_BYTES, word(&bytes, 8)?, layout);
        }
        if listed.count > 0 {
            listed = Listed { from: size - 15, to: size, total: listed.count * size, count: listed.count };
        }
        lists.push(listed);
    }
    Some((chunks, lists))
}

/// Chunks of bins that the walk met.
pub type Met = HashMap<u64, FreeChunk, AddressHash>;

/// Places addresses by a product: there may be millions, in no order, and the hash that Rust has is most of what finding one costs.
#[derive(Debug, Clone)]
pub struct AddressHash {
    /// Odd, and drawn anew each time: no process can be made such that its chunks fall together.
    factor: u64,
}

impl Default for AddressHash {
    fn default() -> Self {
        Self { factor: RandomState::new().hash_one(0) | 1 }
    }
}

impl BuildHasher for AddressHash {
    type Hasher = AddressHasher;

    fn build_hasher(&self) -> AddressHasher {
        AddressHasher { factor: self.factor, product: 0 }
    }
}

/// Hashes one address.
pub struct AddressHasher {
    factor: u64,
    product: u64,
}

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        // The table goes by the lowest bits, and the highest are the best of a product.
        self.product ^ (self.product >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        self.product = (self.product ^ address).wrapping_mul(self.factor);
    }
}

/// How many chunks of bins are followed before it is asked again whether the walk has to end.
const BETWEEN_QUESTIONS: u64 = 4096;

/// Follows the regular bins through the chunks that the walk met; others are read.
#[must_use]
pub fn follow(memory: &dyn Memory, state: &ArenaState, address: u64, layout: &Layout, met: &Met) -> Lists {
    let mut lists = Lists { is_sound: true, ..Lists::default() };
    let most = state.system_bytes / LEAST_CHUNK_BYTES + 1;
    for bin in 0..BINS {
        let head = layout.bin_address(address, bin);
        let mut listed = Listed { from: u64::MAX, ..Listed::default() };
        let (mut before, mut chunk) = (head, state.bins[bin].0);
        while chunk != head {
            let known = met.get(&chunk).copied();
            let Some(found) = known.or_else(|| read(memory, chunk)) else {
                lists.is_sound = false;
                break;
            };
            if known.is_none() {
                lists.unmet.push(chunk);
            }
            let has_to_end = lists.binned.blocks.is_multiple_of(BETWEEN_QUESTIONS) && memory.is_overdue();
            if found.previous != before || lists.binned.blocks >= most || has_to_end {
                lists.is_sound = false;
                break;
            }
            listed.from = listed.from.min(found.stored);
            listed.to = listed.to.max(found.stored);
            listed.total = listed.total.saturating_add(found.stored);
            listed.count += 1;
            lists.binned.add(SizeWord(found.stored).bytes());
            (before, chunk) = (chunk, found.next);
        }
        if chunk == head && state.bins[bin].1 != before {
            lists.is_sound = false;
        }
        lists.bins.push(if listed.count == 0 { Listed::default() } else { listed });
    }
    lists
}

fn read(memory: &dyn Memory, chunk: u64) -> Option<FreeChunk> {
    let mut bytes = [0; 24];
    if !chunk.is_multiple_of(16) || !memory.read(chunk.checked_add(8)?, &mut bytes) {
        return None;
    }
    Some(FreeChunk { stored: word(&bytes, 0)?, next: word(&bytes, 8)?, previous: word(&bytes, 16)? })
}
