//! A recording of page faults as a profile for pprof.

use faultless_diagnosis::faults::profile::{NOBODY, NOT_LOOKED_AT};
use faultless_diagnosis::faults::weight::Weights;
use faultless_diagnosis::whole_numbers::WholeNumbers;
use faultless_records::fault_recording::FaultRecording;

use super::tree::KERNEL;
use crate::pprof::{Module, Place, Profile, Sample, ValueType};

/// What is counted of each chain.
const VALUES: &[ValueType] =
    &[ValueType { name: "faults", unit: "count" }, ValueType { name: "major_faults", unit: "count" }];

/// The profile: for each chain its faults, and the major ones among them.
#[must_use]
pub fn profile(recording: &FaultRecording) -> Vec<u8> {
    let tree = &recording.tree;
    let weights = Weights::of(recording);
    let modules = tree.modules.iter().map(|module| Module {
        path: &module.path,
        build_id: module.build_id.as_deref().unwrap_or_default(),
    });
    let places = tree.frames.iter().map(|frame| Place {
        name: tree.name(frame),
        file: frame.file.as_deref().unwrap_or_default(),
        line: frame.line.unwrap_or(0),
        module: frame.module,
        offset: frame.offset,
    });
    // The last places are for what has no frame.
    let others = [KERNEL, NOBODY, NOT_LOOKED_AT].map(|name| Place::named(name, None));
    let kernel = tree.frames.len();
    let [nobody, not_looked_at] = [kernel + 1, kernel + 2];
    let sample = |chain: Vec<usize>, values: [u64; 2]| Sample { chain, values: values.to_vec(), label: None };
    let mut samples = Vec::new();
    let [mut minor, mut major] = [WholeNumbers::default(); 2];
    for faults in &recording.faults {
        let rounding = if faults.is_major { &mut major } else { &mut minor };
        let number = rounding.next(weights.faults(faults));
        let mut chain: Vec<usize> = faults.in_kernel.then_some(kernel).into_iter().collect();
        let mut next = faults.call;
        while let Some(call) = next.and_then(|call| tree.calls.get(call)) {
            chain.push(call.frame);
            next = call.parent;
        }
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
        places: places.chain(others).collect(),
        samples,
        subject: recording.subject.command.join(" "),
        started_unix_s: recording.started_unix_s,
        duration_ns: recording.duration_ns,
    };
    profile.compressed()
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
