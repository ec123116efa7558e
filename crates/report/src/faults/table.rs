//! What a recording of page faults says, for people: the answer, the functions, the memory, the agreement with the kernel's
//! own figures, what could not be seen.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Cell, Table};
use faultless_diagnosis::faults::balance::Balance;
use faultless_diagnosis::faults::function_name::{last_part, without_arguments};
use faultless_diagnosis::faults::profile::{Amount, Function, NOT_LOOKED_AT, Profile};
use faultless_records::fault_recording::FaultRecording;
use faultless_records::quantity::{count, percent, seconds_of, several, whole};

use super::answer::answer;
use crate::plain::{fitted, plain, plain_subject};
use crate::table_form::{headed, right, width, within};

/// Functions shown.
const FUNCTIONS: usize = 15;
/// Processes, or names of processes, shown.
const PROCESSES: usize = 8;
/// Functions below this part of all faults are put together, unless there are few.
const LEAST_SHARE: f64 = 0.001;
/// CPU time from which on the cost of observing is given as a part of it.
const LONG_ENOUGH_NS: u64 = 300_000_000;
/// Longest name of a function in the table, in characters.
pub(crate) const LONGEST_NAME: usize = 48;

/// The whole report, prose broken at `columns`.
#[must_use]
pub fn text(recording: &FaultRecording, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let profile = Profile::of(recording);
    let mut parts = vec![fit(answer(recording, &profile))];
    if !profile.functions.is_empty() {
        parts.push(fitting(&profile, columns));
        parts.push(memory(&profile));
    }
    if profile.processes.len() > 1 {
        parts.push(processes(&profile));
    }
    parts.push(fit(agreement(recording)));
    parts.push(fit(method(recording)));
    parts.join("\n")
}

/// What was observed, on one line.
#[must_use]
pub(crate) fn subject(recording: &FaultRecording) -> String {
    let subject = &recording.subject;
    plain_subject(&match subject.command.as_slice() {
        [] => format!("process {} ({})", subject.pid, subject.name),
        words => words.join(" "),
    })
}

pub(crate) fn shown_name(function: &Function, longest: usize) -> String {
    shortened_to(&plain(&function.name), longest)
}

/// A long name without arguments of templates and functions; where that is still too long, something before its last part left out.
pub(crate) fn shortened(name: &str) -> String {
    shortened_to(name, LONGEST_NAME)
}

fn shortened_to(name: &str, longest: usize) -> String {
    if name.chars().count() <= longest {
        return name.to_owned();
    }
    let name = without_arguments(name);
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= longest {
        return name;
    }
    let own = last_part(&name).chars().count();
    let end = if own < longest { own.max(longest / 3) } else { longest / 3 };
    let start = longest - end - 1;
    let part = |range: std::ops::Range<usize>| characters[range].iter().collect::<String>();
    format!("{}…{}", part(0..start), part(characters.len() - end..characters.len()))
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The table of functions in the widest form that fits.
fn fitting(profile: &Profile, columns: Option<usize>) -> String {
    let forms = [(LONGEST_NAME, true), (32, true), (32, false), (20, false)];
    let tables = forms.map(|(longest, has_through)| functions(profile, longest, has_through));
    let fits = |table: &&Table| columns.is_none_or(|columns| width(&table.to_string()) <= columns);
    let table = tables.iter().find(fits).unwrap_or(&tables[3]);
    let name = headings(profile).len();
    format!("{}\n", within(table, &(name..name + 1), columns, Table::to_string))
}

fn functions(profile: &Profile, longest: usize, has_through: bool) -> Table {
    let has_lines = profile.functions.iter().take(FUNCTIONS).any(|function| !function.lines.is_empty());
    let mut header = headings(profile);
    header.push(Cell::new("function"));
    header.push(Cell::new(if has_lines { "lines" } else { "module" }));
    if has_through {
        header.push(Cell::new("through"));
    }
    header.push(Cell::new("memory"));
    let mut table = headed(header);
    let few = profile.functions.len() <= FUNCTIONS;
    let mut rest = Amount::default();
    let mut left_out = 0_u64;
    for (place, function) in profile.functions.iter().enumerate() {
        let amount = function.amount;
        if place >= FUNCTIONS || (!few && profile.share(amount.faults) < LEAST_SHARE) {
            rest += amount;
            left_out += 1;
            continue;
        }
        let location = if function.lines.is_empty() { module(function) } else { lines(function, longest) };
        let mut memory = parts(&function.kinds, amount.faults, longest, |kind| kind.name());
        if memory.is_empty() && !function.kinds.is_empty() {
            memory.push(several(function.kinds.len() as u64, "kind"));
        }
        let mut through = parts(&function.through, amount.faults, longest, |name| name.clone());
        if amount.in_kernel > amount.faults * 0.05 {
            let share = percent(amount.in_kernel / amount.faults);
            through.push(if share == "100.0 %" {
                "the kernel".into()
            } else {
                format!("the kernel {share}")
            });
        }
        let mut row = amounts(profile, amount);
        row.extend([shown_name(function, longest), location].map(Cell::new));
        if has_through {
            row.push(Cell::new(through.join("\n")));
        }
        row.push(Cell::new(memory.join("\n")));
        table.add_row(row);
    }
    if left_out > 0 {
        let mut row = amounts(profile, rest);
        row.push(Cell::new(several(left_out, "other")));
        table.add_row(row);
    }
    table
}

fn headings(profile: &Profile) -> Vec<Cell> {
    figures(profile, ["faults", "share", "major", "huge"].map(str::to_owned))
}

fn amounts(profile: &Profile, amount: Amount) -> Vec<Cell> {
    let share = percent(profile.share(amount.faults));
    figures(profile, [whole(amount.faults), share, whole(amount.major), whole(amount.huge)])
}

/// Major and huge faults have columns where there are any.
fn figures(profile: &Profile, columns: [String; 4]) -> Vec<Cell> {
    let is_shown = [true, true, profile.all.major > 0.0, profile.all.huge >= 0.5];
    columns.into_iter().zip(is_shown).filter(|(_, is_shown)| *is_shown).map(|(text, _)| right(text)).collect()
}

fn module(function: &Function) -> String {
    plain(function.module.as_deref().unwrap_or_default())
}

/// The first lines of a function that matter, with their parts where there are several.
fn lines(function: &Function, longest: usize) -> String {
    let names =
        function.lines.iter().map(|((file, line), number)| (format!("{}:{line}", file_name(file)), *number));
    let names: Vec<(String, f64)> = names.collect();
    parts(&names, function.amount.faults, longest, |name| name.clone()).join("\n")
}

/// The first parts of at least 15 %, with their shares unless the first is all.
fn parts<K>(list: &[(K, f64)], all: f64, longest: usize, name: impl Fn(&K) -> String) -> Vec<String> {
    let shown = list.iter().take(2).filter(|(_, number)| *number >= all * 0.15);
    shown
        .map(|(key, number)| {
            let name = shortened_to(&plain(&name(key)), longest);
            if *number >= all * 0.995 { name } else { format!("{name} {}", percent(number / all)) }
        })
        .collect()
}

fn memory(profile: &Profile) -> String {
    let mut header = headings(profile);
    header.push(Cell::new("memory"));
    let mut table = headed(header);
    for (kind, amount) in profile.kinds.iter().take(8) {
        let mut row = amounts(profile, *amount);
        row.push(Cell::new(plain(&kind.name())));
        table.add_row(row);
    }
    if profile.kinds.len() > 8 {
        let mut rest = Amount::default();
        profile.kinds.iter().skip(8).for_each(|(_, amount)| rest += *amount);
        let mut row = amounts(profile, rest);
        row.push(Cell::new(several(profile.kinds.len() as u64 - 8, "other kind")));
        table.add_row(row);
    }
    format!("{table}\n")
}

/// Few processes one by one; many by name, as hundreds of short ones have a small part each.
fn processes(profile: &Profile) -> String {
    let (numbers, title) = match profile.processes.len() > PROCESSES {
        true => ("processes", "name, and the one with most"),
        false => ("process", "name"),
    };
    let mut table = headed(vec![right("faults"), right("share"), right(numbers), Cell::new(title)]);
    let mut row = |faults: f64, number: String, name: String| {
        let share = percent(profile.share(faults));
        table.add_row(vec![right(whole(faults)), right(share), right(number), Cell::new(name)]);
    };
    if profile.processes.len() <= PROCESSES {
        for (name, pid, faults) in &profile.processes {
            row(*faults, pid.to_string(), plain(name));
        }
        return format!("{table}\n");
    }
    let programs = profile.programs();
    for program in programs.iter().take(PROCESSES) {
        let (pid, most) = program.first;
        let name = format!("{} ({pid}: {})", plain(program.name), whole(most));
        row(program.faults, count(program.processes), name);
    }
    let mut text = format!("{table}\n");
    if programs.len() > PROCESSES {
        let _ = writeln!(text, "and {}", several((programs.len() - PROCESSES) as u64, "more name"));
    }
    text
}

/// How the figures agree with the kernel's accounts.
fn agreement(recording: &FaultRecording) -> String {
    let balance = Balance::of(recording);
    let mut lines: Vec<(u64, String)> = Vec::new();
    if let Some(accounts) = balance.accounts {
        let what = "in the processes' own accounts (ru_minflt and ru_majflt), of which";
        lines.push((accounts.all(), what.into()));
    }
    lines.push((balance.user.all(), "in programs: counted by events, attributed above".into()));
    if let Some(kernel) = balance.kernel {
        lines.push((kernel.all(), "inside system calls: counted by events, attributed above".into()));
    }
    if balance.before.all() > 0 {
        lines.push((balance.before.all(), "before the command began, in our copy that became it".into()));
    }
    if let Some(rest) = balance.without_event {
        let populated = "on pages populated without an event (MAP_POPULATE, MADV_POPULATE, mlock, direct I/O; execve's stack)";
        lines.push((
            rest.all(),
            match balance.kernel {
                Some(_) => populated.into(),
                None => format!("inside system calls, which we may not see, or {populated}"),
            },
        ));
    }
    if balance.beyond_accounts.all() > 0 {
        let what = "of the events belong to processes that nobody has waited for yet";
        lines.push((balance.beyond_accounts.all(), what.into()));
    }
    let width = lines.iter().map(|(number, _)| count(*number).len()).max().unwrap_or(0);
    let mut text = String::from("Agreement with the kernel\n");
    for (number, what) in lines {
        let _ = writeln!(text, "  {:>width$}  {what}", count(number));
    }
    if recording.counters.accounts_are_late {
        text.push_str("  the process ended meanwhile: its accounts are those of a moment before\n");
    }
    text
}

/// How it was observed, what that cost, what could not be seen.
fn method(recording: &FaultRecording) -> String {
    let method = &recording.method;
    let samples = recording.faults.iter().map(|faults| faults.samples).sum();
    let used: Vec<String> = method
        .steps
        .iter()
        .filter(|step| step.minor_faults + step.major_faults > 0)
        .map(|step| match step.minor_period {
            1 => format!("each of {}", count(step.minor_faults + step.major_faults)),
            period => format!("one in {period} of {}", count(step.minor_faults + step.major_faults)),
        })
        .collect();
    let mut text = String::from("Method\n");
    let _ = writeln!(
        text,
        "  looked at {}: {}",
        several(samples, "fault"),
        if used.is_empty() { "there were none".into() } else { used.join(", ") }
    );
    let observer = recording.cost.observer_cpu_ns as f64 / 1e9;
    match recording.cost.subject_cpu_ns {
        Some(subject) if subject > LONG_ENOUGH_NS => {
            let subject = subject as f64 / 1e9;
            let _ = writeln!(
                text,
                "  observing took {} s of CPU beside the {} s of what was observed ({})",
                seconds_of(observer),
                seconds_of(subject),
                percent(observer / subject)
            );
        }
        _ => {
            let _ = writeln!(text, "  observing took {} s of CPU", seconds_of(observer));
        }
    }
    text.push_str(&unseen(recording));
    text
}

/// What was lost, cut or not to be seen, and what would show it.
fn unseen(recording: &FaultRecording) -> String {
    let method = &recording.method;
    let mut text = String::new();
    if method.lost_samples > 0 {
        let _ = writeln!(
            text,
            "  lost {}: buffers of {} KiB a CPU were full (counts are exact all the same, and what they stand for is {NOT_LOOKED_AT}; a larger --every or a smaller --stack loses fewer)",
            several(method.lost_samples, "sample"),
            method.buffer_bytes / 1024
        );
    }
    if method.lost_news > 0 {
        let _ = writeln!(
            text,
            "  lost {} of new mappings: some kinds of memory and some names are not known",
            several(method.lost_news, "record")
        );
    }
    if method.cut_chains > 0 {
        let _ = writeln!(
            text,
            "  {} could not be followed to the outermost call (--stack {} looks further; code of just-in-time compilers needs frame pointers)",
            several(method.cut_chains, "call chain"),
            method.stack_bytes.saturating_mul(2).min(61_440)
        );
    }
    if !method.sees_kernel {
        text.push_str("  faults inside system calls were not to be seen: root, CAP_PERFMON or sudo sysctl kernel.perf_event_paranoid=1 shows them\n");
    }
    if !method.sees_huge_pages {
        text.push_str(
            "  whether a page was huge was not to be seen: become the process's user or root (sudo)\n",
        );
    }
    for remark in &recording.remarks {
        let _ = writeln!(text, "  not seen: {}", plain(remark));
    }
    let modules = recording.tree.modules.iter();
    let nameless: BTreeSet<_> = modules.filter_map(|it| Some((&it.path, it.trouble.as_ref()?))).collect();
    for (path, trouble) in nameless.into_iter().take(5) {
        let _ = writeln!(text, "  no names from {}: {}", plain(path), plain(trouble));
    }
    text
}

#[cfg(test)]
mod tests;
