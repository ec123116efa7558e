//! The few things of the C library that this crate calls or imitates.

use core::ffi::{c_char, c_int, c_void};

/// Not enough memory.
pub const ENOMEM: c_int = 12;
/// Invalid argument.
pub const EINVAL: c_int = 22;

// glibc 2.34 moved these into libc.so under a new version; the old one is still there, and asking for it lets the library load
// with every glibc since 2.17.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
core::arch::global_asm!(
    ".symver dlsym, dlsym@GLIBC_2.2.5",
    ".symver pthread_key_create, pthread_key_create@GLIBC_2.2.5",
    ".symver pthread_setspecific, pthread_setspecific@GLIBC_2.2.5",
);

/// A C stream; only ever behind a pointer.
#[repr(C)]
pub struct File {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
    fn fwrite(bytes: *const c_void, size: usize, count: usize, file: *mut File) -> usize;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Sets `errno` of this thread.
pub fn set_errno(error: c_int) {
    // SAFETY: libc's own variable of this thread.
    unsafe { *__errno_location() = error };
}

/// Writes to a C stream; false on failure.
///
/// # Safety
/// `file` is an open stream.
pub unsafe fn write(file: *mut File, text: &[u8]) -> bool {
    // SAFETY: the caller passes an open stream; the text is readable.
    unsafe { fwrite(text.as_ptr().cast(), 1, text.len(), file) == text.len() }
}

/// The definition of `name` in the libraries behind this one, null if there is none.
pub fn next_definition(name: &core::ffi::CStr) -> *mut c_void {
    const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;
    // SAFETY: `name` is a C string.
    unsafe { dlsym(RTLD_NEXT, name.as_ptr()) }
}
