//! `cargo xtask musl`: the tests of the heap, fork and threads among them, in static programs of musl; and a program that depends on it,
//! built as Cargo does by default, with several units of code and without link-time optimisation.

use crate::arguments::Arguments;
use crate::dependent::Dependent;
use crate::failure::Result;
use crate::workspace::{cargo, succeed, target};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let folder = target()?.join("musl");
    // Where rustup has no such target it says so, and how to add it.
    let words = ["test", "--package", "faultless-heap", "--target", TARGET];
    succeed(cargo().args(words).arg("--target-dir").arg(folder))?;
    let dependent = Dependent::new("musl", MAIN)?;
    succeed(&mut Command::new(dependent.build(&mut cargo(), TARGET)?))
}

const MAIN: &str = "#[global_allocator]
static ALLOCATOR: faultless_heap::Faultless = faultless_heap::Faultless;
fn main() {
    let texts: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let threads = texts.into_iter().map(|text| std::thread::spawn(move || text.repeat(100).len()));
    println!(\"{} bytes\", threads.map(|thread| thread.join().unwrap()).sum::<usize>());
}
";
