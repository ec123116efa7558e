//! Which faults are looked at: the events of a recording, and the change from one step of sampling to another.

use faultless_probe::perf::{Access, Event, PerfError, Plan, Sampling, Scope, Session, What, cpus};
use faultless_records::fault_recording::FaultCounts;
use faultless_records::perf_record::Content;

use super::FaultOptions;
use super::ladder::{ONLY_STEP, Periods, STEPS};

/// The buffer of one CPU, where there are few and the limit on locked memory allows it.
const BUFFER_BYTES: usize = 8 << 20;
/// More open events than this are not risked for a finer choice of periods.
const MANY_EVENTS: usize = 20_000;
/// Readings of two counts, of which the two are taken that lie nearest together.
const READINGS: usize = 4;

/// Opens the events, for as many steps as there may be files.
///
/// # Errors
/// [`PerfError`].
pub fn open(
    threads: &[i32],
    options: FaultOptions,
    access: Access,
    waits_for_exec: bool,
) -> Result<(Session, Vec<Periods>), PerfError> {
    let steps = match options.every {
        Some(every) => vec![Periods { minor: every, major: every }],
        None if threads.len() * cpus() * STEPS.len() * 2 > MANY_EVENTS => vec![ONLY_STEP],
        None => STEPS.to_vec(),
    };
    let session =
        |steps: &[Periods]| Session::open(plan(steps, access, options.stack_bytes, waits_for_exec), threads);
    match session(&steps) {
        Err(PerfError::Files { .. }) if steps.len() > 1 => Ok((session(&[ONLY_STEP])?, vec![ONLY_STEP])),
        opened => Ok((opened?, steps)),
    }
}

/// Changes the step. For a moment both count: what they count twice is added to `twice`.
///
/// # Errors
/// [`PerfError::System`], which the kernel has no reason for.
pub fn switch(session: &Session, from: usize, to: usize, twice: &mut FaultCounts) -> Result<(), PerfError> {
    for (event, sum) in [&mut twice.minor, &mut twice.major].into_iter().enumerate() {
        let (from, to) = (from * 2 + event, to * 2 + event);
        let began = session.count(to)?;
        session.enable(to)?;
        // An event of many threads takes its time to begin and to end. Up to here all that the new one counted was counted
        // twice, from here on all that the old one counts.
        let (until, since) = counts_at_once(session, to, from)?;
        session.disable(from)?;
        *sum += until.saturating_sub(began) + session.count(from)?.saturating_sub(since);
    }
    Ok(())
}

/// What two events have counted at one moment, as near as reading them one after the other can tell.
fn counts_at_once(session: &Session, first: usize, second: usize) -> Result<(u64, u64), PerfError> {
    let mut nearest = (u64::MAX, 0, 0);
    let mut before = session.count(second)?;
    for _ in 0..READINGS {
        let counted = session.count(first)?;
        let after = session.count(second)?;
        let between = after.saturating_sub(before);
        nearest = nearest.min((between, counted, before + between / 2));
        before = after;
    }
    Ok((nearest.1, nearest.2))
}

/// Sampled events of each step, minor and major; then, where they can be seen, counts in the kernel.
fn plan(steps: &[Periods], access: Access, stack_bytes: u32, waits_for_exec: bool) -> Plan {
    let scope = match access {
        Access::UserAndKernel => Scope::All,
        Access::User => Scope::User,
    };
    let event = |what, sampling, scope, starts_enabled| Event { what, sampling, scope, starts_enabled };
    let mut events = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        events.push(event(What::MinorFaults, Sampling::Every(step.minor), scope, place == 0));
        events.push(event(What::MajorFaults, Sampling::Every(step.major), scope, place == 0));
    }
    if access == Access::UserAndKernel {
        events.push(event(What::MinorFaults, Sampling::Count, Scope::Kernel, true));
        events.push(event(What::MajorFaults, Sampling::Count, Scope::Kernel, true));
    }
    let content = Content { has_address: true, has_callchain: true, has_raw: false, stack_bytes };
    Plan { events, content, follows_processes: true, waits_for_exec, buffer_bytes: BUFFER_BYTES }
}
