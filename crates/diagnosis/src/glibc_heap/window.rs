//! Sequential reading of words: a block at a time, so that a walk costs few reads.

use super::Memory;

/// Bytes read at once: few where the walk jumps, since large chunks are skipped by their heads, and more while it goes on without.
const LEAST_BLOCK_BYTES: u64 = 16 * 1024;
const MOST_BLOCK_BYTES: u64 = 256 * 1024;

/// A block of memory that moves along with the walk.
pub struct Window<'memory> {
    memory: &'memory dyn Memory,
    start: u64,
    bytes: Vec<u8>,
    /// How much the next block has, if it begins where this one ends.
    next_bytes: u64,
    /// What may be read lies below.
    limit: u64,
}

impl<'memory> Window<'memory> {
    /// Reads up to `limit`, an address at the end of a page.
    pub fn new(memory: &'memory dyn Memory, limit: u64) -> Self {
        Self { memory, start: 0, bytes: Vec::new(), next_bytes: LEAST_BLOCK_BYTES, limit }
    }

    /// The words at `address` and behind it.
    pub fn words<const N: usize>(&mut self, address: u64) -> Option<[u64; N]> {
        let bytes = self.slice(address, N * 8)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(words)
    }

    /// `length` bytes from `address` on.
    pub fn slice(&mut self, address: u64, length: usize) -> Option<&[u8]> {
        let end = address.checked_add(length as u64)?;
        if address < self.start || end > self.start + self.bytes.len() as u64 {
            self.move_to(address, end)?;
        }
        let offset = usize::try_from(address - self.start).ok()?;
        self.bytes.get(offset..offset + length)
    }

    /// Begins at the page of `address`.
    fn move_to(&mut self, address: u64, end: u64) -> Option<()> {
        if end > self.limit
            || end - address > LEAST_BLOCK_BYTES - super::PAGE_BYTES
            || self.memory.is_overdue()
        {
            return None;
        }
        let start = address & !(super::PAGE_BYTES - 1);
        let known_end = self.start + self.bytes.len() as u64;
        let goes_on = (self.start..=known_end).contains(&start);
        let block_bytes = if goes_on { self.next_bytes } else { LEAST_BLOCK_BYTES };
        self.next_bytes = (2 * block_bytes).min(MOST_BLOCK_BYTES);
        let length = (self.limit - start).min(block_bytes);
        self.bytes.resize(usize::try_from(length).ok()?, 0);
        self.start = start;
        if !self.memory.read_sparse(start, &mut self.bytes) {
            // Some of it may be out of reach; what is asked for decides.
            let needed =
                usize::try_from(end.next_multiple_of(super::PAGE_BYTES).min(self.limit) - start).ok()?;
            self.bytes.truncate(needed);
            if !self.memory.read_sparse(start, &mut self.bytes) {
                self.bytes.clear();
                return None;
            }
        }
        Some(())
    }
}
