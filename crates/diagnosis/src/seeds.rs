//! What each case of the suite `seeds` must show, and whether an allocator shows it.
//!
//! A criterion compares one figure with one limit. Counts and sizes are medians of the rounds. A ratio of times counts as
//! reached when its interval (the sign test's, [`Ratio`]) holds the limit or lies below: seconds of a shared machine say no more.
//! Page faults are counted above those of the program `empty` with as many threads under the same allocator.

use faultless_records::bench::{Campaign, Cell, Contender, Sample, Suite};

use crate::seed_case::Case;
use crate::standing::{Cost, Ratio, cells_of};

/// Room in bytes that an allocator may keep where a case says "live + 2 MiB".
const SMALL_REST: f64 = (2 << 20) as f64;

/// Room in bytes for each thread that sleeps.
const PER_PARKED: f64 = (32 << 10) as f64;

const MIB: f64 = (1 << 20) as f64;
const KIB: f64 = 1024.0;

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of something.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A quotient.
    Ratio,
}

impl Unit {
    /// Name in saved files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Ratio => "ratio",
        }
    }
}

/// Whether an allocator shows what it must.
#[derive(Debug, Clone, PartialEq)]
pub enum Standing {
    /// The figure is at most the limit, or cannot be told from it.
    Reached,
    /// It is more, or there is none because every run failed.
    Missed,
    /// There is no limit: the figure is to be known.
    Shown,
    /// It cannot be judged, and why.
    Unknown(String),
}

impl Standing {
    /// Name in saved files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reached => "reached",
            Self::Missed => "missed",
            Self::Shown => "shown",
            Self::Unknown(_) => "unknown",
        }
    }
}

/// A criterion's result for one contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The figure, in the criterion's unit.
    pub figure: Option<f64>,
    /// The limit it was held against.
    pub limit: Option<f64>,
    /// What follows.
    pub standing: Standing,
}

/// A criterion in one cell, with what follows for each contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index of the cell.
    pub cell: usize,
    /// What is measured, in words.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// One for each contender of the campaign.
    pub outcomes: Vec<Outcome>,
}

/// A figure that is at most a limit, or a ratio that is.
enum Measure {
    /// Figure and limit.
    AtMost(f64, f64),
    /// The ratio to the best of others, and the most it may be.
    Ratio(Ratio, f64),
    /// A figure without a limit.
    Only(f64),
}

/// Why a figure is missing.
type Missing = String;

struct Criterion {
    workload: &'static str,
    name: &'static str,
    unit: Unit,
    applies: fn(&Cell) -> bool,
    measure: fn(&Case) -> Result<Measure, Missing>,
}

fn always(_: &Cell) -> bool {
    true
}

fn is_random(cell: &Cell) -> bool {
    cell.variant.as_deref().is_some_and(|variant| variant.contains("random"))
}

fn idles(cell: &Cell) -> bool {
    !matches!(cell.variant.as_deref(), Some("0ms"))
}

fn idles_little(cell: &Cell) -> bool {
    matches!(cell.variant.as_deref(), Some("0ms" | "10ms"))
}

const fn criterion(
    workload: &'static str,
    name: &'static str,
    unit: Unit,
    measure: fn(&Case) -> Result<Measure, Missing>,
) -> Criterion {
    Criterion { workload, name, unit, applies: always, measure }
}

/// All criteria, in the order of the table.
const CRITERIA: &[Criterion] = &[
    criterion("churn", "faults", Unit::Count, |case| {
        Ok(Measure::AtMost(case.faults()?, allowed_faults(case)? + 64.0))
    }),
    criterion("churn", "processor time, ratio to the best other", Unit::Ratio, |case| {
        Ok(Measure::Ratio(case.ratio_to_best(&|run| run.mark("cpu_s"))?, 1.0))
    }),
    Criterion {
        applies: is_random,
        ..criterion("dgemm", "faults", Unit::Count, |case| {
            Ok(Measure::AtMost(case.faults()?, allowed_faults(case)? + 64.0))
        })
    },
    Criterion {
        applies: |cell| !is_random(cell),
        ..criterion("dgemm", "faults", Unit::Count, |case| {
            let limit = if case.threads() == 1 { 4400.0 } else { 2300.0 };
            Ok(Measure::AtMost(case.faults()?, limit))
        })
    },
    // Where sizes and pauses are drawn, few calls may share the first faults, and those are limited already.
    Criterion {
        applies: |cell| !is_random(cell),
        ..criterion("dgemm", "system time", Unit::Seconds, |case| {
            let libc = case.of_libc(&|run| Some(run.figures.system_s))?;
            Ok(Measure::AtMost(case.median(&|run| Some(run.figures.system_s))?, libc / 11.0))
        })
    },
    criterion("loop1m", "time, ratio to the best other", Unit::Ratio, |case| {
        Ok(Measure::Ratio(case.ratio_to_best(&|run| run.mark("cpu_s"))?, 1.05))
    }),
    criterion("release", "RSS over the start, 1 s after", Unit::Bytes, |case| {
        let live = case.mark("live_kib")? * KIB;
        let limit = live * 1.1 + SMALL_REST + case.mark("parked")? * PER_PARKED;
        Ok(Measure::AtMost(case.over_start(Cost::IdleRss)?, limit))
    }),
    Criterion {
        applies: idles_little,
        ..criterion("phases", "time of a late phase, ratio to the best other", Unit::Ratio, |case| {
            Ok(Measure::Ratio(case.ratio_to_best(&|run| run.mark("late_cpu_s"))?, 1.05))
        })
    },
    Criterion {
        applies: |cell| idles(cell) && !is_random(cell),
        ..criterion("phases", "RSS over the start, first idle", Unit::Bytes, |case| {
            Ok(Measure::AtMost(case.mark_over_start("first_idle_kib")?, SMALL_REST))
        })
    },
    criterion("phases", "RSS over the start, late idle", Unit::Bytes, |case| {
        let kept = case.mark_over_start("late_idle_kib")?;
        // Only a helper can give back what was held, and only after the time that the price allows.
        let has_limit = case.threads() > 1 && idles(case.cell()) && !idles_little(case.cell());
        Ok(if has_limit { Measure::AtMost(kept, SMALL_REST) } else { Measure::Only(kept) })
    }),
    criterion("spike", "RSS over the start at the end", Unit::Bytes, |case| {
        Ok(Measure::AtMost(case.over_start(Cost::EndRss)?, case.mark("live_kib")? * KIB * 1.1))
    }),
    criterion("parked_random", "RSS over the start, 2 s after", Unit::Bytes, |case| {
        let limit = 4.0 * MIB + case.mark("parked")? * PER_PARKED;
        Ok(Measure::AtMost(case.over_start(Cost::IdleRss)?, limit))
    }),
    criterion("pool", "RSS over the start, idle", Unit::Bytes, |case| {
        Ok(Measure::AtMost(case.over_start(Cost::IdleRss)?, case.mark("live_kib")? * KIB * 3.0))
    }),
    criterion("pool", "peak RSS", Unit::Bytes, |case| {
        let libc = case.of_libc(&|run| Cost::PeakRss.of(run.figures))?;
        Ok(Measure::AtMost(case.median(&|run| Cost::PeakRss.of(run.figures))?, libc))
    }),
    criterion("pool", "faults", Unit::Count, |case| {
        let pages = case.over_start(Cost::PeakRss)? / case.page_bytes() * case.mark("stretches")?;
        Ok(Measure::AtMost(case.faults()?, pages * 1.2))
    }),
    criterion("hundred", "private memory of a process", Unit::Bytes, |case| {
        let libc = case.of_libc(&|run| run.mark("private_kib"))?;
        Ok(Measure::AtMost(case.mark("private_kib")? * KIB, (libc + 128.0) * KIB))
    }),
    criterion("sparse", "RSS over the start", Unit::Bytes, |case| {
        Ok(Measure::AtMost(case.mark_over_start("top_kib")?, case.mark("used_kib")? * KIB * 1.25))
    }),
    criterion("grow", "processor time", Unit::Seconds, |case| {
        Ok(Measure::AtMost(case.mark("cpu_s")?, case.of_libc(&|run| run.mark("cpu_s"))? + 0.005))
    }),
    criterion("grow", "RSS over the start", Unit::Bytes, |case| {
        let limit = case.mark("touched_kib")? * KIB + 4.0 * MIB;
        Ok(Measure::AtMost(case.mark_over_start("top_kib")?, limit))
    }),
    criterion("jvm", "RSS, idle", Unit::Bytes, |case| {
        let limit = case.of_purging_jemalloc(&|run| Cost::IdleRss.of(run.figures))?;
        Ok(Measure::AtMost(case.median(&|run| Cost::IdleRss.of(run.figures))?, limit))
    }),
    criterion("jvm", "faults", Unit::Count, |case| {
        let jemalloc = case.of_purging_jemalloc(&|run| run.mark("faults"))?;
        Ok(Measure::AtMost(case.mark("faults")?, jemalloc * 2.0 / 3.0))
    }),
    criterion("jvm", "processor time, ratio to the best other", Unit::Ratio, |case| {
        Ok(Measure::Ratio(case.ratio_to_best(&|run| Cost::Processor.of(run.figures))?, 1.0))
    }),
];

/// Where a process has threads its memory may fault once; where it has one, once more to learn.
fn allowed_faults(case: &Case) -> Result<f64, Missing> {
    let times = if case.threads() == 1 { 2.1 } else { 1.1 };
    Ok(case.mark("due_pages")? * times)
}

/// Huge pages may not make more memory resident than this ratio of the same allocator without them.
const HUGE_PAGES_AT_MOST: f64 = 1.1;

/// All criteria of the cells of a campaign, in the order of the table; none without cells of the suite.
#[must_use]
pub fn judge(campaign: &Campaign) -> Vec<Row> {
    let mut rows = Vec::new();
    for cell in cells_of(campaign, Suite::Seeds) {
        let of = &campaign.cells[cell];
        let known: Vec<&Criterion> = CRITERIA
            .iter()
            .filter(|criterion| criterion.workload == of.workload && (criterion.applies)(of))
            .collect();
        for criterion in &known {
            let mut row = row(campaign, cell, criterion.name, criterion.unit, criterion.measure);
            count_failures(campaign, &mut row);
            rows.push(row);
        }
        if !known.is_empty() {
            rows.extend(huge_pages(campaign, cell));
            if !known.iter().any(|criterion| criterion.name == "faults") {
                rows.push(row(campaign, cell, "faults", Unit::Count, |case| {
                    Ok(Measure::Only(case.faults()?))
                }));
            }
        }
    }
    rows
}

fn row(
    campaign: &Campaign,
    cell: usize,
    name: &'static str,
    unit: Unit,
    measure: fn(&Case) -> Result<Measure, Missing>,
) -> Row {
    let contenders = 0..campaign.contenders.len();
    let outcomes = contenders.map(|contender| outcome(measure(&Case::new(campaign, cell, contender))));
    Row { cell, name, unit, outcomes: outcomes.collect() }
}

/// Who has no figures because every run failed does not show what others show: left out, it would look better than they do.
fn count_failures(campaign: &Campaign, row: &mut Row) {
    if row.outcomes.iter().all(|outcome| outcome.limit.is_none()) {
        return;
    }
    let has_failed = |contender: usize| {
        let is_its = |run: &&Sample| run.cell == row.cell && run.contender == contender;
        let mut runs = campaign.samples.iter().filter(is_its).peekable();
        runs.peek().is_some() && runs.all(|run| run.figures.is_none())
    };
    for (contender, outcome) in row.outcomes.iter_mut().enumerate() {
        if matches!(outcome.standing, Standing::Unknown(_)) && has_failed(contender) {
            outcome.standing = Standing::Missed;
        }
    }
}

fn outcome(measure: Result<Measure, Missing>) -> Outcome {
    let judged = |is_reached| if is_reached { Standing::Reached } else { Standing::Missed };
    match measure {
        Ok(Measure::AtMost(figure, limit)) => {
            Outcome { figure: Some(figure), limit: Some(limit), standing: judged(figure <= limit) }
        }
        Ok(Measure::Ratio(ratio, limit)) => {
            Outcome { figure: Some(ratio.median), limit: Some(limit), standing: judged(ratio.low <= limit) }
        }
        Ok(Measure::Only(figure)) => Outcome { figure: Some(figure), limit: None, standing: Standing::Shown },
        Err(why) => Outcome { figure: None, limit: None, standing: Standing::Unknown(why) },
    }
}

/// The criterion on huge pages: only where a contender is told by a setting to do without, and for others of the same library.
fn huge_pages(campaign: &Campaign, cell: usize) -> Option<Row> {
    if !campaign.contenders.iter().any(does_without_huge_pages) {
        return None;
    }
    let measure = |case: &Case| {
        let own = case.contender();
        if does_without_huge_pages(own) {
            return Err("it was told to do without huge pages".to_owned());
        }
        let is_twin = |other: &Contender| other.library == own.library && does_without_huge_pages(other);
        let without = case.of_contender(&is_twin, &|run| Cost::PeakRss.of(run.figures));
        let without = without.ok_or("the same allocator without huge pages is not among the contenders")?;
        let peak = case.median(&|run| Cost::PeakRss.of(run.figures))?;
        Ok(Measure::AtMost(peak, without * HUGE_PAGES_AT_MOST))
    };
    Some(row(campaign, cell, "peak RSS with huge pages", Unit::Bytes, measure))
}

fn does_without_huge_pages(contender: &Contender) -> bool {
    contender.settings.iter().any(|setting| setting.contains("huge_pages:never"))
}

/// How many criteria a contender reached, and of how many that have a limit and could be judged.
#[must_use]
pub fn tally(rows: &[Row], contender: usize) -> (usize, usize) {
    let standings = || rows.iter().filter_map(|row| Some(&row.outcomes.get(contender)?.standing));
    let reached = standings().filter(|standing| **standing == Standing::Reached).count();
    let missed = standings().filter(|standing| **standing == Standing::Missed).count();
    (reached, reached + missed)
}

#[cfg(test)]
mod tests;
