//! What the events of probes say: which calls, of which sizes, and which blocks they end.

use super::{CallsElsewhere, FREE, Observer, REALLOC};
use crate::perf::{Moment, Session};
use faultless_records::churn_recording::class_of;
use faultless_records::malloc_event::{Allocated, CallCount, MallocEvent, MallocFunction, RingCounts};
use faultless_records::perf_record::{News, PerfRecord, Registers, Sample};
use std::collections::HashMap;

/// What the events say.
#[derive(Default)]
pub struct Decoder {
    /// Of which process.
    pid: i32,
    /// Function and whether it is its return, by place in the plan.
    places: Vec<(usize, bool)>,
    /// Exact counts.
    pub counts: RingCounts,
    /// All of them cost time.
    pub hits: u64,
    /// What other processes did.
    pub elsewhere: CallsElsewhere,
    /// Calls that were seen.
    pub calls: u64,
    /// Calls that have begun: function, size, and the block that realloc got.
    open: HashMap<i32, (usize, u64, Option<u64>)>,
    /// Chains of calls that have begun.
    chains: HashMap<i32, u32>,
    /// Blocks by address.
    live: HashMap<u64, u64>,
    next_id: u64,
    /// The kernel left calls out, because they came too often for its limit.
    pub is_held_back: bool,
}

impl Decoder {
    /// Of this process; `places`: function and whether it is its return, in the order of the plan's events.
    pub fn new(pid: i32, places: Vec<(usize, bool)>) -> Self {
        Self { pid, places, ..Self::default() }
    }

    /// Reads what has come; `is_last`: nothing more comes of these.
    pub fn read(
        &mut self,
        calls: &mut Session,
        chains: Option<&mut Session>,
        is_last: bool,
        observer: &mut dyn Observer,
    ) {
        let moment = Moment::last_or_settled(is_last);
        let take = |session: &mut Session| session.read_until(moment);
        let mut records: Vec<(bool, PerfRecord)> =
            take(calls).into_iter().map(|record| (false, record)).collect();
        records.extend(chains.map(take).unwrap_or_default().into_iter().map(|record| (true, record)));
        // Of the same moment the chain comes first: its call takes it.
        records.sort_by_key(|(is_chain, record)| (record.time_ns, !is_chain));
        for (is_chain, record) in records {
            let sample = match &record.news {
                News::Sample(sample) => sample,
                News::Throttled => {
                    self.is_held_back |= !is_chain;
                    continue;
                }
                _ => continue,
            };
            let is_elsewhere = record.pid != self.pid;
            if is_chain {
                if !is_elsewhere && let Some(chain) = observer.chain(&record, sample) {
                    self.chains.insert(record.tid, chain);
                }
                continue;
            }
            self.hits += 1;
            match calls.place_of(sample.event) {
                Some(place) if is_elsewhere => self.leave_out(place, record.pid),
                Some(place) => self.take(place, &record, sample, observer),
                None => {}
            }
        }
    }

    /// What a child frees are copies of its own, at addresses where the process may have blocks.
    fn leave_out(&mut self, place: usize, pid: i32) {
        let is_call = self.places.get(place).is_some_and(|(_, is_return)| !is_return);
        self.elsewhere.processes.insert(pid);
        self.elsewhere.calls += u64::from(is_call);
        self.elsewhere.hits += 1;
    }

    fn take(&mut self, place: usize, record: &PerfRecord, sample: &Sample, observer: &mut dyn Observer) {
        let Some((function, is_return)) = self.places.get(place).copied() else { return };
        let [first, second] = sample.function.arguments;
        match (function, is_return) {
            (FREE, _) => {
                self.counts.frees += u64::from(first != 0);
                self.calls += u64::from(first != 0);
                self.free(first, record, false, observer);
            }
            (_, false) => {
                let size = match function {
                    1 => first.saturating_mul(second),
                    0 => first,
                    _ => second,
                };
                let old = (function == REALLOC && first != 0).then_some(first);
                // A call inside another (memalign by aligned_alloc) is one with it.
                self.open.entry(record.tid).or_insert((function, size, old));
            }
            (_, true) => {
                let Some((opened, size_bytes, old)) = self.open.get(&record.tid).copied() else { return };
                if opened != function {
                    return;
                }
                self.open.remove(&record.tid);
                let block = sample.function.answer;
                // A refusal leaves the block where it was; of no bytes it is a free.
                if let Some(old) = old.filter(|_| block != 0 || size_bytes == 0) {
                    self.free(old, record, true, observer);
                }
                self.allocate(function, size_bytes, block, record, observer);
            }
        }
    }

    fn allocate(
        &mut self,
        function: usize,
        size_bytes: u64,
        block: u64,
        record: &PerfRecord,
        observer: &mut dyn Observer,
    ) {
        let chain = self.chains.remove(&record.tid);
        self.calls += 1;
        if block == 0 {
            self.counts.failed += u64::from(size_bytes > 0);
            return;
        }
        let function = MallocFunction::ALL[function.min(3)];
        let class = class_of(size_bytes);
        let is_same = |count: &&mut CallCount| count.function == function && count.class == class;
        match self.counts.calls.iter_mut().find(is_same) {
            Some(count) => {
                count.calls += 1;
                count.bytes = count.bytes.saturating_add(size_bytes);
            }
            None => self.counts.calls.push(CallCount { function, class, calls: 1, bytes: size_bytes }),
        }
        self.counts.described += 1;
        self.next_id += 1;
        self.live.insert(block, self.next_id);
        let allocated = Allocated {
            time_ns: record.time_ns,
            id: self.next_id,
            size_bytes,
            weight: 1,
            function,
            is_tracked: true,
            tid: record.tid,
            registers: Registers::default(),
            stack: Vec::new(),
        };
        observer.take(MallocEvent::Allocated(allocated), chain);
    }

    fn free(&mut self, block: u64, record: &PerfRecord, by_realloc: bool, observer: &mut dyn Observer) {
        if let Some(id) = self.live.remove(&block) {
            let freed = MallocEvent::Freed { time_ns: record.time_ns, id, tid: record.tid, by_realloc };
            observer.take(freed, None);
        }
    }

    /// Nothing is known of what happens in a pause.
    pub fn forget(&mut self) {
        self.open.clear();
        self.chains.clear();
        self.live.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::perf_record::FunctionRegisters;

    #[derive(Default)]
    struct Seen(Vec<MallocEvent>);

    impl Observer for Seen {
        fn take(&mut self, event: MallocEvent, _: Option<u32>) {
            self.0.push(event);
        }
        fn chain(&mut self, _: &PerfRecord, _: &Sample) -> Option<u32> {
            None
        }
        fn lose_sight(&mut self) {}
        fn tick(&mut self, _: u64) {}
        fn removes_probes(&mut self, _: u64) {}
    }

    #[test]
    fn a_block_that_realloc_refuses_to_move_lives_on_and_one_of_no_bytes_does_not() {
        let places = vec![(0, false), (0, true), (REALLOC, false), (REALLOC, true)];
        let mut decoder = Decoder::new(1, places);
        let mut seen = Seen::default();
        let mut hit = |place, arguments, answer| {
            let record = PerfRecord { time_ns: 1, pid: 1, tid: 1, cpu: 0, news: News::Other };
            let function = FunctionRegisters { answer, arguments };
            decoder.take(place, &record, &Sample { function, ..Sample::default() }, &mut seen);
        };
        for block in [0x10, 0x20] {
            hit(0, [100, 0], 0);
            hit(1, [0; 2], block);
        }
        hit(2, [0x10, u64::MAX / 2], 0);
        hit(3, [0; 2], 0);
        hit(2, [0x20, 0], 0);
        hit(3, [0; 2], 0);
        let freed = |event: &MallocEvent| match event {
            MallocEvent::Freed { id, .. } => Some(*id),
            _ => None,
        };
        assert_eq!(seen.0.iter().filter_map(freed).collect::<Vec<_>>(), [2]);
    }
}
