//! What a Java virtual machine says it uses, from itself or from a file.

use std::path::Path;

use faultless_probe::jcmd;
use faultless_probe::process::Process;
use faultless_records::nmt::{self, NativeMemory, NmtError};
use faultless_records::status;

use crate::failure::Failure;
use crate::saved_file;

/// Reads `file`, or asks the process where that is empty.
///
/// # Errors
/// [`Failure::Failed`] with what would help.
pub fn native_memory(process: &Process, file: &Path) -> Result<NativeMemory, Failure> {
    let (text, source) = if file.as_os_str().is_empty() {
        let text = jcmd::native_memory(process).map_err(Failure::Failed)?;
        (text, format!("process {}", process.pid()))
    } else {
        let bytes = saved_file::read(file)?;
        (String::from_utf8_lossy(&bytes).into_owned(), file.display().to_string())
    };
    let memory = nmt::parse(&text).map_err(|error| {
        Failure::Failed(match error {
            NmtError::Off => format!(
                "{source}: native memory tracking is off; start Java with -XX:NativeMemoryTracking=detail (it costs some percent)"
            ),
            NmtError::NoDetail => format!("{source}: it tracks no detail; save VM.native_memory summary instead"),
            NmtError::CutOff => format!(
                "{source}: it was cut off: expected all that jcmd PID VM.native_memory printed, to its end"
            ),
            NmtError::Foreign => {
                format!("{source}: expected what jcmd PID VM.native_memory detail prints, found something else")
            }
        })
    })?;
    match memory.pid {
        Some(pid) if !is_number_of(process, pid) => Err(Failure::Failed(format!(
            "{source}: it is of process {pid}, not of process {}: give the process that jcmd was asked for",
            process.pid()
        ))),
        _ => Ok(memory),
    }
}

/// Whether it is the number of a process: as we see it, or in its own container, where jcmd may have run.
fn is_number_of(process: &Process, number: i32) -> bool {
    let status = process.text("status").unwrap_or_default();
    number == process.pid() || status::innermost_number(&status) == Some(number)
}
