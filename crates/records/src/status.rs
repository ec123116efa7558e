//! The fields of `/proc/PID/status` and `/proc/PID/smaps_rollup` that the tool reads; both have the same form.

use std::str::FromStr;

/// Bytes of the field `name` in a text of lines `Name:   123 kB`.
///
/// Source: proc_pid_status(5) and proc_pid_smaps(5); the kernel writes "kB" and means 1,024 bytes.
#[must_use]
pub fn bytes_of_field(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The plain number in the field `name`, such as `Threads: 4`.
#[must_use]
pub fn number_of_field<Number: FromStr>(text: &str, name: &str) -> Option<Number> {
    field(text, name)?.parse().ok()
}

/// The set of signals, or other bits, in the field `name`, such as `SigPnd: 0000000000000100`.
#[must_use]
pub fn bits_of_field(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}

/// The process that traces this one, or this thread; none where nobody does, which the kernel writes as 0.
#[must_use]
pub fn tracer(text: &str) -> Option<i32> {
    number_of_field(text, "TracerPid").filter(|tracer| *tracer != 0)
}

/// The number in the innermost PID namespace, the last in `NSpid: 700 12`; kernels before 4.1 do not tell.
#[must_use]
pub fn innermost_number(text: &str) -> Option<i32> {
    field(text, "NSpid")?.split_ascii_whitespace().next_back()?.parse().ok()
}

/// What stands in the field `name`.
#[must_use]
pub fn field<'text>(text: &'text str, name: &str) -> Option<&'text str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Resident bytes in `/proc/PID/statm` (its second number, in pages).
///
/// Cheap and approximate: on machines with many processors the kernel's counter lags.
#[must_use]
pub fn resident_bytes_of_statm(text: &str, page_bytes: u64) -> Option<u64> {
    text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tcat\nVmHWM:\t    1788 kB\nVmRSS:\t    1660 kB\nRssAnon:\t     100 kB\nThreads:\t3\n";
    const ROLLUP: &str = "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:                1664 kB\nPss:                 160 kB\n";

    #[test]
    fn sizes_are_read_in_bytes() {
        assert_eq!(bytes_of_field(STATUS, "VmHWM"), Some(1788 * 1024));
        assert_eq!(bytes_of_field(ROLLUP, "Rss"), Some(1664 * 1024));
        assert_eq!(number_of_field(STATUS, "Threads"), Some(3));
        assert_eq!(resident_bytes_of_statm("700 415 300 5 0 90 0\n", 4096), Some(415 * 4096));
    }

    #[test]
    fn bits_are_read_as_they_are_written() {
        assert_eq!(bits_of_field("SigPnd:\t0000000000000100\n", "SigPnd"), Some(0x100));
        assert_eq!(bits_of_field(STATUS, "VmHWM"), None);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(bytes_of_field(STATUS, "Vm"), None);
        assert_eq!(bytes_of_field(STATUS, "VmSwap"), None);
    }

    #[test]
    fn numbers_beyond_the_range_are_refused() {
        assert_eq!(bytes_of_field("Rss: 18446744073709551615 kB", "Rss"), None);
        assert_eq!(bytes_of_field("Rss: -1 kB", "Rss"), None);
        assert_eq!(resident_bytes_of_statm("1", 4096), None);
    }
}
