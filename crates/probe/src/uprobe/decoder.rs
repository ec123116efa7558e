//! What the events of probes say: which calls, of which sizes, and which blocks they end.

use super::{CallsElsewhere, FREE, Observer, REALLOC};
use crate::perf::{Moment, Session};
use faultless_records::churn_recording::class_of;
use faultless_records::malloc_event::{Allocated, CallCount, MallocEvent, MallocFunction, RingCounts};
use faultless_records::perf_record::{News, PerfRecord, Registers, Sample};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

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
    open: HashMap<i32, (usize, u64, Option<Old>)>,
    /// Chains of calls that have begun.
    chains: HashMap<i32, u32>,
    /// Blocks by address.
    live: HashMap<u64, u64>,
    next_id: u64,
    /// The kernel left calls out, because they came too often for its limit or for the buffers.
    pub is_held_back: bool,
}

/// A block that realloc may move: another thread may get its address before realloc returns.
#[derive(Debug, Clone, Copy)]
struct Old {
    address: u64,
    /// None where it was not seen to be allocated.
    id: Option<u64>,
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
        mut chains: Option<&mut Session>,
        is_last: bool,
        observer: &mut dyn Observer,
    ) {
        let moment = Moment::last_or_settled(is_last);
        let take = |session: &mut Session| session.read_until(moment);
        let mut records: Vec<(bool, PerfRecord)> =
            take(calls).into_iter().map(|record| (false, record)).collect();
        let taken = chains.as_deref_mut().map(take).unwrap_or_default();
        records.extend(taken.into_iter().map(|record| (true, record)));
        // Of the same moment the chain comes first: its call takes it.
        records.sort_by_key(|(is_chain, record)| (record.time_ns, !is_chain));
        for (is_chain, record) in records {
            let sample = match &record.news {
                News::Sample(sample) => sample,
                News::Throttled if !is_chain => {
                    self.lose(0, observer);
                    continue;
                }
                News::Lost(hits) if !is_chain => {
                    self.lose(*hits, observer);
                    continue;
                }
                _ => continue,
            };
            let is_elsewhere = record.pid != self.pid;
            if is_chain {
                let place = chains.as_ref().and_then(|chains| chains.place_of(sample.event));
                if let Some(place) = place.filter(|_| !is_elsewhere) {
                    self.take_chain(place, &record, sample, observer);
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

    /// So many hits were left out, which cost the process as much as others; 0: it is not known how many. Which of the calls that have
    /// begun go on, and which blocks live, is not known behind them.
    fn lose(&mut self, hits: u64, observer: &mut dyn Observer) {
        self.is_held_back = true;
        self.hits += hits;
        self.counts.dropped += hits.max(1);
        self.forget();
        observer.lose_sight();
    }

    /// What a child frees are copies of its own, at addresses where the process may have blocks.
    fn leave_out(&mut self, place: usize, pid: i32) {
        let is_call = self.places.get(place).is_some_and(|(_, is_return)| !is_return);
        self.elsewhere.processes.insert(pid);
        self.elsewhere.calls += u64::from(is_call);
        self.elsewhere.hits += 1;
    }

    /// Of a call inside another there is none: glibc's realloc may end in a jump to malloc, whose caller is the kernel's code at
    /// the return of realloc then. The chain of the outer call tells who asked.
    fn take_chain(
        &mut self,
        place: usize,
        record: &PerfRecord,
        sample: &Sample,
        observer: &mut dyn Observer,
    ) {
        // The plan of chains begins with the same entries as that of calls.
        let Some((function, _)) = self.places.get(place).copied() else { return };
        let is_inside = self.open.get(&record.tid).is_some_and(|(outer, ..)| *outer != function);
        if !is_inside && let Some(chain) = observer.chain(record, sample) {
            self.chains.insert(record.tid, chain);
        }
    }

    fn take(&mut self, place: usize, record: &PerfRecord, sample: &Sample, observer: &mut dyn Observer) {
        let Some((function, is_return)) = self.places.get(place).copied() else { return };
        let [first, second] = sample.function.arguments;
        match (function, is_return) {
            (FREE, _) => {
                self.counts.frees += u64::from(first != 0);
                self.calls += u64::from(first != 0);
                let id = self.live.remove(&first);
                free(id, record, false, observer);
            }
            (_, false) => {
                let size = match function {
                    1 => first.saturating_mul(second),
                    0 => first,
                    _ => second,
                };
                // A call inside another (memalign by aligned_alloc) is one with it.
                if let Entry::Vacant(call) = self.open.entry(record.tid) {
                    let is_of_block = function == REALLOC && first != 0;
                    let old = is_of_block.then(|| Old { address: first, id: self.live.remove(&first) });
                    call.insert((function, size, old));
                }
            }
            (_, true) => {
                let Some((opened, size_bytes, old)) = self.open.get(&record.tid).copied() else { return };
                if opened != function {
                    return;
                }
                self.open.remove(&record.tid);
                let block = sample.function.answer;
                match old {
                    // A refusal leaves the block where it was; of no bytes it is a free.
                    Some(Old { address, id }) if block == 0 && size_bytes > 0 => {
                        self.live.extend(id.map(|id| (address, id)));
                    }
                    Some(Old { id, .. }) => {
                        self.counts.freed_by_realloc += u64::from(block == 0);
                        free(id, record, true, observer);
                    }
                    None => {}
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

    /// Nothing is known of what happens in a pause, or was left out.
    pub fn forget(&mut self) {
        self.open.clear();
        self.chains.clear();
        self.live.clear();
    }
}

/// A block is no more, if it was seen to be allocated.
fn free(id: Option<u64>, record: &PerfRecord, by_realloc: bool, observer: &mut dyn Observer) {
    if let Some(id) = id {
        let freed = MallocEvent::Freed { time_ns: record.time_ns, id, tid: record.tid, by_realloc };
        observer.take(freed, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::perf_record::FunctionRegisters;

    #[derive(Default)]
    struct Seen {
        events: Vec<MallocEvent>,
        chains: Vec<Option<u32>>,
    }

    impl Observer for Seen {
        fn take(&mut self, event: MallocEvent, chain: Option<u32>) {
            self.events.push(event);
            self.chains.push(chain);
        }
        /// Chains are called by the time when they were taken.
        fn chain(&mut self, record: &PerfRecord, _: &Sample) -> Option<u32> {
            u32::try_from(record.time_ns).ok()
        }
        fn lose_sight(&mut self) {}
        fn tick(&mut self, _: u64) {}
        fn removes_probes(&mut self, _: u64) {}
    }

    fn record(time_ns: u64) -> PerfRecord {
        PerfRecord { time_ns, pid: 1, tid: 1, cpu: 0, news: News::Other }
    }

    fn sample(arguments: [u64; 2], answer: u64) -> Sample {
        Sample { function: FunctionRegisters { answer, arguments }, ..Sample::default() }
    }

    #[test]
    fn a_call_inside_another_is_of_who_called_the_outer_one() {
        let places = vec![(0, false), (REALLOC, false), (0, true), (REALLOC, true)];
        let mut decoder = Decoder::new(1, places);
        let mut seen = Seen::default();
        for outer_chain in [None, Some(5)] {
            let (call, answer) = (sample([0, 100], 0), sample([0; 2], 0x10));
            if outer_chain.is_some() {
                decoder.take_chain(1, &record(5), &call, &mut seen);
            }
            decoder.take(1, &record(6), &call, &mut seen);
            decoder.take_chain(0, &record(7), &call, &mut seen);
            decoder.take(0, &record(7), &call, &mut seen);
            decoder.take(2, &record(8), &answer, &mut seen);
            decoder.take(3, &record(9), &answer, &mut seen);
            assert_eq!(seen.chains.pop(), Some(outer_chain));
        }
        // A chain may come behind its call.
        decoder.take(1, &record(20), &sample([0, 100], 0), &mut seen);
        decoder.take_chain(1, &record(21), &sample([0, 100], 0), &mut seen);
        decoder.take(3, &record(22), &sample([0; 2], 0x20), &mut seen);
        assert_eq!(seen.chains.pop(), Some(Some(21)));
    }

    #[test]
    fn hits_that_were_left_out_cost_as_much_and_no_call_is_taken_for_another() {
        let mut decoder = Decoder::new(1, vec![(0, false), (0, true)]);
        let mut seen = Seen::default();
        decoder.take(0, &record(1), &sample([100, 0], 0), &mut seen);
        decoder.lose(7, &mut seen);
        assert!(decoder.is_held_back);
        assert_eq!((decoder.hits, decoder.counts.dropped), (7, 7));
        // The return of a call whose entry was left out, then a whole call.
        decoder.take(1, &record(2), &sample([0; 2], 0x10), &mut seen);
        decoder.take(0, &record(3), &sample([200, 0], 0), &mut seen);
        decoder.take(1, &record(4), &sample([0; 2], 0x10), &mut seen);
        let size = |event: &MallocEvent| match event {
            MallocEvent::Allocated(block) => block.size_bytes,
            _ => 0,
        };
        assert_eq!(seen.events.iter().map(size).collect::<Vec<_>>(), [200]);
        decoder.lose(0, &mut seen);
        assert_eq!((decoder.hits, decoder.counts.dropped), (7, 8), "nobody knows how many");
    }

    #[test]
    fn a_block_that_realloc_refuses_to_move_lives_on_and_one_of_no_bytes_does_not() {
        let places = vec![(0, false), (0, true), (REALLOC, false), (REALLOC, true)];
        let mut decoder = Decoder::new(1, places);
        let mut seen = Seen::default();
        let mut hit = |place, arguments, answer| {
            decoder.take(place, &record(1), &sample(arguments, answer), &mut seen);
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
        assert_eq!(seen.events.iter().filter_map(freed).collect::<Vec<_>>(), [2]);
        assert_eq!((decoder.counts.freed_by_realloc, decoder.counts.failed), (1, 1));
    }

    #[test]
    fn a_block_at_the_address_that_realloc_has_left_is_not_the_one_that_it_moved() {
        let places = vec![(0, false), (0, true), (REALLOC, false), (REALLOC, true), (FREE, false)];
        let mut decoder = Decoder::new(1, places);
        let mut seen = Seen::default();
        let mut hit = |place, tid, arguments, answer| {
            decoder.take(place, &PerfRecord { tid, ..record(1) }, &sample(arguments, answer), &mut seen);
        };
        hit(0, 1, [100, 0], 0);
        hit(1, 1, [0; 2], 0x10);
        hit(2, 1, [0x10, 200], 0);
        // Another thread gets the address before realloc has returned.
        hit(0, 2, [100, 0], 0);
        hit(1, 2, [0; 2], 0x10);
        hit(3, 1, [0; 2], 0x20);
        hit(4, 2, [0x10, 0], 0);
        let freed = |event: &MallocEvent| match event {
            MallocEvent::Freed { id, tid, .. } => Some((*id, *tid)),
            _ => None,
        };
        assert_eq!(seen.events.iter().filter_map(freed).collect::<Vec<_>>(), [(1, 1), (2, 2)]);
    }
}
