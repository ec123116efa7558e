//! Who asked for the blocks: what call chains stand for agrees with the exact calls of each function and size class.

use std::collections::{BTreeMap, HashMap};

use faultless_records::malloc_event::{CallCount, MallocFunction};
use faultless_records::malloc_recording::{Estimate, MallocCaller};

use super::ends::ClassEnd;
use super::scaling::ratios;
use super::{CallerPart, Process};

/// A described call that stands for at least so many stands for others than itself.
const STANDS_FOR_OTHERS: f64 = 2.0;

/// The callers of a function and size class, by their chains.
#[derive(Debug, Default, Clone, Copy)]
struct Made {
    /// What all of them asked for, as estimated.
    all: Estimate,
    /// Of that what those did of whom calls were described that stand for others. The rest is known better.
    open: Estimate,
}

impl Made {
    /// What a caller asked for, of which so much was estimated to, where all of them together asked for `exact`.
    fn of_caller(self, estimated: Estimate, is_open: bool, exact: Estimate) -> Estimate {
        Estimate {
            count: agreed(estimated.count, is_open, self.all.count, self.open.count, exact.count),
            bytes: agreed(estimated.bytes, is_open, self.all.bytes, self.open.bytes, exact.bytes),
        }
    }
}

/// The difference is of those who stand for others. Where there is none nobody is accused of what is missing.
fn agreed(estimated: f64, is_open: bool, all: f64, open: f64, exact: f64) -> f64 {
    let agreed = open + exact - all;
    match open > 0.0 && agreed >= 0.0 {
        true if is_open => estimated * agreed / open,
        true => estimated,
        false if all > exact => estimated * exact / all,
        false => estimated,
    }
}

/// What the callers of a class left, as estimated from the chains that were taken of some of its calls.
#[derive(Debug, Default, Clone, Copy)]
struct Left {
    live: Estimate,
    unknown: Estimate,
}

/// By so much the callers' estimates are too large together: all of the class is known better.
fn at_most(all: Estimate, of_callers: Estimate) -> Estimate {
    let factors = ratios(all, of_callers);
    Estimate { count: factors.count.min(1.0), bytes: factors.bytes.min(1.0) }
}

impl Process {
    /// Adds the callers. Chains stand for the calls of their class (`all`) whose chains were not taken.
    pub(super) fn add_callers(
        &self,
        callers: &mut HashMap<(u32, MallocFunction), MallocCaller>,
        estimated: &BTreeMap<u8, ClassEnd>,
        settled: &BTreeMap<u8, ClassEnd>,
        all: &dyn Fn(u8) -> Estimate,
    ) {
        let chain_weights = |class: u8| self.chain_weights.get(&class).copied().unwrap_or_default();
        let factors = |class: u8| ratios(all(class), chain_weights(class));
        let (exact, made) = (self.exact_calls(), self.made(&factors));
        let mut left: BTreeMap<u8, Left> = BTreeMap::new();
        for ((_, _, class), part) in &self.callers {
            let sum = left.entry(*class).or_default();
            sum.live.add_by(part.live, factors(*class));
            sum.unknown.add_by(part.unknown, factors(*class));
        }
        for ((stack, function, class), part) in &self.callers {
            let sum = callers.entry((*stack, *function)).or_insert_with(|| MallocCaller {
                stack: *stack,
                function: *function,
                allocated: Estimate::default(),
                live: Estimate::default(),
                unknown: Estimate::default(),
                life_sum_ns: 0.0,
                freed: Estimate::default(),
            });
            let factors = factors(*class);
            let estimated_calls = part.allocated.times(factors);
            let allocated = match (exact.get(&(*function, *class)), made.get(&(*function, *class))) {
                (Some(exact), Some(made)) => {
                    made.of_caller(estimated_calls, stands_for_others(part, factors), *exact)
                }
                _ => estimated_calls,
            };
            sum.allocated.add_scaled(allocated, 1.0);
            let (end, left) = (estimated.get(class).copied().unwrap_or_default(), left[class]);
            let live = part.live.times(factors).times(at_most(end.live, left.live));
            let live =
                settled.get(class).map_or(live, |settled| settled.of_caller(&end, live, part.live_variance));
            // What a caller holds it has asked for.
            let live =
                Estimate { count: live.count.min(allocated.count), bytes: live.bytes.min(allocated.bytes) };
            sum.live.add_scaled(live, 1.0);
            sum.freed.add_by(part.freed, factors);
            sum.unknown
                .add_scaled(part.unknown.times(factors).times(at_most(end.unknown, left.unknown)), 1.0);
            sum.life_sum_ns += part.life_sum_ns * factors.count;
        }
    }

    /// Calls and bytes by function and size class, where they were counted.
    fn exact_calls(&self) -> HashMap<(MallocFunction, u8), Estimate> {
        let mut exact: HashMap<_, Estimate> = HashMap::new();
        for CallCount { function, class, calls, bytes } in self.counts.iter().flat_map(|ring| &ring.calls) {
            let counted = Estimate { count: *calls as f64, bytes: *bytes as f64 };
            exact.entry((*function, *class)).or_default().add_scaled(counted, 1.0);
        }
        exact
    }

    /// What the callers of each function and size class asked for together, as estimated.
    fn made(&self, factors: &dyn Fn(u8) -> Estimate) -> HashMap<(MallocFunction, u8), Made> {
        let mut made: HashMap<_, Made> = HashMap::new();
        for ((_, function, class), part) in &self.callers {
            let factors = factors(*class);
            let sum = made.entry((*function, *class)).or_default();
            sum.all.add_by(part.allocated, factors);
            if stands_for_others(part, factors) {
                sum.open.add_by(part.allocated, factors);
            }
        }
        made
    }
}

fn stands_for_others(part: &CallerPart, factors: Estimate) -> bool {
    part.heaviest * factors.count >= STANDS_FOR_OTHERS
}
