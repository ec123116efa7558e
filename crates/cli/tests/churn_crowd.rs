//! `faultless churn --malloc --pid` through the real program, on a process that leaves others no CPU; apart from tests that need some.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::{Command, Stdio};
use std::thread::spawn;

use place::Place;
use running::{Running, SOON, wait_until};

/// 200 threads that call malloc and free 200 times each, sleep for 50 ms, and keep count.
const CROWD: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static _Atomic unsigned long calls;
static void *run(void *unused) {
    for (;;) {
        for (int i = 0; i < 200; i++) free(malloc(100));
        calls += 200;
        usleep(50000);
    }
    return unused;
}
int main(int count, char **names) {
    int file = open(names[count - 1], O_WRONLY | O_CREAT, 0600);
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 0; i < 200; i++) pthread_create(&thread, &small, run, 0);
    for (;;) {
        char line[32];
        if (pwrite(file, line, sprintf(line, "%020lu\n", calls), 0) < 0) return 1;
        usleep(20000);
    }
}"#;

#[test]
fn a_crowd_that_keeps_every_cpu_busy_is_looked_at_for_as_long_as_was_asked_and_goes_on() {
    let place = Place::new("busy");
    let program = place.compile("busy", CROWD, &["-fno-builtin", "-pthread"]);
    let file = place.file("count");
    let running = Running::start(Command::new(&program).arg(&file));
    let counted = || running::written_line(&file).parse::<u64>().unwrap();
    wait_until(|| counted() > 0);
    let mut tool = tool::malloc_of(&running.pid());
    let tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let answer = spawn(|| tool.wait_with_output().unwrap());
    // It took most of a minute, waiting for its turn.
    assert!(running::is_so_within(SOON, || answer.is_finished()), "it waits for a CPU");
    let meanwhile = counted();
    let Some(report) = tool::probed(&answer.join().unwrap()) else { return };
    let calls = report["functions"][0]["calls"].as_u64().unwrap();
    // Each thread has up to 200 of them still to add.
    assert!((1..=meanwhile + 40_000).contains(&calls), "{calls} of {meanwhile}: {report}");
    assert_eq!(report["counts_are_lower_bounds"], report["lost"].as_u64() > Some(0), "{report}");
    wait_until(|| counted() > meanwhile);
}
