//! What `faultless map` found, and a comparison of two maps, for programs.

use faultless_diagnosis::classification::totals::{Change, Total};
use faultless_records::cgroup::{MemoryGroup, Version};
use faultless_records::mappings::Usage;
use serde_json::{Value, json};

use super::nmt;
use super::saved_totals::SavedTotals;
use super::view::MapView;

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-map/1";

/// Version of the form of a comparison.
const CHANGE_FORMAT: &str = "faultless-map-diff/1";

/// The whole view; with `all`, every mapping.
#[must_use]
pub fn json(view: &MapView, all: bool) -> String {
    format!("{:#}\n", value(view, all))
}

/// As [`json()`], to be joined with other keys.
#[must_use]
pub fn value(view: &MapView, all: bool) -> Value {
    let is_measured = view.is_measured();
    let mut value = json!({
        "format": FORMAT,
        "subject": view.subject,
        "pid": view.pid,
        "mappings": view.mappings.len(),
        "most_mappings": view.most_mappings,
        "is_measured": is_measured,
        "sum": is_measured.then(|| usage(&view.sum())),
        "kernel_sum": view.kernel.as_ref().map(usage),
        "mapped_again": is_measured.then(|| usage(&view.mapped_again())),
        "counted_rss_bytes": view.counted_rss_bytes,
        "unknown_share": is_measured.then(|| view.unknown_share()),
        "kinds": view.totals.iter().map(|of_kind| total(of_kind, is_measured)).collect::<Vec<_>>(),
        "page_table_bytes": view.page_table_bytes,
        "unmapped_files": view.unmapped_files.map(|files| json!({ "count": files.count, "bytes": files.bytes, "pipes": files.pipes, "sockets": files.sockets })),
        "control_group": view.group.as_ref().map(group),
        "native_memory_tracking": view.java.as_ref().map(nmt::value),
        "remarks": view.remarks,
    });
    if all {
        value["parts"] = view.parts.iter().map(|part| {
            let mapping = &view.mappings[part.mapping];
            json!({
                "start": format!("{:#x}", part.extent.start),
                "end": format!("{:#x}", part.extent.end),
                "permissions": String::from_utf8_lossy(&mapping.permissions),
                "name": mapping.name_text(),
                "kind": part.kind.key(),
                "evidence": evidence(part.evidence.proof, part.evidence.strength.word(), &part.evidence.detail),
                "usage": part.usage.as_ref().map(usage),
                "is_estimated": part.is_estimated,
            })
        }).collect();
    }
    value
}

fn evidence(proof: &str, strength: &str, detail: &str) -> Value {
    json!({ "proof": proof, "strength": strength, "detail": if detail.is_empty() { None } else { Some(detail) } })
}

fn total(total: &Total, is_measured: bool) -> Value {
    let proofs = total.proofs.iter().map(
        |(proof, strength, count)| json!({ "proof": proof, "strength": strength.word(), "count": count }),
    );
    json!({
        "kind": total.kind.key(),
        "name": total.kind.name(),
        "count": total.count,
        "reserved_bytes": total.reserved_bytes,
        "accessible_bytes": total.accessible_bytes,
        "usage": is_measured.then(|| usage(&total.usage)),
        "evidence": proofs.collect::<Vec<_>>(),
    })
}

/// Figures of one piece or sum, all in bytes.
#[must_use]
pub fn usage(usage: &Usage) -> Value {
    let part = |bytes: u64| usage.is_divided().then_some(bytes);
    json!({
        "rss_bytes": usage.rss_bytes,
        "pss_bytes": usage.pss_bytes,
        "dirty_bytes": usage.dirty_bytes(),
        "pss_dirty_bytes": usage.pss_dirty_bytes,
        "shared_clean_bytes": part(usage.shared_clean_bytes),
        "shared_dirty_bytes": part(usage.shared_dirty_bytes),
        "private_clean_bytes": part(usage.private_clean_bytes),
        "private_dirty_bytes": part(usage.private_dirty_bytes),
        "anonymous_bytes": usage.anonymous_bytes,
        "lazy_free_bytes": usage.lazy_free_bytes,
        "huge_page_bytes": usage.anonymous_huge_bytes,
        "hugetlb_bytes": usage.hugetlb_bytes,
        "swap_bytes": usage.swap_bytes,
        "locked_bytes": usage.locked_bytes,
    })
}

/// Limit and usage of a control group.
#[must_use]
pub fn group(group: &MemoryGroup) -> Value {
    json!({
        "version": match group.version { Version::One => 1, Version::Two => 2 },
        "path": group.path,
        "limit_bytes": group.limit_bytes,
        "usage_bytes": group.usage_bytes,
        "anonymous_bytes": group.anonymous_bytes,
        "file_bytes": group.file_bytes,
    })
}

/// A comparison of two.
#[must_use]
pub fn changes(before: &SavedTotals, after: &SavedTotals, changes: &[Change]) -> String {
    let kinds = changes.iter().map(|change| {
        json!({
            "kind": change.kind.key(),
            "name": change.kind.name(),
            "count": [change.count.0, change.count.1],
            "reserved_bytes": [change.reserved_bytes.0, change.reserved_bytes.1],
            "before": before.is_measured.then(|| usage(&change.before)),
            "after": after.is_measured.then(|| usage(&change.after)),
        })
    });
    let value = json!({
        "format": CHANGE_FORMAT,
        "before": before.name,
        "after": after.name,
        "is_measured": [before.is_measured, after.is_measured],
        "kinds": kinds.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::{Sight, classify};
    use faultless_records::mappings;

    #[test]
    fn sizes_in_memory_that_were_not_measured_are_missing_and_not_zero() {
        let mappings = mappings::parse(
            b"10000-20000 rw-p 00000000 00:00 0 [heap]\n30000-40000 r--p 00000000 00:00 0 /x\n",
        );
        let mappings = mappings.unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let text = json(&MapView::new("x".into(), None, mappings, parts), true);
        let value: Value = serde_json::from_str(&text).unwrap();
        for figures in ["/sum", "/mapped_again", "/unknown_share", "/kinds/0/usage", "/parts/0/usage"] {
            assert_eq!(value.pointer(figures), Some(&Value::Null), "{figures}: {text}");
        }
        let saved = crate::map::saved_totals::load(&text).unwrap();
        assert!(!saved.is_measured && saved.totals.len() == 2);
        let change = faultless_diagnosis::classification::totals::changes(&saved.totals, &saved.totals);
        let value: Value = serde_json::from_str(&changes(&saved, &saved, &change)).unwrap();
        assert_eq!((&value["kinds"][0]["before"], &value["kinds"][1]["after"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn kinds_and_parts_add_up_to_the_sum() {
        let text = "10000-20000 rw-p 00000000 00:00 0 [heap]\nRss: 64 kB\nVmFlags: rd\n\
                    30000-40000 rw-p 00000000 00:00 0 \nRss: 8 kB\nSwap: 4 kB\nVmFlags: rd\n";
        let mappings = mappings::parse(text.as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let view = MapView::new("x".into(), Some(7), mappings, parts);
        let value: Value = serde_json::from_str(&json(&view, true)).unwrap();
        let rss = |value: &Value| value["usage"]["rss_bytes"].as_u64().unwrap();
        let sum = |key: &str| value[key].as_array().unwrap().iter().map(rss).sum::<u64>();
        assert_eq!(value["sum"]["rss_bytes"], 72 << 10);
        assert_eq!((sum("kinds"), sum("parts")), (72 << 10, 72 << 10));
        assert_eq!((value["format"].as_str(), value["pid"].as_i64()), (Some(FORMAT), Some(7)));
    }
}
