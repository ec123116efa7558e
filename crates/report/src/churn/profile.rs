//! The call chains of `faultless churn` for other tools: as profiles for pprof, and folded.

use std::collections::BTreeMap;

use faultless_diagnosis::churn::blame::{NOT_SEEN, from_asker};
use faultless_diagnosis::whole_numbers::WholeNumbers;
use faultless_records::churn_recording::ChurnRecording;
use faultless_records::malloc_recording::{Estimate, MallocRecording};
use faultless_records::memory_call::Operation;

use crate::folded;
use crate::pprof::{Module, Place, Profile, Sample, ValueType};

const CALL_VALUES: &[ValueType] =
    &[ValueType { name: "calls", unit: "count" }, ValueType { name: "bytes", unit: "bytes" }];

/// In the order and with the names of Go's heap profiles.
const HEAP_VALUES: &[ValueType] = &[
    ValueType { name: "alloc_objects", unit: "count" },
    ValueType { name: "alloc_space", unit: "bytes" },
    ValueType { name: "inuse_objects", unit: "count" },
    ValueType { name: "inuse_space", unit: "bytes" },
];

/// Indices into [`HEAP_VALUES`].
const ALLOC_SPACE: usize = 1;
const INUSE_SPACE: usize = 3;

/// A chain from the innermost call, with what it stands for.
struct Chain<'recording> {
    names: Vec<&'recording str>,
    /// What the calls did; none where all did the same.
    operation: Option<Operation>,
    values: Vec<f64>,
}

/// Chains of one recording, those of the same names as one.
pub struct ChurnProfile<'recording> {
    chains: Vec<Chain<'recording>>,
    values: &'static [ValueType],
    shown: usize,
    period: ValueType,
    subject: &'recording str,
    started_unix_s: u64,
    duration_ns: u64,
}

impl<'recording> ChurnProfile<'recording> {
    /// Calls of the kernel and their bytes, by chain and operation; failed ones are among the calls.
    #[must_use]
    pub fn of_kernel(recording: &'recording ChurnRecording) -> Self {
        let mut sums = Sums::default();
        for caller in &recording.callers {
            let chain = names(&recording.stacks, caller.stack);
            let amount = [caller.amount.count, caller.amount.bytes].map(|number| number as f64);
            sums.add(chain, Some(caller.operation), &amount);
        }
        for (operation, sum) in &recording.operations {
            if recording.callers.iter().all(|caller| caller.operation != *operation) {
                let amount = [sum.amount.count + sum.failed, sum.amount.bytes].map(|number| number as f64);
                sums.add(vec![NOT_SEEN], Some(*operation), &amount);
            }
        }
        Self {
            chains: sums.into_chains(),
            values: CALL_VALUES,
            shown: 0,
            period: CALL_VALUES[0],
            subject: &recording.subject,
            started_unix_s: recording.started_unix_s,
            duration_ns: recording.observed_ns,
        }
    }

    /// Blocks and bytes of malloc's family: all that were allocated, and those that were there at the end.
    #[must_use]
    pub fn of_malloc(recording: &'recording MallocRecording) -> Self {
        let mut sums = Sums::default();
        // What no chain was seen of: all that was counted, less what callers have.
        let (mut allocated, mut live) = (Estimate::default(), Estimate::default());
        for sum in recording.functions.values() {
            allocated.count += sum.amount.count as f64;
            allocated.bytes += sum.amount.bytes as f64;
        }
        recording.sizes.values().for_each(|lives| live.add_scaled(lives.live, 1.0));
        for caller in &recording.callers {
            let amounts = [caller.allocated, caller.live];
            let values = amounts.map(|amount| [amount.count, amount.bytes]).concat();
            sums.add(names(&recording.stacks, caller.stack), None, &values);
            allocated.add_scaled(caller.allocated, -1.0);
            live.add_scaled(caller.live, -1.0);
        }
        // Bytes of callers are estimates even where their counts are exact.
        let rest = [allocated, live].map(|rest| match rest.count >= 0.5 {
            true => [rest.count, rest.bytes.max(0.0)],
            false => [0.0; 2],
        });
        if recording.callers.is_empty() || rest.as_flattened().iter().any(|value| *value > 0.0) {
            sums.add(vec![NOT_SEEN], None, rest.as_flattened());
        }
        Self {
            chains: sums.into_chains(),
            values: HEAP_VALUES,
            shown: if recording.ends_are_known() { INUSE_SPACE } else { ALLOC_SPACE },
            period: ValueType { name: "space", unit: "bytes" },
            subject: &recording.subject,
            started_unix_s: recording.started_unix_s,
            duration_ns: recording.observed_ns,
        }
    }

    /// Whether any of it is known by its callers.
    #[must_use]
    pub fn has_callers(&self) -> bool {
        self.chains.iter().any(|chain| chain.names != [NOT_SEEN])
    }

    /// A compressed profile for pprof.
    #[must_use]
    pub fn pprof(&self) -> Vec<u8> {
        let mut places = Vec::new();
        let mut known = BTreeMap::new();
        let mut place = |name| {
            *known.entry(name).or_insert_with(|| {
                places.push(Place::named(name, Some(0)));
                places.len() - 1
            })
        };
        let mut rounding = vec![WholeNumbers::default(); self.values.len()];
        let sample = |chain: &Chain<'recording>| Sample {
            chain: chain.names.iter().map(|name| place(*name)).collect(),
            values: rounding
                .iter_mut()
                .zip(&chain.values)
                .map(|(rounding, value)| rounding.next(*value))
                .collect(),
            label: chain.operation.map(|operation| ("operation", word(operation))),
        };
        let profile = Profile {
            values: self.values,
            shown: self.shown,
            period: self.period,
            samples: self.chains.iter().map(sample).collect(),
            // One for all: readers look up names again where there is none.
            modules: vec![Module { path: "", build_id: "", has_functions: true }],
            places,
            subject: self.subject.to_owned(),
            started_unix_s: self.started_unix_s,
            duration_ns: self.duration_ns,
        };
        profile.compressed()
    }

    /// A line for each chain with its number of calls, the outermost call first.
    #[must_use]
    pub fn folded(&self) -> String {
        folded::lines(self.chains.iter().map(|chain| (chain.names.iter().rev().copied(), chain.values[0])))
    }
}

/// As `--json` has it.
fn word(operation: Operation) -> String {
    let value = serde_json::to_value(operation).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// The chain of a stack, which begins with whoever asked for the memory: whether frames of an allocator stand before it depends on
/// how the chain was taken.
fn names(stacks: &[Vec<String>], stack: u32) -> Vec<&str> {
    match stacks.get(stack as usize).map(|names| from_asker(names)) {
        None | Some([]) => vec![NOT_SEEN],
        Some(names) => names.iter().map(String::as_str).collect(),
    }
}

/// Sums by chain and operation.
#[derive(Default)]
struct Sums<'recording>(BTreeMap<(Vec<&'recording str>, Option<Operation>), Vec<f64>>);

impl<'recording> Sums<'recording> {
    fn add(&mut self, names: Vec<&'recording str>, operation: Option<Operation>, values: &[f64]) {
        let sums = self.0.entry((names, operation)).or_insert_with(|| vec![0.0; values.len()]);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }

    fn into_chains(self) -> Vec<Chain<'recording>> {
        let chain = |((names, operation), values)| Chain { names, operation, values };
        self.0.into_iter().map(chain).collect()
    }
}

#[cfg(test)]
mod tests;
