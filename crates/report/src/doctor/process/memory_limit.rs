//! Whether a process's control group has little of its memory left.

use faultless_records::cgroup::MemoryGroup;
use faultless_records::quantity::{percent, size};

use super::ProcessConsultation;
use super::finding::{Concern, Finding, NOTABLE_PART};

/// From this part on a group is at its limit: what is charged to it then takes the place of its page cache.
const NEARLY_ALL: f64 = 0.95;

/// What is said of it, where it matters.
pub(super) fn of(seen: &ProcessConsultation) -> Option<Finding> {
    let group = seen.map.group.as_ref()?;
    let limit = group.limit_bytes.filter(|bytes| *bytes > 0)?;
    // The kernel drops files from memory before it ends a process, but those that are nowhere else.
    let held = group
        .anonymous_bytes
        .map_or(group.usage_bytes, |anonymous| anonymous.saturating_add(group.shared_bytes.unwrap_or(0)));
    let of_limit = |bytes: u64| bytes as f64 / limit as f64;
    let says = if held >= limit / NOTABLE_PART * (NOTABLE_PART - 1) {
        format!(
            "{} of that is memory that the kernel cannot drop: at the limit it swaps, if it may, and else ends a process",
            percent(of_limit(held))
        )
    } else if of_limit(group.usage_bytes) >= NEARLY_ALL && seen.activity.has_many_major_faults() {
        format!(
            "uses {} of that, {} of it pages of files: the kernel drops some of these for each new one, and major faults read them again",
            percent(of_limit(group.usage_bytes)),
            size(droppable_bytes(group))
        )
    } else {
        return None;
    };
    let sentence = format!("its control group {} may use {}, and {says}", group.path, size(limit));
    Some(Finding::new(Concern::MemoryLimit, sentence))
}

/// Page cache that the kernel may drop.
fn droppable_bytes(group: &MemoryGroup) -> u64 {
    group.file_bytes.unwrap_or(0).saturating_sub(group.shared_bytes.unwrap_or(0))
}
