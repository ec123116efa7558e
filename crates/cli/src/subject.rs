//! What a command looks at: a process that runs already.

use faultless_probe::process::{Process, ProcessError};

use crate::failure::Failure;

/// The process with this number.
///
/// # Errors
/// [`Failure::Usage`] for a number that no process can have, else [`Failure::Failed`] with what would help.
pub fn process(pid: i32) -> Result<Process, Failure> {
    if pid <= 0 {
        return Err(Failure::Usage(format!("a process number is above 0, not {pid}")));
    }
    Process::open(pid).map_err(Failure::of_process)
}

impl Failure {
    /// For a process that cannot be seen.
    #[must_use]
    pub fn of_process(error: ProcessError) -> Self {
        Self::Failed(error.to_string())
    }
}
