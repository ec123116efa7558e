//! Which faults are looked at: the events of a recording, and the change from one step of sampling to another.

use std::ops::RangeInclusive;

use faultless_probe::perf::{Access, Event, PerfError, Plan, Sampling, Scope, Session, What, cpus};
use faultless_records::perf_record::Content;

use super::FaultOptions;
use super::ladder::{ONLY_STEP, Periods, STEPS};

/// The buffer of one CPU, where there are few and the limit on locked memory allows it.
const BUFFER_BYTES: usize = 8 << 20;
/// More open events than this are not risked for a finer choice of periods.
const MANY_EVENTS: usize = 20_000;
/// Readings of two counts, of which the two are taken that lie nearest together.
const READINGS: usize = 4;

/// Faults of one kind that two steps counted. Two counts cannot be read at one moment, so a few may be known of one of them only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Twice {
    /// That many at least.
    pub least: u64,
    /// And up to so many more.
    pub unsure: u64,
}

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

/// Changes the step. For a moment both count: what they count twice is added to `twice`, of minor and of major faults.
///
/// # Errors
/// [`PerfError::System`], which the kernel has no reason for.
pub fn switch(session: &Session, from: usize, to: usize, twice: &mut [Twice; 2]) -> Result<(), PerfError> {
    for (event, twice) in twice.iter_mut().enumerate() {
        let (from, to) = (from * 2 + event, to * 2 + event);
        let began = session.count(to)?;
        session.enable(to)?;
        // An event of many threads takes its time to begin and to end. Up to here all that the new one counted was counted
        // twice, from here on all that the old one counts.
        let (until, since) = counts_at_once(|| session.count(to), || session.count(from))?;
        session.disable(from)?;
        twice.least += until.saturating_sub(began) + session.count(from)?.saturating_sub(*since.end());
        twice.unsure += since.end() - since.start();
    }
    Ok(())
}

/// What two events have counted at one moment: one, and between which two counts the other was then.
fn counts_at_once<E>(
    mut first: impl FnMut() -> Result<u64, E>,
    mut second: impl FnMut() -> Result<u64, E>,
) -> Result<(u64, RangeInclusive<u64>), E> {
    let mut before = second()?;
    let mut read = || {
        let (counted, after) = (first()?, second()?);
        let since = before..=after.max(before);
        before = after;
        Ok((counted, since))
    };
    let mut nearest = read()?;
    for _ in 1..READINGS {
        let next = read()?;
        let width = |(_, since): &(u64, RangeInclusive<u64>)| since.end() - since.start();
        if width(&next) < width(&nearest) {
            nearest = next;
        }
    }
    Ok(nearest)
}

/// The number of events and the accounts of the same faults that agree best, of all that each may be: what is left between them
/// then was certainly no event.
pub fn agreement(events: RangeInclusive<u64>, accounts: RangeInclusive<u64>) -> (u64, u64) {
    let events = (*accounts.start()).clamp(*events.start(), *events.end());
    (events, events.clamp(*accounts.start(), *accounts.end()))
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Two events that count the same faults, of which one happens before each reading while there are any.
    fn counts(faults: u64) -> (u64, RangeInclusive<u64>) {
        let (happened, left) = (Cell::new(100), Cell::new(faults));
        let read = || {
            let now = u64::from(left.get() > 0);
            left.set(left.get() - now);
            happened.set(happened.get() + now);
            Ok::<_, PerfError>(happened.get())
        };
        counts_at_once(read, read).unwrap()
    }

    #[test]
    fn two_counts_are_read_at_one_moment_as_near_as_faults_allow() {
        assert_eq!(counts(0), (100, 100..=100));
        assert_eq!(counts(4), (104, 104..=104), "once it is quiet");
        let (first, second) = counts(u64::MAX);
        assert!(second.contains(&first) && second.end() - second.start() == 2, "{first} {second:?}");
    }

    #[test]
    fn events_and_accounts_agree_as_well_as_both_may() {
        assert_eq!(
            agreement(37_499..=37_500, 37_500..=37_500),
            (37_500, 37_500),
            "a fault while two steps counted"
        );
        assert_eq!(agreement(90..=100, 95..=120), (95, 95));
        assert_eq!(agreement(100..=100, 95..=120), (100, 100));
        assert_eq!(agreement(90..=100, 130..=140), (100, 130), "some were no events");
        assert_eq!(agreement(90..=100, 70..=80), (90, 80), "of processes that nobody waited for");
    }
}
