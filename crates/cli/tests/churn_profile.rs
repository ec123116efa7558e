//! Profiles and folded stacks of `faultless churn`, of a C program whose call chains are known.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::fs;

use place::Place;
use tool::{assert_misused, assert_refused, errors, faultless, text, was_permitted};

const SOURCE: &str = "
#include <stdlib.h>
#include <sys/mman.h>
#define SEEN __attribute__((noinline))
static void *volatile kept[64];
SEEN void keep(int place) { kept[place] = malloc(3000); }
SEEN void pass(void) { kept[0] = malloc(300); free(kept[0]); }
SEEN void map(void) {
    void *made = mmap(0, 5 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(made, 5 << 20);
}
int main(void) {
    for (int i = 1; i < 41; i++) { keep(i); pass(); map(); }
    return 0;
}";

fn compile(place: &Place) -> String {
    place.compile("chains", SOURCE, &["-O1", "-g", "-fno-builtin"])
}

/// The number of the chains that end like this.
fn calls(folded: &str, innermost: &str) -> u64 {
    let of = |line: &str| {
        let (chain, number) = line.rsplit_once(' ').unwrap();
        chain.ends_with(innermost).then(|| number.parse::<u64>().unwrap())
    };
    folded.lines().filter_map(of).sum()
}

#[test]
fn a_heap_profile_is_the_same_at_once_and_of_the_recording() {
    let place = Place::new("heap");
    let program = compile(&place);
    let [saved, pprof, folded, again] =
        ["saved", "heap.pb.gz", "folded", "again"].map(|name| place.file(name));
    let words = ["churn", "--malloc", "--record", &saved, "--pprof", &pprof, "--folded", &folded, &program];
    let output = faultless(&words).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(!errors(&output).contains("no call chains"), "{}", errors(&output));
    let text = fs::read_to_string(&folded).unwrap();
    assert_eq!((calls(&text, "main;keep"), calls(&text, "main;pass")), (40, 40), "{text}");
    let profile = fs::read(&pprof).unwrap();
    assert_eq!(profile[..2], [0x1f, 0x8b], "compressed");

    let output = faultless(&["churn", "--pprof", &again, "--json", &saved]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(fs::read(&again).unwrap(), profile);
}

#[test]
fn chains_of_calls_of_the_kernel_are_written_and_their_absence_is_told() {
    let place = Place::new("kernel");
    let program = compile(&place);
    let [pprof, folded] = ["calls.pb.gz", "folded"].map(|name| place.file(name));
    for mechanism in ["seccomp", "tracepoints", "mmap-records"] {
        let words =
            ["churn", "--by", mechanism, "--pprof", &pprof, "--folded", &folded, "--json", "--", &program];
        let output = faultless(&words).output().unwrap();
        if !was_permitted(&output) {
            continue;
        }
        let text = fs::read_to_string(&folded).unwrap();
        let sees_chains = mechanism != "mmap-records";
        assert_eq!(errors(&output).contains("no call chains were seen"), !sees_chains, "{}", errors(&output));
        assert_eq!(text.starts_with("[callers not seen]"), !sees_chains, "{text}");
        if sees_chains {
            assert!(calls(&text, "main;map") >= 80, "{mechanism}: {text}");
        }
        assert_eq!(fs::read(&pprof).unwrap()[..2], [0x1f, 0x8b], "compressed");
        [&pprof, &folded].into_iter().for_each(|file| fs::remove_file(file).unwrap());
    }
}

#[test]
fn a_file_that_cannot_be_written_in_the_end_does_not_take_the_table_along() {
    for option in ["--record", "--pprof", "--folded"] {
        let output = faultless(&["churn", "--malloc", option, "/dev/full", "ls"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
        assert!(errors(&output).contains("cannot write /dev/full: No space left"), "{}", errors(&output));
        assert!(text(&output).contains("malloc"), "{}", text(&output));
    }
}

#[test]
fn files_that_cannot_be_written_or_are_named_twice_are_refused_before_anything_runs() {
    let place = Place::new("refused");
    let [made, file, saved] = ["made", "file", "saved"].map(|name| place.file(name));
    for (words, status, says) in [
        (&["--pprof", "/no/such/place", "touch", &made][..], 1, "cannot write /no/such/place"),
        (&["--malloc", "--folded", "/no/such/place", "touch", &made], 1, "cannot write /no/such/place"),
        (&["--pprof", &file, "--folded", &file, "touch", &made], 2, "named twice"),
        (&["--malloc", "--record", &file, "--pprof", &file, "touch", &made], 2, "named twice"),
    ] {
        assert_refused(&mut faultless(&[&["churn"], words].concat()), status, says);
    }
    assert_misused(&mut faultless(&["churn", "--pprof"]), "--pprof");
    assert_eq!(fs::read_dir(&place.0).unwrap().count(), 0);

    let recorded = faultless(&["churn", "--malloc", "--record", &saved, "true"]).output().unwrap();
    assert!(recorded.status.success(), "{}", errors(&recorded));
    let before = fs::read(&saved).unwrap();
    assert_refused(&mut faultless(&["churn", "--pprof", &saved, &saved]), 2, "read at the same time");
    assert_eq!(fs::read(&saved).unwrap(), before);
    assert_refused(&mut faultless(&["churn", &saved, "--pprof", &saved]), 2, "read at the same time");
    assert_eq!(fs::read(&saved).unwrap(), before);

    // Options of what is shown may stand behind a saved file, too.
    let output = faultless(&["churn", &saved, "--pprof", &file]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(fs::metadata(&file).unwrap().len() > 0);
}
