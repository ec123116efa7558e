//! `faultless heap` through the real program, beside what glibc says of itself in the same process.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod heap_subject;

use std::process::{Command, Stdio};

use serde_json::Value;

use heap_subject::{Subject, faultless_heap, json};

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
    for _ in 0..5 {
        let report = subject.report(&["--stop"]);
        let walk = &report["walks"][0];
        assert_eq!(walk["is_exact"], true, "{walk:#}");
        assert_eq!(walk["arenas"].as_array().unwrap().len(), 5);
    }
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
        let output = faultless_heap(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{words:?}: {error}");
        assert!(error.contains(message), "{words:?}: {error}");
        assert!(output.stdout.is_empty());
    };
    fails(&["--pid", "0"], 2, "above 0");
    fails(&["--pid", "2147483647"], 1, "no process 2147483647");
    fails(&["--pid", "x"], 2, "invalid value");
    let mut zombie = Command::new("true").stdout(Stdio::null()).spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z") {
        std::thread::yield_now();
    }
    fails(&["--pid", &zombie.id().to_string()], 1, "has ended");
    zombie.wait().unwrap();
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
        eprintln!("skipped: jemalloc is not installed (apt install libjemalloc2)");
        return;
    };
    let subject = Subject::start_under(CASES[0], library);
    let report = subject.report(&[]);
    let other = &report["other_allocator"];
    assert_eq!(other["name"], "jemalloc");
    assert!(other["resident_bytes"].as_u64().unwrap() > 1 << 20, "{other:#}");
    assert!(subject.heap(&[]).contains("cannot be seen from outside"));
    let output = faultless_heap(&["--malloc-info", "--pid", &subject.pid().to_string()]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        json(&faultless_heap(&["--json", "--pid", &subject.pid().to_string()]))["walks"],
        serde_json::json!([])
    );
}
