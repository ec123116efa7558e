//! `faultless churn --malloc`: what is counted where there is more than it has room to describe, and what a call is.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use place::Place;
use serde_json::Value;
use tool::{errors, json, text};

const HEAD: &str = "
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
";

/// What is said of a program of this code, as text or as JSON.
fn output(place: &Place, body: &str, form: &[&str]) -> std::process::Output {
    let program = place.compile("program", &format!("{HEAD}{body}"), &["-O1", "-fno-builtin", "-pthread"]);
    let words = [&["churn", "--malloc"], form, &["--", &program]].concat();
    let output = tool::faultless(&words).env("TMPDIR", place.0.join("tmp")).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    output
}

fn report(place: &Place, body: &str) -> Value {
    json(&output(place, body, &["--json"]))
}

/// Calls of a function that got a block of any size, and others.
fn calls(report: &Value, function: &str) -> u64 {
    let functions = report["functions"].as_array().unwrap();
    let found = functions.iter().find(|entry| entry["function"] == function);
    found.map_or(0, |entry| entry["calls"].as_u64().unwrap())
}

#[test]
fn a_realloc_that_frees_is_a_call_and_a_free_of_nothing_is_none() {
    let place = Place::with_temporary("nothing");
    let body = "int main(void) {
        for (int i = 0; i < 50; i++) kept = realloc(malloc(100), 0);
        for (int i = 0; i < 50; i++) free(0);
        for (int i = 0; i < 50; i++) free(realloc(0, 0));
        return 0;
    }";
    let report = report(&place, body);
    assert_eq!(["malloc", "realloc"].map(|function| calls(&report, function)), [50, 100]);
    let rest = ["frees", "freed_by_realloc", "live_blocks"].map(|key| report[key].as_u64());
    assert_eq!(rest, [Some(50), Some(50), Some(0)], "{report}");
    let text = text(&output(&place, body, &[]));
    assert!(text.contains(": 200 calls of malloc and its family in "), "{text}");
    assert!(text.contains("Every call was counted and described; nothing is estimated."), "{text}");
}

/// All of these threads are there at once, with two blocks of 200 bytes each.
const CROWD: &str = "
enum { THREADS = 1100 };
static pthread_barrier_t all;
static void *run(void *unused) {
    kept = malloc(200);
    pthread_barrier_wait(&all);
    free(malloc(200));
    return 0;
}
int main(void) {
    static pthread_t threads[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_barrier_init(&all, 0, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], &small, run, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}";

#[test]
fn threads_without_room_for_descriptions_are_counted() {
    let place = Place::with_temporary("crowd");
    let report = report(&place, CROWD);
    assert_eq!((calls(&report, "malloc"), report["uncounted_threads"].as_u64()), (2200, Some(0)));
    let sizes = report["sizes"].as_array().unwrap();
    let small = sizes.iter().find(|size| size["from_bytes"] == 128).unwrap();
    assert_eq!(small["live"]["blocks"].as_f64().map(f64::round), Some(1100.0), "{small}");
    assert!(report["live_blocks"].as_u64() >= Some(1100), "{}", report["live_blocks"]);
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("callers and lives of 77 threads, whose calls are counted alone"), "{remarks}");
}

#[test]
fn threads_whose_last_free_comes_after_all_destructors_leave_their_rings_to_others() {
    let place = Place::with_temporary("last-free");
    // The text of the error is freed when the thread has no more destructors.
    let body = "
#include <dlfcn.h>
static void *run(void *unused) { kept = dlsym(0, \"nothing_has_this_name\"); return unused; }
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 1100; i++) { pthread_create(&thread, 0, run, 0); pthread_join(thread, 0); }
    return 0;
}";
    let report = report(&place, body);
    let remarks = report["remarks"].to_string();
    assert!(!remarks.contains("counted alone") && report["uncounted_threads"] == 0, "{remarks}");
}

#[test]
fn the_frees_of_c23_are_frees() {
    let place = Place::with_temporary("sized");
    let body = "
#include <dlfcn.h>
int main(void) {
    void (*sized)(void *, size_t) = dlsym(0, \"free_sized\");
    void (*aligned)(void *, size_t, size_t) = dlsym(0, \"free_aligned_sized\");
    for (int i = 0; i < 50; i++) sized(malloc(100), 100);
    for (int i = 0; i < 50; i++) aligned(aligned_alloc(64, 128), 64, 128);
    return 0;
}";
    let report = report(&place, body);
    assert_eq!((report["frees"].as_u64(), report["live_blocks"].as_u64()), (Some(100), Some(0)), "{report}");
}

/// As on ext3, or on NFS before version 4.2.
#[test]
fn a_file_system_that_makes_no_room_when_asked_is_written_to_and_nothing_is_lost() {
    let place = Place::with_temporary("roomless");
    let body = "
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    static void *run(void *unused) {
        for (int i = 0; i < 25; i++) free(kept = malloc(100));
        return unused;
    }
    int main(int count, char **words) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        if (count == 1) {
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
            return execl(words[0], words[0], \"filtered\", NULL);
        }
        pthread_t thread;
        for (int i = 0; i < 2; i++)
            if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL)) return 9;
        return 0;
    }";
    let output = output(&place, body, &[]);
    let text = text(&output) + &errors(&output);
    assert!(!text.contains("no room"), "{text}");
    assert_eq!(calls(&report(&place, body), "malloc"), 50);
}
