//! What was watched in all, and what the watching cost.

use comfy_table::{Cell, Table};
use faultless_diagnosis::history::{History, Track};
use faultless_diagnosis::programs::Program;
use faultless_records::quantity::{count, mebibytes, seconds_of, several};
use faultless_records::recording::{Cost, End, Happening, Use};

use crate::plain::{fitted, plain, trimmed};
use crate::table_form::{headed, right, width, with_columns, within};

/// Rows shown; those with the largest resident sets.
const MOST: usize = 20;

/// Columns that are left out, from the first on, where the terminal is too narrow for all.
const LEFT_OUT: [usize; 3] = [5, 4, 7];

/// A table of the processes, then a started command's use of resources, then what the watching cost; made to fit a terminal of so many
/// columns.
#[must_use]
pub fn text(history: &History, columns: Option<usize>) -> String {
    let mut text = String::new();
    let mut rows: Vec<Row<'_>> = history.tracks.iter().flat_map(rows).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.program.peak_rss_bytes));
    if !rows.is_empty() {
        let table = fitting(&table(&rows[..rows.len().min(MOST)]), columns);
        text += &trimmed(&format!("{table}\n"));
    }
    text + &fitted(notes(history, rows.len()), columns)
}

/// A program that a process was; its figures are no other's.
struct Row<'history> {
    name: &'history str,
    pid: i32,
    program: &'history Program,
    end: String,
}

/// The programs of a process that a sample saw.
fn rows(track: &Track) -> impl Iterator<Item = Row<'_>> {
    let pid = track.process.pid;
    let earlier = track.earlier.iter();
    let earlier =
        earlier.map(move |one| Row { name: &one.name, pid, program: &one.program, end: "exec".into() });
    let last = track.program.last.map(|_| Row {
        name: &track.process.name,
        pid,
        program: &track.program,
        end: end_of(track),
    });
    earlier.chain(last)
}

/// The table, set closer, without some columns, and divided where it would be wider.
fn fitting(table: &Table, columns: Option<usize>) -> String {
    let fits = |table: &Table| columns.is_none_or(|columns| width(&table.to_string()) <= columns);
    if fits(table) {
        return table.to_string();
    }
    let forms = (0..=LEFT_OUT.len()).map(|left_out| {
        let is_kept = |place: &usize| !LEFT_OUT[..left_out].contains(place);
        with_columns(table, &(0..table.column_iter().count()).filter(is_kept).collect::<Vec<_>>(), 1)
    });
    let forms: Vec<Table> = forms.collect();
    let form = forms.iter().find(|form| fits(form)).unwrap_or(&forms[LEFT_OUT.len()]);
    within(form, &(0..2), columns, Table::to_string)
}

fn notes(history: &History, rows: usize) -> String {
    let mut text = String::new();
    if rows > MOST {
        text += &format!("and {} more with smaller peaks\n", count((rows - MOST) as u64));
    }
    for group in &history.groups {
        if let Some(last) = group.samples.last() {
            let peak = group.samples.iter().map(|sample| sample.current_bytes).max().unwrap_or(0);
            text += &format!(
                "cgroup {}: {} MiB at the end, at most {} MiB in any sample\n",
                plain(&group.group.path),
                mebibytes(last.current_bytes),
                mebibytes(peak)
            );
        }
    }
    if let Some(end) = &history.end {
        text += &ending(end, history);
    }
    text
}

fn table(rows: &[Row<'_>]) -> Table {
    let headings = [
        "pid",
        "peak RSS\nMiB",
        "last RSS\nMiB",
        "last PSS\nMiB",
        "peak VSZ\nMiB",
        "minor\nfaults",
        "major\nfaults",
        "user\ns",
        "system\ns",
        "seen\ns",
    ];
    let mut header = vec![Cell::new("process")];
    header.extend(headings.map(right));
    header.push(Cell::new("end"));
    let mut table = headed(header);
    for Row { name, pid, program, end } in rows {
        let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), mebibytes);
        let mut row = vec![Cell::new(plain(name))];
        row.extend(
            [
                pid.to_string(),
                mebibytes(program.peak_rss_bytes),
                known(program.rss_bytes),
                known(program.pss_bytes(0.0)),
                mebibytes(program.peak_vsize_bytes),
                count(program.own(|sample| sample.minor_faults)),
                count(program.own(|sample| sample.major_faults)),
                format!("{:.2}", program.own(|sample| sample.user_s)),
                format!("{:.2}", program.own(|sample| sample.system_s)),
                format!("{:.1}", program.seen_s()),
            ]
            .map(right),
        );
        row.push(Cell::new(end));
        table.add_row(row);
    }
    table
}

fn end_of(track: &Track) -> String {
    match &track.exit {
        None => "runs on".into(),
        Some((_, Happening::Exit { signal: Some(signal), .. })) => format!("signal {signal}"),
        Some((_, Happening::Exit { status: Some(status), .. })) => format!("status {status}"),
        Some((_, Happening::Left)) => "left".into(),
        Some(_) => "ended".into(),
    }
}

fn ending(end: &End, history: &History) -> String {
    let mut text = String::new();
    if let Some(used) = &end.command {
        text += &of_command(used, history);
    }
    text += &of_watching(&end.cost, end.t);
    if history.samples() < history.seen {
        text += &format!(
            "kept in memory: {} of {} samples, with the peaks; a recording (--record) holds all\n",
            count(history.samples() as u64),
            count(history.seen as u64)
        );
    }
    if history.left_out > 0 {
        text += &format!(
            "too many processes, events or notes: {} left out; a recording (--record) holds all
",
            several(history.left_out as u64, "line")
        );
    }
    text
}

/// The kernel's account covers the children that were waited for; what samples did not see is named.
fn of_command(used: &Use, history: &History) -> String {
    let seen = history.tracks.iter().filter_map(Track::last).map(|last| last.minor_faults);
    let seen = seen.fold(0, u64::saturating_add);
    let mut text = format!(
        "the command and the children it waited for: user {} s, system {} s, faults {} minor {} major, peak RSS {} MiB\n",
        seconds_of(used.user_s),
        seconds_of(used.system_s),
        count(used.minor_faults),
        count(used.major_faults),
        mebibytes(used.peak_rss_bytes),
    );
    if used.minor_faults > seen {
        let unseen = count(used.minor_faults - seen);
        let advice = if history.tracks.len() == 1 { " (--children watches them)" } else { "" };
        text += &format!(
            "{unseen} of these minor faults: taken by processes, or parts of their lives, that no sample saw{advice}\n"
        );
    }
    text
}

fn of_watching(cost: &Cost, elapsed_s: f64) -> String {
    let part = if elapsed_s > 0.0 { cost.processor_s / elapsed_s * 100.0 } else { 0.0 };
    let mut text = format!(
        "watching cost {} s of processor time in {} s ({part:.2} % of one CPU): {}",
        seconds_of(cost.processor_s),
        seconds_of(elapsed_s),
        several(cost.samples, "sample"),
    );
    if cost.rollups > 0 {
        text += &format!(
            ", {} of smaps_rollup (the longest {:.1} ms)",
            several(cost.rollups, "reading"),
            cost.longest_rollup_s * 1000.0
        );
    }
    if cost.missed_rounds > 0 {
        text += &format!(
            ", {} left out (the machine was busy, faultless was stopped, or its lines were not read)",
            several(cost.missed_rounds, "round")
        );
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{Begin, Event, FORMAT, Line, Process, Sample, Source};

    #[test]
    fn peaks_ends_and_cost_are_told() {
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        for place in 0..25 {
            let process = Process {
                process: place,
                pid: 100 + place as i32,
                name: format!("n{place}"),
                ..Process::default()
            };
            history.add(Line::Process(process)).unwrap();
            let sample = Sample {
                process: place,
                rss_bytes: Some(u64::from(place) << 20),
                minor_faults: 4,
                ..Sample::default()
            };
            history.add(Line::Sample(sample)).unwrap();
        }
        let cost = Cost {
            processor_s: 0.02,
            samples: 1234,
            rollups: 2,
            longest_rollup_s: 0.0034,
            ..Cost::default()
        };
        let used =
            Use { user_s: 1.0, system_s: 0.5, minor_faults: 130, major_faults: 0, peak_rss_bytes: 1 << 20 };
        history.add(Line::End(End { t: 10.0, cost, command: Some(used) })).unwrap();
        for columns in [80, 100, 113] {
            let text = text(&history, Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert!(text.contains("n24") && text.contains("runs on") && text.contains("peak RSS"), "{text}");
            assert_eq!(text.contains("peak VSZ"), columns > 90, "{text}");
        }
        let text = text(&history, None);
        assert!(
            text.contains("n24") && !text.contains("n4 ") && text.contains("and 5 more with smaller peaks"),
            "{text}"
        );
        assert!(
            text.contains(
                "(0.20 % of one CPU): 1,234 samples, 2 readings of smaps_rollup (the longest 3.4 ms)"
            ),
            "{text}"
        );
        assert!(text.contains("30 of these minor faults"), "{text}");
    }

    #[test]
    fn a_process_that_became_another_program_has_a_row_for_each() {
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        history.add(Line::Process(Process { pid: 7, name: "python".into(), ..Process::default() })).unwrap();
        for (t, mebibytes, minor_faults) in [(0.0, 200, 50_000), (2.0, 2, 50_070)] {
            let rss_bytes = Some(mebibytes << 20);
            history.add(Line::Sample(Sample { t, rss_bytes, minor_faults, ..Sample::default() })).unwrap();
        }
        let what = Happening::Exec { name: "sleep".into() };
        history.add(Line::Event(Event { t: 1.0, process: 0, source: Source::Kernel, what })).unwrap();
        let text = text(&history, None);
        let words = |name: &str| {
            let row = text.lines().find(|line| line.contains(name)).unwrap();
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("python"), "python 7 200.0 200.0 - 0.0 50,000 0 0.00 0.00 0.0 exec");
        assert_eq!(words("sleep"), "sleep 7 2.0 2.0 - 0.0 70 0 0.00 0.00 0.0 runs on");
    }

    #[test]
    fn counters_of_a_damaged_recording_are_added_up_as_far_as_there_is_room() {
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        for process in 0..2 {
            history.add(Line::Process(Process { process, ..Process::default() })).unwrap();
            let sample = Sample { process, minor_faults: u64::MAX, ..Sample::default() };
            history.add(Line::Sample(sample)).unwrap();
        }
        let used =
            Use { user_s: 0.0, system_s: 0.0, minor_faults: u64::MAX, major_faults: 0, peak_rss_bytes: 0 };
        history.add(Line::End(End { t: 1.0, cost: Cost::default(), command: Some(used) })).unwrap();
        assert!(!text(&history, None).contains("no sample saw"));
    }
}
