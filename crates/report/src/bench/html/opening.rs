//! The top of the page: what ran where, what went wrong, and how to read the rest.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use faultless_diagnosis::spread::Spread;
use faultless_diagnosis::standing::BUSY;
use faultless_records::bench::Campaign;
use faultless_records::quantity::{percent, several, whole};

use crate::html_page::escape;
use crate::paste;

use super::board::Board;
use super::look;
use super::number::date_utc;
use super::words::cell_name;

/// Foreign CPU time above which a campaign is said to be disturbed: in the median run, and in the worst.
const MUCH_FOREIGN_CPU: (f64, f64) = (BUSY, 0.25);

/// Failures listed one by one; of more only the number is said.
const MOST_FAILURES: usize = 40;

/// Title, machine and contenders.
#[must_use]
pub fn header(campaign: &Campaign) -> String {
    let machine = &campaign.machine;
    let gibibytes = machine.memory_bytes as f64 / f64::from(1 << 30);
    let facts = [
        ("Processor", machine.processor.clone()),
        ("CPUs", machine.cpus.to_string()),
        ("Memory", format!("{gibibytes:.1} GiB")),
        ("Kernel", machine.kernel.clone()),
        ("C library", machine.libc.clone()),
        ("Huge pages", machine.huge_pages.clone()),
        ("Command", paste::line(&campaign.command)),
        ("Rounds", campaign.rounds().to_string()),
        ("Runs", whole(campaign.samples.len() as f64)),
    ];
    let mut header = format!(
        "<header><h1>Memory allocators compared</h1>\n\
         <p class=\"when\">Begun <time>{}</time> · faultless {}</p>\n<dl class=\"machine\">",
        date_utc(campaign.started_unix_s),
        escape(&campaign.tool_version)
    );
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(header, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    }
    header.push_str("</dl>\n<ul class=\"contenders\" aria-label=\"Contenders\">\n");
    for (index, contender) in campaign.contenders.iter().enumerate() {
        let library = match &contender.library {
            Some(library) => format!("<code>{}</code>", escape(library)),
            None => "the C library’s own".into(),
        };
        let settings = contender.settings.iter().map(|setting| format!(" <code>{}</code>", escape(setting)));
        let reference =
            if index == campaign.reference { " <em class=\"reference\">reference</em>" } else { "" };
        let _ = writeln!(
            header,
            "<li>{}<b>{}</b>{reference} <span>{library}{}</span></li>",
            look::sample(index),
            escape(&contender.name),
            settings.collect::<String>()
        );
    }
    header.push_str("</ul></header>\n");
    header
}

/// What makes the figures less sure: a busy machine, failures, indices that point nowhere.
#[must_use]
pub fn warnings(campaign: &Campaign) -> String {
    let warnings = [unsound(campaign), foreign_cpu(campaign), failures(campaign)].concat();
    if warnings.is_empty() {
        return warnings;
    }
    format!("<aside class=\"warning\" aria-label=\"Warnings\">\n{warnings}</aside>\n")
}

fn unsound(campaign: &Campaign) -> String {
    if campaign.samples.is_empty() {
        return "<p><b>No runs.</b> The campaign holds no samples.</p>\n".into();
    }
    match campaign.check() {
        Ok(()) => String::new(),
        Err(error) => {
            format!("<p><b>Not sound.</b> Something in the campaign does not fit: {}.</p>\n", escape(&error))
        }
    }
}

fn foreign_cpu(campaign: &Campaign) -> String {
    let parts = campaign.samples.iter().map(|sample| sample.foreign_cpu).filter(|part| part.is_finite());
    match Spread::of(parts) {
        Some(part) if part.median > MUCH_FOREIGN_CPU.0 || part.maximum > MUCH_FOREIGN_CPU.1 => {
            let when = if part.median > MUCH_FOREIGN_CPU.0 { "The machine" } else { "At times the machine" };
            format!(
                "<p><b>{when} was busy with something else.</b> Other processes or guests took {} of all CPU time in \
                 the median run and {} in the worst. Times are less sure than their intervals say; memory hardly is.</p>\n",
                percent(part.median),
                percent(part.maximum)
            )
        }
        _ => String::new(),
    }
}

fn failures(campaign: &Campaign) -> String {
    let mut counts: BTreeMap<(usize, usize, &str), usize> = BTreeMap::new();
    let mut all = 0;
    for sample in campaign.samples.iter().filter(|sample| sample.figures.is_none()) {
        let reason = sample.failure.as_deref().unwrap_or("no reason given");
        *counts.entry((sample.contender, sample.cell, reason)).or_default() += 1;
        all += 1;
    }
    if counts.is_empty() {
        return String::new();
    }
    let mut list = format!(
        "<p><b>{} of {} runs failed.</b> Who failed everywhere in a cell has no mean over its suite.</p>\n<ul>\n",
        whole(f64::from(all)),
        whole(campaign.samples.len() as f64)
    );
    for ((contender, cell, reason), count) in counts.iter().take(MOST_FAILURES) {
        let name = campaign.contenders.get(*contender).map_or("?", |contender| contender.name.as_str());
        let cell = campaign.cells.get(*cell).map_or_else(|| "?".into(), cell_name);
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        let _ =
            writeln!(list, "<li><b>{}</b>, {}: {}{times}</li>", escape(name), escape(&cell), escape(reason));
    }
    if counts.len() > MOST_FAILURES {
        let rest = (counts.len() - MOST_FAILURES) as u64;
        let _ = writeln!(list, "<li>and {}</li>", several(rest, "more kind"));
    }
    list.push_str("</ul>\n");
    list
}

/// Units, intervals and marks.
#[must_use]
pub fn note(board: &Board) -> String {
    let reference = escape(board.reference());
    format!(
        "<details class=\"note\" open><summary>How to read this page</summary>\n\
         <p><b>Less is better, everywhere.</b> Ratios compare with <b>{reference}</b>: ×0.80 is a fifth less. They are taken \
         within a round, whose runs lie close together in time, so that what slows the machine for a minute slows both; \
         shown is the median of the rounds.</p>\n\
         <p>The interval beside a ratio is that of the sign test, which assumes nothing about how the noise is \
         distributed. It holds the true median with 95&nbsp;% confidence where the rounds allow it; up to five rounds it is \
         the whole range, at less: 93.8&nbsp;% with five, 75&nbsp;% with three, none with one. {best} is the least median, \
         {shared} one whose interval of ratios to the best includes 1: not distinguishable from it.</p>\n\
         <p>Time is wall time in <i>sun</i>, and user and system time of the processor in the other suites. Peak RSS is the \
         largest resident set, all pages counted, in MiB (2<sup>20</sup> bytes). <i>RSS per live byte</i> is peak RSS over \
         the most bytes that the workload had asked for and not yet freed: 1 would be an allocator without any waste in a \
         program without other memory. Faults are minor page faults. In charts, points are medians and bars show the range \
         of the runs (of ratios: the interval), 8T means eight threads; a point shows its figures when it is pointed at.</p>\n</details>\n",
        best = "<span class=\"mark\">★</span>",
        shared = "<span class=\"mark\">☆</span>",
    )
}
