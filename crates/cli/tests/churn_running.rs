//! `faultless churn --malloc --pid` through the real program, on processes that are not as usual, and what a killed run leaves.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use faultless_probe::process_list;
use faultless_probe::tracefs::Tracefs;
use place::Place;
use running::{Running, SOON, stopped, wait_until};
use tool::{assert_refused, errors, json, probed, was_permitted};

/// Calls malloc and free 500 times a second in each thread.
const STEADY: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#ifndef THREADS
#define THREADS 1
#endif
static void *run(void *unused) { for (;;) { free(malloc(3000)); usleep(2000); } return unused; }
int main(void) {
    pthread_t thread;
    for (int i = 1; i < THREADS; i++) pthread_create(&thread, 0, run, 0);
    run(0);
}";

fn start(program: &str, libraries: &str) -> Running {
    let running = Running::start(Command::new(program).env("LD_LIBRARY_PATH", libraries));
    let maps = format!("/proc/{}/maps", running.pid());
    wait_until(|| fs::read_to_string(&maps).unwrap().contains("/libc.so"));
    running
}

fn churn(running: &Running) -> Command {
    tool::malloc_of(&running.pid())
}

/// The libc of this test.
fn libc() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    paths.find(|path| path.ends_with("/libc.so.6")).unwrap().to_owned()
}

#[test]
fn a_libc_that_was_replaced_since_it_was_mapped_is_the_one_that_is_looked_at() {
    let place = Place::new("replaced");
    let program = place.compile("steady", STEADY, &["-fno-builtin"]);
    let (own, new) = (place.file("libc.so.6"), place.file("new"));
    fs::copy(libc(), &own).unwrap();
    let running = start(&program, place.0.to_str().unwrap());
    let Some(before) = probed(&churn(&running).output().unwrap()) else { return };
    fs::copy(libc(), &new).unwrap();
    fs::rename(new, own).unwrap();
    let after = churn(&running).output().unwrap();
    assert!(after.status.success(), "{}", errors(&after));
    for report in [before, json(&after)] {
        assert!(report["frees"].as_u64() > Some(3), "{report}");
    }
}

/// What a tool answers, and the most probes that had a name of its at one time.
fn with_most_named(tool: Child) -> (Output, usize) {
    let prefix = format!("faultless_{}_", tool.id());
    let tracefs = Tracefs::open();
    let answer = spawn(|| tool.wait_with_output().unwrap());
    let mut most = 0;
    while !answer.is_finished() {
        let list = tracefs.as_ref().map(|tracefs| tracefs.text("uprobe_events").unwrap_or_default());
        most = most.max(list.unwrap_or_default().matches(&prefix).count());
        sleep(Duration::from_millis(20));
    }
    (answer.join().unwrap(), most)
}

#[test]
fn all_threads_share_one_probe_at_each_function() {
    let place = Place::new("crowd");
    let program = place.compile("crowd", STEADY, &["-fno-builtin", "-DTHREADS=40", "-pthread"]);
    let running = start(&program, "");
    let tool = churn(&running).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (output, most) = with_most_named(tool);
    let Some(report) = probed(&output) else { return };
    assert!(report["frees"].as_u64() > Some(100), "{report}");
    // 1,280 probes of their own took minutes: entries of six functions and the returns of five are enough.
    assert!((1..=11).contains(&most), "{most}");
}

#[test]
fn a_32_bit_process_is_refused_and_not_said_to_call_nothing() {
    let place = Place::new("narrow");
    let Some(program) = place.try_compile("narrow", STEADY, &["-fno-builtin", "-m32"]) else {
        return faultless_skipped::skipped("no compiler for 32-bit programs");
    };
    assert_refused(&mut churn(&start(&program, "")), 126, "is a 32-bit program");
}

#[test]
fn a_process_that_is_stopped_is_said_to_be() {
    let running = stopped();
    for words in [&["--by", "ptrace"][..], &["--by", "mmap-records"], &["--malloc"]] {
        let pid = running.pid();
        let words = [&["churn", "--json", "--for", "100ms", "--pid", &pid], words].concat();
        let output = tool::faultless(&words).output().unwrap();
        if !was_permitted(&output) {
            continue;
        }
        let says = format!("is stopped (state T) and does nothing until it goes on: kill -CONT {pid}\n");
        assert!(errors(&output).contains(&says), "{}", errors(&output));
        let remarks = json(&output)["remarks"].to_string();
        assert!(remarks.contains("stopped, as it was when we began"), "{remarks}");
    }
}

#[test]
fn children_from_before_are_said_not_to_be_seen() {
    let running = Running::start(Command::new("sh").args(["-c", "sleep 20 & sleep 20 & wait"]));
    wait_until(|| process_list::family(running.pid().parse().unwrap()).len() == 3);
    for way in ["ptrace", "mmap-records"] {
        let words = ["churn", "--json", "--for", "50ms", "--by", way, "--pid", &running.pid()];
        let output = tool::faultless(&words).output().unwrap();
        if !was_permitted(&output) {
            continue;
        }
        let remarks = json(&output)["remarks"].to_string();
        assert!(remarks.contains("anything of 2 processes that it had started before ("), "{remarks}");
    }
}

#[test]
fn what_setting_and_removing_probes_costs_is_in_the_figure_and_said_to_be_estimated() {
    let place = Place::new("storm");
    let program = place.compile(
        "storm",
        "#include <stdlib.h>
        int main(void) { for (;;) free(malloc(100)); }",
        &["-fno-builtin"],
    );
    let running = start(&program, "");
    let Some(report) = probed(&churn(&running).output().unwrap()) else { return };
    let remarks = report["remarks"].to_string();
    assert!(
        remarks.contains("To set and to remove them took ")
            && remarks.contains("what that costs is estimated from the windows"),
        "{remarks}"
    );
    assert!(report["cost"]["counting_seconds"].as_f64() > Some(0.0), "{report}");
}

/// Begins blocks with realloc and aligned_alloc, which glibc leaves to malloc by a jump.
const GROWING: &str = r"
#include <stdlib.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void grow(void) { kept = realloc(0, 100); free(kept); }
__attribute__((noinline)) void align(void) { kept = aligned_alloc(16, 200); free(kept); }
int main(void) { for (;;) { grow(); align(); usleep(500); } }";

#[test]
fn who_called_realloc_is_known_also_where_that_jumps_to_malloc() {
    let place = Place::new("growing");
    let program = place.compile("growing", GROWING, &["-fno-builtin"]);
    let running = start(&program, "");
    let Some(report) = probed(&churn(&running).output().unwrap()) else { return };
    let callers = report["callers"].as_array().unwrap();
    let names: Vec<_> = callers.iter().map(|caller| caller["function"].as_str().unwrap()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| ["grow", "align"].contains(name)), "{report}");
}

/// Keeps ten blocks of 1,000 bytes in each round; a child gives its copies back and takes other blocks, a thread takes others yet.
const MASTER: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *run(void *unused) { free(malloc(9000)); return unused; }
int main(void) {
    for (;;) {
        void *kept[10];
        pthread_t thread;
        for (int i = 0; i < 10; i++) kept[i] = malloc(1000);
        if (fork() == 0) {
            for (int i = 0; i < 10; i++) free(kept[i]);
            *(volatile char *)malloc(70000) = 1;
            _exit(0);
        }
        wait(0);
        pthread_create(&thread, 0, run, 0);
        pthread_join(thread, 0);
        usleep(10000);
    }
}";

#[test]
fn what_children_free_of_their_copies_lives_on_in_the_process_and_new_threads_are_its_own() {
    let place = Place::new("master");
    let program = place.compile("master", MASTER, &["-fno-builtin", "-pthread"]);
    let running = start(&program, "");
    let size = |report: &serde_json::Value, from: u64| {
        let sizes = report["sizes"].as_array().unwrap();
        sizes.iter().find(|size| size["from_bytes"] == from).cloned().unwrap_or_default()
    };
    // On a busy machine the windows of one look may hold no call of a child, or none of a thread.
    let mut looks = (0..5).map(|_| probed(&churn(&running).output().unwrap()));
    let is_enough = |report: &Option<serde_json::Value>| {
        report.as_ref().is_none_or(|report| {
            let has_threads = size(report, 8192)["freed"]["blocks"].as_f64() > Some(0.0);
            has_threads && report["remarks"].to_string().contains("that it started meanwhile: ")
        })
    };
    let look = looks.find(is_enough).expect("a look that tells of calls of children and threads");
    let Some(report) = look else { return };
    let [kept, of_threads, of_children] = [512, 8192, 65536].map(|from| size(&report, from));
    assert!(kept["live"]["blocks"].as_f64() > Some(9.0) && kept["freed"]["blocks"] == 0.0, "{report}");
    assert!(of_threads["freed"]["blocks"].as_f64() > Some(0.0), "{report}");
    assert!(of_children.is_null() && report["processes"] == 1, "{report}");
}

/// Directories that the run of this number made, in a place and where files are memory.
fn directories(place: &Place, run: u32) -> Vec<PathBuf> {
    let entries =
        [place.0.join("tmp"), "/dev/shm".into()].map(|place| fs::read_dir(place).into_iter().flatten());
    let paths = entries.into_iter().flatten().map(|entry| entry.unwrap().path());
    let name = format!("/faultless-{run}-");
    paths.filter(|path| path.to_str().unwrap().contains(&name)).collect()
}

#[test]
fn what_a_killed_run_left_goes_with_the_next_run_after_its_command_has_ended() {
    let place = Place::with_temporary("killed");
    let churn = |command: &[&str]| {
        let mut churn = tool::faultless(&[&["churn", "--malloc", "--json", "--"], command].concat());
        churn.env("TMPDIR", place.0.join("tmp"));
        churn
    };
    let (number, go_on, errors_of_command) =
        (place.file("number"), place.file("go_on"), place.file("errors"));
    let script = format!("echo $$ > {number}; until test -e {go_on}; do sleep 0.05; done; exec sleep 0.5");
    let mut command = churn(&["sh", "-c", &script]);
    let mut run =
        Running::start(command.stdout(Stdio::null()).stderr(fs::File::create(&errors_of_command).unwrap()));
    let command: i32 = running::written_line(&number).parse().unwrap();
    let id = run.0.id();
    let left = directories(&place, id);
    assert_eq!(left.len(), 2, "{left:?}");
    run.0.kill().unwrap();
    run.0.wait().unwrap();

    assert!(churn(&["true"]).output().unwrap().status.success());
    assert_eq!(directories(&place, id), left, "its command still starts programs with the recorder");
    fs::write(go_on, "").unwrap();
    wait_until(|| running::has_ended(command));
    assert_eq!(fs::read_to_string(errors_of_command).unwrap(), "");
    assert!(churn(&["true"]).output().unwrap().status.success());
    assert_eq!(directories(&place, id), Vec::<PathBuf>::new());
}

/// Once it is traced, its first thread ends, or waits in a call of vfork for a child that sleeps.
const UNABLE_TO_STOP: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int is_traced(void) {
    char line[200];
    int tracer = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "TracerPid: %d", &tracer);
    fclose(status);
    return tracer;
}
static void *wait_long(void *unused) { sleep(600); return unused; }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, wait_long, 0);
    puts("ready");
    fflush(stdout);
    while (!is_traced()) usleep(1000);
#ifdef VFORK
    if (vfork() == 0) { sleep(600); _exit(0); }
#endif
    syscall(SYS_exit, 0);
}"#;

#[test]
fn a_process_with_a_thread_that_cannot_stop_is_let_go_when_the_time_is_over() {
    let place = Place::new("unable");
    for option in ["-DVFORK", "-DEND"] {
        let program = place.compile("unable", UNABLE_TO_STOP, &[option, "-pthread"]);
        let mut running = Running::ready(&mut Command::new(&program));
        // Time enough to see that it is traced also where others keep the CPUs busy.
        let words = ["churn", "--by", "ptrace", "--json", "--for", "2s", "--pid", &running.pid()];
        let mut tool = Running::start(tool::faultless(&words).stdout(Stdio::null()).stderr(Stdio::piped()));
        let ending = tool.end_within(SOON);
        let vforked = process_list::family(running.pid().parse().unwrap());
        let threads = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
        let texts: Vec<_> = threads
            .map(|thread| fs::read_to_string(thread.unwrap().path().join("status")).unwrap())
            .collect();
        // The children first: their parent waits for them.
        for pid in vforked.iter().filter(|pid| pid.to_string() != running.pid()) {
            running::send("KILL", pid);
        }
        running.0.kill().unwrap();
        let ending = ending.expect("it waits for a thread that does not stop");
        if !ending.success() {
            faultless_skipped::skipped("nobody may trace here");
            continue;
        }
        assert_eq!((vforked.len(), texts.len()), (if option == "-DVFORK" { 2 } else { 1 }, 2), "{option}");
        for text in texts {
            assert!(text.contains("TracerPid:\t0\n") && !text.contains("State:\tt"), "{option}: {text}");
        }
    }
}
