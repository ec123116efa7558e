//! A small C program whose heaps are walked, and which tells what glibc says of them.

pub mod core_maker;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::place::compile;
use crate::running::Running;
use crate::tool::{self, errors, text};

/// Its source.
pub const SURVIVORS: &str = include_str!("../../../../tests/c/heap_survivors.c");

/// The program, running.
pub struct Subject {
    child: Running,
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
        let mut child = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = child.0.stdin.take().unwrap();
        let output = BufReader::new(child.0.stdout.take().unwrap());
        let mut subject = Self { child, input, output };
        assert!(subject.line().starts_with("ready "));
        subject
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.0.id()
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
        let output = faultless_heap(words).args(["--pid", &self.child.pid()]).output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        text(&output)
    }

    /// The same as JSON.
    pub fn report(&self, words: &[&str]) -> Value {
        json(faultless_heap(words).args(["--json", "--pid", &self.child.pid()]))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

/// `faultless heap` with these words.
pub fn faultless_heap(words: &[&str]) -> Command {
    tool::faultless(&[&["heap"], words].concat())
}

/// What a command prints, as JSON.
pub fn json(command: &mut Command) -> Value {
    tool::json(&command.output().unwrap())
}

/// The compiled program; made once.
pub fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let name = format!("heap_survivors-{}", std::process::id());
        compile(Path::new(env!("CARGO_TARGET_TMPDIR")), &name, SURVIVORS, &["-O1", "-w", "-pthread"]).unwrap()
    })
}
