//! What part of a process's processor time malloc's calls take.

use std::collections::BTreeMap;

use faultless_records::processor_samples::ProcessorSamples;

use crate::churn::blame::{blamed, goes_through_malloc, is_inside, is_nobodys};

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
        for ((inner, chain), count) in seen.counted() {
            if inner.is_empty() && !goes_through_malloc(chain) {
                continue;
            }
            inside += count;
            // Where the chain was cut off, malloc's own functions are all that is left.
            if let Some(caller) = blamed(chain).filter(|caller| !is_inside(caller) && !is_nobodys(caller)) {
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
            in_allocator: Vec::new(),
            counts: chains.iter().map(|(_, count)| *count).collect(),
        };
        let time = MallocTime::of(&seen);
        assert_eq!(time, MallocTime { samples: 200, inside: 65, caller: Some(("parse".into(), 50)) });
        assert_eq!(time.part(), Some(0.325));
        assert_eq!(MallocTime { samples: 199, ..time }.part(), None);
        assert_eq!(MallocTime::of(&ProcessorSamples::default()), MallocTime::default());
    }

    #[test]
    fn what_lies_in_an_allocators_library_is_its_time_whatever_its_functions_are_called() {
        let chains = [vec!["free_foreign", "refill", "parse", "main"], vec!["free", "[stack cut off]"]];
        let seen = ProcessorSamples {
            every_s: 0.004,
            chains: chains.map(|chain| chain.into_iter().map(str::to_owned).collect()).into(),
            in_allocator: vec![2, 0],
            counts: vec![30, 50],
        };
        let time = MallocTime::of(&seen);
        assert_eq!(time, MallocTime { samples: 80, inside: 80, caller: Some(("parse".into(), 30)) });
    }
}
