//! Whose calls of malloc they are: the functions that asked, and what they got.

use std::collections::BTreeMap;

use faultless_records::malloc_event::MallocFunction;
use faultless_records::malloc_recording::{Estimate, MallocRecording};

use super::blame::{blamed, caller_of};
use super::holders::{part_of_kept, sort_by_weight};

/// One function and its blocks; all of it estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct Customer {
    /// Its name.
    pub function: String,
    /// Who called it most, if that is known.
    pub called_by: Option<String>,
    /// What it called.
    pub by: MallocFunction,
    /// All its calls.
    pub allocated: Estimate,
    /// Blocks of it that were there at the end.
    pub live: Estimate,
    /// Blocks of it of which nobody knows what became of them.
    pub unknown: Estimate,
    /// Average life of its freed blocks, in nanoseconds; none when none was freed.
    pub mean_life_ns: Option<f64>,
}

/// The functions that asked for memory: those first that hold much of what lives at the end (or, where that is not known, that keep what
/// they ask for), then by calls.
#[must_use]
pub fn customers(recording: &MallocRecording) -> Vec<Customer> {
    #[derive(Default)]
    struct Sum<'recording> {
        allocated: Estimate,
        live: Estimate,
        unknown: Estimate,
        freed: f64,
        life_sum_ns: f64,
        callers: BTreeMap<&'recording str, f64>,
    }
    let mut sums: BTreeMap<(&str, MallocFunction), Sum> = BTreeMap::new();
    for caller in &recording.callers {
        let Some(stack) = recording.stacks.get(caller.stack as usize) else { continue };
        let Some(function) = blamed(stack) else { continue };
        let sum = sums.entry((function, caller.function)).or_default();
        sum.allocated.add_scaled(caller.allocated, 1.0);
        sum.live.add_scaled(caller.live, 1.0);
        sum.unknown.add_scaled(caller.unknown, 1.0);
        sum.freed += caller.freed.count;
        sum.life_sum_ns += caller.life_sum_ns;
        if let Some(outer) = caller_of(stack, function) {
            *sum.callers.entry(outer).or_default() += caller.allocated.count;
        }
    }
    let customer = |((function, by), sum): ((&str, MallocFunction), Sum)| Customer {
        function: function.to_owned(),
        called_by: sum
            .callers
            .into_iter()
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .map(|(caller, _)| caller.to_owned()),
        by,
        allocated: sum.allocated,
        live: sum.live,
        unknown: sum.unknown,
        mean_life_ns: (sum.freed > 0.0).then(|| sum.life_sum_ns / sum.freed),
    };
    let mut customers: Vec<Customer> = sums.into_iter().map(customer).collect();
    let held = |customer: &Customer| match recording.ends_are_known() {
        true => customer.live.bytes,
        false => customer.unknown.bytes * part_of_kept(customer.unknown.bytes, customer.allocated.bytes),
    };
    sort_by_weight(&mut customers, held, |customer| customer.allocated.count);
    customers
}
