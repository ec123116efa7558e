//! Two recordings of `churn` side by side, as a table and as JSON.

use std::fmt::Write as _;

use comfy_table::{Cell, Table};
use faultless_diagnosis::churn::comparison::{Change, Comparison, Sums};
use faultless_records::quantity::{ratio, seconds_of, several, size, whole};
use serde_json::json;

use crate::faults::table::shortened;
use crate::plain::{fitted, plain};
use crate::table_form::{headed, right, within};

/// Form of the JSON.
pub const FORMAT: &str = "faultless-churn-diff/1";

/// Functions shown, of those whose differences are a thousandth of all or more.
const FUNCTIONS: usize = 20;
const LEAST_WEIGHT: f64 = 0.001;

/// The comparison as text, made to fit a terminal of so many columns.
#[must_use]
pub fn text(comparison: &Comparison, columns: Option<usize>) -> String {
    let mut text = fitted(totals(comparison), columns);
    if !comparison.callers_are_known {
        text.push_str("Who called is not known of both.\n");
        return text;
    }
    let shown: Vec<&Change> = comparison
        .functions
        .iter()
        .filter(|change| change.weight(comparison.all) >= LEAST_WEIGHT)
        .take(FUNCTIONS)
        .collect();
    if shown.is_empty() {
        text.push_str(match comparison.functions.is_empty() {
            true => "No function calls more or holds more, or less.\n",
            false => "No function calls more or holds more, or less, by a thousandth of all.\n",
        });
        return text;
    }
    let names = if comparison.ends_are_known { 6..8 } else { 4..6 };
    let table = functions(&shown, comparison.ends_are_known);
    let _ = writeln!(text, "\n{}", within(&table, &names, columns, Table::to_string));
    if comparison.functions.len() > shown.len() {
        let rest = comparison.functions.len() - shown.len();
        let _ = writeln!(text, "and {}, with smaller differences", several(rest as u64, "more function"));
    }
    if comparison.is_estimated {
        let note =
            "Functions are estimated from some of the calls: small differences between them are chance.\n";
        text.push_str(&fitted(note.into(), columns));
    }
    text
}

fn totals(comparison: &Comparison) -> String {
    let (before, after) = comparison.all;
    let mut text = format!(
        "{} in {} s before, {} in {} s after{}\n",
        several(before.calls.round() as u64, "call"),
        seconds_of(comparison.seconds.0),
        whole(after.calls),
        seconds_of(comparison.seconds.1),
        times(before.calls, after.calls)
    );
    if comparison.ends_are_known {
        let _ = writeln!(
            text,
            "At the end {} were there before, {} after{}{}",
            bytes(before.live_bytes),
            bytes(after.live_bytes),
            times(before.live_bytes, after.live_bytes),
            match before.live_bytes != after.live_bytes && comparison.live_may_be_equal() {
                true => ", no more of a difference than the errors of both",
                false => "",
            }
        );
    } else {
        text.push_str("What was there at the end is not known of both.\n");
    }
    text
}

fn times(before: f64, after: f64) -> String {
    if before > 0.0 && after != before { format!(" ({})", ratio(after / before)) } else { String::new() }
}

fn bytes(number: f64) -> String {
    size(number.round() as u64)
}

fn functions(changes: &[&Change], ends_are_known: bool) -> Table {
    let live = ["there at the\nend before", "after"];
    let others = ["calls\nbefore", "after", "bytes\nbefore", "after"];
    let numbers = live.iter().filter(|_| ends_are_known).chain(&others).copied().map(right);
    let mut table = headed(numbers.chain(["function", "call"].map(Cell::new)));
    for change in changes {
        let pair = |number: fn(&Sums) -> String| [&change.before, &change.after].map(number);
        let live = pair(|sums| bytes(sums.live_bytes));
        let live = live.into_iter().filter(|_| ends_are_known);
        let numbers = live.chain(pair(|sums| whole(sums.calls))).chain(pair(|sums| bytes(sums.bytes)));
        let names = [shortened(&plain(&change.function)), change.call.into()].map(Cell::new);
        table.add_row(numbers.map(right).chain(names).collect::<Vec<_>>());
    }
    table
}

/// The comparison as JSON.
#[must_use]
pub fn json(comparison: &Comparison) -> String {
    let sums = |sums: &Sums| {
        let live_bytes = comparison.ends_are_known.then_some(sums.live_bytes);
        json!({ "calls": sums.calls, "bytes": sums.bytes, "live_bytes": live_bytes })
    };
    let functions = comparison.functions.iter().map(|change| {
        json!({
            "function": change.function,
            "call": change.call,
            "before": sums(&change.before),
            "after": sums(&change.after),
        })
    });
    let value = json!({
        "format": FORMAT,
        "seconds": { "before": comparison.seconds.0, "after": comparison.seconds.1 },
        "before": sums(&comparison.all.0),
        "after": sums(&comparison.all.1),
        "live_error_bytes": comparison.live_error_bytes,
        "callers_are_known": comparison.callers_are_known,
        "is_estimated": comparison.is_estimated,
        "functions": functions.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        let sums = |calls, bytes, live_bytes| Sums { calls, bytes, live_bytes };
        let (before, after) = (sums(10.0, 1024.0, 0.0), sums(30.0, 4096.0, 2048.0));
        Comparison {
            seconds: (1.0, 2.0),
            all: (before, after),
            ends_are_known: true,
            live_error_bytes: 0.0,
            callers_are_known: true,
            is_estimated: false,
            functions: vec![Change { function: "leak".into(), call: "malloc", before, after }],
        }
    }

    #[test]
    fn totals_and_functions_stand_side_by_side() {
        let text = text(&comparison(), None);
        assert!(text.starts_with("10 calls in 1.00 s before, 30 in 2.00 s after (×3.00)\n"), "{text}");
        assert!(text.contains("At the end 0 B were there before, 2 KiB after\n"), "{text}");
        let row = text.lines().find(|line| line.contains("leak")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells.join(" "), "0 B 2 KiB 10 30 1 KiB 4 KiB leak malloc", "{text}");
    }

    #[test]
    fn there_is_no_table_of_differences_that_are_too_small_to_be_shown() {
        let mut comparison = comparison();
        let change = &mut comparison.functions[0];
        change.after = Sums { calls: change.before.calls + 0.01, ..change.before };
        let told = text(&comparison, None);
        assert!(
            told.ends_with("\nNo function calls more or holds more, or less, by a thousandth of all.\n"),
            "{told}"
        );
        comparison.functions.clear();
        let told = text(&comparison, None);
        assert!(told.ends_with("\nNo function calls more or holds more, or less.\n"), "{told}");
    }

    #[test]
    fn what_is_not_known_or_chance_is_said() {
        let mut comparison = comparison();
        comparison.live_error_bytes = 2048.0;
        comparison.is_estimated = true;
        let told = text(&comparison, None);
        assert!(told.contains("no more of a difference than the errors of both"), "{told}");
        assert!(told.contains("are chance"), "{told}");
        comparison.ends_are_known = false;
        let told = text(&comparison, None);
        assert!(told.contains("is not known of both") && !told.contains("there at the\n"), "{told}");
        let value: serde_json::Value = serde_json::from_str(&json(&comparison)).unwrap();
        assert!(value["after"]["live_bytes"].is_null() && value["functions"][0]["after"]["calls"] == 30.0);
        comparison.functions.clear();
        assert!(text(&comparison, None).contains("No function"));
        comparison.callers_are_known = false;
        assert!(text(&comparison, None).ends_with("Who called is not known of both.\n"));
    }
}
