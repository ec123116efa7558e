//! Why a process is closed to us, and what would open it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use faultless_records::permission::{NOBODY_MAY_ATTACH, Rights, outside_of_container};
use faultless_records::status;

use crate::permissions;

/// What of a process is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its mappings, pages and events.
    Sight,
    /// To stop it: Yama restricts this and reading its memory alone.
    Attachment,
    /// Its memory, by a file that only its owner may open, whoever may attach; `tgid_base_stuff` in the kernel's fs/proc/base.c.
    Memory,
}

/// What decides the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Circumstances {
    /// Ours.
    rights: Rights,
    /// Its user is ours.
    is_own: bool,
    is_dumpable: bool,
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
            is_own: user == Some(rights.user),
            // The files of a process that is not dumpable belong to root, whoever its user is; proc(5). Its directory does not.
            is_dumpable: user.is_none() || owner.is_none() || user == owner,
            rights,
        }
    }

    fn cure(&self, access: Access, capability: &str) -> String {
        let scope = self.rights.ptrace_scope.unwrap_or(0);
        let of_another = match access {
            Access::Memory => format!("{capability} and CAP_DAC_READ_SEARCH"),
            Access::Sight | Access::Attachment => capability.to_owned(),
        };
        if access != Access::Sight && self.rights.may_nobody_attach() {
            format!(": {NOBODY_MAY_ATTACH}")
        } else if self.rights.user == 0 {
            let name = capability.trim_start_matches("CAP_");
            format!(" even as root: do so {}", outside_of_container(name))
        } else if !self.is_dumpable {
            format!(
                ": it is not dumpable (a setuid program, a file that its user may not read, or by its own PR_SET_DUMPABLE), so that not even its user may: become root (sudo), or get {of_another}"
            )
        } else if access != Access::Sight && self.is_own && scope > 0 {
            format!(
                ": kernel.yama.ptrace_scope is {scope}, so that its user alone may not: become root (sudo), get {capability}, or lower that to 0 (sudo sysctl kernel.yama.ptrace_scope=0)"
            )
        } else if self.is_own {
            // Of another group, with capabilities, in a user namespace of its own.
            format!(": its user alone may not: become root (sudo), or get {capability}")
        } else {
            format!(": become its user or root (sudo), or get {of_another}")
        }
    }
}

/// The same of probes at functions, which no process of its own is needed for.
pub(crate) fn cure_of_probes() -> String {
    cure_of_probes_for(&permissions::rights())
}

fn cure_of_probes_for(rights: &Rights) -> String {
    match rights.user {
        0 => format!(" even as root: do so {}", outside_of_container("SYS_ADMIN")),
        _ => ": become root (sudo), or get CAP_SYS_ADMIN (older kernels are content with CAP_PERFMON)".into(),
    }
}

/// What would help, to be put behind what was not permitted.
pub(crate) fn cure(pid: i32, access: Access, capability: &str) -> String {
    Circumstances::of(pid).cure(access, capability)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anothers(user: u32, scope: i64) -> Circumstances {
        let rights = Rights { user, ptrace_scope: Some(scope), ..Rights::default() };
        Circumstances { rights, is_own: false, is_dumpable: true }
    }

    fn own(scope: i64) -> Circumstances {
        Circumstances { is_own: true, ..anothers(1000, scope) }
    }

    #[test]
    fn each_cause_has_its_cure() {
        let undumpable = Circumstances { is_dumpable: false, ..own(1) };
        let root = Circumstances { is_dumpable: false, ..anothers(0, 1) };
        for (circumstances, access, says) in [
            (anothers(1000, 0), Access::Attachment, ": become its user or root"),
            (anothers(1000, 1), Access::Attachment, ": become its user or root"),
            (own(1), Access::Sight, ": its user alone may not"),
            (own(1), Access::Attachment, "ptrace_scope is 1, so that its user alone may not"),
            (undumpable.clone(), Access::Sight, "not dumpable"),
            (undumpable, Access::Attachment, "not dumpable"),
            (root, Access::Attachment, " even as root: do so outside of this container"),
        ] {
            let cure = circumstances.cure(access, "CAP_SYS_PTRACE");
            assert!(cure.contains(says) && cure.contains("SYS_PTRACE"), "{circumstances:?}: {cure}");
            assert_eq!(cure.lines().count(), 1);
        }
    }

    #[test]
    fn root_of_a_container_is_not_told_to_become_root() {
        let of = |user| cure_of_probes_for(&Rights { user, ..Rights::default() });
        assert!(of(1000).contains("become root") && of(1000).contains("CAP_SYS_ADMIN"));
        assert!(of(0).contains("outside of this container") && !of(0).contains("become root"));
    }

    #[test]
    fn who_is_not_its_owner_needs_a_right_over_files_for_its_memory_too() {
        let undumpable = Circumstances { is_dumpable: false, ..own(0) };
        for (circumstances, is_of_another) in
            [(anothers(1000, 1), true), (undumpable, true), (own(1), false), (own(0), false)]
        {
            let wants = |access| circumstances.cure(access, "CAP_SYS_PTRACE").contains("CAP_DAC_READ_SEARCH");
            assert_eq!(wants(Access::Memory), is_of_another, "{circumstances:?}");
            assert!(!wants(Access::Sight) && !wants(Access::Attachment), "{circumstances:?}");
        }
    }

    #[test]
    fn where_nobody_may_attach_nobody_is_sent_to_root() {
        for locked in [anothers(1000, 3), own(3), anothers(0, 3)] {
            let cure = locked.cure(Access::Attachment, "CAP_SYS_PTRACE");
            assert!(cure.contains("until the next boot") && !cure.contains("SYS_PTRACE"), "{cure}");
            let cure = locked.cure(Access::Sight, "CAP_SYS_PTRACE");
            assert!(cure.contains("SYS_PTRACE"), "Yama has no say in it: {cure}");
        }
    }

    #[test]
    fn this_process_is_its_users_and_dumpable() {
        let own = Circumstances::of(std::process::id().cast_signed());
        assert!(own.is_own && own.is_dumpable, "{own:?}");
    }
}
