//! The memory control group of a process: which it is, where it is mounted, what it may use and does, versions 1 and 2.
//!
//! Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; cgroups(7).

/// Which hierarchy accounts for a process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy of the memory controller alone.
    One,
    /// The unified one.
    Two,
}

/// A process's place in the hierarchy that accounts for its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Which.
    pub version: Version,
    /// Path of its group within the hierarchy.
    pub path: String,
}

/// What a group may use and does; where a group above it has less left, that one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Which hierarchy.
    pub version: Version,
    /// The group whose limit is the narrowest, or the process's own where there is none.
    pub path: String,
    /// Most it may use; none without a limit.
    pub limit_bytes: Option<u64>,
    /// What it uses, page cache included.
    pub usage_bytes: u64,
    /// Of that, memory of no file.
    pub anonymous_bytes: Option<u64>,
    /// Of that, page cache.
    pub file_bytes: Option<u64>,
}

/// From `/proc/PID/cgroup`: lines `number:controllers:path`, the unified hierarchy is number 0 without controllers.
///
/// Where version 1's memory controller is mounted that one accounts, whatever else is there.
#[must_use]
pub fn membership(text: &str) -> Option<Membership> {
    let entries = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
    };
    let of = |version, path: &str| Membership { version, path: path.to_owned() };
    let one = entries().find(|(_, controllers, _)| controllers.split(',').any(|name| name == "memory"));
    let two = entries().find(|(number, controllers, _)| *number == "0" && controllers.is_empty());
    one.map(|(_, _, path)| of(Version::One, path)).or_else(|| two.map(|(_, _, path)| of(Version::Two, path)))
}

/// Where the hierarchy is mounted, from `/proc/self/mountinfo`, and which group that place shows, from which paths begin.
#[must_use]
pub fn mount(text: &str, version: Version) -> Option<(String, String)> {
    text.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut kinds = after.split(' ');
        let is_right = match (version, kinds.next()?) {
            (Version::Two, "cgroup2") => true,
            (Version::One, "cgroup") => kinds.nth(1)?.split(',').any(|option| option == "memory"),
            _ => false,
        };
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        is_right.then(|| (point.to_owned(), root.to_owned()))
    })
}

/// A number of bytes in a file of its own; `max`, and version 1's "more than there can be", are no limit.
#[must_use]
pub fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes: &u64| *bytes < 1 << 60)
}

/// A line `name number` of `memory.stat`.
#[must_use]
pub fn stat_bytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_that_accounts_is_found() {
        let hybrid = "9:name=systemd:/\n4:memory,x:/a:b\n0::/u\n";
        assert_eq!(membership(hybrid), Some(Membership { version: Version::One, path: "/a:b".into() }));
        assert_eq!(membership("0::/u\n").unwrap().version, Version::Two);
        assert_eq!(membership("nonsense\n1:cpu:/\n"), None);
    }

    #[test]
    fn mounts_are_found_by_kind_and_controller() {
        let text = "31 23 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                    35 31 0:32 /docker/x /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let one = mount(text, Version::One).unwrap();
        assert_eq!(one, ("/sys/fs/cgroup/memory".into(), "/docker/x".into()));
        assert_eq!(mount(text, Version::Two).unwrap().0, "/sys/fs/cgroup/unified");
    }

    #[test]
    fn no_limit_is_no_number() {
        assert_eq!(limit_bytes("max\n"), None);
        assert_eq!(limit_bytes("9223372036854771712\n"), None);
        assert_eq!(limit_bytes("1048576\n"), Some(1 << 20));
        assert_eq!(stat_bytes("anon 12\nanon_thp 5\n", "anon"), Some(12));
    }
}
