use super::*;
use faultless_diagnosis::churn::circumstances::Circumstances;
use faultless_diagnosis::churn::tally::Tally;
use faultless_records::churn_recording::{Amount, CallerSum, Chains, Cycle, Timeline};

#[test]
fn bars_and_sparks_show_the_smallest_number() {
    assert_eq!(bar(1000, 1000).chars().count(), BAR);
    assert_eq!((bar(1, 1000), bar(0, 1000)), ("▏".to_owned(), String::new()));
    assert_eq!(sparks(&[0, 1, 50, 100]), " ▁▄█");
}

#[test]
fn what_following_many_processes_costs_is_said_not_to_be_among_the_cost_of_calls() {
    let of = |processes, mechanism| {
        let circumstances = Circumstances { cost_per_call_ns: Some(2000.0), ..Circumstances::default() };
        let recording = Tally::begin(0).finish(circumstances);
        overhead(&ChurnRecording { processes, mechanism, ..recording }).unwrap_or_default()
    };
    let said = "Not among it is what the start and the end of each of 1,001 processes";
    assert!(of(1001, Mechanism::Tracepoints).contains(said));
    assert!(!of(99, Mechanism::Tracepoints).contains("Not among"));
    assert!(!of(1001, Mechanism::Seccomp).contains("Not among"));
}

#[test]
fn who_makes_less_than_half_of_the_calls_does_not_make_most() {
    let of = |part, functions| makers(&Foremost { function: "m0".into(), part, functions });
    assert_eq!(of(0.51, 2), ", most by m0");
    assert_eq!(of(0.05, 20), ", by 20 functions, the first m0 (5.0 %)");
}

#[test]
fn a_usual_size_is_named_where_most_calls_have_one_that_is_known() {
    let sum = |calls: u64| OperationSum {
        amount: Amount { count: calls, bytes: 3 * (400 << 10) },
        failed: 0,
        sizes: [(18, Amount { count: 3, bytes: 3 * (400 << 10) })].into(),
    };
    assert_eq!([3, 5, 447].map(|calls| usual_size(&sum(calls))), ["400 KiB (100 %)", "400 KiB (60 %)", "-"]);
}

#[test]
fn mappings_that_ended_larger_or_smaller_than_they_were_made_have_rows_of_their_own() {
    let amount = |count: u64, bytes| Amount { count, bytes: count * bytes };
    let made =
        OperationSum { amount: amount(7, 1 << 20), failed: 0, sizes: [(20, amount(7, 1 << 20))].into() };
    let ended = |class: u8, count| {
        (class, Lifetimes { amount: amount(count, 1 << class), by_life: [(13, count)].into() })
    };
    let recording = ChurnRecording {
        operations: [(Operation::MapAnonymous, made)].into(),
        ended_mappings: [ended(12, 14), ended(23, 7)].into(),
        ..Tally::begin(0).finish(Circumstances::default())
    };
    let text = sizes(&recording, None).unwrap_or_default();
    let rows: Vec<Vec<&str>> = text.lines().skip(3).map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["4", "KiB", "-", "14", "16", "µs", "16", "µs"], "{text}");
    assert_eq!(rows[1], ["1", "MiB", "7", "████████████████████████", "-", "-", "-"], "{text}");
    assert_eq!(rows[2], ["8", "MiB", "-", "7", "16", "µs", "16", "µs"], "{text}");
}

#[test]
fn a_success_is_not_worth_a_line() {
    assert_eq!([None, Some(Ending::Exited(0))].map(failure), ["", ""]);
    let failures = [Ending::Exited(7), Ending::Killed(11)].map(|ending| failure(Some(ending)));
    let expected = ["The command ended with exit status 7.\n", "The command was killed by SIGSEGV.\n"];
    assert_eq!(failures, expected);
}

#[test]
fn quantiles_are_the_upper_ends_of_their_classes() {
    let mut lives = Lifetimes::default();
    lives.by_life.extend([(10, 50), (20, 40), (30, 10)]);
    assert_eq!(life_below(&lives, 0.5), Some(2048));
    assert_eq!(life_below(&lives, 0.9), Some(1 << 21));
    assert_eq!(life_below(&lives, 0.91), Some(1 << 31));
    assert_eq!(life_below(&Lifetimes::default(), 0.5), None);
}

#[test]
fn rates_of_nothing_are_dashes() {
    assert_eq!(
        [rate(10.0, 0.0), rate(0.0, 1.0), rate(31_000.0, 1.0), rate(3.0, 2.0)],
        ["-", "0", "31,000", "1.5"]
    );
}

#[test]
fn the_report_tells_all_that_a_recording_holds() {
    let amount = |count, bytes| Amount { count, bytes };
    let sum = |count, bytes, failed, sizes: &[(u8, Amount)]| OperationSum {
        amount: amount(count, bytes),
        failed,
        sizes: sizes.iter().copied().collect(),
    };
    let stack = |frames: &[&str]| frames.iter().map(|&frame| frame.to_owned()).collect::<Vec<_>>();
    let caller = |stack, operation, amount| CallerSum { stack, operation, amount };
    let lives = Lifetimes { amount: amount(295, 295 << 20), by_life: [(20, 295)].into() };
    let cycle = Cycle {
        pattern: Pattern::Mapping,
        size_class: 20,
        amount: amount(294, 294 << 20),
        smallest_bytes: 1 << 20,
        largest_bytes: 1 << 20,
        seen_ns: (0, 2_000_000_000),
        gap_sum_ns: 294_000_000,
    };
    let recording = ChurnRecording {
        subject: "work".into(),
        ending: Some(Ending::Exited(3)),
        mechanism: Mechanism::Tracepoints,
        refused: Some("seccomp".into()),
        observed_ns: 2_000_000_000,
        processes: 2,
        threads_started: 3,
        execs: 1,
        lost_calls: 7,
        cost_per_call_ns: Some(250_000.0),
        operations: [
            (Operation::MapAnonymous, sum(300, 300 << 20, 20, &[(20, amount(300, 300 << 20))])),
            (Operation::Unmap, sum(280, 280 << 20, 0, &[])),
        ]
        .into(),
        ended_mappings: [(20, lives)].into(),
        live_mappings: amount(5, 5 << 20),
        live_callers: vec![caller(0, Operation::MapAnonymous, amount(5, 5 << 20))],
        cycles: vec![cycle],
        timeline: Timeline { step_ns: 1_000_000_000, calls: vec![200, 400], returned_bytes: vec![0; 2] },
        chains: Chains { taken: 60, lost: 4 },
        callers: vec![
            caller(0, Operation::MapAnonymous, amount(300, 300 << 20)),
            caller(1, Operation::Unmap, amount(280, 280 << 20)),
        ],
        stacks: vec![stack(&["mmap", "pool_grow", "main"]), stack(&["munmap", "free", "release", "main"])],
        remarks: vec!["what was before".into()],
        ..Tally::begin(0).finish(Circumstances::default())
    };
    let text = text(&recording, None);
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let rule = |line: &String| line.starts_with('─') || line.is_empty();
    let lines: Vec<&str> = lines.iter().filter(|line| !rule(line)).map(String::as_str).collect();
    assert_eq!(
        lines,
        [
            "work: 600 calls in 2.00 s, 2 processes, 3 threads started, 1 program by exec; seen by the kernel's tracepoints",
            "The command ended with exit status 3.",
            "Thrash",
            "the program itself maps 1 MiB and unmaps it 1.0 ms later, 256 pages each time; 147 times a second",
            "294 times in all, 37,632 pages a second, most by pool_grow; no setting of malloc reaches it: let the program keep the \
             mapping and use it again",
            "call calls calls/s bytes bytes/s failed usual size",
            "mmap memory 320 160 300 MiB 150 MiB 20 1 MiB (100 %)",
            "munmap 280 140 280 MiB 140 MiB - -",
            "all 600 300",
            "mmap memory made given half live nine in ten",
            "from back shorter than shorter than",
            "1 MiB 300 ████████████████████████ 295 2.1 ms 2.1 ms",
            "5 mappings, 5 MiB, held to the end.",
            "Who holds it: pool_grow 5 MiB (100.0 %, called by main).",
            "caller call calls bytes called by",
            "pool_grow mmap memory 300 300 MiB main",
            "release munmap, by malloc 280 280 MiB main",
            "Calls over time ▄█",
            "1.0 s a column, at most 400 in 1.0 s",
            "Looking cost about 250 µs a call (measured before), 0.15 s together, 8 % of the time observed.",
            "A better way was refused: seccomp.",
            "Lost: 7 calls; all sums are too small by them.",
            "Callers are known from the call chains of 60 calls out of 600 (4 more lost).",
            "Not seen: what was before",
        ]
    );
    let quiet = ChurnRecording { cycles: Vec::new(), chains: Chains::default(), ..recording };
    let told = |recording: &ChurnRecording| super::text(recording, None);
    assert!(told(&quiet).contains("No thrash found") && !told(&quiet).contains("Callers are known"));
    let blind = ChurnRecording { is_blind_to_some: true, ..quiet.clone() };
    assert!(told(&blind).contains("not known: calls of 32-bit programs"));
    let of_records = ChurnRecording { mechanism: Mechanism::MmapRecords, ..quiet };
    assert!(told(&of_records).contains("not known: what is given back is not seen"));
}
