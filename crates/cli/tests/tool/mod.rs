//! The program under test.

use std::process::Command;

/// The program, to be started with the default answer to every signal: whoever runs the tests may ignore some, as a shell does in
/// the background, and what is ignored stays so.
pub fn faultless() -> Command {
    let mut command = Command::new("/usr/bin/env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_faultless")]);
    command
}
