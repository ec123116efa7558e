//! A recording of page faults as a profile for pprof.

use std::collections::HashMap;

use faultless_diagnosis::faults::profile::{NOBODY, NOT_LOOKED_AT};
use faultless_diagnosis::faults::weight::Weights;
use faultless_diagnosis::whole_numbers::WholeNumbers;
use faultless_records::call_tree::CallTree;
use faultless_records::fault_recording::FaultRecording;

use super::tree::KERNEL;
use crate::pprof::{Line, Module, Place, Profile, Sample, ValueType};

/// What is counted of each chain.
const VALUES: &[ValueType] =
    &[ValueType { name: "faults", unit: "count" }, ValueType { name: "major_faults", unit: "count" }];

/// The profile: for each chain its faults, and the major ones among them.
#[must_use]
pub fn profile(recording: &FaultRecording) -> Vec<u8> {
    let tree = &recording.tree;
    let weights = Weights::of(recording);
    let modules = tree.modules.iter().enumerate().map(|(index, module)| Module {
        path: &module.path,
        build_id: module.build_id.as_deref().unwrap_or_default(),
        has_functions: tree
            .frames
            .iter()
            .any(|frame| frame.module == Some(index) && frame.function.is_some()),
    });
    let mut places = Places { tree, list: Vec::new(), known: HashMap::new() };
    let [kernel, nobody, not_looked_at] = [KERNEL, NOBODY, NOT_LOOKED_AT].map(|name| places.named(name));
    let sample = |chain: Vec<usize>, values: [u64; 2]| Sample { chain, values: values.to_vec(), label: None };
    let mut samples = Vec::new();
    let [mut minor, mut major] = [WholeNumbers::default(); 2];
    for faults in &recording.faults {
        let rounding = if faults.is_major { &mut major } else { &mut minor };
        let number = rounding.next(weights.faults(faults));
        let mut chain: Vec<usize> = faults.in_kernel.then_some(kernel).into_iter().collect();
        places.extend(&mut chain, faults.call);
        if chain.is_empty() {
            chain.push(nobody);
        }
        samples.push(sample(chain, [number, if faults.is_major { number } else { 0 }]));
    }
    let rest = weights.not_looked_at();
    let rest = [minor.next(rest.minor), major.next(rest.major)];
    samples.push(sample(vec![not_looked_at], [rest[0] + rest[1], rest[1]]));
    let profile = Profile {
        values: VALUES,
        shown: 0,
        period: VALUES[0],
        modules: modules.collect(),
        places: places.list,
        samples,
        subject: recording.subject.command.join(" "),
        started_unix_s: recording.started_unix_s,
        duration_ns: recording.duration_ns,
    };
    profile.compressed()
}

/// The places of a profile, each once.
struct Places<'tree> {
    tree: &'tree CallTree,
    list: Vec<Place<'tree>>,
    /// By their frames.
    known: HashMap<Vec<usize>, usize>,
}

impl Places<'_> {
    /// What has no frame.
    fn named(&mut self, name: &str) -> usize {
        self.list.push(Place::named(name, None));
        self.list.len() - 1
    }

    /// The places from a call outwards. Calls of one address, all but the last of them inlined, are one.
    fn extend(&mut self, chain: &mut Vec<usize>, call: Option<usize>) {
        let CallTree { calls, frames, .. } = self.tree;
        let mut next = call.and_then(|call| calls.get(call));
        let mut at_one_address = Vec::new();
        while let Some(call) = next {
            at_one_address.push(call.frame);
            next = call.parent.and_then(|parent| calls.get(parent));
            let frame = &frames[call.frame];
            let outer = next.map(|outer| &frames[outer.frame]);
            let goes_on =
                outer.is_some_and(|outer| (outer.module, outer.offset) == (frame.module, frame.offset));
            if !(frame.is_inlined && goes_on) {
                let place = std::mem::take(&mut at_one_address);
                chain.push(self.place(place));
            }
        }
    }

    fn place(&mut self, at_one_address: Vec<usize>) -> usize {
        if let Some(known) = self.known.get(&at_one_address) {
            return *known;
        }
        let tree = self.tree;
        let frames = at_one_address.iter().map(|frame| &tree.frames[*frame]);
        let lines = frames.clone().map(|frame| Line {
            function: tree.name(frame),
            file: frame.file.as_deref().unwrap_or_default(),
            number: frame.line.unwrap_or(0),
        });
        let (module, offset) = frames.clone().next().map_or((None, 0), |frame| (frame.module, frame.offset));
        self.list.push(Place { lines: lines.collect(), module, offset });
        self.known.insert(at_one_address, self.list.len() - 1);
        self.list.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::fault_recording::{FaultCounts, Faults, Step};

    use crate::faults::tree::tests::recording;
    use crate::pprof::tests::{ReadProfile, read};

    fn numbers(profile: &ReadProfile) -> Vec<&[u64]> {
        profile.samples.iter().map(|(_, values, _)| values.as_slice()).collect()
    }

    #[test]
    fn a_reader_of_the_format_finds_chains_with_their_faults() {
        let profile = read(&profile(&recording()));
        assert_eq!(profile.shown, "faults");
        assert_eq!(profile.modules, ["/bin/chem"]);
        let chains: Vec<&[String]> = profile.samples.iter().map(|(chain, ..)| chain.as_slice()).collect();
        assert_eq!(chains[0], ["dgemm", "main"]);
        assert_eq!(chains[2], ["[in the kernel]", "chem+0x40", "main"]);
        assert_eq!(numbers(&profile), [[95, 0], [3, 0], [2, 2]]);
    }

    #[test]
    fn functions_that_were_inlined_at_an_address_are_lines_of_one_place() {
        let mut recording = recording();
        // dgemm was inlined into main, and has called the nameless function, which has another address.
        recording.tree.frames[1].is_inlined = true;
        recording.tree.calls[2].parent = Some(1);
        recording.tree.frames[2].offset = 0x70;
        let read = read(&profile(&recording));
        assert_eq!(read.samples[0].0, ["dgemm", "main"]);
        assert_eq!(read.samples[1].0, ["chem+0x70", "dgemm", "main"]);
        assert_eq!(read.addresses, [vec![0x40], vec![0x70, 0x40], vec![0, 0x70, 0x40]]);
        assert_eq!(read.known, [[true; 4]]);
    }

    #[test]
    fn what_is_not_known_of_a_module_is_not_said_to_be() {
        let mut recording = recording();
        for frame in &mut recording.tree.frames {
            (frame.function, frame.file, frame.line) = (None, None, None);
        }
        assert_eq!(read(&profile(&recording)).known, [[false; 4]]);
        recording.tree.frames[0].function = Some("main".into());
        assert_eq!(read(&profile(&recording)).known, [[true, false, false, false]]);
    }

    #[test]
    fn estimates_of_many_chains_add_up_to_what_was_counted() {
        let mut recording = recording();
        let sample =
            Faults { samples: 1, weight: 1.0, is_major: false, in_kernel: false, ..recording.faults[0] };
        recording.faults = vec![sample; 10];
        recording.method.steps[0] = Step { minor_period: 2, minor_faults: 14, ..Step::default() };
        recording.counters.user = FaultCounts { minor: 14, major: 0 };
        let profile = read(&profile(&recording));
        assert_eq!(numbers(&profile).iter().map(|values| values[0]).sum::<u64>(), 14);
    }

    #[test]
    fn what_has_no_chain_and_what_was_lost_are_in_the_sums() {
        let mut recording = recording();
        recording.faults[0].call = None;
        recording.method.steps[0].minor_faults += 7;
        recording.counters.user.minor += 7;
        let profile = read(&profile(&recording));
        assert_eq!(numbers(&profile), [[95, 0], [3, 0], [2, 2], [7, 0]]);
        assert_eq!(
            (profile.samples[0].0[0].as_str(), profile.samples[3].0[0].as_str()),
            (NOBODY, NOT_LOOKED_AT)
        );
    }
}
