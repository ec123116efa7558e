//! fork, in all its forms, while other threads allocate.

use faultless_tests::library::preload;
use faultless_tests::program::{Program, shared_library};

#[test]
fn child_of_a_process_with_8_busy_threads_can_use_all_it_inherited() {
    Program::new("fork_busy.c").passes();
}

#[test]
fn fork_does_not_deadlock_with_stdio() {
    Program::new("fork_stdio.c").passes();
}

#[test]
fn fork_handlers_may_allocate() {
    Program::new("fork_handlers.c").passes();
}

#[test]
fn fork_handlers_that_are_registered_first_may_wait_for_who_allocates() {
    Program::new("fork_handlers_first.c").passes();
}

/// A program beside a library that counts who registers fork handlers; `None` where the tests run without ours, since nobody does.
fn counted(mode: &str) -> Option<Program> {
    preload()?;
    let counter = shared_library("registrations.c");
    Some(Program::new("fork_handlers_late.c").argument(mode).preload_behind(&counter))
}

#[test]
fn fork_handlers_are_registered_by_who_forks_has_threads_or_registers_others() {
    for mode in ["alone", "fork", "thread", "purger", "handlers", "deep"] {
        if let Some(program) = counted(mode) {
            program.passes();
        }
    }
}

#[test]
fn fork_handlers_that_libc_refused_at_first_are_registered_with_the_next_thread() {
    if let Some(program) = counted("refused") {
        program.passes();
    }
}

#[test]
fn fork_handlers_are_registered_at_the_start_where_a_child_may_have_to_report() {
    if let Some(program) = counted("options") {
        program.variable("FAULTLESS", "purge:auto").passes();
    }
}

#[test]
fn grandchildren_raw_forks_and_forks_from_threads_work() {
    Program::new("fork_family.c").passes();
}

#[test]
fn children_have_no_large_blocks_that_other_threads_kept() {
    if preload().is_some() {
        Program::new("fork_large.c").passes();
    }
}

#[test]
fn children_leave_the_pages_alone_that_they_share_with_their_parent() {
    for largest in ["512", "1024"] {
        Program::new("fork_shared.c").argument(largest).passes();
    }
}

#[test]
fn programs_are_started_from_busy_processes() {
    Program::new("spawn.c").passes();
}

#[test]
fn a_signal_handler_forks_in_the_middle_of_malloc() {
    Program::new("fork_in_signal.c").passes();
    Program::new("fork_returns.c").passes();
}

#[test]
fn a_fork_handler_trims_while_other_threads_are_in_their_slow_paths() {
    Program::new("fork_window.c").passes();
}

#[test]
fn a_thread_that_holds_stdios_lock_makes_its_first_allocation() {
    Program::new("fork_first_malloc.c").passes();
}

#[test]
fn a_thread_is_in_the_loader_when_its_process_forks() {
    Program::new("fork_in_loader.c").passes();
}
