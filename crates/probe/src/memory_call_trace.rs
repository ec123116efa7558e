//! Follows the calls by which processes change their mappings, through the kernel's own records: perf_event_open(2).
//!
//! Nothing stops. With tracepoints every call is seen at its entry and exit, and the call chain of some; where tracepoints are
//! closed, the kernel's records of new mappings are left, which any user may have of own processes.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use faultless_records::call_tracepoint::{self, OpenCalls};
use faultless_records::memory_call::{CallKind, MemoryEvent, TakenStack};
use faultless_records::perf_record::{Content, News, PerfRecord, Sample};

use crate::clock::monotonic_ns;
use crate::deadline::Deadline;
use crate::launch::Launched;
use crate::leaderless::Leaderless;
use crate::mapping_call::MappingCalls;
use crate::memory_call_filter::CALLS;
use crate::perf::{Event, Moment, Plan, Sampling, Scope, Session, What};
use crate::process::Process;
use crate::refused::Refused;
use crate::signals::{Arrival, Signals};
use crate::system_call_trap::{Followed, Observer};
use crate::tracefs::Tracefs;
use crate::watch::{WatchError, watch_beside};

/// Bytes of the user's stack that are saved with a call chain.
const STACK_BYTES: u32 = 8192;

/// Buffers of each CPU, where there are few.
const CALL_BUFFER_BYTES: usize = 8 << 20;
const CHAIN_BUFFER_BYTES: usize = 8 << 20;
const NEWS_BUFFER_BYTES: usize = 4 << 20;

/// When more calls come in a second than this, chains are taken of one in [`FEW`] only.
const MANY_A_SECOND: f64 = 2000.0;
const FEW: u32 = 61;

/// How often it is looked whether there are many calls.
const LOOK: Duration = Duration::from_millis(100);

/// Between two looks into the buffers.
const TURN: Duration = Duration::from_millis(10);

/// How often the observer hears that time passes.
const TICK: Duration = Duration::from_millis(200);

/// What is seen of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Every call, by tracepoints.
    Calls,
    /// New mappings only.
    Mappings,
}

/// An observation that goes on.
pub struct Trace {
    sight: Sight,
    /// Mappings, names, starts and ends; apart, so that what is lost of them is no lost call.
    news: Session,
    calls: Option<Session>,
    /// By places in the plan of `calls`: entries, then exits.
    kinds: Vec<CallKind>,
    /// The chains of all calls, and of one in [`FEW`].
    chains: Option<Session>,
    chains_refused: Option<String>,
    takes_all: bool,
    looked: Instant,
    seen_then: u64,
    seen: u64,
    open: OpenCalls,
    /// The first exec begins the observation and is no event of it.
    awaits_exec: bool,
    /// Processes that were started since, and have not ended as far as is known.
    descendants: HashSet<i32>,
    /// Processes whose first thread has ended, and perhaps not the others.
    leaderless: Leaderless,
    mapping_calls: MappingCalls,
    lost: u64,
    lost_chains: u64,
}

impl Trace {
    /// Opens it for these threads and what they start; `waits_for_exec` for a command that is yet to begin.
    ///
    /// # Errors
    /// One line that says what would help.
    pub fn open(sight: Sight, threads: &[i32], waits_for_exec: bool) -> Result<Self, Refused> {
        let kinds: Vec<CallKind> = CALLS.iter().map(|(_, kind, _)| *kind).collect();
        let plan = |events, stack_bytes, follows_processes, buffer_bytes| Plan {
            events,
            content: Content { has_address: false, has_callchain: false, has_raw: true, stack_bytes },
            follows_processes,
            waits_for_exec,
            buffer_bytes,
        };
        let open = |plan| Session::open(plan, threads);
        let news = open(plan(Vec::new(), 0, true, NEWS_BUFFER_BYTES))?;
        let (mut calls, mut chains, mut chains_refused) = (None, None, None);
        if sight == Sight::Calls {
            let (entries, exits) = tracepoints(&Tracefs::open()?)?;
            let event = |id: &u64, period: u32, starts_enabled| Event {
                what: What::Tracepoint { id: *id, filter: String::new() },
                sampling: Sampling::Every(u64::from(period)),
                scope: Scope::All,
                starts_enabled,
            };
            let every = entries.iter().chain(&exits).map(|id| event(id, 1, true)).collect();
            calls = Some(open(plan(every, 0, false, CALL_BUFFER_BYTES))?);
            let all = entries.iter().map(|id| event(id, 1, true));
            let some = entries.iter().map(|id| event(id, FEW, false));
            // Without room for chains the calls are still seen.
            match open(plan(all.chain(some).collect(), STACK_BYTES, false, CHAIN_BUFFER_BYTES)) {
                Ok(session) => chains = Some(session),
                Err(error) => chains_refused = Some(error.to_string()),
            }
        }
        Ok(Self {
            sight,
            news,
            calls,
            kinds,
            chains,
            chains_refused,
            takes_all: true,
            looked: Instant::now(),
            seen_then: 0,
            seen: 0,
            open: OpenCalls::default(),
            awaits_exec: waits_for_exec,
            descendants: HashSet::new(),
            leaderless: Leaderless::default(),
            mapping_calls: MappingCalls::default(),
            lost: 0,
            lost_chains: 0,
        })
    }

    /// Why no call chains are taken, where they would be.
    #[must_use]
    pub fn chains_refused(&self) -> Option<&str> {
        self.chains_refused.as_deref()
    }

    /// Begins, where it waits for no exec.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn start(&self) -> io::Result<()> {
        let sessions = [Some(&self.news), self.calls.as_ref(), self.chains.as_ref()];
        sessions
            .into_iter()
            .flatten()
            .try_for_each(Session::start)
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Tells the observer what has come; `is_last` when no more can come. Returns how much that was.
    pub fn read(&mut self, observer: &mut dyn Observer, is_last: bool) -> usize {
        self.leaderless.look(lives, monotonic_ns());
        let moment = Moment::last_or_settled(is_last);
        let sessions = [Some(&mut self.news), self.calls.as_mut(), self.chains.as_mut()];
        let mut records: Vec<(usize, PerfRecord)> = Vec::new();
        for (origin, session) in sessions.into_iter().enumerate() {
            let Some(session) = session else { continue };
            records.extend(session.read_until(moment).into_iter().map(|record| (origin, record)));
        }
        records.sort_by_key(|(_, record)| record.time_ns);
        let number = records.len();
        for (origin, record) in records {
            match (&record.news, origin) {
                (News::Sample(sample), 1) => self.take_call(&record, sample, observer),
                (News::Sample(sample), 2) => self.take_chain(&record, sample, observer),
                (_, 0) => self.take_news(&record, observer),
                _ => {}
            }
        }
        if is_last {
            // Ended before the last record was taken, which was too late for the look before.
            self.leaderless.look(lives, monotonic_ns());
        }
        for pid in self.leaderless.ended(moment.ns()) {
            self.descendants.remove(&pid);
            observer.take(MemoryEvent::Exit { pid });
        }
        // Entry and exit of a call are two records.
        let lost = self.calls.as_ref().map_or(self.news.lost(), |calls| calls.lost().div_ceil(2));
        if lost > self.lost {
            observer.take(MemoryEvent::Lost { calls: lost - self.lost });
            self.lost = lost;
        }
        let lost_chains = self.chains.as_ref().map_or(0, Session::lost);
        if lost_chains > self.lost_chains {
            observer.take(MemoryEvent::LostChains { chains: lost_chains - self.lost_chains });
            self.lost_chains = lost_chains;
        }
        self.look_at_rate();
        number
    }

    fn take_call(&mut self, record: &PerfRecord, sample: &Sample, observer: &mut dyn Observer) {
        let place = self.calls.as_ref().and_then(|calls| calls.place_of(sample.event));
        let Some(place) = place else { return };
        let kind = self.kinds[place % self.kinds.len()];
        if place < self.kinds.len() {
            if let Some(arguments) = call_tracepoint::arguments(&sample.raw) {
                self.open.enter(record.tid, kind, arguments);
            }
            return;
        }
        let call =
            call_tracepoint::answer(&sample.raw).and_then(|answer| self.open.leave(record, kind, answer));
        if let Some(call) = call {
            self.seen += 1;
            observer.take(MemoryEvent::Call(call));
        }
    }

    fn take_chain(&mut self, record: &PerfRecord, sample: &Sample, observer: &mut dyn Observer) {
        let place = self.chains.as_ref().and_then(|chains| chains.place_of(sample.event));
        let (Some(place), Some(arguments)) = (place, call_tracepoint::arguments(&sample.raw)) else { return };
        let weight = if place < self.kinds.len() { 1 } else { FEW };
        let kind = self.kinds[place % self.kinds.len()];
        if let Some(index) = observer.chain(record, sample) {
            let stack = TakenStack { index, weight };
            observer.take(MemoryEvent::Chain { pid: record.pid, kind, arguments, stack });
        }
    }

    fn take_news(&mut self, record: &PerfRecord, observer: &mut dyn Observer) {
        observer.record(record);
        let pid = record.pid;
        match &record.news {
            News::Name { is_exec: true, .. } => {
                // Another thread than the first has called it, which the kernel ends before.
                self.leaderless.remove(pid);
                self.mapping_calls.forget(pid);
                if !std::mem::take(&mut self.awaits_exec) {
                    observer.take(MemoryEvent::Exec { pid });
                }
            }
            News::Fork { parent_pid, .. } if *parent_pid == pid => observer.take(MemoryEvent::Thread { pid }),
            News::Fork { parent_pid, .. } => {
                if self.leaderless.remove(pid) {
                    // Its number was free, so all of that process had ended.
                    observer.take(MemoryEvent::Exit { pid });
                }
                self.descendants.insert(pid);
                self.mapping_calls.forget(pid);
                observer.take(MemoryEvent::Fork { parent: *parent_pid, child: pid });
            }
            News::Exit => {
                self.open.forget(record.tid);
                if record.tid == pid {
                    self.leaderless.insert(pid);
                }
            }
            // Where calls are seen, these are only news about code.
            News::Mapping(new) if self.sight == Sight::Mappings => {
                if let Some(call) = self.mapping_calls.call(record, new) {
                    self.seen += 1;
                    observer.take(MemoryEvent::Call(call));
                }
            }
            _ => {}
        }
    }

    /// Reads on until the descendants that outlived the command have ended, too, the time is over, or a signal asks us to end.
    fn follow_descendants(
        &mut self,
        signals: &Signals,
        end: Option<Instant>,
        observer: &mut dyn Observer,
    ) -> io::Result<()> {
        let mut next_tick = Instant::now();
        while self.has_descendants() && end.is_none_or(|end| Instant::now() < end) {
            if signals.next(Some(TURN))?.is_some_and(Arrival::is_interruption) {
                break;
            }
            self.read(observer, false);
            if Instant::now() >= next_tick {
                next_tick += TICK;
                observer.tick();
            }
        }
        self.read(observer, true);
        Ok(())
    }

    fn has_descendants(&mut self) -> bool {
        // The news of an end may have been lost.
        self.descendants.retain(|pid| lives(*pid));
        !self.descendants.is_empty()
    }

    /// Takes fewer chains while there are many calls, and all again when there are few.
    fn look_at_rate(&mut self) {
        let Some(chains) = &self.chains else { return };
        let calls = self.seen - self.seen_then;
        let Some(takes_all) = takes_all(self.takes_all, calls, self.looked.elapsed()) else { return };
        (self.looked, self.seen_then) = (Instant::now(), self.seen);
        if takes_all == self.takes_all {
            return;
        }
        self.takes_all = takes_all;
        let kinds = self.kinds.len();
        let (begin, end) =
            if takes_all { (0..kinds, kinds..2 * kinds) } else { (kinds..2 * kinds, 0..kinds) };
        // A refusal leaves chains as they are; their weights say what they stand for.
        end.for_each(|place| drop(chains.disable(place)));
        begin.for_each(|place| drop(chains.enable(place)));
    }
}

/// Whether the chains of all calls are to be taken after so many calls; none while that cannot be said. As many calls as make a high
/// rate are answered before their time is over: the buffers have room for the chains of a thousand.
fn takes_all(takes_all: bool, calls: u64, elapsed: Duration) -> Option<bool> {
    let is_burst = takes_all && calls as f64 >= MANY_A_SECOND * LOOK.as_secs_f64();
    if elapsed < LOOK && !is_burst {
        return None;
    }
    let rate = calls as f64 / elapsed.as_secs_f64();
    Some(if takes_all { rate < MANY_A_SECOND } else { rate < MANY_A_SECOND / 2.0 })
}

/// Reads until a command of ours and all that it started have ended, or for so long; the command is ended then.
///
/// # Errors
/// [`WatchError`].
pub fn follow_command(
    mut trace: Trace,
    launched: &Launched,
    signals: &Signals,
    limit: Option<Duration>,
    observer: &mut dyn Observer,
) -> Result<Followed, WatchError> {
    let began = Instant::now();
    let mut next_tick = began + TICK;
    let mut deadline = Deadline::new(limit.map(|limit| began + limit));
    let measurement = watch_beside(launched, signals, None, &mut |_| {
        let now = Instant::now();
        let was_over = deadline.passed().is_some();
        let due = deadline.due(now);
        if !was_over {
            trace.read(observer, due.is_some());
        }
        if now >= next_tick {
            next_tick = now + TICK;
            observer.tick();
        }
        due.into_iter().for_each(|signal| launched.send(signal as i32));
        Some(TURN)
    })?;
    let is_own_end = deadline.passed().is_none();
    if is_own_end {
        trace.read(observer, true);
        trace
            .follow_descendants(signals, limit.map(|limit| began + limit), observer)
            .map_err(WatchError::System)?;
    }
    let end = deadline.passed().unwrap_or_else(Instant::now);
    Ok(Followed {
        ending: is_own_end.then_some(measurement.ending),
        observed: end.saturating_duration_since(began),
        is_blind_to_some: false,
    })
}

/// Reads until a running process has ended, the time is over, or a signal asks us to end. How long was looked.
///
/// # Errors
/// The kernel's reason.
pub fn follow_process(
    mut trace: Trace,
    process: &Process,
    signals: &Signals,
    limit: Option<Duration>,
    observer: &mut dyn Observer,
) -> io::Result<Duration> {
    let began = Instant::now();
    let mut next_tick = began + TICK;
    trace.start()?;
    loop {
        trace.read(observer, false);
        let now = Instant::now();
        if now >= next_tick {
            next_tick = now + TICK;
            observer.tick();
            if !process.is_alive() {
                break;
            }
        }
        let left = limit.map(|limit| (began + limit).saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let arrival = signals.next(Some(left.map_or(TURN, |left| left.min(TURN))))?;
        if arrival.is_some_and(|arrival| arrival.is_interruption()) {
            break;
        }
    }
    let observed = began.elapsed();
    trace.read(observer, true);
    Ok(observed)
}

/// Whether any thread of a process has not ended.
fn lives(pid: i32) -> bool {
    Process::open(pid).is_ok_and(|process| process.is_alive())
}

/// Numbers of the tracepoints at entry and exit of each call.
fn tracepoints(tracefs: &Tracefs) -> io::Result<(Vec<u64>, Vec<u64>)> {
    let ids = |moment: &str| -> io::Result<Vec<u64>> {
        CALLS.iter().map(|(_, _, name)| tracefs.id(&format!("syscalls/sys_{moment}_{name}"))).collect()
    };
    Ok((ids("enter")?, ids("exit")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_calls_is_answered_at_the_next_turn_and_a_few_at_a_start_are_not() {
        assert_eq!(takes_all(true, 60, TURN), None, "a program that is loaded");
        assert_eq!(takes_all(true, 3000, TURN), Some(false));
        assert_eq!(takes_all(true, 150, LOOK), Some(true));
        assert_eq!(takes_all(false, 3000, TURN), None);
        assert_eq!(takes_all(false, 150, LOOK), Some(false), "a rate between the two does not go to and fro");
        assert_eq!(takes_all(false, 50, LOOK), Some(true));
    }
}
