//! A small C program whose heaps are walked, and which tells what glibc says of them.

pub mod core_maker;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The program, running.
pub struct Subject {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Subject {
    /// Starts it and waits until its work is done.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(Command::new(program()).args(arguments))
    }

    /// As [`Subject::start`], with this library in place of glibc's malloc.
    pub fn start_under(arguments: &[&str], library: &str) -> Self {
        Self::run(Command::new(program()).args(arguments).env("LD_PRELOAD", library))
    }

    /// Starts a command that becomes the program.
    pub fn run(command: &mut Command) -> Self {
        for name in ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"] {
            command.env_remove(name);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut subject = Self { child, input, output };
        assert!(subject.line().starts_with("ready "));
        subject
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it something; its answer without the last line.
    pub fn tell(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        let mut answer = String::new();
        loop {
            let line = self.line();
            match line.as_str() {
                "done\n" => return answer,
                "" => panic!("it ended after {answer}"),
                line => answer.push_str(line),
            }
        }
    }

    /// What the tool prints of it.
    pub fn heap(&self, words: &[&str]) -> String {
        let output = faultless_heap(words).args(["--pid", &self.pid().to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same as JSON.
    pub fn report(&self, words: &[&str]) -> Value {
        json(faultless_heap(words).args(["--json", "--pid", &self.pid().to_string()]))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "quit");
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// `faultless heap` with these words.
pub fn faultless_heap(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faultless"));
    command.arg("heap").args(words).stdin(Stdio::null());
    command
}

/// What a command prints, as JSON.
pub fn json(command: &mut Command) -> Value {
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("no JSON ({error}): {}", String::from_utf8_lossy(&output.stderr)))
}

/// The compiled program; made once.
pub fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/c/heap_survivors.c");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let program = folder.join(format!("heap_survivors-{}", std::process::id()));
        let status = Command::new("cc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .arg(&program)
            .arg(source)
            .status()
            .unwrap();
        assert!(status.success());
        program
    })
}
