//! A figure by the number of threads: one line for each contender, with the range of its runs.

use std::fmt::Write as _;

use crate::html_page::escape;

use super::frame::{Frame, line, point};
use super::number::{coordinate, tick};
use super::placing::{self, Area};
use super::scale::Scale;

/// One contender's line.
pub struct Series<'a> {
    /// Its index.
    pub contender: usize,
    /// Its name.
    pub name: &'a str,
    /// Its points, by rising number of threads.
    pub points: Vec<Point>,
}

/// One cell.
pub struct Point {
    /// Number of threads.
    pub threads: f64,
    /// Median, minimum and maximum.
    pub figure: (f64, f64, f64),
    /// What is shown when it is pointed at.
    pub title: String,
}

/// What is drawn, with its headings.
pub struct Chart<'a> {
    /// Above the chart: what it shows.
    pub heading: &'a str,
    /// Beside the heading: of what.
    pub subheading: &'a str,
    /// At the vertical axis: figure and unit.
    pub unit: &'a str,
    /// The lines.
    pub series: &'a [Series<'a>],
}

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;
/// Letters of a name that stands beside its line.
const LETTERS: usize = 19;

/// The chart as a figure of HTML.
#[must_use]
pub fn figure(chart: &Chart) -> String {
    let shown: Vec<&Series> = chart.series.iter().filter(|series| !series.points.is_empty()).collect();
    let names: Vec<String> = shown.iter().map(|series| placing::shortened(series.name, LETTERS)).collect();
    let widest = names.iter().map(|name| placing::width(name)).fold(0.0, f64::max);
    let plot = Area { left: 52.0, top: 30.0, right: WIDTH - widest - 28.0, bottom: HEIGHT - 42.0 };
    let mut frame = Frame::new(WIDTH, HEIGHT, plot);

    let points = || shown.iter().flat_map(|series| &series.points);
    let ends = points().flat_map(|point| [point.figure.1, point.figure.2]);
    let vertical = Scale::of_amounts(ends, plot.bottom, plot.top);
    let mut counts: Vec<f64> = points().map(|point| point.threads).collect();
    counts.sort_by(f64::total_cmp);
    counts.dedup();
    let horizontal = Scale::of_counts(counts.iter().copied(), plot.left + 16.0, plot.right - 16.0);

    let suffix = if vertical.is_logarithmic { ", logarithmic axis" } else { "" };
    frame.vertical_axis(&vertical, &vertical.ticks(6), tick);
    frame.horizontal_axis(&horizontal, &counts, tick);
    frame.line("axis", (plot.left, plot.bottom), (plot.right, plot.bottom));
    frame.text("axis-name", "start", (8.0, 14.0), &format!("{}{suffix}", chart.unit));
    frame.text("axis-name", "middle", (f64::midpoint(plot.left, plot.right), HEIGHT - 6.0), "threads");

    let dodge = Dodge::new(shown.len(), &counts, &horizontal);
    let ends: Vec<(f64, f64)> = shown
        .iter()
        .enumerate()
        .filter_map(|(place, series)| {
            let last = series.points.last()?;
            Some((dodge.place(place, last.threads), vertical.place(last.figure.0)))
        })
        .collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let heights = placing::apart(&wanted, 14.0, plot.top, plot.bottom);
    for (place, series) in shown.iter().enumerate() {
        let x_of = |threads: f64| dodge.place(place, threads);
        let mut group = drawn(series, x_of, &vertical);
        let name_x = plot.right + 16.0;
        let (from, to) = (ends[place], (name_x - 4.0, heights[place]));
        group.push_str(&line("leader", (from.0 + 7.0, from.1), to));
        let _ = write!(
            group,
            "<text class=\"name\" x=\"{}\" y=\"{}\">{}</text>",
            coordinate(name_x),
            coordinate(heights[place] + 4.0),
            escape(&names[place])
        );
        frame.add(&format!("<g class=\"series s{}\">{group}</g>", series.contender));
    }
    frame.figure(chart.heading, chart.subheading)
}

/// Whiskers, line and markers of a series.
fn drawn(series: &Series, x_of: impl Fn(f64) -> f64, vertical: &Scale) -> String {
    let (mut whiskers, mut outline, mut markers) = (String::new(), String::new(), String::new());
    for (place, one) in series.points.iter().enumerate() {
        let (median, low, high) = one.figure;
        let (x, y) = (x_of(one.threads), vertical.place(median));
        let (bottom, top) = (vertical.place(low), vertical.place(high));
        if bottom - top > 1.0 {
            whiskers.push_str(&line("whisker", (x, bottom), (x, top)));
            for end in [bottom, top] {
                whiskers.push_str(&line("whisker", (x - 2.5, end), (x + 2.5, end)));
            }
        }
        let _ = write!(outline, "{}{} {}", if place == 0 { 'M' } else { 'L' }, coordinate(x), coordinate(y));
        markers.push_str(&point(series.contender, (x, y), &one.title));
    }
    format!(
        "{whiskers}<path class=\"reach\" d=\"{outline}\"/><path class=\"line\" d=\"{outline}\"/>{markers}"
    )
}

/// Moves the points of one thread count a little apart, so that the ranges of contenders do not hide each other.
struct Dodge<'a> {
    step: f64,
    middle: f64,
    scale: &'a Scale,
}

impl<'a> Dodge<'a> {
    fn new(series: usize, counts: &[f64], scale: &'a Scale) -> Self {
        let gaps = counts.windows(2).map(|pair| scale.place(pair[1]) - scale.place(pair[0]));
        let room = gaps.fold(40.0, f64::min) * 0.5;
        Self { step: (room / series.max(1) as f64).min(2.5), middle: (series as f64 - 1.0) / 2.0, scale }
    }

    fn place(&self, series: usize, threads: f64) -> f64 {
        self.scale.place(threads) + (series as f64 - self.middle) * self.step
    }
}
