//! The sums in what `faultless map --json` printed earlier, to be compared with others.

use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::totals::Total;
use faultless_records::mappings::Usage;
use faultless_records::saved_form;
use serde_json::Value;

use super::json::FORMAT;
use crate::saved_form::reason;

/// The sums of one file.
#[derive(Debug)]
pub struct SavedTotals {
    /// Where they come from.
    pub name: String,
    /// By kind.
    pub totals: Vec<Total>,
    /// Whether sizes in memory are known, not only addresses.
    pub is_measured: bool,
    /// What could not be seen.
    pub remarks: Vec<String>,
}

/// Those of what was printed.
///
/// # Errors
/// What is wrong with the text, in words.
pub fn load(text: &str) -> Result<SavedTotals, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {}", reason(text, &error)))?;
    saved_form::check(value["format"].as_str().ok_or("it is JSON of something else")?, FORMAT)?;
    let kinds = value["kinds"].as_array().ok_or("it has no kinds")?;
    let is_measured = value["is_measured"] != false;
    let totals = kinds
        .iter()
        .map(|kind| total(kind, is_measured).ok_or_else(|| "one of its kinds is damaged".to_owned()));
    let name = value["subject"].as_str().unwrap_or("a process").to_owned();
    let remarks = value["remarks"].as_array().into_iter().flatten();
    let remarks = remarks.filter_map(|remark| remark.as_str().map(str::to_owned)).collect();
    Ok(SavedTotals { name, totals: totals.collect::<Result<_, _>>()?, is_measured, remarks })
}

/// A number that can be one: no address space is larger, and sums of some have room.
fn amount(value: &Value) -> Option<u64> {
    value.as_u64().filter(|number| *number <= 1 << 57)
}

fn total(value: &Value, is_measured: bool) -> Option<Total> {
    let number = |name: &str| amount(&value[name]);
    Some(Total {
        kind: Kind::of_key(value["kind"].as_str()?)?,
        count: number("count")?,
        reserved_bytes: number("reserved_bytes")?,
        accessible_bytes: number("accessible_bytes")?,
        usage: if is_measured { usage(&value["usage"])? } else { Usage::default() },
        proofs: Vec::new(),
    })
}

fn usage(value: &Value) -> Option<Usage> {
    let bytes = |name: &str| amount(&value[name]);
    let part = |name: &str| if value[name].is_null() { Some(0) } else { bytes(name) };
    Some(Usage {
        rss_bytes: bytes("rss_bytes")?,
        pss_bytes: bytes("pss_bytes")?,
        pss_dirty_bytes: bytes("pss_dirty_bytes")?,
        shared_clean_bytes: part("shared_clean_bytes")?,
        shared_dirty_bytes: part("shared_dirty_bytes")?,
        private_clean_bytes: part("private_clean_bytes")?,
        private_dirty_bytes: part("private_dirty_bytes")?,
        anonymous_bytes: bytes("anonymous_bytes")?,
        lazy_free_bytes: bytes("lazy_free_bytes")?,
        anonymous_huge_bytes: bytes("huge_page_bytes")?,
        hugetlb_bytes: bytes("hugetlb_bytes")?,
        swap_bytes: bytes("swap_bytes")?,
        locked_bytes: bytes("locked_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::json::json;
    use crate::map::view::MapView;
    use faultless_diagnosis::classification::{Sight, classify};
    use faultless_records::mappings;

    #[test]
    fn what_was_written_is_read_again() {
        let text = "10000-20000 rw-p 00000000 00:00 0 [heap]\nRss: 64 kB\nPss: 60 kB\nVmFlags: rd\n\
                    30000-40000 rw-p 00000000 00:00 0 \nRss: 8 kB\nSwap: 4 kB\nVmFlags: rd\n";
        let mappings = mappings::parse(text.as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let view = MapView::new("x".into(), None, mappings, parts);
        let SavedTotals { name, mut totals, is_measured, .. } = load(&json(&view, false)).unwrap();
        assert_eq!((name.as_str(), is_measured), ("x", true));
        for (read, written) in totals.iter_mut().zip(&view.totals) {
            read.proofs.clone_from(&written.proofs);
        }
        assert_eq!(totals, view.totals);
        let text = json(&view, false).replacen("\"rss_bytes\": ", "\"rss_bytes\": 9999999999999999", 1);
        assert!(load(&text).unwrap_err().contains("damaged"), "sums would have no room");
    }

    #[test]
    fn other_texts_are_refused_in_words() {
        for (text, reason) in [
            ("{", "it is no JSON"),
            ("{}", "something else"),
            (r#"{"format": "faultless-map/9"}"#, "newer version of faultless"),
            (r#"{"format": "faultless-map/1"}"#, "no kinds"),
            (r#"{"format": "faultless-map/1", "kinds": [{"kind": "moon"}]}"#, "damaged"),
        ] {
            let error = load(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
