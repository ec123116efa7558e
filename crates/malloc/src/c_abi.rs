//! The C allocation functions, with the edges of POSIX, C23 and glibc's manual.

use crate::libc::{EINVAL, ENOMEM, set_errno};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use faultless_heap::global;
use faultless_heap::os;

/// What the functions do that have a second name, one of glibc's internal ones. A program may have a `realloc` of its own that calls
/// `__libc_realloc`: what stands behind both is called by a name that nobody can take.
mod own {
    use super::*;

    #[inline(always)]
    pub fn malloc(bytes: usize) -> *mut c_void {
        global::allocate_fine_or(bytes, malloc_slow, malloc_coarse)
    }

    #[inline(always)]
    pub unsafe fn free(block: *mut c_void) {
        // SAFETY: the caller's contract is the same.
        unsafe { global::free(block.cast()) }
    }

    #[inline(always)]
    pub fn calloc(count: usize, bytes: usize) -> *mut c_void {
        match count.checked_mul(bytes) {
            Some(bytes) => or_enomem(global::allocate_zeroed(bytes)),
            None => out_of_memory(),
        }
    }

    #[inline(always)]
    pub unsafe fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
        if block.is_null() {
            return malloc(bytes);
        }
        // SAFETY: the caller's contract is the same.
        unsafe {
            if bytes == 0 {
                global::free(block.cast());
                return null_mut();
            }
            or_enomem(global::resize(block.cast(), bytes, global::MIN_ALIGN))
        }
    }

    #[inline(always)]
    pub fn memalign(align: usize, bytes: usize) -> *mut c_void {
        match align.checked_next_power_of_two() {
            Some(align) => or_enomem(global::allocate_aligned(bytes, align)),
            None => {
                set_errno(EINVAL);
                null_mut()
            }
        }
    }

    #[inline(always)]
    pub unsafe fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
        if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
            return EINVAL;
        }
        let block = global::allocate_aligned(bytes, align);
        if block.is_null() {
            set_errno(ENOMEM);
            return ENOMEM;
        }
        // SAFETY: the caller says that `out` may be written.
        unsafe { *out = block.cast() };
        0
    }

    #[inline(always)]
    pub fn valloc(bytes: usize) -> *mut c_void {
        memalign(os::page_bytes(), bytes)
    }

    #[inline(always)]
    pub fn pvalloc(bytes: usize) -> *mut c_void {
        let page = os::page_bytes();
        match bytes.max(1).checked_next_multiple_of(page) {
            Some(bytes) => memalign(page, bytes),
            None => out_of_memory(),
        }
    }
}

#[inline(always)]
fn or_enomem(block: *mut u8) -> *mut c_void {
    if block.is_null() { out_of_memory() } else { block.cast() }
}

#[cold]
fn out_of_memory() -> *mut c_void {
    set_errno(ENOMEM);
    null_mut()
}

/// C `malloc`: `bytes` aligned to 16; null with `ENOMEM`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    own::malloc(bytes)
}

#[inline(never)]
fn malloc_coarse(bytes: usize) -> *mut c_void {
    global::allocate_coarse_or(bytes, malloc_slow)
}

#[cold]
#[inline(never)]
fn malloc_slow(bytes: usize) -> *mut c_void {
    or_enomem(global::allocate_slow(bytes))
}

/// C `free`; leaves `errno` alone.
///
/// # Safety
/// As in C: null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's contract is the same.
    unsafe { own::free(block) }
}

/// C `calloc`: zeroed; null with `ENOMEM`, also when the product overflows.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    own::calloc(count, bytes)
}

/// C `realloc`; `realloc(block, 0)` frees and returns null, as glibc's.
///
/// # Safety
/// As in C: null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's contract is the same.
    unsafe { own::realloc(block, bytes) }
}

/// POSIX 2024 `reallocarray`; `ENOMEM` when the product overflows. Leads to whoever has the name `realloc`, as glibc's.
///
/// # Safety
/// As [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's contract is the same.
        Some(bytes) => unsafe { realloc_by_name(block, bytes) },
        None => out_of_memory(),
    }
}

/// Jumps to whoever has a name. The compiler takes a call by it for one of ours.
macro_rules! by_name {
    ($($jump:ident($($arg:ident: $kind:ty),*) -> $result:ty = $name:ident;)*) => {$(
        #[unsafe(naked)]
        unsafe extern "C" fn $jump($($arg: $kind),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!("jmp {name}", name = sym $name);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!("b {name}", name = sym $name);
        }
    )*};
}

#[cfg(all(feature = "operators", target_arch = "x86_64"))]
pub(crate) use by_name;

by_name! {
    realloc_by_name(block: *mut c_void, bytes: usize) -> *mut c_void = realloc;
    free_by_name(block: *mut c_void) -> () = free;
}

/// C23 `aligned_alloc`; `EINVAL` for an alignment that is no power of two, as glibc since 2.38.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(EINVAL);
        return null_mut();
    }
    or_enomem(global::allocate_aligned(bytes, align))
}

/// `memalign`; an alignment that is no power of two is rounded up to one, as in glibc.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    own::memalign(align, bytes)
}

/// POSIX `posix_memalign`: returns 0, `EINVAL` or `ENOMEM`; on failure `out` is untouched. Without memory `errno` says so, too, as in
/// glibc: programs print that.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { own::posix_memalign(out, align, bytes) }
}

/// `valloc`: aligned to a page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    own::valloc(bytes)
}

/// `pvalloc`: whole pages, aligned to a page.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    own::pvalloc(bytes)
}

/// Bytes that may be used in a live block; 0 for null.
///
/// # Safety
/// Null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() { 0 } else { global::usable_bytes(block.cast()) }
}

/// C23 `free_sized`; a size that the block cannot have ends the process. Leads to whoever has the name `free`, as glibc's.
///
/// # Safety
/// As in C: null or a live block allocated with `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, bytes: usize) {
    global::check_sized_free(block.cast(), bytes);
    // SAFETY: the caller's contract is the same.
    unsafe { free_by_name(block) }
}

/// C23 `free_aligned_sized`; as [`free_sized`].
///
/// # Safety
/// As in C: null or a live block allocated with `align` and `bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _align: usize, bytes: usize) {
    // SAFETY: the caller's contract is the same.
    unsafe { free_sized(block, bytes) }
}

/// The old name of `free` in SunOS and early glibc.
///
/// # Safety
/// As [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's contract is the same.
    unsafe { free(block) }
}

/// Names by which some programs call glibc's functions directly; a block of theirs would meet our `free`. None leads to a public name.
macro_rules! libc_names {
    ($($(#[$safety:meta])* $name:ident($($arg:ident: $kind:ty),*) -> $result:ty = $target:path;)*) => {$(
        /// glibc's internal name.
        ///
        /// # Safety
        /// As the public function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
            // SAFETY: the caller's contract is the same.
            #[allow(unused_unsafe)]
            unsafe { $target($($arg),*) }
        }
    )*};
}

libc_names! {
    __libc_malloc(bytes: usize) -> *mut c_void = own::malloc;
    __libc_calloc(count: usize, bytes: usize) -> *mut c_void = own::calloc;
    __libc_realloc(block: *mut c_void, bytes: usize) -> *mut c_void = own::realloc;
    __libc_free(block: *mut c_void) -> () = own::free;
    __libc_cfree(block: *mut c_void) -> () = own::free;
    __libc_memalign(align: usize, bytes: usize) -> *mut c_void = own::memalign;
    __libc_valloc(bytes: usize) -> *mut c_void = own::valloc;
    __libc_pvalloc(bytes: usize) -> *mut c_void = own::pvalloc;
    __posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int = own::posix_memalign;
}
