//! Where a process spends its processor time: samples of what it was doing, at fixed intervals of that time.

/// Samples of the time in the program itself, without the kernel's part.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessorSamples {
    /// Processor time between two samples of a thread, in seconds.
    pub every_s: f64,
    /// Call chains that differ.
    pub chains: Vec<SampledChain>,
    /// Samples that were lost on the way.
    pub lost: u64,
    /// Threads that there were, those that ended among them.
    pub threads: u64,
    /// What the program itself took meanwhile, in seconds, by the kernel's account; 0 where that is not known.
    pub program_s: f64,
}

/// A call chain, with the number of samples that had it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SampledChain {
    /// Its functions, from the innermost outwards.
    pub frames: Vec<String>,
    /// How many of the innermost ones lie in the library of an allocator.
    pub in_allocator: usize,
    /// Samples.
    pub count: u64,
}

impl ProcessorSamples {
    /// All samples.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.chains.iter().map(|chain| chain.count).sum()
    }

    /// The processor time that they stand for, with those that were lost, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        (self.all() + self.lost) as f64 * self.every_s
    }

    /// The most that has no sample, in seconds: a thread has none until it has worked for as long as lies between two.
    #[must_use]
    pub fn most_missed_s(&self) -> f64 {
        self.threads as f64 * self.every_s
    }
}
