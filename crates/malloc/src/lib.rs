//! `libfaultless.so` and `libfaultless.a`: the C and C++ allocation functions over `faultless-heap`.
//!
//! Loaded by `LD_PRELOAD` or linked; `include/faultless.h` declares what goes beyond the C library.
#![no_std]

mod c_abi;
#[cfg(all(feature = "operators", target_arch = "x86_64"))]
mod cpp_abi;
#[cfg(feature = "deepbind")]
mod deepbind;
#[cfg(feature = "forks")]
mod forks;
#[cfg(feature = "jemalloc")]
mod jemalloc_abi;
mod libc;
#[cfg(feature = "limits")]
mod limits;
#[cfg(feature = "jemalloc")]
mod mallctl;
mod options;
mod process;
mod region_abi;
#[cfg(feature = "sandbox")]
mod sandbox;
mod statistics;

// Members of Rust's own library in the archive have its address, for unwinding through them, which nothing does. Without it a program that
// links all members (`--whole-archive`) does not link; a Rust library in the program brings the real one, and one that is shared must not
// find this.
core::arch::global_asm!(
    ".pushsection .rodata.rust_eh_personality,\"a\"",
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    ".long 0",
    ".popsection",
);

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    match info.location() {
        Some(place) => faultless_heap::message::say(format_args!(
            "internal error at {}:{}: {}",
            place.file(),
            place.line(),
            info.message()
        )),
        None => faultless_heap::message::say(format_args!("internal error: {}", info.message())),
    }
    faultless_heap::os::die()
}
