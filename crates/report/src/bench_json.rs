//! A benchmark campaign as JSON, and back. The form is that of [`Campaign`]; `docs/json.md` describes it.

use faultless_records::bench::Campaign;

/// All samples, as a versioned JSON document.
#[must_use]
pub fn json(campaign: &Campaign) -> String {
    // Only maps with keys that are no strings could fail, and there are none.
    let mut text = serde_json::to_string_pretty(campaign).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads what [`json`] wrote.
///
/// # Errors
/// What is wrong with the text, in one line.
pub fn parse(text: &str) -> Result<Campaign, String> {
    let campaign: Campaign = serde_json::from_str(text).map_err(|error| error.to_string())?;
    campaign.check()?;
    Ok(campaign)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = r#"{"schema": 1, "tool_version": "0.1.0", "started_unix_s": 1, "machine": {"processor": "p",
        "cpus": 2, "memory_bytes": 3, "kernel": "k", "libc": "l", "huge_pages": "never"},
        "contenders": [{"name": "libc", "library": null}], "reference": 0, "cells": [], "samples": []}"#;

    #[test]
    fn what_is_written_is_read_again() {
        let campaign = parse(EMPTY).unwrap();
        assert_eq!(parse(&json(&campaign)).unwrap(), campaign);
    }

    #[test]
    fn files_that_are_something_else_are_refused_in_one_line() {
        for (wrong, says) in [
            ("", "EOF"),
            ("{}", "missing field"),
            (&EMPTY.replace(r#""schema": 1"#, r#""schema": 99"#), "newer"),
            (&EMPTY.replace(r#""reference": 0"#, r#""reference": 5"#), "reference"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
        }
    }
}
