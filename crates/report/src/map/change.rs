//! Two maps compared, for people: what grew and what shrank.

use std::cmp::Ordering;
use std::fmt::Write;

use comfy_table::Cell;
use faultless_diagnosis::classification::totals::Change;
use faultless_records::quantity::{count, size};

use super::saved_totals::SavedTotals;
use super::table::{grouped, without_rules};
use crate::plain::{fitted, plain};
use crate::table_form::{right, ruled, within};

/// The comparison as text, prose broken at `columns`.
#[must_use]
pub fn text(before: &SavedTotals, after: &SavedTotals, changes: &[Change], columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let is_measured = before.is_measured && after.is_measured;
    let head = if is_measured { heading(before, after, changes) } else { unmeasured(before, after) };
    let mut header = vec![Cell::new("MiB")];
    let headings = ["RSS before", "after", "change", "swap", "dirty"];
    header.extend(headings.into_iter().filter(|_| is_measured).map(right));
    header.extend(["reserved", "count"].map(right));
    let mut table = ruled(header);
    for change in changes {
        let change_of = |before: u64, after: u64| right(signed(before, after, grouped));
        let mut row = vec![Cell::new(change.kind.name())];
        if is_measured {
            row.extend([
                right(grouped(change.before.rss_bytes)),
                right(grouped(change.after.rss_bytes)),
                change_of(change.before.rss_bytes, change.after.rss_bytes),
                change_of(change.before.swap_bytes, change.after.swap_bytes),
                change_of(change.before.dirty_bytes(), change.after.dirty_bytes()),
            ]);
        }
        row.push(change_of(change.reserved_bytes.0, change.reserved_bytes.1));
        row.push(right(signed(change.count.0, change.count.1, count)));
        table.add_row(row);
    }
    let table = within(&table, &(0..1), columns, |table| without_rules(table, false));
    format!("{}\n\n{table}\n{}", fit(head), fit(notes([before, after])))
}

fn names(before: &SavedTotals, after: &SavedTotals) -> String {
    format!("{} → {}", plain(&before.name), plain(&after.name))
}

fn heading(before: &SavedTotals, after: &SavedTotals, changes: &[Change]) -> String {
    let sum = |get: fn(&Change) -> u64| changes.iter().map(get).fold(0, u64::saturating_add);
    let (old, new) = (sum(|change| change.before.rss_bytes), sum(|change| change.after.rss_bytes));
    let by = size(new.abs_diff(old));
    let what = match new.cmp(&old) {
        Ordering::Less => format!("shrank by {by}, from {} to {}", size(old), size(new)),
        Ordering::Equal => format!("is the same, {}", size(new)),
        Ordering::Greater => format!("grew by {by}, from {} to {}", size(old), size(new)),
    };
    let mut text = format!("{}: resident memory {what}", names(before, after));
    let largest = changes.first().filter(|change| change.after.rss_bytes != change.before.rss_bytes);
    if let Some(change) = largest {
        let _ = write!(
            text,
            "; most: {} {}",
            change.kind.name(),
            signed(change.before.rss_bytes, change.after.rss_bytes, size)
        );
    }
    text
}

/// Without sizes on one side, no change of them can be told.
fn unmeasured(before: &SavedTotals, after: &SavedTotals) -> String {
    let those: Vec<_> = [before, after].into_iter().filter(|map| !map.is_measured).collect();
    let of: Vec<_> = those.iter().map(|map| plain(&map.name)).collect();
    format!(
        "{}: addresses only; what is in memory is not known of {}",
        names(before, after),
        of.join(" and ")
    )
}

/// What could not be seen of two maps; nothing where both were seen alike.
fn notes(maps: [&SavedTotals; 2]) -> String {
    if maps[0].remarks == maps[1].remarks {
        return String::new();
    }
    let mut text = String::from("\nNote: what changed its kind may be the same memory, known otherwise\n");
    for map in maps {
        for remark in &map.remarks {
            let _ = writeln!(text, "Note: {}: {}", plain(&map.name), plain(remark));
        }
    }
    text
}

/// `+12`, `-3`, and `·` for no change.
fn signed(before: u64, after: u64, written: fn(u64) -> String) -> String {
    match after.checked_sub(before) {
        Some(0) => "·".into(),
        Some(more) => format!("+{}", written(more)),
        None => format!("-{}", written(before - after)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::kind::Kind;
    use faultless_records::mappings::Usage;

    #[test]
    fn sums_that_no_process_has_are_as_large_as_numbers_get() {
        let change = |kind| Change {
            kind,
            count: (1, 1),
            reserved_bytes: (1, 1),
            before: Usage { rss_bytes: 1 << 63, ..Usage::default() },
            after: Usage::default(),
        };
        let map =
            || SavedTotals { name: "a".into(), totals: Vec::new(), is_measured: true, remarks: Vec::new() };
        let text = text(&map(), &map(), &[change(Kind::MainHeap), change(Kind::MainStack)], None);
        assert!(text.starts_with("a → a: resident memory shrank by 16777216 TiB"), "{text}");
    }

    #[test]
    fn what_changed_most_stands_first_and_nothing_is_a_dot() {
        let usage = |rss_bytes| Usage { rss_bytes, ..Usage::default() };
        let changes = [
            Change {
                kind: Kind::GlibcHeap,
                count: (1, 3),
                reserved_bytes: (64 << 20, 192 << 20),
                before: usage(1 << 20),
                after: usage(5 << 20),
            },
            Change {
                kind: Kind::Program,
                count: (4, 4),
                reserved_bytes: (9, 9),
                before: usage(7),
                after: usage(7),
            },
        ];
        let map = |name: &str, is_measured| SavedTotals {
            name: name.into(),
            totals: Vec::new(),
            is_measured,
            remarks: Vec::new(),
        };
        let addresses = text(&map("a", true), &map("b", false), &changes, None);
        assert!(addresses.starts_with("a → b: addresses only; what is in memory is not known of b\n"));
        assert!(addresses.contains("+128.0") && !addresses.contains("RSS"), "{addresses}");
        let narrow = text(&map("a", true), &map("b", true), &changes, Some(60));
        assert!(
            narrow.starts_with("a → b: resident memory grew by 4 MiB, from 1 MiB to 5 MiB;\n  most: "),
            "{narrow}"
        );
        let text = text(&map("a", true), &map("b", true), &changes, None);
        assert!(text.starts_with(
            "a → b: resident memory grew by 4 MiB, from 1 MiB to 5 MiB; most: glibc heaps +4 MiB\n"
        ));
        let heaps = text.lines().find(|line| line.trim().starts_with("glibc")).unwrap();
        let words: Vec<&str> = heaps.split_whitespace().collect();
        assert_eq!(words[2..], ["1.0", "5.0", "+4.0", "·", "·", "+128.0", "+2"]);
        let same = heading(&map("a", true), &map("b", true), &changes[1..]);
        assert_eq!(same, "a → b: resident memory is the same, 7 B");
    }
}
