//! Median and range of repeated measurements, and when two of them differ.

/// Repeated measurements of one quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle one; the mean of the two middle ones of an even number.
    pub median: f64,
    /// The smallest.
    pub minimum: f64,
    /// The largest.
    pub maximum: f64,
}

/// How a quantity compares with the same quantity in another arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Less, beyond the noise.
    Less,
    /// No difference that stands out of the noise.
    Same,
    /// More, beyond the noise.
    More,
}

impl Spread {
    /// Of at least one measurement; none of nothing.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, minimum, maximum })
    }

    /// Range as a part of the median.
    #[must_use]
    pub fn relative_range(&self) -> f64 {
        if self.median > 0.0 { (self.maximum - self.minimum) / self.median } else { 0.0 }
    }

    /// Ratio of the medians.
    #[must_use]
    pub fn ratio_to(&self, base: &Self) -> f64 {
        if base.median > 0.0 {
            self.median / base.median
        } else if self.median > 0.0 {
            f64::INFINITY
        } else {
            1.0
        }
    }

    /// Compares with `base`: a difference counts when the two ranges do not overlap, the medians differ by at least
    /// `least_part` of the base (and by half the wider range, where that is more) and by at least `least`.
    ///
    /// With three runs each, equal arms have non-overlapping ranges one time in ten; the two margins are what makes
    /// that rare enough for a table of five arms.
    #[must_use]
    pub fn change_from(&self, base: &Self, least_part: f64, least: f64) -> Change {
        let noise = self.relative_range().max(base.relative_range()) / 2.0;
        let is_apart = self.maximum < base.minimum || self.minimum > base.maximum;
        if is_apart { self.beyond(base, least_part.max(noise.min(0.5)), least) } else { Change::Same }
    }

    /// Whether the medians differ by at least `least_part` of the base, and by at least `least`.
    #[must_use]
    pub fn beyond(&self, base: &Self, least_part: f64, least: f64) -> Change {
        let difference = self.median - base.median;
        if difference.abs() < (base.median * least_part).max(least) {
            Change::Same
        } else if difference < 0.0 {
            Change::Less
        } else {
            Change::More
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(values: &[f64]) -> Spread {
        Spread::of(values.iter().copied()).unwrap()
    }

    #[test]
    fn median_and_range_of_odd_and_even_numbers() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, minimum: 1.0, maximum: 3.0 });
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn overlapping_ranges_are_the_same() {
        let base = spread(&[1.0, 1.2, 1.4]);
        assert_eq!(spread(&[1.1, 1.0, 0.9]).change_from(&base, 0.05, 0.0), Change::Same);
        let (low, high) = (spread(&[1.0, 1.0, 2.0]), spread(&[2.0, 3.0, 3.0]));
        assert_eq!(low.change_from(&high, 0.05, 0.0), Change::Same);
        assert_eq!(high.change_from(&low, 0.05, 0.0), Change::Same);
    }

    #[test]
    fn clear_differences_are_seen_both_ways() {
        let base = spread(&[5.0, 5.1, 5.2]);
        assert_eq!(spread(&[1.0, 1.2, 1.1]).change_from(&base, 0.05, 0.01), Change::Less);
        assert_eq!(spread(&[9.0, 9.1, 9.3]).change_from(&base, 0.05, 0.01), Change::More);
    }

    #[test]
    fn small_differences_are_the_same_however_steady() {
        let base = spread(&[1.00, 1.00, 1.00]);
        assert_eq!(spread(&[0.98, 0.98, 0.98]).change_from(&base, 0.05, 0.0), Change::Same);
        assert_eq!(spread(&[0.5, 0.5, 0.5]).change_from(&base, 0.05, 0.6), Change::Same);
        assert_eq!(spread(&[0.5, 0.5, 0.5]).change_from(&base, 0.05, 0.5), Change::Less);
    }

    #[test]
    fn noise_widens_the_margin() {
        let base = spread(&[1.0, 1.5, 2.0]);
        assert_eq!(spread(&[0.99, 0.98, 0.97]).change_from(&base, 0.05, 0.0), Change::Less);
        let noisy = spread(&[2.0, 2.1, 3.4]);
        assert_eq!(noisy.change_from(&spread(&[1.8, 1.85, 1.9]), 0.05, 0.0), Change::Same);
        assert_eq!(spread(&[0.9]).change_from(&spread(&[1.0, 1.1, 3.0]), 0.05, 0.0), Change::Same);
        let noise_alone = spread(&[0.1, 1.0, 9.9]);
        assert_eq!(noise_alone.change_from(&spread(&[10.0]), 0.05, 0.0), Change::Less, "to a half at most");
    }

    #[test]
    fn ratios_to_nothing_do_not_divide_by_it() {
        assert_eq!(spread(&[0.0]).ratio_to(&spread(&[0.0])), 1.0);
        assert_eq!(spread(&[1.0]).ratio_to(&spread(&[0.0])), f64::INFINITY);
    }
}
