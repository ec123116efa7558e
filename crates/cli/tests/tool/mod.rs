//! The program under test.

use std::process::{Command, Stdio};

/// The program with these words, without input and under libc's own allocator, to be started with the default answer to every signal:
/// whoever runs the tests may ignore some, as a shell does in the background, and what is ignored stays so.
pub fn faultless(words: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_faultless")]).args(words);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}
