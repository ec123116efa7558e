//! Time that it was seen to take, or not.

use super::*;

#[test]
fn that_the_time_of_mallocs_calls_was_not_seen_is_said_beside_memory_that_is_wasted() {
    let mut consultation = quiet(100, 2);
    consultation.heap.as_mut().unwrap().walks = trapped();
    assert!(verdict_of(&consultation).ends_with("the lines below try what helps on a new process"));
    consultation.activity.user_s = 5.0;
    let verdict = verdict_of(&consultation);
    assert!(
        verdict.starts_with("its allocator wastes 90 MiB of memory; ")
            && verdict.ends_with("; what malloc's calls take of its processor time was not seen: faultless doctor -- CMD compares it on a fixed amount of work"),
        "{verdict}"
    );
    let churn = Some(thrashing());
    let thrashing = ProcessConsultation { churn, ..consultation };
    assert!(!verdict_of(&thrashing).contains("was not seen"), "{}", verdict_of(&thrashing));
}

#[test]
fn page_faults_take_as_much_as_they_do_on_this_machine() {
    let activity = Activity { minor_faults: 200_000, user_s: 0.5, system_s: 1.5, ..quiet(100, 2).activity };
    let of = |fault_s| {
        let activity = Activity { fault_s, ..activity };
        let consultation = ProcessConsultation { activity, ..quiet(100, 2) };
        consultation.findings().pop().unwrap().sentence
    };
    let slow = of(Some(5.8e-6));
    assert!(
        slow.ends_with("at 0.25 to 5.8 µs each they take 2.5 % to 58.0 % of its processor time"),
        "{slow}"
    );
    for usual in [of(None), of(Some(0.4e-6))] {
        assert!(
            usual.ends_with("at 0.25 to 2 µs each they take 2.5 % to 20.0 % of its processor time"),
            "{usual}"
        );
    }
}

#[test]
fn a_verdict_tells_that_the_process_grew() {
    let of = |grown_mib, peak_before_mib: Option<u64>| {
        let activity = quiet(100, 2).activity;
        let activity = Activity {
            rss_before_bytes: activity.rss_after_bytes - grown_mib * MIB,
            peak_rss_before_bytes: peak_before_mib.map(|mib| mib * MIB),
            ..activity
        };
        verdict_of(&ProcessConsultation { activity, ..quiet(100, 2) })
    };
    assert!(
        of(32, None).ends_with("nothing was found that it wastes; it grew by 32 MiB meanwhile"),
        "{}",
        of(32, None)
    );
    assert!(of(0, None).ends_with("that it wastes"));
    assert!(of(32, Some(120)).ends_with("that it wastes"), "it had been as large before");
}
