//! `faultless run`: the command's own status, signals, output and refusals, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use place::Place;
use running::{Running, send, state, wait_until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tool::{after, assert_misused, errors, faultless, json_of_file, text};

impl Place {
    fn executable(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn entries(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

/// One line, from us, without a backtrace.
fn assert_refused(words: &[&str], status: i32, says: &str) {
    tool::assert_refused(&mut faultless(&[&["run"], words].concat()), status, says);
}

#[test]
fn output_and_status_are_the_commands_own_and_the_summary_comes_last() {
    let output = faultless(&["run", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(output.stdout, b"out\n");
    let text = errors(&output);
    assert!(text.starts_with("err\nfaultless: user "), "{text}");
    for word in ["system", "elapsed", "minor", "major", "peak RSS", "final RSS"] {
        assert!(text.contains(word), "{word} is missing: {text}");
    }
    assert!(!text.contains("its exit was not seen"), "{text}");
}

#[test]
fn a_summary_for_standard_output_or_error_comes_behind_what_is_there() {
    let place = Place::new("own-streams");
    for (number, path) in [(1, "/dev/stdout"), (2, "/dev/stderr")] {
        let file = place.write("log", "before\n");
        let log = fs::OpenOptions::new().append(true).open(&file).unwrap();
        let script = format!("echo said >&{number}");
        let mut run = faultless(&["run", "--json", path, "--", "sh", "-c", &script]);
        let run = if number == 1 { run.stdout(log) } else { run.stderr(log) };
        assert!(run.status().unwrap().success());
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("before\nsaid\n{") && text.contains("faultless-run/1"), "{text}");
        assert_eq!(place.entries(), ["log"]);
    }
}

#[test]
fn a_malloc_of_the_programs_own_is_told_also_where_another_became_that_program() {
    let place = Place::new("own-malloc");
    let source = "static char pool[1 << 20]; static unsigned long used;\n\
        void *malloc(unsigned long size) { void *block = pool + used; used += (size + 15) & ~15ul; return block; }\n\
        void free(void *block) { (void)block; }\nint main(void) { return !malloc(100); }";
    let program = place.compile("brings", source, &["-O1", "-fno-builtin"]);
    for (line, is_told) in [(format!("exec {program}"), true), ("true".to_owned(), false)] {
        let output = faultless(&["run", "--", "sh", "-c", &line]).output().unwrap();
        let says = format!("{program} defines malloc itself");
        assert_eq!(errors(&output).contains(&says), is_told, "{}", errors(&output));
        let summary = place.file("summary");
        let output = faultless(&["run", "--json", &summary, "--", "sh", "-c", &line]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(json_of_file(&summary)["own_malloc"], is_told);
    }
}

#[test]
fn standard_input_reaches_the_command() {
    let output = faultless(&["run", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().and_then(
        |mut child| {
            use std::io::Write;
            child.stdin.take().unwrap().write_all(b"through\n")?;
            child.wait_with_output()
        },
    );
    assert_eq!(output.unwrap().stdout, b"through\n");
}

#[test]
fn death_by_signal_is_repeated_on_ourselves() {
    for (name, number) in [("SEGV", 11), ("TERM", 15), ("KILL", 9), ("ABRT", 6)] {
        let output = faultless(&["run", "--", "sh", "-c", &format!("kill -{name} $$")]).output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{name}");
    }
}

#[test]
fn a_signal_sent_to_us_reaches_the_command_and_its_answer_counts() {
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut running = Running::ready(&mut faultless(&["run", "--", "sh", "-c", script]));
    send("TERM", running.pid());
    let rest = std::io::read_to_string(running.0.stdout.take().unwrap()).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(5));
    assert_eq!(rest, "caught\n");
}

#[test]
fn a_stopped_command_stays_stopped_until_it_is_continued() {
    let script = "echo ready; kill -STOP $$; echo continued";
    let mut tool = Running::ready(&mut faultless(&["run", "--", "sh", "-c", script]));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", tool.pid())).unwrap();
    let command = children.split_whitespace().next().unwrap();
    let is_stopped = || matches!(state(command), Some('t' | 'T'));
    wait_until(is_stopped);
    // Time to let it go on; too little of it finds nothing wrong.
    thread::sleep(Duration::from_millis(300));
    let stays = is_stopped();
    send("CONT", command);
    let rest = std::io::read_to_string(tool.0.stdout.take().unwrap()).unwrap();
    assert!(stays && tool.0.wait().unwrap().success(), "it must still be stopped");
    assert_eq!(rest, "continued\n");
}

#[test]
fn every_signal_handler_of_the_command_runs() {
    let script = "n=0; trap 'n=$((n+1))' USR1; for i in 1 2 3 4 5; do kill -USR1 $$; done; echo $n";
    let output = faultless(&["run", "--", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.stdout, b"5\n");
}

#[test]
fn a_command_that_cannot_be_run_gives_one_line_and_the_shells_number() {
    assert_refused(&["no-such-command"], 127, "no such command: no-such-command");
    assert_refused(&["/etc/passwd"], 126, "may not be executed");
    assert_refused(&["/tmp"], 126, "directory");
    assert_refused(&["/dev/null"], 126, "no regular file");
    assert_refused(&["no\nsuch\x1b[31m"], 127, "no such command: no\\nsuch\\u{1b}[31m");
    assert_misused(&mut faultless(&["run"]), "");
    assert_misused(&mut faultless(&["run", "--no-such-option", "true"]), "--no-such-option");
}

#[test]
fn programs_that_a_preload_does_not_reach_are_refused() {
    let place = Place::new("refused");
    let source = "int main(void) { return 0; }";
    let dynamic = place.compile("dynamic", source, &[]);
    if let Some(program) = place.try_compile("static", source, &["-static"]) {
        assert_refused(&[&program], 126, "statically");
    }
    if let Some(program) = place.try_compile("narrow", source, &["-m32"]) {
        assert_refused(&[&program], 126, "32-bit");
    }
    // A loader of another C library; the program need not run.
    let foreign = place.compile("foreign", source, &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert_refused(&[&foreign], 126, "another C library");

    let script = place.executable("script", "#!/no/such/interpreter\n");
    assert_refused(&[&script], 127, "");

    assert_refused(&[&place.executable("plain", "neither\n")], 126, "#! line");
    assert_refused(&[&place.executable("cut", "\x7fELF\x02\x01")], 126, "damaged or cut off");

    // Only root can give a file away, so that running it would change the user.
    if Command::new("chown").arg("65534").arg(&dynamic).stderr(Stdio::null()).status().unwrap().success() {
        fs::set_permissions(&dynamic, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_refused(&[&dynamic], 126, "set-user-ID");
    }
}

#[test]
fn a_script_runs_under_the_allocator_like_a_program() {
    let place = Place::new("script");
    let script = place.executable("script", "#!/usr/bin/env sh\ngrep -c libfaultless /proc/self/maps\n");
    let output = faultless(&["run", &script]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn json_is_written_to_a_file_and_an_unwritable_one_stops_the_run_before_it_begins() {
    let place = Place::new("json");
    let file = place.file("summary.json");
    let output = faultless(&["run", "--json", &file, "--", "true"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(errors(&output), "");
    let value = json_of_file(&file);
    assert_eq!(value["format"], "faultless-run/1");
    assert_eq!(value["allocator"], "Faultless");
    assert!(value["minor_faults"].as_u64().unwrap() > 0);

    let words = ["--json", "/no/such/place", "--", "echo", "began"];
    assert_refused(&words, 1, "cannot write /no/such/place");
}

#[test]
fn where_the_file_cannot_be_written_in_the_end_the_figures_are_printed() {
    let words = ["run", "--json", "/dev/full", "--", "env", "-i", "true"];
    let output = faultless(&words).output().unwrap();
    let lines = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{lines}");
    assert!(lines.contains("faultless: user ") && lines.contains("peak RSS"), "{lines}");
    assert!(lines.contains("env did not load the allocator"), "what else there is to say is said: {lines}");
    assert!(lines.ends_with("cannot write /dev/full: No space left on device (os error 28)\n"), "{lines}");
}

#[test]
fn statistics_are_printed_when_asked_for() {
    let output = faultless(&["run", "--stats", "--", "true"]).output().unwrap();
    assert!(errors(&output).lines().count() > 3, "{}", errors(&output));
}

#[test]
fn the_users_own_preload_and_options_stay() {
    let script = "echo $LD_PRELOAD; echo $FAULTLESS";
    let output = faultless(&["run", "--stats", "--", "sh", "-c", script])
        .env("LD_PRELOAD", "libm.so.6")
        .env("FAULTLESS", "stats:exit")
        .output()
        .unwrap();
    let text = text(&output);
    let (preload, options) = text.trim_end().split_once('\n').unwrap();
    assert!(preload.contains("libfaultless-") && preload.ends_with(":libm.so.6"), "{preload}");
    assert_eq!(options, "stats:exit,stats:exit");
}

#[test]
fn without_a_cache_a_temporary_file_serves_and_goes() {
    let place = Place::new("nocache");
    let file = place.0.join("file");
    fs::write(&file, "").unwrap();
    let output = faultless(&["run", "true"])
        .env("XDG_CACHE_HOME", &file) // a file where a directory is needed
        .env("TMPDIR", &place.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(place.entries(), ["file"]);

    let mut command = faultless(&["run", "true"]);
    command.env("XDG_CACHE_HOME", &file).env("TMPDIR", "/no/such");
    tool::assert_refused(&mut command, 1, "set TMPDIR to a writable directory");
}

#[test]
fn where_no_more_files_may_be_open_no_other_place_is_asked_for() {
    let place = Place::new("nofiles");
    // The summary's file takes the last descriptor.
    let mut command =
        tool::after("ulimit -n 4", &["run", "--json", &place.file("summary.json"), "--", "true"]);
    let line = tool::assert_refused(&mut command, 1, "ulimit -n");
    assert!(!line.contains("TMPDIR"), "{line}");
}

#[test]
fn signals_that_are_ignored_stay_ignored_in_the_command() {
    let ignored = |signals: &str, words: &[&str]| {
        let mut command = Command::new("/usr/bin/env");
        command.args(["--default-signal", &format!("--ignore-signal={signals}")]).args(words);
        command.args(["sed", "-n", "/^SigIgn/p", "/proc/self/status"]).env_remove("LD_PRELOAD");
        text(&command.output().unwrap())
    };
    for signals in ["PIPE,CHLD,USR1", "PIPE", "CHLD", "HUP"] {
        let ours = ignored(signals, &[env!("CARGO_BIN_EXE_faultless"), "run", "--"]);
        assert_eq!(ours, ignored(signals, &[]), "{signals}");
        assert!(ours.starts_with("SigIgn:"), "{ours}");
    }
}

#[test]
fn a_full_disk_is_named_with_what_to_do() {
    let place = Place::new("full");
    let file = place.0.join("file");
    fs::write(&file, "").unwrap();
    // A limit on file sizes is a disk that is full after 4 KiB.
    let command = format!("trap '' XFSZ; ulimit -f 8; exec {} run true", env!("CARGO_BIN_EXE_faultless"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env("XDG_CACHE_HOME", &file).env("TMPDIR", &place.0);
    let line = tool::assert_refused(&mut shell, 1, "set TMPDIR to");
    assert!(line.contains(place.0.to_str().unwrap()), "{line}");
    assert_eq!(place.entries(), ["file"]);
}

#[test]
fn a_peak_is_the_commands_and_not_ours() {
    let place = Place::new("peak");
    let file = place.file("summary.json");
    faultless(&["run", "--json", &file, "--", "true"]).output().unwrap();
    let value = json_of_file(&file);
    let (peak, last) =
        (value["peak_rss_bytes"].as_u64().unwrap(), value["final_rss_bytes"].as_u64().unwrap());
    assert!(peak < 2 * last, "peak {peak}, final {last}");
    let source = "#include <stdlib.h>\n#include <string.h>\nint main(void) { memset(malloc(4 << 20), 1, 4 << 20); return 0; }";
    let program = place.compile("small", source, &["-O0"]);
    faultless(&["run", "--json", &file, "--", "sh", "-c", &format!("{program}; true")]).output().unwrap();
    let peak = json_of_file(&file)["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak > 4 << 20, "{peak}: that of a child, which is less than what we have");
}

#[test]
fn a_closed_standard_error_does_not_change_the_status() {
    let command = format!("{} run -- true 2>&-", env!("CARGO_BIN_EXE_faultless"));
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

#[test]
fn the_summary_costs_little_processor_time_and_few_looks() {
    let mut tool = faultless(&["run", "true"]).stderr(Stdio::null()).spawn().unwrap();
    let of_tool = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", tool.id())).unwrap();
    // What has ended and was not waited for still has its accounts.
    wait_until(|| state(tool.id()) == Some('Z'));
    let status = of_tool("status");
    let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    assert!(waits.trim().parse::<u64>().unwrap() < 200, "it looks again and again: {status}");
    let stat = of_tool("stat");
    let behind_name = stat.rsplit_once(") ").unwrap().1.split(' ');
    // User and system time, with those of the command, in hundredths of a second.
    let ticks: u64 = behind_name.skip(11).take(4).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    assert!(ticks < 100, "{ticks} hundredths of a second of processor time");
    assert!(tool.wait().unwrap().success());
}

#[test]
fn a_first_thread_that_ends_before_the_others_is_not_the_exit_of_the_process() {
    let place = Place::new("first-thread");
    let head = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n#include <unistd.h>\n";
    let grows = "static void *last(void *none) {
            usleep(100000);
            char *p = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int i = 0; i < 64 << 20; i += 4096) p[i] = 1;
            usleep(300000); exit(5); }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, last, 0); pthread_exit(0); }";
    let becomes = "static void *last(void *none) {
            char *empty[] = {0};
            usleep(100000); execle(\"/bin/sleep\", \"sleep\", \"0.4\", (char *)0, empty); return 0; }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, last, 0); pthread_join(thread, 0); }";
    let whole = "static void *last(void *none) { pause(); return 0; }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, last, 0); usleep(10000); return 3; }";
    let json = place.file("json");
    let figures = |name: &str, code: &str| -> serde_json::Value {
        let program = place.compile(name, &format!("{head}{code}"), &["-pthread"]);
        let words = ["run", "--json", &json, "--", &program];
        assert!(faultless(&words).output().unwrap().status.code().is_some());
        json_of_file(&json)
    };
    let grown = figures("grows", grows);
    assert!(grown["final_rss_is_sampled"] == true && grown["exit_status"] == 5, "{grown}");
    assert!(grown["final_rss_bytes"].as_u64().unwrap() > 64 << 20, "{grown}");
    let other = figures("becomes", becomes);
    assert!(other["final_rss_is_sampled"] == false && other["allocator"] == "libc", "{other}");
    let exact = figures("whole", whole);
    assert!(exact["final_rss_is_sampled"] == false && exact["allocator"] == "Faultless", "{exact}");
}

#[test]
fn others_may_enter_where_the_library_lies_whatever_the_umask() {
    let place = Place::new("umask");
    let cache = place.0.join("cache");
    let modes = "library=${LD_PRELOAD%%:*}; stat -c %a \"${library%/*}\" \"$library\"";
    for (directory, variable) in [(&cache, "XDG_CACHE_HOME"), (&place.0, "TMPDIR")] {
        let output = after("umask 077", &["run", "--", "sh", "-c", modes])
            .env("XDG_CACHE_HOME", "/dev/null/x")
            .env(variable, directory)
            .output()
            .unwrap();
        assert_eq!(text(&output), "755\n644\n", "{variable}: {}", errors(&output));
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_that_leaves_nothing_behind() {
    let place = Place::new("fsize");
    for words in [["run", "--", "true"], ["doctor", "--", "true"], ["churn", "--malloc", "true"]] {
        let output = after("ulimit -f 1", &words)
            .env("XDG_CACHE_HOME", "/dev/null/x")
            .env("TMPDIR", &place.0)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {:?} {}", output.status, errors(&output));
        let text = errors(&output);
        assert!(text.lines().last().unwrap().contains("File too large"), "{words:?}: {text}");
        assert_eq!(place.entries(), Vec::<String>::new(), "{words:?}");
    }
}
