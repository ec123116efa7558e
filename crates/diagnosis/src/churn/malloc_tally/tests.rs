//! On events whose sums are known.

use faultless_records::malloc_event::CallCount;
use faultless_records::measurement::Ending;

use super::*;

fn allocated(id: u64, size_bytes: u64, weight: u32, tid: i32) -> MallocEvent {
    MallocEvent::Allocated(Allocated {
        time_ns: 1000,
        id,
        size_bytes,
        weight,
        is_tracked: true,
        tid,
        ..Allocated::default()
    })
}

fn freed(id: u64, tid: i32, time_ns: u64) -> MallocEvent {
    MallocEvent::Freed { time_ns, id, tid, by_realloc: false }
}

fn counts(class: u8, calls: u64, bytes: u64) -> Vec<RingCounts> {
    let count = CallCount { function: MallocFunction::Malloc, class, calls, bytes };
    vec![RingCounts { calls: vec![count], ..RingCounts::default() }]
}

fn finish(tally: MallocTally) -> MallocRecording {
    tally.finish(MallocCircumstances { observed_ns: 1, ..MallocCircumstances::default() })
}

#[test]
fn lives_and_threads_are_told_by_what_was_described() {
    let mut tally = MallocTally::default();
    tally.take(0, &MallocEvent::Thread { tid: 2, name: "freer".into() }, None);
    for id in 1..=10 {
        tally.take(0, &allocated(id, 100, 1, 1), Some(0));
    }
    for id in 1..=4 {
        tally.take(0, &freed(id, 1, 1000 + 2048), None);
    }
    for id in 5..=7 {
        tally.take(0, &freed(id, 2, 1000 + 2048), None);
    }
    tally.set_counts(0, 77, counts(6, 10, 1000));
    assert_eq!(tally.calls(), 10);
    let recording = finish(tally);
    let lives = &recording.sizes[&6];
    assert_eq!((lives.freed.count, lives.freed_elsewhere.count, lives.live.bytes), (7.0, 3.0, 300.0));
    assert_eq!(lives.by_life[&11], 7.0);
    assert_eq!((recording.peak_live_bytes, recording.described), (1000.0, 10));
    assert_eq!(recording.threads.len(), 2);
    let handover = &recording.handovers[0];
    assert_eq!(recording.threads[handover.to].name, "freer");
    assert_eq!((recording.threads[handover.from].tid, handover.amount.count), (1, 3.0));
    assert_eq!((recording.callers[0].live.count, recording.callers[0].life_sum_ns), (3.0, 7.0 * 2048.0));
}

#[test]
fn of_blocks_that_lived_when_sight_was_lost_nothing_more_is_known() {
    let mut tally = MallocTally::default();
    for id in 1..=4 {
        tally.take(0, &allocated(id, 100, 2, 1), Some(0));
    }
    tally.take(0, &freed(1, 1, 1000 + 2048), None);
    tally.lose_sight();
    tally.take(0, &allocated(5, 100, 2, 1), Some(0));
    tally.set_counts(0, 77, counts(6, 10, 1000));
    let recording = finish(tally);
    let (lives, caller) = (&recording.sizes[&6], &recording.callers[0]);
    assert_eq!((lives.freed.count, lives.unknown.count, lives.live.count), (2.0, 6.0, 2.0));
    assert_eq!((caller.unknown.bytes, caller.live.bytes), (600.0, 200.0));
    assert_eq!(caller.life_sum_ns, 2.0 * 2048.0, "each stands for two");
}

#[test]
fn a_program_that_another_takes_the_place_of_is_no_process_of_its_own() {
    let mut tally = MallocTally::default();
    for process in 0..2 {
        tally.take(process, &allocated(1, 100, 1, 1), Some(0));
        tally.set_counts(process, 77, counts(6, 1, 100));
    }
    tally.exec(0);
    let recording = finish(tally);
    assert_eq!((recording.processes, recording.execs, recording.programs()), (1, 1, 2));
}

#[test]
fn one_block_that_comes_and_goes_is_not_as_many_as_it_stands_for() {
    let mut tally = MallocTally::default();
    for id in 1..=50 {
        tally.take(0, &allocated(id, 100_000, 1000, 1), None);
        tally.take(0, &freed(id, 1, 2_000_000), None);
    }
    assert!((40_000.0..100_001.0).contains(&finish(tally).peak_live_bytes));
}

#[test]
fn a_few_blocks_that_stand_for_many_are_no_peak_of_as_many() {
    let mut tally = MallocTally::default();
    // 16 blocks grow by turns; of their 320,000 sizes one in 75 was described, sometimes three at once.
    for id in (1..=3000).step_by(3) {
        (id..id + 3).for_each(|id| tally.take(0, &allocated(id, 1_500_000, 75, 1), Some(0)));
        (id..id + 3).for_each(|id| tally.take(0, &freed(id, 1, 2_000_000), None));
    }
    let recording = finish(tally);
    assert_eq!(recording.peak_live_bytes, 4_500_000.0, "{}", recording.peak_live_bytes);
    assert_eq!(recording.held_at_peak, [], "three blocks tell too little");
}

#[test]
fn the_doubt_reaches_as_far_as_so_many_blocks_can_be() {
    let mut tally = MallocTally::default();
    // Of 16 blocks that grew to 2 MB and live, none was described at its last size.
    for id in 1..=2000 {
        tally.take(0, &allocated(id, id * 1000, 160, 1), Some(0));
        tally.take(0, &freed(id, 1, 2_000_000), None);
    }
    let rings = (0..=20).map(|class| {
        let calls = (1..=2000_u64).filter(|id| class_of(id * 1000) == class);
        let (number, sum) = calls.fold((0, 0), |(number, sum), id| (number + 160, sum + 160_000 * id));
        RingCounts {
            reallocated: number - if class == 20 { 16 } else { 0 },
            ..counts(class, number, sum).remove(0)
        }
    });
    tally.set_counts(0, 5, rings.collect());
    tally.set_counts_whole(0, true);
    let recording = finish(tally);
    let live_bytes: f64 = recording.sizes.values().map(|lives| lives.live.bytes).sum();
    let most = live_bytes + 2.0 * recording.live_error_bytes;
    assert!((31e6..=32e6).contains(&most), "{live_bytes} {} of 31.7e6", recording.live_error_bytes);
}

#[test]
fn who_held_most_at_the_peak_is_known_although_all_is_freed_in_the_end() {
    let mut tally = MallocTally::default();
    // A cache that grows beside much that comes and goes; the next program holds less.
    for id in 1..=1000 {
        tally.take(0, &allocated(2 * id, 3000, 1, 1), Some(7));
        tally.take(0, &allocated(2 * id + 1, 1000, 1, 1), Some(8));
        if id % 10 > 0 {
            tally.take(0, &freed(2 * id + 1, 1, 2_000_000), None);
        }
    }
    (2..=2001).filter(|id| id % 20 != 3).for_each(|id| tally.take(0, &freed(id, 1, 3_000_000), None));
    tally.exec(0);
    (1..=100).for_each(|id| tally.take(1, &allocated(id, 100, 1, 1), Some(9)));
    let held = finish(tally).held_at_peak;
    assert_eq!(held.iter().map(|held| held.stack).collect::<Vec<_>>(), [7, 8]);
    assert!((0.96..1.01).contains(&(held[0].bytes / 3e6)), "{held:?}");
    assert!((0.9..1.1).contains(&(held[1].bytes / 1e5)), "{held:?}");
}

#[test]
fn what_lives_at_the_end_lived_at_once_and_more_is_said_less_a_standard_error() {
    let mut tally = MallocTally::default();
    (1..=10_000).for_each(|id| tally.take(0, &allocated(id, 100, 50, 1), None));
    // Of 1,000 described calls the records were lost: the end is scaled to what was counted.
    tally.set_counts(0, 5, counts(6, 550_000, 55_000_000));
    assert!((finish(tally).peak_live_bytes - 55e6).abs() < 1.0);
    let mut tally = MallocTally::default();
    (1..=10_000).for_each(|id| tally.take(0, &allocated(id, 100, 50, 1), None));
    (1..=10_000).for_each(|id| tally.take(0, &freed(id, 1, 2000), None));
    let peak = finish(tally).peak_live_bytes;
    assert!((0.98..1.0).contains(&(peak / 50e6)), "{peak}");
}

#[test]
fn what_lives_at_the_end_has_an_error_where_few_were_described_and_none_where_all_were() {
    let error_of = |weight, freed_blocks: u64| {
        let mut tally = MallocTally::default();
        (1..=100).for_each(|id| tally.take(0, &allocated(id, 100, weight, 1), None));
        (1..=freed_blocks).for_each(|id| tally.take(0, &freed(id, 1, 2000), None));
        finish(tally).live_error_bytes
    };
    assert_eq!((error_of(1, 50), error_of(50, 0)), (0.0, 0.0));
    // Of half of them, which stand for 2,500: the root of 51 x 50 x 49 x 100 x 100 / 2.
    assert!((error_of(50, 50) - 24_995.0).abs() < 1.0, "{}", error_of(50, 50));
    assert!((error_of(50, 100) - 4_949.7).abs() < 0.1, "none was seen to live: {}", error_of(50, 100));
}

#[test]
fn the_doubt_about_what_lives_reaches_no_further_than_what_lived_at_once() {
    let mut tally = MallocTally::default();
    for id in 1..=50 {
        tally.take(0, &allocated(id, 4096, 1000, 1), None);
        tally.take(0, &freed(id, 1, 2000), None);
    }
    let recording = finish(tally);
    assert!(recording.peak_live_bytes < 10_000.0, "{}", recording.peak_live_bytes);
    assert_eq!(2.0 * recording.live_error_bytes, recording.peak_live_bytes);
}

#[test]
fn as_many_blocks_live_as_were_handed_out_and_did_not_come_back() {
    let of = |are_whole| {
        let mut tally = MallocTally::default();
        (1..=3).for_each(|id| tally.take(0, &allocated(id, 100, 100, 1), Some(0)));
        (1..=2).for_each(|id| tally.take(0, &freed(id, 1, 2000), None));
        let rings = counts(6, 300, 30_000).into_iter().map(|ring| RingCounts {
            frees: 220,
            reallocated: 60,
            freed_by_realloc: 10,
            ..ring
        });
        tally.set_counts(0, 5, rings.collect());
        tally.set_counts_whole(0, are_whole);
        finish(tally)
    };
    let (whole, part) = (of(true), of(false));
    let lives = &whole.sizes[&6];
    assert_eq!((lives.live, lives.freed.count), (Estimate { count: 10.0, bytes: 1000.0 }, 290.0));
    assert_eq!((whole.callers[0].live.count, whole.live_error_bytes), (10.0, 0.0));
    assert_eq!(part.sizes[&6].live.count, 100.0);
    assert_eq!(whole.live_blocks, None, "it may go on");
}

#[test]
fn where_more_blocks_came_back_than_were_handed_out_it_is_not_known_how_many_live() {
    let of = |frees| {
        let mut tally = MallocTally::default();
        (1..=3).for_each(|id| tally.take(0, &allocated(id, 100, 100, 1), Some(0)));
        let rings = counts(6, 300, 30_000).into_iter().map(|ring| RingCounts { frees, ..ring });
        tally.set_counts(0, 5, rings.collect());
        tally.set_counts_whole(0, true);
        let ending = Some(Ending::Exited(0));
        tally.finish(MallocCircumstances { observed_ns: 1, ending, ..MallocCircumstances::default() })
    };
    let (all_back, others_too) = (of(300), of(301));
    assert_eq!((all_back.live_blocks, all_back.remarks), (Some(0), Vec::new()));
    assert_eq!(others_too.live_blocks, None);
    assert_eq!(others_too.sizes[&6].live, Estimate { count: 300.0, bytes: 30_000.0 });
    assert!(others_too.remarks[0].contains("handed out 1 block that was freed"), "{:?}", others_too.remarks);
}

#[test]
fn what_must_live_beside_what_was_seen_to_live_is_not_laid_to_who_holds_a_block_that_stands_for_itself_alone()
{
    let mut tally = MallocTally::default();
    // One block of one function lives, which stands for itself alone. Of another's 1,000 times 100 those that were described were freed.
    tally.take(0, &allocated(1, 304, 1, 1), Some(0));
    (2..=1001).for_each(|id| tally.take(0, &allocated(id, 400, 100, 1), Some(1)));
    (2..=1001).for_each(|id| tally.take(0, &freed(id, 1, 2000), None));
    let rings = counts(8, 100_001, 40_000_304).into_iter().map(|ring| RingCounts { frees: 99_900, ..ring });
    tally.set_counts(0, 5, rings.collect());
    tally.set_counts_whole(0, true);
    let recording = finish(tally);
    let live = |stack| recording.callers.iter().find(|caller| caller.stack == stack).unwrap().live;
    let near = |is: Estimate, count: f64, bytes: f64| {
        (is.count - count).abs() < 0.1 && (is.bytes - bytes).abs() < 50.0
    };
    assert!(near(live(0), 1.0, 304.0) && near(live(1), 0.0, 0.0), "{:?} {:?}", live(0), live(1));
    assert!(near(recording.sizes[&8].live, 101.0, 40_304.0), "{:?}", recording.sizes[&8].live);
}

#[test]
fn no_more_bytes_live_than_were_asked_for_in_all() {
    let mut tally = MallocTally::default();
    // By chance the larger ones of four calls for 5,000 bytes were described.
    tally.take(0, &allocated(1, 2000, 2, 1), Some(0));
    tally.take(0, &allocated(2, 1800, 2, 1), None);
    tally.set_counts(0, 5, counts(10, 4, 5000));
    let recording = finish(tally);
    let near = |bytes: f64| (bytes - 5000.0).abs() < 1e-6;
    let lives = &recording.sizes[&10];
    assert!(lives.live.count == 4.0 && near(lives.live.bytes), "{:?}", lives.live);
    let (caller, thread) = (&recording.callers[0], &recording.threads[0]);
    assert!(near(caller.allocated.bytes) && near(caller.live.bytes), "{caller:?}");
    assert!(near(thread.allocated.bytes), "{thread:?}");
    assert!(near(recording.peak_live_bytes), "{}", recording.peak_live_bytes);
}

#[test]
fn what_an_ended_program_held_does_not_live_beside_the_next() {
    let mut tally = MallocTally::default();
    for process in 0..10 {
        tally.take(process, &allocated(1, 100, 1, 5), None);
        tally.end(process);
        // Its last records may be read when it is known to be over.
        tally.take(process, &freed(1, 5, 2000), None);
        tally.take(process, &allocated(2, 90, 1, 5), None);
    }
    tally.take(10, &allocated(1, 10, 1, 6), None);
    assert_eq!(finish(tally).peak_live_bytes, 100.0);
}

#[test]
fn what_several_processes_hold_at_the_end_they_hold_at_once() {
    let mut tally = MallocTally::default();
    for process in 0..3 {
        for id in 1..=100 {
            tally.take(process, &allocated(id, 1000, 30, 5), None);
        }
    }
    tally.end(2);
    let peak = finish(tally).peak_live_bytes;
    assert!((6e6..9e6).contains(&peak), "{peak}");
}

#[test]
fn what_was_lost_on_the_way_is_made_up_for() {
    let mut tally = MallocTally::default();
    // 100 calls, of which the descriptions that arrived stand for 40.
    for id in 1..=10 {
        tally.take(3, &allocated(id, 64, 4, 1), None);
    }
    tally.set_counts(3, 5, counts(6, 100, 6400));
    let recording = finish(tally);
    assert_eq!(recording.sizes[&6].live, Estimate { count: 100.0, bytes: 6400.0 });
    assert_eq!(recording.threads[0].allocated.count, 100.0);
    assert_eq!(recording.functions[&MallocFunction::Malloc].amount.count, 100);
}

#[test]
fn a_free_that_is_read_before_its_allocation_is_the_same_free() {
    let mut tally = MallocTally::default();
    tally.take(0, &freed(9, 2, 5000), None);
    tally.take(0, &allocated(9, 32, 1, 1), None);
    let recording = finish(tally);
    assert_eq!((recording.sizes[&5].freed.count, recording.sizes[&5].live.count), (1.0, 0.0));
    assert_eq!(recording.sizes[&5].freed_elsewhere.count, 1.0);
}

#[test]
fn callers_made_no_more_and_no_fewer_calls_of_a_function_than_there_were() {
    let of = |callocs: &[(u32, u32)]| {
        let mut tally = MallocTally::default();
        (1..=100).for_each(|id| tally.take(0, &allocated(id, 700, 10_000, 1), Some(0)));
        for (id, (stack, weight)) in (101..).zip(callocs) {
            let MallocEvent::Allocated(block) = allocated(id, 700, *weight, 1) else { unreachable!() };
            let function = MallocFunction::Calloc;
            tally.take(0, &MallocEvent::Allocated(Allocated { function, ..block }), Some(*stack));
        }
        let mut rings = counts(9, 1_000_000, 700_000_000);
        let of_calloc = CallCount { function: MallocFunction::Calloc, class: 9, calls: 1000, bytes: 700_000 };
        rings[0].calls.push(of_calloc);
        tally.set_counts(0, 5, rings);
        let callers = finish(tally).callers;
        assert!(callers.iter().all(|caller| caller.live.count <= caller.allocated.count), "{callers:?}");
        let calls = |stack| callers.iter().find(|caller| caller.stack == stack).map(|of| of.allocated.count);
        [0, 1, 2].map(|stack| calls(stack).unwrap_or(0.0))
    };
    let near = |is: [f64; 3], wanted: [f64; 3]| {
        assert!(is.iter().zip(wanted).all(|(is, wanted)| (is - wanted).abs() < 1.0), "{is:?}");
    };
    // By chance the one call of calloc that was described stands for 8,000, or one for too few.
    near(of(&[(1, 8000)]), [1e6, 1000.0, 0.0]);
    near(of(&[(1, 100)]), [1e6, 1000.0, 0.0]);
    // The first one stands for itself alone.
    near(of(&[(1, 1), (2, 8000)]), [1e6, 1.0, 999.0]);
    near(of(&[(1, 1)]), [1e6, 1.0, 0.0]);
}

#[test]
fn callers_hold_no_more_than_there_is_where_chains_were_taken_of_some_calls() {
    // By chance those of which chains were taken live longer.
    let mut tally = MallocTally::default();
    for id in 1..=100 {
        tally.take(0, &allocated(id, 100, 1, 1), (id % 10 == 0).then_some(0));
    }
    (1..=100).filter(|id| id % 20 != 0).for_each(|id| tally.take(0, &freed(id, 1, 2000), None));
    tally.set_counts(0, 77, counts(6, 100, 10_000));
    let recording = finish(tally);
    let five = Estimate { count: 5.0, bytes: 500.0 };
    assert_eq!((recording.sizes[&6].live, recording.callers[0].live), (five, five));
}
