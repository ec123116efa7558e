//! The table of a comparison: for each arm its figures, their ratio to the first arm, and their spread.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use faultless_diagnosis::effect::{Figures, LEAST_TIME};
use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::verdict::{ArmResult, Verdict};

use crate::quantity::{count, mebibytes, ratio, seconds_of};

/// One column: its heading, where its figure is, and how it is written.
struct Column {
    heading: &'static str,
    figure: fn(&Figures) -> Option<Spread>,
    written: fn(f64) -> String,
    /// A ratio is shown where one of the two reaches this.
    least_compared: f64,
}

const fn time(heading: &'static str, figure: fn(&Figures) -> Option<Spread>) -> Column {
    Column { heading, figure, written: seconds_of, least_compared: LEAST_TIME }
}

const fn amount(
    heading: &'static str,
    figure: fn(&Figures) -> Option<Spread>,
    written: fn(f64) -> String,
) -> Column {
    Column { heading, figure, written, least_compared: 0.0 }
}

const COLUMNS: &[Column] = &[
    time("user\ns", |figures| Some(figures.user)),
    time("system\ns", |figures| Some(figures.system)),
    time("elapsed\ns", |figures| Some(figures.elapsed)),
    amount("major\nfaults", |figures| Some(figures.major_faults), whole),
    amount("minor\nfaults", |figures| Some(figures.minor_faults), whole),
    amount("peak RSS\nMiB", |figures| Some(figures.peak_rss), mebibytes_of),
    amount("final RSS\nMiB", |figures| figures.final_rss, mebibytes_of),
];

/// A range narrower than this part of the median is not shown.
const NARROW: f64 = 0.005;

/// What stands in the cells.
pub const LEGEND: &str =
    "Median; under it the ratio to libc as is, and the range of the runs where it is wider than 0.5 %.";

/// The table as text; under each median its ratio to *as is* and the range of the runs.
#[must_use]
pub fn text(arms: &[ArmResult], verdict: &Verdict) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let mut header = vec![Cell::new("")];
    header.extend(COLUMNS.iter().map(|column| Cell::new(column.heading).set_alignment(CellAlignment::Right)));
    table.set_header(header);

    let base = verdict.arms.iter().find(|arm| arm.effect.is_none()).map(|arm| &arm.figures);
    for (arm, judged) in arms.iter().zip(&verdict.arms) {
        let mut row = vec![Cell::new(format!("{}\n  {}", arm.name, ran(arm)))];
        row.extend(COLUMNS.iter().map(|column| {
            let base = base.filter(|_| judged.effect.is_some()).and_then(|base| (column.figure)(base));
            Cell::new(cell(column, (column.figure)(&judged.figures), base))
                .set_alignment(CellAlignment::Right)
        }));
        table.add_row(row);
    }
    table.to_string()
}

/// The allocators that were seen in the processes of an arm.
#[must_use]
pub fn ran(arm: &ArmResult) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for run in &arm.runs {
        let name = run.allocator().map_or("not seen", |allocator| allocator.name());
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    format!("ran: {}", seen.join(", "))
}

fn cell(column: &Column, spread: Option<Spread>, base: Option<Spread>) -> String {
    let Some(spread) = spread else { return "unknown".into() };
    let compared = match base {
        Some(base)
            if base.median.min(spread.median) > 0.0
                && base.median.max(spread.median) >= column.least_compared =>
        {
            ratio(spread.ratio_to(&base))
        }
        _ => String::new(),
    };
    let (low, high) = ((column.written)(spread.minimum), (column.written)(spread.maximum));
    let is_narrow = low == high || spread.relative_range() < NARROW;
    let range = if is_narrow { String::new() } else { format!("{low}–{high}") };
    format!("{}\n{compared}\n{range}", (column.written)(spread.median))
}

fn whole(number: f64) -> String {
    count(number as u64)
}

fn mebibytes_of(bytes: f64) -> String {
    mebibytes(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Option<Spread> {
        Spread::of(values.iter().copied())
    }

    #[test]
    fn ratios_of_times_too_short_to_compare_are_left_out() {
        let user = &COLUMNS[0];
        assert_eq!(cell(user, spread(&[0.0041]), spread(&[0.0010])), "0.004\n\n");
        assert_eq!(cell(user, spread(&[0.0004]), spread(&[0.0010])), "0.000\n\n");
        assert_eq!(cell(user, spread(&[0.004]), spread(&[4.0])), "0.004\n×0.001\n");
        assert_eq!(cell(user, spread(&[0.0]), spread(&[4.0])), "0.000\n\n", "no ratio of nothing");
        let faults = &COLUMNS[4];
        assert_eq!(cell(faults, spread(&[100.0]), spread(&[200.0])), "100\n×0.50\n");
    }
}
