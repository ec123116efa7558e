//! Large blocks that read as zero.

use super::{HEAP, attached};
use crate::large::LargeBlock;
use crate::os;

/// Bytes from which on a block that held something is cleared for `calloc` by giving its pages back: such a block may be used
/// sparsely. Clearing a page costs a quarter of what faulting it in again does, so shorter blocks are cleared, and those of a size that
/// was seen filled.
const PURGED_TO_CLEAR: usize = 4 << 20;

/// Clears a new large block of `bytes`.
#[inline(never)]
pub(super) fn zeroed(bytes: usize, block: LargeBlock) -> *mut u8 {
    if block.zero {
        bring_in(bytes, block.address);
    } else if block.address != 0 {
        let first_page = block.address & !(os::page_bytes() - 1);
        let may_purge = !HEAP.large.are_filled(bytes);
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
    if attached().is_some_and(|cache| cache.first_use.given(bytes)) {
        for offset in (0..bytes).step_by(os::page_bytes()) {
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
            may_purge && bytes >= PURGED_TO_CLEAR && HEAP.spans.map.purge(first_page, end - first_page);
        start.write_bytes(0, if is_purged { first_page.saturating_sub(start as usize) } else { bytes });
    }
}
