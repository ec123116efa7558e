//! `faultless watch`, `run` and `bench`: what becomes of files and readers, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use place::Place;
use running::{Running, SOON, send, wait_until};
use tool::{after, assert_refused, errors, faultless, json_lines, text};

#[test]
fn files_keep_what_they_hold_when_nothing_is_written_into_them() {
    let place = Place::new("kept");
    let (keep, script, record) = (place.file("keep"), place.file("script"), place.file("record"));
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(faultless(&["watch", "--record", &record, "--", "true"]).output().unwrap().status.success());
    let recorded = fs::read(&record).unwrap();
    let same = format!("{}/../{}/record", place.0.display(), place.0.file_name().unwrap().to_string_lossy());
    for (words, status) in [
        (&["watch", "--record", &keep, "--", "no-such-command"][..], 127),
        (&["watch", "--record", &keep, "--", &script], 127),
        (&["watch", "--csv", "-o", &keep, "--pid", "2147483647"], 1),
        (&["watch", "-o", &keep, "--pid", "0"], 2),
        (&["watch", "-o", &keep, "--match", "("], 2),
        (&["watch", "-o", &keep, "--record", &keep, "--", "true"], 2),
        (&["watch", "-o", &keep, "--replay", "/nowhere/at/all"], 1),
        (&["watch", "-o", &keep, "--replay", &script], 1),
        (&["watch", "-o", &same, "--replay", &record], 2),
        (&["run", "--json", &keep, "--", &script], 127),
        (&["bench", "--json", &keep, "--html", &place.file("./keep")], 2),
    ] {
        fs::write(&keep, "kept").unwrap();
        assert_refused(&mut faultless(words), status, "");
        assert_eq!(fs::read_to_string(&keep).unwrap(), "kept", "{words:?}");
        assert_eq!(fs::read(&record).unwrap(), recorded, "{words:?}");
        assert_eq!(fs::read_dir(&place.0).unwrap().count(), 3, "{words:?} leaves a file");
    }
}

#[test]
fn what_stands_in_the_file_that_we_print_to_stays_there() {
    let place = Place::new("own-output");
    for option in ["--output", "--record"] {
        let file = place.write("log", "before\n");
        let log = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let words = ["watch", "--json", option, "/dev/stdout", "--", "echo", "said"];
        assert!(faultless(&words).stdout(log).stderr(Stdio::null()).status().unwrap().success());
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("before\n"), "{option}: {text}");
        assert!(text.contains("said\n") && text.contains("faultless-watch/1"), "{option}: {text}");
    }
}

#[test]
fn a_file_that_is_emptied_meanwhile_has_whole_lines_only() {
    let place = Place::new("rotated");
    let file = place.write("lines", "old\n".repeat(1000));
    let words = ["watch", "-i", "10ms", "--csv", "-o", &file, "--pid", &std::process::id().to_string()];
    let mut watch = Running::start(faultless(&words).stderr(Stdio::null()));
    let has_more_than = |bytes: u64| wait_until(|| fs::metadata(&file).unwrap().len() > bytes);
    wait_until(|| fs::read_to_string(&file).unwrap().starts_with("t_s"));
    has_more_than(1000);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(0).unwrap();
    has_more_than(200);
    send("INT", watch.pid());
    assert!(watch.end_within(SOON).is_some_and(|status| status.success()));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains('\0') && text.ends_with('\n'), "{text:?}");
}

#[test]
fn a_file_that_may_grow_no_longer_ends_with_a_whole_line() {
    let place = Place::new("full");
    let (record, lines) = (place.file("record"), place.file("lines"));
    let own = std::process::id().to_string();
    let watched = ["-i", "10ms", "--for", "2s", "--pid", &own];
    // 4 KiB; a recording of this test has longer lines and ends within one.
    let limit = "ulimit -f 8";
    for (option, path) in [("--record", &record), ("--output", &lines)] {
        let words = [&["watch", "--json", option, path][..], &watched].concat();
        let output = after(limit, &words).stdout(Stdio::null()).output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{option}: {said}");
        let says = format!("cannot write {path}: File too large (os error 27); it ends with a whole line\n");
        assert!(said.ends_with(&says), "{option}: {said}");
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n') && text.len() > 3000, "{option}: {text}");
        json_lines(&text);
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_an_error_and_no_wait_that_no_signal_ends() {
    let place = Place::new("pipe");
    let pipe = place.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for option in ["--record", "--output"] {
        let mut command = faultless(&["watch", "--lines", option, &pipe, "--", "true"]);
        let says = format!("cannot write {pipe}: nobody reads this pipe; start its reader first\n");
        assert_eq!(assert_refused(&mut command, 1, &says), format!("faultless: {says}"));
    }
}

#[test]
fn a_recording_that_stops_coming_does_not_keep_signals_waiting() {
    let place = Place::new("stalls");
    let record = place.file("record");
    assert!(faultless(&["watch", "--record", &record, "--", "true"]).output().unwrap().status.success());
    let (input, mut writer) = std::io::pipe().unwrap();
    // The first line, and a part of the next.
    let text = fs::read(&record).unwrap();
    let first = text.iter().position(|&byte| byte == b'\n').unwrap();
    writer.write_all(&text[..first + 10]).unwrap();
    let mut replay = faultless(&["watch", "--replay", "-"]);
    let mut watch = Running::start(replay.stdin(input).stdout(Stdio::null()).stderr(Stdio::null()));
    std::thread::sleep(Duration::from_millis(500));
    send("TERM", watch.pid());
    assert_eq!(watch.end_within(SOON).and_then(|status| status.signal()), Some(15));
    drop(writer);
}

#[test]
fn a_recording_goes_on_to_the_end_when_the_reader_of_the_lines_has_gone() {
    let place = Place::new("unread");
    let record = place.file("record");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let words = ["watch", "-i", "10ms", "--record", &record, "--", "sh", "-c", "sleep 0.3; exit 3"];
    assert_eq!(faultless(&words).stderr(writer).status().unwrap().code(), Some(3));
    let text = fs::read_to_string(&record).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.contains(r#""line":"end""#) && last.contains(r#""command":"#), "{text}");
}

#[test]
fn a_reader_that_takes_nothing_does_not_keep_signals_waiting() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let output = writer.try_clone().unwrap();
    // Fills the pipe, and waits to the end of the test.
    std::thread::spawn(move || writer.write_all(&[b'\n'; 4 << 20]));
    let words = ["watch", "-i", "10ms", "--pid", &std::process::id().to_string()];
    let mut watch = Running::start(faultless(&words).stdout(output).stderr(Stdio::null()));
    std::thread::sleep(Duration::from_millis(500));
    send("TERM", watch.pid());
    assert_eq!(watch.end_within(SOON).and_then(|status| status.signal()), Some(15));
    drop(reader);
}

#[test]
fn a_pipe_that_is_recorded_into_and_not_read_does_not_keep_signals_or_a_command_waiting() {
    let place = Place::new("stuck");
    let pipe = place.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut full = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    std::thread::spawn(move || full.write_all(&[b'\n'; 4 << 20]));
    let done = place.file("done");
    let script = format!("sleep 0.2; echo done > {done}; sleep 0.1");
    let words = ["watch", "--lines", "-i", "10ms", "--record", &pipe, "--", "sh", "-c", &script];
    let mut watch = Running::start(faultless(&words).stdout(Stdio::null()).stderr(Stdio::null()));
    running::written_line(&done);
    std::thread::sleep(Duration::from_millis(300));
    send("TERM", watch.pid());
    assert!(watch.end_within(SOON).is_some(), "it waits for whoever reads the pipe");
}

#[test]
fn what_is_no_recording_of_a_watch_is_said_to_be_that() {
    let place = Place::new("others");
    let prose = place.write("notes.txt", "# Notes\n");
    let faults =
        place.write("faults.rec", r#"{"format":"faultless-faults-recording/1","tool_version":"0.1.0"}"#);
    let far = r#"{"line":"note","t":1e300,"text":""}"#;
    let late = place.write("late.rec", far);
    for (path, says) in [
        (&prose, format!("cannot read {prose}: it is no recording of faultless watch --record\n")),
        (
            &faults,
            format!(
                "{faults} is a recording of faultless faults: show it with `faultless faults {faults}`\n"
            ),
        ),
        (
            &late,
            format!(
                "cannot read {late} as a recording of faultless watch --record: 1e300 is no time in seconds\n"
            ),
        ),
    ] {
        let line = assert_refused(&mut faultless(&["watch", "--replay", path]), 1, &says);
        assert_eq!(line, format!("faultless: {says}"));
    }
}

#[test]
fn what_has_no_row_in_csv_is_said_on_standard_error() {
    let nobody = ["watch", "--name", "nobody-of-this", "--for", "20ms", "--csv"];
    let output = faultless(&nobody).output().unwrap();
    assert!(errors(&output).contains("faultless: no process fits yet"), "{}", errors(&output));
    assert_eq!(text(&output).lines().count(), 1);

    let place = Place::new("csv");
    let record = place.file("record");
    let mut watch = faultless(&["watch", "-i", "20ms", "--record", &record, "--", "sleep", "0.1"]);
    assert!(watch.status().unwrap().success());
    let whole = fs::read(&record).unwrap();
    for cut in [1, 20] {
        fs::write(&record, &whole[..whole.len() - cut]).unwrap();
        let replayed = faultless(&["watch", "--replay", &record, "--csv"]).output().unwrap();
        let says = errors(&replayed);
        assert_eq!(says.contains("faultless: the recording is damaged in line"), cut > 1, "{says}");
    }
}
