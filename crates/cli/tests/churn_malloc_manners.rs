//! What programs may do under the recorder of `faultless churn --malloc`, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use place::Place;
use running::{Running, state, wait_until};
use serde_json::Value;
use tool::{assert_refused, errors, json, malloc_of, probed};

const HEAD: &str = "
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { CANNOT_BE_TRIED = 77 };
";

/// What is said of a program of this code, which ends by itself; none where it cannot try here what it is about.
fn report(name: &str, body: &str) -> Option<Value> {
    let place = Place::new(name);
    let options = ["-O1", "-w", "-fno-builtin", "-pthread"];
    let program = place.compile(name, &format!("{HEAD}{body}"), &options);
    let output = tool::faultless(&["churn", "--malloc", "--json", "--", &program]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let report = json(&output);
    if report["exit_status"] == 77 {
        faultless_skipped::skipped(format_args!("{name}: not here"));
        return None;
    }
    assert_eq!(report["exit_status"], 0, "{report}");
    Some(report)
}

/// Calls of malloc for blocks from `bytes` to twice that.
fn calls(report: &Value, bytes: u64) -> u64 {
    let functions = report["functions"].as_array().unwrap();
    let malloc = functions.iter().find(|entry| entry["function"] == "malloc").unwrap();
    let sizes = malloc["sizes"].as_array().unwrap();
    sizes
        .iter()
        .find(|entry| entry["from_bytes"] == bytes)
        .map_or(0, |entry| entry["calls"].as_u64().unwrap())
}

#[test]
fn children_that_are_forked_while_a_library_is_opened_can_open_one() {
    // Of one that is there already the loader takes no lock that a child would find locked.
    report(
        "opening",
        "static void *open_again(void *unused) {
            for (;;) dlopen(\"libc.so.6\", RTLD_NOW | RTLD_NOLOAD);
        }
        int main(void) {
            pthread_t thread;
            if (!dlopen(\"libc.so.6\", RTLD_NOW | RTLD_NOLOAD)) return 1;
            for (int i = 0; i < 4; i++) pthread_create(&thread, 0, open_again, 0);
            for (int i = 0; i < 150; i++) {
                if (fork() == 0) {
                    alarm(20);
                    _exit(!dlopen(\"libc.so.6\", RTLD_NOW | RTLD_NOLOAD));
                }
                int status;
                if (wait(&status) < 0 || status != 0) _exit(2);
            }
            _exit(0);
        }",
    );
}

#[test]
fn a_program_that_locks_its_memory_has_no_more_of_it_than_it_uses() {
    report(
        "locks",
        "static long resident_pages(void) {
            long all, resident = -1;
            FILE *file = fopen(\"/proc/self/statm\", \"r\");
            if (file) fscanf(file, \"%ld %ld\", &all, &resident);
            return resident;
        }
        static void *work(void *unused) { for (int i = 0; i < 100; i++) free(malloc(3000)); return unused; }
        int main(void) {
            pthread_t thread;
            free(malloc(3000));
            if (mlockall(MCL_CURRENT | MCL_FUTURE)) return CANNOT_BE_TRIED;
            if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0)) return 1;
            long pages = resident_pages();
            return pages < 0 || pages > (100 << 20) / sysconf(_SC_PAGESIZE);
        }",
    )
    .inspect(|report| assert_eq!(calls(report, 2048), 101, "{report}"));
}

#[test]
fn a_free_by_a_signal_handler_spoils_no_description_and_is_not_lost() {
    // The handler runs in the middle of writing: the records are behind two pages of a ring, which is behind a page.
    let Some(report) = report(
        "handler",
        "enum { PAGE = 4096, RECORDS = 3 * PAGE, RECORD_BYTES = 1 << 20 };
        static void *volatile early, *volatile late;
        static char *start;
        __attribute__((noinline)) void *make_early(void) { return malloc(3000); }
        __attribute__((noinline)) void *make_late(void) { return malloc(3000); }
        static void on_write(int number) {
            mprotect(start + RECORDS, RECORD_BYTES, PROT_READ | PROT_WRITE);
            free(early);
        }
        int main(void) {
            char line[512], buffer[4096];
            early = make_early();
            FILE *maps = fopen(\"/proc/self/maps\", \"r\");
            setvbuf(maps, buffer, _IOFBF, sizeof buffer);
            while (fgets(line, sizeof line, maps))
                if (strstr(line, \" 00000000 \") && strstr(line, \".rings\")) sscanf(line, \"%p\", &start);
            signal(SIGSEGV, on_write);
            if (!start) return 1;
            if (mprotect(start + RECORDS, RECORD_BYTES, PROT_NONE)) return CANNOT_BE_TRIED; /* pages of 64 KiB */
            late = make_late();
            return 0;
        }",
    ) else {
        return;
    };
    let callers = report["callers"].as_array().unwrap();
    let live = |name: &str| {
        let caller = callers.iter().find(|caller| caller["function"] == name);
        caller.unwrap_or_else(|| panic!("{name}: {report}"))["live"]["blocks"].as_f64().unwrap().round()
    };
    assert_eq!((live("make_early"), live("make_late")), (0.0, 1.0), "{report}");
}

#[test]
fn threads_are_counted_where_no_more_files_can_be_opened() {
    report(
        "descriptors",
        "#ifndef MADV_POPULATE_WRITE
        #define MADV_POPULATE_WRITE 23
        #endif
        static void *work(void *unused) { for (int i = 0; i < 1000; i++) free(malloc(3000)); return unused; }
        int main(void) {
            pthread_t threads[4];
            free(malloc(3000));
            /* Linux before 5.14 makes no room without a file. */
            char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (madvise(page, 4096, MADV_POPULATE_WRITE)) return CANNOT_BE_TRIED;
            while (open(\"/dev/null\", O_RDONLY) >= 0) {}
            for (int i = 0; i < 4; i++) if (pthread_create(&threads[i], 0, work, 0)) return 1;
            for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
            return 0;
        }",
    )
    .inspect(|report| assert_eq!(calls(report, 2048), 4001, "{report}"));
}

#[test]
fn children_of_a_program_that_cleaned_its_environment_are_counted() {
    let report = report(
        "cleaned",
        "int main(void) {
            free(malloc(3000));
            clearenv();
            if (fork() == 0) { for (int i = 0; i < 1000; i++) free(malloc(3000)); _exit(0); }
            int status;
            return wait(&status) < 0 || status != 0;
        }",
    );
    assert_eq!(calls(&report.unwrap(), 2048), 1001);
}

#[test]
fn a_process_whose_libraries_are_not_there_yet_is_waited_for() {
    let place = Place::new("begun");
    let body = "int main(void) { for (;;) { free(malloc(3000)); usleep(1000); } }";
    let program = place.compile("becomes", &format!("{HEAD}{body}"), &["-w", "-fno-builtin"]);
    let pipe = place.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // The loader waits for who writes there, and then says that this is no library.
    let begin = format!("read go; export LD_PRELOAD='{pipe}'; exec '{program}'");
    let shell = || {
        let mut shell = Command::new("sh");
        Running::start(shell.args(["-c", &begin]).stdin(Stdio::piped()).stderr(Stdio::null()))
    };
    let go = |running: &mut Running| {
        drop(running.0.stdin.take());
        let exe = format!("/proc/{}/exe", running.pid());
        wait_until(|| {
            std::fs::read_link(&exe).unwrap().ends_with("becomes") && state(running.pid()) == Some('S')
        });
    };
    let mut running = shell();
    go(&mut running);
    assert_refused(&mut malloc_of(&running.pid()), 1, "has only begun");

    let looking = malloc_of(&running.pid()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(300));
    drop(File::options().write(true).open(&pipe).unwrap());
    let Some(report) = probed(&looking.wait_with_output().unwrap()) else { return };
    assert!(calls(&report, 2048) > 0, "{report}");
    assert_eq!(report["subject"], format!("process {} (becomes)", running.pid()));
}
