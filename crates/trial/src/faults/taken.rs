//! The faults taken so far, those that differ in nothing together.

use std::collections::HashMap;
use std::hash::Hash;

use faultless_records::fault_recording::{Faults, Place};

/// What tells faults apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Innermost call of the raw tree.
    pub call: Option<usize>,
    /// Index of the place.
    pub place: usize,
    /// The process.
    pub pid: i32,
    /// Needed I/O.
    pub is_major: bool,
    /// Inside a system call.
    pub in_kernel: bool,
    /// In a huge page.
    pub is_huge: Option<bool>,
    /// Index of the step of sampling.
    pub step: usize,
}

/// Samples by kind, and those that were lost.
#[derive(Debug, Default)]
pub struct Taken {
    places: Indexed<Place>,
    samples: HashMap<Kind, u64>,
    /// By step.
    lost: HashMap<usize, u64>,
    /// Of each CPU that of its last sample.
    last_step: HashMap<u32, usize>,
}

impl Taken {
    /// Index of a place.
    pub fn place(&mut self, place: Place) -> usize {
        self.places.index(place)
    }

    /// One more sample of a CPU, before which so many were lost there. Their step is the answer; what they were is not known:
    /// what comes right before and after a full buffer may be something else altogether.
    pub fn add(&mut self, cpu: u32, kind: Kind, lost: u64) -> usize {
        // The kernel counts what it lost by buffer, not by event, and says so with the event that has room next. Between two samples
        // of different steps it lost hundreds of the finer one for one of the coarser.
        let step_of_lost =
            self.last_step.insert(cpu, kind.step).map_or(kind.step, |last| last.min(kind.step));
        *self.lost.entry(step_of_lost).or_default() += lost;
        *self.samples.entry(kind).or_default() += 1;
        step_of_lost
    }

    /// So many were lost on a CPU after its last sample; they are of this step where there was none.
    pub fn lose(&mut self, cpu: u32, number: u64, step: usize) {
        let step = self.last_step.get(&cpu).copied().unwrap_or(step);
        *self.lost.entry(step).or_default() += number;
    }

    /// Samples of a step that were lost.
    pub fn lost(&self, step: usize) -> u64 {
        self.lost.get(&step).copied().unwrap_or(0)
    }

    /// The saved form: places, process numbers, faults. `calls` tells the named call for each raw one.
    pub fn finish(self, calls: &[usize]) -> (Vec<Place>, Vec<i32>, Vec<Faults>) {
        let mut pids = Indexed::default();
        let mut faults: HashMap<Kind, Faults> = HashMap::new();
        let mut kinds: Vec<(Kind, u64)> = self.samples.into_iter().collect();
        kinds.sort_unstable_by_key(|(kind, _)| {
            (kind.pid, kind.step, kind.place, kind.call, kind.is_major, kind.in_kernel, kind.is_huge)
        });
        for (kind, samples) in kinds {
            // Different addresses of the same line may have the same name.
            let call = kind.call.and_then(|call| calls.get(call).copied());
            let found = faults.entry(Kind { call, ..kind }).or_insert_with(|| Faults {
                call,
                place: kind.place,
                process: pids.index(kind.pid),
                is_major: kind.is_major,
                in_kernel: kind.in_kernel,
                is_huge: kind.is_huge,
                step: kind.step,
                samples: 0,
                weight: 0.0,
            });
            found.samples += samples;
            found.weight += samples as f64;
        }
        let mut faults: Vec<Faults> = faults.into_values().collect();
        faults.sort_unstable_by_key(|faults| {
            (
                std::cmp::Reverse(faults.samples),
                faults.call,
                faults.place,
                faults.process,
                faults.step,
                faults.is_major,
                faults.in_kernel,
                faults.is_huge,
            )
        });
        (self.places.list, pids.list, faults)
    }
}

/// Values by the order in which they first came.
#[derive(Debug)]
struct Indexed<T> {
    list: Vec<T>,
    indices: HashMap<T, usize>,
}

impl<T> Default for Indexed<T> {
    fn default() -> Self {
        Self { list: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Indexed<T> {
    fn index(&mut self, value: T) -> usize {
        *self.indices.entry(value).or_insert_with_key(|value| {
            self.list.push(value.clone());
            self.list.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_get_the_same_name_are_put_together() {
        let mut taken = Taken::default();
        let mapping = Place { mapping: "[heap]".into(), protection: 3, flags: 2, is_stack: false };
        let place = taken.place(mapping.clone());
        assert_eq!(taken.place(mapping), place);
        let kind =
            Kind { call: Some(0), place, pid: 7, is_major: false, in_kernel: false, is_huge: None, step: 0 };
        taken.add(0, kind, 0);
        taken.add(0, Kind { call: Some(1), ..kind }, 0);
        taken.add(1, Kind { call: Some(1), ..kind }, 2);
        taken.add(0, Kind { call: Some(1), is_major: true, ..kind }, 0);
        let (places, pids, faults) = taken.finish(&[5, 5]);
        assert_eq!((places.len(), pids), (1, vec![7]));
        let seen: Vec<_> =
            faults.iter().map(|faults| (faults.call, faults.is_major, faults.samples)).collect();
        assert_eq!(seen, [(Some(5), false, 3), (Some(5), true, 1)]);
        assert_eq!(faults[0].weight, 3.0);
    }

    #[test]
    fn what_was_lost_is_nobodys_and_of_the_finer_step_beside_it() {
        let mut taken = Taken::default();
        let place = taken.place(Place { mapping: String::new(), protection: 3, flags: 2, is_stack: false });
        let fine =
            Kind { call: Some(0), place, pid: 7, is_major: false, in_kernel: false, is_huge: None, step: 0 };
        let coarse = Kind { call: Some(1), step: 1, ..fine };
        assert_eq!(taken.add(0, fine, 3), 0, "before the first sample of a CPU");
        assert_eq!(
            taken.add(0, coarse, 6400),
            0,
            "one sample of the coarse step would stand for all of them"
        );
        assert_eq!(taken.add(1, coarse, 0), 1);
        assert_eq!(taken.add(0, coarse, 2), 1);
        assert_eq!(taken.add(0, fine, 126), 0);
        assert_eq!([taken.lost(0), taken.lost(1), taken.lost(2)], [3 + 6400 + 126, 2, 0]);
        let (_, _, faults) = taken.finish(&[0, 1]);
        let seen: Vec<_> = faults.iter().map(|faults| (faults.step, faults.samples, faults.weight)).collect();
        assert_eq!(seen, [(1, 3, 3.0), (0, 2, 2.0)]);
    }
}
