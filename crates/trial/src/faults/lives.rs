//! How many faults threads take in their lives, those of processes included.
//!
//! The kernel begins a period anew with each thread, so that of a thread's first period the last fault is looked at, and never
//! another. Where threads end after few periods and all do the same, these faults stand for what they know nothing of.

use std::collections::HashMap;

use super::ladder::STEPS;

/// Of so many faults the older ones count for less and less: what a program does changes.
const RECENT: u64 = 100_000;

/// Threads, as far as samples tell of them.
#[derive(Debug, Default)]
pub struct Lives {
    /// Samples by step, of those that live.
    living: HashMap<i32, [u64; STEPS.len()]>,
    /// Those that ended, by the steps that they have samples in.
    ended: [u64; STEPS.len()],
    /// Recent faults.
    faults: u64,
    /// Of these, what a sample of each step would not tell of those that ended: a period, or all of a shorter life.
    untold: [u64; STEPS.len()],
}

impl Lives {
    /// Hears of a thread's sample in a step.
    pub fn add(&mut self, thread: i32, step: usize) {
        self.living.entry(thread).or_default()[step] += 1;
        self.faults += STEPS[step].minor;
        if self.faults > RECENT {
            self.faults /= 2;
            self.untold = self.untold.map(|untold| untold / 2);
        }
    }

    /// Hears of a thread's end.
    pub fn end(&mut self, thread: i32) {
        let Some(samples) = self.living.remove(&thread) else { return };
        let faults: u64 = samples.iter().zip(STEPS).map(|(samples, step)| samples * step.minor).sum();
        for step in 0..STEPS.len() {
            self.ended[step] += u64::from(samples[step] > 0);
            self.untold[step] += faults.min(STEPS[step].minor);
        }
    }

    /// Threads that ended and have samples in a step.
    pub fn ended(&self, step: usize) -> u64 {
        self.ended[step]
    }

    /// Part of the recent faults of which a step does not tell whose they are; 0 where there is no such step.
    pub fn untold(&self, step: usize) -> f64 {
        self.untold.get(step).map_or(0.0, |untold| *untold as f64 / self.faults.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(lives: &mut Lives, thread: i32, faults: u64) {
        (0..faults).for_each(|_| lives.add(thread, 0));
        lives.end(thread);
    }

    #[test]
    fn a_step_tells_little_of_lives_of_few_periods() {
        let mut lives = Lives::default();
        (0..100).for_each(|thread| live(&mut lives, thread, 69));
        assert_eq!([0, 1, 2].map(|step| (lives.untold(step) * 100.0) as u64), [1, 76, 100]);
        assert_eq!([0, 1].map(|step| lives.ended(step)), [100, 0]);
    }

    #[test]
    fn many_threads_that_take_few_faults_do_not_hide_one_that_takes_most() {
        let mut lives = Lives::default();
        (0..9000).for_each(|_| lives.add(7, 0));
        (0..100).for_each(|thread| live(&mut lives, 100 + thread, 10));
        assert_eq!(lives.untold(2), 0.1);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut lives = Lives::default();
        (0..1000).for_each(|thread| live(&mut lives, thread, 69));
        (0..1_000_000).for_each(|_| lives.add(7, 0));
        assert!(lives.untold(2) < 0.01, "{}", lives.untold(2));
    }
}
