//! Random work of which every byte is checked: five seconds of the long stress, which `cargo xtask stress` runs for minutes, and large blocks.

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

#[test]
fn large_blocks_of_drawn_sizes_keep_every_word_and_read_as_zero_where_they_should() {
    for (threads, operations) in [("1", "2000"), ("4", "700")] {
        Program::new("stress_large.c").argument(threads).argument(operations).argument("1").passes();
    }
}

#[test]
fn large_blocks_keep_every_word_where_nothing_free_goes_back() {
    Program::new("stress_large.c")
        .argument("2")
        .argument("1000")
        .argument("2")
        .variable("FAULTLESS", "purge:never")
        .passes();
}
