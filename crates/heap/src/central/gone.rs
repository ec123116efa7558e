//! Free pages that were purged from a class's slabs because the heap grew by other classes, and which classes want theirs again.
//!
//! A program may leave a size behind whose slabs a few blocks keep alive: a queue whose items grow, a list from which every second item
//! goes. The pages between those blocks had better serve the next size. But a program may return to the first size again and again, and
//! fault the pages in each time. So a class that wanted half of its pages again is left alone: once, then three times, seven, and so on.
//!
//! SYNCHRONIZATION: hints; a thread whose note was overwritten by another's notes again.

use crate::page_map::{Hint8, Hint32};
use crate::size_class::CLASSES;

/// How many times in a row a class is left alone, at most.
const PATIENCE_MOST: u8 = 63;
/// Fewer pages are no evidence: those that a slab has not used yet while it is being filled go, too.
const LEAST_PAGES: u32 = 64;

/// What is known of the classes.
pub struct Gone {
    classes: [ClassGone; CLASSES],
}

struct ClassGone {
    /// Pages that went last time.
    pages: Hint32,
    /// Pages wanted since then, in its slabs and for new ones.
    wanted: Hint32,
    /// How many times it is left alone if it wants them again, and how many of those remain.
    patience: Hint8,
    left: Hint8,
}

impl Gone {
    /// Nothing went.
    pub const fn new() -> Self {
        Self {
            classes: [const {
                ClassGone {
                    pages: Hint32::new(0),
                    wanted: Hint32::new(0),
                    patience: Hint8::new(0),
                    left: Hint8::new(0),
                }
            }; CLASSES],
        }
    }

    /// Pages went from slabs of a class.
    pub fn note(&self, class: usize, pages: u32) {
        let known = &self.classes[class];
        known.pages.set(known.pages.get().saturating_add(pages));
    }

    /// A class takes pages that went, or a new slab of so many pages.
    pub fn note_wanted(&self, class: usize, pages: u32) {
        let wanted = &self.classes[class].wanted;
        wanted.set(wanted.get().saturating_add(pages));
    }

    /// Bits of the classes whose pages may go this time.
    pub fn next(&self) -> u64 {
        (1..CLASSES).filter(|&class| self.classes[class].is_next()).fold(0, |bits, class| bits | 1 << class)
    }
}

impl ClassGone {
    fn is_next(&self) -> bool {
        let (pages, wanted) = (self.pages.get(), self.wanted.get());
        if pages >= LEAST_PAGES {
            let (before, came_back) = (self.patience.get(), wanted >= pages.div_ceil(2));
            let patience = if came_back { (2 * before + 1).min(PATIENCE_MOST) } else { before / 2 };
            self.patience.set(patience);
            self.left.set(patience);
        }
        self.pages.set(0);
        self.wanted.set(0);
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }
}

const _: () = assert!(CLASSES <= u64::BITS as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_wants_its_pages_again_is_left_alone_for_longer_each_time() {
        let (gone, class) = (Gone::new(), 7);
        let is_next = || gone.next() >> class & 1 == 1;
        for left_alone in [0, 1, 3, 7, 15, 31, 63, 63] {
            assert_eq!((0..).take_while(|_| !is_next()).count(), left_alone);
            gone.note(class, 100);
            gone.note_wanted(class, 50);
        }
        assert_eq!((0..).take_while(|_| !is_next()).count(), 63);
        gone.note(class, 100);
        gone.note_wanted(class, 49);
        assert_eq!((0..).take_while(|_| !is_next()).count(), 31, "less than half");
        assert_eq!(gone.next() | 1 << class, (1 << CLASSES) - 2, "others are as they were");
    }
}
