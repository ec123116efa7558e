//! The files of `/proc/PID` that the tool reads.

use std::fs;

use faultless_records::{maps, status};
use nix::unistd::{SysconfVar, sysconf};

/// A process's memory at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Resident bytes: exact from `smaps_rollup`, else the kernel's counter from `status`.
    pub rss_bytes: Option<u64>,
    /// Highest resident bytes since it became this program.
    pub peak_rss_bytes: Option<u64>,
    /// Files it has mapped.
    pub mapped_files: Vec<String>,
}

/// Reads all of it; what the kernel does not show stays empty.
#[must_use]
pub fn snapshot(pid: i32) -> Snapshot {
    let status = read(pid, "status").unwrap_or_default();
    let exact = read(pid, "smaps_rollup").and_then(|text| status::bytes_of_field(&text, "Rss"));
    Snapshot {
        rss_bytes: exact.or_else(|| status::bytes_of_field(&status, "VmRSS")),
        peak_rss_bytes: status::bytes_of_field(&status, "VmHWM"),
        mapped_files: mapped_files(pid),
    }
}

/// Resident bytes by the cheapest way, for sampling.
#[must_use]
pub fn resident_bytes(pid: i32) -> Option<u64> {
    status::resident_bytes_of_statm(&read(pid, "statm")?, page_bytes())
}

/// Files the process has mapped; empty when the kernel does not show them.
#[must_use]
pub fn mapped_files(pid: i32) -> Vec<String> {
    read(pid, "maps").map(|text| maps::mapped_files(&text)).unwrap_or_default()
}

/// Resident bytes of this process.
#[must_use]
pub fn own_resident_bytes() -> Option<u64> {
    status::resident_bytes_of_statm(&fs::read_to_string("/proc/self/statm").ok()?, page_bytes())
}

/// Paths need not be UTF-8, so the text is taken as it comes.
fn read(pid: i32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Bytes of a page of this machine.
#[must_use]
pub fn page_bytes() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_seen_with_its_program_and_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let snapshot = snapshot(pid);
        let program = std::env::current_exe().unwrap();
        assert!(snapshot.mapped_files.iter().any(|file| *file == program.to_string_lossy()));
        assert!(snapshot.rss_bytes.unwrap() > 100 * 1024);
        assert!(snapshot.peak_rss_bytes.unwrap() >= snapshot.rss_bytes.unwrap() / 2);
    }

    #[test]
    fn a_process_that_does_not_exist_gives_an_empty_snapshot() {
        assert_eq!(snapshot(i32::MAX), Snapshot::default());
        assert_eq!(resident_bytes(i32::MAX), None);
    }
}
