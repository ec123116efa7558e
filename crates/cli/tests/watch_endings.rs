//! `faultless watch`: that it ends when it should, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod running;
mod tool;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use running::{Running, SOON, send};
use tool::{after, errors, faultless, json_lines, text};

#[test]
fn a_signal_ends_a_watch_whose_command_has_ended() {
    for signal in ["TERM", "INT"] {
        let words = ["watch", "-i", "10ms", "--name", "no-such-name", "--lines", "--", "sh", "-c", "exit 4"];
        let mut watch = Running::start(faultless(&words).stderr(Stdio::piped()));
        let mut lines = BufReader::new(watch.0.stderr.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("exit: status 4")));
        send(signal, watch.pid());
        let status = watch.end_within(SOON).and_then(|status| status.code());
        assert_eq!(status, Some(4), "SIG{signal}: the command's status");
    }
}

#[test]
fn who_waits_for_processes_that_are_not_there_is_told() {
    let waits = "no process fits yet; those that begin later are watched\n";
    // Who looks once, by a timer, goes by the status.
    for (words, told, status) in [
        (&["watch", "--lines", "--for", "10ms"][..], waits, 0),
        (&["export", "--once"], "faultless: no process fits\n", 1),
    ] {
        let output = faultless(&[words, &["--name", "no-such-name"]].concat()).output().unwrap();
        let said = text(&output) + &errors(&output);
        assert!(output.status.code() == Some(status) && said.contains(told), "{said}");
        let own = std::process::id().to_string();
        let output =
            faultless(&[words, &["--name", "no-such-name", "--pid", &own]].concat()).output().unwrap();
        let said = text(&output) + &errors(&output);
        assert!(output.status.success() && !said.contains("no process fits"), "{said}");
    }
}

#[test]
fn who_may_open_too_few_files_to_look_for_processes_is_told_so() {
    let words = ["watch", "--lines", "--for", "10ms", "--name", "no-such-name"];
    let said = (5..10).map(|files| {
        let output = after(&format!("ulimit -n {files}"), &words).output().unwrap();
        let said = text(&output);
        let (lacks, fits) = ("processes cannot be looked for: no more files may be open", "no process fits");
        assert!(!(said.contains(lacks) && said.contains(fits)), "{files}: {said}");
        said.contains(lacks)
    });
    assert!(said.collect::<Vec<_>>().contains(&true));
}

#[test]
fn the_last_figures_are_those_of_the_end_however_long_the_interval_is() {
    let own = std::process::id().to_string();
    let words = ["watch", "-i", "1h", "--json", "--for", "500ms", "--pid", &own];
    let output = faultless(&words).output().unwrap();
    assert!(output.status.success());
    let lines = json_lines(&text(&output));
    let times: Vec<f64> = lines
        .iter()
        .filter(|line| line["line"] == "sample")
        .map(|line| line["t"].as_f64().unwrap())
        .collect();
    assert!(times.len() == 2 && times[1] >= 0.5, "{times:?}");
}

#[test]
fn the_share_is_read_once_more_at_the_end_and_stands_in_no_row_in_between() {
    let own = std::process::id().to_string();
    let words = ["watch", "-i", "20ms", "--lines", "--for", "500ms", "--pid", &own];
    let output = faultless(&words).output().unwrap();
    let said = text(&output);
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    let is_sample = |row: &&Vec<&str>| row.len() == 13 && row[1] == own;
    let shares: Vec<&str> = rows.iter().filter(is_sample).map(|row| row[5]).collect();
    let [first, between @ .., last] = &shares[..] else { panic!("{said}") };
    assert!(*first != "-" && *last != "-" && !between.is_empty(), "{said}");
    assert!(between.iter().all(|share| *share == "-"), "{said}");
    assert!(errors(&output).contains(&format!(" {last} ")), "{}", errors(&output));
}

#[test]
fn an_end_is_heard_of_whatever_else_happens_on_the_machine() {
    let mut child = Running::start(Command::new("sleep").arg("600"));
    let words = ["watch", "-i", "10m", "--json", "--pid", &child.pid()];
    let mut watch = Running::start(faultless(&words).stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let hears_nothing = |line: &str| line.contains("seen only as differences between samples");
    if lines.by_ref().take_while(|line| !line.contains(r#""line":"sample""#)).any(|line| hears_nothing(&line))
    {
        faultless_skipped::skipped("the kernel does not tell of exits here");
        return;
    }
    // Somebody else's end comes first.
    assert!(Command::new("true").status().unwrap().success());
    std::thread::sleep(Duration::from_millis(100));
    child.0.kill().unwrap();
    assert!(watch.end_within(SOON).is_some(), "it waits for the next round");
}

#[test]
fn a_watch_ends_when_nothing_that_it_writes_can_be_written() {
    for words in [&["--json"][..], &["--lines", "--record", "/dev/full"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let own = std::process::id().to_string();
        let mut command = faultless(&[&["watch", "-i", "10ms", "--pid", &own], words].concat());
        let mut watch = Running::start(command.stdout(full).stderr(Stdio::piped()));
        assert_eq!(watch.end_within(SOON).and_then(|status| status.code()), Some(1), "{words:?}");
        let said = std::io::read_to_string(watch.0.stderr.take().unwrap()).unwrap();
        assert!(said.lines().last().unwrap().contains("No space left on device"), "{said}");
    }
}

#[test]
fn a_commands_status_does_not_hide_that_its_recording_was_lost() {
    let output = faultless(&["watch", "--lines", "--record", "/dev/full", "--", "sh", "-c", "exit 7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).ends_with("cannot write /dev/full: No space left on device (os error 28)\n"));
}

/// `watch` with these words under the terminal of script(1), with this input.
fn on_a_terminal(words: &[&str], input: Stdio) -> Option<Running> {
    let tool = format!("{} watch {}", env!("CARGO_BIN_EXE_faultless"), words.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &tool, "/dev/null"]).env("TERM", "xterm").env_remove("LD_PRELOAD").stdin(input);
    let started = command.stdout(Stdio::piped()).spawn().map(Running);
    started.inspect_err(|_| faultless_skipped::skipped("script is not installed (bsdutils)")).ok()
}

#[test]
fn the_chart_of_a_command_that_has_ended_ends_where_nobody_is_at_the_terminal() {
    let Some(mut watch) = on_a_terminal(&["-i", "1h", "--", "sh", "-c", "'exit 3'"], Stdio::null()) else {
        return;
    };
    let status = watch.end_within(SOON).and_then(|status| status.code());
    assert_eq!(status, Some(3), "the command's own");
}

#[test]
fn the_chart_stays_until_q_where_a_terminal_answers() {
    let Some(mut watch) = on_a_terminal(&["-i", "100ms", "--", "true"], Stdio::piped()) else { return };
    let (mut screen, mut drawn) = (watch.0.stdout.take().unwrap(), Vec::new());
    while !drawn.ends_with(b"\x1b[6n") {
        let mut byte = [0];
        screen.read_exact(&mut byte).unwrap();
        drawn.extend(byte);
    }
    std::thread::spawn(move || std::io::copy(&mut screen, &mut std::io::sink()));
    let mut keyboard = watch.0.stdin.take().unwrap();
    keyboard.write_all(b"\x1b[1;1R").unwrap();
    assert_eq!(watch.end_within(Duration::from_secs(4)), None, "somebody looks on");
    keyboard.write_all(b"q").unwrap();
    assert!(watch.end_within(SOON).is_some());
}

#[test]
fn who_runs_the_tool_with_the_pattern_on_its_command_line_does_not_fit() {
    let mark = format!("no-such-mark-{}", std::process::id());
    let tool = format!("{} watch --match {mark} --lines --for 300ms", env!("CARGO_BIN_EXE_faultless"));
    let words: Vec<&str> = tool.split(' ').collect();
    let line = format!("{tool}; true");
    for (program, arguments) in [("timeout", [&["20"], &words[..]].concat()), ("sh", vec!["-c", &line])] {
        let output = Command::new(program).args(&arguments).env_remove("LD_PRELOAD").output().unwrap();
        let said = text(&output) + &errors(&output);
        assert!(said.contains("no process fits yet") && !said.contains(program), "{program}: {said}");
    }
}
