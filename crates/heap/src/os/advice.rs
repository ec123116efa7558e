//! Who watches libc's `madvise`, and is to know which pages go.
//!
//! A library that registers memory with a network card keeps the registration for the next use, and must know when the pages behind it go
//! (UCX, Open MPI, libfabric). So it writes a jump of its own to the beginning of libc's functions, and takes it that every allocator calls
//! these. A raw system call would pass it by, and the card would go on with pages that are not the program's any more.

use super::elf::Object;
use super::errno::Errno;
use super::syscall::{number, syscall};
use super::thread::failing;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

type Advise = unsafe extern "C" fn(usize, usize, c_int) -> c_int;

pub(super) const MADV_DONTNEED: usize = 4;

/// libc's `madvise`. libc stays loaded. Not null before it was found, as `LIBC_CREATE` in `service`.
static LIBC_ADVISE: AtomicPtr<c_void> = AtomicPtr::new(NOT_FOUND);
const NOT_FOUND: *mut c_void = core::ptr::without_provenance_mut(1);
/// Bytes of its code that are looked at: `endbr64`, which it may begin with, and [`CALL`].
const CODE_BYTES: usize = 11;
/// `mov eax, 28; syscall`.
const CALL: [u8; 7] = [0xb8, number::MADVISE as u8, 0, 0, 0, 0x0f, 0x05];

/// Looks for the function in libc.
pub(super) fn find_libc_advise(libc: &Object<'_>) {
    // On other processors it is not known how the function begins.
    if cfg!(target_arch = "x86_64")
        && let Some(place) = libc.find(c"madvise")
    {
        // ORDERING: Relaxed; an address of code that was there before it was written.
        LIBC_ADVISE.store(core::ptr::with_exposed_provenance_mut(place), Ordering::Relaxed);
    }
}

/// libc's function, where somebody has changed it.
#[inline(never)]
fn watched() -> Option<Advise> {
    // ORDERING: Relaxed, as in `find_libc_advise`.
    let place = LIBC_ADVISE.load(Ordering::Relaxed);
    if place == NOT_FOUND {
        return None;
    }
    // SAFETY: code of libc, which is longer; volatile, for others may change it.
    let code = unsafe { place.cast::<[u8; CODE_BYTES]>().read_volatile() };
    let is_whole = code.starts_with(&CALL) || code.ends_with(&CALL);
    // SAFETY: libc's function of that name has these arguments and this result, and so has what took its place.
    (!is_whole).then(|| unsafe { core::mem::transmute::<*mut c_void, Advise>(place) })
}

/// Gives the pages of a range back, unless they are locked, so that who watches knows it.
///
/// # Safety
/// Nobody needs its contents.
#[inline(never)]
pub(super) unsafe fn discard(address: usize, bytes: usize) -> Result<usize, Errno> {
    // SAFETY: the caller gives the contents up.
    unsafe {
        match watched() {
            Some(function) => failing(|| function(address, bytes, MADV_DONTNEED as c_int)),
            None => Errno::check(syscall(number::MADVISE, [address, bytes, MADV_DONTNEED, 0, 0, 0])),
        }
    }
}

/// Tells who watches that other pages come into a range, or leave it.
///
/// # Safety
/// As for [`discard`].
#[inline(never)]
pub(super) unsafe fn announce(address: usize, bytes: usize) {
    if watched().is_some() {
        // SAFETY: the caller's contract is the same.
        _ = unsafe { discard(address, bytes) };
    }
}
