//! A stack of magazines in transit.

use crate::magazine::{self, Magazine};
use crate::message::{Misuse, misuse};
use crate::page_map::PageMap;

/// Magazines, linked through their first blocks.
pub struct Stack {
    top: Magazine,
    /// How many.
    pub magazines: u32,
    /// The fewest there were since the purger looked.
    pub least: u32,
}

impl Stack {
    /// No magazine.
    pub const fn new() -> Self {
        Self { top: Magazine::EMPTY, magazines: 0, least: 0 }
    }

    /// Puts a magazine on top.
    pub fn push(&mut self, magazine: Magazine) {
        // SAFETY: the magazine's blocks are the caller's and become the stack's.
        unsafe { magazine::set_link(magazine.head, self.top.pack()) };
        self.top = magazine;
        self.magazines += 1;
    }

    /// Takes the top one.
    pub fn pop(&mut self, map: &PageMap, class: usize) -> Option<Magazine> {
        let magazine = self.top;
        if magazine.is_empty() {
            return None;
        }
        // SAFETY: the first block of a magazine that this stack owns.
        let below = Magazine::unpack(unsafe { magazine::link(magazine.head) });
        if !below.is_empty() && map.granule_of(below.head).map(|granule| map.class_of(granule)) != Some(class)
        {
            misuse(Misuse::CorruptedFreeList, magazine.head);
        }
        self.top = below;
        self.magazines -= 1;
        self.least = self.least.min(self.magazines);
        Some(magazine)
    }

    /// Blocks in all of them.
    pub fn blocks(&self, map: &PageMap) -> usize {
        let (mut magazine, mut blocks) = (self.top, 0);
        for _ in 0..self.magazines {
            blocks += magazine.count as usize;
            if map.granule_of(magazine.head).is_none() {
                break;
            }
            // SAFETY: a magazine of this stack, in committed memory.
            magazine = Magazine::unpack(unsafe { magazine::link(magazine.head) });
        }
        blocks
    }
}
