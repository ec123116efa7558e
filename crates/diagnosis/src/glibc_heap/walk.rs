//! The whole walk: every arena, again where it moved under the walk; then the caches of threads and the mapped blocks.

use std::borrow::Cow;
use std::collections::HashSet;

use faultless_records::glibc_heap::{ArenaState, HeapInfo, Layout, Parameters};

use super::account::{Account, Accountant, Trimming};
use super::arenas::{self, Found, Ring};
use super::bins::{self, Lists, Met};
use super::caches::{Cache, Form, Readings, Traces};
use super::chunks::{self, Chunk, Fault, Stretch};
use super::mapped::{self, MappedBlocks};
use super::owners::Owners;
use super::pages::Pages;
use super::sizes::Amount;
use super::stretches::Search;
use super::window::Window;
use super::{Area, Memory, PAGE_BYTES, Page, area_of};

/// Whether some arena of a ring is at rest now; with one thread glibc takes no locks, and every arena looks at rest.
#[must_use]
pub fn is_any_at_rest(memory: &dyn Memory, arenas: impl IntoIterator<Item = u64>) -> bool {
    arenas.into_iter().any(|address| {
        let mut lock = [0; 4];
        memory.read(address, &mut lock) && lock == [0; 4]
    })
}

/// How often an arena is walked before its last state is taken as it is.
const MOST_ATTEMPTS: u32 = 6;

/// Looks on end that find the same flaw before it is taken for one that stays: a thread that does the same thing over and over may
/// show the same twice.
const LASTING_LOOKS: u32 = 3;

/// A stretch of memory that an arena owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heap {
    /// First address.
    pub start: u64,
    /// Bytes in use from there.
    pub bytes: u64,
    /// Bytes that can be written.
    pub accessible_bytes: u64,
    /// Bytes of address space.
    pub reserved_bytes: u64,
}

/// Why the figures of an arena are not exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Its state or its chain of heaps made no sense.
    Unreadable,
    /// The walk through its chunks ended too early.
    Chunk(Fault),
    /// Its lists of free chunks were broken.
    Lists,
    /// Its lists name other chunks than the walk met.
    Differs {
        /// By its lists.
        listed: Amount,
        /// By the walk.
        met: Amount,
    },
    /// It owns more, or less, than was walked.
    Size {
        /// Bytes that were walked.
        walked_bytes: u64,
    },
    /// The walk had to end before.
    Overdue,
}

/// One arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arena {
    /// Where its `malloc_state` is.
    pub address: u64,
    /// Whether it is the main one.
    pub is_main: bool,
    /// Threads attached.
    pub threads: u64,
    /// Its stretches of memory in ascending order of their making.
    pub heaps: Vec<Heap>,
    /// Bytes it has from the system, by its own account.
    pub system_bytes: u64,
    /// The most it had.
    pub max_system_bytes: u64,
    /// Its lists of free chunks.
    pub lists: Lists,
    /// What was added up.
    pub account: Account,
    /// Attempts made.
    pub attempts: u32,
    /// Why its figures are not exact.
    pub flaw: Option<Flaw>,
    /// Looks on end that found this very flaw.
    pub same_looks: u32,
}

impl Arena {
    /// Bytes of address space.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.heaps.iter().map(|heap| heap.reserved_bytes).sum()
    }

    /// Whether its flaw is no passing one: another look would find it again.
    #[must_use]
    pub fn has_lasting_flaw(&self) -> bool {
        self.flaw.is_some() && self.same_looks >= LASTING_LOOKS
    }

    /// Counts its flaw on where the look before found the same.
    fn follow(&mut self, flaw: Option<Flaw>, looks: u32) {
        if self.flaw == flaw {
            self.same_looks += looks;
        }
    }
}

/// A process's heaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapWalk {
    /// How they are laid out.
    pub layout: &'static Layout,
    /// malloc's parameters, where they were found.
    pub parameters: Option<Parameters>,
    /// The arenas in the order of `malloc_info`, the main one first.
    pub arenas: Vec<Arena>,
    /// All arenas together.
    pub total: Account,
    /// Threads' caches with blocks in them.
    pub caches: usize,
    /// Threads' caches that changed under the walk: a part of what they hold counts as used.
    pub changed_caches: usize,
    /// Blocks with a mapping of their own.
    pub mapped: MappedBlocks,
    /// Whether it is known which pages have memory; otherwise all are taken for resident.
    pub residency_is_known: bool,
}

impl HeapWalk {
    /// Arenas that the walk did not come to the end of, since it had to end.
    #[must_use]
    pub fn overdue_arenas(&self) -> usize {
        self.arenas.iter().filter(|arena| arena.flaw == Some(Flaw::Overdue)).count()
    }

    /// Whether every figure is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.changed_caches == 0 && self.arenas.iter().all(|arena| arena.flaw.is_none())
    }

    /// Takes the arenas of a later walk of the same heaps that are exact there and not here. New arenas are left to the
    /// later walk, which then takes the place of this one.
    pub fn improve(&mut self, later: Self) {
        let same = |left: &Arena, right: &Arena| left.address == right.address;
        let is_same_ring = self.arenas.len() == later.arenas.len()
            && self.arenas.iter().zip(&later.arenas).all(|(left, right)| same(left, right));
        let mut newest = later;
        if is_same_ring {
            for (newer, older) in newest.arenas.iter_mut().zip(&mut self.arenas) {
                if newer.flaw.is_some() && older.flaw.is_none() {
                    std::mem::swap(newer, older);
                } else {
                    newer.follow(older.flaw, older.same_looks);
                }
            }
            newest.total = sum(&newest.arenas);
        }
        *self = newest;
    }
}

fn sum(arenas: &[Arena]) -> Account {
    let mut total = Account::default();
    for arena in arenas {
        total.merge(&arena.account);
    }
    total
}

/// Walks all arenas of a ring.
#[must_use]
pub fn walk(memory: &dyn Memory, areas: &[Area], ring: &Ring) -> HeapWalk {
    let parameters = ring.parameters.map(|(_, parameters)| parameters);
    let mut walker = Walker {
        memory,
        areas: Cow::Borrowed(areas),
        parameters,
        pages: Pages::new(memory),
        form: Form { layout: ring.layout, capacity: parameters.map(|parameters| parameters.cache_count) },
        caches: Readings::default(),
    };
    let mut arenas: Vec<Arena> = ring.arenas.iter().map(|found| walker.steady_arena(found)).collect();
    let caches = std::mem::take(&mut walker.caches).finish(memory, walker.form);
    let owners = Owners::new(arenas.iter().map(|arena| &arena.heaps));
    for cache in &caches.found {
        walker.move_cache(&mut arenas, &owners, cache);
    }
    let total = sum(&arenas);
    let owned: Vec<(u64, u64)> = arenas
        .iter()
        .flat_map(|arena| &arena.heaps)
        .map(|heap| (heap.start, heap.start + heap.reserved_bytes))
        .collect();
    // Another walk is to follow where this one came to no end, and finds them.
    let is_whole = !arenas.iter().any(|arena| arena.flaw == Some(Flaw::Overdue));
    let mapped = match &parameters {
        Some(parameters) if is_whole => {
            mapped::find(memory, &walker.areas, &owned, (ring.layout, parameters), &mut walker.pages)
        }
        _ => MappedBlocks::default(),
    };
    let residency_is_known = walker.pages.is_known();
    HeapWalk {
        layout: ring.layout,
        parameters,
        arenas,
        total,
        caches: caches.found.len(),
        changed_caches: caches.changed,
        mapped,
        residency_is_known,
    }
}

struct Walker<'memory> {
    memory: &'memory dyn Memory,
    areas: Cow<'memory, [Area]>,
    parameters: Option<Parameters>,
    pages: Pages<'memory>,
    form: Form,
    caches: Readings,
}

/// One attempt at one arena.
#[derive(Default)]
struct Attempt {
    account: Account,
    heaps: Vec<Heap>,
    met: Met,
    traces: Traces,
    fault: Option<Fault>,
}

impl Walker<'_> {
    /// Walks an arena until its figures agree with each other.
    fn steady_arena(&mut self, found: &Found) -> Arena {
        if self.memory.is_overdue() {
            // There may be thousands, and each costs some reads, if only to find that it is too late.
            return Arena { flaw: Some(Flaw::Overdue), ..unreadable(found) };
        }
        let mut best: Option<(Arena, Traces)> = None;
        let mut last = (None, 0);
        let most = if self.memory.changes() { MOST_ATTEMPTS } else { 1 };
        for attempts in 1..=most {
            let state = match attempts {
                1 => Some(found.state.clone()),
                // It moved: what was known of its pages and mappings is old, too. A heap that has grown led out of them.
                _ => {
                    self.pages = Pages::new(self.memory);
                    if let Some(areas) = self.memory.areas() {
                        self.areas = Cow::Owned(areas);
                    }
                    arenas::read_state(self.memory, found.address, self.form.layout)
                }
            };
            let Some(state) = state else { continue };
            let (mut arena, traces) = self.arena(found, &state);
            if arena.flaw.is_some() && self.memory.is_overdue() {
                arena.flaw = Some(Flaw::Overdue);
            }
            arena.attempts = attempts;
            arena.follow(last.0, last.1);
            last = (arena.flaw, arena.same_looks);
            let is_done = arena.flaw.is_none() || arena.has_lasting_flaw();
            let is_better = best.as_ref().is_none_or(|(best, _)| {
                is_done || arena.account.walked_bytes() > best.account.walked_bytes()
            });
            if is_better {
                best = Some((arena, traces));
            }
            if is_done {
                break;
            }
        }
        let (arena, traces) = best.unwrap_or_else(|| (unreadable(found), Traces::default()));
        self.caches.begin(self.memory, traces, self.form);
        arena
    }

    fn arena(&mut self, found: &Found, state: &ArenaState) -> (Arena, Traces) {
        let mut arena = unreadable(found);
        arena.threads = state.threads;
        arena.system_bytes = state.system_bytes;
        arena.max_system_bytes = state.max_system_bytes;
        let Some((fast, fast_lists)) = bins::fast_chunks(self.memory, state, self.form.layout) else {
            arena.flaw = Some(Flaw::Lists);
            return (arena, Traces::default());
        };
        let mut attempt = Attempt::default();
        match found.heap_alignment {
            Some(alignment) => {
                let Some(heaps) = arenas::heaps(self.memory, state, found.address, alignment) else {
                    return (arena, Traces::default());
                };
                for (start, info) in heaps {
                    let first = if start + self.form.layout.heap_info_bytes == found.address {
                        start + self.form.layout.first_chunk()
                    } else {
                        start + self.form.layout.heap_info_bytes
                    };
                    self.heap(&mut attempt, (start, info), first, alignment, state, &fast);
                }
            }
            None => self.main_heap(&mut attempt, found, state, &fast),
        }
        let lists = bins::follow(self.memory, state, found.address, self.form.layout, &attempt.met);
        arena.lists = Lists { fast: fast_lists, ..lists };
        arena.account = attempt.account;
        arena.heaps = attempt.heaps;
        arena.flaw = flaw(&arena, attempt.fault, fast.len(), state);
        (arena, attempt.traces)
    }

    /// A heap of a thread's arena.
    fn heap(
        &mut self,
        attempt: &mut Attempt,
        (start, info): (u64, HeapInfo),
        first: u64,
        alignment: u64,
        state: &ArenaState,
        fast: &HashSet<u64>,
    ) {
        let end = start + info.bytes;
        let stretch = Stretch { first, end, top: state.top, is_of_thread_arena: true, fast };
        let trimming = Trimming { is_main: false, unit_bytes: PAGE_BYTES, break_address: None };
        let limit = (start + info.accessible_bytes).max(end);
        let walked = self.stretch(attempt, &stretch, start, limit, trimming);
        if walked != end && attempt.fault.is_none() {
            attempt.fault =
                Some(Fault { address: walked, reason: "its top chunk does not end where its heap ends" });
        }
        attempt.heaps.push(Heap {
            start,
            bytes: info.bytes,
            accessible_bytes: info.accessible_bytes,
            reserved_bytes: alignment,
        });
    }

    /// The main arena: one piece where `brk` grew undisturbed, otherwise pieces that only their chunks lead to.
    fn main_heap(&mut self, attempt: &mut Attempt, found: &Found, state: &ArenaState, fast: &HashSet<u64>) {
        let areas = self.areas.clone();
        let of_break = areas.iter().find(|area| area.is_break);
        let main_start = self.parameters.map(|parameters| parameters.main_start);
        let known = main_start.or(of_break.map(|area| area.start));
        // A core file does not say which memory `brk` moved.
        let is_break = |area: &Area| match of_break {
            Some(_) => area.is_break,
            None => !state.is_noncontiguous && main_start.is_some_and(|start| area.holds(start)),
        };
        let mut next = known.and_then(|start| Some((start, area_of(&areas, start)?.clone())));
        let mut search = None;
        while let Some((first, area)) = next {
            let above = attempt.heaps.iter().map(|heap| heap.start).filter(|start| *start > first);
            let end = above.min().unwrap_or(area.end).min(area.end);
            let stretch = Stretch { first, end, top: state.top, is_of_thread_arena: false, fast };
            let huge_bytes = self.parameters.map_or(0, |parameters| parameters.huge_page_bytes);
            let trimming = Trimming {
                is_main: true,
                unit_bytes: huge_bytes.max(PAGE_BYTES),
                break_address: is_break(&area).then_some(area.end),
            };
            let end = self.stretch(attempt, &stretch, first, first, trimming);
            let bytes = end - first;
            attempt.heaps.push(Heap { start: first, bytes, accessible_bytes: bytes, reserved_bytes: bytes });
            let walked_bytes: u64 = attempt.heaps.iter().map(|heap| heap.bytes).sum();
            // Most heaps are one piece, and following the lists only to see that costs as much as at the end.
            let is_whole = !state.is_noncontiguous && walked_bytes == state.system_bytes;
            if attempt.fault.is_some() || is_whole {
                break;
            }
            let search = search.get_or_insert_with(|| {
                let lists = bins::follow(self.memory, state, found.address, self.form.layout, &attempt.met);
                Search::new(lists.unmet.into_iter().chain(fast.iter().copied()).chain([state.top]), known)
            });
            next = search.next(self.memory, &areas, &attempt.heaps);
            let missing_bytes = state.system_bytes.saturating_sub(walked_bytes);
            if next.is_none() && state.is_noncontiguous && missing_bytes > 0 {
                let wanted = (state.top, missing_bytes);
                next = search.next_full(self.memory, &mut self.pages, &areas, &attempt.heaps, wanted);
            }
        }
    }

    /// Walks one stretch that malloc's own bytes precede from `start` on; returns where it ended.
    fn stretch(
        &mut self,
        attempt: &mut Attempt,
        stretch: &Stretch<'_>,
        start: u64,
        limit: u64,
        trimming: Trimming,
    ) -> u64 {
        let mut window = Window::new(self.memory, stretch.end.next_multiple_of(PAGE_BYTES));
        let mut accountant =
            Accountant::new(&mut attempt.account, &mut self.pages, trimming, &mut attempt.met);
        accountant.own(start, stretch.first);
        let mut end = stretch.first;
        let (traces, form) = (&mut attempt.traces, self.form);
        let walked = chunks::walk(&mut window, stretch, |window, chunk: Chunk| {
            accountant.chunk(chunk);
            traces.note(window, chunk, form);
            end = chunk.address + chunk.bytes;
        });
        if let Err(fault) = walked {
            attempt.fault.get_or_insert(fault);
        }
        accountant.close(end, limit);
        end
    }

    /// Blocks in a thread's cache are free, and the cache itself is malloc's own.
    fn move_cache(&mut self, arenas: &mut [Arena], owners: &Owners, cache: &Cache) {
        if let Some(place) = owners.of(cache.chunk) {
            let account = &mut arenas[place].account;
            account.used.take(cache.bytes);
            account.overhead_bytes += cache.bytes;
        }
        for (chunk, bytes) in &cache.blocks {
            let Some(account) = owners.of(*chunk).map(|place| &mut arenas[place].account) else { continue };
            account.used.take(*bytes);
            account.cached.add(*bytes);
            account.free.add(*bytes);
            account.largest_free_bytes = account.largest_free_bytes.max(*bytes);
            let (mut at, end) = (*chunk, chunk + bytes);
            while at < end {
                let until = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
                if self.pages.lone_state(at / PAGE_BYTES) == Page::Resident {
                    account.cached_resident_bytes += until - at;
                }
                at = until;
            }
        }
    }
}

fn flaw(arena: &Arena, fault: Option<Fault>, fast: usize, state: &ArenaState) -> Option<Flaw> {
    if let Some(fault) = fault {
        return Some(Flaw::Chunk(fault));
    }
    if !arena.lists.is_sound {
        return Some(Flaw::Lists);
    }
    let (mut listed, mut met) = (arena.lists.binned, arena.account.binned);
    if listed == met && fast as u64 != arena.account.fast.blocks {
        (listed, met) = (Amount { blocks: fast as u64, bytes: 0 }, arena.account.fast);
    }
    if listed != met {
        return Some(Flaw::Differs { listed, met });
    }
    let walked_bytes: u64 = arena.heaps.iter().map(|heap| heap.bytes).sum();
    // Where others moved `brk`, glibc counts their memory, too.
    let is_whole = if arena.is_main && (state.is_noncontiguous || arena.heaps.len() > 1) {
        walked_bytes <= state.system_bytes
    } else {
        walked_bytes == state.system_bytes
    };
    (!is_whole).then_some(Flaw::Size { walked_bytes })
}

fn unreadable(found: &Found) -> Arena {
    Arena {
        address: found.address,
        is_main: found.heap_alignment.is_none(),
        threads: found.state.threads,
        heaps: Vec::new(),
        system_bytes: found.state.system_bytes,
        max_system_bytes: found.state.max_system_bytes,
        lists: Lists::default(),
        account: Account::default(),
        attempts: 0,
        flaw: Some(Flaw::Unreadable),
        same_looks: 1,
    }
}
