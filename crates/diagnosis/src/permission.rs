//! What the instruments can do with what the kernel permits, and what would permit more.

use faultless_records::permission::{
    Answer, Attempt, Mechanism, NOBODY_MAY_ATTACH, Permissions, Rights, Subject, outside_of_container,
};

/// An instrument, as the tables name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instrument {
    /// `faultless map`
    Map,
    /// `faultless heap`
    Heap,
    /// `faultless heap --stop`
    HeapStop,
    /// `faultless watch`
    Watch,
    /// `faultless faults`
    Faults,
    /// `faultless churn`
    Churn,
    /// `faultless churn --malloc`
    ChurnMalloc,
}

impl Instrument {
    /// All, in the order of the tables.
    pub const ALL: [Self; 7] =
        [Self::Map, Self::Heap, Self::HeapStop, Self::Watch, Self::Faults, Self::Churn, Self::ChurnMalloc];

    /// What is typed after `faultless`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Heap => "heap",
            Self::HeapStop => "heap --stop",
            Self::Watch => "watch",
            Self::Faults => "faults",
            Self::Churn => "churn",
            Self::ChurnMalloc => "churn --malloc",
        }
    }
}

/// How far an instrument gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It shows all that it can show.
    Whole,
    /// It works, and something is not to be seen.
    Part,
    /// It does not work.
    Nothing,
}

impl Outcome {
    /// In tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Whole => "yes",
            Self::Part => "partly",
            Self::Nothing => "no",
        }
    }
}

/// What becomes of an instrument on a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prospect {
    /// Which.
    pub instrument: Instrument,
    /// On whom.
    pub subject: Subject,
    /// How far it gets.
    pub outcome: Outcome,
    /// What it would work with; none when it does not work.
    pub by: Option<&'static str>,
    /// What is not to be seen.
    pub lacks: Vec<&'static str>,
    /// What would have to be permitted to see that.
    pub wants: Vec<Mechanism>,
}

/// The subjects that the prospects are about.
#[must_use]
pub fn subjects(permissions: &Permissions) -> &'static [Subject] {
    match permissions.given {
        Some(_) => &[Subject::Given],
        None => &[Subject::Command, Subject::Own, Subject::Others],
    }
}

/// One for each instrument and subject.
#[must_use]
pub fn prospects(permissions: &Permissions) -> Vec<Prospect> {
    let of = |instrument| {
        subjects(permissions).iter().map(move |subject| judge(permissions, instrument, *subject))
    };
    Instrument::ALL.into_iter().flat_map(of).collect()
}

fn judge(permissions: &Permissions, instrument: Instrument, subject: Subject) -> Prospect {
    let allows = |mechanism| permissions.allows(mechanism, subject);
    let is_command = subject == Subject::Command;
    let stop = if is_command { Mechanism::Trace } else { Mechanism::Attach };
    let mut case = Case { permissions, subject, lacks: Vec::new(), wants: Vec::new() };
    if permissions.is_32_bit && subject == Subject::Given {
        case.lacks.extend(lacking_of_32_bit(instrument));
    }
    let by = match instrument {
        Instrument::Map => {
            case.needs(&[Mechanism::Sizes]);
            let evidence = [Mechanism::Pages, Mechanism::Memory, Mechanism::Files];
            case.misses(&evidence, "evidence from contents: kinds are told by names and patterns only");
            "smaps"
        }
        Instrument::Heap => {
            case.needs(&[Mechanism::Memory, Mechanism::Pages]);
            case.misses(&[Mechanism::Files], "glibc's version, which is then told by the heap's form");
            if is_command {
                case.needs(&[Mechanism::Trace]);
            }
            "mem and pagemap"
        }
        Instrument::HeapStop => {
            case.needs(&[Mechanism::Memory, Mechanism::Pages, stop]);
            "mem, pagemap and ptrace"
        }
        Instrument::Watch => {
            case.misses(&[Mechanism::Sizes], "PSS and exact RSS (smaps_rollup)");
            case.misses(&[Mechanism::ProcessConnector], "processes that begin and end between two samples");
            "stat and statm"
        }
        Instrument::Faults => {
            case.needs(&[Mechanism::UserEvents]);
            if allows(Mechanism::UserEvents) {
                case.misses(
                    &[Mechanism::KernelEvents],
                    "the places of faults inside system calls; they are counted",
                );
            }
            "performance events"
        }
        Instrument::Churn => case.churn(),
        Instrument::ChurnMalloc if is_command => "a preloaded recorder, which needs no permission",
        Instrument::ChurnMalloc => {
            case.needs(&[Mechanism::Uprobes, Mechanism::UserEvents, Mechanism::Files]);
            "uprobes"
        }
    };
    case.close(instrument, by)
}

/// What an instrument cannot see of a 32-bit program, whatever is permitted.
fn lacking_of_32_bit(instrument: Instrument) -> Option<&'static str> {
    match instrument {
        Instrument::Map | Instrument::Watch => None,
        Instrument::Churn => {
            Some("its calls, since it is a 32-bit program; --by mmap-records sees what it maps")
        }
        Instrument::Heap | Instrument::HeapStop | Instrument::Faults | Instrument::ChurnMalloc => {
            Some(ALL_OF_32_BIT)
        }
    }
}

/// A judgement on its way.
struct Case<'found> {
    permissions: &'found Permissions,
    subject: Subject,
    lacks: Vec<&'static str>,
    wants: Vec<Mechanism>,
}

/// Among what is lacking: nothing works.
const ALL: &str = "everything";
const ALL_OF_32_BIT: &str = "everything, since it is a 32-bit program";

impl Case<'_> {
    /// Calls that change mappings: by the best mechanism that is allowed.
    fn churn(&mut self) -> &'static str {
        let (permissions, subject) = (self.permissions, self.subject);
        let allows = |mechanism| permissions.allows(mechanism, subject);
        if allows(Mechanism::Tracepoints) && allows(Mechanism::UserEvents) {
            return "tracepoints";
        }
        if subject == Subject::Command {
            self.wants.push(Mechanism::Tracepoints);
            if allows(Mechanism::Filter) {
                return "a seccomp filter, which stops the command at these calls";
            }
            self.needs(&[Mechanism::Trace]);
            return "ptrace, which stops the command at every call";
        }
        self.needs_one(&[Mechanism::UserEvents, Mechanism::Attach]);
        if allows(Mechanism::UserEvents) {
            self.misses(&[Mechanism::Tracepoints], match allows(Mechanism::Attach) {
                true => "munmap, madvise and callers; --by ptrace sees all and stops the process at every call",
                false => "munmap, madvise and callers",
            });
            "the kernel's records of new mappings"
        } else {
            self.wants.push(Mechanism::Tracepoints);
            "ptrace (--by ptrace), which stops the process at every call"
        }
    }

    fn refused(&self, mechanisms: &[Mechanism]) -> Vec<Mechanism> {
        let is_refused = |mechanism: &Mechanism| !self.permissions.allows(*mechanism, self.subject);
        mechanisms.iter().copied().filter(is_refused).collect()
    }

    /// Without any one of them nothing works.
    fn needs(&mut self, mechanisms: &[Mechanism]) {
        self.misses(mechanisms, ALL);
    }

    /// Without all of them nothing works.
    fn needs_one(&mut self, mechanisms: &[Mechanism]) {
        let refused = self.refused(mechanisms);
        if refused.len() == mechanisms.len() {
            self.lacks.push(ALL);
            self.wants.extend(refused);
        }
    }

    /// Without any one of them this is not to be seen.
    fn misses(&mut self, mechanisms: &[Mechanism], what: &'static str) {
        let refused = self.refused(mechanisms);
        if !refused.is_empty() {
            self.lacks.push(what);
            self.wants.extend(refused);
        }
    }

    fn close(self, instrument: Instrument, by: &'static str) -> Prospect {
        let all = [ALL_OF_32_BIT, ALL].into_iter().find(|all| self.lacks.contains(all));
        let outcome = match (all, self.lacks.as_slice()) {
            (Some(_), _) => Outcome::Nothing,
            (None, []) => Outcome::Whole,
            (None, _) => Outcome::Part,
        };
        Prospect {
            instrument,
            subject: self.subject,
            outcome,
            by: all.is_none().then_some(by),
            lacks: all.map_or(self.lacks, |all| vec![all]),
            // No permission shows what is in its form.
            wants: if all == Some(ALL_OF_32_BIT) { Vec::new() } else { self.wants },
        }
    }
}

/// What to type, or to change, so that it is allowed; none where it is, and where nothing helps.
#[must_use]
pub fn cure(attempt: &Attempt, rights: &Rights) -> Option<String> {
    if matches!(attempt.answer, Answer::Allowed | Answer::Failed) {
        return None;
    }
    let is_root = rights.user == 0;
    let is_ours = matches!(attempt.subject, Subject::Command | Subject::Own);
    Some(match (attempt.mechanism, attempt.answer) {
        (_, Answer::Taken) => "end that tracer (a debugger, strace)".to_owned(),
        (Mechanism::ProcessConnector, Answer::Absent) => {
            "run faultless on the host, outside of containers; before Linux 6.6 as root".to_owned()
        }
        (Mechanism::Uprobes, Answer::Absent) => "a kernel with CONFIG_UPROBE_EVENTS".to_owned(),
        (Mechanism::UserEvents | Mechanism::KernelEvents, Answer::Absent) => match rights.is_filtered {
            true => outside_of_container("PERFMON"),
            false => "a kernel with CONFIG_PERF_EVENTS".to_owned(),
        },
        (Mechanism::Trace | Mechanism::Filter | Mechanism::Attach, Answer::Absent) => {
            outside_of_container("SYS_PTRACE")
        }
        (_, Answer::Absent) => return None,
        // Elsewhere the setting may not be all that is in the way.
        (Mechanism::UserEvents, _) if is_ours && is_closed(rights, 3) => {
            "sudo sysctl kernel.perf_event_paranoid=2".to_owned()
        }
        (Mechanism::KernelEvents, _) if is_ours && is_closed(rights, 2) => {
            "sudo sysctl kernel.perf_event_paranoid=1".to_owned()
        }
        (Mechanism::Attach | Mechanism::Memory, _)
            if attempt.subject == Subject::Own && rights.ptrace_scope.is_some_and(|scope| scope == 1) =>
        {
            "sudo sysctl kernel.yama.ptrace_scope=0".to_owned()
        }
        (Mechanism::Attach | Mechanism::Memory | Mechanism::Trace | Mechanism::Filter, _)
            if rights.may_nobody_attach() =>
        {
            NOBODY_MAY_ATTACH.to_owned()
        }
        (Mechanism::UserEvents | Mechanism::KernelEvents, _) if is_root => outside_of_container("PERFMON"),
        // To mount tracefs, and to set a probe.
        (Mechanism::Tracepoints | Mechanism::Uprobes, _) if is_root => outside_of_container("SYS_ADMIN"),
        (Mechanism::ProcessConnector, _) if is_root => outside_of_container("NET_ADMIN"),
        _ if is_root => outside_of_container("SYS_PTRACE"),
        _ => "sudo faultless …".to_owned(),
    })
}

/// Whether the setting shuts out whoever has no capability, at this level or above.
fn is_closed(rights: &Rights, level: i64) -> bool {
    !rights.may_observe && rights.paranoid.is_some_and(|paranoid| paranoid >= level)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: [Mechanism; 7] = [
        Mechanism::Sizes,
        Mechanism::Pages,
        Mechanism::Memory,
        Mechanism::Files,
        Mechanism::Attach,
        Mechanism::UserEvents,
        Mechanism::KernelEvents,
    ];
    const COMMAND: [Mechanism; 8] = [
        Mechanism::Sizes,
        Mechanism::Pages,
        Mechanism::Memory,
        Mechanism::Files,
        Mechanism::Trace,
        Mechanism::Filter,
        Mechanism::UserEvents,
        Mechanism::KernelEvents,
    ];
    const MACHINE: [Mechanism; 3] = [Mechanism::Tracepoints, Mechanism::Uprobes, Mechanism::ProcessConnector];

    /// Everything allowed but these.
    fn found(denied: &[(Mechanism, Subject)]) -> Permissions {
        let mut attempts = Vec::new();
        let sets: [(&[Mechanism], Subject); 4] = [
            (&COMMAND, Subject::Command),
            (&PROCESS, Subject::Own),
            (&PROCESS, Subject::Others),
            (&MACHINE, Subject::Machine),
        ];
        for (mechanisms, subject) in sets {
            for mechanism in mechanisms {
                let is_denied = denied.contains(&(*mechanism, subject));
                let answer = if is_denied { Answer::Denied } else { Answer::Allowed };
                attempts.push(Attempt { mechanism: *mechanism, subject, answer, evidence: String::new() });
            }
        }
        Permissions { attempts, ..Permissions::default() }
    }

    fn prospect(permissions: &Permissions, instrument: Instrument, subject: Subject) -> Prospect {
        let all = prospects(permissions);
        all.into_iter()
            .find(|prospect| (prospect.instrument, prospect.subject) == (instrument, subject))
            .unwrap()
    }

    #[test]
    fn who_may_all_sees_all() {
        let all = prospects(&found(&[]));
        assert_eq!(all.len(), 21);
        assert!(
            all.iter().all(|prospect| prospect.outcome == Outcome::Whole && prospect.wants.is_empty()),
            "{all:?}"
        );
    }

    #[test]
    fn each_thing_denied_takes_away_what_hangs_on_it_and_no_more() {
        use Instrument::{Churn, ChurnMalloc, Faults, Heap, HeapStop, Map, Watch};
        let hit = |mechanism, subject| -> Vec<(Instrument, Subject, Outcome)> {
            let all = prospects(&found(&[(mechanism, subject)]));
            let hit = all.into_iter().filter(|prospect| prospect.outcome != Outcome::Whole);
            hit.map(|prospect| (prospect.instrument, prospect.subject, prospect.outcome)).collect()
        };
        let (own, others, machine) = (Subject::Own, Subject::Others, Subject::Machine);
        assert_eq!(hit(Mechanism::Sizes, own), [(Map, own, Outcome::Nothing), (Watch, own, Outcome::Part)]);
        assert_eq!(
            hit(Mechanism::Memory, others),
            [
                (Map, others, Outcome::Part),
                (Heap, others, Outcome::Nothing),
                (HeapStop, others, Outcome::Nothing)
            ]
        );
        let sizes = found(&[(Mechanism::Sizes, own)]);
        // What is swapped is told by a file that everybody may read.
        assert_eq!(prospect(&sizes, Watch, own).lacks, ["PSS and exact RSS (smaps_rollup)"]);
        assert_eq!(hit(Mechanism::Attach, own), [(HeapStop, own, Outcome::Nothing)]);
        assert_eq!(hit(Mechanism::KernelEvents, own), [(Faults, own, Outcome::Part)]);
        assert_eq!(
            hit(Mechanism::Tracepoints, machine),
            [(Churn, own, Outcome::Part), (Churn, others, Outcome::Part)]
        );
        assert_eq!(
            hit(Mechanism::Uprobes, machine),
            [(ChurnMalloc, own, Outcome::Nothing), (ChurnMalloc, others, Outcome::Nothing)]
        );
        assert_eq!(hit(Mechanism::ProcessConnector, machine).len(), 3);
    }

    #[test]
    fn what_no_permission_shows_of_a_32_bit_process_is_told() {
        let (given, machine) = (Subject::Given, Subject::Machine);
        let of = |mechanism, subject| Attempt {
            mechanism,
            subject,
            answer: Answer::Allowed,
            evidence: String::new(),
        };
        let attempts = PROCESS.map(|mechanism| of(mechanism, given)).into_iter();
        let permissions = Permissions {
            attempts: attempts.chain(MACHINE.map(|mechanism| of(mechanism, machine))).collect(),
            given: Some((7, "old".into())),
            is_32_bit: true,
            ..Permissions::default()
        };
        let all = prospects(&permissions);
        assert!(all.iter().all(|prospect| prospect.wants.is_empty()), "{all:?}");
        let of = |instrument| all.iter().find(|prospect| prospect.instrument == instrument).unwrap();
        for instrument in [Instrument::Map, Instrument::Watch] {
            assert_eq!(of(instrument).outcome, Outcome::Whole);
        }
        for instrument in
            [Instrument::Heap, Instrument::HeapStop, Instrument::Faults, Instrument::ChurnMalloc]
        {
            assert_eq!((of(instrument).outcome, of(instrument).by), (Outcome::Nothing, None));
            assert_eq!(of(instrument).lacks, [ALL_OF_32_BIT]);
        }
        assert_eq!((of(Instrument::Churn).outcome, of(Instrument::Churn).lacks.len()), (Outcome::Part, 1));
    }

    #[test]
    fn churn_takes_the_best_that_is_left() {
        let machine = (Mechanism::Tracepoints, Subject::Machine);
        let command =
            |denied: &[(Mechanism, Subject)]| prospect(&found(denied), Instrument::Churn, Subject::Command);
        assert_eq!(command(&[]).by, Some("tracepoints"));
        assert!(command(&[machine]).by.unwrap().contains("seccomp"));
        let filter = (Mechanism::Filter, Subject::Command);
        assert!(command(&[machine, filter]).by.unwrap().starts_with("ptrace"));
        let trace = (Mechanism::Trace, Subject::Command);
        assert_eq!(command(&[machine, filter, trace]).outcome, Outcome::Nothing);
        let own = |denied: &[(Mechanism, Subject)]| prospect(&found(denied), Instrument::Churn, Subject::Own);
        let (events, attach) = ((Mechanism::UserEvents, Subject::Own), (Mechanism::Attach, Subject::Own));
        assert!(own(&[machine]).lacks[0].contains("--by ptrace"));
        assert!(!own(&[machine, attach]).lacks[0].contains("ptrace"));
        assert!(own(&[machine, events]).by.unwrap().contains("--by ptrace"));
        assert_eq!(own(&[machine, events, attach]).outcome, Outcome::Nothing);
    }

    #[test]
    fn cures_are_those_of_the_setting_that_is_in_the_way() {
        let denied = |mechanism, subject| Attempt {
            mechanism,
            subject,
            answer: Answer::Denied,
            evidence: String::new(),
        };
        let user = Rights { user: 1000, paranoid: Some(2), ptrace_scope: Some(1), ..Rights::default() };
        let cure_for =
            |mechanism, subject, rights: &Rights| cure(&denied(mechanism, subject), rights).unwrap();
        assert!(cure_for(Mechanism::Memory, Subject::Own, &user).ends_with("ptrace_scope=0"));
        assert_eq!(cure_for(Mechanism::Memory, Subject::Others, &user), "sudo faultless …");
        assert!(cure_for(Mechanism::KernelEvents, Subject::Own, &user).ends_with("paranoid=1"));
        assert_eq!(cure_for(Mechanism::KernelEvents, Subject::Others, &user), "sudo faultless …");
        assert_eq!(cure_for(Mechanism::KernelEvents, Subject::Given, &user), "sudo faultless …");
        let closed = Rights { paranoid: Some(4), ..user.clone() };
        assert!(cure_for(Mechanism::UserEvents, Subject::Command, &closed).ends_with("paranoid=2"));
        let open = |paranoid| Rights { paranoid: Some(paranoid), ..user.clone() };
        let may = Rights { may_observe: true, ..closed.clone() };
        for (mechanism, subject, rights) in [
            (Mechanism::UserEvents, Subject::Given, &closed),
            (Mechanism::UserEvents, Subject::Command, &open(2)),
            (Mechanism::KernelEvents, Subject::Command, &open(1)),
            (Mechanism::UserEvents, Subject::Command, &may),
            (Mechanism::Tracepoints, Subject::Machine, &user),
        ] {
            let told = cure_for(mechanism, subject, rights);
            assert_eq!(told, "sudo faultless …", "{mechanism:?} {subject:?}");
        }
        let locked = Rights { ptrace_scope: Some(3), ..user.clone() };
        assert!(cure_for(Mechanism::Attach, Subject::Own, &locked).contains("next boot"));
        let root = Rights { user: 0, paranoid: Some(2), ..Rights::default() };
        assert!(cure_for(Mechanism::Memory, Subject::Others, &root).contains("--cap-add SYS_PTRACE"));
        for mechanism in [Mechanism::Tracepoints, Mechanism::Uprobes] {
            assert!(cure_for(mechanism, Subject::Machine, &root).contains("--cap-add SYS_ADMIN"));
        }
        assert!(cure_for(Mechanism::KernelEvents, Subject::Given, &root).contains("--cap-add PERFMON"));
        let works = Attempt { answer: Answer::Allowed, ..denied(Mechanism::Memory, Subject::Own) };
        assert_eq!(cure(&works, &user), None);
    }
}
