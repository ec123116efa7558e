//! Asks a Java virtual machine what memory it uses, by its own tool `jcmd`.
//!
//! Whoever owns the process chose that tool, so it runs as they do and not as we do.

use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use faultless_records::status;
use nix::libc;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::halt::{self, Halt};
use crate::identity::Identity;
use crate::process::Process;
use crate::program;

/// How long the virtual machine may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// More than any virtual machine's account has.
const MOST_BYTES: u64 = 256 << 20;

/// How many letters of its reason are shown when it fails.
const LONGEST_REASON: usize = 300;

/// What `jcmd PID VM.native_memory` prints, with the detail that the process tracks.
///
/// The answer makes the virtual machine start one thread, `Attach Listener`, if it has none yet.
///
/// `jcmd` runs as the process's user, with its groups and no more, and not at all for a process in a container.
///
/// `jcmd` wakes the virtual machine by SIGQUIT, which ends a process that does not catch it: such a process is not asked.
///
/// # Errors
/// One line: no virtual machine, no `jcmd`, no answer, or its own message.
pub fn native_memory(process: &Process) -> Result<String, String> {
    let maps = process.text("maps").map_err(|error| error.to_string())?;
    if !maps.contains("/libjvm.so") {
        return Err(format!("process {} is no Java virtual machine, so jcmd is not asked", process.pid()));
    }
    if let Some(why) = silent(process) {
        return Err(format!(
            "process {} {why}, and jcmd gets no answer until it goes on; --nmt=FILE reads what jcmd printed before",
            process.pid()
        ));
    }
    if !process.text("status").is_ok_and(|status| catches_quit(&status)) {
        return Err(format!(
            "process {} does not catch SIGQUIT (-Xrs), by which jcmd asks: it would end; --nmt=FILE reads what jcmd printed elsewhere",
            process.pid()
        ));
    }
    check_namespaces(process)?;
    let detail = ask(process, "detail")?;
    if detail.contains("Detail tracking is not enabled") { ask(process, "summary") } else { Ok(detail) }
}

/// Why it answers nothing, where somebody stopped all of it.
fn silent(process: &Process) -> Option<String> {
    match halt::of(process)? {
        Halt::JobControl => Some(format!("is stopped (state T; kill -CONT {} lets it go on)", process.pid())),
        Halt::Tracer { held, threads, .. } => (held == threads).then(|| "is held by its tracer".to_owned()),
    }
}

/// Whether the mask of caught signals in `/proc/PID/status` has SIGQUIT, signal 3.
fn catches_quit(status: &str) -> bool {
    status::bits_of_field(status, "SigCgt").is_some_and(|mask| mask & 1 << 2 != 0)
}

fn ask(process: &Process, detail: &str) -> Result<String, String> {
    let pid = process.pid();
    let identity = identity(process)?;
    let tool = tool(process)?;
    // What lies beside the program was read after the identity: if the process became somebody else in between, the
    // program of the one is not run as the other.
    if self::identity(process)? != identity {
        return Err(format!("process {pid} became another program or user: try again"));
    }
    let mut command = Command::new(&tool);
    command.args([&pid.to_string(), "VM.native_memory", detail]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    identity.dress(&mut command);
    let mut child = command.spawn().map_err(|error| {
        let tool = tool.display();
        if error.raw_os_error() == Some(libc::EPERM) {
            return format!(
                "not permitted to run {tool} as user {}, whose process {pid} is: become that user or root; --nmt=FILE reads what jcmd printed elsewhere",
                identity.uid
            );
        }
        format!("cannot run {tool} as user {}: {error} (--nmt=FILE reads what jcmd printed elsewhere)", identity.uid)
    })?;
    // Its output is larger than a pipe holds, so it is read while it runs.
    let (output, message) =
        (child.stdout.take().and_then(read_aside), child.stderr.take().and_then(read_aside));
    let begun = Instant::now();
    let left = || LIMIT.saturating_sub(begun.elapsed());
    let status = loop {
        match child.try_wait() {
            Ok(None) if !left().is_zero() => std::thread::sleep(Duration::from_millis(20)),
            Ok(status) => break status,
            Err(_) => break None,
        }
    };
    // What it left behind could hold the pipe for ever.
    let text = |bytes: Option<Receiver<Vec<u8>>>| {
        let bytes = bytes?.recv_timeout(left()).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let answer = status.and_then(|status| Some((status, text(output)?, text(message)?)));
    let Some((status, text, message)) = answer else {
        if status.is_none() {
            // The whole session, before its number can be another's.
            let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
            let _ = child.wait();
        }
        return Err(format!("jcmd got no answer from process {pid} in {} s", LIMIT.as_secs()));
    };
    if status.success() {
        return Ok(text);
    }
    let line =
        message.lines().chain(text.lines()).find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    Err(format!("jcmd {pid} VM.native_memory failed: {}", harmless(line)))
}

/// Reads a pipe to its end in a thread of its own; none where there can be none.
fn read_aside(pipe: impl Read + Send + 'static) -> Option<Receiver<Vec<u8>>> {
    let (send, receive) = channel();
    let read = move || {
        let mut bytes = Vec::new();
        let _ = pipe.take(MOST_BYTES).read_to_end(&mut bytes);
        let _ = send.send(bytes);
    };
    std::thread::Builder::new().spawn(read).ok().map(|_| receive)
}

/// A line of somebody else's, short and without what a terminal would act upon.
fn harmless(line: &str) -> String {
    line.chars().take(LONGEST_REASON).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// Whom `jcmd` runs as.
fn identity(process: &Process) -> Result<Identity, String> {
    let pid = process.pid();
    Identity::of(process).map_err(|error| error.to_string())?.ok_or_else(|| {
        format!(
            "process {pid} has several users or groups at once (setuid), so jcmd is not run for it; --nmt=FILE reads what jcmd printed elsewhere"
        )
    })
}

/// The one beside the program that runs, which speaks its language; else the first in our `PATH`.
fn tool(process: &Process) -> Result<PathBuf, String> {
    let beside = process.link("exe").ok().and_then(|program| Some(program.parent()?.join("jcmd")));
    if let Some(path) = beside.filter(|path| path.is_file()) {
        return Ok(path);
    }
    // It runs elsewhere, where a relative path would lead to another file.
    let found = program::find(OsStr::new("jcmd"));
    found.ok().filter(|path| path.is_absolute()).ok_or_else(|| {
        "no jcmd beside the program or in PATH: it comes with a JDK; --nmt=FILE reads what it printed elsewhere".to_owned()
    })
}

/// Refuses a process in a container: its files, its users and the socket by which it is asked are not ours.
fn check_namespaces(process: &Process) -> Result<(), String> {
    for namespace in ["ns/mnt", "ns/user"] {
        let own = std::fs::read_link(format!("/proc/self/{namespace}")).ok();
        if own.is_none() || own != Some(process.link(namespace).map_err(|error| error.to_string())?) {
            let number = status::innermost_number(&process.text("status").unwrap_or_default());
            return Err(format!(
                "process {} has other files or users than we (a container), so jcmd is not run from here: run `jcmd {} VM.native_memory detail` in there and give what it prints as --nmt=FILE",
                process.pid(),
                number.map_or("PID".to_owned(), |number| number.to_string())
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Child;

    #[test]
    fn a_process_that_is_no_virtual_machine_is_not_asked() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
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

    /// A shell that looks like a virtual machine to us, as user and group 65534, with a `jcmd` of its own beside it.
    fn pretender(name: &str, is_apart: bool) -> Option<(Child, PathBuf)> {
        let directory = std::env::temp_dir().join(format!("faultless-jcmd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let (draft, path) = (directory.join("draft"), directory.join(name));
            std::fs::write(&draft, bytes).unwrap();
            // A child that another test forks meanwhile holds the draft open to be written, and it could not be run.
            assert!(Command::new("cp").args([&draft, &path]).status().unwrap().success());
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = maps
            .lines()
            .find_map(|line| line.split(' ').next_back().filter(|name| name.contains("/libc.so")));
        let library = library.map(std::fs::read).and_then(Result::ok);
        write("java", &std::fs::read("/bin/sh").unwrap());
        write("jcmd", b"#!/bin/sh\nid -u; id -G; pwd; env; ls -l /proc/$$/fd; grep NoNew /proc/$$/status\n");
        write("libjvm.so", &library?);
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(directory.join("java"));
        command
            .args(["-c", "trap : QUIT; echo ready; read line"])
            .env("LD_PRELOAD", directory.join("libjvm.so"));
        let become_another = move || {
            // SAFETY: system calls on numbers.
            let is_done = unsafe {
                // Where it is ignored from the start, as in jobs in the background, a shell cannot catch it.
                libc::signal(libc::SIGQUIT, libc::SIG_DFL);
                (!is_apart || libc::unshare(libc::CLONE_NEWNS) == 0)
                    && libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(65534) == 0
                    && libc::setuid(65534) == 0
            };
            if is_done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: it makes system calls only.
        unsafe { command.pre_exec(become_another) };
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = child else {
            let _ = std::fs::remove_dir_all(&directory);
            return None;
        };
        let mut ready = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Some((child, directory))
    }

    fn ended((mut child, directory): (Child, PathBuf)) {
        drop(child.stdin.take());
        child.wait().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn the_program_beside_a_process_runs_as_its_user_and_gets_nothing_of_ours() {
        let Some(pretender) = pretender("user", false) else {
            faultless_skipped::skipped(
                "no process of another user: the tests are not root's, or have no libc.so",
            );
            return;
        };
        let secret = std::fs::File::open("/etc/passwd").unwrap();
        // As a shell hands descriptors to us.
        nix::fcntl::fcntl(&secret, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        let process = Process::open(i32::try_from(pretender.0.id()).unwrap()).unwrap();
        let answer = native_memory(&process);
        ended(pretender);
        let answer = answer.unwrap();
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines[..3], ["65534", "65534", "/"], "{answer}");
        assert!(!answer.contains("CARGO") && !answer.contains("/etc/passwd"), "{answer}");
        assert!(answer.ends_with("NoNewPrivs:\t1\n"), "{answer}");
    }

    #[test]
    fn the_program_beside_a_process_in_a_container_is_not_run() {
        let Some(pretender) = pretender("container", true) else {
            faultless_skipped::skipped("no process of another mount namespace: the tests are not root's");
            return;
        };
        let process = Process::open(i32::try_from(pretender.0.id()).unwrap()).unwrap();
        let answer = native_memory(&process);
        ended(pretender);
        let line = answer.unwrap_err();
        assert!(line.contains("a container") && line.contains("--nmt=FILE"), "{line}");
    }

    #[test]
    fn who_is_stopped_is_not_asked() {
        let Some(pretender) = pretender("stopped", false) else {
            faultless_skipped::skipped("no process of another user: the tests are not root's");
            return;
        };
        let pid = Pid::from_raw(i32::try_from(pretender.0.id()).unwrap());
        let process = Process::open(pid.as_raw()).unwrap();
        nix::sys::signal::kill(pid, Signal::SIGSTOP).unwrap();
        while halt::of(&process).is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let answer = native_memory(&process);
        nix::sys::signal::kill(pid, Signal::SIGCONT).unwrap();
        ended(pretender);
        let line = answer.unwrap_err();
        assert!(line.contains("is stopped (state T") && line.contains("--nmt=FILE"), "{line}");
    }

    #[test]
    fn a_reason_is_one_line_that_no_terminal_acts_upon() {
        assert_eq!(harmless("a\x1b]0;b\u{9b}"), "a?]0;b?");
        assert_eq!(harmless(&"x".repeat(1000)).len(), LONGEST_REASON);
    }
}
