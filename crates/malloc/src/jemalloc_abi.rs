//! jemalloc's own functions, `mallocx` and its family. A program that is linked with `libjemalloc.so` and calls them, as Redis 8 and BIND
//! do, would have jemalloc's blocks beside ours, and hand the one to the other's functions: `malloc_usable_size` of a block of `mallocx`.
//! Preloaded before it these make all blocks ours. Arenas and thread caches are accepted and not needed.
//!
//! Source: jemalloc(3) of 5.3.

use crate::mallctl;
use crate::statistics;
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::ptr::null_mut;
use faultless_heap::Faultless;
use faultless_heap::global::{self, HEAP, MIN_ALIGN};
use faultless_heap::stats::Snapshot;

/// The alignment's power of two, in a call's flags.
const LG_ALIGN: c_int = 0x3f;
/// `MALLOCX_ZERO`.
const ZERO: c_int = 0x40;

/// The block that a call gets, with all its usable bytes: programs may use them, and zeros go on behind them. None for too much.
fn layout(bytes: usize, flags: c_int) -> Option<Layout> {
    let align = (1_usize << (flags & LG_ALIGN)).max(MIN_ALIGN);
    // More than a layout may have is none in whole units either, or 0.
    let usable = global::usable_bytes_for(bytes.max(1), align);
    Layout::from_size_align(usable, align).ok().filter(|layout| layout.size() >= bytes.max(1))
}

/// The usable bytes that [`mallocx`] would give; 0 for more than there can be.
#[unsafe(no_mangle)]
pub extern "C" fn nallocx(bytes: usize, flags: c_int) -> usize {
    layout(bytes, flags).map_or(0, |layout| layout.size())
}

/// Allocates at least `bytes`, aligned and zeroed as the flags say. Null when memory is exhausted.
#[unsafe(no_mangle)]
pub extern "C" fn mallocx(bytes: usize, flags: c_int) -> *mut c_void {
    let Some(layout) = layout(bytes, flags) else { return null_mut() };
    // SAFETY: no layout of ours is of 0 bytes.
    let block =
        unsafe { if flags & ZERO == 0 { Faultless.alloc(layout) } else { Faultless.alloc_zeroed(layout) } };
    block.cast()
}

/// Makes a block hold at least `bytes`; what it has more than before is zeroed where the flags say so. Null when memory is exhausted: the
/// block is as it was.
///
/// # Safety
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rallocx(block: *mut c_void, bytes: usize, flags: c_int) -> *mut c_void {
    if block.is_null() {
        return mallocx(bytes, flags);
    }
    let Some(layout) = layout(bytes, flags) else { return null_mut() };
    let old = block.cast::<u8>();
    let before = global::usable_bytes(old);
    // SAFETY: a live block of the caller's, which is given up for the new one; both hold what is copied or cleared.
    unsafe {
        let new = if (old as usize).is_multiple_of(layout.align()) {
            global::resize(old, layout.size(), layout.align())
        } else {
            // Where there is no memory the old block does not serve: it is not aligned.
            match Faultless.alloc(layout) {
                new if new.is_null() => new,
                new => global::replace(old, before, new, layout.size()),
            }
        };
        if flags & ZERO != 0 && !new.is_null() {
            let after = global::usable_bytes(new);
            global::clear_tail(new.add(before.min(after)), after.saturating_sub(before));
        }
        new.cast()
    }
}

/// Would make a block hold from `bytes` to `bytes + extra` where it is; here each stays as large as it is. Returns its usable bytes.
///
/// # Safety
/// `block` is a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn xallocx(block: *mut c_void, _bytes: usize, _extra: usize, _flags: c_int) -> usize {
    global::usable_bytes(block.cast())
}

/// Usable bytes of a block.
///
/// # Safety
/// `block` is a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sallocx(block: *const c_void, _flags: c_int) -> usize {
    global::usable_bytes(block.cast())
}

/// Frees a block.
///
/// # Safety
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dallocx(block: *mut c_void, _flags: c_int) {
    // SAFETY: the caller's contract is the same.
    unsafe { global::free(block.cast()) }
}

/// Frees a block that was asked for with `bytes`; a size that it cannot have ends the process.
///
/// # Safety
/// `block` is null or a live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdallocx(block: *mut c_void, bytes: usize, flags: c_int) {
    global::check_sized_free(block.cast(), bytes);
    // SAFETY: the caller's contract is the same.
    unsafe { dallocx(block, flags) }
}

/// Reads and writes what has a name; 0, or the error's number.
///
/// # Safety
/// As jemalloc's: `name` is a C string, `old_bytes` is null or says how many bytes at `old` may be written, `new_bytes` how many at `new`
/// may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    old: *mut c_void,
    old_bytes: *mut usize,
    new: *mut c_void,
    new_bytes: usize,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { mallctl::by_name(name, &mallctl::Access::new(old, old_bytes, new, new_bytes)) }
}

/// Makes numbers of a name, or of its beginning, for [`mallctlbymib`]; 0, or the error's number.
///
/// # Safety
/// `name` is a C string, `mib_length` says how many numbers at `mib` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlnametomib(
    name: *const c_char,
    mib: *mut usize,
    mib_length: *mut usize,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { mallctl::numbers_of(name, mib, mib_length) }
}

/// As [`mallctl()`], by the numbers of a name.
///
/// # Safety
/// As [`mallctl()`]; `mib_length` numbers at `mib` may be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    mib_length: usize,
    old: *mut c_void,
    old_bytes: *mut usize,
    new: *mut c_void,
    new_bytes: usize,
) -> c_int {
    // SAFETY: the caller's contract is the same.
    unsafe { mallctl::by_numbers(mib, mib_length, &mallctl::Access::new(old, old_bytes, new, new_bytes)) }
}

type Writer = unsafe extern "C" fn(*mut c_void, *const c_char);

/// Our statistics, by a function of the caller's or on standard error. What they are to leave out is not looked at.
///
/// # Safety
/// `write` is null or takes `opaque` and a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats_print(
    write: Option<Writer>,
    opaque: *mut c_void,
    _options: *const c_char,
) {
    match write {
        Some(write) => statistics::write(&Snapshot::take(&HEAP), &mut Pieces { write, opaque }),
        None => statistics::print(),
    }
}

/// Text in C strings of some length.
struct Pieces {
    write: Writer,
    opaque: *mut c_void,
}

impl Write for Pieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut piece = [0; 128];
        for part in text.as_bytes().chunks(piece.len() - 1) {
            piece[..part.len()].copy_from_slice(part);
            piece[part.len()] = 0;
            // SAFETY: the caller of `malloc_stats_print` says that the function takes this.
            unsafe { (self.write)(self.opaque, piece.as_ptr().cast()) };
        }
        Ok(())
    }
}
