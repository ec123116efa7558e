//! What `faultless churn --malloc` found, for programs.

use faultless_diagnosis::churn::holders::{at_peak, not_freed_by_thread};
use faultless_diagnosis::churn::malloc_blame::customers;
use faultless_records::malloc_recording::{Estimate, MallocRecording};
use faultless_records::measurement::Ending;
use serde_json::{Value, json};

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-churn-malloc/1";

/// The whole report.
#[must_use]
pub fn json(recording: &MallocRecording) -> String {
    let value = json!({
        "format": FORMAT,
        "subject": recording.subject,
        "mechanism": recording.mechanism.name(),
        "observed_seconds": recording.observed_s(),
        "exit_status": recording.ending.and_then(Ending::exit_status),
        "signal": recording.ending.and_then(Ending::signal),
        "processes": recording.processes,
        "execs": recording.execs,
        "functions": functions(recording),
        "frees": recording.frees,
        "freed_by_realloc": recording.freed_by_realloc,
        "failed": recording.failed,
        "described": recording.described,
        "lost": recording.lost,
        "counts_are_lower_bounds": recording.counts_are_lower_bounds(),
        "uncounted_threads": recording.uncounted_threads,
        "peak_live_bytes": recording.most_live_bytes(),
        "held_at_peak": held_at_peak(recording),
        "live_error_bytes": recording.live_error_bytes,
        "live_blocks": recording.live_blocks,
        "sizes": sizes(recording),
        "callers": callers(recording),
        "stacks": stacks(recording),
        "threads": threads(recording),
        "handovers": handovers(recording),
        "cost": {
            "counting_seconds": recording.cost.counting_ns / 1e9,
            "describing_seconds": recording.cost.describing_ns / 1e9,
            "tool_seconds": recording.cost.tool_ns / 1e9,
        },
        "remarks": recording.remarks,
    });
    format!("{value:#}\n")
}

/// What was called, and for blocks of which sizes.
fn functions(recording: &MallocRecording) -> Value {
    recording
        .calls_by_function()
        .iter()
        .map(|(function, sum)| {
            let sizes = sum.sizes.iter().map(|(class, amount)| {
            json!({ "from_bytes": from(*class), "calls": amount.count, "bytes": amount.bytes })
        });
            json!({
                "function": function.name(),
                "calls": sum.amount.count,
                "bytes": sum.amount.bytes,
                "sizes": sizes.collect::<Vec<_>>(),
            })
        })
        .collect()
}

/// What became of the blocks of each size.
fn sizes(recording: &MallocRecording) -> Value {
    recording
        .sizes
        .iter()
        .map(|(class, lives)| {
            let by_life = lives
                .by_life
                .iter()
                .map(|(life, blocks)| json!({ "from_seconds": from(*life) as f64 / 1e9, "blocks": blocks }));
            json!({
                "from_bytes": from(*class),
                "freed": estimate(lives.freed),
                "freed_by_another_thread": estimate(lives.freed_elsewhere),
                "live": estimate(lives.live),
                "unknown": estimate(lives.unknown),
                "by_life": by_life.collect::<Vec<_>>(),
            })
        })
        .collect()
}

/// Who called.
fn callers(recording: &MallocRecording) -> Value {
    customers(recording)
        .into_iter()
        .map(|customer| {
            json!({
                "function": customer.function,
                "called_by": customer.called_by,
                "calls_of": customer.by.name(),
                "allocated": estimate(customer.allocated),
                "live": estimate(customer.live),
                "mean_life_seconds": customer.mean_life_ns.map(|life_ns| life_ns / 1e9),
            })
        })
        .collect()
}

/// Who held most when most lived.
fn held_at_peak(recording: &MallocRecording) -> Value {
    at_peak(recording)
        .into_iter()
        .map(|holder| {
            json!({ "function": holder.function, "called_by": holder.called_by, "bytes": holder.bytes })
        })
        .collect()
}

/// By which call chains.
fn stacks(recording: &MallocRecording) -> Value {
    recording
        .callers
        .iter()
        .map(|caller| {
            json!({
                "calls_of": caller.function.name(),
                "allocated": estimate(caller.allocated),
                "live": estimate(caller.live),
                "unknown": estimate(caller.unknown),
                "frames": recording.stacks.get(caller.stack as usize),
            })
        })
        .collect()
}

/// What each thread took and gave.
fn threads(recording: &MallocRecording) -> Value {
    recording
        .threads
        .iter()
        .zip(not_freed_by_thread(recording))
        .map(|(thread, not_freed_bytes)| {
            json!({
                "pid": thread.pid,
                "tid": thread.tid,
                "name": thread.name,
                "allocated": estimate(thread.allocated),
                "freed_own": estimate(thread.freed_own),
                "freed_of_others": estimate(thread.freed_of_others),
                "not_freed_bytes": not_freed_bytes,
            })
        })
        .collect()
}

/// Which threads freed what others had allocated.
fn handovers(recording: &MallocRecording) -> Value {
    recording
        .handovers
        .iter()
        .map(|handover| {
            let tid = |place: usize| recording.threads.get(place).map(|thread| thread.tid);
            json!({ "from": tid(handover.from), "to": tid(handover.to), "amount": estimate(handover.amount) })
        })
        .collect()
}

fn from(class: u8) -> u64 {
    1_u64 << class.min(63)
}

fn estimate(estimate: Estimate) -> Value {
    json!({ "blocks": estimate.count, "bytes": estimate.bytes })
}
