//! Saved files are read, or it is said why not.

use faultless_records::bench::SCHEMA;
use faultless_records::saved_form::{Head, check, newer};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a file that tell of which form it is.
const HEAD_BYTES: usize = 128;

/// What is saved, as one line of JSON with its end.
pub(crate) fn write(saved: &impl Serialize) -> String {
    // Only maps with keys that are no strings could fail, and there are none.
    serde_json::to_string(saved).unwrap_or_default() + "\n"
}

/// Whether a file that begins so is of this form, of whatever version.
pub(crate) fn is_of(bytes: &[u8], known: &str) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(HEAD_BYTES)]);
    let name = known.trim_end_matches(|character: char| character.is_ascii_digit());
    head.trim_start().starts_with('{') && head.contains(&format!("\"{name}"))
}

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
