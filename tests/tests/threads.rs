//! Threads: remote frees, exits with blocks still live, destructors that run late.

use faultless_tests::library::preload;
use faultless_tests::program::{Program, shared_library};

#[test]
fn blocks_freed_by_other_threads_stay_whole_and_bounded() {
    Program::new("remote_free.c").passes();
}

#[test]
fn blocks_outlive_the_thread_that_allocated_them() {
    Program::new("orphaned_blocks.c").passes();
}

#[test]
fn vectors_that_grow_in_many_threads_keep_their_contents() {
    Program::new("growing_vectors.c").passes();
}

#[test]
fn two_thousand_short_threads_leave_nothing() {
    Program::new("short_threads.c").passes();
}

#[test]
fn key_destructors_free_and_allocate_in_any_order() {
    Program::new("key_destructors.c").passes();
}

#[test]
fn waves_of_detached_threads_leave_neither_caches_nor_a_cache_of_two() {
    let outcome = Program::new("detached_waves.c").variable("FAULTLESS", "stats:exit").run();
    assert!(outcome.status.success(), "{outcome:?}");
    if preload().is_none() {
        return;
    }
    // `cached  51  by 1 threads, most at once 8`
    let line = outcome.stderr.lines().find(|line| line.contains("most at once")).unwrap_or_default();
    let most: u32 = line.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX);
    assert!(most <= 16, "{}", outcome.stderr);
}

#[test]
fn a_cache_that_a_forked_child_took_back_is_not_found_again_on_a_stack() {
    Program::new("stale_key.c").passes();
}

#[test]
fn a_wrapper_of_pthread_create_may_hold_a_lock() {
    Program::new("wrapped_create.c").passes();
}

#[test]
fn a_process_ends_with_its_last_thread_whatever_threads_of_ours_are_there() {
    for options in ["", "purge:never", "publish:on"] {
        Program::new("ends_with_its_threads.c").variable("FAULTLESS", options).passes();
    }
}

#[test]
fn threads_of_all_kinds_come_and_go() {
    Program::new("thread_lives.c").passes();
}

#[test]
fn thread_local_destructors_free_and_allocate_in_any_order() {
    Program::new("thread_local_destructors.cpp").passes();
}

#[test]
fn process_exits_while_threads_allocate() {
    Program::new("exit_while_busy.c").passes();
}

#[test]
fn what_hundreds_of_parked_threads_keep_is_bounded() {
    Program::new("parked_threads.c").passes();
}

#[test]
fn long_thread_local_variables_of_a_library_are_freed_under_libcs_lock() {
    let library = shared_library("tls_plugin.c");
    Program::new("tls_of_a_library.c").argument(library.to_string_lossy()).passes();
}

#[test]
fn exit_in_a_signal_handler_ends_the_process() {
    Program::new("exit_in_signal.c").passes();
}
