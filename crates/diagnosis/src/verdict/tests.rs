use super::*;
use crate::effect::tests::runs;

const ONE_PROCESS: Yardstick = Yardstick { page_bytes: 4096, peaks_bytes: 0 };

fn judge(arms: &[ArmResult]) -> Option<Verdict> {
    judge_in(Scope::All, arms)
}

fn judge_in(scope: Scope, arms: &[ArmResult]) -> Option<Verdict> {
    super::judge(arms, scope, ONE_PROCESS)
}

fn setting(variable: &'static str) -> Setting {
    Setting { variable, value: "1".into() }
}

fn arm(name: &str, role: Role, runs: Vec<Measurement>) -> ArmResult {
    ArmResult { name: name.into(), role, runs }
}

fn under_faultless(elapsed: f64, faults: u64, peak_mib: u64, final_mib: u64) -> Vec<Measurement> {
    let mut runs = runs(elapsed, faults, peak_mib, final_mib);
    runs.iter_mut().for_each(|run| run.mapped_files.push("/f/libfaultless-1.so".into()));
    runs
}

fn halves() -> (Setting, Setting) {
    (setting("MALLOC_MMAP_THRESHOLD_"), setting("MALLOC_TRIM_THRESHOLD_"))
}

#[test]
fn on_the_demo_both_halves_together_and_faultless_help() {
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.6, 3_000_000, 18, 2)),
        arm("libc tuned", Role::Libc(vec![mmap.clone(), trim.clone()]), runs(1.25, 4_300, 18, 17)),
        arm("mmap half only", Role::Libc(vec![mmap]), runs(5.7, 3_000_000, 18, 10)),
        arm("trim half only", Role::Libc(vec![trim]), runs(5.6, 3_000_000, 18, 2)),
        arm("Faultless", Role::Faultless, under_faultless(1.25, 6_500, 18, 2)),
    ])
    .unwrap();
    assert_eq!(verdict.best_libc, Some(1));
    assert!(verdict.faultless_helps && verdict.endings_agree);
    assert!(
        verdict
            .sentence
            .contains("libc tuned helps (elapsed ×0.22, faults ×0.001) and keeps 17 MiB to the end")
    );
    assert!(verdict.sentence.contains("trim half only has no effect"));
    assert!(verdict.sentence.starts_with("As it is, 3.00 million minor faults"));
    assert_eq!(verdict.sentence.matches("Faultless").count(), 1, "{}", verdict.sentence);
}

#[test]
fn threads_that_wait_are_named_as_the_reason() {
    let mut arms = [
        arm("libc as is", Role::AsIs, runs(3.0, 3000, 18, 2)),
        arm("arenas only", Role::Libc(vec![setting("MALLOC_ARENA_MAX")]), runs(5.0, 3000, 18, 2)),
        arm("Faultless", Role::Faultless, under_faultless(1.0, 3000, 18, 2)),
    ];
    for (arm, waits) in arms.iter_mut().zip([10_000, 80_000, 100]) {
        arm.runs.iter_mut().for_each(|run| run.waits = waits);
    }
    let sentence = judge(&arms).unwrap().sentence;
    assert!(sentence.contains("Faultless helps (elapsed ×0.33, waits ×0.010)"), "{sentence}");
    assert!(sentence.contains("is worse (elapsed ×1.67, processor time ×1.67, waits ×8.00)"), "{sentence}");
}

#[test]
fn memory_that_is_gone_at_the_end_is_named_where_nothing_else_differs() {
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(1.0, 13_000, 56, 52)),
        arm("Faultless", Role::Faultless, under_faultless(1.0, 13_000, 56, 35)),
    ])
    .unwrap();
    assert!(
        verdict
            .sentence
            .ends_with("a lower peak; Faultless takes as long and keeps only 35 MiB to the end, not 52 MiB."),
        "{}",
        verdict.sentence
    );
}

#[test]
fn less_processor_time_that_the_clock_does_not_show_is_told_as_that() {
    let waiting = |mut runs: Vec<Measurement>| {
        runs.iter_mut().for_each(|run| run.elapsed = std::time::Duration::from_secs(9));
        runs
    };
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, waiting(runs(2.0, 300_000, 18, 2))),
        arm("libc tuned", Role::Libc(Vec::new()), waiting(runs(1.0, 4_300, 18, 2))),
        arm("libc defaults", Role::Defaults, waiting(runs(1.5, 4_300, 18, 2))),
    ])
    .unwrap();
    assert!(
        verdict.sentence.contains("libc tuned helps (processor time ×0.50, faults"),
        "{}",
        verdict.sentence
    );
    assert!(verdict.sentence.contains("libc defaults helps (processor time ×0.75)"), "{}", verdict.sentence);
}

#[test]
fn a_half_that_does_all_of_it_is_preferred() {
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2)),
        arm("libc tuned", Role::Libc(vec![mmap.clone(), trim.clone()]), runs(1.20, 4_300, 18, 2)),
        arm("trim half only", Role::Libc(vec![trim]), runs(1.22, 4_300, 18, 2)),
        arm("Faultless", Role::Faultless, under_faultless(5.0, 3_000_000, 18, 2)),
    ])
    .unwrap();
    assert_eq!(verdict.best_libc, Some(2));
    assert!(!verdict.faultless_helps);
}

#[test]
fn of_settings_that_take_less_time_processor_time_decides() {
    let elapsed = |mut runs: Vec<Measurement>, s| {
        runs.iter_mut().for_each(|run| run.elapsed = std::time::Duration::from_secs_f64(s));
        runs
    };
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2)),
        arm("mmap half only", Role::Libc(vec![mmap]), elapsed(runs(2.0, 4_300, 18, 2), 1.0)),
        arm("trim half only", Role::Libc(vec![trim]), elapsed(runs(1.0, 4_300, 18, 2), 2.0)),
    ]);
    assert_eq!(verdict.unwrap().best_libc, Some(2));
}

#[test]
fn a_difference_that_counts_for_nothing_else_does_not_choose_between_settings() {
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(1.2, 768_000, 6, 6)),
        arm("libc defaults", Role::Defaults, runs(0.013, 2_600, 6, 6)),
        arm("libc tuned", Role::Libc(vec![mmap, trim]), runs(0.011, 1_300, 6, 6)),
        arm("Faultless", Role::Faultless, under_faultless(0.013, 2_600, 6, 6)),
    ])
    .unwrap();
    assert_eq!(verdict.best_libc, Some(1), "{}", verdict.sentence);
}

#[test]
fn settings_that_are_needed_to_hold_less_memory_are_set() {
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2)),
        arm("libc tuned", Role::Libc(vec![mmap, trim.clone()]), runs(1.20, 4_300, 18, 2)),
        arm("trim half only", Role::Libc(vec![trim]), runs(1.22, 4_300, 18, 17)),
    ])
    .unwrap();
    assert_eq!(verdict.best_libc, Some(1), "{}", verdict.sentence);
}

#[test]
fn what_takes_less_time_is_preferred_to_what_takes_less_memory() {
    let (mmap, trim) = halves();
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 300_000, 50, 26)),
        arm("libc tuned", Role::Libc(vec![mmap, trim.clone()]), runs(4.2, 100_000, 50, 44)),
        arm("trim half only", Role::Libc(vec![trim]), runs(5.0, 300_000, 40, 26)),
    ])
    .unwrap();
    assert_eq!(verdict.best_libc, Some(1), "{}", verdict.sentence);
}

#[test]
fn less_memory_that_is_bought_with_faults_is_preferred_to_none_and_says_so() {
    let (mmap, trim) = halves();
    let as_is = arm("libc as is", Role::AsIs, runs(2.4, 47_000, 51, 26));
    let tuned = arm("libc tuned", Role::Libc(vec![mmap, trim.clone()]), runs(2.4, 17_700, 45, 44));
    let trim = arm("trim half only", Role::Libc(vec![trim]), runs(2.5, 194_000, 40, 26));
    let verdict = judge(&[as_is.clone(), tuned, trim.clone()]).unwrap();
    assert_eq!(verdict.best_libc, Some(1), "{}", verdict.sentence);
    assert!(
        verdict
            .sentence
            .contains("trim half only takes less memory (peak RSS ×0.78) and more faults (×4.13)"),
        "{}",
        verdict.sentence
    );
    assert_eq!(judge(&[as_is, trim]).unwrap().best_libc, Some(1));
}

#[test]
fn of_settings_that_only_take_less_memory_the_one_that_takes_least_is_best() {
    let (mmap, trim) = halves();
    let arms = [
        arm("libc as is", Role::AsIs, runs(5.0, 30_000, 100, 20)),
        arm("mmap half only", Role::Libc(vec![mmap]), runs(4.95, 30_000, 80, 20)),
        arm("trim half only", Role::Libc(vec![trim]), runs(5.0, 29_950, 50, 20)),
    ];
    let verdict = judge(&arms).unwrap();
    assert_eq!(verdict.best_libc, Some(2), "{}", verdict.sentence);
    assert!(verdict.sentence.contains("trim half only helps (peak RSS ×0.50)"), "{}", verdict.sentence);
    assert!(
        verdict.sentence.contains("mmap half only takes less memory (peak RSS ×0.80)"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn where_nothing_helps_it_says_so_and_names_what_is_worse() {
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 30_000, 100, 90)),
        arm("libc tuned", Role::Libc(vec![setting("MALLOC_ARENA_MAX")]), runs(5.02, 30_000, 100, 90)),
        arm("Faultless", Role::Faultless, under_faultless(6.5, 30_000, 100, 90)),
    ])
    .unwrap();
    assert_eq!((verdict.best_libc, verdict.faultless_helps), (None, false));
    assert!(verdict.sentence.starts_with("Nothing helps, leave the allocator alone"));
    assert!(verdict.sentence.contains("Faultless is worse (elapsed ×1.30"));
    assert!(!verdict.sentence.contains("takes them away"), "of few faults nothing is said");
    assert!(!verdict.sentence.contains("no libc setting"), "{}", verdict.sentence);
}

#[test]
fn what_does_not_help_says_what_it_costs() {
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 30_000, 100, 50)),
        arm("libc tuned", Role::Libc(vec![setting("MALLOC_ARENA_MAX")]), runs(5.0, 60_000, 100, 50)),
        arm("Faultless", Role::Faultless, under_faultless(5.0, 30_000, 100, 90)),
    ])
    .unwrap();
    assert!(verdict.sentence.contains("libc tuned takes more faults (×2.00)"), "{}", verdict.sentence);
    assert!(
        verdict.sentence.contains("beyond the noise and keeps 90 MiB to the end"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn one_remedy_is_enough_for_what_the_command_suffers_from_and_its_price_is_told() {
    let tuned = Role::Libc(vec![setting("MALLOC_TRIM_THRESHOLD_")]);
    for (name, role, remedied) in [
        ("libc tuned", tuned, runs(1.0, 4_300, 40, 2)),
        ("Faultless", Role::Faultless, under_faultless(1.0, 4_300, 40, 2)),
    ] {
        let as_is = arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2));
        let sentence = judge(&[as_is, arm(name, role, remedied)]).unwrap().sentence;
        assert!(
            sentence.starts_with("As it is, 3.00 million") && !sentence.contains("othing helps"),
            "{sentence}"
        );
        assert!(sentence.ends_with(" at the price of peak RSS ×2.22."), "{sentence}");
    }
}

#[test]
fn of_a_part_it_does_not_say_to_leave_the_allocator_alone() {
    let arms = [
        arm("libc as is", Role::AsIs, runs(1.2, 120_000, 40, 14)),
        arm("Faultless", Role::Faultless, under_faultless(1.2, 120_500, 41, 14)),
    ];
    let sentence = judge_in(Scope::Part, &arms).unwrap().sentence;
    assert!(sentence.starts_with("Nothing helps what was measured, which is not all"), "{sentence}");
    assert!(!sentence.contains("leave") && !sentence.contains("takes them away"), "{sentence}");
}

#[test]
fn in_doubt_it_says_so_whatever_the_figures_say() {
    let arms = |faults| {
        [
            arm("libc as is", Role::AsIs, runs(1.2, 120_000, 40, 14)),
            arm("Faultless", Role::Faultless, under_faultless(faults as f64 / 1e5, faults, 41, 14)),
        ]
    };
    let sentence = judge_in(Scope::Doubtful, &arms(50_000)).unwrap().sentence;
    assert!(
        sentence.starts_with("In figures that are in doubt, as it is, 120,000 minor faults"),
        "{sentence}"
    );
    let sentence = judge_in(Scope::Doubtful, &arms(120_000)).unwrap().sentence;
    assert!(sentence.starts_with("Nothing that was tried helps, which proves little"), "{sentence}");
    assert!(!sentence.contains("leave") && !sentence.contains("takes them away"), "{sentence}");
    let sentence = judge_in(
        Scope::Doubtful,
        &[
            arm("libc as is", Role::AsIs, runs(1.0, 13_000, 56, 52)),
            arm("Faultless", Role::Faultless, under_faultless(1.0, 13_000, 56, 35)),
        ],
    )
    .unwrap()
    .sentence;
    let says = "Nothing that was tried takes less time or a lower peak, which proves little; Faultless";
    assert!(sentence.starts_with(says) && sentence.contains("to the end, not"), "{sentence}");
}

fn killed(mut runs: Vec<Measurement>) -> Vec<Measurement> {
    runs.iter_mut().for_each(|run| run.ending = Ending::Killed(9));
    runs
}

#[test]
fn what_was_killed_for_want_of_memory_shows_no_remedy() {
    let tuned = || Role::Libc(vec![setting("MALLOC_TRIM_THRESHOLD_")]);
    let verdict = judge_in(
        Scope::Killed,
        &[
            arm("libc as is", Role::AsIs, killed(runs(1.2, 12_000, 48, 48))),
            arm("libc tuned", tuned(), killed(runs(0.2, 12_000, 1, 1))),
            arm("Faultless", Role::Faultless, killed(under_faultless(1.2, 12_000, 48, 48))),
        ],
    )
    .unwrap();
    let says =
        "For want of memory the kernel killed it under every arm, so how much it takes is in no figure.";
    assert_eq!(verdict.sentence, says);
    assert!(verdict.best_libc.is_none() && !verdict.faultless_helps);
    assert!(verdict.arms.iter().all(|arm| arm.effect.is_none()));
}

#[test]
fn who_is_not_killed_for_want_of_memory_is_named() {
    let as_is = || arm("libc as is", Role::AsIs, killed(runs(1.2, 12_000, 48, 48)));
    let lives = arm("Faultless", Role::Faultless, under_faultless(1.2, 12_000, 30, 30));
    let sentence = judge_in(Scope::Killed, &[as_is(), lives]).unwrap().sentence;
    assert_eq!(
        sentence,
        "For want of memory the kernel killed it under libc as is, and not under Faultless."
    );

    let lives = arm("libc as is", Role::AsIs, runs(1.2, 12_000, 48, 48));
    let dies = arm("Faultless", Role::Faultless, killed(under_faultless(0.2, 9_000, 1, 1)));
    let sentence = judge_in(Scope::Killed, &[lives, dies]).unwrap().sentence;
    let says = "For want of memory the kernel killed it under Faultless, and not under libc as is.";
    assert_eq!(sentence, says);
}

#[test]
fn faults_that_stay_are_said_to_stay_and_no_more() {
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(1.2, 120_000, 40, 14)),
        arm("Faultless", Role::Faultless, under_faultless(1.2, 120_500, 41, 14)),
    ])
    .unwrap();
    assert!(
        verdict.faults_stay
            && verdict.sentence.contains("12 times over, and nothing that was tried takes them away;"),
        "{}",
        verdict.sentence
    );
}

#[test]
fn faults_that_a_setting_takes_away_are_not_said_to_stay() {
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(1.2, 120_000, 40, 14)),
        arm("libc tuned", Role::Libc(vec![setting("MALLOC_TRIM_THRESHOLD_")]), runs(1.2, 60_000, 40, 14)),
        arm("Faultless", Role::Faultless, under_faultless(1.2, 120_500, 41, 14)),
    ])
    .unwrap();
    assert!(!verdict.faults_stay && !verdict.sentence.contains("takes them away"), "{}", verdict.sentence);
    assert!(verdict.sentence.contains("libc tuned takes fewer faults (×0.50)"), "{}", verdict.sentence);
}

#[test]
fn of_a_command_that_is_linked_with_faultless_nothing_is_said_to_help_or_not() {
    let runs = under_faultless(1.2, 120_000, 40, 14);
    let linked = [arm("libc as is", Role::AsIs, runs.clone()), arm("Faultless", Role::Faultless, runs)];
    let sentence = judge(&linked).unwrap().sentence;
    assert!(sentence.starts_with("The command runs under Faultless as it is, and no other"), "{sentence}");
    assert!(!sentence.contains("othing helps") && !sentence.contains("takes them away"), "{sentence}");
}

#[test]
fn an_allocator_under_which_the_command_fails_does_not_help() {
    let mut broken = under_faultless(0.5, 300, 18, 2);
    for run in &mut broken {
        run.ending = Ending::Killed(11);
    }
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2)),
        arm("libc tuned", Role::Libc(vec![setting("MALLOC_ARENA_MAX")]), broken.clone()),
        arm("Faultless", Role::Faultless, broken),
    ])
    .unwrap();
    assert!(!verdict.faultless_helps && !verdict.endings_agree);
    assert_eq!(verdict.best_libc, None);
    assert!(verdict.sentence.contains("libc tuned ended otherwise"), "{}", verdict.sentence);
    assert!(!verdict.sentence.contains("tuned helps"), "{}", verdict.sentence);
    assert!(verdict.sentence.starts_with("Nothing helps"), "{}", verdict.sentence);
    assert!(!verdict.sentence.contains("takes them away"), "{}", verdict.sentence);
    assert!(verdict.arms.iter().all(|arm| arm.effect.is_none()));
}

#[test]
fn an_allocator_that_was_not_loaded_proves_nothing() {
    let mut not_loaded = under_faultless(1.2, 120_500, 41, 14);
    not_loaded[2].mapped_files = vec!["/usr/lib/libc.so.6".into()];
    let verdict = judge(&[
        arm("libc as is", Role::AsIs, runs(1.2, 120_000, 40, 14)),
        arm(
            "trim half only",
            Role::Libc(vec![setting("MALLOC_TRIM_THRESHOLD_")]),
            runs(1.2, 120_000, 40, 14),
        ),
        arm("Faultless", Role::Faultless, not_loaded),
    ])
    .unwrap();
    assert!(!verdict.faultless_helps);
    assert_eq!(
        verdict.sentence,
        "No libc setting helps; trim half only has no effect beyond the noise; Faultless was not loaded by the process \
         that remained at the end, so its figures say nothing of it."
    );
}

#[test]
fn endings_that_differ_from_run_to_run_are_the_same_in_any_order() {
    let of = |endings: [i32; 3]| {
        let mut runs = runs(1.2, 1000, 40, 14);
        runs.iter_mut().zip(endings).for_each(|(run, status)| run.ending = Ending::Exited(status));
        arm("libc as is", Role::AsIs, runs)
    };
    assert!(end_alike(&of([0, 1, 0]), &of([1, 0, 0])));
    assert!(!end_alike(&of([0, 1, 0]), &of([0, 0, 0])) && !end_alike(&of([0, 0, 0]), &of([1, 1, 1])));
    assert!(!end_alike(&of([0, 0, 0]), &of([0, 1, 0])), "some failures are too many");
    assert!(!judge(&[of([0, 1, 0])]).unwrap().endings_agree);
}

#[test]
fn settings_that_were_not_tried_are_not_said_not_to_help() {
    let as_is = arm("libc as is", Role::AsIs, runs(5.0, 3_000_000, 18, 2));
    let ours = arm("Faultless", Role::Faultless, under_faultless(1.2, 4_000, 18, 2));
    let verdict = judge(&[as_is.clone(), ours.clone()]).unwrap();
    assert!(!verdict.sentence.contains("libc"), "{}", verdict.sentence);
    let tried = Role::Libc(vec![setting("MALLOC_TRIM_THRESHOLD_")]);
    let verdict = judge(&[as_is, arm("trim half only", tried, runs(5.0, 3_000_000, 18, 2)), ours]).unwrap();
    assert!(verdict.sentence.contains("no libc setting helps"), "{}", verdict.sentence);
}

#[test]
fn nothing_is_judged_without_a_base_or_runs() {
    assert!(judge(&[]).is_none());
    assert!(judge(&[arm("libc as is", Role::AsIs, Vec::new())]).is_none());
}

#[test]
fn as_many_faults_bring_in_more_where_pages_are_larger() {
    let arms = [
        arm("libc as is", Role::AsIs, runs(1.2, 30_000, 100, 14)),
        arm("Faultless", Role::Faultless, under_faultless(0.5, 1_000, 100, 14)),
    ];
    let of_pages = |page_bytes| {
        super::judge(&arms, Scope::All, Yardstick { page_bytes, ..ONE_PROCESS }).unwrap().sentence
    };
    assert!(of_pages(4 << 10).starts_with("The allocator makes a difference"), "{}", of_pages(4 << 10));
    let large = of_pages(64 << 10);
    assert!(
        large.starts_with("As it is, 30,000 minor faults bring in the peak RSS 19 times over"),
        "{large}"
    );
}

#[test]
fn processes_that_each_bring_in_their_memory_once_are_not_said_to_bring_it_in_many_times_over() {
    let of_processes = |faulting: u64, ours: f64| {
        let arms = [
            arm("libc as is", Role::AsIs, runs(1.2, faulting, 40, 14)),
            arm("Faultless", Role::Faultless, under_faultless(ours, faulting, 40, 14)),
        ];
        let verdict =
            super::judge(&arms, Scope::All, Yardstick { peaks_bytes: 400 << 20, ..ONE_PROCESS }).unwrap();
        (verdict.sentence, verdict.faults_stay)
    };
    // Ten processes of 40 MiB, then one of them that brings it in again and again.
    let (once, stay) = of_processes(100_000, 1.2);
    assert!(!stay && once.starts_with("Nothing helps, leave the allocator alone; Faultless"), "{once}");
    assert!(of_processes(100_000, 0.5).0.starts_with("The allocator makes a difference"));
    let (often, stay) = of_processes(1_000_000, 1.2);
    assert!(stay && often.contains("faults bring in each process's peak RSS 10 times over"), "{often}");
}

#[test]
fn what_takes_less_time_is_praised_with_what_it_does_to_the_peak() {
    let praised = |peak_mib, final_mib| {
        let arms = [
            arm("libc as is", Role::AsIs, runs(1.2, 50_000, 200, 200)),
            arm("Faultless", Role::Faultless, under_faultless(0.6, 10_000, peak_mib, final_mib)),
        ];
        judge(&arms).unwrap().sentence
    };
    for (peak_mib, final_mib, says) in [
        (40, 40, "Faultless helps (elapsed ×0.50, faults ×0.20, peak RSS ×0.20)."),
        (200, 200, "Faultless helps (elapsed ×0.50, faults ×0.20)."),
        (600, 200, "faults ×0.20) at the price of peak RSS ×3.00."),
        (600, 600, "faults ×0.20) and keeps 600 MiB to the end at the price of peak RSS ×3.00."),
    ] {
        assert!(praised(peak_mib, final_mib).ends_with(says), "{}", praised(peak_mib, final_mib));
    }
}
