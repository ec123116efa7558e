//! Adds calls of malloc up while they come in: exact counts of all, and estimates from those that were described.
//!
//! A described call stands for as many as its weight says. What was lost on the way is made up for at the end: in each
//! process and size class the weights are scaled so that together they are the exact number of calls, and their bytes so
//! that together they are the exact number of bytes.

use std::collections::{BTreeMap, HashMap};

use faultless_records::churn_recording::class_of;
use faultless_records::malloc_event::{Allocated, MallocEvent, MallocFunction, RingCounts};
use faultless_records::malloc_recording::{BlockLives, Estimate, FORMAT, MallocCaller, MallocRecording};
use faultless_records::quantity::several;

use super::circumstances::MallocCircumstances;
use peak::Peak;

mod callers;
mod ends;
mod peak;
mod scaling;

/// Frees that arrived before what they free are kept up to this number in each process: rings are read one by one.
const EARLY_FREES: usize = 1 << 17;

/// The sums so far.
#[derive(Debug, Default)]
pub struct MallocTally {
    processes: HashMap<usize, Process>,
    execs: u64,
    live: LiveBytes,
    peak: Peak,
}

/// Bytes that live, and the variance of their estimate: of a block that stands for many it is not known how many of those live.
#[derive(Debug, Default, Clone, Copy)]
struct LiveBytes {
    estimate: f64,
    variance: f64,
}

impl LiveBytes {
    fn of(block: &Block) -> Self {
        let bytes = block.size_bytes as f64;
        Self { estimate: block.weight * bytes, variance: block.weight * (block.weight - 1.0) * bytes * bytes }
    }

    fn add(&mut self, sign: f64, other: Self) {
        self.estimate += sign * other.estimate;
        self.variance += sign * other.variance;
    }

    /// The estimate less so many standard errors. Off what is exact that is nothing.
    fn less(self, standard_errors: f64) -> f64 {
        self.estimate - standard_errors * self.variance.max(0.0).sqrt()
    }
}

#[derive(Debug, Clone, Copy)]
struct Block {
    size_bytes: u64,
    weight: f64,
    function: MallocFunction,
    tid: i32,
    stack: Option<u32>,
    time_ns: u64,
}

#[derive(Debug, Default)]
struct Process {
    pid: i32,
    counts: Vec<RingCounts>,
    /// Each of its calls is in them, and no block came from elsewhere.
    counts_are_whole: bool,
    live: HashMap<u64, Block>,
    live_bytes: LiveBytes,
    /// Nothing of it lives beside what others hold.
    has_ended: bool,
    early_frees: HashMap<u64, (u64, i32)>,
    described: u64,
    /// Weights of the described calls by size class.
    weights: BTreeMap<u8, Estimate>,
    /// The largest of these, the smallest and the largest block.
    extremes: BTreeMap<u8, Extremes>,
    /// Weights of those whose call chain is known.
    chain_weights: BTreeMap<u8, Estimate>,
    lives: BTreeMap<u8, BlockLives>,
    names: HashMap<i32, String>,
    threads: HashMap<(i32, u8), Part>,
    handovers: HashMap<(i32, i32, u8), Estimate>,
    callers: HashMap<(u32, MallocFunction, u8), CallerPart>,
}

#[derive(Debug, Clone, Copy)]
struct Extremes {
    heaviest: f64,
    smallest_bytes: u64,
    largest_bytes: u64,
}

impl Default for Extremes {
    fn default() -> Self {
        Self { heaviest: 0.0, smallest_bytes: u64::MAX, largest_bytes: 0 }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Part {
    allocated: Estimate,
    freed_own: Estimate,
    freed_of_others: Estimate,
}

#[derive(Debug, Default, Clone, Copy)]
struct CallerPart {
    allocated: Estimate,
    /// How many calls a described one stood for at most.
    heaviest: f64,
    freed: Estimate,
    unknown: Estimate,
    live: Estimate,
    /// Of the number of these.
    live_variance: f64,
    life_sum_ns: f64,
}

impl MallocTally {
    /// Takes the next event of a process, which `process` names for as long as it runs one program.
    pub fn take(&mut self, process: usize, event: &MallocEvent, stack: Option<u32>) {
        let of = self.processes.entry(process).or_default();
        let before = of.live_bytes;
        let changed = match event {
            MallocEvent::Allocated(block) => of.allocate(block, stack),
            MallocEvent::Freed { time_ns, id, tid, .. } => of.free(*id, *time_ns, *tid),
            MallocEvent::Thread { tid, name } => {
                of.names.insert(*tid, name.clone());
                None
            }
        };
        // What is read late of one that has ended no longer lives.
        if !of.has_ended {
            self.live.add(1.0, of.live_bytes);
            self.live.add(-1.0, before);
            if let Some((sign, block)) = changed {
                self.peak.change(process, sign, &block);
            }
        }
        self.peak.see(self.live);
    }

    /// A process runs another program than this one, which is over.
    pub fn exec(&mut self, process: usize) {
        self.execs += 1;
        self.end(process);
    }

    /// A process is over: nothing of it lives any more beside what others hold.
    pub fn end(&mut self, process: usize) {
        let of = self.processes.entry(process).or_default();
        if !std::mem::replace(&mut of.has_ended, true) {
            self.live.add(-1.0, of.live_bytes);
            self.peak.end(process);
        }
    }

    /// Sets what the rings of a process have counted up to now.
    pub fn set_counts(&mut self, process: usize, pid: i32, counts: Vec<RingCounts>) {
        let of = self.processes.entry(process).or_default();
        of.pid = pid;
        of.counts = counts;
    }

    /// Every call of a process was counted, and it holds nothing of another's: what lives is what was not given back.
    pub fn set_counts_whole(&mut self, process: usize, are_whole: bool) {
        self.processes.entry(process).or_default().counts_are_whole = are_whole;
    }

    /// From here on it is not known what becomes of the blocks that live now.
    pub fn lose_sight(&mut self) {
        for process in self.processes.values_mut() {
            for block in std::mem::take(&mut process.live).into_values() {
                process.lose(&block);
            }
            process.early_frees.clear();
            process.live_bytes = LiveBytes::default();
        }
        self.live = LiveBytes::default();
        self.peak.lose_sight();
    }

    /// Calls counted so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let rings = self.processes.values().flat_map(|process| &process.counts);
        rings.map(RingCounts::all_calls).sum()
    }

    /// The sums as they are saved.
    #[must_use]
    pub fn finish(self, circumstances: MallocCircumstances) -> MallocRecording {
        let processes = (self.processes.len() as u64).saturating_sub(self.execs);
        let mut recording = unfilled(circumstances, processes, self.execs);
        recording.peak_live_bytes = self.peak.bytes();
        let mut callers = HashMap::new();
        let mut processes: Vec<Process> = self.processes.into_values().collect();
        processes.sort_by_key(|process| process.pid);
        // What lived at the end lived at once, and the end was not chosen for its height: nothing is taken off there.
        let (mut together, mut alone, mut ends) = (0.0, 0.0_f64, Vec::new());
        // While they run, their rings are read one after the other.
        let left = processes.iter().map(Process::blocks_left).sum::<Option<u64>>();
        recording.live_blocks = left.filter(|_| recording.ending.is_some());
        let elsewhere = processes.iter().map(Process::blocks_from_elsewhere).sum();
        if elsewhere > 0 && recording.ending.is_some() {
            recording.remarks.push(made_elsewhere(elsewhere));
        }
        for process in processes {
            let (has_ended, most) = (process.has_ended, process.most_left_bytes());
            let live = process.add_to(&mut recording, &mut callers);
            together += if has_ended { 0.0 } else { live.estimate };
            alone = alone.max(live.estimate);
            ends.push((live, most));
        }
        let asked_for = |lives: &BlockLives| lives.live.bytes + lives.freed.bytes + lives.unknown.bytes;
        let asked_for_bytes = recording.sizes.values().map(asked_for).sum::<f64>();
        let peak = recording.peak_live_bytes.min(asked_for_bytes).max(together).max(alone);
        recording.peak_live_bytes = peak;
        // What lives at an end is no less than nothing. It is no more than so many blocks can be; where their number is not known, no
        // more than is likely ever to have lived. Two standard errors reach as far.
        let likely = self.peak.likely_bytes().max(peak);
        let error = |(end, most): (LiveBytes, Option<f64>)| {
            let room = most.unwrap_or(likely).min(asked_for_bytes) - end.estimate;
            end.variance.max(0.0).sqrt().min(end.estimate.max(room / 2.0))
        };
        recording.live_error_bytes = ends.into_iter().map(|end| error(end).powi(2)).sum::<f64>().sqrt();
        recording.held_at_peak = self.peak.holders(peak);
        recording.callers = callers.into_values().collect();
        let order = |one: &MallocCaller, other: &MallocCaller| {
            other.allocated.count.total_cmp(&one.allocated.count).then(one.stack.cmp(&other.stack))
        };
        recording.callers.sort_by(order);
        recording
    }
}

/// What is said where so many blocks came back that nobody was seen to be handed.
fn made_elsewhere(blocks: u64) -> String {
    let those = if blocks == 1 { "that was" } else { "that were" };
    format!(
        "the calls that handed out {} {those} freed: of an operator new, say, that does not call malloc, as jemalloc's, where operator delete calls free; how many blocks live at the end is estimated",
        several(blocks, "block")
    )
}

/// A recording that has no sums yet.
fn unfilled(circumstances: MallocCircumstances, processes: u64, execs: u64) -> MallocRecording {
    MallocRecording {
        format: FORMAT.to_owned(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        subject: circumstances.subject,
        started_unix_s: circumstances.started_unix_s,
        ending: circumstances.ending,
        mechanism: circumstances.mechanism,
        observed_ns: circumstances.observed_ns,
        processes,
        execs,
        functions: BTreeMap::new(),
        frees: 0,
        freed_by_realloc: 0,
        failed: 0,
        described: 0,
        lost: 0,
        uncounted_threads: 0,
        sizes: BTreeMap::new(),
        peak_live_bytes: 0.0,
        held_at_peak: Vec::new(),
        live_error_bytes: 0.0,
        live_blocks: None,
        threads: Vec::new(),
        handovers: Vec::new(),
        callers: Vec::new(),
        stacks: circumstances.stacks,
        cost: circumstances.cost,
        remarks: circumstances.remarks,
    }
}

impl Process {
    /// Returns what lives from now on.
    fn allocate(&mut self, event: &Allocated, stack: Option<u32>) -> Option<(f64, Block)> {
        let (class, weight) = (class_of(event.size_bytes), f64::from(event.weight));
        self.described += 1;
        self.weights.entry(class).or_default().add(weight, event.size_bytes);
        let extremes = self.extremes.entry(class).or_default();
        extremes.heaviest = extremes.heaviest.max(weight);
        extremes.smallest_bytes = extremes.smallest_bytes.min(event.size_bytes);
        extremes.largest_bytes = extremes.largest_bytes.max(event.size_bytes);
        self.threads.entry((event.tid, class)).or_default().allocated.add(weight, event.size_bytes);
        if let Some(stack) = stack {
            self.chain_weights.entry(class).or_default().add(weight, event.size_bytes);
            let part = self.callers.entry((stack, event.function, class)).or_default();
            part.allocated.add(weight, event.size_bytes);
            part.heaviest = part.heaviest.max(weight);
        }
        let block = Block {
            size_bytes: event.size_bytes,
            weight,
            function: event.function,
            tid: event.tid,
            stack,
            time_ns: event.time_ns,
        };
        if !event.is_tracked {
            self.lose(&block);
            return None;
        }
        if let Some((time_ns, tid)) = self.early_frees.remove(&event.id) {
            self.end(&block, time_ns, tid);
            return None;
        }
        self.live_bytes.add(1.0, LiveBytes::of(&block));
        self.live.insert(event.id, block);
        Some((1.0, block))
    }

    /// Returns what no longer lives.
    fn free(&mut self, id: u64, time_ns: u64, tid: i32) -> Option<(f64, Block)> {
        let Some(block) = self.live.remove(&id) else {
            if self.early_frees.len() < EARLY_FREES {
                self.early_frees.insert(id, (time_ns, tid));
            }
            return None;
        };
        self.end(&block, time_ns, tid);
        self.live_bytes.add(-1.0, LiveBytes::of(&block));
        Some((-1.0, block))
    }

    /// What becomes of a block is not known.
    fn lose(&mut self, block: &Block) {
        let class = class_of(block.size_bytes);
        self.lives.entry(class).or_default().unknown.add(block.weight, block.size_bytes);
        if let Some(stack) = block.stack {
            let part = self.callers.entry((stack, block.function, class)).or_default();
            part.unknown.add(block.weight, block.size_bytes);
        }
    }

    fn end(&mut self, block: &Block, time_ns: u64, tid: i32) {
        let class = class_of(block.size_bytes);
        let life_ns = time_ns.saturating_sub(block.time_ns);
        let lives = self.lives.entry(class).or_default();
        lives.freed.add(block.weight, block.size_bytes);
        *lives.by_life.entry(class_of(life_ns)).or_default() += block.weight;
        let freer = self.threads.entry((tid, class)).or_default();
        if tid == block.tid {
            freer.freed_own.add(block.weight, block.size_bytes);
        } else {
            freer.freed_of_others.add(block.weight, block.size_bytes);
            lives.freed_elsewhere.add(block.weight, block.size_bytes);
            self.handovers.entry((block.tid, tid, class)).or_default().add(block.weight, block.size_bytes);
        }
        if let Some(stack) = block.stack {
            let part = self.callers.entry((stack, block.function, class)).or_default();
            part.freed.add(block.weight, block.size_bytes);
            part.life_sum_ns += life_ns as f64 * block.weight;
        }
    }

    /// How many blocks live, where that can be told from the counts.
    fn blocks_left(&self) -> Option<u64> {
        let (handed, back) = self.handed_and_back();
        handed.checked_sub(back).filter(|_| self.counts_are_whole)
    }

    /// How many blocks came back at least that no function handed out whose calls are counted.
    fn blocks_from_elsewhere(&self) -> u64 {
        let (handed, back) = self.handed_and_back();
        if self.counts_are_whole { back.saturating_sub(handed) } else { 0 }
    }

    fn handed_and_back(&self) -> (u64, u64) {
        let sum = |of: &dyn Fn(&RingCounts) -> u64| self.counts.iter().map(of).sum();
        (sum(&RingCounts::allocations), sum(&RingCounts::blocks_back))
    }

    /// How many bytes live at most, where it is known how many blocks do.
    fn most_left_bytes(&self) -> Option<f64> {
        let largest = self.extremes.values().map(|extremes| extremes.largest_bytes).max().unwrap_or(0);
        Some(self.blocks_left()? as f64 * largest as f64)
    }
}

#[cfg(test)]
mod tests;
