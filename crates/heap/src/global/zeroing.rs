//! Blocks that read as zero.

use super::{HEAP, allocate, attached, purger, take_cached};
use crate::large::NewBlock;
use crate::os;
use crate::size_class;

/// Bytes from which on a block that held something is cleared for `calloc` by giving its pages back: such a block may be used
/// sparsely. Clearing a page costs a quarter of what faulting it in again does, so shorter blocks are cleared, and those of a
/// size of which most was seen written.
const PURGED_TO_CLEAR: usize = 4 << 20;

/// Bytes from which on a small block has pages of its own, and one that was never used need not be cleared.
pub(super) const UNUSED_FROM: usize = 8192;

/// Allocates a small block of [`UNUSED_FROM`] bytes or more that reads as zero.
#[inline(never)]
pub(super) fn small_zeroed(bytes: usize) -> *mut u8 {
    let Some(class) = size_class::coarse_class_of(bytes) else { return allocate(bytes) };
    let block = match take_cached(class) {
        0 => HEAP.new_small(attached(), class.class(), true),
        address => NewBlock { address, zero: false },
    };
    purger::call();
    if block.zero {
        bring_in(bytes, block.address);
    } else if block.address != 0 {
        // SAFETY: a new block of at least `bytes`.
        unsafe { (block.address as *mut u8).write_bytes(0, bytes) };
    }
    block.address as *mut u8
}

/// Clears a new large block of `bytes`.
#[inline(never)]
pub(super) fn zeroed(bytes: usize, block: NewBlock) -> *mut u8 {
    if block.zero {
        bring_in(bytes, block.address);
    } else if block.address != 0 {
        let first_page = block.address & !(os::page_bytes() - 1);
        let may_purge = !HEAP.large.are_written(bytes);
        // SAFETY: a new block of at least `bytes`; the pages around it are its own.
        unsafe { clear(first_page, block.address as *mut u8, bytes, may_purge) };
        HEAP.large.note_cleared(&HEAP.spans, block.address, bytes);
    }
    block.address as *mut u8
}

/// Brings in the pages of a new block that has none, if its thread uses such blocks as a whole. With one thread a page that is read first
/// costs little more, and blocks that get huge pages are looked at when they are freed.
fn bring_in(bytes: usize, address: usize) {
    if bytes >= os::HUGE_PAGE_BYTES || os::is_single_threaded() {
        return;
    }
    let page = os::page_bytes();
    // Those that it shares with others may be there.
    let own = ((address + bytes) & !(page - 1)).saturating_sub(address.next_multiple_of(page));
    if own > 0 && attached().is_some_and(|cache| cache.first_use.given(own)) {
        for offset in (0..bytes).step_by(page) {
            // SAFETY: in a new block of so many bytes, which holds zeros.
            unsafe { (address as *mut u8).add(offset).write_volatile(0) };
        }
    }
}

/// Clears what a block has from `start` on, `bytes` to its end.
///
/// # Safety
/// The bytes are the caller's to write.
pub unsafe fn clear_tail(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's bytes; behind the last of so many there is nothing in its page.
    unsafe { clear((start as usize).next_multiple_of(os::page_bytes()), start, bytes, true) };
}

/// Clears the last `bytes` of a block. Where they are many their pages go back to the kernel if they may, those from `first_page` on.
///
/// # Safety
/// The bytes are the caller's to write, and the pages its own.
unsafe fn clear(first_page: usize, start: *mut u8, bytes: usize, may_purge: bool) {
    let end = (start as usize + bytes).next_multiple_of(os::page_bytes());
    // SAFETY: as the caller says; many bytes reach beyond the page in which they begin.
    unsafe {
        let is_purged =
            may_purge && bytes >= PURGED_TO_CLEAR && HEAP.spans.purge(first_page, end - first_page);
        start.write_bytes(0, if is_purged { first_page.saturating_sub(start as usize) } else { bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_instead_of_being_cleared_is_counted() {
        let (page, bytes) = (os::page_bytes(), PURGED_TO_CLEAR);
        let start = os::map_records(bytes).unwrap() as *mut u8;
        let purged = || HEAP.spans.counts().purges.bytes;
        let before = purged();
        // SAFETY: the test's own pages.
        unsafe {
            start.add(page).write(1);
            clear_tail(start, bytes);
            assert_eq!(start.add(page).read(), 0);
        }
        assert!(purged() >= before + bytes as u64);
    }
}
