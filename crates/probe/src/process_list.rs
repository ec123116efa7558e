//! All processes that are to be seen, and those among them that are wanted.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs;
use std::io::{self, Read};

use faultless_records::counters::Counters;

/// A process that may be wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// When it began, in clock ticks after boot.
    pub start_ticks: u64,
    /// Its name, at most 15 bytes.
    pub name: String,
}

impl Candidate {
    /// Reads what is to be seen of a process; none of threads of the kernel and of processes that have ended.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        Self::read_where(pid, |counters| !counters.is_kernel_thread() && !counters.is_ended())
    }

    /// The same of a process that has ended, and that its parent has not waited for.
    #[must_use]
    pub fn read_ended(pid: i32) -> Option<Self> {
        Self::read_where(pid, |counters| counters.is_ended())
    }

    fn read_where(pid: i32, fits: fn(&Counters<'_>) -> bool) -> Option<Self> {
        // One system call instead of the several of a read to the end.
        let mut bytes = [0; 1024];
        let length = fs::File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut bytes).ok()?;
        let counters = Counters::parse(&bytes[..length])?;
        fits(&counters).then(|| Self {
            pid,
            parent: counters.parent,
            start_ticks: counters.start_ticks,
            name: String::from_utf8_lossy(counters.name).into_owned(),
        })
    }

    /// Its command line, the words apart by blanks.
    #[must_use]
    pub fn command(&self) -> String {
        let bytes = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Decides by name and command line whether a process is wanted.
pub type Matcher = Box<dyn Fn(&str, &dyn Fn() -> String) -> bool>;

/// Which processes are wanted, besides those that are named by number.
#[derive(Default)]
pub struct Selection {
    /// Wanted by name or command line.
    pub matcher: Option<Matcher>,
    /// Children of those that are watched are wanted, too, and theirs.
    pub with_children: bool,
}

impl fmt::Debug for Selection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Selection")
            .field("matcher", &self.matcher.is_some())
            .field("with_children", &self.with_children)
            .finish()
    }
}

impl Selection {
    /// Whether new processes may come to be wanted.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.matcher.is_some() || self.with_children
    }

    /// Whether a process is wanted, given whether its parent is watched.
    #[must_use]
    pub fn wants(&self, candidate: &Candidate, parent_is_watched: bool) -> bool {
        (self.with_children && parent_is_watched)
            || self.matcher.as_ref().is_some_and(|matcher| matcher(&candidate.name, &|| candidate.command()))
    }
}

/// What is known of processes that were not wanted, so that their command lines are not read again and again.
#[derive(Debug, Default)]
pub struct Refused {
    known: HashMap<i32, (u64, String)>,
    searches: u32,
}

/// A process may change its command line without changing its name, so what is known is forgotten every so many searches.
const FORGET_AFTER: u32 = 10;

impl Refused {
    /// The processes that are wanted and not `watched` yet, parents before their children.
    ///
    /// # Errors
    /// As [`numbers`].
    pub fn search(
        &mut self,
        selection: &Selection,
        watched: &dyn Fn(i32) -> bool,
    ) -> io::Result<Vec<Candidate>> {
        self.searches += 1;
        if self.searches.is_multiple_of(FORGET_AFTER) {
            self.known.clear();
        }
        let own = std::process::id().cast_signed();
        let mut others: Vec<Candidate> = numbers()?
            .into_iter()
            .filter(|pid| *pid != own && !watched(*pid))
            .filter_map(Candidate::read)
            .collect();
        let mut found: Vec<Candidate> = Vec::new();
        let mut found_numbers = HashSet::new();
        loop {
            let before = found.len();
            let mut left = Vec::new();
            for candidate in others {
                let of_watched = watched(candidate.parent) || found_numbers.contains(&candidate.parent);
                let identity = (candidate.start_ticks, candidate.name.clone());
                let is_refused = self.known.get(&candidate.pid) == Some(&identity)
                    && !(selection.with_children && of_watched);
                if !is_refused && selection.wants(&candidate, of_watched) {
                    found_numbers.insert(candidate.pid);
                    found.push(candidate);
                } else {
                    self.known.insert(candidate.pid, identity);
                    left.push(candidate);
                }
            }
            others = left;
            // A child found before its parent was known gets another turn.
            if found.len() == before || !selection.with_children {
                break;
            }
        }
        let present: HashSet<i32> = others.iter().map(|candidate| candidate.pid).collect();
        self.known.retain(|pid, _| present.contains(pid));
        Ok(found)
    }
}

/// The numbers of a process, its children, and theirs; its own alone where they cannot be listed.
#[must_use]
pub fn family(pid: i32) -> Vec<i32> {
    let selection = Selection { matcher: None, with_children: true };
    let descendants = Refused::default().search(&selection, &|watched| watched == pid).unwrap_or_default();
    std::iter::once(pid).chain(descendants.into_iter().map(|candidate| candidate.pid)).collect()
}

/// The numbers of all processes that are to be seen, ascending.
///
/// # Errors
/// When `/proc` cannot be listed: no more files may be open, or it is not there.
pub fn numbers() -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/proc")? {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_is_found_by_its_command_line_and_its_children_with_it() {
        let mark = format!("7{:07}", std::process::id());
        let script = format!("sleep {mark} & first=$!; sleep {mark}1 & read line; kill $first $!");
        let mut child = Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let found_of = |command: String| {
            let matcher: Matcher = Box::new(move |_, found| found() == command);
            let selection = Selection { matcher: Some(matcher), with_children: false };
            Refused::default().search(&selection, &|_| false).unwrap()
        };
        let mut by_name = Vec::new();
        for _ in 0..1000 {
            by_name = found_of(format!("sleep {mark}"));
            // At its exec it may be seen with its earlier name and its later command line.
            let has_begun = by_name.first().is_some_and(|found| found.name == "sleep");
            if has_begun && !found_of(format!("sleep {mark}1")).is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let selection = Selection { matcher: None, with_children: true };
        let children = Refused::default().search(&selection, &|watched| watched == pid).unwrap();
        let mut refused = Refused::default();
        let of_nobody = refused.search(&selection, &|_| false).unwrap();
        let later = refused.search(&selection, &|watched| watched == pid).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();

        assert_eq!(by_name.len(), 1, "{by_name:?}");
        assert_eq!((by_name[0].name.as_str(), by_name[0].parent), ("sleep", pid));
        assert_eq!(children.len(), 2, "{children:?}");
        assert!(of_nobody.is_empty());
        assert_eq!(later.len(), 2, "{later:?}");
    }

    #[test]
    fn threads_of_the_kernel_are_no_candidates() {
        for pid in numbers().unwrap() {
            if let Some(candidate) = Candidate::read(pid) {
                assert_ne!(candidate.name, "kthreadd");
            }
        }
        assert_eq!(Candidate::read(-1), None);
    }
}
