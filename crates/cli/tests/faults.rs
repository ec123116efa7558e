//! `faultless faults` through the real program. Where the kernel permits no performance events, the refusal is looked at.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use place::Place;
use running::Running;
use serde_json::Value;
use tool::{assert_misused, assert_refused, errors, json};

fn faultless(words: &[&str]) -> Output {
    tool::faultless(words).output().unwrap()
}

/// Whether it recorded; where the kernel permits nothing, its one line must say what would help.
fn was_permitted(output: &Output) -> bool {
    let text = errors(output);
    if output.status.success() {
        return true;
    }
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("faultless: cannot record page faults: "), "{text}");
    let cures = ["sysctl", "seccomp", "root", "CAP_", "built without"];
    assert!(cures.iter().any(|cure| text.contains(cure)), "no cure in: {text}");
    faultless_skipped::skipped(text);
    false
}

/// The analysis of a command; none where it is not permitted.
fn analysis(words: &[&str]) -> Option<Value> {
    let output = faultless(&[&["faults", "--json"], words].concat());
    was_permitted(&output).then(|| json(&output))
}

/// The first function and its share of what was looked at: a busy machine leaves some faults of a short program aside, and says so.
fn first(value: &Value) -> (String, f64) {
    let share = |function: &Value| function["share"].as_f64().unwrap_or_default();
    let functions = value["functions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let first = guilty(value);
    (first["function"].as_str().unwrap_or_default().to_owned(), share(first) / looked_at(functions))
}

/// That function.
fn guilty(value: &Value) -> &Value {
    let mut functions = value["functions"].as_array().into_iter().flatten();
    functions.find(|function| function["function"] != NOT_LOOKED_AT).unwrap_or(&Value::Null)
}

/// Whose faults the kernel lost in a burst: nobody's.
const NOT_LOOKED_AT: &str = "[not looked at]";

/// The share of all faults that was looked at.
fn looked_at(functions: &[Value]) -> f64 {
    let lost = functions.iter().filter(|function| function["function"] == NOT_LOOKED_AT);
    1.0 - lost.filter_map(|function| function["share"].as_f64()).sum::<f64>()
}

/// Packs a matrix into pages that are new at each call.
const DGEMM: &str = include_str!("../../workloads/dgemm.c");

#[test]
fn the_demos_kernel_is_found_guilty_and_the_figures_agree_with_the_kernels() {
    let Some(value) = analysis(&[]) else { return };
    let (function, share) = first(&value);
    assert!(function == "dgemm_tile" && share >= 0.95, "{function}: {share}");
    let minor = |part: &str| value["agreement"][part]["minor"].as_u64().unwrap_or(0);
    let parts = minor("in_programs")
        + minor("in_system_calls")
        + minor("before_the_command")
        + minor("without_event");
    assert_eq!(parts, minor("accounts") + minor("beyond_accounts"), "{}", value["agreement"]);
    // Two buffers of 1,024 pages for each of 1,500 calls.
    assert!(minor("in_programs") > 3_000_000, "{}", value["agreement"]);
    let attributed =
        value["functions"].as_array().unwrap().iter().map(|function| function["faults"].as_f64().unwrap());
    let (sum, all) = (
        attributed.sum::<f64>(),
        value["faults"]["minor"].as_f64().unwrap() + value["faults"]["major"].as_f64().unwrap(),
    );
    assert!((sum / all - 1.0).abs() < 0.01, "{sum} of {all} are attributed");
    assert_eq!(guilty(&value)["lines"][0]["file"].as_str().unwrap().rsplit('/').next(), Some("chem.c"));
}

#[test]
fn a_dgemm_is_found_guilty_with_its_line_and_its_memory() {
    let place = Place::new("dgemm");
    let program = place.compile("dgemm", DGEMM, &["-O2", "-g", "-lm"]);
    let Some(value) = analysis(&["--", &program, "100"]) else { return };
    let (function, share) = first(&value);
    assert!(function == "dgemm" && share >= 0.95, "{function}: {share}");
    assert_eq!(guilty(&value)["memory"][0]["memory"], "anonymous (mmap)");
    let line = guilty(&value)["lines"][0]["line"].as_u64().unwrap();
    assert!(DGEMM.lines().nth(line as usize - 1).unwrap().contains("packed["), "line {line}");
}

#[test]
fn memory_that_mremap_moved_and_made_larger_is_known() {
    let place = Place::new("mremap");
    let source = "#define _GNU_SOURCE
        #include <sys/mman.h>
        enum { BYTES = 64 << 20 };
        int main(void) {
            char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            char *moved = mremap(two, 4096, BYTES, MREMAP_MAYMOVE);
            if (moved == MAP_FAILED) return 1;
            for (long i = 0; i < BYTES; i += 4096) moved[i] = 1;
            return 0;
        }";
    let program = place.compile("mremap", source, &["-O1", "-g"]);
    let Some(value) = analysis(&["--", &program]) else { return };
    let functions = value["functions"].as_array().unwrap();
    let main = functions.iter().find(|function| function["function"] == "main").unwrap();
    assert_eq!(main["memory"][0]["memory"], "anonymous (mmap)", "{main}");
}

#[test]
fn a_stripped_program_is_shown_by_module_and_offset() {
    let place = Place::new("stripped");
    let program = place.compile("dgemm", DGEMM, &["-O2", "-s", "-lm"]);
    let Some(value) = analysis(&["--", &program, "100"]) else { return };
    let (function, _) = first(&value);
    assert!(function.starts_with("dgemm+0x"), "{function}");
    let functions = value["functions"].as_array().unwrap();
    let of_program = functions.iter().filter(|function| function["module"] == "dgemm");
    let share: f64 = of_program.map(|function| function["share"].as_f64().unwrap()).sum();
    assert!(share / looked_at(functions) > 0.95, "{share}");
}

/// Three calls deep, so that a chain which cannot be followed is seen.
const LAYERS: &str = r#"
#include <string.h>
#include <sys/mman.h>
#define BYTES (400 * 4096)
__attribute__((noinline)) void touch(void)
{
    char *pages = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long at = 0; at < BYTES; at += 4096) pages[at] = 1;
    munmap(pages, BYTES);
}
__attribute__((noinline)) void middle(void) { for (int i = 0; i < 5; i++) touch(); __asm__ volatile(""); }
__attribute__((noinline)) void outer(void) { middle(); __asm__ volatile(""); }
int main(void) { outer(); return 0; }
"#;

#[test]
fn chains_are_followed_through_programs_whose_code_shares_a_page_of_the_file_with_data() {
    let place = Place::new("shared_page");
    let linked = ["-fuse-ld=mold", "-fuse-ld=lld"].into_iter().find_map(|linker| {
        place.try_compile("layers", LAYERS, &["-O2", "-g", "-fomit-frame-pointer", linker])
    });
    let Some(program) = linked else {
        return faultless_skipped::skipped("neither mold nor lld is there (package mold)");
    };
    let written = place.file("folded");
    let output = faultless(&["faults", "--folded", &written, "--", &program]);
    if !was_permitted(&output) {
        return;
    }
    let folded = fs::read_to_string(written).unwrap();
    let touched: Vec<&str> = folded.lines().filter(|line| line.contains("touch")).collect();
    assert!(!touched.is_empty(), "{folded}");
    assert!(touched.iter().all(|line| line.contains("main;outer;middle;touch")), "{folded}");
}

/// A thread and a child, started later than the program, each with a function of its own.
const FAMILY: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define BYTES (400 * 4096)
static void touch(void)
{
    char *pages = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 1, BYTES);
    munmap(pages, BYTES);
}
__attribute__((noinline)) void in_thread(void) { for (int i = 0; i < 5; i++) touch(); __asm__ volatile(""); }
__attribute__((noinline)) void in_child(void) { for (int i = 0; i < 5; i++) touch(); __asm__ volatile(""); }
static void *run(void *unused) { in_thread(); return unused; }
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, run, 0);
    pthread_join(thread, 0);
    if (fork() == 0) { in_child(); _exit(0); }
    int status;
    wait(&status);
    return 0;
}
"#;

#[test]
fn threads_and_children_started_later_are_followed() {
    let place = Place::new("family");
    // Inlined: touch is named as what it is, and its callers by the tree.
    let program = place.compile("family", FAMILY, &["-O2", "-g", "-pthread", "-fomit-frame-pointer"]);
    let (record, folded) = (place.file("rec"), place.file("folded"));
    let output = faultless(&[
        "faults", "--every", "1", "--stack", "1024", "--record", &record, "--folded", &folded, "--", &program,
    ]);
    if !was_permitted(&output) {
        return;
    }
    let text = fs::read_to_string(folded).unwrap();
    for function in ["in_thread", "in_child"] {
        let lines = text.lines().filter(|line| line.contains(&format!(";{function};")));
        let faults: u64 = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert!((1900..=2200).contains(&faults), "{function}: {faults}\n{text}");
    }
    // The recording alone tells the same, without the program.
    fs::remove_file(&program).unwrap();
    let again = place.file("again");
    assert!(faultless(&["faults", "--folded", &again, &record]).status.success());
    assert_eq!(fs::read_to_string(again).unwrap(), text);
    let tree = faultless(&["faults", "--tree", &record]);
    assert!(tool::text(&tree).contains("in_child"));
}

#[test]
fn every_output_is_written_from_one_recording() {
    let place = Place::new("outputs");
    let (record, html, pprof) = (place.file("rec"), place.file("page.html"), place.file("profile.pb.gz"));
    let output =
        faultless(&["faults", "--record", &record, "--html", &html, "--pprof", &pprof, "--", "true"]);
    if !was_permitted(&output) {
        return;
    }
    assert!(fs::read_to_string(&html).unwrap().ends_with("</html>\n"));
    assert_eq!(fs::read(&pprof).unwrap()[..2], [0x1f, 0x8b], "compressed");
    let diff = faultless(&["faults", "--diff", &record, &record]);
    assert!(tool::text(&diff).contains("No function takes more or fewer"));
    let diff = faultless(&["faults", "--json", "--diff", &record, &record]);
    let value = json(&diff);
    assert_refused(&mut tool::faultless(&["faults", "--for", "1s", &record]), 2, "--for");
    assert_eq!(value["format"], "faultless-faults-diff/1");
}

#[test]
fn a_recording_is_not_replaced_by_what_is_drawn_of_it() {
    let place = Place::new("kept");
    let record = place.file("rec");
    if !was_permitted(&faultless(&["faults", "--record", &record, "--", "true"])) {
        return;
    }
    let before = fs::read(&record).unwrap();
    for option in ["--record", "--html", "--folded", "--pprof"] {
        let words = ["faults", option, &place.file("./rec"), &record];
        assert_refused(&mut tool::faultless(&words), 2, "read at the same time");
        assert_eq!(fs::read(&record).unwrap(), before, "{option}");
    }
}

/// Faults for ever, in rounds, and says when it is ready.
const BUSY: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void guilty(void)
{
    char *pages = mmap(0, 100 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 1, 100 * 4096);
    munmap(pages, 100 * 4096);
}
int main(void)
{
    alarm(60);
    puts("ready");
    fflush(stdout);
    for (;;) { guilty(); usleep(1000); }
}
"#;

fn busy(place: &Place) -> Running {
    start(place, BUSY)
}

/// A program that says when it is ready.
fn start(place: &Place, source: &str) -> Running {
    Running::ready(&mut Command::new(place.compile("running", source, &["-O1", "-pthread"])))
}

#[test]
fn a_process_that_runs_already_is_observed_for_a_time() {
    let place = Place::new("attach");
    let running = busy(&place);
    let begun = Instant::now();
    let Some(value) = analysis(&["--pid", &running.pid(), "--for", "500ms"]) else { return };
    assert!(begun.elapsed() < Duration::from_secs(20));
    let (function, share) = first(&value);
    assert!(function == "guilty" && share > 0.95, "{function}: {share}");
    assert_eq!(value["command"], Value::Null);
    let agreement = &value["agreement"];
    assert!(agreement["in_programs"]["minor"].as_u64() > Some(0), "{agreement}");
    // It populates nothing, and nothing waits for it: what it does while the looking begins and ends is not left over.
    if agreement["in_system_calls"].is_object() {
        assert_eq!(agreement["without_event"]["minor"], 0, "{agreement}");
        assert_eq!(agreement["beyond_accounts"]["minor"], 0, "{agreement}");
    }
}

#[test]
fn a_command_is_ended_when_the_time_is_over() {
    let place = Place::new("for");
    let program = place.compile("busy", BUSY, &["-O1"]);
    let output = tool::faultless(&["faults", "--json", "--for", "500ms", "--", &program]).output().unwrap();
    if !was_permitted(&output) {
        return;
    }
    let value = json(&output);
    // Its alarm would end it after a minute, and be told.
    assert!(!errors(&output).contains("killed"), "{}", errors(&output));
    assert_eq!(first(&value).0, "guilty");
}

/// Two hundred threads that fault now and then, and start others that do.
const CROWD: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void guilty(void)
{
    char *pages = mmap(0, 20 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 1, 20 * 4096);
    munmap(pages, 20 * 4096);
}
static void *shortly(void *unused) { guilty(); return unused; }
static void *run(void *unused)
{
    for (;;) {
        pthread_t thread;
        if (pthread_create(&thread, 0, shortly, 0) == 0) pthread_join(thread, 0);
        usleep(100000);
    }
    return unused;
}
int main(void)
{
    alarm(60);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_t thread;
    for (int i = 0; i < 200; i++) pthread_create(&thread, &small, run, 0);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn a_process_of_many_threads_is_observed_whole() {
    let place = Place::new("crowd");
    let running = start(&place, CROWD);
    let pid = running.pid();
    let faults = |value: &Value| {
        let named =
            value["functions"].as_array().unwrap().iter().find(|function| function["function"] == "guilty");
        named.map_or(0.0, |named| named["faults"].as_f64().unwrap())
    };
    let Some(mut value) = analysis(&["--pid", &pid, "--for", "1s"]) else { return };
    if faults(&value) <= 1000.0 {
        // Where others keep the CPUs busy it takes few.
        value = analysis(&["--pid", &pid, "--for", "10s"]).unwrap();
    }
    assert!(faults(&value) > 1000.0, "{value:#}");
    let minor = |part: &str| value["agreement"][part]["minor"].as_f64().unwrap_or(0.0);
    let seen = minor("in_programs") + minor("in_system_calls");
    // Unseen system calls of 200 threads are a large part where they are not permitted to be seen.
    assert!(seen > minor("accounts") * 0.5 && seen < minor("accounts") * 1.2, "{}", value["agreement"]);
}

#[test]
fn a_library_that_was_deleted_keeps_its_names_or_is_said_to_be_gone() {
    let place = Place::new("deleted");
    let library = "#include <string.h>\n__attribute__((noinline)) void in_library(char *p, long n) { for (long i = 0; i < n; i += 4096) p[i] = 1; }";
    place.compile("libguilty.so", library, &["-O1", "-shared", "-fPIC"]);
    let main = r#"
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
void in_library(char *, long);
int main(int count, char **words)
{
    if (count < 2) return 1;
    unlink(words[1]);
    for (int i = 0; i < 20; i++) {
        char *pages = mmap(0, 400 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        in_library(pages, 400 * 4096);
        munmap(pages, 400 * 4096);
    }
    usleep(100000);
    return 0;
}
"#;
    let folder = place.0.to_string_lossy().into_owned();
    let (look_here, run_here) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let program = place.compile("main", main, &["-O1", &look_here, &run_here, "-lguilty"]);
    let Some(value) = analysis(&["--", &program, &place.file("libguilty.so")]) else {
        return;
    };
    let (function, share) = first(&value);
    let is_named = function == "in_library" && share > 0.9;
    let is_said = value["modules_without_names"].to_string().contains("libguilty.so");
    assert!(
        is_named || (is_said && function.starts_with("libguilty.so+0x")),
        "{function} {share}: {value:#}"
    );
}

#[test]
fn a_process_that_ends_meanwhile_leaves_its_faults() {
    let place = Place::new("ends");
    let running = busy(&place);
    let pid = running.pid();
    let ending = std::thread::spawn(move || {
        // Long enough for the tool to begin on a busy machine.
        std::thread::sleep(Duration::from_secs(3));
        drop(running);
    });
    let value = analysis(&["--pid", &pid]);
    ending.join().unwrap();
    let Some(value) = value else { return };
    assert_eq!(first(&value).0, "guilty");
    assert_eq!(value["agreement"]["accounts_are_late"], true);
}

#[test]
fn a_command_that_turns_into_another_program_is_followed() {
    let place = Place::new("exec");
    let program = place.compile("dgemm", DGEMM, &["-O2", "-g", "-lm"]);
    let script = format!("exec {program} 50");
    let Some(value) = analysis(&["--", "sh", "-c", &script]) else { return };
    assert_eq!(first(&value).0, "dgemm");
}

#[test]
fn what_a_command_prints_stays_out_of_the_result() {
    let output = faultless(&["faults", "--json", "--", "echo", "from the command"]);
    if was_permitted(&output) {
        json(&output);
        assert!(errors(&output).contains("from the command"));
    }
}

#[test]
fn bad_requests_are_refused_in_one_line() {
    let place = Place::new("bad");
    let wrong = place.write("wrong", "{\"format\":\"faultless-faults-recording/9\"}");
    for (words, status, says) in [
        (vec!["--pid", "0"], 2, "above 0"),
        (vec!["--pid", "2147483647"], 1, "no process"),
        (vec!["--", "no-such-command"], 127, "no such command"),
        (vec!["--record", "/no/such/place", "--", "true"], 1, "cannot write"),
        (vec!["--html", "/tmp/same", "--pprof", "/tmp/./same", "--", "true"], 2, "named twice"),
        (vec![&wrong], 1, "newer version of faultless"),
        (vec![&wrong, "--json"], 1, "newer version of faultless"),
        (vec!["--diff", "/etc/passwd", "/etc/passwd"], 1, "no recording"),
    ] {
        let words = [&["faults"], words.as_slice()].concat();
        assert_refused(&mut tool::faultless(&words), status, says);
    }
    assert_misused(&mut tool::faultless(&["faults", "--every", "0", "--", "true"]), "--every");
}

#[test]
fn a_32_bit_program_is_refused() {
    let place = Place::new("narrow");
    // The headers alone decide: an ELF file of class 32 for the i386.
    let mut head = vec![0_u8; 256];
    head[..7].copy_from_slice(b"\x7fELF\x01\x01\x01");
    head[16..20].copy_from_slice(&[2, 0, 3, 0]);
    let path = place.write("narrow", head);
    let mut mode = fs::metadata(&path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(&path, mode).unwrap();
    assert_refused(&mut tool::faultless(&["faults", "--", &path]), 126, "32-bit");
}
