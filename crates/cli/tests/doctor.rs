//! `faultless doctor` through the real program, on small programs and with few runs.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use place::Place;
use running::{Running, has_ended, send, state, wait_until, written_line};
use serde_json::Value;
use tool::{assert_misused, assert_refused, errors, json, text};

impl Place {
    fn is_clean(&self) -> bool {
        fs::read_dir(self.0.join("tmp")).unwrap().next().is_none()
    }
}

fn doctor(place: &Place, words: &[&str]) -> Command {
    let mut command = tool::faultless(&["doctor"]);
    command.args(words).env("TMPDIR", place.0.join("tmp"));
    for name in ["MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"] {
        command.env_remove(name);
    }
    command
}

/// Two buffers of 1 MiB and 2 MiB freed and asked for again.
const CHURN: &str = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (int i = 0; i < 300; i++) {
        char *a = malloc(1 << 20), *b = malloc(2 << 20);
        for (int k = 0; k < 1 << 20; k += 4096) ((volatile char *)a)[k] = ((volatile char *)b)[2 * k] = 1;
        free(b); free(a);
    }
    return 0;
}
"#;

fn arm<'json>(value: &'json Value, name: &str) -> &'json Value {
    value["arms"]
        .as_array()
        .unwrap()
        .iter()
        .find(|arm| arm["name"] == name)
        .unwrap_or_else(|| panic!("no arm {name}"))
}

fn faults(value: &Value, name: &str) -> f64 {
    arm(value, name)["figures"]["minor_faults"]["median"].as_f64().unwrap()
}

#[test]
fn churn_of_large_blocks_is_found_explained_and_cured() {
    let place = Place::with_temporary("churn");
    let program = place.compile("churn", CHURN, &["-O1", "-pthread"]);
    let output = doctor(&place, &["--json", "--", &program]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let value = json(&output);
    assert_eq!(value["format"], "faultless-doctor/1");
    let names: Vec<&str> =
        value["arms"].as_array().unwrap().iter().map(|arm| arm["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["libc as is", "libc tuned", "mmap half only", "trim half only", "Faultless"]);

    let settings = &arm(&value, "libc tuned")["settings"];
    let threshold: u64 = settings["MALLOC_MMAP_THRESHOLD_"].as_str().unwrap().parse().unwrap();
    assert!((2 << 20..=4 << 20).contains(&threshold), "just above the largest block: {threshold}");
    assert!(faults(&value, "libc tuned") < faults(&value, "trim half only") / 10.0);
    assert!(faults(&value, "Faultless") < faults(&value, "trim half only") / 10.0);

    for (name, allocator) in [("libc as is", "libc"), ("libc tuned", "libc"), ("Faultless", "Faultless")] {
        for run in arm(&value, name)["runs"].as_array().unwrap() {
            assert_eq!(run["allocator"], allocator, "{name}");
            assert_eq!(run["final_rss_is_sampled"], false);
        }
    }
    assert!(place.is_clean());
}

#[test]
fn a_program_without_churn_is_left_alone() {
    let place = Place::with_temporary("calm");
    let page = place.file("report.html");
    let output = doctor(&place, &["--json", "--html", &page, "--", "true"]).output().unwrap();
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Nothing helps") && html.ends_with("</html>\n"), "{html}");
    let value = json(&output);
    assert_eq!(value["verdict"]["faultless_helps"], false);
    assert_eq!(value["verdict"]["best_libc_settings"], Value::Null);
    assert!(value["verdict"]["sentence"].as_str().unwrap().starts_with("Nothing helps"));
    assert_eq!(value["verdict"]["lines_to_paste"], Value::Array(Vec::new()));
}

#[test]
fn too_few_runs_to_tell_a_difference_from_noise_are_said_to_be() {
    let place = Place::with_temporary("few");
    let text = |runs| text(&doctor(&place, &["-n", runs, "--", "true"]).output().unwrap());
    assert!(text("1").contains("only what is half or twice as much"), "{}", text("1"));
    assert!(!text("3").contains("half or twice"));
}

#[test]
fn figures_of_several_processes_are_said_to_be() {
    let place = Place::with_temporary("several");
    let remarks = |script| {
        let output = doctor(&place, &["-n", "1", "--json", "--", "sh", "-c", script]).output().unwrap();
        json(&output)["remarks"].to_string()
    };
    assert!(remarks("ls; ls; exit").contains("several processes took part"));
    assert!(!remarks("exec ls").contains("several processes"));
}

#[test]
fn a_script_whose_commands_bring_in_their_memory_once_each_is_not_said_to_do_so_again_and_again() {
    let place = Place::with_temporary("once-each");
    let script = "for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do ls / >&2; done";
    let output = doctor(&place, &["-n", "1", "--json", "--", "sh", "-c", script]).output().unwrap();
    let sentence = json(&output)["verdict"]["sentence"].to_string();
    assert!(sentence.contains("Nothing helps") && !sentence.contains("times over"), "{sentence}");
}

#[test]
fn progress_names_an_odd_command_in_one_line() {
    let place = Place::with_temporary("odd");
    let program = place.file("odd\nname");
    fs::copy("/bin/true", &program).unwrap();
    let output = doctor(&place, &["-n", "1", "--", &program]).output().unwrap();
    let text = errors(&output);
    assert!(text.lines().all(|line| line.starts_with("faultless: ")), "{text}");
    assert!(text.contains("odd\\nname"), "{text}");
}

#[test]
fn misspelt_variables_are_pointed_out_and_right_ones_become_an_arm() {
    let place = Place::with_temporary("environment");
    let output = doctor(&place, &["-n", "1", "--", "true"])
        .env("MALLOC_MMAP_MAX", "0")
        .env("MALLOC_TRIM_THRESHOLD", "-1")
        .env("MALLOC_ARENA_MAX", "2")
        .output()
        .unwrap();
    let text = text(&output);
    assert!(text.contains("the right name is MALLOC_MMAP_MAX_"), "{text}");
    assert!(text.contains("the right name is MALLOC_TRIM_THRESHOLD_"), "{text}");
    assert!(text.contains("libc defaults"), "{text}");
}

#[test]
fn a_command_that_fails_is_reported_with_its_last_words() {
    let place = Place::with_temporary("failing");
    let output =
        doctor(&place, &["-n", "1", "--", "sh", "-c", "echo the reason >&2; exit 3"]).output().unwrap();
    let text = text(&output);
    assert!(text.contains("the command failed in every run (exit status 3)"), "{text}");
    assert!(text.contains("the reason"), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_command_that_ends_otherwise_under_one_arm_is_no_success() {
    let place = Place::with_temporary("differing");
    let script = r#"case "$LD_PRELOAD" in *faultless*) kill -SEGV $$;; esac"#;
    let output = doctor(&place, &["-n", "1", "--", "sh", "-c", script]).output().unwrap();
    let text = text(&output);
    assert!(text.contains("ATTENTION: the command did not end the same way"), "{text}");
    assert!(text.contains("Faultless: killed by SIGSEGV"), "{text}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_an_allocator_that_was_not_loaded_did_proves_nothing() {
    let place = Place::with_temporary("cleaned");
    let words = ["-n", "1", "--json", "--", "sh", "-c", "exec env -i sleep 0.01"];
    let value = json(&doctor(&place, &words).output().unwrap());
    let sentence = value["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("Faultless was not loaded by the process that remained"), "{sentence}");
    assert!(!sentence.contains("othing helps") && !sentence.contains("takes them away"), "{sentence}");
}

/// A server that holds 32 MiB, and who ends it a second after it is ready.
const SERVER: &str = r#"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int ready[2];
    char byte = 1;
    if (pipe(ready)) return 1;
    int server = fork();
    if (server == 0) {
        memset(malloc(32 << 20), 1, 32 << 20);
        if (write(ready[1], &byte, 1) != 1) return 1;
        for (;;) pause();
    }
    if (read(ready[0], &byte, 1) != 1) return 1;
    sleep(1);
    kill(server, SIGTERM);
    return waitpid(server, 0, 0) != server;
}
"#;

#[test]
fn the_sizes_of_who_only_ended_a_server_are_not_taken_for_the_servers() {
    let place = Place::with_temporary("server");
    let program = place.compile("server", SERVER, &["-O1"]);
    let value = json(&doctor(&place, &["-n", "1", "--json", "--", &program]).output().unwrap());
    assert_eq!(value["heap"], Value::Null);
    assert!(value["remarks"].to_string().contains("left no report"), "{}", value["remarks"]);
    let names: Vec<&Value> = value["arms"].as_array().unwrap().iter().map(|arm| &arm["name"]).collect();
    assert!(names.contains(&&Value::from("libc tuned")), "{names:?}");
}

#[test]
fn what_goes_on_without_the_command_is_said_to_be_in_no_figure() {
    let place = Place::with_temporary("daemon");
    let written = place.file("pids");
    let script = format!("sleep 60 & echo $! >> {written}");
    let output = doctor(&place, &["-n", "1", "--json", "--", "sh", "-c", &script]).output().unwrap();
    for pid in fs::read_to_string(&written).unwrap().lines() {
        send("KILL", pid);
    }
    let value = json(&output);
    let daemon = serde_json::json!([{ "name": "sleep", "processor_seconds": null, "goes_on": true }]);
    assert_eq!(value["detached"], daemon, "{}", errors(&output));
    let sentence = value["verdict"]["sentence"].as_str().unwrap();
    assert!(!sentence.contains("leave the allocator alone"), "{sentence}");
}

#[test]
fn what_detached_itself_and_ended_before_the_command_is_seen_and_does_not_hold_it_up() {
    let place = Place::with_temporary("detached");
    let written = place.file("pid");
    // Who waits for the end of a server asks for its number until it is gone.
    let script = format!(
        "(sh -c 'echo $$ > {written}; n=0; while [ $n -lt 200000 ]; do n=$((n+1)); done' &)
        until [ -s {written} ]; do sleep 0.01; done
        while kill -0 $(cat {written}) 2>/dev/null; do sleep 0.01; done; rm {written}"
    );
    let output = doctor(&place, &["-n", "1", "--json", "--", "sh", "-c", &script]).output().unwrap();
    let value = json(&output);
    let detached = value["detached"].as_array().unwrap();
    assert_eq!(detached.len(), 1, "{detached:?}");
    assert_eq!((&detached[0]["name"], &detached[0]["goes_on"]), (&"sh".into(), &false.into()));
    assert!(detached[0]["processor_seconds"].as_f64().unwrap() >= 0.01, "{detached:?}");

    let output = doctor(&place, &["-n", "1", "--json", "--", "sh", "-c", "ls & wait; ls"]).output().unwrap();
    assert_eq!(json(&output)["detached"], Value::Array(Vec::new()));
}

#[test]
fn a_page_that_cannot_be_written_is_known_before_anything_runs() {
    let place = Place::with_temporary("nowhere");
    let mut command = doctor(&place, &["--html", "/nowhere/report.html", "--", "touch", "ran"]);
    assert_refused(&mut command, 1, "faultless: cannot write /nowhere/report.html");
    assert!(place.is_clean());
}

#[test]
fn a_page_that_cannot_be_written_in_the_end_does_not_take_the_report_along() {
    let place = Place::with_temporary("full");
    let output = doctor(&place, &["--html", "/dev/full", "--", "true"]).output().unwrap();
    let said = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("faultless: cannot write /dev/full: No space left"), "{said}");
    assert!(text(&output).contains("Verdict: "));
}

#[test]
fn bad_commands_are_refused_before_anything_is_written() {
    let place = Place::with_temporary("refused");
    assert_refused(&mut doctor(&place, &["--", "no-such-command"]), 127, "");
    assert_misused(&mut doctor(&place, &["--runs", "0"]), "--rounds");
    assert_refused(doctor(&place, &["--", "true"]).env("TMPDIR", "/no/such/place"), 1, "TMPDIR");
    assert!(place.is_clean());
}

/// The doctor, at work on a line of shell.
fn quiet(place: &Place, script: &str) -> Running {
    Running::start(doctor(place, &["--", "sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn an_interrupt_ends_the_command_and_leaves_nothing() {
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let place = Place::with_temporary(&format!("interrupt-{name}"));
        let written = place.file("pid");
        let mut child = quiet(&place, &format!("echo $$ >> {written}; sleep 60 & wait"));
        let command = written_line(&written);
        assert!(!place.is_clean(), "the library is there while it is needed");
        let begun = Instant::now();
        send(name, child.pid());
        assert_eq!(child.0.wait().unwrap().signal(), Some(number));
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert!(place.is_clean());
        assert_eq!(state(command), None, "the command was ended");
    }
}

#[test]
fn who_waited_for_what_does_not_end_is_told_how_to_limit_it() {
    let place = Place::with_temporary("endless");
    let mut child = Running::start(doctor(&place, &["--", "sleep", "600"]).stderr(Stdio::piped()));
    let mut said = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = said.next().unwrap();
    assert_eq!(first, "faultless: sleep: first look, as it is, until it ends (Ctrl-C stops it)");
    send("INT", child.pid());
    assert_eq!(child.0.wait().unwrap().signal(), Some(2));
    let rest: Vec<String> = said.collect();
    assert!(rest.len() == 1 && rest[0].ends_with(": faultless doctor --for 30s -- sleep …"), "{rest:?}");
}

#[test]
fn an_interrupt_ends_what_has_a_process_group_of_its_own() {
    let place = Place::with_temporary("groups");
    let written = place.file("pid");
    let mut child = quiet(&place, &format!("timeout 60 sh -c 'echo $$ >>{written}; sleep 60; :' & wait"));
    let command = written_line(&written);
    send("TERM", child.pid());
    assert_eq!(child.0.wait().unwrap().signal(), Some(15));
    wait_until(|| has_ended(&command));
}

#[test]
fn the_command_dies_with_a_killed_doctor() {
    let place = Place::with_temporary("killed");
    let written = place.file("pid");
    let child = quiet(&place, &format!("echo $$ >> {written}; exec sleep 60"));
    let command = written_line(&written);
    drop(child);
    wait_until(|| has_ended(&command));
}

#[test]
fn a_closed_output_ends_us_quietly_as_it_ends_others() {
    let place = Place::with_temporary("closed");
    let program = env!("CARGO_BIN_EXE_faultless");
    let script =
        format!("{{ {program} doctor -n 1 -- true; echo $? >&2; }} 2>{}/status | true", place.0.display());
    assert!(
        Command::new("sh")
            .args(["-c", &script])
            .env("TMPDIR", place.0.join("tmp"))
            .status()
            .unwrap()
            .success()
    );
    let text = fs::read_to_string(place.0.join("status")).unwrap();
    assert!(text.ends_with("141\n") && !text.contains("panic"), "{text}");
    assert!(place.is_clean());
}

/// Data that is loaded, and eight threads whose requests allocate scratch buffers.
const SEARCH: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static char *data[4];
static void *searcher(void *nothing) {
    for (int request = 0; request < 20; request++) {
        char *scratch[4];
        for (int i = 0; i < 4; i++) memset(scratch[i] = malloc(1 << 20), 1, 1 << 20);
        volatile char sum = 0;
        for (int i = 0; i < 4; i++) for (int at = 0; at < 16 << 20; at += 4096) sum += data[i][at];
        for (int i = 0; i < 4; i++) free(scratch[i]);
    }
    return nothing;
}
int main(void) {
    for (int i = 0; i < 4; i++) memset(data[i] = malloc(16 << 20), 1, 16 << 20);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, searcher, 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

#[test]
fn data_that_is_loaded_and_searched_is_told_from_the_scratch_buffers_of_requests() {
    let place = Place::with_temporary("search");
    let program = place.compile("search", SEARCH, &["-O1", "-pthread"]);
    let output = doctor(&place, &["-n", "1", "--json", "--", &program]).output().unwrap();
    let found = &json(&output)["loaded_data"];
    assert_eq!(found["data_bytes"], 64 << 20, "{found}");
    assert!(found["excess_faults"].as_u64().unwrap() >= 10_000, "{found}");
    assert!(found["sentences"].as_str().unwrap().contains("freed and asked for again"), "{found}");

    let program = place.compile("churn", CHURN, &["-O1", "-pthread"]);
    let output = doctor(&place, &["-n", "1", "--json", "--", &program]).output().unwrap();
    assert!(json(&output)["loaded_data"].is_null());
}

/// A program with an allocator of its own inside.
const OWN_MALLOC: &str = r"
#include <stddef.h>
static _Alignas(16) char memory[1 << 20];
static size_t used;
void *malloc(size_t size) {
    void *block = memory + used;
    used += (size + 15) & ~(size_t)15;
    return used <= sizeof memory ? block : 0;
}
void free(void *block) { (void)block; }
int main(void) { return malloc(100) == 0; }
";

#[test]
fn a_program_with_a_malloc_of_its_own_is_not_said_to_run_under_another() {
    let place = Place::with_temporary("own");
    let program = place.compile("own", OWN_MALLOC, &["-fno-builtin"]);
    let says = "defines malloc itself";
    let output = doctor(&place, &["-n", "1", "--json", "--", &program]).output().unwrap();
    assert!(json(&output)["remarks"].to_string().contains(says), "{}", text(&output));
    let output = tool::faultless(&["run", "--", &program]).output().unwrap();
    assert!(output.status.success() && errors(&output).contains(says), "{}", errors(&output));
    let output = tool::faultless(&["run", "--", "true"]).output().unwrap();
    assert!(!errors(&output).contains(says), "{}", errors(&output));
}
