//! Time against memory as a picture by itself: one panel for each suite, one point for each contender; and one with a curve for each,
//! time by threads, where a suite ran with several numbers of threads.

use faultless_diagnosis::standing::{self, Cost};
use faultless_records::bench::{Campaign, Suite};
use faultless_records::quantity;

use crate::scene::{Anchor, Ink, Scene, Shape};

use super::board::Board;
use super::curves::{self, Curve, Curves};
use super::frame::times;
use super::number::tick;
use super::placing::{self, Area};
use super::scale::Scale;
use super::scatter::{self, Axes, Dot};
use super::words::{means_over, time_name};

/// Of a panel, in pixels.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 400.0;
/// Panels side by side.
const COLUMNS: usize = 2;
const LETTERS: usize = 20;
const LETTERS_A_LINE: usize = 60;
/// Where what the axes show is written.
const TITLES: f64 = 68.0;

/// What one panel shows of a suite.
enum View<'a> {
    /// Time against memory.
    Means(Vec<Dot<'a>>),
    /// Time by threads.
    ByThreads(Curves<'a>),
}

/// The picture; none where no contender has a geometric mean of any suite.
#[must_use]
pub fn scene(campaign: &Campaign) -> Option<Scene> {
    let board = Board::of(campaign);
    let views_of = |suite| {
        let means = |cost| board.means(suite, cost);
        let dots = scatter::dots(&board, suite, &means(Cost::time_of(suite)), &means(Cost::PeakRss));
        let has_means = !dots.is_empty();
        let curves = curves::curves(&board, suite).filter(|_| has_means);
        let by_threads = curves.map(View::ByThreads);
        has_means.then_some(View::Means(dots)).into_iter().chain(by_threads).map(move |view| (suite, view))
    };
    let views: Vec<(Suite, View)> = board.suites().flat_map(views_of).collect();
    if views.is_empty() {
        return None;
    }
    let is_means = |view: &View| matches!(view, View::Means(_));
    let names: Vec<&str> =
        views.iter().filter(|(_, view)| is_means(view)).map(|(suite, _)| suite.name()).collect();
    let mut scene = Scene {
        width: WIDTH * views.len().min(COLUMNS) as f64,
        height: HEIGHT * views.len().div_ceil(COLUMNS) as f64,
        title: format!("Time against memory: {}", names.join(", ")),
        shapes: Vec::new(),
    };
    for (place, (suite, view)) in views.iter().enumerate() {
        let corner = ((place % COLUMNS) as f64 * WIDTH, (place / COLUMNS) as f64 * HEIGHT);
        let mut panel = Panel { scene: &mut scene, corner };
        panel.text((14.0, 20.0), Anchor::Start, Ink::Text, suite.name());
        let time = time_name(*suite).to_lowercase();
        match view {
            View::Means(dots) => {
                let cells = standing::cells_of(campaign, *suite).count();
                panel.text((14.0, 36.0), Anchor::Start, Ink::Faint, &means_over(cells, board.reference()));
                panel.name_absent(&board, dots);
                panel.draw(&time, dots);
            }
            View::ByThreads(curves) => {
                let fewest = quantity::several(u64::from(curves.counts[0]), "thread");
                let over = quantity::several(curves.workloads as u64, "workload");
                let text =
                    format!("geometric means over {over}, ratios to {} with {fewest}", board.reference());
                panel.text((14.0, 36.0), Anchor::Start, Ink::Faint, &cut(&text, LETTERS_A_LINE + 10));
                panel.draw_curves(&time, curves);
            }
        }
    }
    Some(scene)
}

/// As much of a text as has room. Fonts of pixels lack the letter of three dots, too.
fn cut(text: &str, letters: usize) -> String {
    placing::shortened(text, letters).replace('…', "...")
}

struct Panel<'a> {
    scene: &'a mut Scene,
    corner: (f64, f64),
}

impl Panel<'_> {
    /// Says who has no point.
    fn name_absent(&mut self, board: &Board, dots: &[Dot]) {
        let is_shown = |contender: usize| dots.iter().any(|dot| dot.contender == contender);
        let all = 0..board.campaign.contenders.len();
        let absent: Vec<String> =
            all.filter(|one| !is_shown(*one)).map(|one| cut(board.name(one), LETTERS)).collect();
        if !absent.is_empty() {
            let text = format!("without a mean: {}", absent.join(", "));
            self.text((14.0, 52.0), Anchor::Start, Ink::Faint, &cut(&text, LETTERS_A_LINE));
        }
    }

    /// The grid with its ratios upwards and these places across, and what the axes show.
    fn draw_axes(
        &mut self,
        plot: &Area,
        (time, up): (&str, &Scale),
        (name, across): (&str, impl Iterator<Item = (f64, String)>),
    ) {
        for ratio in up.ticks(8) {
            let y = up.place(ratio);
            self.line((plot.left, y), (plot.right, y), Ink::Grid);
            self.text((plot.left - 7.0, y + 4.0), Anchor::End, Ink::Faint, &times(ratio));
        }
        let labels: Vec<(f64, String)> = across.collect();
        for ((x, label), has_room) in labels.iter().zip(placing::with_room(&labels)) {
            self.line((*x, plot.top), (*x, plot.bottom), Ink::Grid);
            if has_room {
                self.text((*x, plot.bottom + 17.0), Anchor::Middle, Ink::Faint, label);
            }
        }
        self.text((14.0, TITLES), Anchor::Start, Ink::Text, time);
        let middle = f64::midpoint(plot.left, plot.right);
        self.text((middle, HEIGHT - 10.0), Anchor::Middle, Ink::Text, name);
        self.text((plot.right, TITLES), Anchor::End, Ink::Faint, "less is better");
    }

    fn draw_curves(&mut self, time: &str, Curves { curves, counts, .. }: &Curves) {
        let names: Vec<String> = curves.iter().map(|curve| cut(curve.name, LETTERS)).collect();
        let widest = names.iter().map(|name| placing::width(name)).fold(0.0, f64::max);
        let plot = Area { left: 54.0, top: 78.0, right: WIDTH - 28.0 - widest, bottom: HEIGHT - 46.0 };
        let counts = counts.iter().copied().map(f64::from);
        let across = Scale::of_counts(counts.clone(), plot.left + 8.0, plot.right - 8.0);
        let ratios = curves.iter().flat_map(|curve| curve.points.iter().map(|(_, ratio)| *ratio));
        let up = Scale::of_ratios(ratios, plot.bottom, plot.top);
        let places = counts.map(|count| (across.place(count), tick(count)));
        self.draw_axes(&plot, (time, &up), ("threads", places));

        let last = |curve: &Curve| curve.points.last().map_or(plot.bottom, |point| up.place(point.1));
        let ends: Vec<f64> = curves.iter().map(last).collect();
        let heights = placing::apart(&ends, 14.0, plot.top, plot.bottom);
        for (((curve, name), end), height) in curves.iter().zip(&names).zip(&ends).zip(&heights) {
            let ink = Ink::Series(curve.contender);
            let place = |&(threads, ratio): &(f64, f64)| self.at((across.place(threads), up.place(ratio)));
            let points = curve.points.iter().map(place).collect();
            self.scene.shapes.push(Shape::Path { points, ink, width: 1.8, is_dashed: false });
            self.line((plot.right - 4.0, *end), (plot.right + 10.0, *height), Ink::Grid);
            self.text((plot.right + 13.0, height + 4.0), Anchor::Start, ink, name);
        }
    }

    fn draw(&mut self, time: &str, dots: &[Dot]) {
        let plot = Area { left: 54.0, top: 78.0, right: WIDTH - 18.0, bottom: HEIGHT - 46.0 };
        let axes = Axes::of(dots, &plot);
        let Axes { across, up } = &axes;

        let ratios = across.ticks(8).into_iter().map(|ratio| (across.place(ratio), times(ratio)));
        self.draw_axes(&plot, (time, up), ("peak RSS", ratios));
        let one = (across.place(1.0), up.place(1.0));
        self.line((plot.left, one.1), (plot.right, one.1), Ink::Mark);
        self.line((one.0, plot.top), (one.0, plot.bottom), Ink::Mark);
        // An arrow, which fonts of pixels lack.
        let tip = (plot.right - 126.0, TITLES);
        for tail in [(9.0, -9.0), (0.0, -6.0), (6.0, 0.0)] {
            self.line(tip, (tip.0 + tail.0, tip.1 + tail.1), Ink::Faint);
        }

        let names: Vec<String> = dots.iter().map(|dot| cut(dot.name, LETTERS)).collect();
        let areas = axes.areas(dots, &names, &plot);
        // All lines lie behind all names.
        for (dot, area) in dots.iter().zip(&areas) {
            for [from, to] in axes.whiskers(dot) {
                self.line(from, to, Ink::Series(dot.contender));
            }
            if let Some((from, to)) = scatter::leader(axes.place(dot), area) {
                self.line(from, to, Ink::Faint);
            }
        }
        for ((dot, area), name) in dots.iter().zip(&areas).zip(&names) {
            let ((x, y), ink) = (axes.place(dot), Ink::Series(dot.contender));
            let (anchor, name_x) = scatter::anchored(x, area);
            self.text((name_x, area.bottom - 3.0), anchor, ink, name);
            let centre = self.at((x, y));
            self.scene.shapes.push(Shape::Disc { centre, radius: 4.5, ink });
        }
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.corner.0 + x, self.corner.1 + y)
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), ink: Ink) {
        let points = vec![self.at(from), self.at(to)];
        self.scene.shapes.push(Shape::Path { points, ink, width: 1.0, is_dashed: ink == Ink::Mark });
    }

    fn text(&mut self, at: (f64, f64), anchor: Anchor, ink: Ink, text: &str) {
        let (at, text) = (self.at(at), text.to_owned());
        self.scene.shapes.push(Shape::Text { at, anchor, ink, text });
    }
}
