//! Memory that runs out, mappings that run out, what dumps hold, system calls that are refused.

use std::process::Command;

use faultless_tests::library::preload;
use faultless_tests::program::Program;

/// Under a limit of `mib` half of it at least must be had, in blocks of `block_bytes` (0: mixed sizes).
fn exhaust(kind: char, mib: usize, block_bytes: usize) {
    Program::new("exhaust.c")
        .limit(kind, mib)
        .argument(block_bytes.to_string())
        .argument((mib / 2).to_string())
        .argument("0")
        .passes();
}

#[test]
fn address_space_of_64_mib_runs_out_and_is_usable_again() {
    for block_bytes in [100, 4000, 100_000, 1_000_000, 0] {
        exhaust('v', 64, block_bytes);
    }
}

#[test]
fn address_space_of_128_and_256_mib_runs_out_and_is_usable_again() {
    exhaust('v', 128, 100);
    exhaust('v', 128, 0);
    exhaust('v', 256, 30_000);
    exhaust('v', 256, 0);
}

#[test]
fn address_space_of_1_gib_runs_out_and_is_usable_again() {
    exhaust('v', 1024, 5_000_000);
    exhaust('v', 1024, 0);
}

/// qemu before version 8 keeps a record of each page that is mapped, 24 bytes long.
#[test]
fn reserved_addresses_take_no_memory_under_an_emulator_either() {
    let Some(library) = preload() else { return };
    let emulated = Command::new("qemu-x86_64")
        .arg("-E")
        .arg(format!("LD_PRELOAD={}", library.display()))
        .args(["/bin/grep", "VmHWM", "/proc/self/status"])
        .output();
    // The file is that of the emulator.
    let Ok(output) = emulated else { return faultless_skipped::skipped("there is no qemu-x86_64") };
    let line = String::from_utf8_lossy(&output.stdout);
    let peak_kib = line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    assert!(peak_kib.is_some_and(|kib| kib < 512 << 10), "{output:?}");
}

#[test]
fn data_limit_runs_out_and_is_usable_again() {
    for block_bytes in [100, 4000, 100_000, 1_000_000, 0] {
        exhaust('d', 64, block_bytes);
    }
    exhaust('d', 256, 0);
    exhaust('d', 1024, 5_000_000);
}

#[test]
fn blocks_grow_or_stay_under_limits_that_the_program_lowers() {
    for limit in ["as", "data"] {
        Program::new("limit_lowered.c").argument(limit).passes();
    }
}

#[test]
fn memory_runs_out_at_the_limit_that_a_program_sets_for_itself() {
    Program::new("limit_set.c").passes();
}

#[test]
fn a_child_of_vfork_that_limits_itself_leaves_its_parents_heap_as_it_is() {
    Program::new("limit_in_vfork.c").passes();
}

#[test]
fn a_child_of_vfork_that_limits_itself_may_have_its_parents_number_in_a_namespace_of_its_own() {
    Program::new("limit_in_vfork.c").argument("namespace").passes();
}

#[test]
fn a_child_of_a_raw_clone_that_limits_its_addresses_has_room_for_its_own_mappings() {
    Program::new("limit_in_clone.c").passes();
}

#[test]
fn a_daemon_that_limits_its_addresses_has_room_for_its_own_mappings() {
    Program::new("limit_in_daemon.c").passes();
}

#[test]
fn a_program_that_limits_its_addresses_has_room_for_its_own_mappings() {
    for function in ["setrlimit", "setrlimit64", "prlimit", "prlimit64"] {
        Program::new("limit_room.c").argument(function).passes();
    }
}

#[test]
fn a_limit_that_is_refused_or_leaves_room_for_all_costs_no_addresses() {
    Program::new("limit_refused.c").passes();
}

#[test]
fn a_heap_under_a_limit_leaves_room_for_stacks() {
    for kind in ['v', 'd'] {
        Program::new("limit_stacks.c").limit(kind, 128).argument("10").passes();
    }
    for set in ["as", "data"] {
        Program::new("limit_stacks.c").argument("10").argument(set).passes();
    }
}

#[test]
fn a_limit_that_is_raised_and_lowered_takes_nothing_from_threads_that_allocate_or_map() {
    Program::new("limit_storm.c").passes();
}

#[test]
fn what_is_free_at_the_end_of_the_heap_counts_where_memory_is_limited() {
    for kind in ['v', 'd'] {
        for (how, least_mib) in [("single", "500"), ("copied", "250"), ("resized", "400")] {
            Program::new("limit_used.c").limit(kind, 600).argument(how).argument(least_mib).passes();
        }
    }
}

#[test]
fn more_than_all_memory_is_refused_where_the_kernel_refuses_it() {
    Program::new("more_than_memory.c").passes();
}

#[test]
fn memory_that_runs_out_in_four_threads_at_once_is_usable_again() {
    for (kind, block_bytes) in [('v', 0), ('v', 1000), ('d', 0), ('d', 1000)] {
        Program::new("exhaust.c")
            .limit(kind, 256)
            .argument(block_bytes.to_string())
            .argument("100")
            .argument("4")
            .passes();
    }
}

#[test]
fn where_memory_is_exhausted_what_others_free_is_had_and_blocks_shrink() {
    for others in ["0", "5"] {
        Program::new("exhaust_rest.c").limit('v', 256).argument(others).passes();
    }
}

#[test]
fn memory_runs_out_on_a_stack_of_8_kib_beside_threads_with_full_caches() {
    Program::new("small_stack.c").passes();
}

#[test]
fn operator_new_throws_under_a_limit_and_containers_survive() {
    Program::new("exhaust_new.cpp").limit('v', 256).passes();
    Program::new("exhaust_new.cpp").limit('d', 128).passes();
}

#[test]
fn hundred_thousand_large_blocks_need_few_mappings() {
    Program::new("few_mappings.c").passes();
}

#[test]
fn block_of_several_mappings_grows_where_there_may_be_hardly_more() {
    Program::new("many_mappings.c").passes();
}

#[test]
fn what_was_moved_to_a_block_before_mappings_ran_out_is_given_back() {
    // libc may need a mapping to free one.
    if preload().is_some() {
        for how in ["malloc", "realloc"] {
            Program::new("moved_in_vain.c").argument(how).variable("FAULTLESS", "purge:never").passes();
        }
    }
}

#[test]
fn core_dump_has_the_blocks_and_not_the_reserved_address_space() {
    Program::new("core_dump.c").passes();
}

#[test]
fn sandbox_that_refuses_madvise_membarrier_and_mremap_is_survived() {
    Program::new("refused_calls.c").passes();
}

#[test]
fn sandbox_that_refuses_madvise_and_lets_pages_be_moved_is_survived() {
    Program::new("refused_madvise.c").passes();
}

#[test]
fn sandbox_that_ends_a_process_for_what_systemd_does_not_list_is_survived() {
    Program::new("system_service.c").passes();
}

#[test]
fn sandbox_that_ends_a_process_for_what_the_documents_do_not_list_is_survived() {
    // libc's malloc calls others.
    if preload().is_some() {
        Program::new("listed_calls.c").passes();
    }
}

#[test]
fn sandbox_that_is_announced_lists_no_more_than_libcs_malloc_and_threads_call() {
    if preload().is_some() {
        Program::new("listed_calls.c").argument("announced").passes();
    }
}

#[test]
fn sandbox_that_ends_a_process_for_what_the_documents_do_not_list_lets_it_report() {
    if preload().is_some() {
        let folder = std::env::temp_dir().join(format!("faultless-listed-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        for option in ["report", "trace"] {
            let prefix = folder.join(option);
            Program::new("listed_calls.c")
                .variable("FAULTLESS", &format!("{option}:{}", prefix.display()))
                .passes();
        }
        let written = std::fs::read_dir(&folder).unwrap().count();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(written >= 2, "{written} files");
    }
}

#[test]
fn zeroed_blocks_are_zero_where_the_kernel_only_says_that_pages_were_given_back() {
    Program::new("void_purge.c").passes();
}

#[test]
fn kernel_without_the_newer_calls_is_served() {
    Program::new("old_kernel.c").passes();
}

#[test]
fn clock_that_allocates_may_be_the_programs_own() {
    Program::new("own_clock.c").passes();
}

#[test]
fn who_watches_madvise_in_libcs_code_hears_of_all_pages_that_go() {
    Program::new("watched_advice.c").passes();
}
