//! Adds calls up while they come in, in memory that depends on what the process has mapped, never on how long it runs.

mod course;

use std::collections::{BTreeMap, HashMap};

use faultless_records::churn_recording::{
    Amount, CallerSum, Chains, ChurnRecording, FORMAT, Lifetimes, OperationSum, Timeline, class_of,
};
use faultless_records::contents::Extent;
use faultless_records::memory_call::{BREAK_GREW, CallKind, MemoryCall, MemoryEvent, Operation, TakenStack};

use super::address_space::{AddressSpace, Ended, Mapping, whole_pages};
use super::blame::NOT_SEEN;
use super::circumstances::Circumstances;
use super::patterns::{Cycles, Lately};
use crate::whole_numbers::WholeNumbers;
use course::Course;

/// Length of a timeline's steps at the beginning; they double when there are too many.
const FIRST_STEP_NS: u64 = 1_000_000;

/// Calls of mmap that were begun and not seen to end, at most: more than threads.
const MOST_BEING_MADE: usize = 1 << 16;

/// Flags of the calls. Source: include/uapi/asm-generic/mman-common.h and mman.h of the kernel.
const PROT_NONE: u64 = 0;
const MAP_SHARED: u64 = 0x01;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_STACK: u64 = 0x2_0000;
const MREMAP_DONTUNMAP: u64 = 4;

/// Source: include/uapi/asm-generic/errno-base.h of the kernel.
const ENOMEM: i32 = 12;

/// The sums so far.
#[derive(Debug)]
pub struct Tally {
    start_ns: u64,
    processes: HashMap<i32, Space>,
    processes_seen: u64,
    threads_started: u64,
    execs: u64,
    lost_calls: u64,
    operations: BTreeMap<Operation, OperationSum>,
    ended_mappings: BTreeMap<u8, Lifetimes>,
    /// Mappings that were there when their process ended.
    kept: Amount,
    /// Those of them whose chains are known, by chain.
    kept_by: BTreeMap<u32, Amount>,
    /// Chains of mappings that are being made: where chains come apart from the calls, they come before them.
    being_made: HashMap<(i32, [u64; 5]), u32>,
    cycles: Cycles,
    timeline: Timeline,
    chains: Chains,
    /// All calls by what they did and by the power of two at or below what they asked for, with the bytes of those that worked.
    asked: HashMap<(Operation, u8), Amount>,
    /// Those whose chains are known, by chain.
    callers: HashMap<(u32, Operation, u8), Amount>,
    /// Mappings are told of when they are new, with those that they are joined to, and never when they end.
    is_of_records: bool,
}

/// Chains that stand for fewer than one in so many calls of their kind and size,
const LEAST_SAMPLED_PART: u64 = 4;
/// while more than so many calls have none, are no sample of these: chains are taken of one call in 61 at least.
const MOST_UNSAMPLED: u64 = 1000;

/// By how much what is known by the call chains of an operation and size falls short of its calls.
#[derive(Debug, Default)]
struct Shortfall {
    count_factor: f64,
    bytes_factor: f64,
    /// What the chains do not stand for.
    not_seen: Amount,
}

#[derive(Debug, Default, Clone)]
struct Space {
    mappings: AddressSpace,
    heap_end: Option<u64>,
    lately: Lately,
}

impl Tally {
    /// Begins at this time of the clock that the calls' times are of.
    #[must_use]
    pub fn begin(start_ns: u64) -> Self {
        Self {
            start_ns,
            processes: HashMap::new(),
            processes_seen: 0,
            threads_started: 0,
            execs: 0,
            lost_calls: 0,
            operations: BTreeMap::new(),
            ended_mappings: BTreeMap::new(),
            kept: Amount::default(),
            kept_by: BTreeMap::new(),
            being_made: HashMap::new(),
            cycles: Cycles::default(),
            timeline: Timeline { step_ns: FIRST_STEP_NS, calls: Vec::new(), returned_bytes: Vec::new() },
            chains: Chains::default(),
            asked: HashMap::new(),
            callers: HashMap::new(),
            is_of_records: false,
        }
    }

    /// As [`Self::begin`], for the kernel's records of new mappings: they say nothing of lives and of what is given back.
    #[must_use]
    pub fn of_records(start_ns: u64) -> Self {
        Self { is_of_records: true, ..Self::begin(start_ns) }
    }

    /// Calls seen so far, failed ones too.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.operations.values().map(|sum| sum.amount.count + sum.failed).sum()
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &MemoryEvent) {
        match event {
            MemoryEvent::Call(call) => self.call(call),
            MemoryEvent::Chain { pid, kind, arguments, stack } => {
                // Its call has not been seen to end, so the heap's end is still the one before it.
                let answer = if *kind == CallKind::Brk { arguments[0] } else { 0 };
                let (operation, bytes, _) = self.classify(*pid, *kind, arguments, Ok(answer));
                self.note_caller(*stack, (operation, class_of(bytes)), bytes);
                if *kind == CallKind::Mmap {
                    self.begin_mapping((*pid, *arguments), stack.index);
                }
            }
            MemoryEvent::Fork { parent, child } => {
                let space = self.space(*parent);
                let copy = Space {
                    mappings: space.mappings.copied(),
                    heap_end: space.heap_end,
                    lately: Lately::default(),
                };
                self.processes_seen += u64::from(self.processes.insert(*child, copy).is_none());
            }
            MemoryEvent::Exec { pid } => {
                self.execs += 1;
                self.end(*pid);
                self.processes.insert(*pid, Space::default());
            }
            MemoryEvent::Thread { .. } => self.threads_started += 1,
            MemoryEvent::Exit { pid } => self.end(*pid),
            MemoryEvent::Lost { calls } => self.lost_calls += calls,
            MemoryEvent::LostChains { chains } => self.chains.lost += chains,
        }
    }

    /// The sums as they are saved.
    #[must_use]
    pub fn finish(mut self, circumstances: Circumstances) -> ChurnRecording {
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.end(pid);
        }
        let kept_by = std::mem::take(&mut self.kept_by);
        let operation = Operation::MapAnonymous;
        let live_callers =
            kept_by.into_iter().map(|(stack, amount)| CallerSum { stack, operation, amount }).collect();
        let mut stacks = circumstances.stacks;
        let not_seen = u32::try_from(stacks.len()).unwrap_or(u32::MAX);
        let callers = self.callers(not_seen);
        if callers.iter().any(|caller| caller.stack == not_seen) {
            stacks.push(vec![NOT_SEEN.to_owned()]);
        }
        ChurnRecording {
            format: FORMAT.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            subject: circumstances.subject,
            started_unix_s: circumstances.started_unix_s,
            ending: circumstances.ending,
            mechanism: circumstances.mechanism,
            refused: circumstances.refused,
            observed_ns: circumstances.observed_ns,
            processes: self.processes_seen,
            threads_started: self.threads_started,
            execs: self.execs,
            lost_calls: self.lost_calls,
            is_blind_to_some: circumstances.is_blind_to_some,
            cost_per_call_ns: circumstances.cost_per_call_ns,
            operations: self.operations,
            ended_mappings: self.ended_mappings,
            live_mappings: self.kept,
            live_callers,
            cycles: self.cycles.into_sums(),
            timeline: self.timeline,
            chains: self.chains,
            callers,
            stacks,
            remarks: circumstances.remarks,
        }
    }

    /// Callers with what their chains stand for, and under the number `not_seen` what none stands for.
    fn callers(&self, not_seen: u32) -> Vec<CallerSum> {
        let shortfalls = self.shortfalls();
        let mut sums: HashMap<(u32, Operation), (f64, f64)> = HashMap::new();
        for ((stack, operation, class), amount) in &self.callers {
            // A call that the process did not live to leave is none.
            let Some(shortfall) = shortfalls.get(&(*operation, *class)) else { continue };
            let (count, bytes) = sums.entry((*stack, *operation)).or_default();
            *count += amount.count as f64 * shortfall.count_factor;
            *bytes += amount.bytes as f64 * shortfall.bytes_factor;
        }
        for ((operation, _), Shortfall { not_seen: rest, .. }) in &shortfalls {
            if rest.count > 0 {
                let (count, bytes) = sums.entry((not_seen, *operation)).or_default();
                *count += rest.count as f64;
                *bytes += rest.bytes as f64;
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|(key, _)| *key);
        let mut rounding: HashMap<Operation, [WholeNumbers; 2]> = HashMap::new();
        let caller = |((stack, operation), (count, bytes))| {
            // The calls of an operation are known: what its callers are said to have made is as many.
            let [counts, sizes] = rounding.entry(operation).or_default();
            let amount = Amount { count: counts.next(count), bytes: sizes.next(bytes) };
            CallerSum { stack, operation, amount }
        };
        let mut callers: Vec<CallerSum> = sums.into_iter().map(caller).collect();
        callers
            .sort_by_key(|caller| (std::cmp::Reverse(caller.amount.count), caller.stack, caller.operation));
        callers
    }

    /// Chains that were taken of one call in so many are a sample, and stand for all calls that did the same and asked for as much:
    /// what one caller asked for and did not get is no other's. Where more than a tenth is missing because chains were lost, those
    /// left are of quiet moments: they stand for themselves, and the rest for nobody, as where there is no chain. Chains that stand for
    /// a small part of many calls are no sample of them either: they are of the time before a burst in which none was taken.
    fn shortfalls(&self) -> HashMap<(Operation, u8), Shortfall> {
        let mut taken: HashMap<(Operation, u8), Amount> = HashMap::new();
        for ((_, operation, class), amount) in &self.callers {
            let sum = taken.entry((*operation, *class)).or_default();
            sum.count += amount.count;
            sum.bytes = sum.bytes.saturating_add(amount.bytes);
        }
        let ratio = |all: u64, part: u64| if part > 0 { all as f64 / part as f64 } else { 1.0 };
        let has_chains = self.chains.taken > 0;
        let shortfall = |(key, all): (&(Operation, u8), &Amount)| {
            let taken = taken.get(key).copied().unwrap_or_default();
            let (count_factor, bytes_factor) = (ratio(all.count, taken.count), ratio(all.bytes, taken.bytes));
            let is_lost = self.chains.lost > 0 && taken.count * 10 < all.count * 9;
            let is_no_sample =
                taken.count < all.count / LEAST_SAMPLED_PART && all.count - taken.count > MOST_UNSAMPLED;
            let shortfall = match is_lost || (has_chains && (taken.count == 0 || is_no_sample)) {
                false => Shortfall { count_factor, bytes_factor, not_seen: Amount::default() },
                true => Shortfall {
                    count_factor: 1.0,
                    bytes_factor: bytes_factor.min(1.0),
                    not_seen: Amount {
                        count: all.count - taken.count,
                        bytes: all.bytes.saturating_sub(taken.bytes),
                    },
                },
            };
            (*key, shortfall)
        };
        self.asked.iter().map(shortfall).collect()
    }

    /// A process that was there at the start, whether it makes a call or not.
    pub fn attach(&mut self, pid: i32) {
        self.space(pid);
    }

    /// A mapping that a process had at the start.
    pub fn know(&mut self, pid: i32, start: u64, end: u64) {
        self.space(pid).mappings.learn(start, end.saturating_sub(start));
    }

    /// A heap of a thread's arena of glibc's that a process had at the start, with all the addresses that it reserves.
    pub fn know_heap(&mut self, pid: i32, heap: Extent) {
        self.space(pid).mappings.reserved_before(heap);
    }

    fn space(&mut self, pid: i32) -> &mut Space {
        self.processes.entry(pid).or_insert_with(|| {
            self.processes_seen += 1;
            Space::default()
        })
    }

    /// A process, or the program in it, has ended.
    fn end(&mut self, pid: i32) {
        let Some(space) = self.processes.remove(&pid) else { return };
        for part in space.mappings.parts() {
            if part.mapping.is_own && part.mapping.origin == Operation::MapAnonymous {
                self.kept.add(part.bytes);
                if let Some(stack) = part.mapping.stack {
                    self.kept_by.entry(stack).or_default().add(part.bytes);
                }
            }
        }
    }

    fn call(&mut self, call: &MemoryCall) {
        let pid = call.pid;
        let (operation, mut bytes, worked) = self.classify(pid, call.kind, &call.arguments, call.result);
        let key = (operation, class_of(bytes));
        let is_joined = self.is_of_records && matches!(call.kind, CallKind::Mmap | CallKind::Brk);
        if let (true, Some(answer)) = (is_joined, worked) {
            let start = if call.kind == CallKind::Brk { call.arguments[2] } else { answer };
            bytes = self.space(pid).mappings.learn(start, bytes);
        }
        let sum = self.operations.entry(operation).or_default();
        let since_start_ns = call.time_ns.saturating_sub(self.start_ns);
        let is_worked = worked.is_some();
        if is_worked {
            sum.amount.add(bytes);
            if bytes > 0 || !is_joined {
                sum.sizes.entry(class_of(bytes)).or_default().add(bytes);
            }
        } else {
            sum.failed += 1;
        }
        let done_bytes = if is_worked { bytes } else { 0 };
        self.asked.entry(key).or_default().add(done_bytes);
        let returned = if operation.gives_back() { done_bytes } else { 0 };
        self.timeline.add(since_start_ns, returned);
        if let Some(stack) = call.stack {
            self.note_caller(stack, key, done_bytes);
        }
        let chain = self.being_made.remove(&(pid, call.arguments));
        let stack = call.stack.map(|stack| stack.index).or(chain);
        if let Some(answer) = worked.filter(|_| !is_joined) {
            self.apply(operation, (call, stack), answer, bytes, since_start_ns);
        }
    }

    fn begin_mapping(&mut self, call: (i32, [u64; 5]), stack: u32) {
        // Calls whose ends were lost are never answered.
        if self.being_made.len() >= MOST_BEING_MADE {
            self.being_made.clear();
        }
        self.being_made.insert(call, stack);
    }

    fn note_caller(&mut self, stack: TakenStack, (operation, class): (Operation, u8), bytes: u64) {
        self.chains.taken += 1;
        let weight = u64::from(stack.weight);
        let amount = self.callers.entry((stack.index, operation, class)).or_default();
        amount.count += weight;
        amount.bytes = amount.bytes.saturating_add(bytes.saturating_mul(weight));
    }

    /// What a call did, the bytes it was about, and its answer if it worked.
    fn classify(
        &mut self,
        pid: i32,
        kind: CallKind,
        arguments: &[u64; 5],
        result: Result<u64, i32>,
    ) -> (Operation, u64, Option<u64>) {
        let [first, length, third, fourth, _] = *arguments;
        let answer = result.ok();
        match kind {
            CallKind::Mmap => {
                let operation = match fourth & MAP_ANONYMOUS != 0 {
                    false => Operation::MapFile,
                    true if fourth & MAP_SHARED != 0 => Operation::MapShared,
                    true if fourth & MAP_STACK != 0 => Operation::MapStack,
                    true if third == PROT_NONE
                        && fourth & MAP_FIXED != 0
                        && self.space(pid).mappings.at(first).is_some() =>
                    {
                        Operation::MapPurge
                    }
                    true if third == PROT_NONE => Operation::MapReserve,
                    true => Operation::MapAnonymous,
                };
                (operation, whole_pages(length), answer)
            }
            CallKind::Munmap => (Operation::Unmap, whole_pages(length), answer),
            CallKind::Mremap => (Operation::Remap, whole_pages(third), answer),
            CallKind::Mprotect => (Operation::Protect, whole_pages(length), answer),
            CallKind::Madvise => {
                let operation = Operation::of_advice(third);
                // Where a part is not mapped, the rest is given back all the same. Source: madvise(2), "Linux notes".
                let is_done_in_part = operation.gives_back() && result == Err(ENOMEM);
                (operation, whole_pages(length), if is_done_in_part { Some(0) } else { answer })
            }
            // All of the heap: what it grew by is what was not mapped before.
            CallKind::Brk if length == BREAK_GREW => {
                (Operation::BreakGrow, first.saturating_sub(third), answer)
            }
            CallKind::Brk => self.classify_break(pid, first, answer.unwrap_or(0)),
        }
    }

    /// brk(2) of the kernel answers with the end that is now; a refusal is an answer other than what was asked for.
    fn classify_break(&mut self, pid: i32, asked: u64, answer: u64) -> (Operation, u64, Option<u64>) {
        let before = self.space(pid).heap_end;
        let answered = (answer == asked).then_some(answer);
        match before {
            _ if asked == 0 => (Operation::BreakQuery, 0, Some(answer)),
            Some(before) if asked < before => (Operation::BreakTrim, before - asked, answered),
            Some(before) => (Operation::BreakGrow, asked - before, answered),
            None => (Operation::BreakGrow, 0, answered),
        }
    }

    fn apply(
        &mut self,
        operation: Operation,
        (call, stack): (&MemoryCall, Option<u32>),
        answer: u64,
        bytes: u64,
        time_ns: u64,
    ) {
        // Taken out, so that sums and space may both be written.
        let mut space = std::mem::take(self.space(call.pid));
        let [start, length, third, fourth, _] = call.arguments;
        let ended = match operation.kind() {
            CallKind::Mmap => {
                if operation == Operation::MapPurge {
                    space.lately.purged(&mut self.cycles, &space.mappings, (start, bytes), time_ns);
                }
                let mapping =
                    Mapping { born_ns: time_ns, origin: operation, made_bytes: bytes, is_own: true, stack };
                space.mappings.map(answer, bytes, mapping)
            }
            CallKind::Munmap => {
                space.lately.closed(&space.mappings, (start, bytes), time_ns);
                space.mappings.unmap(start, bytes)
            }
            CallKind::Mremap if fourth & MREMAP_DONTUNMAP != 0 => {
                let origin =
                    space.mappings.at(start).map_or(Operation::MapFile, |(_, _, mapping)| mapping.origin);
                let mapping = Mapping { born_ns: time_ns, origin, made_bytes: bytes, is_own: true, stack };
                space.mappings.map(answer, bytes, mapping)
            }
            CallKind::Mremap => {
                let old_bytes = whole_pages(length);
                let mapping = space.mappings.at(start).map(|(_, _, mapping)| mapping);
                space.lately.resized(&mut self.cycles, mapping, (old_bytes, bytes), time_ns);
                space.mappings.remap(start, old_bytes, answer, bytes)
            }
            CallKind::Brk => {
                space.heap_end = Some(answer);
                match operation {
                    Operation::BreakTrim => space.lately.trimmed(bytes, time_ns),
                    Operation::BreakGrow => space.lately.grown(&mut self.cycles, bytes, time_ns),
                    _ => {}
                }
                Vec::new()
            }
            CallKind::Madvise if operation.gives_back() => {
                space.lately.purged(&mut self.cycles, &space.mappings, (start, bytes), time_ns);
                Vec::new()
            }
            CallKind::Mprotect if third != PROT_NONE => {
                space.lately.opened(&mut self.cycles, &space.mappings, (start, bytes), time_ns);
                Vec::new()
            }
            CallKind::Madvise | CallKind::Mprotect => Vec::new(),
        };
        for part in &ended {
            space.lately.unmapped(part, time_ns);
            self.note_life(part, time_ns);
        }
        if operation.kind() == CallKind::Mmap {
            space.lately.mapped(&mut self.cycles, operation, bytes, time_ns);
        }
        self.processes.insert(call.pid, space);
    }

    fn note_life(&mut self, part: &Ended, time_ns: u64) {
        if part.mapping.is_own && part.mapping.origin == Operation::MapAnonymous {
            let lifetimes = self.ended_mappings.entry(class_of(part.bytes)).or_default();
            lifetimes.amount.add(part.bytes);
            let life_ns = time_ns.saturating_sub(part.mapping.born_ns);
            *lifetimes.by_life.entry(class_of(life_ns)).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests;
