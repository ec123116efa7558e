//! Axes: from a figure to a place in the picture, and the ticks between.

use crate::axis::nice_step;

/// From figures to pixels.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    /// Whether equal ratios, not equal differences, are equally far apart.
    pub is_logarithmic: bool,
}

/// Beyond this ratio of the largest to the smallest figure an axis from 0 would press most lines onto its ground.
const WIDEST_LINEAR: f64 = 5.0;

impl Scale {
    /// An axis for amounts: from 0, or logarithmic where the figures lie far apart.
    #[must_use]
    pub fn of_amounts(figures: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let (low, high) = range(figures);
        if low > 0.0 && high / low > WIDEST_LINEAR {
            return Self { low: low / 1.15, high: high * 1.15, start, end, is_logarithmic: true };
        }
        let high = if high > 0.0 { high } else { 1.0 };
        let step = nice_step(high / 4.0);
        Self { low: 0.0, high: (high / step - 1e-9).ceil() * step, start, end, is_logarithmic: false }
    }

    /// A logarithmic axis for ratios, on which 1 has a place.
    #[must_use]
    pub fn of_ratios(ratios: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let (low, high) = range(ratios.filter(|ratio| *ratio > 0.0).chain([1.0]));
        let margin = (high / low).powf(0.08).max(1.04);
        Self { low: low / margin, high: high * margin, start, end, is_logarithmic: true }
    }

    /// An axis on which exactly these counts have places: logarithmic where they grow like powers.
    #[must_use]
    pub fn of_counts(counts: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let (low, high) = range(counts);
        let is_logarithmic = low > 0.0 && high / low > 12.0;
        Self { low, high, start, end, is_logarithmic }
    }

    /// Where a figure stands; at the end of the axis if it lies beyond.
    #[must_use]
    pub fn place(&self, figure: f64) -> f64 {
        let (low, high, figure) = if self.is_logarithmic {
            (self.low.ln(), self.high.ln(), figure.max(f64::MIN_POSITIVE).ln())
        } else {
            (self.low, self.high, figure)
        };
        let part = if high > low { (figure - low) / (high - low) } else { 0.5 };
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.start + part * (self.end - self.start)
    }

    /// Round figures along the axis, at most `most`.
    #[must_use]
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.is_logarithmic && self.high / self.low > 1.8 {
            let all = MANTISSAS.iter().map(|mantissas| self.powers(mantissas));
            let fitting = all.filter(|ticks| ticks.len() <= most).max_by_key(Vec::len);
            return fitting.filter(|ticks| ticks.len() > 1).unwrap_or_else(|| self.wide_powers(most));
        }
        let step = nice_step((self.high - self.low) / most.max(2) as f64);
        let first = (self.low / step - 1e-9).ceil();
        (0..=most)
            .map(|i| (first + i as f64) * step)
            .filter(|tick| *tick <= self.high * (1.0 + 1e-9))
            .collect()
    }

    /// The mantissas times powers of ten that lie on the axis.
    fn powers(&self, mantissas: &[f64]) -> Vec<f64> {
        // No figure has a power beyond these, and an axis whose end is infinite has no more ticks than they.
        let power = |figure: f64| figure.log10().clamp(-330.0, 310.0);
        let powers = power(self.low).floor() as i32..=power(self.high).ceil() as i32;
        let ticks =
            powers.flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * 10_f64.powi(power)));
        ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }

    /// Every second, third ... power of ten.
    fn wide_powers(&self, most: usize) -> Vec<f64> {
        let powers = self.powers(&[1.0]);
        let every = powers.len().div_ceil(most.max(1)).max(1);
        powers.into_iter().step_by(every).collect()
    }
}

/// From sparse to dense.
const MANTISSAS: [&[f64]; 5] = [
    &[1.0],
    &[1.0, 3.0],
    &[1.0, 2.0, 5.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
];

/// The smallest and largest finite figure; 0 and 1 of nothing.
fn range(figures: impl Iterator<Item = f64>) -> (f64, f64) {
    let widen = |range: Option<(f64, f64)>, figure: f64| {
        let (low, high) = range.unwrap_or((figure, figure));
        Some((low.min(figure), high.max(figure)))
    };
    figures.filter(|figure| figure.is_finite()).fold(None, widen).unwrap_or((0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_begin_at_nothing_unless_they_lie_far_apart() {
        let near = Scale::of_amounts([0.9, 3.7].into_iter(), 100.0, 0.0);
        assert!(!near.is_logarithmic);
        assert_eq!((near.place(0.0), near.ticks(5)), (100.0, vec![0.0, 1.0, 2.0, 3.0, 4.0]));
        let far = Scale::of_amounts([0.1, 9.0].into_iter(), 100.0, 0.0);
        assert!(far.is_logarithmic);
        assert!((far.place(0.3) - far.place(0.9) - (far.place(1.0) - far.place(3.0))).abs() < 1e-9);
    }

    #[test]
    fn ticks_are_round_and_few_on_every_axis() {
        for (low, high) in [(0.98, 1.01), (0.5, 1.9), (0.2, 30.0), (1e-6, 1e6), (1.0, 1.0)] {
            let ticks = Scale::of_ratios([low, high].into_iter(), 0.0, 100.0).ticks(7);
            assert!((1..=8).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
        }
        for high in [1e-9, 0.3, 1.0, 7.0, 1e12] {
            let ticks = Scale::of_amounts([high / 2.0, high].into_iter(), 0.0, 100.0).ticks(5);
            assert!((3..=6).contains(&ticks.len()) && ticks[0] == 0.0, "{high}: {ticks:?}");
        }
    }

    #[test]
    fn an_axis_from_the_smallest_to_the_largest_number_has_few_ticks() {
        for figures in [[1e-300, 1e308], [f64::MIN_POSITIVE, f64::MAX]] {
            for scale in [
                Scale::of_amounts(figures.into_iter(), 0.0, 10.0),
                Scale::of_ratios(figures.into_iter(), 0.0, 10.0),
            ] {
                assert!(scale.ticks(7).len() <= 8, "{scale:?}");
            }
        }
    }

    #[test]
    fn nothing_zero_and_one_point_have_places() {
        for figures in [&[][..], &[0.0], &[0.0, 0.0], &[5.0], &[f64::NAN, 1.0]] {
            for scale in [
                Scale::of_amounts(figures.iter().copied(), 0.0, 10.0),
                Scale::of_counts(figures.iter().copied(), 0.0, 10.0),
                Scale::of_ratios(figures.iter().copied(), 0.0, 10.0),
            ] {
                assert!((0.0..=10.0).contains(&scale.place(0.0)), "{scale:?}");
                assert!((0.0..=10.0).contains(&scale.place(f64::NAN)), "{scale:?}");
                assert!(scale.ticks(5).iter().all(|tick| tick.is_finite()), "{scale:?}");
            }
        }
    }
}
