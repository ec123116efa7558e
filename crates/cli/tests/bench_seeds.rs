//! Suites of `faultless bench` whose programs are drawn from a number, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs;
use std::process::Command;

use faultless_probe::java;
use faultless_records::workload_report;
use place::Place;
use serde_json::Value;
use tool::{assert_misused, errors, json_of_file as json, text as table};

fn bench(place: &Place, words: &[&str]) -> Command {
    tool::bench(&place.file("tmp"), words)
}

#[test]
fn a_case_of_the_seeds_is_judged_in_table_file_and_page_and_its_seed_repeats_it() {
    let place = Place::with_temporary("seeds");
    let (saved, page) = (place.file("samples.json"), place.file("page.html"));
    let words =
        ["-q", "-n", "1", "-a", "libc,faultless", "grow", "--seed", "7", "--json", &saved, "--html", &page];
    let output = bench(&place, &words).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = table(&output);
    assert!(text.contains("--seed 7 repeats them") && text.contains("grow random:7 small"), "{text}");
    assert!(text.contains("within the limit: libc 6 of 6, faultless "), "{text}");
    assert!(fs::read_to_string(&page).unwrap().contains("What each case must show"));

    let value = json(&saved);
    assert_eq!(value["seed"], 7);
    let criteria = value["criteria"].as_array().unwrap();
    assert_eq!(criteria.len(), 3 * 3 * 2, "time, memory and faults of three forms under two allocators");
    assert!(criteria.iter().all(|of| of["figure"].as_f64().is_some()), "{criteria:?}");
    let asked_for = |value: &Value, cell: u64| -> Vec<Value> {
        let samples = value["samples"].as_array().unwrap().iter();
        samples
            .filter(|run| run["cell"] == cell)
            .map(|run| run["figures"]["live_peak_bytes"].clone())
            .collect()
    };
    let first = asked_for(&value, 3);
    assert_eq!(first[0], first[1], "allocators meet the same");
    let again = place.file("again.json");
    let output =
        bench(&place, &["-q", "-n", "1", "-a", "libc", "grow", "--seed", "7", "--json", &again]).output();
    assert!(output.unwrap().status.success());
    assert_eq!(asked_for(&json(&again), 3)[0], first[0], "so does the next campaign with this seed");
}

#[test]
fn the_java_case_reports_where_people_write_a_comma_for_the_point() {
    let Some(java) = java::installed().pop() else {
        return faultless_skipped::skipped("no JDK is installed");
    };
    // The seed draws pauses of some milliseconds.
    let output = Command::new(java.home.join("bin/java"))
        .args(["-Duser.language=de", "-Duser.country=DE"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../trial/src/benchmark/seeds/Bursts.java"))
        .args(["1", "small", "0", "random:2166"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let report = workload_report::parse(&table(&output)).map(|report| report.seconds);
    assert!(report.is_some_and(|seconds| seconds > 0.06), "{}", table(&output));
}

#[test]
fn programs_are_drawn_from_numbers_that_repeat_them() {
    let place = Place::with_temporary("drawn");
    let saved = place.file("samples.json");
    let words = ["-q", "-n", "1", "-a", "libc,faultless", "drawn", "--seed", "7", "--json", &saved];
    let output = bench(&place, &words).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = table(&output);
    assert!(text.contains("--seed 7 repeats them") && text.contains("drawn 9 small 8"), "{text}");
    let value = json(&saved);
    assert_eq!((&value["seed"], value["cells"].as_array().unwrap().len()), (&Value::from(7), 12));
    let samples = value["samples"].as_array().unwrap();
    for cell in 0..12 {
        let of_cell: Vec<&Value> = samples.iter().filter(|run| run["cell"] == cell).collect();
        let asked_for =
            |run: &Value| (run["figures"]["live_peak_bytes"].clone(), run["marks"]["mean_bytes"].clone());
        assert!(of_cell[0]["marks"]["mean_bytes"].as_f64().is_some(), "{:?}", of_cell[0]);
        assert_eq!(asked_for(of_cell[0]), asked_for(of_cell[1]), "allocators meet the same");
    }
}

#[test]
fn seeds_that_no_program_takes_are_refused() {
    let place = Place::with_temporary("seed");
    assert_misused(&mut bench(&place, &["grow", "--seed", "4294967296"]), "--seed");
}
