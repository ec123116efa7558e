//! Linker options of the shared library.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=order.ld");
    // Threads and exit handlers of the process point into the library: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No lazy binding inside malloc.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfaultless.so");
    // What a C compiler adds serves constructors and destructors that we have not, at both ends of the text.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    // Each segment from the beginning of a page on: what is relocated and what is written at the start take one page each.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{folder}/order.ld");
}
