//! `cargo xtask musl`: the tests of the heap, fork and threads among them, in static programs of musl.

use crate::arguments::Arguments;
use crate::failure::Result;
use crate::workspace::{cargo, succeed, target};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Runs the task.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let folder = target()?.join("musl");
    // Where rustup has no such target it says so, and how to add it.
    let words = ["test", "--package", "faultless-heap", "--target", TARGET];
    succeed(cargo().args(words).arg("--target-dir").arg(folder))
}
