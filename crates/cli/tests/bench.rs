//! `faultless bench` through the real program, on its shortest workloads and with few rounds.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use place::Place;
use running::{Running, is_so_within, send, state, wait_until};
use serde_json::Value;
use tool::{assert_misused, assert_refused, errors, json_of_file as json, text as table};

/// Short and small, whatever the allocator.
const WORKLOAD: &str = "thread_churn";

impl Place {
    /// Everything that is there besides the directory for temporary files.
    fn entries(&self) -> BTreeSet<String> {
        let names = |path: PathBuf| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let left = names(self.0.join("tmp")).map(|name| format!("tmp/{}", name.to_string_lossy()));
        let own = names(self.0.clone()).map(|name| name.to_string_lossy().into_owned());
        own.filter(|name| name != "tmp").chain(left).collect()
    }

    fn holds_only(&self, names: &[&str]) {
        assert_eq!(self.entries(), names.iter().map(|&name| name.to_owned()).collect());
    }
}

fn bench(place: &Place, words: &[&str]) -> Command {
    tool::bench(&place.file("tmp"), words)
}

/// One round of the shortest workload under these allocators.
fn one_round(place: &Place, allocators: &str, more: &[&str]) -> Command {
    let words = ["-q", "-n", "1", WORKLOAD, "-a", allocators];
    bench(place, &[&words, more].concat())
}

#[test]
fn a_campaign_is_printed_saved_drawn_and_read_again() {
    let place = Place::with_temporary("campaign");
    let (saved, page) = (place.file("samples.json"), place.file("page.html"));
    let words = ["-q", "-n", "2", "-t", "1,2", "size_loops", WORKLOAD, "-a", "libc,faultless", "--idle", "1"];
    let output =
        bench(&place, &[&words[..], &["--json", &saved, "--html", &page]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = table(&output);
    for word in ["size_loops small 1", "size_loops small 2", "thread_churn small 8", "libc", "faultless"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    assert!(
        text.contains("classic: peak RSS") && text.contains("threads: RSS after the idle time"),
        "{text}"
    );
    assert!(text.contains("geometric mean") && text.contains("2 rounds are few"), "{text}");
    place.holds_only(&["page.html", "samples.json"]);

    let html = fs::read_to_string(&page).unwrap();
    assert!(html.to_lowercase().starts_with("<!doctype html>"));
    for word in ["libc", "faultless", "size_loops", "thread_churn"] {
        assert!(html.contains(word), "{word} is missing in the page");
    }

    let value = json(&saved);
    assert_eq!(value["schema"], 1);
    let samples = value["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2 * 3 * 2);
    for sample in samples {
        assert_eq!(sample["failure"], Value::Null);
        for figure in ["peak_rss_bytes", "end_rss_bytes", "idle_rss_bytes", "operations", "mappings"] {
            assert!(sample["figures"][figure].as_u64().unwrap() > 0, "{figure}: {sample}");
        }
    }
    let begins: Vec<u64> = samples.iter().step_by(2).map(|run| run["contender"].as_u64().unwrap()).collect();
    assert_eq!(begins, [0, 1, 0, 1, 0, 1], "contenders take turns at beginning");

    let again = bench(&place, &["--load", &saved]).output().unwrap();
    assert!(again.status.success());
    assert_eq!(table(&again), text);
    assert_eq!(errors(&again), "");
    let (page_again, picture) = (place.file("again.html"), place.file("again.svg"));
    let words = ["--load", &saved, "-r", "faultless", "--html", &page_again, "--plot", &picture];
    let turned = bench(&place, &words).output().unwrap();
    assert_ne!(table(&turned), text);
    assert_ne!(fs::read_to_string(&page_again).unwrap(), html);
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("ratios to faultless"), "{drawn}");
    assert_refused(&mut bench(&place, &["--load", &saved, "-r", "x"]), 2, "not among");
    let no_picture = place.file("again.gif");
    assert_refused(&mut bench(&place, &["--load", &saved, "--plot", &no_picture]), 2, "ends in .svg or .png");
    place.holds_only(&["again.html", "again.svg", "page.html", "samples.json"]);
}

#[test]
fn system_calls_of_threads_are_counted_in_a_run_of_their_own() {
    let place = Place::with_temporary("calls");
    let saved = place.file("samples.json");
    let output = one_round(&place, "libc,faultless", &["--system-calls", "--json", &saved]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(table(&output).contains("threads: system calls, counted in a run of their own"));
    let value = json(&saved);
    let counts = value["system_calls"].as_array().unwrap();
    assert_eq!(counts.len(), 2);
    for count in counts {
        // Each of its many short threads is at least made, started and ended.
        assert!(count["calls"].as_u64().unwrap() > 1000, "{count}");
    }
    let again = bench(&place, &["--load", &saved]).output().unwrap();
    assert_eq!(table(&again), table(&output));
    place.holds_only(&["samples.json"]);
}

#[test]
fn calls_that_could_not_be_counted_are_named_with_the_reason() {
    let place = Place::with_temporary("uncounted");
    // The measured run makes the file, and the one that is counted finds it there.
    let source = "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
                  void *_Znwm(unsigned long size) { return malloc(size); }\n\
                  __attribute__((constructor)) static void begin(void)\n\
                  { if (open(getenv(\"SEEN\"), O_CREAT | O_EXCL, 0600) < 0) _exit(3); }\n";
    let library = place.compile("libonce.so", source, &["-shared", "-fPIC"]);
    let allocators = format!("libc,once=SEEN={} {library}", place.file("seen"));
    let output = one_round(&place, &allocators, &["--system-calls"]).output().unwrap();
    assert!(output.status.success(), "{}{}", table(&output), errors(&output));
    let says = "calls of thread_churn under once were not counted: it failed while its calls were counted";
    assert!(errors(&output).contains(says), "{}", errors(&output));
}

#[test]
fn an_interrupt_while_calls_are_counted_leaves_those_that_were() {
    let place = Place::with_temporary("counted");
    let saved = place.file("samples.json");
    let mut command = one_round(&place, "libc,faultless", &["--system-calls", "--json", &saved]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Two are measured; the second of those that are counted.
    let output = interrupt_in_run(child, 4, "INT");
    assert_eq!(output.status.signal(), Some(2), "{}", errors(&output));
    let says = "interrupted: 1 of 2 counts of system calls are kept\n";
    assert!(errors(&output).ends_with(says), "{}", errors(&output));
    let value = json(&saved);
    assert_eq!(["samples", "system_calls"].map(|key| value[key].as_array().unwrap().len()), [2, 1]);
}

#[test]
fn the_list_names_suites_workloads_and_allocators() {
    let place = Place::with_temporary("list");
    let output = bench(&place, &["--list"]).output().unwrap();
    assert!(output.status.success());
    let text = table(&output);
    let words =
        ["sun", "classic", "programs", "threads", "threadtest", "larson", "parked", "libc", "NAME=PATH"];
    for word in words {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    place.holds_only(&[]);
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line_and_leaves_nothing() {
    let place = Place::with_temporary("usage");
    let (saved, page) = (place.file("samples.json"), place.file("page.html"));
    let refused: &[(&[&str], &str)] = &[
        (&["larsen"], "no suite or workload larsen"),
        (&[WORKLOAD, "-a", "libc,nomalloc"], "no allocator nomalloc"),
        (&[WORKLOAD, "-a", "libc,x=/no/such/library.so"], "/no/such/library.so: there is no such library"),
        (&[WORKLOAD, "-a", "libc,=/bin/sh"], "name"),
        (&[WORKLOAD, "-a", "libc,"], "an allocator has no name"),
        (&[WORKLOAD, "-a", "libc,x="], "an allocator has no name"),
        (&[WORKLOAD, "-a", "libc,libc"], "named twice"),
        (&[WORKLOAD, "-a", "libc", "-r", "faultless"], "faultless is not among the allocators"),
    ];
    for (words, says) in refused {
        let words = [words, &["-q", "--json", &saved, "--html", &page][..]].concat();
        assert_refused(&mut bench(&place, &words), 2, says);
        place.holds_only(&[]);
    }
    let mut same = bench(&place, &[WORKLOAD, "--json", &saved, "--html", &saved]);
    assert_refused(&mut same, 2, "is named twice");

    let odd = place.0.join("a directory");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("libx.so"), "").unwrap();
    let library = format!("x={}", odd.join("libx.so").display());
    assert_refused(&mut one_round(&place, &library, &[]), 2, "a path with a blank cannot be preloaded");

    for words in [
        &["--load", "x", "--json", "y"][..],
        &["-n", "0"],
        &["--list", "--json", "y"],
        &["-t", "0"],
        &["-s", "huge"],
        &["--idle", "300000"],
    ] {
        assert_misused(&mut bench(&place, words), "");
    }
    place.holds_only(&["a directory"]);
}

#[test]
fn samples_go_to_standard_output_by_a_dash_and_nothing_else_makes_a_file_of_that_name() {
    let place = Place::with_temporary("dash");
    let output = one_round(&place, "libc", &["--json", "-"]).current_dir(&place.0).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(tool::json(&output)["samples"].as_array().map(Vec::len), Some(1));
    assert!(errors(&output).contains(WORKLOAD), "the table is there, too: {}", errors(&output));
    for words in [
        &["bench", WORKLOAD, "--html", "-"][..],
        &["run", "--json", "-", "true"],
        &["watch", "--record", "-", "true"],
    ] {
        assert_refused(tool::faultless(words).current_dir(&place.0), 2, "/dev/stdout");
    }
    place.holds_only(&[]);
}

#[test]
fn files_that_cannot_be_written_or_read_are_named_before_anything_runs() {
    let place = Place::with_temporary("files");
    let page = place.file("page.html");
    let mut nowhere = one_round(&place, "libc", &["--html", &page, "--json", "/no/such/place/samples.json"]);
    assert_refused(&mut nowhere, 1, "cannot write /no/such/place/samples.json");
    assert_refused(&mut one_round(&place, "libc", &["--html", place.0.to_str().unwrap()]), 1, "cannot write");
    assert!(one_round(&place, "libc", &["--html", &page]).output().unwrap().status.success());
    place.holds_only(&["page.html"]);
    let drawn = fs::read_to_string(&page).unwrap();

    let other = place.file("other");
    for (content, says) in [("neither\n", "it is no JSON"), ("{}\n", "missing field"), ("", "it is empty")] {
        fs::write(&other, content).unwrap();
        assert_refused(&mut bench(&place, &["--load", &other, "--html", &page]), 1, says);
    }
    assert_refused(&mut bench(&place, &["--load", "/no/such/file"]), 1, "/no/such/file");
    assert_refused(&mut bench(&place, &["--load", "/etc/passwd"]), 1, "is no campaign of");
    assert!(tool::faultless(&["watch", "--record", &other, "true"]).output().unwrap().status.success());
    assert_refused(&mut bench(&place, &["--load", &other]), 1, "show it with `faultless watch --replay");
    place.holds_only(&["other", "page.html"]);
    assert_eq!(fs::read_to_string(&page).unwrap(), drawn, "a page stays as it was");

    let saved = place.file("samples.json");
    assert!(one_round(&place, "libc", &["--json", &saved]).output().unwrap().status.success());
    let samples = fs::read_to_string(&saved).unwrap();
    let mut same = bench(&place, &["--load", &saved, "--html", &saved]);
    assert_refused(&mut same, 2, "is named twice, or read at the same time");
    assert_eq!(fs::read_to_string(&saved).unwrap(), samples, "no page in the place of its samples");
    fs::remove_file(&saved).unwrap();

    assert!(one_round(&place, "libc", &[]).output().unwrap().status.success());
    assert_refused(bench(&place, &["-q", WORKLOAD]).env("TMPDIR", "/no/such/place"), 1, "TMPDIR");
}

#[test]
fn a_program_asked_for_by_name_must_be_there() {
    let place = Place::with_temporary("missing");
    let mut redis = bench(&place, &["-q", "redis", WORKLOAD]);
    assert_refused(
        redis.env("PATH", "/no/such/place"),
        1,
        "redis cannot run here: redis-server is not installed",
    );
    let mut programs = bench(&place, &["-q", "programs"]);
    assert_refused(programs.env("PATH", "/no/such/place"), 1, "none of these programs is installed");
    place.holds_only(&[]);
}

/// A server that may be linked with another allocator gets libc's before that, and is not waited for where it does not start.
#[test]
fn redis_runs_under_libc_where_nothing_is_preloaded_and_its_early_end_is_a_failure() {
    let place = Place::with_temporary("redis");
    let seen = place.file("seen");
    for (name, script) in [
        ("redis-server", format!("echo \"$LD_PRELOAD\" >'{seen}'; exit 7")),
        ("redis-cli", "exit 1".to_owned()),
        ("redis-benchmark", "exit 1".to_owned()),
    ] {
        let file = place.file(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", place.0.display(), std::env::var("PATH").unwrap());
    let begun = Instant::now();
    let mut command = bench(&place, &["-n", "1", "redis", "-a", "libc"]);
    let output = command.env("PATH", path).env_remove("LD_PRELOAD").output().unwrap();
    let text = table(&output);
    assert!(text.contains("redis-server ended at its start, status 7"), "{text}{}", errors(&output));
    assert_eq!(fs::read_to_string(&seen).unwrap(), "libc.so.6\n");
    assert!(begun.elapsed() < Duration::from_secs(100), "it waited for {:?}", begun.elapsed());
}

#[test]
fn a_real_program_proves_its_allocator_through_the_shell_that_becomes_it() {
    if Command::new("perl").arg("-v").stdout(Stdio::null()).status().is_err() {
        return faultless_skipped::skipped("perl is not installed");
    }
    let place = Place::with_temporary("program");
    let output = bench(&place, &["-n", "1", "perl", "-a", "libc,faultless"]).output().unwrap();
    assert!(output.status.success(), "{}{}", table(&output), errors(&output));
    assert!(table(&output).contains("programs: minor page faults"), "{}", table(&output));
    place.holds_only(&[]);
}

#[test]
fn a_library_that_the_loader_ignores_has_failed() {
    let place = Place::with_temporary("ignored");
    let source = "void *malloc(unsigned long size) { return (void *)(size * 0); }\n";
    let library = place.compile("libother.so", source, &["-shared", "-fPIC", "-fno-builtin"]);
    let saved = place.file("samples.json");
    // Of a processor that there is not.
    let mut bytes = fs::read(&library).unwrap();
    bytes[18..20].fill(0xee);
    fs::write(&library, bytes).unwrap();
    let output = one_round(&place, &format!("libc,other={library}"), &["--json", &saved]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    let text = table(&output);
    let says = format!("other failed in thread_churn small 8: {library} was not loaded");
    assert!(text.contains("failed") && text.contains(&says), "{text}");
    let value = json(&saved);
    assert_eq!(value["samples"][0]["failure"], Value::Null);
    assert_eq!(value["samples"][1]["figures"], Value::Null);
    let again = bench(&place, &["--load", &saved]).output().unwrap();
    assert_eq!((table(&again), again.status.code()), (text, Some(1)));
    place.holds_only(&["libother.so", "libother.so.c", "samples.json"]);
}

/// The mappings of a run prove that a library was there, not what it does: its row would be libc's malloc under another name.
#[test]
fn a_library_that_replaces_nothing_is_refused() {
    let place = Place::with_temporary("nothing");
    let source = "int replaces_nothing(void) { return 1; }\n";
    let library = place.compile("libnothing.so", source, &["-shared", "-fPIC"]);
    assert_refused(&mut one_round(&place, &format!("libc,nothing={library}"), &[]), 2, "defines no malloc");
    assert_refused(&mut one_round(&place, "libc,text=/etc/passwd", &[]), 2, "/etc/passwd");
    place.holds_only(&["libnothing.so", "libnothing.so.c"]);
}

#[test]
fn the_users_own_allocator_and_settings_do_not_take_part() {
    let place = Place::with_temporary("own");
    let list = table(&bench(&place, &["--list"]).output().unwrap());
    let Some(installed) = list.lines().find_map(|line| line.trim().split_once(" /")) else {
        return faultless_skipped::skipped("no other allocator is installed");
    };
    let (name, library) = (installed.0.trim(), format!("/{}", installed.1));
    let words = ["-q", "-n", "1", WORKLOAD, "-a", &format!("libc,{name}")];
    let output =
        bench(&place, &words).env("LD_PRELOAD", library).env("MALLOC_ARENA_MAX", "1").output().unwrap();
    assert!(output.status.success(), "{}", table(&output));
}

#[test]
fn an_interrupt_leaves_the_rounds_that_are_complete() {
    for (name, number) in [("INT", 2), ("TERM", 15)] {
        let place = Place::with_temporary(&format!("later-{name}"));
        let (saved, page) = (place.file("samples.json"), place.file("page.html"));
        let words = ["-q", "-n", "9", WORKLOAD, "-a", "libc,faultless", "--idle", "400"];
        let child = bench(&place, &[&words[..], &["--json", &saved, "--html", &page]].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The first run of the second round: nothing of that round counts.
        let output = interrupt_in_run(child, 3, name);
        assert_eq!(output.status.signal(), Some(number), "{}", errors(&output));
        assert!(errors(&output).ends_with("interrupted: 1 of 9 rounds complete and counted\n"));
        assert!(table(&output).contains("thread_churn small 8"), "{}", table(&output));
        place.holds_only(&["page.html", "samples.json"]);
        let value = json(&saved);
        let rounds: Vec<_> = value["samples"].as_array().unwrap().iter().map(|run| &run["round"]).collect();
        assert_eq!(rounds, [0, 0]);
        assert_eq!(table(&bench(&place, &["--load", &saved]).output().unwrap()), table(&output));
    }
}

#[test]
fn an_interrupt_in_the_first_round_leaves_the_cells_that_are_complete() {
    let place = Place::with_temporary("cells");
    let saved = place.file("samples.json");
    let words =
        ["-n", "1", WORKLOAD, "-s", "small,large", "-a", "libc,faultless", "--idle", "400", "--json", &saved];
    let child = bench(&place, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The second run of the second cell.
    let output = interrupt_in_run(child, 4, "INT");
    assert_eq!(output.status.signal(), Some(2), "{}", errors(&output));
    assert!(
        errors(&output).ends_with("interrupted: 1 of 2 cells of the first round complete and counted\n"),
        "{}",
        errors(&output)
    );
    let value = json(&saved);
    let counts = ["cells", "samples"].map(|key| value[key].as_array().unwrap().len());
    assert_eq!(counts, [1, 2]);
    assert_eq!(table(&bench(&place, &["--load", &saved]).output().unwrap()), table(&output));
}

#[test]
fn an_interrupt_ends_by_its_signal_also_where_a_file_cannot_be_written() {
    let place = Place::with_temporary("full");
    let words = ["-q", "-n", "9", WORKLOAD, "-a", "libc,faultless", "--idle", "400", "--json", "/dev/full"];
    let child = bench(&place, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = interrupt_in_run(child, 3, "INT");
    assert_eq!(output.status.signal(), Some(2), "{}", errors(&output));
    assert!(
        errors(&output).contains("cannot write /dev/full: No space left on device"),
        "{}",
        errors(&output)
    );
    assert!(table(&output).contains("thread_churn small 8"), "{}", table(&output));
}

#[test]
fn an_interrupt_before_any_cell_is_complete_leaves_nothing() {
    let place = Place::with_temporary("first");
    let (saved, page) = (place.file("samples.json"), place.file("page.html"));
    fs::write(&saved, "an older campaign").unwrap();
    let words = ["-q", WORKLOAD, "-a", "libc,faultless", "--idle", "400", "--json", &saved, "--html", &page];
    let child = bench(&place, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let output = interrupt_in_run(child, 2, "INT");
    assert_eq!(output.status.signal(), Some(2));
    assert_eq!(table(&output), "");
    place.holds_only(&["samples.json"]);
    assert_eq!(fs::read_to_string(&saved).unwrap(), "an older campaign");
}

#[test]
fn a_pipe_that_nobody_writes_into_is_not_waited_for_after_an_interrupt() {
    let place = Place::with_temporary("pipe");
    let pipe = place.file("campaign");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut running = Running::start(&mut bench(&place, &["--load", &pipe]));
    wait_until(|| state(running.pid()) == Some('S'));
    send("TERM", running.pid());
    let ended = running.end_within(Duration::from_secs(10));
    assert_eq!(ended.and_then(|status| status.signal()), Some(15));
}

/// Waits until the run of that number, from 1, is there, sends the signal, and sees that the run goes too.
fn interrupt_in_run(child: Child, number: usize, signal: &str) -> Output {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut runs: Vec<String> = Vec::new();
    let has_begun = is_so_within(Duration::from_secs(60), || {
        for pid in fs::read_to_string(&children).unwrap().split_whitespace() {
            let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if words.starts_with(WORKLOAD) && !runs.iter().any(|known| known == pid) {
                runs.push(pid.to_owned());
            }
        }
        runs.len() >= number
    });
    assert!(has_begun, "run {number} did not begin");
    send(signal, child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(state(runs.last().unwrap()), None, "the run was ended");
    output
}
