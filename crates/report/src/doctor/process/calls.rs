//! What malloc's calls take of a process's time: of its processors, and where its threads wait for each other in them.

use faultless_diagnosis::malloc_time::MallocTime;
use faultless_records::quantity::{percent, several};

use super::finding::{Concern, Finding};
use super::{Activity, ProcessConsultation};
use crate::faults::table::shortened;

/// How often threads were seen to wait for the locks of glibc's arenas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArenaWaits {
    /// Looks at all threads.
    pub looks: u64,
    /// Threads that waited for one of these locks, of all looks together.
    pub waits: u64,
    /// Arenas.
    pub arenas: u64,
}

/// So many waits, at least, are told: of fewer, chance decides.
const LEAST_WAITS: u64 = 20;
/// Waiting that is less than this part of the processor time does not matter.
const LEAST_WAITING_PART: f64 = 0.05;
/// From this part of the time in the program on it is worth trying how much less another allocator takes.
const MUCH_TIME: f64 = 0.1;
/// Less than this part is no figure worth telling.
const LITTLE_TIME: f64 = 0.005;

impl ArenaWaits {
    /// Threads that wait at a moment, on the average.
    fn mean(self) -> f64 {
        if self.looks == 0 { 0.0 } else { self.waits as f64 / self.looks as f64 }
    }

    /// Whether they wait for so long that it matters beside what the process does.
    fn are_many(self, activity: &Activity) -> bool {
        let waiting_s = self.mean() * activity.seconds;
        self.waits >= LEAST_WAITS && waiting_s >= (activity.user_s + activity.system_s) * LEAST_WAITING_PART
    }
}

/// Malloc's part of the time in the program, where it is much of it.
fn much_time(time: &MallocTime) -> Option<f64> {
    time.part().filter(|part| *part >= MUCH_TIME)
}

/// What is said of both.
pub(super) fn of(seen: &ProcessConsultation) -> Vec<Finding> {
    waits(seen).into_iter().chain(time(seen)).collect()
}

fn waits(seen: &ProcessConsultation) -> Option<Finding> {
    let waits = seen.arena_waits.filter(|waits| waits.are_many(&seen.activity))?;
    let waiting = format!("{:.1}", waits.mean());
    let locks = match waits.arenas {
        1 => "the lock of malloc's only arena".to_owned(),
        arenas => format!("the locks of malloc's {}", several(arenas, "arena")),
    };
    let threads = several(seen.activity.threads.into(), "thread");
    let sentence = format!(
        "at each moment {waiting} of its {threads} wait for {locks} ({})",
        several(waits.looks, "look")
    );
    let limits = |(name, value): &&(String, String)| {
        name == "MALLOC_ARENA_MAX" || (name == "GLIBC_TUNABLES" && value.contains("arena_max"))
    };
    let advice = match seen.environment.iter().find(limits) {
        Some((name, _)) => format!("{name} in its environment allows so few: each is one lock for all threads that use it"),
        None => "a block is freed under the lock of the arena that it came from; an allocator whose threads have caches for all sizes takes \
                 few locks"
            .into(),
    };
    let waste = Some(format!("the time of {waiting} threads, which wait for its locks"));
    Some(Finding { waste, ..Finding::new(Concern::Locks, sentence).advised(advice) })
}

fn time(seen: &ProcessConsultation) -> Option<Finding> {
    let time = seen.malloc_time.as_ref()?;
    let part = much_time(time).filter(|_| seen.activity.is_busy())?;
    let mut sentence = format!(
        "malloc's calls take {} of the processor time in the program itself ({})",
        percent(part),
        several(time.samples, "sample")
    );
    if let Some((caller, count)) = &time.caller {
        let (part, caller) = (percent(*count as f64 / time.inside as f64), shortened(caller));
        sentence += &format!(", {part} of that for {caller}");
    }
    let advice = "what remains of that under other allocators faultless doctor -- CMD compares on a fixed amount of work; churn --malloc \
                  names who allocates what";
    Some(Finding::new(Concern::Time, sentence).advised(advice))
}

/// What a verdict says of the time that malloc's calls take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InVerdict {
    /// Nothing: the process does too little for it to matter.
    Idle,
    /// It takes little.
    Little(String),
    /// It takes so much that others may be better.
    Much(String),
    /// It was not seen.
    Unseen(String),
}

impl InVerdict {
    pub(super) fn of(seen: &ProcessConsultation) -> Self {
        if !seen.activity.is_busy() {
            return Self::Idle;
        }
        let compared = match seen.obstacle {
            Some(_) => "",
            None => ": faultless doctor -- CMD compares it on a fixed amount of work",
        };
        match seen.malloc_time.as_ref().and_then(MallocTime::part) {
            Some(part) if part >= MUCH_TIME => {
                Self::Much(format!("; its calls take {} of the time in the program{compared}", percent(part)))
            }
            Some(part) => {
                let part = if part < LITTLE_TIME { "hardly any".into() } else { percent(part) };
                Self::Little(format!("; its calls take {part} of the time in the program"))
            }
            None => {
                Self::Unseen(format!("; what its calls take of its processor time was not seen{compared}"))
            }
        }
    }

    /// The words, where there are any.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Idle => "",
            Self::Little(text) | Self::Much(text) | Self::Unseen(text) => text,
        }
    }

    /// The same, where nothing is said of what was not seen.
    pub(super) fn seen_text(&self) -> &str {
        if matches!(self, Self::Unseen(_)) { "" } else { self.text() }
    }

    /// Whether it may be a matter of the allocator, whose threads may wait for each other.
    pub(super) fn is_open(&self, seen: &ProcessConsultation) -> bool {
        match self {
            Self::Idle => false,
            Self::Little(_) => seen.arena_waits.is_none(),
            Self::Much(_) | Self::Unseen(_) => true,
        }
    }
}

/// Whether other allocators are worth trying for the time alone.
pub(super) fn is_worth_trying(seen: &ProcessConsultation) -> bool {
    seen.activity.is_busy() && seen.malloc_time.as_ref().and_then(much_time).is_some()
}
