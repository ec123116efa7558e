//! `faultless watch`: forks, execs and exits that are easily lost or taken for others, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs;
use std::process::Stdio;

use place::Place;
use serde_json::Value;
use tool::{errors, faultless, json_lines};

/// The status of a command that is this C code, and the lines of a watch of it and its children.
fn watched(name: &str, interval: &str, code: &str) -> (Option<i32>, Vec<Value>) {
    let place = Place::new(name);
    let head = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n";
    let program = place.compile("program", &format!("{head}{code}"), &["-pthread"]);
    let record = place.file("record");
    let words = ["watch", "--children", "-i", interval, "--record", &record, "--", &program];
    let status = faultless(&words).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    (status.code(), json_lines(&fs::read_to_string(&record).unwrap()))
}

/// Exits with this status, in the order of their lines.
fn exits(lines: &[Value], status: i32) -> Vec<&Value> {
    lines.iter().filter(|line| line["event"] == "exit" && line["status"] == status).collect()
}

/// Processes that were seen to live for so long and to end. How they ended may be unknown where their parent takes notice at once.
fn lived(lines: &[Value], least_s: f64) -> usize {
    let time = |line: &Value| line["t"].as_f64().unwrap();
    let ends = lines.iter().filter(|line| line["event"] == "exit");
    let lived_s = ends.map(|end| {
        let is_begin = |line: &&Value| line["line"] == "process" && line["process"] == end["process"];
        time(end) - time(lines.iter().find(is_begin).unwrap())
    });
    lived_s.filter(|lived_s| *lived_s >= least_s).count()
}

fn is_deaf(lines: &[Value]) -> bool {
    let is_deaf = lines.iter().any(|line| {
        line["text"].as_str().is_some_and(|text| text.contains("seen only as differences between samples"))
    });
    if is_deaf {
        faultless_skipped::skipped("the kernel does not tell of forks here");
    }
    is_deaf
}

#[test]
fn children_are_watched_to_their_end_when_their_parent_ends_right_after_the_forks() {
    let code = "int main(void) { usleep(400000);
        for (int i = 0; i < 10; i++) if (!fork()) { usleep(800000); _exit(9); }
        _exit(4); }";
    let (status, lines) = watched("last", "100ms", code);
    assert_eq!(status, Some(4));
    if !is_deaf(&lines) {
        // The parent, too.
        assert_eq!(lived(&lines, 0.3), 11, "{lines:?}");
    }
}

#[test]
fn children_of_a_child_that_was_gone_too_soon_to_be_seen_are_watched() {
    let code = "int main(void) { usleep(200000);
        for (int i = 0; i < 10; i++) {
            pid_t child = fork();
            if (!child) { if (!fork()) { usleep(900000); _exit(9); } _exit(0); }
            waitpid(child, 0, 0);
            usleep(5000);
        }
        usleep(1200000); return 4; }";
    let (status, lines) = watched("daemons", "100ms", code);
    assert_eq!(status, Some(4));
    if !is_deaf(&lines) {
        assert_eq!(lived(&lines, 0.5), 11, "{lines:?}");
    }
}

#[test]
fn the_end_of_the_first_thread_is_not_taken_for_that_of_the_process() {
    let code = "static void *last(void *none) { usleep(600000); exit(5); }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, last, 0); pthread_exit(0); }";
    let (status, lines) = watched("thread", "10m", code);
    assert_eq!(status, Some(5));
    assert!(exits(&lines, 5)[0]["t"].as_f64().unwrap() > 0.5, "{lines:?}");
    assert!(lines.iter().filter(|line| line["line"] == "sample").count() < 10, "{lines:?}");
}

#[test]
fn a_thread_that_becomes_another_program_does_not_end_the_process() {
    let code = "static void *other(void *none) { usleep(100000);
            execlp(\"sh\", \"sh\", \"-c\", \"sleep 0.5; exit 6\", (char *)0); return 0; }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, other, 0); pthread_join(thread, 0); }";
    let (status, lines) = watched("exec", "10m", code);
    assert_eq!(status, Some(6));
    let exit = exits(&lines, 6);
    assert!(exit[0]["process"] == 0 && exit[0]["t"].as_f64().unwrap() > 0.5, "{lines:?}");
    let of_first = lines.iter().filter(|line| line["line"] == "sample" && line["process"] == 0);
    assert!(of_first.count() < 10, "{lines:?}");
}

#[test]
fn a_program_before_an_exec_keeps_its_figures_to_itself() {
    let place = Place::new("large");
    let code = "#include <string.h>\n#include <stdlib.h>\n#include <unistd.h>\n
        int main(void) { memset(malloc(64 << 20), 1, 64 << 20); usleep(500000); execlp(\"sleep\", \"sleep\", \"0.5\", NULL); }";
    let program = place.compile("large", code, &[]);
    let output = faultless(&["watch", "--lines", "-i", "50ms", "--", &program]).output().unwrap();
    let said = errors(&output);
    let sums = said.split_once("peak RSS").unwrap().1;
    let row = |name: &str| -> Vec<&str> {
        let row = sums.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split_whitespace().collect()
    };
    let (large, sleep) = (row("large"), row("sleep"));
    let figure = |row: &[&str], at: usize| row[at].replace(',', "").parse::<f64>().unwrap();
    assert!(figure(&large, 2) > 64.0 && figure(&large, 6) > 16_000.0 && large.ends_with(&["exec"]), "{said}");
    assert!(
        figure(&sleep, 2) < 16.0 && figure(&sleep, 6) < 8_000.0 && sleep.ends_with(&["status", "0"]),
        "{said}"
    );
}
