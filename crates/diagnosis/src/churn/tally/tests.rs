//! Sums of events that are made up.

use super::*;
use crate::churn::holders;
use crate::churn::makers::Makers;
use faultless_records::churn_recording::{Mechanism, Pattern};

const SMALL: u64 = 4096;
const LARGE: u64 = 1 << 20;

const MAP_PRIVATE: u64 = 2;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;
const MADV_HUGEPAGE: u64 = 14;

fn event(length: u64, chain: Option<TakenStack>) -> MemoryEvent {
    let (pid, kind, arguments) = (7, CallKind::Mmap, [0, length, 3, MAP_PRIVATE | MAP_ANONYMOUS, 0]);
    match chain {
        Some(stack) => MemoryEvent::Chain { pid, kind, arguments, stack },
        None => MemoryEvent::Call(MemoryCall {
            time_ns: 1,
            pid,
            tid: 7,
            kind,
            arguments,
            result: Ok(0x7f00_0000_0000),
            stack: None,
        }),
    }
}

/// 100 small mappings and as many large ones, with the chains of so many of each.
fn recording(small_chains: u32, large_chains: u32, weight: u32, lost: u64) -> ChurnRecording {
    let mut tally = Tally::begin(0);
    for (index, length, chains) in [(0, SMALL, small_chains), (1, LARGE, large_chains)] {
        (0..100).for_each(|_| tally.take(&event(length, None)));
        let stack = TakenStack { index, weight };
        (0..chains).for_each(|_| tally.take(&event(length, Some(stack))));
    }
    tally.take(&MemoryEvent::LostChains { chains: lost });
    finished(tally, Mechanism::Tracepoints)
}

fn finished(tally: Tally, mechanism: Mechanism) -> ChurnRecording {
    tally.finish(Circumstances {
        mechanism,
        observed_ns: 1,
        stacks: vec![vec!["small".into()], vec!["large".into()]],
        ..Circumstances::default()
    })
}

fn callers(recording: &ChurnRecording) -> Vec<(&str, u64, u64)> {
    let name = |caller: &CallerSum| recording.stacks[caller.stack as usize][0].as_str();
    recording.callers.iter().map(|caller| (name(caller), caller.amount.count, caller.amount.bytes)).collect()
}

#[test]
fn a_process_that_makes_no_call_is_one_all_the_same() {
    let mut tally = Tally::begin(0);
    tally.attach(7);
    tally.attach(7);
    assert_eq!(tally.processes_seen, 1);
}

#[test]
fn calls_are_told_apart_by_what_they_are_for() {
    let mut tally = Tally::begin(0);
    let mut operation = |kind, third, fourth| tally.classify(7, kind, &[0, SMALL, third, fourth, 0], Ok(0)).0;
    let advice = [4, 24, 8, 9, 14, 15, 25, 21].map(|advice| operation(CallKind::Madvise, advice, 0).name());
    let names = ["DONTNEED", "DONTNEED", "FREE", "REMOVE", "HUGEPAGE", "NOHUGEPAGE", "COLLAPSE", "other"];
    assert_eq!(advice, names.map(|name| format!("madvise {name}")));
    // Private, shared, and such as the kernel may drop; a file of each of the first.
    let mappings = [0x22, 0x21, 0x28, 0x02, 0x01].map(|flags| operation(CallKind::Mmap, 3, flags).name());
    assert_eq!(mappings, ["memory", "shared", "memory", "file", "file"].map(|name| format!("mmap {name}")));
}

#[test]
fn addresses_without_access_over_a_mapping_give_it_back() {
    let mut tally = Tally::begin(0);
    tally.know(7, 0x7000_0000, 0x7100_0000);
    let mut name = |start, flags| {
        let call = [start, SMALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | flags, 0];
        tally.classify(7, CallKind::Mmap, &call, Ok(start)).0.name()
    };
    assert_eq!(name(0x7000_0000, MAP_FIXED), "mmap purge");
    assert_eq!(name(0x7000_0000, 0), "mmap reserve", "elsewhere");
    assert_eq!(name(0x6000_0000, MAP_FIXED), "mmap reserve", "nothing was there");
}

#[test]
fn mappings_that_grow_into_one_are_counted_once_and_have_no_lives() {
    let mut tally = Tally::of_records(0);
    // What was there at the start is joined to, too.
    tally.know(7, 0x7fff_0000_0000, 0x8000_0000_0000);
    for number in 1..=300 {
        let MemoryEvent::Call(mut call) = event(number * LARGE + (1 << 32), None) else { return };
        call.result = Ok(0x7fff_0000_0000 - number * LARGE);
        tally.take(&MemoryEvent::Call(call));
    }
    let recording = finished(tally, Mechanism::MmapRecords);
    let sum = &recording.operations[&Operation::MapAnonymous];
    assert_eq!(sum.amount, Amount { count: 300, bytes: 300 * LARGE });
    assert_eq!(sum.sizes[&class_of(LARGE)].count, 300);
    assert!(recording.ended_mappings.is_empty() && recording.cycles.is_empty());
    assert_eq!(recording.live_mappings, Amount::default());
}

#[test]
fn a_heap_of_records_grows_by_what_was_not_mapped_before() {
    let mut tally = Tally::of_records(0);
    let (start, step) = (0x5555_0000_0000, 132 << 10);
    for growths in [1, 2, 4, 4] {
        let MemoryEvent::Call(call) = event(LARGE, None) else { return };
        let end = start + growths * step;
        let (kind, arguments) = (CallKind::Brk, [end, BREAK_GREW, start, 0, 0]);
        tally.take(&MemoryEvent::Call(MemoryCall { kind, arguments, result: Ok(end), ..call }));
    }
    let recording = finished(tally, Mechanism::MmapRecords);
    let sum = &recording.operations[&Operation::BreakGrow];
    assert_eq!(sum.amount, Amount { count: 4, bytes: 4 * step });
    assert_eq!(sum.sizes[&class_of(step)].count, 2);
}

#[test]
fn callers_bytes_are_together_those_of_the_operation() {
    let of_a_sample = recording(1, 3, 50, 0);
    let all = of_a_sample.operations[&Operation::MapAnonymous].amount;
    let sum = callers(&of_a_sample).iter().fold((0, 0), |sum, caller| (sum.0 + caller.1, sum.1 + caller.2));
    assert_eq!(sum.0, all.count);
    assert!(sum.1.abs_diff(all.bytes) <= 2, "{sum:?} of {all:?}");
    assert_eq!(of_a_sample.chains, Chains { taken: 4, lost: 0 });
}

#[test]
fn three_chains_of_a_start_do_not_stand_for_a_burst_of_which_none_was_taken() {
    let after_three = |burst: u32, chains: u32| {
        let mut tally = Tally::begin(0);
        (0..burst).for_each(|_| tally.take(&event(SMALL, None)));
        (0..3).for_each(|_| tally.take(&event(SMALL, Some(TakenStack { index: 0, weight: 1 }))));
        (0..chains).for_each(|_| tally.take(&event(SMALL, Some(TakenStack { index: 1, weight: 61 }))));
        let recording = finished(tally, Mechanism::Tracepoints);
        callers(&recording).iter().map(|caller| (caller.0.to_owned(), caller.1)).collect::<Vec<_>>()
    };
    assert_eq!(after_three(10_000, 0), [(NOT_SEEN.to_owned(), 9997), ("small".to_owned(), 3)]);
    let sampled = after_three(10_000, 160);
    assert_eq!((sampled[0].0.as_str(), sampled.len()), ("large", 2), "{sampled:?}");
}

#[test]
fn callers_are_together_said_to_have_made_as_many_calls_as_there_were() {
    let mut tally = Tally::begin(0);
    (0..100).for_each(|_| tally.take(&event(SMALL, None)));
    (0..7).for_each(|index| tally.take(&event(SMALL, Some(TakenStack { index, weight: 10 }))));
    let stacks = (0..7).map(|index| vec![format!("caller {index}")]).collect();
    let of_a_sample = tally.finish(Circumstances {
        mechanism: Mechanism::Tracepoints,
        observed_ns: 1,
        stacks,
        ..Circumstances::default()
    });
    // 14.29 each.
    let calls: Vec<u64> = callers(&of_a_sample).iter().map(|caller| caller.1).collect();
    assert_eq!((calls.len(), calls.iter().sum::<u64>()), (7, 100));
    assert!(calls.iter().all(|calls| (14..=15).contains(calls)), "{calls:?}");
    assert_eq!(callers(&of_a_sample).iter().map(|caller| caller.2).sum::<u64>(), 100 * SMALL);
}

#[test]
fn calls_whose_chains_were_lost_are_not_given_to_callers_that_were_seen() {
    let seen = recording(20, 100, 1, 80);
    let expected = [("large", 100, 100 * LARGE), (NOT_SEEN, 80, 80 * SMALL), ("small", 20, 20 * SMALL)];
    assert_eq!(callers(&seen), expected);
    assert_eq!(seen.chains, Chains { taken: 120, lost: 80 });
    assert_eq!(Makers::of(&seen, &[Operation::MapAnonymous]).part_of_malloc(), Some(0.0));
}

#[test]
fn what_one_caller_asked_for_and_did_not_get_is_taken_from_no_other() {
    let mut tally = Tally::begin(0);
    let much = LARGE << 30;
    for (index, length, result) in [(0, SMALL, Ok(0x7f00_0000_0000)), (1, much, Err(ENOMEM))] {
        let MemoryEvent::Call(call) = event(length, None) else { return };
        (0..100).for_each(|_| tally.take(&MemoryEvent::Call(MemoryCall { result, ..call })));
        tally.take(&event(length, Some(TakenStack { index, weight: 60 })));
    }
    let of_a_sample = finished(tally, Mechanism::Tracepoints);
    assert_eq!(callers(&of_a_sample), [("small", 100, 100 * SMALL), ("large", 100, 0)]);
}

#[test]
fn what_is_given_back_around_a_hole_is_no_failed_call() {
    let mut tally = Tally::begin(0);
    let mut worked = |advice, error| {
        tally.classify(7, CallKind::Madvise, &[0, LARGE, advice, 0, 0], Err(error)).2.is_some()
    };
    assert!(worked(MADV_DONTNEED, ENOMEM) && worked(MADV_FREE, ENOMEM));
    let einval = 22;
    assert!(!worked(MADV_DONTNEED, einval) && !worked(MADV_HUGEPAGE, ENOMEM));
}

#[test]
fn calls_of_a_size_that_no_chain_was_taken_of_are_nobodys() {
    let of_a_sample = recording(2, 0, 50, 0);
    assert_eq!(callers(&of_a_sample), [("small", 100, 100 * SMALL), (NOT_SEEN, 100, 100 * LARGE)]);
    assert!(callers(&recording(0, 0, 1, 0)).is_empty(), "no way to see callers");
}

#[test]
fn what_is_held_to_the_end_is_told_by_who_mapped_it_where_that_is_known() {
    let mut tally = Tally::begin(0);
    let place = 0x7f00_0000_0000;
    for (number, chain) in [(0, Some(0)), (1, Some(1)), (2, None), (3, Some(1))] {
        if let Some(index) = chain {
            tally.take(&event(LARGE, Some(TakenStack { index, weight: 1 })));
        }
        let MemoryEvent::Call(mut call) = event(LARGE, None) else { return };
        call.result = Ok(place + number * LARGE);
        tally.take(&MemoryEvent::Call(call));
    }
    let MemoryEvent::Call(call) = event(LARGE, None) else { return };
    let (kind, arguments) = (CallKind::Munmap, [place, LARGE, 0, 0, 0]);
    tally.take(&MemoryEvent::Call(MemoryCall { kind, arguments, result: Ok(0), ..call }));
    let recording = finished(tally, Mechanism::Tracepoints);
    assert_eq!(recording.live_mappings, Amount { count: 3, bytes: 3 * LARGE });
    let held = holders::of_mappings(&recording);
    let held: Vec<(&str, f64)> = held.iter().map(|one| (one.function.as_str(), one.bytes)).collect();
    assert_eq!(held, [("large", 2.0 * LARGE as f64)]);
}

/// A recording of calls, a microsecond apart.
fn of_calls(calls: &[(CallKind, [u64; 5], Result<u64, i32>)]) -> ChurnRecording {
    let mut tally = Tally::begin(0);
    for (time_us, (kind, arguments, result)) in (1..).zip(calls) {
        let MemoryEvent::Call(call) = event(LARGE, None) else { unreachable!() };
        let (kind, arguments, result) = (*kind, *arguments, *result);
        tally.take(&MemoryEvent::Call(MemoryCall {
            time_ns: time_us * 1000,
            kind,
            arguments,
            result,
            ..call
        }));
    }
    finished(tally, Mechanism::Seccomp)
}

#[test]
fn questions_for_the_heaps_end_and_calls_that_fail_give_nothing_back() {
    let (heap, enomem) = (0x10_0000, 12);
    let recording = of_calls(&[
        (CallKind::Brk, [0; 5], Ok(heap)),
        (CallKind::Brk, [heap + LARGE, 0, 0, 0, 0], Ok(heap + LARGE)),
        (CallKind::Brk, [0; 5], Ok(heap + LARGE)),
        (CallKind::Brk, [heap + (1 << 50), 0, 0, 0, 0], Ok(heap + LARGE)),
        (CallKind::Mmap, [0, LARGE, 3, MAP_PRIVATE | MAP_ANONYMOUS, 0], Err(enomem)),
    ]);
    let of = |operation| {
        let sum = &recording.operations[&operation];
        (sum.amount.count, sum.amount.bytes, sum.failed)
    };
    assert_eq!(of(Operation::BreakQuery), (2, 0, 0));
    assert_eq!(of(Operation::BreakGrow), (1, LARGE, 1));
    assert_eq!(of(Operation::MapAnonymous), (0, 0, 1));
    assert!(recording.cycles.is_empty() && recording.bytes_given_back() == 0);
}

#[test]
fn a_mapping_lives_from_its_making_to_its_end_and_goes_on_where_it_is_moved() {
    let (here, there, flags) = (0x7f00_0000_0000, 0x7e00_0000_0000, MAP_PRIVATE | MAP_ANONYMOUS);
    let make = (CallKind::Mmap, [0, LARGE, 3, flags, 0], Ok(here));
    let end_at = |start| (CallKind::Munmap, [start, LARGE, 0, 0, 0], Ok(0));
    let recording =
        of_calls(&[make, end_at(here), (CallKind::Mmap, [0, SMALL, 1, MAP_PRIVATE, 0], Ok(here))]);
    let [lives] = recording.ended_mappings.values().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(
        (lives.amount, lives.by_life.clone()),
        (Amount { count: 1, bytes: LARGE }, [(class_of(1000), 1)].into())
    );
    let moved = |flags| (CallKind::Mremap, [here, LARGE, LARGE, flags, 0], Ok(there));
    let of_moved = of_calls(&[make, moved(1)]);
    assert_eq!((of_moved.live_mappings.count, of_moved.ended_mappings.len()), (1, 0));
    let of_both = of_calls(&[make, moved(1 | MREMAP_DONTUNMAP)]);
    assert_eq!((of_both.live_mappings.bytes, of_both.ended_mappings.len()), (2 * LARGE, 0));
    assert_eq!(of_calls(&[make, moved(1), make]).cycles, [], "nothing was given back");
}

#[test]
fn what_is_advised_again_and_again_is_a_purge_of_the_same_pages_only_if_it_takes_them() {
    let start = 0x7f00_0000_0000;
    let advise = |advice| (CallKind::Madvise, [start, LARGE, advice, 0, 0], Ok(0));
    let times = |calls: &[_]| of_calls(calls).cycles.iter().map(|cycle| cycle.amount.count).sum::<u64>();
    assert_eq!(times(&[advise(MADV_DONTNEED); 3]), 2);
    assert_eq!(times(&[advise(MADV_HUGEPAGE); 3]), 0);
    let make = (CallKind::Mmap, [start, LARGE, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, 0], Ok(start));
    assert_eq!(times(&[make, advise(MADV_DONTNEED), make, advise(MADV_DONTNEED)]), 1, "the mapping alone");
}

#[test]
fn trims_of_an_arena_that_was_there_at_the_start_are_no_purges() {
    let (heap, other) = (Extent::new(0x7f00_0000_0000, 64 << 20), Extent::new(0x7e00_0000_0000, 64 << 20));
    let pattern_at = |start: u64| {
        let mut tally = Tally::begin(0);
        tally.know_heap(7, heap);
        let MemoryEvent::Call(call) = event(LARGE, None) else { unreachable!() };
        let (kind, arguments) = (CallKind::Madvise, [start + LARGE, LARGE, MADV_DONTNEED, 0, 0]);
        for _ in 0..2 {
            tally.take(&MemoryEvent::Call(MemoryCall { kind, arguments, result: Ok(0), ..call }));
        }
        let recording = finished(tally, Mechanism::Tracepoints);
        assert_eq!(recording.live_mappings, Amount::default(), "none that it made");
        recording.cycles[0].pattern
    };
    assert_eq!(pattern_at(heap.start), Pattern::ArenaTrim);
    assert_eq!(pattern_at(other.start), Pattern::Purge);
}
