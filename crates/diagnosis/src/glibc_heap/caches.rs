//! The caches of threads. Their blocks look used to the arenas, and no symbol leads to them; but a cache is itself a chunk of
//! known size whose lists lead to chunks of the right sizes, each as long as it says. No lock keeps a thread from changing its
//! cache: what changes under the reading is read again, list by list.

use std::collections::HashSet;

use faultless_records::glibc_heap::{CHUNK_HEADER_BYTES, Layout, SizeWord, link, word};

use super::Memory;
use super::chunks::{Chunk, Kind};
use super::window::Window;

/// By how much the chunk of a cache may be too large: 2.43 rounds its size up twice where it is made together with an arena, and
/// a rest too small for a chunk of its own stays with the chunk before it.
const MOST_SLACK_BYTES: u64 = 32;

/// Lists of one reading that may be torn: a thread changes the first block and the number one after the other.
const MOST_TORN: usize = 2;

/// Looks at a cache that changes before what was read of it is taken as it is.
const MOST_LOOKS: u32 = 8;

/// Looks at lists that lead nowhere, and never change, before they are taken for no cache's.
const LASTING_LOOKS: u32 = 3;

/// Blocks in a list, as its number says, and the first of them.
type List = (u16, u64);

/// A chunk and its bytes.
type Block = (u64, u64);

/// A chunk that looks like a thread's cache; not yet believed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    chunk: u64,
    bytes: u64,
    lists: Vec<List>,
}

/// The blocks of one thread's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// The chunk that holds the lists.
    pub chunk: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Chunks in its lists, with their sizes.
    pub blocks: Vec<Block>,
}

/// What became of the candidates.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Caches {
    /// Those with blocks, as far as they were read.
    pub found: Vec<Cache>,
    /// Those that changed too much: a list at each look, or blocks that were still free as the arenas were walked.
    pub changed: usize,
}

/// How caches are laid out, and how many blocks each of their lists may hold, where that is known.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// The layout.
    pub layout: &'static Layout,
    /// Most blocks of a list.
    pub capacity: Option<u64>,
}

/// What the walk of an arena met that tells of caches.
#[derive(Debug, Default)]
pub struct Traces {
    candidates: Vec<Candidate>,
    /// First addresses and ends of what was free.
    free: Vec<(u64, u64)>,
}

impl Traces {
    /// Takes notice of a chunk.
    pub fn note(&mut self, window: &mut Window<'_>, chunk: Chunk, form: Form) {
        match chunk.kind {
            Kind::Used => self.candidates.extend(candidate(window, chunk, form)),
            Kind::Fencepost => {}
            Kind::Binned { .. } | Kind::Fast | Kind::Top => {
                self.free.push((chunk.address, chunk.address + chunk.bytes));
            }
        }
    }
}

/// The candidates of all arenas, as far as they were read.
#[derive(Default)]
pub struct Readings {
    readings: Vec<Reading>,
    /// What was free as the arenas were walked: a thread may have taken of it and cached it since, and it counts as free already.
    free: Vec<(u64, u64)>,
}

impl Readings {
    /// Looks at the caches of an arena that was just walked: the sooner, the less of them has changed.
    pub fn begin(&mut self, memory: &dyn Memory, traces: Traces, form: Form) {
        for candidate in traces.candidates {
            let mut reading = Reading::new(candidate);
            reading.look(memory, form);
            self.readings.push(reading);
        }
        if memory.changes() {
            self.free.extend(traces.free);
        }
    }

    /// Looks again at those that changed, and keeps those that are caches.
    #[must_use]
    pub fn finish(mut self, memory: &dyn Memory, form: Form) -> Caches {
        let most = if memory.changes() { MOST_LOOKS } else { 1 };
        for looks in 1..most {
            if self.readings.iter().all(|reading| reading.is_done(looks)) {
                break;
            }
            memory.let_go_on(looks);
            for reading in self.readings.iter_mut().filter(|reading| !reading.is_done(looks)) {
                reading.look(memory, form);
            }
        }
        self.free.sort_unstable();
        let was_free = |(chunk, bytes): &Block| {
            let below = self.free.partition_point(|(start, _)| *start < chunk.saturating_add(*bytes));
            self.free[..below].last().is_some_and(|(_, end)| end > chunk)
        };
        let mut seen = HashSet::new();
        let mut caches = Caches::default();
        let mut unproven = 0;
        for reading in self.readings {
            let (chunk, bytes) = reading.chunk;
            let Some((met, is_whole)) = reading.close(&mut seen) else { continue };
            let blocks: Vec<Block> = met.iter().filter(|block| !was_free(block)).copied().collect();
            if met.is_empty() {
                unproven += usize::from(!is_whole);
                continue;
            }
            caches.changed += usize::from(!is_whole || blocks.len() < met.len());
            caches.found.push(Cache { chunk, bytes, blocks });
        }
        // Blocks of a program that are as long as a cache and change look like one.
        let others = memory.threads().map_or(unproven, |all| all.saturating_sub(caches.found.len()));
        caches.changed += unproven.min(others);
        caches
    }
}

fn candidate(window: &mut Window<'_>, chunk: Chunk, form: Form) -> Option<Candidate> {
    let layout = form.layout;
    let wanted = layout.cache_chunk_bytes();
    if !(wanted..=wanted + MOST_SLACK_BYTES).contains(&chunk.bytes) {
        return None;
    }
    let bytes = window.slice(chunk.address + CHUNK_HEADER_BYTES, layout.cache.bytes())?;
    let lists = plausible_lists(bytes, form)?;
    Some(Candidate { chunk: chunk.address, bytes: chunk.bytes, lists })
}

fn plausible_lists(bytes: &[u8], form: Form) -> Option<Vec<List>> {
    let cache = &form.layout.cache;
    let mut stored = Vec::with_capacity(cache.lists);
    for list in 0..cache.lists {
        stored.push(cache.list(bytes, list).filter(|(_, first)| first.is_multiple_of(16))?);
    }
    if cache.counts_down {
        let of_empty = || stored.iter().find(|(_, first)| *first == 0).map(|(number, _)| *number);
        let capacity = form.capacity.map_or_else(of_empty, |capacity| u16::try_from(capacity).ok())?;
        for (number, _) in &mut stored {
            *number = capacity.checked_sub(*number)?;
        }
    }
    let torn = stored.iter().filter(|(number, first)| (*number == 0) != (*first == 0)).count();
    // Without a block in it a cache is not told from a block of zeros, and makes no difference.
    let has_blocks = stored.iter().any(|(number, first)| *number != 0 && *first != 0);
    (torn <= MOST_TORN && has_blocks).then_some(stored)
}

/// A candidate as far as it was read.
struct Reading {
    chunk: Block,
    lists: Vec<ListReading>,
}

struct ListReading {
    /// As it was read last.
    last: List,
    /// Whether it was not always the same.
    has_changed: bool,
    followed: Followed,
}

/// Where following a list led to.
enum Followed {
    /// To what is no block of it, or it was another one afterwards.
    Nowhere,
    /// To its end, one block before or behind where its number says: its thread was halted in the middle of a change.
    Beside(Vec<Block>),
    /// To its end.
    Whole(Vec<Block>),
}

impl ListReading {
    fn is_whole(&self) -> bool {
        matches!(self.followed, Followed::Whole(_))
    }

    fn blocks(&self) -> &[Block] {
        match &self.followed {
            Followed::Nowhere => &[],
            Followed::Beside(blocks) | Followed::Whole(blocks) => blocks,
        }
    }

    /// Takes what was read before it was followed, the blocks that were met, and what was read afterwards.
    fn note(&mut self, before: Option<List>, blocks: Option<Vec<Block>>, after: Option<List>) {
        self.has_changed |= before != Some(self.last) || after != before;
        self.last = after.or(before).unwrap_or(self.last);
        self.followed = match blocks.filter(|_| after == before) {
            None => Followed::Nowhere,
            Some(blocks) if blocks.len() == usize::from(self.last.0) => Followed::Whole(blocks),
            Some(blocks) => Followed::Beside(blocks),
        };
    }
}

impl Reading {
    fn new(candidate: Candidate) -> Self {
        let list = |last| ListReading { last, has_changed: false, followed: Followed::Nowhere };
        Self {
            chunk: (candidate.chunk, candidate.bytes),
            lists: candidate.lists.into_iter().map(list).collect(),
        }
    }

    /// Whether one more look would find nothing new, after so many.
    fn is_done(&self, looks: u32) -> bool {
        let mut left = self.lists.iter().filter(|list| !list.is_whole());
        if looks >= LASTING_LOOKS { !left.any(|list| list.has_changed) } else { left.next().is_none() }
    }

    /// Follows every list that was not followed to its end yet.
    fn look(&mut self, memory: &dyn Memory, form: Form) {
        let first = self.chunk.0 + CHUNK_HEADER_BYTES;
        let mut bytes = vec![0; form.layout.cache.bytes()];
        let mut read = || memory.read(first, &mut bytes).then(|| plausible_lists(&bytes, form)).flatten();
        // What does not change is as the walk met it.
        let is_read_again = memory.changes();
        let mut now =
            if is_read_again { read() } else { Some(self.lists.iter().map(|list| list.last).collect()) };
        for (place, list) in self.lists.iter_mut().enumerate().filter(|(_, list)| !list.is_whole()) {
            let before = now.as_ref().map(|lists| lists[place]);
            let blocks = before.and_then(|list| follow(memory, place, list, form.layout));
            if is_read_again && before.is_some_and(|(_, first)| first != 0) {
                now = read();
            }
            list.note(before, blocks, now.as_ref().map(|lists| lists[place]));
        }
    }

    /// Its blocks that were not seen yet, and whether all its lists were read; none where it is no cache.
    fn close(self, seen: &mut HashSet<u64>) -> Option<(Vec<Block>, bool)> {
        let is_proven = self.lists.iter().any(|list| list.is_whole() && !list.blocks().is_empty());
        let beside = self.lists.iter().filter(|list| matches!(list.followed, Followed::Beside(_))).count();
        let is_read = |list: &ListReading| match list.followed {
            Followed::Nowhere => false,
            // A thread changes one list at a time.
            Followed::Beside(_) => is_proven && beside == 1,
            Followed::Whole(_) => true,
        };
        let (read, unread): (Vec<_>, Vec<_>) = self.lists.into_iter().partition(is_read);
        // A stale copy of a cache would lead to the same blocks.
        let is_stale = |list: &ListReading| {
            !list.has_changed && list.blocks().iter().any(|(chunk, _)| seen.contains(chunk))
        };
        if unread.iter().any(|list| !list.has_changed) || read.iter().any(is_stale) {
            return None;
        }
        // One thread may have freed meanwhile what was in the cache of another.
        let blocks = read.iter().flat_map(ListReading::blocks).copied();
        Some((blocks.filter(|(chunk, _)| seen.insert(*chunk)).collect(), unread.is_empty()))
    }
}

/// Blocks of a list up to its end; none where it leads to what is no block of it, or its number is wrong by more than one.
fn follow(memory: &dyn Memory, place: usize, (number, first): List, layout: &Layout) -> Option<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut block = first;
    while block != 0 {
        let mut bytes = [0; 16];
        if !block.is_multiple_of(16)
            || blocks.len() > usize::from(number)
            || !memory.read(block.checked_sub(8)?, &mut bytes)
        {
            return None;
        }
        let size = SizeWord(word(&bytes, 0)?);
        if size.is_mapping() && place < layout.cache.small_lists || !layout.cache.takes(place, size.bytes()) {
            return None;
        }
        blocks.push((block - CHUNK_HEADER_BYTES, size.bytes()));
        block = link(block, word(&bytes, 8)?, layout);
    }
    (blocks.len() + 1 >= usize::from(number)).then_some(blocks)
}
