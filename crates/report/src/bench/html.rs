//! A benchmark campaign as one page of HTML that needs nothing else: no script, no fonts, no network.
//!
//! Pictures are drawn here rather than by a library: their colours follow the reader's light or dark mode through style
//! rules, each contender can be shown alone, and every point tells its figures.

mod board;
mod charts;
mod criteria;
mod curves;
mod details;
mod frame;
mod lines;
mod look;
mod number;
mod opening;
mod placing;
pub mod plot;
mod scale;
mod scatter;
mod strip;
mod suite_table;
mod words;

use faultless_records::bench::Campaign;

use crate::html_page::{escape, page};
use board::Board;
pub(crate) use number::coordinate;

/// The rules of the page that do not depend on the campaign.
const STYLE: &str = include_str!("html/page.css");

/// The page.
///
/// It holds for any campaign, also for one whose indices point nowhere ([`Campaign::check`]) or that holds no runs.
#[must_use]
pub fn html(campaign: &Campaign) -> String {
    let board = Board::of(campaign);
    let of_suites = |section: fn(&Board, _) -> String| -> String {
        board.suites().map(|suite| section(&board, suite)).collect()
    };
    let title = format!("Memory allocators compared, {}", number::date_utc(campaign.started_unix_s));
    let style = format!("{STYLE}{}", look::rules(campaign.contenders.len()));
    let body = format!(
        "<main>\n{header}{warnings}{note}{legend}{criteria}{summary}{charts}{details}\
         <footer>Written by faultless {version}.</footer>\n</main>\n",
        header = opening::header(campaign),
        warnings = opening::warnings(campaign),
        note = opening::note(&board),
        legend = look::legend(&campaign.contenders),
        criteria = criteria::section(&board),
        summary = part("Summary", of_suites(suite_table::section)),
        charts = part("Time and memory", of_suites(charts::section)),
        details = part("All figures", of_suites(details::section)),
        version = escape(&campaign.tool_version),
    );
    page(&title, &style, "", &body)
}

fn part(heading: &str, content: String) -> String {
    if content.is_empty() { content } else { format!("<section><h2>{heading}</h2>\n{content}</section>\n") }
}

#[cfg(test)]
mod tests;
