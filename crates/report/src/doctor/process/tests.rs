use std::time::Duration;

use faultless_diagnosis::churn::circumstances::Circumstances;
use faultless_diagnosis::churn::tally::Tally;
use faultless_diagnosis::classification::{Sight, classify};
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::cgroup::{MemoryGroup, Version};
use faultless_records::mappings;
use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

use super::*;
use crate::heap::tests::with_changed_caches;
use crate::heap::{FaultlessHeap, Regions, Source};

const MIB: u64 = 1 << 20;

/// A process with so many MiB of the main heap and of a mapped file, in which nothing happens.
fn quiet(heap_mib: u64, file_mib: u64) -> ProcessConsultation {
    let smaps = format!(
        "10000-{:x} rw-p 00000000 00:00 0 [heap]\nRss: {} kB\n\
         7f0000000000-{:x} r--p 00000000 08:01 7 /srv/data\nRss: {} kB\n",
        0x10000 + heap_mib * MIB,
        heap_mib << 10,
        0x7f00_0000_0000_u64 + file_mib * MIB,
        file_mib << 10
    );
    let mappings = mappings::parse(smaps.as_bytes()).unwrap();
    let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
    let rss_bytes = (heap_mib + file_mib) * MIB;
    ProcessConsultation {
        pid: 7,
        name: "server".into(),
        command: vec!["./server".into(), "a b".into()],
        directory: None,
        program: None,
        obstacle: None,
        activity: Activity {
            seconds: 10.0,
            rss_before_bytes: rss_bytes,
            rss_after_bytes: rss_bytes,
            threads: 3,
            ..Activity::default()
        },
        map: MapView::new("server (7)".into(), Some(7), mappings, parts),
        heap: Some(HeapView {
            pid: Some(7),
            name: "server".into(),
            source: Source::Process(None),
            took: Duration::ZERO,
            glibc: Some((2, 36)),
            counted_rss_bytes: Some(rss_bytes),
            walks: Vec::new(),
            other: None,
            faultless: None,
            remarks: Vec::new(),
        }),
        churn: Some(seen(Mechanism::Tracepoints)),
        faults: None,
        remarks: Vec::new(),
    }
}

fn seen(mechanism: Mechanism) -> ChurnRecording {
    tallied(Tally::begin(0), mechanism)
}

fn tallied(tally: Tally, mechanism: Mechanism) -> ChurnRecording {
    tally.finish(Circumstances { mechanism, observed_ns: 5_000_000_000, ..Circumstances::default() })
}

const MALLOC: &[&str] = &["mmap", "sysmalloc", "malloc", "main"];

/// A mapping, made by such a call of mmap, that comes and goes so many times.
fn coming_and_going(arguments: [u64; 5], turns: u64, stack: Option<TakenStack>) -> Tally {
    let mut tally = Tally::begin(0);
    for turn in 0..turns {
        let call = |ns: u64, kind, arguments| MemoryCall {
            time_ns: turn * 5_000_000 + ns,
            pid: 7,
            tid: 7,
            kind,
            arguments,
            result: Ok(0x7f00_0000_0000),
            stack,
        };
        let unmap = call(1_000_000, CallKind::Munmap, [0x7f00_0000_0000, arguments[1], 0, 0, 0]);
        tally.take(&MemoryEvent::Call(call(0, CallKind::Mmap, arguments)));
        tally.take(&MemoryEvent::Call(MemoryCall { result: Ok(0), ..unmap }));
    }
    tally
}

/// A block of 4 MiB that comes and goes so many times, by the calls of such a chain.
fn thrashing_by(chain: &[&str], turns: u64) -> ChurnRecording {
    const PRIVATE_ANONYMOUS: u64 = 0x22;
    let arguments = [0, (4 << 20) + 4096, 3, PRIVATE_ANONYMOUS, u64::MAX];
    let tally = coming_and_going(arguments, turns, Some(TakenStack { index: 0, weight: 1 }));
    let stacks = vec![chain.iter().map(|name| (*name).to_owned()).collect()];
    tally.finish(Circumstances { stacks, observed_ns: 5_000_000_000, ..Circumstances::default() })
}

fn thrashing() -> ChurnRecording {
    thrashing_by(MALLOC, 1000)
}

/// A malloc with 100 MiB of which 90 are free.
fn trapped() -> Vec<HeapWalk> {
    let mut walk = with_changed_caches(Source::Process(None), 0).walks.remove(0);
    walk.mapped.resident_bytes = 0;
    walk.total.holding.resident_bytes = 100 * MIB;
    walk.total.holding.whole_free_bytes = 90 * MIB;
    walk.total.returnable_bytes = 90 * MIB;
    vec![walk]
}

fn concerns(seen: &ProcessConsultation) -> Vec<Concern> {
    seen.findings().into_iter().map(|finding| finding.concern).collect()
}

fn verdict_of(seen: &ProcessConsultation) -> String {
    seen.verdict(&seen.findings())
}

fn line_of(seen: &ProcessConsultation) -> Option<String> {
    seen.line_to_try(&seen.findings())
}

#[test]
fn of_a_quiet_process_nothing_is_said_but_that_its_allocator_is_to_be_left_alone() {
    let text = quiet(100, 2).text(Some(80));
    assert_eq!(
        text,
        "server (7): 102 MiB resident, 3 threads; most of it: main heap 100 MiB\n\
         Observed for 10.00 s: no page fault; 0.000 s of processor time\n\n\
         Verdict: leave its allocator alone: nothing was found that it wastes.\n"
    );
}

#[test]
fn memory_that_is_not_mallocs_is_no_matter_of_the_allocator() {
    let consultation = quiet(2, 100);
    assert_eq!(concerns(&consultation), [Concern::Elsewhere]);
    let text = consultation.text(None);
    assert!(text.contains("malloc has 2 MiB of what is resident (2.0 %)"), "{text}");
    assert!(
        text.contains("Verdict: leave its allocator alone as to its memory: most of that is not malloc's"),
        "{text}"
    );
    assert!(text.ends_with("To look further:\n  faultless map --pid 7\n"), "{text}");
    assert_eq!(concerns(&quiet(2, 8)), [], "too small to matter");
}

/// A process with 2 MiB of a mapped file and 100 MiB to whose start a variable of the program's points.
fn with_own_mapping() -> ProcessConsultation {
    let mut consultation = quiet(100, 2);
    let MapView { mappings, mut parts, .. } = consultation.map;
    for part in parts.iter_mut().filter(|part| part.kind == Kind::MainHeap) {
        part.kind = Kind::OwnMapping;
    }
    consultation.map = MapView::new("server (7)".into(), Some(7), mappings, parts);
    consultation
}

#[test]
fn what_a_variable_points_to_may_be_of_an_allocator_that_nobody_knows() {
    let mut consultation = with_own_mapping();
    let text = consultation.text(None);
    assert_eq!(concerns(&consultation), [Concern::Residence], "{text}");
    assert!(
        text.contains("100 MiB of what is resident (98.0 %) is memory of which nothing proves"),
        "{text}"
    );
    assert!(
        text.contains("Verdict: leave its allocator alone, as far as it could be seen: nothing"),
        "{text}"
    );
    let of_glibc = with_changed_caches(Source::Process(None), 0);
    consultation.heap.as_mut().unwrap().walks = of_glibc.walks;
    assert_eq!(concerns(&consultation)[0], Concern::Elsewhere, "it is glibc that serves malloc");
}

#[test]
fn what_a_forked_process_shares_is_not_told_as_memory_that_it_alone_wastes() {
    let of = |shared_mib: u64| {
        let mut consultation = quiet(100, 2);
        consultation.heap.as_mut().unwrap().walks = trapped();
        for total in consultation.map.totals.iter_mut().filter(|total| total.kind == Kind::MainHeap) {
            total.usage.shared_dirty_bytes = shared_mib * MIB;
        }
        consultation
    };
    let text = of(95).text(None);
    let says = "(90.0 %, in 0 arenas), up to 90 MiB of it shared with other processes since a fork: it is in the RSS of each";
    assert!(
        text.contains(says) && text.contains("What is shared is free memory only when each of these"),
        "{text}"
    );
    assert!(
        text.contains("wastes 90 MiB of memory, up to 90 MiB of it shared with other processes; the"),
        "{text}"
    );
    assert!(of(40).text(None).contains("up to 40 MiB of it shared"));
    let alone = of(8).text(None);
    assert!(alone.contains("wastes 90 MiB of memory;") && !alone.contains("shared"), "{alone}");
}

#[test]
fn of_a_busy_process_it_is_said_that_the_time_of_its_calls_was_not_seen() {
    let busy = |heap_mib, file_mib, user_s| {
        let quiet = quiet(heap_mib, file_mib);
        ProcessConsultation { activity: Activity { user_s, ..quiet.activity }, ..quiet }
    };
    let of_calls = busy(100, 2, 1.0);
    let says = "leave its allocator alone as to memory and page faults: nothing was found that it wastes; what its calls take of its \
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
    assert!(verdict_of(&elsewhere).starts_with("leave its allocator alone as to its memory: most"));
}

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
fn of_a_program_that_no_preload_reaches_nothing_is_advised_that_takes_one() {
    let advice = |obstacle: Option<&str>, walks| {
        let mut consultation = quiet(100, 2);
        consultation.churn = Some(thrashing());
        consultation.obstacle = obstacle.map(String::from);
        consultation.heap.as_mut().unwrap().walks = walks;
        let findings = consultation.findings();
        let advice: Vec<String> = findings.into_iter().filter_map(|finding| finding.advice).collect();
        advice.join("\n")
    };
    let reached = advice(None, trapped());
    assert!(
        reached.contains("faultless run -- CMD") && reached.contains("`faultless doctor -- CMD`"),
        "{reached}"
    );
    let of_glibc = advice(Some("a preload does not reach server: it is linked statically"), trapped());
    assert!(
        of_glibc.contains("malloc_trim(0)") && of_glibc.contains("MALLOC_MMAP_THRESHOLD_ and"),
        "{of_glibc}"
    );
    assert!(!of_glibc.contains("faultless"), "{of_glibc}");
    assert_eq!(advice(Some("it is built for another C library"), Vec::new()), "");
}

#[test]
fn thrash_is_waste_and_has_a_line_to_try_remedies_with() {
    let activity = Activity { minor_faults: 2_060_000, ..quiet(100, 2).activity };
    let consultation = ProcessConsultation { churn: Some(thrashing()), activity, ..quiet(100, 2) };
    assert_eq!(concerns(&consultation), [Concern::Thrash, Concern::Faults]);
    let text = consultation.text(None);
    assert!(text.contains("its allocator wastes up to 205,000 page faults a second"), "{text}");
    assert!(text.contains("\n  faultless doctor -- timeout 60 ./server 'a b'\n"), "{text}");
    assert!(text.contains("\n  faultless churn --pid 7 --for 10s\n"), "{text}");
    let obstacle = Some("a preload does not reach server: it is linked statically".into());
    let unreachable = ProcessConsultation { obstacle, ..consultation };
    assert_eq!(line_of(&unreachable), None);
    let says = "a second; to try what helps takes a preload, and a preload does not reach server: it is linked statically";
    assert!(verdict_of(&unreachable).ends_with(says), "{}", verdict_of(&unreachable));
    let nameless = ProcessConsultation { command: Vec::new(), obstacle: None, ..unreachable };
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
    let says = "cd '/srv/the app' && faultless doctor -- timeout 60 ./server 'a b'";
    assert_eq!(line_of(&elsewhere).as_deref(), Some(says));
    let command = vec!["-bash".into(), "-l".into()];
    let login =
        ProcessConsultation { command, directory: None, program: Some("/usr/bin/bash".into()), ..elsewhere };
    assert_eq!(line_of(&login).as_deref(), Some("faultless doctor -- timeout 60 /usr/bin/bash -l"));
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
fn a_limit_nearly_reached_and_growth_come_with_what_tells_more() {
    let mut consultation = quiet(100, 2);
    consultation.map.group = Some(MemoryGroup {
        version: Version::Two,
        path: "/shop".into(),
        limit_bytes: Some(110 * MIB),
        usage_bytes: 109 * MIB,
        anonymous_bytes: Some(100 * MIB),
        file_bytes: Some(9 * MIB),
        shared_bytes: Some(0),
    });
    consultation.activity.rss_before_bytes -= 20 * MIB;
    assert_eq!(concerns(&consultation), [Concern::MemoryLimit, Concern::Growth]);
    let text = consultation.text(None);
    assert!(text.contains("its control group /shop may use 110 MiB, and 90.9 % of that"), "{text}");
    assert!(text.contains("it grew by 20 MiB in these 10.00 s"), "{text}");
    // What grows need not be malloc's.
    for line in ["churn --malloc --pid 7 --for 10s", "churn --pid 7 --for 10s"] {
        assert!(text.contains(&format!("\n  faultless {line}\n")), "{text}");
    }
    assert!(text.contains("  faultless watch --pid 7 --for 10m\n"), "{text}");
}

#[test]
fn shared_memory_counts_for_the_limit_and_a_limit_of_nothing_has_no_parts() {
    let mut consultation = quiet(100, 2);
    let mut limited = |limit_bytes| {
        consultation.map.group = Some(MemoryGroup {
            version: Version::Two,
            path: "/shop".into(),
            limit_bytes,
            usage_bytes: 109 * MIB,
            anonymous_bytes: Some(10 * MIB),
            file_bytes: Some(99 * MIB),
            shared_bytes: Some(90 * MIB),
        });
        consultation.text(None)
    };
    let text = limited(Some(110 * MIB));
    assert!(text.contains("its control group /shop may use 110 MiB, and 90.9 % of that"), "{text}");
    assert!(!limited(Some(0)).contains("control group /shop may use"));
}

#[test]
fn of_an_allocator_that_tells_nothing_the_verdict_says_so() {
    let mut consultation = quiet(100, 2);
    let heap = consultation.heap.as_mut().unwrap();
    heap.other = Some(("jemalloc".into(), Regions::default()));
    assert_eq!(concerns(&consultation), [Concern::Served]);
    assert!(verdict_of(&consultation).starts_with("leave its allocator alone, as far as it could be seen"));
    let page =
        faultless_records::faultless_page::FaultlessPage { dirty_bytes: 3 * MIB, ..Default::default() };
    let heap = consultation.heap.as_mut().unwrap();
    heap.faultless = Some(FaultlessHeap { page, resident_bytes: 0, age: Duration::ZERO });
    assert!(verdict_of(&consultation).starts_with("leave its allocator alone: "));
    assert!(consultation.text(None).contains("3 MiB free and not given back yet"));
}

#[test]
fn where_caches_changed_while_they_were_read_nothing_is_put_down_to_the_program() {
    let with = |changed| {
        let heap = Some(with_changed_caches(Source::Process(None), changed));
        ProcessConsultation { heap, ..quiet(100, 2) }
    };
    assert_eq!(concerns(&with(0)), [Concern::InUse]);
    assert!(verdict_of(&with(0)).starts_with("leave its allocator alone as to its memory: the program"));
    assert_eq!(concerns(&with(3)), []);
    let verdict = verdict_of(&with(3));
    assert_eq!(
        verdict,
        "leave its allocator alone, as far as it could be seen: nothing was found that it wastes"
    );
}

#[test]
fn memory_that_nothing_is_known_of_is_named_with_what_lists_it() {
    let smaps = "7f0000000000-7f0006400000 rw-p 00000000 00:00 0 \nRss: 102400 kB\nVmFlags: rd\n";
    let mappings = mappings::parse(smaps.as_bytes()).unwrap();
    let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
    let map = MapView::new("server (7)".into(), Some(7), mappings, parts);
    let consultation = ProcessConsultation { map, ..quiet(100, 2) };
    assert_eq!(concerns(&consultation), [Concern::Residence]);
    let text = consultation.text(None);
    assert!(
        text.contains("100 MiB of what is resident (100.0 %) is memory of which nothing proves"),
        "{text}"
    );
    assert!(text.ends_with("To look further:\n  faultless map --pid 7\n"), "{text}");
}

#[test]
fn a_peak_that_is_written_as_what_is_there_is_left_out() {
    let heading = |more| {
        let mut consultation = quiet(100, 2);
        consultation.activity.peak_rss_bytes = Some(102 * MIB + more);
        consultation.text(None)
    };
    assert!(!heading(4096).contains("peak") && heading(MIB).contains(", 103 MiB at its peak, "));
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
fn the_words_of_another_do_not_steer_the_terminal_and_keep_their_lines() {
    let command = ["sh", "-c", "first\n\x1b[2Jlast"].map(String::from).to_vec();
    let consultation = ProcessConsultation { command, churn: Some(thrashing()), ..quiet(100, 2) };
    let text = consultation.text(None);
    assert!(text.contains("timeout 60 sh -c 'first\n\\u{1b}[2Jlast'\n"), "{text}");
    let obstacle = Some("a preload does not reach \x1b[2J".into());
    let text = ProcessConsultation { obstacle, ..consultation }.text(None);
    assert!(text.contains("a preload does not reach \\u{1b}[2J.\n"), "{text}");
}

#[test]
fn json_has_the_findings_and_the_lines() {
    let consultation = ProcessConsultation { churn: Some(thrashing()), ..quiet(100, 2) };
    let value: serde_json::Value = serde_json::from_str(&json(&consultation)).unwrap();
    assert_eq!(value["format"], "faultless-doctor-process/1");
    assert_eq!(value["findings"][0]["concern"], "thrash");
    assert_eq!(value["findings"][0]["is_waste"], true);
    assert_eq!(value["malloc_resident_bytes"], 100 * MIB);
    assert_eq!(value["trapped_bytes"], serde_json::Value::Null);
    assert_eq!(value["verdict"]["line_to_try"], "faultless doctor -- timeout 60 ./server 'a b'");
}
