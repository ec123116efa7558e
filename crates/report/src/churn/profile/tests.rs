//! Profiles of small recordings, read back.

use faultless_diagnosis::churn::circumstances::{Circumstances, MallocCircumstances};
use faultless_diagnosis::churn::malloc_tally::MallocTally;
use faultless_diagnosis::churn::tally::Tally;
use faultless_records::malloc_event::{Allocated, CallCount, MallocEvent, MallocFunction, RingCounts};
use faultless_records::malloc_recording::MallocMechanism;
use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

use super::*;
use crate::pprof::tests::{ReadSample, read};

fn stacks(chains: &[&[&str]]) -> Vec<Vec<String>> {
    chains.iter().map(|chain| chain.iter().map(|&name| name.to_owned()).collect()).collect()
}

fn sample(chain: &[&str], values: &[u64], operation: Option<&str>) -> ReadSample {
    let chain = chain.iter().map(|&name| name.to_owned()).collect();
    (chain, values.to_vec(), operation.map(|word| ("operation".to_owned(), word.to_owned())))
}

/// Calls of munmap of a page each: two of each chain, one of them refused.
fn calls(chains: &[Option<u32>], stacks: Vec<Vec<String>>) -> ChurnRecording {
    let mut tally = Tally::begin(0);
    for chain in chains {
        for result in [Ok(0), Err(22)] {
            tally.take(&MemoryEvent::Call(MemoryCall {
                time_ns: 1,
                pid: 1,
                tid: 1,
                kind: CallKind::Munmap,
                arguments: [0x1000, 4096, 0, 0, 0],
                result,
                stack: chain.map(|index| TakenStack { index, weight: 1 }),
            }));
        }
    }
    tally.finish(Circumstances {
        subject: "thrash 9".into(),
        started_unix_s: 3,
        observed_ns: 5,
        stacks,
        ..Circumstances::default()
    })
}

#[test]
fn calls_of_the_kernel_are_told_by_chain_and_operation() {
    // The first and the last are of other places in the same functions.
    let stacks = stacks(&[&["munmap", "work", "main"], &["munmap", "main"], &["munmap", "work", "main"]]);
    let recording = calls(&[Some(0), Some(1), Some(2)], stacks);
    let profile = ChurnProfile::of_kernel(&recording);
    assert!(profile.has_callers());
    let read = read(&profile.pprof());
    // Whose calls they are stands innermost, as in heap profiles; what it called is the label.
    let expected = [
        sample(&["main"], &[2, 4096], Some("unmap")),
        sample(&["work", "main"], &[4, 2 * 4096], Some("unmap")),
    ];
    assert_eq!(read.samples, expected);
    assert_eq!((read.shown.as_str(), read.value_types.len()), ("calls", 2));
    assert_eq!((read.comment.as_str(), read.time_ns, read.duration_ns), ("thrash 9", 3_000_000_000, 5));
    assert_eq!(profile.folded(), "main 2\nmain;work 4\n");
}

#[test]
fn calls_without_chains_are_in_the_sums_and_given_to_nobody() {
    let recording = calls(&[None, None], Vec::new());
    let profile = ChurnProfile::of_kernel(&recording);
    assert!(!profile.has_callers());
    assert_eq!(read(&profile.pprof()).samples, [sample(&[NOT_SEEN], &[4, 2 * 4096], Some("unmap"))]);
    assert_eq!(profile.folded(), format!("{NOT_SEEN} 4\n"));
    // Every frame of a chain may be one that is not shown.
    let hidden = calls(&[Some(0)], stacks(&[&[]]));
    assert!(!ChurnProfile::of_kernel(&hidden).has_callers());
}

/// 100 blocks of 100 bytes, of which so many were described, each with the next chain; the first of them is freed.
fn blocks(described: u64, chains: &[Option<u32>], stacks: Vec<Vec<String>>) -> MallocRecording {
    let mut tally = MallocTally::default();
    for id in 1..=described {
        let block = Allocated {
            time_ns: 1,
            id,
            size_bytes: 100,
            weight: 1,
            is_tracked: true,
            tid: 1,
            ..Allocated::default()
        };
        tally.take(0, &MallocEvent::Allocated(block), chains[id as usize % chains.len()]);
    }
    tally.take(0, &MallocEvent::Freed { time_ns: 9, id: 1, tid: 1, by_realloc: false }, None);
    let count = CallCount { function: MallocFunction::Malloc, class: 6, calls: 100, bytes: 10_000 };
    tally.set_counts(0, 1, vec![RingCounts { calls: vec![count], ..RingCounts::default() }]);
    tally.finish(MallocCircumstances { observed_ns: 1, stacks, ..MallocCircumstances::default() })
}

#[test]
fn a_heap_profile_has_what_readers_of_heap_profiles_look_for_scaled_to_the_exact_counts() {
    let stacks = stacks(&[&["load", "main"], &["main"]]);
    let recording = blocks(4, &[Some(0), Some(1)], stacks);
    let profile = ChurnProfile::of_malloc(&recording);
    let read = read(&profile.pprof());
    let types: Vec<(&str, &str)> =
        read.value_types.iter().map(|(name, unit)| (name.as_str(), unit.as_str())).collect();
    let expected = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ];
    assert_eq!(types, expected);
    assert_eq!(read.shown, "inuse_space");
    assert_eq!(read.period.0, ("space".to_owned(), "bytes".to_owned()));
    let expected = [
        sample(&["load", "main"], &[50, 5000, 50, 5000], None),
        sample(&["main"], &[50, 5000, 25, 2500], None),
    ];
    assert_eq!(read.samples, expected);
    assert_eq!(profile.folded(), "main 50\nmain;load 50\n");
}

#[test]
fn a_heap_profile_of_a_look_with_pauses_shows_first_what_was_allocated() {
    let mut recording = blocks(4, &[None], Vec::new());
    recording.mechanism = MallocMechanism::Uprobes;
    recording.sizes.entry(6).or_default().unknown.add(1.0, 100);
    assert_eq!(read(&ChurnProfile::of_malloc(&recording).pprof()).shown, "alloc_space");
}

#[test]
fn chains_of_probes_which_begin_in_malloc_are_those_that_begin_with_its_caller() {
    let [of_probes, of_recorder] = [&["__GI___libc_malloc", "load", "main"][..], &["load", "main"]]
        .map(|chain| blocks(4, &[Some(0)], stacks(&[chain])));
    let [of_probes, of_recorder] = [&of_probes, &of_recorder].map(ChurnProfile::of_malloc);
    assert_eq!(of_probes.pprof(), of_recorder.pprof());
    assert_eq!(of_probes.folded(), "main;load 100\n");
}

#[test]
fn a_heap_without_chains_has_its_sums() {
    let recording = blocks(4, &[None], Vec::new());
    let profile = ChurnProfile::of_malloc(&recording);
    assert!(!profile.has_callers());
    assert_eq!(read(&profile.pprof()).samples, [sample(&[NOT_SEEN], &[100, 10_000, 75, 7500], None)]);
}

#[test]
fn blocks_of_sizes_of_which_no_chain_was_seen_are_among_the_sums() {
    let mut recording = blocks(4, &[Some(0)], stacks(&[&["load", "main"]]));
    for sum in recording.functions.values_mut() {
        (sum.amount.count, sum.amount.bytes) = (sum.amount.count + 7, sum.amount.bytes + 56);
    }
    recording.sizes.entry(3).or_default().live.add(5.0, 8);
    let profile = ChurnProfile::of_malloc(&recording);
    assert!(profile.has_callers());
    let expected = [
        sample(&[NOT_SEEN], &[7, 56, 5, 40], None),
        sample(&["load", "main"], &[100, 10_000, 75, 7500], None),
    ];
    assert_eq!(read(&profile.pprof()).samples, expected);
}

#[test]
fn long_names_of_templates_leave_the_table_of_callers_narrow() {
    let name =
        format!("space::Range<{}>::give_back(unsigned long)", "space::Map<(unsigned long)21>, ".repeat(20));
    let recording = calls(&[Some(0)], stacks(&[&["munmap", &name, &name, "main"]]));
    let text = crate::churn::table::text(&recording, None);
    let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    assert!(widest < 150 && text.contains("space::Range<…>::give_back(…)"), "{widest}:\n{text}");
}
