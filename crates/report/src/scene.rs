//! A picture as a list of simple shapes, so that it can be written as SVG and painted as PNG alike.

use std::fmt::Write as _;

use crate::bench::html::coordinate;
use crate::html_page::escape;

/// What a shape is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// Writing.
    Text,
    /// Writing that matters less.
    Faint,
    /// Lines of a grid.
    Grid,
    /// Marks of events.
    Mark,
    /// The line of a series.
    Series(usize),
}

/// Colours of series; each has a contrast of at least 4.5 to the white ground.
pub(crate) const COLOURS: [&str; 10] = [
    "#1d63d1", "#b84c00", "#137547", "#8a35b8", "#c12a3a", "#087583", "#7a5230", "#bb2a87", "#656f00",
    "#525d70",
];

/// Number of series that look different.
pub const MOST_SERIES: usize = COLOURS.len();

/// The ground around letters, so that no line runs through them.
const HALO: &str = "stroke=\"#fff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\"";

impl Ink {
    /// As `#rrggbb`.
    #[must_use]
    pub fn colour(self) -> &'static str {
        match self {
            Self::Text => "#1b1f26",
            Self::Faint => "#5b6472",
            Self::Grid => "#e3e6eb",
            Self::Mark => "#9aa3b2",
            Self::Series(number) => COLOURS[number % COLOURS.len()],
        }
    }
}

/// Where a text stands in relation to its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

impl Anchor {
    /// As SVG names it.
    #[must_use]
    pub fn svg(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// One shape; all in pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Straight pieces from point to point.
    Path {
        /// The points.
        points: Vec<(f64, f64)>,
        /// What with.
        ink: Ink,
        /// How wide.
        width: f64,
        /// Whether it is broken into dashes.
        is_dashed: bool,
    },
    /// A filled disc.
    Disc {
        /// Its centre.
        centre: (f64, f64),
        /// Its radius.
        radius: f64,
        /// What with.
        ink: Ink,
    },
    /// One line of text.
    Text {
        /// Its place on the base line.
        at: (f64, f64),
        /// What of it is there.
        anchor: Anchor,
        /// What with.
        ink: Ink,
        /// What it says.
        text: String,
    },
}

/// A picture on a white ground.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// In pixels.
    pub width: f64,
    /// In pixels.
    pub height: f64,
    /// What it shows to those who do not see it.
    pub title: String,
    /// From back to front.
    pub shapes: Vec<Shape>,
}

impl Scene {
    /// Whether all points of all shapes lie in the picture.
    #[cfg(test)]
    pub(crate) fn holds_its_shapes(&self) -> bool {
        let inside = |(x, y): &(f64, f64)| (0.0..=self.width).contains(x) && (0.0..=self.height).contains(y);
        self.shapes.iter().all(|shape| match shape {
            Shape::Path { points, .. } => points.iter().all(inside),
            Shape::Disc { centre, .. } => inside(centre),
            Shape::Text { at, .. } => inside(at),
        })
    }

    /// As a file of SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\" \
             font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
            coordinate(self.width),
            coordinate(self.height),
            escape(&self.title)
        );
        for shape in &self.shapes {
            write_shape(&mut svg, shape);
        }
        svg + "</svg>\n"
    }
}

fn write_shape(svg: &mut String, shape: &Shape) {
    match shape {
        Shape::Path { points, ink, width, is_dashed } => {
            let _ = write!(svg, "<path fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"", ink.colour());
            if *is_dashed {
                svg.push_str(" stroke-dasharray=\"4 3\"");
            }
            svg.push_str(" stroke-linejoin=\"round\" d=\"");
            for (place, (x, y)) in points.iter().enumerate() {
                let command = if place == 0 { 'M' } else { 'L' };
                let _ = write!(svg, "{command}{} {}", coordinate(*x), coordinate(*y));
            }
            svg.push_str("\"/>\n");
        }
        Shape::Disc { centre: (x, y), radius, ink } => {
            let (x, y, colour) = (coordinate(*x), coordinate(*y), ink.colour());
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{colour}\"/>");
        }
        Shape::Text { at: (x, y), anchor, ink, text } => {
            let anchor = anchor.svg();
            let (x, y, colour) = (coordinate(*x), coordinate(*y), ink.colour());
            let text = escape(text);
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{colour}\" {HALO}>{text}</text>"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_markup_stay_text() {
        let text = Shape::Text { at: (1.0, 2.0), anchor: Anchor::End, ink: Ink::Text, text: "<b>&".into() };
        let scene = Scene { width: 10.0, height: 5.0, title: "<t>".into(), shapes: vec![text] };
        let svg = scene.svg();
        assert!(svg.contains("&lt;b&gt;&amp;</text>") && svg.contains("<title>&lt;t&gt;"), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(
            svg.contains("paint-order=\"stroke\">&lt;b&gt;"),
            "its ground covers what lies behind: {svg}"
        );
    }
}
