//! `faultless churn --malloc --pid` through the real program, on processes that are not as usual.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use place::Place;
use serde_json::Value;
use tool::errors;

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

struct Running(Child);

impl Running {
    fn start(program: &str, libraries: &str) -> Self {
        let running = Self(Command::new(program).env("LD_LIBRARY_PATH", libraries).spawn().unwrap());
        // Until its loader is through.
        sleep(Duration::from_millis(200));
        running
    }

    fn churn(&self) -> Output {
        let words = ["churn", "--malloc", "--json", "--for", "300ms", "--pid", &self.0.id().to_string()];
        tool::faultless(&words).output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compile(place: &Place, name: &str, options: &[&str]) -> Option<String> {
    let (file, program) = (place.file(&format!("{name}.c")), place.file(name));
    fs::write(&file, STEADY).unwrap();
    let mut command = Command::new("cc");
    command.args(["-fno-builtin", "-o", &program, &file]).args(options).stderr(Stdio::null());
    command.status().unwrap().success().then_some(program)
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
    let program = compile(&place, "steady", &[]).unwrap();
    let (own, new) = (place.file("libc.so.6"), place.file("new"));
    fs::copy(libc(), &own).unwrap();
    let running = Running::start(&program, place.0.to_str().unwrap());
    let before = running.churn();
    if !before.status.success() {
        assert!(errors(&before).contains("cannot set probes"), "{}", errors(&before));
        return faultless_skipped::skipped("probes are not permitted");
    }
    fs::copy(libc(), &new).unwrap();
    fs::rename(new, own).unwrap();
    let after = running.churn();
    assert!(after.status.success(), "{}", errors(&after));
    for output in [before, after] {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["frees"].as_u64() > Some(3), "{report}");
    }
}

#[test]
fn the_probes_of_many_threads_are_set_and_removed_in_time() {
    let place = Place::new("crowd");
    let program = compile(&place, "crowd", &["-DTHREADS=40", "-pthread"]).unwrap();
    let running = Running::start(&program, "");
    let began = Instant::now();
    let output = running.churn();
    let took = began.elapsed();
    if !output.status.success() {
        assert!(errors(&output).contains("cannot set probes"), "{}", errors(&output));
        return faultless_skipped::skipped("probes are not permitted");
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["frees"].as_u64() > Some(100), "{report}");
    // 1,280 probes of their own took minutes.
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_32_bit_process_is_refused_and_not_said_to_call_nothing() {
    let place = Place::new("narrow");
    let Some(program) = compile(&place, "narrow", &["-m32"]) else {
        return faultless_skipped::skipped("no compiler for 32-bit programs");
    };
    let output = Running::start(&program, "").churn();
    assert_eq!(output.status.code(), Some(126), "{}", errors(&output));
    assert!(errors(&output).contains("is a 32-bit program"), "{}", errors(&output));
}
