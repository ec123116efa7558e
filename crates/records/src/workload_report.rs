//! The line that a workload of `crates/workloads/bench` prints at its end.

use std::collections::BTreeMap;

/// Keys of the figures that every workload prints; all others are marks.
const FIGURES: &[&str] = &[
    "name",
    "threads",
    "operations",
    "seconds",
    "live_peak",
    "rss_start_kib",
    "rss_end_kib",
    "rss_idle_kib",
    "mappings",
    "check",
];

/// More marks than any workload has are left out.
const MOST_MARKS: usize = 32;

/// What a workload says of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkloadReport {
    /// Pairs of malloc and free.
    pub operations: u64,
    /// Wall time of the measured part, in s.
    pub seconds: f64,
    /// Most bytes asked for and not yet freed.
    pub live_peak_bytes: u64,
    /// Resident bytes before it allocated anything.
    pub start_rss_bytes: Option<u64>,
    /// Resident bytes at its end.
    pub end_rss_bytes: Option<u64>,
    /// Resident bytes after its idle time; none when it had none.
    pub idle_rss_bytes: Option<u64>,
    /// Mappings at its end.
    pub mappings: Option<u64>,
}

/// Reads the line `workload name=… operations=… seconds=… …` from a workload's output.
#[must_use]
pub fn parse(output: &str) -> Option<WorkloadReport> {
    let line = line_of(output)?;
    let value =
        |key: &str| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let number = |key: &str| value(key)?.parse::<u64>().ok();
    // -1 stands for what was not taken.
    let kibibytes = |key: &str| number(key)?.checked_mul(1024);
    Some(WorkloadReport {
        operations: number("operations")?,
        seconds: value("seconds")?.parse().ok()?,
        live_peak_bytes: number("live_peak")?,
        start_rss_bytes: kibibytes("rss_start_kib"),
        end_rss_bytes: kibibytes("rss_end_kib"),
        idle_rss_bytes: kibibytes("rss_idle_kib"),
        mappings: number("mappings"),
    })
}

/// The figures that a workload prints beyond those of [`WorkloadReport`], by name; only finite ones.
#[must_use]
pub fn marks(output: &str) -> BTreeMap<String, f64> {
    let words = line_of(output).unwrap_or_default().split_ascii_whitespace();
    let pairs = words.filter_map(|word| word.split_once('=')).filter(|(key, _)| !FIGURES.contains(key));
    pairs
        .filter_map(|(key, value)| Some((key.to_owned(), value.parse::<f64>().ok()?)))
        .filter(|(_, value)| value.is_finite())
        .take(MOST_MARKS)
        .collect()
}

fn line_of(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.strip_prefix("workload "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_missing_ones_are_none() {
        let line = "noise\nworkload name=larson threads=2 operations=1000 seconds=0.512345 live_peak=4096 \
                    rss_start_kib=1128 rss_end_kib=2000 rss_idle_kib=-1 mappings=31 check=77\n";
        let report = parse(line).unwrap();
        assert_eq!((report.operations, report.live_peak_bytes), (1000, 4096));
        assert!((report.seconds - 0.512_345).abs() < 1e-9);
        assert_eq!((report.start_rss_bytes, report.idle_rss_bytes), (Some(1128 << 10), None));
        assert_eq!(report.mappings, Some(31));
    }

    #[test]
    fn what_is_no_figure_of_all_is_a_mark() {
        let line = "workload name=churn threads=2 operations=5 seconds=0.5 live_peak=1 check=7 faults=42 due_pages=1.6e+04 \
                    odd=x huge=inf";
        let marks = marks(line);
        assert_eq!(marks.len(), 2);
        assert_eq!((marks["faults"], marks["due_pages"]), (42.0, 16_000.0));
        assert!(super::marks("no line").is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_line_gives_marks_that_can_be_computed_with(
            words in proptest::collection::vec("[a-z_]{0,9}=?[-0-9.e]{0,9}(nan|inf)?", 0..60)
        ) {
            let line = format!("workload {}", words.join(" "));
            let _ = parse(&line);
            let marks = marks(&line);
            proptest::prop_assert!(marks.len() <= MOST_MARKS && marks.values().all(|value| value.is_finite()));
        }
    }

    #[test]
    fn other_output_is_none() {
        assert_eq!(parse("workload operations=x"), None);
        assert_eq!(parse("the workload ended"), None);
    }
}
