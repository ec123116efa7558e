//! What a command looks at: a process that runs already.

use std::io::Read;

use faultless_probe::proc_view::{self, Obstacle};
use faultless_probe::process::{Process, ProcessError};
use faultless_records::elf;
use faultless_records::mappings::{Mapping, MappingsError};

use crate::failure::Failure;

/// The process with this number.
///
/// # Errors
/// [`Failure::Usage`] for a number that no process can have, else [`Failure::Failed`] with what would help.
pub fn process(pid: i32) -> Result<Process, Failure> {
    if pid <= 0 {
        return Err(Failure::Usage(format!("a process number is above 0, not {pid}")));
    }
    check_view()?;
    Process::open(pid).map_err(Failure::of_process)
}

/// What a process has mapped, as `maps` or `smaps` tells it.
///
/// # Errors
/// [`Failure`] when it has ended, or the file cannot be read.
pub fn mappings(process: &Process, file: &str) -> Result<Vec<Mapping>, Failure> {
    process.mappings(file).map_err(Failure::of_process)?.map_err(|error| {
        if error != MappingsError::Empty && process.is_alive() {
            Failure::Failed(format!("cannot read {file} of process {}: {error}", process.pid()))
        } else {
            Failure::of_process(ProcessError::Ended(process.pid()))
        }
    })
}

/// That processes are to be seen, and none instead of another.
///
/// # Errors
/// [`Failure::Failed`] with what would help.
pub fn check_view() -> Result<(), Failure> {
    proc_view::obstacle().map_or(Ok(()), |obstacle| Err(Failure::Failed(obstacle.to_string())))
}

/// The same for a command that can be observed without `/proc`: its calls and faults come from the kernel.
///
/// # Errors
/// [`Failure::Failed`] where files of other processes would be taken for its own.
pub fn check_view_if_any() -> Result<(), Failure> {
    match proc_view::obstacle() {
        Some(Obstacle::Absent) => Ok(()),
        _ => check_view(),
    }
}

/// Says of a process that is stopped that there is nothing to wait for; the same as a remark, of what was not seen.
#[must_use]
pub fn say_if_stopped(process: &Process) -> Option<String> {
    let (pid, name) = (process.pid(), process.name());
    process.is_stopped().then(|| {
        crate::say(&format!(
            "process {pid} ({name}) is stopped (state T) and does nothing until it goes on: kill -CONT {pid}"
        ));
        format!(
            "anything while it was stopped, as it was when we began (state T; kill -CONT {pid} lets it go on)"
        )
    })
}

/// Whether it runs a 32-bit program, as far as its file can be read.
#[must_use]
pub fn is_32_bit(process: &Process) -> bool {
    let mut head = Vec::new();
    let file = process.open_file("exe").ok();
    let read = file.map(|file| file.take(elf::HEAD_BYTES as u64).read_to_end(&mut head));
    matches!((read, elf::executable(&head)), (Some(Ok(_)), Ok(executable)) if !executable.is_64_bit)
}

impl Failure {
    /// For a process that cannot be seen.
    #[must_use]
    pub fn of_process(error: ProcessError) -> Self {
        Self::Failed(error.to_string())
    }
}
