//! A campaign as it is written to a file: with what its suite `seeds` must show beside its samples.

use serde::Serialize;

use crate::bench::Campaign;

/// What is written. Who reads a campaign again computes the criteria again and leaves these alone.
#[derive(Debug, Serialize)]
pub struct SavedCampaign<'a> {
    /// The campaign; its fields stand at the top of the document.
    #[serde(flatten)]
    pub campaign: &'a Campaign,
    /// One for each criterion and contender.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<SavedOutcome<'a>>,
}

/// Whether a contender shows what it must in one cell.
#[derive(Debug, Serialize)]
pub struct SavedOutcome<'a> {
    /// Index into [`Campaign::cells`].
    pub cell: usize,
    /// Index into [`Campaign::contenders`].
    pub contender: usize,
    /// What is measured, in words.
    pub name: &'a str,
    /// Unit of figure and limit: `count`, `bytes`, `seconds` or `ratio`.
    pub unit: &'a str,
    /// The figure; none when it is not known.
    pub figure: Option<f64>,
    /// The limit; none when there is none.
    pub limit: Option<f64>,
    /// `reached`, `missed`, `shown` (without a limit) or `unknown`.
    pub standing: &'a str,
    /// Why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}
