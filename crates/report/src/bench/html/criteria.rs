//! What the cases of the suite `seeds` must show, and who shows it.

use std::fmt::Write as _;

use faultless_diagnosis::seeds::{self, Outcome, Row, Standing, tally};

use crate::bench::seeds_table::{case_name, figure, heading, limit, written};
use crate::html_page::escape;

use super::board::Board;

/// The table of all criteria; nothing without cells of the suite.
#[must_use]
pub fn section(board: &Board) -> String {
    let rows = seeds::judge(board.campaign);
    if rows.is_empty() {
        return String::new();
    }
    let drawn = board.campaign.seed.map_or(String::new(), |seed| {
        format!(" Sizes and pauses of the random forms are drawn from seed {seed}.")
    });
    let mut table = format!(
        "<section><h2>What each case must show</h2>\n\
         <p>✓ is within the limit, ✗ is not; a ratio of times is within it when its interval is or holds it. Faults are above \
         those of a program that does nothing, under the same allocator.{drawn}</p>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What each case must show\">\
         <table class=\"all criteria\">\n<thead><tr><th scope=\"col\">Case</th><th scope=\"col\">Figure</th><th scope=\"col\">Limit</th>"
    );
    for contender in 0..board.campaign.contenders.len() {
        let (reached, judged) = tally(&rows, contender);
        let head = board.column_head(contender);
        let _ = write!(table, "<th scope=\"col\">{head}<br>{reached} of {judged}</th>");
    }
    table.push_str("</tr></thead>\n");
    for of_cell in rows.chunk_by(|one, other| one.cell == other.cell) {
        table.push_str(&body(board, of_cell));
    }
    table + "</table></div></section>\n"
}

fn body(board: &Board, rows: &[Row]) -> String {
    let mut body = String::new();
    for (place, row) in rows.iter().enumerate() {
        body.push_str(if place == 0 { "<tbody><tr>" } else { "<tr>" });
        if place == 0 {
            let name = escape(&case_name(board.campaign, row.cell));
            let _ = write!(body, "<th scope=\"rowgroup\" rowspan=\"{}\">{name}</th>", rows.len());
        }
        let _ = write!(body, "<th scope=\"row\">{}</th><td>{}</td>", escape(&heading(row)), limit(row));
        for outcome in &row.outcomes {
            body.push_str(&cell(outcome, row));
        }
        body.push_str("</tr>\n");
    }
    body + "</tbody>\n"
}

fn cell(outcome: &Outcome, row: &Row) -> String {
    let figure = figure(outcome, row.unit).map_or("–".into(), |figure| escape(&figure));
    let (class, mark, title) = match &outcome.standing {
        Standing::Reached => ("shared", " <span role=\"img\" aria-label=\"reached\">✓</span>", String::new()),
        Standing::Missed => ("missed", " <span role=\"img\" aria-label=\"missed\">✗</span>", String::new()),
        Standing::Shown => ("", "", String::new()),
        Standing::Unknown(why) => ("none", "", format!(" title=\"{}\"", escape(why))),
    };
    let title = match outcome.limit {
        Some(limit) => format!(" title=\"limit {}\"", written(limit, row.unit)),
        None => title,
    };
    format!("<td class=\"{class}\"{title}><span class=\"figure\">{figure}</span>{mark}</td>")
}
