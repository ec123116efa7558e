//! The report that `libfaultless.so` writes at a normal exit when told `FAULTLESS=report:PREFIX`.
//!
//! A text of lines `key value…`; the first line names the format. Keys that this version does not know are passed
//! over, so that an older tool reads a newer library's report.

/// What one process did with the heap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeapReport {
    /// Large blocks (above 32 KiB) by size, ascending.
    pub large_bins: Vec<LargeBin>,
    /// Most bytes in large blocks at one moment.
    pub large_live_peak_bytes: u64,
    /// Most bytes in slabs of small blocks at one moment.
    pub small_live_peak_bytes: u64,
    /// Most bytes in spans in use at one moment, large and small together.
    pub heap_peak_bytes: u64,
    /// Bytes given back to the kernel, each time counted.
    pub purged_bytes: u64,
    /// How often memory was given back.
    pub purges: u64,
    /// Most threads that used the heap at one moment.
    pub threads_peak: u64,
}

/// The large blocks of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargeBin {
    /// Smallest block asked for.
    pub smallest_bytes: u64,
    /// Largest block asked for.
    pub largest_bytes: u64,
    /// How many were allocated.
    pub allocations: u64,
    /// Most bytes of them alive at one moment.
    pub peak_live_bytes: u64,
}

impl LargeBin {
    /// Allocations beyond those that were alive at the same time: how often memory of this size was freed and asked
    /// for again.
    #[must_use]
    pub fn repeats(&self) -> u64 {
        let live_at_once = self.peak_live_bytes.div_ceil(self.largest_bytes.max(1));
        self.allocations.saturating_sub(live_at_once)
    }

    /// Bytes that were freed and asked for again.
    #[must_use]
    pub fn repeated_bytes(&self) -> u64 {
        let middle_bytes = self.smallest_bytes / 2 + self.largest_bytes / 2;
        self.repeats().saturating_mul(middle_bytes)
    }
}

/// The first line of every report.
const HEADER: &str = "faultless-report 1";

/// No process has so many bytes, blocks or threads: a line with such a number is damaged, and passed over.
const TOO_MANY: u64 = 1 << 56;

/// Reads a report; none when the text is not one of this format.
#[must_use]
pub fn parse(text: &str) -> Option<HeapReport> {
    let mut lines = text.lines();
    if lines.next()?.trim_end() != HEADER {
        return None;
    }
    let mut report = HeapReport::default();
    for line in lines {
        let mut words = line.split_ascii_whitespace();
        let Some(key) = words.next() else { continue };
        let number = |word: &str| word.parse().ok().filter(|number| *number < TOO_MANY);
        let numbers: Vec<u64> = words.map_while(number).collect();
        match (key, numbers.as_slice()) {
            ("large", [smallest_bytes, largest_bytes, allocations, peak_live_bytes, ..]) => {
                report.large_bins.push(LargeBin {
                    smallest_bytes: *smallest_bytes,
                    largest_bytes: *largest_bytes,
                    allocations: *allocations,
                    peak_live_bytes: *peak_live_bytes,
                });
            }
            ("large_live_peak_bytes", [number, ..]) => report.large_live_peak_bytes = *number,
            ("small_live_peak_bytes", [number, ..]) => report.small_live_peak_bytes = *number,
            ("heap_peak_bytes", [number, ..]) => report.heap_peak_bytes = *number,
            ("purged_bytes", [number, ..]) => report.purged_bytes = *number,
            ("purges", [number, ..]) => report.purges = *number,
            ("threads_peak", [number, ..]) => report.threads_peak = *number,
            _ => {}
        }
    }
    report.large_bins.sort_by_key(|bin| bin.largest_bytes);
    Some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
faultless-report 1
# a comment
large 4194304 4194304 3002 16777216
large 40000 65000 10 650000
large_live_peak_bytes 16777216
small_live_peak_bytes 65536
heap_peak_bytes 16842752
purged_bytes 16777216
purges 4
threads_peak 1
a_key_of_the_future 1 2 3
";

    #[test]
    fn known_keys_are_read_and_unknown_ones_passed_over() {
        let report = parse(REPORT).unwrap();
        assert_eq!(report.large_bins.len(), 2);
        assert_eq!(report.large_bins[0].largest_bytes, 65000, "bins ascend");
        let peaks = (report.large_live_peak_bytes, report.small_live_peak_bytes, report.heap_peak_bytes);
        assert_eq!(peaks, (16_777_216, 65_536, 16_842_752));
        assert_eq!((report.purged_bytes, report.purges, report.threads_peak), (16_777_216, 4, 1));
    }

    #[test]
    fn repeats_are_the_allocations_that_were_not_alive_together() {
        let report = parse(REPORT).unwrap();
        assert_eq!(report.large_bins[0].repeats(), 0);
        assert_eq!(report.large_bins[1].repeats(), 2998);
        assert_eq!(report.large_bins[1].repeated_bytes(), 2998 * 4_194_304);
    }

    #[test]
    fn other_texts_and_cut_lines_do_no_harm() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("faultless-report 2\n"), None);
        assert_eq!(parse("faultless-report 1\nlarge 1 2\nheap_peak_bytes\n"), Some(HeapReport::default()));
        let damaged = format!("faultless-report 1\nlarge 1 2 3 {}\nthreads_peak {}\n", u64::MAX, 1_u64 << 56);
        assert_eq!(parse(&damaged), Some(HeapReport::default()));
    }
}
