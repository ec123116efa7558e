//! What makes a verdict of `faultless doctor` doubtful: runs that did other work than they seem to, and figures that are not of what is
//! tried.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};

use place::Place;
use serde_json::Value;
use tool::{errors, json};

fn doctor(place: &Place, words: &[&str]) -> Command {
    let mut command = tool::faultless(&["doctor", "-n", "1", "--json", "--"]);
    command.args(words).env("TMPDIR", place.0.join("tmp")).stdin(Stdio::null());
    command
}

/// The sentence of the verdict and the remarks of a JSON report.
fn said(value: &Value) -> (String, String) {
    (value["verdict"]["sentence"].as_str().unwrap().to_owned(), value["remarks"].to_string())
}

/// Keeps a processor busy for some tenths of a second.
const WORK: &str = "n=0; while [ $n -lt 400000 ]; do n=$((n+1)); done";

#[test]
fn work_that_only_the_first_look_did_is_missed() {
    let place = Place::with_temporary("made");
    let done = place.file("done");
    let script = format!("[ -e {done} ] && exit; {WORK}; touch {done}");
    let (sentence, remarks) = said(&json(&doctor(&place, &["sh", "-c", &script]).output().unwrap()));
    assert!(remarks.contains("the first look took"), "{remarks}");
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");

    let script = format!("{WORK}; touch {done}");
    let (_, remarks) = said(&json(&doctor(&place, &["sh", "-c", &script]).output().unwrap()));
    assert!(!remarks.contains("first look"), "{remarks}");
}

#[test]
fn a_command_that_fails_once_it_has_succeeded_is_said_to() {
    let place = Place::with_temporary("twice");
    let (sentence, remarks) = said(&json(&doctor(&place, &["mkdir", &place.file("made")]).output().unwrap()));
    let says = "the first look ended with exit status 0, the measured runs with exit status 1";
    assert!(remarks.contains(says), "{remarks}");
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");
}

#[test]
fn of_a_command_that_always_fails_nothing_is_concluded() {
    let place = Place::with_temporary("fails");
    let (sentence, _) = said(&json(&doctor(&place, &["sh", "-c", "exit 2"]).output().unwrap()));
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");
}

#[test]
fn what_a_time_limit_ended_has_not_failed_and_is_not_judged_by_its_time() {
    let place = Place::with_temporary("limited");
    let words = ["timeout", "0.3", "sh", "-c", "while :; do :; done"];
    let (sentence, remarks) = said(&json(&doctor(&place, &words).output().unwrap()));
    assert!(remarks.contains("ended by its time limit (exit status 124)"), "{remarks}");
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");
    let mut command = tool::faultless(&["doctor", "-n", "1", "--"]);
    let output = command.args(words).env("TMPDIR", place.0.join("tmp")).output().unwrap();
    assert!(!tool::text(&output).contains("failed"), "{}", tool::text(&output));
}

/// Holds 40 MiB that it has freed but for the last block, in glibc, and gives everything back when it is asked to end.
const SERVER: &str = r"
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 40000 };
static void *blocks[BLOCKS];
static void ended(int number)
{
    (void)number;
    free(blocks[BLOCKS - 1]);
    malloc_trim(0);
    exit(0);
}
int main(void)
{
    alarm(60);
    signal(SIGTERM, ended);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < BLOCKS - 1; i++) free(blocks[i]);
    for (;;) pause();
}
";

#[test]
fn a_server_is_looked_at_when_its_time_is_over_and_then_ended() {
    let place = Place::with_temporary("served");
    let program = place.compile("server", SERVER, &["-O1", "-fno-builtin"]);
    let mut command = tool::faultless(&["doctor", "-n", "1", "--json", "--for", "2s", "--", &program]);
    let output = command.env("TMPDIR", place.0.join("tmp")).stdin(Stdio::null()).output().unwrap();
    let report = json(&output);
    let (_, remarks) = said(&report);
    assert!(remarks.contains("ended by its time limit (exit status 124)"), "{remarks}");
    let arms = report["arms"].as_array().unwrap();
    let of_first_run = |arm: &Value, figure: &str| arm["runs"][0][figure].as_u64().unwrap();
    assert_eq!(
        (arms[0]["name"].as_str(), arms[0]["runs"][0]["final_rss_is_sampled"].as_bool()),
        (Some("libc as is"), Some(false))
    );
    assert!(of_first_run(&arms[0], "final_rss_bytes") > 40_000_000, "{report}");
    // What the sentence says of its time is chance: a run takes 30 ms.
    let freed = arms.iter().find(|arm| arm["name"] == "Faultless").unwrap();
    assert!(of_first_run(freed, "final_rss_bytes") < 20_000_000, "{report}");
}

#[test]
fn what_a_command_started_is_asked_to_end_by_the_command_and_does_not_outlive_it() {
    let place = Place::with_temporary("family");
    let asked = place.file("asked");
    let pids = place.file("pids");
    let inner = format!("trap 'echo asked >>{asked}' TERM; echo $$ >>{pids}; while :; do sleep 0.1; done");
    let mut command = tool::faultless(&["doctor", "-n", "1", "--json", "--for", "500ms", "--"]);
    command.args(["sh", "-c", "sh -c \"$0\"; :", &inner]).env("TMPDIR", place.0.join("tmp"));
    json(&command.stdin(Stdio::null()).output().unwrap());
    assert!(!fs::exists(&asked).unwrap(), "of the command's, and not of ours, is whom it asks");
    let pids = fs::read_to_string(pids).unwrap();
    assert!(pids.lines().count() > 3, "{pids}");
    for pid in pids.lines() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}

#[test]
fn a_process_that_no_arm_reaches_is_named_and_nothing_is_concluded_from_it() {
    let place = Place::with_temporary("unreached");
    let source = "
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 40; i++) {
        char *block = malloc(32 << 20);
        memset(block, 1, 32 << 20);
        free(block);
    }
    sleep(1);
    memset(malloc(16 << 20), 1, 16 << 20);
    usleep(300000);
    return 0;
}
";
    let program = place.compile("churner", source, &["-O0"]);
    let script = format!("env -i {program}; true");
    let (sentence, remarks) = said(&json(&doctor(&place, &["sh", "-c", &script]).output().unwrap()));
    assert!(remarks.contains("churner") && remarks.contains("no arm reached it"), "{remarks}");
    assert!(!sentence.contains("alone") && !sentence.contains("takes them away"), "{sentence}");

    let script = format!("{program}; true");
    let (_, remarks) = said(&json(&doctor(&place, &["sh", "-c", &script]).output().unwrap()));
    assert!(!remarks.contains("no arm reached it"), "{remarks}");
}

/// A program of many faults that come from a `malloc` of its own.
const OWN_MALLOC: &str = r"
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void *malloc(size_t size) {
    void *block = mmap(0, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED || size > 4 << 20 ? 0 : block;
}
void free(void *block) { if (block) munmap(block, 4 << 20); }
int main(void) {
    for (int i = 0; i < 50; i++) {
        char *block = malloc(4 << 20);
        memset(block, 1, 4 << 20);
        free(block);
    }
    for (int i = 0; i < 4; i++) memset(malloc(4 << 20), 1, 4 << 20);
    usleep(300000);
    return 0;
}
";

#[test]
fn nothing_is_concluded_from_who_brings_its_own_malloc() {
    let place = Place::with_temporary("brings");
    let program = place.compile("brings", OWN_MALLOC, &["-O1", "-fno-builtin"]);
    let (becomes, starts) = (format!("exec {program}"), format!("{program}; true"));
    for words in [&[&program[..]][..], &["sh", "-c", &becomes], &["sh", "-c", &starts]] {
        let (sentence, remarks) = said(&json(&doctor(&place, words).output().unwrap()));
        assert_eq!(remarks.matches("defines malloc itself").count(), 1, "{words:?}: {remarks}");
        assert!(
            !sentence.contains("alone") && !sentence.contains("takes them away"),
            "{words:?}: {sentence}"
        );
    }
}

/// Ends with 7 where its input is not the whole of what it should be.
const READS: &str = r#"[ "$(wc -c)" = 300 ] || exit 7"#;

#[test]
fn every_run_reads_the_file_that_is_its_input() {
    let place = Place::with_temporary("input");
    let path = place.file("text");
    fs::write(&path, "x".repeat(300)).unwrap();
    let output = doctor(&place, &["sh", "-c", READS]).stdin(File::open(&path).unwrap()).output().unwrap();
    let value = json(&output);
    for run in value["arms"].as_array().unwrap().iter().flat_map(|arm| arm["runs"].as_array().unwrap()) {
        assert_eq!(run["exit_status"], 0, "{}", errors(&output));
    }
}

#[test]
fn input_that_can_be_read_once_only_is_said_to_reach_nobody() {
    let place = Place::with_temporary("piped");
    let mut child = doctor(&place, &["sh", "-c", "wc -c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"text").unwrap();
    let (sentence, remarks) = said(&json(&child.wait_with_output().unwrap()));
    assert!(remarks.contains("standard input"), "{remarks}");
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");

    let (_, remarks) = said(&json(&doctor(&place, &["sh", "-c", "wc -c"]).output().unwrap()));
    assert!(!remarks.contains("standard input"), "{remarks}");
}

/// Takes and frees 32 MiB in blocks of 4 MiB again and again, then becomes another program.
const BECOMES: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    for (int turn = 0; turn < 20; turn++) {
        void *blocks[8];
        for (int i = 0; i < 8; i++) blocks[i] = memset(malloc(4 << 20), 1, 4 << 20);
        usleep(10000);
        for (int i = 0; i < 8; i++) free(blocks[i]);
    }
    execlp("true", "true", (char *)0);
    return 1;
}
"#;

#[test]
fn the_report_of_what_a_program_became_is_not_taken_for_its_own() {
    let place = Place::with_temporary("becomes");
    let program = place.compile("becomes", BECOMES, &["-O1", "-fno-builtin"]);
    let value = json(&doctor(&place, &[&program]).output().unwrap());
    assert!(value["heap"].is_null(), "{}", value["heap"]);
    let remarks = value["remarks"].to_string();
    assert!(remarks.contains("became another program") && !remarks.contains("left out"), "{remarks}");
}

#[test]
fn who_becomes_another_user_and_so_leaves_no_report_is_told_what_helps() {
    let place = Place::with_temporary("user");
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "true"];
    if !Command::new(words[0]).args(&words[1..]).status().is_ok_and(|status| status.success()) {
        return faultless_skipped::skipped("setpriv is not installed, or changes no user");
    }
    let (_, remarks) = said(&json(&doctor(&place, &words).output().unwrap()));
    assert!(remarks.contains("changed its user (doctor run as that user gets one)"), "{remarks}");
}

#[test]
fn of_a_command_that_ends_otherwise_each_time_nothing_is_concluded() {
    let place = Place::with_temporary("turns");
    let count = place.file("count");
    let script =
        format!("n=$(cat {count} 2>/dev/null || echo 0); echo $((n + 1)) > {count}; exit $((n % 2))");
    let mut command = doctor(&place, &["sh", "-c", &script]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let (sentence, _) = said(&serde_json::from_slice(&output.stdout).unwrap());
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");
}

#[test]
fn a_static_process_is_said_to_be_reached_by_settings_alone() {
    let place = Place::with_temporary("linked");
    let source = "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n
        int main(void) { memset(malloc(16 << 20), 1, 16 << 20); usleep(300000); return 0; }";
    let program = place.compile("linked", source, &["-O0", "-static"]);
    let (_, remarks) =
        said(&json(&doctor(&place, &["sh", "-c", &format!("{program}; true")]).output().unwrap()));
    assert!(remarks.contains("settings of libc alone reach it"), "{remarks}");
    assert!(remarks.contains("several processes took part"), "{remarks}");
}
