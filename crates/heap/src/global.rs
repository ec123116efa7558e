//! The process's heap: the fast paths, the thread's cache, and `GlobalAlloc`.
//!
//! A thread starts with a gated cache, which sends its first operation to the slow path, which gives it one of its own. A
//! destructor of a thread key takes it back at thread exit; what the thread allocates and frees after that (destructors of
//! other keys, libc's own tidying) goes straight to the slabs.

mod beginning;
pub mod purger;
mod thread_local;
mod zeroing;

use crate::colour::LINE_BYTES;
use crate::granule::GRANULE_BYTES;
use crate::heap::Heap;
use crate::large::{NewBlock, Pages, whole_units};
use crate::lock::Lock;
use crate::message::{Misuse, misuse};
use crate::os;
use crate::size_class::{self, SMALL_MAX, Scaled};
use crate::thread_cache::{Bin, Rest, ThreadCache};
pub use beginning::{begin, handle_forks};
use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
pub use zeroing::clear_tail;
use zeroing::{UNUSED_FROM, small_zeroed, zeroed};

/// Alignment in bytes of every block.
pub const MIN_ALIGN: usize = 16;

/// Frees of a thread that has no cache before it gets one. A thread that ends frees what libc kept for others' stacks when its
/// destructors have run already (a block, and one for each library with thread-local variables): a cache made then would not be released.
const EARLY_FREES: u64 = 64;

/// A small block that becomes smaller stays where it is unless that spares more than this part of it.
const SPARE_PART: usize = 4;

/// The heap of this process.
pub static HEAP: Heap = Heap::new();

/// What a thread has after its cache was taken back.
static EXITED: ThreadCache = ThreadCache::gated(0);

/// Number of the thread key. Before it exists not 0 but this, and so beside the caches above, on a page that each process writes to.
static EXIT_KEY: Lock<u32> = Lock::new(NO_KEY);
const NO_KEY: u32 = u32::MAX;

/// Allocates `bytes` (0 as 1), aligned to 16; null when memory is exhausted.
#[inline(always)]
pub fn allocate(bytes: usize) -> *mut u8 {
    allocate_fine_or(bytes, allocate_slow, |bytes| allocate_coarse_or(bytes, allocate_slow))
}

/// The fast path up to 2,048 bytes. Where it ends, `slow` is called with the same `bytes`, for more bytes `coarse`; both in tail
/// position.
#[inline(always)]
pub fn allocate_fine_or<T>(
    bytes: usize,
    slow: impl FnOnce(usize) -> *mut T,
    coarse: impl FnOnce(usize) -> *mut T,
) -> *mut T {
    match size_class::fine_class_of(bytes) {
        Some(class) => cached_or(class, bytes, slow),
        None => coarse(bytes),
    }
}

/// The fast path of small sizes above 2,048 bytes; where it ends, `slow` is called with the same `bytes`, in tail position. Apart from
/// [`allocate_fine_or`], which is shorter without it.
#[inline(always)]
pub fn allocate_coarse_or<T>(bytes: usize, slow: impl FnOnce(usize) -> *mut T) -> *mut T {
    match size_class::coarse_class_of(bytes) {
        Some(class) => cached_or(class, bytes, slow),
        None => slow(bytes),
    }
}

#[inline(always)]
fn cached_or<T>(class: Scaled, bytes: usize, slow: impl FnOnce(usize) -> *mut T) -> *mut T {
    let block = take_cached(class);
    if block == 0 { slow(bytes) } else { block as *mut T }
}

/// A block of this thread's cache, or 0.
#[inline(always)]
fn take_cached(class: Scaled) -> usize {
    let bin: *const Bin = thread_local::in_cache(class.offset_in::<Bin>()).cast();
    // SAFETY: a cache begins with the lists of its classes, and it is this thread's own, or gated.
    unsafe { (*bin).take() }
}

/// Allocates what the thread's cache did not have.
#[cold]
#[inline(never)]
pub fn allocate_slow(bytes: usize) -> *mut u8 {
    match size_class::class_of(bytes) {
        Some(class) => refill(class),
        None => allocate_large(bytes, Pages::Any).address as *mut u8,
    }
}

#[inline(always)]
fn allocate_large(bytes: usize, pages: Pages) -> NewBlock {
    // SAFETY: the cache is this thread's own, or gated.
    match unsafe { HEAP.allocate_again(thread_local::cache, bytes, MIN_ALIGN) } {
        0 => allocate_other(bytes, MIN_ALIGN, pages),
        address => NewBlock { address, zero: false },
    }
}

#[inline(never)]
fn allocate_large_aligned(bytes: usize, align: usize, pages: Pages) -> NewBlock {
    if align > GRANULE_BYTES {
        return allocate_other(bytes, align, pages);
    }
    // SAFETY: the cache is this thread's own, or gated.
    match unsafe { HEAP.allocate_again(thread_local::cache, bytes, align) } {
        0 => allocate_other(bytes, align, pages),
        again => NewBlock { address: HEAP.large.move_to_start(&HEAP.spans, again), zero: false },
    }
}

#[inline(never)]
fn allocate_other(bytes: usize, align: usize, pages: Pages) -> NewBlock {
    let block = HEAP.allocate_large(attached(), bytes, align, pages);
    purger::call();
    block
}

#[cold]
#[inline(never)]
fn refill(class: usize) -> *mut u8 {
    let block = HEAP.allocate_small(attached(), class);
    purger::call();
    block as *mut u8
}

/// Allocates `bytes` that read as zero.
#[inline]
pub fn allocate_zeroed(bytes: usize) -> *mut u8 {
    if bytes > SMALL_MAX {
        return zeroed(bytes, allocate_large(bytes, Pages::Zero));
    }
    if bytes >= UNUSED_FROM {
        return small_zeroed(bytes);
    }
    let block = allocate(bytes);
    if !block.is_null() {
        // SAFETY: a new block of at least `bytes`.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

/// Allocates `bytes` at a multiple of `align`, a power of two.
pub fn allocate_aligned(bytes: usize, align: usize) -> *mut u8 {
    debug_assert!(align.is_power_of_two());
    match size_class::aligned_request(bytes, align) {
        Some(bytes) => allocate(bytes),
        None => allocate_far_aligned(bytes, align),
    }
}

/// More than a cache line's alignment, or more than a small block. Not inlined: rare.
#[inline(never)]
fn allocate_far_aligned(bytes: usize, align: usize) -> *mut u8 {
    if align > LINE_BYTES
        && let Some(class) = size_class::aligned_class_of(bytes, align)
    {
        return cached_or(Scaled::new(class), bytes, |_| refill(class));
    }
    allocate_large_aligned(bytes, align, Pages::Any).address as *mut u8
}

/// Frees a block; null is ignored.
///
/// # Safety
/// `pointer` is null or a live block of this heap, which nobody uses any more.
#[inline(always)]
pub unsafe fn free(pointer: *mut u8) {
    let address = pointer as usize;
    if let Some(tag) = HEAP.spans.map.tag_at(address) {
        let cache = thread_local::cache();
        // SAFETY: the cache is this thread's own, or gated.
        let place = match unsafe { cache.own_place(tag) } {
            Ok(place) => place,
            Err(rest) => return free_foreign(address, cache, rest),
        };
        // SAFETY: the cache is this thread's own, or gated. The caller gives the block up; class 0 is gated in every cache.
        if unsafe { cache.push(place, address) } {
            return;
        }
    }
    free_slow(address);
}

/// Frees a block of another shard. Out of line, so that the usual case is short.
#[inline(never)]
fn free_foreign(address: usize, cache: &'static ThreadCache, rest: Rest) {
    // SAFETY: as in `free`.
    if unsafe { !cache.push_foreign(rest, address, &HEAP.central) } {
        free_slow(address);
    }
}

#[cold]
#[inline(never)]
fn free_slow(address: usize) {
    if address != 0 {
        if HEAP.spans.map.class_of_block(address) == 0 {
            // SAFETY: the cache is this thread's own, or gated.
            if unsafe { HEAP.free_again(thread_local::cache, address) } {
                return;
            }
            free_attached(address);
            purger::stand_in();
        } else {
            free_attached(address);
        }
    }
}

#[inline(never)]
fn free_attached(address: usize) {
    let is_early = thread_local::is_gated(thread_local::cache()) && thread_local::count_free() < EARLY_FREES;
    HEAP.free(if is_early { None } else { attached() }, address);
}

/// Makes a block hold `bytes`, at the same place or at another multiple of `align`, a power of two. Null: memory is exhausted, the block
/// is as it was.
///
/// # Safety
/// `pointer` is a live block of this heap, at a multiple of `align`; if the result is not null, only that is live afterwards.
pub unsafe fn resize(pointer: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    let old_bytes = HEAP.usable_bytes(pointer as usize);
    // Large blocks that are moved keep their place in the page, and those of more alignment begin at spans.
    if old_bytes > SMALL_MAX && bytes > SMALL_MAX && align <= GRANULE_BYTES {
        // Who appends a little at a time comes here each time, and seldom needs more.
        if whole_units(bytes) == old_bytes {
            return pointer;
        }
        let block = HEAP.resize_large(attached(), pointer as usize, bytes);
        purger::call();
        return block as *mut u8;
    }
    // Who shrinks a block by more means to keep it: a string that grew by doubling, made as long as it is.
    if bytes <= old_bytes && bytes >= old_bytes - old_bytes / SPARE_PART {
        return pointer;
    }
    // SAFETY: the caller's contract is the same, and the new block is nobody's else.
    unsafe { replace(pointer, old_bytes, allocate_aligned(bytes, align), bytes) }
}

/// Ends a resizing by copying; `new` is null where memory is exhausted. Then a block that is to shrink serves as it is.
///
/// # Safety
/// `pointer` is a live block of `old_bytes`, which the caller gives up if the result is another; `new` is null or a new one of `bytes`.
pub unsafe fn replace(pointer: *mut u8, old_bytes: usize, new: *mut u8, bytes: usize) -> *mut u8 {
    if new.is_null() {
        return if bytes <= old_bytes { pointer } else { new };
    }
    // SAFETY: both blocks hold what is copied and are distinct; the caller gives the old one up.
    unsafe {
        new.copy_from_nonoverlapping(pointer, old_bytes.min(bytes));
        free(pointer);
    }
    new
}

/// Bytes that may be used in a live block.
pub fn usable_bytes(pointer: *const u8) -> usize {
    HEAP.usable_bytes(pointer as usize)
}

/// Bytes that may be used in a block which was asked for with `bytes`, at a multiple of `align`, a power of two.
pub fn usable_bytes_for(bytes: usize, align: usize) -> usize {
    let class = match align {
        ..=LINE_BYTES => size_class::aligned_request(bytes, align).and_then(size_class::class_of),
        _ => size_class::aligned_class_of(bytes, align),
    };
    class.map_or_else(|| whole_units(bytes), size_class::size)
}

/// Gives back every page that can be given back. Returns the bytes.
pub fn trim() -> usize {
    HEAP.trim(attached())
}

/// Before this process limits its addresses to so many bytes (`RLIMIT_AS`): gives up what the heap has reserved and does not use, which
/// would count. Nothing in a child of `vfork`, whose limit is not its parent's.
pub fn keep_within(bytes: usize) {
    if purger::is_own_process() {
        HEAP.spans.map.reservation.keep_within(bytes);
    }
}

/// Before this process limits its data (`RLIMIT_DATA`): what the heap commits counts from now on.
pub fn count_committed() {
    if purger::is_own_process() {
        HEAP.spans.map.reservation.count_committed();
    }
}

/// Ends the process when the block at `pointer` is ours and has fewer than `bytes`.
pub fn check_sized_free(pointer: *const u8, bytes: usize) {
    if HEAP.bytes_of_ours(pointer as usize).is_some_and(|usable| bytes > usable) {
        misuse(Misuse::WrongSize, pointer as usize);
    }
}

/// This thread's cache, made if it has none yet; `None` after thread exit began, or when memory is exhausted.
fn attached() -> Option<&'static ThreadCache> {
    let cache = thread_local::cache();
    if core::ptr::eq(cache, &EXITED) {
        return None;
    }
    if !thread_local::is_gated(cache) {
        return Some(cache);
    }
    attach()
}

#[cold]
fn attach() -> Option<&'static ThreadCache> {
    let cache = left_on_stack().or_else(|| HEAP.caches.acquire())?;
    // What follows may allocate, so this comes first.
    cache.set_owner(thread_local::identity());
    thread_local::set_cache(cache);
    if let Some(key) = exit_key() {
        key.arm((&raw const *cache).addr());
    }
    beginning::note_thread();
    purger::note_thread();
    Some(cache)
}

/// The cache of a thread that ended on this stack after its destructors had run, and so could not release it: libc keeps the key's
/// value with the stack. A forked child took it back, and may have given it to another, while the value stayed: so the owner decides.
fn left_on_stack() -> Option<&'static ThreadCache> {
    let number = *EXIT_KEY.lock();
    if number == NO_KEY {
        return None;
    }
    let cache = os::ExitKey::from_number(number).value()? as *const ThreadCache;
    // SAFETY: only `attach` sets the key's value, to a cache, and caches live as long as the process.
    Some(unsafe { &*cache }).filter(|cache| cache.is_owned_by(thread_local::identity()))
}

fn exit_key() -> Option<os::ExitKey> {
    let mut number = EXIT_KEY.lock();
    if *number == NO_KEY {
        *number = os::ExitKey::new(thread_exits)?.number();
    }
    Some(os::ExitKey::from_number(*number))
}

unsafe extern "C" fn thread_exits(cache: *mut c_void) {
    thread_local::set_cache(&EXITED);
    // SAFETY: as in `left_on_stack`; it is this thread's own, or of one that ended on the same stack. What the thread has itself may be
    // the gated one, which everybody starts with.
    let cache = unsafe { &*cache.cast::<ThreadCache>() };
    if cache.is_owned_by(thread_local::identity()) {
        HEAP.caches.release(cache, HEAP.home());
        HEAP.spans.settle();
        purger::note_end();
    }
}

/// Faultless as a Rust program's allocator; see the crate's first example.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faultless;

// SAFETY: blocks are live from allocation to free, hold the layout's size and keep its alignment.
unsafe impl GlobalAlloc for Faultless {
    // Not inlined, as `dealloc`: each place that stores what another loads would be one more for the processor to learn.
    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            allocate(layout.size())
        } else {
            allocate_aligned(layout.size(), layout.align())
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, pointer: *mut u8, _layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { free(pointer) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MIN_ALIGN {
            return allocate_zeroed(layout.size());
        }
        if layout.size() > SMALL_MAX {
            return zeroed(layout.size(), allocate_large_aligned(layout.size(), layout.align(), Pages::Zero));
        }
        let block = allocate_aligned(layout.size(), layout.align());
        if !block.is_null() {
            // SAFETY: a new block of at least that size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        unsafe { resize(pointer, new_size, layout.align()) }
    }
}
