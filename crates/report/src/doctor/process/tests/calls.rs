//! Time in malloc's calls: of processors, and waiting for its locks.

use super::*;

/// A process that works with two processors for ten seconds.
fn busy() -> ProcessConsultation {
    let mut seen = quiet(100, 2);
    seen.activity.user_s = 20.0;
    seen.activity.threads = 8;
    seen
}

fn time(inside: u64) -> Option<MallocTime> {
    let caller = Some(("parse".into(), inside / 2));
    Some(MallocTime {
        samples: 5000,
        inside,
        caller,
        nameless: 0,
        seconds: 20.0,
        most_missed_s: 8.0,
        program_s: 20.0,
    })
}

fn waits(waits: u64) -> Option<ArenaWaits> {
    Some(ArenaWaits { looks: 400, waits, arenas: 1 })
}

fn found(seen: &ProcessConsultation, concern: Concern) -> Option<Finding> {
    seen.findings().into_iter().find(|finding| finding.concern == concern)
}

#[test]
fn threads_that_wait_for_an_arena_are_time_that_the_allocator_wastes() {
    let mut seen = ProcessConsultation { arena_waits: waits(1640), ..busy() };
    let locks = found(&seen, Concern::Locks).unwrap();
    assert_eq!(
        locks.sentence,
        "at each moment 4.1 of its 8 threads wait for the lock of malloc's only arena (400 looks)"
    );
    assert!(locks.advice.unwrap().starts_with("a block is freed under the lock"));
    let verdict = verdict_of(&seen);
    assert_eq!(
        verdict,
        "its allocator wastes the time of 4.1 threads, which wait for its locks; the lines below try what helps on a new process"
    );
    seen.environment = vec![("MALLOC_ARENA_MAX".into(), "1".into())];
    let advice = found(&seen, Concern::Locks).unwrap().advice.unwrap();
    assert!(advice.starts_with("MALLOC_ARENA_MAX in its environment allows so few"), "{advice}");
    // Who was stopped in a wait has waited for nobody since.
    seen.is_halted = true;
    assert_eq!(found(&seen, Concern::Locks), None);
    seen.is_halted = false;
    // A twentieth of what it works, and fewer than can be told from chance.
    for (few, user_s) in [(39, 20.0), (19, 0.1)] {
        seen.arena_waits = waits(few);
        seen.activity.user_s = user_s;
        assert_eq!(found(&seen, Concern::Locks), None, "{few}");
    }
    seen.arena_waits = Some(ArenaWaits { looks: 9, waits: 6000, arenas: 1 });
    assert_eq!(found(&seen, Concern::Locks), None);
}

#[test]
fn much_time_in_mallocs_calls_is_worth_a_trial() {
    let seen = ProcessConsultation { malloc_time: time(1150), arena_waits: waits(0), ..busy() };
    let time_finding = found(&seen, Concern::Time).unwrap();
    assert_eq!(
        time_finding.sentence,
        "malloc's calls take 23.0 % of the processor time in the program itself (5,000 samples), 50.0 % of that for parse"
    );
    assert_eq!(time_finding.waste, None);
    let verdict = verdict_of(&seen);
    assert_eq!(
        verdict,
        "leave its allocator alone as to memory and page faults: nothing was found that it wastes; malloc's calls take 23.0 % of the time in \
         the program: faultless doctor -- CMD compares it on a fixed amount of work"
    );
    assert!(seen.line_to_try(&seen.findings()).is_some());
}

#[test]
fn little_time_in_mallocs_calls_ends_the_matter() {
    let seen = ProcessConsultation { malloc_time: time(150), arena_waits: waits(0), ..busy() };
    assert_eq!(found(&seen, Concern::Time), None);
    assert_eq!(
        verdict_of(&seen),
        "leave its allocator alone: nothing was found that it wastes; malloc's calls take 3.0 % of the time in the program"
    );
    assert_eq!(seen.line_to_try(&seen.findings()), None);
    let hardly = ProcessConsultation { malloc_time: time(20), arena_waits: waits(0), ..busy() };
    let verdict = verdict_of(&hardly);
    assert!(verdict.ends_with("; malloc's calls take hardly any of the time in the program"), "{verdict}");
    let without_waits = ProcessConsultation { malloc_time: time(150), ..busy() };
    assert_eq!(
        verdict_of(&without_waits),
        "leave its allocator alone as to memory and page faults: nothing was found that it wastes; malloc's calls take 3.0 % of the time in \
         the program"
    );
    let without_time = ProcessConsultation { arena_waits: waits(0), ..busy() };
    let verdict = verdict_of(&without_time);
    assert!(
        verdict.contains("; what malloc's calls take of its processor time was not seen: faultless doctor"),
        "{verdict}"
    );
    let idle = ProcessConsultation { malloc_time: time(150), arena_waits: waits(0), ..quiet(100, 2) };
    assert!(verdict_of(&idle).ends_with("nothing was found that it wastes"), "{}", verdict_of(&idle));
}

#[test]
fn of_a_busy_process_it_is_said_that_the_time_of_its_calls_was_not_seen() {
    let busy = |heap_mib, file_mib, user_s| {
        let quiet = quiet(heap_mib, file_mib);
        ProcessConsultation { activity: Activity { user_s, ..quiet.activity }, ..quiet }
    };
    let of_calls = busy(100, 2, 1.0);
    let says = "leave its allocator alone as to memory and page faults: nothing was found that it wastes; what malloc's calls take of its \
                processor time was not seen";
    assert_eq!(
        verdict_of(&of_calls),
        format!("{says}: faultless doctor -- CMD compares it on a fixed amount of work")
    );
    // Its command line goes on for as long as it is let, and does more or less in that time.
    assert_eq!(line_of(&of_calls), None);
    let obstacle = Some("a preload does not reach server: it is linked statically".into());
    assert_eq!(verdict_of(&ProcessConsultation { obstacle, ..of_calls }), says);
    assert!(verdict_of(&busy(100, 2, 0.9)).starts_with("leave its allocator alone: nothing"));
    let elsewhere = busy(2, 100, 5.0);
    assert!(verdict_of(&elsewhere).starts_with("leave malloc alone as to its memory: most"));
}

#[test]
fn samples_of_a_part_of_the_time_and_of_functions_without_names_tell_nothing() {
    let of = |change: &dyn Fn(&mut MallocTime), obstacle: Option<&str>| {
        let mut seen = ProcessConsultation { malloc_time: time(150), arena_waits: waits(0), ..busy() };
        change(seen.malloc_time.as_mut().unwrap());
        seen.obstacle = obstacle.map(str::to_owned);
        let remark = seen.all_remarks().last();
        (verdict_of(&seen).contains("what malloc's calls take of its processor time was not seen"), remark)
    };
    let says =
        |reason: &str| (true, Some(format!("what malloc's calls take of its processor time: {reason}")));
    assert_eq!(
        of(&|time| time.seconds = 12.0, None),
        says(
            "samples stand for 12.00 s of the 20.00 s that the program took; most of the rest is that of threads that soon ended or did little"
        )
    );
    let is_static = Some("a preload does not reach server: it is linked statically");
    assert_eq!(
        of(&|time| time.nameless = 4000, is_static),
        says("of 80.0 % of the samples no function has a name; malloc's may be among them")
    );
    let seen = (false, None);
    assert_eq!(of(&|time| time.seconds = 15.0, None), seen);
    let of_few_threads = |time: &mut MallocTime| (time.seconds, time.most_missed_s) = (12.0, 0.04);
    assert_eq!(of(&of_few_threads, None), seen);
    assert_eq!(of(&|time| time.nameless = 4000, None), seen);
    assert_eq!(of(&|time| time.nameless = 400, is_static), seen);
    let much = ProcessConsultation { malloc_time: time(2500), arena_waits: waits(0), ..busy() };
    assert!(found(&much, Concern::Time).is_some());
    let mut partly = much;
    partly.malloc_time.as_mut().unwrap().seconds = 12.0;
    assert_eq!(found(&partly, Concern::Time), None);
}

#[test]
fn where_the_memory_is_not_mallocs_its_time_is_told_all_the_same() {
    let activity = Activity { user_s: 20.0, ..quiet(10, 100).activity };
    let of = |inside| {
        let seen = ProcessConsultation { malloc_time: time(inside), arena_waits: waits(0), ..quiet(10, 100) };
        verdict_of(&ProcessConsultation { activity, ..seen })
    };
    let start = "leave malloc alone as to its memory: most of that is not malloc's; malloc's calls take ";
    assert_eq!(of(150), format!("{start}3.0 % of the time in the program"));
    assert!(of(1150).starts_with(&format!("{start}23.0 % of the time in the program: faultless doctor")));
}

#[test]
fn json_has_what_was_counted() {
    let seen = ProcessConsultation { malloc_time: time(1150), arena_waits: waits(1640), ..busy() };
    let value: serde_json::Value = serde_json::from_str(&json(&seen)).unwrap();
    assert_eq!(
        value["malloc_time"],
        serde_json::json!({ "samples": 5000, "inside": 1150, "sampled_seconds": 20.0 })
    );
    assert_eq!(value["arena_waits"], serde_json::json!({ "looks": 400, "waits": 1640, "arenas": 1 }));
}
