//! What `faultless churn` found, for people: the verdict first, then calls, sizes with lifetimes, callers, the course.

use std::collections::BTreeSet;
use std::fmt::Write;

use comfy_table::{Cell, Table};
use faultless_diagnosis::churn::blame::culprits;
use faultless_diagnosis::churn::holders;
use faultless_diagnosis::churn::makers::Foremost;
use faultless_diagnosis::churn::thrash::findings;
use faultless_records::churn_recording::{ChurnRecording, Lifetimes, Mechanism, OperationSum, Pattern};
use faultless_records::measurement::Ending;
use faultless_records::memory_call::Operation;
use faultless_records::quantity::{count, percent, seconds_of, several, size, span, whole};

use super::holders::held;
use crate::faults::table::shortened;
use crate::plain::{fitted, plain, plain_subject};
use crate::table_form::{headed, right, within};

/// Callers shown.
const CALLERS: usize = 12;

/// Of less that is held to the end it is not said by whom: the loader holds some in every program.
const LEAST_HELD_BYTES: u64 = 1 << 20;

/// Width of the longest bar.
const BAR: usize = 24;

/// The whole report, prose broken at `columns`.
#[must_use]
pub fn text(recording: &ChurnRecording, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let mut parts = vec![fit(heading(recording)), fit(verdict(recording))];
    if !recording.operations.is_empty() {
        parts.push(format!("{}\n", within(&calls(recording), &(0..1), columns, Table::to_string)));
    }
    parts.extend(sizes(recording, columns));
    parts.extend(callers(recording, columns));
    parts.extend(course(recording));
    parts.push(fit(limits(recording)));
    parts.join("\n")
}

fn all_calls(recording: &ChurnRecording) -> u64 {
    recording.operations.values().map(|sum| sum.amount.count + sum.failed).sum()
}

fn heading(recording: &ChurnRecording) -> String {
    let mut text = format!(
        "{}: {} in {} s, {}",
        plain_subject(&recording.subject),
        several(all_calls(recording), "call"),
        seconds_of(recording.observed_s()),
        several(recording.processes, "process"),
    );
    if recording.threads_started > 0 {
        let _ = write!(text, ", {} started", several(recording.threads_started, "thread"));
    }
    if recording.execs > 0 {
        let _ = write!(text, ", {} by exec", several(recording.execs, "program"));
    }
    let _ = writeln!(text, "; seen by {}", mechanism(recording.mechanism));
    text + &failure(recording.ending)
}

/// How a command ended, where that was no success.
pub(crate) fn failure(ending: Option<Ending>) -> String {
    ending.and_then(Ending::failure).map_or_else(String::new, |failure| format!("The command {failure}.\n"))
}

/// A mechanism in words.
#[must_use]
pub fn mechanism(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Tracepoints => "the kernel's tracepoints",
        Mechanism::MmapRecords => "the kernel's records of new mappings",
        Mechanism::Seccomp => "a seccomp filter (only these calls stop)",
        Mechanism::Ptrace => "ptrace (every system call stops)",
    }
}

fn verdict(recording: &ChurnRecording) -> String {
    let findings = findings(recording);
    if findings.is_empty() && recording.mechanism == Mechanism::MmapRecords {
        return "Whether it thrashes is not known: what is given back is not seen this way.\n".into();
    }
    if findings.is_empty() && recording.is_blind_to_some {
        return "Whether it thrashes is not known: calls of 32-bit programs are not seen this way.\n".into();
    }
    if findings.is_empty() {
        return "No thrash found: nothing is given back and taken again at a rate that matters.\n\
            Looked at: mappings without a file, the top of the heap, purges, threads' stacks.\n"
            .into();
    }
    let mut text = String::from("Thrash\n");
    for finding in &findings {
        let _ = writeln!(text, "  {}", finding.sentence);
        let pages = match finding.pattern {
            Pattern::Stack => String::new(),
            _ => format!(", {} a second", several(finding.pages_per_second.round() as u64, "page")),
        };
        let caller = finding.caller.as_ref().map_or_else(String::new, makers);
        let times = several(finding.times, "time");
        let _ = writeln!(text, "    {times} in all{pages}{caller}; {}", finding.remedy);
    }
    text
}

/// Who makes the calls: one function most of them, or many together.
fn makers(foremost: &Foremost) -> String {
    let function = shortened(&plain(&foremost.function));
    match foremost.part > 0.5 {
        true => format!(", most by {function}"),
        false => format!(
            ", by {}, the first {function} ({})",
            several(foremost.functions as u64, "function"),
            percent(foremost.part)
        ),
    }
}

fn calls(recording: &ChurnRecording) -> Table {
    let mut table = headed(vec![
        Cell::new("call"),
        right("calls"),
        right("calls/s"),
        right("bytes"),
        right("bytes/s"),
        right("failed"),
        Cell::new("usual size"),
    ]);
    let seconds = recording.observed_s();
    for (operation, sum) in &recording.operations {
        table.add_row(vec![
            Cell::new(operation.name()),
            right(count(sum.amount.count + sum.failed)),
            right(rate((sum.amount.count + sum.failed) as f64, seconds)),
            right(if sum.amount.bytes == 0 { "-".into() } else { size(sum.amount.bytes) }),
            right(match sum.amount.bytes {
                0 => "-".into(),
                bytes => byte_rate(bytes, seconds),
            }),
            right(if sum.failed == 0 { "-".into() } else { count(sum.failed) }),
            Cell::new(usual_size(sum)),
        ]);
    }
    let all = all_calls(recording);
    table.add_row(vec![Cell::new("all"), right(count(all)), right(rate(all as f64, seconds))]);
    table
}

/// Number for each second; a dash when nothing was observed.
pub(crate) fn rate(number: f64, seconds: f64) -> String {
    match number / seconds {
        rate if !rate.is_finite() => "-".into(),
        rate if rate >= 10.0 || rate == 0.0 => whole(rate),
        rate => format!("{rate:.1}"),
    }
}

pub(crate) fn byte_rate(bytes: u64, seconds: f64) -> String {
    let rate = bytes as f64 / seconds;
    if rate.is_finite() { size(rate as u64) } else { "-".into() }
}

/// The mean of the class with most calls: their size, where all have the same. A dash where most calls have no size that is known, as
/// in the kernel's records of new mappings.
fn usual_size(sum: &OperationSum) -> String {
    let Some(amount) = sum.sizes.values().max_by_key(|amount| amount.count) else {
        return "-".into();
    };
    let known: u64 = sum.sizes.values().map(|amount| amount.count).sum();
    if sum.amount.bytes == 0 || known < sum.amount.count / 2 {
        return "-".into();
    }
    let part = amount.count * 100 / sum.amount.count.max(1);
    format!("{} ({part} %)", size(amount.bytes / amount.count.max(1)))
}

/// The sizes of a class; `4 KiB` stands for all from there to twice as much.
pub(crate) fn class_range(class: u8) -> String {
    size(1_u64 << class.min(63))
}

pub(crate) fn bar(number: u64, most: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (number as f64 / most.max(1) as f64 * (BAR * 8) as f64).round() as usize;
    let eighths = if number > 0 { eighths.max(1) } else { 0 };
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

fn sizes(recording: &ChurnRecording, columns: Option<usize>) -> Option<String> {
    let made = &recording.operations.get(&Operation::MapAnonymous)?.sizes;
    let most = made.values().map(|amount| amount.count).max()?;
    // What was cut or grew ends in other classes than it was made in.
    let classes: BTreeSet<u8> = made.keys().chain(recording.ended_mappings.keys()).copied().collect();
    let mut table = headed(vec![
        right("mmap memory\nfrom"),
        right("made"),
        Cell::new(""),
        right("given\nback"),
        right("half live\nshorter than"),
        right("nine in ten\nshorter than"),
    ]);
    for class in classes {
        let made_count = made.get(&class).map_or(0, |amount| amount.count);
        let lives = recording.ended_mappings.get(&class);
        let quantile =
            |part| lives.and_then(|lives| life_below(lives, part)).map_or("-".into(), |ns| span(ns as f64));
        table.add_row(vec![
            right(class_range(class)),
            right(if made_count == 0 { "-".into() } else { count(made_count) }),
            Cell::new(bar(made_count, most)),
            right(lives.map_or("-".into(), |lives| count(lives.amount.count))),
            right(quantile(0.5)),
            right(quantile(0.9)),
        ]);
    }
    let table = within(&table, &(0..1), columns, Table::to_string);
    Some(format!("{table}\n{}", kept(recording)))
}

/// What is held to the end, and by whom.
fn kept(recording: &ChurnRecording) -> String {
    let kept = recording.live_mappings;
    if kept.count == 0 {
        return String::new();
    }
    let who = match kept.bytes < LEAST_HELD_BYTES {
        true => String::new(),
        false => held(&holders::of_mappings(recording), kept.bytes as f64),
    };
    format!("{}, {}, held to the end.\n{who}", several(kept.count, "mapping"), size(kept.bytes))
}

/// Upper end, in nanoseconds, of the class of lives below which this part of them lies.
fn life_below(lives: &Lifetimes, part: f64) -> Option<u64> {
    life_quantile(lives.by_life.iter().map(|(class, number)| (*class, *number as f64)), part)
}

/// The same for numbers by class, the classes ascending.
pub(crate) fn life_quantile(by_life: impl Iterator<Item = (u8, f64)> + Clone, part: f64) -> Option<u64> {
    let all: f64 = by_life.clone().map(|(_, number)| number).sum();
    let mut below = 0.0;
    for (class, number) in by_life {
        below += number;
        if below >= all * part && number > 0.0 {
            return Some(1_u64.checked_shl(u32::from(class) + 1).unwrap_or(u64::MAX));
        }
    }
    None
}

fn callers(recording: &ChurnRecording, columns: Option<usize>) -> Option<String> {
    let culprits = culprits(recording);
    if culprits.is_empty() {
        return None;
    }
    let mut table = headed(vec![
        Cell::new("caller"),
        Cell::new("call"),
        right("calls"),
        right("bytes"),
        Cell::new("called by"),
    ]);
    for culprit in culprits.iter().take(CALLERS) {
        let way = if culprit.through_malloc { ", by malloc" } else { "" };
        table.add_row(vec![
            Cell::new(shortened(&plain(&culprit.function))),
            Cell::new(format!("{}{way}", culprit.operation.name())),
            right(count(culprit.amount.count)),
            right(size(culprit.amount.bytes)),
            Cell::new(shortened(&plain(culprit.called_by.as_deref().unwrap_or("")))),
        ]);
    }
    let table = within(&table, &(0..2), columns, Table::to_string);
    Some(format!("{table}\n{}", more(culprits.len(), CALLERS)))
}

/// That not all rows are shown.
pub(crate) fn more(rows: usize, shown: usize) -> String {
    match rows.saturating_sub(shown) {
        0 => String::new(),
        more => format!("{more} more in --json.\n"),
    }
}

fn course(recording: &ChurnRecording) -> Option<String> {
    let steps = &recording.timeline.calls;
    let most = *steps.iter().max()?;
    (steps.len() > 1).then(|| {
        // Steps are joined to fit a line.
        let joined = steps.len().div_ceil(60);
        let sums: Vec<u64> = steps.chunks(joined).map(|steps| steps.iter().sum()).collect();
        format!(
            "Calls over time  {}\n                 {} a column, at most {} in {}\n",
            sparks(&sums),
            span(recording.timeline.step_ns.saturating_mul(joined as u64) as f64),
            count(most),
            span(recording.timeline.step_ns as f64),
        )
    })
}

/// Numbers as bars of eight heights; nothing for 0.
fn sparks(numbers: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    let height = |number: u64| match number {
        0 => ' ',
        number => HEIGHTS[((number as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    numbers.iter().map(|number| height(*number)).collect()
}

/// So many processes cost more to follow than their calls to see: a millisecond each, where two processors were, twice a short one's own.
const MANY_PROCESSES: u64 = 100;

/// What the looking cost, in words; none when it was not measured.
#[must_use]
pub fn overhead(recording: &ChurnRecording) -> Option<String> {
    let cost_ns = recording.cost_per_call_ns?;
    let together_s = cost_ns * all_calls(recording) as f64 / 1e9;
    let part = together_s / recording.observed_s() * 100.0;
    // Two threads may stand still at the same time, so the sum may pass what was observed.
    let part = if part.is_finite() {
        format!(", {:.0} % of the time observed", part.min(100.0))
    } else {
        String::new()
    };
    // Each has events of its own, some dozens on each processor, to set up and to remove.
    let starts = match (recording.mechanism, recording.processes) {
        (Mechanism::Tracepoints, processes) if processes >= MANY_PROCESSES => {
            format!(
                " Not among it is what the start and the end of each of {} processes costs more while they are observed, which may be most.",
                count(processes)
            )
        }
        _ => String::new(),
    };
    Some(format!(
        "Looking cost about {} a call (measured before), {} s together{part}.{starts}",
        span(cost_ns.trunc()),
        seconds_of(together_s)
    ))
}

fn limits(recording: &ChurnRecording) -> String {
    let mut text = String::new();
    if let Some(line) = overhead(recording) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(refused) = &recording.refused {
        let _ = writeln!(text, "A better way was refused: {}.", plain(refused));
    }
    if recording.lost_calls > 0 {
        let _ = writeln!(
            text,
            "Lost: {}; all sums are too small by them.",
            several(recording.lost_calls, "call")
        );
    }
    let (chains, calls) = (recording.chains, all_calls(recording));
    if chains.lost > 0 || (chains.taken > 0 && chains.taken < calls) {
        let lost = match chains.lost {
            0 => String::new(),
            lost => format!(" ({} more lost)", count(lost)),
        };
        let _ = writeln!(
            text,
            "Callers are known from the call chains of {} out of {}{lost}.",
            several(chains.taken, "call"),
            count(calls)
        );
    }
    for remark in &recording.remarks {
        let _ = writeln!(text, "Not seen: {}", plain(remark));
    }
    text
}

#[cfg(test)]
mod tests;
