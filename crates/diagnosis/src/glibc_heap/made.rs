//! Heaps made for tests and for the fuzzer: what they hold is known, for every layout.
#![allow(missing_docs, clippy::unwrap_used, reason = "of tests and the fuzzer alone")]

use faultless_records::glibc_heap::Layout;

use super::arenas::Data;
use super::choice::{self, Outcome};
use super::walk::HeapWalk;
use super::{Area, Memory, PAGE_BYTES, Page};

pub const DATA: u64 = 0x7f00_0000_0000;
pub const DATA_BYTES: u64 = 16 * PAGE_BYTES;
/// Where the made `malloc_state` and `malloc_par` stand in the data.
pub const STATE: u64 = DATA + 0x2a40;
pub const PARAMETERS: u64 = DATA + 0x1180;
pub const HEAP: u64 = 0x5555_0000_0000;
pub const THREAD_HEAP: u64 = 0x7e00_0000_0000;
pub const THREAD_HEAP_BYTES: u64 = 33 * PAGE_BYTES;

/// What a made chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    Used,
    Free,
    Fast,
    Cached,
}

#[derive(Clone)]
pub struct Made {
    pub data: Vec<u8>,
    pub heap: Vec<u8>,
    pub thread_heap: Vec<u8>,
    pub absent: Vec<u64>,
}

impl Memory for Made {
    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        for (start, bytes) in [(DATA, &self.data), (HEAP, &self.heap), (THREAD_HEAP, &self.thread_heap)] {
            let offset = address.checked_sub(start).and_then(|offset| usize::try_from(offset).ok());
            let part = offset.and_then(|offset| bytes.get(offset..offset.checked_add(buffer.len())?));
            if let Some(part) = part {
                buffer.copy_from_slice(part);
                return true;
            }
        }
        false
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        let first = address / PAGE_BYTES;
        let state = |page| if self.absent.contains(&page) { Page::Absent } else { Page::Resident };
        Some((first..first + count as u64).map(state).collect())
    }
}

impl Made {
    pub fn put(&mut self, address: u64, word: u64) {
        let (start, bytes) = match address {
            address if address >= DATA => (DATA, &mut self.data),
            address if address >= THREAD_HEAP => (THREAD_HEAP, &mut self.thread_heap),
            _ => (HEAP, &mut self.heap),
        };
        let offset = (address - start) as usize;
        bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
    }

    pub fn put_half(&mut self, address: u64, half: u32) {
        let offset = (address - DATA) as usize;
        self.data[offset..offset + 4].copy_from_slice(&half.to_le_bytes());
    }

    /// A heap with these chunks in the main arena, one chunk in use in a thread's arena, and tops behind.
    pub fn new(layout: &Layout, chunks: &[(u64, Make)]) -> Self {
        let used: u64 = chunks.iter().map(|(bytes, _)| bytes).sum();
        let heap_bytes = (used + layout.cache_chunk_bytes() + 5 * PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let mut made = Self {
            data: vec![0; DATA_BYTES as usize],
            heap: vec![0; heap_bytes as usize],
            thread_heap: vec![0; THREAD_HEAP_BYTES as usize],
            absent: Vec::new(),
        };
        let state = THREAD_HEAP + layout.heap_info_bytes;
        made.put_main(layout, chunks, state);
        made.put_state(layout, state, STATE, &[], THREAD_HEAP_BYTES);
        made.put(THREAD_HEAP, state);
        made.put(THREAD_HEAP + 16, THREAD_HEAP_BYTES);
        made.put(THREAD_HEAP + 24, THREAD_HEAP_BYTES);
        if layout.heap_info_bytes > 32 {
            made.put(THREAD_HEAP + 32, PAGE_BYTES);
        }
        let first = THREAD_HEAP + layout.first_chunk();
        made.put(first + 8, 0x1000 | 5);
        made.put(first + 0x1000 + 8, (THREAD_HEAP_BYTES - layout.first_chunk() - 0x1000) | 1);
        made.put(state + layout.top as u64, first + 0x1000);
        made
    }

    fn put_main(&mut self, layout: &Layout, chunks: &[(u64, Make)], thread_state: u64) {
        let cache = HEAP;
        let mut at = HEAP + layout.cache_chunk_bytes();
        self.put(cache + 8, layout.cache_chunk_bytes() | 1);
        let (mut free, mut fast, mut cached) = (Vec::new(), Vec::new(), Vec::new());
        let mut previous_is_used = 1;
        for (bytes, make) in chunks {
            self.put(at + 8, bytes | previous_is_used);
            previous_is_used = u64::from(*make != Make::Free);
            match make {
                Make::Used => {}
                Make::Free => {
                    self.put(at + bytes, *bytes);
                    free.push(at);
                }
                Make::Fast => fast.push(at),
                Make::Cached => cached.push((at, *bytes)),
            }
            at += bytes;
        }
        let heap_bytes = self.heap.len() as u64;
        self.put(at + 8, (HEAP + heap_bytes - at) | previous_is_used);
        self.put_state(layout, STATE, thread_state, &free, heap_bytes);
        self.put(STATE + layout.top as u64, at);
        if let Some(offset) = layout.fast_bins {
            let place = |list: usize| if list == 0 { STATE + offset as u64 } else { fast[list - 1] + 16 };
            for (list, chunk) in fast.iter().enumerate() {
                let mangle = if list > 0 && layout.links_are_mangled { place(list) >> 12 } else { 0 };
                self.put(place(list), chunk ^ mangle);
            }
            if let Some(last) = fast.last().filter(|_| layout.links_are_mangled) {
                self.put(last + 16, (last + 16) >> 12);
            }
        }
        self.put_cache(layout, cache + 16, &cached);
        self.put(PARAMETERS + 16, 128 * 1024);
        let after = PARAMETERS + layout.mmapped_bytes as u64;
        self.put(after + 16, HEAP);
        self.put(after + 24, 64);
        self.put(after + 40, 7);
    }

    /// Chunks with their sizes, each in the list of its size.
    fn put_cache(&mut self, layout: &Layout, cache: u64, chunks: &[(u64, u64)]) {
        for list in 0..layout.cache.lists {
            let fits = |(_, bytes): &&(u64, u64)| layout.cache.takes(list, *bytes);
            let of_list: Vec<u64> = chunks.iter().filter(fits).map(|(chunk, _)| *chunk).collect();
            self.put_number(layout, list, of_list.len() as u64);
            let first = cache + (layout.cache.lists * layout.cache.count_bytes + list * 8) as u64;
            let mut place = first;
            for chunk in of_list {
                let mangle = if place != first && layout.links_are_mangled { place >> 12 } else { 0 };
                self.put(place, (chunk + 16) ^ mangle);
                place = chunk + 16;
            }
            if place != first && layout.links_are_mangled {
                self.put(place, place >> 12);
            }
        }
    }

    /// What the cache says of how many blocks one of its lists holds.
    pub fn put_number(&mut self, layout: &Layout, list: usize, held: u64) {
        let number = if layout.cache.counts_down { 7 - held } else { held };
        let count_bytes = layout.cache.count_bytes;
        let place = 16 + list * count_bytes;
        self.heap[place..place + count_bytes].copy_from_slice(&number.to_le_bytes()[..count_bytes]);
    }

    /// An arena whose free chunks are all in the unsorted bin.
    pub fn put_state(&mut self, layout: &Layout, state: u64, next: u64, free: &[u64], system_bytes: u64) {
        for bin in 0..127 {
            let place = state + (layout.bins() + bin * 16) as u64;
            self.put(place, layout.bin_address(state, bin));
            self.put(place + 8, layout.bin_address(state, bin));
        }
        let head = layout.bin_address(state, 0);
        for (place, chunk) in free.iter().enumerate() {
            let before = if place == 0 { head } else { free[place - 1] };
            self.put(before + 16, *chunk);
            self.put(chunk + 24, before);
            self.put(chunk + 16, head);
            self.put(head + 24, *chunk);
        }
        self.put(state + layout.next() as u64, next);
        self.put(state + layout.next() as u64 + 16, 1);
        self.put(state + layout.next() as u64 + 24, system_bytes);
        self.put(state + layout.next() as u64 + 32, system_bytes);
    }

    /// Writes a word over one of the main arena's state, of its heap or of the head of the thread's.
    pub fn damage(&mut self, layout: &Layout, region: usize, place: usize, word: u64) {
        let (start, bytes) = match region {
            0 => (STATE, layout.state_bytes),
            1 => (HEAP, self.heap.len() as u64),
            _ => (THREAD_HEAP, layout.first_chunk() + 64),
        };
        self.put(start + (place % (bytes as usize / 8 - 1)) as u64 * 8, word);
    }

    pub fn areas(&self) -> Vec<Area> {
        let area = |start, bytes: &[u8], is_anonymous, is_break| Area {
            start,
            end: start + bytes.len() as u64,
            is_writable: true,
            is_anonymous,
            is_break,
        };
        vec![
            area(HEAP, &self.heap, true, true),
            area(THREAD_HEAP, &self.thread_heap, true, false),
            area(DATA, &self.data, false, false),
        ]
    }

    pub fn walk(&self, version: Option<(u32, u32)>) -> Outcome {
        let data = Data::read(self, (DATA, DATA + DATA_BYTES)).unwrap();
        choice::walk(self, &self.areas(), &data, version)
    }

    pub fn walked(&self, layout: &Layout) -> HeapWalk {
        match self.walk(Some((2, layout.since))) {
            Outcome::Walked(walk) => *walk,
            other => panic!("{other:?} of {layout:?}"),
        }
    }
}

pub const CHUNKS: &[(u64, Make)] = &[
    (64, Make::Used),
    (3 * 4096, Make::Free),
    (32, Make::Fast),
    (32, Make::Used),
    (32, Make::Cached),
    (32, Make::Cached),
    (2000, Make::Free),
    (4096, Make::Used),
    (32, Make::Fast),
];

pub fn chunks_of(layout: &Layout) -> Vec<(u64, Make)> {
    let exists = |(_, make): &&(u64, Make)| layout.fast_bins.is_some() || *make != Make::Fast;
    CHUNKS.iter().filter(exists).copied().collect()
}
