//! Memory that comes and goes, and the page faults of it.

use faultless_records::fault_recording::{Counters, FaultCounts};

use super::*;

#[test]
fn a_file_that_comes_and_goes_is_not_said_to_be_nothing() {
    let activity = Activity { minor_faults: 250_000, ..quiet(2, 2).activity };
    let of = |tally| {
        let churn = Some(tallied(tally, Mechanism::Tracepoints));
        let seen = ProcessConsultation { activity, churn, ..quiet(2, 2) };
        (verdict_of(&seen), line_of(&seen).is_some())
    };
    // A private mapping of the file behind descriptor 3.
    let (verdict, has_line) = of(coming_and_going([0, 16 << 20, 1, 2, 3], 1000, None));
    assert!(verdict.ends_with("no memory without a file is given back and soon taken again"), "{verdict}");
    assert!(!has_line);
    // One block of 200 MiB that is given back, and wanted again after longer than is looked at.
    let (verdict, has_line) = of(coming_and_going([0, 200 << 20, 3, 0x22, u64::MAX], 1, None));
    assert!(
        has_line && verdict.contains("memory is given back to the kernel: whether it is taken"),
        "{verdict}"
    );
}

#[test]
fn page_faults_that_bring_in_what_stays_are_not_the_allocators() {
    let activity = Activity { minor_faults: 200_000, ..quiet(900, 2).activity };
    let of = |grown_mib: u64, churn| {
        let rss_before_bytes = activity.rss_after_bytes - grown_mib * MIB;
        let activity = Activity { rss_before_bytes, ..activity };
        let seen = ProcessConsultation { activity, churn, ..quiet(900, 2) };
        (verdict_of(&seen), line_of(&seen).is_some())
    };
    let rare = || Some(thrashing_by(MALLOC, 15));
    let (verdict, has_line) = of(700, rare());
    assert!(verdict.ends_with("most of them bring in what it grows by") && !has_line, "{verdict}");
    assert!(!of(700, None).1, "what goes back does not matter");
    assert!(of(0, rare()).0.starts_with("its page faults cost time"));
    let of_kinds = |anonymous_mib, shared_mib| {
        let activity = Activity {
            anonymous_growth_bytes: Some(anonymous_mib * MIB),
            shared_growth_bytes: Some(shared_mib * MIB),
            rss_before_bytes: activity.rss_after_bytes - 700 * MIB,
            ..activity
        };
        verdict_of(&ProcessConsultation { activity, churn: rare(), ..quiet(900, 2) })
    };
    assert!(of_kinds(1, 699).ends_with("what it grows by"), "{}", of_kinds(1, 699));
    assert!(of_kinds(1, 0).starts_with("its page faults cost time"), "files");
}

#[test]
fn growth_to_what_it_had_been_before_is_said_to_be_that_and_acquits_nobody() {
    let of = |peak_before_mib: u64| {
        let activity = quiet(900, 2).activity;
        let activity = Activity {
            minor_faults: 204_800,
            rss_before_bytes: activity.rss_after_bytes - 700 * MIB,
            peak_rss_before_bytes: Some(peak_before_mib * MIB),
            ..activity
        };
        let faults_beside_calls = Some(20_480.0);
        let seen = ProcessConsultation { activity, faults_beside_calls, ..quiet(900, 2) };
        (
            verdict_of(&seen),
            seen.text(None).contains("it grew by 700 MiB in these 10.00 s, to what it had been before"),
        )
    };
    let (verdict, is_said) = of(900);
    assert!(verdict.contains("come in phases") && is_said, "{verdict}");
    let (verdict, is_said) = of(890);
    assert!(verdict.ends_with("most of them bring in what it grows by") && !is_said, "{verdict}");
}

#[test]
fn pages_that_a_forked_process_copies_are_told_though_its_rss_stays() {
    let of = |private_mib: u64, grown_mib: u64, minor_faults| {
        let activity = quiet(900, 2).activity;
        let activity = Activity {
            minor_faults,
            rss_before_bytes: activity.rss_after_bytes - grown_mib * MIB,
            private_growth_bytes: Some(private_mib * MIB),
            ..activity
        };
        let text = ProcessConsultation { activity, ..quiet(900, 2) }.text(None);
        text.lines().find(|line| line.contains("as after a fork")).map(|line| line.trim_start().to_owned())
    };
    let told = of(100, 20, 25_600).unwrap();
    assert!(told.starts_with("80 MiB of pages that it had in common with other processes"), "{told}");
    assert_eq!(of(100, 100, 25_600), None, "what is new");
    assert_eq!(of(5, 0, 25_600), None, "less than a hundredth");
    assert_eq!(of(100, 0, 1000), None, "the others ended");
}

#[test]
fn a_control_group_whose_files_do_not_fit_beside_its_memory_is_named() {
    let of = |usage_mib: u64, major_faults| {
        let mut seen = quiet(40, 12);
        seen.map.group = Some(MemoryGroup {
            version: Version::One,
            path: "/shop".into(),
            limit_bytes: Some(60 * MIB),
            usage_bytes: usage_mib * MIB,
            anonymous_bytes: Some(40 * MIB),
            file_bytes: Some((usage_mib - 40) * MIB),
            shared_bytes: Some(MIB),
        });
        seen.activity.major_faults = major_faults;
        let findings = seen.findings();
        findings
            .into_iter()
            .find(|finding| finding.concern == Concern::MemoryLimit)
            .map(|found| found.sentence)
    };
    let says = "its control group /shop may use 60 MiB, and uses 98.3 % of that, 18 MiB of it pages of files: the kernel drops some of \
                these for each new one, and major faults read them again";
    assert_eq!(of(59, 100).as_deref(), Some(says));
    assert_eq!(of(59, 99), None, "fewer than ten a second: the page cache fills what there is");
    assert_eq!(of(50, 100), None, "there is room");
}

#[test]
fn of_faults_of_a_phase_whose_end_or_beginning_was_not_seen_the_allocator_is_not_acquitted() {
    let of = |faults_beside_calls, grown_mib: u64, end_mib: u64| {
        let mut tally = Tally::begin(0);
        for end in [0x100_0000, 0x100_0000 + end_mib * MIB] {
            let (kind, arguments, result) = (CallKind::Brk, [end, 0, 0, 0, 0], Ok(end));
            let call = MemoryCall { time_ns: 1, pid: 7, tid: 7, kind, arguments, result, stack: None };
            tally.take(&MemoryEvent::Call(call));
        }
        let churn = Some(tallied(tally, Mechanism::Tracepoints));
        let activity = quiet(900, 2).activity;
        let rss_before_bytes = activity.rss_after_bytes - grown_mib * MIB;
        // 800 MiB.
        let activity = Activity { minor_faults: 204_800, rss_before_bytes, ..activity };
        let seen = ProcessConsultation { activity, churn, faults_beside_calls, ..quiet(900, 2) };
        (verdict_of(&seen), line_of(&seen).is_some())
    };
    let phases = |beside, grown_mib, end_mib| {
        let (verdict, has_line) = of(beside, grown_mib, end_mib);
        assert_eq!(verdict.contains("come in phases"), has_line, "{verdict}");
        has_line
    };
    assert!(phases(Some(10_000.0), 0, 0), "while it was not looked");
    assert!(!phases(Some(20_480.0), 0, 0), "all the time");
    assert!(phases(Some(20_480.0), 20, 300), "it took 300 MiB of 400 and has them no more");
    assert!(!phases(Some(20_480.0), 200, 300), "it has most of them");
    assert!(!phases(Some(20_480.0), 0, 100), "others than these");
    assert!(!phases(None, 0, 300), "as far as is known");
}

#[test]
fn faults_of_a_process_that_forks_are_said_to_copy_pages_where_it_has_so_many() {
    let of = |forks, heap_mib| {
        let mut tally = Tally::begin(0);
        tally.attach(7);
        (0..forks).for_each(|number| tally.take(&MemoryEvent::Fork { parent: 7, child: 100 + number }));
        let churn = Some(tallied(tally, Mechanism::Tracepoints));
        // 102,400 of the calls' half: 400 MiB.
        let activity = Activity { minor_faults: 204_800, ..quiet(heap_mib, 2).activity };
        let seen = ProcessConsultation { activity, churn, ..quiet(heap_mib, 2) };
        let findings = seen.findings();
        let faults = findings.iter().find(|finding| finding.concern == Concern::Faults).unwrap();
        (seen.verdict(&findings), faults.advice.clone().unwrap_or_default())
    };
    let (verdict, advice) = of(25, 10);
    assert!(verdict.ends_with("they may copy the pages that it shares with what it forks"), "{verdict}");
    assert!(advice.starts_with("it started 25 processes in 5.00 s: after a fork each page"), "{advice}");
    for (forks, heap_mib) in [(0, 900), (19, 10)] {
        let (verdict, advice) = of(forks, heap_mib);
        assert!(verdict.ends_with("given back and soon taken again"), "{verdict}");
        assert_eq!(advice, "");
    }
}

/// What V8 does so many times: it reserves addresses, makes them accessible, and unmaps them when all in them is garbage. .NET maps
/// addresses without access over them.
fn reserved_and_given_back(turns: u64, is_unmapped: bool) -> Tally {
    const BYTES: u64 = 4 << 20;
    const PLACE: u64 = 0x7f00_0000_0000;
    const PRIVATE_ANONYMOUS_NORESERVE: u64 = 0x4022;
    let mut tally = Tally::begin(0);
    for turn in 0..turns {
        let mut take = |kind, arguments, result| {
            tally.take(&MemoryEvent::Call(MemoryCall {
                time_ns: turn * 90_000_000,
                pid: 7,
                tid: 7,
                kind,
                arguments,
                result: Ok(result),
                stack: Some(TakenStack { index: 0, weight: 1 }),
            }));
        };
        take(CallKind::Mmap, [0, BYTES, 0, PRIVATE_ANONYMOUS_NORESERVE, u64::MAX], PLACE);
        take(CallKind::Mprotect, [PLACE, BYTES, 3, 0, 0], 0);
        match is_unmapped {
            true => take(CallKind::Munmap, [PLACE, BYTES, 0, 0, 0], 0),
            false => take(CallKind::Mmap, [PLACE, BYTES, 0, 0x32, u64::MAX], PLACE),
        }
    }
    tally
}

#[test]
fn what_a_run_time_gives_back_of_what_it_reserved_is_not_said_to_be_nothing() {
    let verdict = |is_unmapped: bool, chain: &[&str]| {
        let stacks = vec![chain.iter().map(|name| (*name).to_owned()).collect()];
        let circumstances = Circumstances { stacks, observed_ns: 5_000_000_000, ..Circumstances::default() };
        let churn = Some(reserved_and_given_back(50, is_unmapped).finish(circumstances));
        let activity = Activity { minor_faults: 102_400, ..quiet(2, 2).activity };
        let seen = ProcessConsultation { activity, churn, ..quiet(2, 2) };
        assert_eq!(concerns(&seen), [Concern::Faults]);
        (verdict_of(&seen), line_of(&seen).is_some())
    };
    let chains =
        [["munmap", "v8::base::OS::Free(void*, unsigned long)", "main"], ["mmap64", "VirtualFree", "main"]];
    for (is_unmapped, chain) in [true, false].into_iter().zip(chains) {
        let (own, has_line) = verdict(is_unmapped, &chain);
        assert!(own.starts_with("malloc is not seen to cause its page faults") && !has_line, "{own}");
        let (unknown, has_line) = verdict(is_unmapped, &[]);
        assert!(unknown.starts_with("its page faults cost time") && has_line, "{unknown}");
    }
}

#[test]
fn few_faults_of_the_second_half_do_not_stand_for_those_of_the_first() {
    let of = |minor| {
        let user = FaultCounts { minor, major: 0 };
        let counters = Counters { user, ..Counters::default() };
        let faults = FaultRecording { duration_ns: 5_000_000_000, counters, ..FaultRecording::default() };
        let activity = Activity { minor_faults: 200_000, user_s: 1.0, system_s: 1.0, ..quiet(2, 2).activity };
        let seen = ProcessConsultation { activity, faults: Some(faults), ..quiet(2, 2) };
        seen.findings().into_iter().find(|finding| finding.concern == Concern::Faults).unwrap().sentence
    };
    let sentence = of(3);
    let says = "20,000 page faults a second, few of them while it was looked who takes them; at 0.25";
    assert!(sentence.starts_with(says), "{sentence}");
    assert!(of(9_999).starts_with(says), "less than a tenth");
    assert!(of(10_000).starts_with("10,000 page faults in 5.00 s"), "{}", of(10_000));
}

#[test]
fn thrash_is_waste_and_has_a_line_to_try_remedies_with() {
    let activity = Activity { minor_faults: 2_060_000, ..quiet(100, 2).activity };
    let consultation = ProcessConsultation { churn: Some(thrashing()), activity, ..quiet(100, 2) };
    assert_eq!(concerns(&consultation), [Concern::Thrash, Concern::Faults]);
    let text = consultation.text(None);
    assert!(text.contains("its allocator wastes up to 204,795 page faults a second"), "{text}");
    assert!(text.contains("\n  faultless doctor --for 60s -- ./server 'a b'\n"), "{text}");
    assert!(text.contains("\n  faultless churn --pid 7 --for 10s\n"), "{text}");
    let consultation = ProcessConsultation { is_replaced: true, ..consultation };
    let says = "To try remedies on a new process of the program that has taken the place of its own:\n  faultless doctor";
    assert!(consultation.text(None).contains(says), "{}", consultation.text(None));
    let obstacle = Some("a preload does not reach server: it is linked statically".into());
    let unreachable = ProcessConsultation { obstacle, ..consultation };
    assert_eq!(line_of(&unreachable), None);
    let says = "a second; doctor cannot try what helps on a new process: a preload does not reach server: it is linked statically";
    assert!(verdict_of(&unreachable).ends_with(says), "{}", verdict_of(&unreachable));
    let absence = Some("its program's file has been deleted".into());
    let gone = ProcessConsultation { absence, obstacle: None, ..unreachable };
    assert_eq!(line_of(&gone), None);
    let says = "; doctor cannot try what helps on a new process: its program's file has been deleted";
    assert!(verdict_of(&gone).ends_with(says), "{}", verdict_of(&gone));
    let nameless = ProcessConsultation { command: Vec::new(), absence: None, ..gone };
    assert_eq!(line_of(&nameless), None);
    assert!(
        verdict_of(&nameless).ends_with(" page faults a second"),
        "no line is below: {}",
        verdict_of(&nameless)
    );
}

#[test]
fn the_line_to_try_begins_where_the_process_is_and_with_what_starts_it() {
    let elsewhere = ProcessConsultation {
        churn: Some(thrashing()),
        directory: Some("/srv/the app".into()),
        ..quiet(100, 2)
    };
    let says = "cd '/srv/the app' && faultless doctor --for 60s -- ./server 'a b'";
    assert_eq!(line_of(&elsewhere).as_deref(), Some(says));
    let settings = vec![("LD_PRELOAD".into(), "/opt/a b.so".into()), ("MALLOC_ARENA_MAX".into(), "2".into())];
    let elsewhere = ProcessConsultation { settings, ..elsewhere };
    let says = "cd '/srv/the app' && LD_PRELOAD='/opt/a b.so' MALLOC_ARENA_MAX=2 faultless doctor --for 60s -- ./server 'a b'";
    assert_eq!(line_of(&elsewhere).as_deref(), Some(says));
    let elsewhere = ProcessConsultation { input: Some("/data/in put".into()), ..elsewhere };
    assert_eq!(line_of(&elsewhere), Some(format!("{says} < '/data/in put'")));
    let elsewhere = ProcessConsultation { settings: Vec::new(), input: None, ..elsewhere };
    let command = vec!["-bash".into(), "-l".into()];
    let login =
        ProcessConsultation { command, directory: None, program: Some("/usr/bin/bash".into()), ..elsewhere };
    assert_eq!(line_of(&login).as_deref(), Some("faultless doctor --for 60s -- /usr/bin/bash -l"));
}

#[test]
fn memory_that_is_given_back_untouched_is_not_said_to_cost_page_faults() {
    let verdict_at = |minor_faults| {
        let activity = Activity { minor_faults, ..quiet(100, 2).activity };
        verdict_of(&ProcessConsultation { churn: Some(thrashing()), activity, ..quiet(100, 2) })
    };
    assert!(
        verdict_at(2000).starts_with("its allocator wastes up to 200 page faults a second;"),
        "{}",
        verdict_at(2000)
    );
    assert!(
        verdict_at(0).starts_with("its allocator wastes about 400 system calls a second;"),
        "{}",
        verdict_at(0)
    );
}

#[test]
fn page_faults_are_the_allocators_only_where_its_calls_were_seen() {
    let activity = Activity { minor_faults: 200_000, system_s: 3.0, user_s: 1.0, ..quiet(100, 2).activity };
    let verdict = |churn| {
        let consultation = ProcessConsultation { activity, churn, ..quiet(100, 2) };
        assert_eq!(concerns(&consultation), [Concern::Faults]);
        (verdict_of(&consultation), line_of(&consultation).is_some())
    };
    let (seen_whole, has_line) = verdict(Some(seen(Mechanism::Tracepoints)));
    assert!(seen_whole.starts_with("its allocator is not the cause") && !has_line, "{seen_whole}");
    for churn in [None, Some(seen(Mechanism::MmapRecords))] {
        let (unseen, has_line) = verdict(churn);
        assert!(unseen.ends_with("whether its allocator causes them was not seen") && has_line, "{unseen}");
    }
    let own = Some(thrashing_by(&["mmap", "own_pool", "main"], 1000));
    let own = ProcessConsultation { activity, churn: own, ..quiet(100, 2) };
    assert_eq!(concerns(&own), [Concern::Thrash, Concern::Faults]);
    assert!(
        verdict_of(&own).contains("what is given back and taken again is not its doing"),
        "{}",
        verdict_of(&own)
    );
    let text = ProcessConsultation { activity, ..quiet(100, 2) }.text(None);
    assert!(
        text.contains("200,000 page faults (20,000 a second); 4.00 s of processor time, 75.0 %"),
        "{text}"
    );
}

#[test]
fn page_faults_are_judged_by_their_part_of_the_processs_own_time_too() {
    // A virtual machine of Java's whose direct buffers glibc trims: 7,751 faults a second, 28 % of a processor.
    let activity = Activity { minor_faults: 77_510, user_s: 1.8, system_s: 1.0, ..quiet(2, 100).activity };
    let of = |activity, churn| ProcessConsultation { activity, churn, ..quiet(2, 100) };
    let rare = of(activity, Some(thrashing_by(MALLOC, 8)));
    assert_eq!(concerns(&rare), [Concern::Elsewhere, Concern::Faults]);
    assert!(verdict_of(&rare).starts_with("its page faults cost time"), "{}", verdict_of(&rare));
    let sentence = &rare.findings()[1].sentence;
    let says =
        "7,751 page faults a second; at 0.25 to 2 µs each they take 0.7 % to 5.5 % of its processor time";
    assert_eq!(sentence, says);
    for quiet in [
        Activity { minor_faults: 50_000, ..activity },
        Activity { minor_faults: 9990, user_s: 0.1, system_s: 0.1, ..activity },
        Activity { user_s: 0.04, system_s: 0.05, ..activity },
    ] {
        let quiet = of(quiet, Some(seen(Mechanism::Tracepoints)));
        assert_eq!(concerns(&quiet), [Concern::Elsewhere]);
    }
    let busy = Activity { minor_faults: 10_000_000, user_s: 0.5, system_s: 9.5, ..activity };
    let sentence = of(busy, None).findings().pop().unwrap().sentence;
    assert!(sentence.ends_with("they take 25.0 % to 95.0 % of its processor time"), "{sentence}");
}

#[test]
fn of_large_blocks_that_come_and_go_too_seldom_to_be_thrash_the_allocator_is_not_acquitted() {
    let activity = Activity { minor_faults: 100_000, ..quiet(100, 2).activity };
    let of = |turns| {
        let consultation =
            ProcessConsultation { activity, churn: Some(thrashing_by(MALLOC, turns)), ..quiet(100, 2) };
        assert_eq!(concerns(&consultation), [Concern::Faults]);
        (verdict_of(&consultation), line_of(&consultation).is_some())
    };
    let (rare, has_line) = of(8);
    assert!(rare.contains("too seldom in this time to tell whose it is") && has_line, "{rare}");
    let (rarer, has_line) = of(5);
    assert!(rarer.starts_with("its allocator is not the cause") && !has_line, "{rarer}");
}

#[test]
fn what_the_program_itself_maps_and_unmaps_is_put_down_to_no_setting_whatever_reaches_it() {
    for obstacle in [None, Some("it is linked statically".to_owned())] {
        let mut seen = ProcessConsultation { obstacle, ..quiet(100, 2) };
        seen.heap.as_mut().unwrap().walks = trapped();
        seen.churn = Some(thrashing_by(&["mmap", "pool_grow", "main"], 1000));
        let findings = seen.findings();
        let thrash = findings.iter().find(|finding| finding.concern == Concern::Thrash).unwrap();
        assert!(thrash.advice.as_ref().unwrap().starts_with("no setting of malloc reaches it"), "{thrash:?}");
        assert_eq!(thrash.waste, None);
    }
}
