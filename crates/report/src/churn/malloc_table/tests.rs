//! Reports of calls that are made up.

use super::*;
use faultless_diagnosis::churn::circumstances::MallocCircumstances;
use faultless_diagnosis::churn::malloc_tally::MallocTally;
use faultless_records::malloc_event::{Allocated, CallCount, MallocEvent, RingCounts};

fn block() -> Allocated {
    Allocated {
        time_ns: 1000,
        id: 1,
        size_bytes: 100,
        weight: 1,
        is_tracked: true,
        tid: 1,
        ..Allocated::default()
    }
}

fn circumstances(mechanism: MallocMechanism) -> MallocCircumstances {
    MallocCircumstances { mechanism, observed_ns: 1, ..MallocCircumstances::default() }
}

#[test]
fn what_lives_at_several_ends_is_told_from_what_lives_at_one() {
    let of = |processes: usize| {
        let mut tally = MallocTally::default();
        for process in 0..processes {
            tally.take(process, &MallocEvent::Allocated(block()), None);
            tally.end(process);
        }
        let mut recording = tally.finish(circumstances(MallocMechanism::Recorder));
        // As recordings said before.
        recording.peak_live_bytes = 90.0;
        verdict(&recording)
    };
    let (one, three) = (of(1), of(3));
    assert!(
        one.starts_with("At the end about 100 B live in about 1 block; at least about 100 B lived"),
        "{one}"
    );
    assert!(three.starts_with("At the ends of 3 processes together about 300 B live in"), "{three}");
    assert!(three.contains("at least about 90 B lived at once"), "{three}");
    let mut recording = MallocTally::default().finish(circumstances(MallocMechanism::Recorder));
    (recording.processes, recording.execs) = (1, 2);
    assert!(verdict(&recording).starts_with("At the ends of 3 programs together "));
    assert!(heading(&recording).contains(", 1 process, 2 programs by exec; seen by "));
    recording.processes = u64::MAX;
    assert!(verdict(&recording).starts_with("At the ends of "), "a damaged file's");
}

#[test]
fn what_lives_at_the_end_is_given_with_its_error_where_that_is_large() {
    let of = |error| {
        let mut tally = MallocTally::default();
        tally.take(0, &MallocEvent::Allocated(block()), None);
        let mut recording = tally.finish(circumstances(MallocMechanism::Recorder));
        recording.live_error_bytes = error;
        verdict(&recording)
    };
    assert!(of(30.0).contains("live in about 1 block (give or take 30 B); at least"), "{}", of(30.0));
    assert!(!of(9.0).contains("give or take"), "{}", of(9.0));
    assert!(
        of(400.0).contains("in about 1 block (up to 900 B are not ruled out); at least"),
        "{}",
        of(400.0)
    );
}

#[test]
fn a_number_of_blocks_that_is_known_is_not_said_to_be_about_right() {
    let of = |blocks| {
        let mut tally = MallocTally::default();
        tally.take(0, &MallocEvent::Allocated(block()), None);
        let mut recording = tally.finish(circumstances(MallocMechanism::Recorder));
        recording.live_blocks = blocks;
        verdict(&recording)
    };
    assert!(of(Some(7)).contains("about 100 B live in 7 blocks;"), "{}", of(Some(7)));
    assert!(of(None).contains("about 100 B live in about 1 block;"), "{}", of(None));
}

#[test]
fn figures_that_lack_threads_are_not_said_to_be_exact() {
    let of = |threads| {
        let mut recording = MallocTally::default().finish(circumstances(MallocMechanism::Recorder));
        (recording.uncounted_threads, recording.frees, recording.lost) = (threads, 1, 1);
        limits(&recording)
    };
    assert!(of(0).starts_with("Calls and bytes by function and size are exact; "), "{}", of(0));
    assert!(of(3).starts_with("The calls of 3 threads are in no figure; the rest is estimated"), "{}", of(3));
}

#[test]
fn what_probes_lost_is_made_up_for_by_nothing_and_the_figures_are_said_to_be_too_low() {
    let of = |mechanism, lost| {
        let mut tally = MallocTally::default();
        tally.take(0, &MallocEvent::Allocated(block()), None);
        let call = CallCount { function: MallocFunction::Malloc, class: 6, calls: 1, bytes: 100 };
        let counts = RingCounts { calls: vec![call], dropped: lost, ..RingCounts::default() };
        tally.set_counts(0, 1, vec![counts]);
        text(&tally.finish(circumstances(mechanism)), None)
    };
    let (all, some) = (of(MallocMechanism::Uprobes, 0), of(MallocMechanism::Uprobes, 5));
    assert!(!all.contains("at least 1 call") && all.contains("was seen; only the callers' shares"), "{all}");
    assert!(some.contains(": at least 1 call of malloc and its family in "), "{some}");
    assert!(some.contains("\nCalls and bytes are those that were seen: there were more. "), "{some}");
    assert!(some.contains("\nLost: 5 hits of probes, ") && !some.contains("exact"), "{some}");
    assert!(some.contains("`faultless churn --malloc -- CMD`, which begins with the program"), "{some}");
    let recorder = of(MallocMechanism::Recorder, 5);
    assert!(recorder.contains("by function and size are exact; ") && !recorder.contains("at least 1 call"));
}

#[test]
fn who_holds_what_lives_is_named_first_however_often_others_call() {
    let mut tally = MallocTally::default();
    let mut id = 0;
    let mut allocate = |stack: u32, is_kept: bool| {
        id += 1;
        let tid = 100 + i32::try_from(stack).unwrap();
        let block = Allocated { id, tid, ..block() };
        tally.take(0, &MallocEvent::Allocated(block), Some(stack));
        if !is_kept {
            let freed = MallocEvent::Freed { time_ns: 2000, id, tid, by_realloc: false };
            tally.take(0, &freed, None);
        }
    };
    (0..20).for_each(|busy| (0..50).for_each(|_| allocate(busy, false)));
    (0..10).for_each(|_| allocate(20, true));
    let name = |number| if number == 20 { "the_leak".to_owned() } else { format!("busy{number}") };
    let stacks = (0..=20).map(|number| vec!["malloc".into(), name(number), "main".into()]).collect();
    let recording = tally.finish(MallocCircumstances { stacks, ..circumstances(MallocMechanism::Recorder) });
    let verdict = verdict(&recording);
    assert!(verdict.contains("\nWho holds it: the_leak 1000 B (100.0 %, called by main).\n"), "{verdict}");
    let first_row = |table: Option<String>, head: usize| table.unwrap().lines().nth(head).unwrap().to_owned();
    assert!(first_row(callers(&recording, None), 3).contains(" the_leak "));
    assert!(first_row(threads(&recording, None), 3).contains(" 120 "));
}

#[test]
fn a_block_that_outlived_a_stretch_of_looking_is_not_said_to_be_one_too_many() {
    let of = |mechanism| {
        let mut tally = MallocTally::default();
        tally.take(0, &MallocEvent::Allocated(block()), None);
        tally.lose_sight();
        verdict(&tally.finish(circumstances(mechanism)))
    };
    let (uprobes, recorder) = (of(MallocMechanism::Uprobes), of(MallocMechanism::Recorder));
    assert!(
        uprobes.contains("when a stretch of looking ended") && !uprobes.contains("too many"),
        "{uprobes}"
    );
    assert!(uprobes.starts_with("What lives at the end, and who holds it, is not known: "), "{uprobes}");
    assert!(uprobes.contains("`faultless churn --malloc -- CMD`"), "{uprobes}");
    assert!(recorder.contains("too many lived to follow them all"), "{recorder}");
}

#[test]
fn who_keeps_what_it_asks_for_is_named_first_of_what_outlived_a_stretch_of_looking() {
    let mut tally = MallocTally::default();
    for id in 1..=1060 {
        // Twenty of the busy function's blocks lived by chance.
        let (is_leak, is_freed) = (id <= 10, (11..=1040).contains(&id));
        let block = Allocated { id, ..block() };
        tally.take(0, &MallocEvent::Allocated(block), Some(u32::from(is_leak)));
        if is_freed {
            tally.take(0, &MallocEvent::Freed { time_ns: 2000, id, tid: 1, by_realloc: false }, None);
        }
    }
    tally.lose_sight();
    let stacks = ["busy", "the_leak"].map(|name| vec!["malloc".into(), name.into(), "main".into()]);
    let of = MallocCircumstances { stacks: stacks.into(), ..circumstances(MallocMechanism::Uprobes) };
    let recording = tally.finish(of);
    let verdict = verdict(&recording);
    let says = "What became of 30 blocks (2.9 KiB) is not known: they lived when a stretch of looking ended.\n\
                Who asked for them: the_leak 1000 B (33.3 %; all that it asked for, called by main); \
                busy 2 KiB (66.7 %; 1.9 % of what it asked for, called by main).\n";
    assert!(verdict.contains(says), "{verdict}");
    let table = callers(&recording, None).unwrap();
    assert!(table.lines().nth(3).unwrap().contains(" the_leak "), "{table}");
}

#[test]
fn who_held_most_is_named_where_little_of_it_is_left_at_the_end() {
    let of = |freed: u64| {
        let mut tally = MallocTally::default();
        for id in 1..=10 {
            let block = Allocated { id, ..block() };
            tally.take(0, &MallocEvent::Allocated(block), Some(u32::from(id > 8)));
        }
        for id in 1..=freed {
            let free = MallocEvent::Freed { time_ns: 2000, id, tid: 1, by_realloc: false };
            tally.take(0, &free, None);
        }
        let frames = |function: &str| vec![function.to_owned(), "main".to_owned()];
        let stacks = vec![frames("fill_cache"), frames("parse")];
        verdict(&tally.finish(MallocCircumstances { stacks, ..circumstances(MallocMechanism::Recorder) }))
    };
    let all_freed = "Who held that: fill_cache 800 B (80.0 %, called by main); parse 200 B (20.0 %";
    assert!(of(10).contains(all_freed), "{}", of(10));
    assert!(of(9).contains(all_freed) && of(9).contains("Who holds it: parse 100 B"), "{}", of(9));
    assert!(!of(2).contains("Who held"), "{}", of(2));
}

#[test]
fn blocks_that_grow_by_small_steps_are_said_to() {
    let of = |reallocs: u64, frees: u64| {
        let mut recording = MallocTally::default().finish(circumstances(MallocMechanism::Recorder));
        recording.functions.entry(MallocFunction::Realloc).or_default().amount.count = reallocs;
        recording.frees = frees;
        verdict(&recording)
    };
    let said = "Each block got another size from realloc 2,000 times on average; grow it by half";
    assert!(of(20_000, 10).contains(said), "{}", of(20_000, 10));
    assert!(!of(20_000, 1000).contains("realloc"), "as who doubles it each time");
    assert!(!of(2000, 1).contains("realloc"), "no more than one that is cheap");
}
