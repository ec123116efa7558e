//! Saved files are read, or it is said why not.

use faultless_records::bench::SCHEMA;
use faultless_records::saved_form::{Head, check, newer};
use serde::de::DeserializeOwned;

/// What is saved in a text of the form that is known. That it is of another form comes before what a reader of this form
/// misses in it.
///
/// # Errors
/// The reason, in one line.
pub(crate) fn read<Saved: DeserializeOwned>(text: &str, known: &str) -> Result<Saved, String> {
    serde_json::from_str(text).map_err(|error| {
        let head: Head = serde_json::from_str(text).unwrap_or_default();
        match check(&head.format, known) {
            Err(reason) if !head.format.is_empty() => reason,
            _ => error.to_string().replace('\n', " "),
        }
    })
}

/// The refusal of a campaign of a later version.
pub(crate) fn newer_campaign(text: &str) -> Option<String> {
    let head: Head = serde_json::from_str(text).ok()?;
    (head.schema > SCHEMA).then(|| newer(&format!("version {} of the format", head.schema)))
}
