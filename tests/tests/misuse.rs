//! Programs that misuse the allocator are stopped with one line that says what they did.

use faultless_tests::library::preload;
use faultless_tests::program::{Outcome, Program};

const SIGABRT: i32 = 6;

/// Runs one case of `misuse.c`; `None` when libc is tested, whose words are others.
fn misuse(kind: &str) -> Option<Outcome> {
    preload()?;
    Some(Program::new("misuse.c").argument(kind).run())
}

fn is_report(outcome: &Outcome, words: &str) -> bool {
    let line = outcome.stderr.trim_end_matches('\n');
    outcome.signal() == Some(SIGABRT)
        && line.starts_with("faultless: ")
        && words.split('|').any(|kind| line.contains(kind))
        && !line.contains('\n')
        && outcome.stdout.is_empty()
}

fn is_stopped(kind: &str, words: &str) {
    if let Some(outcome) = misuse(kind) {
        assert!(
            is_report(&outcome, words),
            "{kind}: expected SIGABRT and one line 'faultless: … {words} …', got {}, stderr: {}",
            outcome.status,
            outcome.stderr
        );
    }
}

/// A fast path that looks at neither the block nor the slab cannot know these at once: they may also go unnoticed.
fn is_stopped_or_unnoticed(kind: &str, words: &str) {
    if let Some(outcome) = misuse(kind) {
        let unnoticed = outcome.status.success() && outcome.stderr.is_empty();
        assert!(
            unnoticed || is_report(&outcome, words),
            "{kind}: expected to go unnoticed, or SIGABRT and one line 'faultless: … {words} …', got {}, stderr: {}",
            outcome.status,
            outcome.stderr
        );
    }
}

/// Each case of `misuse.c` with the words of the report, alternatives parted by a bar.
macro_rules! stopped {
    ($how:ident: $($kind:ident => $words:literal,)*) => { $(#[test] fn $kind() { $how(stringify!($kind), $words) })* };
}

stopped! { is_stopped:
    double_free => "double free",
    double_free_large => "double free",
    double_free_large_with_another_between => "double free",
    double_free_of_large_that_comes_and_goes => "double free",
    double_delete_of_array => "double free",
    free_of_stack => "invalid pointer",
    free_of_static => "invalid pointer",
    free_of_static_inside => "invalid pointer",
    free_of_code => "invalid pointer",
    free_of_low_address => "invalid pointer",
    free_of_noncanonical_address => "invalid pointer",
    free_of_top_address => "invalid pointer",
    free_of_mapping => "invalid pointer",
    free_misaligned => "invalid pointer",
    free_misaligned_by_8 => "invalid pointer",
    free_before_the_first_small => "invalid pointer",
    free_inside_large => "invalid pointer",
    free_inside_large_next_granule => "invalid pointer",
    free_inside_large_odd => "invalid pointer",
    free_before_large => "invalid pointer",
    free_sized_of_more_than_a_small_block => "wrong size",
    free_sized_of_more_than_a_large_block => "wrong size",
    free_sized_of_stack => "invalid pointer",
    realloc_of_freed_large => "double free|invalid pointer",
    realloc_of_static => "invalid pointer",
    realloc_inside_large => "invalid pointer",
    realloc_misaligned => "invalid pointer",
}

stopped! { is_stopped_or_unnoticed:
    double_free_with_another_between => "double free",
    double_free_by_another_thread => "double free",
    double_free_after_trim => "double free",
    free_inside_small => "invalid pointer",
    realloc_of_freed => "double free|invalid pointer",
}

/// The mistake is found under locks, and the handler describes it with blocks that nobody else has.
#[test]
fn a_handler_of_sigabrt_may_allocate_and_the_process_ends() {
    for (found_by, threads) in [("trim", "1"), ("trim", "2"), ("flush", "1"), ("both", "2")] {
        if preload().is_none() {
            return;
        }
        let outcome = Program::new("misuse_handled.c").argument(found_by).argument(threads).run();
        assert_eq!(
            (outcome.signal(), outcome.stdout.as_str()),
            (Some(SIGABRT), "handled\n"),
            "{found_by}, {threads} threads: {}, {}",
            outcome.status,
            outcome.stderr
        );
    }
}

/// With one thread a lock that is held is held for good: by the thread itself. Or what it left half done is found before.
#[test]
fn a_signal_handler_that_jumps_out_of_malloc_ends_the_process_and_does_not_stop_it() {
    if preload().is_none() {
        return;
    }
    let outcomes: Vec<Outcome> = (0..10).map(|_| Program::new("signal_in_malloc.c").run()).collect();
    for outcome in &outcomes {
        let words = "signal handler|double free|invalid pointer|corrupted";
        assert!(is_report(outcome, words), "{}, {}", outcome.status, outcome.stderr);
    }
    assert!(
        outcomes.iter().any(|outcome| is_report(outcome, "signal handler")),
        "no process waited for itself"
    );
}
