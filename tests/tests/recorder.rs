//! The recorder of `churn --malloc` with the compiler's checks for undefined behaviour inside, preloaded into C programs.

use faultless_tests::library::build_folder;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

fn compiled(name: &str, sources: &[PathBuf], flags: &[&str]) -> (PathBuf, Output) {
    let built = build_folder().join(name);
    let mut compile = Command::new("cc");
    compile.args(["-O1", "-g", "-w", "-pthread", "-fno-builtin", "-o"]).arg(&built).args(sources).args(flags);
    let output = compile.output().expect("a C compiler");
    (built, output)
}

#[test]
fn the_recorder_does_nothing_that_is_undefined() {
    let files = std::fs::read_dir(folder("crates/recorder")).unwrap().map(|entry| entry.unwrap().path());
    let sources: Vec<_> = files.filter(|file| file.extension().is_some_and(|ending| ending == "c")).collect();
    let checks = ["-fsanitize=undefined", "-fno-sanitize-recover=all"];
    let flags = [&["-shared", "-fPIC", "-fvisibility=hidden"], &checks[..]].concat();
    let (recorder, output) = compiled("checked-recorder.so", &sources, &flags);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("ubsan"), "{said}");
        faultless_skipped::skipped("the compiler has no library for -fsanitize=undefined");
        return;
    }
    let recordings = build_folder().join("checked-recordings");
    for name in ["fork_returns", "realloc_edges", "remote_free", "short_threads", "spawn"] {
        let source = folder("tests/c").join(format!("{name}.c"));
        let (program, output) = compiled(&format!("recorded-{name}"), &[source], &[]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let _ = std::fs::remove_dir_all(&recordings);
        std::fs::create_dir_all(&recordings).unwrap();
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", &recorder).env("FAULTLESS_RECORDER", &recordings);
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{name}: {}: {said}", ended.status);
        assert!(std::fs::read_dir(&recordings).unwrap().count() > 0, "{name} was not recorded");
    }
    std::fs::remove_dir_all(&recordings).unwrap();
}
