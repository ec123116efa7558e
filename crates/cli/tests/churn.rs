//! `faultless churn` through the real program, on C programs whose calls are known.
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
use tool::{assert_misused, assert_refused, errors, json, text};

/// Heads every program: calls of its own, past the allocator, so that their number is known.
const HEAD: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void *map(size_t bytes) { return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
static void nap(long ms) { struct timespec time = { ms / 1000, ms % 1000 * 1000000 }; nanosleep(&time, 0); }
"#;

impl Place {
    /// The program of this code behind [`HEAD`].
    fn program(&self, name: &str, body: &str) -> String {
        self.compile(name, &format!("{HEAD}{body}"), &["-O1", "-g", "-pthread", "-fno-builtin"])
    }
}

fn churn(words: &[&str]) -> Command {
    let mut command = tool::faultless(&["churn"]);
    command.args(words);
    for name in ["MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"] {
        command.env_remove(name);
    }
    command
}

/// The report; none where this system lets nobody trace, which the tool then says.
fn report(words: &[&str]) -> Option<Value> {
    let output = churn(&[&["--json"], words].concat()).output().unwrap();
    if !output.status.success() {
        let text = errors(&output);
        assert!(text.contains("lets us follow no calls"), "{text}");
        faultless_skipped::skipped(text);
        return None;
    }
    let value = json(&output);
    assert_eq!(value["format"], "faultless-churn/1");
    assert_eq!(value["lost_calls"], 0);
    Some(value)
}

fn operation<'report>(report: &'report Value, name: &str) -> &'report Value {
    let operations = report["operations"].as_array().unwrap();
    operations.iter().find(|operation| operation["operation"] == name).unwrap_or(&Value::Null)
}

/// Calls of this kind with sizes from `bytes` to twice that.
fn calls_of_size(report: &Value, name: &str, bytes: u64) -> u64 {
    let sizes = operation(report, name)["sizes"].as_array().cloned().unwrap_or_default();
    sizes.iter().filter(|size| size["from_bytes"] == bytes).map(|size| size["calls"].as_u64().unwrap()).sum()
}

const MIB: u64 = 1 << 20;

#[test]
fn what_a_command_leaves_running_is_followed_to_its_end_by_each_mechanism() {
    for mechanism in ["tracepoints", "seccomp", "ptrace"] {
        let words = ["--by", mechanism, "sh", "-c", "(sleep 0.4; sh -c :) & exit 0"];
        let Some(report) = report(&words) else { continue };
        assert_eq!(report["execs"], 2, "{mechanism}: {report}");
        assert!(report["observed_seconds"].as_f64().unwrap() >= 0.4, "{mechanism}: {report}");
    }
}

#[test]
fn calls_of_threads_and_children_are_counted_exactly_by_each_mechanism() {
    let place = Place::new("exact");
    let program = place.program(
        "exact",
        "enum { EACH = 40 };
        static void *work(void *unused) {
            for (int i = 0; i < EACH; i++) munmap(map(5 << 20), 5 << 20);
            return unused;
        }
        int main(void) {
            work(0);
            pthread_t threads[3];
            for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
            if (fork() == 0) { work(0); _exit(0); }
            wait(0);
            char *kept = map(18 << 20);
            madvise(kept, 9 << 20, MADV_DONTNEED);
            mprotect(kept, 33 << 20, PROT_READ);
            kept = mremap(kept, 18 << 20, 36 << 20, MREMAP_MAYMOVE);
            puts(\"done\");
            return 7;
        }",
    );
    // Tracepoints last: where they are closed, the others have been looked at.
    for mechanism in ["seccomp", "ptrace", "tracepoints"] {
        let Some(report) = report(&["--by", mechanism, "--", &program]) else { continue };
        assert_eq!(report["mechanism"], mechanism);
        assert_eq!((&report["exit_status"], &report["signal"]), (&7.into(), &Value::Null), "{mechanism}");
        assert_eq!(calls_of_size(&report, "map_anonymous", 4 * MIB), 5 * 40, "{mechanism}");
        assert_eq!(calls_of_size(&report, "unmap", 4 * MIB), 5 * 40, "{mechanism}");
        assert_eq!(calls_of_size(&report, "map_anonymous", 16 * MIB), 1);
        assert_eq!(calls_of_size(&report, "advise_dontneed", 8 * MIB), 1);
        assert_eq!(calls_of_size(&report, "remap", 32 * MIB), 1);
        assert_eq!(operation(&report, "protect")["failed"], 1, "the kernel refuses what is not mapped");
        assert_eq!((&report["processes"], &report["threads_started"]), (&2.into(), &3.into()));
        let lifetimes = report["lifetimes"].as_array().unwrap();
        let ended = lifetimes.iter().find(|lives| lives["from_bytes"] == 4 * MIB).unwrap();
        assert_eq!(ended["mappings"], 200);
        assert!(
            report["live_at_end"]["bytes"].as_u64().unwrap() >= 36 * MIB,
            "a moved mapping is still there"
        );
        assert!(report["overhead"]["seconds_per_call"].as_f64().unwrap() > 0.0);
        let culprit = |operation: &str| {
            let callers = report["callers"].as_array().unwrap();
            let caller = callers
                .iter()
                .find(|caller| caller["operation"] == operation && caller["function"] != "main");
            caller.map(|caller| {
                (caller["function"].as_str().unwrap().to_owned(), caller["calls"].as_u64().unwrap())
            })
        };
        // The helper is compiled into its callers or not, as the compiler likes.
        let (function, calls) = culprit("unmap").unwrap();
        assert_eq!((function.as_str(), calls), ("work", 200), "{mechanism}: {}", report["callers"]);
    }
}

#[test]
fn records_of_new_mappings_show_what_is_made_and_say_what_they_leave_out() {
    let place = Place::new("records");
    let program = place.program(
        "records",
        "int main(void) {
            for (int i = 0; i < 100; i++) { munmap(map(5 << 20), 5 << 20); if (i % 10 == 0) sbrk(1 << 20); }
            for (int i = 0; i < 300; i++) map(1 << 20);
            return 0;
        }",
    );
    let Some(report) = report(&["--by", "mmap-records", "--", &program]) else { return };
    let made = operation(&report, "map_anonymous");
    assert!(made["calls"].as_u64().unwrap() >= 400, "{made}");
    // The kernel joins the mappings that are kept, and tells of the whole each time; those made again are not told from it.
    let bytes = made["bytes"].as_u64().unwrap();
    assert!((300 * MIB..310 * MIB).contains(&bytes), "{made}");
    let invented = [&report["thrash"], &report["lifetimes"]];
    assert!(invented.iter().all(|found| found.as_array().unwrap().is_empty()), "{report}");
    assert_eq!(operation(&report, "unmap"), &Value::Null);
    let grown = operation(&report, "break_grow");
    assert_eq!([&grown["calls"], &grown["bytes"]].map(Value::as_u64), [Some(10), Some(10 * MIB)], "{grown}");
    assert_eq!(operation(&report, "break_trim"), &Value::Null, "a trim is not guessed");
    assert!(report["remarks"].to_string().contains("munmap"), "{}", report["remarks"]);
}

#[test]
fn threshold_thrash_is_named_and_a_quiet_program_is_not_accused() {
    let place = Place::new("thrash");
    // The first free would raise the threshold; mallopt keeps it where it starts.
    let source = "#include <malloc.h>
        int main(int count, char **words) {
            mallopt(M_MMAP_THRESHOLD, 128 << 10);
            // What is left of the first 132 KiB of the heap is too little for the blocks, which are some bytes larger than the threshold:
            // how it is compared differs between versions of glibc.
            memset(malloc(60000), 1, 60000);
            for (int i = 0; i < 500; i++) { char *block = malloc(atoi(words[1])); block[0] = 1; free(block); }
            return 0;
        }";
    let program = place.program("thrash", source);
    let Some(report) = report(&["--", &program, "135000"]) else { return };
    let thrash = report["thrash"].as_array().unwrap();
    assert_eq!(thrash.len(), 1, "{thrash:?}");
    assert_eq!((&thrash[0]["pattern"], &thrash[0]["times"]), (&"mapping".into(), &499.into()));
    assert_eq!(thrash[0]["pages_each"], 33.0);
    assert!(
        thrash[0]["sentence"].as_str().unwrap().contains("128 KiB and more"),
        "{}",
        thrash[0]["sentence"]
    );

    let quiet = self::report(&["--", &program, "1000"]).unwrap();
    assert_eq!(quiet["thrash"].as_array().unwrap().len(), 0);
    assert!(text(&churn(&["--", &program, "1000"]).output().unwrap()).contains("No thrash"));
}

#[test]
fn a_top_that_is_trimmed_and_grown_again_is_named() {
    let place = Place::new("trim");
    let program = place.program(
        "trim",
        "int main(void) { for (int i = 0; i < 300; i++) { sbrk(1 << 20); sbrk(-(1 << 20)); } return 0; }",
    );
    let Some(report) = report(&["--", &program]) else { return };
    assert_eq!(report["thrash"][0]["pattern"], "top_trim");
    assert_eq!(
        (report["thrash"][0]["times"].as_u64(), report["thrash"][0]["pages_each"].as_f64()),
        (Some(299), Some(256.0))
    );
    assert_eq!(calls_of_size(&report, "break_trim", MIB), 300);
}

#[test]
fn each_mechanism_tells_a_trim_from_growth_whatever_is_in_the_registers_that_brk_does_not_take() {
    let place = Place::new("registers");
    let program = place.program(
        "brk",
        "#include <sys/syscall.h>
        int main(void) {
            char *end = sbrk(0);
            for (int i = 0; i < 300; i++) { syscall(SYS_brk, end + (1 << 20), 1L); syscall(SYS_brk, end, 1L); }
            return 0;
        }",
    );
    for mechanism in ["tracepoints", "seccomp", "ptrace"] {
        let Some(report) = report(&["--by", mechanism, "--", &program]) else { continue };
        assert_eq!(calls_of_size(&report, "break_trim", MIB), 300, "{mechanism}");
        assert_eq!(report["thrash"][0]["times"], 299, "{mechanism}");
    }
}

#[test]
fn exec_begins_a_new_program_and_a_sudden_end_is_an_end() {
    let place = Place::new("exec");
    let program = place.program(
        "exec",
        "static void *become(void *path) { execl(path, path, \"second\", (char *)0); return 0; }
        int main(int count, char **words) {
            map(5 << 20);
            if (count > 1) abort();
            pthread_t thread;
            // The thread that calls exec is not the first one, which the kernel then replaces.
            pthread_create(&thread, 0, become, words[0]);
            pthread_join(thread, 0);
        }",
    );
    let Some(report) = report(&["--", &program]) else { return };
    assert_eq!((&report["execs"], &report["processes"]), (&1.into(), &1.into()));
    assert_eq!((&report["exit_status"], &report["signal"]), (&Value::Null, &6.into()));
    assert_eq!(calls_of_size(&report, "map_anonymous", 4 * MIB), 2);
    assert!(report["live_at_end"]["bytes"].as_u64().unwrap() >= 10 * MIB);
}

#[test]
fn a_recording_shows_the_same_again_and_others_are_refused() {
    let place = Place::new("record");
    let (program, saved) =
        (place.program("small", "int main(void) { map(5 << 20); return 0; }"), place.file("saved"));
    let Some(report) = report(&["--record", &saved, "--", &program]) else { return };
    let again = churn(&["--json", &saved]).output().unwrap();
    assert!(again.status.success(), "{}", errors(&again));
    assert_eq!(json(&again), report);
    assert!(churn(&[&saved]).output().unwrap().stdout.starts_with(program.as_bytes()));

    assert_eq!(json(&churn(&[&saved, "--json"]).output().unwrap()), report, "options may stand behind it");
    assert_refused(&mut churn(&[&saved, &saved]), 2, "options stand before the file");
    assert_refused(&mut churn(&["--", &saved, "--json"]), 2, "options stand before the file");
    let newer = fs::read_to_string(&saved).unwrap().replacen("recording/1", "recording/9", 1);
    fs::write(&saved, newer).unwrap();
    assert_refused(&mut churn(&[&saved]), 1, "newer version of faultless");
    assert_refused(&mut churn(&["--record", "/no/such/place", "--", &program]), 1, "/no/such/place");
}

#[test]
fn a_running_process_is_followed_for_a_time_and_goes_on() {
    let place = Place::new("pid");
    let program = place.program(
        "steady",
        "static void *work(void *unused) { for (;;) { munmap(map(5 << 20), 5 << 20); nap(2); } return unused; }
        int main(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); }",
    );
    let mut running = Running::start(&mut Command::new(program));
    let pid = running.pid();
    let seen = |report: &Value| calls_of_size(report, "map_anonymous", 4 * MIB);
    let mut report = Value::Null;
    // Where others keep the CPUs busy it makes few calls.
    for time in ["500ms", "4s", "16s"] {
        let output = churn(&["--json", "--for", time, "--by", "ptrace", "--pid", &pid]).output().unwrap();
        if !output.status.success() {
            assert!(errors(&output).contains("not permitted to trace"), "{}", errors(&output));
            return faultless_skipped::skipped(errors(&output));
        }
        report = json(&output);
        if seen(&report) > 5 {
            break;
        }
    }
    assert!(seen(&report) > 5, "{report}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(running.0.try_wait().unwrap().is_none(), "it goes on");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0"), "{status}");
    // Its calls still work when nobody looks.
    assert!(churn(&["--for", "100ms", "--by", "ptrace", "--pid", &pid]).output().unwrap().status.success());
}

#[test]
fn a_command_is_ended_when_its_time_is_over() {
    let place = Place::new("limit");
    let program =
        place.program("endless", "int main(void) { for (;;) { munmap(map(5 << 20), 5 << 20); nap(1); } }");
    let start = Instant::now();
    let Some(report) = report(&["--for", "300ms", "--", &program]) else { return };
    assert!(start.elapsed() < Duration::from_secs(60));
    let seconds = report["observed_seconds"].as_f64().unwrap();
    assert!((0.3..20.0).contains(&seconds), "{seconds}");
    assert_eq!((&report["exit_status"], &report["signal"]), (&Value::Null, &Value::Null), "we ended it");
}

#[test]
fn how_a_command_ended_is_told_and_kept_in_recordings() {
    let place = Place::new("ending");
    let saved = place.file("saved");
    for instrument in [&["--malloc"][..], &["--by", "seccomp"], &["--by", "tracepoints"]] {
        for (script, status, signal, line) in [
            ("exit 3", Some(3), None, "The command ended with exit status 3."),
            ("kill -SEGV $$", None, Some(11), "The command was killed by SIGSEGV."),
            ("exit 0", Some(0), None, ""),
        ] {
            let words = [instrument, &["--record", &saved, "--", "sh", "-c", script]].concat();
            let output = churn(&words).output().unwrap();
            if !output.status.success() {
                assert!(errors(&output).contains("lets us follow no calls"), "{}", errors(&output));
                faultless_skipped::skipped(errors(&output));
                continue;
            }
            let text = text(&output);
            assert!(text.contains(line), "{instrument:?}: {text}");
            assert_eq!(text.contains("The command"), !line.is_empty(), "{instrument:?}: {text}");
            let report = json(&churn(&["--json", &saved]).output().unwrap());
            assert_eq!(report["exit_status"].as_i64(), status, "{instrument:?}: {script}");
            assert_eq!(report["signal"].as_i64(), signal, "{instrument:?}: {script}");
        }
        // As recordings were before they held any of it.
        let Ok(text) = fs::read_to_string(&saved) else { continue };
        let old = text.replacen(r#""ending":{"exited":0},"#, "", 1).replacen("started_unix_s", "unknown", 1);
        assert!(old.len() < text.len() - 10, "{text}");
        fs::write(&saved, old).unwrap();
        let output = churn(&["--json", &saved]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let report = json(&output);
        assert_eq!((&report["exit_status"], &report["signal"]), (&Value::Null, &Value::Null));
        fs::remove_file(&saved).unwrap();
    }
}

/// What it does under a limit on open files, as the shell sets it.
fn limited(limit: &str, words: &[&str]) -> Output {
    tool::after(&format!("ulimit {limit}"), &[&["churn"], words].concat()).output().unwrap()
}

#[test]
fn a_command_that_cannot_be_observed_has_not_run() {
    let place = Place::new("unobserved");
    let made = place.file("made");
    let words = ["--json", "--by", "mmap-records", "--", "touch", &made];
    if report(&words[1..]).is_none() {
        return;
    }
    // Looking needs some files more than the trial before: somewhere on the way up the one works and the other does not.
    for files in 4..4096 {
        let _ = fs::remove_file(&made);
        let output = limited(&format!("-n {files}"), &words);
        let has_run = fs::exists(&made).unwrap();
        assert_eq!(output.status.success(), has_run, "with {files} files: {}", errors(&output));
        if has_run {
            return;
        }
    }
    panic!("no number of files is enough");
}

/// Maps and unmaps a MiB two hundred times by the calls of a 32-bit program.
const NARROW: &str = "
.globl _start
_start: movl $200, %esi
1: pushl %esi
 movl $192, %eax
 xorl %ebx, %ebx
 movl $1048576, %ecx
 movl $3, %edx
 movl $0x22, %esi
 movl $-1, %edi
 xorl %ebp, %ebp
 int $0x80
 movl %eax, %ebx
 movl $1048576, %ecx
 movl $91, %eax
 int $0x80
 popl %esi
 decl %esi
 jnz 1b
 movl $1, %eax
 xorl %ebx, %ebx
 int $0x80
";

#[test]
fn a_32_bit_program_whose_calls_are_not_seen_is_not_called_quiet() {
    let place = Place::new("narrow");
    let Some(program) = place.try_assemble_32_bit("narrow", NARROW) else {
        return faultless_skipped::skipped("32-bit programs are not built or not run here");
    };
    for mechanism in ["tracepoints", "seccomp", "ptrace"] {
        let started = ["--by", mechanism, "--", &program];
        let by_shell = ["--by", mechanism, "--", "sh", "-c", "\"$0\"; exit 0", &program];
        for words in [&started[..], &by_shell] {
            let Some(report) = report(words) else { continue };
            assert_eq!(report["is_blind_to_some"], true, "{words:?}");
            assert!(report["remarks"].to_string().contains("32-bit"), "{words:?}: {}", report["remarks"]);
            let text = text(&churn(words).output().unwrap());
            assert!(text.contains("Whether it thrashes is not known"), "{words:?}: {text}");
        }
    }
}

#[test]
fn a_command_has_the_limit_on_open_files_that_the_tool_was_started_with() {
    if report(&["--by", "tracepoints", "--", "true"]).is_none() {
        return;
    }
    let output = limited("-Sn 12", &["--by", "tracepoints", "--", "sh", "-c", "ulimit -Sn"]);
    let text = text(&output);
    assert_eq!(text.lines().next(), Some("12"), "{text}{}", errors(&output));
}

#[test]
fn callers_that_there_are_too_few_files_for_are_said_to_be_missing() {
    if report(&["--by", "tracepoints", "--", "true"]).is_none() {
        return;
    }
    // Each CPU has some twenty files for calls, and later as many for chains: on the way up there is room for the one alone.
    let cpus = std::thread::available_parallelism().unwrap().get();
    for files in (8..16_384).step_by(4 * cpus) {
        let output = limited(&format!("-n {files}"), &["--json", "--by", "tracepoints", "--", "true"]);
        if output.status.success() {
            let report = json(&output);
            let remarks = report["remarks"].to_string();
            assert!(remarks.contains("callers: too many open files"), "{files} files: {remarks}");
            return;
        }
    }
    panic!("no number of files is enough");
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    let refused = |words: &[&str], status: i32, says: &str| {
        assert_refused(&mut churn(words), status, says);
    };
    refused(&["--", "/no/such/program"], 127, "no such command");
    refused(&["--", "/etc/passwd"], 126, "may not be executed");
    refused(&["--pid", "0"], 2, "above 0");
    refused(&["--pid", "2147483647"], 1, "no process");
    refused(&["--pid", "1", "--by", "seccomp"], 2, "--by ptrace");
    refused(&[], 2, "give --pid, a command after --, or a recording");
    refused(&["--json", "--for", "1s"], 2, "give --pid");
    assert_misused(&mut churn(&["--for", "soon", "--", "true"]), "expected a time");
}
