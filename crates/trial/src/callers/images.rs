//! The processes under observation: what each has mapped, how its stacks are unwound, what it is called.

use std::collections::HashMap;
use std::sync::Arc;

use faultless_probe::mapped_file;
use faultless_probe::process::{Process, ProcessError};
use faultless_records::mappings;
use faultless_records::perf_map::PerfMap;
use faultless_records::perf_record::{FileIdentity, NewMapping, News, PerfRecord, Sample};
use faultless_symbols::address_space::{AddressSpace, Mapped};
use faultless_symbols::modules::{Found, Modules};
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
}

/// All processes under observation.
#[derive(Default)]
pub struct Images {
    processes: HashMap<i32, Image>,
    cache: UnwindCache,
    /// The files of their code.
    pub modules: Modules,
    /// Chains that could not be followed to their outermost call.
    pub cut_chains: u64,
}

#[derive(Default, Clone)]
struct Image {
    name: String,
    space: AddressSpace<Backing>,
    unwinder: StackUnwinder,
    perf_map: Option<Arc<PerfMap>>,
}

impl Images {
    /// Takes over what a process has mapped before it is observed.
    ///
    /// # Errors
    /// When its `maps` cannot be read.
    pub fn adopt(&mut self, process: &Process) -> Result<(), ProcessError> {
        let text = process.read("maps")?;
        let pid = process.pid();
        self.processes.entry(pid).or_default().name = process.name().to_owned();
        for mapping in mappings::parse(&text).unwrap_or_default() {
            let has = |place: usize, letter: u8, bit: u32| {
                if mapping.permissions[place] == letter { bit } else { 0 }
            };
            let protection = has(0, b'r', 1) | has(1, b'w', 2) | has(2, b'x', EXECUTABLE);
            let name = String::from_utf8_lossy(&mapping.name).into_owned();
            let new = NewMapping {
                start: mapping.start,
                length_bytes: mapping.bytes(),
                file_offset: mapping.offset,
                file: FileIdentity::Inode { device: mapping.device, inode: mapping.inode },
                protection,
                flags: has(3, b's', 1) | has(3, b'p', 2),
                is_data: protection & EXECUTABLE == 0,
                name: if name.is_empty() { "//anon".to_owned() } else { name },
            };
            self.map(pid, new);
        }
        Ok(())
    }

    /// Takes notice of a record about mappings, names, starts and ends.
    pub fn take(&mut self, record: &PerfRecord) {
        let pid = record.pid;
        match &record.news {
            News::Mapping(new) => self.map(pid, new.clone()),
            News::Name { name, is_exec } => {
                let image = self.processes.entry(pid).or_default();
                if *is_exec {
                    *image = Image::default();
                }
                if *is_exec || record.tid == pid {
                    image.name.clone_from(name);
                }
            }
            News::Fork { parent_pid, .. } if *parent_pid != pid => {
                let image = self.processes.get(parent_pid).cloned().unwrap_or_default();
                self.processes.insert(pid, image);
            }
            _ => {}
        }
    }

    fn map(&mut self, pid: i32, new: NewMapping) {
        let range = new.start..new.start.saturating_add(new.length_bytes);
        let is_code =
            new.protection & EXECUTABLE != 0 && new.name.starts_with('/') && !new.name.starts_with("//");
        let place = is_code.then(|| {
            let find = || {
                let file = mapped_file::open(pid, &new)?;
                Ok(Found { file, roots: mapped_file::roots(pid) })
            };
            let path = new.name.strip_suffix(" (deleted)").unwrap_or(&new.name);
            self.modules.place(path, &new.file, find)
        });
        let image = self.processes.entry(pid).or_default();
        let what =
            Backing { name: new.name.into(), protection: new.protection, flags: new.flags, module: place };
        let gone = image.space.map(Mapped { range: range.clone(), file_offset: new.file_offset, what });
        for start in gone {
            image.unwinder.remove(start);
        }
        let module = place.and_then(|place| self.modules.module(place));
        if let Some(module) = module
            && let Some(linked) = module.code_address(new.file_offset)
        {
            image.unwinder.remove(range.start);
            image.unwinder.add(range, linked, module);
        }
    }

    /// The call at the inner end of a sample's chain.
    pub fn call(&mut self, record: &PerfRecord, sample: &Sample, tree: &mut RawTree) -> Option<usize> {
        let image = self.processes.entry(record.pid).or_default();
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
        let modules = &self.modules;
        let code = |address: u64| {
            let anonymous = Code::Anonymous { pid: record.pid, address };
            let Some(mapped) = image.space.at(address) else { return anonymous };
            let Some(place) = mapped.what.module else { return anonymous };
            let offset = mapped.file_offset.wrapping_add(address - mapped.range.start);
            let address =
                modules.module(place).and_then(|module| module.code_address(offset)).unwrap_or(offset);
            Code::Module { module: place, address }
        };
        let cut = chain.is_cut.then_some(Code::Cut);
        tree.call(cut.into_iter().chain(chain.addresses.iter().rev().map(|address| code(*address))))
    }

    /// The mapping of a process that holds an address, or that a stack below it would grow into.
    #[must_use]
    pub fn mapping(&self, pid: i32, address: u64) -> Option<&Mapped<Backing>> {
        let space = &self.processes.get(&pid)?.space;
        let above = || space.above(address).filter(|mapped| &*mapped.what.name == "[stack]");
        space.at(address).or_else(above)
    }

    /// What a process is called.
    #[must_use]
    pub fn name(&self, pid: i32) -> Option<&str> {
        self.processes.get(&pid).map(|image| image.name.as_str()).filter(|name| !name.is_empty())
    }

    /// Process numbers, ascending.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.processes.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Reads the names that just-in-time compilers of a process wrote down so far; where there are none, nothing changes.
    pub fn read_perf_map(&mut self, pid: i32) {
        if let Some(text) = mapped_file::perf_map(pid)
            && let Some(image) = self.processes.get_mut(&pid)
        {
            image.perf_map = Some(Arc::new(PerfMap::parse(&text)));
        }
    }

    /// The name of code outside of files.
    pub(super) fn anonymous_name(&self, pid: i32, address: u64) -> Option<String> {
        let image = self.processes.get(&pid)?;
        if let Some(name) = image.perf_map.as_ref().and_then(|map| map.function(address)) {
            return Some(name.to_owned());
        }
        let name = &image.space.at(address)?.what.name;
        name.starts_with('[').then(|| name.to_string())
    }
}

/// `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`, `ld-2.31.so`.
fn is_loader(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("ld-"))
}
