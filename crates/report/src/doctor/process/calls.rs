//! What malloc's calls take of a process's time: of its processors, and where its threads wait for each other in them.

use faultless_diagnosis::malloc_time::MallocTime;
use faultless_records::quantity::{percent, seconds_of, several};

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

/// So many waits, in so many looks, are told at least: of fewer, chance decides.
const LEAST_WAITS: u64 = 20;
const LEAST_LOOKS: u64 = 10;
/// Waiting that is less than this part of the processor time does not matter.
const LEAST_WAITING_PART: f64 = 0.05;
/// From this part of the time in the program on it is worth trying how much less another allocator takes.
const MUCH_TIME: f64 = 0.1;
/// Where samples stand for less than this part of the time in the program, the rest may be spent otherwise.
const LEAST_SAMPLED_PART: f64 = 0.7;
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
        let are_enough = self.waits >= LEAST_WAITS && self.looks >= LEAST_LOOKS;
        are_enough && waiting_s >= (activity.user_s + activity.system_s) * LEAST_WAITING_PART
    }
}

/// Malloc's part of the time in the program; none where too little of that was seen.
fn part(seen: &ProcessConsultation) -> Option<f64> {
    seen.malloc_time.as_ref().filter(|time| unseen_of(time, seen).is_none())?.part()
}

/// Malloc's part, where it is much of the time in the program: other allocators are worth trying for that alone.
pub(super) fn much_time(seen: &ProcessConsultation) -> Option<f64> {
    part(seen).filter(|part| *part >= MUCH_TIME && seen.activity.is_busy())
}

/// Why samples do not tell what malloc's calls take, where there were samples; for what was not seen.
pub(super) fn unseen(seen: &ProcessConsultation) -> Option<String> {
    let time = seen.malloc_time.as_ref().filter(|_| seen.activity.is_busy())?;
    unseen_of(time, seen).map(|reason| format!("what malloc's calls take of its processor time: {reason}"))
}

fn unseen_of(time: &MallocTime, seen: &ProcessConsultation) -> Option<String> {
    // The kernel's account of what is its own and what is the program's is an estimate: that alone is no reason.
    let is_partial = time.seconds < time.program_s * LEAST_SAMPLED_PART;
    if is_partial && time.most_missed_s > time.program_s * (1.0 - LEAST_SAMPLED_PART) {
        return Some(format!(
            "samples stand for {} s of the {} s that the program took; most of the rest is that of threads that soon ended or did little",
            seconds_of(time.seconds),
            seconds_of(time.program_s)
        ));
    }
    // Where a library has malloc, the functions by which that is called have names.
    let part = time.nameless as f64 / time.samples.max(1) as f64;
    (seen.obstacle.is_some() && part >= MUCH_TIME).then(|| {
        format!("of {} of the samples no function has a name; malloc's may be among them", percent(part))
    })
}

/// What is said of both.
pub(super) fn of(seen: &ProcessConsultation) -> Vec<Finding> {
    waits(seen).into_iter().chain(time(seen)).collect()
}

fn waits(seen: &ProcessConsultation) -> Option<Finding> {
    let waits = seen.arena_waits.filter(|waits| !seen.is_halted && waits.are_many(&seen.activity))?;
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
    let part = much_time(seen)?;
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
        match part(seen) {
            Some(part) if part >= MUCH_TIME => Self::Much(format!(
                "; malloc's calls take {} of the time in the program{compared}",
                percent(part)
            )),
            Some(part) => {
                let part = if part < LITTLE_TIME { "hardly any".into() } else { percent(part) };
                Self::Little(format!("; malloc's calls take {part} of the time in the program"))
            }
            None => Self::Unseen(format!(
                "; what malloc's calls take of its processor time was not seen{compared}"
            )),
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
