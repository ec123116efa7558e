use super::*;
use crate::faults::tree::tests::recording;
use faultless_records::fault_recording::{FaultProcess, Faults, Place};

#[test]
fn the_answer_comes_first_and_what_was_remarks_last() {
    let text = text(&recording(), None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "chem: 100 page faults in 2.00 s (50 a second), 2 of them major");
    assert_eq!(lines[1], "95.0 % of them are dgemm's (a b.c:5), on anonymous memory from mmap");
    assert!(text.contains("152  in the processes' own accounts"), "{text}");
    let table: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        "95 95.0 % 0 dgemm a b.c:5 anonymous (mmap)",
        "100 100.0 % 2 anonymous (mmap)",
        "looked at 100 faults: each of 100",
        "observing took 0.005 s of CPU beside the 0.50 s of what was observed (1.0 %)",
        "20 before the command began, in our copy that became it",
    ] {
        assert!(table.contains(&row.split(' ').collect()), "{row}: {text}");
    }
    assert!(text.contains("inside system calls, which we may not see, or on pages populated"), "{text}");
    assert!(text.contains("lost 4 samples: ") && text.contains("3 call chains"), "{text}");
    assert!(text.contains("CAP_PERFMON") && text.contains("no names from /bin/chem: gone"), "{text}");
}

#[test]
fn what_has_no_names_is_said_once_however_often_it_was_mapped() {
    let mut twice = recording();
    twice.tree.modules.extend(recording().tree.modules);
    assert_eq!(text(&twice, None).matches("no names from").count(), 1);
}

#[test]
fn no_deeper_look_is_advised_than_there_can_be() {
    let mut recording = recording();
    recording.method.stack_bytes = u32::MAX;
    assert!(text(&recording, None).contains("--stack 61440 looks further"));
}

#[test]
fn an_answer_from_which_much_is_missing_says_so_at_once() {
    let mut recording = recording();
    let lose = |recording: &mut FaultRecording, number: u64| {
        recording.method.steps[0].minor_faults += number;
        recording.counters.user.minor += number;
        text(recording, None)
    };
    assert!(!lose(&mut recording, 5).contains("were not looked at"), "5 of 105");
    let text = lose(&mut recording, 95);
    assert_eq!(
        text.lines().nth(1).unwrap(),
        "47.5 % of them are dgemm's (a b.c:5), on anonymous memory from mmap"
    );
    assert!(text.lines().nth(2).unwrap().starts_with("50.0 % of them were not looked at"), "{text}");
    assert!(text.contains(" 100   50.0 %       0   [not looked at]"), "{text}");
    recording.counters.user = faultless_records::fault_recording::FaultCounts::default();
    recording.faults.clear();
    assert!(!super::text(&recording, None).contains("were not looked at"), "none of none");
}

#[test]
fn a_kind_of_memory_that_has_a_small_part_does_not_speak_for_the_rest() {
    let mut recording = recording();
    let (anonymous, of_dgemm) = (recording.places[0].clone(), recording.faults[0]);
    recording.faults.remove(0);
    for place in 1..=10 {
        let samples = if place == 10 { 5 } else { 10 };
        let mapping = format!("/objects/{place}");
        recording.places.push(Place { mapping, protection: 1, ..anonymous.clone() });
        recording.faults.push(Faults { place, samples, weight: samples as f64, ..of_dgemm });
    }
    let text = text(&recording, None);
    assert_eq!(text.lines().nth(1), Some("95.0 % of them are dgemm's (a b.c:5)"), "{text}");
    let row = text.lines().find(|line| line.contains(" dgemm ")).unwrap();
    assert!(row.trim_end().ends_with(" 10 kinds"), "{row}");
    let rest = text.lines().find(|line| line.contains("3 other kinds")).unwrap();
    let rest: Vec<&str> = rest.split_whitespace().collect();
    assert_eq!(rest[..4], ["20", "20.0", "%", "2"], "{text}");
}

#[test]
fn many_processes_are_put_together_by_their_names() {
    let mut recording = recording();
    let of_chem = recording.faults[0];
    let each = of_chem.weight as u64;
    for pid in 100..400 {
        let name = if pid < 395 { "true" } else { "sleep" };
        recording.faults.push(Faults { process: recording.processes.len(), ..of_chem });
        recording.processes.push(FaultProcess { pid, name: name.into() });
        recording.method.steps[0].minor_faults += each;
        recording.counters.user.minor += each;
    }
    let text = text(&recording, None);
    let row = |name: &str| {
        let line = text.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let of_true = [&count(295 * each), "98.0", "%", "295", "true", "(100:", &format!("{each})")];
    assert_eq!(row(" true ("), of_true);
    assert_eq!(row(" sleep (")[3..5], ["5", "sleep"]);
    assert_eq!(row(" chem (")[3..6], ["1", "chem", "(7:"]);
}

#[test]
fn with_permission_the_two_gaps_stand_apart() {
    let mut recording = recording();
    recording.counters.kernel = Some(faultless_records::fault_recording::FaultCounts { minor: 20, major: 0 });
    let text = text(&recording, None);
    assert!(text.contains("20  inside system calls: counted by events"), "{text}");
    assert!(text.contains("12  on pages populated without an event"), "{text}");
}

#[test]
fn the_table_is_set_closer_where_there_is_little_room() {
    let mut recording = recording();
    recording.tree.frames[1].function = Some(format!("space::{}::grow(int)", "very_".repeat(20)));
    for columns in [80, 100, 140] {
        let text = text(&recording, Some(columns));
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(widest <= columns, "{widest} of {columns}:\n{text}");
    }
    assert!(text(&recording, None).contains('…'));
}

#[test]
fn a_shortened_name_keeps_the_functions_own() {
    let name = "void std::__new_allocator<long>::construct<long, long>(long*, long&&)";
    assert_eq!(shortened(name), "std::__new_allocator<…>::construct<…>(…)");
    assert_eq!(shortened_to(name, 20), "std:…construct<…>(…)");
    assert_eq!(shortened_to("a_name_of_c_that_does_not_end", 20), "a_name_of_c_t…ot_end");
}

#[test]
fn text_of_others_steers_no_terminal() {
    let mut recording = recording();
    recording.tree.frames[1].function = Some("\u{1b}[2J".into());
    recording.subject.command = vec!["\u{1b}]0;x".into()];
    assert!(!text(&recording, None).contains('\u{1b}'));
}

#[test]
fn a_recording_without_faults_is_an_answer_too() {
    let mut recording = recording();
    recording.faults.clear();
    recording.counters.user = faultless_records::fault_recording::FaultCounts::default();
    assert!(text(&recording, Some(80)).starts_with("chem: no page faults in 2.00 s\n"));
}
