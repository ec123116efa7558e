//! What the program says of its own command line, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use place::Place;
use running::{Running, SOON, has_ended, send, wait_until, written_line};
use tool::{after, assert_misused, assert_refused, errors, faultless, text};

/// SIGPIPE's number.
const SIGPIPE: i32 = 13;

/// What asks for words instead of work.
const QUESTIONS: [&[&str]; 4] = [&["--help"], &["--version"], &["faults", "--help"], &["help", "bench"]];

#[test]
fn the_time_of_a_consultation_is_refused_with_the_demo() {
    assert_misused(&mut faultless(&["doctor", "--for", "1s"]), "--pid");
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for words in QUESTIONS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = faultless(words).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("faultless: cannot write the result: No space left"), "{words:?}: {said}");
    }
}

#[test]
fn a_result_for_a_standard_output_that_is_closed_is_a_failure() {
    let own = std::process::id().to_string();
    let works: [&[&str]; 4] = [
        &["check"],
        &["map", "--", "true"],
        &["watch", "--lines", "--for", "1ms", "--pid", &own],
        &["--help"],
    ];
    for words in works {
        assert_refused(
            &mut after("exec >&-", words),
            1,
            "cannot write the result: standard output is closed",
        );
    }
}

#[test]
fn help_that_nobody_reads_any_more_ends_by_a_broken_pipe() {
    for words in QUESTIONS {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let status = faultless(words).stdout(writer).status().unwrap();
        assert_eq!(status.signal(), Some(SIGPIPE), "{words:?}");
    }
}

#[test]
fn what_is_wrong_with_a_command_line_is_its_status_even_where_it_cannot_be_said() {
    for words in [&["--nonsense"][..], &["bench", "--repeat", "x"], &[]] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = faultless(words).stderr(full).status().unwrap();
        assert_eq!(status.code(), Some(2), "{words:?}");
    }
}

#[test]
fn a_number_that_no_process_has_is_refused_and_no_command_is_suggested_instead() {
    for subcommand in ["churn", "map", "faults", "heap", "watch", "export", "check"] {
        assert_refused(&mut faultless(&[subcommand, "--pid", "-1"]), 2, "above 0, not -1");
        for word in ["nginx", "12 13", "99999999999"] {
            let words = [subcommand, "--pid", word];
            assert_misused(
                &mut faultless(&words),
                "expected the number of a process, as pidof NAME tells it",
            );
        }
    }
}

#[test]
fn who_takes_one_process_says_so_of_several() {
    for subcommand in ["churn", "map", "faults", "heap", "check"] {
        let says =
            "expected the number of one process, as pidof -s NAME tells it (watch and export take several)";
        assert_misused(&mut faultless(&[subcommand, "--pid", "12,13"]), says);
    }
}

#[test]
fn a_list_of_what_there_is_and_a_saved_campaign_are_not_asked_for_together() {
    assert_misused(&mut faultless(&["bench", "--list", "--load", "x"]), "--list");
}

#[test]
fn who_wrote_our_option_behind_the_command_is_told_when_it_did_nothing() {
    let place = Place::new("behind");
    let (page, made) = (place.file("page.html"), place.file("made"));
    let says = format!(
        "--html stood behind true and went to it; in front it is ours: faultless doctor -n 1 --html {page} -- true\n"
    );
    for (words, said) in [
        (&["doctor", "-n", "1", "true", "--html", &page][..], Some(says.as_str())),
        (&["doctor", "-n", "1", "--", "true", "--html", &page], None),
        (&["run", "sh", "-c", "touch $2", "x", "--json", &made], None),
    ] {
        let output = faultless(words).output().unwrap();
        let last = errors(&output).lines().last().unwrap_or_default().to_owned() + "\n";
        match said {
            Some(says) if says.ends_with('\n') => assert_eq!(last, format!("faultless: {says}")),
            _ => assert!(!last.contains("stood behind"), "{words:?}: {last}"),
        }
    }
}

#[test]
fn a_command_without_dashes_is_told_where_they_belong() {
    assert_refused(&mut faultless(&["bench", "true"]), 2, "stands behind --: faultless bench -- true\n");
    let program = env!("CARGO_BIN_EXE_faultless");
    assert_refused(&mut faultless(&["map", program]), 1, &format!("to run it, faultless map -- {program}\n"));
    for words in [&["map", "true", "-x"][..], &["bench", "-n", "1", "true", "x", "-l"]] {
        let (at, dashes) = (words.iter().position(|word| *word == "true").unwrap(), ["--"]);
        let line = ["faultless"].iter().chain(&words[..at]).chain(&dashes).chain(&words[at..]);
        let line = line.copied().collect::<Vec<_>>().join(" ");
        assert_misused(&mut faultless(words), &format!("A command of your own stands behind --: {line}\n"));
    }
}

#[test]
fn an_instrument_in_the_background_of_a_script_ends_by_sigint() {
    let subject = Running::start(Command::new("sleep").arg("600"));
    for words in [&["watch", "--lines"][..], &["export", "--listen", "127.0.0.1:0"], &["faults"], &["churn"]]
    {
        // As a shell without job control starts it.
        let mut command = Command::new("/usr/bin/env");
        command.args(["--ignore-signal=INT", env!("CARGO_BIN_EXE_faultless")]).args(words);
        command.args(["--pid", &subject.pid()]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut running = Running::start(command.stderr(Stdio::null()));
        wait_until(|| holds(&running.pid(), 15) || has_ended(running.pid()));
        if has_ended(running.pid()) {
            faultless_skipped::skipped(format!("{words:?} may not look at another process here"));
            continue;
        }
        send("INT", running.pid());
        assert_eq!(running.end_within(SOON).and_then(|status| status.code()), Some(0), "{words:?}");
    }
}

/// Whether the process holds back the signal of this number.
fn holds(pid: &str, number: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> (number - 1) & 1 == 1)
}

#[test]
fn a_terminal_that_only_prints_gets_lines() {
    let own = std::process::id();
    let tool = env!("CARGO_BIN_EXE_faultless");
    for (words, says) in [
        (format!("watch --for 100ms --pid {own}"), "RSS MiB"),
        ("doctor -n 1 -- true".to_owned(), "first look, as it is"),
    ] {
        let mut command = Command::new("script");
        command.args(["-qec", &format!("{tool} {words}"), "/dev/null"]).env("TERM", "dumb");
        let output = match command.env_remove("LD_PRELOAD").stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => text(&output),
            refused => return faultless_skipped::skipped(format!("script: {refused:?}")),
        };
        assert!(output.contains(says) && !output.contains("\x1b[?1049h"), "{words}: {output:?}");
    }
}

#[test]
fn a_small_limit_of_stacks_is_the_commands_and_no_matter_of_ours() {
    let limited = |words: &[&str]| after("ulimit -s 128", words);
    for words in [&["--version"][..], &["bench", "--list"], &["faults", "--help"]] {
        let output = limited(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", errors(&output));
    }
    for words in [&["faults"][..], &["churn"], &["churn", "--malloc"], &["run"], &["heap"]] {
        let output = limited(&[words, &["--", "sh", "-c", "ulimit -s; exit 0"]].concat()).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code < 2), "{words:?}: {}", errors(&output));
        let said = text(&output) + &errors(&output);
        let is_refused = !output.status.success() && errors(&output).lines().count() == 1;
        assert!(is_refused || said.lines().any(|line| line == "128"), "{words:?}: {said}");
    }
}

#[test]
fn a_signal_ends_what_runs_under_a_small_limit_of_stacks_and_its_command() {
    let place = Place::new("stack");
    let (script, number) = ("echo $$ > $0; exec sleep 600", place.file("number"));
    let words = ["run", "--", "sh", "-c", script, &number];
    let mut run = Running::start(&mut after("ulimit -s 128", &words));
    let command: i32 = written_line(&number).parse().unwrap();
    send("TERM", run.pid());
    let status = run.end_within(SOON).unwrap();
    assert_eq!(status.signal(), Some(15), "{status}");
    assert!(has_ended(command));
}

#[test]
fn no_line_of_a_report_ends_with_blanks() {
    let own = std::process::id().to_string();
    let reports: [&[&str]; 8] = [
        &["check"],
        &["map", "--", "true"],
        &["heap", "--", "true"],
        &["churn", "--", "true"],
        &["doctor", "-n", "1", "--", "true"],
        &["bench", "-n", "1", "-a", "libc,faultless", "--", "true"],
        &["bench", "--list"],
        &["watch", "--lines", "--for", "1ms", "--pid", &own],
    ];
    for words in reports {
        let output = faultless(words).output().unwrap();
        let said = text(&output) + &errors(&output);
        let blank = said.lines().find(|line| line.ends_with(' '));
        assert_eq!(blank, None, "{words:?}");
    }
}
