//! `faultless faults` on programs that become others.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use place::Place;
use serde_json::Value;
use tool::{errors, faultless};

/// Touches eight huge pages, one after the other, and becomes itself again when it has a word.
const HUGE: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#define PAGE (2ul << 20)
int main(int count, char **words)
{
    char *pages = mmap(0, 9 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages = (char *)(((uintptr_t)pages + PAGE - 1) & ~(PAGE - 1));
    madvise(pages, 8 * PAGE, MADV_HUGEPAGE);
    for (int i = 0; i < 8; i++) pages[i * PAGE] = 1;
    /* They are looked up after the fault, so the memory must still be there for a moment. */
    usleep(100000);
    if (count > 1) execl("/proc/self/exe", words[0], (char *)0);
    return 0;
}
"#;

/// Faults that brought a huge page; none where that cannot be seen.
fn huge(words: &[&str]) -> Option<f64> {
    let output = faultless(&[&["faults", "--json", "--"], words].concat()).output().unwrap();
    let report: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let Some(report) = report.filter(|report| report["method"]["sees_huge_pages"] == true) else {
        faultless_skipped::skipped(errors(&output));
        return None;
    };
    Some(
        report["functions"].as_array().unwrap().iter().filter_map(|function| function["huge"].as_f64()).sum(),
    )
}

#[test]
fn huge_pages_are_counted_after_an_exec_too() {
    let place = Place::new("huge");
    let program = place.compile("huge", HUGE, &["-O1"]);
    let Some(once) = huge(&[&program]) else { return };
    if once < 1.0 {
        return faultless_skipped::skipped("this system has no transparent huge pages, or no room for them");
    }
    let twice = huge(&[&program, "again"]).unwrap();
    assert!(twice > once * 1.5, "{once} by one program, {twice} by two");
}
