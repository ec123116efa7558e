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

/// Samples by kind.
#[derive(Debug, Default)]
pub struct Taken {
    places: Indexed<Place>,
    samples: HashMap<Kind, u64>,
}

impl Taken {
    /// Index of a place.
    pub fn place(&mut self, place: Place) -> usize {
        self.places.index(place)
    }

    /// One more sample.
    pub fn add(&mut self, kind: Kind) {
        *self.samples.entry(kind).or_default() += 1;
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
        let mapping = Place { mapping: "[heap]".into(), protection: 3, flags: 2, ..Place::default() };
        let place = taken.place(mapping.clone());
        assert_eq!(taken.place(mapping), place);
        let kind =
            Kind { call: Some(0), place, pid: 7, is_major: false, in_kernel: false, is_huge: None, step: 0 };
        taken.add(kind);
        taken.add(Kind { call: Some(1), ..kind });
        taken.add(Kind { call: Some(1), ..kind });
        taken.add(Kind { call: Some(1), is_major: true, ..kind });
        let (places, pids, faults) = taken.finish(&[5, 5]);
        assert_eq!((places.len(), pids), (1, vec![7]));
        let seen: Vec<_> =
            faults.iter().map(|faults| (faults.call, faults.is_major, faults.samples)).collect();
        assert_eq!(seen, [(Some(5), false, 3), (Some(5), true, 1)]);
        assert_eq!(faults[0].weight, 3.0);
    }
}
