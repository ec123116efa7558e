//! `faultless churn --malloc` through the real program, on C programs whose calls are known.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use place::Place;
use running::Running;
use serde_json::Value;
use tool::{assert_misused, assert_refused, errors, json, text};

const HEAD: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define SEEN __attribute__((noinline))
"#;

impl Place {
    /// The program of this code behind [`HEAD`].
    fn program(&self, name: &str, options: &[&str], body: &str) -> String {
        let options = [&["-O1", "-g", "-w", "-fno-builtin", "-pthread"], options].concat();
        self.compile(name, &format!("{HEAD}{body}"), &options)
    }

    fn churn(&self, words: &[&str]) -> Command {
        let mut command = tool::faultless(&["churn"]);
        command.args(words).env("TMPDIR", self.0.join("tmp"));
        command
    }

    fn report(&self, words: &[&str]) -> Value {
        let output = self.churn(&[&["--malloc", "--json"], words].concat()).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        let left = fs::read_dir(self.0.join("tmp")).unwrap().count();
        assert_eq!(left, 0, "nothing is left behind");
        let value = json(&output);
        assert_eq!(value["format"], "faultless-churn-malloc/1");
        value
    }
}

fn with<'report>(list: &'report Value, key: &str, value: impl Into<Value>) -> &'report Value {
    let value = value.into();
    list.as_array().unwrap().iter().find(|entry| entry[key] == value).unwrap_or(&Value::Null)
}

/// Calls of a function with sizes from `bytes` to twice that.
fn calls(report: &Value, function: &str, bytes: u64) -> u64 {
    let function = with(&report["functions"], "function", function);
    if function.is_null() {
        return 0;
    }
    with(&function["sizes"], "from_bytes", bytes)["calls"].as_u64().unwrap_or(0)
}

#[track_caller]
fn number(value: &Value) -> f64 {
    let Some(number) = value.as_f64() else { panic!("no number: {value}") };
    number
}

const KIB: u64 = 1 << 10;

#[test]
fn calls_sizes_and_the_threads_that_free_are_exact_where_they_are_few() {
    let place = Place::with_temporary("exact");
    let program = place.program(
        "exact",
        &[],
        "enum { N = 60 };
        static void *blocks[N];
        SEEN void *make(size_t bytes) { return malloc(bytes); }
        static void *give_back(void *unused) {
            pthread_setname_np(pthread_self(), \"freer\");
            for (int i = 0; i < N; i++) free(blocks[i]);
            return unused;
        }
        int main(void) {
            for (int i = 0; i < N; i++) blocks[i] = make(3000);
            pthread_t thread;
            pthread_create(&thread, 0, give_back, 0);
            pthread_join(thread, 0);
            for (int i = 0; i < 40; i++) free(malloc(6000));
            for (int i = 0; i < 30; i++) blocks[i] = calloc(10, 1200);
            for (int i = 0; i < 20; i++) blocks[i] = realloc(blocks[i], 24000);
            void *aligned;
            if (posix_memalign(&aligned, 64, 48000)) return 1;
            size_t much = (size_t)1 << 40;
            if (malloc(-much) || calloc(much, much) || reallocarray(blocks[0], much, much)) return 1;
            return 0;
        }",
    );
    let report = place.report(&["--", &program]);
    assert_eq!(calls(&report, "malloc", 2 * KIB), 60);
    assert!(calls(&report, "malloc", 4 * KIB) >= 40, "stdio may ask for a buffer of that size, too");
    assert_eq!(calls(&report, "calloc", 8 * KIB), 30);
    assert_eq!(calls(&report, "realloc", 16 * KIB), 20);
    assert_eq!(calls(&report, "aligned_alloc", 32 * KIB), 1);
    assert_eq!((report["failed"].as_u64(), report["processes"].as_u64()), (Some(3), Some(1)));
    assert!(report["frees"].as_u64().unwrap() >= 100);
    let sizes = |bytes: u64| with(&report["sizes"], "from_bytes", bytes);
    let handed_over = &sizes(2 * KIB)["freed_by_another_thread"];
    assert!((number(&handed_over["blocks"]) - 60.0).abs() < 0.01, "{handed_over}");
    assert!((number(&handed_over["bytes"]) - 180_000.0).abs() < 1.0);
    assert!((number(&sizes(16 * KIB)["live"]["bytes"]) - 480_000.0).abs() < 1.0);
    // Ten were left as calloc made them.
    assert!((number(&sizes(8 * KIB)["live"]["blocks"]) - 10.0).abs() < 0.01);
    let make = with(&report["callers"], "function", "make");
    assert!((number(&make["allocated"]["blocks"]) - 60.0).abs() < 0.01, "{}", report["callers"]);
    assert_eq!(make["called_by"], "main");
    let (freer, from) = (&report["handovers"][0]["to"], &report["handovers"][0]["from"]);
    assert_eq!(with(&report["threads"], "tid", freer.clone())["name"], "freer");
    assert!(
        (number(&with(&report["threads"], "tid", from.clone())["freed_of_others"]["blocks"])).abs() < 0.01
    );
}

#[test]
fn limits_of_file_sizes_end_no_program() {
    let place = Place::with_temporary("fsize");
    let program = place.program(
        "fsize",
        &[],
        "#include <sys/resource.h>
        SEEN void *make(size_t bytes) { return malloc(bytes); }
        int main(void) {
            for (int i = 0; i < 20; i++) *(char volatile *)make(3000) = 1;
            struct rlimit none = {0, 0};
            return setrlimit(RLIMIT_FSIZE, &none) ? 1 : 7;
        }",
    );
    let seen = |limit: &str| {
        let script = format!("{limit}{program}; echo ended with $?");
        let output = place.churn(&["--malloc", "--", "sh", "-c", &script]).output().unwrap();
        let text = text(&output) + &errors(&output);
        assert!(text.contains("ended with 7"), "{text}");
        text
    };
    let text = seen("");
    assert!(text.contains("make"), "its code is known to the end: {text}");
    for limit in ["ulimit -f", "ulimit -v"] {
        let text = seen(&format!("{limit} 1000000; "));
        assert!(text.contains("calls of programs that found no room for their records: 1 ("), "{text}");
        assert!(text.contains("ulimit -f or -v"), "{text}");
    }
}

#[test]
fn a_storm_of_calls_is_counted_exactly_and_estimated_well_from_a_part() {
    let place = Place::with_temporary("storm");
    let program = place.program(
        "storm",
        &[],
        "int main(void) {
            void *kept[1000] = {0};
            unsigned seed = 1;
            for (int i = 0; i < 3000000; i++) {
                seed = seed * 1664525 + 1013904223;
                void **place = &kept[(seed >> 8) % 1000];
                free(*place);
                *place = malloc(600);
            }
            return 0;
        }",
    );
    let report = place.report(&["--", &program]);
    let others = report["functions"][0]["calls"].as_u64().unwrap() - 3_000_000;
    assert_eq!(calls(&report, "malloc", 512), 3_000_000, "{others} others");
    let described = report["described"].as_u64().unwrap();
    assert!((50..2_000_000).contains(&described), "{described}");
    let sizes = with(&report["sizes"], "from_bytes", 512);
    let total = number(&sizes["freed"]["blocks"]) + number(&sizes["live"]["blocks"]);
    assert!((total - 3e6).abs() < 1.0, "weights add up to the exact number: {total}");
    // 1,000 of 3,000,000 live at the end; few of them are described, so little more is certain than that most were freed.
    assert!(number(&sizes["live"]["blocks"]) < 1_000_000.0, "{}", sizes["live"]);
}

#[test]
fn children_of_fork_and_programs_after_exec_have_counts_of_their_own() {
    let place = Place::with_temporary("fork");
    let program = place.program(
        "family",
        &[],
        "static void *work(void *number) { for (int i = 0; i < 25; i++) free(malloc(100000)); return number; }
        int main(int count, char **words) {
            if (count > 1) { work(0); return 0; }
            work(0);
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, work, 0);
            if (fork() == 0) { work(0); execl(words[0], words[0], \"again\", (char *)0); }
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            int status;
            wait(&status);
            return status != 0;
        }",
    );
    let report = place.report(&["--", &program]);
    // The first program, the child's copy of it, and what that becomes.
    assert_eq!((&report["processes"], &report["execs"]), (&2.into(), &1.into()));
    assert_eq!(calls(&report, "malloc", 64 * KIB), 25 * (5 + 1 + 1));
}

#[test]
fn a_sudden_end_and_many_short_threads_lose_no_counts() {
    let place = Place::with_temporary("ends");
    let program = place.program(
        "ends",
        &[],
        "static void *work(void *unused) { free(malloc(100000)); return unused; }
        int main(void) {
            for (int i = 0; i < 300; i++) {
                pthread_t thread;
                if (pthread_create(&thread, 0, work, 0)) return 1;
                pthread_join(thread, 0);
            }
            kill(getpid(), 9);
        }",
    );
    let report = place.report(&["--", &program]);
    assert_eq!(calls(&report, "malloc", 64 * KIB), 300);
}

#[test]
fn threads_that_begin_at_the_same_moment_are_counted_exactly() {
    let place = Place::with_temporary("together");
    let program = place.program(
        "together",
        &[],
        "enum { THREADS = 16, CHILDREN = 24 };
        static pthread_barrier_t together;
        static void *work(void *unused) {
            pthread_barrier_wait(&together);
            for (int i = 0; i < 5000; i++) free(malloc(3000));
            return unused;
        }
        int main(void) {
            /* The rings of each child are made anew. */
            for (int child = 0; child < CHILDREN; child++) {
                if (fork() == 0) {
                    pthread_t threads[THREADS];
                    pthread_barrier_init(&together, 0, THREADS);
                    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, 0);
                    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
                    _exit(0);
                }
                wait(0);
            }
            return 0;
        }",
    );
    let report = place.report(&["--", &program]);
    assert_eq!(calls(&report, "malloc", 2 * KIB), 24 * 16 * 5_000);
}

/// What `--malloc` on a command prints to both outputs, with its temporary files on a disk of 4 MiB; none where none can be mounted here.
fn on_a_small_disk(place: &Place, command: &str) -> Option<String> {
    let mounts = "mount -t tmpfs -o size=4m none \"$TMPDIR\" && mount -t tmpfs -o size=1m none /dev/shm";
    let behind = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare.args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &format!("{mounts} && exec \"$@\""),
            "sh",
        ]);
        unshare.args(words).env("TMPDIR", place.0.join("tmp")).env_remove("LD_PRELOAD");
        unshare.output().unwrap()
    };
    let tried = behind(&["true"]);
    if !tried.status.success() {
        faultless_skipped::skipped(errors(&tried));
        return None;
    }
    let output = behind(&[env!("CARGO_BIN_EXE_faultless"), "churn", "--malloc", "--", "sh", "-c", command]);
    Some(text(&output) + &errors(&output))
}

#[test]
fn a_disk_that_runs_full_ends_no_program() {
    let place = Place::with_temporary("full");
    let program = place.program(
        "full",
        &[],
        "static pthread_barrier_t all_at_once;
        static void *work(void *unused) {
            for (int i = 0; i < 1000; i++) free(malloc(3000));
            pthread_barrier_wait(&all_at_once);
            return unused;
        }
        int main(void) {
            pthread_t threads[8];
            pthread_barrier_init(&all_at_once, 0, 8);
            for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
            return 7;
        }",
    );
    let Some(text) = on_a_small_disk(&place, &format!("{program}; echo ended with $?")) else { return };
    assert!(text.contains("ended with 7"), "{text}");
    assert!(text.contains("counted alone: no room for their records (set TMPDIR"), "{text}");
}

#[test]
fn threads_that_find_no_room_are_counted_once_each() {
    let place = Place::with_temporary("refused-rings");
    let program = place.program(
        "crowd",
        &[],
        "#include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        static void *work(void *unused) { for (int i = 0; i < 1000; i++) free(malloc(3000)); return unused; }
        int main(void) {
            /* Room for files is asked for by fallocate. */
            struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = {4, filter};
            for (int i = 0; i < 20; i++) free(malloc(3000));
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 1;
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
            pthread_t threads[5];
            for (int i = 0; i < 5; i++) pthread_create(&threads[i], 0, work, 0);
            for (int i = 0; i < 5; i++) pthread_join(threads[i], 0);
            return 0;
        }",
    );
    let report = place.report(&["--", &program]);
    assert_eq!(calls(&report, "malloc", 2 * KIB), 20, "those of the first thread");
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("calls of 5 threads: no room"), "{remarks}");
}

#[test]
fn errno_early_calls_and_odd_arguments_are_as_without_the_recorder() {
    let place = Place::with_temporary("manners");
    let program = place.program(
        "manners",
        &["-ldl"],
        "__attribute__((constructor)) static void early(void) { free(malloc(70000)); }
        int main(void) {
            errno = 7;
            for (int i = 0; i < 5000; i++) free(malloc(100));
            if (errno != 7) return 1;
            if (malloc((size_t)-1) || errno != ENOMEM) return 2;
            if (calloc((size_t)-1, 2) || reallocarray(0, (size_t)-1, 2)) return 3;
            char *zero = calloc(1, 50000);
            for (int i = 0; i < 50000; i++) if (zero[i]) return 4;
            char *kept = strdup(\"kept\");
            kept = realloc(kept, 100000);
            if (strcmp(kept, \"kept\")) return 5;
            if ((size_t)aligned_alloc(4096, 8192) % 4096 || (size_t)memalign(64, 100) % 64) return 6;
            free(0);
            free(realloc(0, 10));
            return 0;
        }",
    );
    let saved = place.file("saved");
    let output = place.churn(&["--malloc", "--record", &saved, "--", &program]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let status = Command::new(&program).status().unwrap();
    assert!(status.success(), "without the recorder it ends with {status}");
    // The command's own status is not ours, so it tells by the calls that come last.
    let report = json(&place.churn(&["--json", &saved]).output().unwrap());
    assert!(calls(&report, "aligned_alloc", 4 * KIB * 2) == 1, "it came to its end: {report}");
    assert_eq!(calls(&report, "malloc", 64 * KIB), 1, "calls of constructors are counted");
    let text = text(&place.churn(&[&saved]).output().unwrap());
    assert!(text.contains("calls of malloc and its family"), "{text}");
}

#[test]
fn calls_of_libraries_opened_with_deepbind_are_counted() {
    let place = Place::with_temporary("deepbind");
    let plugin = place.program(
        "plugin.so",
        &["-shared", "-fPIC"],
        "void *take(size_t bytes) { return malloc(bytes); }
        void give_back(void *block) { free(block); }
        void *more(void *block) { return realloc(block, 150000); }",
    );
    // The plugin finds libc's functions before the recorder's; the program frees the plugin's blocks and the other way round.
    let program = place.program(
        "opener",
        &["-ldl"],
        "int main(int count, char **words) {
            void *library = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
            if (!library) return puts(dlerror()), 1;
            void *(*take)(size_t) = dlsym(library, \"take\");
            void (*give_back)(void *) = dlsym(library, \"give_back\");
            void *(*more)(void *) = dlsym(library, \"more\");
            for (int i = 0; i < 50; i++) free(take(70000));
            for (int i = 0; i < 40; i++) give_back(malloc(300000));
            for (int i = 0; i < 30; i++) give_back(more(take(70000)));
            return 0;
        }",
    );
    let report = place.report(&["--", &program, &plugin]);
    assert_eq!(calls(&report, "malloc", 64 * KIB), 80);
    assert_eq!(calls(&report, "malloc", 256 * KIB), 40);
    assert_eq!(calls(&report, "realloc", 128 * KIB), 30);
    for bytes in [64 * KIB, 128 * KIB, 256 * KIB] {
        let live = &with(&report["sizes"], "from_bytes", bytes)["live"]["blocks"];
        assert!(number(live) < 0.01, "of {bytes} bytes and more {live} are left");
    }
}

#[test]
fn a_command_is_ended_when_its_time_is_over() {
    let place = Place::with_temporary("limit");
    let program =
        place.program("endless", &[], "int main(void) { for (;;) { free(malloc(100)); usleep(100); } }");
    let start = Instant::now();
    let report = place.report(&["--for", "300ms", "--", &program]);
    assert!(start.elapsed() < Duration::from_secs(60));
    assert!(calls(&report, "malloc", 64) > 10);
    assert!((0.3..20.0).contains(&number(&report["observed_seconds"])));
}

#[test]
fn a_running_process_is_seen_by_probes_or_the_refusal_is_told() {
    let place = Place::with_temporary("probes");
    let program = place.program(
        "steady",
        &[],
        "SEEN void *make(size_t bytes) { return malloc(bytes); }
        static void *volatile handed;
        static void *give_back(void *unused) { for (;;) { free(handed); handed = 0; usleep(1000); } }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, give_back, 0);
            puts(\"ready\");
            fflush(stdout);
            for (;;) { free(make(3000)); if (!handed) handed = malloc(700); usleep(2000); }
        }",
    );
    let mut running = Running::ready(&mut Command::new(program));
    let is_seen = |report: &Value| {
        let handed_over = &with(&report["sizes"], "from_bytes", 512)["freed_by_another_thread"]["blocks"];
        calls(report, "malloc", 2 * KIB) > 3 && handed_over.as_f64() > Some(0.0)
    };
    let mut report = Value::Null;
    // Where others keep the CPUs busy it makes few calls.
    for time in ["500ms", "4s", "16s"] {
        let output =
            place.churn(&["--malloc", "--json", "--for", time, "--pid", &running.pid()]).output().unwrap();
        let Some(seen) = tool::probed(&output) else { return };
        report = seen;
        if is_seen(&report) {
            break;
        }
    }
    assert_eq!(report["mechanism"], "uprobes");
    assert!(is_seen(&report), "{report}");
    let make = with(&report["callers"], "function", "make");
    assert!(
        number(&make["allocated"]["blocks"]) > 0.0 || report["described"].as_u64() < Some(100),
        "{report}"
    );
    assert!(running.0.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn programs_that_a_preload_does_not_reach_are_refused() {
    let place = Place::with_temporary("refused");
    let program = place.program("static", &["-static"], "int main(void) { return 0; }");
    assert_refused(&mut place.churn(&["--malloc", "--", &program]), 126, "statically; link it dynamically\n");
    assert_misused(&mut place.churn(&["--malloc", "--by", "ptrace", "--", "true"]), "--by");
}
