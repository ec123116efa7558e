//! Takes the records of faults as they come, and turns them into a recording at the end.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use faultless_probe::clock::{nanoseconds, own_processor_time, unix_s};
use faultless_probe::huge_page::{Closed, PageTables};
use faultless_probe::machine;
use faultless_probe::perf::{Access, PerfError, Session, access};
use faultless_probe::process::Process;
use faultless_records::fault_accounts::FaultAccounts;
use faultless_records::fault_recording::{
    Cost, Counters, FORMAT, FaultCounts, FaultProcess, FaultRecording, Method, Place, Step, Subject,
};
use faultless_records::perf_record::{News, PerfRecord, Sample};

use super::arrivals::Arrivals;
use super::earlier_children::EarlierChildren;
use super::ladder::{Ladder, Periods};
use super::sampling::{self, Twice, agreement};
use super::second_looks::SecondLooks;
use super::taken::{Kind, Taken};
use super::{FaultOptions, RecordError};
use crate::callers::{Images, RawTree};

const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// `MAP_HUGETLB` and `MAP_SHARED`.
const MAP_HUGETLB: u32 = 0x40000;
const MAP_SHARED: u32 = 1;
/// How far above the stack pointer a fault on the stack lies at most: the variables of its functions.
const STACK_REACH_BYTES: u64 = 1 << 20;
/// Calls and probes touch the stack somewhat below the pointer.
const BELOW_STACK_BYTES: u64 = 4096;
/// Looks into page tables in one turn: each is a system call.
const LOOKS_PER_TURN: usize = 256;

/// What the processes' own accounts say.
#[derive(Debug, Clone, Copy)]
pub struct Accounts {
    /// Faults, children included.
    pub faults: Option<FaultCounts>,
    /// CPU time.
    pub cpu: Option<Duration>,
    /// They were read before the end.
    pub are_late: bool,
}

/// A recording that goes on.
pub struct Recorder {
    session: Session,
    steps: Vec<Periods>,
    ladder: Ladder,
    access: Access,
    images: Images,
    second_looks: SecondLooks,
    tree: RawTree,
    taken: Taken,
    samples: u64,
    arrivals: Arrivals,
    page_tables: HashMap<i32, Option<PageTables>>,
    has_huge_pages: bool,
    saw_huge_pages: bool,
    options: FaultOptions,
    before: FaultCounts,
    /// Minor and major faults that two steps of sampling counted.
    twice: [Twice; 2],
    /// Of a process that runs already: its accounts at the start, and the last that were seen.
    first_accounts: FaultAccounts,
    last_accounts: FaultAccounts,
    /// Its own faults between the first look at its accounts and the moment when all events were counted, and between the last look
    /// and the moment when none was: some of these are events and some are not.
    beside_start: FaultCounts,
    beside_end: FaultCounts,
    earlier_children: Option<EarlierChildren>,
    started: Instant,
    started_unix_s: u64,
    own_cpu: Duration,
    last_turn: Instant,
}

impl Recorder {
    /// For a process that is about to become a command.
    ///
    /// # Errors
    /// [`PerfError`].
    pub fn before_exec(pid: i32, options: FaultOptions) -> Result<Self, PerfError> {
        let mut recorder = Self::open(&[pid], options, true)?;
        let accounts = Process::open(pid).ok().and_then(|process| accounts(&process)).unwrap_or_default();
        recorder.before = accounts.own;
        Ok(recorder)
    }

    /// For a process that runs already.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn attach(process: &Process, options: FaultOptions) -> Result<Self, RecordError> {
        // Threads that were started meanwhile may need the files of a finer choice of periods: the second time they are known.
        match Self::attach_once(process, options) {
            Err(RecordError::Perf(PerfError::Files { .. })) => Self::attach_once(process, options),
            attached => attached,
        }
    }

    fn attach_once(process: &Process, options: FaultOptions) -> Result<Self, RecordError> {
        let threads = process.threads().map_err(RecordError::Process)?;
        let mut recorder = Self::open(&threads, options, false).map_err(RecordError::Perf)?;
        recorder.images.adopt(process).map_err(RecordError::Process)?;
        recorder.first_accounts = accounts(process).unwrap_or_default();
        recorder.last_accounts = recorder.first_accounts;
        recorder.earlier_children = Some(EarlierChildren::of(process));
        recorder.session.start().map_err(RecordError::Perf)?;
        if let Some(accounts) = accounts(process) {
            recorder.beside_start = accounts.own.minus(recorder.first_accounts.own);
        }
        recorder.follow_missed(process, threads).map_err(RecordError::Perf)?;
        Ok(recorder)
    }

    /// Threads that were started while the events were opened, by threads that had none yet.
    fn follow_missed(&mut self, process: &Process, threads: Vec<i32>) -> Result<(), PerfError> {
        let known: HashSet<i32> = threads.into_iter().collect();
        let now = process.threads().unwrap_or_default();
        let records = self.session.read();
        let inherited: HashSet<i32> = records
            .iter()
            .filter(|record| matches!(record.news, News::Fork { .. }))
            .map(|record| record.tid)
            .collect();
        for thread in now.iter().filter(|thread| !known.contains(thread) && !inherited.contains(thread)) {
            match self.session.follow(*thread) {
                Ok(()) | Err(PerfError::Ended(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for record in records {
            self.take(&record);
        }
        Ok(())
    }

    fn open(threads: &[i32], options: FaultOptions, waits_for_exec: bool) -> Result<Self, PerfError> {
        let access = access()?;
        let (session, steps) = sampling::open(threads, options, access, waits_for_exec)?;
        let now = Instant::now();
        Ok(Self {
            session,
            steps,
            ladder: Ladder::default(),
            access,
            images: Images::default(),
            second_looks: SecondLooks::new(),
            tree: RawTree::default(),
            taken: Taken::default(),
            samples: 0,
            arrivals: Arrivals::default(),
            page_tables: HashMap::new(),
            has_huge_pages: !matches!(machine::huge_pages().as_str(), "never" | ""),
            saw_huge_pages: true,
            options,
            before: FaultCounts::default(),
            twice: [Twice::default(); 2],
            first_accounts: FaultAccounts::default(),
            last_accounts: FaultAccounts::default(),
            beside_start: FaultCounts::default(),
            beside_end: FaultCounts::default(),
            earlier_children: None,
            started: now,
            started_unix_s: unix_s(),
            own_cpu: own_processor_time(),
            last_turn: now,
        })
    }

    /// Takes what has arrived, adapts, and says how long it may wait for the next turn.
    pub fn turn(&mut self) -> Duration {
        self.second_looks.turn();
        let records = self.session.read();
        // Before the samples are looked at: that takes some µs each, and in the old step the buffer would be full again meanwhile.
        let arrived = self.choose_step(&records);
        let mut looks = LOOKS_PER_TURN;
        for record in &records {
            self.take_with(record, &mut looks);
        }
        match arrived {
            _ if self.ladder.step() > 0 => Duration::from_millis(10),
            0 => Duration::from_millis(5),
            1..100 => Duration::from_millis(3),
            _ => Duration::from_millis(1),
        }
    }

    /// Adapts the step of sampling to what has arrived; the number of samples, with those that were lost.
    fn choose_step(&mut self, records: &[PerfRecord]) -> u64 {
        self.arrivals.hear(records, &self.session);
        let (step, arrived) = (self.ladder.step(), self.arrivals.turn());
        let time = self.last_turn.elapsed();
        self.last_turn = Instant::now();
        // What still arrives of the step before says nothing of this one.
        if self.steps.len() > 1
            && let Some(next) =
                self.ladder.hear(arrived[step], time, self.session.is_crowded(), &self.arrivals.lives)
        {
            // A refusal has no reason but a bug; the step then stays, and its faults are counted all the same.
            let _ = sampling::switch(&self.session, step, next, &mut self.twice);
        }
        arrived.iter().sum()
    }

    fn take(&mut self, record: &PerfRecord) {
        self.take_with(record, &mut 0);
    }

    fn take_with(&mut self, record: &PerfRecord, looks: &mut usize) {
        match &record.news {
            News::Sample(sample) => self.take_fault(record, sample, looks),
            news => {
                let is_exec = matches!(news, News::Name { is_exec: true, .. });
                // After an exec the page tables that are open are those of the program before.
                if is_exec || (matches!(news, News::Exit) && record.pid == record.tid) {
                    self.page_tables.remove(&record.pid);
                }
                self.images.take(record);
            }
        }
    }

    fn take_fault(&mut self, record: &PerfRecord, sample: &Sample, looks: &mut usize) {
        let Some(event) = self.session.place_of(sample.event) else { return };
        let call = self.images.call(record, sample, &mut self.tree);
        if self.images.mapping(record.pid, sample.address).is_none() {
            self.second_looks.look(record.pid, &mut self.images);
        }
        let mapped = self.images.mapping(record.pid, sample.address);
        let stack_pointer = sample.registers.map_or(0, |registers| registers.sp);
        let place = mapped.map_or(Place::default(), |mapped| Place {
            mapping: mapped.what.name.to_string(),
            protection: mapped.what.protection,
            flags: mapped.what.flags,
            is_stack: is_on_stack(&mapped.range, stack_pointer, sample.address),
            is_inherited: mapped.what.mapped_by != record.pid,
        });
        let length = mapped.map_or(0, |mapped| mapped.range.end - mapped.range.start);
        let is_huge = self.is_huge(record.pid, sample.address, &place, length, looks);
        let place = self.taken.place(place);
        self.samples += 1;
        let kind = Kind {
            call,
            place,
            pid: record.pid,
            is_major: event % 2 == 1,
            in_kernel: sample.is_in_kernel,
            is_huge,
            step: event / 2,
        };
        self.taken.add(kind);
    }

    /// Whether the fault brought a huge page: looked up right after it, as long as the page is there.
    fn is_huge(
        &mut self,
        pid: i32,
        address: u64,
        place: &Place,
        length: u64,
        looks: &mut usize,
    ) -> Option<bool> {
        if place.flags & MAP_HUGETLB != 0 {
            return Some(true);
        }
        let is_file = place.mapping.starts_with('/') && !place.mapping.starts_with("//");
        let can_be = self.has_huge_pages && length >= HUGE_PAGE_BYTES;
        if !can_be || (is_file && place.flags & MAP_SHARED == 0) {
            return Some(false);
        }
        *looks = looks.checked_sub(1)?;
        let saw_huge_pages = &mut self.saw_huge_pages;
        let tables = self.page_tables.entry(pid).or_insert_with(|| {
            PageTables::open(pid)
                // Of a process that is gone only its own last faults are not known.
                .inspect_err(|closed| *saw_huge_pages &= *closed == Closed::Gone)
                .ok()
        });
        tables.as_ref()?.is_huge(address)
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// What a process is called now.
    pub fn name(&self, pid: i32) -> String {
        self.images.name(pid).unwrap_or_default().to_owned()
    }

    /// Reads what can only be read while a process exists: names that just-in-time compilers gave.
    pub fn note_names(&mut self, pid: i32) {
        self.images.read_perf_map(pid);
    }

    /// Reads the accounts of a process while it exists.
    pub fn read_accounts(&mut self, process: &Process) {
        if let Some(children) = &mut self.earlier_children {
            children.look_sometimes();
        }
        if let Some(accounts) = accounts(process) {
            self.last_accounts = accounts;
        }
    }

    /// What the accounts of a process that ran already say of the time since the start; those of its living children too.
    pub fn accounts_since_start(&mut self, process: &Process) -> Accounts {
        let of_earlier = self.earlier_children.as_mut().map_or(FaultCounts::default(), |children| {
            children.look();
            children.gone()
        });
        self.read_accounts(process);
        let (first, last) = (self.first_accounts, self.last_accounts);
        let waited_for = last.children.minus(first.children).minus(of_earlier);
        let mut faults = last.own.minus(first.own).plus(waited_for);
        // The number of one that has ended may be a stranger's by now.
        let is_child = |pid: &i32| *pid != process.pid() && self.images.lives(*pid);
        for pid in self.images.pids().into_iter().filter(is_child) {
            let child = Process::open(pid).ok().and_then(|child| accounts(&child)).unwrap_or_default();
            faults = faults.plus(child.all());
        }
        let ticks = last.cpu_ticks.saturating_sub(first.cpu_ticks);
        let (cpu, are_late) = (Some(machine::duration_of_ticks(ticks)), !process.is_alive());
        Accounts { faults: Some(faults), cpu, are_late }
    }

    /// Counts no further events; of a process that ran already, says what happened since its accounts were read.
    ///
    /// # Errors
    /// [`PerfError`] when the kernel refuses, for which it has no reason.
    pub fn stop(&mut self, process: Option<&Process>) -> Result<(), PerfError> {
        let in_kernel = if self.access == Access::UserAndKernel { 2 } else { 0 };
        for event in 0..self.steps.len() * 2 + in_kernel {
            self.session.disable(event)?;
        }
        if let Some(accounts) = process.and_then(accounts) {
            self.beside_end = accounts.own.minus(self.last_accounts.own);
        }
        Ok(())
    }

    /// The number of events and the accounts, as near to each other as what is known of both allows.
    fn agreed(
        &self,
        counted: u64,
        twice: Twice,
        accounts: Option<FaultCounts>,
        pick: fn(FaultCounts) -> u64,
    ) -> (u64, u64) {
        let most = counted.saturating_sub(twice.least);
        let events = most.saturating_sub(twice.unsure)..=most;
        let Some(accounts) = accounts.map(pick) else { return (most, most) };
        let accounts = accounts.saturating_sub(pick(self.before));
        let start = accounts.saturating_sub(pick(self.beside_start));
        let (events, accounts) = agreement(events, start..=accounts.saturating_add(pick(self.beside_end)));
        (events, accounts.saturating_add(pick(self.before)))
    }

    /// The recording, of what was counted until [`Self::stop`].
    ///
    /// # Errors
    /// [`PerfError`] when the kernel's counts cannot be read, for which it has no reason.
    pub fn finish(&mut self, subject: Subject, accounts: Accounts) -> Result<FaultRecording, PerfError> {
        let records = self.session.read_last();
        self.arrivals.hear(&records, &self.session);
        for record in &records {
            self.take(record);
        }
        let observer_cpu = own_processor_time().saturating_sub(self.own_cpu);
        let duration_ns = nanoseconds(self.started.elapsed());
        for pid in self.images.pids().into_iter().filter(|pid| *pid != subject.pid) {
            self.images.read_perf_map(pid);
        }
        let (tree, calls) = self.images.name_calls(&self.tree);
        let steps = self.counted_steps()?;
        let counters = self.counters(&steps, &accounts)?;
        let (places, pids, faults) = std::mem::take(&mut self.taken).finish(&calls);
        let process = |pid| FaultProcess { pid, name: self.name(pid) };
        Ok(FaultRecording {
            format: FORMAT.to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_s: self.started_unix_s,
            duration_ns,
            machine: machine::machine(String::new()),
            subject,
            method: self.method(steps),
            counters,
            cost: Cost {
                observer_cpu_ns: nanoseconds(observer_cpu),
                subject_cpu_ns: accounts.cpu.map(nanoseconds),
            },
            processes: pids.into_iter().map(process).collect(),
            places,
            tree,
            faults,
            remarks: Vec::new(),
        })
    }

    /// What the counter of minor faults with this number counted, and that of major ones behind it.
    fn counted(&self, minor: usize) -> Result<FaultCounts, PerfError> {
        Ok(FaultCounts { minor: self.session.count(minor)?, major: self.session.count(minor + 1)? })
    }

    fn counted_steps(&self) -> Result<Vec<Step>, PerfError> {
        let steps = self.steps.iter().enumerate().map(|(step, periods)| {
            let counted = self.counted(step * 2)?;
            let lost = self.session.lost_of(step * 2..step * 2 + 2);
            Ok(Step {
                minor_period: periods.minor,
                major_period: periods.major,
                lost_samples: lost.unwrap_or(self.arrivals.lost(step)),
                minor_faults: counted.minor,
                major_faults: counted.major,
                ended_threads: self.arrivals.lives.ended(step),
            })
        });
        steps.collect()
    }

    fn counters(&self, steps: &[Step], accounts: &Accounts) -> Result<Counters, PerfError> {
        let kernel = match self.access {
            Access::UserAndKernel => Some(self.counted(self.steps.len() * 2)?),
            Access::User => None,
        };
        // A counter of its own for faults in programs would cost each of them some per cent of its time.
        let minor = steps.iter().map(|step| step.minor_faults).sum();
        let major = steps.iter().map(|step| step.major_faults).sum();
        let (minor, accounted_minor) =
            self.agreed(minor, self.twice[0], accounts.faults, |counts| counts.minor);
        let (major, accounted_major) =
            self.agreed(major, self.twice[1], accounts.faults, |counts| counts.major);
        Ok(Counters {
            user: FaultCounts { minor, major }.minus(kernel.unwrap_or_default()),
            kernel,
            accounts: accounts.faults.map(|_| FaultCounts { minor: accounted_minor, major: accounted_major }),
            before: self.before,
            accounts_are_late: accounts.are_late,
        })
    }

    fn method(&self, steps: Vec<Step>) -> Method {
        Method {
            steps,
            stack_bytes: self.options.stack_bytes,
            cut_chains: self.images.cut_chains,
            lost_samples: self.session.lost_samples(),
            lost_news: self.session.lost_news(),
            buffer_bytes: self.session.buffer_bytes() as u64,
            sees_kernel: self.access == Access::UserAndKernel,
            sees_huge_pages: self.saw_huge_pages,
        }
    }
}

/// Whether a fault is on the stack of its thread. The mapping alone does not tell: the kernel joins a stack with other memory that
/// adjoins it.
fn is_on_stack(mapping: &Range<u64>, stack_pointer: u64, address: u64) -> bool {
    let start = stack_pointer.saturating_sub(BELOW_STACK_BYTES);
    let near = start..stack_pointer.saturating_add(STACK_REACH_BYTES);
    mapping.contains(&stack_pointer) && near.contains(&address)
}

/// What a process's own accounts say.
pub(super) fn accounts(process: &Process) -> Option<FaultAccounts> {
    FaultAccounts::parse(&process.read("stat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_the_kernel_joined_with_a_stack_is_no_stack() {
        let (joined, stack_pointer) = (0x10_0000_0000..0x10_1000_0000, 0x10_0080_0000);
        for (address, expected) in [
            (stack_pointer + 64, true),
            (stack_pointer + 300_000, true),
            (stack_pointer - 8, true),
            (stack_pointer + (64 << 20), false),
            (stack_pointer - (1 << 20), false),
        ] {
            assert_eq!(is_on_stack(&joined, stack_pointer, address), expected, "{address:#x}");
        }
        assert!(
            !is_on_stack(&joined, 0x7fff_0000_0000, 0x7fff_0000_0000),
            "the first thread's is another mapping"
        );
    }
}
