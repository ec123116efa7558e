//! Scales what was described of a process to what was counted of it, and adds it to the recording.

use std::collections::{BTreeMap, HashMap};

use faultless_records::churn_recording::class_of;
use faultless_records::malloc_event::{CallCount, MallocFunction};
use faultless_records::malloc_recording::{
    BlockLives, Estimate, FunctionSum, Handover, MallocCaller, MallocRecording, ThreadSum,
};

use super::ends::{self, ClassEnd, Survivors};
use super::{LiveBytes, Part, Process};

impl Process {
    /// Adds this process to the recording, scaled to its exact counts; returns what lives.
    pub(super) fn add_to(
        mut self,
        recording: &mut MallocRecording,
        callers: &mut HashMap<(u32, MallocFunction), MallocCaller>,
    ) -> LiveBytes {
        let left = self.blocks_left();
        let survivors = self.take_survivors();
        let exact = self.add_counts(recording);
        recording.described += self.described;
        let weights = |class: &u8| self.weights.get(class).copied().unwrap_or_default();
        // What was not counted is known from its descriptions alone.
        let all = |class: u8| exact.get(&class).copied().unwrap_or_else(|| weights(&class));
        let factors = |class: u8| ratios(all(class), weights(&class));
        let estimated = self.ends(&survivors, &factors);
        let mut settled = estimated.clone();
        if let Some(left) = left {
            ends::settle(&mut settled, left as f64);
        }
        let live = self.add_sizes(recording, &settled, &factors);
        self.add_callers(callers, &estimated, &settled, &all);
        let places = self.add_threads(recording, &factors);
        self.add_handovers(recording, &places, &factors);
        live
    }

    /// What became of the blocks of each class, as estimated.
    fn ends(
        &self,
        survivors: &BTreeMap<u8, Survivors>,
        factors: &dyn Fn(u8) -> Estimate,
    ) -> BTreeMap<u8, ClassEnd> {
        let end = |(class, lives): (&u8, &BlockLives)| {
            let extremes = self.extremes.get(class).copied().unwrap_or_default();
            let survivors = survivors.get(class).copied().unwrap_or_default();
            (*class, ClassEnd::new(lives, survivors, extremes, factors(*class)))
        };
        self.lives.iter().map(end).collect()
    }

    /// Adds the lives of the blocks of each class; returns what lives.
    fn add_sizes(
        &self,
        recording: &mut MallocRecording,
        ends: &BTreeMap<u8, ClassEnd>,
        factors: &dyn Fn(u8) -> Estimate,
    ) -> LiveBytes {
        let mut live = LiveBytes::default();
        for (class, lives) in &self.lives {
            let (sum, factors, end) =
                (recording.sizes.entry(*class).or_default(), factors(*class), ends[class]);
            live.add(1.0, LiveBytes { estimate: end.live.bytes, variance: end.bytes_variance });
            sum.freed.add_scaled(end.freed, 1.0);
            sum.freed_elsewhere.add_by(lives.freed_elsewhere, factors);
            sum.live.add_scaled(end.live, 1.0);
            sum.unknown.add_scaled(end.unknown, 1.0);
            for (life, number) in &lives.by_life {
                *sum.by_life.entry(*life).or_default() += number * factors.count;
            }
        }
        live
    }

    /// Adds the blocks that one thread allocated and another freed; `places` of threads in the recording.
    fn add_handovers(
        &self,
        recording: &mut MallocRecording,
        places: &BTreeMap<i32, usize>,
        factors: &dyn Fn(u8) -> Estimate,
    ) {
        let mut handovers: BTreeMap<(usize, usize), Estimate> = BTreeMap::new();
        for ((from, to, class), amount) in &self.handovers {
            if let (Some(from), Some(to)) = (places.get(from), places.get(to)) {
                handovers.entry((*from, *to)).or_default().add_by(*amount, factors(*class));
            }
        }
        let handovers = handovers.into_iter().map(|((from, to), amount)| Handover { from, to, amount });
        recording.handovers.extend(handovers);
        recording.handovers.sort_by(|one, other| other.amount.count.total_cmp(&one.amount.count));
    }

    /// Adds the described blocks that live to their class and their caller; returns them by class.
    fn take_survivors(&mut self) -> BTreeMap<u8, Survivors> {
        let mut survivors: BTreeMap<u8, Survivors> = BTreeMap::new();
        for block in std::mem::take(&mut self.live).into_values() {
            let class = class_of(block.size_bytes);
            survivors.entry(class).or_default().add(block.weight, LiveBytes::of(&block).variance);
            self.lives.entry(class).or_default().live.add(block.weight, block.size_bytes);
            if let Some(stack) = block.stack {
                let part = self.callers.entry((stack, block.function, class)).or_default();
                part.live.add(block.weight, block.size_bytes);
                part.live_variance += block.weight * (block.weight - 1.0);
            }
        }
        survivors
    }

    /// Adds what was counted exactly to the recording; returns the calls and bytes of each class.
    fn add_counts(&self, recording: &mut MallocRecording) -> BTreeMap<u8, Estimate> {
        let mut exact: BTreeMap<u8, Estimate> = BTreeMap::new();
        for ring in &self.counts {
            for CallCount { function, class, calls, bytes } in ring.calls.iter().copied() {
                let counted = Estimate { count: calls as f64, bytes: bytes as f64 };
                exact.entry(class).or_default().add_scaled(counted, 1.0);
                let sum: &mut FunctionSum = recording.functions.entry(function).or_default();
                for amount in [&mut sum.amount, sum.sizes.entry(class).or_default()] {
                    amount.count += calls;
                    amount.bytes = amount.bytes.saturating_add(bytes);
                }
            }
            recording.frees += ring.frees;
            recording.freed_by_realloc += ring.freed_by_realloc;
            recording.failed += ring.failed;
            recording.lost += ring.dropped;
        }
        exact
    }

    /// Returns the places of this process's threads in the recording.
    fn add_threads(
        &self,
        recording: &mut MallocRecording,
        factors: &dyn Fn(u8) -> Estimate,
    ) -> BTreeMap<i32, usize> {
        let mut sums: BTreeMap<i32, Part> = BTreeMap::new();
        for ((tid, class), part) in &self.threads {
            let sum = sums.entry(*tid).or_default();
            sum.allocated.add_by(part.allocated, factors(*class));
            sum.freed_own.add_by(part.freed_own, factors(*class));
            sum.freed_of_others.add_by(part.freed_of_others, factors(*class));
        }
        let mut places = BTreeMap::new();
        for (tid, part) in sums {
            places.insert(tid, recording.threads.len());
            recording.threads.push(ThreadSum {
                pid: self.pid,
                tid,
                name: self.names.get(&tid).cloned().unwrap_or_default(),
                allocated: part.allocated,
                freed_own: part.freed_own,
                freed_of_others: part.freed_of_others,
            });
        }
        places
    }
}

/// How many times `part` is `all`; once where there is no part.
pub(super) fn ratios(all: Estimate, part: Estimate) -> Estimate {
    let ratio = |all: f64, part: f64| if part > 0.0 { all / part } else { 1.0 };
    Estimate { count: ratio(all.count, part.count), bytes: ratio(all.bytes, part.bytes) }
}
