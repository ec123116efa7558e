use super::*;
use std::process::{Command, Stdio};

/// Looks at nothing, takes so long for it, and counts how often.
struct Nobody(Duration, usize);

impl Observer for Nobody {
    fn take(&mut self, _: MemoryEvent) {}
    fn chain(&mut self, _: &PerfRecord, _: &Sample) -> Option<u32> {
        None
    }
    fn record(&mut self, _: &PerfRecord) {}
    fn code_changed(&mut self, _: i32) {}
    fn tick(&mut self) {
        std::thread::sleep(self.0);
        self.1 += 1;
    }
}

#[test]
fn a_process_is_followed_although_its_first_thread_has_just_ended() {
    let (process, pipe) = crate::process::tests::leaderless();
    let living = process.threads().unwrap()[0];
    let mut family = Family::new(process.pid(), false, false);
    let ended = family.attach_to(&process, &[process.pid()]);
    let attached = family.attach_to(&process, &[process.pid(), living]);
    kill(Pid::from_raw(process.pid()), Signal::SIGKILL).unwrap();
    drop(pipe);
    for tid in [living, process.pid()] {
        // SAFETY: a null status is not written. Who is not traced is no child, and not waited for.
        while unsafe { libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) } == tid {}
    }
    assert!(ended.is_ok_and(|found| !found), "it may have other threads");
    match attached {
        Ok(found) => assert!(found && family.threads.len() == 1),
        Err(error) => faultless_skipped::skipped(format!("nobody may trace here: {error}")),
    }
}

#[test]
fn a_child_of_which_nobody_tells_goes_on_and_is_followed() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().cast_signed();
    if seize(pid).is_err() {
        faultless_skipped::skipped("nobody may trace here");
        drop(child.stdin.take());
        child.wait().unwrap();
        return;
    }
    let mut status = 0;
    // SAFETY: the pointer is valid for writing during the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }, pid);
    let mut family = Family::new(0, true, true);
    family.take(pid, status, &mut Nobody(Duration::ZERO, 0));
    let stopped = Instant::now();
    family.adopt_orphans(stopped);
    let keeps = (family.early.len(), family.threads.len());
    family.adopt_orphans(stopped + 2 * TICK);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "it goes on");
    assert_eq!(keeps, (1, 0), "its parent may still tell of it");
    assert!(family.early.is_empty() && family.threads.get(&pid).is_some_and(|thread| thread.pid == pid));
}

#[test]
fn all_that_stand_are_let_go_at_once_although_each_look_takes_longer_than_a_tick() {
    const PROCESSES: usize = 20;
    let signals = Signals::hold().unwrap();
    let start = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let mut children: Vec<_> = std::iter::repeat_with(start).take(PROCESSES).collect();
    let mut family = Family::new(0, false, false);
    let seized = children.iter().try_for_each(|child| {
        let pid = child.id().cast_signed();
        seize(pid).map(|()| family.threads.extend([(pid, Thread { pid, call: None })]))
    });
    let mut observer = Nobody(TICK + TICK / 4, 0);
    let followed = seized.map(|()| {
        family.began = Some(Instant::now());
        family.follow(&signals, Some(TICK), &mut observer)
    });
    for child in &mut children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success(), "it goes on");
    }
    match followed {
        Ok(followed) => assert!(followed.is_ok() && family.threads.is_empty()),
        Err(error) => return faultless_skipped::skipped(format!("nobody may trace here: {error}")),
    }
    assert!(observer.1 < PROCESSES / 2, "one in each look: {}", observer.1);
}
