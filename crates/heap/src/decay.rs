//! When a free span goes back to the kernel. Pure: time and sizes are passed in.
//!
//! Keeping a free MiB costs what the machine could do with it; giving it back costs a purge now and a fault per
//! page when it is wanted again (256 pages x about 2 us, see docs/decay.md). While nothing speaks for
//! reuse a freed span is purged at once. Memory wanted soon after memory was purged is a *regret*, whatever the sizes:
//! free memory is one pool, cut and joined at will. It is evidence of how much comes back (the *depth*), and how soon.
//! From then on that much is held, for a time that grows with regrets and with the gaps seen between free and reuse, and
//! shrinks when memory was held in vain. It never exceeds [`HOLD_MAX_NS`], the age at which holding has cost as much as
//! one purge and refault would (ski rental), and begins with a fifth of that; docs/decay.md shows what that wins over beginning
//! with the whole, or with a millisecond.
//!
//! Where there is a *purger* (a thread of ours, in processes with threads), no evidence is needed to hold: everything is
//! held for that time.
//!
//! More free memory than ever came back ends a phase of the program: then all that is held goes, too, and what is freed
//! until memory is wanted again. Where that was wrong the regrets at least double the depth, so it happens rarely.

/// CPU time in ns that a MiB of idle memory is worth for a second, unless said otherwise (`FAULTLESS=thrift:…`).
pub const PRICE_NS: u64 = 2_048_000;

/// CPU time in ns to purge a MiB and to fault it in again: 256 pages of 0.2 and 1.8 us (docs/decay.md).
const PURGE_AND_REFAULT_NS: u64 = 512_000;

/// Longest time in ns that free memory is held at the usual price: the age at which holding has cost one purge and refault.
pub const HOLD_MAX_NS: u64 = hold_max_ns(PRICE_NS);

/// The age in ns at which holding memory at `price_ns` has cost one purge and refault.
pub const fn hold_max_ns(price_ns: u64) -> u64 {
    PURGE_AND_REFAULT_NS * 1_000_000_000 / price_ns
}

/// Time in ns between two looks of the purger at everything, where memory is held for at most `hold_max_ns` (H): P. What nobody needs goes
/// at the second look that finds it, between P and 2 P after its last use. If it is wanted right then it has cost (P + H) / P of what
/// hindsight pays, or (2 P + H) / H, where H is worth a purge and the faults after it. P = H / sqrt(2) makes both 2.4; with P = H the
/// latter was 3. At a high price no shorter than [`HOLD_MIN_NS`], for a look costs, too; at a low one no longer than 5 s: what one shard
/// does not need another has to do without.
pub const fn pause_ns(hold_max_ns: u64) -> u64 {
    match hold_max_ns / 10 * 7 {
        ..HOLD_MIN_NS => HOLD_MIN_NS,
        PAUSE_MOST_NS.. => PAUSE_MOST_NS,
        pause_ns => pause_ns,
    }
}

const PAUSE_MOST_NS: u64 = 5_000_000_000;

/// Shortest time in ns that memory is held, if it is held, at the usual price.
pub const HOLD_MIN_NS: u64 = HOLD_MAX_NS / MIN_PART;

/// The part of the longest hold that is the shortest.
const MIN_PART: u64 = 5;

/// The highest price in ns shortens the longest hold to this.
const HOLD_MAX_LEAST_NS: u64 = 1_000_000;

/// By this part of the depth more may be held: no two phases of a program need exactly the same.
const SLACK: u32 = 4;

/// Number of size bins of free spans: one per doubling of the size in granules.
const BINS: usize = 25;

/// The size bin of a span of `granules`.
pub fn bin_of(granules: u32) -> usize {
    (granules.max(1).ilog2() as usize).min(BINS - 1)
}

/// Length in granules of the smallest span of a bin.
pub fn smallest_of(bin: u8) -> u32 {
    1 << bin
}

/// What becomes of a freed span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks for reuse: give it back with the next batch; and all that is held if a phase [is over](Decay::is_phase_over).
    Purge,
    /// Hold it until this time in ns.
    HoldUntil(u64),
}

/// The purge policy of one heap; sizes in granules, times in ns. Methods in the past tense tell it what happened. New ones are all zero, as all of the heap is.
#[derive(Clone, Copy, Debug)]
pub struct Decay {
    /// Memory that was seen to be reused, and so may be held.
    depth: u32,
    /// How much longer than the shortest time memory is held.
    hold_more_ns: u64,
    /// The longest that it ever is, 0 for [`HOLD_MAX_NS`].
    hold_limit_ns: u64,
    /// There is a purger: what is held goes when its time has come, whatever the program does.
    has_purger: bool,
    /// Memory purged and not asked for again since.
    purged: u32,
    /// When memory was last purged.
    purged_at: u64,
    /// Whether `hold_ns` has grown since then: all that comes back after one purge is one regret.
    has_grown: bool,
    /// A phase has ended and no memory was wanted since.
    is_phase_over: bool,
}

impl Decay {
    /// A policy that has seen nothing.
    pub const fn new() -> Self {
        Self {
            depth: 0,
            hold_more_ns: 0,
            hold_limit_ns: 0,
            has_purger: false,
            purged: 0,
            purged_at: 0,
            has_grown: false,
            is_phase_over: false,
        }
    }

    /// Holds memory for at most `hold_max_ns` from now on.
    pub fn set_hold_max(&mut self, hold_max_ns: u64) {
        self.hold_limit_ns = hold_max_ns.max(HOLD_MAX_LEAST_NS);
        self.hold_more_ns = self.hold_more_ns.min(self.hold_limit_ns - self.hold_min_ns());
    }

    /// One that has seen nothing, with the same limits.
    pub fn with_nothing_seen(&self) -> Self {
        Self { hold_limit_ns: self.hold_limit_ns, has_purger: self.has_purger, ..Self::new() }
    }

    fn hold_ns(&self) -> u64 {
        self.hold_min_ns() + self.hold_more_ns
    }

    fn hold_min_ns(&self) -> u64 {
        self.hold_max_ns() / MIN_PART
    }

    /// The longest that memory is held.
    pub fn hold_max_ns(&self) -> u64 {
        if self.hold_limit_ns == 0 { HOLD_MAX_NS } else { self.hold_limit_ns }
    }

    /// Says whether there is a purger from now on.
    pub fn set_purger(&mut self, has_purger: bool) {
        self.has_purger = has_purger;
        self.is_phase_over = false;
    }

    /// Whether there is one.
    pub fn has_purger(&self) -> bool {
        self.has_purger
    }

    /// Whether nothing speaks for holding memory at present.
    pub fn is_releasing(&self) -> bool {
        !self.has_purger && (self.is_phase_over || self.depth == 0)
    }

    /// A span of `granules` was freed at `now`, while `held` granules are held.
    pub fn freed(&mut self, granules: u32, held: u32, now: u64) -> Verdict {
        self.is_phase_over |= !self.has_purger && held.saturating_add(granules) > self.deepest();
        if self.is_phase_over { Verdict::Purge } else { Verdict::HoldUntil(now + self.hold_ns()) }
    }

    /// How many granules more would be held now, while `held` are.
    pub fn most_held(&self, held: u32) -> u32 {
        if self.is_phase_over { 0 } else { self.deepest().saturating_sub(held) }
    }

    fn deepest(&self) -> u32 {
        self.depth + self.depth / SLACK
    }

    /// Whether a phase has ended and no memory was wanted since.
    pub fn is_phase_over(&self) -> bool {
        self.is_phase_over
    }

    /// Memory that was held was taken for a new span after `gap_ns`.
    pub fn reused(&mut self, gap_ns: u64) {
        self.is_phase_over = false;
        self.hold_at_least(gap_ns.saturating_mul(2));
    }

    /// Memory freed with the verdict to purge was taken for a new span before its purge, `granules` of it after `gap_ns`.
    pub fn rescued(&mut self, granules: u32, gap_ns: u64) {
        self.is_phase_over = false;
        self.depth = self.depth.saturating_add(granules);
        self.hold_at_least(gap_ns.saturating_mul(2));
    }

    /// A span of `granules` was taken from memory that holds no pages: a regret if as much was just purged.
    pub fn faulted(&mut self, granules: u32, now: u64) {
        self.is_phase_over = false;
        if self.purged == 0 {
            return;
        }
        let gap_ns = now.saturating_sub(self.purged_at);
        if gap_ns > self.hold_max_ns() {
            // What was purged is not missed: holding it for less time would have done.
            self.purged = 0;
            self.hold_more_ns = (self.hold_ns() / 2).saturating_sub(self.hold_min_ns());
            return;
        }
        let regretted = granules.min(self.purged);
        self.purged -= regretted;
        self.depth = self.depth.saturating_add(regretted);
        self.hold_at_least(gap_ns * 2);
        if !self.has_grown {
            self.has_grown = true;
            self.hold_at_least(self.hold_ns() * 2);
        }
    }

    /// Memory that was not held, or is held no longer because its phase is over, is being purged, `granules` of it.
    pub fn purged(&mut self, granules: u32, now: u64) {
        if self.has_purger {
            // Or what comes back again and again after its purge would add up.
            self.forget(granules);
        }
        if self.has_purger && self.purged > 0 && now.saturating_sub(self.purged_at) > self.hold_max_ns() {
            // Nobody missed what was purged before.
            self.purged = 0;
            self.hold_more_ns = (self.hold_ns() / 2).saturating_sub(self.hold_min_ns());
        }
        self.purged = self.purged.saturating_add(granules);
        self.purged_at = now;
        self.has_grown = false;
    }

    /// A span that was held was not reused in time and is being purged: that much evidence is gone.
    pub fn expired(&mut self, granules: u32, now: u64) {
        if !self.has_purger {
            self.forget(granules);
        }
        self.purged(granules, now);
    }

    /// So much less was seen to be reused.
    fn forget(&mut self, granules: u32) {
        self.depth = self.depth.saturating_sub(granules);
    }

    fn hold_at_least(&mut self, hold_ns: u64) {
        self.hold_more_ns = self.hold_ns().max(hold_ns).min(self.hold_max_ns()) - self.hold_min_ns();
    }
}

impl Default for Decay {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn without_evidence_memory_is_given_back_at_once() {
        let mut decay = Decay::new();
        assert_eq!(decay.freed(64, 0, MS), Verdict::Purge);
        decay.purged(64, MS);
        assert_eq!(decay.freed(64, 0, 1000 * MS), Verdict::Purge);
    }

    #[test]
    fn one_regret_teaches_to_hold_that_much_and_no_more() {
        let mut decay = Decay::new();
        decay.purged(64, MS);
        decay.faulted(64, 2 * MS);
        assert_eq!(decay.freed(64, 0, 3 * MS), Verdict::HoldUntil(3 * MS + 2 * HOLD_MIN_NS));
        assert!(matches!(decay.freed(16, 64, 3 * MS), Verdict::HoldUntil(_)), "some slack");
        assert_eq!(decay.freed(17, 64, 3 * MS), Verdict::Purge);
    }

    #[test]
    fn sizes_other_than_the_purged_one_are_regrets_too() {
        let mut decay = Decay::new();
        decay.purged(64, MS);
        for _ in 0..8 {
            decay.faulted(4, MS);
        }
        assert!(matches!(decay.freed(32, 0, MS), Verdict::HoldUntil(_)));
        assert_eq!(decay.freed(41, 0, MS), Verdict::Purge);
    }

    #[test]
    fn memory_wanted_again_only_after_a_long_time_is_no_regret() {
        let mut decay = Decay::new();
        decay.purged(64, 0);
        decay.faulted(64, HOLD_MAX_NS + 1);
        assert_eq!(decay.freed(64, 0, HOLD_MAX_NS + 2), Verdict::Purge);
    }

    #[test]
    fn holding_in_vain_forgets() {
        let mut decay = Decay::new();
        decay.purged(64, 0);
        decay.faulted(64, MS);
        assert!(matches!(decay.freed(64, 0, MS), Verdict::HoldUntil(_)));
        decay.expired(64, 300 * MS);
        assert_eq!(decay.freed(64, 0, 900 * MS), Verdict::Purge);
    }

    #[test]
    fn when_a_phase_is_over_all_goes_until_memory_is_wanted_again() {
        let mut decay = Decay::new();
        decay.purged(64, 0);
        decay.faulted(64, 0);
        assert_eq!(decay.freed(1, 80, MS), Verdict::Purge);
        assert_eq!(
            decay.freed(1, 0, MS),
            Verdict::Purge,
            "not enough to exceed the depth, but the phase is over"
        );
        decay.reused(0);
        assert!(matches!(decay.freed(1, 0, MS), Verdict::HoldUntil(_)));
    }

    #[test]
    fn regrets_of_one_purge_lengthen_the_hold_once() {
        let mut decay = Decay::new();
        decay.purged(64, 0);
        (0..64).for_each(|_| decay.faulted(1, 0));
        assert_eq!(decay.freed(64, 0, 0), Verdict::HoldUntil(2 * HOLD_MIN_NS));
    }

    #[test]
    fn with_a_purger_everything_is_held_without_evidence() {
        let mut decay = Decay::new();
        decay.set_purger(true);
        assert_eq!(decay.freed(64, 0, MS), Verdict::HoldUntil(MS + HOLD_MAX_NS / 5));
        decay.set_hold_max(hold_max_ns(10 * PRICE_NS));
        assert_eq!(decay.freed(64, 0, MS), Verdict::HoldUntil(MS + HOLD_MAX_NS / 50));
        decay.set_purger(false);
        assert_eq!(decay.freed(64, 0, MS), Verdict::Purge);
        assert!(decay.is_phase_over());
        decay.set_purger(true);
        assert!(
            matches!(decay.freed(64, 0, MS), Verdict::HoldUntil(_)),
            "the phase that is over is forgotten"
        );
    }

    #[test]
    fn memory_taken_again_before_its_purge_is_evidence() {
        let mut decay = Decay::new();
        assert_eq!(decay.freed(64, 0, MS), Verdict::Purge);
        decay.rescued(64, MS);
        assert!(matches!(decay.freed(64, 0, 2 * MS), Verdict::HoldUntil(_)));
        assert_eq!(decay.freed(17, 64, 2 * MS), Verdict::Purge, "of that much");
    }

    #[test]
    fn with_a_purger_regrets_lengthen_the_hold_and_purges_that_nobody_misses_shorten_it() {
        let mut decay = Decay::new();
        decay.set_purger(true);
        let mut now = 0;
        let mut hold = |decay: &mut Decay, is_missed: bool| {
            let Verdict::HoldUntil(until) = decay.freed(64, 0, now) else { return 0 };
            let held = until - now;
            decay.expired(64, until);
            if is_missed {
                decay.faulted(64, until + 10 * MS);
            }
            now = until + 2 * HOLD_MAX_NS;
            held / MS
        };
        let holds: [u64; 5] = core::array::from_fn(|_| hold(&mut decay, true));
        assert_eq!(holds, [50, 100, 200, 250, 250]);
        let holds: [u64; 5] = core::array::from_fn(|_| hold(&mut decay, false));
        assert_eq!(holds, [250, 250, 125, 62, 50]);
    }

    #[test]
    fn with_a_purger_what_is_missed_after_each_purge_does_not_add_up() {
        let mut decay = Decay::new();
        decay.set_purger(true);
        let pause = 2 * HOLD_MAX_NS;
        for round in 1..100 {
            decay.purged(64, round * pause);
            decay.faulted(64, round * pause + 100 * MS);
        }
        decay.set_purger(false);
        assert!(matches!(decay.freed(80, 0, 100 * pause), Verdict::HoldUntil(_)));
        assert_eq!(decay.freed(1, 80, 100 * pause), Verdict::Purge);
    }

    #[test]
    fn memory_is_released_while_nothing_speaks_for_holding_it() {
        let mut decay = Decay::new();
        assert!(decay.is_releasing());
        decay.purged(64, 0);
        decay.faulted(64, 0);
        assert!(!decay.is_releasing());
        decay.freed(81, 0, MS);
        assert!(decay.is_releasing());
        decay.set_purger(true);
        assert!(!decay.is_releasing());
    }

    #[test]
    fn as_much_more_is_held_as_is_missing_to_the_depth_and_its_slack() {
        let mut decay = Decay::new();
        decay.purged(64, 0);
        decay.faulted(64, 0);
        assert_eq!([0, 60, 90].map(|held| decay.most_held(held)), [80, 20, 0]);
        decay.freed(81, 0, MS);
        assert_eq!(decay.most_held(0), 0, "the phase is over");
    }

    #[test]
    fn memory_is_held_for_twice_the_time_after_which_it_was_wanted_again() {
        let until = |decay: &mut Decay| decay.freed(64, 0, 0);
        let gap = HOLD_MIN_NS + MS;
        let mut decay = Decay::new();
        decay.rescued(80, gap);
        assert_eq!(until(&mut decay), Verdict::HoldUntil(2 * gap));
        decay.reused(gap + MS);
        assert_eq!(until(&mut decay), Verdict::HoldUntil(2 * (gap + MS)));
        let mut decay = Decay::new();
        decay.purged(80, 0);
        decay.faulted(40, 0);
        decay.faulted(40, gap + MS);
        assert_eq!(until(&mut decay), Verdict::HoldUntil(2 * (gap + MS)));
    }

    #[test]
    fn the_longest_hold_is_a_ms_or_more_and_shortens_what_is_held_already() {
        let mut decay = Decay::new();
        decay.set_purger(true);
        decay.reused(HOLD_MAX_NS);
        assert_eq!(decay.freed(64, 0, 0), Verdict::HoldUntil(HOLD_MAX_NS));
        for [most, longest] in [[HOLD_MAX_NS / 2, HOLD_MAX_NS / 2], [0, MS]] {
            decay.set_hold_max(most);
            assert_eq!(decay.freed(64, 0, 0), Verdict::HoldUntil(longest));
        }
    }

    #[test]
    fn the_purger_looks_the_less_often_the_less_memory_is_worth() {
        let pauses = [1, 10, 100, 1000, 100_000].map(|part| pause_ns(hold_max_ns(PRICE_NS * 10 / part)) / MS);
        assert_eq!(pauses, [50, 175, 1750, 5000, 5000]);
    }

    #[test]
    fn what_is_not_missed_in_time_shortens_the_hold_once() {
        let mut decay = Decay::new();
        decay.rescued(1000, HOLD_MAX_NS);
        decay.purged(64, 0);
        (0..2).for_each(|_| decay.faulted(1, 2 * HOLD_MAX_NS));
        assert_eq!(decay.freed(64, 0, 0), Verdict::HoldUntil(HOLD_MAX_NS / 2));
    }

    #[test]
    fn with_a_purger_only_what_was_purged_lately_is_missed() {
        let mut decay = Decay::new();
        decay.set_purger(true);
        let late = 2 * HOLD_MAX_NS;
        [0, late].into_iter().for_each(|now| decay.purged(64, now));
        decay.faulted(100, late);
        assert_eq!(decay.depth, 64);
    }

    #[test]
    fn what_is_held_in_vain_is_forgotten_once() {
        for has_purger in [false, true] {
            let mut decay = Decay::new();
            decay.set_purger(has_purger);
            decay.rescued(64, 0);
            decay.expired(16, 0);
            decay.set_purger(false);
            assert_eq!(decay.most_held(0), 60, "{has_purger}");
        }
    }

    #[test]
    fn a_hold_is_never_longer_than_the_ski_rental_bound() {
        let mut decay = Decay::new();
        for round in 0..40 {
            decay.purged(1, round * HOLD_MAX_NS);
            decay.faulted(1, round * HOLD_MAX_NS + HOLD_MAX_NS);
        }
        assert_eq!(decay.freed(1, 0, 0), Verdict::HoldUntil(HOLD_MAX_NS));
    }
}
