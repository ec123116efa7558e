//! What lives at the end, by size class: estimated from what was described, then made to agree with the number of blocks.
//!
//! Where every call of a process was counted, it is known how many blocks live: as many as it was handed less those that came
//! back. How large they are is not. So the difference between that number and the estimate is shared out among the size classes
//! by how uncertain each is (the linear estimator of least variance), and what remains uncertain is which classes it belongs to.

use std::collections::BTreeMap;

use faultless_records::malloc_recording::{BlockLives, Estimate};

use super::Extremes;

/// Blocks of a size class that were described and live.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Survivors {
    blocks: f64,
    count_variance: f64,
    bytes_variance: f64,
}

impl Survivors {
    pub(super) fn add(&mut self, weight: f64, bytes_variance: f64) {
        self.blocks += 1.0;
        self.count_variance += weight * (weight - 1.0);
        self.bytes_variance += bytes_variance;
    }
}

/// A size class at the end of a process.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassEnd {
    /// What lives, as it is estimated.
    pub live: Estimate,
    /// What was freed.
    pub freed: Estimate,
    /// What became of these is not known.
    pub unknown: Estimate,
    /// Blocks that are known to live.
    pub seen: f64,
    /// How many blocks a described one stood for at most.
    pub heaviest: f64,
    /// Of the number of live blocks, as those tell that were seen to live, each standing for its weight.
    pub seen_variance: f64,
    /// Bytes of the smallest and of the largest block described.
    pub bytes_range: (f64, f64),
    /// Of the number of live blocks.
    pub count_variance: f64,
    /// Of their bytes.
    pub bytes_variance: f64,
}

impl ClassEnd {
    /// Scaled to the exact counts by these factors.
    pub(super) fn new(
        lives: &BlockLives,
        survivors: Survivors,
        extremes: Extremes,
        factors: Estimate,
    ) -> Self {
        let mut end = Self {
            live: lives.live.times(factors),
            freed: lives.freed.times(factors),
            unknown: lives.unknown.times(factors),
            seen: survivors.blocks,
            heaviest: extremes.heaviest,
            seen_variance: survivors.count_variance,
            bytes_range: (extremes.smallest_bytes as f64, extremes.largest_bytes as f64),
            count_variance: 0.0,
            bytes_variance: 0.0,
        };
        let all = end.all();
        if all.count > 0.0 && end.heaviest > 1.0 {
            // One more that stands for the most may live and have been missed; where nearly all live there is nearly
            // nothing to be missed.
            let missed = end.heaviest * (end.heaviest - 1.0) * factors.count.powi(2);
            let freed = (1.0 - end.live.count / all.count).max(0.0);
            let mean_bytes = all.bytes / all.count;
            end.count_variance = (survivors.count_variance * factors.count.powi(2) + missed) * freed;
            end.bytes_variance =
                (survivors.bytes_variance * factors.bytes.powi(2) + missed * mean_bytes * mean_bytes) * freed;
        }
        end
    }

    /// No fewer live than were seen to, no more than there are, and than the others leave of those that must live.
    fn most_live(&self, spare: f64) -> f64 {
        (self.seen + spare).min(self.all().count).max(self.seen)
    }

    fn all(&self) -> Estimate {
        let mut all = self.live;
        all.add_scaled(self.freed, 1.0);
        all.add_scaled(self.unknown, 1.0);
        all
    }

    /// Mean size of what lives; of all blocks where none was seen to live that stands for others.
    fn mean_bytes(&self) -> f64 {
        let of = if self.live.count > self.seen { self.live } else { self.all() };
        if of.count > 0.0 { of.bytes / of.count } else { 0.0 }
    }

    /// Variance of the bytes of so many blocks whose mean is known from some of them.
    fn variance_of_sizes(&self) -> f64 {
        let others = (self.live.count - self.seen).max(0.0);
        let (smallest, largest) = self.bytes_range;
        others * others.min(self.heaviest) * (largest - smallest).powi(2) / 12.0
    }

    /// What lives of a caller, of which so much was estimated to. What the class has lost since it has lost of all alike; what it has
    /// gained is of those of whom blocks were seen to live that stand for others. Where there is none nobody is accused.
    pub(super) fn of_caller(&self, estimated: &Self, live: Estimate, seen_variance: f64) -> Estimate {
        let (before, gained) = (estimated.live, self.live.count - estimated.live.count);
        if gained <= 0.0 {
            let kept = if before.count > 0.0 { self.live.count / before.count } else { 1.0 };
            return live.times(Estimate { count: kept, bytes: kept });
        }
        let part = if self.seen_variance > 0.0 { seen_variance / self.seen_variance } else { 0.0 };
        let mut settled = live;
        settled.add_scaled(Estimate { count: gained, bytes: self.live.bytes - before.bytes }, part);
        settled
    }

    /// Moves so many from freed ones to live ones, at first from those of which nothing is known.
    fn revive(&mut self, blocks: f64) {
        let mean_bytes = self.mean_bytes();
        let unknown = blocks.clamp(0.0, self.unknown.count);
        let unknown_bytes =
            if unknown > 0.0 { self.unknown.bytes * unknown / self.unknown.count } else { 0.0 };
        let all_bytes = self.all().bytes;
        self.live.count += blocks;
        self.live.bytes = (self.live.bytes + blocks * mean_bytes).clamp(0.0, all_bytes);
        self.unknown.count -= unknown;
        self.unknown.bytes -= unknown_bytes;
        self.freed.count = (self.freed.count - (blocks - unknown)).max(0.0);
        self.freed.bytes = (all_bytes - self.live.bytes - self.unknown.bytes).max(0.0);
    }
}

/// Makes the classes agree with the number of blocks that live in all of them; what they then vary by is what is left to doubt.
pub(super) fn settle(ends: &mut BTreeMap<u8, ClassEnd>, blocks: f64) {
    let spare = (blocks - ends.values().map(|end| end.seen).sum::<f64>()).max(0.0);
    for end in ends.values_mut() {
        let most = end.most_live(spare);
        let furthest = (end.live.count - end.seen).max(most - end.live.count).max(0.0);
        end.count_variance = (end.count_variance + end.unknown.count.powi(2)).min(furthest * furthest);
    }
    // A class that is at one of its limits leaves the rest to the others.
    for _ in 0..=ends.len() {
        let missing = blocks - ends.values().map(|end| end.live.count).sum::<f64>();
        let is_open = |end: &ClassEnd| {
            let is_at_limit = match missing > 0.0 {
                true => end.live.count >= end.most_live(spare),
                false => end.live.count <= end.seen,
            };
            end.count_variance > 0.0 && !is_at_limit
        };
        let variance: f64 = ends.values().filter(|end| is_open(end)).map(|end| end.count_variance).sum();
        if missing.abs() < 1e-6 || variance <= 0.0 {
            break;
        }
        for end in ends.values_mut().filter(|end| is_open(end)) {
            let most = end.most_live(spare);
            let wanted = end.live.count + missing * end.count_variance / variance;
            end.revive(wanted.clamp(end.seen, most) - end.live.count);
        }
    }
    let variance: f64 = ends.values().map(|end| end.count_variance).sum();
    let together: f64 = ends.values().map(|end| end.mean_bytes() * end.count_variance).sum();
    for end in ends.values_mut() {
        let mean_bytes = end.mean_bytes();
        // Its part of what all vary by, less what the known sum takes off.
        let known = if variance > 0.0 { mean_bytes * end.count_variance * together / variance } else { 0.0 };
        end.bytes_variance = mean_bytes * mean_bytes * end.count_variance - known + end.variance_of_sizes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(live: f64, freed: f64, bytes: f64, weight: f64, seen: f64) -> ClassEnd {
        ClassEnd {
            live: Estimate { count: live, bytes: live * bytes },
            freed: Estimate { count: freed, bytes: freed * bytes },
            seen,
            heaviest: weight,
            bytes_range: (bytes, bytes),
            count_variance: (seen + 1.0) * weight * (weight - 1.0),
            ..ClassEnd::default()
        }
    }

    fn settled(classes: &[ClassEnd], blocks: f64) -> (BTreeMap<u8, ClassEnd>, f64) {
        let mut ends: BTreeMap<u8, ClassEnd> = (0..).zip(classes.iter().copied()).collect();
        let bytes = |ends: &BTreeMap<u8, ClassEnd>| ends.values().map(|end| end.all().bytes).sum::<f64>();
        let before = bytes(&ends);
        settle(&mut ends, blocks);
        assert!((bytes(&ends) - before).abs() < 1.0, "bytes asked for are exact");
        let variance = ends.values().map(|end| end.bytes_variance).sum();
        (ends, variance)
    }

    #[test]
    fn where_nothing_lives_nothing_is_uncertain() {
        let (ends, variance) = settled(&[end(0.0, 9e6, 600.0, 60_000.0, 0.0)], 0.0);
        assert_eq!((ends[&0].live.count, variance), (0.0, 0.0));
    }

    #[test]
    fn where_all_that_lives_was_seen_nothing_else_may_live() {
        let (ends, variance) =
            settled(&[end(150.0, 0.0, 100.0, 1.0, 150.0), end(0.0, 20.0, 10e6, 8.0, 0.0)], 150.0);
        assert_eq!((ends[&0].live.count, ends[&1].live.count, variance), (150.0, 0.0, 0.0));
    }

    #[test]
    fn a_class_that_was_described_wholly_stays_as_it_is() {
        let (ends, variance) =
            settled(&[end(5.0, 2.0, 4000.0, 1.0, 5.0), end(200.0, 9000.0, 16.0, 100.0, 2.0)], 135.0);
        assert_eq!((ends[&0].live.count, ends[&1].live.count), (5.0, 130.0));
        assert!((ends[&1].live.bytes - 130.0 * 16.0).abs() < 1e-6);
        assert!(variance.abs() < 1e-6, "one class alone has the rest: {variance}");
    }

    #[test]
    fn what_a_class_cannot_take_goes_to_the_others() {
        let small = ClassEnd { count_variance: 1e6, ..end(0.0, 10.0, 100.0, 50.0, 0.0) };
        let (ends, variance) = settled(&[small, end(0.0, 5000.0, 16.0, 20.0, 0.0)], 300.0);
        assert!(ends[&0].live.count <= 10.0 && variance > 0.0, "{ends:?}");
        let together = ends[&0].live.count + ends[&1].live.count;
        assert!((together - 300.0).abs() < 1e-3, "{together}");
    }

    #[test]
    fn blocks_that_were_not_followed_are_the_first_to_live_after_all() {
        let unfollowed =
            ClassEnd { unknown: Estimate { count: 30.0, bytes: 3000.0 }, ..end(70.0, 0.0, 100.0, 1.0, 70.0) };
        let (ends, _) = settled(&[unfollowed], 95.0);
        assert_eq!((ends[&0].live.count, ends[&0].unknown.count, ends[&0].freed.count), (95.0, 5.0, 0.0));
    }
}
