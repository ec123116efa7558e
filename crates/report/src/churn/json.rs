//! What `faultless churn` found, for programs.

use faultless_diagnosis::churn::blame::culprits;
use faultless_diagnosis::churn::holders::of_mappings;
use faultless_diagnosis::churn::thrash::findings;
use faultless_records::churn_recording::{Amount, ChurnRecording, Lifetimes};
use faultless_records::measurement::Ending;
use serde_json::{Value, json};

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-churn/1";

/// The whole report.
#[must_use]
pub fn json(recording: &ChurnRecording) -> String {
    let seconds = recording.observed_s();
    let calls: u64 = recording.operations.values().map(|sum| sum.amount.count + sum.failed).sum();
    let value = json!({
        "format": FORMAT,
        "subject": recording.subject,
        "mechanism": recording.mechanism.name(),
        "refused": recording.refused,
        "observed_seconds": seconds,
        "exit_status": recording.ending.and_then(Ending::exit_status),
        "signal": recording.ending.and_then(Ending::signal),
        "processes": recording.processes,
        "threads_started": recording.threads_started,
        "execs": recording.execs,
        "calls": calls,
        "calls_per_second": calls as f64 / seconds,
        "lost_calls": recording.lost_calls,
        "is_blind_to_some": recording.is_blind_to_some,
        "overhead": recording.cost_per_call_ns.map(|cost_ns| json!({
            "seconds_per_call": cost_ns / 1e9,
            "seconds": cost_ns * calls as f64 / 1e9,
        })),
        "thrash": thrash(recording),
        "operations": operations(recording, seconds),
        "lifetimes": recording.ended_mappings.iter().map(|(class, lives)| lifetimes(*class, lives)).collect::<Vec<_>>(),
        "live_at_end": live_at_end(recording),
        "call_chains": { "taken": recording.chains.taken, "lost": recording.chains.lost },
        "callers": callers(recording),
        "stacks": stacks(recording),
        "timeline": {
            "step_seconds": recording.timeline.step_ns as f64 / 1e9,
            "calls": recording.timeline.calls,
            "returned_bytes": recording.timeline.returned_bytes,
        },
        "remarks": recording.remarks,
    });
    format!("{value:#}\n")
}

/// What was called.
fn operations(recording: &ChurnRecording, seconds: f64) -> Value {
    recording
        .operations
        .iter()
        .map(|(operation, sum)| {
            json!({
                "call": operation.kind().name(),
                "operation": operation,
                "calls": sum.amount.count,
                "failed": sum.failed,
                "bytes": sum.amount.bytes,
                // JSON has no infinity: of no time at all these are null.
                "calls_per_second": (sum.amount.count + sum.failed) as f64 / seconds,
                "bytes_per_second": sum.amount.bytes as f64 / seconds,
                "sizes": sum.sizes.iter().map(|(class, amount)| size(*class, *amount)).collect::<Vec<_>>(),
            })
        })
        .collect()
}

/// What comes back again and again.
fn thrash(recording: &ChurnRecording) -> Value {
    findings(recording)
        .into_iter()
        .map(|finding| {
            json!({
                "pattern": finding.pattern,
                "sentence": finding.sentence,
                "remedy": finding.remedy,
                "caller": finding.caller.as_ref().map(|caller| &caller.function),
                "caller_part": finding.caller.as_ref().map(|caller| caller.part),
                "callers": finding.caller.as_ref().map(|caller| caller.functions),
                "times": finding.times,
                "times_per_second": finding.per_second,
                "pages_each": finding.pages_each,
                "pages_per_second": finding.pages_per_second,
                "smallest_bytes": finding.range_bytes.0,
                "largest_bytes": finding.range_bytes.1,
                "gap_seconds": finding.gap_ns / 1e9,
            })
        })
        .collect()
}

/// What is held, and by whom.
fn live_at_end(recording: &ChurnRecording) -> Value {
    let holders = of_mappings(recording).into_iter().map(
        |holder| json!({ "function": holder.function, "called_by": holder.called_by, "bytes": holder.bytes }),
    );
    json!({
        "mappings": recording.live_mappings.count,
        "bytes": recording.live_mappings.bytes,
        "holders": holders.collect::<Vec<_>>(),
    })
}

/// Who called.
fn callers(recording: &ChurnRecording) -> Value {
    culprits(recording)
        .into_iter()
        .map(|culprit| {
            json!({
                "function": culprit.function,
                "called_by": culprit.called_by,
                "operation": culprit.operation,
                "calls": culprit.amount.count,
                "bytes": culprit.amount.bytes,
                "through_malloc": culprit.through_malloc,
            })
        })
        .collect()
}

/// By which call chains.
fn stacks(recording: &ChurnRecording) -> Value {
    recording
        .callers
        .iter()
        .map(|caller| {
            json!({
                "operation": caller.operation,
                "calls": caller.amount.count,
                "bytes": caller.amount.bytes,
                "frames": recording.stacks.get(caller.stack as usize),
            })
        })
        .collect()
}

fn size(class: u8, amount: Amount) -> Value {
    json!({ "from_bytes": 1_u64 << class.min(63), "calls": amount.count, "bytes": amount.bytes })
}

fn lifetimes(class: u8, lives: &Lifetimes) -> Value {
    let by_life: Vec<Value> = lives
        .by_life
        .iter()
        .map(|(class, number)| json!({ "from_seconds": (1_u64 << (*class).min(63)) as f64 / 1e9, "mappings": number }))
        .collect();
    json!({
        "from_bytes": 1_u64 << class.min(63),
        "mappings": lives.amount.count,
        "bytes": lives.amount.bytes,
        "by_life": by_life,
    })
}
