//! A control group that is watched: its memory, and the processes in it and in the groups below it.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use faultless_records::cgroup::{self, Version};
use faultless_records::recording::{Group, GroupSample};

use crate::file_limit;
use crate::memory_group;

/// Groups below a watched one that are looked into at most.
const MOST_BELOW: usize = 4096;

/// The group.
#[derive(Debug)]
pub struct WatchedGroup {
    directory: PathBuf,
    version: Version,
}

/// Who is in a group.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Their numbers, ascending.
    pub pids: Vec<i32>,
    /// Those of another PID namespace, which have no number here.
    pub unnumbered: usize,
    /// Groups below it that could not be looked into, or were too many.
    pub unread: usize,
}

impl WatchedGroup {
    /// Finds a group by its directory, or by its path below the mount of the memory controller.
    ///
    /// # Errors
    /// One line: what is not there, and what to give instead.
    pub fn find(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let mounts = memory_group::mounts();
        // Where version 1's memory controller is mounted that one accounts.
        let mount = cgroup::mount(&mounts, Version::One).or_else(|| cgroup::mount(&mounts, Version::Two));
        let point = mount.as_ref().map(|(point, _)| point.as_str());
        let directories = places(path, mount.as_ref());
        let is_group = |directory: &&PathBuf| directory.join("cgroup.procs").is_file();
        let Some(directory) = directories.iter().find(is_group) else {
            return Err(match point {
                Some(point) => format!(
                    "no control group {shown}: expected a directory with a cgroup.procs below {point}, as /proc/PID/cgroup shows it"
                ),
                None => format!("no control group {shown}: no control groups are mounted here"),
            });
        };
        let has = |name: &str| directory.join(name).is_file();
        let version = match (has("memory.current"), has("memory.usage_in_bytes")) {
            (true, _) => Version::Two,
            (_, true) => Version::One,
            _ => {
                let cure = match point {
                    Some(point) => format!("give a group below {point} for which it is enabled"),
                    None => "it is not mounted here".into(),
                };
                return Err(format!(
                    "no memory controller in control group {shown} (the root of version 2 has none): {cure}"
                ));
            }
        };
        // Without a slash at the end.
        Ok(Self { directory: directory.components().collect(), version })
    }

    /// What there is to say of it at first; time and place are left to the caller.
    #[must_use]
    pub fn introduction(&self) -> Group {
        let version = if self.version == Version::One { 1 } else { 2 };
        Group { path: self.directory.display().to_string(), version, ..Group::default() }
    }

    /// Whether both are one group, however its path was written.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |group: &Self| fs::canonicalize(&group.directory).unwrap_or(group.directory.clone());
        place(self) == place(other)
    }

    /// Its memory now; none when the group is gone. Time and place are left to the caller.
    ///
    /// # Errors
    /// The kernel's, of a group that is still there, as far as is known.
    pub fn look(&self) -> io::Result<Option<GroupSample>> {
        let refused = Cell::new(None);
        let read = |name: &str| {
            fs::read_to_string(self.directory.join(name))
                .map_err(|error| refused.set(Some(error).filter(|error| !is_absence(error))))
                .ok()
        };
        match (cgroup::sample(self.version, &read), refused.into_inner()) {
            (None, Some(error)) => Err(error),
            (sample, _) => Ok(sample),
        }
    }

    /// The processes in it and below it.
    ///
    /// # Errors
    /// The kernel's, when its own list cannot be read, or no more files may be open.
    pub fn members(&self) -> io::Result<Members> {
        let mut members = Members::default();
        members.add(&fs::read_to_string(self.directory.join("cgroup.procs"))?);
        let mut pending = below(&self.directory)?;
        let mut looked_into = 0;
        while let Some(directory) = pending.pop() {
            looked_into += 1;
            if looked_into > MOST_BELOW {
                members.unread += 1 + pending.len();
                break;
            }
            match fs::read_to_string(directory.join("cgroup.procs")) {
                Ok(text) => members.add(&text),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A threaded group of version 2 has none of its own: they stand in a group above.
                Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {}
                Err(error) if file_limit::is_reached(&error) => return Err(error),
                Err(_) if !directory.is_dir() => {}
                Err(_) => members.unread += 1,
            }
            pending.extend(below(&directory)?);
        }
        members.pids.sort_unstable();
        members.pids.dedup();
        Ok(members)
    }
}

impl Members {
    fn add(&mut self, text: &str) {
        let (pids, unnumbered) = cgroup::processes(text);
        self.pids.extend(pids);
        self.unnumbered += unnumbered;
    }
}

/// Where a path may lead: as it is, below the mount, and below it without what the mount hides.
fn places(path: &Path, mount: Option<&(String, String)>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = path.is_absolute().then(|| path.to_owned()).into_iter().collect();
    if let Some((point, root)) = mount {
        let inner = path.strip_prefix("/").unwrap_or(path);
        places.push(Path::new(point).join(inner));
        let root = root.trim_matches('/');
        if !root.is_empty()
            && let Ok(inner) = inner.strip_prefix(root)
        {
            places.push(Path::new(point).join(inner));
        }
    }
    places
}

/// The groups right below; none where they cannot be seen, but for want of files.
fn below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if file_limit::is_reached(&error) => return Err(error),
        entries => entries.into_iter().flatten().flatten(),
    };
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}

/// Whether the file is not there, or its group went while it was open (`ENODEV`).
fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_it_is_and_below_the_mount() {
        let mount = ("/sys/fs/cgroup/memory".to_owned(), "/docker/x".to_owned());
        let of = |path: &str| -> Vec<String> {
            let places = places(Path::new(path), Some(&mount));
            places.iter().map(|place| place.display().to_string()).collect()
        };
        assert_eq!(of("a/b"), ["/sys/fs/cgroup/memory/a/b"]);
        let hidden = ["/docker/x/a", "/sys/fs/cgroup/memory/docker/x/a", "/sys/fs/cgroup/memory/a"];
        assert_eq!(of("/docker/x/a"), hidden);
    }

    #[test]
    fn one_group_is_known_by_any_path_that_leads_to_it() {
        let directory = crate::place::PrivateDirectory::create().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["a", "b"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("memory.current"), "4096\n").unwrap();
            fs::write(path(name).join("cgroup.procs"), "").unwrap();
        }
        let find = |name: &str| WatchedGroup::find(&path(name)).unwrap();
        assert!(find("a").is_same(&find("b/../a/")) && !find("a").is_same(&find("b")));
    }

    #[test]
    fn members_are_those_of_the_group_and_below_each_once() {
        let directory = crate::place::PrivateDirectory::create().unwrap();
        let group = directory.path().join("group");
        fs::create_dir_all(group.join("below/deep")).unwrap();
        fs::write(group.join("memory.current"), "4096\n").unwrap();
        fs::write(group.join("cgroup.procs"), "12\n0\n7\n").unwrap();
        fs::write(group.join("below/deep/cgroup.procs"), "3\n12\n").unwrap();
        let found = WatchedGroup::find(&group).unwrap();
        assert_eq!(found.members().unwrap(), Members { pids: vec![3, 7, 12], unnumbered: 1, unread: 0 });
        assert_eq!((found.introduction().version, found.look().unwrap().unwrap().current_bytes), (2, 4096));

        fs::remove_file(group.join("memory.current")).unwrap();
        assert_eq!(found.look().unwrap(), None);
        fs::create_dir(group.join("memory.current")).unwrap();
        assert!(found.look().is_err(), "what cannot be read is not what is not there");
        fs::remove_dir(group.join("memory.current")).unwrap();
        let reason = WatchedGroup::find(&group).unwrap_err();
        assert!(reason.contains("no memory controller in control group"), "{reason}");
        let reason = WatchedGroup::find(&group.join("absent")).unwrap_err();
        assert!(reason.starts_with("no control group") && !reason.contains('\n'), "{reason}");
    }
}
