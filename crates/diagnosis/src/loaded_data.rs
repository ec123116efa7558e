//! The case of data that is loaded once and searched by many threads: which faults are the data's, and which are not.
//!
//! Data that was loaded is in memory, and a search of it takes no fault, however it was mapped (`docs/regions.md` has the figures). What
//! faults when many requests come is what each of them allocates and frees. So the pages of what stays are taken off the faults, and the
//! rest is held against the blocks that come and go and against what the other arms leave of it.

use faultless_records::heap_report::{HeapReport, LargeBin};
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::quantity::{count, several, size};

use crate::verdict::{ArmResult, ArmVerdict, Role};

/// A command that loads data and works on it with many threads.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedData {
    /// Bytes in blocks that were allocated and stayed.
    pub data_bytes: u64,
    /// How many blocks these are.
    pub data_blocks: u64,
    /// Most threads that used the heap at one moment.
    pub threads: u64,
    /// Minor faults of the command as it is.
    pub faults: u64,
    /// The most faults that bringing in what stays can take: one a page.
    pub data_faults: u64,
    /// Blocks that come and go, those with the most bytes first.
    pub scratch: Vec<LargeBin>,
    /// What the other arms leave of the faults that are not the data's: name and part, 1 for all. Those whose figures do not compare are
    /// not among them.
    pub left: Vec<(String, f64)>,
    /// Nodes of the machine's memory.
    pub numa_nodes: usize,
}

/// Fewer threads do not come in a burst.
const MANY_THREADS: u64 = 4;
/// Less data is no gallery.
const LEAST_DATA_BYTES: u64 = 32 << 20;
/// What stays is at least one part in so many of the heap's peak; the scratch of a burst may be more than the data.
const LEAST_DATA_PART: u64 = 3;
/// A size of which at least so many in a hundred allocations were repeats comes and goes.
const SCRATCH_PERCENT: u64 = 50;
/// Fewer faults beyond the data's are not worth a word.
const LEAST_EXCESS: u64 = 10_000;
/// Blocks that come and go have at least one page for so many faults beyond the data's; where they have fewer, most of those faults are
/// something else's, such as a runtime's own heap.
const MOST_FAULTS_A_PAGE: f64 = 2.0;
/// An arm that leaves less than this of them cures them.
const CURED: f64 = 0.5;

/// Recognises the case; `None` where the figures do not show it.
#[must_use]
pub fn recognise(
    report: Option<&HeapReport>,
    arms: &[ArmResult],
    verdicts: &[ArmVerdict],
    numa_nodes: usize,
) -> Option<LoadedData> {
    let report = report.filter(|report| report.threads_peak >= MANY_THREADS)?;
    let comes_and_goes = |bin: &&LargeBin| bin.repeats() * 100 >= bin.allocations * SCRATCH_PERCENT;
    let (mut scratch, data): (Vec<LargeBin>, Vec<LargeBin>) =
        report.large_bins.iter().partition(comes_and_goes);
    let data_bytes: u64 = data.iter().map(|bin| bin.peak_live_bytes).sum();
    if data_bytes < LEAST_DATA_BYTES || data_bytes < report.heap_peak_bytes / LEAST_DATA_PART {
        return None;
    }
    // What the first searcher finds of small blocks may stay, too: all of them are granted to the data.
    let data_faults = (data_bytes + report.small_live_peak_bytes).div_ceil(PAGE_BYTES);
    let excess = |verdict: &ArmVerdict| verdict.figures.minor_faults.median - data_faults as f64;
    let base = arms.iter().position(|arm| arm.role == Role::AsIs)?;
    let base_excess = excess(verdicts.get(base)?);
    if base_excess < LEAST_EXCESS as f64 || scratch.is_empty() {
        return None;
    }
    let scratch_bytes = scratch.iter().fold(0u64, |sum, bin| sum.saturating_add(bin.repeated_bytes()));
    if (scratch_bytes / PAGE_BYTES) as f64 * MOST_FAULTS_A_PAGE < base_excess {
        return None;
    }
    scratch.sort_by_key(|bin| std::cmp::Reverse(bin.repeated_bytes()));
    let others = arms.iter().zip(verdicts).filter(|(_, verdict)| verdict.effect.is_some());
    Some(LoadedData {
        data_bytes,
        data_blocks: data.iter().map(|bin| bin.allocations).sum(),
        threads: report.threads_peak,
        faults: verdicts[base].figures.minor_faults.median as u64,
        data_faults,
        scratch,
        left: others
            .map(|(arm, verdict)| (arm.name.clone(), (excess(verdict) / base_excess).max(0.0)))
            .collect(),
        numa_nodes,
    })
}

impl LoadedData {
    /// Faults that bringing in the data does not explain.
    #[must_use]
    pub fn excess_faults(&self) -> u64 {
        self.faults.saturating_sub(self.data_faults)
    }

    /// The arms that take most of them away, the best first.
    #[must_use]
    pub fn cures(&self) -> Vec<&str> {
        let mut cures: Vec<&(String, f64)> = self.left.iter().filter(|(_, left)| *left < CURED).collect();
        cures.sort_by(|one, other| one.1.total_cmp(&other.1));
        cures.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The finding in words: what it is, what it is not, what helps.
    #[must_use]
    pub fn sentences(&self) -> String {
        let sizes: Vec<String> = self
            .scratch
            .iter()
            .take(3)
            .map(|bin| format!("{} of {}", count(bin.repeats()), size(bin.largest_bytes)))
            .collect();
        let mut text = format!(
            "data that is loaded and searched: {} in {} stay, {} work on them. Bringing them in explains \
             {} of {} minor faults at most; the other {} go with blocks that are freed and asked for again ({}), and no \
             other mapping of the data takes those away.",
            size(self.data_bytes),
            several(self.data_blocks, "block"),
            several(self.threads, "thread"),
            count(self.data_faults),
            count(self.faults),
            count(self.excess_faults()),
            sizes.join(", ")
        );
        let left: Vec<String> =
            self.left.iter().map(|(name, left)| format!("{name} {:.0} %", left * 100.0)).collect();
        if !left.is_empty() {
            text.push_str(&format!(" Of these are left under {}.", left.join(", ")));
        }
        text.push_str(match self.cures().first() {
            Some(_) => {
                " What helps is the allocator or its settings; a region (docs/regions.md) brings the data in faster, \
                 and with huge pages"
            }
            None => {
                " No arm takes them away: keep each thread's buffers from one request to the next; a region \
                 (docs/regions.md) brings the data in faster, and with huge pages"
            }
        });
        text.push('.');
        if self.numa_nodes > 1 {
            text.push_str(&format!(
                " This machine has {} NUMA nodes: where numa_hint_faults in /proc/vmstat grows during the search, the kernel's \
                 balancing takes faults on loaded data as well; by the kernel's source it passes shared memory by.",
                self.numa_nodes
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::tests::runs;
    use crate::tuning::tests::bin;
    use crate::verdict::{Scope, Yardstick, judge};
    use faultless_records::measurement::Ending;

    const MIB: u64 = 1 << 20;
    const YARDSTICK: Yardstick = Yardstick { page_bytes: 4096, peaks_bytes: 0 };

    fn gallery() -> HeapReport {
        HeapReport {
            large_bins: vec![bin(MIB, 512, 128), bin(64 * MIB, 4, 4)],
            heap_peak_bytes: 384 * MIB,
            threads_peak: 33,
            ..HeapReport::default()
        }
    }

    fn arms(faults: [u64; 3]) -> [ArmResult; 3] {
        let arm = |name: &str, role, faults| ArmResult {
            name: name.into(),
            role,
            runs: runs(1.0, faults, 400, 300),
        };
        let mut arms = [
            arm("libc as is", Role::AsIs, faults[0]),
            arm("libc tuned", Role::Libc(Vec::new()), faults[1]),
            arm("Faultless", Role::Faultless, faults[2]),
        ];
        arms[2].runs.iter_mut().for_each(|run| run.mapped_files.push("/f/libfaultless-1.so".into()));
        arms
    }

    fn recognised(report: &HeapReport, faults: [u64; 3], numa_nodes: usize) -> Option<LoadedData> {
        let arms = arms(faults);
        let verdict = judge(&arms, Scope::All, YARDSTICK).unwrap();
        recognise(Some(report), &arms, &verdict.arms, numa_nodes)
    }

    #[test]
    fn faults_beyond_the_data_are_put_down_to_what_comes_and_goes() {
        let found = recognised(&gallery(), [190_000, 85_000, 70_000], 1).unwrap();
        assert_eq!((found.data_bytes, found.data_blocks, found.data_faults), (256 * MIB, 4, 65_536));
        assert_eq!(found.excess_faults(), 124_464);
        assert_eq!(found.cures(), ["Faultless", "libc tuned"]);
        let text = found.sentences();
        assert!(text.contains("256 MiB in 4 blocks stay, 33 threads"), "{text}");
        assert!(
            text.contains("explains 65,536 of 190,000 minor faults at most; the other 124,464"),
            "{text}"
        );
        assert!(text.contains("(384 of 1 MiB)") && text.contains("libc tuned 16 %, Faultless 4 %"), "{text}");
        assert!(text.contains("What helps is the allocator") && !text.contains("NUMA"), "{text}");
    }

    #[test]
    fn four_threads_and_a_few_repeats_are_a_case_and_what_repeats_most_comes_first() {
        let report = HeapReport {
            large_bins: vec![bin(MIB, 512, 128), bin(4 * MIB, 3000, 4), bin(64 * MIB, 5, 4)],
            threads_peak: MANY_THREADS,
            small_live_peak_bytes: 4 * MIB,
            ..gallery()
        };
        let found = recognised(&report, [190_000, 150_000, 70_000], 1).unwrap();
        assert_eq!((found.data_blocks, found.data_faults), (5, 65_536 + 1024));
        assert!(found.sentences().contains("(2,996 of 4 MiB, 384 of 1 MiB)"), "{}", found.sentences());
        assert_eq!(found.cures(), ["Faultless"], "half of the faults left are no cure");
    }

    #[test]
    fn where_no_arm_helps_none_is_praised() {
        let text = recognised(&gallery(), [190_000, 185_000, 200_000], 2).unwrap().sentences();
        assert!(text.contains("No arm takes them away") && text.contains("2 NUMA nodes"), "{text}");
    }

    #[test]
    fn an_arm_whose_figures_do_not_compare_is_no_cure() {
        let mut arms = arms([190_000, 185_000, 500]);
        arms[2].runs.iter_mut().for_each(|run| run.ending = Ending::Exited(1));
        let verdict = judge(&arms, Scope::All, YARDSTICK).unwrap();
        let found = recognise(Some(&gallery()), &arms, &verdict.arms, 1).unwrap();
        assert!(found.cures().is_empty() && found.left.len() == 1, "{}", found.sentences());
    }

    #[test]
    fn data_that_faults_in_once_is_no_case() {
        assert_eq!(recognised(&gallery(), [66_000, 66_000, 66_000], 1), None);
        assert_eq!(recognised(&gallery(), [500, 500, 500], 1), None, "huge pages: fewer faults than pages");
    }

    #[test]
    fn faults_of_a_heap_that_is_not_mallocs_are_not_put_down_to_the_few_blocks_that_come_and_go() {
        // A JVM: 56,968 faults of its own heap, and blocks that come and go with 1,900 pages.
        let jvm = HeapReport {
            large_bins: vec![
                bin(MIB, 44, 44),
                bin(156 << 10, 29, 2),
                bin(44 << 10, 60, 5),
                bin(124 << 10, 21, 2),
            ],
            heap_peak_bytes: 62 * MIB,
            small_live_peak_bytes: 6 * MIB,
            threads_peak: 41,
            ..HeapReport::default()
        };
        assert_eq!(recognised(&jvm, [70_236, 70_139, 69_563], 1), None);
        assert_eq!(recognised(&gallery(), [65_536 + 196_609, 85_000, 70_000], 1), None, "98,304 pages");
        assert!(recognised(&gallery(), [65_536 + 196_608, 85_000, 70_000], 1).is_some());
    }

    #[test]
    fn few_threads_little_data_or_churn_alone_are_no_case() {
        let faults = [190_000, 85_000, 70_000];
        assert_eq!(recognised(&HeapReport { threads_peak: 2, ..gallery() }, faults, 1), None);
        let small = HeapReport {
            large_bins: vec![bin(MIB, 512, 128), bin(MIB * 2, 4, 4)],
            heap_peak_bytes: 16 * MIB,
            ..gallery()
        };
        assert_eq!(recognised(&small, faults, 1), None);
        assert_eq!(recognised(&HeapReport { heap_peak_bytes: 1024 * MIB, ..gallery() }, faults, 1), None);
        let data_alone = HeapReport { large_bins: vec![bin(64 * MIB, 4, 4)], ..gallery() };
        assert_eq!(recognised(&data_alone, faults, 1), None);
        let churn = HeapReport { large_bins: vec![bin(4 * MIB, 3000, 4)], ..gallery() };
        assert_eq!(recognised(&churn, faults, 1), None);
        let arms = Vec::new();
        assert_eq!(recognise(None, &arms, &[], 1), None);
    }
}
