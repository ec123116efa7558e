//! Threads: remote frees, exits with blocks still live, destructors that run late.

use faultless_tests::program::Program;

#[test]
fn blocks_freed_by_other_threads_stay_whole_and_bounded() {
    Program::new("remote_free.c").passes();
}

#[test]
fn blocks_outlive_the_thread_that_allocated_them() {
    Program::new("orphaned_blocks.c").passes();
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
