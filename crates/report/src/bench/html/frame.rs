//! What all charts share: the figure around them, axes with their ticks, text.

use std::fmt::Write as _;

use crate::html_page::escape;

use super::number::{coordinate, tick};
use super::placing::{self, Area};
use super::scale::Scale;

/// A chart before it is written.
pub struct Frame {
    width: f64,
    height: f64,
    /// Where its points lie.
    pub plot: Area,
    content: String,
}

impl Frame {
    /// An empty chart of this size in pixels.
    #[must_use]
    pub fn new(width: f64, height: f64, plot: Area) -> Self {
        Self { width, height, plot, content: String::new() }
    }

    /// Adds parts of a picture.
    pub fn add(&mut self, parts: &str) {
        self.content.push_str(parts);
    }

    /// Adds a straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.add(&line(class, from, to));
    }

    /// Adds a text; `anchor` as in SVG: `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
        let (x, y) = (coordinate(x), coordinate(y));
        let text = escape(text);
        let _ = write!(
            self.content,
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        );
    }

    /// Horizontal lines at the ticks of a vertical axis.
    pub fn vertical_axis(&mut self, scale: &Scale, ticks: &[f64], written: fn(f64) -> String) {
        let Area { left, right, .. } = self.plot;
        for &figure in ticks {
            let y = scale.place(figure);
            let class = if figure == 0.0 { "axis" } else { "rule" };
            self.line(class, (left, y), (right, y));
            self.text("tick", "end", (left - 7.0, y + 4.0), &written(figure));
        }
    }

    /// Vertical lines at the ticks of a horizontal axis, with their figures below.
    pub fn horizontal_axis(&mut self, scale: &Scale, ticks: &[f64], written: fn(f64) -> String) {
        let Area { top, bottom, .. } = self.plot;
        for &figure in ticks {
            let x = scale.place(figure);
            self.line("rule", (x, top), (x, bottom));
        }
        self.figures_at(bottom + 17.0, scale, ticks, written);
    }

    /// The figures of a horizontal axis at a height, inside the chart; a tick whose figure has no room keeps its line only.
    pub fn figures_at(&mut self, y: f64, scale: &Scale, ticks: &[f64], written: fn(f64) -> String) {
        let inside = |x: f64, text: &str| x.min(self.width - placing::width(text) / 2.0);
        let texts: Vec<(f64, String)> = ticks
            .iter()
            .map(|&figure| (scale.place(figure), written(figure)))
            .map(|(x, text)| (inside(x, &text), text))
            .collect();
        for ((x, text), _) in texts.iter().zip(placing::with_room(&texts)).filter(|(_, has_room)| *has_room) {
            self.text("tick", "middle", (*x, y), text);
        }
    }

    /// The chart under its heading, which tells also those who do not see it what it shows.
    #[must_use]
    pub fn figure(self, heading: &str, subheading: &str) -> String {
        format!(
            "<figure><figcaption><b>{heading}</b> <span>{sub}</span></figcaption>\n\
             <svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{heading}, {sub}\">\
             {content}</svg></figure>\n",
            heading = escape(heading),
            sub = escape(subheading),
            width = coordinate(self.width),
            height = coordinate(self.height),
            content = self.content,
        )
    }
}

/// A straight line.
#[must_use]
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> String {
    let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(coordinate);
    format!("<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>")
}

/// A marker that shows its figures when it is pointed at, and that can be hit.
#[must_use]
pub fn point(contender: usize, (x, y): (f64, f64), figures: &str) -> String {
    let marker = super::look::marker(contender, x, y, 4.2);
    let figures = escape(figures);
    let (x, y) = (coordinate(x), coordinate(y));
    format!(
        "<g class=\"point\"><title>{figures}</title><circle class=\"hit\" cx=\"{x}\" cy=\"{y}\" r=\"9\"/>{marker}</g>"
    )
}

/// A ratio at a tick: `×1.5`.
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("×{}", tick(ratio))
}
