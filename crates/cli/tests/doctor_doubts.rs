//! What the runs of `faultless doctor` read.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs::{self, File};
use std::process::{Command, Stdio};

use place::Place;
use tool::{errors, json};

fn doctor(place: &Place, words: &[&str]) -> Command {
    let mut command = tool::faultless(&["doctor", "-n", "1", "--json", "--"]);
    command.args(words).env("TMPDIR", place.0.join("tmp")).stdin(Stdio::null());
    command
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
