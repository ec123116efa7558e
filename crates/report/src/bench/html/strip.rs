//! Ratios to the reference, one row for each cell: where a contender gains and where it loses.

use faultless_diagnosis::standing::Ratio;

use super::frame::{Frame, line, point, times};
use super::placing::{self, Area};
use super::scale::Scale;

/// One cell.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Contender, its ratio, and what is shown when it is pointed at.
    pub ratios: Vec<(usize, Ratio, String)>,
}

const WIDTH: f64 = 560.0;
/// Height of a row in pixels.
const ROW: f64 = 25.0;
const LETTERS: usize = 28;

/// The chart as a figure of HTML.
#[must_use]
pub fn figure(heading: &str, subheading: &str, rows: &[Row]) -> String {
    let names: Vec<String> = rows.iter().map(|row| placing::shortened(&row.name, LETTERS)).collect();
    let widest = names.iter().map(|name| placing::width(name)).fold(0.0, f64::max);
    let height = 28.0 + rows.len() as f64 * ROW + 26.0;
    let plot = Area { left: widest + 14.0, top: 28.0, right: WIDTH - 16.0, bottom: height - 26.0 };
    let mut frame = Frame::new(WIDTH, height, plot);
    let medians = rows.iter().flat_map(|row| row.ratios.iter().map(|(_, ratio, _)| ratio.median));
    let scale = Scale::of_ratios(medians, plot.left, plot.right);

    for (place, name) in names.iter().enumerate() {
        let y = plot.top + (place as f64 + 0.5) * ROW;
        if place % 2 == 0 {
            frame.add(&band(&plot, y));
        }
        frame.text("row-name", "end", (plot.left - 8.0, y + 4.0), name);
    }
    frame.horizontal_axis(&scale, &scale.ticks(9), times);
    // Long charts have their ticks above too.
    frame.figures_at(plot.top - 8.0, &scale, &scale.ticks(9), times);
    let one = scale.place(1.0);
    frame.line("one", (one, plot.top), (one, plot.bottom));

    for (place, row) in rows.iter().enumerate() {
        let middle = plot.top + (place as f64 + 0.5) * ROW;
        let step = (ROW * 0.5 / row.ratios.len().max(1) as f64).min(2.0);
        for (index, (contender, ratio, title)) in row.ratios.iter().enumerate() {
            let y = middle + (index as f64 - (row.ratios.len() as f64 - 1.0) / 2.0) * step;
            let whisker = line("whisker", (scale.place(ratio.low), y), (scale.place(ratio.high), y));
            let point = point(*contender, (scale.place(ratio.median), y), title);
            frame.add(&format!("<g class=\"series s{contender}\">{whisker}{point}</g>"));
        }
    }
    frame.figure(heading, subheading)
}

/// The ground of every second row.
fn band(plot: &Area, y: f64) -> String {
    let [left, top] = [0.0, y - ROW / 2.0].map(super::number::coordinate);
    let [width, height] = [plot.right, ROW].map(super::number::coordinate);
    format!("<rect class=\"band\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>")
}
