//! Where a process spends its processor time: samples of what it was doing, at fixed intervals of that time.

/// Samples of the time in the program itself, without the kernel's part.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProcessorSamples {
    /// Processor time between two samples of a thread, in seconds.
    pub every_s: f64,
    /// Call chains that differ, each from its innermost function outwards.
    pub chains: Vec<Vec<String>>,
    /// How many of each chain's innermost frames lie in the library of an allocator.
    pub in_allocator: Vec<usize>,
    /// How many samples had each of them.
    pub counts: Vec<u64>,
    /// Samples that were lost on the way.
    pub lost: u64,
    /// Threads that there were, those that ended among them.
    pub threads: u64,
    /// What the program itself took meanwhile, in seconds, by the kernel's account; 0 where that is not known.
    pub program_s: f64,
}

impl ProcessorSamples {
    /// Each chain, in two parts: what of it lies in the library of an allocator, and the rest; with the number of its samples.
    pub fn counted(&self) -> impl Iterator<Item = ((&[String], &[String]), u64)> {
        let inner = self.in_allocator.iter().copied().chain(std::iter::repeat(0));
        let parts = self.chains.iter().zip(inner).map(|(chain, inner)| chain.split_at(inner));
        parts.zip(self.counts.iter().copied())
    }

    /// All samples.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.counts.iter().sum()
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
