//! What `faultless map` found, for people: what most of the memory is, then a row for each kind with its evidence.

use std::fmt::Write;

use comfy_table::{Cell, Table};
use faultless_diagnosis::classification::claim::Strength;
use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::parts::Part;
use faultless_diagnosis::classification::totals::Total;
use faultless_records::cgroup::{MemoryGroup, Version};
use faultless_records::mappings::Usage;
use faultless_records::quantity::{count, mebibytes, percent, several, size};

use super::nmt;
use super::view::MapView;
use crate::plain::{fitted, plain, wrapped};
use crate::table_form::{right, ruled};

/// Proofs named in a row; the rest is counted.
const PROOFS: usize = 2;

/// A difference to the kernel's sum below this is not worth a warning in a process that runs.
const TEARING: f64 = 0.01;

/// Huge pages and what else may not be in use are named from so many bytes on, where they are a tenth of what is resident, too.
const NOTABLE_BYTES: u64 = 8 << 20;
const NOTABLE_PART: u64 = 10;

/// The whole report, made to fit a terminal of so many columns; with `all`, every mapping.
#[must_use]
pub fn text(view: &MapView, all: bool, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let mut parts = vec![fit(heading(view)), kinds(view, columns)];
    if all {
        parts.push(list(view));
    }
    parts.extend(view.java.as_ref().map(|account| fit(nmt::text(account))));
    parts.push(fit(foot(view)));
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
fn largest_kinds(view: &MapView, resident_bytes: u64) -> String {
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
    format!("{}\n", without_rules(&table, true))
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
    if kernel.rss_bytes == sum.rss_bytes && kernel.swap_bytes == sum.swap_bytes {
        return "equal to the kernel's smaps_rollup".into();
    }
    let sign = if kernel.rss_bytes > sum.rss_bytes { '+' } else { '-' };
    format!("smaps_rollup a moment later: {sign}{}", size(kernel.rss_bytes.abs_diff(sum.rss_bytes)))
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

fn foot(view: &MapView) -> String {
    let mut text = String::new();
    if let Some(group) = &view.group {
        let _ = writeln!(text, "{}", group_line(group));
    }
    text += &why_resident(&view.sum());
    text += &unseen_inside(view);
    if let Some(files) = view.unmapped_files.filter(|files| is_notable(files.bytes, &view.sum())) {
        let _ = writeln!(
            text,
            "{} beside RSS in {} that it holds by descriptors and does not map (memfd, or deleted from a tmpfs)",
            size(files.bytes),
            several(files.count, "file")
        );
    }
    let again = view.mapped_again();
    if again.rss_bytes > 0 {
        let _ = writeln!(
            text,
            "{} of the resident memory is shared mappings that show the same pages at several addresses: RSS counts these at each, \
             PSS once ({})",
            size(again.rss_bytes),
            size(again.pss_bytes)
        );
    }
    if let Some(allocator) = view.unseen_allocator() {
        let known = match view.rss_bytes(Kind::Allocator(allocator)) {
            0 => "none".into(),
            bytes => format!("only {}", size(bytes)),
        };
        let _ = writeln!(
            text,
            "{allocator} is loaded and {known} of its memory is recognised: much of the unknown {} may be what it serves",
            size(view.rss_bytes(Kind::Unknown))
        );
    }
    if let Some(kernel) = view.kernel {
        let sum_bytes = view.sum().rss_bytes.max(1);
        let apart = kernel.rss_bytes.abs_diff(sum_bytes) as f64 / sum_bytes as f64;
        if view.is_measured() && apart > TEARING {
            text.push_str("Note: it changed while it was read; a process that stands still (kill -STOP) is read exactly\n");
        }
    }
    for remark in &view.remarks {
        let _ = writeln!(text, "Note: {}", plain(remark));
    }
    text
}

fn is_notable(bytes: u64, sum: &Usage) -> bool {
    bytes >= NOTABLE_BYTES && bytes >= sum.rss_bytes / NOTABLE_PART
}

/// Who tells how much of a runtime's heap is in use: all of it stands in the table, garbage and what is kept free, too.
fn unseen_inside(view: &MapView) -> String {
    let mut text = String::new();
    for total in view.totals.iter().filter(|total| is_notable(total.usage.rss_bytes, &view.sum())) {
        if let Some(account) = total.kind.account() {
            let _ = writeln!(
                text,
                "{}: what of it is in use and what free is not seen from outside; {account} tells it",
                total.kind.name()
            );
        }
    }
    text
}

/// What makes memory resident, or keeps it so, that may not be in use.
fn why_resident(sum: &Usage) -> String {
    let mut text = String::new();
    if sum.lazy_free_bytes > 0 {
        let _ = writeln!(
            text,
            "{} of the resident memory is given up by MADV_FREE: the kernel takes it when it needs it",
            size(sum.lazy_free_bytes)
        );
    }
    if is_notable(sum.anonymous_huge_bytes, sum) {
        let _ = writeln!(
            text,
            "{} of the resident memory is transparent huge pages: each is resident whole, however little of it was touched",
            size(sum.anonymous_huge_bytes)
        );
    }
    if is_notable(sum.locked_bytes, sum) {
        let _ = writeln!(
            text,
            "{} of the resident memory is locked (mlock, mlockall): none of it goes to swap, and locking brings pages in that \
             were never touched",
            size(sum.locked_bytes)
        );
    }
    if sum.hugetlb_bytes > 0 {
        let _ = writeln!(text, "{} in hugetlbfs pages, which RSS does not count", size(sum.hugetlb_bytes));
    }
    text
}

/// Limit and usage of a control group in words.
fn group_line(group: &MemoryGroup) -> String {
    let version = match group.version {
        Version::One => "v1",
        Version::Two => "v2",
    };
    let limit = group.limit_bytes.map_or("no limit".into(), |bytes| format!("limit {}", size(bytes)));
    let mut text = format!(
        "control group {} ({version}): {limit}, in use {}",
        plain(&group.path),
        size(group.usage_bytes)
    );
    if let (Some(anonymous), Some(file)) = (group.anonymous_bytes, group.file_bytes) {
        let _ = write!(text, " (anonymous {}, files {})", size(anonymous), size(file));
    }
    text
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
    fn what_is_mapped_at_two_addresses_is_said_to_be_counted_twice() {
        let at = |start: u32| {
            let head = format!("{start:x}-{:x} rw-s 00000000 00:01 7 /memfd:heap", start + 0x10000);
            format!("{head} (deleted)\nRss: 64 kB\nPss: 32 kB\nVmFlags: rd\n")
        };
        let mappings = mappings::parse((at(0x10000) + &at(0x50000)).as_bytes()).unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let text = text(&MapView::new("zgc".into(), None, mappings, parts), false, None);
        let line = "128 KiB of the resident memory is shared mappings that show the same pages at several addresses: \
                    RSS counts these at each, PSS once (64 KiB)";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn huge_and_locked_pages_are_named_where_they_are_a_notable_part() {
        let foot_of = |figures: &str| {
            let text = format!("7f0000000000-7f0010000000 rw-p 00000000 00:00 0 \n{figures}VmFlags: rd\n");
            let mappings = mappings::parse(text.as_bytes()).unwrap();
            let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            foot(&MapView::new("saved".into(), None, mappings, parts))
        };
        let notable = foot_of("Rss: 102400 kB\nAnonHugePages: 20480 kB\nLocked: 10240 kB\n");
        assert!(
            notable.contains("20 MiB of the resident memory is transparent huge pages: each is"),
            "{notable}"
        );
        assert!(
            notable.contains("10 MiB of the resident memory is locked (mlock, mlockall): none"),
            "{notable}"
        );
        for little in
            ["Rss: 204800 kB\nAnonHugePages: 10240 kB\nLocked: 10240 kB\n", "Rss: 4096 kB\nLocked: 4096 kB\n"]
        {
            assert_eq!(foot_of(little), "", "{little}");
        }
    }

    #[test]
    fn of_a_runtimes_heap_it_is_said_what_tells_used_from_free() {
        let foot_of = |kind: Kind| {
            let mappings =
                mappings::parse(b"10000-20000 rw-p 00000000 00:00 0 \nRss: 20480 kB\nVmFlags: rd\n").unwrap();
            let mut parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            parts[0].kind = kind;
            foot(&MapView::new("x".into(), None, mappings, parts))
        };
        let line = "Python objects: what of it is in use and what free is not seen from outside; sys._debugmallocstats() inside tells it\n";
        assert_eq!(foot_of(Kind::PythonObjects), line);
        assert!(foot_of(Kind::GoHeap).contains("StackInuse"), "{}", foot_of(Kind::GoHeap));
        assert_eq!(foot_of(Kind::GlibcHeap), "", "faultless heap sees it");
    }

    #[test]
    fn an_allocator_whose_memory_bears_no_mark_is_named_beside_what_is_unknown() {
        let library = |name: &str| {
            let head = format!("7f0009100000-7f0009200000 r-xp 00000000 08:01 7 /usr/lib/{name}\n");
            mappings::parse((SMAPS.to_owned() + &head + "Rss: 8 kB\nVmFlags: rd\n").as_bytes()).unwrap()
        };
        let foot_beside = |name: &str| {
            let mappings = library(name);
            let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
            foot(&MapView::new("saved".into(), None, mappings, parts))
        };
        let line = "rpmalloc is loaded and none of its memory is recognised: much of the unknown 1 MiB may be what it serves";
        assert!(foot_beside("librpmalloc.so").contains(line), "{}", foot_beside("librpmalloc.so"));
        assert!(!foot_beside("libc.so.6").contains("recognised"));
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
