//! What the present permissions allow, for programs.

use faultless_diagnosis::permission::{Outcome, cure, prospects};
use faultless_records::permission::Permissions;
use serde_json::json;

/// Version of the form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-check/1";

/// The whole report.
#[must_use]
pub fn json(permissions: &Permissions) -> String {
    let rights = &permissions.rights;
    let instruments = prospects(permissions).into_iter().map(|prospect| {
        json!({
            "instrument": prospect.instrument.name(),
            "subject": prospect.subject.name(),
            "allowed": match prospect.outcome {
                Outcome::Whole => "yes",
                Outcome::Part => "partly",
                Outcome::Nothing => "no",
            },
            "by": prospect.by,
            "lacks": prospect.lacks,
            "wants": prospect.wants.iter().map(|mechanism| mechanism.name()).collect::<Vec<_>>(),
        })
    });
    let attempts = permissions.attempts.iter().map(|attempt| {
        json!({
            "mechanism": attempt.mechanism.name(),
            "subject": attempt.subject.name(),
            "answer": attempt.answer.name(),
            "evidence": attempt.evidence,
            "cure": cure(attempt, rights),
        })
    });
    let value = json!({
        "format": FORMAT,
        "pid": permissions.given.as_ref().map(|(pid, _)| pid),
        "name": permissions.given.as_ref().map(|(_, name)| name),
        "rights": {
            "user": rights.user,
            "may_trace": rights.may_trace,
            "may_observe": rights.may_observe,
            "is_filtered": rights.is_filtered,
            "perf_event_paranoid": rights.paranoid,
            "ptrace_scope": rights.ptrace_scope,
        },
        "instruments": instruments.collect::<Vec<_>>(),
        "attempts": attempts.collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}
