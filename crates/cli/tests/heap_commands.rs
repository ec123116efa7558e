//! `faultless heap -- COMMAND`: when it is walked, and how it ends, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs;
use std::process::{Command, Output};

use place::Place;
use serde_json::Value;
use tool::{assert_refused, errors, faultless, text};

/// `faultless heap` with these words.
fn faultless_heap(words: &[&str]) -> Command {
    faultless(&[&["heap"], words].concat())
}

#[test]
fn a_command_is_walked_at_its_exit_or_after_a_time_and_runs_to_its_end() {
    let place = Place::new("command");
    let marker = place.0.join("ended");
    let walked = |options: &[&str], sleep_s: &str| -> Value {
        let _ = fs::remove_file(&marker);
        let script = format!("sleep {sleep_s}; echo of the command; : > {}", marker.display());
        let output = faultless_heap(&["--json"]).args(options).args(["--", "sh", "-c", &script]).output();
        tool::json(&output.unwrap())
    };
    for (options, source) in
        [(&[][..], "exit"), (&["--after", "100ms"][..], "process"), (&["--after", "9s"][..], "exit")]
    {
        let mut report = walked(options, "0.5");
        if report["source"] != source {
            // Where others keep the CPUs busy the look comes late.
            report = walked(options, "5");
        }
        assert_eq!(report["source"], source, "{options:?}");
        assert!(report["walks"][0]["total"]["used_blocks"].as_u64().unwrap() > 0);
        assert_eq!(report["walks"][0]["is_exact"], true);
        assert!(marker.exists(), "it ran to its end");
        let is_early = report["remarks"].to_string().contains("ended before the time");
        assert_eq!(is_early, options == ["--after", "9s"], "{report}");
    }
    assert_refused(&mut faultless_heap(&["--", "/no/such/command"]), 127, "");
    let stopped =
        |sleep_s| faultless_heap(&["--stop", "--after", "100ms", "--", "sleep", sleep_s]).output().unwrap();
    let stood = |output: &Output| text(output).contains("it stood still for");
    assert!(stood(&stopped("0.4")) || stood(&stopped("5")));
}

#[test]
fn a_command_that_fails_is_walked_and_said_to_have_failed() {
    for (script, ending) in
        [("exit 7", "sh ended with exit status 7"), ("kill -9 $$", "sh was killed by SIGKILL")]
    {
        let mut command = faultless_heap(&["--after", "50ms", "--", "sh", "-c"]);
        let output = command.arg(format!("sleep 2; {script}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(errors(&output).contains(ending), "{output:?}");
    }
}
