//! Who holds what lives at the end: the functions that asked for it, whatever they did before.

use std::collections::BTreeMap;

use faultless_records::churn_recording::ChurnRecording;
use faultless_records::malloc_recording::{MallocRecording, ThreadSum};

use super::blame::{blamed, caller_of};

/// From this part of what lives at the end on, who holds it is worth a place before those who only call often.
pub const MUCH: f64 = 0.1;

/// A function, and what lives at the end of what it asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// Its name.
    pub function: String,
    /// Who called it for most of these bytes, if that is known.
    pub called_by: Option<String>,
    /// What it holds.
    pub bytes: f64,
}

/// The functions that hold blocks at the end, most bytes first; estimated.
#[must_use]
pub fn of_blocks(recording: &MallocRecording) -> Vec<Holder> {
    let parts = recording.callers.iter().map(|caller| (caller.stack, caller.live.bytes));
    holders(&recording.stacks, parts)
}

/// The functions that asked for blocks of which nobody knows what became of them, most bytes first; estimated.
#[must_use]
pub fn of_lost_blocks(recording: &MallocRecording) -> Vec<Holder> {
    let parts = recording.callers.iter().map(|caller| (caller.stack, caller.unknown.bytes));
    holders(&recording.stacks, parts)
}

/// A function whose blocks lived when a stretch of looking ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Outliving {
    /// It, and those blocks.
    pub holder: Holder,
    /// The part of what it asked for that they are, from 0 to 1.
    pub part: f64,
}

impl Outliving {
    /// How much speaks for its keeping them.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.holder.bytes * self.part
    }
}

/// The part of what a function asked for that was not freed: what lives shortly is among the survivors by chance alone.
pub(super) fn part_of_kept(left_bytes: f64, all_bytes: f64) -> f64 {
    if left_bytes < all_bytes { left_bytes / all_bytes } else { 1.0 }
}

/// The functions that asked for blocks which lived when a stretch of looking ended: those first that keep what they ask for, as a leak
/// does, however little that is; estimated.
#[must_use]
pub fn of_outliving_blocks(recording: &MallocRecording) -> Vec<Outliving> {
    let parts = recording.callers.iter().map(|caller| (caller.stack, caller.allocated.bytes));
    let asked_for =
        holders(&recording.stacks, parts).into_iter().map(|holder| (holder.function, holder.bytes));
    let asked_for: BTreeMap<String, f64> = asked_for.collect();
    let outliving = |holder: Holder| {
        let all = asked_for.get(&holder.function).copied().unwrap_or_default();
        Outliving { part: part_of_kept(holder.bytes, all), holder }
    };
    let mut all: Vec<Outliving> = of_lost_blocks(recording).into_iter().map(outliving).collect();
    all.sort_by(|one, other| other.weight().total_cmp(&one.weight()));
    all
}

/// The functions that held blocks when most lived, most bytes first; estimated.
#[must_use]
pub fn at_peak(recording: &MallocRecording) -> Vec<Holder> {
    holders(&recording.stacks, recording.held_at_peak.iter().map(|held| (held.stack, held.bytes)))
}

/// The functions that made the mappings which are there at the end, as far as their chains were taken, most bytes first.
#[must_use]
pub fn of_mappings(recording: &ChurnRecording) -> Vec<Holder> {
    let parts = recording.live_callers.iter().map(|caller| (caller.stack, caller.amount.bytes as f64));
    holders(&recording.stacks, parts)
}

fn holders(stacks: &[Vec<String>], parts: impl Iterator<Item = (u32, f64)>) -> Vec<Holder> {
    let mut sums: BTreeMap<&str, (f64, BTreeMap<&str, f64>)> = BTreeMap::new();
    for (stack, bytes) in parts.filter(|(_, bytes)| *bytes > 0.0) {
        let Some(stack) = stacks.get(stack as usize) else { continue };
        let Some(function) = blamed(stack) else { continue };
        let (sum, callers) = sums.entry(function).or_default();
        *sum += bytes;
        if let Some(outer) = caller_of(stack, function) {
            *callers.entry(outer).or_default() += bytes;
        }
    }
    let holder = |(function, (bytes, callers)): (&str, (f64, BTreeMap<&str, f64>))| Holder {
        function: function.to_owned(),
        called_by: callers
            .into_iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .map(|(caller, _)| caller.to_owned()),
        bytes,
    };
    let mut holders: Vec<Holder> = sums.into_iter().map(holder).collect();
    holders.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    holders
}

/// Bytes that each thread allocated and that nobody was seen to free, in the order of the recording's threads; estimated.
#[must_use]
pub fn not_freed_by_thread(recording: &MallocRecording) -> Vec<f64> {
    let own = |thread: &ThreadSum| thread.allocated.bytes - thread.freed_own.bytes;
    let mut left: Vec<f64> = recording.threads.iter().map(own).collect();
    for handover in &recording.handovers {
        if let Some(left) = left.get_mut(handover.from) {
            *left -= handover.amount.bytes;
        }
    }
    left.into_iter().map(|bytes| bytes.max(0.0)).collect()
}

/// Those that hold much come first, most bytes first, then the others, most calls first.
pub fn sort_by_weight<Row>(rows: &mut [Row], bytes: impl Fn(&Row) -> f64, calls: impl Fn(&Row) -> f64) {
    let all: f64 = rows.iter().map(&bytes).sum();
    let held = |row: &Row| if bytes(row) >= all * MUCH { bytes(row) } else { 0.0 };
    rows.sort_by(|one, other| held(other).total_cmp(&held(one)).then(calls(other).total_cmp(&calls(one))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::churn::circumstances::MallocCircumstances;
    use crate::churn::malloc_tally::MallocTally;
    use faultless_records::malloc_event::{Allocated, MallocEvent};

    #[test]
    fn what_a_thread_allocated_and_others_freed_it_does_not_hold() {
        let mut tally = MallocTally::default();
        for (id, tid, freed_by) in [(1, 1, Some(1)), (2, 1, Some(2)), (3, 2, None)] {
            let block = Allocated {
                id,
                tid,
                time_ns: 1,
                size_bytes: 100,
                weight: 1,
                is_tracked: true,
                ..Allocated::default()
            };
            tally.take(0, &MallocEvent::Allocated(block), None);
            if let Some(tid) = freed_by {
                tally.take(0, &MallocEvent::Freed { time_ns: 2, id, tid, by_realloc: false }, None);
            }
        }
        let recording = tally.finish(MallocCircumstances::default());
        assert_eq!(not_freed_by_thread(&recording), [0.0, 100.0]);
    }

    #[test]
    fn who_holds_much_comes_before_who_calls_often() {
        let mut rows = [("busy", 9.0, 0.0), ("busier", 99.0, 1.0), ("some", 1.0, 20.0), ("most", 2.0, 79.0)];
        sort_by_weight(&mut rows, |row| row.2, |row| row.1);
        assert_eq!(rows.map(|row| row.0), ["most", "some", "busier", "busy"]);
    }
}
