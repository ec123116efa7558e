//! Fleets of made lines.

use faultless_records::recording::{Event, Group, GroupLeft, Source};

use super::*;

fn fleet(grouping: Grouping) -> Fleet {
    Fleet::new(grouping, 1_000)
}

fn of_number(pid: i32, name: &str, start_ticks: u64) -> Process {
    Process { pid, name: name.into(), start_ticks, ..Process::default() }
}

fn process(place: u32, name: &str, start_ticks: u64) -> Line {
    Line::Process(Process { process: place, ..of_number(place as i32 + 100, name, start_ticks) })
}

fn sample(place: u32, t: f64, minor_faults: u64) -> Line {
    let (rss_bytes, user_s) = (Some(4096 * minor_faults), minor_faults as f64 / 100.0);
    Line::Sample(Sample {
        t,
        process: place,
        rss_bytes,
        minor_faults,
        user_s,
        threads: 1,
        ..Sample::default()
    })
}

fn event(place: u32, what: Happening) -> Line {
    Line::Event(Event { t: 9.0, process: place, source: Source::Kernel, what })
}

fn exit(place: u32) -> Line {
    event(place, Happening::Exit { status: Some(0), signal: None })
}

fn left(place: u32) -> Line {
    event(place, Happening::Left)
}

fn faults(fleet: &Fleet, name: &str) -> u64 {
    fleet.counts()[&Label { name: name.into(), pid: None }].own.minor_faults
}

#[test]
fn who_ran_before_counts_from_the_first_look_and_who_is_new_from_its_beginning() {
    let mut fleet = fleet(Grouping::Name);
    for line in [process(0, "old", 999), sample(0, 1.0, 5_000), process(1, "new", 1_000), sample(1, 1.0, 70)]
    {
        fleet.add(line);
    }
    assert_eq!((faults(&fleet, "old"), faults(&fleet, "new")), (0, 70));
    fleet.add(sample(0, 2.0, 5_003));
    fleet.add(sample(1, 2.0, 71));
    assert_eq!((faults(&fleet, "old"), faults(&fleet, "new")), (3, 71));
}

#[test]
fn counts_outlive_processes_and_sizes_do_not() {
    let mut fleet = fleet(Grouping::Name);
    for place in 0..2 {
        fleet.add(process(place, "worker", 2_000));
        fleet.add(sample(place, 1.0, 10));
    }
    fleet.add(exit(0));
    let label = Label { name: "worker".into(), pid: None };
    let counts = fleet.counts()[&label];
    assert_eq!((counts.met, counts.ended, counts.own.minor_faults), (2, 1, 20));
    let sizes = fleet.sizes()[&label];
    assert_eq!((sizes.processes, sizes.threads, sizes.rss_bytes), (1, 1, 40_960));
    assert_eq!((sizes.pss_bytes, sizes.swap_bytes), (None, None));
    fleet.add(exit(1));
    assert_eq!(fleet.sizes()[&label].processes, 0);
    assert_eq!(faults(&fleet, "worker"), 20);
}

#[test]
fn all_that_a_process_and_its_children_used_and_hold_is_added_up() {
    let mut fleet = fleet(Grouping::Name);
    let seen = |place, times: u64| {
        let s = times as f64;
        Line::Sample(Sample {
            process: place,
            threads: 2,
            vsize_bytes: Some(times * 1000),
            rss_bytes: Some(times * 100),
            minor_faults: times,
            major_faults: times * 2,
            user_s: s * 3.0,
            system_s: s * 4.0,
            children_minor_faults: times * 5,
            children_major_faults: times * 6,
            children_user_s: s * 7.0,
            children_system_s: s * 8.0,
            ..Sample::default()
        })
    };
    for line in [process(0, "a", 2_000), process(1, "a", 2_000), seen(0, 1), seen(1, 2), seen(0, 11)] {
        fleet.add(line);
    }
    let counts = fleet.counts().values().next().unwrap();
    let used = |one: u64, other: u64, user_us: u64, system_us: u64| Use {
        minor_faults: one,
        major_faults: other,
        user_us,
        system_us,
    };
    assert_eq!(counts.own, used(13, 26, 39_000_000, 52_000_000));
    assert_eq!(counts.children, used(65, 78, 91_000_000, 104_000_000));
    let sizes = *fleet.sizes().values().next().unwrap();
    assert_eq!((sizes.processes, sizes.threads), (2, 4));
    assert_eq!((sizes.vsize_bytes, sizes.rss_bytes), (13_000, 1_300));
}

#[test]
fn another_program_in_the_same_process_counts_for_its_own_name() {
    let mut fleet = fleet(Grouping::Name);
    for line in [process(0, "sh", 2_000), sample(0, 1.0, 10), process(0, "cc", 2_000), sample(0, 2.0, 15)] {
        fleet.add(line);
    }
    assert_eq!((faults(&fleet, "sh"), faults(&fleet, "cc")), (10, 5));
    assert_eq!(fleet.sizes().values().map(|sizes| sizes.processes).sum::<u64>(), 1);
}

#[test]
fn a_series_of_one_process_ends_with_it() {
    let mut fleet = fleet(Grouping::Process);
    fleet.add(process(0, "worker", 2_000));
    assert_eq!(fleet.counts().keys().next().unwrap().pid, Some(100));
    fleet.add(exit(0));
    assert!(fleet.counts().is_empty());
}

#[test]
fn who_left_is_shown_no_longer_and_has_not_ended() {
    let mut fleet = fleet(Grouping::Name);
    for line in [process(0, "gone", 0), process(1, "here", 0), sample(0, 1.0, 1), sample(1, 1.0, 1)] {
        fleet.add(line);
    }
    fleet.add(left(0));
    fleet.add(sample(0, 2.0, 9));
    assert_eq!(fleet.members().map(|(place, _)| place).collect::<Vec<_>>(), [1]);
    assert_eq!(fleet.sizes().len(), 2, "its counts stay");
    assert_eq!((faults(&fleet, "gone"), fleet.counts().values().map(|counts| counts.ended).sum()), (0, 0));
}

#[test]
fn who_comes_back_counts_from_there_and_nothing_twice() {
    let mut fleet = fleet(Grouping::Name);
    let again = |place| Line::Process(Process { process: place, ..of_number(7, "worker", 2_000) });
    for line in [again(0), sample(0, 1.0, 10), left(0), again(1), sample(1, 2.0, 500), sample(1, 3.0, 502)] {
        fleet.add(line);
    }
    assert_eq!(faults(&fleet, "worker"), 12, "10 of its life before, 2 since it is back");
    // Another one of its number begins under our eyes.
    let other = Process { process: 2, ..of_number(7, "worker", 3_000) };
    for line in [exit(1), Line::Process(other), sample(2, 4.0, 5)] {
        fleet.add(line);
    }
    assert_eq!(faults(&fleet, "worker"), 17);
}

#[test]
fn a_control_group_that_is_gone_is_not_shown() {
    let mut fleet = fleet(Grouping::Name);
    for group in 0..2 {
        fleet.add(Line::Group(Group { group, path: format!("/{group}"), ..Group::default() }));
    }
    fleet.add(Line::GroupLeft(GroupLeft { t: 1.0, group: 0 }));
    fleet.add(Line::GroupSample(GroupSample::default()));
    assert_eq!(fleet.control_groups().map(|group| group.path.as_str()).collect::<Vec<_>>(), ["/1"]);
}

#[test]
fn another_name_is_another_series_of_names_and_takes_the_series_of_a_process_along() {
    let rename = |name: &str| event(0, Happening::Rename { name: name.into() });
    let exec = |name: &str| event(0, Happening::Exec { name: name.into() });
    for (grouping, expected) in [
        (Grouping::Name, vec![("cc", 5, 1), ("sh", 10, 1), ("work", 2, 1)]),
        (Grouping::Process, vec![("work", 17, 1)]),
    ] {
        let mut fleet = fleet(grouping);
        for line in
            [process(0, "sh", 2_000), sample(0, 1.0, 10), exec(""), exec("cc"), process(0, "cc", 2_000)]
        {
            fleet.add(line);
        }
        for line in [sample(0, 2.0, 15), rename("work"), rename("work"), sample(0, 3.0, 17)] {
            fleet.add(line);
        }
        let counts = fleet.counts().iter();
        let counts: Vec<_> = counts
            .map(|(label, counts)| (label.name.as_str(), counts.own.minor_faults, counts.met))
            .collect();
        assert_eq!(counts, expected, "{grouping:?}");
        assert_eq!(fleet.members().next().unwrap().1.label.name, "work");
    }
}

#[test]
fn nothing_of_the_program_before_an_exec_is_shown() {
    let mut fleet = fleet(Grouping::Name);
    fleet.add(process(0, "sh", 2_000));
    let known = Some(4096);
    fleet.add(Line::Sample(Sample { pss_bytes: known, swap_bytes: known, ..Sample::default() }));
    let heap = |purged| Heap { purged_bytes: Some(purged), ..Heap::of_another("faultless") };
    assert!(fleet.set_heap(0, heap(50)));
    fleet.set_kinds(0, vec![("stack", 7)]);
    assert!(fleet.runs(0, 0));
    fleet.add(event(0, Happening::Exec { name: "sh".into() }));
    assert!(!fleet.runs(0, 0) && fleet.runs(0, 1));
    let sizes = *fleet.sizes().values().next().unwrap();
    assert_eq!((sizes.processes, sizes.pss_bytes, sizes.swap_bytes), (1, None, None));
    assert!(fleet.heaps().is_empty() && fleet.kinds().is_empty());
    assert!(fleet.set_heap(0, heap(3)));
    assert_eq!(fleet.counts().values().next().unwrap().purged_bytes, Some(53));
}

#[test]
fn figures_that_are_not_exact_leave_the_last_exact_ones_for_a_while() {
    let mut fleet = fleet(Grouping::Name);
    let allocators = |fleet: &Fleet| {
        let heaps = fleet.heaps();
        heaps.iter().map(|((_, name), heap)| ((*name).to_owned(), heap.used_bytes)).collect::<Vec<_>>()
    };
    fleet.add(process(0, "java", 2_000));
    fleet.keep_heap(0);
    assert_eq!(allocators(&fleet), [("glibc".to_owned(), None)], "whose it is was to be seen");
    let exact = Heap { used_bytes: Some(9), arenas: Some(1), ..Heap::of_another(GLIBC) };
    assert!(fleet.set_heap(0, exact.clone()));
    // A heap that was there is there: nothing found is a look that failed.
    assert!(!fleet.set_heap(0, Heap::of_another("unknown")));
    assert!(!fleet.set_heap(0, Heap::of_another(GLIBC)));
    (2..MOST_INEXACT_LOOKS).for_each(|_| fleet.keep_heap(0));
    assert_eq!(allocators(&fleet), [("glibc".to_owned(), Some(9))]);
    fleet.keep_heap(0);
    assert_eq!(allocators(&fleet), [("glibc".to_owned(), None)]);
    assert!(fleet.set_heap(0, exact.clone()) && fleet.set_heap(0, exact));
    fleet.clear_heap(0);
    assert!(fleet.heaps().is_empty());
}

#[test]
fn kinds_of_memory_are_added_up_over_processes() {
    let mut fleet = fleet(Grouping::Name);
    for place in 0..2 {
        fleet.add(process(place, "java", 2_000));
        fleet.set_kinds(place, vec![("java_heap", 70), ("unknown", u64::from(place))]);
    }
    assert_eq!(fleet.kinds().into_values().collect::<Vec<_>>(), [140, 1]);
}

#[test]
fn names_have_a_limit() {
    let mut fleet = fleet(Grouping::Name);
    for place in 0..MOST_LABELS as u32 + 5 {
        fleet.add(process(place, &format!("n{place}"), 2_000));
    }
    assert_eq!(fleet.counts().len(), MOST_LABELS + 1);
    assert_eq!(fleet.counts()[&Label { name: OTHERS.into(), pid: None }].met, 5);
}

#[test]
fn what_faultless_gave_back_only_grows() {
    let mut fleet = fleet(Grouping::Name);
    let heap = |purged_bytes| Heap { purged_bytes: Some(purged_bytes), ..Heap::of_another("faultless") };
    fleet.add(process(0, "old", 10));
    for purged_bytes in [500, 600] {
        fleet.set_heap(0, heap(purged_bytes));
        // A look that found no figures is not a beginning.
        fleet.set_heap(0, Heap::of_another("faultless"));
    }
    fleet.add(process(1, "old", 2_000));
    fleet.set_heap(1, heap(7));
    fleet.add(exit(0));
    assert_eq!(fleet.counts().values().next().unwrap().purged_bytes, Some(107));
    assert_eq!(fleet.heaps().len(), 1);
}

#[test]
fn a_share_that_can_no_longer_be_read_is_not_shown_as_it_was() {
    let mut fleet = fleet(Grouping::Name);
    let sample =
        |t, pss_bytes, lost_pss| Line::Sample(Sample { t, pss_bytes, lost_pss, ..Sample::default() });
    fleet.add(process(0, "a", 1));
    let mut shown = |line| {
        fleet.add(line);
        fleet.sizes().values().next().unwrap().pss_bytes
    };
    assert_eq!(shown(sample(1.0, Some(7), false)), Some(7));
    assert_eq!(shown(sample(2.0, None, false)), Some(7), "it is read now and then");
    assert_eq!(shown(sample(3.0, None, true)), None);
    assert_eq!(shown(sample(4.0, None, false)), None);
    assert_eq!(shown(sample(5.0, Some(9), false)), Some(9));
}
