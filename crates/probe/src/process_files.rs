//! The files of `/proc/PID` that the tool reads.

use std::fs;
use std::time::Duration;

use faultless_records::counters::Counters;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::thread::SystemCall;
use faultless_records::{mappings, status};
use nix::libc;
use nix::unistd::{SysconfVar, sysconf};

use crate::proc_view;
use crate::process::Process;

/// A process's memory at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Resident bytes: exact from `smaps_rollup`, else the kernel's counter from `status`.
    pub rss_bytes: Option<u64>,
    /// Highest resident bytes since it became this program.
    pub peak_rss_bytes: Option<u64>,
    /// Files it has mapped, its program first.
    pub mapped_files: Vec<String>,
}

/// Reads all of it; what the kernel does not show stays empty.
#[must_use]
pub fn snapshot(pid: i32) -> Snapshot {
    let Some(process) = open(pid) else { return Snapshot::default() };
    let status = process.text("status").unwrap_or_default();
    let exact = process.text("smaps_rollup").ok().and_then(|text| status::bytes_of_field(&text, "Rss"));
    Snapshot {
        rss_bytes: exact.or_else(|| status::bytes_of_field(&status, "VmRSS")),
        peak_rss_bytes: status::bytes_of_field(&status, "VmHWM"),
        mapped_files: mapped_files(pid),
    }
}

/// What the other threads of a process do while its first stands at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// There are none, or they end, too.
    End,
    /// They go on.
    GoOn,
    /// One becomes another program, and waits for the others' end.
    Exec,
}

/// What they do: who goes on neither ends nor was told to.
#[must_use]
pub fn others(pid: i32) -> Others {
    let Some(process) = open(pid) else { return Others::End };
    let others = || process.threads().unwrap_or_default().into_iter().filter(|thread| *thread != pid);
    // Between taking the kill and showing that it ends a thread shows neither, for as long as it waits for a CPU.
    let go_on = (0..LOOKS_AT_OTHERS).all(|look| {
        std::thread::sleep(Duration::from_millis(u64::from(look > 0)));
        others().any(|thread| goes_on(&process, thread))
    });
    match go_on {
        false => Others::End,
        true if others().any(|thread| is_in_exec(&process, thread)) => Others::Exec,
        true => Others::GoOn,
    }
}

const LOOKS_AT_OTHERS: u32 = 10;

/// The end of a whole process reaches each of its threads as a kill of its own. Source: kernel/signal.c, zap_other_threads.
fn goes_on(process: &Process, thread: i32) -> bool {
    let stat = process.read(&format!("task/{thread}/stat")).unwrap_or_default();
    let is_exiting = Counters::parse(&stat).is_none_or(|counters| counters.is_exiting());
    let kill = 1 << (libc::SIGKILL - 1);
    let status = || process.text(&format!("task/{thread}/status")).unwrap_or_default();
    let pending = || status::bits_of_field(&status(), "SigPnd");
    !is_exiting && pending().is_some_and(|signals| signals & kill == 0)
}

/// Whether a thread waits in execve(2) or execveat(2).
fn is_in_exec(process: &Process, thread: i32) -> bool {
    let call = process.text(&format!("task/{thread}/syscall")).unwrap_or_default();
    SystemCall::parse(&call).is_some_and(|call| [libc::SYS_execve, libc::SYS_execveat].contains(&call.number))
}

/// Resident bytes by the cheapest way, for sampling.
#[must_use]
pub fn resident_bytes(pid: i32) -> Option<u64> {
    status::resident_bytes_of_statm(&read(pid, "statm")?, page_bytes())
}

/// Files the process has mapped, its program first; empty when the kernel does not show them.
#[must_use]
pub fn mapped_files(pid: i32) -> Vec<String> {
    let text = read(pid, "maps").unwrap_or_default();
    let mut files = mappings::mapped_files(text.as_bytes());
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.to_string_lossy();
    let program = program.strip_suffix(mappings::DELETED).unwrap_or(&program);
    // Others may lie below it: Java's archive of classes, the libraries of a loader that was called by its name.
    if let Some(place) = files.iter().position(|file| file == program) {
        files[..=place].rotate_right(1);
    }
    files
}

/// Resident bytes of this process.
#[must_use]
pub fn own_resident_bytes() -> Option<u64> {
    status::resident_bytes_of_statm(&fs::read_to_string("/proc/self/statm").ok()?, page_bytes())
}

/// The most bytes that a process, as it is until its next exec, ever had resident.
#[must_use]
pub fn peak_resident_bytes(pid: i32) -> Option<u64> {
    status::bytes_of_field(&read(pid, "status")?, "VmHWM")
}

fn open(pid: i32) -> Option<Process> {
    proc_view::obstacle().is_none().then(|| Process::open(pid).ok()).flatten()
}

/// Paths need not be UTF-8, so the text is taken as it comes.
fn read(pid: i32, file: &str) -> Option<String> {
    if proc_view::obstacle().is_some() {
        return None;
    }
    let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Bytes of a page of this machine.
#[must_use]
pub fn page_bytes() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|bytes| u64::try_from(bytes).ok())
        .unwrap_or(PAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::program::{is_loader, program_of};
    use std::io::{Read, Write};
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    /// Starts `cat`, and looks at it as soon as it is that. Not at this process: other tests' memory may come between the reading of
    /// its peak and of its size.
    fn snapshot_of_cat(command: &mut Command) -> (PathBuf, Snapshot) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = child.id().cast_signed();
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
        let snapshot = snapshot(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        (program, snapshot)
    }

    #[test]
    fn a_process_is_seen_with_its_program_and_memory() {
        let (program, snapshot) = snapshot_of_cat(&mut Command::new("cat"));
        assert_eq!(snapshot.mapped_files[0], program.to_string_lossy());
        assert!(snapshot.rss_bytes.unwrap() > 100 * 1024);
        assert!(snapshot.peak_rss_bytes.unwrap() >= snapshot.rss_bytes.unwrap() / 2);
    }

    #[test]
    fn no_library_is_taken_for_the_program_of_a_process_that_a_loader_was_called_for() {
        let (_, snapshot) = snapshot_of_cat(&mut Command::new("cat"));
        let loader =
            snapshot.mapped_files.iter().find(|file| is_loader(file)).expect("a program with libraries");
        let cat = ["/bin/cat", "/usr/bin/cat"].into_iter().find(|cat| fs::exists(cat).unwrap()).unwrap();
        let (_, snapshot) = snapshot_of_cat(Command::new(loader).arg(cat));
        assert_eq!(program_of(&snapshot.mapped_files), None, "{:?}", snapshot.mapped_files);
    }

    #[test]
    fn threads_that_wait_go_on_and_a_process_without_others_has_none() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || receive.recv());
        assert_eq!(others(std::process::id().cast_signed()), Others::GoOn);
        drop(send);
        let _ = waiting.join();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(others(child.id().cast_signed()), Others::End);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_gives_an_empty_snapshot() {
        assert_eq!(snapshot(i32::MAX), Snapshot::default());
        assert_eq!(resident_bytes(i32::MAX), None);
    }
}
