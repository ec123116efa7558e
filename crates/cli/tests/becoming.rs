//! What is said of a process that becomes another program while it is looked at.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::Command;

use place::Place;
use running::Running;
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
