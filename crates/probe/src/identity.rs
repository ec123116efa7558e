//! Who a process is to the kernel, and commands that become the same before they begin.
//!
//! What a process's owner may have put in our way is run as that owner, never as us.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use faultless_records::status;
use nix::libc;

use crate::file_limit;
use crate::process::{Process, ProcessError};

/// The highest number of a capability that a set of 64 bits can hold.
const LAST_CAPABILITY: u32 = 63;

/// User, groups and capabilities of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
    /// What a program that it starts may have at most, if it is root's.
    capabilities: u64,
}

impl Identity {
    /// The one of a process; none where it has several users or groups at once, as setuid programs do.
    pub(crate) fn of(process: &Process) -> Result<Option<Self>, ProcessError> {
        Ok(Self::of_status(&process.text("status")?))
    }

    fn of_status(text: &str) -> Option<Self> {
        let groups: Option<Vec<u32>> = numbers(text, "Groups").collect();
        Some(Self {
            uid: only(text, "Uid")?,
            gid: only(text, "Gid")?,
            groups: groups?,
            capabilities: status::bits_of_field(text, "CapPrm")?,
        })
    }

    /// Whether this process has the same user and groups.
    fn is_own(&self) -> bool {
        let own = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::of_status(&own).is_some_and(|own| {
            let groups = |identity: &Self| {
                let mut groups = identity.groups.clone();
                groups.sort_unstable();
                groups
            };
            // A user of its own right is no one else for being in fewer groups, and could not change that.
            let has_groups = own.uid != 0 || groups(&own) == groups(self);
            own.uid == self.uid && own.gid == self.gid && has_groups
        })
    }

    /// Makes a command begin as this, in a session and directory of its own (without our terminal, into which it could
    /// type), with nothing of our environment, our descriptors and our rights. It ends with the calling thread.
    ///
    /// Starting it fails with `EPERM` where the kernel does not let us become this.
    pub(crate) fn dress(&self, command: &mut Command) {
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
        let (identity, changes) = (self.clone(), !self.is_own());
        let descriptors = file_limit::descriptors();
        // SAFETY: `take_on` makes system calls on numbers and memory prepared here, and allocates nothing.
        unsafe { command.pre_exec(move || take_on(&identity, changes, &descriptors)) };
    }
}

/// The child's side, between fork and exec.
fn take_on(identity: &Identity, changes: bool, descriptors: &[i32]) -> io::Result<()> {
    let refused = || io::Error::from_raw_os_error(libc::EPERM);
    // SAFETY: each is an async-signal-safe system call; `groups` holds as many numbers as are named.
    unsafe {
        if libc::setsid() < 0 {
            return Err(refused());
        }
        for capability in (0..=LAST_CAPABILITY).filter(|bit| identity.capabilities & (1 << bit) == 0) {
            let has = libc::prctl(libc::PR_CAPBSET_READ, capability, 0, 0, 0) == 1;
            // Only root's programs get their capabilities from this set.
            if has && libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 && identity.uid == 0 {
                return Err(refused());
            }
        }
        let groups = &identity.groups;
        if changes
            && (libc::setgroups(groups.len(), groups.as_ptr()) != 0
                || libc::setresgid(identity.gid, identity.gid, identity.gid) != 0
                || libc::setresuid(identity.uid, identity.uid, identity.uid) != 0)
        {
            return Err(refused());
        }
        // Kernels before 4.3 have no such set.
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(refused());
        }
        // After the change of user, which would undo it.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        for descriptor in descriptors.iter().filter(|number| **number > libc::STDERR_FILENO) {
            // Those that we were started with are open to whom we start, too.
            libc::fcntl(*descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
    Ok(())
}

/// The numbers in a field of `/proc/PID/status`; none at all where it is missing.
fn numbers<'text>(text: &'text str, name: &str) -> impl Iterator<Item = Option<u32>> + 'text {
    status::field(text, name).unwrap_or("-").split_ascii_whitespace().map(|word| word.parse().ok())
}

/// The number that all four of a field are: real, effective, saved, of the file system.
fn only(text: &str, name: &str) -> Option<u32> {
    let mut all = numbers(text, name);
    let first = all.next()??;
    all.all(|number| number == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tjava\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t4 24 100 \nCapInh:\t0000000000000000\nCapPrm:\t0000000000000400\n";

    #[test]
    fn user_groups_and_capabilities_are_read() {
        let read = Identity::of_status(STATUS).unwrap();
        assert_eq!(read, Identity { uid: 1000, gid: 100, groups: vec![4, 24, 100], capabilities: 0x400 });
        assert_eq!(Identity::of_status(&STATUS.replace("4 24 100 ", "")).unwrap().groups, []);
    }

    #[test]
    fn a_process_with_several_users_or_groups_and_damaged_texts_have_no_identity() {
        for (from, to) in [
            ("Uid:\t1000\t1000", "Uid:\t1000\t0"),
            ("1000\nGid", "0\nGid"),
            ("Gid:\t100", "Gid:\t0"),
            ("Groups:", "Gr:"),
            ("4 24", "4 x"),
            ("CapPrm", "Cap"),
            ("Uid:\t1000\t1000\t1000\t1000", "Uid:"),
        ] {
            assert_eq!(Identity::of_status(&STATUS.replace(from, to)), None, "{to}");
        }
    }

    #[test]
    fn a_command_of_our_own_identity_begins_without_our_environment_terminal_and_new_rights() {
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let Some(identity) = Identity::of(&own).unwrap() else {
            faultless_skipped::skipped("the tests run with several users at once");
            return;
        };
        let script = "env | grep -c CARGO; pwd; grep NoNewPrivs /proc/self/status; cut -d' ' -f6,7 /proc/$$/stat; echo $$";
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("CARGO_SECRET", "x");
        identity.dress(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        let [secrets, directory, rights, session, pid] = lines[..] else { panic!("{text}") };
        assert_eq!((secrets, directory, rights), ("0", "/", "NoNewPrivs:\t1"));
        assert_eq!(session, format!("{pid} 0"), "a session without a terminal");
    }
}
