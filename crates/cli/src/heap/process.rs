//! A live process as the heap walk reads it.

use std::time::{Duration, Instant};

use faultless_diagnosis::glibc_heap::arenas::Data;
use faultless_diagnosis::glibc_heap::choice::{self, Outcome};
use faultless_diagnosis::glibc_heap::page_states::PageStates;
use faultless_diagnosis::glibc_heap::pages::Pages;
use faultless_diagnosis::glibc_heap::{Area, Memory, PAGE_BYTES, Page, area_of, areas, walk};
use faultless_probe::loader;
use faultless_probe::pagemap::PageMap;
use faultless_probe::process::{self, Process, ProcessError};
use faultless_probe::standstill::{Standstill, StandstillError};
use faultless_records::allocator::Allocator;
use faultless_records::contents::Extent;
use faultless_records::glibc::is_libc;
use faultless_records::glibc_heap::VERSIONS;
use faultless_records::mappings::{self, DELETED, Mapping};
use faultless_records::status;
use faultless_report::heap::{FaultlessHeap, HeapView, Regions, Source, Stop};

use super::faultless::Host;
use crate::failure::Failure;
use crate::{subject, target};

/// How often arenas are looked for in a process that changes meanwhile.
const MOST_SEARCHES: usize = 8;
/// A process does not stand for longer in all: then it goes on, and what was not walked yet is walked while it runs.
const MOST_STANDING: Duration = Duration::from_secs(2);
/// How long it runs before it is stopped again.
const BETWEEN_STOPS: Duration = Duration::from_millis(2);

/// How long it runs between looks at a thread's cache that changes, after the first of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// How a process is while it is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It runs on.
    Running,
    /// We make it stand still.
    Standing,
    /// It stands still by itself, on its way out.
    AtExit,
}

/// Walks the heaps of a process.
///
/// # Errors
/// [`Failure`] when it cannot be seen or stopped.
pub fn look(process: &Process, manner: Manner) -> Result<HeapView, Failure> {
    subject::one_program(process, || look_once(process, manner))
}

/// Resident bytes of the heaps that were walked in pages that other processes have, too: who forks shares what neither writes to.
///
/// # Errors
/// [`Failure`] when the process cannot be seen any more.
pub fn shared_bytes(process: &Process, view: &HeapView) -> Result<u64, Failure> {
    let mappings = subject::mappings(process, "smaps")?;
    let usages =
        mappings.iter().filter(|mapping| is_heap(mapping, &view.walks)).filter_map(|mapping| mapping.usage);
    Ok(usages.map(|usage| usage.shared_clean_bytes + usage.shared_dirty_bytes).sum())
}

fn look_once(process: &Process, manner: Manner) -> Result<HeapView, Failure> {
    let memory = process.memory().map_err(Failure::of_process)?;
    let pagemap = PageMap::open(process).map_err(Failure::of_process)?;
    if pagemap.page_bytes() != PAGE_BYTES {
        return Err(Failure::Failed(format!(
            "this machine's pages have {} bytes, and heap knows those of {PAGE_BYTES} only",
            pagemap.page_bytes()
        )));
    }
    // What does not change is read before the process is stopped.
    let mappings = subject::mappings(process, "maps")?;
    let version = libraries(&mappings, process).iter().find_map(|library| version_of(process, library));
    let host = Host::find(process, &mappings);
    let has_own_malloc = host.is_none() && target::has_own_malloc(process);
    let mut known =
        Known { process, memory: &memory, pagemap: &pagemap, version, host, has_own_malloc, before: None };
    let status = process.text("status").map_err(Failure::of_process)?;
    if status::bytes_of_field(&status, "VmSwap").is_some_and(|bytes| bytes > 0) {
        let areas = areas(&mappings);
        known.before = PageStates::of(&LiveMemory { known: &known, areas: Vec::new(), until: None }, &areas);
    }
    let began = Instant::now();
    let (mut seen, source) = match manner {
        Manner::Standing => see_standing(&known)?,
        Manner::Running => (see(&known, None)?, Source::Process(None)),
        Manner::AtExit => (see(&known, None)?, Source::AtExit),
    };
    let took = began.elapsed();
    let status = process.text("status").map_err(Failure::of_process)?;
    if seen.walks.is_empty() && seen.other.is_none() {
        let whom = match manner {
            Manner::AtExit => "-- CMD".to_owned(),
            Manner::Running | Manner::Standing => format!("--pid {}", process.pid()),
        };
        seen.remarks.push(format!("faultless map {whom} names what memory it has."));
    }
    Ok(HeapView {
        pid: Some(process.pid()),
        name: process.name_now(),
        source,
        took,
        glibc: version,
        is_static: !mappings.iter().filter_map(Mapping::path).any(is_libc),
        counted_rss_bytes: status::bytes_of_field(&status, "VmRSS"),
        walks: seen.walks,
        other: seen.other,
        faultless: seen.faultless,
        remarks: seen.remarks,
    })
}

/// A thread that was stopped in the middle of `malloc` leaves its arena half changed: all go on for a moment and are stopped
/// again, until every arena was seen at rest once.
fn see_standing(known: &Known<'_>) -> Result<(Seen, Source), Failure> {
    let mut stood = Duration::ZERO;
    let mut best: Option<Seen> = None;
    let mut stops = 0;
    loop {
        stops += 1;
        let standstill = Standstill::begin(known.process).map_err(of_standstill)?;
        let moving_threads = standstill.moving_threads();
        let until = standstill.began() + MOST_STANDING.saturating_sub(stood);
        // Most stops in a busy process find the same arenas locked: they end at once.
        let is_worth_it = best.as_ref().is_none_or(|best| {
            let live = LiveMemory { known, areas: Vec::new(), until: Some(until) };
            best.walks.is_empty() || walk::is_any_at_rest(&live, best.flawed_arenas())
        });
        let seen = is_worth_it.then(|| see(known, Some(until)));
        stood += standstill.end();
        if let Some(seen) = seen.transpose()? {
            best = Some(Seen::joined(best, seen));
        }
        // Where nothing was found the main arena may just have been changing.
        let is_exact = best.as_ref().is_none_or(|best| {
            best.flawed_arenas().next().is_none() && (!best.walks.is_empty() || stops >= STOPS_FOR_NOTHING)
        });
        if let Some(mut seen) = best.take_if(|_| is_exact || stood >= MOST_STANDING) {
            let overdue_arenas = seen.walks.iter().map(walk::HeapWalk::overdue_arenas).sum();
            if overdue_arenas > 0 {
                seen = Seen::joined(Some(seen), see(known, None)?);
            }
            return Ok((seen, Source::Process(Some(Stop { stood, moving_threads, overdue_arenas }))));
        }
        // Longer each time: on a busy machine a thread may wait in the middle of malloc for a processor.
        std::thread::sleep(BETWEEN_STOPS * stops.min(STOPS_FOR_NOTHING));
    }
}

/// A process as it is however often it is looked at.
struct Known<'process> {
    process: &'process Process,
    memory: &'process process::Memory,
    pagemap: &'process PageMap,
    version: Option<(u32, u32)>,
    host: Option<Host>,
    /// Whether its program's `malloc` serves it: the loader finds that before that of any library.
    has_own_malloc: bool,
    /// Which pages had memory before any was read, where some were in swap.
    before: Option<PageStates>,
}

/// Stops after which a process in which no arena was found has none.
const STOPS_FOR_NOTHING: u32 = 8;

/// The name of an allocator that is in the program itself.
const OWN_MALLOC: &str = "the program's own malloc";

struct Seen {
    walks: Vec<walk::HeapWalk>,
    other: Option<(String, Regions)>,
    faultless: Option<FaultlessHeap>,
    remarks: Vec<String>,
}

impl Seen {
    /// The later look, with the arenas of the one before that were at rest only then.
    fn joined(before: Option<Self>, mut later: Self) -> Self {
        let Some(mut before) = before.filter(|before| before.walks.len() == later.walks.len()) else {
            return later;
        };
        for (walk, later) in before.walks.iter_mut().zip(std::mem::take(&mut later.walks)) {
            walk.improve(later);
        }
        Self { walks: before.walks, ..later }
    }

    /// Those that another look may find at rest.
    fn flawed_arenas(&self) -> impl Iterator<Item = u64> {
        let arenas = self.walks.iter().flat_map(|walk| &walk.arenas);
        let moving = arenas.filter(|arena| arena.flaw.is_some() && !arena.has_lasting_flaw());
        moving.map(|arena| arena.address)
    }
}

/// One look; at a process that stands, until it goes on.
fn see(known: &Known<'_>, until: Option<Instant>) -> Result<Seen, Failure> {
    let Known { process, memory, ref host, .. } = *known;
    let mappings = subject::mappings(process, "maps")?;
    let libraries = libraries(&mappings, process);
    let mut live = LiveMemory { known, areas: areas(&mappings), until };
    let mut seen = Seen { walks: Vec::new(), other: None, faultless: None, remarks: Vec::new() };
    let mut is_unused = false;
    for library in &libraries {
        match walk_library(&mut live, library)? {
            Outcome::Walked(walk) => seen.walks.push(*walk),
            Outcome::Unused => is_unused = true,
            Outcome::Nothing => {}
        }
    }
    if !process.is_alive() {
        return Err(Failure::of_process(ProcessError::Ended(process.pid())));
    }
    // That glibc's malloc has nothing does not prove another one: the process may have asked none.
    let other = match mappings::allocator(&mappings) {
        _ if host.is_some() => Some(Allocator::Faultless.name()),
        // It may have glibc's behind it.
        _ if known.has_own_malloc => seen.walks.is_empty().then_some(OWN_MALLOC),
        Allocator::Libc => None,
        loaded => Some(loaded.name()),
    };
    seen.other = other.map(|name| (name.to_owned(), regions(&live, &mappings, &seen.walks)));
    if let Some(host) = host {
        match host.look(process, memory) {
            Ok(faultless) => {
                let resident_bytes = resident_within(&live, &mappings, host.blocks());
                seen.faultless = Some(FaultlessHeap { resident_bytes, ..faultless });
            }
            Err(remark) => seen.remarks.push(remark),
        }
    } else if seen.walks.is_empty() {
        seen.remarks.push(match subject::is_32_bit(process) {
            true => "It is a 32-bit program, and only heaps of 64-bit ones are known.".to_owned(),
            false => nothing_found(is_unused, libraries.is_empty()),
        });
    }
    Ok(seen)
}

/// Why there is no walk, as a remark.
pub fn nothing_found(is_unused: bool, is_without_libc: bool) -> String {
    match (is_unused, is_without_libc) {
        (true, _) => "glibc's malloc is there, and was never asked for memory.".to_owned(),
        (false, true) => "No glibc is mapped: the program is static, or uses another C library.".to_owned(),
        (false, false) => format!("No arena of a known layout (glibc {VERSIONS}) was found."),
    }
}

/// Walks, again where a ring of arenas was broken by a change.
fn walk_library(live: &mut LiveMemory<'_>, library: &Library) -> Result<Outcome, Failure> {
    for _ in 0..MOST_SEARCHES {
        if let Some(data) = Data::read(live, library.data) {
            let outcome = choice::walk(live, &live.areas, &data, live.known.version);
            if outcome != Outcome::Nothing {
                return Ok(outcome);
            }
        }
        live.areas = areas(&subject::mappings(live.known.process, "maps")?);
    }
    Ok(Outcome::Nothing)
}

/// Where a malloc of glibc may have its data.
struct Library {
    /// The mapping of its file that names it.
    mapping: Mapping,
    data: (u64, u64),
}

/// Writable stretches of every libc; of the program itself where there is none.
fn libraries(mappings: &[Mapping], process: &Process) -> Vec<Library> {
    let named = writable(mappings, is_libc);
    if !named.is_empty() {
        return named;
    }
    let Ok(program) = process.link("exe") else { return Vec::new() };
    let program = program.into_os_string().into_encoded_bytes();
    let program = program.strip_suffix(DELETED.as_bytes()).unwrap_or(&program);
    writable(mappings, |path| path == program)
}

fn writable(mappings: &[Mapping], is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Library> {
    let mut found = Vec::new();
    for (place, mapping) in mappings.iter().enumerate() {
        if !mapping.is_writable() || !mapping.path().is_some_and(&is_wanted) {
            continue;
        }
        // What is zero at the start lies behind, without a file.
        let behind = mappings.get(place + 1).filter(|next| next.start == mapping.end && next.is_anonymous());
        let end = behind.map_or(mapping.end, |next| next.end);
        found.push(Library { mapping: mapping.clone(), data: (mapping.start, end) });
    }
    found
}

/// The version that the library's own file states.
fn version_of(process: &Process, library: &Library) -> Option<(u32, u32)> {
    let mapping = &library.mapping;
    let file = process.open_mapped(mapping.start, mapping.end, mapping.path()?, mapping.inode).ok()?;
    loader::version_of(&file)
}

/// Anonymous memory that no arena owns and no name claims.
fn regions(live: &LiveMemory<'_>, mappings: &[Mapping], walks: &[walk::HeapWalk]) -> Regions {
    let mut regions = Regions::default();
    let mut pages = Pages::new(live);
    for mapping in mappings.iter().filter(|mapping| mapping.is_anonymous() || mapping.name == b"[heap]") {
        if is_heap(mapping, walks) {
            continue;
        }
        regions.count += 1;
        regions.reserved_bytes += mapping.bytes();
        if mapping.is_writable() {
            regions.accessible_bytes += mapping.bytes();
            let pages = pages.count(mapping.start / PAGE_BYTES, mapping.end / PAGE_BYTES, Page::Resident);
            regions.resident_bytes += pages * PAGE_BYTES;
        }
    }
    regions
}

/// Whether an arena has a heap there.
fn is_heap(mapping: &Mapping, walks: &[walk::HeapWalk]) -> bool {
    let mut heaps = walks.iter().flat_map(|walk| &walk.arenas).flat_map(|arena| &arena.heaps);
    heaps.any(|heap| heap.start < mapping.end && mapping.start < heap.start + heap.reserved_bytes)
}

/// What has memory of the anonymous mappings in this range.
fn resident_within(live: &LiveMemory<'_>, mappings: &[Mapping], range: Extent) -> u64 {
    let mut pages = Pages::new(live);
    let resident = |mapping: &Mapping| {
        let (start, end) = (mapping.start.max(range.start), mapping.end.min(range.end));
        pages.count(start / PAGE_BYTES, end.max(start) / PAGE_BYTES, Page::Resident) * PAGE_BYTES
    };
    let of_blocks = mappings.iter().filter(|mapping| mapping.is_anonymous() && mapping.is_writable());
    of_blocks.map(resident).sum()
}

fn of_standstill(error: StandstillError) -> Failure {
    Failure::Failed(error.to_string())
}

struct LiveMemory<'process> {
    known: &'process Known<'process>,
    areas: Vec<Area>,
    /// When the process goes on; none where it runs.
    until: Option<Instant>,
}

impl Memory for LiveMemory<'_> {
    fn changes(&self) -> bool {
        self.until.is_none()
    }

    fn threads(&self) -> Option<usize> {
        self.known.process.threads().map(|threads| threads.len()).ok()
    }

    fn let_go_on(&self, looks: u32) {
        std::thread::sleep(BETWEEN_LOOKS * looks);
    }

    fn is_overdue(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> bool {
        self.known.memory.read_at(address, buffer).is_ok()
    }

    /// Anonymous pages without memory are zero; reading them would give them the kernel's page of zeros.
    fn read_sparse(&self, address: u64, buffer: &mut [u8]) -> bool {
        let Some(area) = area_of(&self.areas, address).filter(|area| area.is_anonymous) else {
            return self.read(address, buffer);
        };
        let first = address / PAGE_BYTES;
        let end = (address + buffer.len() as u64).div_ceil(PAGE_BYTES);
        let count = usize::try_from(end - first).unwrap_or(0);
        if area.end < address + buffer.len() as u64 || !address.is_multiple_of(PAGE_BYTES) {
            return self.read(address, buffer);
        }
        let Ok(pages) = self.known.pagemap.states(address, count) else { return false };
        let page_bytes = PAGE_BYTES as usize;
        let mut place = 0;
        for run in pages.chunk_by(|left, right| (*left == Page::Absent) == (*right == Page::Absent)) {
            let from = place * page_bytes;
            place += run.len();
            let end = (place * page_bytes).min(buffer.len());
            let part = &mut buffer[from..end];
            if run[0] == Page::Absent {
                part.fill(0);
            } else if !self.read(address + from as u64, part) {
                return false;
            }
        }
        true
    }

    fn areas(&self) -> Option<Vec<Area>> {
        subject::mappings(self.known.process, "maps").ok().map(|mappings| areas(&mappings))
    }

    fn pages(&self, address: u64, count: usize) -> Option<Vec<Page>> {
        Some(match &self.known.before {
            Some(before) => before.pages(address, count),
            None => self.known.pagemap.states(address, count).unwrap_or_default(),
        })
    }

    fn next_present(&self, address: u64, end: u64) -> u64 {
        match &self.known.before {
            Some(before) => before.next_present(address, end),
            None => self.known.pagemap.next_present(address, end).unwrap_or(address),
        }
    }
}
