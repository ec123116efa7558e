//! The purger: memory comes back without a further call, and the thread is there only when it is needed.

use faultless_tests::library::preload;
use faultless_tests::program::Program;

/// Cases that libc does not pass.
fn case(name: &str) {
    if preload().is_some() {
        Program::new("purger.c").argument(name).passes();
    }
}

#[test]
fn caches_of_parked_threads_are_given_back_without_a_further_call() {
    case("parked_threads");
}

#[test]
fn large_blocks_that_were_kept_for_reuse_are_given_back_without_a_further_call() {
    case("large_block");
}

#[test]
fn a_block_that_grows_and_shrinks_beside_a_thread_is_given_back_without_a_further_call() {
    case("resized_block");
}

#[test]
fn what_lies_idle_is_given_back_although_blocks_come_and_go_beside_it_at_full_speed() {
    case("beside_a_busy_thread");
}

#[test]
fn small_blocks_freed_when_it_has_left_are_given_back_after_bursts_that_came_again_and_again() {
    case("small_blocks_after_bursts");
}

#[test]
fn of_partly_used_slabs_only_the_pages_of_survivors_stay() {
    case("survivors");
}

#[test]
fn survivors_keep_their_contents() {
    case("contents");
}

#[test]
fn purger_leaves_when_nothing_is_left_and_comes_back_when_something_is() {
    case("leaves");
}

#[test]
fn purger_waits_for_who_works_on_a_large_block_for_long() {
    case("waits_for_long_turns");
}

#[test]
fn process_of_one_thread_has_no_purger() {
    case("none_with_one_thread");
}

#[test]
fn what_small_blocks_left_is_held_longer_where_memory_is_worth_less() {
    if preload().is_some() {
        let case = Program::new("purger.c").argument("holds_small_blocks_longer");
        case.variable("FAULTLESS", "thrift:122").passes();
    }
}

#[test]
fn process_with_threads_and_less_than_a_mib_has_none() {
    Program::new("purger.c").argument("none_below_a_mib").passes();
}

#[test]
fn process_with_threads_and_much_traffic_below_a_mib_has_one_for_as_long() {
    case("much_traffic_below_a_mib");
}

#[test]
fn process_whose_other_threads_ended_has_none_again() {
    case("none_when_alone_again");
}

#[test]
fn purger_can_be_switched_off() {
    if preload().is_some() {
        for options in ["purger:off", "purge:never"] {
            Program::new("purger.c").argument("none_if_off").variable("FAULTLESS", options).passes();
        }
    }
}

#[test]
fn the_last_word_on_the_purger_counts() {
    if preload().is_some() {
        let case = |options, name| {
            Program::new("purger.c").argument(name).variable("FAULTLESS", options).passes();
        };
        case("purger:off,purger:auto,purge:never,purge:auto", "none_below_a_mib");
        case("purger:auto,purger:off", "none_if_off");
        case("purge:never,purger:auto", "none_if_off");
    }
}

#[test]
fn purger_comes_when_a_limit_that_refused_it_is_gone() {
    case("comes_after_a_refusal");
}

#[test]
fn purger_has_room_on_its_stack_however_much_of_it_thread_local_variables_take() {
    // With glibc 2.33 and later. The frame of a signal is some 3 KiB: one of these leaves less of a stack of 128 KiB.
    for bytes in (120_000..132_000).step_by(1_500).chain([2_000_000]) {
        let tunable = format!("glibc.rtld.optional_static_tls={bytes}");
        Program::new("much_thread_local.c").variable("GLIBC_TUNABLES", &tunable).passes();
    }
}

#[test]
fn purger_sleeps_where_a_sandbox_refuses_nanosleep() {
    case("sleeps_where_nanosleep_is_refused");
}

#[test]
fn forked_child_has_a_purger_of_its_own_only_when_it_has_threads() {
    case("forked");
}

#[test]
fn forked_child_of_a_parent_in_which_one_thread_allocated_has_none() {
    Program::new("purger.c").argument("forked_from_one").passes();
}

#[test]
fn without_one_what_is_held_goes_back_whatever_threads_there_are() {
    // libc keeps what lies below the end of its heap.
    if preload().is_some() {
        let case = |options, name| {
            Program::new("held_without_purger.c").variable("FAULTLESS", options).argument(name).passes();
        };
        case("", "child");
        case("purger:off", "threads");
        case("purger:off", "another");
    }
}

#[test]
fn child_of_a_raw_clone_holds_its_memory_once_it_has_threads() {
    Program::new("purger.c").argument("cloned").passes();
}

#[test]
fn child_of_vfork_starts_none_and_its_parent_has_one_afterwards() {
    Program::new("purger.c").argument("vforked").passes();
}

#[test]
fn libc_frees_stacks_under_its_lock_when_no_purger_is_there() {
    case("threads_end_when_it_has_left");
}
