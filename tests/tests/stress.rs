//! Random work of which every byte is checked: seconds of the long stress, which `cargo xtask stress` runs for minutes, and large blocks.

use faultless_tests::program::Program;

/// Runs the stress with such arguments.
fn stress(words: &str) {
    let outcome = words.split(' ').fold(Program::new("stress.c"), Program::argument).run();
    assert!(
        outcome.status.success() && outcome.stderr.is_empty() && outcome.stdout.contains("passed"),
        "{}\n{}{}",
        outcome.status,
        outcome.stdout,
        outcome.stderr
    );
}

#[test]
fn random_threads_sizes_operations_and_forks_keep_every_byte() {
    stress("5 6 1");
}

#[test]
fn threads_that_are_stopped_anywhere_keep_every_byte() {
    stress("2 6 2 stopped");
}

#[test]
fn calls_that_the_kernel_refuses_and_memory_that_runs_out_leave_every_byte() {
    for words in ["2 6 3 refused", "2 6 4 refused"] {
        stress(words);
    }
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
