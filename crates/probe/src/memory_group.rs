//! What the control group of a process may use of memory and does.

use std::fs;
use std::path::{Component, Path, PathBuf};

use faultless_records::cgroup::{self, MemoryGroup, Version};

use crate::process::Process;

/// The group of a process, or the one above it with the narrowest limit; none where the hierarchy is not to be seen.
#[must_use]
pub fn of(process: &Process) -> Option<MemoryGroup> {
    let membership = cgroup::membership(&process.text("cgroup").ok()?)?;
    let mounts = mounts();
    let (point, root) = cgroup::mount(&mounts, membership.version)?;
    let own = directory(Path::new(&point), Path::new(&root), Path::new(&membership.path))?;
    let mut found: Option<MemoryGroup> = None;
    for directory in own.ancestors().take_while(|directory| directory.starts_with(&point)) {
        let Some(group) = read(directory, Path::new(&point), membership.version) else { continue };
        let left = |group: &MemoryGroup| {
            group.limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(group.usage_bytes))
        };
        if found.as_ref().is_none_or(|known| left(&group) < left(known)) {
            found = Some(group);
        }
    }
    found
}

/// What is mounted, as it is to be seen here; names of other mounts may be no text.
pub(crate) fn mounts() -> String {
    let bytes = fs::read("/proc/self/mountinfo").unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a mount at `point`, which shows the hierarchy from `root` on, has the group of this path; none where that lies outside.
fn directory(point: &Path, root: &Path, path: &Path) -> Option<PathBuf> {
    let inner = path.strip_prefix(root).ok()?;
    // A group beside or above the root of a namespace is called `/../…`.
    let is_below = inner.components().all(|part| matches!(part, Component::Normal(_)));
    is_below.then(|| point.join(inner))
}

fn read(directory: &Path, point: &Path, version: Version) -> Option<MemoryGroup> {
    let sample = cgroup::sample(version, &|name| fs::read_to_string(directory.join(name)).ok())?;
    let path = directory.strip_prefix(point).ok()?;
    Some(MemoryGroup {
        version,
        path: format!("/{}", path.display()),
        limit_bytes: sample.limit_bytes,
        usage_bytes: sample.current_bytes,
        anonymous_bytes: sample.anonymous_bytes,
        file_bytes: sample.file_bytes,
        shared_bytes: sample.shared_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_below_the_part_of_the_hierarchy_that_is_mounted_are_to_be_seen() {
        let seen = |root: &str, path: &str| {
            directory(Path::new("/sys/fs/cgroup"), Path::new(root), Path::new(path))
                .map(|found| found.display().to_string())
        };
        assert_eq!(seen("/", "/").as_deref(), Some("/sys/fs/cgroup/"));
        assert_eq!(seen("/", "/user.slice/a").as_deref(), Some("/sys/fs/cgroup/user.slice/a"));
        assert_eq!(seen("/docker/ab", "/docker/ab/c").as_deref(), Some("/sys/fs/cgroup/c"));
        for outside in ["/docker/abc", "/docker/other", "/", "/docker/ab/../x"] {
            assert_eq!(seen("/docker/ab", outside), None, "{outside}");
        }
        assert_eq!(seen("/", "/../x"), None);
    }

    #[test]
    fn this_process_has_a_group_where_the_machine_shows_one() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        match of(&own) {
            Some(group) => assert!(group.path.starts_with('/') && group.usage_bytes > 0, "{group:?}"),
            None => faultless_skipped::skipped("no memory controller is to be seen here"),
        }
    }
}
