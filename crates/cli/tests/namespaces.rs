//! The tool where `/proc`, `/dev` and who may see whom are not as usual: in namespaces of its own, through the real program.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::os::unix::fs::MetadataExt;
use std::process::{Command, Output, Stdio};

use place::Place;
use running::{Running, wait_until};
use tool::{assert_refused, errors, faultless, json, text};

/// Runs the tool behind `unshare` with these options and a line of shell; none where that is not permitted here.
fn apart(options: &[&str], line: &str, words: &[&str]) -> Option<Output> {
    let behind = |program: &Command| {
        let mut command = Command::new("unshare");
        command.args(options).args(["sh", "-c", &format!("{line} && exec \"$@\""), "sh"]);
        command.arg(program.get_program()).args(program.get_args());
        command.env_remove("LD_PRELOAD").stdin(Stdio::null());
        command.output()
    };
    match behind(&Command::new("/bin/true")) {
        Ok(output) if output.status.success() => Some(behind(&faultless(words)).unwrap()),
        refused => {
            faultless_skipped::skipped(format_args!("unshare {options:?} {line:?}: {refused:?}"));
            None
        }
    }
}

const COMMANDS: [&[&str]; 5] = [
    &["map", "--", "sleep", "0"],
    &["heap", "--", "sleep", "0"],
    &["watch", "--lines", "--", "sleep", "0"],
    &["faults", "--", "sleep", "0"],
    &["churn", "--", "sleep", "0"],
];

#[test]
fn a_process_of_another_namespace_is_not_taken_for_the_command() {
    let foreign = ["--user", "--map-root-user", "--pid", "--fork"];
    for words in COMMANDS.into_iter().chain([&["map", "--pid", "1"][..], &["check"]]) {
        let Some(output) = apart(&foreign, "true", words) else { return };
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(errors(&output).starts_with("faultless: /proc shows another PID namespace"), "{output:?}");
    }
    let Some(output) = apart(&foreign, "true", &["run", "--", "true"]) else { return };
    assert!(output.status.success() && errors(&output).contains("final RSS unknown"), "{output:?}");
    let Some(output) = apart(&foreign, "true", &["doctor", "-n", "1", "--json", "--", "true"]) else {
        return;
    };
    let remarks = json(&output)["remarks"].to_string();
    assert!(
        remarks.contains("which allocator ran was not seen: /proc shows another PID namespace"),
        "{remarks}"
    );
}

#[test]
fn root_of_a_user_namespace_is_not_told_to_become_root() {
    let container = ["--user", "--map-root-user"];
    // It is looked at once it is sleep and has its libc.
    let line = "sleep 20 >/dev/null 2>&1 & set -- \"$@\" --pid $! && trap 'kill $!' EXIT
        until grep -q sleep /proc/$!/comm && grep -q libc /proc/$!/maps; do sleep 0.01; done";
    for words in [&["churn", "--malloc", "--for", "100ms"][..], &["churn", "--for", "100ms"]] {
        let Some(output) = apart(&container, line, words) else { return };
        let said = errors(&output) + &text(&output);
        if said.contains("seen by uprobes") || said.contains("seen by the kernel's tracepoints") {
            return faultless_skipped::skipped("all is permitted in a user namespace here");
        }
        assert!(said.contains("outside of this container"), "{said}");
        assert!(!said.contains("become root") && !said.contains("only root"), "{said}");
    }
}

#[test]
fn as_the_first_process_of_a_container_it_waits_for_orphans() {
    // Each says its number and ends, after who started it; the last line is reached when all have said so.
    let script = "pids=$(for n in 1 2 3 4 5; do (sh -c 'echo $$' &); done)
        for try in $(seq 400); do
            left=; for pid in $pids; do [ -d /proc/$pid ] && left=$pid; done
            [ -z \"$left\" ] && exit 3
            sleep 0.05
        done";
    let container = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    for tool in [&["run"][..], &["watch", "--lines"], &["export", "--listen", "127.0.0.1:0"]] {
        let words = [tool, &["--", "sh", "-c", script]].concat();
        let Some(output) = apart(&container, "true", &words) else { return };
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    }
}

#[test]
fn a_proc_that_is_not_mounted_is_named() {
    let line = "mount -t tmpfs none /proc";
    let names = &["watch", "--lines", "--for", "10ms", "--name", "sleep"][..];
    for words in COMMANDS[..3].iter().copied().chain([&["map", "--pid", "1"][..], &["check"], names]) {
        let Some(output) = apart(&["--user", "--map-root-user", "--mount"], line, words) else { return };
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(errors(&output).starts_with("faultless: /proc is not mounted"), "{output:?}");
    }
}

#[test]
fn a_process_that_is_hidden_is_not_said_to_have_ended() {
    let other = ["--reuid", "65534", "--clear-groups", "sleep", "100"];
    let Ok(hidden) = Command::new("setpriv").args(other).stderr(Stdio::null()).spawn() else {
        return faultless_skipped::skipped("setpriv is not installed");
    };
    let mut hidden = Running(hidden);
    let directory = format!("/proc/{}", hidden.pid());
    let is_another_users = || std::fs::metadata(&directory).unwrap().uid() == 65534;
    wait_until(|| hidden.0.try_wait().unwrap().is_some() || is_another_users());
    // Root without capabilities is a user among others; the group root sees all.
    let line = "mount -t proc -o hidepid=2 proc /proc && set -- setpriv --regid 65534 --clear-groups --bounding-set -all \"$@\"";
    if let Some(status) = hidden.0.try_wait().unwrap() {
        return faultless_skipped::skipped(format_args!("setpriv {other:?}: {status}"));
    }
    let Some(output) = apart(&["--mount"], line, &["map", "--pid", &hidden.pid()]) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("can be seen") && errors(&output).contains("hidepid"), "{output:?}");
}

/// A program that is closed to its own user.
const UNDUMPABLE: &str = r#"
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
int main(void) { prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); puts("ready"); fflush(stdout); pause(); }
"#;

#[test]
fn nobody_is_told_to_become_the_user_of_a_process_that_is_closed_to_its_user() {
    let place = Place::new("undumpable");
    let program = place.compile("undumpable", UNDUMPABLE, &[]);
    // The same user as the process, who must not be root.
    let as_user = |program: &Command| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(program.get_program()).args(program.get_args());
        command
    };
    match as_user(&faultless(&["--version"])).output() {
        Ok(output) if output.status.success() => {}
        refused => return faultless_skipped::skipped(format_args!("setpriv: {refused:?}")),
    }
    let process = Running::ready(&mut as_user(&Command::new(program)));
    let pid = process.pid();
    for words in [
        &["map"][..],
        &["heap"],
        &["heap", "--stop"],
        &["faults"],
        &["churn"],
        &["churn", "--malloc"],
        &["churn", "--by", "ptrace"],
    ] {
        let words = [words, &["--pid", &pid]].concat();
        let line = assert_refused(&mut as_user(&faultless(&words)), 1, "not dumpable");
        assert!(!line.contains("become its user"), "{line}");
    }
}

#[test]
fn where_there_is_no_dev_commands_are_compared_all_the_same() {
    let options = ["--user", "--map-root-user", "--mount"];
    let words = ["doctor", "-n", "1", "--json", "--", "sleep", "0"];
    let Some(output) = apart(&options, "mount -t tmpfs none /dev", &words) else { return };
    assert!(output.status.success(), "{}", errors(&output));
}

#[test]
fn where_there_is_no_shell_commands_are_compared_all_the_same() {
    let line = "mount --bind /dev/null \"$(readlink -f /bin/sh)\"";
    let words = ["bench", "-n", "1", "-a", "libc,faultless", "--json", "-", "--", "sleep", "0"];
    let Some(output) = apart(&["--user", "--map-root-user", "--mount"], line, &words) else { return };
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(json(&output)["machine"]["libc"], "", "the shell's is not to be seen");
}

#[test]
fn the_kernels_times_are_not_those_of_a_time_namespace() {
    let options = ["--time", "--monotonic", "-100", "--fork"];
    let Some(output) = apart(&options, "true", &["churn", "--json", "--", "sleep", "0.1"]) else { return };
    let report = json(&output);
    let timeline = &report["timeline"];
    let reached_s =
        timeline["calls"].as_array().unwrap().len() as f64 * timeline["step_seconds"].as_f64().unwrap();
    let observed_s = report["observed_seconds"].as_f64().unwrap();
    assert!(reached_s < observed_s + 50.0, "{reached_s} s of {observed_s} s");
}

#[test]
fn control_groups_are_found_beside_a_mount_whose_name_is_no_text() {
    let place = Place::new("mounts");
    let folder = place.0.display();
    let line =
        format!("odd=$(printf '{folder}/m\\351t') && mkdir -p \"$odd\" && mount -t tmpfs none \"$odd\"");
    let words = ["watch", "--cgroup", "no/such/group"];
    let usual = faultless(&words).output().unwrap();
    let Some(output) = apart(&["--user", "--map-root-user", "--mount"], &line, &words) else { return };
    assert_eq!(errors(&output), errors(&usual));
}
