//! What was watched, drawn over time: one panel for each figure, one line for each process, marks for what happened.

use faultless_diagnosis::history::{History, Track};
use faultless_diagnosis::metric::{Metric, Unit};
use faultless_records::recording::{Event, Happening};

use crate::axis::Axis;
use crate::plain::{plain, plain_subject};
use crate::scene::{Anchor, Ink, MOST_SERIES, Scene, Shape};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 24.0;
const PANEL: f64 = 120.0;
const GAP: f64 = 44.0;
const TOP: f64 = 78.0;
/// Height of a row of the legend.
const ROW: f64 = 18.0;
/// Width of a letter, on the safe side.
const LETTER: f64 = 8.0;

/// More events than this are marked without their names.
const MOST_NAMES: usize = 6;

/// More events than this would hide the figures behind their lines.
const MOST_LINES: usize = 40;

/// What part of time, and which figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// From when, in s.
    pub from: f64,
    /// Up to when, in s.
    pub to: f64,
    /// One panel for each.
    pub metrics: Vec<Metric>,
    /// The place in the history of the only process that is to be shown; none for all.
    pub alone: Option<usize>,
}

impl Choice {
    /// All of the time, and the figures that say something.
    #[must_use]
    pub fn whole(history: &History) -> Self {
        let is_worth = |metric: &Metric| match metric {
            Metric::Rss | Metric::Vsize | Metric::MinorFaults | Metric::User | Metric::System => true,
            Metric::Pss => false,
            Metric::Threads => largest(history, *metric) > 1.0,
            Metric::Swap | Metric::MajorFaults => largest(history, *metric) > 0.0,
        };
        let metrics = Metric::ALL.into_iter().filter(is_worth).collect();
        Self { from: 0.0, to: history.latest_s, metrics, alone: None }
    }

    /// The processes that it shows.
    pub(crate) fn tracks<'history>(
        &self,
        history: &'history History,
    ) -> impl Iterator<Item = &'history Track> {
        let alone = self.alone;
        let all = history.tracks.iter().enumerate();
        all.filter(move |(place, _)| alone.is_none_or(|alone| alone == *place)).map(|(_, track)| track)
    }
}

fn largest(history: &History, metric: Metric) -> f64 {
    let points = history.tracks.iter().flat_map(|track| metric.series(&track.samples, 0.0, f64::MAX, 2000));
    points.map(|(_, figure)| figure).fold(0.0, f64::max)
}

/// The picture.
#[must_use]
pub fn scene(history: &History, choice: &Choice) -> Scene {
    let shown = shown(history, choice);
    let groups = usize::from(!history.groups.is_empty());
    let panels = choice.metrics.len() + groups;
    let title = plain_subject(&history.begin.subject);
    let mut scene = Scene { width: WIDTH, height: 0.0, title: title.clone(), shapes: Vec::new() };
    text(&mut scene, (12.0, 22.0), Anchor::Start, Ink::Text, &cut(&title, 118));
    let top = TOP + legend(&mut scene, &shown, choice.tracks(history).count());
    scene.height = top + panels as f64 * (PANEL + GAP) + 6.0;

    let time = Axis::of_time(choice.from, choice.to, 8);
    for (place, metric) in choice.metrics.iter().enumerate() {
        let series: Vec<Vec<(f64, f64)>> =
            shown.iter().map(|track| metric.series(&track.samples, choice.from, choice.to, 1500)).collect();
        let dashed: Vec<Vec<_>> = match metric {
            Metric::Rss => shown
                .iter()
                .map(|track| Metric::Pss.series(&track.samples, choice.from, choice.to, 1500))
                .collect(),
            _ => Vec::new(),
        };
        let name = match dashed.iter().map(Vec::len).max() {
            None | Some(0) => metric.name(),
            Some(1) => "RSS (dots: PSS)",
            Some(_) => "RSS (dashed: PSS)",
        };
        let panel = Panel { name, unit: metric.unit(), top: top + place as f64 * (PANEL + GAP) };
        panel.draw(&mut scene, &time, &series, &dashed);
        mark(&mut scene, history, &time, panel.top, place == 0);
    }
    if groups > 0 {
        let top = top + choice.metrics.len() as f64 * (PANEL + GAP);
        let inside = |t: f64| (choice.from..=choice.to).contains(&t);
        let of_groups = |figure: fn(&faultless_records::recording::GroupSample) -> Option<u64>| {
            let points = |track: &faultless_diagnosis::history::GroupTrack| -> Vec<(f64, f64)> {
                let all = track.samples.iter().filter(|sample| inside(sample.t));
                all.filter_map(|sample| Some((sample.t, figure(sample)? as f64))).collect()
            };
            history.groups.iter().take(MOST_SERIES).map(points).collect::<Vec<_>>()
        };
        let panel = Panel { name: "control group (dashed: its limit)", unit: Unit::Bytes, top };
        panel.draw(
            &mut scene,
            &time,
            &of_groups(|sample| Some(sample.current_bytes)),
            &of_groups(|sample| sample.limit_bytes),
        );
    }
    scene
}

/// The processes with the largest resident sets.
fn shown<'history>(history: &'history History, choice: &Choice) -> Vec<&'history Track> {
    let mut tracks: Vec<&Track> = choice.tracks(history).filter(|track| track.last().is_some()).collect();
    tracks.sort_by_key(|track| std::cmp::Reverse(track.peak_rss_bytes));
    tracks.truncate(MOST_SERIES);
    tracks
}

/// Names the lines; returns the height of the rows beyond the first.
fn legend(scene: &mut Scene, shown: &[&Track], all: usize) -> f64 {
    let (mut x, mut y) = (12.0, 40.0);
    for (number, track) in shown.iter().enumerate() {
        let label = cut(&plain(&track.label()), 24);
        let width = label.chars().count() as f64 * LETTER + 34.0;
        if x + width > RIGHT {
            (x, y) = (12.0, y + ROW);
        }
        path(scene, vec![(x, y), (x + 16.0, y)], Ink::Series(number), 3.0, false);
        text(scene, (x + 21.0, y + 4.0), Anchor::Start, Ink::Text, &label);
        x += width;
    }
    if all > shown.len() {
        let rest = format!("+ {} smaller", all - shown.len());
        text(scene, (RIGHT, 22.0), Anchor::End, Ink::Faint, &rest);
    }
    y - 40.0
}

struct Panel {
    name: &'static str,
    unit: Unit,
    top: f64,
}

impl Panel {
    fn draw(&self, scene: &mut Scene, time: &Axis, series: &[Vec<(f64, f64)>], dashed: &[Vec<(f64, f64)>]) {
        let bottom = self.top + PANEL;
        let figures = series.iter().chain(dashed).flatten().map(|(_, figure)| *figure);
        let axis = Axis::of_figures(self.unit, figures.fold(0.0, f64::max), 4);
        let x = |t: f64| LEFT + time.place(t) * (RIGHT - LEFT);
        let y = |figure: f64| bottom - axis.place(figure) * PANEL;
        for (tick, label) in axis.ticks() {
            path(scene, vec![(LEFT, y(tick)), (RIGHT, y(tick))], Ink::Grid, 1.0, false);
            text(scene, (LEFT - 8.0, y(tick) + 4.0), Anchor::End, Ink::Faint, &label);
        }
        for (tick, label) in time.ticks() {
            path(scene, vec![(x(tick), bottom), (x(tick), bottom + 4.0)], Ink::Faint, 1.0, false);
            // Where the unit stands there is no room for a figure.
            if x(tick) + (label.chars().count() as f64 / 2.0 + time.unit.len() as f64) * LETTER < RIGHT {
                text(scene, (x(tick), bottom + 17.0), Anchor::Middle, Ink::Faint, &label);
            }
        }
        text(scene, (RIGHT, bottom + 17.0), Anchor::End, Ink::Faint, time.unit);
        let name =
            if axis.unit.is_empty() { self.name.to_owned() } else { format!("{}, {}", self.name, axis.unit) };
        text(scene, (LEFT, self.top - 8.0), Anchor::Start, Ink::Text, &name);
        for (lines, is_dashed) in [(dashed, true), (series, false)] {
            for (number, points) in lines.iter().enumerate() {
                let places: Vec<(f64, f64)> = points.iter().map(|(t, figure)| (x(*t), y(*figure))).collect();
                match places.as_slice() {
                    [] => {}
                    [one] => {
                        scene.shapes.push(Shape::Disc { centre: *one, radius: 2.5, ink: Ink::Series(number) })
                    }
                    _ => path(scene, places, Ink::Series(number), 1.6, is_dashed),
                }
            }
        }
    }
}

/// Marks what happened, with names where there is room for them.
fn mark(scene: &mut Scene, history: &History, time: &Axis, top: f64, has_names: bool) {
    let (from, to) = time.ends();
    let events: Vec<&Event> = history
        .events
        .iter()
        .filter(|event| (from..=to).contains(&event.t) && !matches!(event.what, Happening::Rename { .. }))
        .take(2000)
        .collect();
    let is_named = has_names && events.len() <= MOST_NAMES;
    let is_crowded = events.len() > MOST_LINES;
    let mut free_from = 0.0;
    for event in events {
        let x = LEFT + time.place(event.t) * (RIGHT - LEFT);
        let word = match &event.what {
            Happening::Fork { .. } => "fork",
            Happening::Exec { .. } => "exec",
            Happening::Exit { .. } => "exit",
            Happening::Left => "left",
            Happening::Rename { .. } => continue,
        };
        // What is many gets a short mark at the edge.
        let bottom = if word == "fork" || is_crowded { top + 6.0 } else { top + PANEL };
        path(scene, vec![(x, top), (x, bottom)], Ink::Mark, 1.0, true);
        if is_named && x - 18.0 >= free_from && x - 18.0 > LEFT + 170.0 {
            text(scene, (x, top - 8.0), Anchor::Middle, Ink::Faint, word);
            free_from = x + 18.0;
        }
    }
}

fn path(scene: &mut Scene, points: Vec<(f64, f64)>, ink: Ink, width: f64, is_dashed: bool) {
    scene.shapes.push(Shape::Path { points, ink, width, is_dashed });
}

fn text(scene: &mut Scene, at: (f64, f64), anchor: Anchor, ink: Ink, text: &str) {
    scene.shapes.push(Shape::Text { at, anchor, ink, text: text.to_owned() });
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let start: String = text.chars().take(most - 3).collect();
    start + "..."
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{Begin, FORMAT, Line, Process, Sample, Source};

    fn history(processes: u32) -> History {
        let mut history = History::new();
        let begin = Begin { format: FORMAT.into(), subject: "a <program>".into(), ..Begin::default() };
        history.add(Line::Begin(begin)).unwrap();
        for process in 0..processes {
            let name = format!("p{process}");
            history.add(Line::Process(Process { process, pid: 7, name, ..Process::default() })).unwrap();
            for second in 0..20_u32 {
                let rss_bytes = Some(u64::from(second * (process + 1)) << 20);
                let minor_faults = u64::from(second) * 1000;
                let t = f64::from(second);
                let sample = Sample {
                    t,
                    process,
                    rss_bytes,
                    vsize_bytes: rss_bytes,
                    minor_faults,
                    ..Sample::default()
                };
                history.add(Line::Sample(sample)).unwrap();
            }
        }
        if processes > 0 {
            let what = Happening::Exec { name: "x".into() };
            history.add(Line::Event(Event { t: 10.0, process: 0, source: Source::Kernel, what })).unwrap();
        }
        history
    }

    #[test]
    fn each_figure_has_a_panel_and_each_process_a_line() {
        let history = history(3);
        let choice = Choice::whole(&history);
        assert!(
            choice.metrics.contains(&Metric::MinorFaults) && !choice.metrics.contains(&Metric::MajorFaults)
        );
        let scene = scene(&history, &choice);
        let svg = scene.svg();
        for word in
            ["RSS, MiB", "virtual size, MiB", "minor faults, /s", "a &lt;program&gt;", "p2 7", ">exec<"]
        {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        let lines = |ink| {
            scene.shapes.iter().filter(|shape| matches!(shape, Shape::Path { ink: own, points, .. } if *own == ink && points.len() > 2)).count()
        };
        assert_eq!(
            (lines(Ink::Series(0)), lines(Ink::Series(2))),
            (choice.metrics.len(), choice.metrics.len())
        );
    }

    fn texts(scene: &Scene) -> Vec<((f64, f64), &str)> {
        let texts = scene.shapes.iter().filter_map(|shape| match shape {
            Shape::Text { at, text, .. } => Some((*at, text.as_str())),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn every_line_is_named_however_long_the_names_are() {
        let mut history = history(12);
        for track in &mut history.tracks {
            track.process.name += "-of-fifteen";
        }
        let scene = scene(&history, &Choice::whole(&history));
        let names: Vec<(f64, f64)> =
            texts(&scene).into_iter().filter(|(_, text)| text.contains("-of-")).map(|(at, _)| at).collect();
        assert_eq!(names.len(), MOST_SERIES, "{names:?}");
        let [first, last] = [names[0].1, names[MOST_SERIES - 1].1];
        assert!(first < last, "in two rows: {names:?}");
        let panel = texts(&scene).into_iter().find(|(_, text)| text.starts_with("RSS")).unwrap();
        assert!(panel.0.1 > last + 10.0, "and the panels below them: {panel:?}");
    }

    #[test]
    fn what_stands_for_pss_is_said() {
        let mut history = history(1);
        let is_said =
            |history: &History, name: &str| scene(history, &Choice::whole(history)).svg().contains(name);
        assert!(is_said(&history, ">RSS, MiB<"));
        for (second, name) in [(5, ">RSS (dots: PSS), MiB<"), (9, ">RSS (dashed: PSS), MiB<")] {
            history.tracks[0].samples[second].pss_bytes = Some(1 << 20);
            assert!(is_said(&history, name), "{name}");
        }
    }

    #[test]
    fn the_unit_of_time_stands_on_no_figure() {
        let history = history(1);
        let mut choice = Choice::whole(&history);
        for to in [0.014_07, 0.2, 1.1, 19.0, 1000.0, 100_000.0] {
            choice.to = to;
            let scene = scene(&history, &choice);
            let unit = Axis::of_time(0.0, to, 8).unit;
            let (at, _) = texts(&scene).into_iter().rfind(|(_, text)| *text == unit).unwrap();
            let row = texts(&scene).into_iter().filter(|(other, text)| other.1 == at.1 && *text != unit);
            let ends = row.map(|(other, text)| other.0 + text.len() as f64 * 3.5);
            let last = ends.fold(0.0, f64::max);
            assert!(last > 0.0 && last < at.0 - unit.len() as f64 * 7.0, "{to}: {last} {at:?}");
        }
    }

    #[test]
    fn everything_lies_within_the_picture_whatever_was_watched() {
        for processes in [0, 1, 40] {
            let history = history(processes);
            let mut choice = Choice::whole(&history);
            for (from, to) in [(0.0, 19.0), (5.0, 5.1), (7.0, 7.0), (100.0, 200.0)] {
                (choice.from, choice.to) = (from, to);
                let scene = scene(&history, &choice);
                assert!(scene.holds_its_shapes(), "{:?}", scene.shapes);
            }
        }
    }
}
