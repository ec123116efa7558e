//! What the kernel says that the process's control group may use. Nothing here allocates, and all is read as bytes: a start should not
//! bring in what reads text.

use super::file::read;
use super::path::Path;
use core::ffi::CStr;

/// What is read of `/proc/self/cgroup`: a container of version 1 has a dozen lines of 100 bytes or so.
const GROUPS_BYTES: usize = 2048;
/// From here on a limit is the number that stands for none.
const NO_LIMIT: usize = 1 << 60;
/// The file of a group with its limit, version 1.
pub const LIMIT_FILE_V1: &str = "/memory.limit_in_bytes";
/// The same of version 2.
pub const LIMIT_FILE_V2: &str = "/memory.max";

/// CPUs' worth of time that the process's control group, as mounted in a container, may use; `None` without a limit.
pub fn cpu_quota() -> Option<usize> {
    let mut text = [0; NUMBER_BYTES];
    let mut period = [0; NUMBER_BYTES];
    // Of version 2, which has one file for both, or else of version 1.
    if let Some(limit) = read(c"/sys/fs/cgroup/cpu.max", &mut text) {
        let mut words = limit.split(|&byte| byte == b' ');
        return cpus_of(words.next()?, words.next()?);
    }
    let quota = read(c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &mut text)?;
    cpus_of(quota, read(c"/sys/fs/cgroup/cpu/cpu.cfs_period_us", &mut period)?)
}

/// More than a number takes, or a quota and a period.
const NUMBER_BYTES: usize = 64;

/// Bytes that the process's control group and those above it may have, the least of them; `None` without a limit. In a container, where its
/// own group is mounted in the place of all, that one's.
pub fn memory_limit() -> Option<usize> {
    let mut text = [0; GROUPS_BYTES];
    let groups = read(c"/proc/self/cgroup", &mut text).unwrap_or_default();
    match group_of(groups, b"memory") {
        Some(group) => least_limit("/sys/fs/cgroup/memory", group, LIMIT_FILE_V1),
        None => least_limit("/sys/fs/cgroup", group_of(groups, b"").unwrap_or_default(), LIMIT_FILE_V2),
    }
}

/// The least limit of a group and of those above it.
fn least_limit(mounted: &str, group: &[u8], file: &str) -> Option<usize> {
    let mut directory = Path::new().with(mounted)?;
    let top = directory.length();
    // What has no room is passed over: the mount point has a limit, too.
    let _ = directory.push(group.strip_suffix(b"/").unwrap_or(group));
    least_on_the_way_up(directory, top, |group| limit_of_group(group, file))
}

/// The process's group of a controller of version 1, or, of none, of version 2, in what `/proc/self/cgroup` says.
fn group_of<'text>(groups: &'text [u8], controller: &[u8]) -> Option<&'text [u8]> {
    groups.split(|&byte| byte == b'\n').find_map(|line| group_in(line, controller))
}

/// The same of one line.
pub fn group_in<'text>(line: &'text [u8], controller: &[u8]) -> Option<&'text [u8]> {
    let mut fields = line.splitn(3, |&byte| byte == b':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match controller {
        b"" => number == b"0" && controllers.is_empty(),
        _ => controllers.split(|&byte| byte == b',').any(|one| one == controller),
    };
    is_it.then_some(group)
}

/// The limit of the group in a folder; `None` without one.
pub fn limit_of_group(directory: &Path, file: &str) -> Option<usize> {
    read_number(directory.with(file)?.as_c_str()?).filter(|&bytes| bytes < NO_LIMIT)
}

/// The least of what is found in a folder and in those above it, up to the one at the mount point (the first `top` bytes of the path).
pub fn least_on_the_way_up(
    mut directory: Path,
    top: usize,
    found_in: impl Fn(&Path) -> Option<usize>,
) -> Option<usize> {
    let mut least: Option<usize> = None;
    loop {
        if let Some(bytes) = found_in(&directory) {
            least = Some(least.map_or(bytes, |least| least.min(bytes)));
        }
        if !directory.go_up(top) {
            return least;
        }
    }
}

/// The whole of a small text file that holds one number; `None` for `max` and where it cannot be read.
pub fn read_number(path: &CStr) -> Option<usize> {
    number(read(path, &mut [0; NUMBER_BYTES])?)
}

/// CPUs' worth of time that `quota` of each `period` are, rounded up; `None` for a quota that is none: `max`, or -1.
fn cpus_of(quota: &[u8], period: &[u8]) -> Option<usize> {
    Some(number(quota)?.div_ceil(number(period)?.max(1)).max(1))
}

/// A number, and maybe the end of its line; `None` for anything else. Of bytes: a start should not bring in what reads text.
#[inline(never)]
fn number(text: &[u8]) -> Option<usize> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let add = |number: usize, byte: &u8| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_quota_is_a_number_of_cpus_rounded_up_or_none() {
        assert_eq!(cpus_of(b"200000", b"100000\n"), Some(2));
        assert_eq!(cpus_of(b"150000\n", b"100000\n"), Some(2));
        assert_eq!(cpus_of(b"1000", b"100000"), Some(1));
        for none in ["max", "-1\n", "", "\n", "1 2", "99999999999999999999"] {
            assert_eq!(cpus_of(none.as_bytes(), b"100000\n"), None, "{none}");
        }
    }

    #[test]
    fn a_group_is_that_of_the_controller_or_of_version_2() {
        let groups = b"5:cpu,cpuacct:/d\n4:hugetlb,memory:/a/b:c\n0::/e\n";
        let group = |controller: &[u8]| group_of(groups, controller);
        assert_eq!(
            [group(b"memory"), group(b"cpu"), group(b"")],
            [Some(&b"/a/b:c"[..]), Some(b"/d"), Some(b"/e")]
        );
        assert_eq!([group(b"mem"), group_of(b"", b""), group_of(b"0:\n", b"")], [None; 3]);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = std::env::temp_dir().join(format!("faultless-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        let limit = |group: &[u8]| least_limit(root.to_str().unwrap(), group, "/max");
        assert_eq!(limit(b"/a/b"), None, "no file");
        for (place, bytes, expected) in [
            ("a/b", "max\n", None),
            ("a", "9223372036854771712\n", None),
            ("a", "5000\n", Some(5000)),
            ("", "7000\n", Some(5000)),
        ] {
            fs::write(root.join(place).join("max"), bytes).unwrap();
            assert_eq!(limit(b"/a/b"), expected, "{place}: {bytes}");
        }
        assert_eq!([limit(b"/"), limit(b""), limit(b"/not/there")], [Some(7000); 3], "as in a container");
        assert_eq!(limit(&[b'/'; 1024]), Some(7000), "too long");
        fs::remove_dir_all(root).unwrap();
        assert_eq!(read_number(c"/proc/self/status"), None);
    }
}
