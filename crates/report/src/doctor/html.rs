//! The report of `faultless doctor` as one page of HTML, to be sent to others: no script, no fonts, no network.

use std::fmt::Write;

use faultless_diagnosis::effect::{Effect, Figures};
use faultless_diagnosis::spread::{Change, Spread};
use faultless_records::measurement::Measurement;
use faultless_records::quantity::{count, mebibytes, seconds_of};

use super::{Consultation, LOOK_FURTHER};
use crate::bench::html::coordinate;
use crate::html_page::{escape, page};
use crate::paste;
use crate::table::{self, LEGEND};

/// Rules that all pages have, and those of this one.
const STYLE: &str = concat!(include_str!("../bench/html/page.css"), include_str!("page.css"));

/// Width of a picture, and where its bars begin and end at most, in pixels.
const WIDTH: f64 = 480.0;
const BARS: (f64, f64) = (128.0, 400.0);
/// Height of a row, and of a bar in it.
const ROW: f64 = 26.0;
const BAR: f64 = 13.0;

/// A figure that has a picture.
struct Picture {
    heading: &'static str,
    unit: &'static str,
    spread: fn(&Figures) -> Option<Spread>,
    of_run: fn(&Measurement) -> Option<f64>,
    change: fn(&Effect) -> Change,
    written: fn(f64) -> String,
}

const PICTURES: &[Picture] = &[
    Picture {
        heading: "Processor time",
        unit: "s, user and system",
        spread: |figures| Some(figures.processor),
        of_run: |run| Some((run.user + run.system).as_secs_f64()),
        change: |effect| effect.time,
        written: seconds_of,
    },
    Picture {
        heading: "Minor page faults",
        unit: "",
        spread: |figures| Some(figures.minor_faults),
        of_run: |run| Some(run.minor_faults as f64),
        change: |effect| effect.faults,
        written: |faults| count(faults as u64),
    },
    Picture {
        heading: "Peak RSS",
        unit: "MiB",
        spread: |figures| Some(figures.peak_rss),
        of_run: |run| Some(run.peak_rss_bytes as f64),
        change: |effect| effect.peak_rss,
        written: |bytes| mebibytes(bytes as u64),
    },
    Picture {
        heading: "RSS at the exit",
        unit: "MiB",
        spread: |figures| figures.final_rss,
        of_run: |run| run.final_rss_bytes.map(|bytes| bytes as f64),
        change: |effect| effect.final_rss,
        written: |bytes| mebibytes(bytes as u64),
    },
];

/// The page.
#[must_use]
pub fn html(consultation: &Consultation) -> String {
    let command = match consultation.is_demo {
        true => "the demo".to_owned(),
        false => {
            let words: Vec<String> = consultation.command.iter().map(|word| paste::quoted(word)).collect();
            words.join(" ")
        }
    };
    let command = escape(&command);
    let body = format!(
        "<main>\n<h1>What the allocator costs <code>{command}</code></h1>\n{warnings}{verdict}{paste}{pictures}{arms}{more}\
         <footer>Written by faultless {version}.</footer>\n</main>\n",
        warnings = warnings(consultation),
        verdict = verdict(consultation),
        paste = to_paste(consultation),
        pictures = pictures(consultation),
        arms = arms(consultation),
        more = more(consultation),
        version = env!("CARGO_PKG_VERSION"),
    );
    page(&format!("Allocators for {command}"), STYLE, "", &body)
}

fn warnings(consultation: &Consultation) -> String {
    let warnings = consultation.warnings();
    // The last words of a command keep their lines.
    let shown = |text: &String| {
        let lines: Vec<String> = text.lines().map(escape).collect();
        format!("<pre>{}</pre>", lines.join("\n"))
    };
    match warnings.is_empty() {
        true => String::new(),
        false => {
            format!("<div class=\"warning\">{}</div>\n", warnings.iter().map(shown).collect::<String>())
        }
    }
}

fn verdict(consultation: &Consultation) -> String {
    let helps = consultation.verdict.faultless_helps || consultation.verdict.best_libc.is_some();
    let mut text = format!("<div class=\"verdict{}\">", if helps { "" } else { " unsure" });
    if let Some(found) = &consultation.loaded_data {
        let _ = write!(text, "<p>{}</p>", escape(&found.sentences()));
    }
    let _ = writeln!(text, "<p>{}</p></div>", escape(&consultation.verdict.sentence));
    text
}

fn to_paste(consultation: &Consultation) -> String {
    let use_it = under_heading("To use it", &consultation.lines_to_paste());
    use_it + &under_heading(LOOK_FURTHER, &consultation.lines_to_look_further())
}

fn under_heading(heading: &str, lines: &[String]) -> String {
    // A word of the command may have lines of its own.
    let lines: Vec<String> = lines.iter().flat_map(|line| line.split('\n')).map(escape).collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!("<div class=\"paste\"><b>{heading}</b><pre>{}</pre></div>\n", lines.join("\n")),
    }
}

fn pictures(consultation: &Consultation) -> String {
    let figures: String = PICTURES.iter().map(|picture| figure(picture, consultation)).collect();
    format!(
        "<section><h2>Beside each other</h2>\n<p class=\"key quiet\">Bars are medians, rings the runs, lines their range. \
         <span class=\"less\">Less</span> and <span class=\"more\">more</span> than libc as is beyond the noise; grey: no difference that \
         stands out.</p>\n<div class=\"grid\">{figures}</div></section>\n"
    )
}

fn figure(picture: &Picture, consultation: &Consultation) -> String {
    let rows = || consultation.arms.iter().zip(&consultation.verdict.arms);
    let most = rows().filter_map(|(_, judged)| (picture.spread)(&judged.figures));
    let most = most.map(|spread| spread.maximum).fold(0.0, f64::max);
    let place = |value: f64| {
        let part = if most > 0.0 { value / most } else { 0.0 };
        BARS.0 + part * (BARS.1 - BARS.0)
    };
    let mut chart = String::new();
    for (row, (arm, judged)) in rows().enumerate() {
        let middle = (row as f64 + 0.5) * ROW;
        let class = judged.effect.as_ref().map_or("", |effect| class_of((picture.change)(effect)));
        let name = escape(&arm.name);
        let _ = write!(
            chart,
            "<g class=\"{class}\"><text x=\"0\" y=\"{}\">{name}</text>",
            coordinate(middle + 4.0)
        );
        let Some(spread) = (picture.spread)(&judged.figures) else {
            chart.push_str("</g>");
            continue;
        };
        let end = place(spread.median);
        let _ = write!(
            chart,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"2\"/><line class=\"range\" x1=\"{}\" x2=\"{}\" y1=\"{middle}\" y2=\"{middle}\"/>",
            coordinate(BARS.0),
            coordinate(middle - BAR / 2.0),
            coordinate((end - BARS.0).max(1.0)),
            coordinate(place(spread.minimum)),
            coordinate(place(spread.maximum)),
        );
        for value in arm.runs.iter().filter_map(picture.of_run) {
            let x = coordinate(place(value));
            let _ = write!(chart, "<circle cx=\"{x}\" cy=\"{middle}\" r=\"2.5\"/>");
        }
        let x = coordinate(place(spread.maximum) + 8.0);
        let y = coordinate(middle + 4.0);
        let _ = write!(chart, "<text x=\"{x}\" y=\"{y}\">{}</text></g>", (picture.written)(spread.median));
    }
    format!(
        "<figure><figcaption><b>{}</b><span>{}</span></figcaption><svg class=\"chart\" role=\"img\" viewBox=\"0 0 {WIDTH} {}\">{chart}</svg></figure>\n",
        picture.heading,
        picture.unit,
        coordinate(consultation.arms.len() as f64 * ROW + 4.0),
    )
}

fn class_of(change: Change) -> &'static str {
    match change {
        Change::Less => "less",
        Change::Same => "",
        Change::More => "more",
    }
}

fn arms(consultation: &Consultation) -> String {
    let headings: String =
        table::headings().map(|heading| format!("<th>{}</th>", heading.replace('\n', "<br>"))).collect();
    let mut rows = String::new();
    for (arm, cells) in consultation.arms.iter().zip(table::cells(&consultation.verdict)) {
        let _ = write!(rows, "<tr><th>{}<small>{}</small></th>", escape(&arm.name), escape(&table::ran(arm)));
        for cell in cells {
            let (median, rest) = cell.split_once('\n').unwrap_or((&cell, ""));
            let _ = write!(rows, "<td><b>{median}</b><span>{}</span></td>", rest.trim_matches('\n'));
        }
        rows.push_str("</tr>\n");
    }
    format!(
        "<section><h2>All figures</h2>\n<p class=\"quiet\">{LEGEND}</p>\n<div class=\"figures scroll\"><table class=\"arms\"><thead><tr><th></th>{headings}</tr></thead>\n<tbody>{rows}</tbody></table></div></section>\n"
    )
}

/// What the rest of the report says, in lists.
fn more(consultation: &Consultation) -> String {
    let findings =
        consultation.findings.iter().map(|finding| format!("{} {}", finding.variable, finding.message));
    let tried = consultation.tuning.parts.iter().map(|part| {
        let settings = paste::with_settings(&[], &part.settings, &[]);
        format!("{}: {settings}: {}", part.name.trim_end_matches(" only"), part.reason)
    });
    let tried = tried.chain(consultation.tuning.remarks.iter().cloned());
    [
        ("Environment", findings.collect::<Vec<_>>()),
        ("Observed", consultation.observed()),
        ("Tried", tried.collect()),
        ("Notes", consultation.remarks.clone()),
    ]
    .into_iter()
    .filter(|(_, lines)| !lines.is_empty())
    .map(|(heading, lines)| {
        let lines: String = lines.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
        format!("<section><h2>{heading}</h2><ul>{lines}</ul></section>\n")
    })
    .collect()
}
