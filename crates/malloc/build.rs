//! Linker options of the shared library.

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A library that needs nothing, to ask the linker what it takes.
const EMPTY: &str = "#![no_std] #[panic_handler] fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=order.ld");
    println!("cargo::rerun-if-changed=data.ld");
    // Threads and exit handlers of the process point into the library: it must never be unloaded.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // No lazy binding inside malloc.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libfaultless.so");
    // What a C compiler adds serves constructors and destructors that we have not, at both ends of the text.
    println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    // A name that only glibc has: musl's loader says that it is missing. Without it, it would call the constructor without the arguments
    // that glibc's passes.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-u,_IO_list_lock");
    let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    // Each segment from the beginning of a page on: what is relocated and what is written at the start take one page each.
    let ordered = ["-Wl,-z,separate-loadable-segments".to_owned(), format!("-Wl,-T,{folder}/order.ld")];
    // What the loader reads is mapped with what runs first, in one piece of 64 KiB; two segments are two pieces.
    let joined = ["-Wl,--no-rosegment".to_owned(), format!("-Wl,-T,{folder}/data.ld")];
    // rust-lld takes all of it, GNU ld the order. Without them the library has more resident pages and is the same otherwise.
    let mut taken = Vec::new();
    for arguments in [ordered, joined] {
        // data.ld in front of order.ld, whose .bss would take all.
        let more = [arguments.to_vec(), taken.clone()].concat();
        if linker_takes(&more).unwrap_or(false) {
            taken = more;
        }
    }
    taken.iter().for_each(|argument| println!("cargo::rustc-cdylib-link-arg={argument}"));
}

/// Whether a shared library can be linked with these arguments, as this crate is going to be.
fn linker_takes(arguments: &[String]) -> io::Result<bool> {
    let variable = |name| env::var(name).unwrap_or_default();
    let out = variable("OUT_DIR");
    let [source, library] = ["empty.rs", "empty.so"].map(|name| Path::new(&out).join(name));
    fs::write(&source, EMPTY)?;
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args([
        "--edition=2024",
        "--crate-type=cdylib",
        "-Cpanic=abort",
        "--target",
        &variable("TARGET"),
    ]);
    compiler.args(variable("CARGO_ENCODED_RUSTFLAGS").split('\x1f').filter(|flag| !flag.is_empty()));
    compiler.args(env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    compiler.args(arguments.iter().map(|argument| format!("-Clink-arg={argument}")));
    let status = compiler.arg("-o").arg(&library).arg(&source).stderr(Stdio::null()).status()?;
    Ok(status.success())
}
