//! What is watched as lines: for people, in columns, as `findfault.sh` of "A Study in Malloc" (Ezolt, ALS 2001) printed
//! them; and as CSV.

use std::fmt::Write as _;

use faultless_diagnosis::history::{History, Track};
use faultless_diagnosis::metric::Metric;
use faultless_records::quantity::{count, mebibytes, several, whole};
use faultless_records::recording::{Event, GroupSample, Happening, Line, Sample, Source};

use crate::plain::plain;

/// Lines between two headings.
const HEADING_EVERY: usize = 24;

/// Figures of the lines for people: heading, columns of the terminal, and which of them go first where those are few.
const FIGURES: [(&str, usize, u8); 10] = [
    ("VSZ MiB", 9, 1),
    ("RSS MiB", 10, 10),
    ("PSS MiB", 10, 4),
    ("swap", 5, 2),
    ("threads", 8, 3),
    ("minor faults", 13, 6),
    ("minor/s", 9, 9),
    ("major/s", 8, 5),
    ("user %", 7, 8),
    ("sys %", 6, 7),
];
/// Columns of time, number and name, which are always there.
const NAMED: usize = 34;

/// Lines for people.
#[derive(Debug, Default)]
pub struct Columns {
    lines: usize,
    /// Figures of less rank are left out.
    least_rank: u8,
}

impl Columns {
    /// Lines for a terminal of so many columns; some figures are left out where it is narrow.
    #[must_use]
    pub fn within(columns: Option<usize>) -> Self {
        let width = |rank: &u8| {
            let shown = FIGURES.iter().filter(|(_, _, own)| own >= rank);
            NAMED + shown.map(|(_, width, _)| 1 + width).sum::<usize>()
        };
        let least_rank =
            (0..10).find(|rank| columns.is_none_or(|columns| width(rank) <= columns)).unwrap_or(10);
        Self { lines: 0, least_rank }
    }

    /// The figures that are shown, each right in its column.
    fn figures<'text>(&self, figures: impl Iterator<Item = &'text str>) -> String {
        let shown = FIGURES.iter().zip(figures).filter(|((_, _, rank), _)| *rank >= self.least_rank);
        shown.map(|((_, width, _), figure)| format!(" {figure:>width$}")).collect()
    }

    fn heading(&self) -> String {
        let figures = self.figures(FIGURES.iter().map(|(heading, _, _)| *heading));
        format!("{:>8} {:>8}  {:<15}{figures}", "time", "pid", "name")
    }

    /// The line as text, with a heading where it is time for one; `history` knows everything up to and with it. Empty for
    /// lines that show nothing by themselves.
    #[must_use]
    pub fn text(&mut self, line: &Line, history: &History) -> String {
        let text = match line {
            Line::Sample(sample) => match history.process(sample.process) {
                Some(track) => self.row(track, sample),
                None => return String::new(),
            },
            Line::GroupSample(sample) => match history.groups.get(sample.group as usize) {
                Some(track) => group_row(&track.group.path, sample),
                None => return String::new(),
            },
            Line::Event(event) => match history.process(event.process) {
                Some(track) => {
                    let (pid, name) = (track.process.pid, cut(&track.process.name));
                    format!("{:>8.2} {pid:>8}  {name:<15}  {}", event.t, told(event))
                }
                None => return String::new(),
            },
            Line::Note(note) => format!("{:>8.2} {:>8}  {}", note.t, "note", plain(&note.text)),
            _ => return String::new(),
        };
        let heads = self.lines.is_multiple_of(HEADING_EVERY);
        self.lines += 1;
        if heads { format!("{}\n{text}\n", self.heading()) } else { format!("{text}\n") }
    }

    fn row(&self, track: &Track, sample: &Sample) -> String {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), mebibytes);
        let rate = |metric: Metric| metric.now(&track.samples);
        let whole = |rate: Option<f64>| rate.map_or_else(|| "-".into(), whole);
        let percent = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"));
        let figures = [
            size(sample.vsize_bytes),
            size(sample.rss_bytes),
            size(sample.pss_bytes),
            size(track.program.swap_bytes.filter(|_| sample.rss_bytes.is_some())),
            sample.threads.to_string(),
            count(sample.minor_faults),
            whole(rate(Metric::MinorFaults)),
            whole(rate(Metric::MajorFaults)),
            percent(rate(Metric::User)),
            percent(rate(Metric::System)),
        ];
        let figures = self.figures(figures.iter().map(String::as_str));
        format!("{:>8.2} {:>8}  {:<15}{figures}", sample.t, track.process.pid, cut(&track.process.name))
    }
}

fn group_row(path: &str, sample: &GroupSample) -> String {
    let limit =
        sample.limit_bytes.map_or_else(|| "no limit".into(), |bytes| format!("of {} MiB", mebibytes(bytes)));
    let mut text = format!(
        "{:>8.2} {:>8}  {}: {} MiB {limit}",
        sample.t,
        "cgroup",
        plain(path),
        mebibytes(sample.current_bytes)
    );
    let parts = [
        ("anonymous", sample.anonymous_bytes),
        ("page cache", sample.file_bytes),
        ("swap", sample.swap_bytes),
    ];
    for (name, bytes) in parts {
        let _ = bytes.map(|bytes| write!(text, ", {name} {} MiB", mebibytes(bytes)));
    }
    let _ = sample.high_bytes.map(|bytes| write!(text, ", slowed from {} MiB", mebibytes(bytes)));
    let happened = [
        ("slowed", sample.high_hits),
        ("at its limit", sample.limit_hits),
        ("out of memory", sample.oom_events),
        ("killed for memory", sample.oom_kills),
    ];
    for (name, number) in happened {
        let _ = number
            .filter(|number| *number > 0)
            .map(|number| write!(text, ", {name} {}", several(number, "time")));
    }
    text
}

/// What happened, in words.
#[must_use]
pub fn told(event: &Event) -> String {
    let text = match &event.what {
        Happening::Fork { child } => format!("fork: child {child}"),
        // The name was gone when it was asked for.
        Happening::Exec { name } if name.is_empty() => "exec".into(),
        Happening::Exec { name } => format!("exec: now {name}"),
        Happening::Rename { name } => format!("name: now {name}"),
        Happening::Exit { signal: Some(signal), .. } => format!("exit: killed by signal {signal}"),
        Happening::Exit { status: Some(status), .. } => format!("exit: status {status}"),
        Happening::Exit { .. } => "exit: status unknown".into(),
        Happening::Left => "left: watched no longer".into(),
    };
    plain(&text)
}

/// A name that fits its column.
fn cut(name: &str) -> String {
    plain(name).chars().take(15).collect()
}

/// The first line of the CSV form.
pub const CSV_HEADING: &str = "\
t_s,kind,pid,name,vsize_bytes,rss_bytes,pss_bytes,swap_bytes,threads,minor_faults,major_faults,\
minor_faults_per_s,major_faults_per_s,user_s,system_s,group_bytes,group_limit_bytes,event,source\n";

/// The line as CSV (RFC 4180); empty for lines that show nothing by themselves.
#[must_use]
pub fn csv(line: &Line, history: &History) -> String {
    let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    let rate = |rate: Option<f64>| rate.map(|rate| format!("{rate:.3}")).unwrap_or_default();
    match line {
        Line::Sample(sample) => {
            let Some(track) = history.process(sample.process) else { return String::new() };
            format!(
                "{:.6},sample,{},{},{},{},{},{},{},{},{},{},{},{:.2},{:.2},,,,\n",
                sample.t,
                track.process.pid,
                field(&track.process.name),
                number(sample.vsize_bytes),
                number(sample.rss_bytes),
                number(sample.pss_bytes),
                number(sample.swap_bytes),
                sample.threads,
                sample.minor_faults,
                sample.major_faults,
                rate(Metric::MinorFaults.now(&track.samples)),
                rate(Metric::MajorFaults.now(&track.samples)),
                sample.user_s,
                sample.system_s,
            )
        }
        Line::GroupSample(sample) => {
            let Some(track) = history.groups.get(sample.group as usize) else { return String::new() };
            format!(
                "{:.6},group,,{},,,,{},,{},{},,,,,{},{},,\n",
                sample.t,
                field(&track.group.path),
                number(sample.swap_bytes),
                number(sample.faults.map(|all| all.saturating_sub(sample.major_faults.unwrap_or(0)))),
                number(sample.major_faults),
                sample.current_bytes,
                number(sample.limit_bytes),
            )
        }
        Line::Event(event) => {
            let Some(track) = history.process(event.process) else { return String::new() };
            let (pid, name) = (track.process.pid, field(&track.process.name));
            let source = if event.source == Source::Kernel { "kernel" } else { "sampling" };
            format!("{:.6},event,{pid},{name},,,,,,,,,,,,,,{},{source}\n", event.t, field(&told(event)))
        }
        _ => String::new(),
    }
}

/// A field in quotes where it needs them; control characters as escapes.
pub(crate) fn field(text: &str) -> String {
    let text = plain(text);
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{Begin, FORMAT, Process};

    fn lines() -> Vec<Line> {
        let sample = |t, minor_faults, rss| {
            Line::Sample(Sample {
                t,
                minor_faults,
                rss_bytes: rss,
                vsize_bytes: rss,
                threads: 3,
                ..Sample::default()
            })
        };
        let what = Happening::Exit { status: Some(2), signal: None };
        vec![
            Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() }),
            Line::Process(Process { pid: 4711, name: "a,\"\x1b[2J".into(), ..Process::default() }),
            sample(0.0, 100, Some(1 << 20)),
            sample(2.0, 4100, Some(3 << 20)),
            sample(2.5, 4100, None),
            Line::Event(Event { t: 2.5, process: 0, source: Source::Kernel, what }),
        ]
    }

    fn texts(mut text: impl FnMut(&Line, &History) -> String) -> String {
        let mut history = History::new();
        let mut all = String::new();
        for line in lines() {
            history.add(line.clone()).unwrap();
            all += &text(&line, &history);
        }
        all
    }

    #[test]
    fn columns_stand_under_their_headings_and_steer_no_terminal() {
        let mut columns = Columns::default();
        let text = texts(|line, history| columns.text(line, history));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        let heading = "    time      pid  name              VSZ MiB    RSS MiB    PSS MiB  swap  threads  minor faults   minor/s  major/s  user %  sys %";
        assert_eq!(lines[0], heading);
        let end_of = |word: &str| heading.find(word).unwrap() + word.len();
        for (word, figure) in
            [("RSS MiB", "3.0"), ("minor faults", "4,100"), ("minor/s", "2,000"), ("threads", "3")]
        {
            assert!(lines[2][..end_of(word)].ends_with(figure), "{word}: {text}");
        }
        assert!(lines[3].contains(" - "), "{text}");
        assert!(lines[4].ends_with("exit: status 2"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }

    #[test]
    fn on_a_narrow_terminal_figures_are_left_out_and_none_is_cut() {
        let first_lines = |columns| {
            let mut lines = Columns::within(Some(columns));
            let text = texts(|line, history| lines.text(line, history));
            text.lines().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        for columns in 45..140 {
            assert!(first_lines(columns).iter().all(|line| line.len() <= columns), "{columns}");
        }
        let narrow = first_lines(80);
        assert_eq!(narrow[0], "    time      pid  name               RSS MiB   minor/s  user %  sys %");
        assert!(narrow[2].ends_with("        3.0     2,000       0      0"), "{narrow:?}");
        assert_eq!(first_lines(129)[0].len(), 129);
    }

    #[test]
    fn a_share_stands_only_in_rows_where_it_was_read() {
        let mut history = History::new();
        let mut columns = Columns::default();
        let mut text = String::new();
        let sample = |t, mebibytes: u64, pss: Option<u64>| {
            let pss_bytes = pss.map(|pss| pss << 20);
            Line::Sample(Sample { t, rss_bytes: Some(mebibytes << 20), pss_bytes, ..Sample::default() })
        };
        for line in [
            Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() }),
            Line::Process(Process::default()),
            sample(0.0, 6, Some(5)),
            sample(1.0, 300, None),
        ] {
            history.add(line.clone()).unwrap();
            text += &columns.text(&line, &history);
        }
        let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|row| row.split_whitespace().collect()).collect();
        assert_eq!((rows[0][3], rows[0][4]), ("6.0", "5.0"), "{text}");
        assert_eq!((rows[1][3], rows[1][4]), ("300.0", "-"), "{text}");
        let sums = crate::watch::summary::text(&history, None);
        assert!(sums.contains("300.0") && !sums.contains("5.0"), "{sums}");
    }

    #[test]
    fn processes_that_are_too_many_to_keep_have_their_rows_all_the_same() {
        let most = 100_000;
        let sample =
            |t, minor_faults| Line::Sample(Sample { process: most, t, minor_faults, ..Sample::default() });
        let what = Happening::Exit { status: Some(2), signal: None };
        let exit = Event { t: 3.0, process: most, source: Source::Kernel, what };
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        for process in 0..=most {
            let name = "cc".into();
            history.add(Line::Process(Process { process, pid: 7, name, ..Process::default() })).unwrap();
        }
        let mut rows = String::new();
        for line in [sample(1.0, 100), sample(2.0, 300), Line::Event(exit)] {
            history.add(line.clone()).unwrap();
            rows += &csv(&line, &history);
            assert!(Columns::default().text(&line, &history).contains("  cc  "));
        }
        assert!(rows.contains("2.000000,sample,7,cc,,,,,0,300,0,200.000,"), "{rows}");
        assert!(rows.ends_with("3.000000,event,7,cc,,,,,,,,,,,,,,exit: status 2,kernel\n"), "{rows}");
    }

    #[test]
    fn every_line_of_csv_has_as_many_fields_as_the_heading() {
        let text = texts(csv);
        // The one comma in the name stands in quotes.
        let fields = |line: &str| line.replace("a,", "a").matches(',').count();
        assert_eq!(text.lines().count(), 4);
        for line in text.lines() {
            assert_eq!(fields(line), fields(CSV_HEADING), "{line}");
        }
        assert!(text.contains(",2000.000,"), "{text}");
        let group = Line::GroupSample(GroupSample::default());
        let mut history = History::new();
        for line in [
            Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() }),
            Line::Group(faultless_records::recording::Group::default()),
        ] {
            history.add(line).unwrap();
        }
        assert_eq!(fields(&csv(&group, &history)), fields(CSV_HEADING));
    }
}
