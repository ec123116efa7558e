//! The memory control group of a process: which it is, where it is mounted, what it may use and does, versions 1 and 2.
//!
//! Source: the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; cgroups(7).

use crate::recording::GroupSample;

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
    /// Of the page cache, shared memory and files in memory, which cannot be dropped either.
    pub shared_bytes: Option<u64>,
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
    let two = entries().find(|(number, ..)| *number == "0");
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
        is_right.then(|| (unescaped(point), unescaped(root)))
    })
}

/// A path as it is: blanks, line feeds and backslashes, which names of systemd's units have, are written in octal there.
/// Source: `seq_path` in the kernel's fs/proc_namespace.c.
fn unescaped(path: &str) -> String {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => plain.extend([&char::from(code).to_string(), &part[3..]]),
            None => plain.extend(["\\", part]),
        }
    }
    plain
}

/// A number of bytes in a file of its own; `max`, and version 1's "more than there can be", are no limit.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes: &u64| *bytes < 1 << 60)
}

/// A line `name number` of `memory.stat`.
fn stat_bytes(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The processes in a `cgroup.procs`, and how many there are that have no number here (0: of another PID namespace).
#[must_use]
pub fn processes(text: &str) -> (Vec<i32>, usize) {
    let numbers = || text.lines().filter_map(|line| line.trim().parse::<i32>().ok());
    (numbers().filter(|pid| *pid > 0).collect(), numbers().filter(|pid| *pid == 0).count())
}

/// What a group says of its memory in the files that `read` gives by name; none without a figure of its use.
///
/// Time and place are left to the caller.
#[must_use]
pub fn sample(version: Version, read: &dyn Fn(&str) -> Option<String>) -> Option<GroupSample> {
    let file = |name: &str| read(name).unwrap_or_default();
    let number = |name: &str| file(name).trim().parse().ok();
    let stat = file("memory.stat");
    Some(match version {
        Version::One => GroupSample {
            current_bytes: number("memory.usage_in_bytes")?,
            limit_bytes: limit_bytes(&file("memory.limit_in_bytes")),
            swap_bytes: stat_bytes(&stat, "total_swap"),
            anonymous_bytes: stat_bytes(&stat, "total_rss"),
            file_bytes: stat_bytes(&stat, "total_cache"),
            shared_bytes: stat_bytes(&stat, "total_shmem"),
            faults: stat_bytes(&stat, "total_pgfault"),
            major_faults: stat_bytes(&stat, "total_pgmajfault"),
            limit_hits: number("memory.failcnt"),
            oom_kills: stat_bytes(&file("memory.oom_control"), "oom_kill"),
            ..GroupSample::default()
        },
        Version::Two => {
            let events = file("memory.events");
            GroupSample {
                current_bytes: number("memory.current")?,
                limit_bytes: limit_bytes(&file("memory.max")),
                swap_bytes: number("memory.swap.current"),
                anonymous_bytes: stat_bytes(&stat, "anon"),
                file_bytes: stat_bytes(&stat, "file"),
                shared_bytes: stat_bytes(&stat, "shmem"),
                faults: stat_bytes(&stat, "pgfault"),
                major_faults: stat_bytes(&stat, "pgmajfault"),
                limit_hits: stat_bytes(&events, "max"),
                oom_kills: stat_bytes(&events, "oom_kill"),
                high_bytes: limit_bytes(&file("memory.high")),
                high_hits: stat_bytes(&events, "high"),
                oom_events: stat_bytes(&events, "oom"),
                ..GroupSample::default()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        |wanted| pairs.iter().find(|(name, _)| *name == wanted).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn a_group_of_version_two_says_its_limits_and_events() {
        let read = files(&[
            ("memory.current", "4096\n"),
            ("memory.max", "max\n"),
            ("memory.high", "8192\n"),
            ("memory.events", "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n"),
            ("memory.stat", "anon 10\nfile 20\nshmem 15\nfile_mapped 7\npgfault 30\npgmajfault 40\n"),
        ]);
        let seen = sample(Version::Two, &read).unwrap();
        let expected = GroupSample {
            current_bytes: 4096,
            anonymous_bytes: Some(10),
            file_bytes: Some(20),
            shared_bytes: Some(15),
            faults: Some(30),
            major_faults: Some(40),
            limit_hits: Some(3),
            oom_kills: Some(5),
            high_bytes: Some(8192),
            high_hits: Some(2),
            oom_events: Some(4),
            ..GroupSample::default()
        };
        assert_eq!(seen, expected);
        assert_eq!(sample(Version::One, &read), None);
    }

    #[test]
    fn a_group_of_version_one_counts_with_the_groups_below_it() {
        let read = files(&[
            ("memory.usage_in_bytes", "4096\n"),
            ("memory.limit_in_bytes", "1048576\n"),
            ("memory.failcnt", "9\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            (
                "memory.stat",
                "rss 1\ntotal_rss 10\ntotal_cache 20\ntotal_shmem 15\ntotal_swap 5\ntotal_pgfault 30\n",
            ),
        ]);
        let seen = sample(Version::One, &read).unwrap();
        assert_eq!((seen.current_bytes, seen.limit_bytes, seen.limit_hits), (4096, Some(1 << 20), Some(9)));
        assert_eq!((seen.anonymous_bytes, seen.swap_bytes, seen.oom_kills), (Some(10), Some(5), Some(2)));
        assert_eq!((seen.faults, seen.major_faults, seen.high_bytes), (Some(30), None, None));
        assert_eq!((seen.file_bytes, seen.shared_bytes), (Some(20), Some(15)));
    }

    #[test]
    fn processes_without_a_number_here_are_counted() {
        assert_eq!(processes("12\n0\n7\n0\nx\n-4\n"), (vec![12, 7], 2));
        assert_eq!(processes(""), (vec![], 0));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*") {
            let _ = (processes(&text), membership(&text), mount(&text, Version::One));
            let _ = sample(Version::One, &|_| Some(text.clone()));
            let _ = sample(Version::Two, &|_| Some(text.clone()));
        }
    }

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
        let escaped = "63 47 0:32 /machine-a\\134x2db.scope /a\\040group rw - cgroup cgroup rw,memory\n";
        let plain = ("/a group".into(), "/machine-a\\x2db.scope".into());
        assert_eq!(mount(escaped, Version::One), Some(plain));
        assert_eq!(unescaped("a\\9\\134\\777\\é"), "a\\9\\\\777\\é");
    }

    #[test]
    fn no_limit_is_no_number() {
        assert_eq!(limit_bytes("max\n"), None);
        assert_eq!(limit_bytes("9223372036854771712\n"), None);
        assert_eq!(limit_bytes("1048576\n"), Some(1 << 20));
        assert_eq!(stat_bytes("anon 12\nanon_thp 5\n", "anon"), Some(12));
    }
}
