//! A benchmark campaign as JSON, and back. The form is that of [`Campaign`]; `docs/json.md` describes it.
//!
//! What the cases of the suite `seeds` must show stands beside it, for who reads the file; it is computed again when the
//! file is read here.

use faultless_diagnosis::seeds::{self, Standing};
use faultless_records::bench::Campaign;
use faultless_records::saved_campaign::{SavedCampaign, SavedOutcome};

use crate::saved_form::{other_than_campaign, reason};

/// All samples, as a versioned JSON document.
#[must_use]
pub fn json(campaign: &Campaign) -> String {
    let rows = seeds::judge(campaign);
    let outcomes = rows.iter().flat_map(|row| {
        row.outcomes.iter().enumerate().map(move |(contender, outcome)| (row, contender, outcome))
    });
    let criteria = outcomes.map(|(row, contender, outcome)| SavedOutcome {
        cell: row.cell,
        contender,
        name: row.name,
        unit: row.unit.name(),
        figure: outcome.figure,
        limit: outcome.limit,
        standing: outcome.standing.name(),
        reason: match &outcome.standing {
            Standing::Unknown(reason) => Some(reason),
            _ => None,
        },
    });
    let saved = SavedCampaign { campaign, criteria: criteria.collect() };
    // Only maps with keys that are no strings could fail, and there are none.
    let mut text = serde_json::to_string_pretty(&saved).unwrap_or_default();
    text.push('\n');
    text
}

/// Reads what [`json`] wrote.
///
/// # Errors
/// What is wrong with the text, in one line.
pub fn parse(text: &str) -> Result<Campaign, String> {
    let campaign: Campaign = serde_json::from_str(text).map_err(|error| {
        other_than_campaign(text).unwrap_or_else(|| {
            let is_json = text.trim_ascii().is_empty() || text.trim_ascii_start().starts_with('{');
            let reason = if is_json { reason(text, &error) } else { "it is no JSON".into() };
            format!("it is no campaign of `faultless bench --json`: {reason}")
        })
    })?;
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
    fn what_the_seeds_must_show_is_written_and_read_past() {
        let cells = r#""cells": [{"suite": "seeds", "workload": "empty", "size": "small", "threads": 1, "variant": "none"},
            {"suite": "seeds", "workload": "sparse", "size": "small", "threads": 1, "variant": "once"}], "seed": 7"#;
        let campaign = parse(&EMPTY.replace(r#""cells": []"#, cells)).unwrap();
        let text = json(&campaign);
        assert!(
            text.contains("\"standing\": \"unknown\"") && text.contains("\"reason\": \"no run has figures\"")
        );
        assert!(text.find("\"schema\"") < text.find("\"cells\""), "the order of the fields stays");
        assert_eq!(parse(&text).unwrap(), campaign);
        assert!(!json(&parse(EMPTY).unwrap()).contains("criteria"));
    }

    #[test]
    fn files_that_are_something_else_are_refused_in_one_line() {
        for (wrong, says) in [
            ("", "it is empty"),
            ("{}", "missing field"),
            (&EMPTY.replace(r#""schema": 1"#, r#""schema": 99"#), "newer version of faultless"),
            (
                &EMPTY.replace(r#""schema": 1, "tool_version""#, r#""schema": 99, "tool""#),
                "newer version of faultless",
            ),
            (&EMPTY.replace(r#""reference": 0"#, r#""reference": 5"#), "reference"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(says) && error.lines().count() == 1, "{error}");
        }
    }
}
