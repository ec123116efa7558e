//! Looks at several processes round after round and says what it saw as lines of a recording.
//!
//! Forks, execs and ends are taken from the kernel's own messages where it sends them to us, and otherwise from the
//! differences between two rounds; both ways agree on the rest.

mod groups;
mod hearing;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use faultless_records::quantity::several;
use faultless_records::recording::{Cost, Event, Happening, Line, Note, Process, Source};
use nix::libc;

use crate::clock;
use crate::file_limit::{self, NO_MORE_FILES};
use crate::process::ProcessError;
use crate::process_events::ProcessEvents;
use crate::process_list::{Candidate, Refused, Selection};
use crate::watched::{Change, Depth, Look, Watched, is_gone};

/// How often swap and the peak are looked up, which costs another file.
const STATUS_EVERY_NS: u64 = 1_000_000_000;

/// How often new processes are searched for at most where the kernel tells of them: a search only finds what it did not say,
/// other names of the same program.
const SEARCH_EVERY_NS: u64 = 10_000_000_000;

/// How long a new program has before its mappings are walked for the first time.
const SETTLED_NS: u64 = 1_000_000_000;

/// A search, or a reading of `smaps_rollup`, is not repeated before this many times its own duration has passed.
const REST: u64 = 500;

/// The watched processes.
#[derive(Debug)]
pub struct Sampler {
    origin_ns: u64,
    processor_at_origin: Duration,
    selection: Selection,
    /// Time between two readings of `smaps_rollup`; none for never.
    rollup_every_ns: Option<u64>,
    tracked: Vec<Tracked>,
    places: HashMap<i32, usize>,
    met: u32,
    refused: Refused,
    next_search_ns: u64,
    events: Option<ProcessEvents>,
    lines: Vec<Line>,
    cost: Cost,
    /// Wanted processes that ended before they were looked at.
    unseen: u64,
    has_said_what_lacks_files: bool,
    departed: hearing::Departed,
    /// A child of ours that wait(2) has not spoken of yet.
    child: Option<i32>,
    /// Messages of the kernel are being taken in.
    is_taking_in: bool,
    groups: groups::Groups,
}

#[derive(Debug)]
struct Tracked {
    place: u32,
    watched: Watched,
    next_status_ns: u64,
    next_rollup_ns: Option<u64>,
    /// The kernel said that it has ended; or that its first thread has.
    ending: Option<hearing::Ending>,
    /// Seen by sampling while the kernel's message may still be under way.
    unheard: Option<Event>,
    /// Its command line is to be told at the next look: it is new, or not there yet while an exec is under way.
    is_to_introduce: bool,
}

impl Tracked {
    /// Another program: what is known of its memory is that of the one before.
    fn settle(&mut self, now_ns: u64) {
        self.next_rollup_ns = self.next_rollup_ns.map(|_| now_ns + SETTLED_NS);
    }
}

impl Sampler {
    /// Begins; time is counted from now.
    #[must_use]
    pub fn new(selection: Selection, rollup_every: Option<Duration>) -> Self {
        let mut sampler = Self {
            origin_ns: clock::monotonic_ns(),
            processor_at_origin: clock::own_processor_time(),
            selection,
            rollup_every_ns: rollup_every.map(clock::nanoseconds),
            tracked: Vec::new(),
            places: HashMap::new(),
            met: 0,
            refused: Refused::default(),
            next_search_ns: 0,
            events: None,
            lines: Vec::new(),
            cost: Cost::default(),
            unseen: 0,
            has_said_what_lacks_files: false,
            departed: hearing::Departed::default(),
            child: None,
            is_taking_in: false,
            groups: groups::Groups::default(),
        };
        match ProcessEvents::open() {
            Ok(events) => sampler.events = Some(events),
            Err(reason) => sampler.note(&format!(
                "forks, execs and exits are seen only as differences between samples; what begins and ends between two is missed: {reason}"
            )),
        }
        sampler
    }

    /// Takes a process by its number.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn add(&mut self, pid: i32) -> Result<(), ProcessError> {
        if !self.places.contains_key(&pid) {
            self.track(Watched::open(pid)?, 0);
        }
        Ok(())
    }

    /// As [`Sampler::add`], for a child that was just started: there is little to see of its memory yet, and [`Sampler::end`] will
    /// say how it ended.
    ///
    /// # Errors
    /// [`ProcessError`].
    pub fn add_started(&mut self, pid: i32) -> Result<(), ProcessError> {
        self.track(Watched::open(pid)?, clock::monotonic_ns() + SETTLED_NS);
        self.child = Some(pid);
        Ok(())
    }

    /// Looks for those that are wanted and run already; where it `is_all`, nobody is found later.
    pub fn begin(&mut self, is_all: bool) {
        self.hear();
        let found = self.search();
        self.look_at_groups();
        if found == Some(0) && self.tracked.is_empty() && self.selection.matcher.is_some() {
            self.note(match is_all {
                true => "no process fits",
                false => "no process fits yet; those that begin later are watched",
            });
        }
    }

    /// Looks at all of them once, and for new ones when it is time.
    pub fn round(&mut self) {
        self.look_at_all(Self::depth);
    }

    /// As [`Sampler::round`], with everything there is to see of each: nothing comes after it.
    pub fn last_round(&mut self) {
        self.look_at_all(|sampler, index| {
            let rollup = sampler.tracked[index].next_rollup_ns.is_some();
            Depth { status: true, rollup }
        });
    }

    fn look_at_all(&mut self, depth: impl Fn(&mut Self, usize) -> Depth) {
        self.hear();
        self.search();
        self.look_at_groups();
        for index in (0..self.tracked.len()).rev() {
            if let Some(event) = self.tracked[index].unheard.take() {
                self.lines.push(Line::Event(event));
            }
            let depth = depth(self, index);
            self.look(index, depth);
        }
    }

    /// Looks at one process, with everything there is to see.
    pub fn look_closely(&mut self, pid: i32) {
        if let Some(index) = self.places.get(&pid).copied() {
            let rollup = self.rollup_every_ns.is_some();
            self.look(index, Depth { status: true, rollup });
        }
    }

    /// The lines since the last time.
    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// Adds a line for the reader.
    pub fn note(&mut self, text: &str) {
        let t = self.t();
        self.lines.push(Line::Note(Note { t, text: text.to_owned() }));
    }

    /// Seconds since it began.
    #[must_use]
    pub fn t(&self) -> f64 {
        self.seconds(clock::monotonic_ns())
    }

    /// Processes that are watched now.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.tracked.len()
    }

    /// Whether new ones may come.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.selection.matcher.is_some()
            || !self.groups.are_over()
            || (self.selection.with_children && !self.tracked.is_empty())
    }

    /// Can be read when the kernel has said something.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// Whether a message of the kernel should be taken in at once: only then are short processes seen at all.
    #[must_use]
    pub fn is_urgent(&self) -> bool {
        self.selection.is_open() || !self.groups.are_over()
    }

    /// A round of samples could not be taken in time.
    pub fn miss(&mut self, rounds: u64) {
        self.cost.missed_rounds += rounds;
    }

    /// What it has cost so far; says what was missed.
    pub fn cost(&mut self) -> Cost {
        if self.unseen > 0 {
            let unseen = std::mem::take(&mut self.unseen);
            self.note(&format!("{} ended before a first look", several(unseen, "wanted process")));
        }
        self.cost.processor_s =
            whole_us(clock::own_processor_time().saturating_sub(self.processor_at_origin).as_secs_f64());
        self.cost.rollup_s = whole_us(self.cost.rollup_s);
        self.cost.longest_rollup_s = whole_us(self.cost.longest_rollup_s);
        self.cost
    }

    fn seconds(&self, ns: u64) -> f64 {
        seconds(ns.saturating_sub(self.origin_ns))
    }

    /// Searches, if it is time, and tells how many were found.
    fn search(&mut self) -> Option<usize> {
        let begun = clock::monotonic_ns();
        if !self.selection.is_open() || begun < self.next_search_ns {
            return None;
        }
        let places = &self.places;
        let found = self.refused.search(&self.selection, &|pid| places.contains_key(&pid));
        match &found {
            Ok(found) => found.iter().for_each(|candidate| self.adopt(candidate)),
            Err(error) => self.say_what_is_lacking(&no_search(error)),
        }
        let end = clock::monotonic_ns();
        let least = if self.events.is_some() { SEARCH_EVERY_NS } else { 0 };
        self.next_search_ns = end + least.max((end - begun).saturating_mul(REST));
        found.ok().map(|found| found.len())
    }

    /// Once: it would be the same at each search.
    fn say_what_is_lacking(&mut self, text: &str) {
        if !std::mem::replace(&mut self.has_said_what_lacks_files, true) {
            self.note(text);
        }
    }

    /// Takes a process that was found; its parent's fork is marked if the kernel does not tell of it.
    fn adopt(&mut self, candidate: &Candidate) {
        let parent = self.places.get(&candidate.parent).map(|index| self.tracked[*index].place);
        let (t, before) = (self.t(), self.lines.len());
        if self.meet(candidate.pid)
            && self.events.is_none()
            && let Some(process) = parent
        {
            let what = Happening::Fork { child: candidate.pid };
            self.lines.insert(before, Line::Event(Event { t, process, source: Source::Sampling, what }));
        }
    }

    /// Begins to look at a process; false where another search is to try again.
    fn meet(&mut self, pid: i32) -> bool {
        match Watched::open(pid) {
            Ok(watched) => self.track(watched, clock::monotonic_ns() + SETTLED_NS),
            Err(error) if is_gone(&error) => {
                self.unseen += 1;
                self.depart(pid, None);
            }
            Err(ProcessError::KernelThread(..)) => {}
            Err(ProcessError::Files(_)) => {
                self.say_what_is_lacking(&format!(
                    "only {} of the wanted processes are watched, others when these end: {NO_MORE_FILES}",
                    self.tracked.len()
                ));
                return false;
            }
            Err(error) => self.note(&error.to_string()),
        }
        true
    }

    fn track(&mut self, watched: Watched, first_rollup_ns: u64) {
        let place = self.met;
        self.met += 1;
        let pid = watched.process().pid();
        let line = introduction(self.t(), place, &watched);
        let is_to_introduce = line.command.is_empty();
        let mut next_rollup_ns = self.rollup_every_ns.map(|_| first_rollup_ns);
        if next_rollup_ns.is_some()
            && let Err(error) = watched.may_read_rollup()
        {
            if !is_gone(&error) {
                self.note(&format!("no PSS, and RSS is the kernel's running counter: {error}"));
            }
            next_rollup_ns = None;
        }
        self.lines.push(Line::Process(line));
        self.places.insert(pid, self.tracked.len());
        self.tracked.push(Tracked {
            place,
            watched,
            next_status_ns: 0,
            next_rollup_ns,
            ending: None,
            unheard: None,
            is_to_introduce,
        });
        let index = self.tracked.len() - 1;
        let depth = self.depth(index);
        self.look(index, depth);
    }

    fn depth(&mut self, index: usize) -> Depth {
        let now = clock::monotonic_ns();
        let one = &mut self.tracked[index];
        let status = now >= one.next_status_ns;
        if status {
            one.next_status_ns = now + STATUS_EVERY_NS;
        }
        Depth { status, rollup: one.next_rollup_ns.is_some_and(|at| now >= at) }
    }

    fn look(&mut self, index: usize, depth: Depth) {
        let looked = self.tracked[index].watched.look(depth);
        self.take_look(index, looked);
    }

    fn take_look(&mut self, index: usize, looked: Result<Look, ProcessError>) {
        let now = clock::monotonic_ns();
        let pid = self.tracked[index].watched.process().pid();
        match looked {
            // Until wait(2) says how it ended, the kernel's message may have been about the first thread only.
            Ok(look) if look.is_ended && self.child == Some(pid) => {}
            Ok(look) => self.add_look(index, &look, now),
            Err(error) if is_gone(&error) => self.finish(index, now),
            Err(error) => {
                self.note(&error.to_string());
                self.forget(index);
            }
        }
    }

    fn add_look(&mut self, index: usize, look: &Look, now: u64) {
        let (t, every_ns) = (self.seconds(now), self.rollup_every_ns);
        let hears = self.events.is_some();
        let one = &mut self.tracked[index];
        let mut sample = look.sample;
        (sample.t, sample.process) = (t, one.place);
        if let Some(time_s) = look.rollup_s {
            let rest_ns = (time_s * 1e9) as u64 * REST;
            one.next_rollup_ns = every_ns.map(|every| now + every.max(rest_ns));
            self.cost.rollups += 1;
            self.cost.rollup_s += time_s;
            self.cost.longest_rollup_s = self.cost.longest_rollup_s.max(time_s);
        }
        self.cost.samples += 1;
        if matches!(look.change, Some(Change::Exec(_))) {
            one.settle(now);
        }
        if std::mem::replace(&mut one.is_to_introduce, matches!(look.change, Some(Change::Exec(_)))) {
            self.lines.push(Line::Process(introduction(t, one.place, &one.watched)));
        }
        self.lines.push(Line::Sample(sample));
        if let Some(change) = &look.change {
            let what = match change.clone() {
                Change::Exec(name) => Happening::Exec { name },
                Change::Rename(name) => Happening::Rename { name },
            };
            let event = Event { t, process: sample.process, source: Source::Sampling, what };
            match hears {
                true => self.tracked[index].unheard = Some(event),
                false => self.lines.push(Line::Event(event)),
            }
        }
        if look.is_ended {
            self.finish(index, now);
        }
    }

    /// Nothing more is to be seen of it.
    fn finish(&mut self, index: usize, now: u64) {
        if self.tracked[index].ending.is_none() {
            if self.is_taking_in {
                // That stands further on in the same messages, or comes next; it is looked at again then.
                return;
            }
            // How it ended may have been said since we last listened; who comes in by this stands behind it in the list.
            self.take_in();
        }
        let one = self.untrack(index);
        self.depart(one.watched.process().pid(), Some(one.place));
        let (ns, source, status, signal) = match one.ending.map(|ending| (ending.ns, ending.wait_status)) {
            Some((ns, wait)) if libc::WIFSIGNALED(wait) => {
                (ns, Source::Kernel, None, Some(libc::WTERMSIG(wait)))
            }
            Some((ns, wait)) => (ns, Source::Kernel, Some(libc::WEXITSTATUS(wait)), None),
            None => (now, Source::Sampling, None, None),
        };
        self.push_event(self.seconds(ns), one.place, source, Happening::Exit { status, signal });
    }

    /// Watches a process no longer, which goes on.
    fn forget(&mut self, index: usize) {
        let one = self.untrack(index);
        self.push_event(self.t(), one.place, Source::Sampling, Happening::Left);
    }

    fn untrack(&mut self, index: usize) -> Tracked {
        let mut one = self.tracked.swap_remove(index);
        self.places.remove(&one.watched.process().pid());
        if let Some(moved) = self.tracked.get(index) {
            self.places.insert(moved.watched.process().pid(), index);
        }
        self.lines.extend(one.unheard.take().map(Line::Event));
        one
    }

    fn push_event(&mut self, t: f64, process: u32, source: Source, what: Happening) {
        self.lines.push(Line::Event(Event { t, process, source, what }));
    }
}

/// Why wanted processes cannot be looked for.
fn no_search(error: &io::Error) -> String {
    match file_limit::is_reached(error) {
        true => format!("processes cannot be looked for: {NO_MORE_FILES}"),
        false => format!("processes cannot be looked for: cannot list /proc: {error}"),
    }
}

/// What there is to say of a process at first, and again after an exec.
fn introduction(t: f64, place: u32, watched: &Watched) -> Process {
    Process {
        t,
        process: place,
        pid: watched.process().pid(),
        parent: watched.parent(),
        name: watched.name(),
        command: watched.command(),
        start_ticks: watched.process().start_ticks(),
    }
}

/// In whole microseconds: that many digits are read again as they were written.
fn seconds(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1e6
}

fn whole_us(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
