//! How many faults a sample stands for.

use faultless_records::fault_recording::{FaultCounts, FaultRecording, Faults, Step};

/// Faults for each sample, by step of sampling.
///
/// A step's samples, those too that were lost, stand together for the faults counted in it, so that what was left over of its last
/// period is spread. What lost samples stand for is nobody's, nor is what a step without any sample counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    minor: Vec<f64>,
    major: Vec<f64>,
    not_looked_at: NotLookedAt,
}

/// Faults that were counted, and no sample stands for them: it was lost, or they were too few for the period of their step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NotLookedAt {
    /// Without I/O.
    pub minor: f64,
    /// With I/O.
    pub major: f64,
}

/// All faults of the events, in user mode and, where it was seen, in the kernel.
#[must_use]
pub fn counted(recording: &FaultRecording) -> FaultCounts {
    recording.counters.user.plus(recording.counters.kernel.unwrap_or_default())
}

impl Weights {
    /// Those of a recording.
    #[must_use]
    pub fn of(recording: &FaultRecording) -> Self {
        let all = counted(recording);
        let steps = &recording.method.steps;
        // Of each step those that arrived and those that did not, minor and major.
        let sampled = |(place, step): (usize, &Step)| {
            let arrived = arrived(recording, place);
            (arrived, lost(step, arrived))
        };
        let samples: Vec<([f64; 2], [f64; 2])> = steps.iter().enumerate().map(sampled).collect();
        let of_class = |class: usize, counted: fn(&Step) -> u64, all: u64| {
            // While one step is exchanged for another both count for a moment.
            let counted_in_steps: u64 = steps.iter().map(counted).sum();
            let scale = if counted_in_steps == 0 { 1.0 } else { all as f64 / counted_in_steps as f64 };
            let mut not_looked_at = 0.0;
            let weights = steps.iter().zip(&samples).map(|(step, (arrived, lost))| {
                let sampled = arrived[class] + lost[class];
                let faults = counted(step) as f64 * scale;
                let weight = if sampled > 0.0 { faults / sampled } else { 0.0 };
                not_looked_at += if sampled > 0.0 { lost[class] * weight } else { faults };
                weight
            });
            (weights.collect(), not_looked_at)
        };
        let (minor, minor_not_looked_at) = of_class(0, |step| step.minor_faults, all.minor);
        let (major, major_not_looked_at) = of_class(1, |step| step.major_faults, all.major);
        let not_looked_at = NotLookedAt { minor: minor_not_looked_at, major: major_not_looked_at };
        Self { minor, major, not_looked_at }
    }

    /// What no sample stands for.
    #[must_use]
    pub fn not_looked_at(&self) -> NotLookedAt {
        self.not_looked_at
    }

    /// How many faults these stand for.
    #[must_use]
    pub fn faults(&self, faults: &Faults) -> f64 {
        let weights = if faults.is_major { &self.major } else { &self.minor };
        faults.weight * weights.get(faults.step).copied().unwrap_or(0.0)
    }
}

/// Faults of which a few samples only tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Few {
    /// The samples.
    pub samples: u64,
    /// The faults that they stand for.
    pub faults: f64,
    /// The coarsest period among them.
    pub period: u64,
}

/// Fewer samples of a step than this tell little: a share of a tenth among them may be none, or a quarter.
const FEW: u64 = 30;

/// What steps with few samples stand for, if there is such a step: a burst in short processes, which end before their periods do.
#[must_use]
pub fn known_by_few(recording: &FaultRecording) -> Option<Few> {
    let weights = Weights::of(recording);
    let has_few = steps_with_few(recording);
    let those = || recording.faults.iter().filter(|faults| has_few.get(faults.step) == Some(&true));
    let periods = recording.method.steps.iter().zip(&has_few).filter(|(_, has_few)| **has_few);
    Some(Few {
        samples: those().map(|faults| faults.samples).sum(),
        faults: those().map(|faults| weights.faults(faults)).sum(),
        period: periods.map(|(step, _)| step.minor_period).max()?,
    })
}

/// Which steps are coarse and have few samples.
pub(super) fn steps_with_few(recording: &FaultRecording) -> Vec<bool> {
    let has_few = |(place, step): (usize, &Step)| {
        let those = recording.faults.iter().filter(|faults| faults.step == place);
        step.minor_period > 1 && (1..FEW).contains(&those.map(|faults| faults.samples).sum::<u64>())
    };
    recording.method.steps.iter().enumerate().map(has_few).collect()
}

/// Faults of which samples tell little because threads end soon.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OfShortLives {
    /// Minor faults that may be of others than those that samples say.
    pub faults: f64,
    /// The coarsest period among those of their steps; 0 where there are none.
    pub period: u64,
}

/// What coarse steps cannot tell of threads and processes that end after few of their periods: the kernel begins a period anew with
/// each, so the first sample of all that do the same is always at the same place, and what follows the last one is in none.
#[must_use]
pub fn of_short_lives(recording: &FaultRecording) -> OfShortLives {
    let mut sum = OfShortLives::default();
    for (place, step) in recording.method.steps.iter().enumerate().filter(|(_, step)| step.minor_period > 1) {
        let arrived = arrived(recording, place);
        // Where there are none, all of it is not looked at.
        if arrived[0] > 0.0 {
            let told = (arrived[0] + lost(step, arrived)[0]) * step.minor_period as f64;
            let left_over = (step.minor_faults as f64 - told).max(0.0);
            let at_same_places = step.ended_threads as f64 * step.minor_period as f64;
            sum.faults += (at_same_places + left_over).min(step.minor_faults as f64);
            sum.period = sum.period.max(step.minor_period);
        }
    }
    sum
}

/// The coarsest period of which no thread lived to see the end, so that nothing of its step was looked at; none where there is none.
#[must_use]
pub fn period_without_end(recording: &FaultRecording) -> Option<u64> {
    let steps = recording.method.steps.iter().enumerate();
    let without_end = steps.filter(|(place, step)| {
        step.minor_period > 1
            && step.minor_faults > 0
            && step.lost_samples == 0
            && arrived(recording, *place) == [0.0; 2]
    });
    without_end.map(|(_, step)| step.minor_period).max()
}

/// Samples of a step that arrived, minor and major.
fn arrived(recording: &FaultRecording, step: usize) -> [f64; 2] {
    [false, true].map(|is_major| {
        let those = recording.faults.iter();
        let those = those.filter(|faults| faults.step == step && faults.is_major == is_major);
        those.map(|faults| faults.weight).sum()
    })
}

/// Samples of a step that did not arrive, minor and major, beside those that did.
fn lost(step: &Step, arrived: [f64; 2]) -> [f64; 2] {
    let periods = [step.minor_period, step.major_period];
    let due = |place: usize, counted: u64| counted as f64 / periods[place].max(1) as f64;
    let missing = [due(0, step.minor_faults), due(1, step.major_faults)];
    let missing = [0, 1].map(|place| (missing[place] - arrived[place]).max(0.0));
    // Where each fault has a sample, what is missing was lost, even where the kernel had no room to say so any more. Otherwise it may
    // be left over of threads' last periods, and the kernel tells one number for both classes.
    let all = missing[0] + missing[1];
    if periods == [1, 1] || all <= 0.0 {
        return missing;
    }
    let told = (step.lost_samples as f64 / all).min(1.0);
    missing.map(|missing| missing * told)
}

#[cfg(test)]
pub(crate) mod tests {
    use faultless_records::saved_form::Recording;

    use super::*;
    use faultless_records::call_tree::{Call, CallFrame, CallModule, CallTree};
    use faultless_records::fault_recording::*;

    /// A frame of a function in one of the modules of [`recording`].
    pub fn frame(function: &str, module: usize, line: u32) -> CallFrame {
        CallFrame {
            function: Some(function.into()),
            file: Some("/src/chem.c".into()),
            line: Some(line),
            module: Some(module),
            offset: u64::from(line) * 16,
            is_inlined: false,
        }
    }

    /// `main` (call 0) calls `dgemm` (1), which calls `memcpy` (2) of libc; faults of 90, 9 and 1 samples.
    pub fn recording() -> FaultRecording {
        let module = |path: &str| CallModule { path: path.into(), build_id: None, trouble: None };
        let faults = |call, place, samples, step| {
            let weight = samples as f64;
            Faults { call: Some(call), place, step, samples, weight, ..Faults::default() }
        };
        let place =
            |mapping: &str| Place { mapping: mapping.into(), protection: 3, flags: 2, ..Place::default() };
        let step = |minor_period, major_period, minor_faults| Step {
            minor_period,
            major_period,
            minor_faults,
            ..Step::default()
        };
        FaultRecording {
            format: FORMAT.into(),
            duration_ns: 2_000_000_000,
            subject: Subject { command: vec!["chem".into(), "9".into()], pid: 7, name: "chem".into() },
            method: Method { steps: vec![step(1, 1, 10), step(101, 11, 9090)], ..Method::default() },
            counters: Counters {
                user: FaultCounts { minor: 9100, major: 0 },
                accounts: Some(FaultCounts { minor: 9150, major: 2 }),
                before: FaultCounts { minor: 20, major: 0 },
                ..Counters::default()
            },
            processes: vec![FaultProcess { pid: 7, name: "chem".into() }],
            places: vec![place("//anon"), place("[heap]")],
            tree: CallTree {
                modules: vec![module("/bin/chem"), module("/usr/lib/libc.so.6")],
                frames: vec![frame("main", 0, 80), frame("dgemm", 0, 50), frame("memcpy", 1, 0)],
                calls: vec![
                    Call { parent: None, frame: 0 },
                    Call { parent: Some(0), frame: 1 },
                    Call { parent: Some(1), frame: 2 },
                ],
            },
            faults: vec![faults(2, 0, 90, 1), faults(0, 1, 9, 0), faults(1, 0, 1, 0)],
            ..FaultRecording::default()
        }
    }

    #[test]
    fn a_sample_stands_for_the_faults_counted_in_its_step() {
        let recording = recording();
        recording.check().unwrap();
        let weights = Weights::of(&recording);
        let seen: Vec<f64> = recording.faults.iter().map(|faults| weights.faults(faults)).collect();
        assert_eq!(seen, [9090.0, 9.0, 1.0]);
    }

    #[test]
    fn what_was_left_over_is_spread_over_what_arrived() {
        let mut recording = recording();
        recording.method.steps[1].minor_faults = 18_180;
        recording.counters.user.minor = 18_190;
        let weights = Weights::of(&recording);
        assert_eq!(weights.faults(&recording.faults[0]), 18_180.0);
    }

    #[test]
    fn what_a_step_without_samples_counted_is_nobodys_but_not_forgotten() {
        let mut recording = recording();
        recording.faults.truncate(1);
        let weights = Weights::of(&recording);
        assert_eq!(weights.not_looked_at(), NotLookedAt { minor: 10.0, major: 0.0 });
        recording.faults.clear();
        assert_eq!(Weights::of(&recording).not_looked_at(), NotLookedAt { minor: 9100.0, major: 0.0 });
    }

    #[test]
    fn of_each_short_life_a_period_is_in_doubt_and_what_no_period_ended_with() {
        let mut recording = recording();
        assert_eq!(of_short_lives(&recording), OfShortLives { faults: 0.0, period: 101 });
        let step = &mut recording.method.steps[1];
        (step.ended_threads, step.minor_faults) = (40, 10_000);
        let found = of_short_lives(&recording);
        assert_eq!(found, OfShortLives { faults: 40.0 * 101.0 + 910.0, period: 101 });
        recording.method.steps[1].ended_threads = 90;
        assert_eq!(of_short_lives(&recording).faults, 10_000.0);
        recording.method.steps[1].ended_threads = u64::MAX;
        assert_eq!(of_short_lives(&recording).faults, 10_000.0, "a damaged file's");
    }

    #[test]
    fn what_lost_samples_stand_for_is_nobodys() {
        let mut recording = recording();
        let step = &mut recording.method.steps[1];
        (step.minor_faults, step.major_faults, step.lost_samples) = (101 * 120, 110, 20);
        recording.counters.user = FaultCounts { minor: 10 + 101 * 120, major: 110 };
        recording.faults.push(Faults { is_major: true, samples: 10, weight: 10.0, ..recording.faults[0] });
        let weights = Weights::of(&recording);
        let (lost, expected) = (weights.not_looked_at(), 101.0 * 120.0 * 20.0 / 110.0);
        assert!(
            (lost.minor - expected).abs() < 1e-6 && lost.major == 0.0,
            "10 of 30 may be left over of periods: {lost:?}"
        );
        let taken: f64 = recording.faults.iter().map(|faults| weights.faults(faults)).sum();
        assert!((taken + lost.minor - 12_240.0).abs() < 1e-6, "{taken}");
    }

    #[test]
    fn where_each_fault_has_a_sample_what_is_missing_was_lost_even_if_nobody_said_so() {
        let mut recording = recording();
        recording.faults.retain(|faults| faults.samples != 9);
        recording.method.steps[0].major_faults = 3;
        recording.counters.user.major = 3;
        let weights = Weights::of(&recording);
        assert_eq!(weights.not_looked_at(), NotLookedAt { minor: 9.0, major: 3.0 });
        assert_eq!(weights.faults(&recording.faults[1]), 1.0);
    }
}
