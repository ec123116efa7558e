//! `faultless doctor --pid` through the real program, on processes whose trouble is known.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use place::Place;
use running::{Running, stopped, wait_until};
use serde_json::Value;
use tool::{assert_refused, errors, faultless, finding, json, text};

/// Allocates 40 MiB in small blocks and frees all but one in a hundred, which keeps the top of the heap where it is.
const TRAPPED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 40000 };
static void *blocks[BLOCKS];
int main(void)
{
    alarm(120);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < BLOCKS; i++) if (i % 100 != 99) free(blocks[i]);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

/// Takes a block of 4 MiB from mmap, fills it, and gives it back, again and again.
const THRASHING: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    alarm(120);
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    puts("ready");
    fflush(stdout);
    for (;;) {
        free(memset(malloc(4 << 20), 1, 4 << 20));
        usleep(2000);
    }
}
"#;

/// A thread whose arena gives its top back with every 8th free.
const TRIMMING: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *work(void *unused)
{
    for (int turn = 0;; turn++) {
        void *blocks[8];
        for (int i = 0; i < 8; i++) blocks[i] = memset(malloc(100 << 10), 1, 100 << 10);
        for (int i = 0; i < 8; i++) free(blocks[i]);
        if (turn == 0) {
            puts("ready");
            fflush(stdout);
        }
        usleep(1000);
    }
    return unused;
}
int main(void)
{
    alarm(120);
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, 0);
}
"#;

/// Brings its own malloc, each block of which is a mapping, and takes and gives back 4 MiB again and again.
const OWN_MALLOC: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
void *malloc(size_t bytes)
{
    size_t *block = mmap(0, bytes + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *block = bytes + 16;
    return block + 2;
}
void free(void *block)
{
    if (block) munmap((size_t *)block - 2, ((size_t *)block)[-2]);
}
int main(void)
{
    alarm(120);
    puts("ready");
    fflush(stdout);
    for (;;) {
        free(memset(malloc(4 << 20), 1, 4 << 20));
        usleep(2000);
    }
}
"#;

/// Maps a file that no other process maps, shared, reads it, and writes it when a second has passed.
const WRITES_A_FILE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
enum { BYTES = 40 << 20 };
int main(int argc, char **argv)
{
    alarm(120);
    FILE *file = tmpfile();
    char *zeros = calloc(1, BYTES);
    fwrite(zeros, 1, BYTES, file);
    fflush(file);
    fsync(fileno(file));
    free(zeros);
    volatile char *map = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
    for (int i = 0; i < BYTES; i += 4096) argc += map[i];
    puts("ready");
    fflush(stdout);
    usleep(1500000);
    for (int i = 0; i < BYTES; i += 4096) map[i] = 1;
    pause();
}
"#;

fn running(place: &Place, source: &str) -> Running {
    let program = place.compile("subject", source, &["-O1", "-fno-builtin", "-pthread"]);
    let mut command = Command::new(program);
    command.arg("two words").stdin(Stdio::null());
    for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_"] {
        command.env_remove(name);
    }
    Running::ready(&mut command)
}

fn consultation(process: &Running) -> Value {
    consultation_for("1s", process)
}

fn consultation_for(time: &str, process: &Running) -> Value {
    let output = faultless(&["doctor", "--json", "--for", time, "--pid", &process.pid()]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    json(&output)
}

/// Of a process whose calls are looked at for half of the time: long enough for some on a busy machine, too.
fn long_consultation(process: &Running) -> Value {
    consultation_for("4s", process)
}

#[test]
fn trapped_memory_is_found_and_the_process_goes_on() {
    let place = Place::new("doctor-trapped");
    let mut process = running(&place, TRAPPED);
    let report = consultation(&process);
    let trapped = report["trapped_bytes"].as_u64().unwrap();
    assert!((34 << 20..40 << 20).contains(&trapped), "{report}");
    assert_eq!(finding(&report, "trapped")["is_waste"], true, "{report}");
    let advice = finding(&report, "trapped")["advice"].as_str().unwrap();
    assert!(advice.contains("malloc_trim(0)"), "{advice}");
    let line = report["verdict"]["line_to_try"].as_str().unwrap();
    assert!(line.starts_with("faultless doctor --for 60s -- ") && line.ends_with(" 'two words'"), "{line}");
    let output = faultless(&["doctor", "--for", "1s", "--pid", &process.pid()]).output().unwrap();
    let text = text(&output);
    assert!(text.contains("Verdict: its allocator wastes 3") && text.contains(line), "{text}");
    assert_eq!(process.0.try_wait().unwrap(), None, "it still runs");
}

#[test]
fn the_line_to_try_finds_the_program_from_where_the_line_is_typed() {
    let place = Place::new("doctor-elsewhere");
    let program = place.compile("subject", TRAPPED, &["-O1", "-fno-builtin"]);
    let line_with = |command: &mut Command, input: Stdio| {
        let process = Running::ready(command.current_dir(&place.0).env_remove("LD_PRELOAD").stdin(input));
        let report = consultation(&process);
        (report["verdict"]["line_to_try"].as_str().unwrap().to_owned(), report["command"][0].clone())
    };
    let line_of = |command: &mut Command| line_with(command, Stdio::null());
    let (start, directory) = ("faultless doctor --for 60s --", place.0.canonicalize().unwrap());
    let directory = directory.display();
    let (line, _) = line_of(Command::new("./subject").arg("two words"));
    assert_eq!(line, format!("cd {directory} && {start} ./subject 'two words'"));
    let (line, _) = line_of(Command::new("./subject").env("MALLOC_ARENA_MAX", "2").env("NEITHER", "1"));
    assert_eq!(line, format!("cd {directory} && MALLOC_ARENA_MAX=2 {start} ./subject"));
    let input = place.0.join("in put");
    fs::write(&input, "words").unwrap();
    let (line, _) = line_with(&mut Command::new("./subject"), File::open(&input).unwrap().into());
    assert_eq!(line, format!("cd {directory} && {start} ./subject < '{directory}/in put'"));
    let file = File::open(&input).unwrap();
    fs::remove_file(&input).unwrap();
    let (line, _) = line_with(&mut Command::new("./subject"), file.into());
    assert_eq!(line, format!("cd {directory} && {start} ./subject < FILE"));
    let (line, name) = line_of(Command::new(&program).arg0("-subject"));
    assert_eq!((line, name), (format!("cd {directory} && {start} {directory}/subject"), "-subject".into()));
}

#[test]
fn thrash_is_found_where_its_calls_may_be_seen() {
    let place = Place::new("doctor-thrash");
    let report = long_consultation(&running(&place, THRASHING));
    let faults = report["activity"]["minor_faults"].as_u64().unwrap();
    assert!(faults > 1025, "more than one turn: {report}");
    if finding(&report, "thrash").is_null() {
        let remarks = report["remarks"].to_string();
        assert!(remarks.contains("what it gives back to the kernel and takes again"), "{report}");
        let verdict = report["verdict"]["sentence"].as_str().unwrap();
        assert!(verdict.contains("not seen") || verdict.contains("could be seen"), "{verdict}");
        return faultless_skipped::skipped("tracepoints are not permitted");
    }
    assert_eq!(finding(&report, "thrash")["is_waste"], true, "{report}");
    let sentence = finding(&report, "thrash")["sentence"].as_str().unwrap();
    assert!(sentence.contains("1,030 pages"), "{sentence}");
}

#[test]
fn trims_of_an_arena_that_was_there_before_are_told_with_what_stops_them() {
    let place = Place::new("doctor-trims");
    let report = long_consultation(&running(&place, TRIMMING));
    let thrash = finding(&report, "thrash");
    if thrash.is_null() {
        assert!(report["remarks"].to_string().contains("what it gives back to the kernel"), "{report}");
        return faultless_skipped::skipped("tracepoints are not permitted");
    }
    let sentence = thrash["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("the top of a thread's arena is given back, 168 pages"), "{sentence}");
    assert!(thrash["advice"].as_str().unwrap().contains("tries the settings that stop it"), "{thrash}");
    assert!(!report["verdict"]["line_to_try"].is_null(), "{report}");
}

/// Becomes another program a second after it was ready, which has 40 MiB that are free from its beginning on.
const BECOMING: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 40000 };
static void *blocks[BLOCKS];
int main(int count, char **words)
{
    alarm(120);
    if (strcmp(words[0], "later")) {
        puts("ready");
        fflush(stdout);
        sleep(1);
        execl("/proc/self/exe", "later", (char *)0);
    }
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < BLOCKS; i++) if (i % 100 != 99) free(blocks[i]);
    pause();
}
"#;

#[test]
fn a_process_that_becomes_another_program_is_looked_at_anew() {
    let place = Place::new("doctor-exec");
    let report = consultation_for("3s", &running(&place, BECOMING));
    assert_eq!(report["name"], "exe", "{report}");
    assert_eq!(finding(&report, "trapped")["is_waste"], true, "{report}");
    assert!(finding(&report, "growth").is_null(), "{report}");
}

#[test]
fn a_process_that_ends_meanwhile_is_said_to_have_ended() {
    let mut child = Command::new("sleep").arg("1").spawn().unwrap();
    let pid = child.id().to_string();
    let reaper = std::thread::spawn(move || child.wait());
    assert_refused(
        &mut faultless(&["doctor", "--for", "3s", "--pid", &pid]),
        1,
        &format!("process {pid} has ended"),
    );
    assert!(reaper.join().unwrap().unwrap().success());
}

#[test]
fn what_belongs_to_a_command_is_refused_of_a_process() {
    for words in [&["-n", "3"][..], &["--", "true"]] {
        let output = faultless(&["doctor", "--pid", "1"]).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", errors(&output));
        assert!(errors(&output).contains("cannot be used with"), "{}", errors(&output));
    }
    let own = std::process::id().to_string();
    let mut page = faultless(&["doctor", "--html", "/nowhere/page.html", "--pid", &own]);
    assert_refused(&mut page, 2, "--html draws what was tried on a command");
    let output = faultless(&["doctor", "--for", "3s"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert_refused(&mut faultless(&["doctor", "--pid", "0"]), 2, "a process number is above 0");
    assert_refused(&mut faultless(&["doctor", "--pid", "999999999"]), 1, "no process 999999999");
}

#[test]
fn a_process_that_is_stopped_is_said_to_be_once() {
    let running = stopped();
    let pid = running.pid();
    let output = faultless(&["doctor", "--json", "--for", "200ms", "--pid", &pid]).output().unwrap();
    assert_eq!(errors(&output).matches("is stopped (state T)").count(), 1, "{}", errors(&output));
    let remarks = json(&output)["remarks"].to_string();
    assert_eq!(remarks.matches("stopped, as it was when we began").count(), 1, "{remarks}");
}

#[test]
fn a_statically_linked_program_has_no_line_that_would_be_refused() {
    let place = Place::new("doctor-static");
    let program = place.compile("subject", TRAPPED, &["-O1", "-fno-builtin", "-static"]);
    let report = consultation(&Running::ready(Command::new(program).env_remove("LD_PRELOAD")));
    let verdict = &report["verdict"];
    assert!(verdict["line_to_try"].is_null(), "{verdict}");
    let sentence = verdict["sentence"].as_str().unwrap();
    assert!(sentence.contains("a preload does not reach subject: it is linked statically"), "{sentence}");
}

#[test]
fn a_program_that_is_gone_or_in_a_container_has_no_line_that_would_start_another() {
    let place = Place::new("doctor-absent");
    let program = place.compile("subject", TRAPPED, &["-O1", "-fno-builtin"]);
    let verdict_of = |process: &Running| {
        let verdict = &consultation(process)["verdict"];
        (verdict["line_to_try"].clone(), verdict["sentence"].as_str().unwrap().to_owned())
    };
    // What stands at this path in the container is another file outside.
    let inside = place.0.join("inside");
    fs::create_dir(&inside).unwrap();
    fs::copy(&program, inside.join("subject")).unwrap();
    let contained = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", line]);
        command.current_dir(&place.0).env_remove("LD_PRELOAD");
        command
    };
    match contained("mount --bind . inside").output() {
        Ok(output) if output.status.success() => {
            let process = Running::ready(&mut contained("mount --bind . inside && exec inside/subject"));
            let (line, sentence) = verdict_of(&process);
            assert!(
                line.is_null() && sentence.contains("(a container): faultless doctor -- CMD"),
                "{sentence}"
            );
        }
        refused => faultless_skipped::skipped(format_args!("unshare: {refused:?}")),
    }
    let process = Running::ready(Command::new(&program).env_remove("LD_PRELOAD"));
    fs::rename(inside.join("subject"), &program).unwrap();
    let report = consultation(&process);
    assert!(!report["verdict"]["line_to_try"].is_null(), "the new one can be started: {report}");
    assert_eq!(report["program_is_replaced"], true, "{report}");
    fs::remove_file(&program).unwrap();
    let (line, sentence) = verdict_of(&process);
    assert!(line.is_null() && sentence.ends_with(": its program's file has been deleted"), "{sentence}");
}

#[test]
fn a_program_that_brings_its_own_malloc_has_no_line_that_would_try_nothing() {
    let place = Place::new("doctor-own");
    let report = consultation(&running(&place, OWN_MALLOC));
    let verdict = &report["verdict"];
    assert!(verdict["line_to_try"].is_null(), "{verdict}");
    let sentence = verdict["sentence"].as_str().unwrap();
    let is_waste = finding(&report, "thrash")["is_waste"] == true;
    assert!(!is_waste || sentence.contains("subject defines malloc itself"), "{sentence}");
    let served = &finding(&report, "served")["sentence"];
    assert!(served.as_str().unwrap().starts_with("the program's own malloc serves it"), "{report}");
}

#[test]
fn what_a_server_wrote_over_its_command_line_is_no_line_to_try() {
    let running = Running::start(Command::new("sleep").arg0("nginx: worker process").arg("600"));
    wait_until(|| fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap().starts_with(b"nginx"));
    let report = consultation(&running);
    assert_eq!(report["command"], serde_json::json!([]), "{report}");
}

#[test]
fn pages_of_a_file_that_is_written_are_not_said_to_be_copied() {
    let place = Place::new("doctor-file");
    let process = running(&place, WRITES_A_FILE);
    let report = consultation_for("3s", &process);
    let texts = report["findings"].to_string();
    assert!(!texts.contains("in common with other processes"), "{report}");
}
