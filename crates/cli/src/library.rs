//! The carried library and the carried demo as files of a private directory.

use std::path::{Path, PathBuf};

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
    let failed = |reason: String| Failure::Failed(format!("cannot write the library: {reason}"));
    let directory = PrivateDirectory::create().map_err(|error| failed(error.to_string()))?;
    match faultless_bundle::library_into(directory.path()) {
        Ok(library) => Ok((directory, library)),
        // Only the kernel's reasons depend on the place.
        Err(error) if error.raw_os_error().is_some() => {
            let place = directory.path().parent().unwrap_or(Path::new("/"));
            Err(failed(format!("{}: {error}; set TMPDIR to a directory with room", place.display())))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Writes the demo into a directory.
///
/// # Errors
/// [`Failure::Failed`] with the reason.
pub fn demo(directory: &Path) -> Result<Command, Failure> {
    let workload = faultless_bundle::workload(DEMO)
        .ok_or_else(|| Failure::Failed("this build carries no demo; name a command".into()))?;
    let program = faultless_bundle::workload_into(directory, workload)
        .map_err(|error| Failure::Failed(format!("cannot write the demo: {error}")))?;
    Ok(Command { program, arguments: vec![DEMO.into()], input: None })
}
