//! `faultless churn --diff`: two runs of a C program that keeps more in the second.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use place::Place;
use tool::{assert_refused, errors, faultless, json, text};

const SOURCE: &str = "
#include <stdlib.h>
#define SEEN __attribute__((noinline))
static void *volatile kept[64];
SEEN void keep(int place) { kept[place] = malloc(3000); }
SEEN void pass(void) { kept[0] = malloc(300); free(kept[0]); }
int main(int words, char **arguments) {
    for (int i = 1; i <= atoi(arguments[1]); i++) keep(i);
    for (int i = 0; i < 50; i++) pass();
    return 0;
}";

#[test]
fn who_keeps_more_in_the_second_recording_is_shown_first() {
    let place = Place::new("churn-diff");
    let program = place.compile("keeps", SOURCE, &["-O1", "-g", "-fno-builtin"]);
    let saved = |name: &str, options: &[&str], kept: &str| {
        let path = place.file(name);
        let words = [&["churn"], options, &["--record", &path, "--", &program, kept]].concat();
        let output = faultless(&words).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        path
    };
    let [before, after] =
        [("before", "10"), ("after", "40")].map(|(name, kept)| saved(name, &["--malloc"], kept));
    let diff = |words: &[&str]| faultless(&[&["churn", "--diff"], words].concat());

    let shown = text(&diff(&[&before, &after]).output().unwrap());
    assert!(shown.starts_with("60 calls in ") && shown.contains(", 90 in "), "{shown}");
    assert!(shown.contains("At the end 29.3 KiB were there before, 117.2 KiB after (×4.00)"), "{shown}");
    let value = json(&diff(&[&before, &after, "--json"]).output().unwrap());
    assert_eq!(value["format"], "faultless-churn-diff/1");
    let functions = value["functions"].as_array().unwrap();
    assert_eq!((functions.len(), functions[0]["function"].as_str()), (1, Some("keep")), "{value}");
    let live_bytes = ["before", "after"].map(|side| functions[0][side]["live_bytes"].as_f64());
    assert_eq!(live_bytes, [Some(30_000.0), Some(120_000.0)]);
    assert!(text(&diff(&[&before, &before]).output().unwrap()).contains("No function"));

    assert_refused(&mut diff(&[&before, "/etc/passwd"]), 1, "no recording of `faultless churn --record`");
    assert_refused(&mut diff(&[&before, "no-such-file"]), 1, "cannot read no-such-file: No such file");
    let of_kernel = saved("kernel", &["--by", "seccomp"], "10");
    assert_refused(&mut diff(&[&before, &of_kernel]), 2, "two of a kind");
    assert!(text(&diff(&[&of_kernel, &of_kernel]).output().unwrap()).contains("No function"));
}
