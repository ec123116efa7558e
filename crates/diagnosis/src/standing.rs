//! How allocators compare in a benchmark campaign.
//!
//! Contenders are compared by ratios *within a round*, whose runs lie close together in time: what slows the machine for a
//! minute slows both. The ratio shown is the median of these; its interval is that of the sign test, which assumes nothing
//! about how the noise is distributed: the `k`-th smallest and largest of `n` ratios hold the true median between them with
//! probability `1 - 2 P(Binomial(n, 1/2) < k)`. Up to five rounds that is the whole range, at less than 95 %.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::f64::consts::LN_2;

use faultless_records::bench::{Campaign, Figures, Suite};

use crate::spread::Spread;

/// A machine is busy when others took more of its CPU time than this in half of the runs.
pub const BUSY: f64 = 0.05;

/// The confidence that an interval is given where the rounds allow it.
const CONFIDENCE: f64 = 0.95;

/// What is compared. Less is better in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Wall time, in s.
    Elapsed,
    /// User and system time, in s.
    Processor,
    /// Largest resident set, in bytes.
    PeakRss,
    /// Resident set at the end, in bytes.
    EndRss,
    /// Resident set after the idle time, in bytes.
    IdleRss,
    /// Minor page faults.
    MinorFaults,
}

impl Cost {
    /// The figure, where the run has it.
    #[must_use]
    pub fn of(self, figures: &Figures) -> Option<f64> {
        match self {
            Self::Elapsed => Some(figures.elapsed_s),
            Self::Processor => Some(figures.processor_s()),
            Self::PeakRss => Some(figures.peak_rss_bytes as f64),
            Self::EndRss => figures.end_rss_bytes.map(|bytes| bytes as f64),
            Self::IdleRss => figures.idle_rss_bytes.map(|bytes| bytes as f64),
            Self::MinorFaults => Some(figures.minor_faults as f64),
        }
    }

    /// The time that ranks a suite: what a user of its programs waits for, or pays for.
    #[must_use]
    pub fn time_of(suite: Suite) -> Self {
        match suite {
            Suite::Sun => Self::Elapsed,
            Suite::Classic
            | Suite::Programs
            | Suite::Threads
            | Suite::Drawn
            | Suite::Seeds
            | Suite::Command => Self::Processor,
        }
    }
}

/// A ratio with the interval that it lies in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the rounds.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The interval's confidence, from 0 to 1.
    pub confidence: f64,
}

impl Ratio {
    /// From the ratios of the rounds; none of nothing.
    #[must_use]
    pub fn of(mut ratios: Vec<f64>) -> Option<Self> {
        ratios.sort_by(f64::total_cmp);
        let median = Spread::of(ratios.iter().copied())?.median;
        let (left_out, confidence) = sign_interval(ratios.len());
        let (low, high) = (ratios[left_out], ratios[ratios.len() - 1 - left_out]);
        Some(Self { median, low, high, confidence })
    }

    /// Less than 1 or more, where the interval says so; `Equal` where it does not.
    #[must_use]
    pub fn verdict(&self) -> Ordering {
        if self.high < 1.0 {
            Ordering::Less
        } else if self.low > 1.0 {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

/// How many of `n` sorted values to leave out at each end so that [`CONFIDENCE`] stays, and the confidence reached.
fn sign_interval(n: usize) -> (usize, f64) {
    // P(Binomial(n, 1/2) = i), from i = 0 upwards; its logarithm, since of 1,100 rounds the first is no number any more.
    let mut logarithm = -LN_2 * n as f64;
    let mut tail = logarithm.exp();
    let mut left_out = 0;
    for i in 1..n.div_ceil(2) {
        logarithm += ((n - i + 1) as f64 / i as f64).ln();
        let term = logarithm.exp();
        if 1.0 - 2.0 * (tail + term) < CONFIDENCE {
            break;
        }
        tail += term;
        left_out = i;
    }
    (left_out, (1.0 - 2.0 * tail).max(0.0))
}

/// Median and range of a figure in one cell.
#[must_use]
pub fn spread(campaign: &Campaign, cell: usize, contender: usize, cost: Cost) -> Option<Spread> {
    Spread::of(campaign.runs(cell, contender).filter_map(|(_, figures)| cost.of(figures)))
}

/// The ratio of two contenders in one cell, from the rounds that both finished.
#[must_use]
pub fn ratio(
    campaign: &Campaign,
    cell: usize,
    contender: usize,
    reference: usize,
    cost: Cost,
) -> Option<Ratio> {
    Ratio::of(round_ratios(campaign, cell, contender, reference, cost).into_iter().map(|(_, r)| r).collect())
}

fn round_ratios(
    campaign: &Campaign,
    cell: usize,
    contender: usize,
    reference: usize,
    cost: Cost,
) -> Vec<(u32, f64)> {
    // Each campaign is walked once and not once a round: it may hold a million runs.
    let of = |who: usize| -> Vec<(u32, f64)> {
        let figures = campaign.runs(cell, who).filter_map(|(round, run)| Some((round, cost.of(run)?)));
        figures.filter(|(_, figure)| *figure > 0.0).collect()
    };
    let bases: HashMap<u32, f64> = of(reference).into_iter().collect();
    let ratios =
        of(contender).into_iter().filter_map(|(round, figure)| Some((round, figure / bases.get(&round)?)));
    ratios.collect()
}

/// Geometric mean over the cells of a suite of the ratio of two contenders: one mean for each round, then as [`Ratio`].
///
/// None where a cell lacks a ratio: a mean without the cells in which somebody failed would flatter who failed.
#[must_use]
pub fn suite_ratio(
    campaign: &Campaign,
    suite: Suite,
    contender: usize,
    reference: usize,
    cost: Cost,
) -> Option<Ratio> {
    let cells: Vec<Vec<(u32, f64)>> = cells_of(campaign, suite)
        .map(|cell| round_ratios(campaign, cell, contender, reference, cost))
        .collect();
    let rounds: Vec<u32> = cells.first()?.iter().map(|(round, _)| *round).collect();
    let by_round: Vec<HashMap<u32, f64>> = cells.into_iter().map(|cell| cell.into_iter().collect()).collect();
    let mean_of_round = |round: u32| {
        let mut logarithms = 0.0;
        for cell in &by_round {
            logarithms += cell.get(&round)?.ln();
        }
        Some((logarithms / by_round.len() as f64).exp())
    };
    Ratio::of(rounds.into_iter().filter_map(mean_of_round).collect())
}

/// Indices of the cells of a suite.
pub fn cells_of(campaign: &Campaign, suite: Suite) -> impl Iterator<Item = usize> {
    campaign.cells.iter().enumerate().filter(move |(_, cell)| cell.suite == suite).map(|(index, _)| index)
}

/// The contender with the smallest median in a cell.
#[must_use]
pub fn best(campaign: &Campaign, cell: usize, cost: Cost) -> Option<usize> {
    let medians = (0..campaign.contenders.len())
        .filter_map(|contender| Some((contender, spread(campaign, cell, contender, cost)?.median)));
    medians.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(contender, _)| contender)
}

/// Whether a contender is the best of a cell or cannot be told from it.
#[must_use]
pub fn is_among_best(campaign: &Campaign, cell: usize, contender: usize, cost: Cost) -> bool {
    let Some(best) = best(campaign, cell, cost) else { return false };
    best == contender
        || ratio(campaign, cell, contender, best, cost)
            .is_some_and(|ratio| ratio.verdict() != Ordering::Greater)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::bench::{Cell, Contender, Machine, SCHEMA, Sample, Size};

    /// A campaign of two cells in which contender `c` needs `seconds[cell][c][round]`.
    fn campaign(seconds: &[&[&[f64]]]) -> Campaign {
        let cell = |name: &str| Cell {
            suite: Suite::Sun,
            workload: name.into(),
            size: Some(Size::Small),
            threads: Some(1),
            variant: None,
        };
        let mut samples = Vec::new();
        for (cell, contenders) in seconds.iter().enumerate() {
            for (contender, rounds) in contenders.iter().enumerate() {
                for (round, elapsed_s) in (0..).zip(*rounds) {
                    let figures = Figures { elapsed_s: *elapsed_s, ..Figures::default() };
                    samples.push(Sample {
                        cell,
                        contender,
                        round,
                        figures: Some(figures),
                        failure: None,
                        foreign_cpu: 0.0,
                        marks: Default::default(),
                    });
                }
            }
        }
        let contender = |name: &str| Contender { name: name.into(), library: None, settings: Vec::new() };
        Campaign {
            schema: SCHEMA,
            machine: Machine { cpus: 2, ..Machine::default() },
            contenders: vec![contender("a"), contender("b")],
            cells: vec![cell("one"), cell("two")],
            samples,
            ..Campaign::default()
        }
    }

    #[test]
    fn sign_intervals_are_those_of_the_tables() {
        // Tables of the sign test: n = 5 gives 93.75 % for the range, n = 6 gives 96.9 %, n = 10 leaves one out (97.9 %).
        // Of 2,000 as the normal distribution has it: 1000 - 1.96 * sqrt(2000) / 2.
        let known = [(1, 0, 0.0), (3, 0, 0.75), (5, 0, 0.9375), (6, 0, 0.968_75), (10, 1, 0.978_515_625)];
        for (n, left_out, confidence) in known.into_iter().chain([(2000, 955, 0.953_4)]) {
            let found = sign_interval(n);
            assert_eq!(found.0, left_out, "{n}");
            assert!((found.1 - confidence).abs() < if n < 100 { 1e-12 } else { 1e-3 }, "{n}: {found:?}");
        }
    }

    #[test]
    fn ratios_pair_the_runs_of_a_round() {
        // The machine is twice as slow in round 1; the ratio does not see it.
        let runs = campaign(&[&[&[1.0, 2.0, 1.0], &[0.5, 1.0, 0.6]], &[&[1.0], &[1.0]]]);
        let ratio = ratio(&runs, 0, 1, 0, Cost::Elapsed).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high), (0.5, 0.5, 0.6));
        assert_eq!(ratio.verdict(), Ordering::Less);
        assert_eq!(best(&runs, 0, Cost::Elapsed), Some(1));
        assert!(!is_among_best(&runs, 0, 0, Cost::Elapsed));
    }

    #[test]
    fn a_suite_is_the_geometric_mean_of_its_cells() {
        let runs = campaign(&[&[&[1.0], &[0.5]], &[&[1.0], &[2.0]]]);
        let mean = suite_ratio(&runs, Suite::Sun, 1, 0, Cost::Elapsed).unwrap();
        assert!((mean.median - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_suite_with_a_failed_cell_has_no_mean() {
        let runs = campaign(&[&[&[1.0], &[0.5]], &[&[1.0], &[]]]);
        assert_eq!(suite_ratio(&runs, Suite::Sun, 1, 0, Cost::Elapsed), None);
        assert_eq!(suite_ratio(&runs, Suite::Classic, 1, 0, Cost::Elapsed), None);
    }

    #[test]
    fn a_campaign_of_very_many_rounds_is_compared_in_a_moment() {
        // Each looked for among all the others, it would take minutes.
        let (slow, fast) = (vec![1.0; 100_000], vec![0.5; 100_000]);
        let runs = campaign(&[&[&slow, &fast], &[&slow, &fast]]);
        let mean = suite_ratio(&runs, Suite::Sun, 1, 0, Cost::Elapsed).unwrap();
        assert!((mean.median - 0.5).abs() < 1e-12);
    }

    #[test]
    fn equals_are_both_among_the_best() {
        let runs = campaign(&[&[&[1.0, 1.1, 1.0], &[1.1, 1.0, 1.0]], &[&[1.0], &[1.0]]]);
        assert!(is_among_best(&runs, 0, 0, Cost::Elapsed) && is_among_best(&runs, 0, 1, Cost::Elapsed));
        assert_eq!(Ratio::of(vec![1.0; 6]).unwrap().verdict(), Ordering::Equal);
        assert_eq!(best(&runs, 1, Cost::Elapsed), Some(0), "the first of equals");
    }

    #[test]
    fn rounds_in_which_one_has_nothing_are_left_out() {
        let runs = campaign(&[&[&[1.0, 0.0, 1.0], &[0.5, 0.5, 0.0]], &[&[0.0], &[1.0]]]);
        let ratio = |cell| ratio(&runs, cell, 1, 0, Cost::Elapsed);
        assert_eq!((ratio(0).map(|ratio| (ratio.low, ratio.high)), ratio(1)), (Some((0.5, 0.5)), None));
    }
}
