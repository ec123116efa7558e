//! What can be drawn of a process: sizes as they are, counters as rates.

use faultless_records::recording::Sample;

/// A figure of a process over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Address space.
    Vsize,
    /// Resident set.
    Rss,
    /// Share of the resident set.
    Pss,
    /// Memory in swap.
    Swap,
    /// Threads.
    Threads,
    /// Minor faults a second.
    MinorFaults,
    /// Major faults a second.
    MajorFaults,
    /// Processor time in the program, per cent of one CPU.
    User,
    /// Processor time in the kernel, per cent of one CPU.
    System,
}

/// How a metric is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// A number of things.
    Count,
    /// Events a second.
    PerSecond,
    /// Per cent of one CPU.
    Percent,
}

/// The kernel tells processor time in ticks of 10 ms, so shorter spans than this (in s) would show steps only.
const LEAST_PROCESSOR_SPAN_S: f64 = 0.5;

impl Metric {
    /// All of them, in the order in which they are offered.
    pub const ALL: [Self; 9] = [
        Self::Rss,
        Self::Vsize,
        Self::Pss,
        Self::Swap,
        Self::MinorFaults,
        Self::MajorFaults,
        Self::User,
        Self::System,
        Self::Threads,
    ];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vsize => "virtual size",
            Self::Rss => "RSS",
            Self::Pss => "PSS",
            Self::Swap => "swap",
            Self::Threads => "threads",
            Self::MinorFaults => "minor faults",
            Self::MajorFaults => "major faults",
            Self::User => "user time",
            Self::System => "system time",
        }
    }

    /// How it is measured.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Vsize | Self::Rss | Self::Pss | Self::Swap => Unit::Bytes,
            Self::Threads => Unit::Count,
            Self::MinorFaults | Self::MajorFaults => Unit::PerSecond,
            Self::User | Self::System => Unit::Percent,
        }
    }

    /// The size in a sample, or the counter whose growth is the rate.
    fn figure(self, sample: &Sample) -> Option<f64> {
        match self {
            Self::Vsize => sample.vsize_bytes.map(|bytes| bytes as f64),
            Self::Rss => sample.rss_bytes.map(|bytes| bytes as f64),
            Self::Pss => sample.pss_bytes.map(|bytes| bytes as f64),
            Self::Swap => sample.swap_bytes.map(|bytes| bytes as f64),
            Self::Threads => Some(f64::from(sample.threads)),
            Self::MinorFaults => Some(sample.minor_faults as f64),
            Self::MajorFaults => Some(sample.major_faults as f64),
            Self::User => Some(sample.user_s * 100.0),
            Self::System => Some(sample.system_s * 100.0),
        }
    }

    fn is_rate(self) -> bool {
        matches!(self.unit(), Unit::PerSecond | Unit::Percent)
    }

    fn least_span_s(self) -> f64 {
        if self.unit() == Unit::Percent { LEAST_PROCESSOR_SPAN_S } else { 0.0 }
    }

    /// The figure over the time from `from` to `to` (in s), in at most about `most` points: of sizes the largest of each
    /// stretch of time, of rates the mean over it.
    #[must_use]
    pub fn series(self, samples: &[Sample], from: f64, to: f64, most: usize) -> Vec<(f64, f64)> {
        let first = samples.partition_point(|sample| sample.t < from).saturating_sub(1);
        let last = samples.partition_point(|sample| sample.t <= to).saturating_add(1).min(samples.len());
        let shown = samples.get(first..last).unwrap_or_default();
        let stretch_s = ((to - from) / most.max(1) as f64).max(self.least_span_s());
        if self.is_rate() { self.rates(shown, stretch_s) } else { self.sizes(shown, stretch_s, most) }
    }

    fn sizes(self, samples: &[Sample], stretch_s: f64, most: usize) -> Vec<(f64, f64)> {
        let all = samples.iter().filter_map(|sample| Some((sample.t, self.figure(sample)?)));
        if samples.len() <= most {
            return all.collect();
        }
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut begun = f64::NEG_INFINITY;
        for (t, size) in all {
            match points.last_mut() {
                Some(point) if t - begun < stretch_s => {
                    if size >= point.1 {
                        *point = (t, size);
                    }
                }
                _ => {
                    begun = t;
                    points.push((t, size));
                }
            }
        }
        points
    }

    fn rates(self, samples: &[Sample], stretch_s: f64) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let Some(mut before) = samples.first() else { return points };
        for sample in &samples[1..] {
            let span_s = sample.t - before.t;
            // The last stretch may be short, but a rate over no time is none.
            let is_last = std::ptr::eq(sample, &raw const samples[samples.len() - 1]);
            if span_s >= stretch_s || (is_last && span_s > self.least_span_s() / 2.0) {
                points.extend(self.rate(before, sample).map(|rate| (sample.t, rate)));
                before = sample;
            }
        }
        points
    }

    /// Growth a second from one sample to a later one; none over no time.
    #[must_use]
    pub fn rate(self, before: &Sample, after: &Sample) -> Option<f64> {
        let span_s = after.t - before.t;
        let grown = self.figure(after)? - self.figure(before)?;
        (span_s > 0.0).then(|| (grown / span_s).max(0.0))
    }

    /// The figure at the latest sample: the size, or the rate since the sample before it, over at least half a second for
    /// processor time.
    #[must_use]
    pub fn now(self, samples: &[Sample]) -> Option<f64> {
        let last = samples.last()?;
        if !self.is_rate() {
            return samples.iter().rev().find_map(|sample| self.figure(sample));
        }
        let least_s = self.least_span_s() * 0.9;
        let mut earlier = samples[..samples.len() - 1].iter().rev();
        let before = earlier.find(|sample| last.t - sample.t > 0.0 && last.t - sample.t >= least_s);
        self.rate(before.or_else(|| samples.first())?, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u32, every_s: f64) -> Vec<Sample> {
        let one = |number: u32| Sample {
            t: f64::from(number) * every_s,
            rss_bytes: Some(u64::from(number % 10)),
            minor_faults: u64::from(number) * 5,
            user_s: (f64::from(number) * every_s * 100.0).floor() / 100.0,
            threads: 2,
            ..Sample::default()
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn rates_are_the_growth_of_the_counter_whatever_the_resolution() {
        let samples = samples(1001, 0.01);
        for most in [10, 100, 5000] {
            let rates = Metric::MinorFaults.series(&samples, 0.0, 10.0, most);
            assert!(rates.len() <= 1000 && rates.iter().all(|(_, rate)| (rate - 500.0).abs() < 1e-6));
            assert!(rates.len() <= most + 2, "{} of {most}", rates.len());
        }
        let busy = Metric::User.series(&samples, 0.0, 10.0, 5000);
        assert!(busy.len() >= 18 && busy.iter().all(|(_, rate)| (rate - 100.0).abs() < 5.0), "{busy:?}");
        assert!((Metric::MinorFaults.now(&samples).unwrap() - 500.0).abs() < 1e-6);
        assert!((Metric::User.now(&samples).unwrap() - 100.0).abs() < 5.0);
    }

    #[test]
    fn sizes_keep_their_peaks_and_the_window_its_neighbours() {
        let samples = samples(1000, 0.1);
        let sizes = Metric::Rss.series(&samples, 0.0, 100.0, 50);
        assert!(sizes.len() <= 52 && sizes.iter().all(|(_, size)| *size == 9.0), "{sizes:?}");
        let window = Metric::Rss.series(&samples, 10.0, 20.0, 1000);
        assert!(window[0].0 < 10.0 && window[window.len() - 1].0 > 20.0);
        assert_eq!(Metric::Threads.now(&samples), Some(2.0));
    }

    #[test]
    fn the_latest_rate_is_since_the_sample_before_and_of_processor_time_over_half_a_second() {
        let at = |t, minor_faults, user_s| Sample { t, minor_faults, user_s, ..Sample::default() };
        let samples =
            [at(8.0, 0, 0.0), at(9.0, 10, 0.0), at(9.4, 10, 0.4), at(9.8, 10, 0.4), at(10.0, 50, 0.5)];
        let now = |metric: Metric| metric.now(&samples).unwrap();
        assert!((now(Metric::MinorFaults) - 200.0).abs() < 1e-6);
        assert!((now(Metric::User) - 0.1 / 0.6 * 100.0).abs() < 1e-6);
        let again = [samples[3], samples[4], samples[4]];
        assert!(
            (Metric::MinorFaults.now(&again).unwrap() - 200.0).abs() < 1e-6,
            "over no time there is none"
        );
        let last = |metric: Metric, most| *metric.series(&samples, 9.0, 10.0, most).last().unwrap();
        assert_eq!(last(Metric::MinorFaults, 1), (10.0, 40.0), "the last stretch ends with the last sample");
        assert_eq!(last(Metric::MinorFaults, 1000).0, 10.0);
        assert_eq!(Metric::MinorFaults.series(&samples, 9.0, 10.0, 1000).len(), 4);
    }

    #[test]
    fn nothing_and_one_sample_have_no_rate() {
        assert!(Metric::MinorFaults.series(&[], 0.0, 1.0, 10).is_empty());
        assert_eq!(Metric::MinorFaults.now(&samples(1, 1.0)), None);
        assert_eq!(Metric::Rss.now(&[]), None);
        let twice = [samples(1, 1.0)[0], samples(1, 1.0)[0]];
        assert_eq!(Metric::MinorFaults.now(&twice), None);
        assert!(Metric::MajorFaults.series(&twice, 0.0, 1.0, 10).is_empty());
    }
}
