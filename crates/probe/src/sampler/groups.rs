//! The control groups among what a sampler watches: their memory, and who comes into them and leaves them.

use std::collections::{HashMap, HashSet};

use faultless_records::recording::{Group, GroupSample, Line};
use faultless_records::thousands::several;

use super::{REST, Sampler};
use crate::clock;
use crate::process_list::Candidate;
use crate::watched_group::WatchedGroup;

/// How often in turn a process must be missing from the list: a fork is told before the child stands in it.
const MISSING: u32 = 2;

/// All watched groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// None for one that is gone.
    groups: Vec<Option<WatchedGroup>>,
    /// Watched because they are in a group, and how often in turn they were not found there.
    members: HashMap<i32, u32>,
    /// In a group, but they may not be watched; said once.
    refused: HashSet<i32>,
    next_search_ns: u64,
    has_said_what_is_hidden: bool,
}

impl Groups {
    /// Whether no group is left.
    pub(super) fn are_over(&self) -> bool {
        self.groups.iter().all(Option::is_none)
    }

    /// Whether a process is watched because it is in a group.
    pub(super) fn has(&self, pid: i32) -> bool {
        self.members.contains_key(&pid)
    }
}

impl Sampler {
    /// Takes a control group and the processes in it, now and later.
    pub fn add_group(&mut self, group: WatchedGroup) {
        let place = u32::try_from(self.groups.groups.len()).unwrap_or(u32::MAX);
        self.lines.push(Line::Group(Group { t: self.t(), group: place, ..group.introduction() }));
        self.groups.groups.push(Some(group));
    }

    /// Looks at the memory of each group, and for its processes when it is time.
    pub(super) fn look_at_groups(&mut self) {
        for place in 0..self.groups.groups.len() {
            let Some(group) = &self.groups.groups[place] else { continue };
            let looked = group.look();
            let (t, number) = (self.t(), u32::try_from(place).unwrap_or(u32::MAX));
            match looked {
                Some(sample) => {
                    self.lines.push(Line::GroupSample(GroupSample { t, group: number, ..sample }));
                }
                None => self.lose_group(place, "it has been removed"),
            }
        }
        let begun = clock::monotonic_ns();
        if !self.groups.groups.is_empty() && begun >= self.groups.next_search_ns {
            self.search_groups();
            let end = clock::monotonic_ns();
            self.groups.next_search_ns = end + (end - begun).saturating_mul(REST);
        }
    }

    /// Takes a process of a group, if it is not watched yet.
    pub(super) fn meet_member(&mut self, pid: i32) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        if pid == own || self.places.contains_key(&pid) || self.groups.refused.contains(&pid) {
            return;
        }
        // Zombies and threads of the kernel stand in the lists, too.
        if Candidate::read(pid).is_some() {
            self.meet(pid);
            match self.places.contains_key(&pid) {
                true => self.groups.members.insert(pid, 0).is_none(),
                false => self.groups.refused.insert(pid),
            };
        }
    }

    fn search_groups(&mut self) {
        let (mut present, mut unnumbered, mut unread) = (HashSet::new(), 0, 0);
        for place in 0..self.groups.groups.len() {
            let Some(group) = &self.groups.groups[place] else { continue };
            match group.members() {
                Ok(members) => {
                    present.extend(members.pids);
                    unnumbered += members.unnumbered;
                    unread += members.unread;
                }
                Err(_) if group.look().is_none() => self.lose_group(place, "it has been removed"),
                Err(error) => self.lose_group(place, &format!("its processes cannot be listed: {error}")),
            }
        }
        if unnumbered + unread > 0 && !std::mem::replace(&mut self.groups.has_said_what_is_hidden, true) {
            self.note(&format!(
                "not all processes of the control group are to be seen: hidden are {} of another PID namespace and {} below it that could not be read",
                several(unnumbered as u64, "process"),
                several(unread as u64, "group")
            ));
        }
        self.groups.refused.retain(|pid| present.contains(pid));
        self.leave(&present);
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
                self.forget(pid);
            }
        }
    }

    fn lose_group(&mut self, place: usize, reason: &str) {
        if let Some(group) = self.groups.groups[place].take() {
            let path = group.introduction().path;
            self.note(&format!("control group {path} is watched no longer: {reason}"));
        }
    }

    /// Watches a process no longer, which goes on.
    fn forget(&mut self, pid: i32) {
        if let Some(index) = self.places.remove(&pid) {
            self.tracked.swap_remove(index);
            if let Some(moved) = self.tracked.get(index) {
                self.places.insert(moved.watched.process().pid(), index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_list::Selection;
    use std::fs;
    use std::process::Command;

    fn notes(sampler: &mut Sampler) -> String {
        let lines = sampler.take_lines().into_iter();
        let notes = lines.filter_map(|line| match line {
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
        sampler.begin();
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
        let said = notes(&mut sampler);
        assert!(said.contains(&format!("process {} has left the control group", child.id())), "{said}");

        fs::remove_file(file("memory.current")).unwrap();
        sampler.round();
        assert!(!sampler.is_open(), "nothing more can come");
        let said = notes(&mut sampler);
        assert!(said.contains("is watched no longer: it has been removed"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
