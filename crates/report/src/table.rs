//! The table of a comparison: for each arm its figures, their ratio to the first arm, and their spread.

use comfy_table::{Cell, Table};
use faultless_diagnosis::effect::{Figures, LEAST_TIME};
use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::verdict::{ArmResult, Verdict};
use faultless_records::quantity::{mebibytes, ratio, seconds_of, whole};

use crate::table_form::{right, ruled, width, with_columns, within};

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

/// Where a range is written.
#[derive(Clone, Copy)]
enum Ranges {
    OneLine,
    /// The lower end above the upper one, for narrow terminals.
    TwoLines,
}

/// The table as text; under each median its ratio to *as is* and the range of the runs.
///
/// It is set closer, and where that is not enough divided, where it would be wider than `columns`.
#[must_use]
pub fn text(arms: &[ArmResult], verdict: &Verdict, columns: Option<usize>) -> String {
    let wide = table(arms, verdict, Ranges::OneLine).to_string();
    if columns.is_none_or(|columns| width(&wide) <= columns) {
        return wide;
    }
    let high = table(arms, verdict, Ranges::TwoLines);
    within(
        &with_columns(&high, &(0..=COLUMNS.len()).collect::<Vec<_>>(), 0),
        &(0..1),
        columns,
        Table::to_string,
    )
}

fn table(arms: &[ArmResult], verdict: &Verdict, ranges: Ranges) -> Table {
    let mut header = vec![Cell::new("")];
    header.extend(COLUMNS.iter().map(|column| right(column.heading)));
    let mut table = ruled(header);
    for (arm, cells) in arms.iter().zip(written(verdict, ranges)) {
        let mut row = vec![Cell::new(format!("{}\n  {}", arm.name, ran(arm)))];
        // A line that is empty in all cells of a row is none.
        row.extend(cells.map(|cell| right(cell.trim_end_matches('\n'))));
        table.add_row(row);
    }
    table
}

/// The headings of the figures; a line for the unit.
pub fn headings() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.heading)
}

/// The figures of each arm: median, its ratio to *as is*, range, a line each; the last two may be empty.
pub fn cells(verdict: &Verdict) -> impl Iterator<Item = impl Iterator<Item = String>> {
    written(verdict, Ranges::OneLine)
}

fn written(verdict: &Verdict, ranges: Ranges) -> impl Iterator<Item = impl Iterator<Item = String>> {
    let base = verdict.arms.iter().find(|arm| arm.effect.is_none()).map(|arm| &arm.figures);
    verdict.arms.iter().map(move |judged| {
        COLUMNS.iter().map(move |column| {
            let base = base.filter(|_| judged.effect.is_some()).and_then(|base| (column.figure)(base));
            cell(column, (column.figure)(&judged.figures), base, ranges)
        })
    })
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

fn cell(column: &Column, spread: Option<Spread>, base: Option<Spread>, ranges: Ranges) -> String {
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
    let range = match ranges {
        _ if is_narrow => String::new(),
        Ranges::OneLine => format!("{low}–{high}"),
        Ranges::TwoLines => format!("{low}–\n{high}"),
    };
    format!("{}\n{compared}\n{range}", (column.written)(spread.median))
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
        assert_eq!(cell(user, spread(&[0.0041]), spread(&[0.0010]), Ranges::OneLine), "0.004\n\n");
        assert_eq!(cell(user, spread(&[0.0004]), spread(&[0.0010]), Ranges::OneLine), "0.000\n\n");
        assert_eq!(cell(user, spread(&[0.004]), spread(&[4.0]), Ranges::OneLine), "0.004\n×0.001\n");
        assert_eq!(
            cell(user, spread(&[0.0]), spread(&[4.0]), Ranges::OneLine),
            "0.000\n\n",
            "no ratio of nothing"
        );
        let faults = &COLUMNS[4];
        assert_eq!(cell(faults, spread(&[100.0]), spread(&[200.0]), Ranges::OneLine), "100\n×0.50\n");
    }

    #[test]
    fn a_median_between_two_counts_is_rounded() {
        assert_eq!(cell(&COLUMNS[4], spread(&[10.0, 11.0]), None, Ranges::OneLine), "11\n\n10–11");
    }

    #[test]
    fn ranges_stand_on_two_lines_where_there_is_little_room() {
        let figure = spread(&[117_288.0, 117_310.0, 120_714.0]);
        assert_eq!(cell(&COLUMNS[4], figure, None, Ranges::TwoLines), "117,310\n\n117,288–\n120,714");
        assert_eq!(cell(&COLUMNS[4], figure, None, Ranges::OneLine), "117,310\n\n117,288–120,714");
    }
}
