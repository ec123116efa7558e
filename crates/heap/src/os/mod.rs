//! The operating system: the only module that calls it.
//!
//! Memory and futex calls are raw system calls, so that they neither touch `errno` (POSIX: `free` preserves it)
//! nor pass through functions that a sanitizer or another preload replaces; who changes libc's `madvise` itself hears of it (`advice`).
//! Time comes from the kernel's object in the process, thread keys from libc, because these answer without entering the kernel.

mod advice;
mod clock;
mod control_group;
mod descriptor;
pub mod elf;
mod errno;
mod file;
mod lines;
mod memory;
mod path;
mod process;
mod region;
mod sandbox;
mod service;
mod syscall;
mod thread;
mod worker;

pub use clock::*;
pub use control_group::*;
pub use descriptor::*;
pub use errno::*;
pub use file::*;
pub use lines::*;
pub use memory::*;
pub use path::*;
pub use process::*;
pub use region::*;
pub use sandbox::*;
pub use service::*;
pub use thread::*;
pub use worker::*;
