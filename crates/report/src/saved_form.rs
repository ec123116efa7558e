//! Why a saved file cannot be read.

use faultless_records::bench::SCHEMA;
use faultless_records::saved_form::{Head, check, newer};

/// The reason in words: that it is of another form comes before what a reader of this form misses in it.
pub(crate) fn reason(text: &str, error: &serde_json::Error, known: &str) -> String {
    let head: Head = serde_json::from_str(text).unwrap_or_default();
    match check(&head.format, known) {
        Err(reason) if !head.format.is_empty() => reason,
        _ => error.to_string().replace('\n', " "),
    }
}

/// The refusal of a campaign of a later version.
pub(crate) fn newer_campaign(text: &str) -> Option<String> {
    let head: Head = serde_json::from_str(text).ok()?;
    (head.schema > SCHEMA).then(|| newer(&format!("version {} of the format", head.schema)))
}
