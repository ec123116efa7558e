//! Who made the calls of a pattern: malloc by itself, malloc because the program called malloc_trim, a language's run time, ends of
//! threads, or other functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use faultless_records::churn_recording::{Amount, CallerSum, ChurnRecording};
use faultless_records::memory_call::Operation;

use super::blame::{GO, MALLOC_TRIM, blamed, goes_through_malloc, is_inside, is_nobodys, plain_name};
use super::runtimes::Runtime;

/// Functions of glibc that give back what a thread's stack had, when it ends.
const THREAD_ENDS: &[&str] = &["advise_stack_range", "start_thread"];

/// Who made some calls, as far as their chains are known.
#[derive(Debug, Default)]
pub struct Makers<'recording> {
    by_malloc: u64,
    /// Those of malloc's that it did not decide itself: who called malloc_trim.
    by_trims: BTreeMap<&'recording str, u64>,
    by_go: u64,
    by_thread_ends: u64,
    by_others: BTreeMap<&'recording str, u64>,
}

impl<'recording> Makers<'recording> {
    /// The makers of these calls.
    #[must_use]
    pub fn of(recording: &'recording ChurnRecording, operations: &[Operation]) -> Self {
        Self::among(recording, operations, |_| true)
    }

    /// The makers of those of these calls whose chain made about so large ones, on average; of all where none did. A loader's mappings
    /// are many and small, and have no part in large ones that come and go.
    #[must_use]
    pub fn of_sizes(
        recording: &'recording ChurnRecording,
        operations: &[Operation],
        (smallest, largest): (u64, u64),
    ) -> Self {
        // Amounts are scaled up from those of which chains were taken.
        let sizes = smallest / 2..=largest.saturating_mul(2);
        let those = Self::among(recording, operations, |amount| {
            sizes.contains(&(amount.bytes / amount.count.max(1)))
        });
        if those.all() > 0 { those } else { Self::of(recording, operations) }
    }

    fn among(
        recording: &'recording ChurnRecording,
        operations: &[Operation],
        is_wanted: impl Fn(Amount) -> bool,
    ) -> Self {
        let mut makers = Self::default();
        let wanted = |caller: &&CallerSum| operations.contains(&caller.operation) && is_wanted(caller.amount);
        for caller in recording.callers.iter().filter(wanted) {
            let Some(stack) = recording.stacks.get(caller.stack as usize) else { continue };
            let Some(function) = blamed(stack) else { continue };
            if stack.iter().any(|frame| plain_name(frame) == MALLOC_TRIM) {
                *makers.by_trims.entry(function).or_default() += caller.amount.count;
            }
            // It makes its system calls itself.
            if stack.first().is_some_and(|frame| frame.starts_with(GO)) {
                makers.by_go += caller.amount.count;
            }
            let sum = match () {
                () if goes_through_malloc(stack) => &mut makers.by_malloc,
                // Who called it is not known.
                () if is_nobodys(function) || is_inside(function) => continue,
                () if THREAD_ENDS.contains(&plain_name(function)) => &mut makers.by_thread_ends,
                () => makers.by_others.entry(function).or_default(),
            };
            *sum += caller.amount.count;
        }
        makers
    }

    /// The part of malloc and its family, 0 to 1, of what no thread's end made; none when no chain of it is known.
    #[must_use]
    pub fn part_of_malloc(&self) -> Option<f64> {
        let all = self.by_malloc + self.by_others.values().sum::<u64>();
        (all > 0).then(|| self.by_malloc as f64 / all as f64)
    }

    /// The part, 0 to 1, that ends of threads made.
    #[must_use]
    pub fn part_of_thread_ends(&self) -> f64 {
        self.by_thread_ends as f64 / self.all().max(1) as f64
    }

    /// The part, 0 to 1, that malloc made because the program called malloc_trim.
    #[must_use]
    pub fn part_of_trims(&self) -> f64 {
        self.by_trims.values().sum::<u64>() as f64 / self.all().max(1) as f64
    }

    /// The part, 0 to 1, that Go's run time made.
    #[must_use]
    pub fn part_of_go(&self) -> f64 {
        self.by_go as f64 / self.all().max(1) as f64
    }

    fn all(&self) -> u64 {
        self.by_malloc + self.by_thread_ends + self.by_others.values().sum::<u64>()
    }

    /// The run time whose own memory manager made more than half of what is not malloc's.
    #[must_use]
    pub fn runtime(&self) -> Option<&'static Runtime> {
        let mut sums: BTreeMap<&str, (u64, &'static Runtime)> = BTreeMap::new();
        for (function, count) in &self.by_others {
            if let Some(runtime) = Runtime::of(function) {
                sums.entry(runtime.language).or_insert((0, runtime)).0 += count;
            }
        }
        let all: u64 = self.by_others.values().sum();
        sums.into_values().find(|(count, _)| count * 2 > all).map(|(_, runtime)| runtime)
    }

    /// The function that called malloc_trim for more of them than any other.
    #[must_use]
    pub fn foremost_trimmer(&self) -> Option<Foremost> {
        Foremost::of(&self.by_trims)
    }

    /// The function, not malloc's, that made more than any other.
    #[must_use]
    pub fn foremost_other(&self) -> Option<Foremost> {
        Foremost::of(&self.by_others)
    }
}

/// The part, 0 to 1, of what goes back to the kernel that others than malloc are known to give back, by bytes.
#[must_use]
pub fn part_returned_by_others(recording: &ChurnRecording) -> f64 {
    let by_others = recording.callers.iter().filter(|caller| {
        let stack = recording.stacks.get(caller.stack as usize);
        caller.operation.gives_back()
            && stack.is_some_and(|stack| {
                let is_known =
                    blamed(stack).is_some_and(|function| !is_nobodys(function) && !is_inside(function));
                is_known && !goes_through_malloc(stack)
            })
    });
    by_others.map(|caller| caller.amount.bytes).sum::<u64>() as f64
        / recording.bytes_given_back().max(1) as f64
}

/// The function that made more of some calls than any other, which need not be many.
#[derive(Debug, Clone, PartialEq)]
pub struct Foremost {
    /// Its name.
    pub function: String,
    /// The part that it made, 0 to 1.
    pub part: f64,
    /// So many functions made them.
    pub functions: usize,
}

impl Foremost {
    fn of(sums: &BTreeMap<&str, u64>) -> Option<Self> {
        let (function, most) = sums.iter().max_by_key(|(function, count)| (**count, Reverse(**function)))?;
        let part = *most as f64 / sums.values().sum::<u64>().max(1) as f64;
        Some(Self { function: (*function).to_owned(), part, functions: sums.len() })
    }
}

#[cfg(test)]
mod tests {
    use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

    use super::*;
    use crate::churn::circumstances::Circumstances;
    use crate::churn::tally::Tally;

    const MAP_PRIVATE_ANONYMOUS: u64 = 0x22;

    #[test]
    fn who_makes_many_small_mappings_has_no_part_in_large_ones() {
        let mut tally = Tally::begin(0);
        for (index, times, length) in [(0, 60, 8 << 10), (1, 16, 64 << 20)] {
            let call = MemoryEvent::Call(MemoryCall {
                time_ns: 1,
                pid: 7,
                tid: 7,
                kind: CallKind::Mmap,
                arguments: [0, length, 3, MAP_PRIVATE_ANONYMOUS, u64::MAX],
                result: Ok(0x7f00_0000_0000),
                stack: Some(TakenStack { index, weight: 1 }),
            });
            (0..times).for_each(|_| tally.take(&call));
        }
        let chains = [&["mmap", "_dl_map_segments", "dlopen"][..], &["mmap", "sysmalloc", "malloc", "draw"]];
        let stacks = chains.iter().map(|chain| chain.iter().map(|&frame| frame.to_owned()).collect());
        let recording = tally.finish(Circumstances { stacks: stacks.collect(), ..Circumstances::default() });
        let of = |sizes| Makers::of_sizes(&recording, &[Operation::MapAnonymous], sizes);
        let large = of((196 << 10, 64 << 20));
        assert_eq!((large.part_of_malloc(), large.foremost_other()), (Some(1.0), None));
        assert_eq!(
            of((100 << 20, 1 << 30)).all(),
            16,
            "half of the smallest and twice the largest are about as large"
        );
        let small = of((4 << 10, 16 << 10));
        assert_eq!(small.foremost_other().unwrap().function, "_dl_map_segments");
        // Where sizes do not tell, all are asked.
        assert_eq!(of((1 << 40, 1 << 41)).all(), 76);
    }
}
