//! What the process and the machine have left, read from the kernel's files.

use super::error::Limit;
use super::limits::{Facts, Need, Room};
use crate::os::{self, Lines, Path, ResourceLimit};
use core::fmt::Write;

/// Bit of `CapEff` for `CAP_IPC_LOCK`.
const MAY_LOCK_ALL: u64 = 1 << 14;

/// Reads what matters for `need`.
pub fn gather(need: &Need) -> Facts {
    let status = Status::read();
    let room =
        |limit, used_bytes| os::resource_limit(limit).map(|limit_bytes| Room { limit_bytes, used_bytes });
    let populates = need.populated_bytes > 0 && need.pool_page_bytes.is_none();
    let meminfo = Meminfo::read();
    let keeps_to_commit = os::read_number(c"/proc/sys/vm/overcommit_memory") == Some(2);
    Facts {
        memory_bytes: meminfo.available_bytes.filter(|_| populates),
        commit: meminfo.commit.filter(|_| keeps_to_commit),
        cgroup: if populates { cgroup() } else { None },
        locked: room(ResourceLimit::LockedMemory, status.locked_bytes)
            .filter(|_| !status.may_lock_all || is_in_user_namespace()),
        addresses: room(ResourceLimit::AddressSpace, status.mapped_bytes),
        data: room(ResourceLimit::Data, status.data_bytes),
        file_bytes: os::resource_limit(ResourceLimit::FileSize),
        pool_bytes: need.pool_page_bytes.and_then(pool_bytes),
    }
}

/// A file of this thread in `/proc`. The process's are its first thread's, which tell nothing of memory once that has ended, but all that
/// there is before Linux 3.17.
pub fn own_file(name: &str) -> Option<Lines> {
    ["/proc/thread-self/", "/proc/self/"].into_iter().find_map(|folder| {
        let mut path = Path::new();
        write!(path, "{folder}{name}").ok()?;
        Lines::open(path.as_c_str()?)
    })
}

/// Bytes of the kernel's usual huge page; `None` where it has none.
pub fn huge_page_bytes() -> Option<usize> {
    let mut lines = Lines::open(c"/proc/meminfo")?;
    while let Some(line) = lines.next_line() {
        if let Some(bytes) = kib_field(line, "Hugepagesize:") {
            return Some(bytes);
        }
    }
    None
}

/// The number of a line such as `VmLck:      16 kB`, in bytes.
pub fn kib_field(line: &str, key: &str) -> Option<usize> {
    let kib: usize =
        line.strip_prefix(key)?.trim_ascii().strip_suffix("kB")?.trim_ascii_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// Whether capabilities are those of a user namespace, which for the kernel's limits are none: of root in a container that an ordinary
/// user started.
fn is_in_user_namespace() -> bool {
    let Some(mut lines) = own_file("uid_map") else { return false };
    !lines.next_line().is_some_and(|line| line.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

#[derive(Default)]
struct Status {
    mapped_bytes: usize,
    data_bytes: usize,
    locked_bytes: usize,
    may_lock_all: bool,
}

impl Status {
    fn read() -> Self {
        let mut status = Self::default();
        let Some(mut lines) = own_file("status") else { return status };
        while let Some(line) = lines.next_line() {
            status.take(line);
        }
        status
    }

    fn take(&mut self, line: &str) {
        if let Some(bytes) = kib_field(line, "VmSize:") {
            self.mapped_bytes = bytes;
        } else if let Some(bytes) = kib_field(line, "VmData:") {
            self.data_bytes = bytes;
        } else if let Some(bytes) = kib_field(line, "VmLck:") {
            self.locked_bytes = bytes;
        } else if let Some(mask) = line.strip_prefix("CapEff:") {
            let mask = u64::from_str_radix(mask.trim_ascii(), 16).unwrap_or(0);
            self.may_lock_all = mask & MAY_LOCK_ALL != 0;
        }
    }
}

#[derive(Default)]
struct Meminfo {
    available_bytes: Option<usize>,
    commit: Option<Room>,
}

impl Meminfo {
    fn read() -> Self {
        let Some(mut lines) = Lines::open(c"/proc/meminfo") else { return Self::default() };
        let (mut available_bytes, mut limit_bytes, mut used_bytes) = (None, None, None);
        while let Some(line) = lines.next_line() {
            available_bytes = available_bytes.or_else(|| kib_field(line, "MemAvailable:"));
            limit_bytes = limit_bytes.or_else(|| kib_field(line, "CommitLimit:"));
            used_bytes = used_bytes.or_else(|| kib_field(line, "Committed_AS:"));
        }
        let commit =
            limit_bytes.zip(used_bytes).map(|(limit_bytes, used_bytes)| Room { limit_bytes, used_bytes });
        Self { available_bytes, commit }
    }
}

/// Free bytes in the pool of huge pages of one size, and those that the kernel may add to it.
fn pool_bytes(page_bytes: usize) -> Option<usize> {
    let number = |name: &str| {
        let mut path = Path::new();
        write!(path, "/sys/kernel/mm/hugepages/hugepages-{}kB/{name}", page_bytes >> 10).ok()?;
        os::read_number(path.as_c_str()?)
    };
    let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
    let may_come = number("nr_overcommit_hugepages")?.saturating_sub(number("surplus_hugepages")?);
    (free + may_come).checked_mul(page_bytes)
}

/// What the tightest of the cgroups that this process is in leaves.
fn cgroup() -> Option<(Limit, usize)> {
    let mut tightest: Option<(Limit, usize)> = None;
    let mut mounts = own_file("mountinfo")?;
    while let Some(line) = mounts.next_line() {
        let Some(mount) = Mount::parse(line) else { continue };
        let Some(directory) = directory(&mount) else { continue };
        let found =
            os::least_on_the_way_up(directory, mount.point.len(), |group| left_in(group, mount.limit));
        if let Some(bytes) = found
            && tightest.is_none_or(|(_, least)| bytes < least)
        {
            tightest = Some((mount.limit, bytes));
        }
    }
    tightest
}

/// A mounted hierarchy of cgroups that limits memory.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'a> {
    /// The folder of the hierarchy that shows at the mount point.
    root: &'a str,
    point: &'a str,
    limit: Limit,
}

impl<'a> Mount<'a> {
    /// Source: proc_pid_mountinfo(5): `36 35 98:0 /root /point options optional-fields - type source super-options`.
    fn parse(line: &'a str) -> Option<Self> {
        let end = place_of(b" - ", line)?;
        let (before, after) = (line.get(..end)?, line.get(end + 3..)?);
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let limit = match kind {
            "cgroup2" => Limit::CgroupV2,
            "cgroup" if options.split(',').any(|option| option == "memory") => Limit::CgroupV1,
            _ => return None,
        };
        // Spaces in a path are written as \040; nobody mounts cgroups there.
        (!point.contains('\\')).then_some(Self { root, point, limit })
    }
}

/// This process's path in one line of `/proc/PID/cgroup`, if it is of the hierarchy.
fn membership(line: &str, limit: Limit) -> Option<&str> {
    let controller = if limit == Limit::CgroupV2 { "" } else { "memory" };
    let group = os::group_in(line.as_bytes(), controller.as_bytes())?;
    // It is the last field.
    line.get(line.len() - group.len()..)
}

/// Where the process's cgroup shows in the file system; the mount point itself where its path lies outside of it.
fn directory(mount: &Mount<'_>) -> Option<Path> {
    let mut directory = Path::new();
    directory.write_str(mount.point).ok()?;
    let mut lines = own_file("cgroup")?;
    while let Some(line) = lines.next_line() {
        if let Some(path) = membership(line, mount.limit) {
            directory.write_str(below_root(path, mount.root)).ok()?;
            break;
        }
    }
    Some(directory)
}

/// The part of a cgroup's path below the folder that is mounted.
fn below_root<'a>(path: &'a str, root: &str) -> &'a str {
    match path.strip_prefix(root.trim_end_matches('/')) {
        Some(rest) if rest.starts_with('/') && rest.len() > 1 && place_of(b"/..", rest).is_none() => rest,
        _ => "",
    }
}

/// What one cgroup leaves: its limit less what is used, page cache that can be dropped not counted.
fn left_in(directory: &Path, limit: Limit) -> Option<usize> {
    let (limit_file, usage_file, keys) = match limit {
        Limit::CgroupV2 => (os::LIMIT_FILE_V2, "/memory.current", ["inactive_file ", "active_file "]),
        _ => (os::LIMIT_FILE_V1, "/memory.usage_in_bytes", ["total_inactive_file ", "total_active_file "]),
    };
    let limit_bytes = os::limit_of_group(directory, limit_file)?;
    let used_bytes = os::read_number(directory.with(usage_file)?.as_c_str()?)?;
    let mut droppable_bytes = 0;
    let mut lines = Lines::open(directory.with("/memory.stat")?.as_c_str()?)?;
    while let Some(line) = lines.next_line() {
        let number = keys.iter().find_map(|key| line.strip_prefix(key)?.parse::<usize>().ok());
        droppable_bytes += number.unwrap_or(0);
    }
    Some(limit_bytes.saturating_sub(used_bytes.saturating_sub(droppable_bytes)))
}

/// Where three bytes begin in a text. What `str` has for that comes with tables that each process would write to when it is loaded.
fn place_of(part: &[u8; 3], text: &str) -> Option<usize> {
    text.as_bytes().windows(3).position(|bytes| bytes == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernels_files_are_read_in_bytes() {
        assert_eq!(kib_field("VmLck:\t      16 kB", "VmLck:"), Some(16384));
        assert_eq!(kib_field("VmLck:\t      16 kB", "VmSize:"), None);
        assert_eq!(kib_field("VmLck: x kB", "VmLck:"), None);
        let mut status = Status::default();
        for line in ["VmSize:\t  100 kB", "VmData:\t 50 kB", "CapEff:\t0000000000004000", "VmLck: 4 kB", "?"]
        {
            status.take(line);
        }
        assert_eq!((status.mapped_bytes, status.data_bytes, status.locked_bytes), (102_400, 51_200, 4096));
        assert!(status.may_lock_all);
    }

    #[test]
    fn mounts_of_both_versions_are_told_from_others() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let found = Mount::parse(v2).unwrap();
        assert_eq!((found.root, found.point, found.limit), ("/", "/sys/fs/cgroup", Limit::CgroupV2));
        let v1 = "36 30 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let found = Mount::parse(v1).unwrap();
        assert_eq!((found.root, found.limit), ("/docker/abc", Limit::CgroupV1));
        assert_eq!(Mount::parse("36 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"), None);
        assert_eq!(Mount::parse("36 30 0:31 / /proc rw - proc proc rw"), None);
        assert_eq!(Mount::parse("nonsense - "), None);
    }

    #[test]
    fn the_process_is_found_in_its_hierarchy() {
        assert_eq!(membership("0::/user.slice", Limit::CgroupV2), Some("/user.slice"));
        assert_eq!(membership("4:cpu,memory:/a:b", Limit::CgroupV1), Some("/a:b"));
        assert_eq!(membership("4:cpu:/a", Limit::CgroupV1), None);
        assert_eq!(below_root("/docker/abc/x", "/docker/abc"), "/x");
        assert_eq!(below_root("/docker/abc", "/docker/abc"), "");
        assert_eq!(below_root("/user.slice", "/"), "/user.slice");
        assert_eq!(below_root("/../other", "/"), "", "outside of the namespace");
        assert_eq!(below_root("/docker/abcdef", "/docker/abc"), "");
    }

    /// A hierarchy as the kernel would show it, in a folder of its own.
    fn hierarchy(files: &[(&str, &str)]) -> std::path::PathBuf {
        let root =
            std::env::temp_dir().join(format!("faultless-cgroup-{}-{}", files.len(), std::process::id()));
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_tightest_cgroup_on_the_way_up_counts_and_page_cache_does_not() {
        let root = hierarchy(&[
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.current", "500\n"),
            ("a/b/memory.stat", "anon 1\ninactive_file 10\n"),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "900\n"),
            ("a/memory.stat", "anon 1\ninactive_file 200\nactive_file 100\nfile 999\n"),
        ]);
        let mut path = Path::new();
        write!(path, "{}/a/b", root.display()).unwrap();
        let top = root.to_str().unwrap().len();
        let tightest = |limit| os::least_on_the_way_up(path.clone(), top, |group| left_in(group, limit));
        assert_eq!(tightest(Limit::CgroupV2), Some(400));
        assert_eq!(tightest(Limit::CgroupV1), None, "no files of that version");
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_limit_of_version_one_that_stands_for_none_is_none() {
        let root = hierarchy(&[
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "900\n"),
            ("memory.stat", ""),
        ]);
        let mut path = Path::new();
        write!(path, "{}", root.display()).unwrap();
        assert_eq!(left_in(&path, Limit::CgroupV1), None);
        std::fs::write(root.join("memory.limit_in_bytes"), "1000\n").unwrap();
        assert_eq!(left_in(&path, Limit::CgroupV1), Some(100));
        std::fs::remove_dir_all(root).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn no_line_of_the_kernels_files_is_too_strange(line in ".{0,200}", number in "[0-9]{0,30}", path in "[/.a-z]{0,40}") {
            let mut status = Status::default();
            for line in [line.clone(), format!("VmLck: {number} kB"), format!("CapEff:{number}")] {
                status.take(&line);
            }
            for line in [line.clone(), format!("1 2 3 {path} {path} - cgroup2 {path} {line}"), format!("{line} - {line}")] {
                let _ = Mount::parse(&line);
            }
            for limit in [Limit::CgroupV1, Limit::CgroupV2] {
                let _ = membership(&line, limit);
                let _ = membership(&format!("0::{path}"), limit);
            }
            let below = below_root(&path, &line);
            proptest::prop_assert!(path.ends_with(below) && !below.contains("/.."));
        }
    }

    #[test]
    fn this_machine_tells_its_memory() {
        let need = Need { populated_bytes: 1, ..Need::default() };
        assert!(gather(&need).memory_bytes.unwrap() > 1 << 20);
    }
}
