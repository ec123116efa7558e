//! The program under test.

use std::process::{Command, Output, Stdio};

/// The program with these words, without input and under libc's own allocator, to be started with the default answer to every signal:
/// whoever runs the tests may ignore some, as a shell does in the background, and what is ignored stays so.
pub fn faultless(words: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_faultless")]).args(words);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

/// What it said on standard error.
#[allow(dead_code, reason = "some tests look at files alone")]
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
