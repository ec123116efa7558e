//! Time against memory: one point for each contender.

use std::fmt::Write as _;

use faultless_diagnosis::standing::Ratio;
use faultless_records::bench::Suite;

use crate::html_page::escape;
use crate::scene::Anchor;

use super::board::{Board, Mean};
use super::frame::{Frame, line, point, times};
use super::number::coordinate;
use super::placing::{self, Area};
use super::scale::Scale;
use super::words::{ratio_of, time_name};

/// One contender.
pub struct Dot<'a> {
    /// Its index.
    pub contender: usize,
    /// Its name.
    pub name: &'a str,
    /// Geometric mean of its memory's ratio to the reference's.
    pub memory: Ratio,
    /// The same of time.
    pub time: Ratio,
    /// What is shown when it is pointed at.
    pub title: String,
}

/// The contenders that have means of both.
#[must_use]
pub fn dots<'a>(board: &'a Board, suite: Suite, times: &[Mean], memories: &[Mean]) -> Vec<Dot<'a>> {
    let all = times.iter().zip(memories).enumerate();
    all.filter_map(|(contender, (time, memory))| {
        let (time, memory, name) = (time.ratio?, memory.ratio?, board.name(contender));
        let of = |ratio| ratio_of(ratio, board.reference());
        let measure = time_name(suite).to_lowercase();
        let title = format!("{name}: {measure} {}, peak RSS {}", of(&time), of(&memory));
        Some(Dot { contender, name, memory, time, title })
    })
    .collect()
}

/// Both axes in a plot, logarithmic, with a place for all ends of intervals.
pub struct Axes {
    /// Memory, from left to right.
    pub across: Scale,
    /// Time, from below.
    pub up: Scale,
}

impl Axes {
    /// For these contenders.
    #[must_use]
    pub fn of(dots: &[Dot], plot: &Area) -> Self {
        let ends = |of: fn(&Dot) -> Ratio| dots.iter().flat_map(move |dot| [of(dot).low, of(dot).high]);
        Self {
            across: Scale::of_ratios(ends(|dot| dot.memory), plot.left, plot.right),
            up: Scale::of_ratios(ends(|dot| dot.time), plot.bottom, plot.top),
        }
    }

    /// Where a contender's point stands.
    #[must_use]
    pub fn place(&self, dot: &Dot) -> (f64, f64) {
        (self.across.place(dot.memory.median), self.up.place(dot.time.median))
    }

    /// The ends of its intervals, of memory and of time.
    #[must_use]
    pub fn whiskers(&self, dot: &Dot) -> [[(f64, f64); 2]; 2] {
        let (x, y) = self.place(dot);
        let [left, right] = [dot.memory.low, dot.memory.high].map(|ratio| (self.across.place(ratio), y));
        let [bottom, top] = [dot.time.low, dot.time.high].map(|ratio| (x, self.up.place(ratio)));
        [[left, right], [bottom, top]]
    }

    /// Where the names of all stand, none on another or on a point.
    #[must_use]
    pub fn areas(&self, dots: &[Dot], names: &[String], plot: &Area) -> Vec<Area> {
        let places: Vec<(f64, f64)> = dots.iter().map(|dot| self.place(dot)).collect();
        let widths: Vec<f64> = names.iter().map(|name| placing::width(name)).collect();
        placing::beside(&places, &widths, 14.0, plot)
    }
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 470.0;

/// The chart as a figure of HTML.
#[must_use]
pub fn figure(heading: &str, subheading: &str, time: &str, dots: &[Dot]) -> String {
    let plot = Area { left: 58.0, top: 30.0, right: WIDTH - 14.0, bottom: HEIGHT - 44.0 };
    let mut frame = Frame::new(WIDTH, HEIGHT, plot);
    let axes = Axes::of(dots, &plot);

    frame.vertical_axis(&axes.up, &axes.up.ticks(8), times);
    frame.horizontal_axis(&axes.across, &axes.across.ticks(9), times);
    let one = (axes.across.place(1.0), axes.up.place(1.0));
    frame.line("one", (plot.left, one.1), (plot.right, one.1));
    frame.line("one", (one.0, plot.top), (one.0, plot.bottom));
    frame.text("axis-name", "start", (8.0, 14.0), time);
    frame.text("axis-name", "middle", (f64::midpoint(plot.left, plot.right), HEIGHT - 7.0), "peak RSS");
    frame.text("better", "end", (plot.right, 14.0), "↙ less is better");

    let names: Vec<String> = dots.iter().map(|dot| placing::shortened(dot.name, 20)).collect();
    let areas = axes.areas(dots, &names, &plot);
    // All lines lie behind all names.
    for (dot, area) in dots.iter().zip(&areas) {
        let mut group: String = axes.whiskers(dot).map(|[from, to]| line("whisker", from, to)).concat();
        if let Some((from, to)) = leader(axes.place(dot), area) {
            group += &line("leader", from, to);
        }
        frame.add(&format!("<g class=\"series s{}\">{group}</g>", dot.contender));
    }
    for (place, dot) in dots.iter().enumerate() {
        let (x, y) = axes.place(dot);
        let mut group = String::new();
        let (anchor, name_x) = anchored(x, &areas[place]);
        let _ = write!(
            group,
            "<text class=\"name\" text-anchor=\"{}\" x=\"{}\" y=\"{}\">{}</text>",
            anchor.svg(),
            coordinate(name_x),
            coordinate(areas[place].bottom - 3.0),
            escape(&names[place])
        );
        group += &point(dot.contender, (x, y), &dot.title);
        frame.add(&format!("<g class=\"series s{}\">{group}</g>", dot.contender));
    }
    frame.figure(heading, subheading)
}

/// A name begins or ends at the side of its point, so that a face wider or narrower than thought leaves no gap there.
#[must_use]
pub fn anchored(x: f64, area: &Area) -> (Anchor, f64) {
    if area.left >= x {
        (Anchor::Start, area.left)
    } else if area.right <= x {
        (Anchor::End, area.right)
    } else {
        (Anchor::Middle, f64::midpoint(area.left, area.right))
    }
}

/// The ends of a line from a point to its name, where that stands far off.
#[must_use]
pub fn leader((x, y): (f64, f64), area: &Area) -> Option<((f64, f64), (f64, f64))> {
    let end = (x.clamp(area.left, area.right), y.clamp(area.top, area.bottom));
    let length = (end.0 - x).hypot(end.1 - y);
    let part = 6.0 / length;
    (length >= 13.0).then_some(((x + (end.0 - x) * part, y + (end.1 - y) * part), end))
}
