//! Commands that the kernel kills for want of memory in a control group of the tests' own.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod memory_group;
mod place;
mod tool;

use std::os::unix::process::ExitStatusExt;

use memory_group::LimitedGroup;
use place::Place;
use tool::{errors, faultless, json, text};

/// A group with little memory, and a command that joins it and takes all of it.
fn greedy(name: &str) -> Option<(LimitedGroup, [String; 3])> {
    let group = LimitedGroup::new(name, 24 << 20);
    if group.is_none() {
        faultless_skipped::skipped("no memory control group can be made and limited here");
    }
    let group = group?;
    let script = format!("{} && exec tail /dev/zero", group.join());
    Some((group, ["sh".into(), "-c".into(), script]))
}

#[test]
fn doctor_praises_no_arm_of_a_command_that_was_killed_for_want_of_memory() {
    let Some((_group, words)) = greedy("doctor") else { return };
    let place = Place::with_temporary("doctor");
    let mut doctor = faultless(&["doctor", "-n", "1", "--json", "--"]);
    let value = json(&doctor.args(words).env("TMPDIR", place.0.join("tmp")).output().unwrap());
    let verdict = &value["verdict"];
    let sentence = verdict["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("For want of memory the kernel killed it under every arm"), "{sentence}");
    assert!(verdict["lines_to_paste"].as_array().unwrap().is_empty(), "{verdict}");
    assert!(value["arms"].as_array().unwrap().iter().all(|arm| arm["effect"].is_null()), "{value}");
}

#[test]
fn a_shell_whose_command_was_killed_for_want_of_memory_is_not_taken_for_one_that_failed() {
    let Some((_group, [shell, option, script])) = greedy("shell") else { return };
    // With a command behind it the shell waits, and tells by its status.
    let words = [shell, option, script.replace("exec ", "") + "; exit $?"];
    let output = faultless(&["run", "--"]).args(&words).output().unwrap();
    assert!(errors(&output).contains("the kernel killed a process of sh for want of memory"), "{output:?}");
    assert_eq!(output.status.code(), Some(137));

    let place = Place::with_temporary("shell");
    let mut doctor = faultless(&["doctor", "-n", "1", "--json", "--"]);
    let value = json(&doctor.args(words).env("TMPDIR", place.0.join("tmp")).output().unwrap());
    let sentence = value["verdict"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("For want of memory the kernel killed it under every arm"), "{sentence}");
}

#[test]
fn what_is_left_of_a_process_that_was_killed_for_want_of_memory_is_not_shown_as_all_it_had() {
    for tool in ["map", "heap"] {
        let Some((_group, words)) = greedy(tool) else { return };
        let output = faultless(&[tool, "--"]).args(words).output().unwrap();
        let said = text(&output);
        assert!(said.to_lowercase().contains("the kernel killed it for want of memory"), "{tool}: {said}");
        assert!(errors(&output).contains("was killed by SIGKILL"), "{tool}: {}", errors(&output));
    }
}

#[test]
fn figures_of_a_command_that_was_killed_for_want_of_memory_are_said_to_be_of_what_was_left() {
    for tool in ["run", "watch"] {
        let Some((_group, words)) = greedy(tool) else { return };
        let output = faultless(&[tool, "--"]).args(words).output().unwrap();
        let said = errors(&output);
        let says = "for want of memory, and takes the pages of such before their end: ";
        assert_eq!(said.matches(says).count(), 1, "{tool}: {said}");
        assert_eq!(output.status.signal(), Some(9), "{tool}: {said}");
    }
}
