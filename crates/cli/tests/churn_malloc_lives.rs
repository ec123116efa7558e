//! What `faultless churn --malloc` says of lives and ends, through the real program, on C programs whose blocks are known.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::process::{Command, Stdio};

use place::Place;
use serde_json::Value;
use tool::errors;

const OPTIONS: [&str; 4] = ["-O1", "-g", "-fno-builtin", "-pthread"];

fn report(words: &[&str]) -> Value {
    let output = tool::faultless(&["churn", "--malloc", "--json", "--"]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    tool::json(&output)
}

fn sum(report: &Value, part: &str) -> f64 {
    let sizes = report["sizes"].as_array().unwrap().iter();
    sizes.map(|size| size[part]["blocks"].as_f64().unwrap()).sum()
}

#[test]
fn what_is_freed_while_nobody_reads_is_not_said_to_live() {
    let place = Place::new("burst");
    // The tool is the parent. It stands still while threads, which use one ring after the other, fill it with
    // allocations and then free all.
    let program = place.compile(
        "burst",
        "#include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        enum { CLASSES = 12, EACH = 10, ROUNDS = 80 };
        typedef void *some[CLASSES][EACH];
        static some early[4], late[ROUNDS];
        static void fill(some blocks) {
            for (int class = 0; class < CLASSES; class++)
                for (int i = 0; i < EACH; i++) blocks[class][i] = malloc((size_t)16 << class);
        }
        static void give_back(some blocks) {
            for (int class = 0; class < CLASSES; class++)
                for (int i = 0; i < EACH; i++) free(blocks[class][i]);
        }
        static int parent_stands(void) {
            char path[64], text[512] = {0};
            snprintf(path, sizeof path, \"/proc/%d/stat\", getppid());
            FILE *file = fopen(path, \"r\");
            if (!file) return 1;
            fread(text, 1, sizeof text - 1, file);
            fclose(file);
            char *state = strrchr(text, ')');
            return !state || state[2] == 'T' || state[2] == 't';
        }
        static void *take(void *blocks) { char volatile deep[8192]; deep[0] = 1; fill(blocks); return (void *)(deep[0] - 1L); }
        static void *end(void *unused) {
            for (int i = 0; i < 4; i++) give_back(early[i]);
            for (int i = 0; i < ROUNDS; i++) give_back(late[i]);
            return unused;
        }
        static int in_a_thread(void *(*work)(void *), void *with) {
            pthread_t thread;
            return pthread_create(&thread, 0, work, with) || pthread_join(thread, 0);
        }
        int main(void) {
            for (int i = 0; i < 4; i++) fill(early[i]);
            if (kill(getppid(), SIGSTOP)) return 1;
            while (!parent_stands()) usleep(1000);
            int refused = 0;
            for (int i = 0; i < ROUNDS; i++) refused |= in_a_thread(take, late[i]);
            refused |= in_a_thread(end, 0);
            kill(getppid(), SIGCONT);
            return refused;
        }",
        &OPTIONS,
    );
    let report = report(&[&program]);
    assert!(report["lost"].as_u64().unwrap() > 0, "its ring was full: {report}");
    let callers = report["callers"].as_array().unwrap().iter();
    let mut fill = callers.filter(|caller| caller["function"] == "fill").peekable();
    assert!(fill.peek().is_some() && fill.all(|caller| caller["live"]["blocks"] == 0.0), "{report}");
    assert!(sum(&report, "freed") > 400.0 && sum(&report, "freed_by_another_thread") > 400.0, "{report}");
}

#[test]
fn in_a_pid_namespace_what_lives_is_not_taken_for_that_of_an_ended_process() {
    let apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork"];
    let tried = Command::new(apart[0]).args(&apart[1..]).arg("/bin/true").output();
    if !tried.as_ref().is_ok_and(|output| output.status.success()) {
        return faultless_skipped::skipped(format_args!("{apart:?}: {tried:?}"));
    }
    let place = Place::new("namespace");
    // While it holds the first half, another program begins; it is seen when its end is waited for.
    let program = place.compile(
        "halves",
        "#include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *blocks[50];
        __attribute__((noinline)) void make(int from, int to) {
            for (int i = from; i < to; i++) blocks[i] = malloc(1000000);
        }
        int main(int count, char **words) {
            int status;
            if (count > 1) { for (int i = 0; i < 20; i++) { free(malloc(100)); usleep(1000); } return 0; }
            make(0, 25);
            if (fork() == 0) { execl(words[0], words[0], \"again\", (char *)0); _exit(1); }
            wait(&status);
            make(25, 50);
            for (int i = 0; i < 50; i++) free(blocks[i]);
            return status != 0;
        }",
        &OPTIONS,
    );
    let line = "\"$0\"; exit $?";
    let report = report(&[&apart[..], &["sh", "-c", line, &program]].concat());
    assert_eq!(report["exit_status"], 0);
    let peak_bytes = report["peak_live_bytes"].as_f64().unwrap();
    assert!((50e6..52e6).contains(&peak_bytes), "{peak_bytes}: {report}");
    let callers = report["callers"].as_array().unwrap();
    assert!(callers.iter().any(|caller| caller["function"] == "make"), "{report}");
}

#[test]
fn blocks_that_jemalloc_gives_by_its_own_names_are_counted_and_live() {
    let place = Place::new("mallocx");
    let library = place.compile(
        "libown.so",
        "#include <stdlib.h>
        static char pool[64 << 20];
        static void *take(size_t bytes) { static size_t used; return pool + (used += bytes + 64) - bytes; }
        void *mallocx(size_t bytes, int flags) { return take(bytes); }
        void *rallocx(void *block, size_t bytes, int flags) { return take(bytes); }
        void dallocx(void *block, int flags) {}
        void sdallocx(void *block, size_t bytes, int flags) {}",
        &["-shared", "-fPIC"],
    );
    let program = place.compile(
        "caller",
        "#include <stdlib.h>
        void *mallocx(size_t, int), *rallocx(void *, size_t, int);
        void dallocx(void *, int), sdallocx(void *, size_t, int);
        int main(void) {
            void *kept = 0;
            for (int i = 0; i < 50; i++) dallocx(mallocx(70000, 0), 0);
            for (int i = 0; i < 40; i++) sdallocx(mallocx(70000, 12), 70000, 12);
            for (int i = 0; i < 30; i++) kept = rallocx(mallocx(70000, 0), 150000, 0);
            return kept == 0;
        }",
        &[&OPTIONS[..], &["-Wl,--no-as-needed", &library]].concat(),
    );
    let report = report(&[&program]);
    let functions = report["functions"].as_array().unwrap();
    let calls = |name: &str| {
        let function = functions.iter().find(|function| function["function"] == name).unwrap();
        function["calls"].as_u64().unwrap()
    };
    assert_eq!((calls("malloc"), calls("aligned_alloc"), calls("realloc")), (80, 40, 30));
    assert_eq!(sum(&report, "live").round(), 30.0);
}

#[test]
fn callers_in_a_library_that_was_opened_a_moment_ago_are_named() {
    let place = Place::new("opened");
    let library = place.compile(
        "opened.so",
        "#include <stdlib.h>
        void *kept[300];
        __attribute__((noinline)) void keep(int number) { kept[number] = malloc(50); }
        __attribute__((noinline)) void work(void) { for (int i = 0; i < 300; i++) keep(i); }",
        &[&OPTIONS[..], &["-shared", "-fPIC"]].concat(),
    );
    let program = place.compile(
        "opens",
        // It is known by its maps before, and its records are read before these are again.
        "#include <dlfcn.h>
        #include <unistd.h>
        int main(int count, char **words) {
            usleep(100000);
            void *library = dlopen(words[1], RTLD_NOW);
            void (*work)(void) = (void (*)(void))dlsym(library, \"work\");
            work();
            usleep(100000);
            return count - 2;
        }",
        &[&OPTIONS[..], &["-ldl"]].concat(),
    );
    let report = report(&[&program, &library]);
    let callers = report["callers"].as_array().unwrap();
    let keep = callers.iter().find(|caller| caller["function"] == "keep");
    let keep = keep.unwrap_or_else(|| panic!("{callers:#?}"));
    let blocks = keep["allocated"]["blocks"].as_f64().unwrap().round();
    assert_eq!((&keep["called_by"], blocks), (&"work".into(), 300.0));
}

/// As [`report`], of a program that writes to its output how many blocks it has.
fn blocks_that_are_left(name: &str, body: &str, words: &[&str]) -> Value {
    let place = Place::new(name);
    let head = "#include <pthread.h>
        #include <stdint.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static unsigned seed = 1;
        static unsigned random_number(void) { return (seed = seed * 1664525 + 1013904223) >> 8; }
        ";
    let program = place.compile(name, &format!("{head}{body}"), &OPTIONS);
    report(&[&[program.as_str()], words].concat())
}

#[test]
fn blocks_at_the_end_are_counted_and_not_estimated() {
    let storm = "enum { PLACES = 1000 };
        static void *kept[PLACES];
        int main(int count, char **words) {
            for (int i = 0; i < 3000000; i++) {
                void **place = &kept[random_number() % PLACES];
                switch (random_number() % 3) {
                case 0: free(*place); *place = malloc(600); break;
                case 1: *place = realloc(*place, 600); break;
                /* What is refused stays where it was. */
                case 2: if (realloc(*place, PTRDIFF_MAX)) return 1;
                }
            }
            for (int i = 0; i < PLACES; i++) {
                if (count > 1) free(kept[i]);
                if (count > 1) kept[i] = 0;
                else if (!kept[i]) kept[i] = malloc(600);
            }
            return 0;
        }";
    let report = blocks_that_are_left("storm", storm, &[]);
    assert!(report["described"].as_u64().unwrap() < 1_000_000, "it is estimated from a part");
    assert_eq!(report["live_blocks"], 1000);
    assert!((sum(&report, "live") - 1000.0).abs() < 1e-3, "{}", report["sizes"]);
    let error_bytes = report["live_error_bytes"].as_f64().unwrap();
    assert!(error_bytes < 1.0, "all are of one size: {error_bytes}");
    let report = blocks_that_are_left("storm", storm, &["free"]);
    assert_eq!(report["live_blocks"], 0);
    assert_eq!((sum(&report, "live"), report["live_error_bytes"].as_f64()), (0.0, Some(0.0)));
}

#[test]
fn a_block_that_realloc_leaves_where_it_was_is_followed_on() {
    let report = blocks_that_are_left(
        "refused",
        "static void *kept[20];
        int main(void) {
            for (int i = 0; i < 20; i++) {
                kept[i] = malloc(1000);
                if (realloc(kept[i], PTRDIFF_MAX)) return 1;
            }
            for (int i = 0; i < 5; i++) free(kept[i]);
            return 0;
        }",
        &[],
    );
    assert_eq!((sum(&report, "live"), sum(&report, "freed"), &report["failed"]), (15.0, 5.0, &20.into()));
    let caller = &report["callers"][0];
    assert_eq!((&caller["function"], &caller["live"]["bytes"]), (&"main".into(), &15_000.0.into()));
    assert_eq!(report["live_error_bytes"], 0.0);
}

#[test]
fn blocks_that_a_forked_child_inherits_make_its_end_no_known_one() {
    let family = "static void *kept[100];
        int main(int count, char **words) {
            if (count > 2) return 0;
            for (int i = 0; i < 100; i++) kept[i] = malloc(600);
            if (fork() == 0) {
                if (count > 1) execl(words[0], words[0], words[1], words[1], (char *)0);
                for (int i = 0; i < 100; i++) free(kept[i]);
                free(malloc(70000));
                _exit(0);
            }
            wait(0);
            return 0;
        }";
    let report = blocks_that_are_left("inherits", family, &[]);
    assert!(report["live_blocks"].is_null(), "{report}");
    assert!((sum(&report, "live") - 100.0).abs() < 1e-3, "{}", report["sizes"]);
    let report = blocks_that_are_left("becomes", family, &["exec"]);
    assert_eq!(report["live_blocks"], 100, "a child that becomes another program at once holds nothing");
}

#[test]
fn a_process_that_goes_on_has_no_known_end() {
    let place = Place::new("goes-on");
    // Its child is another program that stays until its input ends, and has its blocks before the first one ends.
    let program = place.compile(
        "goes-on",
        "#include <fcntl.h>
        #include <stdlib.h>
        #include <unistd.h>
        static void *kept[100];
        int main(int count, char **words) {
            int ready[2];
            char byte;
            if (count > 1) {
                for (int i = 0; i < 100; i++) kept[i] = malloc(600);
                if (write(3, \"r\", 1) != 1) return 1;
                return read(0, &byte, 1) != 0;
            }
            if (pipe(ready)) return 1;
            if (fork() == 0) {
                if (ready[1] != 3 && dup2(ready[1], 3) != 3) _exit(8);
                int nowhere = open(\"/dev/null\", O_WRONLY);
                dup2(nowhere, 1);
                dup2(nowhere, 2);
                execl(words[0], words[0], \"stay\", (char *)0);
                _exit(9);
            }
            close(ready[1]);
            return read(ready[0], &byte, 1) != 1;
        }",
        &OPTIONS,
    );
    let mut command = tool::faultless(&["churn", "--malloc", "--json", "--", &program]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut looking = command.spawn().unwrap();
    let input = looking.stdin.take();
    let output = looking.wait_with_output().unwrap();
    drop(input);
    assert!(output.status.success(), "{}", errors(&output));
    let report = tool::json(&output);
    // The first calls no malloc.
    assert_eq!((&report["processes"], report["exit_status"].as_i64()), (&1.into(), Some(0)));
    assert_eq!(sum(&report, "live").round(), 100.0);
    assert!(report["live_blocks"].is_null(), "{}", report["live_blocks"]);
}

#[test]
fn of_more_processes_than_files_may_be_open_none_is_missed() {
    let place = Place::new("crowd");
    let program = place.compile(
        "crowd",
        "#include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < 150; i++) {
                if (fork() == 0) { free(malloc(3000)); _exit(0); }
                wait(0);
            }
            return 0;
        }",
        &OPTIONS,
    );
    let output = tool::after("ulimit -n 64", &["churn", "--malloc", "--json", "--", &program]).output();
    let report = tool::json(&output.unwrap());
    let calls = report["functions"][0]["calls"].as_u64();
    assert_eq!((report["processes"].as_u64(), calls), (Some(150), Some(150)), "{report:#}");
    assert_eq!(sum(&report, "live"), 0.0);
}

#[test]
fn counts_that_the_program_wrote_over_are_said_to_be_missing_and_the_others_are_told() {
    let place = Place::new("scribble");
    let program = place.compile(
        "scribble",
        "#include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        enum { PAGE = 4096, FIRST_COUNTERS = 2 * PAGE };
        static void *allocate(void *unused) {
            for (int i = 0; i < 50; i++) free(malloc(3000));
            return unused;
        }
        int main(void) {
            pthread_t thread;
            char line[512];
            unsigned long start;
            free(malloc(100));
            if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, NULL) != 0) return 1;
            FILE *maps = fopen(\"/proc/self/maps\", \"r\");
            while (fgets(line, sizeof line, maps))
                if (strstr(line, \" 00000000 \") && strstr(line, \".rings\") && sscanf(line, \"%lx\", &start) == 1)
                    memset((char *)start + FIRST_COUNTERS, 0xff, PAGE);
            _exit(0);
        }",
        &OPTIONS,
    );
    let report = report(&[&program]);
    let functions = report["functions"].as_array().unwrap();
    let malloc = functions.iter().find(|function| function["function"] == "malloc").unwrap();
    assert_eq!((malloc["calls"].as_u64(), report["frees"].as_u64()), (Some(50), Some(50)), "{report:#}");
    assert!(report["live_blocks"].is_null(), "{}", report["live_blocks"]);
    let remarks = report["remarks"].as_array().unwrap();
    let tells =
        |remark: &Value| remark.as_str().unwrap().contains("calls of 1 thread: the program wrote over");
    assert!(remarks.iter().any(tells), "{remarks:?}");
}
