//! What `faultless faults` counts while it changes how many faults it looks at, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::process::{Command, Output};

use place::Place;
use running::{Running, stopped};
use serde_json::Value;
use tool::{errors, json, was_permitted};

/// 60 threads fault all at once, six times, with pauses that are long enough for finer sampling.
const BURSTS: &str = r"
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
enum { BYTES = 4 << 20 };
static void *burst(void *unused) {
    for (int turn = 0; turn < 6; turn++) {
        volatile char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (int place = 0; place < BYTES; place += 4096) memory[place] = 1;
        munmap((void *)memory, BYTES);
        nanosleep(&(struct timespec){0, 400000000}, 0);
    }
    return unused;
}
int main(void) {
    pthread_t threads[60];
    for (int i = 0; i < 60; i++) pthread_create(&threads[i], 0, burst, 0);
    for (int i = 0; i < 60; i++) pthread_join(threads[i], 0);
}";

#[test]
fn faults_of_many_threads_are_counted_once_while_the_sampling_changes() {
    let place = Place::new("bursts");
    let program = place.compile("bursts", BURSTS, &["-pthread"]);
    let output = tool::faultless(&["faults", "--json", "--", &program]).output().unwrap();
    if !was_permitted(&output) {
        return;
    }
    let value = json(&output);
    let agreement = &value["agreement"];
    let count = |part: &str| agreement[part]["minor"].as_u64().unwrap();
    assert!(count("accounts") > 300_000, "{agreement}");
    assert!(count("beyond_accounts") <= 20 && count("without_event") < 100, "{agreement}");
}

/// 300 processes that each take some 75 faults, in the same order.
const SHORT: &str = r"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PAGES = 30, BYTES = PAGES * 4096 };
__attribute__((noinline)) static void early(volatile char *memory) {
    for (int place = 0; place < BYTES; place += 4096) memory[place] = 1;
}
__attribute__((noinline)) static void late(volatile char *memory) {
    for (int place = 0; place < BYTES; place += 4096) memory[place] = 1;
}
int main(void) {
    for (int i = 0; i < 300; i++) {
        if (fork() == 0) {
            char *memory = mmap(0, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise(memory, 2 * BYTES, MADV_NOHUGEPAGE);
            early(memory);
            late(memory + BYTES);
            _exit(0);
        }
        wait(0);
    }
}";

#[test]
fn who_always_takes_the_same_fault_of_short_processes_is_not_accused_of_all() {
    let place = Place::new("short");
    let program = place.compile("short", SHORT, &[]);
    let output = tool::faultless(&["faults", "--every", "53", "--", &program]).output().unwrap();
    if !was_permitted(&output) {
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\nNo function stands out for certain: up to "), "{text}");
    assert!(text.contains("; --every 2 looks at more\n"), "{text}");
}

/// 100 threads that fault now and then.
const CROWD: &str = r"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
static void *run(void *unused) {
    for (;;) {
        char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *page = 1;
        munmap(page, 4096);
        usleep(20000);
    }
    return unused;
}
int main(void) {
    pthread_t thread;
    alarm(60);
    for (int i = 1; i < 100; i++) pthread_create(&thread, 0, run, 0);
    run(0);
}";

#[test]
fn where_files_are_few_fewer_periods_are_chosen_from() {
    let place = Place::new("crowd");
    let program = place.compile("crowd", CROWD, &["-pthread"]);
    let crowd = Running::start(&mut Command::new(program));
    // An event for each thread, CPU and period; all periods take more than twice as many files as one.
    let limit = "ulimit -n $((100 * (4 * $(getconf _NPROCESSORS_ONLN) + 3) + 100))";
    let mut value = Value::Null;
    // Where others keep the CPUs busy it takes few.
    for time in ["1s", "10s"] {
        let words = ["faults", "--json", "--for", time, "--pid", &crowd.pid()];
        let output = tool::after(limit, &words).output().unwrap();
        assert!(!errors(&output).contains("too many open files"), "{}", errors(&output));
        if !was_permitted(&output) {
            return;
        }
        value = json(&output);
        if value["agreement"]["in_programs"]["minor"].as_u64() > Some(1000) {
            return;
        }
    }
    panic!("{value:#}");
}

#[test]
fn a_process_that_is_stopped_is_said_to_be() {
    let running = stopped();
    let pid = running.pid();
    let words = ["faults", "--json", "--for", "100ms", "--pid", &pid];
    let output = tool::faultless(&words).output().unwrap();
    if !was_permitted(&output) {
        return;
    }
    let says = format!("is stopped (state T) and does nothing until it goes on: kill -CONT {pid}\n");
    assert!(errors(&output).contains(&says), "{}", errors(&output));
    let remarks = json(&output)["remarks"].to_string();
    assert!(remarks.contains("stopped, as it was when we began"), "{remarks}");
}

/// Holds a child, and says which.
const DEBUGGER: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        return 0;
    }
    waitpid(child, 0, WUNTRACED);
    puts("ready");
    fflush(stdout);
    pause();
}"#;

#[test]
fn a_process_that_a_debugger_holds_is_said_to_be_held() {
    let place = Place::new("held");
    let mut debugger = Running::ready(&mut Command::new(place.compile("debugger", DEBUGGER, &[])));
    let tracer = debugger.pid();
    let children = format!("/proc/{tracer}/task/{tracer}/children");
    let Ok(held) = fs::read_to_string(children) else {
        return faultless_skipped::skipped("this kernel does not list children");
    };
    let words = ["faults", "--json", "--for", "100ms", "--pid", held.trim()];
    let output = tool::faultless(&words).output().unwrap();
    let words = ["churn", "--by", "ptrace", "--for", "100ms", "--pid", held.trim()];
    let refused = tool::faultless(&words).output().unwrap();
    debugger.0.kill().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", errors(&refused));
    let says =
        format!("cannot trace process {}: process {tracer} traces it already (end that)\n", held.trim());
    assert!(errors(&refused).ends_with(&says), "{}", errors(&refused));
    if !was_permitted(&output) {
        return;
    }
    let says = format!("is held by its tracer, process {tracer} (debugger), and does nothing");
    assert!(errors(&output).contains(&says), "{}", errors(&output));
    assert!(json(&output)["remarks"].to_string().contains("held it, as when we began"));
}

#[test]
fn as_many_files_as_are_asked_for_are_enough_and_two_thirds_are_not() {
    let limited = |files: usize| {
        let words = ["faults", "--", "true"];
        tool::after(&format!("ulimit -n {files}"), &words).output().unwrap()
    };
    let refused = errors(&limited(12));
    let Some((_, rest)) = refused.split_once("(ulimit -n ") else {
        return faultless_skipped::skipped(refused);
    };
    let files = rest.split(',').next().unwrap().parse().unwrap();
    let is_whole = |output: &Output| {
        output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("not looked at")
    };
    let (enough, few) = (limited(files), limited(files * 2 / 3));
    assert!(is_whole(&enough), "{files} files: {}", errors(&enough));
    assert!(!is_whole(&few), "{files} files are more than enough");
}
