//! Memory is given back: resident bytes, counted.

use faultless_tests::library::preload;
use faultless_tests::program::Program;

fn case(name: &str) {
    Program::new("resident.c").argument(name).passes();
}

#[test]
fn large_block_leaves_at_free_without_a_further_call() {
    case("large_block_freed");
}

#[test]
fn sparse_calloc_is_resident_only_where_touched() {
    case("sparse_calloc");
}

#[test]
fn zeroed_blocks_keep_their_pages_while_they_are_filled_and_give_them_back_once_they_are_not() {
    if preload().is_some() {
        for (threads, pages) in [("1", "auto"), ("2", "auto"), ("1", "never")] {
            let option = format!("huge_pages:{pages}");
            Program::new("calloc_filled.c").argument(threads).variable("FAULTLESS", &option).passes();
        }
    }
}

#[test]
fn fresh_zeroed_blocks_that_are_read_and_written_are_faulted_in_once_and_those_that_are_begun_stay_lean() {
    if preload().is_some() {
        Program::new("calloc_first_use.c").passes();
    }
}

#[test]
fn buffers_that_hold_little_are_resident_where_they_do() {
    case("begun_buffers");
}

#[test]
fn two_million_small_blocks_freed_at_random_leave_with_malloc_trim() {
    case("small_blocks_at_random");
}

#[test]
fn realloc_of_large_blocks_never_holds_two_copies() {
    // libc moves page tables too, but not everywhere.
    if preload().is_some() {
        case("realloc_grows_in_place_of_pages");
    }
}

#[test]
fn near_a_containers_limit_less_is_held() {
    if preload().is_some() {
        for mib in ["0", "62"] {
            Program::new("near_limit.c").argument(mib).passes();
        }
    }
}

#[test]
fn what_is_known_of_freed_blocks_takes_no_memory() {
    case("untouched_blocks");
}

#[test]
fn huge_pages_that_reach_into_free_memory_are_given_back() {
    for option in ["huge_pages:auto", "huge_pages:always"] {
        Program::new("resident.c").argument("beside_huge_pages").variable("FAULTLESS", option).passes();
    }
}

#[test]
fn blocks_that_grow_by_copying_into_memory_with_pages_make_no_system_call() {
    Program::new("copied_growth.c").variable("FAULTLESS", "purge:never").passes();
}

#[test]
fn memory_given_back_and_used_again_is_zero_and_is_given_back_again() {
    case("freed_and_used_again");
}

#[test]
fn one_malloc_trim_gives_back_all_spans_that_were_kept_for_reuse() {
    case("many_kept_spans");
}

#[test]
fn memory_of_a_block_that_came_and_went_serves_others() {
    if preload().is_some() {
        case("comes_and_goes");
    }
}

#[test]
fn memory_of_a_block_that_came_and_went_goes_back_while_small_blocks_come_and_go() {
    if preload().is_some() {
        case("comes_and_goes_no_more");
    }
}

#[test]
fn memory_of_blocks_of_all_sizes_that_came_and_went_is_bounded_and_given_back() {
    if preload().is_some() {
        case("comes_and_goes_in_all_sizes");
    }
}

#[test]
fn what_the_place_of_a_buffer_leaves_over_does_not_stay() {
    case("buffers_where_others_were");
}

#[test]
fn buffers_that_are_made_and_freed_in_bulk_have_the_pages_of_those_before_them() {
    // libc gives all back, and brings all in again.
    if preload().is_some() {
        case("buffers_in_bulk");
    }
}

#[test]
fn one_locked_page_does_not_keep_the_block_around_it() {
    // A locked page survives free in libc, too, where the block is not mapped singly.
    if preload().is_some() {
        case("locked_page");
    }
}

#[test]
fn memory_freed_while_it_was_locked_goes_with_malloc_trim_when_it_is_not() {
    if preload().is_some() {
        case("locked_for_a_while");
    }
}

#[test]
fn program_that_locks_its_memory_keeps_it_locked() {
    Program::new("locked.c").passes();
    Program::new("locked.c").limit('v', 4096).passes();
}

#[test]
fn what_a_program_may_lock_is_had_by_its_blocks_where_it_locks_before_it_allocates() {
    for (limit_kib, blocks_kib) in [(8192, 5000), (2048, 500)] {
        Program::new("locked_first.c")
            .argument(limit_kib.to_string())
            .argument(blocks_kib.to_string())
            .passes();
    }
}

#[test]
fn a_process_of_one_thread_passes_no_blocks_on_that_come_faster_than_they_are_wanted() {
    if preload().is_none() {
        return;
    }
    let program = Program::new("resident.c").argument("few_then_many").variable("FAULTLESS", "stats:exit");
    let outcome = program.run();
    // Of each size class: block size, slabs, blocks, used, cached, in transit.
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<usize>>>();
    let classes: Vec<_> =
        outcome.stderr.lines().filter_map(numbers).filter(|figures| figures.len() == 6).collect();
    assert!(classes.len() >= 5, "{}", outcome.stderr);
    assert!(classes.iter().all(|figures| figures[5] == 0), "{}", outcome.stderr);
}
