//! Real programs under the library, as far as they take seconds; `cargo xtask programs` has the long ones.
//!
//! A program that is not installed is passed over with a line that says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use faultless_tests::library::{build_folder, preload};

/// What a program has written on standard output.
#[derive(PartialEq, Debug)]
struct Output(String);

/// A folder for one test, empty at first.
fn folder(name: &str) -> PathBuf {
    let path = build_folder().join(format!("programs-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("the build folder is writable");
    path
}

/// A file of `programs/`.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// The library's file name, which programs look for in their own `/proc/self/maps`.
fn library_name() -> String {
    let name = preload().and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|folder| folder.join(program).is_file());
    if !found {
        faultless_skipped::skipped(format_args!("{program} is not installed"));
    }
    found
}

/// A command with a fixed environment, without the library.
fn plain(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("LC_ALL", "C.UTF-8").env("HOME", folder).env_remove("LD_PRELOAD");
    command
}

fn preloaded(program: &str, folder: &Path) -> Command {
    let mut command = plain(program, folder);
    if let Some(library) = preload() {
        command.env("LD_PRELOAD", library);
    }
    command
}

/// Runs a command, which must succeed without a complaint of the library.
fn output(mut command: Command, words: &[&str]) -> Output {
    let output = command.args(words).output().expect("the program is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let complained = stderr.lines().any(|line| line.starts_with("faultless:"));
    assert!(output.status.success() && !complained, "{words:?}: {}\n{stderr}", output.status);
    Output(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_c_compiler_makes_the_same_object_and_its_program_the_same_output() {
    let folder = folder("cc");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/stress.c");
    let words = ["-O2", "-g", "-c", file.to_str().unwrap(), "-o", "stress.o"];
    let object = |command| {
        output(command, &words);
        fs::read(folder.join("stress.o")).unwrap()
    };
    assert!(object(plain("cc", &folder)) == object(preloaded("cc", &folder)), "the objects differ");
}

#[test]
fn python_computes_the_same_in_threads_forks_and_subprocesses() {
    if is_installed("python3") {
        let folder = folder("python");
        let script = source("threads.py");
        for allocator in ["default", "malloc"] {
            let mut command = preloaded("python3", &folder);
            command.env("PYTHONMALLOC", allocator).env("PYTHONDONTWRITEBYTECODE", "1");
            let seen = output(command, &[script.to_str().unwrap(), &library_name()]);
            assert_eq!(seen, Output("all checked\n".to_owned()));
        }
    }
}

#[test]
fn node_workers_hand_buffers_to_each_other_intact() {
    if is_installed("node") {
        let folder = folder("node");
        let script = source("workers.js");
        let words = [script.to_str().unwrap(), "6", "30", &library_name()];
        let seen = output(preloaded("node", &folder), &words);
        assert_eq!(seen, Output("6 workers, 180 rounds, all checksums right\n".to_owned()));
    }
}

#[test]
fn two_hundred_java_threads_keep_their_streams_and_direct_buffers() {
    if is_installed("javac") && is_installed("java") {
        let folder = folder("java");
        let program = source("Streams.java");
        let words = ["-Xmx256m", program.to_str().unwrap(), "200", "3", &library_name()];
        let seen = output(preloaded("java", &folder), &words);
        assert_eq!(seen, Output("200 threads, 600 rounds, all checksums right\n".to_owned()));
    }
}

#[test]
fn git_makes_and_repacks_the_same_history() {
    if is_installed("git") {
        let folder = folder("git");
        assert_eq!(history(&folder.join("alone"), plain), history(&folder.join("under"), preloaded));
    }
}

/// Commits, repacks with threads, and returns what git says about the result.
fn history(folder: &Path, command: fn(&str, &Path) -> Command) -> Output {
    fs::create_dir_all(folder).expect("the build folder is writable");
    let git = |words: &[&str]| {
        let mut git = command("git", folder);
        for role in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{role}_NAME"), "A U Thor")
                .env(format!("GIT_{role}_EMAIL"), "author@example.com");
            git.env(format!("GIT_{role}_DATE"), "1700000000 +0000");
        }
        output(git, words).0
    };
    git(&["init", "--quiet", "--initial-branch=main", "."]);
    for commit in 0..8_usize {
        for file in 0..60_usize {
            let line = |line: usize| format!("line {line} of {file} since {}\n", commit.min(line % 9));
            let text: String = (0..20 + file * 5).map(line).collect();
            fs::write(folder.join(format!("f{file}")), text).expect("the build folder is writable");
        }
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", &format!("change {commit}")]);
    }
    git(&["repack", "-a", "-d", "-f", "--quiet", "--threads=4"]);
    git(&["gc", "--quiet", "--prune=now"]);
    let fsck = git(&["fsck", "--full", "--strict"]);
    Output(fsck + &git(&["log", "--stat"]) + &git(&["rev-list", "--objects", "--all"]))
}
