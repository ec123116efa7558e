//! What the kernel says that the process's control group may use. Nothing here allocates, and all is read as bytes: a start should not
//! bring in what reads text.

use super::file::read;
use core::ffi::CStr;

/// What is read of `/proc/self/cgroup`: a container of version 1 has a dozen lines of 100 bytes or so.
const GROUPS_BYTES: usize = 2048;
/// A longer path is passed over.
const PATH_BYTES: usize = 512;
/// More than any machine has; version 1 says none as the largest multiple of a page.
const NO_LIMIT: usize = 1 << 52;

/// CPUs' worth of time that the process's control group, as mounted in a container, may use; `None` without a limit.
pub fn cpu_quota() -> Option<usize> {
    let mut text = [0; QUOTA_BYTES];
    let mut period = [0; QUOTA_BYTES];
    // Of version 2, which has one file for both, or else of version 1.
    if let Some(limit) = read(c"/sys/fs/cgroup/cpu.max", &mut text) {
        let mut words = limit.split(|&byte| byte == b' ');
        return cpus_of(words.next()?, words.next()?);
    }
    let quota = read(c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &mut text)?;
    cpus_of(quota, read(c"/sys/fs/cgroup/cpu/cpu.cfs_period_us", &mut period)?)
}

/// More than a quota and a period take, or a limit.
const QUOTA_BYTES: usize = 64;

/// Bytes that the process's control group and those above it may have, the least of them; `None` without a limit. In a container, where its
/// own group is mounted in the place of all, that one's.
pub fn memory_limit() -> Option<usize> {
    let mut text = [0; GROUPS_BYTES];
    let groups = read(c"/proc/self/cgroup", &mut text).unwrap_or_default();
    match group_of(groups, b"memory") {
        Some(group) => least(b"/sys/fs/cgroup/memory", group, b"/memory.limit_in_bytes"),
        None => least(b"/sys/fs/cgroup", group_of(groups, b"").unwrap_or_default(), b"/memory.max"),
    }
}

/// The process's group of a controller of version 1, or, of none, of version 2, in what `/proc/self/cgroup` says.
fn group_of<'text>(groups: &'text [u8], controller: &[u8]) -> Option<&'text [u8]> {
    groups.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        (controllers == controller).then_some(group)
    })
}

/// The least number in the files of that name, of a group and of those above it.
fn least(mounted: &[u8], group: &[u8], name: &[u8]) -> Option<usize> {
    let mut path = Path { bytes: [0; PATH_BYTES], used: 0 };
    path.push(mounted);
    let top = path.used;
    path.push(group.strip_suffix(b"/").unwrap_or(group));
    let mut least = NO_LIMIT;
    loop {
        let group_end = path.used;
        path.push(name);
        path.push(&[0]);
        let mut text = [0; QUOTA_BYTES];
        let limit = path.as_c_str().and_then(|path| number(read(path, &mut text)?));
        least = limit.map_or(least, |limit| limit.min(least));
        path.used = group_end;
        while path.used > top && path.bytes[path.used - 1] != b'/' {
            path.used -= 1;
        }
        if path.used == top {
            return Some(least).filter(|&bytes| bytes < NO_LIMIT);
        }
        path.used -= 1;
    }
}

/// A path that is put together.
struct Path {
    bytes: [u8; PATH_BYTES],
    used: usize,
}

impl Path {
    /// As much of the part as there is room for.
    #[inline(never)]
    fn push(&mut self, part: &[u8]) {
        for &byte in part {
            if self.used < PATH_BYTES {
                self.bytes[self.used] = byte;
                self.used += 1;
            }
        }
    }

    /// What ends with the zero that was put there last; `None` where there was no room for that.
    fn as_c_str(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(&self.bytes[..self.used]).ok()
    }
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
        let groups = b"5:cpu,cpuacct:/d\n4:memory:/a/b:c\n0::/e\n";
        let group = |controller: &[u8]| group_of(groups, controller);
        assert_eq!([group(b"memory"), group(b"")], [Some(&b"/a/b:c"[..]), Some(b"/e")]);
        assert_eq!([group(b"mem"), group_of(b"", b""), group_of(b"0:\n", b"")], [None; 3]);
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = std::env::temp_dir().join(format!("faultless-groups-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        let limit = |group: &[u8]| least(root.to_str().unwrap().as_bytes(), group, b"/max");
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
        assert_eq!(limit(&[b'/'; 2 * PATH_BYTES]), Some(7000), "too long");
        fs::remove_dir_all(root).unwrap();
    }
}
