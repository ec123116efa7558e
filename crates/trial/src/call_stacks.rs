//! Call chains as lists of names, each kept once and named at the end, for whoever adds up by caller.

use std::collections::{HashMap, HashSet};

use faultless_probe::process::Process;
use faultless_records::call_tree::{CallFrame, CallTree};
use faultless_records::mappings;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::perf_record::{News, PerfRecord, Registers, Sample};

use crate::callers::{Images, RawTree};

/// Chains of processes under observation.
#[derive(Default)]
pub struct CallStacks {
    images: Images,
    tree: RawTree,
    /// Index of a chain by its innermost call.
    indices: HashMap<usize, u32>,
    /// Innermost calls by index.
    calls: Vec<usize>,
    /// Processes whose code is not known, or not any more.
    unknown: HashSet<i32>,
    known: HashSet<i32>,
    /// Pages outside of all mappings that were known of a process, after it was looked at once more for them.
    nowhere: HashSet<(i32, u64)>,
}

/// So often a process is looked at for a call outside of all that is known of it: chains may be unwound wrongly without end.
const MOST_LOOKS: usize = 1000;

impl CallStacks {
    /// Takes over what a process has mapped before it is observed; one that cannot be read has chains of bare addresses.
    pub fn adopt(&mut self, process: &Process) {
        self.unknown.remove(&process.pid());
        self.known.insert(process.pid());
        let _ = self.images.adopt(process);
    }

    /// Takes over what a process has mapped from the text of its `maps`.
    pub fn adopt_maps(&mut self, pid: i32, maps: &[u8]) {
        self.known.insert(pid);
        let mappings = mappings::parse(maps).unwrap_or_default();
        // Only code is unwound and named.
        for code in mappings.iter().filter(|mapping| mapping.is_executable()) {
            let news = News::Mapping(code.into());
            self.images.take(&PerfRecord { time_ns: 0, pid, tid: pid, cpu: 0, news });
        }
    }

    /// Takes notice of a record about mappings, names, starts and ends.
    pub fn take(&mut self, record: &PerfRecord) {
        match &record.news {
            News::Name { is_exec: true, .. } => drop(self.known.remove(&record.pid)),
            News::Mapping(_) | News::Fork { .. } => drop(self.known.insert(record.pid)),
            _ => {}
        }
        if self.images.take(record) {
            self.end(record.pid);
        }
    }

    /// A process has ended.
    pub fn end(&mut self, pid: i32) {
        self.known.remove(&pid);
        self.unknown.remove(&pid);
        self.images.end(pid);
    }

    /// A process runs another program now.
    pub fn forget(&mut self, pid: i32) {
        let news = News::Name { name: String::new(), is_exec: true };
        self.take(&PerfRecord { time_ns: 0, pid, tid: pid, cpu: 0, news });
    }

    /// A process may have code that is not known.
    pub fn code_changed(&mut self, pid: i32) {
        self.unknown.insert(pid);
    }

    /// The chain of a sample, by its index; none when it has none.
    pub fn index(&mut self, record: &PerfRecord, sample: &Sample) -> Option<u32> {
        let is_new = !self.known.contains(&record.pid);
        if (is_new || self.unknown.contains(&record.pid))
            && let Ok(process) = Process::open(record.pid)
        {
            self.adopt(&process);
        }
        let mut call = self.images.call(record, sample, &mut self.tree)?;
        // A library that was opened since, as far as records do not tell of it.
        if let Some(address) = self.images.nowhere.take()
            && self.nowhere.len() < MOST_LOOKS
            && self.nowhere.insert((record.pid, address / PAGE_BYTES))
            && let Ok(process) = Process::open(record.pid)
        {
            self.adopt(&process);
            call = self.images.call(record, sample, &mut self.tree)?;
        }
        let next = u32::try_from(self.calls.len()).ok()?;
        let index = *self.indices.entry(call).or_insert(next);
        if index == next {
            self.calls.push(call);
        }
        Some(index)
    }

    /// The same of registers and stack.
    pub fn index_of(&mut self, pid: i32, tid: i32, registers: Registers, stack: Vec<u8>) -> Option<u32> {
        let record = PerfRecord { time_ns: 0, pid, tid, cpu: 0, news: News::Other };
        let sample = Sample { ip: registers.ip, registers: Some(registers), stack, ..Sample::default() };
        self.index(&record, &sample)
    }

    /// Whether some process ran code of another architecture, as 32-bit programs do.
    #[must_use]
    pub fn saw_foreign_code(&self) -> bool {
        self.images.saw_foreign_code
    }

    /// Names of each chain's calls, by index, the innermost first. `is_hidden` leaves out frames of modules, by their file
    /// names.
    #[must_use]
    pub fn into_names(self, is_hidden: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
        self.of_each_call(|tree, frame| {
            let is_shown = !tree.module_name(frame).is_some_and(&is_hidden);
            is_shown.then(|| tree.name(frame))
        })
    }

    /// The same with the file name of each call's module.
    #[must_use]
    pub fn into_placed_names(self) -> Vec<Vec<(String, Option<String>)>> {
        self.of_each_call(|tree, frame| Some((tree.name(frame), tree.module_name(frame).map(str::to_owned))))
    }

    fn of_each_call<T>(mut self, of: impl Fn(&CallTree, &CallFrame) -> Option<T>) -> Vec<Vec<T>> {
        for pid in self.images.pids() {
            self.images.read_perf_map(pid);
        }
        let (tree, places) = self.images.name_calls(&self.tree);
        let named = |call: &usize| {
            let place = places.get(*call).copied();
            tree.outwards(place).filter_map(|frame| of(&tree, frame)).collect()
        };
        self.calls.iter().map(named).collect()
    }
}
