//! The report of `faultless doctor --pid` for programs.

use serde_json::json;

use super::ProcessConsultation;

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-doctor-process/1";

/// The whole consultation.
#[must_use]
pub fn json(seen: &ProcessConsultation) -> String {
    let activity = &seen.activity;
    let findings = seen.findings();
    let told = findings.iter().map(|finding| {
        json!({
            "concern": finding.concern.key(),
            "sentence": finding.sentence,
            "advice": finding.advice,
            "is_waste": finding.waste.is_some(),
        })
    });
    let value = json!({
        "format": FORMAT,
        "pid": seen.pid,
        "name": seen.name,
        "command": seen.command,
        "program_is_replaced": seen.is_replaced,
        "activity": {
            "seconds": activity.seconds,
            "rss_before_bytes": activity.rss_before_bytes,
            "rss_after_bytes": activity.rss_after_bytes,
            "peak_rss_bytes": activity.peak_rss_bytes,
            "threads": activity.threads,
            "minor_faults": activity.minor_faults,
            "major_faults": activity.major_faults,
            "user_seconds": activity.user_s,
            "system_seconds": activity.system_s,
        },
        "malloc_resident_bytes": seen.map.is_measured().then(|| seen.malloc_bytes()),
        "trapped_bytes": seen.trapped_bytes(),
        "trapped_before_bytes": seen.trapped_before_bytes,
        "malloc_time": seen.malloc_time.as_ref().map(|time| json!({ "samples": time.samples, "inside": time.inside, "sampled_seconds": time.seconds })),
        "arena_waits": seen.arena_waits.map(
            |waits| json!({ "looks": waits.looks, "waits": waits.waits, "arenas": waits.arenas })
        ),
        "findings": told.collect::<Vec<_>>(),
        "remarks": seen.all_remarks().collect::<Vec<_>>(),
        "verdict": {
            "sentence": seen.verdict(&findings),
            "line_to_try": seen.line_to_try(&findings),
            "lines_to_look_further": seen.lines_to_look_further(&findings),
        },
    });
    format!("{value:#}\n")
}
