//! `cargo xtask races`: `tests/models/races.rs`, whose threads hand blocks to each other, under ThreadSanitizer.

use crate::arguments::Arguments;
use crate::dependent::Dependent;
use crate::failure::{At, Result};
use crate::workspace::{root, succeed};
use std::fs;
use std::process::Command;

/// Runs the task.
pub fn run(mut arguments: Arguments) -> Result<()> {
    let threads: usize = arguments.number("--threads", 4)?;
    let turns: usize = arguments.number("--turns", 40_000)?;
    let seed: usize = arguments.number("--seed", 1)?;
    arguments.end()?;

    let source = root().join("tests/models/races.rs");
    let dependent = Dependent::new("races", &fs::read_to_string(&source).at(&source)?)?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // The standard library is as it came, not built for the sanitizer; nothing that the threads share goes through it.
    let program = dependent.build(
        Command::new("rustup")
            .args(["run", "nightly", "cargo"])
            .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
        &target,
    )?;
    succeed(Command::new(program).args([threads, turns, seed].map(|number| number.to_string())))
}
