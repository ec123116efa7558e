//! How contenders are told apart: by colour, by marker and by dash, each of which would do alone for a few.

use std::f64::consts::{FRAC_PI_2, TAU};
use std::fmt::Write as _;

use faultless_records::bench::Contender;

use crate::html_page::escape;
use crate::scene::COLOURS;

use super::number::coordinate;

/// Colours on the dark ground, each with a contrast of at least 4.5 to it; on the light one those of pictures.
const DARK: [&str; COLOURS.len()] = [
    "#78aeff", "#ff9d57", "#52cc8b", "#cb98f5", "#ff8087", "#4accda", "#d0aa85", "#f78fce", "#c4ce4c",
    "#aab6c8",
];

/// The grounds that charts stand on, as in `page.css`.
#[cfg(test)]
const GROUNDS: (&str, &str) = ("#ffffff", "#1b1f26");

/// Dashes, in pixels; the first is solid.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

/// Rules of the page that name single contenders: their colours, and what choosing one in the legend does.
#[must_use]
pub fn rules(contenders: usize) -> String {
    let mut rules = String::new();
    let colours = |of: &[&str]| -> String {
        (0..contenders).fold(String::new(), |mut all, index| {
            let _ = write!(all, ".s{index}{{--ink:{}}}", of[index % of.len()]);
            all
        })
    };
    let _ = writeln!(rules, "{}", colours(&COLOURS));
    let _ = writeln!(rules, "@media (prefers-color-scheme:dark){{{}}}", colours(&DARK));
    for index in 0..contenders {
        let dash = DASHES[index % DASHES.len()];
        let _ = writeln!(rules, ".s{index} .line{{stroke-dasharray:{dash}}}");
        let _ = writeln!(rules, "body:has(#show-{index}:not(:checked)) .chart .s{index}{{display:none}}");
        let _ = writeln!(
            rules,
            "body:has(.legend .s{index}:hover) .chart .series:not(.s{index}),\
             .chart:has(.s{index}:hover) .series:not(.s{index}){{opacity:.13}}"
        );
    }
    rules
}

/// The legend: a sample of each line, and a box that hides it in all charts.
#[must_use]
pub fn legend(contenders: &[Contender]) -> String {
    let mut legend = String::from("<fieldset class=\"legend\"><legend>Shown in the charts</legend>\n");
    for (index, contender) in contenders.iter().enumerate() {
        let _ = writeln!(
            legend,
            "<label class=\"s{index}\"><input type=\"checkbox\" id=\"show-{index}\" checked autocomplete=\"off\">{}{}</label>",
            sample(index),
            escape(&contender.name)
        );
    }
    legend.push_str("</fieldset>\n");
    legend
}

/// A piece of a contender's line, with its marker.
#[must_use]
pub fn sample(contender: usize) -> String {
    format!(
        "<svg class=\"sample s{contender}\" viewBox=\"0 0 34 14\" width=\"34\" height=\"14\" aria-hidden=\"true\">\
         <path class=\"line\" d=\"M1 7H33\"/>{}</svg>",
        marker(contender, 17.0, 7.0, 4.5)
    )
}

/// A contender's marker around a place.
#[must_use]
pub fn marker(contender: usize, x: f64, y: f64, radius: f64) -> String {
    format!("<path class=\"marker\" d=\"{}\"/>", outline(contender % MARKERS, x, y, radius))
}

/// Shapes of markers.
const MARKERS: usize = 12;

fn outline(shape: usize, x: f64, y: f64, radius: f64) -> String {
    // The last three are hollow: the same outline once more, inside.
    let hollow = |shape: usize| outline(shape, x, y, radius * 1.15) + &outline(shape, x, y, radius * 0.5);
    match shape {
        0 => {
            let (left, r, across) = (coordinate(x - radius), coordinate(radius), coordinate(2.0 * radius));
            format!("M{left} {}a{r} {r} 0 1 0 {across} 0a{r} {r} 0 1 0 -{across} 0Z", coordinate(y))
        }
        1 => polygon(x, y, &corners(4, radius * 1.25, TAU / 8.0)),
        2 => polygon(x, y, &corners(3, radius * 1.35, -FRAC_PI_2)),
        3 => polygon(x, y, &corners(4, radius * 1.35, 0.0)),
        4 => polygon(x, y, &corners(3, radius * 1.35, FRAC_PI_2)),
        5 => polygon(x, y, &cross(radius * 1.25, 0.0)),
        6 => polygon(x, y, &cross(radius * 1.3, TAU / 8.0)),
        7 => polygon(x, y, &star(radius * 1.5)),
        8 => polygon(x, y, &BOW.map(|(a, b)| (a * radius, b * radius))),
        9 => hollow(0),
        10 => hollow(1),
        _ => hollow(3),
    }
}

/// Two triangles that touch.
const BOW: [(f64, f64); 6] =
    [(-1.5, -1.25), (0.0, -0.35), (1.5, -1.25), (1.5, 1.25), (0.0, 0.35), (-1.5, 1.25)];

fn polygon(x: f64, y: f64, corners: &[(f64, f64)]) -> String {
    let mut outline = String::new();
    for (place, (dx, dy)) in corners.iter().enumerate() {
        let command = if place == 0 { 'M' } else { 'L' };
        let _ = write!(outline, "{command}{} {}", coordinate(x + dx), coordinate(y + dy));
    }
    outline + "Z"
}

fn corners(count: u32, radius: f64, turn: f64) -> Vec<(f64, f64)> {
    let angle = |corner: u32| turn + TAU * f64::from(corner) / f64::from(count);
    (0..count).map(|corner| (radius * angle(corner).cos(), radius * angle(corner).sin())).collect()
}

fn star(radius: f64) -> Vec<(f64, f64)> {
    let (tips, notches) =
        (corners(5, radius, -FRAC_PI_2), corners(5, radius * 0.45, -FRAC_PI_2 + TAU / 10.0));
    tips.into_iter().zip(notches).flat_map(|(tip, notch)| [tip, notch]).collect()
}

fn cross(length: f64, turn: f64) -> Vec<(f64, f64)> {
    let (a, b) = (length, length * 0.36);
    let corners = [
        (a, -b),
        (a, b),
        (b, b),
        (b, a),
        (-b, a),
        (-b, b),
        (-a, b),
        (-a, -b),
        (-b, -b),
        (-b, -a),
        (b, -a),
        (b, -b),
    ];
    let (sine, cosine) = turn.sin_cos();
    corners.into_iter().map(|(x, y)| (x * cosine - y * sine, x * sine + y * cosine)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as in WCAG 2.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn every_colour_can_be_read_on_its_ground() {
        for (light, dark) in COLOURS.into_iter().zip(DARK) {
            assert!(contrast(light, GROUNDS.0) >= 4.5, "{light}: {}", contrast(light, GROUNDS.0));
            assert!(contrast(dark, GROUNDS.1) >= 4.5, "{dark}: {}", contrast(dark, GROUNDS.1));
        }
        for ground in [GROUNDS.0, GROUNDS.1] {
            assert!(super::super::STYLE.contains(&format!("--card: {ground}")), "{ground}");
        }
    }

    #[test]
    fn forty_contenders_have_looks_of_their_own() {
        let look = |index: usize| (marker(index, 0.0, 0.0, 4.0), index % COLOURS.len(), index % DASHES.len());
        let looks: std::collections::HashSet<_> = (0..40).map(look).collect();
        assert_eq!(looks.len(), 40);
    }
}
