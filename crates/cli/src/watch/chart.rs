//! What the live chart looks like.

use faultless_diagnosis::history::{History, Track};
use faultless_diagnosis::metric::{Metric, Unit};
use faultless_records::quantity::{count, mebibytes, whole};
use faultless_records::recording::Happening;
use faultless_report::axis::Axis as Figures;
use faultless_report::plain::plain;
use faultless_report::watch::lines::told;
use faultless_report::watch::view::View;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Cell, Chart, Clear, Dataset, GraphType, Paragraph, Row, Table};

/// Colours that terminals have on light and on dark ground.
const COLOURS: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Red, Color::Blue];

/// Rows of the list.
const MOST_ROWS: usize = 8;

/// How old a share of the resident set may be that stands beside it, in s: it is read every 10 s, in the round after.
const RECENT_S: f64 = 15.0;

/// Marks of events drawn at most.
const MOST_MARKS: usize = 40;

/// Keys in the last line; the first two are always there, the others where there is room.
const KEYS: &str = " q quit  ? keys  space pause  +/- zoom  ←/→ scroll  w all  tab figure  0 overview  ↑/↓ enter one process  e export";

const HELP: &[(&str, &str)] = &[
    ("q", "leave; a started command is asked to end, at the third time killed"),
    ("space", "pause, continue"),
    ("+ -", "less or more time"),
    ("← →", "earlier, later; Home to the beginning, End along with the latest"),
    ("w", "all of the time"),
    ("tab", "the next figure, shift-tab the one before; 1 to 9 directly, 0 several"),
    ("↑ ↓", "choose a process; enter shows it alone, or all again"),
    ("e", "write what is shown as SVG and CSV into the current directory"),
    ("^Z", "back to the shell, fg returns"),
];

/// Whose history is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// What was recorded before.
    Recording,
    /// Processes that others started.
    Processes,
    /// A command that was started here.
    Command,
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, history: &History, subject: Subject, view: &View, message: &str) {
    let list = view.list(history);
    let rows = list.len().clamp(1, MOST_ROWS);
    let groups = history.groups.len().min(2);
    let [top, processes, of_groups, charts, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows as u16 + 1),
        Constraint::Length(groups as u16),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, top, history, subject, view);
    draw_list(frame, processes, &list, view);
    let lines: Vec<Line<'_>> = history
        .groups
        .iter()
        .take(groups)
        .map(|group| {
            let figures = group.samples.last().map(|last| {
                let limit = last
                    .limit_bytes
                    .map_or_else(|| "no limit".into(), |limit| format!("{} MiB", mebibytes(limit)));
                format!("{} MiB of {limit}", mebibytes(last.current_bytes))
            });
            Line::from(format!(" cgroup {}: {}", plain(&group.group.path), figures.unwrap_or_default()))
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), of_groups);
    draw_charts(frame, charts, history, &list, view);
    let columns = usize::from(bottom.width);
    let text = match message {
        "" => last_line(last_event(history), columns),
        message => cut(format!(" {message}"), columns),
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().add_modifier(Modifier::DIM)), bottom);
    if view.has_help {
        draw_help(frame);
    }
}

/// What happened last, and before it as many keys as there is room for.
fn last_line(event: Option<String>, columns: usize) -> String {
    let event = event.map_or_else(String::new, |event| format!("   {event}"));
    let keys: Vec<&str> = KEYS.split("  ").collect();
    let fits = |keys: &&[&str]| keys.join("  ").chars().count() + event.chars().count() <= columns;
    let keys = (2..=keys.len()).rev().map(|number| &keys[..number]).find(fits).unwrap_or(&keys[..2]);
    cut(keys.join("  ") + &event, columns)
}

/// The beginning of a text for so many columns, with a mark where that is not all.
fn cut(text: String, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Whether all processes that were seen have ended.
pub fn have_all_ended(history: &History) -> bool {
    !history.tracks.is_empty() && history.tracks.iter().all(|track| track.exit.is_some())
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, history: &History, subject: Subject, view: &View) {
    let (state, colour) = match () {
        () if view.is_paused() => ("paused", Color::Yellow),
        () if subject == Subject::Recording => ("recording, q leaves", Color::Blue),
        () if history.end.is_some() || have_all_ended(history) => ("ended, q leaves", Color::Red),
        () => ("live", Color::Green),
    };
    let mut spans = vec![
        Span::from(" faultless watch ").bold(),
        Span::from(format!("● {state}")).fg(colour),
        Span::from(format!("  {:.1} s  every {} s  ", history.latest_s, history.begin.interval_s)),
    ];
    let taken: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(area.width).saturating_sub(taken);
    spans.push(Span::from(cut(plain(&history.begin.subject), room)).dim());
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

/// A column of the list.
struct Column {
    heading: &'static str,
    /// For usual figures.
    width: u16,
    /// Where room is short those of low rank go first.
    rank: u8,
}

const COLUMNS: [Column; 11] = [
    Column { heading: "pid", width: 8, rank: 9 },
    Column { heading: "RSS MiB", width: 10, rank: 11 },
    Column { heading: "PSS MiB", width: 10, rank: 5 },
    Column { heading: "VSZ MiB", width: 10, rank: 4 },
    Column { heading: "swap", width: 6, rank: 1 },
    Column { heading: "threads", width: 7, rank: 2 },
    Column { heading: "minor faults", width: 12, rank: 6 },
    Column { heading: "minor/s", width: 9, rank: 10 },
    Column { heading: "major/s", width: 8, rank: 3 },
    Column { heading: "user %", width: 7, rank: 8 },
    Column { heading: "sys %", width: 6, rank: 7 },
];

/// A pointer, a colour, and a name of 15 bytes; more where there is room.
const NAME_WIDTHS: (u16, u16) = (18, 20);

/// Which columns fit beside the name, with their widths, and how wide the name is then.
fn fitting(width: u16, figures: &[Vec<String>]) -> (Vec<(usize, u16)>, u16) {
    let longest = |place: usize| figures.iter().map(|row| row[place].len() as u16).max().unwrap_or(0);
    let mut columns: Vec<(usize, u16)> = COLUMNS
        .iter()
        .map(|column| column.width)
        .enumerate()
        .map(|(at, width)| (at, width.max(longest(at))))
        .collect();
    columns.sort_by_key(|(place, _)| std::cmp::Reverse(COLUMNS[*place].rank));
    let mut left = width;
    let fit = columns.iter().take_while(|(_, width)| {
        let fits = left >= NAME_WIDTHS.0 + 1 + width;
        left -= if fits { 1 + width } else { 0 };
        fits
    });
    let number = fit.count();
    columns.truncate(number);
    columns.sort_unstable();
    (columns, left.min(NAME_WIDTHS.1))
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, list: &[(usize, &Track)], view: &View) {
    let right = |text: &str| Cell::from(Line::from(text.to_owned()).alignment(Alignment::Right));
    let first = view.chosen.min(list.len().saturating_sub(1)).saturating_sub(MOST_ROWS - 1);
    let shown: Vec<_> = list.iter().enumerate().skip(first).take(MOST_ROWS).collect();
    let figures: Vec<Vec<String>> = shown.iter().map(|(_, (_, track))| figures(track)).collect();
    let (columns, name_width) = fitting(area.width, &figures);
    let headings = columns.iter().map(|(place, _)| right(COLUMNS[*place].heading));
    let header = Row::new(std::iter::once(Cell::from("   process")).chain(headings))
        .style(Style::new().add_modifier(Modifier::DIM));
    let rows = shown.iter().zip(&figures).map(|((index, (_, track)), figures)| {
        let style = match (*index == view.chosen, track.exit.is_some()) {
            (true, _) => Style::new().add_modifier(Modifier::BOLD),
            (_, true) => Style::new().add_modifier(Modifier::DIM),
            _ => Style::new(),
        };
        let pointer = if *index == view.chosen { "▸" } else { " " };
        let name = Line::from(vec![
            Span::from(pointer),
            Span::from("━ ").fg(colour(*index)),
            Span::from(plain(&track.process.name)),
        ]);
        let figures = columns.iter().map(|(place, _)| right(&figures[*place]));
        Row::new(std::iter::once(Cell::from(name)).chain(figures)).style(style)
    });
    let widths = std::iter::once(name_width).chain(columns.iter().map(|(_, width)| *width));
    let table = Table::new(rows, widths.map(Constraint::Length)).header(header).column_spacing(1);
    frame.render_widget(table, area);
}

/// In the order of the columns.
fn figures(track: &Track) -> Vec<String> {
    let known = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), mebibytes);
    let sized = track.last_sized();
    let last = track.last();
    let rate = |metric: Metric| {
        let rate = metric.now(&track.samples).filter(|_| track.exit.is_none());
        rate.map_or_else(|| "-".into(), whole)
    };
    vec![
        track.process.pid.to_string(),
        known(sized.and_then(|sample| sample.rss_bytes)),
        known(track.program.pss_bytes(RECENT_S)),
        known(sized.and_then(|sample| sample.vsize_bytes)),
        known(track.program.swap_bytes),
        last.map_or_else(String::new, |sample| sample.threads.to_string()),
        last.map_or_else(String::new, |sample| count(sample.minor_faults)),
        rate(Metric::MinorFaults),
        rate(Metric::MajorFaults),
        rate(Metric::User),
        rate(Metric::System),
    ]
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, history: &History, list: &[(usize, &Track)], view: &View) {
    let metrics = view.metrics();
    if metrics.len() == 1 {
        return draw_chart(frame, area, history, list, view, metrics[0]);
    }
    let halves = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).split(area);
    for (place, metric) in metrics.iter().enumerate() {
        // The figures at the left of one do not touch the other.
        let beside = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1);
        let parts = beside.split(halves[place / 2 % 2]);
        draw_chart(frame, parts[place % 2], history, list, view, *metric);
    }
}

fn draw_chart(
    frame: &mut Frame<'_>,
    area: Rect,
    history: &History,
    list: &[(usize, &Track)],
    view: &View,
    metric: Metric,
) {
    let (from, to) = view.window(history);
    let most = usize::from(area.width) * 2;
    let shown = list.iter().enumerate().take(MOST_ROWS.max(view.chosen + 1));
    let series: Vec<(usize, Vec<(f64, f64)>)> = shown
        .filter(|(index, _)| !view.is_alone || *index == view.chosen)
        .map(|(index, (_, track))| {
            let points = metric.series(&track.samples, from, to, most);
            (index, points.into_iter().filter(|(t, _)| (from..=to).contains(t)).collect())
        })
        .collect();
    let largest = series.iter().flat_map(|(_, points)| points).map(|(_, figure)| *figure).fold(0.0, f64::max);
    let axis = Figures::of_figures(metric.unit(), largest, if area.height > 14 { 5 } else { 3 });
    let (low, high) = axis.ends();
    let marks = marks(history, (from, to), high);
    let mut datasets: Vec<Dataset<'_>> = marks
        .iter()
        .map(|points| {
            Dataset::default()
                .marker(Marker::Dot)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(Color::DarkGray))
                .data(points)
        })
        .collect();
    datasets.extend(series.iter().map(|(index, points)| {
        let kind = if points.len() == 1 { GraphType::Scatter } else { GraphType::Line };
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(kind)
            .style(Style::new().fg(colour(*index)))
            .data(points)
    }));
    let labels: Vec<String> = axis.ticks().into_iter().map(|(_, text)| text).collect();
    let unit = if metric.unit() == Unit::Count { String::new() } else { format!(", {}", axis.unit) };
    let dim = Style::new().add_modifier(Modifier::DIM);
    let times = [from, f64::midpoint(from, to), to].map(|t| format!("{t:.1} s"));
    let chart = Chart::new(datasets)
        .block(Block::new().title(Line::from(format!(" {}{unit}", metric.name())).bold()))
        .x_axis(Axis::default().bounds([from, to]).labels(times).style(dim))
        .y_axis(Axis::default().bounds([low, high]).labels(labels).style(dim))
        .legend_position(None);
    frame.render_widget(chart, area);
}

/// A vertical line for each exec and each end; too many would hide the figures, then the latest are drawn.
fn marks(history: &History, (from, to): (f64, f64), high: f64) -> Vec<[(f64, f64); 2]> {
    let times = history.events.iter().rev().filter(|event| {
        (from..=to).contains(&event.t)
            && matches!(event.what, Happening::Exec { .. } | Happening::Exit { .. } | Happening::Left)
    });
    times.take(MOST_MARKS).map(|event| [(event.t, 0.0), (event.t, high)]).collect()
}

fn last_event(history: &History) -> Option<String> {
    let event = history.events.last()?;
    let track = history.tracks.get(event.process as usize)?;
    Some(format!("{:.1} s {}: {}", event.t, plain(&track.process.name), told(event)))
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (84.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let area = Rect { x: (area.width - width) / 2, y: (area.height - height) / 2, width, height };
    let lines = HELP
        .iter()
        .map(|(key, what)| Line::from(vec![Span::from(format!(" {key:<7}")).bold(), Span::from(*what)]));
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

fn colour(index: usize) -> Color {
    COLOURS[index % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording as form;
    use faultless_report::watch::view::Key;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn history(processes: u32) -> History {
        let mut history = History::new();
        let begin =
            form::Begin { format: form::FORMAT.into(), subject: "a\u{1b}[2J".into(), ..Default::default() };
        history.add(form::Line::Begin(begin)).unwrap();
        for process in 0..processes {
            let name = format!("p{process}");
            history
                .add(form::Line::Process(form::Process { process, pid: 41, name, ..Default::default() }))
                .unwrap();
            for second in 0..30 {
                let rss_bytes = Some((second * u64::from(process + 1)) << 20);
                let sample = form::Sample {
                    process,
                    t: second as f64,
                    rss_bytes,
                    minor_faults: second * 100,
                    ..Default::default()
                };
                history.add(form::Line::Sample(sample)).unwrap();
            }
        }
        history
    }

    fn drawn(size: (u16, u16), history: &History, view: &View) -> String {
        drawn_as(Subject::Processes, size, history, view)
    }

    fn drawn_as(subject: Subject, size: (u16, u16), history: &History, view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(frame, history, subject, view, "")).unwrap();
        let buffer = terminal.backend().buffer();
        let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(size.0)).map(|row| row.concat() + "\n").collect()
    }

    #[test]
    fn the_list_and_the_figures_are_to_be_seen() {
        let history = history(2);
        let text = drawn((140, 40), &history, &View::default());
        for word in ["● live", "RSS, MiB", "minor faults, /s", "▸━ p1", " ━ p0", "100", "q quit"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}"), "{text}");
        let mut view = View::default();
        view.press(Key::Metric(4), &history);
        view.press(Key::Pause, &history);
        view.press(Key::Help, &history);
        let text = drawn((140, 40), &history, &view);
        assert!(
            text.contains("● paused") && text.contains("back to the shell") && !text.contains("RSS, MiB"),
            "{text}"
        );
    }

    #[test]
    fn the_last_line_has_whole_keys_and_the_event_before_more_keys() {
        let event = || Some("0.0 s p: exec: now p".to_owned());
        assert_eq!(last_line(None, 28), " q quit  ? keys  space pause");
        assert_eq!(last_line(None, 27), " q quit  ? keys");
        assert_eq!(last_line(event(), 49), " q quit  ? keys   0.0 s p: exec: now p");
        assert_eq!(last_line(event(), 51), " q quit  ? keys  space pause   0.0 s p: exec: now p");
        assert_eq!(last_line(event(), 24), " q quit  ? keys   0.0 s…");
        assert_eq!(cut("all".into(), 3), "all");
        assert_eq!(cut("all".into(), 0), "…");
    }

    #[test]
    fn charts_beside_each_other_do_not_touch() {
        let text = drawn((81, 24), &history(1), &View::default());
        let touches = |line: &&str| line.chars().nth(40).is_some_and(|middle| middle != ' ');
        assert_eq!(text.lines().skip(3).take(20).filter(touches).count(), 0, "{text}");
    }

    #[test]
    fn who_looks_on_when_all_have_ended_is_told_how_to_leave() {
        let mut history = history(1);
        let what = Happening::Exit { status: Some(0), signal: None };
        let exit = form::Event { t: 30.0, process: 0, source: form::Source::Kernel, what };
        history.add(form::Line::Event(exit)).unwrap();
        let text = drawn((80, 24), &history, &View::default());
        assert!(text.contains("● ended, q leaves"), "{text}");
    }

    #[test]
    fn a_recording_is_called_so_also_where_it_was_cut_off_and_a_watch_that_is_over_has_ended() {
        let mut history = history(1);
        let says = |subject, history: &History| drawn_as(subject, (80, 24), history, &View::default());
        assert!(says(Subject::Recording, &history).contains("● recording, q leaves"));
        history.add(form::Line::End(form::End::default())).unwrap();
        assert!(says(Subject::Recording, &history).contains("● recording, q leaves"));
        assert!(says(Subject::Processes, &history).contains("● ended, q leaves"));
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_and_no_figure_is_cut() {
        let mut history = history(1);
        let sample = form::Sample {
            t: 30.0,
            rss_bytes: Some(123_456 << 20),
            vsize_bytes: Some(17_592_186_044_416),
            minor_faults: 12_345_678_901,
            threads: 1,
            ..Default::default()
        };
        history.add(form::Line::Sample(sample)).unwrap();
        for width in 1..=160_u16 {
            let text = drawn((width, 24), &history, &View::default());
            let (header, row) = (text.lines().nth(1).unwrap(), text.lines().nth(2).unwrap());
            let mut rest = header.replace("process", "");
            COLUMNS.iter().for_each(|column| rest = rest.replacen(column.heading, "", 1));
            assert!(width < 10 || rest.trim().is_empty(), "{width}: {header}");
            for figure in row.split_whitespace().skip(2) {
                let all = ["41", "123456.0", "16777216.0", "12,345,678,901", "12,345,676,001", "1", "0", "-"];
                assert!(all.contains(&figure), "{width}: {row}");
            }
            assert_eq!(row.contains("123456.0"), width >= 29, "{width}: {row}");
            assert!(width < 160 || row.split_whitespace().count() == COLUMNS.len() + 2, "{row}");
        }
        let text = drawn((80, 24), &history, &View::default());
        assert!(text.contains("? keys"), "{text}");
    }

    #[test]
    fn any_size_and_any_number_of_processes_can_be_drawn() {
        for processes in [0, 1, 50] {
            let history = history(processes);
            for size in [(1, 1), (5, 3), (20, 10), (80, 24), (300, 100)] {
                for key in [Key::Down, Key::Alone, Key::ZoomIn, Key::First, Key::Metric(0), Key::Help] {
                    let mut view = View::default();
                    view.press(key, &history);
                    let once = drawn(size, &history, &view);
                    view.press(key, &history);
                    let twice = drawn(size, &history, &view);
                    for text in [&once, &twice] {
                        assert_eq!(text.lines().count(), usize::from(size.1), "{text}");
                    }
                    if size.0 >= 80 {
                        let name = view.list(&history).get(view.chosen).map(|(_, track)| &track.process.name);
                        let is_shown = name.is_none_or(|name| twice.contains(&format!("▸━ {name}")));
                        assert!(is_shown, "{key:?} {twice}");
                        assert_eq!(once.contains("┌ keys ─"), key == Key::Help, "{key:?} {once}");
                    }
                }
            }
        }
    }
}
