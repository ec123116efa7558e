//! Whether a thread uses all of what `calloc` gives it of memory without pages.
//!
//! Who reads a page first and writes it then has it brought in twice: as the page of zeros that all share, and as one of its own. The
//! second time the kernel interrupts every CPU that runs a thread of the process, which takes longer than all the rest (25 us on a
//! virtual machine of two CPUs). Where the thread's last such block had its pages by the time that the thread came to a slow path
//! again, others are brought in at once, by a write: [`REACH`] times as many pages. Then one is watched again. Where it had not, the next
//! are left as they are and watched ever less often, as the kernel is asked twice about each that is: 0.4 us.

use crate::large::MISSING_PART;
use crate::os;
use crate::page_map::{Hint32, Hint64};

/// A block that was used speaks for so many times its pages.
const REACH: u32 = 16;
/// One that was not, as those before it, speaks for so many at most: where a thread goes on to others, these fault twice until then.
const UNUSED_REACH: u32 = 4;

/// What is known. Synchronization: written by the cache's thread.
pub struct FirstUse {
    /// Pages of the block that is watched, 0 for none.
    pages: Hint32,
    /// So many pages are treated alike before a block is watched again.
    ahead: Hint32,
    /// Whether these are brought in: 0. Else how many times its pages the next block that is not used speaks for.
    unused: Hint32,
    /// Page faults of the thread when it got the block.
    faults: Hint64,
}

impl FirstUse {
    /// Nothing known; all bytes are zero.
    pub const fn new() -> Self {
        Self { pages: Hint32::new(0), ahead: Hint32::new(0), unused: Hint32::new(0), faults: Hint64::new(0) }
    }

    /// The thread gets a block of memory without pages, of so many bytes. Whether they are to be brought in for it.
    pub fn given(&self, bytes: usize) -> bool {
        let pages = (bytes / os::page_bytes()) as u32;
        if let Some(ahead) = self.ahead.get().checked_sub(pages) {
            self.ahead.set(ahead);
            return self.unused.get() == 0;
        }
        self.pages.set(pages);
        self.faults.set(os::thread_faults());
        false
    }

    /// Another thread has the cache from now on.
    pub fn forget(&self) {
        self.pages.set(0);
        self.ahead.set(0);
        self.unused.set(0);
    }

    /// The thread comes to a slow path.
    #[inline]
    pub fn look(&self) {
        if self.pages.get() > 0 {
            self.look_at_block();
        }
    }

    #[cold]
    fn look_at_block(&self) {
        let pages = self.pages.get();
        let faults = os::thread_faults().saturating_sub(self.faults.get());
        self.pages.set(0);
        let is_used = faults >= u64::from(pages - pages / MISSING_PART as u32);
        let unused = self.unused.get();
        self.ahead.set(pages * if is_used { REACH } else { unused });
        self.unused.set(if is_used { 0 } else { (2 * unused).clamp(1, UNUSED_REACH) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 68 blocks of 32 pages are brought in for a thread that writes so many pages of each.
    fn brought_in(written: usize) -> usize {
        let (first_use, page, pages) = (FirstUse::new(), os::page_bytes(), 32);
        let mut blocks = 0;
        for _ in 0..68 {
            first_use.look();
            let is_brought_in = first_use.given(pages * page);
            blocks += usize::from(is_brought_in);
            let block = os::map_records(pages * page).unwrap() as *mut u8;
            if !is_brought_in {
                // SAFETY: fresh memory of so many pages.
                (0..written).for_each(|at| unsafe { block.add(at * page).write_volatile(1) });
            }
        }
        blocks
    }

    #[test]
    fn a_block_speaks_for_sixteen_times_its_pages() {
        let first_use = FirstUse::new();
        first_use.ahead.set(REACH * 10);
        let page = os::page_bytes();
        assert!(!first_use.given(161 * page), "more than all of them");
        first_use.pages.set(0);
        assert!(first_use.given(100 * page) && first_use.given(60 * page) && !first_use.given(page));
    }

    #[test]
    fn blocks_are_brought_in_while_all_of_one_is_used_at_once() {
        assert_eq!(brought_in(32), 64, "one in 17 is watched");
        assert_eq!(brought_in(1), 0);
    }

    #[test]
    fn blocks_that_are_not_used_are_watched_ever_less_often_and_the_first_that_is_speaks_again() {
        let (first_use, page) = (FirstUse::new(), os::page_bytes());
        let mut watched = Vec::new();
        for block in 0..100 {
            first_use.look();
            assert!(!first_use.given(8 * page));
            if first_use.pages.get() > 0 {
                watched.push(block);
            }
        }
        assert_eq!(watched[..8], [0, 1, 3, 6, 11, 16, 21, 26]);
        first_use.ahead.set(0);
        first_use.given(page);
        // SAFETY: a fresh page.
        unsafe { (os::map_records(page).unwrap() as *mut u8).write_volatile(1) };
        first_use.look();
        assert!(first_use.given(16 * page));
        assert!(!first_use.given(page), "watched again");
    }

    #[test]
    fn what_a_thread_did_says_nothing_of_the_next_that_has_its_cache() {
        for has_purger in [false, true] {
            let heap = crate::heap::Heap::boxed();
            heap.spans.set_purger(has_purger);
            let cache = heap.caches.acquire().unwrap();
            cache.first_use.ahead.set(REACH);
            heap.caches.release(cache, heap.home());
            let next = heap.caches.acquire().unwrap();
            assert!(core::ptr::eq(cache, next) && !next.first_use.given(os::page_bytes()), "{has_purger}");
        }
    }
}
