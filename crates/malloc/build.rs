//! Linker options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Threads and exit handlers of the process point into the library: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No lazy binding inside malloc.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfaultless.so");
}
