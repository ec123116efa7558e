mod calls;
mod coming_and_going;
mod settings;
mod time;
mod whose_memory;

use std::time::Duration;

use faultless_diagnosis::churn::circumstances::Circumstances;
use faultless_diagnosis::churn::tally::Tally;
use faultless_diagnosis::classification::kind::Kind;
use faultless_diagnosis::classification::{Sight, classify};
use faultless_diagnosis::glibc_heap::walk::HeapWalk;
use faultless_records::cgroup::{MemoryGroup, Version};
use faultless_records::churn_recording::Pattern;
use faultless_records::mappings;
use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

use super::*;
use crate::heap::tests::with_changed_caches;
use crate::heap::{FaultlessHeap, Regions, Source};

const MIB: u64 = 1 << 20;

/// A process with so many MiB of the main heap and of a mapped file, in which nothing happens.
fn quiet(heap_mib: u64, file_mib: u64) -> ProcessConsultation {
    let smaps = format!(
        "10000-{:x} rw-p 00000000 00:00 0 [heap]\nRss: {} kB\nAnonymous: {1} kB\n\
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
        input: None,
        environment: Vec::new(),
        settings: Vec::new(),
        obstacle: None,
        absence: None,
        is_halted: false,
        is_replaced: false,
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
            is_static: false,
            counted_rss_bytes: Some(rss_bytes),
            walks: Vec::new(),
            other: None,
            faultless: None,
            remarks: Vec::new(),
        }),
        trapped_before_bytes: None,
        malloc_before_bytes: None,
        churn: Some(seen(Mechanism::Tracepoints)),
        faults_beside_calls: None,
        faults: None,
        malloc_time: None,
        arena_waits: None,
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
    let halted = ProcessConsultation { is_halted: true, ..quiet(100, 2) };
    assert!(verdict_of(&halted).starts_with("leave its allocator alone, as far as it could be seen: "));
}

#[test]
fn memory_that_is_not_mallocs_is_no_matter_of_the_allocator() {
    let consultation = quiet(2, 100);
    assert_eq!(concerns(&consultation), [Concern::Elsewhere]);
    let text = consultation.text(None);
    assert!(text.contains("malloc has 2 MiB of what is resident (2.0 %)"), "{text}");
    assert!(
        text.contains("Verdict: leave malloc alone as to its memory: most of that is not malloc's"),
        "{text}"
    );
    assert!(text.ends_with("To look further:\n  faultless map --pid 7\n"), "{text}");
    assert_eq!(concerns(&quiet(2, 8)), [], "too small to matter");
    // Its blocks were there when the heap was walked, and not when the mappings were read.
    let mut passing = consultation;
    passing.heap.as_mut().unwrap().walks = trapped();
    assert!(!concerns(&passing).contains(&Concern::Elsewhere), "{:?}", passing.findings());
}

/// A process with 2 MiB of a mapped file and 100 MiB to whose start a variable of the program's points.
fn with_own_mapping() -> ProcessConsultation {
    mostly(Kind::OwnMapping)
}

/// What is malloc's elsewhere is of this kind.
fn mostly(kind: Kind) -> ProcessConsultation {
    let mut consultation = quiet(100, 2);
    let MapView { mappings, mut parts, .. } = consultation.map;
    for part in parts.iter_mut().filter(|part| part.kind == Kind::MainHeap) {
        part.kind = kind;
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
    let heap = consultation.heap.as_mut().unwrap();
    heap.walks = of_glibc.walks;
    heap.walks[0].mapped.resident_bytes = 0;
    assert_eq!(concerns(&consultation)[0], Concern::Elsewhere, "it is glibc that serves malloc");
}

#[test]
fn what_is_free_at_one_look_and_in_use_at_the_other_is_not_said_to_be_wasted() {
    let consult = |before: u64, walks: Vec<HeapWalk>| {
        let mut consultation = quiet(100, 1);
        consultation.heap.as_mut().unwrap().walks = walks;
        consultation.trapped_before_bytes = Some(before * MIB);
        let heap = [Concern::Trapped, Concern::InUse];
        let found =
            consultation.findings().into_iter().find(|finding| heap.contains(&finding.concern)).unwrap();
        (found.sentence, found.waste, verdict_of(&consultation))
    };
    let (sentence, waste, verdict) = consult(88, trapped());
    assert!(!sentence.contains("before"), "{sentence}");
    assert_eq!(waste.as_deref(), Some("90 MiB of memory"));
    assert!(verdict.starts_with("its allocator wastes 90 MiB of memory"), "{verdict}");
    let (sentence, waste, verdict) = consult(40, trapped());
    assert!(sentence.ends_with("; 10.00 s before 40 MiB were free"), "{sentence}");
    assert_eq!(waste.as_deref(), Some("40 MiB of memory"), "{verdict}");
    let (sentence, waste, verdict) = consult(1, trapped());
    assert!(sentence.ends_with("; 10.00 s before 1 MiB were free"), "{sentence}");
    assert!(
        waste.is_none() && verdict.starts_with("what is free in its malloc now was in use before"),
        "{verdict}"
    );
    let mut in_use = trapped();
    in_use[0].total.holding.whole_free_bytes = 0;
    in_use[0].total.returnable_bytes = 0;
    let (sentence, waste, verdict) = consult(60, in_use);
    assert!(sentence.ends_with("is in use by the program; 10.00 s before 60 MiB were free"), "{sentence}");
    assert!(waste.is_none() && verdict.ends_with("the program itself uses what malloc has"), "{verdict}");
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
fn of_a_program_that_no_preload_reaches_nothing_is_advised_that_takes_one() {
    let advice_on = |pattern, obstacle: Option<&str>, walks| {
        let mut consultation = quiet(100, 2);
        let mut churn = thrashing();
        churn.cycles.iter_mut().for_each(|cycle| cycle.pattern = pattern);
        consultation.churn = Some(churn);
        consultation.obstacle = obstacle.map(String::from);
        consultation.heap.as_mut().unwrap().walks = walks;
        let findings = consultation.findings();
        let advice: Vec<String> = findings.into_iter().filter_map(|finding| finding.advice).collect();
        advice.join("\n")
    };
    let advice = |obstacle, walks| advice_on(Pattern::Mapping, obstacle, walks);
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
    let of_heaps = advice_on(Pattern::ArenaHeap, Some("it is linked statically"), trapped());
    assert!(of_heaps.contains("MALLOC_TOP_PAD_=67108864") && !of_heaps.contains("faultless"), "{of_heaps}");
    assert_eq!(advice(Some("it is built for another C library"), Vec::new()), "");
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
    consultation.heap = None;
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
fn growth_is_told_with_whose_it_is_and_with_what_can_tell_more_of_it() {
    let grown = |anonymous_growth_bytes, malloc_mib: Option<u64>| {
        let mut seen = quiet(10, 100);
        seen.activity.rss_before_bytes -= 20 * MIB;
        seen.activity.anonymous_growth_bytes = anonymous_growth_bytes;
        // Of 100 MiB in the end.
        if let Some(mib) = malloc_mib {
            seen.heap = Some(with_changed_caches(Source::Process(None), 0));
            seen.malloc_before_bytes = Some((100 - mib) * MIB);
        }
        let findings = seen.findings();
        let growth = findings.iter().find(|finding| finding.concern == Concern::Growth).unwrap();
        let lines = seen.lines_to_look_further(std::slice::from_ref(growth)).join("\n");
        let is_sent_to = |tool: &str| lines.contains(&format!("faultless {tool} --pid 7"));
        (growth.sentence.clone(), is_sent_to("churn --malloc"), is_sent_to("churn"), is_sent_to("map"))
    };
    let says = |end: &str| format!("it grew by 20 MiB in these 10.00 s{end}");
    assert_eq!(grown(Some(20 * MIB), Some(19)), (says(", 19 MiB of it malloc's"), true, false, false));
    assert_eq!(grown(None, Some(1)), (says(", 1 MiB of it malloc's"), false, true, true));
    // A backend of PostgreSQL, that touches more and more of the buffers which all share.
    let shared = says(", 19 MiB of it files and shared memory");
    assert_eq!(grown(Some(MIB), Some(1)), (shared, false, false, true));
    // A program of Go has no malloc to ask.
    assert_eq!(grown(Some(20 * MIB), None), (says(""), false, true, true));
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
    let verdict = verdict_of(&consultation);
    assert!(verdict.contains("what jemalloc has free inside was not seen; the line below"), "{verdict}");
    assert!(line_of(&consultation).is_some());
    // Nor was it seen where nothing shows which memory it serves.
    let mut unseen = with_own_mapping();
    unseen.heap.as_mut().unwrap().other = Some(("snmalloc".into(), Regions::default()));
    let verdict = verdict_of(&unseen);
    assert!(verdict.contains("what snmalloc has free inside was not seen; the line below"), "{verdict}");
    // That shows nothing of it.
    assert!(!consultation.text(None).contains("faultless heap"));
    let mut small = quiet(2, 2);
    small.heap.as_mut().unwrap().other = Some(("jemalloc".into(), Regions::default()));
    assert!(verdict_of(&small).starts_with("leave its allocator alone, as far as it could be seen"));
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
fn of_faultless_it_is_said_how_it_tells_what_is_not_seen() {
    let told = |name: &str| {
        let mut consultation = quiet(100, 2);
        consultation.heap.as_mut().unwrap().other = Some((name.into(), Regions::default()));
        consultation.text(None).contains("started with FAULTLESS=publish:on")
    };
    assert!(told("Faultless") && !told("jemalloc"));
}

#[test]
fn what_is_unknown_of_a_program_with_a_malloc_of_its_own_is_not_said_to_be_no_mallocs() {
    let smaps = "7f0000000000-7f0002d00000 rw-p 00000000 00:00 0 \nRss: 46080 kB\nVmFlags: rd\n\
                 7f1000000000-7f1003700000 r--p 00000000 08:01 7 /srv/data\nRss: 56320 kB\nVmFlags: rd\n";
    let mappings = mappings::parse(smaps.as_bytes()).unwrap();
    let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
    let map = MapView::new("browser (7)".into(), Some(7), mappings, parts);
    let mut consultation = ProcessConsultation { map, ..quiet(100, 2) };
    assert_eq!(concerns(&consultation), [Concern::Elsewhere]);
    consultation.map.has_own_malloc = true;
    consultation.heap.as_mut().unwrap().other = Some(("the program's own malloc".into(), Regions::default()));
    assert_eq!(concerns(&consultation), [Concern::Served, Concern::Residence]);
    let verdict = verdict_of(&consultation);
    assert!(verdict.starts_with("leave its allocator alone, as far as it could be seen"), "{verdict}");
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
fn the_words_of_another_do_not_steer_the_terminal_and_keep_their_lines() {
    let command = ["sh", "-c", "first\n\x1b[2Jlast"].map(String::from).to_vec();
    let consultation = ProcessConsultation { command, churn: Some(thrashing()), ..quiet(100, 2) };
    let text = consultation.text(None);
    assert!(text.contains("--for 60s -- sh -c 'first\n\\u{1b}[2Jlast'\n"), "{text}");
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
    assert_eq!(value["malloc_time"], serde_json::Value::Null);
    assert_eq!(value["verdict"]["line_to_try"], "faultless doctor --for 60s -- ./server 'a b'");
}
