//! All figures of all cells of a suite.

use std::fmt::Write as _;

use faultless_diagnosis::standing;
use faultless_records::bench::{Cell, Suite};
use faultless_records::quantity::{self, whole};

use crate::html_page::escape;

use super::board::{Board, Entry, Figure};
use super::number::{interval, mebibytes, three_digits};
use super::words::{cells, suite_title, time_name, workload_name};

/// The table of a suite, to be opened.
#[must_use]
pub fn section(board: &Board, suite: Suite) -> String {
    let (name, holds) = suite_title(suite);
    let count = standing::cells_of(board.campaign, suite).count();
    let mut table = format!(
        "<details class=\"figures\"><summary><b>{name}</b>, {holds}: {}</summary>\n\
         <div class=\"scroll tall\" tabindex=\"0\" role=\"region\" aria-label=\"All figures of {name}\">\
         <table class=\"all\">\n<thead><tr><th scope=\"col\">Cell</th><th scope=\"col\">Median</th>",
        cells(count)
    );
    for contender in 0..board.campaign.contenders.len() {
        let _ = write!(table, "<th scope=\"col\">{}</th>", board.column_head(contender));
    }
    table.push_str("</tr></thead>\n");
    for cell in standing::cells_of(board.campaign, suite) {
        table.push_str(&body(board, suite, cell));
    }
    table.push_str("</table></div></details>\n");
    table
}

/// A figure of a contender in a cell.
type Pick = fn(&Entry) -> Figure;

/// The rows of a cell: four, and one each for the RSS at the end, after the idle time and system calls, where they are known.
fn body(board: &Board, suite: Suite, index: usize) -> String {
    let (cell, entries) = (&board.campaign.cells[index], board.entries(index));
    let mut rows = vec![
        (format!("{}, s", time_name(suite)), row(board, entries, |entry| entry.time, three_digits)),
        ("Peak RSS, MiB".into(), row(board, entries, |entry| entry.peak_rss, mebibytes)),
    ];
    let where_known: [(&str, Pick); 2] = [
        ("RSS at the end, MiB", |entry| entry.end_rss),
        ("RSS after the idle time, MiB", |entry| entry.idle_rss),
    ];
    for (name, figure) in where_known {
        if entries.iter().any(|entry| figure(entry).spread.is_some()) {
            rows.push((name.into(), row(board, entries, figure, mebibytes)));
        }
    }
    rows.extend([
        ("RSS per live byte".into(), entries.iter().map(per_live).collect()),
        ("Minor faults".into(), row(board, entries, |entry| entry.minor_faults, whole)),
    ]);
    if board.campaign.system_calls.iter().any(|calls| calls.cell == index) {
        let calls =
            (0..board.campaign.contenders.len()).map(|contender| board.campaign.calls(index, contender));
        rows.push(("System calls".into(), calls.map(calls_cell).collect()));
    }
    let mut body =
        format!("<tbody><tr><th scope=\"rowgroup\" rowspan=\"{}\">{}</th>", rows.len(), heading(cell));
    for (place, (name, figures)) in rows.iter().enumerate() {
        let start = if place > 0 { "<tr>" } else { "" };
        let _ = writeln!(body, "{start}<th scope=\"row\">{name}</th>{figures}</tr>");
    }
    body + "</tbody>\n"
}

fn heading(cell: &Cell) -> String {
    let size = cell.size.map(|size| size.name().to_owned());
    let threads = cell.threads.map(|threads| quantity::several(u64::from(threads), "thread"));
    let of: Vec<String> = size.into_iter().chain(threads).collect();
    let variant = cell.variant.as_ref().map_or(String::new(), |variant| format!(" {}", escape(variant)));
    format!("{}{variant}<small>{}</small>", escape(workload_name(&cell.workload)), of.join(", "))
}

fn row(
    board: &Board,
    entries: &[Entry],
    figure: impl Fn(&Entry) -> Figure,
    written: fn(f64) -> String,
) -> String {
    let cell = |(contender, entry): (usize, &Entry)| {
        let figure = figure(entry);
        let Some(spread) = figure.spread else { return "<td class=\"none\">–</td>".to_owned() };
        let range = format!("{}–{}", written(spread.minimum), written(spread.maximum));
        let (ratio, title) = match figure.ratio {
            Some(ratio) if contender != board.campaign.reference => (
                format!("<small>{}</small>", quantity::ratio(ratio.median)),
                format!("{range}; ratio {}", interval(&ratio)),
            ),
            _ => (String::new(), range),
        };
        format!(
            "<td class=\"{}\" title=\"{title}\"><span class=\"figure\">{}{}</span>{ratio}</td>",
            figure.rank.class(),
            figure.rank.mark(),
            written(spread.median)
        )
    };
    entries.iter().enumerate().map(cell).collect()
}

fn calls_cell(calls: Option<u64>) -> String {
    match calls {
        Some(calls) => format!("<td><span class=\"figure\">{}</span></td>", quantity::count(calls)),
        None => "<td class=\"none\">–</td>".into(),
    }
}

fn per_live(entry: &Entry) -> String {
    match entry.memory_per_live {
        Some(ratio) => format!("<td><span class=\"figure\">{}</span></td>", three_digits(ratio)),
        None => "<td class=\"none\">–</td>".into(),
    }
}
