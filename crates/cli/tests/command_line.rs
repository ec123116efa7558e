//! What the program says of its own command line, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod tool;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::ExitStatusExt;

use tool::{assert_misused, assert_refused, faultless};

/// SIGPIPE's number.
const SIGPIPE: i32 = 13;

/// What asks for words instead of work.
const QUESTIONS: [&[&str]; 4] = [&["--help"], &["--version"], &["faults", "--help"], &["help", "bench"]];

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
    }
}

#[test]
fn a_list_of_what_there_is_and_a_saved_campaign_are_not_asked_for_together() {
    assert_misused(&mut faultless(&["bench", "--list", "--load", "x"]), "--list");
}
