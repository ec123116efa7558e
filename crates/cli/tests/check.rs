//! `faultless check` through the real program: as whoever runs the tests, and as a user without rights where root can become one.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use place::Place;
use running::Running;
use serde_json::Value;
use tool::{assert_refused, errors, faultless, json, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_faultless");

fn check(words: &[&str]) -> Command {
    faultless(&[&["check"], words].concat())
}

fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    json(output)
}

fn answer<'report>(report: &'report Value, mechanism: &str, subject: &str) -> &'report Value {
    let attempts = report["attempts"].as_array().unwrap();
    let is_it = |attempt: &&Value| attempt["mechanism"] == mechanism && attempt["subject"] == subject;
    attempts.iter().find(is_it).unwrap_or_else(|| panic!("{mechanism} {subject}: {report}"))
}

fn allowed<'report>(report: &'report Value, instrument: &str, subject: &str) -> &'report str {
    let instruments = report["instruments"].as_array().unwrap();
    let is_it = |verdict: &&Value| verdict["instrument"] == instrument && verdict["subject"] == subject;
    instruments.iter().find(is_it).unwrap()["allowed"].as_str().unwrap()
}

/// A copy of the program that everybody may run, wherever it was built.
fn copied(place: &Place) -> String {
    fs::set_permissions(&place.0, fs::Permissions::from_mode(0o755)).unwrap();
    let copy = place.file("faultless");
    fs::copy(PROGRAM, &copy).unwrap();
    copy
}

/// Runs the copy as user 65534 without capabilities; none where that cannot be done.
fn as_nobody(copy: &str, words: &[&str]) -> Option<Output> {
    let become_nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"];
    let mut command = Command::new("setpriv");
    command.args(become_nobody).arg(copy).arg("check").args(words).stdin(Stdio::null());
    match command.output() {
        Ok(output) if errors(&output).starts_with("setpriv:") => {
            faultless_skipped::skipped(errors(&output));
            None
        }
        Ok(output) => Some(output),
        Err(error) => {
            faultless_skipped::skipped(format_args!("setpriv: {error}"));
            None
        }
    }
}

#[test]
fn where_too_few_files_may_be_open_no_permission_is_said_to_help() {
    let report = report(&tool::after("ulimit -n 12", &["check", "--json"]).output().unwrap());
    for attempt in report["attempts"].as_array().unwrap() {
        if attempt["evidence"].as_str().unwrap().to_lowercase().contains("too many open files") {
            assert!(attempt["answer"] == "failed" && attempt["cure"].is_null(), "{attempt}");
        }
    }
}

/// Runs a command under a seccomp filter that refuses ptrace and performance events, as containers' filters do.
const FILTERED: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;
    return execv(words[1], words + 1);
}"#;

#[test]
fn what_a_seccomp_filter_refuses_is_not_permitted_on_anybody() {
    let place = Place::new("filtered");
    let program = place.compile("filtered", FILTERED, &[]);
    let sleeper = Running::start(Command::new("sleep").arg("100"));
    for (words, subjects) in [
        (&["--json"][..], &["command", "own", "others"][..]),
        (&["--json", "--pid", &sleeper.pid()], &["given"]),
    ] {
        let tool = check(words);
        let output = Command::new(&program).arg(tool.get_program()).args(tool.get_args()).output().unwrap();
        let report = report(&output);
        for (instrument, subject) in
            ["heap --stop", "faults"].into_iter().flat_map(|one| subjects.iter().map(move |on| (one, on)))
        {
            assert_eq!(allowed(&report, instrument, subject), "no", "{instrument} {subject}: {report}");
        }
    }
}

#[test]
fn every_instrument_has_an_answer_and_every_answer_its_evidence() {
    let report = report(&check(&["--json"]).output().unwrap());
    assert_eq!(report["format"], "faultless-check/1");
    assert_eq!(report["instruments"].as_array().unwrap().len(), 21);
    for attempt in report["attempts"].as_array().unwrap() {
        assert!(!attempt["evidence"].as_str().unwrap().is_empty(), "{attempt}");
        if attempt["answer"] == "allowed" {
            assert!(attempt["cure"].is_null(), "{attempt}");
        }
        if attempt["answer"] == "denied" {
            assert!(attempt["cure"].is_string(), "{attempt}");
        }
    }
    assert_eq!(allowed(&report, "map", "own"), "yes");
    assert_eq!(allowed(&report, "churn --malloc", "command"), "yes");
}

#[test]
fn the_table_says_the_same_as_the_json() {
    let output = check(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let table = text(&output);
    let report = report(&check(&["--json"]).output().unwrap());
    for instrument in ["map", "heap", "heap --stop", "watch", "faults", "churn", "churn --malloc"] {
        let row = table.lines().find(|line| line.trim().starts_with(&format!("{instrument}  ")));
        let words: Vec<&str> =
            row.unwrap_or_else(|| panic!("{instrument}: {table}")).split_whitespace().collect();
        let expected = ["command", "own", "others"].map(|subject| allowed(&report, instrument, subject));
        assert!(words.ends_with(&expected), "{words:?} {expected:?}");
    }
}

#[test]
fn what_is_promised_of_a_command_is_kept() {
    let report = report(&check(&["--json"]).output().unwrap());
    let run =
        |words: &[&str]| faultless(words).args(["--", "true"]).output().unwrap().status.code() == Some(0);
    for (instrument, words) in [("map", &["map"] as &[&str]), ("faults", &["faults"]), ("churn", &["churn"])]
    {
        let promised = allowed(&report, instrument, "command") != "no";
        assert_eq!(run(words), promised, "{instrument}: {report}");
    }
}

#[test]
fn a_process_of_ones_own_is_asked_for_by_its_number() {
    let running = Running::start(Command::new("sleep").arg("100"));
    let report = report(&check(&["--json", "--pid", &running.pid()]).output().unwrap());
    assert_eq!((&report["pid"], &report["name"]), (&running.0.id().into(), &"sleep".into()));
    assert_eq!(report["instruments"].as_array().unwrap().len(), 7);
    assert_eq!(answer(&report, "smaps", "given")["answer"], "allowed");
}

/// Waits for a signal, by calls of a 32-bit program.
const NARROW: &str = ".globl _start\n_start: movl $29, %eax\n int $0x80\n jmp _start\n";

#[test]
fn of_a_32_bit_process_no_instrument_is_promised_that_refuses_it() {
    let place = Place::new("narrow");
    let Some(program) = place.try_assemble_32_bit("narrow", NARROW) else {
        return faultless_skipped::skipped("32-bit programs are not built or not run here");
    };
    let running = Running::start(&mut Command::new(&program));
    let report = report(&check(&["--json", "--pid", &running.pid()]).output().unwrap());
    for instrument in ["heap", "heap --stop", "faults", "churn --malloc"] {
        assert_eq!(allowed(&report, instrument, "given"), "no", "{instrument}: {report}");
    }
    assert_ne!(allowed(&report, "churn", "given"), "yes", "{report}");
    assert_refused(
        &mut faultless(&["faults", "--for", "1s", "--pid", &running.pid()]),
        126,
        "is a 32-bit program",
    );
}

#[test]
fn without_rights_roots_process_is_closed_and_the_cure_is_named() {
    let place = Place::new("copy");
    let copy = copied(&place);
    let running = Running::start(Command::new("sleep").arg("100"));
    let given = as_nobody(&copy, &["--json", "--pid", &running.pid()]);
    let all = as_nobody(&copy, &["--json"]);
    let (Some(given), Some(all)) = (given, all) else { return };
    let (given, all) = (report(&given), report(&all));
    assert_eq!(
        (given["rights"]["user"].as_u64(), &given["rights"]["may_trace"]),
        (Some(65534), &false.into())
    );
    for mechanism in ["smaps", "pagemap", "mem", "mapped-files", "ptrace-attach"] {
        let attempt = answer(&given, mechanism, "given");
        assert_eq!(attempt["answer"], "denied", "{attempt}");
        assert!(attempt["cure"].as_str().unwrap().contains("sudo"), "{attempt}");
    }
    assert_eq!([allowed(&given, "map", "given"), allowed(&given, "heap", "given")], ["no", "no"]);
    assert_eq!(allowed(&given, "watch", "given"), "partly");
    // Its own are open to it, those of others are not.
    assert_eq!([allowed(&all, "map", "own"), allowed(&all, "map", "others")], ["yes", "no"]);
    assert_eq!(answer(&all, "tracepoints", "machine")["answer"], "denied");
}

#[test]
fn numbers_that_are_no_process_are_refused_in_one_line() {
    assert_refused(&mut check(&["--pid", "0"]), 2, "");
    assert_refused(&mut check(&["--pid", "2147483647"]), 1, "no process 2147483647");
}

#[test]
fn a_process_whose_first_thread_has_ended_is_answered_for_as_another() {
    let place = Place::new("leaderless");
    let code = "#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>
        static void *last(void *none) { usleep(200000); puts(\"ready\"); fflush(stdout); pause(); return none; }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, last, 0); pthread_exit(0); }";
    let leaderless = Running::ready(&mut Command::new(place.compile("leaderless", code, &["-pthread"])));
    let usual = Running::start(Command::new("sleep").arg("100"));
    let [report, usual] = [leaderless.pid(), usual.pid()]
        .map(|pid| report(&check(&["--json", "--pid", &pid]).output().unwrap()));
    for instrument in ["faults", "churn --malloc"] {
        let allowed = |report| allowed(report, instrument, "given");
        assert_eq!(allowed(&report), allowed(&usual), "{instrument}: {report}");
    }
    assert!(!report.to_string().contains("process has ended"), "{report}");
}
