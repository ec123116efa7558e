//! What part of a process's processor time malloc's calls take.

use std::collections::BTreeMap;

use faultless_records::processor_samples::ProcessorSamples;

use crate::churn::blame::{blamed, goes_through_malloc};

/// Samples inside malloc and its family, in whichever allocator, among all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MallocTime {
    /// All of them: time in the program and its libraries, without the kernel's part.
    pub samples: u64,
    /// Those inside malloc, free and the like, with what these clear and copy.
    pub inside: u64,
    /// The function that has most of these on its behalf, and how many.
    pub caller: Option<(String, u64)>,
}

impl MallocTime {
    /// Of all samples.
    #[must_use]
    pub fn of(seen: &ProcessorSamples) -> Self {
        let mut inside = 0;
        let mut callers: BTreeMap<&str, u64> = BTreeMap::new();
        for (chain, count) in seen.counted().filter(|(chain, _)| goes_through_malloc(chain)) {
            inside += count;
            if let Some(caller) = blamed(chain) {
                *callers.entry(caller).or_default() += count;
            }
        }
        let caller = callers.into_iter().max_by_key(|(_, count)| *count);
        let caller = caller.map(|(name, count)| (name.to_owned(), count));
        Self { samples: seen.all(), inside, caller }
    }

    /// Malloc's part, from 0 to 1; none of so few samples that chance would decide.
    #[must_use]
    pub fn part(&self) -> Option<f64> {
        (self.samples >= ENOUGH).then(|| self.inside as f64 / self.samples as f64)
    }
}

/// Of so many samples a tenth is known to a third of it, nine times in ten.
const ENOUGH: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_malloc_is_its_time_and_the_callers_doing() {
        let chains: [(&[&str], u64); 6] = [
            (&["libc.so.6+0x9a3c0", "malloc", "operator new(unsigned long)", "parse", "main"], 30),
            (&["__libc_free", "parse", "main"], 20),
            (&["_int_free_chunk", "store", "main"], 10),
            (&["__memset_avx2_unaligned_erms", "__libc_calloc", "store", "main"], 5),
            (&["parse", "main"], 100),
            (&["freeze", "main"], 35),
        ];
        let seen = ProcessorSamples {
            every_s: 0.004,
            chains: chains
                .iter()
                .map(|(chain, _)| chain.iter().map(|name| (*name).to_owned()).collect())
                .collect(),
            counts: chains.iter().map(|(_, count)| *count).collect(),
        };
        let time = MallocTime::of(&seen);
        assert_eq!(time, MallocTime { samples: 200, inside: 65, caller: Some(("parse".into(), 50)) });
        assert_eq!(time.part(), Some(0.325));
        assert_eq!(MallocTime { samples: 199, ..time }.part(), None);
        assert_eq!(MallocTime::of(&ProcessorSamples::default()), MallocTime::default());
    }
}
