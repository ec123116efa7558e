//! The programs of `faultless bench` do what their heads say.

use std::io;
use std::process::{Command, Output};

use faultless_tests::library::build_folder;
use faultless_tests::program::shared_library;

/// Runs a carried program under a library of `c/`.
fn run(library: &str, name: &str, arguments: &[&str]) -> io::Result<Output> {
    let workload = faultless_bundle::workload(name).ok_or_else(|| io::Error::other(name.to_owned()))?;
    let directory = build_folder().join("workloads");
    std::fs::create_dir_all(&directory)?;
    let program = faultless_bundle::workload_into(&directory, workload)?;
    Command::new(program).args(arguments).env("LD_PRELOAD", shared_library(library)).output()
}

/// The figure after `name=`.
fn figure(text: &[u8], name: &str) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[test]
fn one_thread_that_passes_objects_on_to_itself_tells_exactly_what_it_had_at_once() {
    let run = run("live_bytes.c", "migrate", &["1", "small"]).unwrap();
    let (told, counted) =
        (figure(&run.stdout, "live_peak").unwrap(), figure(&run.stderr, "live_bytes").unwrap());
    // A thread of libc asks for some hundred bytes itself.
    assert!((told..told + 4096).contains(&counted), "{told} bytes told, {counted} counted");
}

#[test]
fn blocks_whose_pages_are_one_memory_are_noticed() {
    for (name, variant, says) in
        [("sparse", "once", "sparse: first word of a page"), ("hundred", "random:1", "ended with status 256")]
    {
        let run = run("one_memory.c", name, &["1", "small", "0", variant]).unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && said.contains(says), "{name}: {}: {said}", run.status);
    }
}
