//! Two recordings of one kind side by side: who calls more or holds more now, and who less.

use std::collections::BTreeMap;

use faultless_records::churn_recording::{ChurnRecording, Mechanism};
use faultless_records::malloc_recording::{Estimate, MallocRecording};

use super::blame::{NOT_SEEN, blamed};

/// What some calls were about.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sums {
    /// How many; of malloc's family those that got a block.
    pub calls: f64,
    /// Bytes asked for or given back.
    pub bytes: f64,
    /// Bytes that they had made and that were there at the end.
    pub live_bytes: f64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.live_bytes += other.live_bytes;
    }
}

/// A function that made one kind of call, in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its name.
    pub function: String,
    /// The call.
    pub call: &'static str,
    /// What it did in the first recording.
    pub before: Sums,
    /// And in the second.
    pub after: Sums,
}

impl Change {
    /// The largest part that any of its differences is of the larger of all recordings' sums, 0 to 1.
    #[must_use]
    pub fn weight(&self, all: (Sums, Sums)) -> f64 {
        let part = |sum: fn(Sums) -> f64| {
            let largest = sum(all.0).max(sum(all.1)).max(f64::MIN_POSITIVE);
            (sum(self.after) - sum(self.before)).abs() / largest
        };
        part(|sums| sums.calls).max(part(|sums| sums.bytes)).max(part(|sums| sums.live_bytes))
    }
}

/// How two recordings compare: pairs are of the first and the second.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Seconds that they took.
    pub seconds: (f64, f64),
    /// All calls.
    pub all: (Sums, Sums),
    /// Whether what was there at the end is known of both.
    pub ends_are_known: bool,
    /// By so much `live_bytes` of both together may be off: a standard error.
    pub live_error_bytes: f64,
    /// Whether functions are known of both.
    pub callers_are_known: bool,
    /// Whether they are estimated from some of the calls.
    pub is_estimated: bool,
    /// Functions, the most telling differences first; those without any are left out.
    pub functions: Vec<Change>,
}

/// One recording, as far as it is compared.
struct Side {
    seconds: f64,
    all: Sums,
    ends_are_known: bool,
    live_error_bytes: f64,
    is_estimated: bool,
    functions: BTreeMap<(String, &'static str), Sums>,
}

impl Side {
    fn of_malloc(recording: &MallocRecording) -> Self {
        let mut all = Sums::default();
        for sum in recording.functions.values() {
            let (calls, bytes) = (sum.amount.count as f64, sum.amount.bytes as f64);
            all.add(Sums { calls, bytes, live_bytes: 0.0 });
        }
        all.live_bytes = recording.sizes.values().map(|lives| lives.live.bytes).sum();
        let parts = recording.callers.iter().map(|caller| {
            let Estimate { count: calls, bytes } = caller.allocated;
            (caller.stack, caller.function.name(), Sums { calls, bytes, live_bytes: caller.live.bytes })
        });
        Self {
            seconds: recording.observed_s(),
            all,
            ends_are_known: recording.ends_are_known(),
            live_error_bytes: recording.live_error_bytes,
            is_estimated: recording.described as f64 != all.calls || recording.lost > 0,
            functions: by_function(&recording.stacks, parts),
        }
    }

    fn of_kernel(recording: &ChurnRecording) -> Self {
        let mut all = Sums::default();
        for sum in recording.operations.values() {
            let (calls, bytes) = ((sum.amount.count + sum.failed) as f64, sum.amount.bytes as f64);
            all.add(Sums { calls, bytes, live_bytes: 0.0 });
        }
        all.live_bytes = recording.live_mappings.bytes as f64;
        let calls = recording.callers.iter().map(|caller| {
            let (calls, bytes) = (caller.amount.count as f64, caller.amount.bytes as f64);
            (caller.stack, caller.operation.name(), Sums { calls, bytes, live_bytes: 0.0 })
        });
        let live = recording.live_callers.iter().map(|caller| {
            let live_bytes = caller.amount.bytes as f64;
            (caller.stack, caller.operation.name(), Sums { live_bytes, ..Sums::default() })
        });
        Self {
            seconds: recording.observed_s(),
            all,
            // It does not see what is unmapped.
            ends_are_known: recording.mechanism != Mechanism::MmapRecords,
            live_error_bytes: 0.0,
            is_estimated: (recording.chains.taken as f64) < all.calls,
            functions: by_function(&recording.stacks, calls.chain(live)),
        }
    }

    /// Whether any call has one.
    fn callers_are_known(&self) -> bool {
        !self.functions.is_empty() || self.all.calls == 0.0
    }
}

fn by_function(
    stacks: &[Vec<String>],
    parts: impl Iterator<Item = (u32, &'static str, Sums)>,
) -> BTreeMap<(String, &'static str), Sums> {
    let mut functions: BTreeMap<(String, &'static str), Sums> = BTreeMap::new();
    for (stack, call, sums) in parts {
        let function = stacks.get(stack as usize).and_then(|stack| blamed(stack)).unwrap_or(NOT_SEEN);
        functions.entry((function.to_owned(), call)).or_default().add(sums);
    }
    functions
}

impl Comparison {
    /// Compares calls of malloc and its family.
    #[must_use]
    pub fn of_malloc(before: &MallocRecording, after: &MallocRecording) -> Self {
        Self::of(Side::of_malloc(before), Side::of_malloc(after))
    }

    /// Compares calls of the kernel.
    #[must_use]
    pub fn of_kernel(before: &ChurnRecording, after: &ChurnRecording) -> Self {
        Self::of(Side::of_kernel(before), Side::of_kernel(after))
    }

    fn of(before: Side, after: Side) -> Self {
        let callers_are_known = [&before, &after].iter().all(|side| side.callers_are_known());
        let mut pairs: BTreeMap<(String, &'static str), (Sums, Sums)> = BTreeMap::new();
        for (key, sums) in before.functions {
            pairs.entry(key).or_default().0 = sums;
        }
        for (key, sums) in after.functions {
            pairs.entry(key).or_default().1 = sums;
        }
        let all = (before.all, after.all);
        let mut functions: Vec<Change> = pairs
            .into_iter()
            .filter(|(_, (before, after))| before != after)
            .map(|((function, call), (before, after))| Change { function, call, before, after })
            .collect();
        functions.sort_by(|one, other| other.weight(all).total_cmp(&one.weight(all)));
        Self {
            seconds: (before.seconds, after.seconds),
            all,
            ends_are_known: before.ends_are_known && after.ends_are_known,
            live_error_bytes: before.live_error_bytes.hypot(after.live_error_bytes),
            callers_are_known,
            is_estimated: before.is_estimated || after.is_estimated,
            functions,
        }
    }

    /// Whether what was there at the ends differs by no more than their errors make likely (two standard errors).
    #[must_use]
    pub fn live_may_be_equal(&self) -> bool {
        let (before, after) = self.all;
        (after.live_bytes - before.live_bytes).abs() <= 2.0 * self.live_error_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::churn::circumstances::{Circumstances, MallocCircumstances};
    use crate::churn::malloc_tally::MallocTally;
    use crate::churn::tally::Tally;
    use faultless_records::malloc_recording::MallocCaller;
    use faultless_records::memory_call::Operation;

    /// Callers with their calls, bytes of each, and how many of these are there at the end.
    fn recording(callers: &[(&str, f64, f64, f64)]) -> MallocRecording {
        let mut recording = MallocTally::default().finish(MallocCircumstances::default());
        for (number, (name, calls, bytes, live)) in callers.iter().enumerate() {
            recording.stacks.push(vec!["malloc".into(), (*name).into(), "main".into()]);
            recording.callers.push(MallocCaller {
                stack: number as u32,
                function: Default::default(),
                allocated: Estimate { count: *calls, bytes: calls * bytes },
                live: Estimate { count: *live, bytes: live * bytes },
                unknown: Estimate::default(),
                life_sum_ns: 0.0,
                freed: Estimate::default(),
            });
            let sum = recording.functions.entry(Default::default()).or_default();
            sum.amount.count += *calls as u64;
            sum.amount.bytes += (calls * bytes) as u64;
            recording.sizes.entry(4).or_default().live.add(*live, *bytes as u64);
            recording.described += *calls as u64;
        }
        recording
    }

    #[test]
    fn who_leaks_more_comes_before_who_calls_a_little_more_and_equals_are_left_out() {
        let before =
            recording(&[("same", 100.0, 10.0, 5.0), ("leak", 10.0, 100.0, 1.0), ("busy", 1e6, 8.0, 0.0)]);
        let after =
            recording(&[("busy", 1.01e6, 8.0, 0.0), ("leak", 10.0, 100.0, 9.0), ("same", 100.0, 10.0, 5.0)]);
        let comparison = Comparison::of_malloc(&before, &after);
        let names: Vec<&str> = comparison.functions.iter().map(|change| change.function.as_str()).collect();
        assert_eq!(names, ["leak", "busy"]);
        let Change { before: first, after: second, call, .. } = &comparison.functions[0];
        assert_eq!((*call, first.live_bytes, second.live_bytes), ("malloc", 100.0, 900.0));
        assert_eq!((comparison.all.0.live_bytes, comparison.all.1.live_bytes), (150.0, 950.0));
        assert!(!comparison.live_may_be_equal() && !comparison.is_estimated);
        assert!(Comparison::of_malloc(&before, &before).functions.is_empty());
    }

    #[test]
    fn a_difference_within_two_standard_errors_is_none() {
        let mut before = recording(&[("leak", 10.0, 100.0, 1.0)]);
        let mut after = recording(&[("leak", 10.0, 100.0, 9.0)]);
        (before.live_error_bytes, after.live_error_bytes) = (240.0, 320.0);
        let comparison = Comparison::of_malloc(&before, &after);
        assert_eq!(comparison.live_error_bytes, 400.0);
        assert!(comparison.live_may_be_equal(), "800 bytes");
        after.live_error_bytes = 0.0;
        assert!(!Comparison::of_malloc(&before, &after).live_may_be_equal());
    }

    #[test]
    fn one_side_that_is_estimated_makes_estimates_of_both() {
        let before = recording(&[("some", 10.0, 100.0, 1.0)]);
        let mut after = before.clone();
        after.described -= 1;
        assert!(Comparison::of_malloc(&before, &after).is_estimated);
    }

    #[test]
    fn what_the_kernels_records_do_not_tell_is_not_known() {
        let seen_by = |mechanism| {
            let circumstances = Circumstances { mechanism, observed_ns: 1, ..Circumstances::default() };
            let mut recording = Tally::begin(0).finish(circumstances);
            recording.operations.entry(Operation::MapAnonymous).or_default().amount.add(4096);
            let nothing =
                Tally::begin(0).finish(Circumstances { observed_ns: 1, ..Circumstances::default() });
            let comparison = Comparison::of_kernel(&recording, &nothing);
            assert_eq!(comparison.all.0, Sums { calls: 1.0, bytes: 4096.0, live_bytes: 0.0 });
            assert!(comparison.is_estimated, "no chain was taken of the call");
            (comparison.ends_are_known, comparison.callers_are_known)
        };
        assert_eq!(seen_by(Mechanism::MmapRecords), (false, false));
        assert_eq!(seen_by(Mechanism::Seccomp), (true, false));
    }
}
