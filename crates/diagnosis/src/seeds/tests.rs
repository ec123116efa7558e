use std::collections::BTreeMap;

use super::*;
use faultless_records::bench::{Figures, Machine, SCHEMA, Sample, Size};

const LIBC: usize = 0;
const OURS: usize = 1;

/// A campaign of libc and one other in the program `empty`, which takes 10 faults, and one case.
fn campaign(workload: &str, variant: &str, threads: u32) -> Campaign {
    let cell = |workload: &str, variant: &str| Cell {
        suite: Suite::Seeds,
        workload: workload.into(),
        size: Some(Size::Large),
        threads: Some(threads),
        variant: Some(variant.into()),
    };
    let contender = |name: &str, library: Option<&str>| Contender {
        name: name.into(),
        library: library.map(str::to_owned),
        settings: Vec::new(),
    };
    let mut campaign = Campaign {
        schema: SCHEMA,
        machine: Machine { cpus: 2, ..Machine::default() },
        contenders: vec![contender("libc", None), contender("ours", Some("ours.so"))],
        reference: LIBC,
        cells: vec![cell("empty", "none"), cell(workload, variant)],
        ..Campaign::default()
    };
    for who in [LIBC, OURS] {
        campaign.samples.push(sample(0, who, 0, Figures::default(), &[("faults", 10.0)]));
    }
    campaign
}

fn sample(cell: usize, contender: usize, round: u32, figures: Figures, marks: &[(&str, f64)]) -> Sample {
    let marks: BTreeMap<String, f64> =
        marks.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Sample { cell, contender, round, figures: Some(figures), failure: None, foreign_cpu: 0.0, marks }
}

fn run(campaign: &mut Campaign, contender: usize, figures: Figures, marks: &[(&str, f64)]) {
    let round = campaign.samples.iter().filter(|of| of.cell == 1 && of.contender == contender).count();
    campaign.samples.push(sample(1, contender, u32::try_from(round).unwrap(), figures, marks));
}

fn standing(campaign: &Campaign, name: &str, contender: usize) -> Standing {
    let rows = judge(campaign);
    rows.iter().find(|row| row.name == name).unwrap().outcomes[contender].standing.clone()
}

fn rss(start_mib: u64, end_mib: u64, idle_mib: u64) -> Figures {
    Figures {
        start_rss_bytes: Some(start_mib << 20),
        end_rss_bytes: Some(end_mib << 20),
        idle_rss_bytes: Some(idle_mib << 20),
        ..Figures::default()
    }
}

#[test]
fn faults_count_above_the_empty_program_and_one_thread_may_take_twice_the_pages() {
    for (threads, limit) in [(1, 2100.0 + 64.0), (2, 1100.0 + 64.0)] {
        for (faults, expected) in [(limit, Standing::Reached), (limit + 1.0, Standing::Missed)] {
            let mut campaign = campaign("churn", "64M", threads);
            let marks = [("faults", faults + 10.0), ("due_pages", 1000.0)];
            run(&mut campaign, OURS, Figures::default(), &marks);
            assert_eq!(standing(&campaign, "faults", OURS), expected, "{faults} of {limit}");
        }
    }
}

#[test]
fn without_the_empty_programs_faults_none_are_judged() {
    let mut campaign = campaign("churn", "64M", 2);
    campaign.cells[0].threads = Some(9);
    run(&mut campaign, OURS, Figures::default(), &[("faults", 1.0), ("due_pages", 1000.0)]);
    assert!(matches!(standing(&campaign, "faults", OURS), Standing::Unknown(why) if why.contains("empty")));
    assert!(matches!(standing(&campaign, "faults", LIBC), Standing::Unknown(why) if why.contains("figures")));
}

#[test]
fn survivors_may_keep_their_pages_and_sleepers_their_stacks() {
    for (idle_mib, parked, expected) in
        [(13, 0.0, Standing::Reached), (14, 0.0, Standing::Missed), (14, 32.0, Standing::Reached)]
    {
        let mut campaign = campaign("release", "survivors", 1);
        run(&mut campaign, OURS, rss(0, 50, idle_mib), &[("live_kib", 10240.0), ("parked", parked)]);
        assert_eq!(
            standing(&campaign, "RSS over the start, 1 s after", OURS),
            expected,
            "{idle_mib} {parked}"
        );
    }
}

#[test]
fn times_are_reached_where_their_interval_holds_the_limit() {
    let mut campaign = campaign("loop1m", "touched", 1);
    for (libc_s, own_s) in [(1.0, 1.2), (1.0, 1.04), (2.0, 2.4)] {
        run(&mut campaign, LIBC, Figures::default(), &[("cpu_s", libc_s)]);
        run(&mut campaign, OURS, Figures::default(), &[("cpu_s", own_s)]);
    }
    let name = "time, ratio to the best other";
    assert_eq!(standing(&campaign, name, OURS), Standing::Reached, "ratios from 1.04 to 1.20");
    campaign.samples.iter_mut().filter(|of| of.contender == LIBC && of.cell == 1).for_each(|of| {
        of.marks.insert("cpu_s".into(), 0.5);
    });
    assert_eq!(standing(&campaign, name, OURS), Standing::Missed);
    assert_eq!(standing(&campaign, name, LIBC), Standing::Reached);
}

#[test]
fn one_threaded_programs_may_keep_what_they_learned_and_others_may_not() {
    for (threads, variant, expected) in [
        (1, "1s", Standing::Shown),
        (2, "1s", Standing::Missed),
        (2, "10ms", Standing::Shown),
        (2, "random:3", Standing::Missed),
    ] {
        let mut campaign = campaign("phases", variant, threads);
        let marks = [("late_idle_kib", 65536.0), ("first_idle_kib", 0.0), ("late_cpu_s", 1.0)];
        run(&mut campaign, OURS, rss(1, 1, 1), &marks);
        assert_eq!(
            standing(&campaign, "RSS over the start, late idle", OURS),
            expected,
            "{threads} {variant}"
        );
    }
}

#[test]
fn figures_and_limits_are_over_the_start_and_beside_libc() {
    let marks = [
        ("faults", 110.0),
        ("live_kib", 2048.0),
        ("top_kib", 5120.0),
        ("used_kib", 2048.0),
        ("touched_kib", 4096.0),
        ("parked", 16.0),
        ("private_kib", 300.0),
        ("stretches", 3.0),
        ("cpu_s", 2.0),
        ("first_idle_kib", 4096.0),
        ("late_idle_kib", 8192.0),
    ];
    let mib = |mib: f64| mib * 1024.0 * 1024.0;
    let kib = |kib: f64| kib * 1024.0;
    for (workload, variant, name, figure, limit) in [
        ("spike", "", "RSS over the start at the end", mib(6.0), Some(mib(2.2))),
        ("parked_random", "", "RSS over the start, 2 s after", mib(3.0), Some(mib(4.0) + 16.0 * PER_PARKED)),
        ("pool", "", "RSS over the start, idle", mib(3.0), Some(mib(6.0))),
        ("pool", "", "peak RSS", mib(21.0), Some(mib(40.0))),
        ("pool", "", "faults", 100.0, Some(20.0 * 256.0 * 3.0 * 1.2)),
        ("hundred", "", "private memory of a process", kib(300.0), Some(kib(528.0))),
        ("sparse", "", "RSS over the start", mib(4.0), Some(mib(2.5))),
        ("grow", "", "processor time", 2.0, Some(3.005)),
        ("grow", "", "RSS over the start", mib(4.0), Some(mib(8.0))),
        ("dgemm", "4K", "system time", 1.0, Some(2.0)),
        ("dgemm", "4K", "faults", 100.0, Some(2300.0)),
        ("phases", "0ms", "RSS over the start, late idle", mib(7.0), None),
        ("phases", "1s", "RSS over the start, first idle", mib(3.0), Some(SMALL_REST)),
    ] {
        let mut campaign = campaign(workload, variant, 2);
        let run_of =
            |peak_mib: u64, system_s| Figures { peak_rss_bytes: peak_mib << 20, system_s, ..rss(1, 7, 4) };
        run(&mut campaign, LIBC, run_of(40, 22.0), &[("private_kib", 400.0), ("cpu_s", 3.0)]);
        run(&mut campaign, OURS, run_of(21, 1.0), &marks);
        let rows = judge(&campaign);
        let outcome = &rows.iter().find(|row| row.name == name).unwrap().outcomes[OURS];
        assert_eq!((outcome.figure, outcome.limit), (Some(figure), limit), "{workload} {name}");
    }
    for (workload, variant, absent) in [
        ("phases", "0ms", "RSS over the start, first idle"),
        ("phases", "random:3", "RSS over the start, first idle"),
        ("phases", "1s", "time of a late phase, ratio to the best other"),
        ("dgemm", "random:3", "system time"),
    ] {
        assert!(judge(&campaign(workload, variant, 2)).iter().all(|row| row.name != absent), "{variant}");
    }
}

#[test]
fn what_needs_another_allocator_is_not_judged_without_it() {
    let mut campaign = campaign("jvm", "17", 300);
    run(&mut campaign, OURS, rss(1, 1, 1), &[("faults", 1.0)]);
    let reason = |campaign: &Campaign| match standing(campaign, "RSS, idle", OURS) {
        Standing::Unknown(why) => why,
        other => panic!("{other:?}"),
    };
    assert!(reason(&campaign).contains("background_thread:true"));
    campaign.contenders[LIBC].settings = vec!["MALLOC_CONF=background_thread:true".into()];
    run(&mut campaign, LIBC, rss(1, 1, 2), &[("faults", 3.0)]);
    assert_eq!(standing(&campaign, "RSS, idle", OURS), Standing::Reached);
    assert_eq!(standing(&campaign, "faults", OURS), Standing::Reached);
}

#[test]
fn huge_pages_may_cost_a_tenth_more_memory_than_the_same_library_without() {
    let mut campaign = campaign("sparse", "once", 1);
    let name = "peak RSS with huge pages";
    assert!(judge(&campaign).iter().all(|row| row.name != name), "nobody was told to do without");
    let twin = Contender {
        settings: vec!["FAULTLESS=huge_pages:never".into()],
        ..campaign.contenders[OURS].clone()
    };
    campaign.contenders.push(twin);
    let peak = |mib: u64| Figures { peak_rss_bytes: mib << 20, ..Figures::default() };
    run(&mut campaign, 2, peak(100), &[]);
    run(&mut campaign, OURS, peak(111), &[]);
    run(&mut campaign, LIBC, peak(400), &[]);
    assert_eq!(standing(&campaign, name, OURS), Standing::Missed);
    campaign
        .samples
        .iter_mut()
        .for_each(|sample| sample.figures = Some(peak(if sample.contender == 2 { 101 } else { 111 })));
    assert_eq!(standing(&campaign, name, OURS), Standing::Reached);
    assert!(matches!(standing(&campaign, name, 2), Standing::Unknown(_)));
    assert!(matches!(standing(&campaign, name, LIBC), Standing::Unknown(_)), "another library");
}

#[test]
fn every_case_has_a_criterion_and_hostile_campaigns_do_no_harm() {
    let cases = [
        "churn",
        "dgemm",
        "loop1m",
        "release",
        "phases",
        "spike",
        "parked_random",
        "pool",
        "jvm",
        "hundred",
        "sparse",
        "grow",
    ];
    for case in cases {
        let rows = judge(&campaign(case, "random:1", 2));
        assert!(rows.iter().any(|row| row.name != "faults" || case == "churn" || case == "dgemm"), "{case}");
        assert!(rows.iter().all(|row| matches!(row.outcomes[OURS].standing, Standing::Unknown(_))), "{case}");
        assert_eq!(tally(&rows, OURS), (0, 0));
    }
    assert!(judge(&campaign("no case", "x", 1)).is_empty());
}

#[test]
fn who_fails_in_every_run_of_a_case_keeps_none_of_its_limits() {
    let mut campaign = campaign("sparse", "once", 1);
    let marks = [("top_kib", 2000.0), ("used_kib", 1600.0), ("faults", 5.0)];
    run(&mut campaign, OURS, rss(0, 0, 0), &marks);
    let failed = |round| Sample { figures: None, ..sample(1, LIBC, round, Figures::default(), &[]) };
    campaign.samples.extend([failed(0), failed(1)]);
    let rows = judge(&campaign);
    assert_eq!((tally(&rows, OURS), tally(&rows, LIBC)), ((1, 1), (0, 1)));
    let standings: Vec<&Standing> = rows.iter().map(|row| &row.outcomes[LIBC].standing).collect();
    assert!(
        matches!(standings[..], [Standing::Missed, Standing::Unknown(_)]),
        "faults have no limit: {rows:?}"
    );
    run(&mut campaign, LIBC, rss(0, 0, 0), &marks);
    assert_eq!(tally(&judge(&campaign), LIBC), (1, 1), "one run that counts has figures");
}

#[test]
fn a_tally_leaves_out_what_has_no_limit_or_no_figures() {
    let mut campaign = campaign("sparse", "once", 1);
    run(&mut campaign, OURS, rss(0, 0, 0), &[("top_kib", 2000.0), ("used_kib", 1600.0), ("faults", 5.0)]);
    let rows = judge(&campaign);
    assert_eq!((tally(&rows, OURS), tally(&rows, LIBC), tally(&rows, 99)), ((1, 1), (0, 0), (0, 0)));
}
