//! How many faults are looked at: each one while they are few, one in some hundred while they are many.
//!
//! The periods of a step are fixed, so a sample stands for a known number of faults. (The kernel can choose periods itself, by a
//! wanted frequency, but what it then reports is far off in bursts.)

use std::time::Duration;

use super::lives::Lives;

/// Periods of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// Of minor faults.
    pub minor: u64,
    /// Of major faults.
    pub major: u64,
}

/// Primes, so that no loop keeps in step with them; what each new thread does is in step all the same ([`Lives`]).
pub const STEPS: [Periods; 4] = [
    Periods { minor: 1, major: 1 },
    Periods { minor: 53, major: 3 },
    Periods { minor: 503, major: 11 },
    Periods { minor: 5003, major: 101 },
];

/// Where there can be but one step, because each more means that many more open events.
pub const ONLY_STEP: Periods = STEPS[2];

/// More samples a second than this in a step, and the next begins. A sample costs about 10 µs, most of them where it is read, so
/// 5,000 are 5 % of a CPU. The second step is for processes that are over before a coarser one knows anything of them: what
/// goes on like that is cheaper in the third.
const MOST_PER_SECOND: [f64; STEPS.len()] = [5_000.0, 1_500.0, 5_000.0, f64::INFINITY];

/// So many samples come first, at whatever rate, which cost 0.1 s of CPU: one in 53 of the faults of a short command would be a
/// handful, and say nothing.
const FIRST: u64 = 10_000;

/// This part of the most after the step back, and it is made.
const FEW: f64 = 0.4;

/// How long faults must have been few.
const QUIET: Duration = Duration::from_millis(300);

/// Before a step that leaves a greater part of the faults untold, more samples are taken: one in 53 of the 69 faults of each process
/// of a script, always the same one, would accuse whoever is there.
const UNTOLD: f64 = 0.35;

/// That many times more, which is up to half a CPU.
const MORE: u64 = 10;

/// From this part on it is left again. More than what lets enter, as what is seen of a life is less than all.
const MOSTLY_UNTOLD: f64 = 0.5;

/// So many samples are enough to judge a rate.
const ENOUGH: u64 = 100;

/// Which step is in force.
#[derive(Debug, Default)]
pub struct Ladder {
    step: usize,
    samples: u64,
    time: Duration,
    /// Of all steps.
    samples_in_all: u64,
}

impl Ladder {
    /// The step in force.
    pub fn step(&self) -> usize {
        self.step
    }

    /// Hears of samples in some time, whether they nearly had no room, and of whose lives; the step to change to.
    pub fn hear(&mut self, samples: u64, time: Duration, is_crowded: bool, lives: &Lives) -> Option<usize> {
        self.samples += samples;
        self.samples_in_all += samples;
        self.time += time;
        let seconds = self.time.as_secs_f64().max(1e-6);
        let rate = self.samples as f64 / seconds;
        let is_free = self.step == 0 && self.samples_in_all < FIRST && !is_crowded;
        let next = self.step + 1;
        let times = if lives.untold(next) > UNTOLD { MORE } else { 1 };
        let is_much = rate > MOST_PER_SECOND[self.step] * times as f64;
        if self.samples >= ENOUGH * times && is_much && !is_free {
            return Some(self.change(next));
        }
        if self.time < QUIET {
            return None;
        }
        if let Some(before) = self.step.checked_sub(1) {
            let rate_before = rate * (STEPS[self.step].minor as f64 / STEPS[before].minor as f64);
            if rate_before < FEW * MOST_PER_SECOND[before] || lives.untold(self.step) > MOSTLY_UNTOLD {
                return Some(self.change(before));
            }
        }
        self.samples = 0;
        self.time = Duration::ZERO;
        None
    }

    fn change(&mut self, step: usize) -> usize {
        *self = Self { step, samples_in_all: self.samples_in_all, ..Self::default() };
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What a program of so many faults a second leads to, second by second.
    fn steps(ladder: &mut Ladder, faults_per_ms: u64, milliseconds: u64) -> usize {
        for _ in 0..milliseconds {
            let period = STEPS[ladder.step()].minor;
            ladder.hear(faults_per_ms / period, MS, false, &Lives::default());
        }
        ladder.step()
    }

    #[test]
    fn few_faults_are_all_looked_at_and_many_are_sampled() {
        let mut ladder = Ladder::default();
        assert_eq!(steps(&mut ladder, 4, 3000), 0);
        assert_eq!(steps(&mut ladder, 500, 5), 1, "a burst is answered at once");
        assert_eq!(steps(&mut ladder, 500, 20), 2, "and what goes on like that");
        assert_eq!(steps(&mut ladder, 503, 2000), 2, "the answer lasts");
        assert_eq!(steps(&mut ladder, 10_000, 2000), 3, "on many CPUs");
        assert_eq!(steps(&mut ladder, 0, 1500), 0, "until it is quiet");
    }

    #[test]
    fn all_faults_of_a_short_command_are_looked_at_while_there_is_room() {
        let mut ladder = Ladder::default();
        assert_eq!(steps(&mut ladder, 50, 30), 0);
        assert_eq!(steps(&mut ladder, 50, 169), 0);
        assert_eq!(steps(&mut ladder, 50, 2), 1, "10,000 are enough, whenever they were");

        let mut ladder = Ladder::default();
        assert_eq!(ladder.hear(300, MS, false, &Lives::default()), None);
        assert_eq!(ladder.hear(300, MS, true, &Lives::default()), Some(1), "fewer before some are lost");
    }

    /// The step after a second of threads that each take so many faults, one after the other.
    fn step_of_lives(faults_per_ms: u64, life: u64) -> usize {
        let (mut ladder, mut lives) = (Ladder::default(), Lives::default());
        for ms in 0..1000 {
            let mut samples = 0;
            for fault in ms * faults_per_ms..(ms + 1) * faults_per_ms {
                let (thread, place) = ((fault / life) as i32, fault % life + 1);
                if place.is_multiple_of(STEPS[ladder.step()].minor) {
                    lives.add(thread, ladder.step());
                    samples += 1;
                }
                if place == life {
                    lives.end(thread);
                }
            }
            ladder.hear(samples, MS, false, &lives);
        }
        ladder.step()
    }

    #[test]
    fn periods_stay_short_against_lives() {
        let steps = [(30, 69), (200, 257), (200, 100_000)];
        assert_eq!(steps.map(|(faults_per_ms, life)| step_of_lives(faults_per_ms, life)), [0, 1, 2]);
    }

    #[test]
    fn what_would_cost_too_much_is_left_for_a_while() {
        let (mut ladder, mut lives) = (Ladder::default(), Lives::default());
        for thread in 0..145 {
            (0..69).for_each(|_| lives.add(thread, 0));
            lives.end(thread);
        }
        assert_eq!(ladder.hear(FIRST, 500 * MS, false, &lives), None, "20,000 a second");
        assert_eq!(ladder.hear(100_000, 1000 * MS, false, &lives), Some(1));
        assert_eq!(ladder.hear(300, QUIET, false, &lives), Some(0));
    }

    #[test]
    fn a_rate_between_two_steps_does_not_go_to_and_fro() {
        let mut ladder = Ladder::default();
        let (mut changes, mut left) = (0, 0);
        for _ in 0..5000 {
            let period = STEPS[ladder.step()].minor;
            left += 15;
            changes += usize::from(ladder.hear(left / period, MS, false, &Lives::default()).is_some());
            left %= period;
        }
        // Every 503rd of 15,000 a second is 30 a second; one step back would be too many again.
        assert!(changes <= 2, "{changes}");
    }
}
