//! `faultless heap` of a program that keeps others off parts of its blocks, as stacks of coroutines do.
#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that is not as it should be")]

mod place;
mod running;
mod tool;

use std::process::Command;

use place::Place;
use running::Running;
use tool::{faultless, json};

/// Guards the first pages of a block of 100 KiB by `MADV_GUARD_INSTALL`, where the kernel has that, else by mprotect.
const GUARDED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    char *block = aligned_alloc(4096, 100 << 10);
    memset(block, 1, 100 << 10);
    if (madvise(block, 10 << 12, 102) != 0) mprotect(block, 10 << 12, PROT_NONE);
    puts("ready");
    fflush(stdout);
    alarm(60);
    return pause();
}
"#;

#[test]
fn a_heap_with_guards_in_it_is_walked_to_its_end() {
    let place = Place::new("guards");
    let program = place.compile("guarded", GUARDED, &["-O1", "-w"]);
    let subject = Running::ready(&mut Command::new(program));
    let report = json(&faultless(&["heap", "--json", "--pid", &subject.pid()]).output().unwrap());
    let walk = &report["walks"][0];
    assert_eq!(walk["is_exact"], true, "{}", walk["arenas"][0]["flaw"]);
    assert!(walk["total"]["used_bytes"].as_u64() >= Some(100 << 10), "{walk}");
}
