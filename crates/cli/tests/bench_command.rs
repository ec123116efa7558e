//! `faultless bench -- CMD` through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use place::Place;
use running::{is_so_within, send};
use serde_json::Value;
use tool::{assert_misused, assert_refused, errors, json_of_file, text};

/// One round of a line of shell under libc's malloc and ours.
fn one_round(place: &Place, line: &str, more: &[&str]) -> Command {
    let words = ["-n", "1", "-a", "libc,faultless"];
    tool::bench(&place.file("tmp"), &[&words[..], more, &["--", "sh", "-c", line]].concat())
}

#[test]
fn a_command_is_compared_saved_drawn_and_read_again() {
    let place = Place::with_temporary("whole");
    let input = place.write("input", "three\nwords\nhere\n");
    let (seen, saved, page) = (place.file("seen"), place.file("samples.json"), place.file("page.html"));
    let line = format!("echo output; cat >>{seen}");
    let mut command = one_round(&place, &line, &["--json", &saved, "--html", &page]);
    let output = command.stdin(File::open(input).unwrap()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("sh: first look, as it is"), "{}", errors(&output));
    let table = text(&output);
    assert!(table.contains("command: sh -c 'echo output; cat >>"), "{table}");
    for word in ["libc", "faultless", "CPU time (s)", "elapsed (s)", "peak RSS (MiB)", "minor faults"] {
        assert!(table.contains(word), "{word} is missing: {table}");
    }
    assert!(!table.contains("\noutput\n"), "what it prints is dropped: {table}");
    let lines = fs::read_to_string(&seen).unwrap();
    assert_eq!(lines.matches("words").count(), 3, "the first look and each run read the input: {lines}");

    let value = json_of_file(&saved);
    assert_eq!(
        (&value["cells"][0]["suite"], &value["cells"][0]["workload"]),
        (&"command".into(), &"sh".into())
    );
    assert_eq!(value["command"], serde_json::json!(["sh", "-c", line]));
    assert!(value["samples"].as_array().unwrap().iter().all(|sample| sample["failure"] == Value::Null));
    assert!(fs::read_to_string(&page).unwrap().contains("cat &gt;&gt;"), "the page names the command");
    let again = tool::bench(&place.file("tmp"), &["--load", &saved]).output().unwrap();
    assert_eq!(text(&again), table);
    assert_eq!(fs::read_dir(place.file("tmp")).unwrap().count(), 0);
}

#[test]
fn input_that_can_be_read_once_only_is_said_to_reach_nobody() {
    let place = Place::with_temporary("once");
    let mut piped = one_round(&place, "cat", &[]);
    piped.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"text").unwrap();
    let said = errors(&child.wait_with_output().unwrap());
    assert!(said.contains("ran without input"), "{said}");
    let said = errors(&one_round(&place, "cat", &[]).stdin(Stdio::null()).output().unwrap());
    assert!(!said.contains("input"), "{said}");
}

#[test]
fn each_run_must_end_as_the_command_does_as_it_is() {
    let place = Place::with_temporary("endings");
    let same = one_round(&place, "echo because >&2; exit 3", &[]).output().unwrap();
    assert!(same.status.success(), "{}", errors(&same));
    let says = "sh ends with exit status 3 as it is, and so must each run: because";
    assert!(errors(&same).contains(says), "{}", errors(&same));
    let other = one_round(&place, r#"test -z "$LD_PRELOAD""#, &[]).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other).contains("faultless failed in sh: exit status 1"), "{}", text(&other));
    let killed = one_round(&place, "kill -SEGV $$", &[]).output().unwrap();
    assert_eq!((killed.status.code(), text(&killed).as_str()), (Some(1), ""));
    assert!(
        errors(&killed).contains("sh cannot be compared: killed by SIGSEGV as it is"),
        "{}",
        errors(&killed)
    );
}

#[test]
fn what_a_command_is_linked_with_is_what_it_is_compared_with() {
    let place = Place::with_temporary("linked");
    let library = place.compile("libjemalloc.so.2", "int linked(void) { return 0; }", &["-shared", "-fPIC"]);
    let source = "int linked(void);\nint main(void) { return linked(); }\n";
    let origin = format!("-Wl,-rpath,{}", place.0.display());
    let program = place.compile("program", source, &[&library, &origin]);
    let words = ["-n", "1", "-a", "faultless,libc", "-r", "libc", "--", &program];
    let output = tool::bench(&place.file("tmp"), &words).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output), errors(&output));
    assert!(errors(&output).contains("brings jemalloc"), "{}", errors(&output));
    let table = text(&output);
    assert!(table.contains("the ratio to as-is") && !table.contains("libc  "), "{table}");
    assert!(table.find("\nfaultless").unwrap() < table.find("\nas-is").unwrap(), "{table}");
}

#[test]
fn a_malloc_of_its_own_is_told_of_the_program_that_a_command_becomes() {
    let place = Place::with_temporary("own");
    let source = "static char pool[1 << 20];\nvoid *malloc(unsigned long size) { return size < sizeof pool ? pool : 0; }\n\
        void free(void *block) { (void)block; }\nint main(void) { return !malloc(100); }";
    let program = place.compile("brings", source, &["-O1", "-fno-builtin"]);
    let output = one_round(&place, &format!("exec {program}"), &[]).output().unwrap();
    let says = format!("{program} defines malloc itself");
    assert_eq!(errors(&output).matches(&says).count(), 1, "{}", errors(&output));
}

#[test]
fn what_a_command_leaves_behind_is_said_to_be_in_no_figure() {
    let place = Place::with_temporary("leaves");
    let output = one_round(&place, "sleep 2 & true", &[]).output().unwrap();
    let says = "such as daemons: sleep (went on when it had ended);";
    assert!(errors(&output).contains(says), "{}", errors(&output));
    let output = one_round(&place, "sleep 0.1 & wait", &[]).output().unwrap();
    assert!(!errors(&output).contains("daemons"), "{}", errors(&output));
}

#[test]
fn one_that_does_not_end_is_told_to_need_a_limit() {
    let place = Place::with_temporary("endless");
    let started = place.file("started");
    let mut command = one_round(&place, &format!("echo >{started}; exec sleep 1000"), &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(is_so_within(Duration::from_secs(60), || fs::exists(&started).unwrap()));
    send("INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.signal(), text(&output).as_str()), (Some(2), ""));
    assert!(errors(&output).contains("faultless bench -- timeout 30 sh …"), "{}", errors(&output));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = Place::with_temporary("refused");
    let bench = |words: &[&str]| tool::bench(&place.file("tmp"), words);
    assert_refused(&mut bench(&["--", "no-such-command"]), 127, "no such command: no-such-command");
    if let Some(program) = place.try_compile("static", "int main(void) { return 0; }", &["-static"]) {
        assert_refused(&mut bench(&["--", &program]), 126, "static");
    }
    assert_refused(&mut bench(&["ls"]), 2, "a command of your own stands behind --");
    for words in [&["sun", "--", "ls"][..], &["-t", "2", "--", "ls"], &["--load", "x", "--", "ls"]] {
        assert_misused(&mut bench(words), "cannot be used with");
    }
}
