//! Calls of malloc and its family in a process that runs already, through probes that the kernel sets at the functions' first
//! instructions and at their returns: uprobes of perf_event_open(2).
//!
//! A probe costs the program some microseconds, so a program that calls malloc often is looked at in windows, with pauses that
//! keep the cost to about a tenth of the time.

mod anchor;
mod decoder;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use faultless_records::malloc_event::{MallocEvent, RingCounts};
use faultless_records::perf_record::{Content, PerfRecord, Sample};
use faultless_records::quantity::several;

use crate::clock::nanoseconds;
use crate::perf::{Event, PerfError, Plan, Sampling, Scope, Session, What, cpus};
use crate::probe_points::{Place, ProbePoints};
use crate::process::{Process, ProcessError};
use crate::signals::Signals;
use crate::urgency::Urgency;
use anchor::Anchor;
use decoder::Decoder;

/// The functions, in the order of their offsets in [`Allocator`].
pub const FUNCTIONS: &[&str] = &["malloc", "calloc", "realloc", "aligned_alloc", "memalign", "free"];

/// Place of `free` in [`FUNCTIONS`]; those before it return memory.
const FREE: usize = 5;
const REALLOC: usize = 2;

/// The part of the time that the probes may take.
pub const SHARE: f64 = 0.1;

/// A window has the first of these lengths at least. It is twice as long as it takes to set the probes and to remove them, which slows
/// the process, too, while nobody looks; but the second is enough.
const WINDOW: Duration = Duration::from_millis(50);
const LONG_WINDOW: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// To set them may take no longer: the process runs into those that are set already, all the time.
const LONGEST_SETTING: Duration = Duration::from_secs(5);

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
    /// Counts as a recorder has them, exact where nothing was dropped; `dropped`: hits of probes that are in no other figure.
    pub counts: RingCounts,
    /// What the probes cost the process, in nanoseconds of processor time: in the windows, and at the same rate while they are set and
    /// removed.
    pub cost_ns: f64,
    /// What the processes called that it started meanwhile, which is in no other figure.
    pub elsewhere: CallsElsewhere,
    /// Why there was no further window.
    pub cut_short: Option<String>,
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
    let places = places(allocator);
    let _urgency = Urgency::begin();
    let named = ProbePoints::name(&allocator.file, &in_file(allocator, &places));
    let _anchor = named.as_ref().ok().and_then(Anchor::hold);
    let decoder = Decoder::new(process.pid(), places);
    let (began, looked) = (None, Looked::default());
    let (setting, removing) = (Duration::ZERO, None);
    let mut look =
        Look { process, signals, limit, cost_per_hit_ns, began, setting, removing, decoder, looked };
    loop {
        let setting = Instant::now();
        let opened = match open_window(allocator, &named, process, setting + LONGEST_SETTING) {
            // What was seen so far stands.
            Err(reason) if look.began.is_some() => {
                look.looked.cut_short = Some(reason);
                None
            }
            opened => opened?,
        };
        look.setting = setting.elapsed();
        look.looked.changing += look.setting;
        let Some(window) = opened else {
            let Some(began) = look.began else { return Err(ProcessError::Ended(process.pid()).to_string()) };
            look.looked.elapsed = began.elapsed();
            break;
        };
        let Some(pause) = look.through(window, observer)? else { break };
        if look.ends_in(pause)? {
            break;
        }
    }
    let Look { decoder, mut looked, .. } = look;
    looked.cost_ns *= 1.0 - decoder.elsewhere.hits as f64 / decoder.hits.max(1) as f64;
    looked.counts = decoder.counts;
    looked.elsewhere = decoder.elsewhere;
    Ok(looked)
}

/// A process that is looked at in windows.
struct Look<'look> {
    process: &'look Process,
    signals: &'look Signals,
    limit: Option<Duration>,
    cost_per_hit_ns: f64,
    /// When the first window began: to set the probes takes its time.
    began: Option<Instant>,
    /// How long the probes took to be set and to be removed, the last time each.
    setting: Duration,
    removing: Option<Duration>,
    decoder: Decoder,
    looked: Looked,
}

impl Look<'_> {
    /// Looks through a window and closes it. Returns the pause until the next, none where this was the last.
    fn through(
        &mut self,
        (mut calls, chains): Window,
        observer: &mut dyn Observer,
    ) -> Result<Option<Duration>, String> {
        let mut chains = chains.map_err(|error| self.looked.chains_refused = Some(error.to_string())).ok();
        let (window, hits_before) = (Instant::now(), self.decoder.hits);
        let began = *self.began.get_or_insert(window);
        let (ends, now) = loop {
            let is_interrupted = self.is_interrupted_in(TURN)?;
            let now = Instant::now();
            let ends = is_interrupted || self.is_over(now);
            let is_over = is_long_enough(self.cost(window.elapsed(), hits_before), self.limit);
            let closes = ends || is_over || self.decoder.is_held_back;
            self.decoder.read(&mut calls, chains.as_mut(), closes, observer);
            observer.tick(self.decoder.calls);
            if closes {
                break (ends, now);
            }
        };
        observer.removes_probes(self.decoder.calls);
        let length = window.elapsed();
        self.looked.observed += length;
        self.decoder.is_held_back = false;
        if ends {
            // Before the probes are removed, which takes its time.
            self.looked.elapsed = began.elapsed();
        }
        let removing = Instant::now();
        drop((calls, chains));
        self.removing = Some(removing.elapsed());
        self.looked.changing += removing.elapsed();
        let cost = self.cost(length, hits_before);
        self.looked.cost_ns += cost.share * nanoseconds(cost.length + cost.changing) as f64;
        if ends {
            return Ok(None);
        }
        observer.lose_sight();
        self.decoder.forget();
        let pause = cost.pause().min(LONGEST_PAUSE);
        let left = self.limit.map(|limit| (began + limit).saturating_duration_since(now));
        Ok(Some(left.map_or(pause, |left| pause.min(left))))
    }

    /// What a window costs that has this length, and began at so many hits.
    fn cost(&self, length: Duration, hits_before: u64) -> WindowCost {
        let cost_ns = (self.decoder.hits - hits_before) as f64 * self.cost_per_hit_ns;
        let changing = self.setting + self.removing.unwrap_or(self.setting);
        // Where every CPU is busy with probes each costs less than it was measured to, and there is no more time than that.
        let share = (cost_ns / length.as_nanos().max(1) as f64).min(cpus() as f64);
        WindowCost { length, changing, share }
    }

    /// Pauses. Whether it ends with that: no window begins behind the end.
    fn ends_in(&mut self, pause: Duration) -> Result<bool, String> {
        let ends = self.is_interrupted_in(pause)? || self.is_over(Instant::now() + self.setting);
        if let Some(began) = self.began.filter(|_| ends) {
            self.looked.elapsed = began.elapsed();
        }
        Ok(ends)
    }

    /// Waits so long, or until a signal comes. Whether one asks for the end.
    fn is_interrupted_in(&self, wait: Duration) -> Result<bool, String> {
        let arrival = self.signals.next(Some(wait)).map_err(|error: io::Error| error.to_string())?;
        Ok(arrival.is_some_and(|arrival| arrival.is_interruption()))
    }

    fn is_over(&self, now: Instant) -> bool {
        let end = self.began.zip(self.limit).map(|(began, limit)| began + limit);
        end.is_some_and(|end| now >= end) || !self.process.is_alive()
    }
}

/// What a window costs the process.
#[derive(Debug, Clone, Copy)]
struct WindowCost {
    length: Duration,
    /// How long it takes to set the probes and to remove them.
    changing: Duration,
    /// The part of the time that the probes take while they are set.
    share: f64,
}

impl WindowCost {
    /// After so long without probes they will have taken [`SHARE`] of the time.
    fn pause(self) -> Duration {
        (self.length + self.changing).mul_f64((self.share / SHARE - 1.0).max(0.0))
    }
}

/// Whether a window is to be closed: the probes cost much, it was long beside the time that they take to come and go, and the pause
/// will be, too. Of a look that is limited it takes no more than the probes may cost in all of it.
fn is_long_enough(window: WindowCost, limit: Option<Duration>) -> bool {
    let allowed = limit.map_or(LONG_WINDOW, |limit| limit.mul_f64(SHARE / window.share.max(SHARE)));
    let length = (window.changing * 2).min(LONG_WINDOW).min(allowed).max(WINDOW);
    window.share > SHARE && window.length >= length && window.pause() >= window.changing
}

/// Calls, and their chains where those can be had.
type Window = (Session, Result<Session, PerfError>);

/// Sets the probes, and begins: calls, and their chains where there is room for them. None when the process has ended.
fn open_window(
    allocator: &Allocator,
    named: &Result<ProbePoints, String>,
    process: &Process,
    latest: Instant,
) -> Result<Option<Window>, String> {
    let points = named.as_ref().ok();
    let plans = [
        plan(allocator, points, 8, Sampling::Every(1)),
        plan(allocator, points, CHAIN_STACK_BYTES, Sampling::Every(CHAIN_EVERY)),
    ];
    let events: usize = plans.iter().map(|plan| plan.events.len()).sum();
    let open = |threads: &[i32]| {
        let [calls, chains] = plans;
        let calls = Session::open_until(calls, threads, Some(latest))?;
        let chains = Session::open_until(chains, threads, Some(latest));
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
        Err(PerfError::Late) => Err(format!(
            "its {} run into the first ones and leave no CPU to set the others; CAP_SYS_NICE would let us go first, and churn --malloc -- CMD needs no probes",
            several(threads.len() as u64, "thread")
        )),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sleeper::Sleeper;
    use std::process::Command;

    #[test]
    fn windows_are_long_beside_the_time_that_probes_take_to_come_and_go_and_cheap_ones_stay_open() {
        let is_long_enough = |length_ms, changing_ms, share, limit_s: Option<u64>| {
            let (length, changing) = (Duration::from_millis(length_ms), Duration::from_millis(changing_ms));
            is_long_enough(WindowCost { length, changing, share }, limit_s.map(Duration::from_secs))
        };
        assert_eq!([49, 50].map(|length| is_long_enough(length, 2, 0.5, None)), [false, true]);
        assert_eq!([999, 1000].map(|length| is_long_enough(length, 500, 0.5, None)), [false, true]);
        assert_eq!([1999, 2000].map(|length| is_long_enough(length, 100_000, 0.5, None)), [false, true]);
        assert_eq!([799, 800].map(|length| is_long_enough(length, 1000, 0.5, Some(4))), [false, true]);
        // Nobody waits for a pause that is shorter than the change.
        assert_eq!([1999, 2001].map(|length| is_long_enough(length, 500, 0.12, Some(4))), [false, true]);
        assert!(!is_long_enough(100_000, 500, 0.09, None));
        let window =
            WindowCost { length: Duration::from_secs(1), changing: Duration::from_secs(1), share: 0.3 };
        assert_eq!(window.pause().as_secs_f64().round(), 4.0);
    }

    #[test]
    fn probes_that_take_too_long_to_set_are_given_up_with_what_would_help() {
        // Tests run in as many threads as there are CPUs, for which there may be too many probes.
        let sleeper = Sleeper::start().unwrap();
        let process = Process::open(sleeper.pid.as_raw()).unwrap();
        let allocator = Allocator { file: File::open("/dev/null").unwrap(), offsets: vec![Some(0); 6] };
        let unnamed = Err("no tracefs".to_owned());
        let latest = Instant::now() - Duration::from_millis(1);
        let Err(reason) = open_window(&allocator, &unnamed, &process, latest) else { panic!("in no time") };
        assert!(reason.contains("leave no CPU") && reason.contains("churn --malloc -- CMD"), "{reason}");
    }

    #[test]
    fn probes_for_a_process_that_has_ended_are_no_failure_and_for_one_that_lives_they_are() {
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = Process::open(child.id().cast_signed()).unwrap();
        let allocator = Allocator { file: File::open("/dev/null").unwrap(), offsets: vec![Some(0); 6] };
        let unnamed = Err("no tracefs".to_owned());
        let latest = Instant::now() + LONGEST_SETTING;
        let open_window = |process| open_window(&allocator, &unnamed, process, latest);
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
