//! The few things of the C library that this crate calls or imitates.

use core::ffi::{c_int, c_void};

/// Operation not permitted.
#[cfg(feature = "jemalloc")]
pub const EPERM: c_int = 1;
/// No such name.
#[cfg(feature = "jemalloc")]
pub const ENOENT: c_int = 2;
/// Not enough memory.
pub const ENOMEM: c_int = 12;
/// Function not implemented.
#[cfg(feature = "forks")]
pub const ENOSYS: c_int = 38;
/// Operation cancelled.
pub const ECANCELED: c_int = 125;
/// Invalid argument.
pub const EINVAL: c_int = 22;

// glibc 2.34 moved these into libc.so under a new version. The old version is still there, and asking for it, weakly, lets the
// library load with every glibc since 2.17, whether or not the program has libdl and libpthread.
#[cfg(all(feature = "old-glibc", target_arch = "x86_64", target_env = "gnu"))]
core::arch::global_asm!(
    ".symver dlsym, dlsym@GLIBC_2.2.5",
    ".symver pthread_attr_setstacksize, pthread_attr_setstacksize@GLIBC_2.2.5",
    ".symver pthread_create, pthread_create@GLIBC_2.2.5",
    ".symver pthread_getspecific, pthread_getspecific@GLIBC_2.2.5",
    ".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5",
    ".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5",
    ".symver pthread_join, pthread_join@GLIBC_2.2.5",
    ".weak dlsym",
    ".weak pthread_attr_setstacksize",
    ".weak pthread_create",
    ".weak pthread_attr_init",
    ".weak pthread_attr_setdetachstate",
    ".weak pthread_getspecific",
    ".weak pthread_key_create",
    ".weak pthread_setspecific",
    ".weak pthread_join",
);

/// A C stream; only ever behind a pointer.
#[repr(C)]
pub struct File {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn fwrite(bytes: *const c_void, size: usize, count: usize, file: *mut File) -> usize;
}

/// Sets `errno` of this thread.
pub fn set_errno(error: c_int) {
    // SAFETY: libc's own variable of this thread.
    unsafe { *__errno_location() = error };
}

/// What a function of libc returns where the kernel answered so: -1 for a negative number of an error, which becomes `errno`.
#[cfg(any(feature = "limits", feature = "sandbox"))]
pub fn returned(answer: isize) -> c_int {
    if answer < 0 {
        set_errno(-answer as c_int);
        return -1;
    }
    answer as c_int
}

/// Writes to a C stream; false on failure.
///
/// # Safety
/// `file` is an open stream.
pub unsafe fn write(file: *mut File, text: &[u8]) -> bool {
    // SAFETY: the caller passes an open stream; the text is readable.
    unsafe { fwrite(text.as_ptr().cast(), 1, text.len(), file) == text.len() }
}
