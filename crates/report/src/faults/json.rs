//! The analysis of a recording of page faults, for programs.

use faultless_diagnosis::faults::balance::Balance;
use faultless_diagnosis::faults::comparison::Comparison;
use faultless_diagnosis::faults::profile::{Amount, Function, Profile};
use faultless_diagnosis::faults::weight::counted;
use faultless_records::fault_recording::{FaultCounts, FaultRecording};
use serde_json::{Value, json};

use super::answer::Doubt;

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-faults/1";

/// Version of the form of a comparison, documented in `docs/json.md`.
const DIFF_FORMAT: &str = "faultless-faults-diff/1";

/// The analysis.
#[must_use]
pub fn json(recording: &FaultRecording) -> String {
    let profile = Profile::of(recording);
    let balance = Balance::of(recording);
    let memory = profile.kinds.iter().map(|(kind, sum)| {
        let mut value = amount(sum, profile.share(sum.faults));
        value["memory"] = json!(kind.name());
        value
    });
    let processes = profile
        .processes
        .iter()
        .map(|(name, pid, faults)| json!({ "pid": pid, "name": name, "faults": faults }));
    let value = json!({
        "format": FORMAT,
        "command": (!recording.subject.command.is_empty()).then_some(&recording.subject.command),
        "pid": recording.subject.pid,
        "name": recording.subject.name,
        "started_unix_s": recording.started_unix_s,
        "seconds": recording.observed_s(),
        "faults": counts(counted(recording)),
        "functions": profile.functions.iter().map(|each| function(each, &profile)).collect::<Vec<_>>(),
        "memory": memory.collect::<Vec<_>>(),
        "processes": processes.collect::<Vec<_>>(),
        "agreement": {
            "accounts": balance.accounts.map(counts),
            "accounts_are_late": recording.counters.accounts_are_late,
            "in_programs": counts(balance.user),
            "in_system_calls": balance.kernel.map(counts),
            "before_the_command": counts(balance.before),
            "without_event": balance.without_event.map(counts),
            "beyond_accounts": counts(balance.beyond_accounts),
        },
        "doubt": Doubt::of(recording, &profile).map(|doubt| json!({
            "sentence": doubt.sentence(),
            "faults": doubt.faults,
            "first_is_certain": doubt.is_certain,
            "every": doubt.every,
        })),
        "method": method(recording),
        "remarks": recording.remarks,
        "modules_without_names": recording
            .tree
            .modules
            .iter()
            .filter_map(|module| Some(json!({ "path": module.path, "trouble": module.trouble.as_ref()? })))
            .collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn function(function: &Function, profile: &Profile) -> Value {
    let through = function.through.iter().map(|(name, faults)| json!({ "function": name, "faults": faults }));
    let lines = function
        .lines
        .iter()
        .map(|((file, line), faults)| json!({ "file": file, "line": line, "faults": faults }));
    let memory =
        function.kinds.iter().map(|(kind, faults)| json!({ "memory": kind.name(), "faults": faults }));
    let mut value = amount(&function.amount, profile.share(function.amount.faults));
    value["function"] = json!(function.name);
    value["module"] = json!(function.module);
    value["lines"] = lines.collect();
    value["through"] = through.collect();
    value["memory"] = memory.collect();
    value
}

fn method(recording: &FaultRecording) -> Value {
    let method = &recording.method;
    json!({
        "steps": method.steps,
        "samples": recording.faults.iter().map(|faults| faults.samples).sum::<u64>(),
        "stack_bytes": method.stack_bytes,
        "cut_chains": method.cut_chains,
        "lost_samples": method.lost_samples,
        "lost_mapping_records": method.lost_news,
        "buffer_bytes": method.buffer_bytes,
        "sees_kernel": method.sees_kernel,
        "sees_huge_pages": method.sees_huge_pages,
        "observer_cpu_seconds": recording.cost.observer_cpu_ns as f64 / 1e9,
        "subject_cpu_seconds": recording.cost.subject_cpu_ns.map(|time| time as f64 / 1e9),
    })
}

fn counts(counts: FaultCounts) -> Value {
    json!({ "minor": counts.minor, "major": counts.major })
}

fn amount(amount: &Amount, share: f64) -> Value {
    json!({
        "faults": amount.faults,
        "share": share,
        "major": amount.major,
        "in_system_calls": amount.in_kernel,
        "huge": amount.huge,
    })
}

/// A comparison of two recordings.
#[must_use]
pub fn diff(comparison: &Comparison) -> String {
    let functions = comparison.functions.iter().map(|change| {
        json!({
            "function": change.name,
            "module": change.module,
            "before": change.before,
            "after": change.after,
            "difference": change.difference(),
        })
    });
    let value = json!({
        "format": DIFF_FORMAT,
        "faults": { "before": comparison.all.0, "after": comparison.all.1 },
        "seconds": { "before": comparison.seconds.0, "after": comparison.seconds.1 },
        "functions": functions.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tree::tests::{recording, recording_of_short_lives};

    #[test]
    fn the_analysis_says_who_and_how_much() {
        let value: Value = serde_json::from_str(&json(&recording())).unwrap();
        assert_eq!(value["format"], FORMAT);
        assert_eq!(value["functions"][0]["function"], "dgemm");
        assert_eq!(value["functions"][0]["memory"][0]["memory"], "anonymous (mmap)");
        assert_eq!(value["agreement"]["in_system_calls"], Value::Null);
        assert_eq!(value["doubt"], Value::Null);
    }

    #[test]
    fn shares_that_short_lives_leave_in_doubt_are_said_to_be() {
        let mut recording = recording_of_short_lives();
        let doubt = |recording: &FaultRecording| {
            let value: Value = serde_json::from_str(&json(recording)).unwrap();
            value["doubt"].clone()
        };
        let doubtful = doubt(&recording);
        assert_eq!((&doubtful["faults"], &doubtful["every"]), (&json!(6900.0), &json!(2)));
        assert_eq!(doubtful["first_is_certain"], false);
        let sentence = doubtful["sentence"].as_str().unwrap();
        assert!(sentence.starts_with("No function stands out for certain: up to 6,900"), "{sentence}");
        (recording.method.steps[0].minor_faults, recording.method.steps[0].ended_threads) = (100 * 53, 20);
        recording.counters.user.minor = 100 * 53;
        let rough = doubt(&recording);
        assert_eq!((&rough["faults"], &rough["first_is_certain"]), (&json!(1060.0), &json!(true)));
        recording.method.steps[0].ended_threads = 0;
        assert_eq!(doubt(&recording), Value::Null);
    }
}
