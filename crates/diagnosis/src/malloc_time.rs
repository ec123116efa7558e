//! What part of a process's processor time malloc's calls take.

use std::collections::BTreeMap;

use faultless_records::processor_samples::{ProcessorSamples, SampledChain};

use crate::churn::blame::{
    blamed, goes_through_malloc, has_musls_malloc, is_inside, is_inside_musls, is_nobodys,
};

/// Samples inside malloc and its family, in whichever allocator, among all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MallocTime {
    /// All of them: time in the program and its libraries, without the kernel's part.
    pub samples: u64,
    /// Those inside malloc, free and the like, with what these clear and copy.
    pub inside: u64,
    /// The function that has most of these on its behalf, and how many.
    pub caller: Option<(String, u64)>,
    /// Those of which no function has a name, in a program or library: of a program that malloc is linked into they may be malloc's.
    pub nameless: u64,
    /// The processor time that was sampled, with what was lost on the way, in seconds.
    pub seconds: f64,
    /// The most that has no sample since threads ended before they had one, in seconds.
    pub most_missed_s: f64,
    /// What the program itself took meanwhile, by the kernel's account, in seconds.
    pub program_s: f64,
}

impl MallocTime {
    /// Of all samples.
    #[must_use]
    pub fn of(seen: &ProcessorSamples) -> Self {
        let (mut inside, mut nameless) = (0, 0);
        let mut callers: BTreeMap<&str, u64> = BTreeMap::new();
        let has_musls = has_musls_malloc(seen.chains.iter().map(|chain| chain.frames.as_slice()));
        for SampledChain { frames, in_allocator, count } in &seen.chains {
            let chain = &frames[*in_allocator..];
            let musls = chain.iter().take_while(|frame| has_musls && is_inside_musls(frame)).count();
            if in_allocator + musls == 0 && !goes_through_malloc(chain) {
                nameless += if is_nameless(chain) { *count } else { 0 };
                continue;
            }
            inside += count;
            // Where the chain was cut off, malloc's own functions are all that is left.
            let caller = blamed(&chain[musls..]);
            if let Some(caller) = caller.filter(|caller| !is_inside(caller) && !is_nobodys(caller)) {
                *callers.entry(caller).or_default() += count;
            }
        }
        let caller = callers.into_iter().max_by_key(|(_, count)| *count);
        let caller = caller.map(|(name, count)| (name.to_owned(), count));
        Self {
            samples: seen.all(),
            inside,
            caller,
            nameless,
            seconds: seen.seconds(),
            most_missed_s: seen.most_missed_s(),
            program_s: seen.program_s,
        }
    }

    /// Malloc's part, from 0 to 1; none of so few samples that chance would decide.
    #[must_use]
    pub fn part(&self) -> Option<f64> {
        (self.samples >= ENOUGH).then(|| self.inside as f64 / self.samples as f64)
    }
}

/// Whether a chain begins in a file and has no function with a name.
fn is_nameless(chain: &[String]) -> bool {
    chain.first().is_some_and(|frame| !is_nobodys(frame))
        && chain.iter().all(|frame| is_nobodys(frame) || frame.contains("+0x"))
}

/// Of so many samples a tenth is known to a third of it, nine times in ten.
const ENOUGH: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(frames: &[&str], in_allocator: usize, count: u64) -> SampledChain {
        SampledChain { frames: frames.iter().map(|name| (*name).to_owned()).collect(), in_allocator, count }
    }

    #[test]
    fn what_lies_inside_malloc_is_its_time_and_the_callers_doing() {
        let chains: [(&[&str], u64); 8] = [
            (&["libc.so.6+0x9a3c0", "malloc", "operator new(unsigned long)", "parse", "main"], 30),
            (&["__libc_free", "parse", "main"], 20),
            (&["_int_free_chunk", "store", "main"], 10),
            (&["__memset_avx2_unaligned_erms", "__libc_calloc", "store", "main"], 5),
            (&["parse", "main"], 100),
            (&["freeze", "main"], 25),
            (&["server+0x12f0", "server+0x4510", "[stack cut off]"], 7),
            (&["0x7f0012345678", "[stack cut off]"], 3),
        ];
        let seen = ProcessorSamples {
            every_s: 0.004,
            chains: chains.map(|(frames, count)| sampled(frames, 0, count)).into(),
            lost: 50,
            threads: 10,
            program_s: 1.25,
        };
        let time = MallocTime::of(&seen);
        assert_eq!(
            time,
            MallocTime {
                samples: 200,
                inside: 65,
                caller: Some(("parse".into(), 50)),
                nameless: 7,
                seconds: 1.0,
                most_missed_s: 0.04,
                program_s: 1.25
            }
        );
        assert_eq!(time.part(), Some(0.325));
        assert_eq!(MallocTime { samples: 199, ..time }.part(), None);
        assert_eq!(MallocTime::of(&ProcessorSamples::default()), MallocTime::default());
    }

    #[test]
    fn musls_malloc_is_known_by_its_functions_where_one_of_them_is_musls_alone() {
        let cut = "[stack cut off]";
        let of = |entrance: &str| {
            let chains = vec![
                sampled(&[entrance, cut], 0, 30),
                sampled(&["get_meta", cut], 0, 30),
                sampled(&["get_meta", entrance, "parse", "main"], 0, 10),
                sampled(&["__libc_free", "parse", "main"], 0, 5),
                sampled(&["parse", "main"], 0, 25),
            ];
            let time = MallocTime::of(&ProcessorSamples { chains, ..ProcessorSamples::default() });
            (time.inside, time.caller)
        };
        let parse = |samples| Some(("parse".to_owned(), samples));
        assert_eq!(of("__libc_malloc_impl"), (75, parse(15)));
        assert_eq!(of("store"), (5, parse(5)), "the program's own of that name");
    }

    #[test]
    fn what_lies_in_an_allocators_library_is_its_time_whatever_its_functions_are_called() {
        let chains = vec![
            sampled(&["free_foreign", "refill", "parse", "main"], 2, 30),
            sampled(&["free", "[stack cut off]"], 0, 50),
        ];
        let seen = ProcessorSamples { every_s: 0.004, chains, ..ProcessorSamples::default() };
        let time = MallocTime::of(&seen);
        assert_eq!((time.inside, time.caller), (80, Some(("parse".into(), 30))));
    }
}
