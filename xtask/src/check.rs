//! What CI runs: rustfmt, clippy, rustdoc, the tests. All steps run, also after one that failed. What tests had to leave
//! out on this machine is named at the end, since their runner counts it as passed.

use std::process::Command;

use faultless_skipped::VARIABLE;

use crate::arguments::Arguments;
use crate::failure::{Result, wrong};
use crate::workspace::{cargo, succeed, words};

const STEPS: &[&[&str]] = &[
    &["fmt", "--all", "--", "--check"],
    &["clippy", "--workspace", "--exclude", "faultless-malloc", "--all-targets", "--", "-D", "warnings"],
    // A no_std library with a panic handler of its own has no test target.
    &["clippy", "--package", "faultless-malloc", "--lib", "--", "-D", "warnings"],
    // To run they need a nightly compiler; to be looked at, not.
    &["clippy", "--manifest-path", "fuzz/Cargo.toml", "--", "-D", "warnings"],
    // Two steps: the library and the tool have the same name, and their pages would lie in one place.
    &["doc", "--no-deps", "--document-private-items", "--workspace", "--exclude", "faultless-malloc"],
    &["doc", "--no-deps", "--document-private-items", "--package", "faultless-malloc"],
    &["test", "--package", "xtask"],
    &["test"],
];

/// Runs the task. A step that fails is named in a line that begins with `check failed:`.
pub fn run(arguments: Arguments) -> Result<()> {
    arguments.end()?;
    let skipped = std::env::temp_dir().join(format!("faultless-skipped-{}.txt", std::process::id()));
    let step = |step: &&[&str]| run_step(cargo().args(*step).env(VARIABLE, &skipped)).err();
    let failed: Vec<String> = STEPS.iter().filter_map(step).collect();
    let reasons = std::fs::read_to_string(&skipped).unwrap_or_default();
    let _ = std::fs::remove_file(&skipped);
    println!("== skipped here, in whole or in part, and counted as passed: {}", reasons.lines().count());
    reasons.lines().for_each(|reason| println!("{reason}"));
    failed.iter().for_each(|step| println!("check failed: {step}"));
    if failed.is_empty() {
        Ok(())
    } else {
        wrong(format!("{} of {} checks failed", failed.len(), STEPS.len()))
    }
}

fn run_step(command: &mut Command) -> std::result::Result<(), String> {
    let arguments =
        words(command).split_once(' ').map(|(_, arguments)| arguments.to_owned()).unwrap_or_default();
    println!("== cargo {arguments}");
    // `cargo doc` takes no arguments for rustdoc, and the doctests of `cargo test` need none.
    if arguments.starts_with("doc ") {
        command.env("RUSTDOCFLAGS", "-D warnings");
    }
    succeed(command).map_err(|_| format!("cargo {arguments}"))
}
