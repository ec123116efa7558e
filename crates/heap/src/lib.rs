//! The Faultless memory allocator.
//!
//! Few page faults, memory given back to the kernel, caches bounded by CPUs and not by threads.
//! A Rust program uses it by one line:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;
//! # fn main() { assert_eq!(vec![1, 2, 3].len(), 3); }
//! ```
//!
//! `faultless heap --pid PID` shows what is in it once the program has called [`publish`].
//!
//! A library that uses it and is opened by `dlopen` (a `cdylib`) must stay loaded, since threads and handlers of the process lead into it:
//! its build script prints `cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete`.
//!
//! A program needs [`Faultless`], [`publish`] and [`region`]. The other modules are public for the C library, the tests and the tools of
//! this workspace, and change as these need.
//!
//! The crate is `no_std` and takes no other crate; it calls Linux and a C library, glibc or musl.
//!
//! The modules stand in layer order: each uses only those above it. ARCHITECTURE.md walks one `malloc` and
//! one `free` through them.
#![cfg_attr(not(test), no_std)]

pub(crate) mod granule;

pub(crate) mod colour;

pub mod size_class;

pub mod decay;

pub mod os;

pub mod message;

pub mod trace;

pub mod lock;

pub mod reservation;

pub(crate) mod page_map;

pub mod span_heap;

pub(crate) mod spans;

pub(crate) mod magazine;

pub(crate) mod slab;

pub(crate) mod central;

pub(crate) mod large;

pub(crate) mod thread_cache;

pub(crate) mod heap;

pub mod stats;

pub(crate) mod fork;

pub mod global;

mod publication;

pub mod region;

pub use global::Faultless;
pub use publication::publish;
