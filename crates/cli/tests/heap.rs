//! `faultless heap` through the real program, beside what glibc says of itself in the same process.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod heap_subject;
mod place;
mod running;
mod tool;

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use heap_subject::core_maker::write_core;
use heap_subject::{SURVIVORS, Subject, faultless_heap, json, program};
use place::Place;
use running::{Running, state, wait_until};
use tool::{assert_misused, assert_refused, errors, text};

/// Threads, blocks, largest block, survivors in percent, seed, and what else.
const CASES: &[&[&str]] = &[
    &["4", "20000", "300000", "10", "7"],
    &["0", "50000", "10000", "5", "3"],
    &["3", "5000", "2000000", "2", "9"],
    &["2", "30000", "4000", "50", "11"],
    &["40", "2000", "100000", "10", "5"],
];

#[test]
fn figures_agree_with_malloc_info_of_the_process_to_the_byte() {
    for case in CASES {
        let mut subject = Subject::start(case);
        let ours = subject.heap(&["--malloc-info"]);
        let theirs = subject.tell("info");
        assert!(theirs.contains("</malloc>"), "{theirs}");
        assert_eq!(ours, theirs, "{case:?}");
    }
}

#[test]
fn blocks_that_all_have_mappings_of_their_own_are_shown() {
    let mut subject = Subject::run(
        Command::new(program()).args(["2", "2000", "4000", "10", "7"]).env("MALLOC_MMAP_THRESHOLD_", "0"),
    );
    let mapped = subject.report(&[])["walks"][0]["mapped_blocks"].clone();
    assert!(mapped["blocks"].as_u64() > Some(100), "{mapped}");
    assert_eq!(mapped["blocks"], mapped["found_blocks"], "{mapped}");
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
}

#[test]
fn a_trim_gives_back_what_was_predicted() {
    for case in CASES {
        let mut subject = Subject::start(case);
        let report = subject.report(&[]);
        let predicted = report["walks"][0]["total"]["trapped"]["returnable_bytes"].as_f64().unwrap();
        let answer = subject.tell("trim");
        let returned: f64 = answer.trim().strip_prefix("trimmed ").unwrap().parse().unwrap();
        assert!(predicted > 1e6, "{case:?} leaves something to trim: {predicted}");
        assert!(
            (returned / predicted - 1.0).abs() < 0.02,
            "{case:?}: {predicted} predicted, {returned} returned"
        );
        let after = subject.report(&[]);
        let left = after["walks"][0]["total"]["trapped"]["returnable_bytes"].as_f64().unwrap();
        assert!(left < predicted * 0.02, "{left} is left of {predicted}");
    }
}

/// Takes about 8 MiB a second and keeps them.
const GROWS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void grow(int blocks) { while (blocks-- > 0) memset(malloc(1000), 1, 1000); }
int main(void)
{
    alarm(60);
    grow(50000);
    puts("ready");
    fflush(stdout);
    for (;;) { grow(8); usleep(1000); }
}
"#;

#[test]
fn a_heap_that_grows_is_not_said_to_be_at_odds_with_itself() {
    let place = Place::new("heap-grows");
    let running = Running::ready(&mut Command::new(place.compile("grows", GROWS, &["-O1", "-fno-builtin"])));
    for _ in 0..3 {
        let output = faultless_heap(&["--pid", &running.pid()]).output().unwrap();
        let text = text(&output);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(!text.contains("at odds"), "{text}");
        assert!(!text.contains('~') || text.contains("--stop makes the process stand still"), "{text}");
    }
}

#[test]
fn pages_that_survivors_pin_are_said_to_be_out_of_reach_of_settings() {
    let pinned = Subject::start(&["4", "50000", "300", "10", "7"]).heap(&[]);
    assert!(pinned.contains("Most of what is trapped are parts of pages with blocks in use"), "{pinned}");
}

#[test]
fn a_main_heap_in_pieces_is_walked_whole() {
    let mut subject = Subject::start(&["2", "30000", "4000", "50", "11", "sbrk"]);
    let report = subject.report(&[]);
    let main = &report["walks"][0]["arenas"][0];
    assert!(main["heaps"].as_array().unwrap().len() > 3, "{main:#}");
    assert_eq!(main["flaw"], Value::Null);
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
}

#[test]
fn a_main_heap_in_hundreds_of_mapped_pieces_is_walked_whole_and_map_finds_it() {
    let mut subject = Subject::start(&["0", "40000", "300000", "95", "4", "wall"]);
    let report = subject.report(&[]);
    let main = &report["walks"][0]["arenas"][0];
    // Since 2.35 glibc maps 132 KiB at a time, before 1 MiB.
    let heaps = main["heaps"].as_array().unwrap();
    assert!(heaps.len() > 64, "{main:#}");
    assert_eq!(main["flaw"], Value::Null);
    let walked: u64 = heaps.iter().map(|heap| heap["bytes"].as_u64().unwrap()).sum();
    assert_eq!(walked, main["system_bytes"].as_u64().unwrap(), "pieces without a free chunk, too");
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
    let map = json(tool::faultless(&["map", "--json", "--pid"]).arg(subject.pid().to_string()));
    let kinds = map["kinds"].as_array().unwrap();
    let rss = |kind: &str| {
        kinds
            .iter()
            .find(|row| row["kind"] == kind)
            .map_or(0, |row| row["usage"]["rss_bytes"].as_u64().unwrap())
    };
    assert_eq!(rss("main_heap"), main["resident_bytes"].as_u64().unwrap(), "{map:#}");
    assert_eq!(rss("unknown"), 0, "{map:#}");
}

#[test]
fn heaps_and_blocks_whose_mappings_the_kernel_divided_are_walked_whole() {
    let mut subject = Subject::start(CASES[1]);
    subject.tell("divide");
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", subject.pid())).unwrap();
    assert!(maps.lines().filter(|line| line.ends_with("[heap]")).count() > 1, "{maps}");
    let report = subject.report(&["--stop"]);
    let walk = &report["walks"][0];
    assert_eq!(walk["is_exact"], true, "{walk:#}");
    let mapped = &walk["mapped_blocks"];
    assert_eq!(mapped["found_bytes"], mapped["bytes"], "{mapped:#}");
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
}

#[test]
fn sums_of_a_walk_agree_with_each_other() {
    let subject = Subject::start(CASES[0]);
    let report = subject.report(&["--stop"]);
    let walk = &report["walks"][0];
    assert_eq!(walk["is_exact"], true);
    assert_eq!(walk["thread_caches"], 5, "one for each thread");
    assert!(report["stood_still_seconds"].as_f64().unwrap() > 0.0);
    let number =
        |value: &Value, key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{key} in {value:#}"));
    let total = &walk["total"];
    let sum =
        |key: &str| walk["arenas"].as_array().unwrap().iter().map(|arena| number(arena, key)).sum::<u64>();
    for key in ["used_bytes", "free_bytes", "resident_bytes", "trapped_bytes", "overhead_bytes"] {
        assert_eq!(number(total, key), sum(key), "{key}");
    }
    assert_eq!(sum("system_bytes"), sum("used_bytes") + sum("free_bytes") + sum("overhead_bytes"));
    let free = number(&total["binned"], "bytes")
        + number(&total["fast"], "bytes")
        + number(&total["cached"], "bytes");
    assert_eq!(number(total, "free_bytes"), free + number(total, "top_bytes"));
    let rows = |key: &str| {
        let rows = walk[key].as_array().unwrap();
        rows.iter().map(|row| number(row, "bytes")).sum::<u64>()
    };
    assert_eq!(rows("used_sizes"), number(total, "used_bytes"));
    assert_eq!(rows("free_sizes"), free);
    let trapped: u64 =
        total["trapped"].as_object().unwrap().values().map(|part| part.as_u64().unwrap()).sum();
    assert_eq!(trapped, number(total, "trapped_bytes"));
    assert!(number(total, "trapped_bytes") <= number(total, "resident_bytes"));
    let mapped = &walk["mapped_blocks"];
    assert_eq!(mapped["found_bytes"], mapped["bytes"]);
    assert!(number(mapped, "blocks") > 0);
}

#[test]
fn a_busy_process_that_stands_still_is_walked_exactly_and_goes_on() {
    let mut subject = Subject::start(&["4", "3000", "20000", "30", "1", "busy"]);
    // Where others keep the CPUs busy it may not stand for long enough, which is said.
    let is_exact = || {
        let report = subject.report(&["--stop"]);
        let walk = &report["walks"][0];
        assert!(walk["is_exact"] == true || report["overdue_arenas"].as_u64() > Some(0), "{report:#}");
        assert_eq!(walk["arenas"].as_array().unwrap().len(), 5);
        walk["is_exact"] == true
    };
    assert_eq!((0..20).filter(|_| is_exact()).take(5).count(), 5);
    // Without a stop the walk may tear, but it ends, and says so.
    for _ in 0..5 {
        let report = subject.report(&[]);
        for arena in report["walks"][0]["arenas"].as_array().unwrap() {
            assert!(arena["attempts"].as_u64().unwrap() <= 6);
        }
    }
    assert!(subject.tell("info").contains("</malloc>"), "it goes on");
}

#[test]
fn the_table_answers_first_and_names_what_it_means() {
    let subject = Subject::start(CASES[0]);
    let text = subject.heap(&["--stop"]);
    let first = text.lines().next().unwrap();
    assert!(
        first.contains(&format!("({})", subject.pid())) && first.contains("it stood still for"),
        "{first}"
    );
    for word in [
        "trapped",
        "fragmentation",
        "malloc_trim(0) would give it back",
        "pinned",
        "main",
        "all",
        "chunks of, bytes",
    ] {
        assert!(text.contains(word), "{word} in {text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 125, "{widest} columns\n{text}");
}

#[test]
fn what_cannot_be_walked_is_one_line_with_its_status() {
    let fails = |words: &[&str], status: i32, message: &str| {
        assert_refused(&mut faultless_heap(words), status, message);
    };
    fails(&["--pid", "0"], 2, "above 0");
    fails(&["--pid", "2147483647"], 1, "no process 2147483647");
    assert_misused(&mut faultless_heap(&["--pid", "x"]), "invalid value");
    let zombie = Running::start(&mut Command::new("true"));
    wait_until(|| state(zombie.pid()) == Some('Z'));
    fails(&["--pid", &zombie.pid()], 1, "has ended");
    if std::fs::read_to_string("/proc/2/stat").is_ok_and(|stat| stat.contains("kthreadd")) {
        fails(&["--pid", "2"], 1, "kernel thread");
    }
}

#[test]
fn under_another_allocator_its_regions_are_shown_and_the_limit_is_said() {
    let library =
        ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists());
    let Some(library) = library else {
        faultless_skipped::skipped("jemalloc is not installed (apt install libjemalloc2)");
        return;
    };
    let subject = Subject::start_under(CASES[0], library);
    let report = subject.report(&[]);
    let other = &report["other_allocator"];
    assert_eq!(other["name"], "jemalloc");
    assert!(other["resident_bytes"].as_u64().unwrap() > 1 << 20, "{other:#}");
    assert!(subject.heap(&[]).contains("cannot be seen from outside"));
    let pid = subject.pid().to_string();
    assert_refused(&mut faultless_heap(&["--malloc-info", "--pid", &pid]), 1, "");
    assert_eq!(json(&mut faultless_heap(&["--json", "--pid", &pid]))["walks"], serde_json::json!([]));
}

#[test]
fn a_program_called_core_is_a_command() {
    let place = Place::new("called-core");
    let program = place.file("core");
    std::fs::copy("/bin/true", &program).unwrap();
    let output = faultless_heap(&["--", &program]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    std::fs::write(&program, "no core file").unwrap();
    let refused = faultless_heap(&["--", &program]).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn a_core_file_holds_the_same_heaps_as_the_process_that_left_it() {
    let place = Place::new("core");
    let core = place.file("core.1");
    let mut subject = Subject::start(&["3", "5000", "100000", "10", "4"]);
    write_core(subject.pid(), core.as_ref());
    let of_core = faultless_heap(&["--malloc-info", &core]).output().unwrap();
    assert_eq!(text(&of_core), subject.tell("info"));
    let report = json(&mut faultless_heap(&["--json", &core]));
    assert_eq!((&report["source"], &report["name"]), (&Value::from("core"), &Value::from("surv")));
    let (walk, live) = (&report["walks"][0], &subject.report(&[])["walks"][0]);
    assert_eq!((&walk["is_exact"], &walk["residency_is_known"]), (&Value::from(true), &Value::from(false)));
    for key in ["used_bytes", "free_bytes", "cached", "top_bytes"] {
        assert_eq!(walk["total"][key], live["total"][key], "{key}");
    }
    let table = text(&faultless_heap(&[&core]).output().unwrap());
    assert!(table.contains("would give back at most"), "{table}");
}

#[test]
fn a_pipe_where_the_libc_of_a_core_file_was_is_not_waited_for() {
    let place = Place::new("pipe");
    let (libc, core) = (place.file("libc.so.6"), place.file("core.1"));
    std::fs::copy(c_library(), &libc).unwrap();
    let subject = Subject::run(
        Command::new(program()).args(["1", "2000", "100000", "10", "4"]).env("LD_LIBRARY_PATH", &place.0),
    );
    write_core(subject.pid(), core.as_ref());
    std::fs::remove_file(&libc).unwrap();
    assert!(Command::new("mkfifo").arg(&libc).status().unwrap().success());
    let report = json(&mut faultless_heap(&["--json", &core]));
    assert_eq!((&report["glibc"], &report["walks"][0]["is_exact"]), (&Value::Null, &Value::from(true)));
}

/// The file of this machine's libc, as the compiler links it.
fn c_library() -> String {
    let path = text(&Command::new("cc").arg("-print-file-name=libc.so.6").output().unwrap());
    path.trim().to_owned()
}

#[test]
fn files_that_are_no_whole_core_are_refused_in_one_line() {
    let place = Place::new("damaged");
    let core = place.file("core.1");
    let subject = Subject::start(&["1", "2000", "100000", "10", "4"]);
    write_core(subject.pid(), core.as_ref());
    let whole = std::fs::metadata(&core).unwrap().len();
    let refused = |bytes: u64, message: &str| {
        std::fs::File::options().write(true).open(&core).unwrap().set_len(bytes).unwrap();
        assert_refused(&mut faultless_heap(&[&core]), 1, message);
    };
    refused(whole / 20, "cut off");
    refused(300, "its headers are damaged or cut off");
    refused(10, "its headers are damaged or cut off");
    refused(0, "no core file");
    assert_refused(&mut faultless_heap(&[&core, "--json"]), 1, "no core file");
    assert_refused(&mut faultless_heap(&[&core, &core]), 2, "options stand before the file");
    let says = "give --pid, a command after --, or a core file";
    assert_refused(&mut faultless_heap(&["--all"]), 2, says);
}

#[test]
fn a_32_bit_program_is_said_to_be_one_and_a_command_that_has_ended_is_not_to_be_asked_for() {
    let place = Place::new("narrow");
    let source = "#include <stdlib.h>\nint main() { return !calloc(9, 999); }\n";
    let Some(program) = place.try_compile("narrow", source, &["-m32"]) else {
        return faultless_skipped::skipped("no compiler for 32-bit programs (apt install gcc-multilib)");
    };
    let output = faultless_heap(&["--", &program]).output().unwrap();
    let table = text(&output);
    assert!(output.status.success() && table.contains("a 32-bit program"), "{table}");
    assert!(table.contains("faultless map -- CMD") && !table.contains("--pid"), "{table}");
}

#[test]
fn a_program_with_malloc_of_its_own_inside_is_walked_without_a_libc_file() {
    let place = Place::new("static");
    let options = ["-O1", "-w", "-static", "-s", "-pthread"];
    let Some(program) = place.try_compile("static", SURVIVORS, &options) else {
        faultless_skipped::skipped("no static libc to link with (apt install libc6-dev)");
        return;
    };
    let arguments = ["2", "5000", "100000", "10", "4"];
    let mut subject = Subject::run(Command::new(&program).args(arguments));
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
}

#[test]
fn a_process_that_never_called_malloc_is_not_said_to_have_another_allocator() {
    let place = Place::new("unused");
    let source = "#include <unistd.h>\nint main() { write(1, \"ready\\n\", 6); pause(); }\n";
    let running = Running::ready(&mut Command::new(place.compile("unused", source, &[])));
    let report = json(&mut faultless_heap(&["--json", "--pid", &running.pid()]));
    let table = text(&faultless_heap(&["--pid", &running.pid()]).output().unwrap());
    assert_eq!(report["other_allocator"], Value::Null, "{report:#}");
    assert!(table.contains("never asked for memory") && !table.contains("serves this process"), "{table}");
}

#[test]
fn a_libc_that_was_deleted_since_it_was_mapped_is_walked() {
    let place = Place::new("deleted");
    let copy = place.file("libc.so.6");
    std::fs::copy(c_library(), &copy).unwrap();
    let mut subject = Subject::run(
        Command::new(program()).args(["2", "5000", "100000", "10", "4"]).env("LD_LIBRARY_PATH", &place.0),
    );
    std::fs::remove_file(&copy).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", subject.pid())).unwrap();
    assert!(maps.contains("libc.so.6 (deleted)"));
    assert_eq!(subject.heap(&["--malloc-info"]), subject.tell("info"));
}

/// The library that the tool carries, as `faultless run` puts it in place.
fn faultless_library() -> String {
    let output = tool::faultless(&["run", "--", "sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    text(&output).trim().split(':').next().unwrap().to_owned()
}

/// Arguments of the program.
const SMALL_WORK: &[&str] = &["2", "3000", "100000", "10", "4"];

/// The program under a library that publishes what it holds, when that was written after all work was done.
fn start_publishing(library: &str) -> Subject {
    let mut command = Command::new(program());
    command.args(SMALL_WORK).env("LD_PRELOAD", library).env("FAULTLESS", "publish:on");
    let subject = Subject::run(&mut command);
    let done = Instant::now();
    loop {
        let since_done = done.elapsed();
        let age = subject.report(&[])["faultless"]["age_seconds"].as_f64();
        if age.is_some_and(|age_seconds| age_seconds < since_done.as_secs_f64()) {
            return subject;
        }
        assert!(since_done < Duration::from_secs(60), "nothing is published: {age:?}");
    }
}

#[test]
fn a_faultless_process_shows_its_classes_spans_and_caches_when_asked() {
    let library = faultless_library();
    assert!(library.contains("libfaultless"), "{library}");
    let quiet = Subject::start_under(SMALL_WORK, &library);
    let report = quiet.report(&[]);
    assert_eq!(
        (&report["other_allocator"]["name"], &report["faultless"]),
        (&Value::from("Faultless"), &Value::Null)
    );
    assert!(report["remarks"].to_string().contains("FAULTLESS=publish:on"), "{report:#}");

    let subject = start_publishing(&library);
    let report = subject.report(&["--stop"]);
    let heap = &report["faultless"];
    let number = |key: &str| heap[key].as_u64().unwrap_or_else(|| panic!("{key} in {heap:#}"));
    assert!(heap["age_seconds"].as_f64().unwrap() < 60.0);
    assert!(number("used_bytes") > 100_000 && number("span_bytes") >= number("used_bytes"), "{heap:#}");
    assert!(number("threads") >= 3);
    let resident = number("used_bytes") / 2..number("span_bytes") + number("dirty_bytes") + (1 << 20);
    assert!(resident.contains(&number("resident_bytes")), "{heap:#}");
    let classes = heap["classes"].as_array().unwrap();
    let of = |key: &str| {
        classes
            .iter()
            .map(|class| class[key].as_u64().unwrap() * class["block_bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(of("used") + number("large_bytes"), number("used_bytes"));
    assert_eq!(of("cached") + of("transit"), number("cached_bytes"));
    assert!(subject.heap(&[]).contains("Its own account"));
}

#[test]
fn faultless_is_known_by_its_contents_whatever_file_it_is_in() {
    let place = Place::new("other-name");
    let renamed = place.file("renamed.so");
    std::fs::copy(faultless_library(), &renamed).unwrap();
    let quiet = Subject::start_under(SMALL_WORK, &renamed);
    let report = quiet.report(&[]);
    assert_eq!(report["other_allocator"]["name"], "Faultless", "{report:#}");
    assert!(report["remarks"].to_string().contains("renamed.so"), "{report:#}");
    let subject = start_publishing(&renamed);
    let heap = &subject.report(&[])["faultless"];
    assert!(heap["used_bytes"].as_u64().unwrap() > 100_000, "{heap:#}");
}
