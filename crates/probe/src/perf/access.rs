//! How much of itself the kernel shows us.

use super::attribute::Abilities;
use super::events::{Event, Plan, Sampling, Scope, What};
use super::refusal::PerfError;
use super::session::open_event;
use crate::permissions::rights;
use faultless_records::perf_record::Content;

/// How far our view reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Events in programs only: `perf_event_paranoid` is 2 and we have no capability.
    User,
    /// Events in the kernel on behalf of programs, too.
    UserAndKernel,
}

/// Finds out by opening an event on ourselves.
///
/// # Errors
/// [`PerfError`] when not even programs of our own may be observed.
pub fn access() -> Result<Access, PerfError> {
    access_to(0)
}

/// The same by opening one on another process, which notices nothing: the event counts and is never begun.
///
/// # Errors
/// [`PerfError`] when that process may not be observed.
pub fn access_to(pid: i32) -> Result<Access, PerfError> {
    let sees = |scope| {
        let event =
            Event { what: What::MinorFaults, sampling: Sampling::Count, scope, starts_enabled: false };
        let plan = Plan {
            events: Vec::new(),
            content: Content::default(),
            follows_processes: false,
            waits_for_exec: false,
            buffer_bytes: 0,
        };
        let attribute = super::attribute::of_event(&event, &plan, Abilities::LEAST)?;
        open_event(attribute, pid, -1).map_err(|errno| PerfError::of_open(pid, errno, &rights()))
    };
    match sees(Scope::All) {
        Ok(_) => Ok(Access::UserAndKernel),
        Err(_) => sees(Scope::User).map(|_| Access::User),
    }
}
