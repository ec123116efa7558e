//! Which charts a campaign has: lines where a workload ran with several numbers of threads, rows of ratios elsewhere.

use std::fmt::Write as _;

use faultless_diagnosis::standing;
use faultless_records::bench::{Campaign, Size, Suite};
use faultless_records::quantity::several;

use super::board::{Board, Entry, Figure};
use super::lines::{self, Chart, Point, Series};
use super::number::in_mebibytes;
use super::strip::{self, Row};
use super::words::{Shown, cell_name, sentence, size_name, suite_title, time_name, workload_name};

/// A workload in one form at one size, with its cells by rising number of threads.
struct Group<'a> {
    workload: &'a str,
    variant: Option<&'a str>,
    size: Option<Size>,
    cells: Vec<usize>,
}

impl Group<'_> {
    fn has_several_thread_counts(&self, campaign: &Campaign) -> bool {
        let threads = |cell: &usize| campaign.cells[*cell].threads;
        let first = self.cells.first().and_then(threads);
        self.cells.iter().filter_map(threads).any(|count| Some(count) != first)
    }
}

fn groups<'a>(campaign: &'a Campaign, suite: Suite) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for cell in standing::cells_of(campaign, suite) {
        let of = &campaign.cells[cell];
        let variant = of.variant.as_deref();
        let is_group = |group: &&mut Group| {
            group.workload == of.workload && group.variant == variant && group.size == of.size
        };
        match groups.iter_mut().find(is_group) {
            Some(group) => group.cells.push(cell),
            None => groups.push(Group { workload: &of.workload, variant, size: of.size, cells: vec![cell] }),
        }
    }
    for group in &mut groups {
        group.cells.sort_by_key(|cell| campaign.cells[*cell].threads);
    }
    groups
}

fn shown(entry: &Entry, what: Shown) -> &Figure {
    match what {
        Shown::Time => &entry.time,
        Shown::Memory => &entry.peak_rss,
    }
}

/// The charts of one suite; nothing where there is nothing to draw.
#[must_use]
pub fn section(board: &Board, suite: Suite) -> String {
    let groups = groups(board.campaign, suite);
    let (name, holds) = suite_title(suite);
    let charts = if suite == Suite::Sun { article(board, &groups) } else { overview(board, suite, &groups) };
    if charts.is_empty() {
        return charts;
    }
    format!("<section><h3>{name} <span>{holds}</span></h3>\n{charts}</section>\n")
}

/// The article's figures in its order, at each size: time of its programs, then their memory.
fn article(board: &Board, groups: &[Group]) -> String {
    let mut charts = String::new();
    let mut sizes: Vec<Option<Size>> = groups.iter().map(|group| group.size).collect();
    sizes.dedup();
    sizes.sort();
    sizes.dedup();
    for size in sizes {
        let of_size = || groups.iter().filter(move |group| group.size == size);
        let lines = [Shown::Time, Shown::Memory].map(|what| {
            of_size().map(|group| line_chart(board, Suite::Sun, group, what)).collect::<String>()
        });
        let _ = writeln!(charts, "<div class=\"grid\">{}</div>", lines.concat());
    }
    let single: Vec<&Group> =
        groups.iter().filter(|group| !group.has_several_thread_counts(board.campaign)).collect();
    charts + &strips(board, Suite::Sun, &single)
}

/// Ratios in all cells, then the lines by threads of each workload, to be opened.
fn overview(board: &Board, suite: Suite, groups: &[Group]) -> String {
    let mut charts = strips(board, suite, &groups.iter().collect::<Vec<_>>());
    let lined: Vec<&Group> =
        groups.iter().filter(|group| group.has_several_thread_counts(board.campaign)).collect();
    if lined.is_empty() {
        return charts;
    }
    let lines: String = lined
        .iter()
        .flat_map(|group| [Shown::Time, Shown::Memory].map(|what| line_chart(board, suite, group, what)))
        .collect();
    let _ = writeln!(
        charts,
        "<details><summary>{}: time and memory by threads, {} charts</summary><div class=\"grid\">{lines}</div></details>",
        suite.name(),
        2 * lined.len()
    );
    charts
}

/// Figure of the article that shows the same.
fn article_figure(workload: &str, what: Shown) -> Option<u32> {
    match (workload, what) {
        ("threadtest", Shown::Time) => Some(1),
        ("mtmalloctest", Shown::Time) => Some(2),
        ("threadtest", Shown::Memory) => Some(3),
        ("mtmalloctest", Shown::Memory) => Some(4),
        _ => None,
    }
}

fn line_chart(board: &Board, suite: Suite, group: &Group, what: Shown) -> String {
    if !group.has_several_thread_counts(board.campaign) {
        return String::new();
    }
    let contenders = 0..board.campaign.contenders.len();
    let series: Vec<Series> = contenders.map(|contender| series(board, group, what, contender)).collect();
    if series.iter().all(|series| series.points.is_empty()) {
        return String::new();
    }
    let (kind, unit) = match what {
        Shown::Time => ("time", format!("{}, s", time_name(suite).to_lowercase())),
        Shown::Memory => ("memory", "peak RSS, MiB".to_owned()),
    };
    let variant = group.variant.map_or(String::new(), |variant| format!(" {variant}"));
    let heading = format!("{}{variant}: {kind}", workload_name(group.workload));
    let number = if suite == Suite::Sun { article_figure(group.workload, what) } else { None };
    let subheading = match number {
        Some(number) => format!("{} · as figure {number} of the article", size_name(group.size)),
        None => size_name(group.size).to_owned(),
    };
    lines::figure(&Chart { heading: &heading, subheading: &subheading, unit: &unit, series: &series })
}

fn series<'a>(board: &'a Board, group: &Group, what: Shown, contender: usize) -> Series<'a> {
    let name = board.name(contender);
    let point = |cell: &usize| {
        let threads = board.campaign.cells[*cell].threads?;
        let figure = shown(board.entries(*cell).get(contender)?, what);
        let spread = figure.spread?;
        let unit = |figure: f64| if what == Shown::Memory { in_mebibytes(figure) } else { figure };
        let who = format!("{name}, {}", several(u64::from(threads), "thread"));
        Some(Point {
            threads: f64::from(threads),
            figure: (unit(spread.median), unit(spread.minimum), unit(spread.maximum)),
            title: sentence(&who, what, figure, board.reference()),
        })
    };
    Series { contender, name, points: group.cells.iter().filter_map(point).collect() }
}

/// The ratios of all cells of these groups, a pair of charts for each size. The reference is the line at 1.
fn strips(board: &Board, suite: Suite, groups: &[&Group]) -> String {
    let mut sizes: Vec<Option<Size>> = groups.iter().map(|group| group.size).collect();
    sizes.sort();
    sizes.dedup();
    let mut charts = String::new();
    for size in sizes {
        let of_size: Vec<&&Group> = groups.iter().filter(|group| group.size == size).collect();
        let mut pair = String::new();
        for (what, figure) in [(Shown::Time, time_name(suite)), (Shown::Memory, "Peak RSS")] {
            let rows: Vec<Row> = of_size
                .iter()
                .flat_map(|group| rows(board, group, what))
                .filter(|row| !row.ratios.is_empty())
                .collect();
            if rows.is_empty() {
                continue;
            }
            let heading = format!("{figure} as ratio to {}", board.reference());
            let size = if size.is_some() { format!(" · {}", size_name(size)) } else { String::new() };
            let subheading = format!("{}{size} · logarithmic axis", suite.name());
            pair += &strip::figure(&heading, &subheading, &rows);
        }
        if !pair.is_empty() {
            let _ = writeln!(charts, "<div class=\"grid\">{pair}</div>");
        }
    }
    charts
}

fn rows(board: &Board, group: &Group, what: Shown) -> Vec<Row> {
    let row = |cell: &usize| {
        let of = &board.campaign.cells[*cell];
        let ratio = |(contender, entry): (usize, &Entry)| {
            let figure = Some(shown(entry, what)).filter(|_| contender != board.campaign.reference)?;
            let who = format!("{}, {}", board.name(contender), cell_name(of));
            Some((contender, figure.ratio?, sentence(&who, what, figure, board.reference())))
        };
        let mut name = workload_name(&of.workload).to_owned();
        // Of a random form without its seed, which is the campaign's.
        if let Some(form) = of.variant.as_deref().and_then(|variant| variant.split(':').next()) {
            let _ = write!(name, " {form}");
        }
        if let Some(threads) = of.threads {
            let _ = write!(name, " · {threads}T");
        }
        Row { name, ratios: board.entries(*cell).iter().enumerate().filter_map(ratio).collect() }
    };
    group.cells.iter().map(row).collect()
}
