//! Two recordings of page faults side by side, for people.

use std::fmt::Write as _;

use comfy_table::{Cell, Table};
use faultless_diagnosis::faults::comparison::Comparison;
use faultless_records::quantity::{ratio, seconds_of, several, whole};

use super::table::shortened;
use crate::plain::plain;
use crate::table_form::{headed, right, within};

/// Functions shown.
const FUNCTIONS: usize = 20;

/// The comparison as text, its table made to fit a terminal of so many columns.
#[must_use]
pub fn text(comparison: &Comparison, columns: Option<usize>) -> String {
    let (before, after) = comparison.all;
    let mut text = format!(
        "{} in {} s before, {} in {} s after",
        several(before.round() as u64, "page fault"),
        seconds_of(comparison.seconds.0),
        whole(after),
        seconds_of(comparison.seconds.1)
    );
    let _ = if before > 0.0 { writeln!(text, " ({})", ratio(after / before)) } else { writeln!(text) };
    if comparison.functions.is_empty() {
        text.push_str("No function takes more or fewer.\n");
        return text;
    }
    let mut table = headed(vec![
        right("before"),
        right("after"),
        right("difference"),
        Cell::new("function"),
        Cell::new("module"),
    ]);
    for change in comparison.functions.iter().take(FUNCTIONS) {
        let difference = change.difference();
        let sign = if difference < 0.0 { "−" } else { "+" };
        table.add_row(vec![
            right(whole(change.before)),
            right(whole(change.after)),
            right(format!("{sign}{}", whole(difference.abs()))),
            Cell::new(shortened(&plain(&change.name))),
            Cell::new(plain(change.module.as_deref().unwrap_or_default())),
        ]);
    }
    let _ = writeln!(text, "\n{}", within(&table, &(3..4), columns, Table::to_string));
    if comparison.functions.len() > FUNCTIONS {
        let rest = comparison.functions.len() - FUNCTIONS;
        let _ = writeln!(text, "and {}", several(rest as u64, "more function"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tree::tests::recording;

    #[test]
    fn differences_have_signs_and_equals_say_so() {
        let before = recording();
        let mut after = recording();
        after.faults[0].weight = 5.0;
        after.counters.user.minor = 8;
        after.method.steps[0].minor_faults = 8;
        let text = text(&Comparison::of(&before, &after), None);
        assert!(text.starts_with("100 page faults in 2.00 s before, 10 in 2.00 s after (×0.10)"), "{text}");
        assert!(text.contains("−90"), "{text}");
        assert!(super::text(&Comparison::of(&before, &before), None).contains("No function"));
    }
}
