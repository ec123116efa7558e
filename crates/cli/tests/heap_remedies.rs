//! What `faultless heap` advises about memory that is free and stays resident, beside what the advice does.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::Command;

use place::Place;
use running::Running;
use serde_json::Value;
use tool::{faultless, text};

/// Four threads fill their arenas with 16 MiB each, free all of it, and wait. A large block was freed before.
const TOPS: &str = r#"
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 16000 };
static pthread_barrier_t barrier;
static void *work(void *unused)
{
    static __thread void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    pthread_barrier_wait(&barrier);
    pause();
    return unused;
}
int main(int count, char **words)
{
    alarm(60);
    if (count > 1) mallopt(M_TRIM_THRESHOLD, atoi(words[1]));
    free(malloc(30 << 20));
    pthread_barrier_init(&barrier, 0, 5);
    pthread_t thread;
    for (int i = 0; i < 4; i++) pthread_create(&thread, 0, work, 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn what_holds_most_of_the_trapped_memory_is_named_with_what_helps() {
    let place = Place::new("heap-tops");
    let program = place.compile("tops", TOPS, &["-O1", "-fno-builtin", "-pthread"]);
    let seen = |words: &[&str], threshold: Option<&str>| shown(&program, words, threshold);
    let as_it_is = seen(&[], None);
    assert!(as_it_is.contains("Most of what is trapped are tops of threads' arenas"), "{as_it_is}");
    assert!(as_it_is.contains("60 MiB here, which glibc raised"), "{as_it_is}");
    let remedied = seen(&[], Some("131072"));
    assert!(!remedied.contains("Most of what is trapped"), "the remedy helps: {remedied}");
    let set = seen(&["62914560"], Some("131072"));
    assert!(set.contains("60 MiB here, which the program or its environment has set"), "{set}");
    assert!(!set.contains("MALLOC_TRIM_THRESHOLD_"), "the program overrides the environment: {set}");
}

/// What is said of the program as soon as it waits, without line breaks.
fn shown(program: &str, words: &[&str], threshold: Option<&str>) -> String {
    let mut command = Command::new(program);
    command.args(words).envs(threshold.map(|bytes| ("MALLOC_TRIM_THRESHOLD_", bytes)));
    let running = Running::ready(&mut command);
    let text = text(&faultless(&["heap", "--pid", &running.pid()]).output().unwrap());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Takes 48 MiB in blocks of 3,000 bytes, frees all but the last where it has a word, forks where it has two, and waits.
const LEAK: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
enum { BLOCKS = 16000 };
int main(int count, char **words)
{
    static void *blocks[BLOCKS];
    alarm(60);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(3000), 1, 3000);
    for (int i = 0; count > 1 && i < BLOCKS - 1; i++) free(blocks[i]);
    if (count > 2 && !fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
    }
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn a_leak_is_told_from_what_only_a_trim_gives_back() {
    let place = Place::new("heap-leak");
    let program = place.compile("leak", LEAK, &["-O1", "-fno-builtin"]);
    let leak = shown(&program, &[], None);
    assert!(leak.contains("Nearly all of malloc's memory is in use"), "{leak}");
    assert!(leak.contains("faultless churn --malloc -- CMD names who asked"), "{leak}");
    let kept = shown(&program, &["free"], None);
    assert!(kept.contains("goes back when the program calls malloc_trim(0)"), "{kept}");
    assert!(kept.contains("faultless run -- CMD runs the program under it"), "{kept}");
    assert!(!kept.contains("shared with other processes"), "{kept}");
    let forked = shown(&program, &["free", "fork"], None);
    assert!(forked.contains("of what is trapped are shared with other processes since a fork"), "{forked}");
    if let Some(linked) = place.try_compile("static", LEAK, &["-O1", "-fno-builtin", "-static"]) {
        let (leak, kept) = (shown(&linked, &[], None), shown(&linked, &["free"], None));
        assert!(leak.contains("no setting gives it back") && !leak.contains("-- CMD"), "no preload: {leak}");
        assert!(kept.contains("malloc_trim(0)") && !kept.contains("-- CMD"), "no preload: {kept}");
    }
    let running = Running::ready(Command::new(&program).arg("free"));
    let json = text(&faultless(&["heap", "--json", "--pid", &running.pid()]).output().unwrap());
    let json: Value = serde_json::from_str(&json).unwrap();
    let remedy = json["walks"][0]["remedy"].as_str().unwrap();
    assert!(remedy.contains("malloc_trim(0)"), "{remedy}");
}

/// 200 threads fill their caches with 225 KiB each, and then replace blocks by others, 50 times a second.
const CACHES: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { THREADS = 200, SIZES = 63, BLOCKS = 7, HELD = 40 };
static pthread_barrier_t barrier;
static void *work(void *unused)
{
    void *blocks[SIZES * BLOCKS];
    for (int i = 0; i < SIZES * BLOCKS; i++) blocks[i] = memset(malloc(i / BLOCKS * 16 + 24), 1, 24);
    for (int i = 0; i < SIZES * BLOCKS; i++) free(blocks[i]);
    pthread_barrier_wait(&barrier);
    void *held[HELD] = {0};
    for (unsigned number = 1;; usleep(20000)) {
        for (int i = 0; i < HELD; i++) {
            number = number * 1103515245 + 12345;
            free(held[i]);
            held[i] = memset(malloc((number >> 16) % SIZES * 16 + 24), 1, 24);
        }
    }
    return unused;
}
int main(void)
{
    alarm(120);
    pthread_barrier_init(&barrier, 0, THREADS + 1);
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) pthread_create(&thread, 0, work, 0);
    pthread_barrier_wait(&barrier);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn what_is_in_the_caches_of_threads_that_go_on_is_not_said_to_be_in_use() {
    let place = Place::new("heap-caches");
    let program = place.compile("caches", CACHES, &["-O1", "-fno-builtin", "-pthread"]);
    let running = Running::ready(&mut Command::new(program));
    let walk_of = |options: &[&str]| {
        let mut command = faultless(&["heap", "--json", "--pid", &running.pid()]);
        let report: Value = serde_json::from_str(&text(&command.args(options).output().unwrap())).unwrap();
        (report["walks"][0].clone(), report["remarks"].to_string())
    };
    let cached = |walk: &Value| walk["total"]["cached"]["bytes"].as_f64().unwrap();
    let (at_rest, _) = walk_of(&["--stop"]);
    assert_eq!((&at_rest["thread_caches"], &at_rest["changed_thread_caches"]), (&200.into(), &0.into()));
    assert!(cached(&at_rest) > 30e6, "{}", cached(&at_rest));
    for _ in 0..3 {
        let (walk, remarks) = walk_of(&[]);
        assert!(cached(&walk) > 0.8 * cached(&at_rest), "{} of {}", cached(&walk), cached(&at_rest));
        assert!(walk["thread_caches"].as_u64().unwrap() >= 190, "{walk:#}");
        assert!(!walk["remedy"].to_string().contains("Nearly all"), "{walk:#}");
        let has_changed = walk["changed_thread_caches"] != 0;
        assert!(!has_changed || walk["is_exact"] == false, "{walk:#}");
        assert_eq!(remarks.contains("changed while they were read"), has_changed, "{remarks}");
    }
}

/// Frees a large block, fills the main heap with 48 MiB in blocks of 100,000 bytes, frees all of them, and waits.
const MAIN_TOP: &str = r#"
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 500 };
int main(int count, char **words)
{
    static void *blocks[BLOCKS];
    alarm(60);
    if (count > 1) mallopt(M_TRIM_THRESHOLD, atoi(words[1]));
    if (count > 2) mallopt(M_TOP_PAD, atoi(words[2]));
    free(malloc(30 << 20));
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(100000), 1, 100000);
    for (int i = BLOCKS; i-- > 0;) free(blocks[i]);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn the_top_of_the_main_heap_is_told_from_what_a_free_never_gives_back() {
    let place = Place::new("heap-main-top");
    let program = place.compile("main-top", MAIN_TOP, &["-O1", "-fno-builtin"]);
    let seen = |words: &[&str], threshold: Option<&str>| shown(&program, words, threshold);
    let as_it_is = seen(&[], None);
    assert!(as_it_is.contains("Most of what is trapped is the top of the main heap"), "{as_it_is}");
    assert!(as_it_is.contains("trim threshold, 60 MiB here, which glibc raised"), "{as_it_is}");
    assert!(!as_it_is.contains("a free gives back only the end of a heap"), "{as_it_is}");
    let remedied = seen(&[], Some("131072"));
    assert!(!remedied.contains("Most of what is trapped"), "the remedy helps: {remedied}");
    for (bytes, shown) in [("1000000000", "953.7 MiB"), ("62914560", "60 MiB"), ("-1", "-1 (never)")] {
        let set = seen(&[bytes], None);
        assert!(set.contains(&format!("trim threshold, {shown} here, which the program")), "{set}");
        assert!(!set.contains("glibc raised") && !set.contains("MALLOC_TRIM_THRESHOLD_"), "{set}");
    }
    let padded = seen(&["131072", "67108864"], None);
    assert!(padded.contains("A free keeps the top pad of a top, 64 MiB here, which the program"), "{padded}");
    assert!(!padded.contains("a free gives back only the end of a heap"), "{padded}");
    let unpadded = seen(&["131072", "131072"], None);
    assert!(!unpadded.contains("Most of what is trapped"), "without the pad it goes back: {unpadded}");
}

/// 64 MiB of its own mapping beside less than 3 MiB from malloc.
const MAPS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    alarm(60);
    memset(mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 64 << 20);
    for (int i = 0; i < 2000; i++) memset(malloc(1000), 1, 1000);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn of_a_process_whose_memory_is_not_mallocs_it_says_how_little_malloc_has() {
    let place = Place::new("heap-maps");
    let running = Running::ready(&mut Command::new(place.compile("maps", MAPS, &["-O1", "-fno-builtin"])));
    let pid = running.pid();
    let report = faultless(&["heap", "--json", "--pid", &pid]).output().unwrap();
    let rss = serde_json::from_slice::<Value>(&report.stdout).unwrap()["counted_rss_bytes"].as_u64().unwrap();
    assert!((64 << 20..80 << 20).contains(&rss), "{rss}");
    let shown = text(&faultless(&["heap", "--pid", &pid]).output().unwrap());
    let sentence = shown.lines().find(|line| line.starts_with("The process has")).unwrap();
    assert!(sentence.contains("in malloc's heaps and mapped blocks"), "{sentence}");
    assert!(shown.contains(&format!("\nfaultless map --pid {pid} names the rest.\n")), "{shown}");
}

/// Fills the cache of a thread with 16 MiB, which it may where that many blocks of a size are allowed.
const LONG_LISTS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { BLOCKS = 16000 };
static void *blocks[BLOCKS];
int main(void)
{
    alarm(60);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(1000), 1, 1000);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    puts("ready");
    fflush(stdout);
    pause();
}
"#;

#[test]
fn caches_that_were_made_larger_are_said_to_be() {
    let place = Place::new("heap-long-lists");
    let program = place.compile("lists", LONG_LISTS, &["-O1", "-fno-builtin"]);
    let shown = |count: &str| {
        let mut command = Command::new(&program);
        command.env("GLIBC_TUNABLES", format!("glibc.malloc.tcache_count={count}"));
        let running = Running::ready(&mut command);
        let text = text(&faultless(&["heap", "--pid", &running.pid()]).output().unwrap());
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let raised = shown("20000");
    assert!(
        raised.contains("There are more than these hold by default: glibc.malloc.tcache_count is set"),
        "{raised}"
    );
    assert!(
        !shown("7").contains("Most of what is trapped are blocks in threads' caches"),
        "the remedy helps"
    );
}
