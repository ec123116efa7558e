//! The carried library and the carried demo as files of a private directory.

use std::io;
use std::path::{Path, PathBuf};

use faultless_probe::file_limit::{self, NO_MORE_FILES};
use faultless_probe::place::PrivateDirectory;
use faultless_trial::command::Command;

use crate::failure::Failure;

/// Name of the demo among the carried programs.
const DEMO: &str = "chem";

/// Writes the library where only this run of the tool uses it; it goes with the directory.
///
/// # Errors
/// [`Failure::Failed`] with the place, the reason and what to do.
pub fn private() -> Result<(PrivateDirectory, PathBuf), Failure> {
    let directory = PrivateDirectory::create()
        .map_err(|error| Failure::Failed(format!("cannot write the library: {error}")))?;
    match faultless_bundle::library_into(directory.path()) {
        Ok(library) => Ok((directory, library)),
        Err(error) => Err(unwritten("the library", directory.path(), &error)),
    }
}

/// What could not be written into a private directory: with the place where that lies and what to do, where the kernel refused.
pub fn unwritten(what: &str, directory: &Path, error: &io::Error) -> Failure {
    if file_limit::is_reached(error) {
        return Failure::Failed(format!("cannot write {what}: {NO_MORE_FILES}"));
    }
    // Only the kernel's reasons depend on the place.
    if error.raw_os_error().is_none() {
        return Failure::Failed(format!("cannot write {what}: {error}"));
    }
    let place = directory.parent().unwrap_or(Path::new("/")).display();
    Failure::Failed(format!("cannot write {what}: {place}: {error}; set TMPDIR to a directory with room"))
}

/// Writes the demo into a directory.
///
/// # Errors
/// [`Failure::Failed`] with the place, the reason and what to do.
pub fn demo(directory: &Path) -> Result<Command, Failure> {
    let workload = faultless_bundle::workload(DEMO)
        .ok_or_else(|| Failure::Failed("this build carries no demo; name a command".into()))?;
    let program = faultless_bundle::workload_into(directory, workload)
        .map_err(|error| unwritten("the demo", directory, &error))?;
    Ok(Command::new(program, vec![DEMO.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_more_files_may_be_open_another_place_is_not_said_to_help() {
        let refused = unwritten("the demo", Path::new("/tmp/private"), &io::Error::from_raw_os_error(24));
        let line = refused.into_message();
        assert!(line.contains("ulimit -n") && !line.contains("TMPDIR"), "{line}");
    }

    #[test]
    fn a_demo_that_finds_no_room_is_said_with_its_place_and_what_to_do() {
        let Err(Failure::Failed(reason)) = demo(Path::new("/nowhere/private")) else {
            panic!("it was written")
        };
        assert_eq!(
            reason,
            "cannot write the demo: /nowhere: No such file or directory (os error 2); set TMPDIR to a directory with room"
        );
    }
}
