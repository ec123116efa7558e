//! Which part of what was watched a reader has chosen to see, and what their keys change about it.

use faultless_diagnosis::history::{History, Track};
use faultless_diagnosis::metric::Metric;

use crate::plot::Choice;

/// The figures of the overview.
const OVERVIEW: [Metric; 4] = [Metric::Rss, Metric::MinorFaults, Metric::Vsize, Metric::System];

/// Shortest and longest window, in s.
const SPANS_S: (f64, f64) = (0.2, 1e9);

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Stop moving along, or move along again.
    Pause,
    /// Less time, in more detail.
    ZoomIn,
    /// More time.
    ZoomOut,
    /// All of the time.
    Whole,
    /// Back in time.
    Earlier,
    /// Forward in time.
    Later,
    /// To the beginning.
    First,
    /// To the latest, and along with it.
    Latest,
    /// The next figure.
    NextMetric,
    /// The figure before.
    PreviousMetric,
    /// The figure with this place in [`Metric::ALL`].
    Metric(usize),
    /// Several figures at once.
    Overview,
    /// The process above in the list.
    Up,
    /// The process below in the list.
    Down,
    /// The chosen process alone, or all again.
    Alone,
    /// What the keys do.
    Help,
}

/// What is chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    /// One figure, or several at once.
    pub metric: Option<Metric>,
    /// The chosen process: its place in the list.
    pub chosen: usize,
    /// Whether only the chosen process is drawn.
    pub is_alone: bool,
    /// Whether the keys are explained.
    pub has_help: bool,
    /// Length of the window in s; none for all of the time.
    span_s: Option<f64>,
    /// Where the window ends, in s; none for the latest.
    end_s: Option<f64>,
    /// Whom a key chose, by its place in the history; none before that, when the first of the list is.
    chosen_one: Option<usize>,
}

impl View {
    /// Does what a key asks for.
    pub fn press(&mut self, key: Key, history: &History) {
        let latest_s = history.latest_s;
        let (from, to) = self.window(history);
        let span_s = to - from;
        match key {
            Key::Pause => self.end_s = if self.end_s.is_some() { None } else { Some(latest_s) },
            Key::ZoomIn | Key::ZoomOut => {
                let factor = if key == Key::ZoomIn { 0.5 } else { 2.0 };
                let wider = (span_s * factor).clamp(SPANS_S.0, SPANS_S.1);
                self.span_s = (wider < latest_s || key == Key::ZoomIn).then_some(wider);
            }
            Key::Whole => (self.span_s, self.end_s) = (None, None),
            Key::Earlier => self.move_to(to - span_s / 4.0, span_s, latest_s),
            Key::Later => self.move_to(to + span_s / 4.0, span_s, latest_s),
            Key::First => self.move_to(0.0, span_s, latest_s),
            Key::Latest => self.end_s = None,
            Key::NextMetric => self.turn(1),
            Key::PreviousMetric => self.turn(Metric::ALL.len()),
            Key::Metric(place) => self.metric = Metric::ALL.get(place).copied().or(self.metric),
            Key::Overview => self.metric = None,
            Key::Up => self.chosen = self.chosen.saturating_sub(1),
            Key::Down => self.chosen = (self.chosen + 1).min(self.list(history).len().saturating_sub(1)),
            Key::Alone => self.is_alone = !self.is_alone,
            Key::Help => self.has_help = !self.has_help,
        }
        if matches!(key, Key::Up | Key::Down | Key::Alone) {
            self.chosen_one = self.list(history).get(self.chosen).map(|(place, _)| *place);
        }
    }

    /// Stays with the process that was chosen: another place in the list is its own when others grow, or it has ended.
    pub fn follow(&mut self, history: &History) {
        let Some(one) = self.chosen_one else { return };
        let now = self.list(history).iter().position(|(place, _)| *place == one);
        self.chosen = now.unwrap_or(self.chosen);
    }

    /// Whether the window stands still while time goes on.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.end_s.is_some()
    }

    /// From when to when, in s.
    #[must_use]
    pub fn window(&self, history: &History) -> (f64, f64) {
        let to = self.end_s.unwrap_or(history.latest_s).max(SPANS_S.0);
        match self.span_s {
            Some(span_s) => ((to - span_s).max(0.0), to.max(span_s)),
            None => (0.0, to),
        }
    }

    /// The figures to draw.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        self.metric.map_or_else(|| OVERVIEW.to_vec(), |metric| vec![metric])
    }

    /// What is shown, for a picture of it.
    #[must_use]
    pub fn choice(&self, history: &History) -> Choice {
        let (from, to) = self.window(history);
        let chosen = || self.list(history).get(self.chosen).map(|(place, _)| *place);
        let alone = if self.is_alone { chosen() } else { None };
        Choice { from, to, metrics: self.metrics(), alone }
    }

    /// The list: those that run first, the larger ones first. Each with its place in the history.
    #[must_use]
    pub fn list<'history>(&self, history: &'history History) -> Vec<(usize, &'history Track)> {
        let mut list: Vec<(usize, &Track)> =
            history.tracks.iter().enumerate().filter(|(_, track)| track.last().is_some()).collect();
        list.sort_by_key(|(_, track)| (track.exit.is_some(), std::cmp::Reverse(track.peak_rss_bytes)));
        list
    }

    fn move_to(&mut self, end_s: f64, span_s: f64, latest_s: f64) {
        self.span_s = Some(span_s);
        let end_s = end_s.max(span_s);
        self.end_s = (end_s < latest_s).then_some(end_s);
    }

    /// Through all figures and the overview, forward by 1 or backward by all but one.
    fn turn(&mut self, by: usize) {
        let all = Metric::ALL.len() + 1;
        let own = self.metric.and_then(|metric| Metric::ALL.iter().position(|one| *one == metric));
        let next = (own.map_or(0, |place| place + 1) + by) % all;
        self.metric = next.checked_sub(1).map(|place| Metric::ALL[place]);
    }
}

/// The drawn points as CSV.
#[must_use]
pub fn points_csv(history: &History, choice: &Choice) -> String {
    let mut csv = String::from("t_s,pid,name,figure,value\n");
    for metric in &choice.metrics {
        for track in choice.tracks(history) {
            let (pid, name) = (track.process.pid, crate::watch::lines::field(&track.process.name));
            for (t, value) in metric.series(&track.samples, choice.from, choice.to, usize::MAX) {
                csv += &format!("{t:.6},{pid},{name},{},{value}\n", metric.name());
            }
        }
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::recording::{Begin, FORMAT, Line, Process, Sample};

    fn history() -> History {
        let mut history = History::new();
        history.add(Line::Begin(Begin { format: FORMAT.into(), ..Begin::default() })).unwrap();
        history.add(Line::Process(Process { name: "a,b".into(), ..Process::default() })).unwrap();
        for second in 0..=100_u32 {
            let t = f64::from(second);
            history.add(Line::Sample(Sample { t, rss_bytes: Some(7), ..Sample::default() })).unwrap();
        }
        history
    }

    #[test]
    fn scrolling_stays_within_the_time_and_ends_by_moving_along() {
        let (history, mut view) = (history(), View::default());
        assert_eq!(view.window(&history), (0.0, 100.0));
        view.press(Key::ZoomIn, &history);
        view.press(Key::ZoomIn, &history);
        assert_eq!(view.window(&history), (75.0, 100.0));
        for _ in 0..50 {
            view.press(Key::Earlier, &history);
        }
        assert_eq!((view.window(&history), view.is_paused()), ((0.0, 25.0), true));
        view.press(Key::Later, &history);
        assert_eq!(view.window(&history), (6.25, 31.25));
        for _ in 0..50 {
            view.press(Key::Later, &history);
        }
        assert_eq!((view.window(&history), view.is_paused()), ((75.0, 100.0), false));
        view.press(Key::First, &history);
        assert_eq!(view.window(&history), (0.0, 25.0));
        view.press(Key::Latest, &history);
        for _ in 0..10 {
            view.press(Key::ZoomOut, &history);
        }
        assert_eq!(view.window(&history), (0.0, 100.0));
    }

    #[test]
    fn any_keys_leave_a_window_that_can_be_drawn() {
        let keys = [
            Key::Pause,
            Key::ZoomIn,
            Key::ZoomOut,
            Key::Whole,
            Key::Earlier,
            Key::Later,
            Key::First,
            Key::Latest,
            Key::NextMetric,
            Key::PreviousMetric,
            Key::Metric(3),
            Key::Metric(99),
            Key::Overview,
            Key::Up,
            Key::Down,
            Key::Alone,
            Key::Help,
        ];
        for history in [History::new(), history()] {
            let (mut view, mut seed) = (View::default(), 1_u64);
            for _ in 0..5000 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                view.press(keys[(seed >> 33) as usize % keys.len()], &history);
                let (from, to) = view.window(&history);
                assert!(from >= 0.0 && to > from && to.is_finite(), "{view:?}");
                assert!(!view.metrics().is_empty());
            }
        }
    }

    #[test]
    fn every_figure_has_its_turn_in_both_directions() {
        let (history, mut view) = (history(), View::default());
        let seen: Vec<_> = (0..Metric::ALL.len())
            .map(|_| {
                view.press(Key::NextMetric, &history);
                view.metric.unwrap()
            })
            .collect();
        assert_eq!(seen, Metric::ALL);
        view.press(Key::NextMetric, &history);
        assert_eq!(view.metric, None);
        view.press(Key::PreviousMetric, &history);
        assert_eq!(view.metric, Some(Metric::ALL[Metric::ALL.len() - 1]));
    }

    #[test]
    fn of_one_that_is_seen_alone_that_one_is_exported() {
        let (mut history, mut view) = (history(), View::default());
        let other = Process { process: 1, pid: 9, name: "other".into(), ..Process::default() };
        history.add(Line::Process(other)).unwrap();
        let sample = Sample { process: 1, t: 50.0, rss_bytes: Some(99), ..Sample::default() };
        history.add(Line::Sample(sample)).unwrap();
        view.press(Key::Alone, &history);
        let exported = |view: &View| {
            let choice = view.choice(&history);
            let (csv, svg) = (points_csv(&history, &choice), crate::plot::scene(&history, &choice).svg());
            [csv.contains("other"), svg.contains("other 9"), csv.contains("a,b"), svg.contains("a,b 0")]
        };
        assert_eq!(exported(&view), [true, true, false, false], "the larger one is the first");
        view.press(Key::Down, &history);
        assert_eq!(exported(&view), [false, false, true, true]);
        view.press(Key::Alone, &history);
        assert_eq!(exported(&view), [true; 4]);
    }

    #[test]
    fn who_was_chosen_stays_chosen_wherever_the_list_has_it() {
        let (mut history, mut view) = (history(), View::default());
        let grow = |history: &mut History, process: u32, t: f64, rss: u64| {
            let rss_bytes = Some(rss);
            history.add(Line::Sample(Sample { process, t, rss_bytes, ..Sample::default() })).unwrap();
        };
        let chosen = |view: &mut View, history: &History| {
            view.follow(history);
            view.list(history)[view.chosen].0
        };
        history.add(Line::Process(Process { process: 1, ..Process::default() })).unwrap();
        grow(&mut history, 1, 101.0, 99);
        assert_eq!(chosen(&mut view, &history), 1);
        grow(&mut history, 0, 102.0, 200);
        assert_eq!(chosen(&mut view, &history), 0, "nobody has chosen one");
        view.press(Key::Alone, &history);
        grow(&mut history, 1, 103.0, 300);
        assert_eq!(chosen(&mut view, &history), 0);
        view.press(Key::Up, &history);
        grow(&mut history, 0, 104.0, 400);
        assert_eq!(chosen(&mut view, &history), 1);
    }

    #[test]
    fn what_is_exported_is_what_is_shown() {
        let (history, mut view) = (history(), View::default());
        view.press(Key::Metric(0), &history);
        view.press(Key::ZoomIn, &history);
        let csv = points_csv(&history, &view.choice(&history));
        assert!(csv.contains("60.000000,0,\"a,b\",RSS,7\n") && !csv.contains("\n30.000000,"), "{csv}");
    }
}
