//! The report of `faultless doctor` for programs.

use faultless_diagnosis::effect::{Effect, Figures, Judgement};
use faultless_diagnosis::setting::Setting;
use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::verdict::Role;
use faultless_records::measurement::Orphan;
use serde_json::{Value, json};

use crate::doctor::Consultation;
use crate::summary;

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-doctor/1";

/// The whole consultation.
#[must_use]
pub fn json(consultation: &Consultation) -> String {
    let arms = consultation.arms.iter().zip(&consultation.verdict.arms).map(|(arm, judged)| {
        let (role, set) = match &arm.role {
            Role::AsIs => ("as_is", None),
            Role::Defaults => ("defaults", None),
            Role::Libc(set) => ("libc", Some(settings(set))),
            Role::Faultless => ("faultless", None),
        };
        json!({
            "name": arm.name,
            "role": role,
            "settings": set,
            "figures": figures(&judged.figures),
            "effect": judged.effect.as_ref().map(effect),
            "runs": arm.runs.iter().map(summary::figures).collect::<Vec<_>>(),
        })
    });
    let findings = consultation
        .findings
        .iter()
        .map(|finding| json!({ "variable": finding.variable, "message": finding.message }));
    let parts = consultation.tuning.parts.iter().map(
        |part| json!({ "name": part.name, "settings": settings(&part.settings), "reason": part.reason }),
    );
    let remarks = [&consultation.doubts, &consultation.tuning.remarks, &consultation.remarks];
    let value = json!({
        "format": FORMAT,
        "command": if consultation.is_demo { None } else { Some(&consultation.command) },
        "glibc": consultation.glibc.map(|(major, minor)| format!("{major}.{minor}")),
        "environment": findings.collect::<Vec<_>>(),
        "tuning": parts.collect::<Vec<_>>(),
        "remarks": remarks.into_iter().flatten().collect::<Vec<_>>(),
        "heap": heap(consultation),
        "loaded_data": loaded_data(consultation),
        "arms": arms.collect::<Vec<_>>(),
        "detached": consultation.orphans.iter().map(orphan).collect::<Vec<_>>(),
        "verdict": {
            "sentence": consultation.verdict.sentence,
            "faultless_helps": consultation.verdict.faultless_helps,
            "best_libc_settings": consultation.best_settings().map(settings),
            "endings_agree": consultation.verdict.endings_agree,
            "lines_to_paste": consultation.lines_to_paste(),
            "lines_to_look_further": consultation.lines_to_look_further(),
        },
    });
    format!("{value:#}\n")
}

fn orphan(orphan: &Orphan) -> Value {
    let processor_seconds = (!orphan.goes_on).then_some(orphan.processor.as_secs_f64());
    json!({ "name": orphan.name, "processor_seconds": processor_seconds, "goes_on": orphan.goes_on })
}

fn settings(settings: &[Setting]) -> Value {
    settings
        .iter()
        .map(|setting| (setting.variable.to_owned(), json!(setting.value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn heap(consultation: &Consultation) -> Option<Value> {
    let heap = consultation.heap.as_ref()?;
    let bins = heap.large_bins.iter().map(|bin| {
        json!({
            "smallest_bytes": bin.smallest_bytes,
            "largest_bytes": bin.largest_bytes,
            "allocations": bin.allocations,
            "peak_live_bytes": bin.peak_live_bytes,
        })
    });
    Some(json!({
        "large": bins.collect::<Vec<_>>(),
        "large_live_peak_bytes": heap.large_live_peak_bytes,
        "small_live_peak_bytes": heap.small_live_peak_bytes,
        "heap_peak_bytes": heap.heap_peak_bytes,
        "purged_bytes": heap.purged_bytes,
        "purges": heap.purges,
        "threads_peak": heap.threads_peak,
    }))
}

fn loaded_data(consultation: &Consultation) -> Option<Value> {
    let found = consultation.loaded_data.as_ref()?;
    let left = found.left.iter().map(|(arm, left)| json!({ "arm": arm, "part_of_excess_faults": left }));
    Some(json!({
        "sentences": found.sentences(),
        "data_bytes": found.data_bytes,
        "data_blocks": found.data_blocks,
        "threads": found.threads,
        "minor_faults": found.faults,
        "data_faults_at_most": found.data_faults,
        "excess_faults": found.excess_faults(),
        "left": left.collect::<Vec<_>>(),
        "cures": found.cures(),
        "numa_nodes": found.numa_nodes,
    }))
}

fn figures(figures: &Figures) -> Value {
    let spread = |spread: &Spread| json!({ "median": spread.median, "minimum": spread.minimum, "maximum": spread.maximum });
    json!({
        "user_seconds": spread(&figures.user),
        "system_seconds": spread(&figures.system),
        "elapsed_seconds": spread(&figures.elapsed),
        "major_faults": spread(&figures.major_faults),
        "minor_faults": spread(&figures.minor_faults),
        "waits": spread(&figures.waits),
        "peak_rss_bytes": spread(&figures.peak_rss),
        "final_rss_bytes": figures.final_rss.as_ref().map(spread),
    })
}

fn effect(effect: &Effect) -> Value {
    let judgement = match effect.judgement() {
        Judgement::Faster => "faster",
        Judgement::Smaller => "smaller",
        Judgement::FewerFaultsOnly => "fewer_faults_only",
        Judgement::NoEffect => "no_effect",
        Judgement::Larger => "larger",
        Judgement::Slower => "slower",
    };
    json!({
        "judgement": judgement,
        "elapsed_ratio": effect.elapsed_ratio,
        "processor_ratio": effect.processor_ratio,
        "minor_fault_ratio": effect.fault_ratio,
        "wait_ratio": effect.wait_ratio.is_finite().then_some(effect.wait_ratio),
        "peak_rss_ratio": effect.peak_ratio,
        "costs_memory": effect.costs_memory(),
    })
}
