//! The faults taken so far, those that differ in nothing together.

use std::collections::{HashMap, VecDeque};
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

/// Samples of a CPU that share what was lost after the last of them with the next.
const SHARERS: usize = 64;

/// Samples by kind: their number, and their weight.
#[derive(Debug, Default)]
pub struct Taken {
    places: Indexed<Place>,
    samples: HashMap<Kind, (u64, f64)>,
    /// The last samples of each CPU.
    recent: HashMap<u32, VecDeque<Kind>>,
}

impl Taken {
    /// Index of a place.
    pub fn place(&mut self, place: Place) -> usize {
        self.places.index(place)
    }

    /// One more sample of a CPU, before which so many were lost there. Those are shared out among it and the last ones of their
    /// step: what comes right after a full buffer may be something else altogether. Their step is the answer.
    pub fn add(&mut self, cpu: u32, kind: Kind, lost: u64) -> usize {
        let recent = self.recent.entry(cpu).or_default();
        // The kernel counts what it lost by buffer, not by event, and says so with the event that has room next. Between two samples
        // of different steps it lost hundreds of the finer one for one of the coarser.
        let step_of_lost = recent.back().map_or(kind.step, |last| last.step.min(kind.step));
        if lost > 0 {
            let next = Kind { step: step_of_lost, ..kind };
            let sharers: Vec<Kind> =
                recent.iter().copied().filter(|other| other.step == step_of_lost).chain([next]).collect();
            let share = lost as f64 / sharers.len() as f64;
            for sharer in sharers {
                self.samples.entry(sharer).or_default().1 += share;
            }
        }
        if recent.len() == SHARERS {
            recent.pop_front();
        }
        recent.push_back(kind);
        let (samples, sum) = self.samples.entry(kind).or_default();
        *samples += 1;
        *sum += 1.0;
        step_of_lost
    }

    /// The saved form: places, process numbers, faults. `calls` tells the named call for each raw one.
    pub fn finish(self, calls: &[usize]) -> (Vec<Place>, Vec<i32>, Vec<Faults>) {
        let mut pids = Indexed::default();
        let mut faults: HashMap<Kind, Faults> = HashMap::new();
        let mut kinds: Vec<(Kind, (u64, f64))> = self.samples.into_iter().collect();
        kinds.sort_unstable_by_key(|(kind, _)| {
            (kind.pid, kind.step, kind.place, kind.call, kind.is_major, kind.in_kernel, kind.is_huge)
        });
        for (kind, (samples, weight)) in kinds {
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
            found.weight += weight;
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
        assert_eq!(faults[0].weight, 5.0);
    }

    #[test]
    fn what_was_lost_is_shared_with_the_samples_before_it() {
        let mut taken = Taken::default();
        let place = taken.place(Place { mapping: String::new(), protection: 3, flags: 2, is_stack: false });
        let of = |call: usize, step: usize| Kind {
            call: Some(call),
            place,
            pid: 7,
            is_major: false,
            in_kernel: false,
            is_huge: None,
            step,
        };
        // Of another CPU, too long ago, of another step.
        taken.add(1, of(0, 0), 0);
        taken.add(0, of(1, 0), 0);
        for _ in 0..SHARERS {
            taken.add(0, of(3, 0), 0);
        }
        taken.add(0, of(2, 1), 0);
        taken.add(0, of(4, 0), 6400);
        let (_, _, faults) = taken.finish(&[0, 1, 2, 3, 4]);
        let weight =
            |call: usize| faults.iter().find(|faults| faults.call == Some(call)).map(|faults| faults.weight);
        let expected = [Some(1.0), Some(1.0), Some(1.0), Some(64.0 + 6300.0), Some(1.0 + 100.0)];
        assert_eq!([0, 1, 2, 3, 4].map(weight), expected);
    }

    #[test]
    fn what_was_lost_between_two_steps_belongs_to_the_finer_one() {
        let mut taken = Taken::default();
        let place = taken.place(Place { mapping: String::new(), protection: 3, flags: 2, is_stack: false });
        let fine =
            Kind { call: Some(0), place, pid: 7, is_major: false, in_kernel: false, is_huge: None, step: 0 };
        let coarse = Kind { call: Some(1), step: 1, ..fine };
        for _ in 0..SHARERS - 1 {
            taken.add(0, fine, 0);
        }
        assert_eq!(
            taken.add(0, coarse, 6400),
            0,
            "one sample of the coarse step would stand for all of them"
        );
        assert_eq!(taken.add(0, coarse, 2), 1);
        assert_eq!(taken.add(0, fine, 126), 0);
        let (_, _, faults) = taken.finish(&[0, 1]);
        let weight = |step: usize| -> f64 {
            faults.iter().filter(|faults| faults.step == step).map(|faults| faults.weight).sum()
        };
        assert_eq!([weight(0), weight(1)], [64.0 + 6400.0 + 126.0, 2.0 + 2.0]);
    }
}
