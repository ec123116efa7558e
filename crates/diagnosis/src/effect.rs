//! What one arm changed, measured against the command as it is.

use std::cmp::Ordering;

use faultless_records::measurement::Measurement;
use faultless_records::quantity::ratio;

use crate::spread::{Change, Spread};
use crate::standing::Ratio;

/// The quantities of the table, each over all runs of an arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Seconds of processor time in the program.
    pub user: Spread,
    /// Seconds of processor time in the kernel.
    pub system: Spread,
    /// Seconds by the clock.
    pub elapsed: Spread,
    /// Major faults.
    pub major_faults: Spread,
    /// Minor faults.
    pub minor_faults: Spread,
    /// Voluntary context switches.
    pub waits: Spread,
    /// Bytes.
    pub peak_rss: Spread,
    /// Bytes; none when it could not be seen.
    pub final_rss: Option<Spread>,
    /// Seconds of user and system time together.
    pub processor: Spread,
}

impl Figures {
    /// Of the runs of one arm; none without a run.
    #[must_use]
    pub fn of(runs: &[Measurement]) -> Option<Self> {
        let over = |figure: fn(&Measurement) -> f64| Spread::of(runs.iter().map(figure));
        Some(Self {
            user: over(|run| run.user.as_secs_f64())?,
            system: over(|run| run.system.as_secs_f64())?,
            elapsed: over(|run| run.elapsed.as_secs_f64())?,
            major_faults: over(|run| run.major_faults as f64)?,
            minor_faults: over(|run| run.minor_faults as f64)?,
            waits: over(|run| run.waits as f64)?,
            peak_rss: over(|run| run.peak_rss_bytes as f64)?,
            final_rss: Spread::of(
                runs.iter().filter_map(|run| run.final_rss_bytes).map(|bytes| bytes as f64),
            ),
            processor: over(|run| run.processor().as_secs_f64())?,
        })
    }
}

/// Fewer rounds have ranges that lie apart by chance too often: always with one, one time in three with two. They show only what is half or
/// twice as much.
pub const LEAST_ROUNDS: usize = 3;
/// From so many rounds on arms are compared within each: the interval of their ratios has a confidence of 95 % then, and grows narrower with
/// each more, while ranges only grow wider.
const PAIRED_ROUNDS: usize = 6;

/// Part of the time that a difference must reach.
const LEAST_TIME_PART: f64 = 0.05;
/// Seconds below which no difference counts: starting a process varies by as much.
pub const LEAST_TIME: f64 = 0.010;
/// Part of the faults, and number of them, that a difference must reach.
const LEAST_FAULTS_PART: f64 = 0.10;
const LEAST_FAULTS: f64 = 1000.0;
/// Part of the waits, and number of them, that a difference must reach: twice as many, or half as many, and more. How often threads meet, and
/// processes wait for each other, is not alike from run to run.
const MORE_WAITS_PART: f64 = 1.0;
const FEWER_WAITS_PART: f64 = 0.5;
const LEAST_WAITS: f64 = 1000.0;
/// Part of the resident bytes, and number of them, that a difference must reach.
const LEAST_MEMORY_PART: f64 = 0.10;
const LEAST_MEMORY: f64 = 4.0 * 1024.0 * 1024.0;

/// What an arm changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Processor time, and time by the clock where it does not speak against it.
    pub time: Change,
    /// Time by the clock alone.
    pub elapsed: Change,
    /// Minor faults.
    pub faults: Change,
    /// Voluntary context switches.
    pub waits: Change,
    /// Peak resident memory.
    pub peak_rss: Change,
    /// Resident memory at the exit.
    pub final_rss: Change,
    /// Ratio of the time by the clock.
    pub elapsed_ratio: f64,
    /// Ratio of the processor time.
    pub processor_ratio: f64,
    /// Ratio of the minor faults.
    pub fault_ratio: f64,
    /// Ratio of the voluntary context switches.
    pub wait_ratio: f64,
    /// Ratio of the peak resident memory.
    pub peak_ratio: f64,
}

/// An allocator changes the time by the clock through the processor time it needs, so the clock alone proves nothing:
/// on a busy machine it shows the neighbours. Where the two contradict each other there is no verdict.
fn without_contradiction(processor: Change, elapsed: Change) -> Change {
    match (processor, elapsed) {
        (Change::Less, Change::More) | (Change::More, Change::Less) => Change::Same,
        (processor, _) => processor,
    }
}

/// What an arm did for the command, all in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It takes less time.
    Faster,
    /// It takes as long and less memory.
    Smaller,
    /// It has clearly fewer faults, and that does not show in its time.
    FewerFaultsOnly,
    /// Nothing stands out.
    NoEffect,
    /// It takes as long and more memory.
    Larger,
    /// It takes more time.
    Slower,
}

/// How a figure of an arm compares with that of the command as it is, whose runs are in the order of the same rounds.
fn change(
    arm: &[Measurement],
    base: &[Measurement],
    figure: impl Fn(&Measurement) -> Option<f64>,
    least_part: f64,
    least: f64,
) -> Change {
    let (of_arm, of_base): (Vec<f64>, Vec<f64>) =
        arm.iter().zip(base).filter_map(|(arm, base)| Some((figure(arm)?, figure(base)?))).unzip();
    let (Some(spread), Some(base)) = (Spread::of(of_arm.clone()), Spread::of(of_base.clone())) else {
        return Change::Same;
    };
    if of_arm.len() < PAIRED_ROUNDS {
        let half_or_twice = if spread.median < base.median { 0.5 } else { 1.0 };
        let least_part = if of_arm.len() < LEAST_ROUNDS { half_or_twice } else { least_part };
        return spread.change_from(&base, least_part, least);
    }
    // What is nothing in both is no evidence, and nothing beside something is.
    let ratios = of_arm.iter().zip(&of_base).filter(|(arm, base)| **arm > 0.0 || **base > 0.0);
    let within_rounds = Ratio::of(ratios.map(|(arm, base)| arm / base).collect());
    let change = spread.beyond(&base, least_part, least);
    match (within_rounds.map(|ratio| ratio.verdict()), change) {
        (Some(Ordering::Less), Change::Less) | (Some(Ordering::Greater), Change::More) => change,
        _ => Change::Same,
    }
}

impl Effect {
    /// Of an arm, against the command as it is; none without runs.
    #[must_use]
    pub fn of(arm: &[Measurement], base: &[Measurement]) -> Option<Self> {
        let (figures, of_base) = (Figures::of(arm)?, Figures::of(base)?);
        let time = |figure: fn(&Measurement) -> f64| {
            change(arm, base, |run| Some(figure(run)), LEAST_TIME_PART, LEAST_TIME)
        };
        let memory = |figure: fn(&Measurement) -> Option<u64>| {
            let bytes = |run: &Measurement| figure(run).map(|bytes| bytes as f64);
            change(arm, base, bytes, LEAST_MEMORY_PART, LEAST_MEMORY)
        };
        let faults = |run: &Measurement| Some(run.minor_faults as f64);
        let elapsed = time(|run| run.elapsed.as_secs_f64());
        let wait_ratio = figures.waits.ratio_to(&of_base.waits);
        let waits_part = if wait_ratio < 1.0 { FEWER_WAITS_PART } else { MORE_WAITS_PART };
        Some(Self {
            time: without_contradiction(time(|run| run.processor().as_secs_f64()), elapsed),
            elapsed,
            faults: change(arm, base, faults, LEAST_FAULTS_PART, LEAST_FAULTS),
            waits: change(arm, base, |run| Some(run.waits as f64), waits_part, LEAST_WAITS),
            peak_rss: memory(|run| Some(run.peak_rss_bytes)),
            final_rss: memory(|run| run.final_rss_bytes),
            elapsed_ratio: figures.elapsed.ratio_to(&of_base.elapsed),
            processor_ratio: figures.processor.ratio_to(&of_base.processor),
            fault_ratio: figures.minor_faults.ratio_to(&of_base.minor_faults),
            wait_ratio,
            peak_ratio: figures.peak_rss.ratio_to(&of_base.peak_rss),
        })
    }

    /// All in all: time first, then memory, then faults that bought nothing.
    #[must_use]
    pub fn judgement(&self) -> Judgement {
        match (self.time, self.peak_rss, self.faults) {
            (Change::Less, _, _) => Judgement::Faster,
            (Change::More, _, _) => Judgement::Slower,
            (Change::Same, Change::Less, _) => Judgement::Smaller,
            (Change::Same, Change::More, _) => Judgement::Larger,
            (Change::Same, Change::Same, Change::Less) => Judgement::FewerFaultsOnly,
            (Change::Same, Change::Same, _) => Judgement::NoEffect,
        }
    }

    /// Where it takes less time or more, and its threads wait less often or more, which goes along with that: how often, to stand behind
    /// the times. Else nothing.
    #[must_use]
    pub fn reason_in_waits(&self) -> String {
        match (self.judgement(), self.waits) {
            (Judgement::Faster, Change::Less) | (Judgement::Slower, Change::More) => {
                format!(", waits {}", ratio(self.wait_ratio))
            }
            _ => String::new(),
        }
    }

    /// Whether it holds more memory than the command as it is, during or at its end.
    #[must_use]
    pub fn costs_memory(&self) -> bool {
        self.peak_rss == Change::More || self.final_rss == Change::More
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use faultless_records::measurement::{Ending, FinalView};
    use std::time::Duration;

    /// Three runs around these figures, one percent apart.
    pub(crate) fn runs(elapsed: f64, faults: u64, peak_mib: u64, final_mib: u64) -> Vec<Measurement> {
        [0.99, 1.0, 1.01]
            .map(|factor| Measurement {
                ending: Ending::Exited(0),
                user: Duration::from_secs_f64(elapsed * 0.4 * factor),
                system: Duration::from_secs_f64(elapsed * 0.5 * factor),
                elapsed: Duration::from_secs_f64(elapsed * factor),
                minor_faults: faults,
                major_faults: 0,
                waits: 0,
                peak_rss_bytes: peak_mib << 20,
                final_rss_bytes: Some(final_mib << 20),
                final_view: FinalView::AtExit,
                mapped_files: vec!["/usr/lib/libc.so.6".into()],
            })
            .to_vec()
    }

    fn effect(arm: &[Measurement], base: &[Measurement]) -> Effect {
        Effect::of(arm, base).unwrap()
    }

    fn judged(arm: &[Measurement], base: &[Measurement]) -> Judgement {
        effect(arm, base).judgement()
    }

    #[test]
    fn time_decides_before_memory_and_memory_before_faults() {
        let base = runs(5.0, 3_000_000, 20, 2);
        assert_eq!(judged(&runs(1.2, 4_000, 40, 20), &base), Judgement::Faster);
        assert_eq!(judged(&runs(9.0, 9_000_000, 10, 2), &base), Judgement::Slower);
        assert_eq!(judged(&runs(5.0, 3_000_000, 10, 2), &base), Judgement::Smaller);
        assert_eq!(judged(&runs(5.0, 3_000_000, 60, 2), &base), Judgement::Larger);
        assert_eq!(judged(&runs(5.0, 1_000_000, 20, 2), &base), Judgement::FewerFaultsOnly);
        assert_eq!(judged(&runs(5.02, 3_000_000, 20, 2), &base), Judgement::NoEffect);
    }

    /// Runs of so many rounds, each a little slower than the one before, as when a machine grows busy, by these ratios to 1 s.
    fn rounds(count: usize, ratios: [f64; 2]) -> Vec<Measurement> {
        let round = |round: usize| {
            runs(ratios[round % 2] * (1.0 + round as f64 / 10.0), 30_000, 20, 2).swap_remove(1)
        };
        (0..count).map(round).collect()
    }

    #[test]
    fn from_six_rounds_on_ratios_within_rounds_count_and_more_of_them_see_more() {
        for (count, judgement) in [(3, Judgement::NoEffect), (6, Judgement::Faster), (20, Judgement::Faster)]
        {
            assert_eq!(judged(&rounds(count, [0.85, 0.9]), &rounds(count, [1.0; 2])), judgement, "{count}");
        }
        assert_eq!(judged(&rounds(20, [1.0; 2]), &rounds(20, [0.85, 0.9])), Judgement::Slower);
        assert_eq!(judged(&rounds(20, [0.9, 1.1]), &rounds(20, [1.0; 2])), Judgement::NoEffect, "to and fro");
        assert_eq!(judged(&rounds(20, [0.96; 2]), &rounds(20, [1.0; 2])), Judgement::NoEffect, "under 5 %");
    }

    #[test]
    fn a_round_with_nothing_in_both_is_no_evidence_and_one_with_something_in_one_of_them_is() {
        let faults = |each: [u64; 7]| each.map(|faults| runs(1.0, faults, 20, 2).swap_remove(1));
        let (some, none) = (faults([0, 2000, 2000, 2000, 2000, 2000, 2000]), faults([0; 7]));
        assert_eq!(effect(&some, &none).faults, Change::More);
        assert_eq!(effect(&none, &some).faults, Change::Less);
        assert_eq!(effect(&none, &none).faults, Change::Same);
    }

    #[test]
    fn fewer_than_three_rounds_show_only_what_is_half_or_twice_as_much() {
        for (ratio, judgement) in [
            (0.6, Judgement::NoEffect),
            (0.49, Judgement::Faster),
            (1.9, Judgement::NoEffect),
            (2.1, Judgement::Slower),
        ] {
            for count in [1, 2] {
                let (arm, base) = (runs(ratio, 30_000, 20, 2), runs(1.0, 30_000, 20, 2));
                assert_eq!(judged(&arm[..count], &base[..count]), judgement, "{ratio}, {count}");
            }
        }
    }

    #[test]
    fn the_clock_alone_proves_nothing() {
        let base = runs(5.0, 30_000, 20, 2);
        let mut waited = runs(5.0, 30_000, 20, 2);
        for run in &mut waited {
            run.elapsed *= 2;
        }
        assert_eq!(judged(&waited, &base), Judgement::NoEffect);
        assert_eq!(judged(&base, &waited), Judgement::NoEffect);
    }

    #[test]
    fn where_clock_and_processor_contradict_each_other_there_is_no_verdict() {
        let (fast, slow) = (runs(3.0, 30_000, 20, 2), runs(5.0, 30_000, 20, 2));
        let mut waited = fast.clone();
        for run in &mut waited {
            run.elapsed *= 3;
        }
        assert_eq!(judged(&fast, &slow), Judgement::Faster);
        assert_eq!(judged(&waited, &slow), Judgement::NoEffect);
        assert_eq!(judged(&slow, &waited), Judgement::NoEffect);
    }

    #[test]
    fn a_process_of_milliseconds_is_not_judged_by_time() {
        let effect = effect(&runs(0.004, 300, 4, 4), &runs(0.002, 200, 4, 4));
        assert_eq!((effect.judgement(), effect.elapsed), (Judgement::NoEffect, Change::Same));
    }

    #[test]
    fn faults_and_memory_differ_by_a_tenth_and_by_1000_faults_or_4_mib() {
        for (base, same, more) in [(100_000, 109_000, 111_000), (1000, 1900, 2100)] {
            let faults = |arm| effect(&runs(1.0, arm, 20, 2), &runs(1.0, base, 20, 2)).faults;
            assert_eq!([same, more].map(faults), [Change::Same, Change::More], "{base}");
        }
        for (base, same, more) in [(100, 109, 111), (10, 13, 15)] {
            let memory = |arm| {
                let effect = effect(&runs(1.0, 3000, arm, arm), &runs(1.0, 3000, base, base));
                [effect.peak_rss, effect.final_rss]
            };
            assert_eq!([same, more].map(memory), [[Change::Same; 2], [Change::More; 2]], "{base}");
        }
    }

    #[test]
    fn twice_the_waits_or_half_of_them_are_a_reason_for_other_times() {
        let waiting = |elapsed, waits| {
            let mut runs = runs(elapsed, 3000, 20, 2);
            runs.iter_mut().for_each(|run| run.waits = waits);
            runs
        };
        let reason = |arm: (f64, u64), base: (f64, u64)| {
            effect(&waiting(arm.0, arm.1), &waiting(base.0, base.1)).reason_in_waits()
        };
        assert_eq!(reason((1.0, 20), (5.0, 90_000)), ", waits ×0.0002");
        assert_eq!(reason((5.0, 90_000), (1.0, 30_000)), ", waits ×3.00");
        assert_eq!(reason((5.0, 59_000), (1.0, 30_000)), "", "not twice");
        assert_eq!(reason((1.0, 20), (5.0, 1000)), "", "few");
        assert_eq!(reason((5.0, 20), (5.0, 90_000)), "", "as long");
        assert_eq!(reason((1.0, 90_000), (5.0, 20)), "", "what speaks against it is no reason");
    }

    #[test]
    fn memory_kept_during_the_run_or_at_the_end_is_a_cost() {
        let base = runs(5.0, 3_000_000, 20, 2);
        let costs = |peak, at_end| effect(&runs(1.2, 4_000, peak, at_end), &base).costs_memory();
        assert_eq!([costs(20, 2), costs(20, 18), costs(40, 2)], [false, true, true]);
    }
}
