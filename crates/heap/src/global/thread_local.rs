//! The thread's pointer to its cache, and a count: 16 bytes of initial-exec thread-local storage.
//!
//! `std::thread_local!` would call `__tls_get_addr` in a shared library (3.5 ns an access). The variable starts as a pointer
//! to a gated cache, so the fast path needs no check for null.
//!
//! Its name is made of the mangled one of [`GATED`]: `libfaultless.a` and a Rust library with an allocator of its own may be in one
//! program, and other names are the same in both.

use crate::thread_cache::ThreadCache;
use core::arch::{asm, global_asm};

/// What every thread starts with, and no thread's own. Threads only ever change the `room` of its bins, all of them at once: whatever it
/// says, `head` is a gate and never changes.
static GATED: ThreadCache = ThreadCache::gated(0);

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .tdata,\"awT\",@progbits",
    ".p2align 3",
    ".globl {gated}.of_thread",
    ".hidden {gated}.of_thread",
    ".type {gated}.of_thread,@object",
    ".size {gated}.of_thread,16",
    "{gated}.of_thread:",
    ".quad {gated}",
    ".quad 0",
    ".popsection",
    gated = sym GATED,
);

// Tested by emulation only (`cargo xtask aarch64`).
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .tdata,\"awT\",%progbits",
    ".p2align 3",
    ".globl {gated}.of_thread",
    ".hidden {gated}.of_thread",
    ".type {gated}.of_thread,%object",
    ".size {gated}.of_thread,16",
    "{gated}.of_thread:",
    ".quad {gated}",
    ".quad 0",
    ".popsection",
    gated = sym GATED,
);

/// This thread's cache, or one that is gated.
#[inline(always)]
pub fn cache() -> &'static ThreadCache {
    let cache: *const ThreadCache;
    // SAFETY: reads the variable above; it always points to a cache, and caches live as long as the process.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {0}, qword ptr [rip + {gated}.of_thread@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) cache, gated = sym GATED, options(pure, readonly, nostack, preserves_flags)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {1}, :gottprel:{gated}.of_thread",
            "ldr {1}, [{1}, :gottprel_lo12:{gated}.of_thread]",
            "mrs {0}, tpidr_el0",
            "ldr {0}, [{0}, {1}]",
            out(reg) cache, out(reg) _, gated = sym GATED, options(pure, readonly, nostack, preserves_flags)
        );
        &*cache
    }
}

/// What is so many bytes behind the beginning of this thread's cache, or of one that is gated: its address and the sum are one
/// instruction, which [`cache`] and an addition are not.
#[inline(always)]
pub fn in_cache(bytes: usize) -> *const u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `cache`.
    unsafe {
        let mut place = bytes as *const u8;
        asm!(
            "mov {1}, qword ptr [rip + {gated}.of_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[{1}]",
            inout(reg) place, out(reg) _, gated = sym GATED, options(pure, readonly, nostack)
        );
        place
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        (&raw const *cache()).cast::<u8>().wrapping_add(bytes)
    }
}

/// Makes `cache` this thread's.
pub fn set_cache(cache: &'static ThreadCache) {
    let cache: *const ThreadCache = cache;
    // SAFETY: writes the variable above, which only this thread reads.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {0}, qword ptr [rip + {gated}.of_thread@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _, in(reg) cache, gated = sym GATED, options(nostack, preserves_flags)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {0}, :gottprel:{gated}.of_thread",
            "ldr {0}, [{0}, :gottprel_lo12:{gated}.of_thread]",
            "mrs {1}, tpidr_el0",
            "str {2}, [{1}, {0}]",
            out(reg) _, out(reg) _, in(reg) cache, gated = sym GATED, options(nostack, preserves_flags)
        );
    }
}

/// What tells this thread from all others that live: where the variable above lies. A later thread on the same stack has the same.
pub fn identity() -> usize {
    let place: usize;
    // SAFETY: computes the address of the variable above; at the thread pointer lies its own value.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {0}, qword ptr [rip + {gated}.of_thread@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) place, gated = sym GATED, options(pure, readonly, nostack)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {0}, :gottprel:{gated}.of_thread",
            "ldr {0}, [{0}, :gottprel_lo12:{gated}.of_thread]",
            "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}",
            out(reg) place, out(reg) _, gated = sym GATED, options(pure, readonly, nostack, preserves_flags)
        );
    }
    place
}

/// Counts a free of this thread; how many there were before.
pub fn count_free() -> u64 {
    let counted: u64;
    // SAFETY: changes the second word of the variable above, which only this thread uses.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!(
            "mov {0}, qword ptr [rip + {gated}.of_thread@GOTTPOFF]",
            "mov {1}, qword ptr fs:[{0} + 8]",
            "inc qword ptr fs:[{0} + 8]",
            out(reg) _, out(reg) counted, gated = sym GATED, options(nostack)
        );
        #[cfg(target_arch = "aarch64")]
        asm!(
            "adrp {0}, :gottprel:{gated}.of_thread",
            "ldr {0}, [{0}, :gottprel_lo12:{gated}.of_thread]",
            "mrs {2}, tpidr_el0",
            "add {0}, {0}, {2}",
            "ldr {1}, [{0}, #8]",
            "add {2}, {1}, #1",
            "str {2}, [{0}, #8]",
            out(reg) _, out(reg) counted, out(reg) _, gated = sym GATED, options(nostack, preserves_flags)
        );
    }
    counted
}

/// Whether a cache is the one that threads start with.
pub fn is_gated(cache: &ThreadCache) -> bool {
    core::ptr::eq(cache, &GATED)
}
