//! What `faultless churn --malloc` found, for people: what lives, which functions, sizes, callers, threads, the cost.

use std::fmt::Write;

use comfy_table::{Cell, Table};
use faultless_diagnosis::churn::holders;
use faultless_diagnosis::churn::malloc_blame::customers;
use faultless_records::malloc_event::MallocFunction;
use faultless_records::malloc_recording::{
    BlockLives, Estimate, MallocMechanism, MallocRecording, ThreadSum,
};
use faultless_records::quantity::{count, percent, seconds_of, several, size, span, whole};

use super::holders::{asked_for, asked_for_outliving, held, held_at_peak};
use super::table::{bar, byte_rate, class_range, failure, life_quantile, more, rate};
use crate::faults::table::shortened;
use crate::plain::{fitted, plain, plain_subject};
use crate::table_form::{headed, right, within};

/// Callers and threads shown.
const ROWS: usize = 12;

/// From this part of it on the error of what lives at the end is given.
const LARGE_ERROR: f64 = 0.1;

/// So many sizes of one block, and so many calls of realloc together, are steps too small.
const MANY_STEPS: u64 = 100;
const MANY_REALLOCS: u64 = 10_000;

/// Where so many times as much lived at once as at the end, that is a question of its own.
const MUCH_MORE: f64 = 1.5;

/// The whole report, prose broken at `columns`.
#[must_use]
pub fn text(recording: &MallocRecording, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let mut parts = vec![fit(heading(recording))];
    if calls(recording) > 0 {
        parts.push(fit(verdict(recording)));
        parts.push(format!("{}\n", within(&functions(recording), &(0..1), columns, Table::to_string)));
        parts.push(format!("{}\n", within(&sizes(recording), &(0..1), columns, Table::to_string)));
    }
    parts.extend(callers(recording, columns));
    parts.extend(threads(recording, columns));
    parts.push(fit(limits(recording)));
    parts.join("\n")
}

fn calls(recording: &MallocRecording) -> u64 {
    let got = recording.functions.values().map(|sum| sum.amount.count).sum::<u64>();
    got + recording.frees + recording.freed_by_realloc
}

fn bytes(number: f64) -> String {
    size(number.round() as u64)
}

fn heading(recording: &MallocRecording) -> String {
    let all = calls(recording);
    let text = format!(
        "{}: {}{} of malloc and its family in {} s ({} a second), {}{}; seen by {}\n",
        plain_subject(&recording.subject),
        if recording.counts_are_lower_bounds() { "at least " } else { "" },
        several(all, "call"),
        seconds_of(recording.observed_s()),
        rate(all as f64, recording.observed_s()),
        several(recording.processes, "process"),
        match recording.execs {
            0 => String::new(),
            execs => format!(", {} by exec", several(execs, "program")),
        },
        match recording.mechanism {
            MallocMechanism::Recorder => "a preloaded recorder",
            MallocMechanism::Uprobes => "uprobes of the kernel",
        }
    );
    text + &failure(recording.ending)
}

/// Sum over all sizes.
fn total(recording: &MallocRecording, part: impl Fn(&BlockLives) -> Estimate) -> Estimate {
    let mut sum = Estimate::default();
    recording.sizes.values().for_each(|lives| sum.add_scaled(part(lives), 1.0));
    sum
}

/// How far off the bytes that live at the end may be, where that is much. They are not less than nothing; what is two
/// standard errors away is not ruled out.
fn doubt(live_bytes: f64, error_bytes: f64) -> String {
    match error_bytes {
        error if error > live_bytes => {
            format!(" (up to {} are not ruled out)", bytes(live_bytes + 2.0 * error))
        }
        error if error > live_bytes * LARGE_ERROR => format!(" (give or take {})", bytes(error)),
        _ => String::new(),
    }
}

fn verdict(recording: &MallocRecording) -> String {
    [
        at_the_end(recording),
        half_life(recording),
        small_steps(recording),
        freed_elsewhere(recording),
        unknown(recording),
    ]
    .concat()
}

/// For figures that are estimates.
fn about(recording: &MallocRecording) -> &'static str {
    if is_complete(recording) { "" } else { "about " }
}

/// How many live at the end, as near as that is known.
fn live_blocks(recording: &MallocRecording) -> u64 {
    recording.live_blocks.unwrap_or_else(|| total(recording, |lives| lives.live).count.round() as u64)
}

fn at_the_end(recording: &MallocRecording) -> String {
    let most = bytes(recording.most_live_bytes());
    // An estimate has its error taken off: the highest of many errs upwards.
    let most =
        if is_complete(recording) { format!("at most {most}") } else { format!("at least about {most}") };
    if !recording.ends_are_known() {
        return format!(
            "What lives at the end, and who holds it, is not known: the look had pauses. `faultless churn --malloc -- CMD`, which begins with the program, shows it. Of what was seen to begin {most} lived at once.\n"
        );
    }
    let live = total(recording, |lives| lives.live);
    let about = about(recording);
    let blocks = live_blocks(recording);
    let about_blocks = if recording.live_blocks.is_some() { "" } else { about };
    // Nothing is exact.
    let about_bytes = if recording.live_blocks == Some(0) { "" } else { about };
    // Programs that run one after the other end with more together than ever lived at once.
    let end = match (recording.programs(), recording.execs) {
        (0 | 1, _) => "At the end".to_owned(),
        (processes, 0) => format!("At the ends of {} together", several(processes, "process")),
        (programs, _) => format!("At the ends of {} together", several(programs, "program")),
    };
    format!(
        "{end} {about_bytes}{} live in {about_blocks}{}{}; {most} lived at once.\n{}{}",
        bytes(live.bytes),
        several(blocks, "block"),
        doubt(live.bytes, recording.live_error_bytes),
        at_peak(recording, live.bytes),
        held(&holders::of_blocks(recording), live.bytes),
    )
}

fn half_life(recording: &MallocRecording) -> String {
    let mut by_life = std::collections::BTreeMap::new();
    for (life, number) in recording.sizes.values().flat_map(|lives| &lives.by_life) {
        *by_life.entry(*life).or_insert(0.0) += number;
    }
    let half_ns = life_quantile(by_life.iter().map(|(life, number)| (*life, *number)), 0.5);
    half_ns.map_or_else(String::new, |half_ns| {
        format!("Half of the freed blocks lived shorter than {}.\n", span(half_ns as f64))
    })
}

fn freed_elsewhere(recording: &MallocRecording) -> String {
    let (freed, elsewhere) =
        (total(recording, |lives| lives.freed), total(recording, |lives| lives.freed_elsewhere));
    if elsewhere.count <= 0.0 {
        return String::new();
    }
    let mut text = format!(
        "Another thread than the one that allocated it freed {} of the freed blocks ({})",
        percent(elsewhere.count / freed.count),
        bytes(elsewhere.bytes)
    );
    let first = recording.handovers.first().and_then(|handover| {
        Some((recording.threads.get(handover.from)?, recording.threads.get(handover.to)?, handover))
    });
    if let Some((from, to, handover)) = first {
        let (from, to, blocks) = (thread_name(from), thread_name(to), whole(handover.amount.count));
        let _ = write!(text, ", most of them {to} from {from}: {}{blocks}", about(recording));
    }
    text.push_str(".\n");
    text
}

fn unknown(recording: &MallocRecording) -> String {
    let unknown = total(recording, |lives| lives.unknown);
    if unknown.count < 0.5 {
        return String::new();
    }
    // The recorder has places for so many blocks; uprobes look for a while at a time.
    let (why, who) = match recording.mechanism {
        MallocMechanism::Recorder => (
            "too many lived to follow them all, and neither figure has them",
            asked_for(&holders::of_lost_blocks(recording), unknown.bytes),
        ),
        MallocMechanism::Uprobes => (
            "they lived when a stretch of looking ended",
            asked_for_outliving(&holders::of_outliving_blocks(recording), unknown.bytes),
        ),
    };
    format!(
        "What became of {} ({}) is not known: {why}.\n{who}",
        several(unknown.count.round() as u64, "block"),
        bytes(unknown.bytes),
    )
}

/// That blocks grow by small steps: who doubles a block each time never asks so often.
fn small_steps(recording: &MallocRecording) -> String {
    let Some(reallocs) = recording.functions.get(&MallocFunction::Realloc) else { return String::new() };
    let ended = recording.frees.saturating_add(recording.freed_by_realloc);
    let times = reallocs.amount.count / ended.saturating_add(live_blocks(recording)).max(1);
    if times < MANY_STEPS || reallocs.amount.count < MANY_REALLOCS {
        return String::new();
    }
    let most = customers(recording)
        .into_iter()
        .filter(|customer| customer.by == MallocFunction::Realloc)
        .max_by(|one, other| one.allocated.count.total_cmp(&other.allocated.count))
        .map_or(String::new(), |customer| format!(", mostly in {}", shortened(&plain(&customer.function))));
    let times = count(times);
    format!(
        "Each block got another size from realloc {times} times on average{most}; grow it by half of itself each time.\n"
    )
}

/// Who held what lived at once, where little of it is left at the end.
fn at_peak(recording: &MallocRecording, live_bytes: f64) -> String {
    let most = recording.most_live_bytes();
    match most >= live_bytes * MUCH_MORE {
        true => held_at_peak(&holders::at_peak(recording), most),
        false => String::new(),
    }
}

/// What lives at the end, in a column.
fn live_cell(recording: &MallocRecording, live_bytes: f64) -> Cell {
    right(if recording.ends_are_known() { bytes(live_bytes) } else { "-".into() })
}

/// Whether every allocation was described, so that nothing is an estimate.
fn is_complete(recording: &MallocRecording) -> bool {
    let allocations: u64 = recording.functions.values().map(|sum| sum.amount.count).sum();
    recording.described == allocations && recording.lost == 0
}

fn thread_name(thread: &ThreadSum) -> String {
    match thread.name.as_str() {
        "" => thread.tid.to_string(),
        name => format!("{} ({})", plain(name), thread.tid),
    }
}

fn functions(recording: &MallocRecording) -> Table {
    let mut table = headed(vec![
        Cell::new("function"),
        right("calls"),
        right("calls/s"),
        right("bytes"),
        right("bytes/s"),
    ]);
    let seconds = recording.observed_s();
    for (function, sum) in &recording.calls_by_function() {
        table.add_row(vec![
            Cell::new(function.name()),
            right(count(sum.amount.count)),
            right(rate(sum.amount.count as f64, seconds)),
            right(size(sum.amount.bytes)),
            right(byte_rate(sum.amount.bytes, seconds)),
        ]);
    }
    table.add_row(vec![
        Cell::new("free"),
        right(count(recording.frees)),
        right(rate(recording.frees as f64, seconds)),
        right("-"),
        right("-"),
    ]);
    if recording.freed_by_realloc > 0 {
        table.add_row(vec![Cell::new("freed by realloc"), right(count(recording.freed_by_realloc))]);
    }
    if recording.failed > 0 {
        table.add_row(vec![Cell::new("got no memory"), right(count(recording.failed))]);
    }
    table
}

fn sizes(recording: &MallocRecording) -> Table {
    let mut exact = std::collections::BTreeMap::new();
    for (class, amount) in recording.functions.values().flat_map(|sum| &sum.sizes) {
        let sum: &mut (u64, u64) = exact.entry(*class).or_default();
        *sum = (sum.0 + amount.count, sum.1.saturating_add(amount.bytes));
    }
    let most = exact.values().map(|(calls, _)| *calls).max().unwrap_or(0);
    let mut table = headed(vec![
        right("blocks\nfrom"),
        right("calls"),
        Cell::new(""),
        right("bytes"),
        right("live at\nthe end"),
        right("half live\nshorter than"),
        right("freed by\nanother thread"),
    ]);
    for (class, (calls, size_bytes)) in exact {
        let lives = recording.sizes.get(&class);
        let half =
            lives.and_then(|lives| life_quantile(lives.by_life.iter().map(|(life, n)| (*life, *n)), 0.5));
        table.add_row(vec![
            right(class_range(class)),
            right(count(calls)),
            Cell::new(bar(calls, most)),
            right(size(size_bytes)),
            lives.map_or(right("-"), |lives| live_cell(recording, lives.live.bytes)),
            right(half.map_or("-".into(), |ns| span(ns as f64))),
            right(lives.map_or("-".into(), |lives| percent(lives.freed_elsewhere.count / lives.freed.count))),
        ]);
    }
    table
}

fn callers(recording: &MallocRecording, columns: Option<usize>) -> Option<String> {
    let customers = customers(recording);
    if customers.is_empty() {
        return None;
    }
    let mut table = headed(vec![
        Cell::new("caller"),
        Cell::new("calls of"),
        right("calls"),
        right("bytes"),
        right("live at\nthe end"),
        right("mean\nlife"),
        Cell::new("called by"),
    ]);
    for customer in customers.iter().take(ROWS) {
        table.add_row(vec![
            Cell::new(shortened(&plain(&customer.function))),
            Cell::new(customer.by.name()),
            right(whole(customer.allocated.count)),
            right(bytes(customer.allocated.bytes)),
            live_cell(recording, customer.live.bytes),
            right(customer.mean_life_ns.map_or("-".into(), |life_ns| span(life_ns.trunc()))),
            Cell::new(shortened(&plain(customer.called_by.as_deref().unwrap_or("")))),
        ]);
    }
    let table = within(&table, &(0..2), columns, Table::to_string);
    Some(format!("{table}\n{}", more(customers.len(), ROWS)))
}

fn threads(recording: &MallocRecording, columns: Option<usize>) -> Option<String> {
    let mut threads: Vec<(&ThreadSum, f64)> =
        recording.threads.iter().zip(holders::not_freed_by_thread(recording)).collect();
    if threads.len() < 2 {
        return None;
    }
    let held = |(_, bytes): &(&ThreadSum, f64)| if recording.ends_are_known() { *bytes } else { 0.0 };
    holders::sort_by_weight(&mut threads, held, |(thread, _)| thread.allocated.count);
    let mut table = headed(vec![
        Cell::new("thread"),
        right("allocates"),
        right("bytes"),
        right("not freed\nby any"),
        right("frees of\nits own"),
        right("frees of\nothers"),
    ]);
    for (thread, not_freed_bytes) in threads.iter().take(ROWS) {
        table.add_row(vec![
            Cell::new(thread_name(thread)),
            right(whole(thread.allocated.count)),
            right(bytes(thread.allocated.bytes)),
            live_cell(recording, *not_freed_bytes),
            right(whole(thread.freed_own.count)),
            right(whole(thread.freed_of_others.count)),
        ]);
    }
    let table = within(&table, &(0..1), columns, Table::to_string);
    Some(format!("{table}\n{}", more(threads.len(), ROWS)))
}

/// Which figures are exact, and what the others are made from.
fn exactness(recording: &MallocRecording) -> String {
    let allocations: u64 = recording.functions.values().map(|sum| sum.amount.count).sum();
    let estimated = format!(
        "the rest is estimated from {} of {} allocations",
        count(recording.described),
        count(allocations)
    );
    match (recording.uncounted_threads, is_complete(recording)) {
        (0, false) if recording.counts_are_lower_bounds() => {
            "Calls and bytes are those that were seen: there were more. The callers' shares are estimated, from one call chain in 17."
                .to_owned()
        }
        (0, true) if recording.mechanism == MallocMechanism::Uprobes => {
            let seen = match recording.ends_are_known() {
                true => "Every call while the probes were set was seen".to_owned(),
                false => format!(
                    "Every call in the {} s in which the probes were set was seen, and none in the pauses between",
                    seconds_of(recording.observed_s())
                ),
            };
            format!("{seen}; only the callers' shares are estimated, from one call chain in 17.")
        }
        (0, true) => "Every call was counted and described; nothing is estimated.".to_owned(),
        (0, false) => format!(
            "Calls and bytes by function and size{} are exact; {estimated}.",
            if recording.live_blocks.is_some() { " and the number of blocks at the end" } else { "" },
        ),
        (threads, _) => format!("The calls of {} are in no figure; {estimated}.", several(threads, "thread")),
    }
}

/// What was lost, and what that means for the figures.
fn lost(recording: &MallocRecording) -> String {
    match recording.mechanism {
        MallocMechanism::Recorder => format!(
            "{} without room; the estimates make up for that, except for what lived at once before the end.",
            several(recording.lost, "description")
        ),
        MallocMechanism::Uprobes => format!(
            "{} of probes, which came faster than they can be read: nothing makes up for the calls that they were. `faultless churn --malloc -- CMD`, which begins with the program, counts every call.",
            several(recording.lost, "hit")
        ),
    }
}

fn limits(recording: &MallocRecording) -> String {
    let mut text = String::new();
    let all = calls(recording);
    if all > 0 {
        let _ = writeln!(text, "{}", exactness(recording));
        let cost = &recording.cost;
        let in_program_s = (cost.counting_ns + cost.describing_ns) / 1e9;
        let _ = writeln!(
            text,
            "Looking cost the program {} s of processor time ({} a call), and this tool {} s.",
            seconds_of(in_program_s),
            span((in_program_s * 1e9 / all as f64).trunc()),
            seconds_of(cost.tool_ns / 1e9)
        );
    }
    if recording.lost > 0 {
        let _ = writeln!(text, "Lost: {}", lost(recording));
    }
    for remark in &recording.remarks {
        let _ = writeln!(text, "Not seen: {}", plain(remark));
    }
    text
}

#[cfg(test)]
mod tests;
