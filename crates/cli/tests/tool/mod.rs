//! The program under test, and what it says.
#![allow(dead_code, reason = "each test uses a part")]

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The program with these words, without input and under libc's own allocator, to be started with the default answer to every signal:
/// whoever runs the tests may ignore some, as a shell does in the background, and what is ignored stays so.
pub fn faultless(words: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_faultless")]).args(words);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// `bench` with these words, its temporary files in a directory, without the user's settings of glibc's malloc.
pub fn bench(temporary: &str, words: &[&str]) -> Command {
    let mut command = faultless(&["bench"]);
    command.args(words).env("TMPDIR", temporary);
    for name in ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"] {
        command.env_remove(name);
    }
    command
}

/// As [`faultless`], after a line of shell, which may set limits.
pub fn after(line: &str, words: &[&str]) -> Command {
    let tool = faultless(words);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{line} && exec \"$@\""), "sh"])
        .arg(tool.get_program())
        .args(tool.get_args());
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// What it said on standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What it printed.
#[track_caller]
pub fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it printed, as JSON.
#[track_caller]
pub fn json(output: &Output) -> Value {
    match serde_json::from_slice(&output.stdout) {
        Ok(value) => value,
        Err(error) => panic!("no JSON ({error}): {}{}", text(output), errors(output)),
    }
}

/// Whether the kernel let it look at others. Where it did not, which is all that it may fail by, the test is skipped.
#[track_caller]
pub fn was_permitted(output: &Output) -> bool {
    const REFUSALS: [&str; 4] = [
        "cannot record page faults: ",
        "lets us follow no calls",
        "cannot set probes",
        "not permitted to trace",
    ];
    if output.status.success() {
        return true;
    }
    let text = errors(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(REFUSALS.iter().any(|refusal| text.contains(refusal)), "{text}");
    faultless_skipped::skipped(text);
    false
}

/// A look at the calls of malloc of a process that runs, 0.3 s long.
pub fn malloc_of(pid: &str) -> Command {
    faultless(&["churn", "--malloc", "--json", "--for", "300ms", "--pid", pid])
}

/// What a look by probes reported; none where no probes are permitted.
#[track_caller]
pub fn probed(output: &Output) -> Option<Value> {
    if output.status.success() {
        return Some(json(output));
    }
    assert!(errors(output).contains("cannot set probes"), "{}", errors(output));
    faultless_skipped::skipped(errors(output));
    None
}

/// What `doctor --pid` found of this kind; null for nothing.
#[track_caller]
pub fn finding<'report>(report: &'report Value, concern: &str) -> &'report Value {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["concern"] == concern).unwrap_or(&Value::Null)
}

/// What it wrote into a file, as JSON.
#[track_caller]
pub fn json_of_file(path: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// JSON of each line.
#[track_caller]
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// It refuses in one line that has these words, with this status and without a result; the line.
#[track_caller]
pub fn assert_refused(command: &mut Command, status: i32, says: &str) -> String {
    let output = command.output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{command:?}: {line}");
    assert!(line.starts_with("faultless: ") && line.lines().count() == 1, "{command:?}: {line}");
    assert!(line.contains(says), "{command:?}: {line}");
    assert!(output.stdout.is_empty(), "{command:?}: nothing half printed");
    line
}

/// What the command line does not allow is answered with the usage, status 2 and no result.
#[track_caller]
pub fn assert_misused(command: &mut Command, says: &str) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{command:?}: {}", errors(&output));
    let is_said = errors(&output).starts_with("error: ") && errors(&output).contains(says);
    assert!(is_said && output.stdout.is_empty(), "{command:?}: {}", errors(&output));
}
