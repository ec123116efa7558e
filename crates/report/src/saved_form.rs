//! Saved files are read, or it is said why not.

use faultless_records::bench::SCHEMA;
use faultless_records::saved_form::{Head, Recording, check, newer};
use faultless_records::{churn_recording, fault_recording, malloc_recording, recording};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a file that tell of which form it is.
const HEAD_BYTES: usize = 128;

/// The forms of recordings, each with its name and the subcommand, with its option, that shows it.
const RECORDINGS: [(&str, &str, &str); 4] = [
    (fault_recording::FORMAT, "recording of faultless faults", "faults"),
    (churn_recording::FORMAT, "recording of faultless churn", "churn"),
    (malloc_recording::FORMAT, "recording of faultless churn", "churn"),
    (recording::FORMAT, WATCH, "watch --replay"),
];

/// What a recording of `watch` is called.
pub const WATCH: &str = "recording of faultless watch";

/// What a recording or a campaign that begins so is called, and which subcommand, with its option, shows it.
#[must_use]
pub fn kind_and_reader(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = RECORDINGS.iter().find(|(form, ..)| has_form(bytes, form));
    found
        .map(|(_, kind, reader)| (*kind, *reader))
        .or_else(|| is_campaign(bytes).then_some(("campaign of faultless bench", "bench --load")))
}

/// Whether a file that begins so is a campaign of `bench`, of whatever version.
#[must_use]
pub fn is_campaign(bytes: &[u8]) -> bool {
    let first = bytes.trim_ascii_start().strip_prefix(b"{");
    first.is_some_and(|first| first.trim_ascii_start().starts_with(b"\"schema\""))
}

/// What is saved, as one line of JSON with its end.
#[must_use]
pub fn write(saved: &impl Serialize) -> String {
    // Only maps with keys that are no strings could fail, and there are none.
    serde_json::to_string(saved).unwrap_or_default() + "\n"
}

/// Whether a file that begins so is such a recording, of whatever version.
#[must_use]
pub fn is_recording<Saved: Recording>(head: &[u8]) -> bool {
    has_form(head, Saved::FORMAT)
}

/// Reads a recording that [`write()`] wrote.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn load<Saved: Recording>(text: &str) -> Result<Saved, String> {
    let recording: Saved = read(text, Saved::FORMAT)?;
    recording.check()?;
    Ok(recording)
}

fn has_form(bytes: &[u8], known: &str) -> bool {
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
            _ => reason(text, &error),
        }
    })
}

/// Why a text cannot be read, in one line.
pub(crate) fn reason(text: &str, error: &serde_json::Error) -> String {
    match error.is_eof() {
        true if text.trim_ascii().is_empty() => "it is empty".into(),
        true => "it was cut off".into(),
        false => error.to_string().replace('\n', " "),
    }
}

/// The refusal of a campaign of a later version, and of another form.
pub(crate) fn other_than_campaign(text: &str) -> Option<String> {
    let head: Head = serde_json::from_str(text).ok()?;
    if head.schema > SCHEMA {
        return Some(newer(&format!("version {} of the format", head.schema)));
    }
    let format = head.format;
    (!format.is_empty())
        .then(|| format!("it is no campaign of `faultless bench --json`: its format is {format}"))
}

#[cfg(test)]
mod tests {
    use faultless_records::fault_recording::FaultRecording;

    use super::*;
    use crate::faults::tree::tests::recording;

    #[test]
    fn what_is_saved_is_read_again() {
        let recording = recording();
        let text = write(&recording);
        assert!(is_recording::<FaultRecording>(text.as_bytes()));
        assert_eq!(load::<FaultRecording>(&text).unwrap(), recording);
    }

    #[test]
    fn files_that_are_something_else_are_refused_in_one_line() {
        let text = write(&recording());
        for (wrong, says) in [
            (String::new(), "it is empty"),
            ("{}".into(), "missing field"),
            (text.replace("recording/1", "recording/9"), "newer version of faultless"),
            (
                text.replace("recording/1", "recording/9").replace("tool_version", "tool"),
                "newer version of faultless",
            ),
            (text.replace("recording/1", "recording/0"), "this version reads"),
            (text[..text.len() / 2].into(), "it was cut off"),
            (text.replace("\"call\":1", "\"call\":77"), "not there"),
        ] {
            let error = load::<FaultRecording>(&wrong).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
        }
        assert!(!is_recording::<FaultRecording>(b"\x7fELF") && !is_recording::<FaultRecording>(b"{}"));
    }
}
