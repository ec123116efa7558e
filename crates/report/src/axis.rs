//! A linear axis with round figures, in the unit that suits them.

use faultless_diagnosis::metric::Unit;

/// An axis from 0 (or a beginning in time) to a round figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    step: f64,
    /// What one figure at a tick stands for.
    scale: f64,
    /// Name of the unit that the ticks are in.
    pub unit: &'static str,
}

impl Axis {
    /// For figures from 0 to `largest`, with about `ticks` ticks.
    #[must_use]
    pub fn of_figures(unit: Unit, largest: f64, ticks: usize) -> Self {
        let least = if unit == Unit::Bytes { 1024.0 } else { 1.0 };
        let largest = if largest.is_finite() && largest > 0.0 { largest } else { least };
        let (scale, unit, is_whole) = match unit {
            Unit::Bytes => match largest {
                large if large >= 1024.0 * GIB => (1024.0 * GIB, "TiB", false),
                large if large >= GIB => (GIB, "GiB", false),
                large if large >= MIB => (MIB, "MiB", false),
                _ => (1024.0, "KiB", false),
            },
            Unit::Count => (1.0, "", true),
            Unit::PerSecond if largest >= 2e6 => (1e6, "million/s", false),
            Unit::PerSecond if largest >= 2e4 => (1e3, "thousand/s", false),
            Unit::PerSecond => (1.0, "/s", false),
            Unit::Percent => (1.0, "% of a CPU", false),
        };
        let step = nice_step(largest / scale / ticks.max(1) as f64);
        let step = if is_whole { step.max(1.0).ceil() } else { step };
        let high = (largest / scale / step - 1e-9).ceil().max(1.0) * step;
        Self { low: 0.0, high: high * scale, step: step * scale, scale, unit }
    }

    /// For time from `from` to `to`, in s.
    #[must_use]
    pub fn of_time(from: f64, to: f64, ticks: usize) -> Self {
        let span = if to > from { to - from } else { 1.0 };
        let steps = [
            60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14_400.0, 21_600.0, 43_200.0, 86_400.0,
        ];
        let least = span / ticks.max(1) as f64;
        let (scale, unit) = match span {
            long if long >= 4.0 * 3600.0 => (3600.0, "h"),
            long if long >= 240.0 => (60.0, "min"),
            _ => (1.0, "s"),
        };
        let step = if least < 30.0 {
            nice_step(least)
        } else {
            steps
                .into_iter()
                .find(|step| *step >= least)
                .unwrap_or_else(|| nice_step(least / 86_400.0) * 86_400.0)
        };
        Self { low: from, high: from + span, step, scale, unit }
    }

    /// Where a figure stands, from 0 at the low end to 1 at the high one; at an end if it lies beyond.
    #[must_use]
    pub fn place(&self, figure: f64) -> f64 {
        let part = (figure - self.low) / (self.high - self.low);
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The ends.
    #[must_use]
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Round figures along the axis, each with its text.
    #[must_use]
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let first = (self.low / self.step - 1e-9).ceil();
        let count = ((self.high - self.low) / self.step + 1e-9).floor().min(100.0) as u32 + 1;
        (0..count)
            .map(|number| (first + f64::from(number)) * self.step)
            .filter(|tick| *tick <= self.high * (1.0 + 1e-9))
            .map(|tick| (tick, self.text(tick)))
            .collect()
    }

    fn text(&self, tick: f64) -> String {
        let decimals = (-(self.step / self.scale).log10().floor() + 1.0).clamp(0.0, 6.0) as usize;
        let text = format!("{:.decimals$}", tick / self.scale);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    }
}

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// The next of 1, 2, 2.5, 5 times a power of ten.
pub(crate) fn nice_step(least: f64) -> f64 {
    if !(least.is_finite() && least > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<String> {
        axis.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_in_the_unit_that_suits() {
        let memory = Axis::of_figures(Unit::Bytes, 58.8 * MIB, 4);
        assert_eq!(
            (memory.unit, texts(&memory)),
            ("MiB", ["0", "20", "40", "60"].map(String::from).to_vec())
        );
        let faults = Axis::of_figures(Unit::PerSecond, 103_000.0, 4);
        assert_eq!(faults.unit, "thousand/s");
        assert_eq!(texts(&Axis::of_figures(Unit::Count, 2.0, 4)), ["0", "1", "2"]);
        let nothing = Axis::of_figures(Unit::Bytes, 0.0, 1);
        assert_eq!((nothing.unit, texts(&nothing)), ("KiB", ["0", "1"].map(String::from).to_vec()));
        let hours = Axis::of_time(0.0, 8.0 * 3600.0, 6);
        assert_eq!((hours.unit, texts(&hours)[1].as_str()), ("h", "2"));
    }

    #[test]
    fn every_range_has_few_ticks_and_places_within() {
        for largest in [0.0, 1e-9, 1.0, 999.0, 1e6, 1e18, f64::NAN, f64::INFINITY] {
            for unit in [Unit::Bytes, Unit::Count, Unit::PerSecond, Unit::Percent] {
                let axis = Axis::of_figures(unit, largest, 5);
                assert!((2..=12).contains(&axis.ticks().len()), "{largest} {unit:?}: {:?}", axis.ticks());
                assert!((0.0..=1.0).contains(&axis.place(largest)));
            }
        }
        for (from, to) in [(0.0, 0.0), (0.0, 0.01), (5.0, 5.5), (0.0, 250.0), (100.0, 1e7), (0.0, 9.9e9)] {
            let ticks = Axis::of_time(from, to, 8).ticks();
            assert!((1..=12).contains(&ticks.len()), "{from} {to}: {ticks:?}");
        }
    }
}
