//! `faultless watch --cgroup`, through the real program, on the control group of the test itself.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod memory_group;
mod place;
mod running;
mod tool;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use memory_group::own_group;
use place::Place;
use running::{Running, send};
use serde_json::Value;
use tool::{assert_refused, errors, faultless, text};

#[test]
fn a_control_group_is_watched_with_its_memory_and_those_who_come_and_go() {
    let Some(group) = own_group() else {
        faultless_skipped::skipped("the memory control group of this process is not to be seen here");
        return;
    };
    let place = Place::new("group");
    let file = place.file("record");
    let group = group.to_string_lossy().into_owned();
    let words = [
        "watch", "--cgroup", &group, "-i", "50ms", "--for", "60s", "--json", "--pss", "0", "--record", &file,
    ];
    let mut watching = Running::start(faultless(&words).stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap()).lines();
    let mut next = |wanted: &dyn Fn(&Value) -> bool| loop {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if wanted(&line) {
            return line;
        }
    };
    let of = |line: &Value, kind: &str| line["line"] == kind;
    let seen = next(&|line| of(line, "group"));
    assert!(seen["path"] == group.as_str() && [1, 2].contains(&seen["version"].as_i64().unwrap()), "{seen}");
    let sample = next(&|line| of(line, "group_sample"));
    assert!(sample["current_bytes"].as_u64().unwrap() > 0, "{sample}");

    // One that begins later is found, and its end is seen.
    let late = Running::start(Command::new("sleep").arg("600"));
    let met = next(&|line| of(line, "process") && line["pid"] == late.0.id());
    drop(late);
    next(&|line| of(line, "event") && line["event"] == "exit" && line["process"] == met["process"]);
    let tool = watching.pid();
    send("INT", &tool);
    assert!(watching.0.wait().unwrap().success());

    // The recording has the group, too, and not the tool itself.
    let recorded = fs::read_to_string(&file).unwrap();
    assert!(!recorded.contains(&format!("\"pid\":{tool},")), "the tool watches itself");
    let shown = faultless(&["watch", "--replay", &file, "--csv"]).output().unwrap();
    assert!(text(&shown).contains(&format!(",group,,{group},")));
    assert!(errors(&shown).contains(&format!("cgroup {group}: ")), "{}", errors(&shown));
}

#[test]
fn a_control_group_that_is_not_there_is_refused_in_one_line() {
    let mut command = faultless(&["watch", "--cgroup", "no/such/group"]);
    assert_refused(&mut command, 1, "no control group no/such/group");
}
