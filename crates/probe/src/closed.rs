//! Why a process is closed to us, and what would open it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use faultless_records::permission::outside_of_container;
use faultless_records::status;

use crate::permissions;

/// What of a process is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its mappings, pages and events.
    Sight,
    /// Its memory, or to stop it: Yama restricts this alone.
    Attachment,
}

/// What decides the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Circumstances {
    is_root: bool,
    /// Its user is ours.
    is_own: bool,
    is_dumpable: bool,
    /// `kernel.yama.ptrace_scope`; 0 where the kernel has no Yama.
    ptrace_scope: i64,
}

impl Circumstances {
    fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // The second is the effective one; proc_pid_status(5).
        let user = status::field(&status, "Uid")
            .and_then(|users| users.split_ascii_whitespace().nth(1)?.parse().ok());
        let owner = fs::metadata(format!("/proc/{pid}/stat")).ok().map(|stat| stat.uid());
        let rights = permissions::rights();
        Self {
            is_root: rights.user == 0,
            is_own: user == Some(rights.user),
            // The files of a process that is not dumpable belong to root, whoever its user is; proc(5). Its directory does not.
            is_dumpable: user.is_none() || owner.is_none() || user == owner,
            ptrace_scope: rights.ptrace_scope.unwrap_or(0),
        }
    }

    fn cure(self, access: Access, capability: &str) -> String {
        let scope = self.ptrace_scope;
        if self.is_root {
            let name = capability.trim_start_matches("CAP_");
            format!(" even as root: do so {}", outside_of_container(name))
        } else if !self.is_dumpable {
            format!(
                ": it is not dumpable (a setuid program, or by its own PR_SET_DUMPABLE), so that not even its user may: become root (sudo), or get {capability}"
            )
        } else if access == Access::Attachment && self.is_own && scope > 0 {
            format!(
                ": kernel.yama.ptrace_scope is {scope}, so that its user alone may not: become root (sudo), get {capability}, or lower that to 0 (sudo sysctl kernel.yama.ptrace_scope=0)"
            )
        } else if self.is_own {
            // Of another group, with capabilities, in a user namespace of its own.
            format!(": its user alone may not: become root (sudo), or get {capability}")
        } else {
            format!(": become its user or root (sudo), or get {capability}")
        }
    }
}

/// What would help, to be put behind what was not permitted.
pub(crate) fn cure(pid: i32, access: Access, capability: &str) -> String {
    Circumstances::of(pid).cure(access, capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANOTHERS: Circumstances =
        Circumstances { is_root: false, is_own: false, is_dumpable: true, ptrace_scope: 0 };

    #[test]
    fn each_cause_has_its_cure() {
        let own = Circumstances { is_own: true, ..ANOTHERS };
        let scoped = Circumstances { ptrace_scope: 1, ..own };
        let undumpable = Circumstances { is_dumpable: false, ..scoped };
        let root = Circumstances { is_root: true, ..undumpable };
        for (circumstances, access, says) in [
            (ANOTHERS, Access::Attachment, ": become its user or root"),
            (Circumstances { ptrace_scope: 1, ..ANOTHERS }, Access::Attachment, ": become its user or root"),
            (scoped, Access::Sight, ": its user alone may not"),
            (scoped, Access::Attachment, "ptrace_scope is 1, so that its user alone may not"),
            (undumpable, Access::Sight, "not dumpable"),
            (undumpable, Access::Attachment, "not dumpable"),
            (root, Access::Attachment, " even as root: do so outside of this container"),
        ] {
            let cure = circumstances.cure(access, "CAP_SYS_PTRACE");
            assert!(cure.contains(says) && cure.contains("SYS_PTRACE"), "{circumstances:?}: {cure}");
            assert_eq!(cure.lines().count(), 1);
        }
    }

    #[test]
    fn this_process_is_its_users_and_dumpable() {
        let own = Circumstances::of(std::process::id().cast_signed());
        assert!(own.is_own && own.is_dumpable, "{own:?}");
    }
}
