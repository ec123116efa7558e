//! The control groups among what a sampler watches: their memory, and who comes into them and leaves them.

use std::collections::{HashMap, HashSet};
use std::io;

use faultless_records::quantity::several;
use faultless_records::recording::{Group, GroupLeft, GroupSample, Line};

use super::{REST, Sampler};
use crate::clock;
use crate::file_limit;
use crate::process_list::Candidate;
use crate::watched_group::WatchedGroup;

/// How often in turn a process must be missing from the list: a fork is told before the child stands in it.
const MISSING: u32 = 2;

/// Why a group is watched no longer, mostly.
const REMOVED: &str = "it has been removed";

/// All watched groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Followed>,
    /// Numbers given out.
    met: u32,
    /// One that was removed is looked for again.
    may_come_back: bool,
    /// Watched because they are in a group, and how often in turn they were not found there.
    members: HashMap<i32, u32>,
    /// In a group, but they may not be watched; said once.
    refused: HashSet<i32>,
    next_search_ns: u64,
    has_said_what_is_hidden: bool,
    has_said_what_is_unread: bool,
}

/// A group, and where it stands.
#[derive(Debug)]
struct Followed {
    group: WatchedGroup,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is there, with this number in the lines.
    Present(u32),
    /// It has been removed.
    Removed,
    /// It cannot be watched.
    Refused,
}

impl Groups {
    /// Whether no group is left.
    pub(super) fn are_over(&self) -> bool {
        !self.groups.iter().any(|followed| match followed.standing {
            Standing::Present(_) => true,
            Standing::Removed => self.may_come_back,
            Standing::Refused => false,
        })
    }

    /// Whether a process is watched because it is in a group.
    pub(super) fn has(&self, pid: i32) -> bool {
        self.members.contains_key(&pid)
    }
}

impl Sampler {
    /// Takes a control group and the processes in it, now and later; one that is here already is left alone.
    pub fn add_group(&mut self, group: WatchedGroup) {
        if !self.groups.groups.iter().any(|followed| followed.group.is_same(&group)) {
            let standing = self.introduce(&group);
            self.groups.groups.push(Followed { group, standing });
        }
    }

    /// From now on a group that is removed, as by the restart of a service, is looked for in each round.
    pub fn expect_groups_back(&mut self) {
        self.groups.may_come_back = true;
    }

    fn introduce(&mut self, group: &WatchedGroup) -> Standing {
        let number = self.groups.met;
        self.groups.met += 1;
        self.lines.push(Line::Group(Group { t: self.t(), group: number, ..group.introduction() }));
        Standing::Present(number)
    }

    /// Looks at the memory of each group, and for its processes when it is time.
    pub(super) fn look_at_groups(&mut self) {
        let mut groups = std::mem::take(&mut self.groups.groups);
        for followed in &mut groups {
            self.look_at_group(followed);
        }
        let begun = clock::monotonic_ns();
        if !groups.is_empty() && begun >= self.groups.next_search_ns {
            self.search_groups(&mut groups);
            let end = clock::monotonic_ns();
            self.groups.next_search_ns = end + (end - begun).saturating_mul(REST);
        }
        self.groups.groups = groups;
    }

    fn look_at_group(&mut self, followed: &mut Followed) {
        match (followed.standing, followed.group.look()) {
            (Standing::Refused, _) | (Standing::Removed, Ok(None) | Err(_)) => {}
            (Standing::Removed, Ok(Some(_))) if !self.groups.may_come_back => {}
            (Standing::Removed, Ok(Some(sample))) => {
                followed.standing = self.introduce(&followed.group);
                self.add_group_sample(followed.standing, sample);
                // Who is in it now is no longer who was.
                self.groups.next_search_ns = 0;
            }
            (standing @ Standing::Present(_), Ok(Some(sample))) => self.add_group_sample(standing, sample),
            (Standing::Present(_), Ok(None)) => self.lose_group(followed, Standing::Removed, REMOVED),
            (Standing::Present(_), Err(error)) => self.say_unread(&followed.group, &error),
        }
    }

    fn add_group_sample(&mut self, standing: Standing, sample: GroupSample) {
        if let Standing::Present(group) = standing {
            self.lines.push(Line::GroupSample(GroupSample { t: self.t(), group, ..sample }));
        }
    }

    /// Takes a process of a group, if it is not watched yet.
    pub(super) fn meet_member(&mut self, pid: i32) {
        let own = std::process::id().cast_signed();
        if pid == own || self.places.contains_key(&pid) || self.groups.refused.contains(&pid) {
            return;
        }
        // Zombies and threads of the kernel stand in the lists, too.
        if Candidate::read(pid).is_some() {
            let is_settled = self.meet(pid);
            match self.places.contains_key(&pid) {
                true => self.groups.members.insert(pid, 0).is_none(),
                false => is_settled && self.groups.refused.insert(pid),
            };
        }
    }

    fn search_groups(&mut self, groups: &mut [Followed]) {
        let (mut present, mut unnumbered, mut unread, mut is_whole) = (HashSet::new(), 0, 0, true);
        for followed in groups {
            let Standing::Present(_) = followed.standing else { continue };
            match followed.group.members() {
                Ok(members) => {
                    present.extend(members.pids);
                    unnumbered += members.unnumbered;
                    unread += members.unread;
                }
                Err(error) if file_limit::is_reached(&error) => {
                    is_whole = false;
                    self.say_unread(&followed.group, &error);
                }
                Err(_) if matches!(followed.group.look(), Ok(None)) => {
                    self.lose_group(followed, Standing::Removed, REMOVED);
                }
                Err(error) => {
                    let reason = format!("its processes cannot be listed: {error}");
                    self.lose_group(followed, Standing::Refused, &reason);
                }
            }
        }
        if unnumbered + unread > 0 && !std::mem::replace(&mut self.groups.has_said_what_is_hidden, true) {
            self.note(&format!(
                "not all processes of the control group can be seen: hidden are {} of another PID namespace and {} below it that could not be read",
                several(unnumbered as u64, "process"),
                several(unread as u64, "group")
            ));
        }
        // Who was not listed because a list could not be opened is not gone.
        if is_whole {
            self.groups.refused.retain(|pid| present.contains(pid));
            self.leave(&present);
        }
        let mut present: Vec<i32> = present.into_iter().collect();
        present.sort_unstable();
        for pid in present {
            self.meet_member(pid);
        }
    }

    /// Those that live but have gone to another group are watched no longer; those that have ended are seen to end.
    fn leave(&mut self, present: &HashSet<i32>) {
        let places = &self.places;
        let mut left = Vec::new();
        self.groups.members.retain(|pid, missing| {
            *missing = if present.contains(pid) { 0 } else { *missing + 1 };
            let goes = *missing >= MISSING;
            if goes && places.contains_key(pid) {
                left.push(*pid);
            }
            !goes && places.contains_key(pid)
        });
        for pid in left {
            let Some(candidate) = Candidate::read(pid) else { continue };
            let of_watched = self.places.contains_key(&candidate.parent);
            if !self.selection.wants(&candidate, of_watched) {
                self.note(&format!("process {pid} has left the control group and is watched no longer"));
                if let Some(index) = self.places.get(&pid).copied() {
                    self.forget(index);
                }
            }
        }
    }

    fn lose_group(&mut self, followed: &mut Followed, standing: Standing, reason: &str) {
        let Standing::Present(group) = std::mem::replace(&mut followed.standing, standing) else { return };
        let path = followed.group.introduction().path;
        let t = self.t();
        self.lines.push(Line::GroupLeft(GroupLeft { t, group }));
        let hope = match standing == Standing::Removed && self.groups.may_come_back {
            true => "; it is watched again when it comes back",
            false => "",
        };
        self.note(&format!("control group {path} is watched no longer: {reason}{hope}"));
    }

    fn say_unread(&mut self, group: &WatchedGroup, error: &io::Error) {
        if !std::mem::replace(&mut self.groups.has_said_what_is_unread, true) {
            let path = group.introduction().path;
            self.note(&format!("control group {path} could not be read at times: {error}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_list::Selection;
    use faultless_records::recording::Happening;
    use std::fs;
    use std::process::Command;

    fn notes(lines: Vec<Line>) -> String {
        let notes = lines.into_iter().filter_map(|line| match line {
            Line::Note(note) => Some(note.text),
            _ => None,
        });
        notes.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn one_that_leaves_its_group_is_watched_no_longer_and_a_group_that_goes_ends_the_watch() {
        let directory = crate::place::PrivateDirectory::create().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let own = std::process::id();
        fs::write(file("memory.current"), "4096\n").unwrap();
        fs::write(file("cgroup.procs"), format!("{}\n{own}\n", child.id())).unwrap();

        let mut sampler = Sampler::new(Selection::default(), None);
        sampler.add_group(WatchedGroup::find(directory.path()).unwrap());
        sampler.begin(false);
        assert!(sampler.is_open() && sampler.is_urgent());
        assert_eq!(sampler.alive(), 1, "we are in the group, too, and do not watch ourselves");
        let lines = sampler.take_lines();
        let is_sample =
            |line: &Line| matches!(line, Line::GroupSample(sample) if sample.current_bytes == 4096);
        assert!(lines.iter().any(is_sample), "{lines:?}");

        fs::write(file("cgroup.procs"), "").unwrap();
        for _ in 0..MISSING {
            sampler.groups.next_search_ns = 0;
            sampler.round();
        }
        assert_eq!(sampler.alive(), 0);
        let lines = sampler.take_lines();
        let has_left = |line: &Line| matches!(line, Line::Event(event) if event.what == Happening::Left);
        assert!(lines.iter().any(has_left), "{lines:?}");
        let said = notes(lines);
        assert!(said.contains(&format!("process {} has left the control group", child.id())), "{said}");

        fs::remove_file(file("memory.current")).unwrap();
        sampler.round();
        assert!(!sampler.is_open(), "nothing more can come");
        let lines = sampler.take_lines();
        assert!(
            lines.iter().any(|line| matches!(line, Line::GroupLeft(left) if left.group == 0)),
            "{lines:?}"
        );
        let said = notes(lines);
        assert!(said.contains("is watched no longer: it has been removed"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_group_that_is_expected_back_is_watched_again_and_keeps_the_watch_open() {
        let directory = crate::place::PrivateDirectory::create().unwrap();
        let file = |name: &str| directory.path().join(name);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        fs::write(file("memory.current"), "4096\n").unwrap();
        fs::write(file("cgroup.procs"), "").unwrap();
        let mut sampler = Sampler::new(Selection::default(), None);
        sampler.add_group(WatchedGroup::find(directory.path()).unwrap());
        sampler.add_group(WatchedGroup::find(&file(".")).unwrap());
        sampler.expect_groups_back();
        sampler.begin(false);

        fs::remove_file(file("memory.current")).unwrap();
        sampler.round();
        assert!(sampler.is_open() && sampler.is_urgent());
        sampler.take_lines();

        fs::write(file("memory.current"), "8192\n").unwrap();
        fs::write(file("cgroup.procs"), child.id().to_string()).unwrap();
        sampler.round();
        let lines = sampler.take_lines();
        let numbers: Vec<u32> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Group(group) => Some(group.group),
                Line::GroupSample(sample) => Some(sample.group),
                _ => None,
            })
            .collect();
        assert_eq!((numbers.as_slice(), sampler.alive()), ([1, 1].as_slice(), 1), "{lines:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
