//! Holds probes that have names while no process has them.
//!
//! Where the last event of a probe goes the kernel unmakes it, and waits several times until all CPUs have passed a quiet moment: one
//! probe after the other, and the process runs into the next ones meanwhile. While another process has an event of it the probe is
//! taken out of the one that is looked at, and that is all.

use crate::perf::{Event, Plan, Sampling, Scope, Session, What};
use crate::probe_points::ProbePoints;
use crate::sleeper::Sleeper;
use faultless_records::perf_record::Content;

/// What holds them, until it is dropped.
pub(super) struct Anchor {
    /// Before the process that has them.
    _events: Session,
    _sleeper: Sleeper,
}

impl Anchor {
    /// Events in a child that never runs into them; none where that cannot be had, and the probes come and go slower.
    pub(super) fn hold(points: &ProbePoints) -> Option<Self> {
        let event = |id: &u64| Event {
            what: What::Tracepoint { id: *id, filter: String::new() },
            sampling: Sampling::Count,
            scope: Scope::User,
            starts_enabled: false,
        };
        let plan = Plan {
            events: points.ids().iter().map(event).collect(),
            content: Content { has_address: false, has_callchain: false, has_raw: false, stack_bytes: 0 },
            follows_processes: false,
            waits_for_exec: false,
            buffer_bytes: 0,
        };
        let sleeper = Sleeper::start().ok()?;
        let events = Session::open(plan, &[sleeper.pid.as_raw()]).ok()?;
        Some(Self { _events: events, _sleeper: sleeper })
    }
}
