//! `faultless map` through the real program, on C programs whose memory is known.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use place::Place;
use running::{Running, state, wait_until};
use serde_json::Value;
use tool::{assert_refused, errors};

const MIB: u64 = 1 << 20;

/// Four threads that wait, one that has ended, blocks in their arenas, two large blocks, one of them aligned, a mapping of its own.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static pthread_barrier_t all;
static void *body(void *waits) {
    for (int i = 0; i < 2000; i++) { char *block = malloc(1000); memset(block, 1, 1000); }
    pthread_barrier_wait(&all);
    if (waits) pause();
    return 0;
}
int main(void) {
    pthread_t threads[5];
    pthread_barrier_init(&all, 0, 6);
    for (int i = 0; i < 5; i++) pthread_create(&threads[i], 0, body, i ? threads : 0);
    pthread_barrier_wait(&all);
    pthread_join(threads[0], 0);
    memset(malloc(5 << 20), 1, 5 << 20);
    void *aligned;
    posix_memalign(&aligned, 65536, 3 << 20);
    memset(aligned, 1, 3 << 20);
    char *own = mmap(0, 20 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(own, 5, 20 << 20);
    char *shared = mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 5, 2 << 20);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

/// The program, with these variables in its environment.
fn start(place: &Place, variables: &[(&str, &Path)]) -> Running {
    let program = place.compile("program", PROGRAM, &["-O0", "-pthread", "-w"]);
    let running = Running::ready(Command::new(program).envs(variables.iter().copied()));
    // Its threads are on their way into their waits; once they are there nothing changes.
    let threads = format!("/proc/{}/task", running.pid());
    let all_wait = || {
        let mut threads = fs::read_dir(&threads).unwrap().map(|thread| thread.unwrap().file_name());
        threads.all(|thread| state(thread.display()) == Some('S'))
    };
    wait_until(all_wait);
    running
}

fn smaps(running: &Running) -> Vec<u8> {
    fs::read(format!("/proc/{}/smaps", running.pid())).unwrap()
}

fn faultless(arguments: &[&str]) -> Command {
    tool::faultless(&[&["map"], arguments].concat())
}

fn text(arguments: &[&str]) -> String {
    let output = faultless(arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    tool::text(&output)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn message(arguments: &[&str], status: i32) -> String {
    assert_refused(&mut faultless(arguments), status, "")
}

fn kind<'value>(map: &'value Value, key: &str) -> &'value Value {
    let kinds = map["kinds"].as_array().unwrap();
    kinds.iter().find(|kind| kind["kind"] == key).unwrap_or_else(|| panic!("no {key}: {map:#}"))
}

fn rss(map: &Value, key: &str) -> u64 {
    kind(map, key)["usage"]["rss_bytes"].as_u64().unwrap()
}

fn may_read_memory(running: &Running) -> bool {
    let may = fs::File::open(format!("/proc/{}/mem", running.pid())).is_ok();
    if !may {
        faultless_skipped::skipped("the memory of a child may not be read here");
    }
    may
}

#[test]
fn every_kind_of_a_live_process_is_told_apart_and_sums_equal_the_kernels() {
    let place = Place::new("live");
    let running = start(&place, &[]);
    let map = json(&["--pid", &running.pid(), "--json"]);
    assert_eq!(map["format"], "faultless-map/1");
    // Shares of library pages change with other processes; everything else stands still.
    for figure in ["rss_bytes", "anonymous_bytes", "private_dirty_bytes", "shared_dirty_bytes", "swap_bytes"]
    {
        assert_eq!(map["sum"][figure], map["kernel_sum"][figure], "{figure}");
    }
    assert!((2 * MIB..3 * MIB).contains(&rss(&map, "shared_memory")));
    if !may_read_memory(&running) {
        assert!(map["remarks"].to_string().contains("not permitted to read"));
        return;
    }
    let heaps = kind(&map, "glibc_heap");
    assert!(
        heaps["count"].as_u64().unwrap() >= 4 && heaps["evidence"][0]["proof"] == "heap_info at its start"
    );
    assert_eq!(heaps["reserved_bytes"].as_u64().unwrap(), heaps["count"].as_u64().unwrap() * 64 * MIB);
    assert_eq!(kind(&map, "glibc_large_block")["count"], 2);
    assert!((8 * MIB..9 * MIB).contains(&rss(&map, "glibc_large_block")));
    assert_eq!(kind(&map, "thread_stack")["count"], 5, "four that wait, one kept for the next");
    // Nothing proves what the program's own mapping is, and no allocator gets it.
    assert!((20 * MIB..20 * MIB + 64 * 1024).contains(&rss(&map, "unknown")), "{}", rss(&map, "unknown"));
}

/// Twenty blocks with a mapping of their own and as many mappings of the program's by turns, which the kernel joins.
const BY_TURNS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 20; i++) {
        memset(malloc(1 << 20), 1, 1 << 20);
        char *own = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(own, 5, 65536);
    }
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

/// Its lowest mapping is another one at each moment.
const RESTLESS: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    puts("ready");
    fflush(stdout);
    for (uintptr_t at = 0x10000000;; at = at < 0x20000000 ? at + 65536 : 0x10000000) {
        char *low = mmap((void *)at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        usleep(100);
        munmap(low, 4096);
    }
}
"#;

#[test]
fn a_program_that_maps_memory_below_its_own_has_not_become_another() {
    let place = Place::new("restless");
    let program = place.compile("restless", RESTLESS, &["-fpie", "-pie", "-w"]);
    let running = Running::ready(&mut Command::new(program));
    for _ in 0..5 {
        assert!(text(&["--pid", &running.pid()]).starts_with("restless ("));
    }
}

#[test]
fn large_blocks_by_turns_with_the_programs_own_mappings_are_known() {
    let place = Place::new("turns");
    let running = Running::ready(&mut Command::new(place.compile("turns", BY_TURNS, &["-O0", "-w"])));
    if may_read_memory(&running) {
        let map = json(&["--pid", &running.pid(), "--json"]);
        assert_eq!(kind(&map, "glibc_large_block")["count"], 20);
        assert_eq!(rss(&map, "glibc_large_block"), 20 * (MIB + 4096));
        let unknown = rss(&map, "unknown");
        assert!((20 * 65536..21 * 65536).contains(&unknown), "{unknown}");
    }
}

#[test]
fn the_heap_of_a_program_under_faultless_is_known() {
    let place = Place::new("preloaded");
    let library = faultless_bundle::library_into(&place.0).unwrap();
    let running = start(&place, &[("LD_PRELOAD", &library)]);
    let map = json(&["--pid", &running.pid(), "--json"]);
    assert_eq!(map["sum"]["rss_bytes"], map["kernel_sum"]["rss_bytes"]);
    if may_read_memory(&running) {
        // Five threads with 2 MB each, one of which has ended, 5 MiB and 3 MiB.
        let heap = rss(&map, "allocator_faultless");
        assert!((16 * MIB..22 * MIB).contains(&heap), "{map:#}");
        let unknown = rss(&map, "unknown");
        assert!((20 * MIB..20 * MIB + 128 * 1024).contains(&unknown), "{unknown}");
    }
}

/// A memfd of 12 MiB that is open twice and mapped no more, and one of 9 MiB that is mapped.
const HOLDER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int file(size_t bytes, int stays) {
    int file = memfd_create("held", 0);
    ftruncate(file, bytes);
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memset(memory, 1, bytes);
    if (!stays) munmap(memory, bytes);
    return file;
}
int main(void) {
    alarm(60);
    dup(file(12 << 20, 0));
    file(9 << 20, 1);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn memory_that_only_descriptors_hold_is_named() {
    let place = Place::new("map-holder");
    let running = Running::ready(&mut Command::new(place.compile("holder", HOLDER, &["-w"])));
    let pid = running.pid();
    let held = &json(&["--json", "--pid", &pid])["unmapped_files"];
    assert_eq!((held["count"].as_u64(), held["bytes"].as_u64()), (Some(1), Some(12 * MIB)));
    let line = "12 MiB beside RSS in 1 file that it holds by descriptors and does not map";
    assert!(text(&["--pid", &pid]).contains(line));
    let saved = json(&["--json", &place.write("smaps.txt", smaps(&running))]);
    assert_eq!(saved["unmapped_files"], Value::Null);
}

#[test]
fn every_mapping_can_be_listed_with_its_evidence() {
    let place = Place::new("all");
    let running = start(&place, &[]);
    let map = json(&["--pid", &running.pid(), "--json", "--all"]);
    let parts = map["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["usage"]["rss_bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, map["sum"]["rss_bytes"].as_u64().unwrap());
    if may_read_memory(&running) {
        let stack = parts.iter().find(|part| part["kind"] == "thread_stack").unwrap();
        let detail = stack["evidence"]["detail"].as_str().unwrap();
        assert!(detail.contains("program") || detail.contains("kept for the next"), "{detail}");
    }
    assert!(text(&["--pid", &running.pid(), "--all"]).contains("[stack]"));
}

#[test]
fn saved_files_agree_with_the_live_process_and_admit_what_they_cannot_show() {
    let place = Place::new("saved");
    let running = start(&place, &[]);
    let smaps = place.write("smaps", smaps(&running));
    let live = json(&["--pid", &running.pid(), "--json"]);
    let saved = json(&[&smaps, "--json"]);
    assert_eq!(live["sum"]["rss_bytes"], saved["sum"]["rss_bytes"]);
    let heaps = kind(&saved, "glibc_heap");
    assert_eq!(heaps["evidence"][0]["strength"], "pattern");
    assert_eq!(rss(&saved, "glibc_heap"), rss(&live, "glibc_heap"));
    assert!(rss(&saved, "unknown") >= 28 * MIB, "large blocks and the own mapping look alike from outside");
    assert!(saved["remarks"][0].as_str().unwrap().contains("--pid"));
    if let Ok(output) = Command::new("pmap").args(["-X", &running.pid()]).output() {
        let pmap = place.write("pmap", &output.stdout);
        let map = json(&[&pmap, "--json"]);
        assert_eq!(map["sum"]["rss_bytes"], saved["sum"]["rss_bytes"]);
        assert_eq!(map["pid"].to_string(), running.pid());
        for key in ["glibc_heap", "shared_memory"] {
            assert_eq!(rss(&map, key), rss(&saved, key), "{key}");
        }
        assert!(map["sum"]["private_dirty_bytes"].is_null() && saved["sum"]["private_dirty_bytes"].is_u64());
        assert!(map["remarks"][1].as_str().unwrap().contains("shares alone"), "{}", map["remarks"]);
    } else {
        faultless_skipped::skipped("pmap is not installed (apt-get install procps)");
    }
}

#[test]
fn two_files_are_compared_whatever_their_form() {
    let place = Place::new("diff");
    let running = start(&place, &[]);
    let smaps = place.write("smaps", smaps(&running));
    let saved = place.write("json", text(&["--pid", &running.pid(), "--json"]));
    let same = text(&["--diff", &smaps, &saved]);
    assert!(same.contains("resident memory is the same"), "{same}");
    assert!(same.contains("may be the same memory, known otherwise") && same.contains("shows no contents"));
    assert!(!text(&["--diff", &smaps, &smaps]).contains("Note:"));
    let own = place.write("own", fs::read("/proc/self/smaps").unwrap());
    let map = json(&["--diff", &own, &smaps, "--json"]);
    assert_eq!(map["format"], "faultless-map-diff/1");
    assert!(map["kinds"].as_array().unwrap().iter().any(|kind| kind["kind"] == "glibc_heap"));
}

#[test]
fn standard_input_is_read() {
    let place = Place::new("stdin");
    let running = start(&place, &[]);
    let mut command = faultless(&["-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&smaps(&running)).unwrap();
    let map = tool::json(&child.wait_with_output().unwrap());
    assert_eq!(map["subject"], "standard input");
}

#[test]
fn files_cut_off_or_foreign_are_refused_in_one_line() {
    let place = Place::new("bad");
    let smaps = fs::read("/proc/self/smaps").unwrap();
    let cut = place.write("cut", &smaps[..smaps.len() / 2]);
    assert!(message(&[&cut], 1).contains("cut off"));
    let foreign = place.write("foreign", b"\x1b[2Jnothing of the kind\n");
    let line = message(&[&foreign], 1);
    assert!(line.contains("line 1 is no line of smaps") && !line.contains('\x1b'), "{line}");
    let own = place.write("own", text(&["--json", &place.write("smaps", &smaps)]));
    let line = message(&[&own], 1);
    assert!(line.contains("faultless map --diff"), "{line}");
    let newer = place.write("newer", br#"{"format":"faultless-map/9"}"#);
    assert!(message(&[&newer], 1).contains("newer version of faultless (faultless-map/9)"));
    let faults = place.write("faults", br#"{"format":"faultless-faults-recording/1"}"#);
    for words in [&[&*faults][..], &["--diff", &own, &faults]] {
        let line = message(words, 1);
        assert!(line.ends_with(&format!("show it with `faultless faults {faults}`\n")), "{line}");
    }
    let empty = place.write("empty", b"");
    assert!(message(&[&empty], 1).contains("it is empty"));
    let twice = place.write("twice", [smaps.as_slice(), &smaps].concat());
    assert!(message(&[&twice], 1).contains("one process"));
    assert!(message(&["--diff", &cut, &empty], 1).contains("cut off"));
    assert!(message(&["no-such-file"], 1).ends_with("(to run it: faultless map -- no-such-file)\n"));
    assert!(message(&["--diff", "no-such-file", &cut], 1).ends_with("no such file: no-such-file\n"));
}

#[test]
fn sums_alone_and_other_encodings_are_said_to_be_what_they_are() {
    let place = Place::new("encodings");
    let smaps = fs::read("/proc/self/smaps").unwrap();
    let marked = place.write("marked", [b"\xef\xbb\xbf", smaps.as_slice()].concat());
    assert_eq!(json(&[&marked, "--json"])["sum"], json(&[&place.write("smaps", &smaps), "--json"])["sum"]);
    let saved = place.write("json", [b"\xef\xbb\xbf", text(&["--json", &marked]).as_bytes()].concat());
    assert!(text(&["--diff", &saved, &marked]).contains("resident memory is the same"));
    for mark in [&b"\xff\xfe"[..], b""] {
        let wide: Vec<u8> = smaps.iter().flat_map(|byte| [*byte, 0]).collect();
        let line = message(&[&place.write("wide", [mark, &wide].concat())], 1);
        assert!(line.contains("UTF-16") && line.contains("iconv"), "{line}");
    }
    let rollup = place.write("rollup", fs::read("/proc/self/smaps_rollup").unwrap());
    let line = message(&[&rollup], 1);
    assert!(line.contains("smaps_rollup, the sums alone") && !line.contains("cut off"), "{line}");
}

#[test]
fn processes_that_cannot_be_seen_are_named_in_one_line() {
    assert!(message(&["--pid", "0"], 2).contains("above 0"));
    let nothing = message(&["--all"], 2);
    assert!(nothing.contains("give --pid, a command after --, or a saved file"), "{nothing}");
    assert!(message(&["--pid", "2147483647"], 1).contains("no process 2147483647"));
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        assert!(message(&["--pid", "2"], 1).contains("kernel thread"));
    }
    let ended = Running::start(&mut Command::new("true"));
    wait_until(|| state(ended.pid()) == Some('Z'));
    assert!(message(&["--pid", &ended.pid()], 1).contains("has ended"));
}

#[test]
fn a_command_is_looked_at_when_it_ends_or_when_asked_to() {
    let place = Place::new("command");
    let body =
        "i=0; while [ $i -lt 1000 ]; do x=$x-----------------------------------; i=$((i+1)); done; echo said";
    let script = place.write("script", body);
    let output = faultless(&["--json", "--", "sh", &script]).output().unwrap();
    let map = tool::json(&output);
    assert!(rss(&map, "main_heap") > 30 << 10);
    assert_eq!(map["sum"]["rss_bytes"], map["kernel_sum"]["rss_bytes"], "it stands still at its end");
    assert_eq!(output.stderr, b"said\n", "what it prints does not mix with JSON");
    let shown = text(&["--after", "50ms", "--", "sleep", "0.3"]);
    assert!(shown.starts_with("sleep (") && !shown.contains("ended before"), "{shown}");
    let shown = text(&["--after", "10s", "--", "sh", "-c", "exit 3"]);
    assert!(shown.contains("ended before the time"), "{shown}");
}

#[test]
fn a_command_that_had_far_more_before_its_end_is_said_to() {
    let place = Place::new("peak");
    let source = "#include <stdlib.h>\n#include <string.h>
        int main(void) { char *block = malloc(64 << 20); memset(block, 1, 64 << 20); free(block); return 0; }";
    let program = place.compile("peak", source, &["-fno-builtin"]);
    let shown = text(&["--", &program]);
    assert!(shown.contains("at its peak it had 6") && shown.contains("(--after DURATION looks"), "{shown}");
    assert!(!text(&["--", "true"]).contains("at its peak"));
}

#[test]
fn another_thread_that_goes_on_or_becomes_another_program_is_not_missed() {
    let place = Place::new("other-thread");
    let program = |name: &str, last: &str, main: &str| {
        let source = format!(
            "#include <pthread.h>\n#include <stdlib.h>\n#include <unistd.h>
            static void *last(void *none) {{ usleep(50000); {last}; return 0; }}
            int main(void) {{ pthread_t thread; pthread_create(&thread, 0, last, 0); {main}; return 1; }}"
        );
        place.compile(name, &source, &["-pthread"])
    };
    let becomes =
        program("becomes", "execl(\"/bin/sleep\", \"sleep\", \"0.1\", NULL)", "pthread_join(thread, 0)");
    let shown = text(&["--", &becomes]);
    assert!(shown.starts_with("sleep ("), "{shown}");
    let goes_on = program("goes_on", "sleep(2); exit(0)", "pthread_exit(0)");
    let note = "first thread ended before others";
    let shown = text(&["--", &goes_on]);
    assert!(shown.starts_with("goes_on (") && shown.contains(note), "{shown}");
    let shown = text(&["--after", "100ms", "--", &goes_on]);
    assert!(shown.starts_with("goes_on (") && !shown.contains(note), "{shown}");
}

#[test]
fn what_jcmd_printed_of_another_process_or_was_cut_off_is_refused() {
    let place = Place::new("nmt");
    let running = Running::start(Command::new("sleep").arg("600"));
    let category = "- Java Heap (reserved=4096KB, committed=2048KB)\n";
    let shown = |pid: &str, rest: &str| {
        let total = "Native Memory Tracking:\n\nTotal: reserved=4096KB, committed=2048KB\n";
        let file = place.write("nmt", format!("{pid}:\n\n{total}\n{rest}"));
        faultless(&["--pid", &running.pid(), &format!("--nmt={file}")])
    };
    let whole = shown(&running.pid(), category).output().unwrap();
    assert!(whole.status.success(), "{}", errors(&whole));
    let says = format!("it is of process 2147483647, not of process {}", running.pid());
    assert_refused(&mut shown("2147483647", category), 1, &says);
    let half = category.replace("4096", "1024");
    assert_refused(&mut shown(&running.pid(), &half), 1, "it was cut off");
}

#[test]
fn what_java_says_it_uses_is_set_against_what_is_resident() {
    let Some(java) = faultless_probe::java::installed().pop() else {
        faultless_skipped::skipped("no JDK is installed (apt-get install openjdk-17-jdk-headless)");
        return;
    };
    let place = Place::new("java");
    let source = "public class Wait { public static void main(String[] a) throws Exception {\
                  byte[][] kept = new byte[64][]; for (int i = 0; i < 64; i++) kept[i] = new byte[1 << 20];\
                  System.out.println(\"ready\"); Thread.sleep(600_000); System.out.println(kept.length); } }";
    let file = place.write("Wait.java", source);
    let built = Command::new(java.home.join("bin/javac")).arg("-d").arg(&place.0).arg(file).status();
    assert!(built.unwrap().success());
    let start = |tracking: &str| {
        let mut command = Command::new(java.home.join("bin/java"));
        command.args([&format!("-XX:NativeMemoryTracking={tracking}"), "-Xmx256m", "-cp"]);
        Running::ready(command.arg(&place.0).arg("Wait"))
    };
    let running = start("detail");
    let map = json(&["--pid", &running.pid(), "--nmt", "--json"]);
    let tracked = &map["native_memory_tracking"];
    assert_eq!(
        tracked["resident_bytes"], map["sum"]["rss_bytes"],
        "every line together is the resident size"
    );
    assert_eq!(tracked["has_ranges"], true);
    let heap = tracked["categories"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["category"] == "Java Heap")
        .unwrap();
    assert!(heap["resident_bytes"].as_u64().unwrap() >= 64 * MIB, "{heap}");
    if may_read_memory(&running) {
        assert!(rss(&map, "java_heap") >= 64 * MIB && rss(&map, "java_thread_stack") > 0);
        assert!(map["unknown_share"].as_f64().unwrap() < 0.02, "{map:#}");
    }
    let running = start("off");
    assert!(message(&["--pid", &running.pid(), "--nmt"], 1).contains("-XX:NativeMemoryTracking=detail"));
    let file = place.write("nmt", b"nothing of the kind\n");
    let line = message(&["--pid", &running.pid(), &format!("--nmt={file}")], 1);
    assert!(line.contains("expected what jcmd"), "{line}");
}
