//! The geometric means of a suite, with the chart of time against memory beside them.

use std::fmt::Write as _;

use faultless_diagnosis::standing::{self, Cost};
use faultless_records::bench::Suite;
use faultless_records::quantity;

use crate::html_page::escape;

use super::board::{Board, Mean};
use super::look;
use super::number::interval;
use super::scatter;
use super::words::{cells, confidence, means_over, suite_title, time_name};

/// Table and chart of one suite.
#[must_use]
pub fn section(board: &Board, suite: Suite) -> String {
    let (name, holds) = suite_title(suite);
    let mut columns = vec![
        (time_name(suite), board.means(suite, Cost::time_of(suite))),
        ("Peak RSS", board.means(suite, Cost::PeakRss)),
    ];
    // As in the tables for people: what stays resident is what this suite is about.
    let more: &[(&str, Cost)] = match suite {
        Suite::Threads => &[("RSS at the end", Cost::EndRss), ("RSS after idle time", Cost::IdleRss)],
        _ => &[("Minor faults", Cost::MinorFaults)],
    };
    for (name, cost) in more {
        let means = board.means(suite, *cost);
        if *cost == Cost::MinorFaults || means.iter().any(|mean| mean.ratio.is_some()) {
            columns.push((name, means));
        }
    }
    let count = standing::cells_of(board.campaign, suite).count();
    format!(
        "<section class=\"suite\" aria-labelledby=\"suite-{name}\">\
         <h3 id=\"suite-{name}\">{name} <span>{holds}</span></h3>\n<div class=\"pair\">\n{}{}</div></section>\n",
        table(board, suite, &columns, count),
        chart(board, suite, &columns, count)
    )
}

type Column = (&'static str, Vec<Mean>);

fn table(board: &Board, suite: Suite, columns: &[Column], count: usize) -> String {
    let known = columns.iter().flat_map(|(_, means)| means.iter().filter_map(|mean| mean.ratio));
    let sure = known.min_by(|a, b| a.confidence.total_cmp(&b.confidence));
    let sure = sure.map_or_else(String::new, |ratio| match ratio.confidence > 0.0 {
        true => format!(", with intervals of at least {}", confidence(&ratio)),
        false => format!(" ({})", confidence(&ratio)),
    });
    let mut table = format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Means of {}\"><table class=\"means\">\
         <caption>Geometric mean over {} of the ratio to {}{sure}</caption>\n<thead><tr><th scope=\"col\">Allocator</th>",
        suite.name(),
        cells(count),
        escape(board.reference()),
    );
    for (heading, _) in columns {
        let _ = write!(table, "<th scope=\"col\">{heading}</th>");
    }
    table.push_str("</tr></thead>\n<tbody>\n");
    let largest: Vec<f64> = columns.iter().map(|(_, means)| largest(means)).collect();
    for contender in 0..board.campaign.contenders.len() {
        let _ = write!(
            table,
            "<tr><th scope=\"row\"><span class=\"who\">{}<span>{}</span></span></th>",
            look::sample(contender),
            escape(board.name(contender))
        );
        for ((_, means), largest) in columns.iter().zip(&largest) {
            let cell = means.get(contender).map(|mean| cell(board, suite, contender, mean, *largest));
            table.push_str(&cell.unwrap_or_default());
        }
        table.push_str("</tr>\n");
    }
    table.push_str("</tbody></table></div>\n");
    table
}

fn largest(means: &[Mean]) -> f64 {
    means.iter().filter_map(|mean| Some(mean.ratio?.median)).fold(0.0, f64::max)
}

fn cell(board: &Board, suite: Suite, contender: usize, mean: &Mean, largest: f64) -> String {
    let Some(ratio) = mean.ratio else {
        let why = match board.cells_without(suite, contender) {
            0 => "no mean".to_owned(),
            lacking => format!("no figures in {}", cells(lacking)),
        };
        return format!("<td class=\"none\">– <small>{why}</small></td>");
    };
    let part = if largest > 0.0 { (ratio.median / largest * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    let range = match ratio.confidence > 0.0 {
        _ if contender == board.campaign.reference => "reference".into(),
        true => interval(&ratio),
        false => String::new(),
    };
    format!(
        "<td class=\"{}\" title=\"{}\"><span class=\"figure\">{}{}</span> <small>{range}</small>\
         <span class=\"bar s{contender}\"><i style=\"width:{part:.1}%\"></i></span></td>",
        mean.rank.class(),
        confidence(&ratio),
        mean.rank.mark(),
        quantity::ratio(ratio.median),
    )
}

fn chart(board: &Board, suite: Suite, columns: &[Column], count: usize) -> String {
    let [(time_name, times), (_, memories), ..] = columns else { return String::new() };
    let dots = scatter::dots(board, suite, times, memories);
    if dots.is_empty() {
        return String::new();
    }
    let heading = format!("{}: time against memory", suite.name());
    let subheading = format!("{}, logarithmic axes", means_over(count, board.reference()));
    scatter::figure(&heading, &subheading, &time_name.to_lowercase(), &dots)
}
