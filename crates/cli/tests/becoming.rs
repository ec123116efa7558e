//! What is said of a process that becomes another program while it is looked at.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::{Command, Stdio};

use place::Place;
use running::{Running, SOON};
use tool::{errors, faultless, text};

/// Has a heap nearly all the time, and becomes itself again some hundred times a second.
const BECOMES_ITSELF: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char *volatile block;
int main(int count, char **words)
{
    block = memset(malloc(1000), 1, 1000);
    for (volatile long turn = 0; turn < 1000000; turn++) {}
    return execv("/proc/self/exe", words);
}
"#;

const LOOKS: usize = 40;

#[test]
fn a_heap_that_is_replaced_while_it_is_walked_is_not_said_to_be_none() {
    let place = Place::new("becoming");
    let program = place.compile("becomes_itself", BECOMES_ITSELF, &["-O1"]);
    let subject = Running::start(&mut Command::new(program));
    let mut untrue = 0;
    for _ in 0..LOOKS {
        let output = faultless(&["heap", "--pid", &subject.pid()]).output().unwrap();
        if output.status.success() {
            // Until the loader has made libc ready, it is so.
            untrue += usize::from(text(&output).contains("No arena of a known layout"));
        } else {
            assert!(errors(&output).contains("keeps becoming another program"), "{}", errors(&output));
        }
    }
    assert!(untrue <= LOOKS / 4, "{untrue} of {LOOKS}");
}

/// Has threads that call malloc, and one of them makes another of the process some ten times a second.
const BECOMES_BY_A_THREAD: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static char **words;
static void *work(void *unused) { for (;;) free(malloc(rand() % 3000)); return unused; }
static void *become(void *unused)
{
    usleep(20000);
    execv("/proc/self/exe", words);
    return unused;
}
int main(int count, char **own)
{
    pthread_t thread;
    words = own;
    for (int number = 0; number < 3; number++) pthread_create(&thread, 0, work, 0);
    pthread_create(&thread, 0, become, 0);
    return work(0) != 0;
}
"#;

#[test]
fn a_process_that_is_stopped_while_a_thread_makes_another_of_it_keeps_nobody_waiting() {
    let place = Place::new("stopped");
    let program = place.compile("becomes_by_a_thread", BECOMES_BY_A_THREAD, &["-O1", "-w", "-pthread"]);
    let subject = Running::start(&mut Command::new(program));
    for look in 0..LOOKS {
        let mut tool = faultless(&["heap", "--stop", "--pid", &subject.pid()]);
        let mut looking = Running::start(tool.stdout(Stdio::null()).stderr(Stdio::null()));
        assert!(looking.end_within(SOON).is_some(), "it hangs at look {look}");
    }
}
