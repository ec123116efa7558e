//! `cargo xtask musl`: the tests of the heap, fork and threads among them, in static programs of musl; and a program that depends on it,
//! built as Cargo does by default, with several units of code and without link-time optimisation.

use crate::arguments::Arguments;
use crate::failure::{At, Result};
use crate::workspace::{TemporaryFolder, cargo, root, succeed, target};
use std::fs;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let folder = target()?.join("musl");
    // Where rustup has no such target it says so, and how to add it.
    let words = ["test", "--package", "faultless-heap", "--target", TARGET];
    succeed(cargo().args(words).arg("--target-dir").arg(folder))?;
    run_dependent()
}

const MAIN: &str = "#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;
fn main() {
    let texts: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let threads = texts.into_iter().map(|text| std::thread::spawn(move || text.repeat(100).len()));
    println!(\"{} bytes\", threads.map(|thread| thread.join().unwrap()).sum::<usize>());
}
";

/// Builds and runs a program of somebody else's.
fn run_dependent() -> Result<()> {
    let folder = TemporaryFolder::new("musl")?;
    let place = |name: &str| folder.path().join(name);
    let write = |path: &Path, text: &str| fs::write(path, text).at(path);
    let heap = root().join("crates/heap");
    let manifest = format!(
        "[package]\nname = \"dependent\"\nedition = \"2024\"\n[dependencies]\nfaultless-heap = {{ path = {heap:?} }}\n[workspace]\n"
    );
    fs::create_dir(place("src")).at(&place("src"))?;
    write(&place("Cargo.toml"), &manifest)?;
    write(&place("src/main.rs"), MAIN)?;
    let words = ["build", "--release", "--target", TARGET, "--manifest-path"];
    succeed(cargo().args(words).arg(place("Cargo.toml")).arg("--target-dir").arg(place("target")))?;
    succeed(&mut Command::new(place("target").join(TARGET).join("release/dependent")))
}
