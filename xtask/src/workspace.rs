//! Where the workspace, its build outputs and temporary files are, and how tasks start Cargo.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result, wrong};

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

/// A folder of one run of a task, gone with it unless it is kept.
pub struct TemporaryFolder {
    path: PathBuf,
    is_kept: bool,
}

impl TemporaryFolder {
    /// Makes it, with the task in its name.
    pub fn new(task: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("faultless-{task}-{}", std::process::id()));
        fs::create_dir_all(&path).at(&path)?;
        Ok(Self { path, is_kept: false })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it to whoever looks into it, and tells where it is.
    pub fn keep(mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }
}

impl Drop for TemporaryFolder {
    /// What cannot be removed is said and no more: the task's own result counts.
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_goes_when_its_task_fails_and_stays_when_it_is_kept() {
        let fails = |place: &mut PathBuf| -> Result<()> {
            let folder = TemporaryFolder::new("fails")?;
            *place = folder.path().to_owned();
            assert!(place.is_dir());
            wrong("the task's own reason".to_owned())
        };
        let mut place = PathBuf::new();
        let Err(Failure::Wrong(reason)) = fails(&mut place) else { panic!("it fails") };
        assert_eq!(reason, "the task's own reason");
        assert!(!place.exists());
        let kept = TemporaryFolder::new("kept").unwrap().keep();
        assert!(kept.is_dir());
        fs::remove_dir(&kept).unwrap();
    }

    #[test]
    fn a_temporary_folder_that_is_gone_already_changes_no_result() {
        let folder = TemporaryFolder::new("gone").unwrap();
        fs::remove_dir(folder.path()).unwrap();
        drop(folder);
    }
}
