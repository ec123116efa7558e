//! Time against memory as a picture by itself: one panel for each suite, one point for each contender.

use faultless_diagnosis::standing::{self, Metric};
use faultless_records::bench::{Campaign, Suite};

use crate::scene::{Anchor, Ink, Scene, Shape};

use super::board::Board;
use super::frame::times;
use super::placing::{self, Area};
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

/// The picture; none where no contender has a geometric mean of any suite.
#[must_use]
pub fn scene(campaign: &Campaign) -> Option<Scene> {
    let board = Board::of(campaign);
    let suites: Vec<(Suite, Vec<Dot>)> = board
        .suites()
        .map(|suite| {
            let means = |metric| board.means(suite, metric);
            (suite, scatter::dots(&board, suite, &means(Metric::time_of(suite)), &means(Metric::PeakRss)))
        })
        .filter(|(_, dots)| !dots.is_empty())
        .collect();
    if suites.is_empty() {
        return None;
    }
    let names: Vec<&str> = suites.iter().map(|(suite, _)| suite.name()).collect();
    let mut scene = Scene {
        width: WIDTH * suites.len().min(COLUMNS) as f64,
        height: HEIGHT * suites.len().div_ceil(COLUMNS) as f64,
        title: format!("Time against memory: {}", names.join(", ")),
        shapes: Vec::new(),
    };
    for (place, (suite, dots)) in suites.iter().enumerate() {
        let corner = ((place % COLUMNS) as f64 * WIDTH, (place / COLUMNS) as f64 * HEIGHT);
        let cells = standing::cells_of(campaign, *suite).count();
        let mut panel = Panel { scene: &mut scene, corner };
        panel.text((14.0, 20.0), Anchor::Start, Ink::Text, suite.name());
        panel.text((14.0, 36.0), Anchor::Start, Ink::Faint, &means_over(cells, board.reference()));
        let is_shown = |contender: usize| dots.iter().any(|dot| dot.contender == contender);
        let absent: Vec<usize> = (0..campaign.contenders.len()).filter(|one| !is_shown(*one)).collect();
        if !absent.is_empty() {
            let names: Vec<String> = absent.iter().map(|one| cut(board.name(*one), LETTERS)).collect();
            let text = format!("without a mean: {}", names.join(", "));
            panel.text((14.0, 52.0), Anchor::Start, Ink::Faint, &cut(&text, LETTERS_A_LINE));
        }
        panel.draw(&time_name(*suite).to_lowercase(), dots);
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
    fn draw(&mut self, time: &str, dots: &[Dot]) {
        let plot = Area { left: 54.0, top: 78.0, right: WIDTH - 18.0, bottom: HEIGHT - 46.0 };
        let axes = Axes::of(dots, &plot);
        let Axes { across, up } = &axes;

        for ratio in up.ticks(8) {
            let y = up.place(ratio);
            self.line((plot.left, y), (plot.right, y), Ink::Grid);
            self.text((plot.left - 7.0, y + 4.0), Anchor::End, Ink::Faint, &times(ratio));
        }
        for ratio in across.ticks(8) {
            let x = across.place(ratio);
            self.line((x, plot.top), (x, plot.bottom), Ink::Grid);
            self.text((x, plot.bottom + 17.0), Anchor::Middle, Ink::Faint, &times(ratio));
        }
        let one = (across.place(1.0), up.place(1.0));
        self.line((plot.left, one.1), (plot.right, one.1), Ink::Mark);
        self.line((one.0, plot.top), (one.0, plot.bottom), Ink::Mark);
        self.text((14.0, TITLES), Anchor::Start, Ink::Text, time);
        let middle = f64::midpoint(plot.left, plot.right);
        self.text((middle, HEIGHT - 10.0), Anchor::Middle, Ink::Text, "peak RSS");
        self.text((plot.right, TITLES), Anchor::End, Ink::Faint, "less is better");
        // An arrow, which fonts of pixels lack.
        let tip = (plot.right - 126.0, TITLES);
        for tail in [(9.0, -9.0), (0.0, -6.0), (6.0, 0.0)] {
            self.line(tip, (tip.0 + tail.0, tip.1 + tail.1), Ink::Faint);
        }

        let names: Vec<String> = dots.iter().map(|dot| cut(dot.name, LETTERS)).collect();
        let areas = axes.areas(dots, &names, &plot);
        for ((dot, area), name) in dots.iter().zip(&areas).zip(&names) {
            let ((x, y), ink) = (axes.place(dot), Ink::Series(dot.contender));
            for [from, to] in axes.whiskers(dot) {
                self.line(from, to, ink);
            }
            if let Some((from, to)) = scatter::leader((x, y), area) {
                self.line(from, to, Ink::Faint);
            }
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
