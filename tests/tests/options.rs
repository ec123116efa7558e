//! The variable `FAULTLESS`: what it sets, and what it says when it is wrong.

use faultless_tests::library::preload;
use faultless_tests::program::{Outcome, Program};
use std::path::{Path, PathBuf};

/// Runs an ordinary program with `FAULTLESS=value`, and checks that it is the same as ever; `None` when libc is tested.
fn ordinary_with(value: &str) -> Option<Outcome> {
    preload()?;
    let outcome = Program::new("ordinary.c").variable("FAULTLESS", value).run();
    assert_eq!(
        outcome.status.code(),
        Some(7),
        "FAULTLESS={value} changed the exit status; stderr: {}",
        outcome.stderr
    );
    assert_eq!(outcome.stdout, "ordinary\n", "FAULTLESS={value} changed the output");
    Some(outcome)
}

#[test]
fn unknown_key_is_named_once_and_ignored() {
    let Some(outcome) = ordinary_with("nonsense:1") else { return };
    assert_eq!(outcome.stderr.lines().count(), 1, "stderr: {}", outcome.stderr);
    assert!(
        outcome.stderr.starts_with("faultless: ") && outcome.stderr.contains("nonsense"),
        "stderr: {}",
        outcome.stderr
    );
}

#[test]
fn bad_value_is_named_once_and_ignored() {
    let Some(outcome) = ordinary_with("stats:gibberish") else { return };
    assert_eq!(outcome.stderr.lines().count(), 1, "stderr: {}", outcome.stderr);
    assert!(
        outcome.stderr.contains("stats") && outcome.stderr.contains("gibberish"),
        "stderr: {}",
        outcome.stderr
    );
}

#[test]
fn text_that_is_no_list_of_keys_is_survived() {
    for value in [",", ":", "nonsense", "nonsense:", ":1", ",,,:::", "é:ü", &"x".repeat(100_000)] {
        ordinary_with(value);
    }
}

#[test]
fn an_option_too_long_to_be_shown_is_a_line_that_says_what_is_expected() {
    let (long, escaped) = ("x".repeat(2000), "\x1b".repeat(2000));
    for (value, expected) in [
        (long.clone(), "huge_pages"),
        (escaped.clone(), "huge_pages"),
        (format!("report:{long}"), "1 to 1024 bytes"),
        (format!("thrift:{escaped}"), "1 to 1000000"),
    ] {
        let Some(outcome) = ordinary_with(&value) else { return };
        assert_eq!(outcome.stderr.lines().count(), 1, "stderr: {}", outcome.stderr);
        assert!(outcome.stderr.ends_with('\n') && outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
}

#[test]
fn empty_variable_is_as_none() {
    let Some(outcome) = ordinary_with("") else { return };
    assert_eq!(outcome.stderr, "");
}

#[test]
fn statistics_at_exit_are_printed_on_stderr() {
    let Some(outcome) = ordinary_with("stats:exit") else { return };
    assert!(!outcome.stderr.is_empty(), "FAULTLESS=stats:exit printed nothing");
}

#[test]
fn statistics_at_exit_go_into_no_file_that_took_the_place_of_stderr() {
    if preload().is_some() {
        let outcome = Program::new("other_standard_error.c").variable("FAULTLESS", "stats:exit").run();
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stdout, "alone\n");
    }
}

#[test]
fn trace_that_cannot_be_written_is_said() {
    let Some(outcome) = ordinary_with("trace:/proc/none/trace") else { return };
    assert!(outcome.stderr.contains("cannot write the whole trace"), "{}", outcome.stderr);
}

#[test]
fn statistics_of_several_processes_do_not_mix_in_a_pipe() {
    if preload().is_some() {
        Program::new("stats_print.c").argument("whole").passes();
    }
}

#[test]
fn wrong_key_does_not_hide_a_right_one() {
    let Some(outcome) = ordinary_with("nonsense:1,stats:exit") else { return };
    assert!(
        outcome.stderr.contains("nonsense") && outcome.stderr.lines().count() > 1,
        "stderr: {}",
        outcome.stderr
    );
}

/// The files that processes wrote whose variable names this prefix: with a point and their number behind it.
fn files_of(prefix: &Path) -> Vec<PathBuf> {
    let name = format!("{}.", prefix.file_name().unwrap_or_default().to_string_lossy());
    let files = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let is_one =
        |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
    files.map(|file| file.path()).filter(is_one).collect()
}

/// Numbers of the report's line for the large blocks of 8 MiB: smallest, largest, allocations, peak.
fn report_of_8_mib(case: &str) -> Option<Vec<u64>> {
    preload()?;
    let prefix = std::env::temp_dir().join(format!("faultless-report-{}-{case}", std::process::id()));
    let value = format!("report:{}", prefix.display());
    Program::new("resident.c").argument(case).variable("FAULTLESS", &value).passes();
    let mut found = None;
    for file in files_of(&prefix) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let numbers = |line: &str| line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let mut lines = text.lines().filter(|line| line.starts_with("large "));
        found = lines.find(|line| line.contains("8388608")).map(numbers);
        let _ = std::fs::remove_file(file);
    }
    assert!(found.is_some(), "no such line");
    found
}

#[test]
fn blocks_that_come_and_go_are_all_counted() {
    let Some(numbers) = report_of_8_mib("comes_and_goes") else { return };
    assert_eq!(numbers, [8 << 20, 8 << 20, 1200, 8 << 20]);
}

#[test]
fn a_trace_of_spans_is_written_for_the_process_and_for_its_forked_child() {
    let prefix = std::env::temp_dir().join(format!("faultless-trace-{}", std::process::id()));
    let value = format!("trace:{}", prefix.display());
    let Some(outcome) = ordinary_with(&value) else { return };
    assert_eq!(outcome.stderr, "");
    Program::new("fork_family.c").variable("FAULTLESS", &value).passes();
    let traces = files_of(&prefix);
    assert!(traces.len() >= 3, "two programs and their children wrote {} files", traces.len());
    for trace in traces {
        let bytes = std::fs::read(&trace).unwrap_or_default();
        assert!(bytes.starts_with(b"FLSPANS1") && bytes.len() % 8 == 0, "{trace:?}");
        assert_eq!(bytes[11] & 15, 1, "the first event is what was in use");
        let _ = std::fs::remove_file(trace);
    }
}

#[test]
fn a_trace_that_cannot_be_written_changes_nothing() {
    ordinary_with("trace:/nowhere/at/all");
    let Some(outcome) = ordinary_with("trace:") else { return };
    assert!(outcome.stderr.contains("trace:PATH_PREFIX"), "{}", outcome.stderr);
}

#[test]
fn options_that_set_how_memory_goes_back_and_huge_pages_change_just_that() {
    for (value, case) in [
        ("purge:never", "purge_never"),
        ("purge:now", "purge_now"),
        ("huge_pages:never", "no_huge_pages"),
        ("huge_pages:always", "huge_pages"),
    ] {
        if preload().is_some() {
            Program::new("settings.c").argument(case).variable("FAULTLESS", value).passes();
        }
    }
}

#[test]
fn values_that_are_as_without_the_option_and_limits_of_numbers_are_taken_silently() {
    for value in [
        "stats:exit,stats:off",
        "purge:auto,huge_pages:auto,purger:auto,publish:off",
        "thrift:1",
        "thrift:1000000",
    ] {
        let Some(outcome) = ordinary_with(value) else { return };
        assert_eq!(outcome.stderr, "", "{value}");
    }
    for value in
        ["thrift:0", "thrift:1000001", "thrift:", "thrift:1s", "purge:", "purger:on", "huge_pages:madvise"]
    {
        let Some(outcome) = ordinary_with(value) else { return };
        assert!(outcome.stderr.contains(value) && outcome.stderr.contains("expected"), "{}", outcome.stderr);
    }
}

#[test]
fn what_is_written_at_exit_ends_no_program_that_may_not_write() {
    if preload().is_none() {
        return;
    }
    let prefix = std::env::temp_dir().join(format!("faultless-refused-{}", std::process::id()));
    for value in
        ["stats:exit", &format!("report:{}", prefix.display()), &format!("trace:{}", prefix.display())]
    {
        Program::new("refused_writes.c").argument("pipe").variable("FAULTLESS", value).passes();
    }
    for file in files_of(&prefix) {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn what_is_written_at_exit_does_not_hold_up_exit_in_a_signal_handler() {
    if preload().is_none() {
        return;
    }
    let prefix = std::env::temp_dir().join(format!("faultless-in-handler-{}", std::process::id()));
    let path = prefix.display();
    let values = [format!("report:{path}"), format!("stats:exit,trace:{path}")];
    for (value, arguments) in [(&values[0], ["", "threads"].as_slice()), (&values[1], &[""])] {
        for argument in arguments {
            let program = Program::new("exit_in_signal.c").argument(*argument).variable("FAULTLESS", value);
            let Outcome { status, stderr, .. } = program.run();
            assert!(status.success(), "{value} {argument}: {status}; stderr: {stderr}");
            let is_said = stderr.contains("exit was called in a signal handler");
            assert!(is_said || !argument.is_empty(), "no process was in the allocator at its end");
        }
    }
    assert!(!files_of(&prefix).is_empty(), "no process was outside of the allocator at its end");
    for file in files_of(&prefix) {
        let _ = std::fs::remove_file(file);
    }
}

#[test]
fn lines_that_nobody_reads_do_not_end_the_program() {
    if preload().is_some() {
        Program::new("unread_lines.c").passes();
    }
}

#[test]
fn of_two_copies_only_the_one_that_serves_reports() {
    let Some(library) = preload() else { return };
    let name = format!("faultless-two-copies-{}", std::process::id());
    let (copy, prefix) = (std::env::temp_dir().join(format!("{name}.so")), std::env::temp_dir().join(name));
    std::fs::copy(library, &copy).unwrap();
    let both = format!("{}:{}", library.display(), copy.display());
    let options = format!("stats:exit,report:{}", prefix.display());
    let program = Program::new("resident.c").argument("comes_and_goes").without_preload();
    let outcome = program.variable("LD_PRELOAD", &both).variable("FAULTLESS", &options).run();
    let _ = std::fs::remove_file(copy);
    let (mut peaks, files) = (Vec::new(), files_of(&prefix));
    for file in files.into_iter().filter(|file| file.extension().is_some_and(|end| end != "so")) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        peaks
            .extend(text.lines().find_map(|line| line.strip_prefix("heap_peak_bytes ")?.parse::<u64>().ok()));
        let _ = std::fs::remove_file(file);
    }
    assert!(outcome.status.success(), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("faultless statistics").count(), 1, "{}", outcome.stderr);
    assert!(peaks.len() == 1 && peaks[0] >= 8 << 20, "the second copy's was written over it: {peaks:?}");
}
