//! `faultless watch`: figures, events, recordings and endings, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use place::Place;
use running::{Running, SOON, has_ended, is_so_within, send, state, wait_until, written_line};
use serde_json::Value;
use tool::{assert_refused, errors, faultless, json_lines, text};

impl Place {
    /// A program that takes `faults` faults of its own, says so, and waits for its input to end.
    fn program(&self) -> String {
        let source = r#"
            #include <stdio.h>
            #include <stdlib.h>
            #include <sys/mman.h>
            int main(int argc, char **argv) {
                long pages = atol(argv[1]);
                char *p = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                if (p == MAP_FAILED || madvise(p, pages * 4096, MADV_NOHUGEPAGE)) return 9;
                for (long i = 0; i < pages; i++) p[i * 4096] = 1;
                puts("ready");
                fflush(stdout);
                while (getchar() != EOF) {}
                return argc > 2 ? atoi(argv[2]) : 0;
            }"#;
        self.compile("toucher", source, &["-O1"])
    }
}

/// Starts a command of the shell on a terminal of its own, whose contents go into a file; none where script(1), which every Debian
/// has, cannot make one.
fn on_terminal(command: &str, log: &str) -> Option<Running> {
    if Command::new("script").arg("--version").output().is_err() {
        faultless_skipped::skipped("script(1) is not installed (util-linux)");
        return None;
    }
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-f", "-c", command, log]).env("TERM", "xterm");
    Some(Running::start(script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null())))
}

/// What a terminal has shown.
fn shown(log: &str) -> String {
    String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned()
}

fn lines(path: &str) -> Vec<Value> {
    json_lines(&fs::read_to_string(path).unwrap())
}

fn of_kind<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["line"] == kind).collect()
}

#[track_caller]
fn number(value: &Value) -> u64 {
    let Some(number) = value.as_u64() else { panic!("{value} is no number") };
    number
}

#[test]
fn the_last_samples_faults_are_those_of_wait4_and_the_status_is_the_commands() {
    let place = Place::new("wait4");
    let (program, record) = (place.program(), place.file("record"));
    let output = faultless(&["watch", "-i", "50ms", "--record", &record, "--", &program, "5000", "7"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", errors(&output));
    assert_eq!(output.stdout, b"ready\n", "the command's output stays its own");

    let lines = lines(&record);
    assert_eq!((&lines[0]["line"], &lines[0]["format"]), (&"begin".into(), &"faultless-watch/1".into()));
    let samples = of_kind(&lines, "sample");
    let (last, used) = (samples[samples.len() - 1], &lines[lines.len() - 1]["command"]);
    // A command without children: all that wait4 counts are its own.
    assert_eq!(last["minor_faults"], used["minor_faults"]);
    assert_eq!(last["major_faults"], used["major_faults"]);
    assert!((5000..5600).contains(&number(&last["minor_faults"])), "{last}");
    assert!(last.get("rss_bytes").is_none(), "what has ended has no memory: {last}");
    let before = samples[samples.len() - 2];
    assert!(number(&before["rss_bytes"]) >= 5000 * 4096, "seen whole on its way out: {before}");
    let events = of_kind(&lines, "event");
    let exit = events.iter().find(|event| event["event"] == "exit").unwrap();
    assert_eq!(exit["status"], 7);
    assert!(errors(&output).contains("watching cost "), "{}", errors(&output));
}

#[test]
fn faults_of_children_are_told_from_the_commands_own() {
    let place = Place::new("children");
    let (program, record) = (place.program(), place.file("record"));
    // Both stay until their input ends: a process shorter than a look at it may be missed.
    let script = format!("sleep 1 | {program} 3000 & sleep 1 | {program} 2000; wait; :");
    for children in [false, true] {
        let mut words = vec!["watch", "-i", "20ms", "--record", &record];
        words.extend(children.then_some("--children"));
        words.extend(["--", "sh", "-c", &script]);
        let output = faultless(&words).stdout(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let lines = lines(&record);
        let of_shell: Vec<&Value> =
            of_kind(&lines, "sample").into_iter().filter(|sample| sample["process"] == 0).collect();
        let last = of_shell[of_shell.len() - 1];
        let used = number(&lines[lines.len() - 1]["command"]["minor_faults"]);
        let own = number(&last["minor_faults"]);
        assert!(own < 2000 && used > 5000, "{own} {used}");
        assert_eq!(own + number(&last["children_minor_faults"]), used, "{last}");
        if children {
            let names: Vec<&Value> = of_kind(&lines, "process").iter().map(|line| &line["name"]).collect();
            assert!(names.iter().any(|name| **name == "toucher"), "{names:?}");
        } else {
            assert!(errors(&output).contains("that no sample saw (--children"), "{}", errors(&output));
        }
    }
}

#[test]
fn a_running_process_shows_what_proc_shows_and_its_end_ends_the_watch() {
    let place = Place::new("pid");
    let (program, record) = (place.program(), place.file("record"));
    let mut child = Running::ready(Command::new(program).args(["4000", "3"]).stdin(Stdio::piped()));
    let pid = child.pid();
    // From its word to its waiting it may take another fault.
    wait_until(|| state(&pid) == Some('S'));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let watch = faultless(&["watch", "-i", "10ms", "--json", "--record", &record, "--pid", &pid])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let recorded = || fs::read_to_string(&record).unwrap_or_default();
    wait_until(|| recorded().matches(r#""line":"sample""#).count() >= 10);
    drop(child.0.stdin.take());
    // Nobody waits for it yet: it stays as a zombie, and the watch must end all the same.
    let output = watch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(output.stdout, fs::read(&record).unwrap(), "both are the same lines");

    let lines = lines(&record);
    let samples = of_kind(&lines, "sample");
    let first = samples[0];
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(number(&first["vsize_bytes"]), kib("VmSize:") * 1024);
    // The kernel counts resident pages for each CPU and adds them up at leisure.
    assert!(number(&first["rss_bytes"]).abs_diff(kib("VmRSS:") * 1024) < 2 << 20, "{first} {status}");
    assert_eq!(number(&first["threads"]), 1);
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!(number(&first["minor_faults"]), fields[7].parse::<u64>().unwrap());
    assert_eq!(of_kind(&lines, "event").last().unwrap()["event"], "exit");
}

#[test]
fn a_recording_is_replayed_and_one_that_was_cut_off_up_to_there() {
    let place = Place::new("replay");
    let (record, again) = (place.file("record"), place.file("again"));
    let output =
        faultless(&["watch", "-i", "20ms", "--record", &record, "--", "sleep", "0.2"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let replayed = faultless(&["watch", "--replay", &record, "--json"]).output().unwrap();
    assert!(replayed.status.success(), "{}", errors(&replayed));
    assert_eq!(replayed.stdout, fs::read(&record).unwrap());
    // The same lines and the same sums, but for the command's own output.
    assert!(errors(&output).ends_with(&errors(&replayed)), "{}\n{}", errors(&output), errors(&replayed));

    let whole = fs::read(&record).unwrap();
    let first_line = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for end in [whole.len() / 2, whole.len() - 5, first_line + 1, first_line + 20] {
        fs::write(&again, &whole[..end]).unwrap();
        let cut = faultless(&["watch", "--replay", &again]).output().unwrap();
        assert!(cut.status.success(), "{}", errors(&cut));
        let text = text(&cut);
        assert!(text.contains("is damaged in line") || text.contains("was cut off"), "{end}: {text}");
    }
    for (bytes, says) in [
        (&b""[..], "is empty"),
        (b"\n", "cannot read"),
        (b"\xff\xfe\n", "cannot read"),
        (b"{\"line\":\"sample\"}\n", "cannot read"),
        (b"7f00-7f01 rw-p\n", "cannot read"),
    ] {
        fs::write(&again, bytes).unwrap();
        assert_refused(&mut faultless(&["watch", "--replay", &again]), 1, says);
    }
}

#[test]
fn a_process_that_begins_later_is_found_by_its_command_line() {
    let mark = format!("86{:06}", std::process::id());
    let pattern = format!("^sleep {mark}");
    // The time is over only when something that is waited for never comes.
    let mut watch = faultless(&["watch", "-i", "50ms", "--for", "60s", "--json", "-m", &pattern])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    assert_eq!(told.next().unwrap()["line"], "begin");
    let child = Running::start(Command::new("sleep").arg(&mark));
    let pid = child.0.id();
    let found = told.by_ref().find(|line| line["line"] == "process" && line["pid"] == pid);
    drop(child);
    assert!(found.is_some(), "it was not found");
    let ended = told.by_ref().find(|line| line["event"] == "exit");
    assert_eq!(ended.unwrap()["process"], found.unwrap()["process"]);
    send("INT", watch.id());
    let others = told.filter(|line| line["line"] == "process" && line["pid"] != pid);
    assert_eq!(others.collect::<Vec<_>>(), Vec::<Value>::new());
    assert!(watch.wait().unwrap().success());
}

#[test]
fn a_name_that_is_longer_than_the_kernel_keeps_is_found_all_the_same() {
    let place = Place::new("long-name");
    // No other process has these 15 bytes.
    let name = format!("w{:07}-named-at-length", std::process::id());
    let program = place.compile(&name, "#include <unistd.h>\nint main(void) { alarm(60); pause(); }", &[]);
    let sleeper = Running::start(&mut Command::new(program));
    wait_until(|| {
        fs::read_to_string(format!("/proc/{}/comm", sleeper.pid())).unwrap().starts_with(&name[..15])
    });
    let output = faultless(&["watch", "--json", "--for", "100ms", "--name", &name]).output().unwrap();
    let lines = json_lines(&text(&output));
    let found: Vec<String> = of_kind(&lines, "process").iter().map(|line| line["pid"].to_string()).collect();
    assert_eq!(found, [sleeper.pid()]);
}

/// Fills 64 MiB and gives them back before it says so.
const SPIKE: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
    size_t bytes = 64 << 20;
    char *spike = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(spike, 1, bytes);
    munmap(spike, bytes);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
}"#;

#[test]
fn a_peak_that_no_sample_saw_is_the_kernels() {
    let place = Place::new("spike");
    let program = place.compile("spike", SPIKE, &["-O1"]);
    let peak_mib = |output: &Output| {
        let said = text(output) + &errors(output);
        let row = said.lines().rfind(|line| line.trim_start().starts_with("spike "));
        let peak = row.and_then(|row| row.split_whitespace().nth(2)?.parse::<f64>().ok());
        peak.unwrap_or_else(|| panic!("{said}"))
    };
    let started = faultless(&["watch", "-i", "10s", "--", &program]).output().unwrap();
    assert!(peak_mib(&started) >= 64.0, "{}", errors(&started));

    let before = Running::ready(Command::new(program).stdin(Stdio::piped()));
    let watch = ["watch", "--lines", "--for", "100ms", "--pid", &before.pid()];
    let joined = faultless(&watch).output().unwrap();
    assert!(peak_mib(&joined) >= 64.0, "{}", text(&joined));
}

#[test]
fn what_cannot_be_watched_is_refused_in_one_line() {
    for (words, status, says) in [
        (&["watch"][..], 2, "nothing to watch"),
        (&["watch", "--name", "", "--for", "1ms"], 2, "--name wants names of processes"),
        (&["watch", "--pid", "0"], 2, "above 0"),
        (&["watch", "--pid", "2147483647"], 1, "no process 2147483647"),
        (&["watch", "--match", "("], 2, "regular expression"),
        (&["watch", "--", "no-such-command"], 127, "no such command"),
        (&["watch", "1"], 127, "look at a running process by --pid"),
        (&["map", "1"], 1, "look at a running process by --pid"),
        (&["watch", "--replay", "/nowhere/at/all"], 1, "cannot read /nowhere"),
        (&["watch", "--plot", "picture.gif", "--", "true"], 2, ".svg or .png"),
        (&["watch", "--record", "/nowhere/at/all", "--", "true"], 1, "cannot write /nowhere"),
    ] {
        assert_refused(&mut faultless(words), status, says);
    }
    // Threads of the kernel are seen in the first PID namespace only.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        assert_refused(&mut faultless(&["watch", "--pid", "2"]), 1, "is a kernel thread");
    }
}

#[test]
fn an_interruption_ends_the_watch_with_its_sums_and_a_whole_recording() {
    let place = Place::new("interrupt");
    let record = place.file("record");
    for (signal, code) in [("INT", Some(0)), ("TERM", None)] {
        let own = std::process::id().to_string();
        let mut watch = faultless(&["watch", "-i", "20ms", "--record", &record, "--pid", &own])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(watch.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        send(signal, watch.id());
        std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        let output = watch.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code);
        assert!(errors(&output).contains("watching cost"), "{}", errors(&output));
        assert_eq!(lines(&record).last().unwrap()["line"], "end");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_watch() {
    use std::os::unix::process::ExitStatusExt;
    let own = std::process::id().to_string();
    let mut watch = faultless(&["watch", "-i", "10ms", "--pid", &own])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(watch.stdout.take());
    assert_eq!(watch.wait().unwrap().signal(), Some(13));
}

#[test]
fn csv_has_a_heading_and_rates() {
    let place = Place::new("csv");
    let (program, file) = (place.program(), place.file("csv"));
    let mut watch = faultless(&["watch", "-i", "10ms", "--csv", "-o", &file, "--", &program, "2000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    watch.stdin.take().unwrap().flush().unwrap();
    assert!(watch.wait().unwrap().success());
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("t_s,kind,pid,name,vsize_bytes,rss_bytes,"), "{text}");
    let fields = |line: &str| line.matches(',').count();
    assert!(
        text.lines().count() > 2
            && text.lines().all(|line| fields(line) == fields(&text[..text.find('\n').unwrap()])),
        "{text}"
    );
}

#[test]
fn pictures_are_drawn_of_a_watch_and_of_its_recording() {
    let place = Place::new("plot");
    let (program, record) = (place.program(), place.file("record"));
    let (svg, png, again) = (place.file("a.svg"), place.file("a.png"), place.file("again.svg"));
    let output =
        faultless(&["watch", "-i", "10ms", "--record", &record, "--plot", &svg, "--", &program, "20000"])
            .output()
            .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    for picture in [&png, &again] {
        let output = faultless(&["watch", "--replay", &record, "--plot", picture]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
    }
    let text = fs::read_to_string(&svg).unwrap();
    assert_eq!(text, fs::read_to_string(&again).unwrap());
    assert!(
        text.contains("minor faults, ") && text.contains("toucher") && text.ends_with("</svg>\n"),
        "{text}"
    );
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG\r\n"));
}

#[test]
fn the_terminal_is_given_back_however_the_chart_ends() {
    const ENTERED: &str = "\u{1b}[?1049h";
    const LEFT: &str = "\u{1b}[?1049l";
    let program = env!("CARGO_BIN_EXE_faultless");
    for (how, input) in [("key", Some("q")), ("TERM", None), ("HUP", None), ("INT", None), ("QUIT", None)] {
        let place = Place::new(&format!("screen-{how}"));
        let log = place.file("screen");
        // The shell on the terminal prints its own number, becomes the tool, and a second one tells the state after it.
        let command = format!(
            "stty cols 120 rows 40; stty -a > {0}/before; sh -c 'echo $$ > {0}/pid; exec env --default-signal {program} watch -i 20ms --pid $$'; stty -a > {0}/after",
            place.0.display()
        );
        let Some(mut child) = on_terminal(&command, &log) else { return };
        let is_drawn = || ["minor", ENTERED].iter().all(|text| shown(&log).contains(text));
        assert!(is_so_within(SOON, is_drawn), "no chart: {}", shown(&log));
        match input {
            Some(keys) => child.0.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap(),
            None => {
                send(how, written_line(&place.file("pid")));
            }
        }
        let is_over = || fs::read_to_string(place.file("after")).is_ok_and(|text| text.ends_with('\n'));
        assert!(is_so_within(SOON, is_over), "{how}: it does not end");
        drop(child.0.stdin.take());
        child.0.wait().unwrap();
        let text = shown(&log);
        let (entered, left) = (text.find(ENTERED).unwrap(), text.rfind(LEFT).unwrap());
        assert!(entered < left && text[left..].contains("\u{1b}[?25h"), "{how}: {text}");
        assert!(text[left..].contains("watching cost"), "{how}: {text}");
        let after = fs::read_to_string(place.file("after")).unwrap();
        assert_eq!(after, fs::read_to_string(place.file("before")).unwrap(), "{how}");
    }
}

#[test]
fn a_terminal_that_goes_away_ends_the_chart_even_where_its_signal_is_ignored() {
    let place = Place::new("gone");
    let Some((child, pid)) = chart_of_itself(&place, "trap '' HUP;") else { return };
    drop(child);
    assert_ends(&pid, "it goes on without its terminal");
}

/// A chart of the process that draws it, after a line of shell, with its number; none where nobody has a terminal for it.
fn chart_of_itself(place: &Place, line: &str) -> Option<(Running, String)> {
    let command = format!(
        "stty cols 120 rows 40; {line} sh -c 'echo $$ > {}; exec {} watch -i 20ms --pid $$'",
        place.file("pid"),
        env!("CARGO_BIN_EXE_faultless")
    );
    let log = place.file("screen");
    let child = on_terminal(&command, &log)?;
    assert!(is_so_within(SOON, || shown(&log).contains("minor")), "no chart");
    Some((child, written_line(&place.file("pid"))))
}

#[track_caller]
fn assert_ends(pid: &str, otherwise: &str) {
    let ends = is_so_within(SOON, || has_ended(pid));
    if !ends {
        send("KILL", pid);
    }
    assert!(ends, "{otherwise}");
}

#[test]
fn half_of_a_key_does_not_hold_up_the_chart() {
    let place = Place::new("half");
    let Some((mut child, pid)) = chart_of_itself(&place, "") else { return };
    child.0.stdin.as_mut().unwrap().write_all(b"\x1b[").unwrap();
    // Time for it to arrive; too little of it finds nothing wrong.
    std::thread::sleep(std::time::Duration::from_millis(300));
    send("TERM", &pid);
    assert_ends(&pid, "it waits for the rest of a key");
}

#[test]
fn a_recording_on_a_terminal_is_drawn_again_when_that_has_another_size() {
    let place = Place::new("resized");
    let record = place.file("record");
    let own = std::process::id().to_string();
    let arguments = ["watch", "-i", "10ms", "--for", "50ms", "--record", &record, "--pid", &own];
    assert!(faultless(&arguments).output().unwrap().status.success());
    let command = format!(
        "stty cols 120 rows 40; sh -c 'tty > {0}; exec {1} watch --replay {record}'",
        place.file("tty"),
        env!("CARGO_BIN_EXE_faultless")
    );
    let log = place.file("screen");
    let Some(mut child) = on_terminal(&command, &log) else { return };
    assert!(is_so_within(SOON, || shown(&log).contains("minor")), "no chart");
    let terminal = written_line(&place.file("tty"));
    let before = shown(&log).matches("minor").count();
    assert!(Command::new("stty").args(["-F", &terminal, "cols", "90"]).status().unwrap().success());
    let is_drawn = is_so_within(SOON, || shown(&log).matches("minor").count() > before);
    child.0.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    assert!(is_drawn, "it is not drawn again");
    assert!(child.0.wait().unwrap().success());
}
