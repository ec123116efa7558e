//! What the Java virtual machine says it uses, beside what is resident: the table and the JSON.

use std::fmt::Write;

use comfy_table::Cell;
use faultless_diagnosis::java_account::JavaAccount;
use faultless_records::quantity::size;
use serde_json::{Value, json};

use super::table::{grouped, without_rules};
use crate::plain::{fitted, plain};
use crate::table_form::{right, ruled, within};

/// Sum of all lines, which is the process's resident size.
#[must_use]
pub fn resident_bytes(account: &JavaAccount) -> u64 {
    let lines = account.lines.iter().map(|line| line.resident_bytes);
    let unseen = account.unseen.iter().map(|(_, bytes)| *bytes);
    sum(lines.chain(unseen).chain([account.malloc_resident_bytes]))
}

/// A file of NMT's text may say what no process has.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// The table, with a sentence before it that says where the difference lies.
#[must_use]
pub fn text(account: &JavaAccount, columns: Option<usize>) -> String {
    let mut header = vec![Cell::new("MiB")];
    header.extend(["reserved", "committed", "by malloc", "resident"].map(right));
    let mut table = ruled(header);
    let blank = || right(String::new());
    for line in &account.lines {
        table.add_row(vec![
            Cell::new(plain(&line.said.name)),
            right(grouped(line.said.reserved_bytes)),
            right(grouped(line.said.committed_bytes)),
            right(grouped(line.said.malloc_bytes)),
            right(grouped(line.resident_bytes)),
        ]);
    }
    table.add_row(vec![
        Cell::new("malloc's memory, NMT's blocks among it"),
        blank(),
        blank(),
        right(grouped(account.malloc_bytes)),
        right(grouped(account.malloc_resident_bytes)),
    ]);
    // A summary does not tell where a category lies, so what matches none may be one's all the same.
    let unseen = if account.has_regions { "not in NMT" } else { "matched with none" };
    for (kind, bytes) in &account.unseen {
        let name = format!("{unseen}: {}", kind.name());
        table.add_row(vec![Cell::new(name), blank(), blank(), blank(), right(grouped(*bytes))]);
    }
    table.add_row(vec![
        Cell::new("sum"),
        right(grouped(sum(account.lines.iter().map(|line| line.said.reserved_bytes)))),
        right(grouped(sum(account.lines.iter().map(|line| line.said.committed_bytes)))),
        right(grouped(account.malloc_bytes)),
        right(grouped(resident_bytes(account))),
    ]);
    let table = within(&table, &(0..1), columns, |table| without_rules(table, true));
    format!("{}\n\n{table}\n", fitted(sentence(account), columns))
}

fn sentence(account: &JavaAccount) -> String {
    let committed = sum(account.lines.iter().map(|line| line.said.committed_bytes));
    let mut text = format!(
        "Native memory tracking: {} committed; the process has {} resident.",
        size(committed),
        size(resident_bytes(account))
    );
    let beyond = account.malloc_resident_bytes.saturating_sub(account.malloc_bytes);
    if beyond > 0 {
        let _ = write!(
            text,
            " {} of it is malloc's beyond NMT's own blocks: free memory that malloc keeps, its records, and what zlib and other native \
             libraries hold (faultless heap --pid tells free from used).",
            size(beyond)
        );
    }
    if !account.has_regions {
        text.push_str(" NMT tracks only a summary here, so its lines are matched with kinds of mappings, and what matches none may be its all the same; -XX:NativeMemoryTracking=detail gives ranges.");
    }
    text
}

/// The same for programs.
#[must_use]
pub fn value(account: &JavaAccount) -> Value {
    let lines = account.lines.iter().map(|line| {
        json!({
            "category": line.said.name,
            "reserved_bytes": line.said.reserved_bytes,
            "committed_bytes": line.said.committed_bytes,
            "malloc_bytes": line.said.malloc_bytes,
            "resident_bytes": line.resident_bytes,
        })
    });
    let unseen =
        account.unseen.iter().map(|(kind, bytes)| json!({ "kind": kind.key(), "resident_bytes": bytes }));
    json!({
        "categories": lines.collect::<Vec<_>>(),
        "malloc_bytes": account.malloc_bytes,
        "malloc_resident_bytes": account.malloc_resident_bytes,
        "not_in_nmt": unseen.collect::<Vec<_>>(),
        "resident_bytes": resident_bytes(account),
        "has_ranges": account.has_regions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::kind::Kind;
    use faultless_diagnosis::java_account::Line;
    use faultless_records::nmt::Category;

    #[test]
    fn the_difference_is_named_and_lines_add_up() {
        let said = Category {
            name: "Java Heap\u{1b}".into(),
            reserved_bytes: 4 << 30,
            committed_bytes: 300 << 20,
            malloc_bytes: 4 << 20,
        };
        let line = Line { said, resident_bytes: 200 << 20 };
        let mut account = JavaAccount {
            lines: vec![line],
            malloc_bytes: 4 << 20,
            malloc_resident_bytes: 40 << 20,
            unseen: vec![(Kind::Program, 10 << 20)],
            has_regions: true,
        };
        let told = text(&account, None);
        assert!(
            told.contains(
                "300 MiB committed; the process has 250 MiB resident. 36 MiB of it is malloc's beyond"
            ),
            "{told}"
        );
        assert!(!told.contains('\u{1b}') && told.contains("not in NMT: programs, libraries"));
        assert_eq!(value(&account)["resident_bytes"], 250 << 20);
        account.has_regions = false;
        let told = text(&account, None);
        assert!(!told.contains("not in NMT") && told.contains("matched with none: programs"), "{told}");
    }

    #[test]
    fn sums_that_no_process_has_are_as_large_as_numbers_get() {
        let huge = Category { reserved_bytes: 1 << 63, committed_bytes: 1 << 63, ..Category::default() };
        let line = Line { said: huge, resident_bytes: 1 << 63 };
        let account = JavaAccount {
            lines: vec![line.clone(), line],
            malloc_resident_bytes: 1 << 63,
            ..JavaAccount::default()
        };
        let text = text(&account, None);
        assert!(
            text.starts_with("Native memory tracking: 16777216 TiB committed; the process has 16777216 TiB"),
            "{text}"
        );
        assert_eq!(value(&account)["resident_bytes"], u64::MAX);
    }
}
