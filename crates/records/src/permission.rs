//! What was tried to find out what the present permissions allow, and what the kernel answered.

/// Where root may do what it may not here for want of this capability, or because a process is closed to containers.
#[must_use]
pub fn outside_of_container(capability: &str) -> String {
    format!(
        "outside of this container; or docker run --cap-add {capability} --security-opt seccomp=unconfined"
    )
}

/// Where [`Rights::may_nobody_attach`].
pub const NOBODY_MAY_ATTACH: &str =
    "nothing helps until the next boot: kernel.yama.ptrace_scope is 3 and cannot be lowered";

/// A way to see something of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// `smaps` and `smaps_rollup`: sizes of mappings.
    Sizes,
    /// `pagemap`: which pages have memory.
    Pages,
    /// `mem`: the bytes of its memory.
    Memory,
    /// The files that it maps, as it sees them: `map_files`, or below `root`.
    Files,
    /// ptrace(2) of a process that runs already.
    Attach,
    /// ptrace(2) of a command from its start.
    Trace,
    /// A seccomp filter that stops a command at some calls.
    Filter,
    /// Software events of programs.
    UserEvents,
    /// Software events inside the kernel, too.
    KernelEvents,
    /// Tracepoints at system calls.
    Tracepoints,
    /// Probes that the kernel sets at functions.
    Uprobes,
    /// The kernel's news of forks, execs and exits.
    ProcessConnector,
}

impl Mechanism {
    /// In JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.name_and_title().0
    }

    /// For people.
    #[must_use]
    pub fn title(self) -> &'static str {
        self.name_and_title().1
    }

    fn name_and_title(self) -> (&'static str, &'static str) {
        match self {
            Self::Sizes => ("smaps", "sizes of mappings (smaps)"),
            Self::Pages => ("pagemap", "pages (pagemap)"),
            Self::Memory => ("mem", "memory (mem)"),
            Self::Files => ("mapped-files", "mapped files"),
            Self::Attach => ("ptrace-attach", "ptrace, attaching"),
            Self::Trace => ("ptrace-command", "ptrace from the start"),
            Self::Filter => ("seccomp-filter", "seccomp filter"),
            Self::UserEvents => ("perf-user", "perf events, programs"),
            Self::KernelEvents => ("perf-kernel", "perf events, kernel"),
            Self::Tracepoints => ("tracepoints", "tracepoints"),
            Self::Uprobes => ("uprobes", "uprobes"),
            Self::ProcessConnector => ("process-connector", "process connector"),
        }
    }
}

/// Whom it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// A command that the tool starts.
    Command,
    /// A process of the same user that runs already and was not started by the tool.
    Own,
    /// A process of another user.
    Others,
    /// The process that was asked for.
    Given,
    /// The machine: the answer is the same for every process.
    Machine,
}

impl Subject {
    /// In JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Own => "own",
            Self::Others => "others",
            Self::Given => "given",
            Self::Machine => "machine",
        }
    }
}

/// What the kernel answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It works.
    Allowed,
    /// A matter of permission.
    Denied,
    /// This kernel or this place does not have it, whoever asks.
    Absent,
    /// Another tracer is there already.
    Taken,
    /// It failed for another reason.
    Failed,
}

impl Answer {
    /// In JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Absent => "absent",
            Self::Taken => "taken",
            Self::Failed => "failed",
        }
    }
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What.
    pub mechanism: Mechanism,
    /// On whom.
    pub subject: Subject,
    /// With which success.
    pub answer: Answer,
    /// What was done and what came of it, in one line.
    pub evidence: String,
}

/// What decides how the kernel answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Effective user.
    pub user: u32,
    /// CAP_SYS_PTRACE is in force.
    pub may_trace: bool,
    /// CAP_PERFMON or CAP_SYS_ADMIN is in force.
    pub may_observe: bool,
    /// A seccomp filter is in force.
    pub is_filtered: bool,
    /// `kernel.perf_event_paranoid`; none where the kernel has no performance events.
    pub paranoid: Option<i64>,
    /// `kernel.yama.ptrace_scope`; none where the kernel has no Yama.
    pub ptrace_scope: Option<i64>,
}

impl Rights {
    /// From `/proc/PID/status` and the two settings.
    #[must_use]
    pub fn parse(user: u32, status: &str, paranoid: Option<&str>, ptrace_scope: Option<&str>) -> Self {
        const SYS_PTRACE: u32 = 19;
        const SYS_ADMIN: u32 = 21;
        const PERFMON: u32 = 38;
        const FILTER: u64 = 2;
        let mask = crate::status::bits_of_field(status, "CapEff").unwrap_or(0);
        let has = |capability: u32| mask & (1 << capability) != 0;
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        Self {
            user,
            may_trace: has(SYS_PTRACE),
            may_observe: has(SYS_ADMIN) || has(PERFMON),
            is_filtered: crate::status::number_of_field(status, "Seccomp") == Some(FILTER),
            paranoid: number(paranoid),
            ptrace_scope: number(ptrace_scope),
        }
    }

    /// Whether Yama lets nobody attach to a process or read its memory any more, root neither. Source:
    /// Documentation/admin-guide/LSM/Yama.rst.
    #[must_use]
    pub fn may_nobody_attach(&self) -> bool {
        self.ptrace_scope.is_some_and(|scope| scope >= 3)
    }
}

/// All that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permissions {
    /// Of the tool.
    pub rights: Rights,
    /// Number and name of the process that was asked for.
    pub given: Option<(i32, String)>,
    /// Whether that process runs a 32-bit program.
    pub is_32_bit: bool,
    /// In the order in which it was tried.
    pub attempts: Vec<Attempt>,
}

impl Permissions {
    /// What was tried there; for what is the machine's, that.
    #[must_use]
    pub fn attempt(&self, mechanism: Mechanism, subject: Subject) -> Option<&Attempt> {
        let is_there = |attempt: &&Attempt| {
            attempt.mechanism == mechanism
                && (attempt.subject == subject || attempt.subject == Subject::Machine)
        };
        self.attempts.iter().find(is_there)
    }

    /// Whether it was tried there and works.
    #[must_use]
    pub fn allows(&self, mechanism: Mechanism, subject: Subject) -> bool {
        self.attempt(mechanism, subject).is_some_and(|attempt| attempt.answer == Answer::Allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rights_are_read_from_masks_and_settings() {
        let status = "Name:\tx\nCapEff:\t0000000000080000\nSeccomp:\t2\n";
        let rights = Rights::parse(7, status, Some("2\n"), Some("1\n"));
        assert!(rights.may_trace && !rights.may_observe && rights.is_filtered, "{rights:?}");
        assert_eq!((rights.user, rights.paranoid, rights.ptrace_scope), (7, Some(2), Some(1)));
        let rights = Rights::parse(0, "CapEff:\t0000004000000000\nSeccomp:\t0\n", Some("x"), None);
        assert!(!rights.may_trace && rights.may_observe && !rights.is_filtered, "{rights:?}");
        assert_eq!((rights.paranoid, rights.ptrace_scope), (None, None));
    }

    #[test]
    fn what_is_the_machines_is_so_for_every_subject() {
        let attempt =
            |mechanism, subject, answer| Attempt { mechanism, subject, answer, evidence: String::new() };
        let permissions = Permissions {
            attempts: vec![
                attempt(Mechanism::Uprobes, Subject::Machine, Answer::Allowed),
                attempt(Mechanism::Memory, Subject::Own, Answer::Allowed),
                attempt(Mechanism::Memory, Subject::Others, Answer::Denied),
            ],
            ..Permissions::default()
        };
        assert!(permissions.allows(Mechanism::Uprobes, Subject::Given));
        assert!(permissions.allows(Mechanism::Memory, Subject::Own));
        assert!(!permissions.allows(Mechanism::Memory, Subject::Others));
        assert!(!permissions.allows(Mechanism::Memory, Subject::Given));
    }

    proptest! {
        #[test]
        fn no_text_of_a_kernel_is_a_panic(status in ".{0,200}", setting in ".{0,20}") {
            let _ = Rights::parse(0, &status, Some(&setting), Some(&setting));
            let _ = Rights::parse(0, &format!("CapEff:{status}"), None, None);
        }
    }
}
