//! What the cases of the suite `seeds` must show and who shows it, for people.

use comfy_table::{Cell, LineStyle, Table};
use faultless_diagnosis::seeds::{Outcome, Row, Standing, Unit, tally};
use faultless_records::bench::{Campaign, Contender, Size};
use faultless_records::quantity::{count, mebibytes, ratio, seconds_of};

use crate::plain::plain;
use crate::table_form::right;

/// What stands in the cells.
pub const LEGEND: &str = "\
seeds: ✓ is within the limit, ✗ is not; times count as within it when the interval of their ratios is or holds it.
Faults are above those of a program that does nothing, under the same allocator.
A limit that depends on the run is shown as a range.";

/// Limits that differ by less than this part are shown as one.
const SAME_LIMIT: f64 = 0.02;

/// Rows that judge: those whose figure is only to be known are left to the saved file and the page.
fn judging(rows: &[Row]) -> impl Iterator<Item = &Row> {
    let has_limit = |row: &&Row| {
        row.outcomes.iter().any(|outcome| outcome.limit.is_some())
            || row.outcomes.iter().all(|outcome| matches!(outcome.standing, Standing::Unknown(_)))
    };
    rows.iter().filter(has_limit)
}

/// Names of the columns before the contenders'.
pub const COLUMNS: &[&str] = &["figure", "limit"];

/// Fills a table that has its header: a row for each criterion.
pub fn fill(table: &mut Table, campaign: &Campaign, rows: &[Row]) {
    table.style_mut().row_separator = LineStyle::none();
    let mut last = None;
    for row in judging(rows) {
        let name = if last == Some(row.cell) { String::new() } else { case_name(campaign, row.cell) };
        last = Some(row.cell);
        let mut cells = vec![Cell::new(name), Cell::new(heading(row)), right(limit(row))];
        cells.extend(row.outcomes.iter().map(|outcome| right(shown(outcome, row.unit))));
        table.add_row(cells);
    }
}

/// How many criteria each contender reached, in a line.
#[must_use]
pub fn summary(campaign: &Campaign, rows: &[Row]) -> String {
    let of = |(contender, named): (usize, &Contender)| {
        let (reached, judged) = tally(rows, contender);
        format!("{} {reached} of {judged}", plain(&named.name))
    };
    let counts: Vec<String> = campaign.contenders.iter().enumerate().map(of).collect();
    format!("within the limit: {}", counts.join(", "))
}

/// `churn 64M large 8`.
#[must_use]
pub fn case_name(campaign: &Campaign, cell: usize) -> String {
    let Some(cell) = campaign.cells.get(cell) else { return "?".into() };
    let variant = cell.variant.as_deref().map_or(String::new(), |variant| format!(" {variant}"));
    let size = cell.size.map_or("", |size| if size == Size::Small { " small" } else { " large" });
    let threads =
        cell.threads.filter(|threads| *threads > 1).map_or(String::new(), |threads| format!(" {threads}"));
    plain(&format!("{}{variant}{size}{threads}", cell.workload))
}

/// A criterion's name with the unit of its figures.
#[must_use]
pub fn heading(row: &Row) -> String {
    match row.unit {
        Unit::Bytes => format!("{}, MiB", row.name),
        Unit::Seconds => format!("{}, s", row.name),
        Unit::Count | Unit::Ratio => row.name.to_owned(),
    }
}

/// A figure as people read it.
#[must_use]
pub fn written(figure: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => count(figure.max(0.0) as u64),
        Unit::Bytes if figure < 0.0 => format!("-{}", mebibytes(-figure as u64)),
        Unit::Bytes => mebibytes(figure as u64),
        Unit::Seconds => seconds_of(figure),
        Unit::Ratio => ratio(figure),
    }
}

/// The limit of all contenders, or its range where it depends on the run.
#[must_use]
pub fn limit(row: &Row) -> String {
    let limits = row.outcomes.iter().filter_map(|outcome| outcome.limit);
    let (low, high) = limits
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), limit| (low.min(limit), high.max(limit)));
    if low > high {
        return "-".into();
    }
    if high - low <= high * SAME_LIMIT {
        return written(high, row.unit);
    }
    format!("{}–{}", written(low, row.unit), written(high, row.unit))
}

/// The figure of an outcome, if it has one; of one beyond its limit by less than is written, that it is more.
#[must_use]
pub fn figure(outcome: &Outcome, unit: Unit) -> Option<String> {
    let figure = written(outcome.figure?, unit);
    let limit = outcome.limit.filter(|_| outcome.standing == Standing::Missed);
    let is_written_alike = limit.is_some_and(|limit| written(limit, unit) == figure);
    Some(if is_written_alike { format!(">{figure}") } else { figure })
}

/// A figure with its mark.
#[must_use]
pub fn shown(outcome: &Outcome, unit: Unit) -> String {
    let figure = figure(outcome, unit).unwrap_or("-".into());
    match outcome.standing {
        Standing::Reached => format!("{figure} ✓"),
        Standing::Missed => format!("{figure} ✗"),
        Standing::Shown | Standing::Unknown(_) => format!("{figure}  "),
    }
}

/// Why figures could not be judged, each reason once with the criteria it is about.
#[must_use]
pub fn remarks(campaign: &Campaign, rows: &[Row]) -> Vec<String> {
    let mut remarks: Vec<String> = Vec::new();
    for row in judging(rows) {
        let workload = campaign.cells.get(row.cell).map_or("?", |cell| cell.workload.as_str());
        // A reason of one contender alone shows as a dash in its column, and a failure is named elsewhere.
        let reasons = row.outcomes.iter().map(|outcome| match &outcome.standing {
            Standing::Unknown(why) => Some(why.as_str()),
            _ => None,
        });
        let reasons: Option<Vec<&str>> = reasons.collect();
        let Some(reason) = reasons.and_then(|reasons| reasons.first().copied()) else { continue };
        let remark = plain(&format!("{workload}, {}: not judged: {reason}", row.name));
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: Unit, limits: &[Option<f64>]) -> Row {
        let outcome = |limit: &Option<f64>| Outcome {
            figure: limit.map(|limit| limit * 2.0),
            limit: *limit,
            standing: limit.map_or_else(|| Standing::Unknown("no libc".into()), |_| Standing::Missed),
        };
        Row { cell: 0, name: "faults", unit, outcomes: limits.iter().map(outcome).collect() }
    }

    #[test]
    fn a_limit_is_one_figure_or_a_range() {
        assert_eq!(limit(&row(Unit::Count, &[Some(4400.0), None, Some(4400.0)])), "4,400");
        assert_eq!(limit(&row(Unit::Bytes, &[Some(2_097_152.0), Some(4_194_304.0)])), "2.0–4.0");
        assert_eq!(limit(&row(Unit::Ratio, &[None])), "-");
    }

    #[test]
    fn figures_say_whether_they_are_within_the_limit() {
        let outcome = |standing| Outcome { figure: Some(1.0), limit: Some(2.0), standing };
        assert_eq!(shown(&outcome(Standing::Reached), Unit::Ratio), "×1.00 ✓");
        assert_eq!(shown(&outcome(Standing::Missed), Unit::Seconds), "1.00 ✗");
        let barely = Outcome { figure: Some(1.0046), limit: Some(1.0), standing: Standing::Missed };
        assert_eq!(shown(&barely, Unit::Ratio), ">×1.00 ✗");
        assert_eq!(written(0.0033, Unit::Ratio), "×0.003");
        assert_eq!(shown(&row(Unit::Count, &[None]).outcomes[0], Unit::Count), "-  ");
    }

    #[test]
    fn rows_that_nobody_can_be_judged_in_stay_and_say_why() {
        let rows = [row(Unit::Count, &[None, None]), row(Unit::Bytes, &[Some(1.0), None])];
        assert_eq!(judging(&rows).count(), 2);
        let known = Row {
            outcomes: vec![Outcome { figure: Some(1.0), limit: None, standing: Standing::Shown }],
            ..row(Unit::Count, &[])
        };
        assert_eq!(judging(&[known]).count(), 0);
    }
}
