//! The C and C++ functions at their edges, as POSIX, C23 and glibc document them.

use faultless_tests::library::preload;
use faultless_tests::program::{Program, library_with_runtime, shared_library};

/// Tests that are nothing but a program that must pass.
macro_rules! passes {
    ($($sentence:ident: $file:literal,)*) => {
        $(#[test] fn $sentence() { Program::new($file).passes() })*
    };
}

passes! {
    every_size_up_to_70000_is_aligned_to_16: "alignment_of_sizes.c",
    every_power_of_two_up_to_64_mib_is_honoured: "alignment_of_powers.c",
    bad_alignments_are_refused_and_change_nothing: "alignment_refused.c",
    impossible_sizes_are_refused_and_harm_nothing: "overflow.c",
    realloc_keeps_contents_between_all_kinds_of_sizes: "realloc_contents.c",
    realloc_of_nothing_and_to_nothing_is_as_in_glibc: "realloc_edges.c",
    calloc_is_zero_whatever_was_there_before: "calloc_zero.c",
    errno_changes_only_on_failure: "errno_kept.c",
    blocks_of_no_bytes_are_blocks: "zero_size.c",
    all_of_the_usable_size_may_be_written: "usable_size.c",
    sized_and_old_forms_of_free_work: "sized_free.c",
    mallopt_takes_the_parameters_of_glibc: "mallopt_accepts.c",
    malloc_trim_says_whether_memory_was_given_back: "trim_answers.c",
    mallinfo_counts_the_bytes_in_use_of_all_threads: "mallinfo_truth.c",
    malloc_info_writes_well_formed_xml: "info_xml.c",
    malloc_stats_prints_on_stderr_alone: "stats_print.c",
    memory_works_before_constructors_and_after_destructors: "early_and_late.c",
    all_forms_of_new_and_delete_work: "new_forms.cpp",
    forms_of_new_and_delete_lead_to_the_plain_ones_that_a_program_replaces: "own_new.cpp",
    new_and_delete_follow_a_malloc_of_the_programs_own: "own_malloc.cpp",
    the_internal_names_of_glibc_never_lead_back_to_a_malloc_of_the_programs_own: "own_over_libc_names.c",
    impossible_new_throws_through_frames_with_destructors: "new_throws.cpp",
}

#[test]
fn every_function_comes_from_the_library() {
    if preload().is_some() {
        Program::new("exports.c").passes();
    }
}

#[test]
fn blocks_of_the_functions_of_jemalloc_are_blocks_as_all_others() {
    if preload().is_some() {
        Program::new("jemalloc_family.c").passes();
    }
}

#[test]
fn what_introspection_tells_is_true_to_the_byte() {
    if preload().is_some() {
        Program::new("exact_figures.c").passes();
    }
}

#[test]
fn large_blocks_of_one_thread_come_from_what_it_freed_and_are_counted() {
    if preload().is_some() {
        Program::new("one_thread_large.c").passes();
    }
}

#[test]
fn new_handler_is_called_may_throw_and_may_free_memory() {
    Program::new("new_handler.cpp").passes();
    Program::new("new_handler.cpp").limit('v', 512).passes();
}

#[test]
fn libraries_that_allocate_come_and_go() {
    let plugin = shared_library("plugin.c");
    Program::new("plugin_loop.c").argument(plugin.to_string_lossy()).passes();
}

#[test]
fn children_that_are_forked_while_others_open_libraries_do_not_hang_when_they_open_some() {
    Program::new("dlopen_while_forking.c").passes();
    Program::new("dlopen_while_forking.c").argument("deep").passes();
}

#[test]
fn operator_new_of_a_library_in_c_plus_plus_throws_in_a_program_in_c() {
    let plugin = shared_library("throwing_plugin.cpp");
    Program::new("throwing_main.c").argument(plugin.to_string_lossy()).passes();
}

#[test]
fn a_constructor_may_wait_for_a_thread_that_calls_new_without_exceptions() {
    let plugin = shared_library("nothrow_plugin.cpp");
    Program::new("nothrow_in_constructor.c").argument(plugin.to_string_lossy()).passes();
}

#[test]
fn libraries_with_a_cpp_library_inside_throw_and_handle_on_their_own() {
    let (usual, inside) = (shared_library("runtime_plugin.cpp"), library_with_runtime("runtime_plugin.cpp"));
    let second = inside.with_file_name("second-runtime.so");
    std::fs::copy(&inside, &second).unwrap();
    for [first, second] in [[&inside, &second], [&inside, &usual], [&usual, &inside]] {
        let program = Program::new("two_runtimes.c").argument(first.to_string_lossy());
        program.argument(second.to_string_lossy()).passes();
    }
}

#[test]
fn libraries_opened_with_deepbind_share_the_heap() {
    let plugin = shared_library("deep_plugin.c");
    let name = plugin.file_name().unwrap_or_default().to_string_lossy();
    Program::new("deepbind.c").argument(&*name).passes();
    Program::new("deepbind.c").argument(&*name).argument("refuse").passes();
}

#[test]
fn who_opens_libc_by_its_name_gets_the_functions_that_everybody_has() {
    Program::new("libc_by_name.c").passes();
    Program::new("libc_by_name.c").argument("path").passes();
    Program::new("own_before_libc.c").passes();
}

#[test]
fn library_works_when_loaded_by_dlopen_beside_libc() {
    if let Some(library) = preload() {
        Program::new("loaded_late.c").without_preload().argument(library.to_string_lossy()).passes();
    }
}
