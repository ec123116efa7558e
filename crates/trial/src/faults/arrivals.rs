//! How many samples of each step of sampling arrived, and how many were lost on the way.

use std::collections::HashMap;

use faultless_probe::perf::Session;
use faultless_records::perf_record::{News, PerfRecord};

use super::ladder::STEPS;
use super::lives::Lives;

/// Samples by step.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Of the threads that they are of.
    pub lives: Lives,
    /// Since the last turn, with those that were lost.
    turn: [u64; STEPS.len()],
    lost: [u64; STEPS.len()],
    /// Lost on a CPU since the last one that arrived from there.
    lost_before: HashMap<u32, u64>,
    /// Of each CPU that of its last sample.
    last_step: HashMap<u32, usize>,
}

impl Arrivals {
    /// Counts those of a session's records, minor and major ones of a step together.
    pub fn hear(&mut self, records: &[PerfRecord], session: &Session) {
        for record in records {
            match &record.news {
                News::Lost(number) => self.lose(record.cpu, *number),
                News::Sample(sample) => {
                    if let Some(event) = session.place_of(sample.event) {
                        self.add(record.cpu, event / 2);
                        // A major one stands for fewer faults, and there are few.
                        if event % 2 == 0 {
                            self.lives.add(record.tid, event / 2);
                        }
                    }
                }
                News::Exit => self.lives.end(record.tid),
                _ => {}
            }
        }
    }

    fn lose(&mut self, cpu: u32, number: u64) {
        *self.lost_before.entry(cpu).or_default() += number;
    }

    fn add(&mut self, cpu: u32, step: usize) {
        // The kernel's records tell what a buffer lost, not which event, and come with the event that has room next. Between two
        // samples of different steps it lost hundreds of the finer one for one of the coarser.
        let step_of_lost = self.last_step.insert(cpu, step).map_or(step, |last| last.min(step));
        let lost = self.lost_before.remove(&cpu).unwrap_or(0);
        self.lost[step_of_lost] += lost;
        self.turn[step_of_lost] += lost;
        self.turn[step] += 1;
    }

    /// Those of each step since it was last asked.
    pub fn turn(&mut self) -> [u64; STEPS.len()] {
        std::mem::take(&mut self.turn)
    }

    /// Samples of a step that were lost, as far as records tell.
    pub fn lost(&self, step: usize) -> u64 {
        self.lost[step]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_of_the_finer_step_beside_it() {
        let mut arrivals = Arrivals::default();
        let mut add = |cpu, step, lost| {
            arrivals.lose(cpu, lost);
            arrivals.add(cpu, step);
            arrivals.turn()
        };
        assert_eq!(add(0, 0, 3), [4, 0, 0, 0], "before the first sample of a CPU");
        assert_eq!(add(0, 1, 6400), [6400, 1, 0, 0], "one of the coarse step would stand for all of them");
        assert_eq!(add(1, 1, 0), [0, 1, 0, 0]);
        assert_eq!(add(0, 1, 2), [0, 3, 0, 0]);
        assert_eq!(add(0, 0, 126), [127, 0, 0, 0]);
        assert_eq!([0, 1, 2].map(|step| arrivals.lost(step)), [3 + 6400 + 126, 2, 0]);
    }
}
