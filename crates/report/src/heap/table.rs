//! A process's heaps for people: the answer first, then each arena, then the sizes.

use comfy_table::{Cell, Table};
use faultless_diagnosis::glibc_heap::account::Account;
use faultless_diagnosis::glibc_heap::sizes::{Amount, Sizes};
use faultless_diagnosis::glibc_heap::walk::{Arena, HeapWalk};
use faultless_records::quantity::{count, mebibytes, percent, several};

use super::json::flaw_text;
use super::remedy::{of_slabs, remedy};
use crate::heap::{FaultlessHeap, HeapView, Regions, Source, Stop};
use crate::plain::{plain, wrapped};
use crate::table_form::{headed, right, within};

/// Arenas with a row of their own; the rest share one.
const MOST_ROWS: usize = 12;
/// The table of arenas is about as wide: prose is no wider than it where no terminal says how much room there is.
const USUAL_COLUMNS: usize = 120;
/// Below this much in all heaps, figures are in KiB.
const LARGE_BYTES: u64 = 32 << 20;

/// What the words mean; it stands under the tables.
const LEGEND: &str = "\
    Resident: pages with memory. Trapped: resident and free. Trim: whole pages that malloc_trim(0) would give back. Left: \
    whole pages it would not (tops of threads' arenas, first pages of free chunks). Pinned: free parts of pages in which a \
    block is in use. Cached: blocks in threads' caches. Fragmentation: trapped as a part of resident. Sizes are of chunks, \
    8 bytes more than what was asked for, rounded up to 16.";

#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    is_large: bool,
}

impl Unit {
    fn of(bytes: u64) -> Self {
        if bytes >= LARGE_BYTES {
            Self { name: "MiB", is_large: true }
        } else {
            Self { name: "KiB", is_large: false }
        }
    }

    fn text(self, bytes: u64) -> String {
        if self.is_large { mebibytes(bytes) } else { count(bytes.div_ceil(1024)) }
    }

    fn with_name(self, bytes: u64) -> String {
        format!("{} {}", self.text(bytes), self.name)
    }
}

/// All of it, prose broken at `columns`; every arena has a row if `all` is set.
#[must_use]
pub fn text(report: &HeapView, all: bool, columns: Option<usize>) -> String {
    let fit = |text: String| wrapped(&text, columns.unwrap_or(USUAL_COLUMNS));
    let mut parts = vec![fit(heading(report))];
    parts.extend(report.counted_rss_bytes.map(|bytes| fit(part_of_process(report, bytes))));
    for walk in &report.walks {
        let reserved: u64 = walk.arenas.iter().map(Arena::reserved_bytes).sum();
        let unit = Unit::of(walk.total.holding.resident_bytes.max(walk.total.walked_bytes()));
        parts.push(fit(answer(walk, unit, reserved)));
        parts.extend(remedy(walk, !report.is_static).map(fit));
        parts.push(within(&arenas(walk, unit, all), &(0..1), columns, Table::to_string));
        parts.push(sizes(&walk.total, unit));
        parts.extend(flaws(walk, &report.source).into_iter().map(fit));
    }
    if let Some((name, regions)) = &report.other {
        parts.push(fit(other(name, regions, report.faultless.is_none())));
    }
    if let Some(heap) = &report.faultless {
        parts.push(faultless(heap, columns));
        parts.extend(of_slabs(&heap.page, heap.resident_bytes).map(fit));
    }
    if !report.walks.is_empty() {
        parts.push(fit(LEGEND.to_owned()));
    }
    parts.extend(report.on_walk().map(fit));
    parts.extend(report.remarks.iter().map(|remark| fit(plain(remark))));
    let mut text = parts.join("\n\n");
    text.push('\n');
    text
}

/// What malloc has to do with the size of the process: one may be large, and the other not.
fn part_of_process(report: &HeapView, rss_bytes: u64) -> String {
    let unit = Unit::of(rss_bytes);
    let whole = format!("The process has {} resident", unit.with_name(rss_bytes));
    if report.walks.is_empty() {
        return format!("{whole}.");
    }
    let of_walk = |walk: &HeapWalk| walk.total.holding.resident_bytes + walk.mapped.resident_bytes;
    let mallocs: u64 = report.walks.iter().map(of_walk).sum();
    let rest = match (&report.source, report.pid) {
        _ if mallocs >= rss_bytes / 2 => String::new(),
        (Source::Process(_), Some(pid)) => format!("\nfaultless map --pid {pid} names the rest."),
        _ => "\nfaultless map -- CMD names the rest.".to_owned(),
    };
    let part = percent(mallocs as f64 / rss_bytes.max(1) as f64);
    format!("{whole}; {} of it, {part}, in malloc's heaps and mapped blocks.{rest}", unit.text(mallocs))
}

fn other(name: &str, regions: &Regions, is_closed: bool) -> String {
    let unit = Unit::of(regions.accessible_bytes);
    let limit = if is_closed {
        "\nWhat is used and free inside cannot be seen from outside; faultless map tells whose each mapping is."
    } else {
        ""
    };
    format!(
        "{name} serves this process. Anonymous mappings that are no glibc heap and have no name, stacks of threads among them: {}, \
         {} reserved, {} of them accessible, {} resident.{limit}",
        count(regions.count),
        unit.with_name(regions.reserved_bytes),
        unit.with_name(regions.accessible_bytes),
        unit.with_name(regions.resident_bytes)
    )
}

/// What a Faultless process publishes: sums, then its size classes.
fn faultless(heap: &FaultlessHeap, columns: Option<usize>) -> String {
    let page = &heap.page;
    let unit = Unit::of(page.span_bytes.max(page.dirty_bytes));
    let rows = [
        (
            "in use",
            page.used_bytes(),
            format!("{} of it in {}", unit.text(page.large_bytes), several(page.large_blocks, "large block")),
        ),
        (
            "cached",
            page.cached_bytes(),
            format!("in the caches of {}, or on the way between them", several(page.threads, "thread")),
        ),
        ("free", page.free_in_slabs_bytes(), "in slabs".to_owned()),
        (
            "spans",
            page.span_bytes,
            format!("slabs and large blocks; at most {}", unit.text(page.span_peak_bytes)),
        ),
        ("dirty", page.dirty_bytes, "free spans that may have pages".to_owned()),
        ("resident", heap.resident_bytes, "pages of all these with memory, now".to_owned()),
        ("purged", page.purged_bytes, format!("given back so far, in {}", several(page.purges, "call"))),
    ];
    let rows = rows.map(|(name, bytes, words)| (name, unit.text(bytes), words));
    let account = account(unit, &rows);
    let mut table =
        narrow("blocks of, bytes", ["slabs", "blocks", "in use", "cached", "in transit", "in use, %"]);
    for class in &page.classes {
        let part = class.used as f64 / class.blocks.max(1) as f64 * 100.0;
        let figures = [class.slabs, class.blocks, class.used, class.cached, class.transit].map(count);
        row(&mut table, count(class.block_bytes), [figures.to_vec(), vec![format!("{part:.1}")]].concat());
    }
    let table = within(&table, &(0..1), columns, Table::to_string);
    format!("Its own account, {:.1} s old:\n{account}\n\n{table}", heap.age.as_secs_f64())
}

/// Rows under the unit of their figures.
fn account(unit: Unit, rows: &[Row]) -> String {
    let width = rows.iter().map(|(_, figure, _)| figure.len()).max().unwrap_or(0).max(3);
    let mut lines = vec![format!("{:<9} {:>width$}", "", unit.name)];
    let line =
        |(name, figure, words): &Row| format!("{name:<9} {figure:>width$}  {words}").trim_end().to_owned();
    lines.extend(rows.iter().map(line));
    lines.join("\n")
}

fn heading(report: &HeapView) -> String {
    let glibc = match report.glibc {
        Some((major, minor)) => format!(", glibc {major}.{minor}"),
        None if report.walks.is_empty() => String::new(),
        None => ", glibc of unknown version".to_owned(),
    };
    let subject = match report.pid {
        Some(pid) => format!("{} ({pid})", plain(&report.name)),
        None => plain(&report.name),
    };
    let how = match &report.source {
        Source::Process(Some(stop)) => standing(stop),
        Source::Process(None) => {
            format!("walked while it ran, in {:.1} ms", report.took.as_secs_f64() * 1e3)
        }
        Source::AtExit => "at its exit".to_owned(),
        Source::Core(file) => format!("from {}", plain(file)),
    };
    format!("{subject}{glibc}: {how}")
}

fn standing(stop: &Stop) -> String {
    let milliseconds = stop.stood.as_secs_f64() * 1e3;
    let mut text = match stop.moving_threads {
        0 => format!("it stood still for {milliseconds:.1} ms"),
        moving => {
            format!("it stood for {milliseconds:.1} ms, but {moving} of its threads could not be stopped")
        }
    };
    match stop.overdue_arenas {
        0 => {}
        1 => text += ", and ran on while an arena was walked for which that was too short",
        arenas => {
            text += &format!(", and ran on while {arenas} arenas were walked for which that was too short")
        }
    }
    text
}

/// A line of an account: what is counted, how much of it there is, and words about it.
type Row = (&'static str, String, String);

/// All arenas as one account.
fn answer(walk: &HeapWalk, unit: Unit, reserved: u64) -> String {
    let total = &walk.total;
    let heaps: usize = walk.arenas.iter().map(|arena| arena.heaps.len()).sum();
    let extent = format!("{}, {}", several(walk.arenas.len() as u64, "arena"), several(heaps as u64, "heap"));
    let used = total.used.total();
    let swapped = match total.holding.swapped_bytes {
        0 => String::new(),
        bytes => format!("and {} in swap", unit.with_name(bytes)),
    };
    let mut rows: Vec<Row> = vec![
        ("reserved", unit.text(reserved), extent),
        ("in use", unit.text(used.bytes), several(used.blocks, "block")),
        ("free", unit.text(total.free_bytes()), where_free(walk, unit)),
        ("resident", resident_text(walk, unit, total.holding.resident_bytes), swapped),
    ];
    rows.extend(returnable(walk, unit));
    rows.extend(mapped(walk, unit));
    account(unit, &rows)
}

fn where_free(walk: &HeapWalk, unit: Unit) -> String {
    let total = &walk.total;
    format!(
        "bins {}, fast bins {}, threads' caches {} ({} found), tops {}; the largest {}",
        unit.text(total.binned.bytes),
        unit.text(total.fast.bytes),
        unit.text(total.cached.bytes),
        walk.caches,
        unit.text(total.top_bytes),
        unit.text(total.largest_free_bytes)
    )
}

/// Resident bytes, or that nobody knows.
fn resident_text(walk: &HeapWalk, unit: Unit, bytes: u64) -> String {
    if walk.residency_is_known { unit.text(bytes) } else { "?".to_owned() }
}

/// Blocks with mappings of their own, which lie in no arena.
fn mapped(walk: &HeapWalk, unit: Unit) -> Option<Row> {
    let mapped = walk.mapped;
    if mapped.blocks == 0 {
        return None;
    }
    let words = format!(
        "{} with a mapping of {} own, in use; {} found, with {} resident",
        several(mapped.blocks, "block"),
        if mapped.blocks == 1 { "its" } else { "their" },
        count(mapped.found_blocks),
        resident_text(walk, unit, mapped.resident_bytes)
    );
    Some(("mapped", unit.text(mapped.bytes), words))
}

/// What free memory is resident, and why.
fn returnable(walk: &HeapWalk, unit: Unit) -> Vec<Row> {
    let total = &walk.total;
    if walk.residency_is_known {
        let part = total.fragmentation().map_or("-".to_owned(), percent);
        vec![
            ("trapped", unit.text(total.trapped_bytes()), format!("fragmentation {part}")),
            ("  trim", unit.text(total.returnable_bytes), "malloc_trim(0) would give it back".to_owned()),
            (
                "  left",
                unit.text(total.kept_bytes()),
                "whole free pages that it would not give back".to_owned(),
            ),
            ("  pinned", unit.text(total.holding.pinned_bytes), "free parts of pages in use".to_owned()),
            ("  cached", unit.text(total.cached_resident_bytes), "in threads' caches".to_owned()),
        ]
    } else {
        let bound = "malloc_trim(0) would give back at most".to_owned();
        vec![("  trim", unit.text(total.returnable_bytes), bound)]
    }
}

/// A table of figures behind the names of its rows, with little room between its columns.
fn narrow<'heading>(name: &str, headings: impl IntoIterator<Item = &'heading str>) -> Table {
    let mut table = headed([Cell::new(name)].into_iter().chain(headings.into_iter().map(right)));
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if place == 0 { 0 } else { 2 }, 0));
    }
    table
}

fn row(table: &mut Table, name: String, figures: Vec<String>) {
    table.add_row([Cell::new(name)].into_iter().chain(figures.into_iter().map(right)));
}

fn arenas(walk: &HeapWalk, unit: Unit, all: bool) -> Table {
    let columns = COLUMNS.iter().filter(|column| walk.residency_is_known || !column.needs_residency);
    let columns: Vec<&Column> = columns.collect();
    let mut table = narrow("arena", columns.iter().map(|column| column.heading));
    let numbered = walk.arenas.iter().enumerate();
    let (main, mut threads): (Vec<_>, Vec<_>) = numbered.partition(|(_, arena)| arena.is_main);
    threads.sort_by_key(|(_, arena)| std::cmp::Reverse(arena.account.holding.resident_bytes));
    let own_rows = if all || threads.len() <= MOST_ROWS { threads.len() } else { MOST_ROWS - 1 };
    let (shown, hidden) = threads.split_at(own_rows);
    for (number, arena) in main.iter().chain(shown) {
        let mark = if arena.flaw.is_some() { " ~" } else { "" };
        let name = if arena.is_main { "main".to_owned() } else { number.to_string() };
        row(&mut table, format!("{name}{mark}"), figures(&[arena], unit, &columns));
    }
    if !hidden.is_empty() {
        let name = format!("{} others", hidden.len());
        let hidden: Vec<&Arena> = hidden.iter().map(|(_, arena)| *arena).collect();
        row(&mut table, name, figures(&hidden, unit, &columns));
    }
    if walk.arenas.len() > 1 {
        let every: Vec<&Arena> = walk.arenas.iter().collect();
        row(&mut table, "all".to_owned(), figures(&every, unit, &columns));
    }
    table
}

fn figures(arenas: &[&Arena], unit: Unit, columns: &[&Column]) -> Vec<String> {
    let mut sum = Account::default();
    for arena in arenas {
        sum.merge(&arena.account);
    }
    let figure = |column: &&Column| match column.figure {
        Figure::Count(count_of) => count(arenas.iter().map(|arena| count_of(arena)).sum()),
        Figure::OfArena(bytes_of) => unit.text(arenas.iter().map(|arena| bytes_of(arena)).sum()),
        Figure::OfAccount(bytes_of) => unit.text(bytes_of(&sum)),
    };
    columns.iter().map(figure).collect()
}

enum Figure {
    Count(fn(&Arena) -> u64),
    OfArena(fn(&Arena) -> u64),
    OfAccount(fn(&Account) -> u64),
}

struct Column {
    heading: &'static str,
    figure: Figure,
    needs_residency: bool,
}

const fn column(heading: &'static str, figure: Figure) -> Column {
    Column { heading, figure, needs_residency: false }
}

const fn resident(heading: &'static str, bytes: fn(&Account) -> u64) -> Column {
    Column { heading, figure: Figure::OfAccount(bytes), needs_residency: true }
}

const COLUMNS: &[Column] = &[
    column("threads", Figure::Count(|arena| arena.threads)),
    column("heaps", Figure::Count(|arena| arena.heaps.len() as u64)),
    column("reserved", Figure::OfArena(Arena::reserved_bytes)),
    resident("resident", |account| account.holding.resident_bytes),
    column("in use", Figure::OfAccount(Account::used_bytes)),
    column("free", Figure::OfAccount(Account::free_bytes)),
    column("largest", Figure::OfAccount(|account| account.largest_free_bytes)),
    resident("trapped", Account::trapped_bytes),
    column("trim", Figure::OfAccount(|account| account.returnable_bytes)),
    resident("left", Account::kept_bytes),
    resident("pinned", |account| account.holding.pinned_bytes),
    resident("cached", |account| account.cached_resident_bytes),
];

/// Used and free chunks by powers of two.
fn sizes(total: &Account, unit: Unit) -> String {
    let (used, free) = (by_power(&total.used), by_power(&total.free));
    let mut table = narrow("chunks of, bytes", ["in use", unit.name, "free", unit.name]);
    for power in 0..used.len() {
        let (used, free) = (used[power], free[power]);
        if used.blocks + free.blocks == 0 {
            continue;
        }
        let name = format!("{} to {}", count(1 << power), count((1_u64 << power) - 1 + (1 << power)));
        let figures = [count(used.blocks), unit.text(used.bytes), count(free.blocks), unit.text(free.bytes)];
        row(&mut table, name, figures.to_vec());
    }
    table.to_string()
}

fn by_power(sizes: &Sizes) -> [Amount; 64] {
    let mut powers = [Amount::default(); 64];
    for row in sizes.rows() {
        let power = row.from_bytes.max(1).ilog2();
        powers[power as usize].merge(row.amount);
    }
    powers
}

/// Arenas that moved, and arenas that did not and are flawed all the same.
fn flaws(walk: &HeapWalk, source: &Source) -> Vec<String> {
    let stands = matches!(source, Source::AtExit | Source::Core(_));
    let flawed = walk.arenas.iter().filter(|arena| arena.flaw.is_some());
    let (lasting, moving): (Vec<&Arena>, Vec<&Arena>) =
        flawed.partition(|arena| stands || arena.has_lasting_flaw());
    let cure = match source {
        Source::Process(None) => "--stop makes the process stand still meanwhile.",
        Source::Process(Some(stop)) if stop.overdue_arenas > 0 => "It had stood for long enough, and ran on.",
        _ => "It was stopped again and again, each time in the middle of malloc.",
    };
    let moved = flaw_line(&moving, walk, "moved under the walk").map(|line| format!("{line} {cure}"));
    let stayed = flaw_line(&lasting, walk, "at odds with their own books at every look");
    [moved, stayed].into_iter().flatten().collect()
}

fn flaw_line(arenas: &[&Arena], walk: &HeapWalk, what: &str) -> Option<String> {
    let first = arenas.first()?;
    let reason = first.flaw.as_ref().map(flaw_text).unwrap_or_default();
    Some(format!(
        "~ {} of {} {what} ({:#x}, at attempt {}: {reason}): figures there are near, not exact.",
        arenas.len(),
        several(walk.arenas.len() as u64, "arena"),
        first.address,
        first.attempts
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn how_long_it_stood_and_what_that_was_too_short_for_is_said() {
        let stop = |moving_threads, overdue_arenas| {
            standing(&Stop { stood: Duration::from_millis(2003), moving_threads, overdue_arenas })
        };
        assert_eq!(stop(0, 0), "it stood still for 2003.0 ms");
        assert_eq!(
            stop(0, 1),
            "it stood still for 2003.0 ms, and ran on while an arena was walked for which that was too short"
        );
        assert_eq!(
            stop(2, 3),
            "it stood for 2003.0 ms, but 2 of its threads could not be stopped, and ran on while 3 arenas were walked for which \
             that was too short"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_no_sentence_that_it_must_break() {
        let report = HeapView {
            pid: Some(4711),
            name: "server".into(),
            source: Source::AtExit,
            took: Duration::ZERO,
            glibc: Some((2, 36)),
            is_static: false,
            counted_rss_bytes: Some(300 << 20),
            walks: vec![],
            other: Some(("jemalloc".into(), Regions { count: 24, ..Regions::default() })),
            faultless: None,
            remarks: vec![
                "glibc's malloc is there, and was asked for memory by a library of its own once".into(),
            ],
        };
        let widest = |columns| {
            text(&report, false, columns).lines().map(|line| line.chars().count()).max().unwrap_or(0)
        };
        assert!((100..=USUAL_COLUMNS).contains(&widest(None)), "{}", widest(None));
        assert!(widest(Some(80)) <= 80, "{}", text(&report, false, Some(80)));
    }
}
