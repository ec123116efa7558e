//! What in a process's environment steers malloc, and what only means to.

use faultless_diagnosis::environment::{Facts, check};
use faultless_diagnosis::setting::tunable_of;
use faultless_records::allocator::Allocator;
use faultless_records::mappings;

use super::ProcessConsultation;
use super::finding::{Concern, Finding, is_glibcs};
use crate::paste;

/// What is said of it: what glibc's malloc was told, and what has no effect.
pub(super) fn of(seen: &ProcessConsultation) -> Vec<Finding> {
    let allocator = if is_glibcs(seen) { Allocator::Libc } else { mappings::allocator(&seen.map.mappings) };
    // Of a program without glibc's malloc, as of Go or musl, nobody reads them.
    let is_reader_known = is_glibcs(seen) || allocator != Allocator::Libc;
    if seen.map.has_own_malloc || !is_reader_known {
        return Vec::new();
    }
    let facts = Facts {
        variables: &seen.environment,
        glibc: seen.heap.as_ref().and_then(|heap| heap.glibc),
        tunables: &[],
        allocator,
        missing_preloads: &[],
    };
    let without_effect = check(&facts);
    let is_told = |name: &str, value: &str| match name {
        "GLIBC_TUNABLES" => value.contains("glibc.malloc."),
        _ => tunable_of(name).is_some(),
    };
    let told: Vec<String> = seen
        .environment
        .iter()
        .filter(|(name, value)| allocator == Allocator::Libc && is_told(name, value))
        .filter(|(name, _)| without_effect.iter().all(|found| found.variable != *name))
        .map(|(name, value)| format!("{name}={}", paste::quoted(value)))
        .collect();
    let steered = (!told.is_empty()).then(|| {
        let sentence = format!("malloc is not as glibc has it: its environment sets {}", told.join(" "));
        let compared = "faultless doctor -- CMD, with the same set, compares that with glibc's defaults, too";
        Finding {
            advice: seen.obstacle.is_none().then(|| compared.into()),
            ..Finding::new(Concern::Settings, sentence)
        }
    });
    let is_idle = without_effect.into_iter().map(|found| {
        Finding::new(Concern::Settings, format!("{} in its environment {}", found.variable, found.message))
    });
    steered.into_iter().chain(is_idle).collect()
}
