//! Whose heap an address lies in: blocks in threads' caches may be millions, and heaps thousands.

use super::walk::Heap;

/// The heaps of all arenas, by address.
pub struct Owners {
    /// First address, end, and place of the arena.
    heaps: Vec<(u64, u64, usize)>,
}

impl Owners {
    /// Of these heaps of one arena after the other.
    pub fn new<'heaps>(arenas: impl IntoIterator<Item = &'heaps Vec<Heap>>) -> Self {
        let mut heaps = Vec::new();
        for (place, of_arena) in arenas.into_iter().enumerate() {
            heaps.extend(of_arena.iter().map(|heap| (heap.start, heap.start + heap.bytes, place)));
        }
        heaps.sort_unstable();
        Self { heaps }
    }

    /// The place of the arena that has this address in one of its heaps.
    pub fn of(&self, address: u64) -> Option<usize> {
        let behind = self.heaps.partition_point(|(start, ..)| *start <= address);
        let (_, end, place) = self.heaps[..behind].last()?;
        (address < *end).then_some(*place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_of_the_arena_whose_heap_it_lies_in() {
        let heap = |start| Heap { start, bytes: 0x100, accessible_bytes: 0x100, reserved_bytes: 0x1000 };
        let owners = Owners::new(&[vec![heap(0x9000)], vec![heap(0x3000), heap(0x1000)], vec![]]);
        let found = [0xfff, 0x1000, 0x10ff, 0x1100, 0x30ff, 0x9080, 0x9100].map(|address| owners.of(address));
        assert_eq!(found, [None, Some(1), Some(1), None, Some(1), Some(0), None]);
    }
}
