//! What a command looks at: a process that runs already.

use std::os::unix::fs::FileExt;
use std::sync::Once;

use faultless_probe::halt::{self, Halt};
use faultless_probe::proc_view::{self, Obstacle};
use faultless_probe::process::{Process, ProcessError};
use faultless_probe::process_list;
use faultless_records::elf;
use faultless_records::mappings::{Mapping, MappingsError};
use faultless_records::quantity::{mebibytes, several};
use faultless_records::status;

use crate::failure::Failure;

/// What stands behind `--pid`; what no process can have is refused later.
///
/// # Errors
/// One line that says what was expected.
pub fn number(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| match text.contains(',') {
        true => {
            "expected the number of one process, as pidof -s NAME tells it (watch and export take several)"
                .into()
        }
        false => "expected the number of a process, as pidof NAME tells it".into(),
    })
}

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

/// What a process that was looked at for a while is called: by both of its names where it has become another program meanwhile.
#[must_use]
pub fn names(process: &Process) -> String {
    let (pid, before, now) = (process.pid(), process.name(), process.name_now());
    if now == before {
        format!("process {pid} ({before})")
    } else {
        format!("process {pid} ({before}, then {now})")
    }
}

/// What a process has mapped, as `maps` or `smaps` tells it.
///
/// # Errors
/// [`Failure`] when it has ended, or the file cannot be read.
pub fn mappings(process: &Process, file: &str) -> Result<Vec<Mapping>, Failure> {
    process.mappings(file).map_err(Failure::of_process)?.map_err(|error| match error {
        _ if !process.is_alive() => Failure::of_process(ProcessError::Ended(process.pid())),
        MappingsError::Empty => keeps_becoming(process),
        error => Failure::Failed(format!("cannot read {file} of process {}: {error}", process.pid())),
    })
}

fn keeps_becoming(process: &Process) -> Failure {
    Failure::Failed(format!("process {} keeps becoming another program while it is read", process.pid()))
}

/// How often a process is looked at again that became another program meanwhile.
const TRIES: usize = 3;

/// What a look at a process shows that is one program meanwhile, looked at again where it became another.
///
/// # Errors
/// Those of the look; [`Failure::Failed`] where it becomes another program each time, or has ended.
pub fn one_program<Seen>(
    process: &Process,
    mut look: impl FnMut() -> Result<Seen, Failure>,
) -> Result<Seen, Failure> {
    // Where its program, loader and stack lie, drawn anew by each exec; what it maps and unmaps changes nothing here.
    let program = || (process.link("exe").ok(), process.read("auxv").ok());
    for _ in 0..TRIES {
        let before = program();
        let seen = look();
        if program() == before {
            return seen;
        }
        // One that has ended has no program either.
        if !process.is_alive() {
            return Err(Failure::of_process(ProcessError::Ended(process.pid())));
        }
    }
    Err(keeps_becoming(process))
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

/// Children of a process that are named.
const NAMED_CHILDREN: usize = 8;

/// What a look at a process that begins now does not see: what it does while it is stopped, which is said at once, and what the
/// processes do that it had started before.
#[must_use]
pub fn unseen(process: &Process) -> Vec<String> {
    let family = process_list::family(process.pid());
    say_if_stopped(process).into_iter().chain(children(&family[1..])).collect()
}

fn children(pids: &[i32]) -> Option<String> {
    let (last, others) = pids.split_last()?;
    let named: Vec<String> = pids.iter().take(NAMED_CHILDREN).map(i32::to_string).collect();
    let rest = if pids.len() > NAMED_CHILDREN { ", …" } else { "" };
    let children = if others.is_empty() {
        format!("process {last}, which it had started before: --pid {last} looks at it")
    } else {
        let (number, named) = (several(pids.len() as u64, "process"), named.join(", "));
        format!("{number} that it had started before ({named}{rest}): --pid looks at one of them")
    };
    Some(format!("anything of {children}"))
}

/// Which of the processes that it started has most resident, where that is at least twice what it has itself: who looks at a launcher
/// mostly wants to see what that started.
#[must_use]
pub fn larger_child(process: &Process) -> Option<String> {
    let resident = |process: &Process| status::bytes_of_field(&process.text("status").ok()?, "VmRSS");
    let own_bytes = resident(process)?;
    let children = process_list::family(process.pid()).into_iter().skip(1);
    let sizes = children.filter_map(|pid| {
        let child = Process::open(pid).ok()?;
        Some((resident(&child)?, child))
    });
    let (bytes, child) = sizes.max_by_key(|(bytes, _)| *bytes)?;
    (bytes >= 2 * own_bytes).then(|| {
        let (pid, name) = (child.pid(), child.name());
        format!(
            "process {pid} ({name}), which it started, has more resident, {} MiB: --pid {pid} looks at it",
            mebibytes(bytes)
        )
    })
}

/// Says of a process that is stopped that there is nothing to wait for, once: doctor looks at it with several instruments. The same as
/// a remark.
fn say_if_stopped(process: &Process) -> Option<String> {
    static SAID: Once = Once::new();
    let (says, remark) = stopped(process.pid(), process.name(), halt::of(process)?);
    SAID.call_once(|| crate::say(&says));
    Some(remark)
}

fn stopped(pid: i32, name: &str, halt: Halt) -> (String, String) {
    let (tracer, held, threads) = match halt {
        Halt::JobControl => {
            return (
                format!(
                    "process {pid} ({name}) is stopped (state T) and does nothing until it goes on: kill -CONT {pid}"
                ),
                format!(
                    "anything while it was stopped, as it was when we began (state T; kill -CONT {pid} lets it go on)"
                ),
            );
        }
        Halt::Tracer { tracer, held, threads } => (tracer, held, threads),
    };
    let tracer = match tracer {
        Some((tracer, name)) => format!("process {tracer} ({name})"),
        None => "outside of this container".to_owned(),
    };
    if held == threads {
        (
            format!(
                "process {pid} ({name}) is held by its tracer, {tracer}, and does nothing until that lets it go on"
            ),
            format!("anything while its tracer, {tracer}, held it, as when we began (state t)"),
        )
    } else {
        (
            format!(
                "{held} of the {threads} threads of process {pid} ({name}) are held by their tracer, {tracer}, and do nothing until that lets them go on"
            ),
            format!(
                "anything of the {held} of {threads} threads that their tracer, {tracer}, held when we began (state t)"
            ),
        )
    }
}

/// Why a command's events may be missing altogether; `begin_new_exec` in the kernel's fs/exec.c.
pub const CLOSED_TO_EVENTS: &str = "the kernel tells nothing of a program that changes its user when it is started (set-user-ID) or may not be read by who starts it: start it as the user that it changes to, or a copy that may be read";

/// Whether it runs a 32-bit program, as far as its file can be read.
#[must_use]
pub fn is_32_bit(process: &Process) -> bool {
    let Ok(file) = process.open_file("exe") else { return false };
    let executable = elf::executable(&|offset, buffer| file.read_exact_at(buffer, offset).is_ok());
    executable.is_ok_and(|executable| !executable.is_64_bit)
}

impl Failure {
    /// For a process that cannot be seen.
    #[must_use]
    pub fn of_process(error: ProcessError) -> Self {
        Self::Failed(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_becomes_another_program_has_both_names() {
        let mut child =
            Command::new("sh").args(["-c", "read go; exec sleep 100"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id().cast_signed();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut opened = Process::open(pid).unwrap();
        while opened.name() != "sh" && Instant::now() < deadline {
            opened = Process::open(pid).unwrap();
        }
        assert_eq!(names(&opened), format!("process {pid} (sh)"));
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        while opened.name_now() != "sleep" && Instant::now() < deadline {}
        assert_eq!(names(&opened), format!("process {pid} (sh, then sleep)"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn children_from_before_are_named_while_they_are_few() {
        assert_eq!(children(&[]), None);
        let one = "anything of process 8, which it had started before: --pid 8 looks at it";
        assert_eq!(children(&[8]).as_deref(), Some(one));
        let many = children(&(10..30).collect::<Vec<_>>()).unwrap();
        let expected =
            "anything of 20 processes that it had started before (10, 11, 12, 13, 14, 15, 16, 17, …): ";
        assert!(many.starts_with(expected), "{many}");
    }

    #[test]
    fn who_lets_a_stopped_process_go_on_is_named() {
        let (says, remark) = stopped(7, "server", Halt::JobControl);
        assert!(says.ends_with("kill -CONT 7") && remark.contains("state T"), "{says} {remark}");
        let tracer = Some((9, "gdb".to_owned()));
        let (says, remark) =
            stopped(7, "server", Halt::Tracer { tracer: tracer.clone(), held: 3, threads: 3 });
        assert!(says.starts_with("process 7 (server) is held by its tracer, process 9 (gdb)"), "{says}");
        assert!(remark.contains("its tracer, process 9 (gdb), held it"), "{remark}");
        let (says, remark) = stopped(7, "server", Halt::Tracer { tracer, held: 1, threads: 3 });
        assert!(says.starts_with("1 of the 3 threads of process 7 (server)"), "{says}");
        assert!(remark.contains("of the 1 of 3 threads"), "{remark}");
        let (says, _) = stopped(7, "server", Halt::Tracer { tracer: None, held: 3, threads: 3 });
        assert!(says.contains("its tracer, outside of this container"), "{says}");
    }
}
