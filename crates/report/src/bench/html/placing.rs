//! Where names stand in a picture so that they do not cover each other.

/// Width of a letter of a chart's names, in pixels: an estimate on the safe side for bold sans-serif faces at 12 px.
const LETTER: f64 = 7.2;

/// The name, cut where it is longer than `letters`.
#[must_use]
pub fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// Width of a name in pixels.
#[must_use]
pub fn width(name: &str) -> f64 {
    name.chars().count() as f64 * LETTER
}

/// Heights near the wanted ones, at least `apart` from each other and within the bounds as far as there is room.
#[must_use]
pub fn apart(wanted: &[f64], apart: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let gaps = order.len().saturating_sub(1).max(1) as f64;
    let apart = apart.min((bottom - top) / gaps);
    // Groups of names that touch; each stands as near as it can to the middle of what its names want.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    let place = |sum: f64, count: usize| {
        let half = (count - 1) as f64 * apart / 2.0;
        (sum / count as f64).min(bottom - half).max(top + half)
    };
    for &name in &order {
        let mut group = (wanted[name], 1);
        while let Some(&(sum, count)) = groups.last() {
            let lower_end = place(sum, count) + (count - 1) as f64 * apart / 2.0;
            let upper_end = place(group.0, group.1) - (group.1 - 1) as f64 * apart / 2.0;
            if upper_end - lower_end >= apart - 1e-9 {
                break;
            }
            groups.pop();
            group = (group.0 + sum, group.1 + count);
        }
        groups.push(group);
    }
    let mut heights = vec![0.0; wanted.len()];
    let mut names = order.into_iter();
    for (sum, count) in groups {
        let first = place(sum, count) - (count - 1) as f64 * apart / 2.0;
        for (place, name) in names.by_ref().take(count).enumerate() {
            heights[name] = first + place as f64 * apart;
        }
    }
    heights
}

/// Which of the texts around these places of a line have room beside each other; the one of 1, with which all is compared, comes
/// before the others.
#[must_use]
pub fn with_room(texts: &[(f64, String)]) -> Vec<bool> {
    let end = |(x, text): &(f64, String), side: f64| x + side * (width(text) / 2.0 + 1.5);
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|place| texts[*place].1 != "×1");
    let mut has_room = vec![false; texts.len()];
    for place in order {
        let (left, right) = (end(&texts[place], -1.0), end(&texts[place], 1.0));
        let is_free = |other: &(f64, String)| end(other, 1.0) <= left || right <= end(other, -1.0);
        has_room[place] = texts.iter().zip(&has_room).all(|(other, is_there)| !is_there || is_free(other));
    }
    has_room
}

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Area {
    /// The rectangle around a place.
    #[must_use]
    pub fn around(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self {
            left: x - width / 2.0,
            top: y - height / 2.0,
            right: x + width / 2.0,
            bottom: y + height / 2.0,
        }
    }

    fn overlap(&self, other: &Self) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }

    fn sticks_out_of(&self, bounds: &Self) -> bool {
        self.left < bounds.left
            || self.right > bounds.right
            || self.top < bounds.top
            || self.bottom > bounds.bottom
    }
}

/// Room for a name beside each point: the nearest that covers neither points nor names placed before.
#[must_use]
pub fn beside(points: &[(f64, f64)], widths: &[f64], height: f64, bounds: &Area) -> Vec<Area> {
    let markers: Vec<Area> = points.iter().map(|(x, y)| Area::around(*x, *y, 12.0, 12.0)).collect();
    let mut placed: Vec<Area> = Vec::new();
    for (&(x, y), &width) in points.iter().zip(widths) {
        let area = |(along, down, gap): (f64, f64, f64)| {
            let (dx, dy) = (along * (width / 2.0 + gap), down * (height / 2.0 + gap));
            (Area::around(x + dx, y + dy, width, height), gap)
        };
        let badness = |(area, gap): &(Area, f64)| {
            let covered: f64 = placed.iter().chain(&markers).map(|other| area.overlap(other)).sum();
            covered * 10.0 + gap + if area.sticks_out_of(bounds) { 1e4 } else { 0.0 }
        };
        let candidates = GAPS.iter().flat_map(|gap| SIDES.iter().map(move |(a, d)| area((*a, *d, *gap))));
        let best = candidates.min_by(|a, b| badness(a).total_cmp(&badness(b)));
        placed.push(best.map_or(Area::around(x, y, width, height), |(area, _)| area));
    }
    placed
}

/// Right, left, above, below, and between.
const SIDES: [(f64, f64); 12] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (1.0, -1.0),
    (1.0, 1.0),
    (-1.0, -1.0),
    (-1.0, 1.0),
    (1.0, -0.5),
    (1.0, 0.5),
    (-1.0, -0.5),
    (-1.0, 0.5),
];

/// Pixels between a point and its name.
const GAPS: [f64; 6] = [9.0, 14.0, 20.0, 28.0, 38.0, 50.0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_distance_and_their_order() {
        let heights = apart(&[50.0, 52.0, 10.0, 51.0, 100.0], 12.0, 0.0, 100.0);
        assert_eq!(heights, [39.0, 63.0, 10.0, 51.0, 100.0]);
        let crowded = apart(&[95.0; 4], 12.0, 0.0, 100.0);
        assert_eq!(crowded, [64.0, 76.0, 88.0, 100.0]);
        assert_eq!(apart(&[5.0; 3], 80.0, 0.0, 100.0), [0.0, 50.0, 100.0]);
        assert!(apart(&[], 12.0, 0.0, 100.0).is_empty());
    }

    #[test]
    fn names_of_close_points_do_not_overlap() {
        let points = [(50.0, 50.0), (55.0, 52.0), (53.0, 47.0), (190.0, 5.0)];
        let bounds = Area { left: 0.0, top: 0.0, right: 200.0, bottom: 100.0 };
        let areas = beside(&points, &[40.0; 4], 14.0, &bounds);
        for (place, area) in areas.iter().enumerate() {
            assert!(!area.sticks_out_of(&bounds), "{area:?}");
            assert!(areas[..place].iter().all(|other| area.overlap(other) == 0.0), "{areas:?}");
        }
    }

    #[test]
    fn texts_without_room_are_left_out_and_that_of_1_is_not() {
        let texts = [(10.0, "×0.8"), (45.0, "×0.9"), (60.0, "×1"), (70.0, "×1.1"), (200.0, "×2")];
        let texts = texts.map(|(x, text)| (x, text.to_owned()));
        assert_eq!(with_room(&texts), [true, false, true, false, true]);
        assert!(with_room(&[]).is_empty());
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("mimalloc", 8), "mimalloc");
        assert_eq!(shortened("mimalloc-3-no-thp", 9), "mimalloc…");
    }
}
