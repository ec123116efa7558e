//! What `faultless map` found, for people: what most of the memory is, then a row for each kind with its evidence.

use std::fmt::Write;

use comfy_table::{Cell, Table};
use faultless_diagnosis::classification::claim::Strength;
use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::parts::Part;
use faultless_diagnosis::classification::totals::Total;
use faultless_records::mappings::Usage;
use faultless_records::quantity::{count, mebibytes, percent, several, size};

use super::view::MapView;
use super::{foot, nmt};
use crate::plain::{fitted, plain, wrapped};
use crate::table_form::{right, ruled, within};

/// Proofs named in a row; the rest is counted.
const PROOFS: usize = 2;

/// The whole report, made to fit a terminal of so many columns; with `all`, every mapping.
#[must_use]
pub fn text(view: &MapView, all: bool, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let mut parts = vec![fit(heading(view)), kinds(view, columns)];
    if all {
        parts.push(list(view));
    }
    parts.extend(view.java.as_ref().map(|account| nmt::text(account, columns)));
    parts.push(fit(foot::text(view)));
    parts.join("\n")
}

/// Mebibytes with one decimal and the thousands apart.
#[must_use]
pub fn grouped(bytes: u64) -> String {
    let text = mebibytes(bytes);
    match text.split_once('.') {
        Some((whole, tenths)) => {
            whole.parse().map_or(text.clone(), |whole| format!("{}.{tenths}", count(whole)))
        }
        None => text,
    }
}

/// A part of what is resident, nothing of nothing.
fn share(bytes: u64, resident_bytes: u64) -> String {
    percent(bytes as f64 / resident_bytes.max(1) as f64)
}

fn heading(view: &MapView) -> String {
    let sum = view.sum();
    let mut text = format!("{}: ", view.subject);
    if !view.is_measured() {
        let resident = view.counted_rss_bytes.map_or("an unknown size".into(), size);
        let _ = writeln!(
            text,
            "{resident} resident, {}, addresses only",
            several(view.mappings.len() as u64, "mapping")
        );
        return text;
    }
    let _ = write!(text, "{} resident", size(sum.rss_bytes));
    if sum.swap_bytes > 0 {
        let _ = write!(text, ", {} in swap", size(sum.swap_bytes));
    }
    let _ = write!(text, " in {}", several(view.mappings.len() as u64, "mapping"));
    text += &largest_kinds(view, sum.rss_bytes);
    let _ = writeln!(text, "; unknown: {}", share(view.rss_bytes(Kind::Unknown), sum.rss_bytes));
    text
}

/// The largest known kinds, from a tenth on; called most of it only where they are.
pub(crate) fn largest_kinds(view: &MapView, resident_bytes: u64) -> String {
    let is_large = |total: &&Total| {
        total.kind != Kind::Unknown && total.usage.rss_bytes >= resident_bytes.max(1).div_ceil(10)
    };
    let largest: Vec<&Total> = view.totals.iter().filter(is_large).take(3).collect();
    if largest.is_empty() {
        return String::new();
    }
    let bytes = largest.iter().fold(0_u64, |sum, total| sum.saturating_add(total.usage.rss_bytes));
    let what = if bytes > resident_bytes / 2 { "most of it" } else { "largest known" };
    let named = largest.iter().map(|total| format!("{} {}", total.kind.name(), size(total.usage.rss_bytes)));
    format!("; {what}: {}", named.collect::<Vec<_>>().join(", "))
}

fn kinds(view: &MapView, columns: Option<usize>) -> String {
    let sum = view.sum();
    let has_swap = sum.swap_bytes > 0;
    let mut header = vec![Cell::new("MiB")];
    let mut headings = vec!["count", "reserved"];
    if view.is_measured() {
        headings.extend(["RSS", "%", "PSS", "dirty"]);
        headings.extend(has_swap.then_some("swap"));
    }
    header.extend(headings.iter().copied().map(right));
    header.push(Cell::new("known by"));
    let mut table = ruled(header);

    let figures = |usage: &Usage| -> Vec<Cell> {
        if !view.is_measured() {
            return Vec::new();
        }
        let mut cells = vec![
            right(grouped(usage.rss_bytes)),
            right(share(usage.rss_bytes, sum.rss_bytes).trim_end_matches(" %")),
            right(grouped(usage.pss_bytes)),
            right(grouped(usage.dirty_bytes())),
        ];
        cells.extend(has_swap.then(|| right(grouped(usage.swap_bytes))));
        cells
    };
    // The evidence gets what the figures leave.
    let taken = 24 + 11 * (headings.len());
    let room = columns.map_or(60, |columns| columns.saturating_sub(taken).max(24));
    for total in &view.totals {
        let mut row = vec![
            Cell::new(total.kind.name()),
            right(count(total.count)),
            right(grouped(total.reserved_bytes)),
        ];
        row.extend(figures(&total.usage));
        row.push(Cell::new(wrapped(&proofs(total), room)));
        table.add_row(row);
    }
    let all: u64 = view.totals.iter().map(|total| total.count).sum();
    let reserved: u64 = view.totals.iter().fold(0, |sum, total| sum.saturating_add(total.reserved_bytes));
    let mut row = vec![Cell::new("sum"), right(count(all)), right(grouped(reserved))];
    row.extend(figures(&sum));
    row.push(Cell::new(kernels_word(view)));
    table.add_row(row);
    format!("{}\n", within(&table, &(0..1), columns, |table| without_rules(table, true)))
}

/// A table as text. Only the rules around the heading, above the sum and at the end stay: a rule between all rows says nothing.
#[must_use]
pub fn without_rules(table: &Table, has_sum: bool) -> String {
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let is_rule = |line: &str| line.starts_with(['╌', '─', '═']);
    let rules: Vec<usize> = (0..lines.len()).filter(|at| is_rule(lines[*at])).collect();
    let (first, last) = (rules.iter().take(2), rules.iter().rev().take(if has_sum { 2 } else { 1 }));
    let kept: Vec<usize> = first.chain(last).copied().collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let lines = lines.iter().enumerate().filter(|(at, line)| !is_rule(line) || kept.contains(at));
    let shown = lines.map(|(_, line)| if is_rule(line) { "─".repeat(width) } else { (*line).to_owned() });
    shown.collect::<Vec<_>>().join("\n")
}

/// What was found, and in how many pieces where that differs.
fn proofs(total: &Total) -> String {
    let shown = |(proof, strength, pieces): &(&'static str, Strength, u64)| {
        let weak =
            if *strength == Strength::Pattern && total.kind != Kind::Unknown { "layout only: " } else { "" };
        match total.proofs.len() {
            1 => format!("{weak}{proof}"),
            _ => format!("{weak}{proof} ({})", count(*pieces)),
        }
    };
    let mut words: Vec<String> = total.proofs.iter().take(PROOFS).map(shown).collect();
    let rest: u64 = total.proofs.iter().skip(PROOFS).map(|(_, _, pieces)| pieces).sum();
    if rest > 0 {
        words.push(format!("others ({})", count(rest)));
    }
    words.join(", ")
}

fn kernels_word(view: &MapView) -> String {
    let Some(kernel) = view.kernel.filter(|_| view.is_measured()) else { return String::new() };
    let sum = view.sum();
    let pairs = [(kernel.rss_bytes, sum.rss_bytes, ""), (kernel.swap_bytes, sum.swap_bytes, " in swap")];
    let differences =
        pairs.into_iter().filter(|(kernel, own, _)| kernel != own).map(|(kernel, own, place)| {
            format!("{}{}{place}", if kernel > own { '+' } else { '-' }, size(kernel.abs_diff(own)))
        });
    match differences.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "equal to the kernel's smaps_rollup".into(),
        differences => format!("smaps_rollup a moment later: {differences}"),
    }
}

/// Every part by itself.
fn list(view: &MapView) -> String {
    let mut text = String::from("KiB: address, access, reserved, RSS, PSS, dirty, swap, what, evidence\n");
    for part in &view.parts {
        let mapping = &view.mappings[part.mapping];
        let usage = part.usage.unwrap_or_default();
        let kibibytes = |bytes: u64| bytes >> 10;
        let _ = writeln!(
            text,
            "{:012x}-{:012x} {} {:>10} {:>9} {:>9} {:>9} {:>7} {:<20} {}",
            part.extent.start,
            part.extent.end,
            String::from_utf8_lossy(&mapping.permissions),
            kibibytes(part.extent.bytes()),
            kibibytes(usage.rss_bytes),
            kibibytes(usage.pss_bytes),
            kibibytes(usage.dirty_bytes()),
            kibibytes(usage.swap_bytes),
            part.kind.name(),
            plain(&described(view, part)),
        );
    }
    text
}

/// Evidence of a part in words, with the mapping's own name.
#[must_use]
pub fn described(view: &MapView, part: &Part) -> String {
    let mapping = &view.mappings[part.mapping];
    let mut text = String::new();
    if !mapping.name.is_empty() {
        let _ = write!(text, "{} ", mapping.name_text());
    } else {
        let _ = write!(text, "{} ", part.evidence.proof);
    }
    if !part.evidence.detail.is_empty() {
        let _ = write!(text, "({}) ", part.evidence.detail);
    }
    if part.is_estimated {
        text.push_str("[figures divided by size] ");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_diagnosis::classification::{Sight, classify};
    use faultless_records::mappings;

    const SMAPS: &str = "\
10000-20000 rw-p 00000000 00:00 0 [heap]
Rss: 64 kB
Pss: 64 kB
Private_Dirty: 64 kB
VmFlags: rd
7f0004000000-7f0004300000 rw-p 00000000 00:00 0 
Rss: 2048 kB
Pss: 2048 kB
Private_Dirty: 2048 kB
LazyFree: 16 kB
VmFlags: rd
7f0004300000-7f0008000000 ---p 00000000 00:00 0 
Rss: 0 kB
VmFlags: rd
7f0009000000-7f0009100000 rw-p 00000000 00:00 0 
Rss: 1024 kB
Pss: 1024 kB
Swap: 4 kB
VmFlags: rd
";

    fn view() -> MapView {
        let mappings = mappings::parse(SMAPS.as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        MapView::new("saved\u{1b}[2J".into(), None, mappings, parts)
    }

    #[test]
    fn the_answer_comes_first_and_unknown_memory_is_named() {
        let text = text(&view(), false, None);
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "saved\\u{1b}[2J: 3.1 MiB resident, 4 KiB in swap in 4 mappings; most of it: glibc heaps 2 MiB; unknown: 32.7 %"
        );
        let heaps = text.lines().find(|line| line.contains("glibc heaps") && line.contains("64.0")).unwrap();
        assert!(heaps.contains("layout only: 64 MiB at a multiple"), "{heaps}");
        assert!(text.contains("16 KiB of the resident memory is given up by MADV_FREE"));
        let rules = text.lines().filter(|line| line.starts_with('─') || line.starts_with('═')).count();
        assert_eq!(rules, 4, "{text}");
    }

    #[test]
    fn what_the_kernel_says_a_moment_later_is_set_against_the_sum() {
        let told = |rss_kib: u64, swap_kib: u64| {
            let kernel = Usage { rss_bytes: rss_kib << 10, swap_bytes: swap_kib << 10, ..Usage::default() };
            kernels_word(&MapView { kernel: Some(kernel), ..view() })
        };
        assert_eq!(told(3136, 4), "equal to the kernel's smaps_rollup");
        assert_eq!(told(3140, 4), "smaps_rollup a moment later: +4 KiB");
        assert_eq!(told(3136, 0), "smaps_rollup a moment later: -4 KiB in swap");
        assert_eq!(told(3132, 8), "smaps_rollup a moment later: -4 KiB, +4 KiB in swap");
    }

    #[test]
    fn less_than_half_is_not_called_most() {
        let first_line = |unknown_kib: u64| {
            let text = format!(
                "10000-20000 r-xp 00000000 08:01 7 /usr/lib/libc.so.6\nRss: 40 kB\nVmFlags: rd\n\
                 7f0000000000-7f0000100000 rw-p 00000000 00:00 0 \nRss: {unknown_kib} kB\nVmFlags: rd\n"
            );
            let mappings = mappings::parse(text.as_bytes()).unwrap();
            let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            heading(&MapView::new("saved".into(), None, mappings, parts))
        };
        assert!(
            first_line(60).contains("; largest known: programs, libraries 40 KiB;"),
            "{}",
            first_line(60)
        );
        assert!(first_line(36).contains("; most of it: programs, libraries 40 KiB;"), "{}", first_line(36));
    }

    #[test]
    fn figures_that_no_process_has_can_be_shown() {
        let most = u64::MAX >> 10;
        let text =
            format!("10000-20000 rw-p 00000000 00:00 0 \nRss: {most} kB\nSwap: {most} kB\nVmFlags: rd\n");
        let mappings = mappings::parse(text.as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        assert!(
            super::text(&MapView::new("x".into(), None, mappings, parts), true, None)
                .contains("unknown: 100.0 %")
        );
    }

    #[test]
    fn every_mapping_is_listed_on_demand() {
        let text = text(&view(), true, Some(80));
        assert!(text.contains("000000010000-000000020000 rw-p"));
        assert_eq!(text.lines().filter(|line| line.contains("p ") && line.starts_with("0000")).count(), 1);
    }

    #[test]
    fn large_numbers_have_their_thousands_apart() {
        assert_eq!(grouped(1 << 40), "1,048,576.0");
        assert_eq!(share(0, 0), "0 %");
    }
}
