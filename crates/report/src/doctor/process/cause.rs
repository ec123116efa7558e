//! What a process faults for, where its allocator is not seen to waste anything.

use faultless_diagnosis::churn::makers::part_returned_by_others;
use faultless_records::churn_recording::{ChurnRecording, Pattern};
use faultless_records::memory_call::Operation;
use faultless_records::pagemap::PAGE_BYTES;

use super::{MOST, ProcessConsultation};

/// What a process faults for, where its allocator is not seen to waste anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Memory that stays.
    Growth,
    /// What others than malloc give back and take again.
    Others,
    /// Not seen: what goes back.
    NotSeen,
    /// Memory that comes and goes too seldom to tell whose it is.
    TooRare,
    /// Memory that goes back, and may be wanted again later than was looked for.
    Later,
    /// What other times tell.
    Phases,
    /// Pages that are shared with processes that it started, as far as is known.
    Forks,
    /// Nothing that goes back.
    Nothing,
}

impl Cause {
    /// That in a sentence.
    pub(super) fn verdict(self) -> &'static str {
        match self {
            Self::Growth => {
                "its allocator is not the cause of its page faults: most of them bring in what it grows by"
            }
            Self::NotSeen => "its page faults cost time; whether its allocator causes them was not seen",
            Self::Others => {
                "malloc is not seen to cause its page faults: what is given back and taken again is not its doing, as far as \
                     call chains tell"
            }
            Self::TooRare => {
                "its page faults cost time, and memory is given back and taken again, but too seldom in this time to tell whose it \
                     is: a longer one (--for 1m) does"
            }
            Self::Later => {
                "its page faults cost time, and memory is given back to the kernel: whether it is taken again more than a second \
                     later was not seen"
            }
            Self::Phases => {
                "its page faults cost time, and come in phases, of which not all was seen: whether its allocator causes them a longer \
                     look tells (--for 1m)"
            }
            Self::Forks => {
                "its allocator is not the cause of its page faults: they may copy the pages that it shares with what it forks"
            }
            Self::Nothing => {
                "its allocator is not the cause of its page faults: no memory without a file is given back and soon taken again"
            }
        }
    }

    /// Whether it may be its allocator all the same.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::NotSeen | Self::TooRare | Self::Later | Self::Phases)
    }
}

impl ProcessConsultation {
    /// What it is that it faults for, no waste of its allocator's having been found.
    pub(super) fn cause_of_faults(&self, has_thrash: bool) -> Cause {
        let is_by_others = || self.churn.as_ref().is_some_and(|churn| part_returned_by_others(churn) >= MOST);
        match self.are_calls_seen() {
            true if has_thrash => Cause::Others,
            _ if self.activity.faults_for_growth() && !self.activity.was_as_large() => Cause::Growth,
            false => Cause::NotSeen,
            true if (self.is_thrash_too_rare() || self.is_much_given_back()) && is_by_others() => {
                Cause::Others
            }
            true if self.is_thrash_too_rare() => Cause::TooRare,
            true if self.is_much_given_back() => Cause::Later,
            true if self.is_in_phases() => Cause::Phases,
            true if self.may_fault_for_forks() => Cause::Forks,
            true => Cause::Nothing,
        }
    }

    /// Of what is not told as thrash: whether memory comes and goes that may be what faults, too seldom in this time.
    fn is_thrash_too_rare(&self) -> bool {
        let Some(churn) = &self.churn else { return false };
        let again = churn.cycles.iter().filter(|cycle| cycle.pattern != Pattern::Stack);
        let bytes = again.map(|cycle| cycle.amount.bytes).sum();
        self.part_of_faults(churn, bytes) > 0.1
    }

    /// Whether so much memory goes back that it may be a fifth of what faults, in phases that are longer than what is told as thrash.
    fn is_much_given_back(&self) -> bool {
        use Operation::{MapFile, MapReserve, MapStack, Protect, Unmap};
        let Some(churn) = &self.churn else { return false };
        // Of what is unmapped files bring in no memory, of stacks little is touched, and of reserves no more than was made accessible.
        let reserved = churn.bytes_of(&[MapReserve]).saturating_sub(churn.bytes_of(&[Protect]));
        let untouched = churn.bytes_of(&[MapFile, MapStack]).saturating_add(reserved);
        let untouched_unmapped = untouched.min(churn.bytes_of(&[Unmap]));
        self.part_of_faults(churn, churn.bytes_given_back().saturating_sub(untouched_unmapped)) > 0.2
    }

    /// Whether its page faults brought in what it had had before, or came while its calls were not looked at, or half of them then brought
    /// in what it took from the kernel and had not kept in the end.
    fn is_in_phases(&self) -> bool {
        use Operation::{BreakGrow, MapAnonymous};
        let (Some(churn), Some(meanwhile)) = (&self.churn, self.faults_beside_calls) else { return false };
        let taken_bytes = churn.bytes_of(&[BreakGrow, MapAnonymous]);
        let brought_in_bytes = meanwhile * churn.observed_s() * PAGE_BYTES as f64;
        self.activity.faults_for_growth()
            || meanwhile < self.activity.minor_faults_per_second() / 2.0
            || (taken_bytes as f64 > brought_in_bytes / 2.0 && self.activity.growth_bytes() < taken_bytes / 2)
    }

    /// Processes that it was seen to start.
    pub(super) fn started(&self) -> u64 {
        self.churn.as_ref().map_or(0, |churn| churn.processes.saturating_sub(1))
    }

    /// Whether the processes that it started leave it enough pages to copy for half of its faults: each of its pages, once for each of
    /// them.
    fn may_fault_for_forks(&self) -> bool {
        let shared_bytes = self.map.sum().anonymous_bytes.saturating_mul(self.started());
        self.churn.as_ref().is_some_and(|churn| self.part_of_faults(churn, shared_bytes) > 0.5)
    }

    /// So many bytes, which were seen while its calls were, as a part of what its page faults brought in meanwhile.
    fn part_of_faults(&self, churn: &ChurnRecording, bytes: u64) -> f64 {
        let faults = self.activity.minor_faults_per_second() * churn.observed_s();
        bytes as f64 / PAGE_BYTES as f64 / faults.max(1.0)
    }
}
