//! `faultless faults` on programs that become others.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod tool;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use place::Place;
use serde_json::Value;
use tool::{assert_refused, errors, faultless, json};

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

#[test]
fn of_a_program_that_the_kernel_tells_nothing_of_it_is_not_said_that_it_has_no_faults() {
    let place = Place::new("unreadable");
    let program = place.compile("unreadable", "int main(void) { return 0; }", &[]);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o711)).unwrap();
    let as_user = |program: &Command| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    let program = program.as_str();
    let readable = as_user(&faultless(&["faults", "--", "true"])).output();
    if !readable.as_ref().is_ok_and(|output| output.status.success()) {
        return faultless_skipped::skipped(format_args!("as another user: {readable:?}"));
    }
    let line = assert_refused(&mut as_user(&faultless(&["faults", "--", program])), 1, "may not be read");
    assert!(line.contains("set-user-ID"), "{line}");
    // Root may read it, but a program that makes it another user is closed to it, too.
    std::os::unix::fs::chown(program, Some(65534), None).unwrap();
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o4711)).unwrap();
    assert_refused(&mut faultless(&["faults", "--", program]), 1, "set-user-ID");
    let output = faultless(&["churn", "--by", "tracepoints", "--json", "--", program]).output().unwrap();
    if output.status.success() {
        let remarks = json(&output)["remarks"].to_string();
        assert!(remarks.contains("set-user-ID") && remarks.contains("--by seccomp"), "{remarks}");
    }
}
