//! Samples where a process that runs already spends its processor time.

use faultless_probe::clock;
use faultless_probe::perf::{Event, PerfError, Plan, Sampling, Scope, Session, What, cpus};
use faultless_probe::process::Process;
use faultless_records::allocator::Allocator;
use faultless_records::counters::Counters;
use faultless_records::perf_record::{Content, News, PerfRecord};
use faultless_records::processor_samples::{ProcessorSamples, SampledChain};

use crate::call_stacks::CallStacks;

/// Processor time of a thread between two of its samples, in ns, where there are few CPUs. Odd, so that no loop keeps in step with it.
const PERIOD_NS: u64 = 4_099_919;

/// From so many CPUs on it is longer, so that there are no more than about a thousand samples a second.
const FEW_CPUS: usize = 4;

/// Allocators lie at the inner end of a chain: their functions and some callers fit into this much of the stack.
const STACK_BYTES: u32 = 4096;

/// Room for the samples of a tenth of a second; the events of other instruments need some of what may be locked, too.
const BUFFER_BYTES: usize = 128 << 10;

/// Of more open events than this each takes its time to open and to close, in which the process waits.
const MOST_EVENTS: usize = 4000;

/// A process whose processor time is sampled.
pub struct ProcessorTime {
    session: Session,
    pid: i32,
    stacks: CallStacks,
    counts: Vec<u64>,
    lost: u64,
    threads: u64,
    period_ns: u64,
    /// What the program itself had taken in the beginning, in ticks.
    ticks_before: Option<u64>,
}

impl ProcessorTime {
    /// Begins with the threads that it has, and those they will start. The kernel's part of the time has no samples.
    ///
    /// # Errors
    /// [`PerfError`] where the kernel refuses, or where there are too many threads.
    pub fn attach(process: &Process) -> Result<Self, PerfError> {
        let threads = process.threads().unwrap_or_default();
        if threads.len() * cpus() > MOST_EVENTS {
            return Err(PerfError::ManyThreads(threads.len()));
        }
        let period_ns = PERIOD_NS * cpus().div_ceil(FEW_CPUS) as u64;
        let event = Event {
            what: What::ProcessorTime,
            sampling: Sampling::Every(period_ns),
            scope: Scope::User,
            starts_enabled: true,
        };
        let content =
            Content { has_address: false, has_callchain: true, has_raw: false, stack_bytes: STACK_BYTES };
        let plan = Plan {
            events: vec![event],
            content,
            follows_processes: true,
            waits_for_exec: false,
            buffer_bytes: BUFFER_BYTES,
        };
        let session = Session::open(plan, &threads)?;
        let mut stacks = CallStacks::default();
        stacks.adopt(process);
        session.start()?;
        let ticks_before = user_ticks(process);
        Ok(Self {
            session,
            pid: process.pid(),
            stacks,
            counts: Vec::new(),
            lost: 0,
            threads: threads.len() as u64,
            period_ns,
            ticks_before,
        })
    }

    /// Takes what has arrived; to be called some times in a tenth of a second.
    pub fn turn(&mut self) {
        let records = self.session.read();
        self.take(&records);
    }

    fn take(&mut self, records: &[PerfRecord]) {
        for record in records {
            let sample = match &record.news {
                News::Sample(sample) => sample,
                News::Lost(number) => {
                    self.lost += number;
                    continue;
                }
                news => {
                    let is_thread = matches!(news, News::Fork { .. }) && record.pid == self.pid;
                    self.threads += u64::from(is_thread);
                    self.stacks.take(record);
                    continue;
                }
            };
            // What it forks is another process.
            if record.pid != self.pid {
                continue;
            }
            if let Some(index) = self.stacks.index(record, sample) {
                let index = index as usize;
                self.counts.resize(self.counts.len().max(index + 1), 0);
                self.counts[index] += 1;
            }
        }
    }

    /// What was seen.
    #[must_use]
    pub fn finish(mut self, process: &Process) -> ProcessorSamples {
        let ticks = self.ticks_before.and_then(|before| user_ticks(process)?.checked_sub(before));
        // A refusal has no reason but a bug; what is read is right all the same.
        let _ = self.session.disable(0);
        let records = self.session.read_last();
        self.take(&records);
        let chains = self.stacks.into_placed_names().into_iter().zip(self.counts);
        let chain = |(calls, count): (Vec<(String, Option<String>)>, u64)| SampledChain {
            in_allocator: in_allocator(calls.iter().map(|(_, module)| module.as_deref())),
            frames: calls.into_iter().map(|(name, _)| name).collect(),
            count,
        };
        ProcessorSamples {
            every_s: self.period_ns as f64 / 1e9,
            chains: chains.map(chain).collect(),
            lost: self.lost,
            threads: self.threads,
            program_s: ticks.unwrap_or(0) as f64 / clock::ticks_per_s(),
        }
    }
}

/// What the program itself has taken of processors; none once it has ended.
fn user_ticks(process: &Process) -> Option<u64> {
    Some(Counters::parse(&process.read("stat").ok()?)?.user_ticks)
}

/// How many of a chain's innermost frames lie in the library of an allocator, with what that calls of the C library, by the file names of
/// their modules: where one function ends with a jump to another, as malloc's often do, its name is in no chain.
fn in_allocator<'module>(modules: impl Iterator<Item = Option<&'module str>> + Clone) -> usize {
    let is_called = |module: &Option<&str>| {
        module.is_some_and(|name| ["libc.", "libc-", "[vdso]"].iter().any(|start| name.starts_with(start)))
    };
    let is_own = |module: &Option<&str>| module.is_some_and(|name| Allocator::of_file(name).is_some());
    let called = modules.clone().take_while(is_called).count();
    match modules.skip(called).take_while(is_own).count() {
        0 => 0,
        own => called + own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_allocators_library_does_and_has_done_is_in_it() {
        let of = |modules: &[Option<&'static str>]| in_allocator(modules.iter().copied());
        let (own, c, program) = (Some("libsnmalloc.so"), Some("libc.so.6"), Some("server"));
        assert_eq!(of(&[own, own, program, c]), 2);
        assert_eq!(of(&[c, own, program]), 2);
        assert_eq!(of(&[c, program, own]), 0);
        // Some start threads, so that their library is at the outer end of every chain.
        assert_eq!(of(&[program, own, c]), 0);
        assert_eq!(of(&[None, own]), 0);
        assert_eq!(of(&[c, c]), 0);
    }
}
