//! `faultless doctor --pid` on processes whose time goes into malloc's calls: into waiting for each other there, or into work.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::{Command, Stdio};

use place::Place;
use running::Running;
use serde_json::Value;
use tool::{errors, faultless, finding, json};

/// Four threads that have one arena, or one thread, or one that allocates nothing, or such a one beside threads that allocate for a
/// millisecond each, by its argument.
const WORKING: &str = r#"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void turn_over(void **blocks)
{
    for (int i = 0; i < 200; i++) blocks[i] = malloc(1500 + i % 7 * 300);
    for (int i = 0; i < 200; i++) free(blocks[i]);
}
static void *work(void *unused)
{
    void *blocks[200];
    for (;;) turn_over(blocks);
    return unused;
}
static void *work_shortly(void *unused)
{
    void *blocks[200];
    for (int turns = 0; turns < 60; turns++) turn_over(blocks);
    return unused;
}
static void begin_and_end_threads(void)
{
    for (;;) {
        pthread_t thread;
        pthread_create(&thread, 0, work_shortly, 0);
        for (volatile long turns = 0; turns < 300000; turns++) {}
        pthread_join(thread, 0);
    }
}
int main(int count, char **words)
{
    alarm(120);
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    puts("ready");
    fflush(stdout);
    if (!strcmp(words[1], "idle")) for (volatile long turns = 0;; turns++) {}
    if (!strcmp(words[1], "fleeting")) begin_and_end_threads();
    int threads = strcmp(words[1], "crowd") ? 0 : 3;
    pthread_t thread;
    while (threads--) pthread_create(&thread, 0, work, 0);
    work(0);
}
"#;

fn consultation_of(place: &Place, word: &str) -> Value {
    consultation_of_linked(place, &[], word)
}

fn consultation_of_linked(place: &Place, options: &[&str], word: &str) -> Value {
    let usual = ["-O1", "-fno-builtin", "-fno-omit-frame-pointer", "-pthread"];
    let program = place.compile("subject", WORKING, &[&usual, options].concat());
    let mut command = Command::new(program);
    command.arg(word).stdin(Stdio::null());
    for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_ARENA_MAX"] {
        command.env_remove(name);
    }
    let process = Running::ready(&mut command);
    let output = faultless(&["doctor", "--json", "--for", "4s", "--pid", &process.pid()]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    json(&output)
}

/// All samples and those inside malloc, where there are enough to speak of.
fn time_samples(report: &Value) -> Option<[u64; 2]> {
    let counted = ["samples", "inside"].map(|key| report["malloc_time"][key].as_u64());
    let [Some(samples), Some(inside)] = counted else {
        let verdict = report["verdict"]["sentence"].as_str().unwrap();
        assert!(verdict.contains("what malloc's calls take of its processor time was not seen"), "{verdict}");
        faultless_skipped::skipped("performance events are not permitted");
        return None;
    };
    if samples < 200 {
        faultless_skipped::skipped(format_args!("the machine left it time for {samples} samples"));
        return None;
    }
    Some([samples, inside])
}

#[test]
fn threads_that_wait_for_one_arena_are_seen_to() {
    let place = Place::new("doctor-locks");
    let report = consultation_of(&place, "crowd");
    if report["arena_waits"].is_null() {
        return faultless_skipped::skipped("what threads wait for may not be seen");
    }
    let locks = finding(&report, "locks");
    assert_eq!(locks["is_waste"], true, "{report}");
    let sentence = locks["sentence"].as_str().unwrap();
    assert!(sentence.contains(" of its 4 threads wait for the lock of malloc's only arena ("), "{sentence}");
    assert!(!report["verdict"]["line_to_try"].is_null(), "{report}");
}

#[test]
fn time_in_mallocs_calls_is_told_with_their_caller() {
    let place = Place::new("doctor-time");
    let report = consultation_of(&place, "alone");
    assert_eq!(finding(&report, "locks"), &Value::Null, "{report}");
    let Some([samples, inside]) = time_samples(&report) else { return };
    assert!(inside * 2 > samples, "{report}");
    let sentence = finding(&report, "time")["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("malloc's calls take ") && sentence.ends_with(" of that for turn_over"),
        "{sentence}"
    );
}

#[test]
fn of_a_process_that_allocates_nothing_no_time_is_put_down_to_malloc() {
    let place = Place::new("doctor-no-time");
    let report = consultation_of(&place, "idle");
    let concerns = ["locks", "time"].map(|concern| finding(&report, concern));
    assert_eq!(concerns, [&Value::Null; 2], "{report}");
    let Some([_, inside]) = time_samples(&report) else { return };
    assert_eq!(inside, 0, "{report}");
    let verdict = report["verdict"]["sentence"].as_str().unwrap();
    assert!(verdict.ends_with("malloc's calls take hardly any of the time in the program"), "{verdict}");
}

/// Whether the time was sampled, and said to be unseen.
fn is_told_as_unseen(report: &Value, reason: &str) -> bool {
    let verdict = report["verdict"]["sentence"].as_str().unwrap();
    let remarks = report["remarks"].to_string();
    verdict.contains("what malloc's calls take of its processor time was not seen")
        && remarks.contains(reason)
}

#[test]
fn of_threads_that_soon_end_it_is_said_that_their_time_was_not_seen() {
    let place = Place::new("doctor-fleeting");
    let report = consultation_of(&place, "fleeting");
    let user_s = report["activity"]["user_seconds"].as_f64().unwrap();
    if report["malloc_time"].is_null() || user_s < 1.0 {
        return faultless_skipped::skipped(
            "performance events are not permitted, or the machine left it no time",
        );
    }
    assert!(is_told_as_unseen(&report, "that of threads that soon ended or did little"), "{report}");
    assert_eq!(finding(&report, "time"), &Value::Null, "{report}");
}

#[test]
fn of_a_program_that_malloc_is_linked_into_without_names_it_is_said_that_its_time_was_not_seen() {
    let place = Place::new("doctor-nameless");
    let report = consultation_of_linked(&place, &["-static", "-s"], "alone");
    if report["malloc_time"]["samples"].as_u64().is_none_or(|samples| samples < 200) {
        return faultless_skipped::skipped(
            "performance events are not permitted, or the machine left it no time",
        );
    }
    assert!(is_told_as_unseen(&report, "of the samples no function has a name"), "{report}");
}
