//! dlmalloc behind one lock: a heap that all threads share, as the mallocs of the 1990s were.
//!
//! The crate has no C interface: the functions here take the lock, call it and give it back; the linker merges them with it.
//! As in dlmalloc.c, `calloc` clears and aligned sizes are checked outside the lock, and forks take the lock.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr;

use dlmalloc::Dlmalloc;

/// Alignment of every block.
const ALIGNMENT: usize = 16;
const PAGE_BYTES: usize = 4096;
/// Bits of a chunk's head beside its size; without the two low ones the chunk is a mapping of its own.
const HEAD_FLAGS: usize = 7;
const IN_USE: usize = 3;

struct Heap {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    /// Synchronization: the lock.
    dlmalloc: UnsafeCell<Dlmalloc>,
}

// SAFETY: every access to `dlmalloc` holds `lock`, which is made for threads.
unsafe impl Sync for Heap {}

static HEAP: Heap = Heap {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    dlmalloc: UnsafeCell::new(Dlmalloc::new()),
};

impl Heap {
    #[inline]
    fn with<R>(&self, use_it: impl FnOnce(&mut Dlmalloc) -> R) -> R {
        lock();
        // SAFETY: the lock is held, and no use of the heap calls back into it.
        let result = use_it(unsafe { &mut *self.dlmalloc.get() });
        unlock();
        result
    }
}

extern "C" fn lock() {
    // SAFETY: the mutex is static and initialized.
    unsafe { libc::pthread_mutex_lock(HEAP.lock.get()) };
}

extern "C" fn unlock() {
    // SAFETY: the mutex is static and this thread holds it; in a forked child it is the one thread there is.
    unsafe { libc::pthread_mutex_unlock(HEAP.lock.get()) };
}

/// A child must not be born while another thread holds the lock.
extern "C" fn start() {
    // SAFETY: the handlers live as long as the process.
    unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

fn set_errno(error: c_int) {
    // SAFETY: the C library's own thread-local.
    unsafe { *libc::__errno_location() = error };
}

#[inline]
fn or_no_memory(block: *mut u8) -> *mut c_void {
    if block.is_null() {
        set_errno(libc::ENOMEM);
    }
    block.cast()
}

/// The head of the chunk of `block`: its size and flags.
#[inline]
unsafe fn head(block: *mut c_void) -> usize {
    // SAFETY: the caller passes a block in use; the word before it is its chunk's head.
    unsafe { *block.cast::<usize>().sub(1) }
}

#[inline]
fn aligned(alignment: usize, size: usize) -> *mut c_void {
    if !alignment.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: the alignment is a power of two; any size will do.
    or_no_memory(HEAP.with(|heap| unsafe { heap.c_memalign(alignment, size) }))
}

/// C's `malloc`.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size will do.
    or_no_memory(HEAP.with(|heap| unsafe { heap.c_malloc(size) }))
}

/// C's `free`.
///
/// # Safety
/// `block` is null or in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    if !block.is_null() {
        // SAFETY: the caller's block is in use.
        HEAP.with(|heap| unsafe { heap.c_free(block.cast()) });
    }
}

/// C's `calloc`.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let Some(size) = count.checked_mul(size) else { return or_no_memory(ptr::null_mut()) };
    let block = malloc(size);
    // SAFETY: the block was just made, of at least this size; one that is a mapping of its own reads as zero.
    unsafe {
        if !block.is_null() && head(block) & IN_USE != 0 {
            ptr::write_bytes(block.cast::<u8>(), 0, size);
        }
    }
    block
}

/// C's `realloc`.
///
/// # Safety
/// `block` is null or in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the caller's block is null or in use.
    or_no_memory(HEAP.with(|heap| unsafe { heap.c_realloc(block.cast(), size) }))
}

/// The C library's `reallocarray`.
///
/// # Safety
/// `block` is null or in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's block is null or in use.
        Some(size) => unsafe { realloc(block, size) },
        None => or_no_memory(ptr::null_mut()),
    }
}

/// The C library's `memalign`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(alignment: usize, size: usize) -> *mut c_void {
    aligned(alignment, size)
}

/// C's `aligned_alloc`.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(alignment: usize, size: usize) -> *mut c_void {
    aligned(alignment, size)
}

/// POSIX's `posix_memalign`, which leaves errno alone.
///
/// # Safety
/// `result` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(result: *mut *mut c_void, alignment: usize, size: usize) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<usize>() {
        return libc::EINVAL;
    }
    // SAFETY: the alignment is a power of two; any size will do.
    let block = HEAP.with(|heap| unsafe { heap.c_memalign(alignment.max(ALIGNMENT), size) });
    if block.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's.
    unsafe { *result = block.cast() };
    0
}

/// The C library's `valloc`.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    aligned(PAGE_BYTES, size)
}

/// The C library's `pvalloc`.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    match size.checked_next_multiple_of(PAGE_BYTES) {
        Some(size) => aligned(PAGE_BYTES, size.max(PAGE_BYTES)),
        None => or_no_memory(ptr::null_mut()),
    }
}

/// The C library's `malloc_usable_size`: the chunk less its head, and less the words around a mapping of its own.
///
/// # Safety
/// `block` is null or in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    // SAFETY: the caller's block is in use, so its head does not change but for the flag of the chunk before it.
    let head = unsafe { head(block) };
    let overhead = if head & IN_USE == 0 { 2 * size_of::<usize>() } else { size_of::<usize>() };
    (head & !HEAD_FLAGS) - overhead
}
