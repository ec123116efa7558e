//! Magazines: lists of free blocks of one class, linked through the blocks, that change hands as a whole.

use core::sync::atomic::{AtomicUsize, Ordering};

/// What the first words of a free block hold while it is in a magazine.
#[repr(C)]
pub struct Block {
    /// Address of the next block of the magazine, 0 at its end.
    pub next: usize,
    /// On a magazine's first block while `central` holds it: the next magazine, and this one's count.
    pub link: usize,
}

/// Addresses fit 48 bits on the supported machines; the count is kept above them.
const COUNT_SHIFT: u32 = 48;
const ADDRESS_MASK: usize = (1 << COUNT_SHIFT) - 1;

/// A list of `count` free blocks. Who makes one owns them, and who is given one owns them from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Magazine {
    /// Address of the first block, 0 when empty.
    pub head: usize,
    /// Blocks in the list.
    pub count: u32,
}

impl Magazine {
    /// No block.
    pub const EMPTY: Self = Self { head: 0, count: 0 };

    /// Head and count in one word.
    pub fn pack(self) -> usize {
        self.head | (self.count as usize) << COUNT_SHIFT
    }

    /// The magazine that [`Magazine::pack`] gave.
    pub fn unpack(word: usize) -> Self {
        Self { head: word & ADDRESS_MASK, count: (word >> COUNT_SHIFT) as u32 }
    }

    /// The first `keep` blocks, and the rest.
    ///
    /// # Safety
    /// The caller owns the list.
    pub unsafe fn split(self, keep: u32) -> (Self, Self) {
        if self.count <= keep {
            return (self, Self::EMPTY);
        }
        if keep == 0 {
            return (Self::EMPTY, self);
        }
        let mut last = self.head;
        for _ in 1..keep {
            // SAFETY: a block of the caller's list, which is longer.
            last = unsafe { next(last) };
        }
        // SAFETY: as above.
        let rest = unsafe { next(last) };
        // SAFETY: as above.
        unsafe { set_next(last, 0) };
        (Self { head: self.head, count: keep }, Self { head: rest, count: self.count - keep })
    }

    /// Whether there is no block.
    pub fn is_empty(self) -> bool {
        self.head == 0
    }
}

/// The next block after `block` in its magazine, or 0.
///
/// # Safety
/// `block` lies in committed slab memory. What is read is only trusted as far as the caller checks it.
#[inline(always)]
pub unsafe fn next(block: usize) -> usize {
    // SAFETY: committed memory of at least 16 bytes, aligned to 16.
    // ORDERING: Relaxed. A revoker walks a list that its owner may go on with, and believes what it read only if the owner did not.
    unsafe { AtomicUsize::from_ptr(&raw mut (*(block as *mut Block)).next).load(Ordering::Relaxed) }
}

/// Brings the start of a block, or 0, near the processor: its link is read when it is handed out, and blocks lie in no order.
#[inline(always)]
pub fn fetch_ahead(block: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, without effect for an address that is none.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(block as *const i8);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) block, options(nostack, preserves_flags, readonly));
    }
}

/// As [`fetch_ahead`], of a block that is to be written.
#[inline(always)]
pub fn fetch_to_write(block: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, without effect for an address that is none.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) block, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) block, options(nostack, preserves_flags, readonly));
    }
}

/// Links `block` before `next`.
///
/// # Safety
/// The caller owns the free block `block`.
#[inline(always)]
pub unsafe fn set_next(block: usize, next: usize) {
    // SAFETY: the caller owns the block, which has at least 16 bytes and is aligned to 16.
    // ORDERING: Relaxed, as in `next`.
    unsafe { AtomicUsize::from_ptr(&raw mut (*(block as *mut Block)).next).store(next, Ordering::Relaxed) };
}

/// The stack link of a magazine's first block.
///
/// # Safety
/// As [`next`].
pub unsafe fn link(block: usize) -> usize {
    // SAFETY: as in `next`.
    unsafe { (&raw const (*(block as *const Block)).link).read_volatile() }
}

/// Sets the stack link of a magazine's first block.
///
/// # Safety
/// As [`set_next`].
pub unsafe fn set_link(block: usize, link: usize) {
    // SAFETY: as in `set_next`.
    unsafe { (&raw mut (*(block as *mut Block)).link).write_volatile(link) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_head_and_count() {
        let magazine = Magazine { head: 0x7fff_ffff_fff0, count: 64 };
        assert_eq!(Magazine::unpack(magazine.pack()), magazine);
        assert!(Magazine::unpack(0).is_empty());
    }
}
