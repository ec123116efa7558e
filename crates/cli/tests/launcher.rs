//! `faultless map` and `heap` of a process that only starts another one, as wrappers of servers and desktop programs do.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::Command;

use place::Place;
use running::Running;
use tool::{faultless, text};

/// Starts a process that has 64 MiB, and waits for it. That one ends with it.
const LAUNCHER: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words)
{
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
        memset(malloc(64 << 20), 1, 64 << 20);
        puts("ready");
        fflush(stdout);
        alarm(60);
        return count > 1 ? sleep(atoi(words[1])) : pause();
    }
    wait(0);
    return 0;
}
"#;

#[test]
fn the_larger_process_that_a_launcher_started_is_named() {
    let place = Place::new("launcher");
    let program = place.compile("launcher", LAUNCHER, &["-O1", "-w"]);
    let launcher = Running::ready(&mut Command::new(&program));
    let said = "(launcher), which it started, has more resident, ";
    let names = |shown: &str| shown.contains(said) && shown.contains("looks at it");
    for tool in ["map", "heap"] {
        let shown = text(&faultless(&[tool, "--pid", &launcher.pid()]).output().unwrap());
        assert!(names(&shown) && shown.contains(&format!("{said}6")), "{shown}");
        let child = shown.split("--pid ").last().unwrap().split(' ').next().unwrap();
        let shown = text(&faultless(&[tool, "--pid", child]).output().unwrap());
        assert!(!names(&shown), "{shown}");
        let shown = text(&faultless(&[tool, "--after", "1s", "--", &program, "4"]).output().unwrap());
        assert!(names(&shown), "{shown}");
        let shown = text(&faultless(&[tool, "--", &program, "0"]).output().unwrap());
        assert!(shown.contains("started, and that have ended, took 16,"), "{shown}");
    }
}
