//! Paints a picture as PNG.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, RasterizedChar, get_raster, get_raster_width};
use tiny_skia::{Color, FillRule, LineJoin, Paint, PathBuilder, Pixmap, Stroke, StrokeDash, Transform};

use crate::scene::{Anchor, Ink, Scene, Shape};

const WEIGHT: FontWeight = FontWeight::Regular;
const HEIGHT: RasterHeight = RasterHeight::Size16;
/// From the upper edge of a letter's picture to its base line, in pixels.
const ASCENT: f64 = 13.0;

/// The picture's bytes; none when it is too large to paint.
#[must_use]
pub fn png(scene: &Scene) -> Option<Vec<u8>> {
    let mut map = Pixmap::new(scene.width.ceil() as u32, scene.height.ceil() as u32)?;
    map.fill(Color::WHITE);
    for shape in &scene.shapes {
        match shape {
            Shape::Path { points, ink, width, is_dashed } => {
                paint_path(&mut map, points, *ink, *width, *is_dashed)
            }
            Shape::Disc { centre, radius, ink } => paint_disc(&mut map, *centre, *radius, *ink),
            Shape::Text { at, anchor, ink, text } => paint_text(&mut map, *at, *anchor, *ink, text),
        }
    }
    map.encode_png().ok()
}

fn paint(ink: Ink) -> Paint<'static> {
    let [red, green, blue] = parts(ink);
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}

/// Red, green and blue of `#rrggbb`.
fn parts(ink: Ink) -> [u8; 3] {
    let colour = ink.colour();
    [1, 3, 5].map(|at| u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0))
}

fn paint_path(map: &mut Pixmap, points: &[(f64, f64)], ink: Ink, width: f64, is_dashed: bool) {
    let mut path = PathBuilder::new();
    for (place, (x, y)) in points.iter().enumerate() {
        // Thin straight lines on whole pixels stay sharp.
        let (x, y) = if width <= 1.0 { (x.floor() + 0.5, y.floor() + 0.5) } else { (*x, *y) };
        match place {
            0 => path.move_to(x as f32, y as f32),
            _ => path.line_to(x as f32, y as f32),
        }
    }
    let dash = if is_dashed { StrokeDash::new(vec![4.0, 3.0], 0.0) } else { None };
    let stroke = Stroke { width: width as f32, line_join: LineJoin::Round, dash, ..Stroke::default() };
    if let Some(path) = path.finish() {
        map.stroke_path(&path, &paint(ink), &stroke, Transform::identity(), None);
    }
}

fn paint_disc(map: &mut Pixmap, centre: (f64, f64), radius: f64, ink: Ink) {
    if let Some(path) = PathBuilder::from_circle(centre.0 as f32, centre.1 as f32, radius as f32) {
        map.fill_path(&path, &paint(ink), FillRule::Winding, Transform::identity(), None);
    }
}

fn paint_text(map: &mut Pixmap, at: (f64, f64), anchor: Anchor, ink: Ink, text: &str) {
    let step = get_raster_width(WEIGHT, HEIGHT);
    let width = (text.chars().count() * step) as f64;
    let left = match anchor {
        Anchor::Start => at.0,
        Anchor::Middle => at.0 - width / 2.0,
        Anchor::End => at.0 - width,
    };
    let (left, top) = (left.round() as i64, (at.1 - ASCENT).round() as i64);
    let letters: Vec<(i64, RasterizedChar)> =
        (0..).zip(text.chars()).filter_map(|(place, letter)| Some((place, raster(letter)?))).collect();
    // The ground around all of them first, so that no line runs through them.
    for (place, letter) in &letters {
        for (across, down) in AROUND {
            paint_letter(map, (left + place * step as i64 + across, top + down), letter, [255; 3]);
        }
    }
    for (place, letter) in &letters {
        paint_letter(map, (left + place * step as i64, top), letter, parts(ink));
    }
}

/// The pixels beside one.
const AROUND: [(i64, i64); 8] = [(-1, -1), (0, -1), (1, -1), (-1, 0), (1, 0), (-1, 1), (0, 1), (1, 1)];

/// Letters that the font lacks become a question mark.
fn raster(letter: char) -> Option<RasterizedChar> {
    get_raster(letter, WEIGHT, HEIGHT).or_else(|| get_raster('?', WEIGHT, HEIGHT))
}

fn paint_letter(map: &mut Pixmap, at: (i64, i64), letter: &RasterizedChar, colour: [u8; 3]) {
    let (width, height) = (i64::from(map.width()), i64::from(map.height()));
    for (row, line) in letter.rows().enumerate() {
        for (column, cover) in line.iter().enumerate() {
            let (x, y) = (at.0 + column as i64, at.1 + row as i64);
            if !(0..width).contains(&x) || !(0..height).contains(&y) {
                continue;
            }
            let first = ((y * width + x) * 4) as usize;
            for (part, new) in map.data_mut()[first..first + 3].iter_mut().zip(colour) {
                let (old, cover) = (u32::from(*part), u32::from(*cover));
                *part = ((old * (255 - cover) + u32::from(new) * cover) / 255) as u8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_size_and_its_ink() {
        let line = Shape::Path {
            points: vec![(5.0, 20.0), (95.0, 20.0)],
            ink: Ink::Series(0),
            width: 3.0,
            is_dashed: false,
        };
        let text = |at| Shape::Text { at, anchor: Anchor::Middle, ink: Ink::Text, text: "100 ×".into() };
        // Text beyond the edges is cut off there.
        let shapes = vec![line, text((50.0, 40.0)), text((-3.0, 2.0)), text((99.0, 51.0))];
        let scene = Scene { width: 100.0, height: 50.0, title: String::new(), shapes };
        let bytes = png(&scene).unwrap();
        let map = Pixmap::decode_png(&bytes).unwrap();
        assert_eq!((map.width(), map.height()), (100, 50));
        let at = |x, y| map.pixel(x, y).unwrap();
        assert_eq!((at(50, 20).red(), at(50, 20).blue()), (0x1d, 0xd1));
        assert_eq!(at(50, 10).red(), 255);
        let is_dark = |x| (28..42).any(|y| at(x, y).red() < 128);
        assert!((30..70).filter(|x| is_dark(*x)).count() > 10);
        let crossed = Shape::Path {
            points: vec![(5.0, 35.0), (95.0, 35.0)],
            ink: Ink::Series(0),
            width: 30.0,
            is_dashed: false,
        };
        let shapes = vec![crossed, text((50.0, 40.0))];
        let map = Pixmap::decode_png(&png(&Scene { shapes, ..scene.clone() }).unwrap()).unwrap();
        let is_ground = |x| (28..42).any(|y| map.pixel(x, y).is_some_and(|pixel| pixel.red() > 250));
        assert!((30..70).filter(|x| is_ground(*x)).count() > 10, "no line runs through letters");
        assert!(png(&Scene { width: 0.0, ..scene }).is_none());
    }
}
