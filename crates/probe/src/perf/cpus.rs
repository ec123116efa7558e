//! The CPUs that events are opened on.

use std::fs;

/// How many CPUs there are events and buffers for, whichever of them we may run on ourselves.
#[must_use]
pub fn cpus() -> usize {
    online_cpus().len()
}

/// The CPUs that run.
pub(super) fn online_cpus() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_cpus(text.trim());
    if cpus.is_empty() {
        let cpus = std::thread::available_parallelism().map_or(1, |number| number.get() as u32);
        return (0..cpus).collect();
    }
    cpus
}

/// From text such as `0-3,6`.
fn parse_cpus(text: &str) -> Vec<u32> {
    /// More than any kernel is built for.
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last.min(MOST));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_cpus("0-3,6"), [0, 1, 2, 3, 6]);
        assert_eq!(parse_cpus("0"), [0]);
        assert!(parse_cpus("").is_empty() && parse_cpus("x-").is_empty());
        assert!(parse_cpus("0-4294967295").len() <= 1 << 17);
    }
}
