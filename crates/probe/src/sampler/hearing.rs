//! What a sampler makes of the kernel's messages: who is new, who has become another program, who has ended.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use faultless_records::process_event::{ProcessEvent, What};
use faultless_records::recording::{Happening, Source};

use super::{Sampler, clock};
use crate::process_list::Candidate;
use crate::watched::Depth;

/// How soon a process that is said to end is looked at again, and how often.
const ENDING: (Duration, u32) = (Duration::from_millis(2), 50);

/// Bit of a status that says that memory was dumped, which not all ways to it tell. Source: wait(2), WCOREDUMP.
const CORE: i32 = 0x80;

/// How a process ended, by the kernel's word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ending {
    pub ns: u64,
    pub wait_status: i32,
    /// Looks left until it is believed that only the first thread has ended.
    patience: u32,
}

/// Wanted processes that have ended, while their forks may still lie in the kernel's queue.
#[derive(Debug, Default)]
pub(super) struct Departed {
    /// The number in a recording, where it has one, and a time at which the process had ended.
    known: HashMap<i32, (Option<u32>, u64)>,
}

impl Departed {
    /// One of this number that had not ended at this time; later its number may be another's.
    fn find(&self, pid: i32, ns: u64) -> Option<Option<u32>> {
        self.known.get(&pid).filter(|(_, ended_ns)| ns <= *ended_ns).map(|(place, _)| *place)
    }

    /// Forgets those whose forks have all been taken in.
    fn forget_until(&mut self, ns: u64) {
        self.known.retain(|_, (_, ended_ns)| *ended_ns > ns);
    }
}

impl Sampler {
    /// Takes in what the kernel has said since.
    pub fn hear(&mut self) {
        self.take_in();
        for index in (0..self.tracked.len()).rev() {
            if self.tracked[index].ending.is_some() {
                self.confirm_end(index);
            }
        }
    }

    /// How soon to [`Sampler::hear`] again whatever happens.
    #[must_use]
    pub fn haste(&self) -> Option<Duration> {
        self.tracked.iter().any(|one| one.ending.is_some()).then_some(ENDING.0)
    }

    /// A process has ended with this status of wait(2), and is still to be seen.
    pub fn end(&mut self, pid: i32, wait_status: i32) {
        // Its last forks come before its end.
        self.take_in();
        self.child.take_if(|child| *child == pid);
        if let Some(index) = self.places.get(&pid).copied() {
            let ending = &mut self.tracked[index].ending;
            // The kernel's message knows the time better, but may be about the first thread only.
            let heard_ns = ending.filter(|heard| heard.wait_status & !CORE == wait_status & !CORE);
            let ns = heard_ns.map_or_else(clock::monotonic_ns, |heard| heard.ns);
            *ending = Some(Ending { ns, wait_status, patience: ENDING.1 });
            self.look(index, Depth::default());
        }
    }

    /// A wanted process has ended; `place` is its number in the recording, where it has one.
    pub(super) fn depart(&mut self, pid: i32, place: Option<u32>) {
        if self.events.is_some() {
            self.departed.known.insert(pid, (place, clock::monotonic_ns()));
        }
    }

    /// Messages are taken in one after the other: one that leads here again waits for the next time.
    pub(super) fn take_in(&mut self) {
        let begun = clock::monotonic_ns();
        let Some(events) = self.events.as_mut().filter(|_| !self.is_taking_in) else { return };
        let heard = events.take();
        self.is_taking_in = true;
        if heard.is_incomplete {
            self.note("the kernel said more than could be taken in: some forks, execs and exits are missing or seen late");
            self.next_search_ns = 0;
        }
        let overtaken = overtaken(&heard.events);
        for (event, is_overtaken) in heard.events.into_iter().zip(overtaken) {
            self.take_event(event, is_overtaken);
        }
        self.is_taking_in = false;
        self.departed.forget_until(begun);
    }

    /// Looks whether a process has ended as the kernel said; otherwise that was its first thread alone.
    fn confirm_end(&mut self, index: usize) {
        let one = &mut self.tracked[index];
        match one.watched.look(Depth::default()) {
            Ok(look) if !look.is_ended && look.change.is_none() => {
                one.ending = one.ending.and_then(|ending| {
                    let patience = ending.patience.checked_sub(1)?;
                    Some(Ending { patience, ..ending })
                });
            }
            looked => self.take_look(index, looked),
        }
    }

    /// Of an exec that `is_overtaken` only the time is known: the name is that of a later one by now.
    fn take_event(&mut self, event: ProcessEvent, is_overtaken: bool) {
        let t = self.seconds(event.monotonic_ns);
        match event.what {
            What::Answer(_) => {}
            What::Fork { parent, child } => {
                let parent_place = match self.places.get(&parent) {
                    Some(index) => Some(Some(self.tracked[*index].place)),
                    None => self.departed.find(parent, event.monotonic_ns),
                };
                if let Some(Some(process)) = parent_place {
                    self.push_event(t, process, Source::Kernel, Happening::Fork { child });
                }
                match self.groups.has(parent) {
                    true => self.meet_member(child),
                    false => self.consider(child, parent_place.is_some()),
                }
            }
            What::Exec(pid) => match self.places.get(&pid).copied() {
                Some(index) => {
                    let one = &mut self.tracked[index];
                    // Only for the new name; one that is gone keeps the old one.
                    let _ = one.watched.look(Depth::default());
                    one.unheard = None;
                    // A thread that becomes another program ends the first one and goes on in its place.
                    one.ending = None;
                    one.settle(event.monotonic_ns);
                    one.is_to_introduce = true;
                    let name = if is_overtaken { String::new() } else { one.watched.name() };
                    let process = one.place;
                    self.push_event(t, process, Source::Kernel, Happening::Exec { name });
                }
                None => self.consider(pid, false),
            },
            What::Exit { pid, wait_status } => {
                if let Some(index) = self.places.get(&pid) {
                    self.tracked[*index].ending =
                        Some(Ending { ns: event.monotonic_ns, wait_status, patience: ENDING.1 });
                }
            }
        }
    }

    /// Takes a process that the kernel told of, if it is wanted.
    fn consider(&mut self, pid: i32, parent_is_watched: bool) {
        if self.places.contains_key(&pid) || !self.selection.is_open() {
            return;
        }
        match Candidate::read(pid) {
            Some(candidate) if self.selection.wants(&candidate, parent_is_watched) => {
                self.meet(pid);
            }
            Some(_) => {}
            None if self.departed.known.contains_key(&pid) => {}
            // What it started meanwhile is wanted all the same, as are a daemon's second child and its own.
            None if self.wanted(pid, parent_is_watched) => {
                self.unseen += 1;
                self.depart(pid, None);
            }
            None => {}
        }
    }

    /// Whether a process that has ended was wanted. Its name is there until its parent waits for it, its command line is gone.
    fn wanted(&self, pid: i32, parent_is_watched: bool) -> bool {
        let is_named = || Candidate::read_ended(pid).is_some_and(|ended| self.selection.wants(&ended, false));
        (parent_is_watched && self.selection.with_children) || is_named()
    }
}

/// For each of these, whether it is an exec and a later one of them is another of the same process.
fn overtaken(events: &[ProcessEvent]) -> Vec<bool> {
    let mut later = HashSet::new();
    let is_overtaken = |event: &ProcessEvent| matches!(event.what, What::Exec(pid) if !later.insert(pid));
    let mut overtaken: Vec<bool> = events.iter().rev().map(is_overtaken).collect();
    overtaken.reverse();
    overtaken
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use faultless_records::recording::Line;
    use nix::libc;

    use super::*;
    use crate::process_list::Selection;
    use crate::watched::Watched;

    #[test]
    fn how_a_process_ended_is_known_also_where_it_is_gone_at_its_first_look() {
        let mut sampler = Sampler::new(Selection::default(), None);
        if sampler.events.is_none() {
            return faultless_skipped::skipped("the kernel does not tell of ends here");
        }
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = child.id().cast_signed();
        let watched = Watched::open(pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // As when the message of its exec is taken in, and that of its end comes after that.
        sampler.is_taking_in = true;
        sampler.track(watched, 0);
        sampler.is_taking_in = false;
        for _ in 0..1000 {
            sampler.hear();
            if sampler.alive() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let is_how = |line: &Line| {
            let killed = Happening::Exit { status: None, signal: Some(libc::SIGKILL) };
            matches!(line, Line::Event(event) if event.what == killed)
        };
        let lines = sampler.take_lines();
        assert!(lines.iter().any(is_how), "{lines:?}");
    }

    #[test]
    fn a_wanted_process_that_ended_before_its_first_look_is_counted_once() {
        let matcher = |name: &str, _: &dyn Fn() -> String| name == "true";
        let selection = Selection { matcher: Some(Box::new(matcher)), ..Selection::default() };
        let mut sampler = Sampler::new(selection, None);
        if sampler.events.is_none() {
            return faultless_skipped::skipped("the kernel does not tell of ends here");
        }
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let is_ended = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ");
        while !is_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let wanted = sampler.selection.matcher.replace(Box::new(|name, _| name == "false"));
        sampler.consider(pid, false);
        assert_eq!(sampler.unseen, 0, "another's name");
        sampler.selection.matcher = wanted;
        // By its fork and by its exec.
        sampler.consider(pid, false);
        sampler.consider(pid, false);
        assert_eq!(sampler.unseen, 1);
        child.wait().unwrap();
    }

    #[test]
    fn one_process_that_was_missed_is_one() {
        let mut sampler = Sampler::new(Selection::default(), None);
        sampler.take_lines();
        for (unseen, says) in [
            (1, "1 wanted process ended before a first look"),
            (2, "2 wanted processes ended before a first look"),
        ] {
            sampler.unseen = unseen;
            sampler.cost();
            let lines = sampler.take_lines();
            assert!(matches!(lines.as_slice(), [Line::Note(note)] if note.text == says), "{lines:?}");
        }
    }

    #[test]
    fn an_exec_is_overtaken_by_a_later_one_of_the_same_process_alone() {
        let event = |what| ProcessEvent { monotonic_ns: 0, what };
        let exit = What::Exit { pid: 7, wait_status: 0 };
        let events = [What::Exec(7), What::Exec(8), What::Exec(7), exit, What::Fork { parent: 8, child: 9 }]
            .map(event);
        assert_eq!(overtaken(&events), [true, false, false, false, false]);
    }
}
