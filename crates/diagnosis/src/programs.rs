//! The programs that a process was, one after the other: what each exec ends and begins.

use std::ops::Sub;

use faultless_records::recording::Sample;

/// What samples showed of a process while it was one program.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Program {
    /// The first sample.
    pub first: Option<Sample>,
    /// The latest sample.
    pub last: Option<Sample>,
    /// The latest known resident set, in bytes.
    pub rss_bytes: Option<u64>,
    /// The latest known memory in swap, in bytes.
    pub swap_bytes: Option<u64>,
    /// The largest resident set of any sample, or that the kernel saw until then, in bytes.
    pub peak_rss_bytes: u64,
    /// The largest address space of any sample, in bytes.
    pub peak_vsize_bytes: u64,
    /// The last sample of the program before: counters go on over an exec.
    before: Option<Sample>,
    /// The latest known share of the resident set, in bytes, and its time.
    pss: Option<(u64, f64)>,
    /// The time of the latest known resident set.
    sized_t: f64,
}

/// A program that a process was before an exec.
#[derive(Debug, Clone, PartialEq)]
pub struct Earlier {
    /// Its name.
    pub name: String,
    /// Its figures.
    pub program: Program,
}

impl Program {
    /// Takes the next sample in.
    pub fn add(&mut self, sample: &Sample) {
        self.first = self.first.or(Some(*sample));
        self.last = Some(*sample);
        self.rss_bytes = sample.rss_bytes.or(self.rss_bytes);
        self.sized_t = sample.rss_bytes.map_or(self.sized_t, |_| sample.t);
        self.pss = sample.pss_bytes.map(|bytes| (bytes, sample.t)).or(self.pss);
        self.swap_bytes = sample.swap_bytes.or(self.swap_bytes);
        let peak_bytes = sample.rss_bytes.max(sample.peak_rss_bytes).unwrap_or(0);
        self.peak_rss_bytes = self.peak_rss_bytes.max(peak_bytes);
        self.peak_vsize_bytes = self.peak_vsize_bytes.max(sample.vsize_bytes.unwrap_or(0));
    }

    /// Another program begins at this time; the one that ends, where a sample saw it. `samples` are those of the process: the last
    /// of them may have been the new program's already.
    pub fn end(&mut self, t: f64, samples: &[Sample]) -> Option<Self> {
        let since = samples.partition_point(|sample| sample.t < t);
        let last = samples[..since].last().filter(|last| self.first.is_some_and(|first| first.t <= last.t));
        let mut ended = *self;
        *self = Self { before: last.copied().or(self.before), ..Self::default() };
        samples[since..].iter().for_each(|sample| self.add(sample));
        let last = last?;
        if ended.last.is_some_and(|latest| latest.t > last.t) {
            let begun = samples.partition_point(|sample| ended.first.is_some_and(|first| sample.t < first.t));
            // A peak that only the kernel saw may stand in a sample that was thinned out.
            let is_its = ended.peak_rss_bytes > self.peak_rss_bytes;
            let peak_bytes = if is_its { ended.peak_rss_bytes } else { 0 };
            ended = Self { before: ended.before, peak_rss_bytes: peak_bytes, ..Self::default() };
            samples[begun..since].iter().for_each(|sample| ended.add(sample));
        }
        Some(ended)
    }

    /// The latest known share of the resident set, in bytes, if it was read no longer than this, in s, before the latest
    /// resident set: beside a size of another time it would be taken for part of that.
    #[must_use]
    pub fn pss_bytes(&self, most_age_s: f64) -> Option<u64> {
        self.pss.filter(|(_, t)| self.sized_t - t <= most_age_s).map(|(bytes, _)| bytes)
    }

    /// What it added to a counter of the process; nothing where that goes back, in a damaged recording.
    #[must_use]
    pub fn own<Figure: Copy + Default + PartialOrd + Sub<Output = Figure>>(
        &self,
        counter: impl Fn(&Sample) -> Figure,
    ) -> Figure {
        let at = |sample: &Option<Sample>| sample.as_ref().map(&counter).unwrap_or_default();
        let (before, last) = (at(&self.before), at(&self.last));
        if last > before { last - before } else { Figure::default() }
    }

    /// From its first sample to its last, in s.
    #[must_use]
    pub fn seen_s(&self) -> f64 {
        self.first.zip(self.last).map_or(0.0, |(first, last)| last.t - first.t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(t: f64, rss_bytes: u64, minor_faults: u64) -> Sample {
        Sample { t, rss_bytes: Some(rss_bytes), minor_faults, ..Sample::default() }
    }

    #[test]
    fn figures_before_and_after_an_exec_are_told_apart_however_late_it_is_told() {
        let samples = [sample(0.0, 5, 10), sample(1.0, 200, 50), sample(2.0, 3, 53), sample(3.0, 4, 54)];
        for told_after in 2..=4 {
            let mut now = Program::default();
            samples[..told_after].iter().for_each(|sample| now.add(sample));
            let before = now.end(1.5, &samples[..told_after]).unwrap();
            samples[told_after..].iter().for_each(|sample| now.add(sample));
            let figures =
                |of: &Program| (of.peak_rss_bytes, of.rss_bytes, of.own(|sample| sample.minor_faults));
            assert_eq!(figures(&before), (200, Some(200), 50), "told after {told_after}");
            assert_eq!(figures(&now), (4, Some(4), 4), "told after {told_after}");
            assert_eq!((before.seen_s(), now.seen_s()), (1.0, 1.0));
        }
    }

    #[test]
    fn a_program_that_no_sample_saw_is_none() {
        let mut now = Program::default();
        assert_eq!(now.end(0.5, &[]), None);
        now.add(&sample(1.0, 7, 1));
        assert_eq!(now.end(0.5, &[sample(1.0, 7, 1)]), None, "the first sample is of the new program");
        assert_eq!((now.peak_rss_bytes, now.own(|sample| sample.minor_faults)), (7, 1));
        let samples = [sample(1.0, 7, 1)];
        assert_eq!(now.end(2.0, &samples).unwrap().peak_rss_bytes, 7);
        assert_eq!(now.end(2.5, &samples), None, "two execs between two samples");
        now.add(&sample(3.0, 9, 4));
        assert_eq!(now.own(|sample| sample.minor_faults), 3);
        now.add(&sample(4.0, 9, 0));
        assert_eq!(now.own(|sample| sample.minor_faults), 0, "a counter that goes back is damage");
    }

    #[test]
    fn a_share_is_known_as_long_as_the_resident_set_is_no_later() {
        let mut now = Program::default();
        now.add(&Sample { pss_bytes: Some(3), ..sample(1.0, 5, 1) });
        assert_eq!(now.pss_bytes(0.0), Some(3));
        now.add(&sample(4.0, 300, 90));
        assert_eq!([0.0, 2.0, 3.0].map(|age_s| now.pss_bytes(age_s)), [None, None, Some(3)]);
        now.add(&Sample { pss_bytes: Some(299), ..sample(5.0, 300, 90) });
        now.add(&Sample { t: 9.0, ..Sample::default() });
        assert_eq!(now.pss_bytes(0.0), Some(299), "what has ended shows no sizes");
    }

    #[test]
    fn a_peak_that_only_the_kernel_saw_stays_with_its_program() {
        let mut now = Program::default();
        let peaked = Sample { peak_rss_bytes: Some(900), ..sample(1.0, 5, 1) };
        let samples = [sample(0.0, 5, 1), peaked, sample(2.0, 5, 1), sample(3.0, 8, 1)];
        samples.iter().for_each(|sample| now.add(sample));
        let thinned = [samples[0], samples[2], samples[3]];
        assert_eq!(now.end(2.5, &thinned).unwrap().peak_rss_bytes, 900);
        assert_eq!(now.peak_rss_bytes, 8);
    }
}
