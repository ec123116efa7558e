//! Calls of malloc and its family in a process that runs already, through probes that the kernel sets at the functions' first
//! instructions and at their returns: uprobes of perf_event_open(2).
//!
//! A probe costs the program some microseconds, so a program that calls malloc often is looked at in windows, with pauses that
//! keep the cost below a tenth of the time.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use faultless_records::churn_recording::class_of;
use faultless_records::malloc_event::{Allocated, CallCount, MallocEvent, MallocFunction, RingCounts};
use faultless_records::perf_record::{Content, News, PerfRecord, Registers, Sample};
use faultless_records::thousands::several;

use crate::perf::{Event, Moment, PerfError, Plan, Sampling, Scope, Session, What, cpus};
use crate::probe_points::{Place, ProbePoints};
use crate::process::{Process, ProcessError};
use crate::signals::Signals;

/// The functions, in the order of their offsets in [`Allocator`].
pub const FUNCTIONS: &[&str] = &["malloc", "calloc", "realloc", "aligned_alloc", "memalign", "free"];

/// Place of `free` in [`FUNCTIONS`]; those before it return memory.
const FREE: usize = 5;
const REALLOC: usize = 2;

/// Length of a window, and the part of the time that the probes may take.
const WINDOW: Duration = Duration::from_millis(50);
const SHARE: f64 = 0.1;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between two looks into the buffers.
const TURN: Duration = Duration::from_millis(10);

/// More probes of their own the events of a process do not get: each takes the kernel up to half a second.
const MOST_OWN_PROBES: usize = 512;

/// How often a process is looked at that may be about to end, 1 ms apart.
const LOOKS_AT_END: u32 = 20;

/// Of all entries this part has its call chain taken.
const CHAIN_EVERY: u64 = 17;
const CHAIN_STACK_BYTES: u32 = 4096;

/// Where a process has the functions.
#[derive(Debug)]
pub struct Allocator {
    /// The very file that it has mapped: its path may lead to another one by now, or to none.
    pub file: File,
    /// Offsets of [`FUNCTIONS`].
    pub offsets: Vec<Option<u64>>,
}

/// Who is told what happens.
pub trait Observer {
    /// The next event; an allocation's stack is the index of its chain.
    fn take(&mut self, event: MallocEvent, chain: Option<u32>);
    /// The chain of a sample, by an index of the observer's.
    fn chain(&mut self, record: &PerfRecord, sample: &Sample) -> Option<u32>;
    /// The next window begins: what becomes of the blocks that live now is not known.
    fn lose_sight(&mut self);
    /// Time passes; so many calls were seen.
    fn tick(&mut self, calls: u64);
    /// The probes are removed now, which takes the kernel a minute or two where other programs keep every CPU busy.
    fn removes_probes(&mut self, calls: u64);
}

/// How it went.
#[derive(Debug, Default)]
pub struct Looked {
    /// Time in windows.
    pub observed: Duration,
    /// Time in all.
    pub elapsed: Duration,
    /// Time in which probes were set and removed: the process runs into those that are set, and nobody counts.
    pub changing: Duration,
    /// Exact counts, as a recorder has them.
    pub counts: RingCounts,
    /// Probes that the process hit.
    pub hits: u64,
    /// What the processes called that it started meanwhile, which is in no other figure.
    pub elsewhere: CallsElsewhere,
    /// Why call chains were not taken, in some window at least.
    pub chains_refused: Option<String>,
}

/// Calls of other processes: the kernel lets events go along with children, as it does with new threads.
#[derive(Debug, Default)]
pub struct CallsElsewhere {
    /// Which processes.
    pub processes: HashSet<i32>,
    /// How many calls.
    pub calls: u64,
    hits: u64,
}

/// Looks until the process has ended, the time is over, or a signal asks us to end; a probe that is hit costs the process
/// `cost_per_hit_ns`.
///
/// # Errors
/// [`PerfError`] in words, or the kernel's reason to refuse a wait.
pub fn follow(
    allocator: &Allocator,
    process: &Process,
    signals: &Signals,
    limit: Option<Duration>,
    cost_per_hit_ns: f64,
    observer: &mut dyn Observer,
) -> Result<Looked, String> {
    let mut began = Instant::now();
    let mut has_begun = false;
    let places = places(allocator);
    let named = ProbePoints::name(&allocator.file, &in_file(allocator, &places));
    let mut decoder = Decoder { pid: process.pid(), places, ..Decoder::default() };
    let mut looked = Looked::default();
    let is_over =
        |began: Instant, now: Instant| limit.is_some_and(|limit| now >= began + limit) || !process.is_alive();
    loop {
        let setting = Instant::now();
        let opened = open_window(allocator, &named, process)?;
        looked.changing += setting.elapsed();
        let Some((mut calls, chains)) = opened else {
            if !has_begun {
                return Err(ProcessError::Ended(process.pid()).to_string());
            }
            looked.elapsed = began.elapsed();
            break;
        };
        let mut chains = chains.map_err(|error| looked.chains_refused = Some(error.to_string())).ok();
        let (window, hits_before) = (Instant::now(), decoder.hits);
        if !std::mem::replace(&mut has_begun, true) {
            // To set the probes takes its time.
            began = window;
        }
        let (ends, now) = loop {
            let arrival = signals.next(Some(TURN)).map_err(|error: io::Error| error.to_string())?;
            let now = Instant::now();
            let ends = is_over(began, now) || arrival.is_some_and(|arrival| arrival.is_interruption());
            let rate = (decoder.hits - hits_before) as f64 / window.elapsed().as_secs_f64();
            let is_much = rate * cost_per_hit_ns / 1e9 > SHARE;
            let closes = ends || (now >= window + WINDOW && is_much) || decoder.is_held_back;
            decoder.read(&mut calls, chains.as_mut(), closes, observer);
            observer.tick(decoder.calls);
            if closes {
                break (ends, now);
            }
        };
        observer.removes_probes(decoder.calls);
        let length = window.elapsed();
        looked.observed += length;
        decoder.counts.dropped += calls.lost() + u64::from(decoder.is_held_back);
        decoder.is_held_back = false;
        if ends {
            // Before the probes are removed, which takes its time.
            looked.elapsed = began.elapsed();
        }
        let removing = Instant::now();
        drop((calls, chains));
        looked.changing += removing.elapsed();
        if ends {
            break;
        }
        observer.lose_sight();
        decoder.forget();
        let share = (decoder.hits - hits_before) as f64 * cost_per_hit_ns / length.as_nanos() as f64;
        let pause = length.mul_f64((share / SHARE - 1.0).max(0.0)).min(LONGEST_PAUSE);
        let left = limit.map_or(pause, |limit| pause.min((began + limit).saturating_duration_since(now)));
        let arrival = signals.next(Some(left)).map_err(|error: io::Error| error.to_string())?;
        if arrival.is_some_and(|arrival| arrival.is_interruption()) || is_over(began, Instant::now()) {
            looked.elapsed = began.elapsed();
            break;
        }
    }
    (looked.hits, looked.counts) = (decoder.hits - decoder.elsewhere.hits, decoder.counts);
    looked.elsewhere = decoder.elsewhere;
    Ok(looked)
}

/// Calls, and their chains where those can be had.
type Window = (Session, Result<Session, PerfError>);

/// Sets the probes, and begins: calls, and their chains where there is room for them. None when the process has ended.
fn open_window(
    allocator: &Allocator,
    named: &Result<ProbePoints, String>,
    process: &Process,
) -> Result<Option<Window>, String> {
    let points = named.as_ref().ok();
    let plans = [
        plan(allocator, points, 8, Sampling::Every(1)),
        plan(allocator, points, CHAIN_STACK_BYTES, Sampling::Every(CHAIN_EVERY)),
    ];
    let events: usize = plans.iter().map(|plan| plan.events.len()).sum();
    let open = |threads: &[i32]| {
        let [calls, chains] = plans;
        let calls = Session::open(calls, threads)?;
        let chains = Session::open(chains, threads);
        calls.start()?;
        chains.iter().try_for_each(Session::start)?;
        Ok::<_, PerfError>((calls, chains))
    };
    let threads = match process.threads() {
        Err(ProcessError::Ended(_)) => return Ok(None),
        threads => threads.map_err(|error| error.to_string())?,
    };
    if let Err(reason) = named
        && threads.len() * cpus() * events > MOST_OWN_PROBES
    {
        let threads = several(threads.len() as u64, "thread");
        return Err(format!(
            "{threads} are too many without names for the probes, which root (sudo) can give: {reason}"
        ));
    }
    match open(&threads) {
        // Its end has several faces.
        Err(PerfError::Ended(_)) => Ok(None),
        Err(_) if ends(process) => Ok(None),
        opened => opened.map(Some).map_err(|error| error.to_string()),
    }
}

/// Whether a process has ended, or does so now: it has let go of its files some moments before it shows that.
fn ends(process: &Process) -> bool {
    (0..LOOKS_AT_END).any(|look| {
        std::thread::sleep(Duration::from_millis(u64::from(look > 0)));
        !process.is_alive()
    })
}

/// Entries of all functions, then returns of those that answer.
fn plan(allocator: &Allocator, named: Option<&ProbePoints>, stack_bytes: u32, sampling: Sampling) -> Plan {
    let places = places(allocator);
    let in_file = in_file(allocator, &places);
    let event = |number: usize| {
        let (offset, is_return) = in_file[number];
        let what = match named {
            Some(points) => What::Tracepoint { id: points.ids()[number], filter: String::new() },
            None => {
                let file = format!("/proc/self/fd/{}", allocator.file.as_raw_fd()).into();
                What::Function { file, offset, is_return }
            }
        };
        Event { what, sampling, scope: Scope::User, starts_enabled: true }
    };
    // Chains are taken where memory is asked for only.
    let is_for_chains = sampling != Sampling::Every(1);
    let is_wanted = |(function, is_return): (usize, bool)| !is_for_chains || (!is_return && function != FREE);
    Plan {
        events: (0..places.len()).filter(|number| is_wanted(places[*number])).map(event).collect(),
        content: Content { has_address: false, has_callchain: false, has_raw: false, stack_bytes },
        follows_processes: false,
        waits_for_exec: false,
        buffer_bytes: 4 << 20,
    }
}

/// Where these functions are in the allocator's file.
fn in_file(allocator: &Allocator, places: &[(usize, bool)]) -> Vec<Place> {
    let offset = |function: usize| allocator.offsets.get(function).copied().flatten();
    places.iter().filter_map(|(function, is_return)| Some((offset(*function)?, *is_return))).collect()
}

/// Functions that are there: entries first, then returns.
fn places(allocator: &Allocator) -> Vec<(usize, bool)> {
    let there =
        (0..FUNCTIONS.len()).filter(|place| allocator.offsets.get(*place).copied().flatten().is_some());
    let there: Vec<usize> = there.collect();
    let entries = there.iter().map(|place| (*place, false));
    entries.chain(there.iter().filter(|place| **place != FREE).map(|place| (*place, true))).collect()
}

#[derive(Default)]
struct Decoder {
    pid: i32,
    /// Function and whether it is its return, by place in the plan.
    places: Vec<(usize, bool)>,
    counts: RingCounts,
    /// All of them cost time.
    hits: u64,
    elsewhere: CallsElsewhere,
    calls: u64,
    /// Calls that have begun: function, size, and the block that realloc got.
    open: HashMap<i32, (usize, u64, Option<u64>)>,
    /// Chains of calls that have begun.
    chains: HashMap<i32, u32>,
    /// Blocks by address.
    live: HashMap<u64, u64>,
    next_id: u64,
    /// The kernel left calls out, because they came too often for its limit.
    is_held_back: bool,
}

impl Decoder {
    fn read(
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
    fn forget(&mut self) {
        self.open.clear();
        self.chains.clear();
        self.live.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::perf_record::FunctionRegisters;
    use std::process::Command;

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
        let mut decoder = Decoder { places, ..Decoder::default() };
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

    #[test]
    fn probes_for_a_process_that_has_ended_are_no_failure_and_for_one_that_lives_they_are() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id().cast_signed()).unwrap();
        let allocator = Allocator { file: File::open("/dev/null").unwrap(), offsets: vec![Some(0); 6] };
        let unnamed = Err("no tracefs".to_owned());
        let open_window = |process| open_window(&allocator, &unnamed, process);
        assert!(open_window(&process).is_err(), "no such function");
        child.kill().unwrap();
        while process.is_alive() {
            std::thread::yield_now();
        }
        assert!(matches!(open_window(&process), Ok(None)), "nobody has waited for it");
        child.wait().unwrap();
        assert!(matches!(open_window(&process), Ok(None)));
    }
}
