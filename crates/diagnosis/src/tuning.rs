//! Settings for glibc's malloc that follow from the sizes a program was seen to use.
//!
//! glibc gives memory back on two ways that must both be closed for a program that frees and asks again. Blocks above
//! the *mmap threshold* are mapped and unmapped one by one; blocks below it lie in the heap, whose end is cut off when
//! more than the *trim threshold* is free there. Setting either stops glibc from adapting both, so one alone may be
//! without effect or do harm; that is why each half is tried by itself, too.
//!
//! A thread's arena consists of heaps of 64 MiB. It gives those behind the first back whatever the trim threshold is, unless the *top
//! pad* is as large as a heap.

use std::fmt::Write;

use faultless_records::glibc::MAPPED_OVERHEAD_BYTES;
use faultless_records::heap_report::{HeapReport, LargeBin};
use faultless_records::quantity::{range, several, size};

use crate::setting::{ARENA_HEAP_BYTES, DEFAULT_THRESHOLD_BYTES, LARGEST_MMAP_THRESHOLD_BYTES, Setting};

/// What is known of the program.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'report> {
    /// What the process with the largest heap of the observing run reported; none when it ended without (a crash, `_exit`).
    pub report: Option<&'report HeapReport>,
    /// What its other processes reported, which get the same settings.
    pub others: &'report [HeapReport],
    /// Its peak resident bytes under the user's own settings.
    pub peak_rss_bytes: u64,
    /// Processors it may use.
    pub processors: u64,
}

/// One part of a tuning, tried by itself as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name for the table.
    pub name: &'static str,
    /// What is set.
    pub settings: Vec<Setting>,
    /// Why these numbers.
    pub reason: String,
}

impl Part {
    /// The larger of two serves a process that needs the smaller.
    fn reach(&self) -> u64 {
        let of_setting = |setting: &Setting| match setting.variable {
            "MALLOC_MMAP_MAX_" => u64::MAX,
            _ => setting.value.parse().unwrap_or(0),
        };
        self.settings.iter().map(of_setting).max().unwrap_or(0)
    }
}

/// A tuning: no parts when the sizes give no reason for any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Its parts.
    pub parts: Vec<Part>,
    /// Why a part that one might expect is missing.
    pub remarks: Vec<String>,
}

impl Tuning {
    /// The settings of all parts.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        self.parts.iter().flat_map(|part| part.settings.clone()).collect()
    }
}

/// Fewer repeats than this of less than so much memory are no churn worth a setting.
const LEAST_REPEATS: u64 = 8;
const LEAST_REPEATED_BYTES: u64 = 64 << 20;

/// A size that makes up less than one part in this many of the memory asked for again is left out.
const NEGLIGIBLE_PART: u64 = 100;

/// Derives a tuning from what is known.
#[must_use]
pub fn derive(evidence: &Evidence<'_>) -> Tuning {
    let Some(report) = evidence.report else { return without_report(evidence) };
    let mut tuning = Tuning::default();
    let reports = || evidence.others.iter().chain([report]);
    let bins = reports().flat_map(|report| &report.large_bins);
    let total_bytes = bins.map(LargeBin::repeated_bytes).fold(0, u64::saturating_add);
    // The last of those with the same setting is taken: the one with the largest heap.
    let needed_most = |part_of: &dyn Fn(&HeapReport, &[LargeBin]) -> Option<Part>| {
        let of_each = reports().filter_map(|of| {
            let mut part = part_of(of, &churned_bins(of, total_bytes))?;
            if !std::ptr::eq(of, report) {
                part.reason.push_str(" (a process with less heap than the largest)");
            }
            Some(part)
        });
        of_each.max_by_key(Part::reach)
    };
    match needed_most(&|_, churned| mmap_part(churned)) {
        Some(part) => tuning.parts.push(part),
        None => tuning.remarks.push(format!(
            "mmap half: left out, no size above {} is asked for again and again",
            size(DEFAULT_THRESHOLD_BYTES)
        )),
    }
    let has_heaps = reports().any(has_further_heaps);
    match needed_most(&|report, churned| trim_part(report, churned, has_heaps)) {
        Some(part) => tuning.parts.push(part),
        None => tuning.remarks.push(format!(
            "trim half: left out, what comes and goes stays below glibc's {}",
            size(DEFAULT_THRESHOLD_BYTES)
        )),
    }
    tuning.parts.extend(needed_most(&|report, _| arena_part(report, evidence.processors)));
    tuning
}

/// The sizes that are freed and asked for again often enough to matter, where all processes ask again for so much.
fn churned_bins(report: &HeapReport, total_bytes: u64) -> Vec<LargeBin> {
    let matters = |bin: &&LargeBin| {
        (bin.repeats() >= LEAST_REPEATS || bin.repeated_bytes() >= LEAST_REPEATED_BYTES)
            && bin.repeated_bytes() >= total_bytes / NEGLIGIBLE_PART
    };
    report.large_bins.iter().filter(matters).copied().collect()
}

fn mmap_part(churned: &[LargeBin]) -> Option<Part> {
    let largest = churned.iter().max_by_key(|bin| bin.largest_bytes)?;
    // Below the default threshold glibc takes them from the heap anyway.
    if largest.largest_bytes + MAPPED_OVERHEAD_BYTES < DEFAULT_THRESHOLD_BYTES {
        return None;
    }
    let repeats: u64 = churned.iter().map(LargeBin::repeats).sum();
    let seen = format!(
        "blocks of {} are freed and asked for again {}",
        range(churned.iter().map(|bin| bin.smallest_bytes).min()?, largest.largest_bytes),
        several(repeats, "time")
    );
    let threshold_bytes = round_up(largest.largest_bytes + MAPPED_OVERHEAD_BYTES);
    let (setting, reason) = if threshold_bytes <= LARGEST_MMAP_THRESHOLD_BYTES {
        let reason = format!(
            "{seen}; {} is just above the largest, so that they come from the heap",
            size(threshold_bytes)
        );
        (Setting { variable: "MALLOC_MMAP_THRESHOLD_", value: threshold_bytes.to_string() }, reason)
    } else {
        let reason = format!(
            "{seen}; before 2.35 glibc accepts no threshold above {}, so mapping single blocks is switched off",
            size(LARGEST_MMAP_THRESHOLD_BYTES)
        );
        (Setting { variable: "MALLOC_MMAP_MAX_", value: "0".into() }, reason)
    };
    Some(Part { name: "mmap half only", settings: vec![setting], reason })
}

/// Whether an arena of a thread may have more than one heap.
fn has_further_heaps(report: &HeapReport) -> bool {
    report.threads_peak > 1 && report.heap_peak_bytes > ARENA_HEAP_BYTES
}

/// What keeps the heaps of a thread's arena.
fn pad() -> Setting {
    Setting { variable: "MALLOC_TOP_PAD_", value: ARENA_HEAP_BYTES.to_string() }
}

fn trim_part(report: &HeapReport, churned: &[LargeBin], has_further_heaps: bool) -> Option<Part> {
    let large_bytes: u64 = churned.iter().map(|bin| bin.peak_live_bytes).sum();
    let amplitude_bytes = large_bytes + report.small_live_peak_bytes;
    if amplitude_bytes <= DEFAULT_THRESHOLD_BYTES {
        return None;
    }
    let threshold_bytes = round_up(amplitude_bytes + amplitude_bytes / 4);
    let mut reason = format!("what comes and goes was at most {} at once (", size(amplitude_bytes));
    if large_bytes > 0 {
        let _ = write!(reason, "{} in those large blocks, ", size(large_bytes));
    }
    let _ = write!(
        reason,
        "{} in small ones); {} is at least a quarter above that, so that free never cuts the heap",
        size(report.small_live_peak_bytes),
        size(threshold_bytes)
    );
    let mut settings =
        vec![Setting { variable: "MALLOC_TRIM_THRESHOLD_", value: threshold_bytes.to_string() }];
    if has_further_heaps {
        settings.push(pad());
        let _ = write!(
            reason,
            "; of threads' arenas a top pad of {} keeps the heaps behind the first",
            size(ARENA_HEAP_BYTES)
        );
    }
    Some(Part { name: "trim half only", settings, reason })
}

/// glibc makes up to eight arenas a processor, one a thread until then; memory freed in one is of no use to another.
fn arena_part(report: &HeapReport, processors: u64) -> Option<Part> {
    let processors = processors.max(1);
    if report.threads_peak <= processors.max(2) {
        return None;
    }
    let setting = Setting { variable: "MALLOC_ARENA_MAX", value: processors.to_string() };
    let reason = format!(
        "{} allocate on {}; one arena a processor keeps freed memory together",
        several(report.threads_peak, "thread"),
        several(processors, "processor")
    );
    Some(Part { name: "arenas only", settings: vec![setting], reason })
}

/// The program told nothing of its sizes: close both ways entirely, within what it was seen to hold.
fn without_report(evidence: &Evidence<'_>) -> Tuning {
    let threshold_bytes = round_up(evidence.peak_rss_bytes.max(DEFAULT_THRESHOLD_BYTES));
    let mut trim = Part {
        name: "trim half only",
        settings: vec![Setting { variable: "MALLOC_TRIM_THRESHOLD_", value: threshold_bytes.to_string() }],
        reason: format!("{} is above its peak RSS, so that free never cuts the heap", size(threshold_bytes)),
    };
    if evidence.peak_rss_bytes > ARENA_HEAP_BYTES {
        trim.settings.push(pad());
        trim.reason.push_str(", and threads' arenas, if there are any, keep the heaps behind their first");
    }
    Tuning {
        parts: vec![
            Part {
                name: "mmap half only",
                settings: vec![Setting { variable: "MALLOC_MMAP_MAX_", value: "0".into() }],
                reason: "the sizes are not known, so mapping single blocks is switched off".into(),
            },
            trim,
        ],
        remarks: vec![
            "the observing run left no report of its largest process (it ended without running its exit handlers, as by a \
             signal, became another program, changed its user (doctor run as that user gets one), or the allocator was not loaded): the tuning is a general \
             one"
                .into(),
        ],
    }
}

/// To whole MiB, or below one to whole 64 KiB: a little room for runs that differ.
fn round_up(bytes: u64) -> u64 {
    let step = if bytes >= 1 << 20 { 1 << 20 } else { 64 << 10 };
    bytes.div_ceil(step) * step
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Blocks of one size, of which so many live at once.
    pub fn bin(bytes: u64, allocations: u64, live: u64) -> LargeBin {
        LargeBin { smallest_bytes: bytes, largest_bytes: bytes, allocations, peak_live_bytes: bytes * live }
    }

    fn derived(report: &HeapReport) -> Tuning {
        derive(&Evidence { report: Some(report), others: &[], peak_rss_bytes: 0, processors: 2 })
    }

    fn shown(tuning: &Tuning) -> Vec<String> {
        tuning.settings().iter().map(|setting| format!("{}={}", setting.variable, setting.value)).collect()
    }

    #[test]
    fn work_buffers_of_the_demo_need_both_halves() {
        let report =
            HeapReport { large_bins: vec![bin(4 * MIB, 3002, 4)], threads_peak: 1, ..HeapReport::default() };
        let tuning = derived(&report);
        assert_eq!(shown(&tuning), ["MALLOC_MMAP_THRESHOLD_=5242880", "MALLOC_TRIM_THRESHOLD_=20971520"]);
        assert!(tuning.parts[0].reason.contains("blocks of 4 MiB are freed and asked for again 2,998 times"));
        assert!(
            tuning.parts[1]
                .reason
                .contains("at most 16 MiB at once (16 MiB in those large blocks, 0 B in small")
        );
    }

    #[test]
    fn a_block_kept_for_the_whole_run_asks_for_nothing() {
        let report = HeapReport { large_bins: vec![bin(100 * MIB, 1, 1)], ..HeapReport::default() };
        let tuning = derived(&report);
        assert_eq!(tuning.parts, []);
        assert_eq!(tuning.remarks.len(), 2);
    }

    #[test]
    fn what_is_asked_for_again_may_be_more_bytes_than_can_be_counted() {
        let counted = bin(1 << 40, 1 << 40, 1);
        let report =
            HeapReport { large_bins: vec![counted, bin(4 * MIB, 3002, 4), counted], ..HeapReport::default() };
        assert_eq!(shown(&derived(&report))[0], "MALLOC_MMAP_MAX_=0");
    }

    #[test]
    fn beyond_the_largest_threshold_mapping_is_switched_off() {
        let report = HeapReport { large_bins: vec![bin(48 * MIB, 100, 1)], ..HeapReport::default() };
        assert_eq!(shown(&derived(&report)), ["MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=62914560"]);
    }

    #[test]
    fn small_blocks_alone_need_the_trim_half_only() {
        let report = HeapReport { small_live_peak_bytes: 40 * MIB, threads_peak: 1, ..HeapReport::default() };
        let tuning = derived(&report);
        assert_eq!(shown(&tuning), ["MALLOC_TRIM_THRESHOLD_=52428800"]);
        assert!(tuning.parts[0].reason.contains("at most 40 MiB at once (40 MiB in small ones)"));
        assert!(tuning.remarks[0].starts_with("mmap half"));
    }

    #[test]
    fn threads_with_more_than_a_heap_of_64_mib_keep_further_ones_by_the_top_pad() {
        let of = |threads_peak, mib| {
            let (small_live_peak_bytes, heap_peak_bytes) = (40 * MIB, mib * MIB);
            let report =
                HeapReport { small_live_peak_bytes, heap_peak_bytes, threads_peak, ..HeapReport::default() };
            derived(&report)
        };
        let [trim, pad] = ["MALLOC_TRIM_THRESHOLD_=52428800", "MALLOC_TOP_PAD_=67108864"];
        assert_eq!(shown(&of(2, 65)), [trim, pad]);
        assert!(
            of(2, 65).parts[0]
                .reason
                .ends_with("; of threads' arenas a top pad of 64 MiB keeps the heaps behind the first")
        );
        assert_eq!(shown(&of(1, 65)), [trim]);
        assert_eq!(shown(&of(2, 64)), [trim]);
        // A process that needs the pad and one that needs more of the other setting get both.
        let [large, threads] = [
            HeapReport { small_live_peak_bytes: 80 * MIB, threads_peak: 1, ..HeapReport::default() },
            HeapReport { heap_peak_bytes: 65 * MIB, threads_peak: 2, ..HeapReport::default() },
        ];
        let both =
            derive(&Evidence { report: Some(&large), others: &[threads], peak_rss_bytes: 0, processors: 2 });
        assert_eq!(shown(&both), ["MALLOC_TRIM_THRESHOLD_=104857600", pad]);
    }

    #[test]
    fn a_rare_giant_does_not_move_the_threshold_of_the_many() {
        let report = HeapReport {
            large_bins: vec![bin(256 << 10, 100_000, 2), bin(64 * MIB, 3, 1), bin(2 * MIB, 10, 1)],
            ..HeapReport::default()
        };
        assert_eq!(shown(&derived(&report))[0], "MALLOC_MMAP_THRESHOLD_=327680");
    }

    #[test]
    fn a_few_repeats_of_much_memory_are_churn_too() {
        let settings = |bytes, allocations| {
            let report = HeapReport { large_bins: vec![bin(bytes, allocations, 1)], ..HeapReport::default() };
            shown(&derived(&report))
        };
        assert_eq!(settings(64 * MIB, 2), ["MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=83886080"]);
        assert!(settings(63 * MIB, 2).is_empty());
    }

    #[test]
    fn what_glibc_would_do_by_itself_is_not_set() {
        let with_blocks = |bytes, allocations| {
            let report = HeapReport { large_bins: vec![bin(bytes, allocations, 1)], ..HeapReport::default() };
            shown(&derived(&report)).first().cloned()
        };
        assert_eq!(with_blocks(4 * MIB, 8), None, "7 repeats");
        assert_eq!(with_blocks(4 * MIB, 9).as_deref(), Some("MALLOC_MMAP_THRESHOLD_=5242880"));
        assert_eq!(with_blocks(120 << 10, 100), None);
        assert_eq!(with_blocks(124 << 10, 100).as_deref(), Some("MALLOC_MMAP_THRESHOLD_=131072"));
        assert_eq!(with_blocks(31 * MIB, 100).as_deref(), Some("MALLOC_MMAP_THRESHOLD_=33554432"));
        let with_small = |bytes| {
            shown(&derived(&HeapReport { small_live_peak_bytes: bytes, ..HeapReport::default() })).len()
        };
        assert_eq!([0, 1].map(|more| with_small(DEFAULT_THRESHOLD_BYTES + more)), [0, 1]);
    }

    #[test]
    fn more_threads_than_processors_and_than_two_bring_in_the_arenas() {
        for (threads_peak, processors, arenas) in
            [(64, 2, Some("2")), (2, 1, None), (3, 1, Some("1")), (4, 4, None), (5, 4, Some("4"))]
        {
            let report = HeapReport { threads_peak, ..HeapReport::default() };
            let tuning =
                derive(&Evidence { report: Some(&report), others: &[], peak_rss_bytes: 0, processors });
            let arenas = arenas.map(|arenas| format!("MALLOC_ARENA_MAX={arenas}"));
            assert_eq!(
                shown(&tuning),
                arenas.into_iter().collect::<Vec<_>>(),
                "{threads_peak} on {processors}"
            );
        }
    }

    #[test]
    fn a_process_that_asks_again_and_again_counts_beside_one_that_keeps_more() {
        let keeps = HeapReport { large_bins: vec![bin(70 * MIB, 1, 1)], ..HeapReport::default() };
        let asks = HeapReport { large_bins: vec![bin(192 << 10, 1400, 2)], ..HeapReport::default() };
        let of_both = |report, other: &HeapReport| {
            let others = std::slice::from_ref(other);
            derive(&Evidence { report: Some(report), others, peak_rss_bytes: 0, processors: 2 })
        };
        let tuning = of_both(&keeps, &asks);
        assert_eq!(shown(&tuning), ["MALLOC_MMAP_THRESHOLD_=262144", "MALLOC_TRIM_THRESHOLD_=524288"]);
        assert!(tuning.remarks.is_empty(), "{:?}", tuning.remarks);
        let is_of_another =
            |part: &Part| part.reason.ends_with("(a process with less heap than the largest)");
        assert!(tuning.parts.iter().all(is_of_another), "{:?}", tuning.parts);
        assert!(!of_both(&asks, &keeps).parts.iter().any(is_of_another));
        let asks_less = HeapReport { large_bins: vec![bin(136 << 10, 8, 1)], ..HeapReport::default() };
        assert_eq!(of_both(&asks, &asks_less), derived(&asks), "it matters to nobody");
    }

    #[test]
    fn of_what_several_processes_need_the_larger_is_set() {
        let of = |bytes| HeapReport { large_bins: vec![bin(bytes, 1400, 2)], ..HeapReport::default() };
        let (small, large, huge) = (of(256 << 10), of(4 * MIB), of(48 * MIB));
        let set = |report, others: &[&HeapReport]| {
            let others: Vec<HeapReport> = others.iter().map(|other| (*other).clone()).collect();
            shown(&derive(&Evidence {
                report: Some(report),
                others: &others,
                peak_rss_bytes: 0,
                processors: 2,
            }))
        };
        let expected = ["MALLOC_MMAP_THRESHOLD_=5242880", "MALLOC_TRIM_THRESHOLD_=10485760"];
        assert_eq!(set(&small, &[&large]), expected);
        assert_eq!(set(&large, &[&small]), expected);
        let expected = ["MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=125829120"];
        assert_eq!(set(&large, &[&huge, &large]), expected);
    }

    #[test]
    fn without_a_report_both_ways_are_closed() {
        let tuning =
            derive(&Evidence { report: None, others: &[], peak_rss_bytes: 10 * MIB + 1, processors: 2 });
        assert_eq!(shown(&tuning), ["MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=11534336"]);
        let large =
            derive(&Evidence { report: None, others: &[], peak_rss_bytes: 64 * MIB + 1, processors: 2 });
        assert_eq!(shown(&large)[1..], ["MALLOC_TRIM_THRESHOLD_=68157440", "MALLOC_TOP_PAD_=67108864"]);
        let tiny = derive(&Evidence { report: None, others: &[], peak_rss_bytes: 0, processors: 2 });
        assert_eq!(shown(&tiny)[1], "MALLOC_TRIM_THRESHOLD_=131072", "no less than glibc's own");
    }
}
