//! The processes under observation: what each has mapped, how its stacks are unwound, what it is called.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use faultless_probe::mapped_file;
use faultless_probe::process::{Process, ProcessError};
use faultless_records::mappings::DELETED;
use faultless_records::perf_map::PerfMap;
use faultless_records::perf_record::{NewMapping, News, PerfRecord, Sample};
use faultless_records::program::is_loader;
use faultless_symbols::address_space::{AddressSpace, Mapped};
use faultless_symbols::modules::{Found, Modules};
use faultless_symbols::separate_debug::Root;
use faultless_symbols::unwinding::{StackUnwinder, UnwindCache};

use super::raw_tree::{Code, RawTree};

/// `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

/// What lies behind a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// Path, `//anon`, `[heap]` and the like.
    pub name: Arc<str>,
    /// `PROT_*`.
    pub protection: u32,
    /// `MAP_*`: of shared, private, locked and hugetlb those that hold.
    pub flags: u32,
    /// Place of its code in the list of modules.
    pub module: Option<usize>,
    /// The process that mapped it: an ancestor where it was there before the fork.
    pub mapped_by: i32,
}

/// All processes under observation.
#[derive(Default)]
pub struct Images {
    processes: HashMap<i32, Observed>,
    cache: UnwindCache,
    /// The files of their code.
    pub modules: Modules,
    /// Chains that could not be followed to their outermost call.
    pub cut_chains: u64,
    /// An address of the last chain that lies in no mapping that is known.
    pub nowhere: Option<u64>,
    /// Some process ran code of another architecture, as 32-bit programs do.
    pub saw_foreign_code: bool,
}

/// What is known of a process; of one that has ended, what its calls are named by.
#[derive(Default)]
struct Observed {
    name: String,
    /// Those that have not ended as far as is known. The first may end before the others.
    threads: HashSet<i32>,
    has_calls: bool,
    /// Addresses of its calls outside of files, with the names of what was mapped there once it has ended.
    outside: HashMap<u64, Option<String>>,
    perf_map: Option<Arc<PerfMap>>,
    /// Shared with children until one of them maps something.
    image: Arc<Image>,
}

#[derive(Default, Clone)]
struct Image {
    space: AddressSpace<Backing>,
    unwinder: StackUnwinder,
}

impl Observed {
    /// Its memory is gone.
    fn leave_program(&mut self) {
        let image = std::mem::take(&mut self.image);
        for (address, name) in &mut self.outside {
            *name = name.take().or_else(|| image.area(*address));
        }
        self.threads.clear();
    }
}

impl Image {
    /// The name of an area without a file that the kernel gave one.
    fn area(&self, address: u64) -> Option<String> {
        let name = &self.space.at(address)?.what.name;
        name.starts_with('[').then(|| name.to_string())
    }
}

impl Images {
    /// Takes over what a process has mapped before it is observed.
    ///
    /// # Errors
    /// When its `maps` cannot be read.
    pub fn adopt(&mut self, process: &Process) -> Result<(), ProcessError> {
        let mapped = process.mappings("maps")?;
        let pid = process.pid();
        let observed = self.processes.entry(pid).or_default();
        process.name().clone_into(&mut observed.name);
        if observed.threads.is_empty() {
            observed.threads.extend(process.threads().unwrap_or_default());
        }
        for mapping in mapped.unwrap_or_default() {
            self.map(pid, NewMapping::from(&mapping));
        }
        Ok(())
    }

    /// Takes over what a process has mapped by now and no record told of.
    ///
    /// # Errors
    /// When its `maps` cannot be read.
    pub fn adopt_missing(&mut self, process: &Process) -> Result<(), ProcessError> {
        for mapping in process.mappings("maps")?.unwrap_or_default() {
            let space = self.processes.get(&process.pid()).map(|observed| &observed.image.space);
            let is_known = |address| space.is_some_and(|space| space.at(address).is_some());
            if !is_known(mapping.start) || !is_known(mapping.end.saturating_sub(1)) {
                self.map(process.pid(), NewMapping::from(&mapping));
            }
        }
        Ok(())
    }

    /// Takes notice of a record about mappings, names, starts and ends; whether it was the end of a process.
    pub fn take(&mut self, record: &PerfRecord) -> bool {
        let pid = record.pid;
        match &record.news {
            News::Mapping(new) => self.map(pid, new.clone()),
            News::Name { name, is_exec } => {
                let observed = self.processes.entry(pid).or_default();
                if *is_exec {
                    observed.leave_program();
                    observed.threads.insert(pid);
                }
                if *is_exec || record.tid == pid {
                    observed.name.clone_from(name);
                }
            }
            News::Fork { parent_pid, .. } => {
                if *parent_pid != pid {
                    let parent = self.processes.entry(*parent_pid).or_default();
                    let child = Observed {
                        name: parent.name.clone(),
                        perf_map: parent.perf_map.clone(),
                        image: Arc::clone(&parent.image),
                        ..Observed::default()
                    };
                    self.processes.insert(pid, child);
                }
                self.processes.entry(pid).or_default().threads.insert(record.tid);
            }
            News::Exit => {
                let Some(observed) = self.processes.get_mut(&pid) else { return false };
                let was_known = observed.threads.remove(&record.tid);
                let is_end = observed.threads.is_empty() && (was_known || record.tid == pid);
                if is_end {
                    self.end(pid);
                }
                return is_end;
            }
            _ => {}
        }
        false
    }

    /// A process has ended and has no more calls: only what those it had are named by is kept.
    pub fn end(&mut self, pid: i32) {
        match self.processes.get_mut(&pid) {
            Some(observed) if observed.has_calls => observed.leave_program(),
            _ => drop(self.processes.remove(&pid)),
        }
    }

    /// Whether a process is there, as far as is known.
    #[must_use]
    pub fn lives(&self, pid: i32) -> bool {
        self.processes.get(&pid).is_some_and(|observed| !observed.threads.is_empty())
    }

    fn map(&mut self, pid: i32, new: NewMapping) {
        let range = new.start..new.start.saturating_add(new.length_bytes);
        let is_code =
            new.protection & EXECUTABLE != 0 && new.name.starts_with('/') && !new.name.starts_with("//");
        let place = is_code.then(|| {
            let find = || {
                let file = mapped_file::open(pid, &new)?;
                let roots = mapped_file::roots(pid).into_iter();
                let roots = roots.map(|root| Root::new(root, mapped_file::open_regular)).collect();
                Ok(Found { file, roots })
            };
            let path = new.name.strip_suffix(DELETED).unwrap_or(&new.name);
            self.modules.place(path, &new.file, find)
        });
        let image = Arc::make_mut(&mut self.processes.entry(pid).or_default().image);
        let what = Backing {
            name: new.name.into(),
            protection: new.protection,
            flags: new.flags,
            module: place,
            mapped_by: pid,
        };
        // What a parent had there is gone: pages that a fork shares are never joined with a new mapping.
        let gone = image.space.map(Mapped { range: range.clone(), file_offset: new.file_offset, what });
        for start in gone {
            image.unwinder.remove(start);
        }
        let module = place.and_then(|place| self.modules.module(place));
        self.saw_foreign_code |= module.is_some_and(|module| module.is_foreign);
        if let Some(module) = module
            && let Some(linked) = module.code_address(new.file_offset)
        {
            image.unwinder.remove(range.start);
            image.unwinder.add(range, linked, module);
        }
    }

    /// The call at the inner end of a sample's chain.
    pub fn call(&mut self, record: &PerfRecord, sample: &Sample, tree: &mut RawTree) -> Option<usize> {
        let observed = self.processes.entry(record.pid).or_default();
        observed.has_calls = true;
        let image = &observed.image;
        if sample.is_in_kernel
            && sample.registers.is_none_or(|registers| image.space.at(registers.ip).is_none())
        {
            // While execve builds a new program the registers are still those of the old one.
            return None;
        }
        let mut chain = image.unwinder.chain(sample, &mut self.cache);
        let outermost = chain.addresses.last().and_then(|address| image.space.at(*address));
        // The loader's first function has no tables, and nothing above it.
        chain.is_cut &= !outermost.is_some_and(|mapped| is_loader(&mapped.what.name));
        self.cut_chains += u64::from(chain.is_cut);
        self.nowhere = chain.addresses.iter().copied().find(|address| image.space.at(*address).is_none());
        let modules = &self.modules;
        let outside = &mut observed.outside;
        let code = |address: u64| {
            let in_file = image.space.at(address).and_then(|mapped| Some((mapped, mapped.what.module?)));
            let Some((mapped, place)) = in_file else {
                outside.entry(address).or_default();
                return Code::Anonymous { pid: record.pid, address };
            };
            let offset = mapped.file_offset.wrapping_add(address - mapped.range.start);
            let address =
                modules.module(place).and_then(|module| module.code_address(offset)).unwrap_or(offset);
            Code::Module { module: place, address }
        };
        let cut = chain.is_cut.then_some(Code::Cut);
        tree.call(cut.into_iter().chain(chain.addresses.iter().rev().copied().map(code)))
    }

    /// The mapping of a process that holds an address, or that a stack below it would grow into.
    #[must_use]
    pub fn mapping(&self, pid: i32, address: u64) -> Option<&Mapped<Backing>> {
        let space = &self.processes.get(&pid)?.image.space;
        let above = || space.above(address).filter(|mapped| &*mapped.what.name == "[stack]");
        space.at(address).or_else(above)
    }

    /// What a process is called.
    #[must_use]
    pub fn name(&self, pid: i32) -> Option<&str> {
        self.processes.get(&pid).map(|observed| observed.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Numbers of processes that have calls or have not ended, ascending.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Reads the names that just-in-time compilers of a process wrote down so far; where there are none, nothing changes.
    pub fn read_perf_map(&mut self, pid: i32) {
        if let Some(text) = mapped_file::perf_map(pid)
            && let Some(observed) = self.processes.get_mut(&pid)
        {
            observed.perf_map = Some(Arc::new(PerfMap::parse(&text)));
        }
    }

    /// The name of code outside of files.
    pub(super) fn anonymous_name(&self, pid: i32, address: u64) -> Option<String> {
        let observed = self.processes.get(&pid)?;
        if let Some(name) = observed.perf_map.as_ref().and_then(|map| map.function(address)) {
            return Some(name.to_owned());
        }
        observed.outside.get(&address).cloned().flatten().or_else(|| observed.image.area(address))
    }
}

#[cfg(test)]
mod tests {
    use faultless_records::perf_record::FileIdentity;

    use super::*;

    fn record(pid: i32, tid: i32, news: News) -> PerfRecord {
        PerfRecord { time_ns: 0, pid, tid, cpu: 0, news }
    }

    fn mapping(start: u64, name: &str) -> News {
        News::Mapping(NewMapping {
            start,
            length_bytes: 4096,
            file_offset: 0,
            file: FileIdentity::Inode { device: (0, 0), inode: 0 },
            protection: EXECUTABLE,
            flags: 2,
            name: name.to_owned(),
        })
    }

    fn exec(pid: i32) -> PerfRecord {
        record(pid, pid, News::Name { name: "program".into(), is_exec: true })
    }

    fn fork(parent_pid: i32, pid: i32, tid: i32) -> PerfRecord {
        record(pid, tid, News::Fork { parent_pid, parent_tid: parent_pid })
    }

    #[test]
    fn a_child_has_its_parents_image_until_it_maps_something_and_nothing_is_left_of_it_when_it_has_ended() {
        let mut images = Images::default();
        images.take(&exec(1));
        images.take(&record(1, 1, mapping(0x1000, "[vdso]")));
        for child in 2..1000 {
            images.take(&fork(1, child, child));
            let shared =
                |images: &Images| Arc::ptr_eq(&images.processes[&1].image, &images.processes[&child].image);
            assert!(shared(&images));
            if child % 2 == 0 {
                images.take(&record(child, child, mapping(0x9000, "//anon")));
                assert!(!shared(&images) && images.mapping(1, 0x9000).is_none());
            }
            images.take(&record(child, child, News::Exit));
        }
        assert_eq!(images.pids(), [1]);
    }

    #[test]
    fn memory_is_whose_who_mapped_it_last_however_long_that_is() {
        let mut images = Images::default();
        let heap = |start, pages: u64| match mapping(start, "[heap]") {
            News::Mapping(new) => News::Mapping(NewMapping { length_bytes: pages * 4096, ..new }),
            other => other,
        };
        images.take(&exec(1));
        images.take(&record(1, 1, heap(0x1000, 2)));
        images.take(&fork(1, 2, 2));
        let of = |images: &Images, address| images.mapping(2, address).map(|mapped| mapped.what.mapped_by);
        assert_eq!(of(&images, 0x1000), Some(1));
        // It grows by a mapping beside it.
        images.take(&record(2, 2, heap(0x3000, 1)));
        assert_eq!((of(&images, 0x2fff), of(&images, 0x3000)), (Some(1), Some(2)));
        // What the parent had there was unmapped, of which nothing tells.
        images.take(&record(2, 2, heap(0x1000, 4)));
        assert_eq!((of(&images, 0x1000), of(&images, 0x2fff)), (Some(2), Some(2)));
    }

    #[test]
    fn a_process_lives_as_long_as_one_of_its_threads() {
        let mut images = Images::default();
        images.take(&exec(1));
        images.take(&fork(1, 1, 5));
        images.take(&record(1, 1, News::Exit));
        assert!(images.lives(1), "the first thread is not the process");
        images.take(&record(1, 5, News::Exit));
        assert!(!images.lives(1));
    }

    #[test]
    fn what_has_ended_keeps_the_names_of_its_calls() {
        let (mut images, mut tree) = (Images::default(), RawTree::default());
        images.take(&exec(1));
        images.take(&record(1, 1, mapping(0x1000, "[vdso]")));
        let sample = Sample { ip: 0x1010, callchain: vec![0x1010], ..Sample::default() };
        let call = images.call(&record(1, 1, News::Other), &sample, &mut tree);
        assert_eq!(call, Some(1), "below what was cut off");
        images.take(&record(1, 1, News::Exit));
        assert_eq!(images.anonymous_name(1, 0x1010).as_deref(), Some("[vdso]"));
        assert_eq!((images.name(1), images.mapping(1, 0x1010)), (Some("program"), None));
    }
}
