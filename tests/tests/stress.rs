//! Five seconds of the long stress; `cargo xtask stress` runs it for minutes.

use faultless_tests::program::Program;

#[test]
fn random_threads_sizes_operations_and_forks_keep_every_byte() {
    let outcome = Program::new("stress.c").argument("5").argument("6").argument("1").run();
    assert!(
        outcome.status.success() && outcome.stderr.is_empty() && outcome.stdout.contains("passed"),
        "{}\n{}{}",
        outcome.status,
        outcome.stdout,
        outcome.stderr
    );
}
