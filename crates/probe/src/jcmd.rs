//! Asks a Java virtual machine what memory it uses, by its own tool `jcmd`.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::process::Process;

/// How long the virtual machine may take to answer; a stopped one never does.
const LIMIT: Duration = Duration::from_secs(30);

/// What `jcmd PID VM.native_memory` prints, with the detail that the process tracks.
///
/// The answer makes the virtual machine start one thread, `Attach Listener`, if it has none yet.
///
/// `jcmd` wakes the virtual machine by SIGQUIT, which ends a process that does not catch it: such a process is not asked.
///
/// # Errors
/// One line: no virtual machine, no `jcmd`, no answer, or its own message.
pub fn native_memory(process: &Process) -> Result<String, String> {
    if !process.text("maps").is_ok_and(|maps| maps.contains("/libjvm.so")) {
        return Err(format!("process {} is no Java virtual machine, so jcmd is not asked", process.pid()));
    }
    if !process.text("status").is_ok_and(|status| catches_quit(&status)) {
        return Err(format!(
            "process {} does not catch SIGQUIT (-Xrs), by which jcmd asks: it would end; --nmt=FILE reads what jcmd printed elsewhere",
            process.pid()
        ));
    }
    let detail = ask(process, "detail")?;
    if detail.contains("Detail tracking is not enabled") { ask(process, "summary") } else { Ok(detail) }
}

/// Whether the mask of caught signals in `/proc/PID/status` has SIGQUIT, signal 3.
fn catches_quit(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 << 2 != 0)
}

fn ask(process: &Process, detail: &str) -> Result<String, String> {
    let tool = tool(process);
    let mut child = Command::new(&tool)
        .args([&process.pid().to_string(), "VM.native_memory", detail])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!(
                "cannot run {}: {error} (jcmd comes with a JDK; --nmt=FILE reads what it printed elsewhere)",
                tool.display()
            )
        })?;
    // Its output is larger than a pipe holds, so it is read while it runs.
    let output = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    });
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "jcmd got no answer from process {} in {} s",
                    process.pid(),
                    LIMIT.as_secs()
                ));
            }
        }
    };
    let output = output.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    if status.success() {
        return Ok(text);
    }
    let mut message = String::new();
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut message));
    let line =
        message.lines().chain(text.lines()).find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("jcmd {} VM.native_memory failed: {line}", process.pid()))
}

/// The one beside the program that runs, which speaks its language; else the first in `PATH`.
fn tool(process: &Process) -> PathBuf {
    let beside = process.link("exe").ok().and_then(|program| Some(program.parent()?.join("jcmd")));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("jcmd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_no_virtual_machine_is_not_asked() {
        let own = Process::open(i32::try_from(std::process::id()).unwrap()).unwrap();
        let error = native_memory(&own).unwrap_err();
        assert!(error.contains("no Java virtual machine") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn only_who_catches_sigquit_is_asked() {
        assert!(catches_quit("Name:\tjava\nSigCgt:\t2000000181005ccf\n"));
        assert!(!catches_quit("SigCgt:\t0000000000000000\n"));
        assert!(!catches_quit("SigCgt:\t0000000000000008\n"));
        assert!(!catches_quit("SigIgn:\t0000000000000004\nSigCgt:\tx\n") && !catches_quit(""));
    }
}
