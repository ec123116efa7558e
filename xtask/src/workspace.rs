//! Where the workspace and its build outputs are, and how tasks start Cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result, wrong};

/// The folder that holds the workspace's `Cargo.toml`.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The target folder in use: this program lies in it, as `target/PROFILE/xtask`.
pub fn target() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Failure::Wrong(format!("own path: {error}")))?;
    match own.ancestors().nth(2) {
        Some(target) => Ok(target.to_owned()),
        None => wrong(format!("no target folder above {}", own.display())),
    }
}

/// The Cargo that started this program, in the workspace.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root());
    command
}

/// The C compiler: `$CC`, or `cc`.
pub fn c_compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc")))
}

/// Runs a command with this program's own output; anything but success is a failure.
pub fn succeed(command: &mut Command) -> Result<()> {
    let line = words(command);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => wrong(format!("{line}: {status}")),
        Err(error) => Err(Failure::Missing(format!("cannot start {line}: {error}"))),
    }
}

/// Runs a command and returns its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let line = words(command);
    let output =
        command.output().map_err(|error| Failure::Missing(format!("cannot start {line}: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        wrong(format!("{line}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// The command line, for messages.
pub fn words(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
