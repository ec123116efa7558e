//! Files that a newer faultless saved, and damaged ones: one line says what is wrong, whichever command reads them.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use place::Place;
use running::{Running, send, state, wait_until};
use tool::{after, assert_misused, assert_refused, errors, faultless, text, was_permitted};

/// The commands that read saved files, each with how such a file of version 1 begins.
const READERS: [(&[&str], &str); 6] = [
    (&["faults"], r#"{"format":"faultless-faults-recording/1","#),
    (&["churn"], r#"{"format":"faultless-churn-recording/1","#),
    (&["churn"], r#"{"format":"faultless-churn-malloc-recording/1","#),
    (&["watch", "--lines", "--replay"], r#"{"line":"begin","format":"faultless-watch/1","#),
    (&["bench", "--load"], r#"{"schema":1,"#),
    (&["map", "--diff", "/proc/self/maps"], r#"{"format":"faultless-map/1","#),
];

/// A campaign that was saved.
const CAMPAIGN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/2026-11-22-2cpu/sun-large.json");

/// The one line by which a command refuses a file of these bytes.
fn refusal(place: &Place, words: &[&str], bytes: &[u8]) -> String {
    let file = place.write("saved", bytes);
    let text = assert_refused(faultless(words).arg(file), 1, "saved");
    assert!(!text.contains("bug"), "{words:?}: {text}");
    text
}

#[test]
fn a_file_of_a_newer_version_is_told_from_a_damaged_one() {
    let place = Place::new("newer");
    for (words, head) in READERS {
        let newer = head.replace("/1\"", "/2\"").replace(":1,", ":2,");
        let text = refusal(&place, words, format!("{newer}\"told\":[]}}\n").as_bytes());
        assert!(text.contains("written by a newer version of faultless"), "{text}");
        let text = refusal(&place, words, format!("{head}\"told\":[]}}\n").as_bytes());
        assert!(!text.contains("newer version"), "{text}");
    }
}

#[test]
fn options_of_recording_are_refused_for_what_was_recorded() {
    let place = Place::new("options");
    let calls = place.file("calls");
    let recorded = faultless(&["churn", "--by", "ptrace", "--record", &calls, "true"]).output().unwrap();
    if !was_permitted(&recorded) {
        return;
    }
    assert!(faultless(&["churn", &calls]).output().unwrap().status.success());
    for option in [&["--for", "5s"][..], &["--by", "seccomp"], &["--malloc"]] {
        let words = [&["churn"], option, &[calls.as_str()]].concat();
        assert_refused(&mut faultless(&words), 2, "");
    }
    let maps = place.file("maps");
    fs::copy("/proc/self/smaps", &maps).unwrap();
    assert!(faultless(&["map", &maps]).output().unwrap().status.success());
    assert_misused(&mut faultless(&["map", "--full", &maps]), "--full");
}

#[test]
fn a_recording_is_known_in_a_pipe_and_however_it_is_laid_out() {
    let place = Place::new("layout");
    let saved = place.file("saved");
    for (subcommand, recording) in [
        ("faults", &["faults"][..]),
        ("churn", &["churn", "--malloc"]),
        ("churn", &["churn", "--by", "ptrace"]),
    ] {
        let words = [recording, &["--record", &saved, "--", "true"]].concat();
        let recorded = faultless(&words).output().unwrap();
        if !was_permitted(&recorded) {
            continue;
        }
        let shown = |file: &str, input: Stdio| {
            let output = faultless(&[subcommand, file]).stdin(input).output().unwrap();
            assert!(output.status.success(), "{recording:?} {file}: {}", errors(&output));
            text(&output)
        };
        let plain = shown(&saved, Stdio::null());
        let folded = place.file("folded");
        let behind = faultless(&[subcommand, &saved, "--folded", &folded]).output().unwrap();
        assert_eq!(text(&behind), plain, "{recording:?}: {}", errors(&behind));
        assert!(fs::exists(&folded).unwrap());
        for input in ["/dev/stdin", "-"] {
            let mut cat = Command::new("cat").arg(&saved).stdout(Stdio::piped()).spawn().unwrap();
            assert_eq!(shown(input, cat.stdout.take().unwrap().into()), plain, "{recording:?}");
            cat.wait().unwrap();
        }
        assert_refused(&mut faultless(&[subcommand, "--", "-"]), 127, "no such command: -");
        let wide = fs::read_to_string(&saved).unwrap().replacen("{\"format\":\"", "{\n  \"format\": \"", 1);
        assert_eq!(shown(&place.write("wide", wide), Stdio::null()), plain, "{recording:?}");
    }
}

#[test]
fn what_is_saved_is_read_from_standard_input_too() {
    let place = Place::new("input");
    let page = place.file("page");
    for (words, saved) in [
        (&["bench", "--load", "-", "--html", &page][..], CAMPAIGN),
        (&["map", "--diff", "-", "/proc/self/smaps"], "/proc/self/smaps"),
    ] {
        let output = faultless(words).stdin(fs::File::open(saved).unwrap()).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", errors(&output));
    }
    assert!(fs::exists(&page).unwrap());
    let refused = |words: &[&str], says: &str| assert_refused(&mut faultless(words), 1, says);
    for (words, says) in [
        (
            &["bench", "--load", "-"][..],
            "standard input: it is no campaign of `faultless bench --json`: it is empty",
        ),
        (&["bench", "--load", "/proc/self/maps"], "faultless bench --json`: it is no JSON"),
        (&["churn", "-"], "standard input: it is no recording"),
        (&["watch", "--replay", "-"], "standard input is empty"),
    ] {
        refused(words, says);
    }
    let core = place.write("core", core_head());
    for (saved, says) in [
        (
            CAMPAIGN,
            "standard input is a campaign of faultless bench: show it with `faultless bench --load -`",
        ),
        (&core, "standard input is a core file: show it with `faultless heap FILE`"),
    ] {
        for words in [&["churn", "-"][..], &["faults", "-"], &["watch", "--replay", "-"]] {
            assert_refused(faultless(words).stdin(fs::File::open(saved).unwrap()), 1, says);
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_does_not_take_the_others_with_it() {
    let place = Place::new("others");
    let calls = place.file("calls");
    let recorded = faultless(&["churn", "--by", "ptrace", "--record", &calls, "true"]).output().unwrap();
    let faults = place.file("faults");
    let sampled = faultless(&["faults", "--record", &faults, "true"]).output().unwrap();
    for (subcommand, saved, made) in [("churn", &calls, recorded), ("faults", &faults, sampled)] {
        if !was_permitted(&made) {
            continue;
        }
        let (folded, profile) = (place.file("folded"), place.file("profile"));
        let words = [subcommand, "--record", "/dev/full", "--folded", &folded, "--pprof", &profile, saved];
        let output = faultless(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", errors(&output));
        assert!(errors(&output).contains("cannot write /dev/full: No space left"), "{}", errors(&output));
        for file in [&folded, &profile] {
            assert!(fs::exists(file).unwrap(), "{words:?}: {file}");
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn a_file_that_never_comes_is_not_waited_for_after_an_interrupt() {
    let place = Place::new("never");
    let pipe = place.file("saved");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let others: [&[&str]; 3] = [&["map"], &["heap"], &["faults", "--diff", &pipe]];
    for words in READERS.map(|(words, _)| words).into_iter().chain(others) {
        let mut running = Running::start(faultless(words).arg(&pipe));
        wait_until(|| state(running.pid()) == Some('S'));
        sleep(Duration::from_millis(100));
        send("TERM", running.pid());
        let ended = running.end_within(Duration::from_secs(10));
        assert_eq!(ended.and_then(|status| status.signal()), Some(15), "{words:?}");
    }
}

#[test]
fn a_reader_that_takes_no_result_does_not_keep_signals_waiting() {
    let place = Place::new("unread");
    // More than a pipe holds.
    let remark = "x".repeat(1 << 20);
    let text = format!(
        r#"{{"format":"faultless-churn-recording/1","tool_version":"0.1.0","subject":"x","mechanism":"ptrace","observed_ns":1,
        "processes":1,"threads_started":0,"execs":0,"lost_calls":0,"cost_per_call_ns":null,"operations":{{}},"ended_mappings":{{}},
        "live_mappings":{{"count":0,"bytes":0}},"cycles":[],"timeline":{{"step_ns":1,"calls":[],"returned_bytes":[]}},
        "callers":[],"stacks":[],"remarks":["{remark}"]}}"#
    );
    let saved = place.write("saved", text);
    let mut running = Running::start(faultless(&["churn", "--json", &saved]).stdout(Stdio::piped()));
    wait_until(|| state(running.pid()) == Some('S'));
    sleep(Duration::from_millis(100));
    send("TERM", running.pid());
    let ended = running.end_within(Duration::from_secs(10));
    assert_eq!(ended.and_then(|status| status.signal()), Some(15));
}

#[test]
fn a_file_that_is_too_large_is_refused_unread() {
    let place = Place::new("large");
    for (words, head) in READERS.iter().filter(|(words, _)| words[0] != "watch") {
        let file = place.write("saved", head);
        fs::File::options().write(true).open(&file).unwrap().set_len((1 << 30) + 1).unwrap();
        // What it would be read into finds no room.
        let words = [words, &[file.as_str()][..]].concat();
        assert_refused(&mut after("ulimit -v 900000", &words), 1, "it is larger than 1 GiB");
        if words[0] == "map" {
            let line = format!("ulimit -v 900000 && exec <{file}");
            assert_refused(&mut after(&line, &["map", "-"]), 1, "it is larger than 1 GiB");
        }
    }
}

#[test]
fn damaged_files_are_refused_in_one_line() {
    let place = Place::new("damaged");
    for (words, head) in READERS {
        for rest in ["", "\"a", "\"a\":1e999}", "\"tool_version\":\"\u{1b}[2J\",\"a\":\n\n\u{0}"] {
            refusal(&place, words, format!("{head}{rest}").as_bytes());
        }
        let deep = format!("{head}\"a\":{}", "[".repeat(100_000));
        refusal(&place, words, deep.as_bytes());
        refusal(&place, words, &[head.as_bytes(), b"\"a\":\"\xff\xfe\0\"}"].concat());
    }
}

#[test]
fn calls_beyond_all_measure_are_damage() {
    let place = Place::new("measure");
    let operation = r#"{"amount":{"count":18446744073709551615,"bytes":4096},"failed":1,"sizes":{}}"#;
    let text = format!(
        r#"{{"format":"faultless-churn-recording/1","tool_version":"0.1.0","subject":"x","mechanism":"ptrace","observed_ns":1,
        "processes":1,"threads_started":0,"execs":0,"lost_calls":0,"cost_per_call_ns":null,"operations":{{"unmap":{operation}}},
        "ended_mappings":{{}},"live_mappings":{{"count":0,"bytes":0}},"cycles":[],
        "timeline":{{"step_ns":1,"calls":[],"returned_bytes":[]}},"callers":[],"stacks":[],"remarks":[]}}"#
    );
    assert!(refusal(&place, &["churn"], text.as_bytes()).contains("more calls than there can be"));
}

/// The head of a core file of x86-64: of 64 bits, little-endian, of type 4, with a table of no segments.
fn core_head() -> Vec<u8> {
    let parts = [
        b"\x7fELF\x02\x01\x01".as_slice(),
        &[0; 9],
        &[4, 0, 62, 0, 1],
        &[0; 11],
        &[64],
        &[0; 21],
        &[56],
        &[0; 9],
    ];
    parts.concat()
}

#[test]
fn a_file_that_is_no_recording_of_the_instrument_is_not_taken_for_a_command() {
    let place = Place::new("mistaken");
    let of = |head: &str| format!("{head}\"tool_version\":\"0.1.0\"}}\n");
    let others: [&[&str]; 6] = [
        &["faults"],
        &["faults", "--diff", "/dev/null"],
        &["churn"],
        &["heap"],
        &["map"],
        &["watch", "--replay"],
    ];
    for (words, head) in &READERS[..5] {
        let subcommand = words[0];
        let (kind, shown) = match subcommand {
            "watch" => ("recording", "watch --replay"),
            "bench" => ("campaign", "bench --load"),
            _ => ("recording", subcommand),
        };
        for other in others.iter().filter(|other| other[0] != subcommand) {
            let first = if other.contains(&"--diff") { &other[..2] } else { *other };
            let file = place.write("saved", of(head).as_bytes());
            let words = [first, &[file.as_str()], &other[first.len()..]].concat();
            let says =
                format!("saved is a {kind} of faultless {subcommand}: show it with `faultless {shown} ");
            let text = assert_refused(&mut faultless(&words), 1, "saved");
            assert!(text.contains(&says), "{other:?}: {text}");
        }
    }
    let text = refusal(&place, &["bench", "--load"], br#"{"exit_status":0,"format":"faultless-run/1"}"#);
    assert!(text.contains("its format is faultless-run/1"), "{text}");
    for subcommand in ["faults", "churn", "map"] {
        let text = refusal(&place, &[subcommand], &core_head());
        assert!(text.contains("saved is a core file: show it with `faultless heap "), "{text}");
    }
    for (subcommand, wanted) in [
        ("faults", "no recording of faultless faults"),
        ("churn", "no recording of faultless churn"),
        ("heap", "no core file"),
    ] {
        let text = refusal(&place, &[subcommand], b"");
        assert!(text.contains(&format!("saved is empty: {wanted}")), "{text}");
        let text = refusal(&place, &[subcommand], b"{\"format\":\"faultless");
        assert!(text.contains(&format!("saved is {wanted}")), "{text}");
        // Behind -- stands a command, and a program without permission is to get it.
        let file = place.write("saved", b"");
        assert_refused(&mut faultless(&[subcommand, "--", &file]), 126, "may not be executed");
        let program = place.write("program", b"#!/bin/sh\n");
        assert_refused(&mut faultless(&[subcommand, &program]), 126, "may not be executed");
    }
}

#[test]
fn a_file_called_as_a_program_does_not_start_the_program() {
    let place = Place::new("called");
    place.write("cut", b"{\"format\":\"faultless");
    for subcommand in ["faults", "churn", "heap"] {
        let mut tool = faultless(&[subcommand, "cut"]);
        let says = format!("(faultless {subcommand} -- cut runs the command of this name)");
        assert_refused(tool.current_dir(&place.0), 1, &says);
    }
}

#[test]
fn a_file_that_was_cut_off_is_said_to_be() {
    let place = Place::new("cut");
    for (words, head) in READERS {
        for rest in ["", "\"tool_ver", "\"tool_version\":\"0.1"] {
            let text = refusal(&place, words, format!("{head}{rest}").as_bytes());
            assert!(text.contains("it was cut off"), "{words:?}: {text}");
        }
    }
}

#[test]
fn a_compressed_file_is_said_to_be() {
    let place = Place::new("compressed");
    let heap: (&[&str], &str) = (&["heap"], "");
    for (words, _) in READERS.iter().chain([&heap]) {
        for head in [&b"\x1f\x8b\x08\0"[..], b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0"] {
            let text = refusal(&place, words, head);
            assert!(text.contains("saved is compressed: unpack it first"), "{words:?}: {text}");
        }
    }
}

#[test]
fn a_core_file_in_a_pipe_is_told_to_be_unpacked_into_a_file() {
    let place = Place::new("unpacked");
    let core = place.write("dump", core_head());
    let mut cat = Command::new("cat").arg(&core).stdout(Stdio::piped()).spawn().unwrap();
    let mut heap = faultless(&["heap", "/dev/stdin"]);
    assert_refused(heap.stdin(cat.stdout.take().unwrap()), 1, "unpack it into a file");
    cat.wait().unwrap();
}

#[test]
fn a_core_file_of_a_foreign_machine_or_cut_off_is_not_taken_for_a_command() {
    let place = Place::new("foreign");
    let core = |class: u8, order: u8, kind: [u8; 2], length: usize| {
        let mut header = [0; 64];
        header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
        header[16..18].copy_from_slice(&kind);
        place.write("dump", &header[..length])
    };
    for (class, order, kind, length, says) in [
        (1, 1, [4, 0], 52, "of a 32-bit or big-endian machine"),
        (2, 2, [0, 4], 64, "of a 32-bit or big-endian machine"),
        (2, 1, [4, 0], 40, "damaged or cut off"),
    ] {
        assert_refused(&mut faultless(&["heap", &core(class, order, kind, length)]), 1, says);
    }
}

#[test]
fn a_file_that_is_not_there_is_missed_by_all_that_read_files_alike() {
    for command in ["map", "heap"] {
        let text =
            assert_refused(&mut faultless(&[command, "no-such-file"]), 1, "no such file: no-such-file");
        assert!(text.contains(&format!("(to run it: faultless {command} -- no-such-file)")), "{text}");
        let behind = [command, "--", "no-such-command"];
        assert_refused(&mut faultless(&behind), 127, "no such command: no-such-command");
    }
}
