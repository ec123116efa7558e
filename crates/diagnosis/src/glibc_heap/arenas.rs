//! Where the arenas are. Without symbols: the main arena is the one place in libc's data whose empty bins point to themselves
//! and whose ring of arenas closes; the others lie in that ring.

use std::collections::HashSet;

use faultless_records::glibc_heap::{
    ArenaState, BINS, HEAP_ALIGNMENTS, HeapInfo, LEAST_CHUNK_BYTES, Layout, Parameters, word,
};

use super::parameters;
use super::{Area, Memory, area_of};

/// More arenas than any setting allows.
const MOST_ARENAS: usize = 1 << 20;
/// More bytes than any libc has data.
const MOST_DATA_BYTES: u64 = 64 << 20;

/// An arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where its `malloc_state` is.
    pub address: u64,
    /// What it said when it was found.
    pub state: ArenaState,
    /// For a thread's arena, the size to which its heaps are aligned.
    pub heap_alignment: Option<u64>,
}

/// All arenas of one libc, the main one first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ring {
    /// How they are laid out.
    pub layout: &'static Layout,
    /// Where malloc's parameters are, and what they are.
    pub parameters: Option<(u64, Parameters)>,
    /// The arenas in the order of the ring, which is that of `malloc_info`.
    pub arenas: Vec<Found>,
}

/// What was found in libc's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// A malloc with arenas.
    Arenas(Box<Ring>),
    /// A malloc that was never asked for memory: another one serves this process, or none.
    Unused,
    /// Nothing that looks like an arena of any known version.
    Nothing,
}

/// libc's data: a writable stretch of it, or of a static program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    start: u64,
    bytes: Vec<u8>,
}

impl Data {
    /// Reads it; none where nothing can be read.
    #[must_use]
    pub fn read(memory: &dyn Memory, (start, end): (u64, u64)) -> Option<Self> {
        let length = end.saturating_sub(start).min(MOST_DATA_BYTES);
        let mut bytes = vec![0; usize::try_from(length).ok()?];
        (!bytes.is_empty() && memory.read(start, &mut bytes)).then_some(Self { start, bytes })
    }
}

/// Looks for the arenas whose main one lies in libc's data, laid out in this way.
#[must_use]
pub fn search(memory: &dyn Memory, areas: &[Area], data: &Data, layout: &'static Layout) -> Search {
    let state_bytes = usize::try_from(layout.state_bytes).unwrap_or(usize::MAX);
    let (start, data) = (data.start, &data.bytes[..]);
    let Some(last) = data.len().checked_sub(state_bytes) else { return Search::Nothing };
    let mut found = Search::Nothing;
    for offset in (0..=last).step_by(8) {
        let address = start + offset as u64;
        if is_untouched(&data[offset..], address, layout) {
            found = Search::Unused;
            continue;
        }
        // Nearly every place fails here: the ring's last link, or one of the first bins' links.
        if !may_be_state(&data[offset..], address, areas, layout) {
            continue;
        }
        let Some(state) = ArenaState::parse(&data[offset..], layout) else { continue };
        if !is_plausible(&state, address, areas, layout) {
            continue;
        }
        // Where the mmap threshold is 0 each block has a mapping of its own, and there is no heap.
        let is_without_heap = state.top == layout.bin_address(address, 0);
        let parameters = parameters::find(data, (start, address), is_without_heap, layout, areas);
        if is_without_heap && parameters.is_none() {
            found = Search::Unused;
            continue;
        }
        if let Some(arenas) = ring(memory, areas, address, state, layout) {
            return Search::Arenas(Box::new(Ring { layout, parameters, arenas }));
        }
    }
    found
}

/// Whether it is the main arena as it stands in libc's file, before the first call: nothing but the ring of itself and one thread.
fn is_untouched(bytes: &[u8], address: u64, layout: &Layout) -> bool {
    let (next, threads) = (layout.next(), layout.next() + 16);
    let is_initial = |at: usize| match word(bytes, at) {
        Some(word) if at == next => word == address,
        Some(word) if at == threads => word == 1,
        Some(word) => word == 0,
        None => false,
    };
    let state_bytes = usize::try_from(layout.state_bytes).unwrap_or(usize::MAX);
    is_initial(next) && (0..state_bytes).step_by(8).all(is_initial)
}

fn may_be_state(bytes: &[u8], address: u64, areas: &[Area], layout: &Layout) -> bool {
    let next = word(bytes, layout.next()).unwrap_or(0);
    if next != address && area_of(areas, next).is_none_or(|area| !area.is_writable) {
        return false;
    }
    // Few programs have chunks in most small bins at once.
    let is_empty = |bin: &usize| {
        let links = layout.bins() + bin * 16;
        let own = Some(layout.bin_address(address, *bin));
        word(bytes, links) == own && word(bytes, links + 8) == own
    };
    (0..BINS).any(|bin| is_empty(&bin))
}

/// Whether an arena can look like this.
fn is_plausible(state: &ArenaState, address: u64, areas: &[Area], layout: &Layout) -> bool {
    let is_mapped = |pointer: u64| area_of(areas, pointer).is_some_and(|area| area.is_writable);
    let bins_hold = state.bins.iter().enumerate().all(|(bin, (forward, back))| {
        let own = layout.bin_address(address, bin);
        (*forward == own) == (*back == own) && (*forward == own || (is_mapped(*forward) && is_mapped(*back)))
    });
    bins_hold
        && state.system_bytes <= state.max_system_bytes
        && state.max_system_bytes < 1 << 56
        && is_mapped(state.top)
        && state.fast_bins.iter().all(|chunk| *chunk == 0 || is_mapped(*chunk))
}

/// Follows the ring of arenas from the main one until it closes.
fn ring(
    memory: &dyn Memory,
    areas: &[Area],
    main: u64,
    state: ArenaState,
    layout: &Layout,
) -> Option<Vec<Found>> {
    let mut next = state.next;
    let mut arenas = vec![Found { address: main, state, heap_alignment: None }];
    let mut seen = HashSet::from([main]);
    while next != main {
        if arenas.len() >= MOST_ARENAS || !seen.insert(next) {
            return None;
        }
        let found = thread_arena(memory, areas, next, layout)?;
        next = found.state.next;
        arenas.push(found);
    }
    settle_alignment(memory, &mut arenas);
    Some(arenas)
}

/// The heaps of all threads' arenas have one size: that which explains most arenas. By itself one of 8 MiB that begins at a multiple of
/// 64 MiB may look larger.
fn settle_alignment(memory: &dyn Memory, arenas: &mut [Found]) {
    let explained = |alignment: &u64| {
        let of_threads = arenas.iter().filter(|arena| arena.heap_alignment.is_some());
        let heaps = of_threads.filter_map(|arena| {
            let heaps = heaps(memory, &arena.state, arena.address, *alignment)?;
            let bytes: u64 = heaps.iter().map(|(_, info)| info.bytes).sum();
            Some(bytes == arena.state.system_bytes)
        });
        let exact: Vec<bool> = heaps.collect();
        (exact.iter().filter(|is_exact| **is_exact).count(), exact.len())
    };
    // Of several that explain as many the first.
    let Some(alignment) = HEAP_ALIGNMENTS.into_iter().rev().max_by_key(explained) else { return };
    for arena in arenas.iter_mut().filter(|arena| arena.heap_alignment.is_some()) {
        arena.heap_alignment = Some(alignment);
    }
}

/// The thread's arena at `address`, behind the head of its first heap.
fn thread_arena(memory: &dyn Memory, areas: &[Area], address: u64, layout: &Layout) -> Option<Found> {
    let state = read_state(memory, address, layout)?;
    let first = address.checked_sub(layout.heap_info_bytes)?;
    let alignment = HEAP_ALIGNMENTS.into_iter().find(|alignment| {
        first.is_multiple_of(*alignment) && heap_of(memory, state.top, *alignment, address).is_some()
    })?;
    is_plausible(&state, address, areas, layout).then_some(Found {
        address,
        state,
        heap_alignment: Some(alignment),
    })
}

/// Reads an arena again.
#[must_use]
pub fn read_state(memory: &dyn Memory, address: u64, layout: &Layout) -> Option<ArenaState> {
    let mut bytes = vec![0; usize::try_from(layout.state_bytes).ok()?];
    if !memory.read(address, &mut bytes) {
        return None;
    }
    ArenaState::parse(&bytes, layout)
}

/// The heap that `pointer` lies in, if it is one of the arena at `arena`.
fn heap_of(memory: &dyn Memory, pointer: u64, alignment: u64, arena: u64) -> Option<(u64, HeapInfo)> {
    let start = pointer & !(alignment - 1);
    let mut bytes = [0; HeapInfo::BYTES];
    if !memory.read(start, &mut bytes) {
        return None;
    }
    let info = HeapInfo::parse(&bytes)?;
    let is_sound = info.arena == arena
        && info.bytes <= info.accessible_bytes
        && info.accessible_bytes <= alignment
        && info.bytes.is_multiple_of(16)
        && info.bytes >= LEAST_CHUNK_BYTES;
    is_sound.then_some((start, info))
}

/// The heaps of a thread's arena, the first one first; none where the chain is broken.
#[must_use]
pub fn heaps(
    memory: &dyn Memory,
    state: &ArenaState,
    address: u64,
    alignment: u64,
) -> Option<Vec<(u64, HeapInfo)>> {
    let mut heaps = Vec::new();
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let mut pointer = state.top;
    loop {
        let (start, info) = heap_of(memory, pointer, alignment, address)?;
        if !seen.insert(start) {
            return None;
        }
        bytes += info.bytes;
        heaps.push((start, info));
        if info.previous == 0 {
            break;
        }
        // Each heap counts in the arena's total.
        if bytes > state.max_system_bytes {
            return None;
        }
        pointer = info.previous;
    }
    heaps.reverse();
    Some(heaps)
}
