//! The programs of `faultless bench` do what their heads say.

use std::path::PathBuf;
use std::process::{Command, Output};

use faultless_tests::library::build_folder;
use faultless_tests::program::shared_library;

/// Runs a carried program under a library of `c/`.
fn run(library: &str, name: &str, arguments: &[&str]) -> Output {
    let workload = faultless_bundle::workload(name).unwrap();
    let directory: PathBuf = build_folder().join("workloads");
    std::fs::create_dir_all(&directory).unwrap();
    let program = faultless_bundle::workload_into(&directory, workload).unwrap();
    let library = shared_library(library);
    Command::new(program).args(arguments).env("LD_PRELOAD", library).output().unwrap()
}

/// The figure after `name=`.
fn figure(text: &[u8], name: &str) -> u64 {
    let text = String::from_utf8_lossy(text);
    let figure = text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    figure.unwrap_or_else(|| panic!("no {name}: {text}")).parse().unwrap()
}

#[test]
fn one_thread_that_passes_objects_on_to_itself_tells_exactly_what_it_had_at_once() {
    let run = run("live_bytes.c", "migrate", &["1", "small"]);
    let (told, counted) = (figure(&run.stdout, "live_peak"), figure(&run.stderr, "live_bytes"));
    // A thread of libc asks for some hundred bytes itself.
    assert!((told..told + 4096).contains(&counted), "{told} bytes told, {counted} counted");
}

#[test]
fn blocks_whose_pages_are_one_memory_are_noticed() {
    for (name, variant, says) in
        [("sparse", "once", "sparse: first word of a page"), ("hundred", "random:1", "ended with status 256")]
    {
        let run = run("one_memory.c", name, &["1", "small", "0", variant]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && said.contains(says), "{name}: {}: {said}", run.status);
    }
}
