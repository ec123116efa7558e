//! Names of suites, workloads and cells, and figures in a sentence.

use faultless_diagnosis::standing::{Cost, Ratio};
use faultless_records::bench::{Cell, Size, Suite};
use faultless_records::quantity::{self, percent};

use super::board::Figure;
use super::number::{interval, mebibytes, three_digits};

/// Name of a suite and what it holds.
#[must_use]
pub fn suite_title(suite: Suite) -> (&'static str, &'static str) {
    let holds = match suite {
        Suite::Sun => "the two programs of the article of 2003",
        Suite::Classic => "programs that allocator papers have used since",
        Suite::Programs => "real programs",
        Suite::Threads => "many threads, most of which do nothing",
        Suite::Drawn => "programs of which everything is drawn at random",
        Suite::Seeds => "memory given back, and no needless fault",
        Suite::Command => "of your own",
    };
    (suite.name(), holds)
}

/// A workload as the article spells it.
#[must_use]
pub fn workload_name(workload: &str) -> &str {
    if workload == "threadtest" { "ThreadTest" } else { workload }
}

/// `small problem`.
#[must_use]
pub fn size_name(size: Option<Size>) -> &'static str {
    match size {
        Some(Size::Small) => "small problem",
        Some(Size::Large) => "large problem",
        None => "one size",
    }
}

/// `ThreadTest, small, 4 threads`.
#[must_use]
pub fn cell_name(cell: &Cell) -> String {
    let mut name = workload_name(&cell.workload).to_owned();
    if let Some(variant) = &cell.variant {
        name = format!("{name} {variant}");
    }
    if let Some(size) = cell.size {
        name = format!("{name}, {}", size.name());
    }
    match cell.threads {
        Some(threads) => format!("{name}, {}", quantity::several(u64::from(threads), "thread")),
        None => name,
    }
}

/// The time that ranks a suite.
#[must_use]
pub fn time_name(suite: Suite) -> &'static str {
    match Cost::time_of(suite) {
        Cost::Elapsed => "Wall time",
        _ => "Processor time",
    }
}

/// What a chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Seconds.
    Time,
    /// Bytes, shown as MiB.
    Memory,
}

/// `jemalloc, 4 threads: 0.312 s (0.301–0.330), ×0.81 of libc (0.79–0.84)`.
#[must_use]
pub fn sentence(who: &str, shown: Shown, figure: &Figure, reference: &str) -> String {
    let mut sentence = who.to_owned();
    if let Some(spread) = figure.spread {
        let range = [spread.median, spread.minimum, spread.maximum];
        let ([median, low, high], unit) = match shown {
            Shown::Time => (range.map(three_digits), "s"),
            Shown::Memory => (range.map(mebibytes), "MiB"),
        };
        sentence = format!("{sentence}: {median} {unit} ({low}–{high})");
    }
    match figure.ratio {
        Some(ratio) => format!("{sentence}, {}", ratio_of(&ratio, reference)),
        None => sentence,
    }
}

/// `×0.81 of libc (0.79–0.84)`.
#[must_use]
pub fn ratio_of(ratio: &Ratio, reference: &str) -> String {
    format!("{} of {reference} ({})", quantity::ratio(ratio.median), interval(ratio))
}

/// `93.8 % confidence`; of a single round there is none.
#[must_use]
pub fn confidence(ratio: &Ratio) -> String {
    match ratio.confidence > 0.0 {
        true => format!("{} confidence", percent(ratio.confidence)),
        false => "one round: no interval".into(),
    }
}

/// `geometric means over 2 cells, ratios to libc`.
#[must_use]
pub fn means_over(count: usize, reference: &str) -> String {
    format!("geometric means over {}, ratios to {reference}", cells(count))
}

/// `1 cell`, `2 cells`.
#[must_use]
pub fn cells(count: usize) -> String {
    quantity::several(count as u64, "cell")
}
