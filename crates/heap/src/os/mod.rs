//! The operating system: the only module that calls it.
//!
//! Memory and futex calls are raw system calls, so that they neither touch `errno` (POSIX: `free` preserves it)
//! nor pass through functions that a sanitizer or another preload replaces. Time, CPU number and thread keys come
//! from libc because it answers them without entering the kernel.

mod descriptor;
mod errno;
mod file;
mod lines;
mod memory;
mod region;
mod syscall;
mod thread;
mod worker;

pub use descriptor::*;
pub use errno::*;
pub use file::*;
pub use lines::*;
pub use memory::*;
pub use region::*;
pub use thread::*;
pub use worker::*;
