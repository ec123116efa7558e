//! A stack of magazines in transit.

use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::page_map::PageMap;

/// Magazines, linked through their first blocks.
pub struct Stack {
    /// The magazine on top, packed: so a stack and its lock take 24 bytes, and what each process writes of the heap two pages.
    top: usize,
    /// How many.
    pub magazines: u32,
    /// The fewest there were since the purger looked.
    pub least: u32,
}

impl Stack {
    /// No magazine.
    pub const fn new() -> Self {
        Self { top: 0, magazines: 0, least: 0 }
    }

    /// Puts a magazine on top.
    pub fn push(&mut self, magazine: Magazine) {
        // SAFETY: the magazine's blocks are the caller's and become the stack's.
        unsafe { magazine::set_link(magazine.head, self.top) };
        self.top = magazine.pack();
        self.magazines += 1;
    }

    /// Takes the top one.
    pub fn pop(&mut self, map: &PageMap, class: usize) -> Option<Magazine> {
        let magazine = Magazine::unpack(self.top);
        if magazine.is_empty() {
            return None;
        }
        let Some(below) = below(magazine, map, class) else {
            misuse(Misuse::CorruptedFreeList, magazine.head);
        };
        self.top = below.pack();
        self.magazines -= 1;
        self.least = self.least.min(self.magazines);
        Some(magazine)
    }

    /// Blocks in all of them.
    pub fn blocks(&self, map: &PageMap) -> usize {
        let (mut magazine, mut blocks) = (Magazine::unpack(self.top), 0);
        for _ in 0..self.magazines {
            blocks += magazine.count as usize;
            if map.class_of_block(magazine.head) == 0 {
                break;
            }
            // SAFETY: an aligned address in a slab.
            magazine = Magazine::unpack(unsafe { magazine::link(magazine.head) });
        }
        blocks
    }
}

/// The magazine under one that a stack owns; `None` where its link, which a freed block holds, leads to no block of the class.
fn below(magazine: Magazine, map: &PageMap, class: usize) -> Option<Magazine> {
    // SAFETY: the first block of a magazine, which the caller owns.
    let below = Magazine::unpack(unsafe { magazine::link(magazine.head) });
    (below.is_empty() || map.class_of_block(below.head) == class).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::Heap;
    use crate::size_class;

    #[test]
    fn a_link_that_leads_to_no_block_of_the_class_is_none() {
        let (heap, class) = (Heap::boxed(), size_class::class_of(64).unwrap());
        let map = &heap.spans.map;
        let [top, under] = [0; 2].map(|_| heap.central.fetch(&heap.spans, 0, class, 1).unwrap());
        for (head, is_one) in
            [(under.head, true), (under.head + 8, false), (under.head + 1, false), (16, false)]
        {
            let linked = Magazine { head, count: 1 };
            // SAFETY: the test's own block.
            unsafe { magazine::set_link(top.head, linked.pack()) };
            assert_eq!(below(top, map, class), is_one.then_some(linked), "{:#x}", head);
        }
        // SAFETY: as above.
        unsafe { magazine::set_link(top.head, under.pack()) };
        assert_eq!(below(top, map, class + 1), None);
    }
}
