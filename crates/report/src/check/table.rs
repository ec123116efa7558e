//! What the present permissions allow, for people: the answer for each instrument, what it lacks, and how that is known.

use std::fmt::Write;

use comfy_table::{Cell, Table};
use faultless_diagnosis::permission::{Outcome, Prospect, cure, prospects, subjects};
use faultless_records::permission::{Answer, Permissions, Rights, Subject};

use crate::plain::{fitted, plain};
use crate::table_form::{headed, within};

/// The whole report, prose broken at `columns`.
#[must_use]
pub fn text(permissions: &Permissions, columns: Option<usize>) -> String {
    let fit = |text| fitted(text, columns);
    let all = prospects(permissions);
    let mut parts = vec![fit(heading(permissions, &all)), answers(permissions, &all, columns)];
    let lacking = lacking(permissions, &all);
    if !lacking.is_empty() {
        parts.push(fit(lacking));
    }
    parts.push(fit(tried(permissions)));
    parts.join("\n")
}

fn heading(permissions: &Permissions, all: &[Prospect]) -> String {
    let works = all.iter().filter(|prospect| prospect.outcome == Outcome::Whole).count();
    let sum = match all.len() - works {
        0 => "every instrument sees all".to_owned(),
        _ if all.iter().all(|prospect| prospect.outcome == Outcome::Nothing) => {
            "no instrument works".to_owned()
        }
        1 => format!("1 of {} answers is less than a full yes", all.len()),
        less => format!("{less} of {} answers are less than a full yes", all.len()),
    };
    let whom = permissions.given.as_ref().map(|(pid, name)| format!(" on process {pid} ({})", plain(name)));
    format!("Permissions{}: {sum}\n{}\n", whom.unwrap_or_default(), rights(&permissions.rights))
}

fn rights(rights: &Rights) -> String {
    let mut capabilities = Vec::new();
    if rights.may_trace {
        capabilities.push("CAP_SYS_PTRACE");
    }
    if rights.may_observe {
        capabilities.push("CAP_PERFMON");
    }
    let capabilities = match capabilities.as_slice() {
        [] => "without capabilities to observe".to_owned(),
        some => format!("with {}", some.join(" and ")),
    };
    let setting = |number: Option<i64>| number.map_or("not there".to_owned(), |number| number.to_string());
    format!(
        "user {}, {capabilities}; perf_event_paranoid {}, yama.ptrace_scope {}{}",
        rights.user,
        setting(rights.paranoid),
        setting(rights.ptrace_scope),
        if rights.is_filtered { "; under a seccomp filter" } else { "" }
    )
}

fn title(subject: Subject) -> &'static str {
    match subject {
        Subject::Command => "a started command",
        Subject::Own => "own processes",
        Subject::Others => "processes of others",
        Subject::Given => "this process",
        Subject::Machine => "the machine",
    }
}

fn answers(permissions: &Permissions, all: &[Prospect], columns: Option<usize>) -> String {
    let subjects = subjects(permissions);
    let mut header = vec![Cell::new("faultless")];
    header.extend(subjects.iter().map(|subject| Cell::new(title(*subject))));
    let mut table = headed(header);
    for row in all.chunks(subjects.len()) {
        let mut cells: Vec<Cell> =
            row.iter().take(1).map(|prospect| Cell::new(prospect.instrument.name())).collect();
        cells.extend(row.iter().map(|prospect| Cell::new(prospect.outcome.word())));
        table.add_row(cells);
    }
    format!("{}\n", within(&table, &(0..1), columns, Table::to_string))
}

/// What is not to be seen, with what would show it; the same of several instruments or subjects is told once.
fn lacking(permissions: &Permissions, all: &[Prospect]) -> String {
    let mut told: Vec<Lacking> = Vec::new();
    for prospect in all.iter().filter(|prospect| prospect.outcome != Outcome::Whole) {
        let (instrument, whom) = (prospect.instrument.name(), title(prospect.subject));
        let (lacks, cures) = (prospect.lacks.join("; "), cures(permissions, prospect));
        let is_same = |other: &&mut Lacking| other.lacks == lacks && other.cures == cures;
        let of_same = |other: &&mut Lacking| other.instruments == [instrument] || other.subjects == [whom];
        match told.iter_mut().filter(is_same).find(of_same) {
            Some(same) if same.subjects == [whom] => same.instruments.push(instrument),
            Some(same) => same.subjects.push(whom),
            None => told.push(Lacking { instruments: vec![instrument], subjects: vec![whom], lacks, cures }),
        }
    }
    if told.is_empty() {
        return String::new();
    }
    let mut text = String::from("What is missing\n");
    for Lacking { instruments, subjects, lacks, cures } in told {
        let _ = writeln!(text, "  {}; {}: {lacks}", instruments.join(", "), subjects.join(" and "));
        for cure in cures {
            let _ = writeln!(text, "    to allow it: {cure}");
        }
    }
    text
}

/// The same thing that is missing from several.
struct Lacking {
    instruments: Vec<&'static str>,
    subjects: Vec<&'static str>,
    lacks: String,
    cures: Vec<String>,
}

/// What would allow what a prospect wants, each once.
fn cures(permissions: &Permissions, prospect: &Prospect) -> Vec<String> {
    let mut cures = Vec::new();
    for mechanism in &prospect.wants {
        let attempt = permissions.attempt(*mechanism, prospect.subject);
        if let Some(cure) = attempt.and_then(|attempt| cure(attempt, &permissions.rights))
            && !cures.contains(&cure)
        {
            cures.push(cure);
        }
    }
    cures
}

fn tried(permissions: &Permissions) -> String {
    let mut text = String::from("What was tried\n");
    for subject in [Subject::Given, Subject::Command, Subject::Own, Subject::Others, Subject::Machine] {
        let mut attempts =
            permissions.attempts.iter().filter(|attempt| attempt.subject == subject).peekable();
        if attempts.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "  {}", title(subject));
        for attempt in attempts {
            let answer = match attempt.answer {
                Answer::Allowed => "yes",
                Answer::Denied | Answer::Taken => "no",
                Answer::Absent => "absent",
                Answer::Failed => "failed",
            };
            let _ = writeln!(
                text,
                "    {:<6}  {:<25}  {}",
                answer,
                attempt.mechanism.title(),
                plain(&attempt.evidence)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::permission::{Attempt, Mechanism};

    #[test]
    fn the_answer_comes_first_and_the_cure_with_what_is_missing() {
        let attempt = |mechanism, answer| Attempt {
            mechanism,
            subject: Subject::Given,
            answer,
            evidence: "opened\x1b[2J".into(),
        };
        let permissions = Permissions {
            rights: Rights { user: 7, paranoid: Some(2), ..Rights::default() },
            given: Some((12, "x\n".into())),
            is_32_bit: false,
            attempts: vec![
                attempt(Mechanism::Sizes, Answer::Allowed),
                attempt(Mechanism::Pages, Answer::Denied),
                attempt(Mechanism::Memory, Answer::Denied),
                attempt(Mechanism::Files, Answer::Allowed),
            ],
        };
        let text = text(&permissions, None);
        assert!(text.starts_with("Permissions on process 12 (x\\n): 7 of 7"), "{text}");
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(place("\n map ") < place("What is missing"), "{text}");
        assert!(place("map; this process: evidence") < place("to allow it: sudo faultless …"), "{text}");
        assert!(!text.contains('\x1b'), "{text}");
    }
}
