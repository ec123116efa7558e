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
    if takes_order() {
        // Each segment from the beginning of a page on: what is relocated and what is written at the start take one page each.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-cdylib-link-arg=-Wl,-T,{folder}/order.ld");
    }
}

/// Whether the linker takes a script and this option, as rust-lld does, or lets one of them be, as GNU ld does. Without them the library has
/// more resident pages and is the same otherwise.
fn takes_order() -> bool {
    let chosen = ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_LINKER"].map(|name| env::var(name).unwrap_or_default());
    !["mold", "gold", "wild"].iter().any(|other| chosen.iter().any(|words| words.contains(other)))
}
