//! Pieces of the main arena that nothing announces: behind memory that others took with `brk`, or mapped where `brk` was refused.
//! A free chunk that lies in no walked piece leads to its piece: the first place from which chunks lead exactly to it.

use std::collections::HashSet;

use faultless_records::glibc_heap::{LEAST_CHUNK_BYTES, SizeWord};

use super::chunks::{self, Stretch};
use super::pages::Pages;
use super::walk::Heap;
use super::window::Window;
use super::{Area, Memory, PAGE_BYTES, Page, area_of};

/// Places tried for one piece: the whole of a 16 MiB gap in what `brk` moves, 4 GiB elsewhere.
const MOST_PLACES: u64 = 1 << 20;

/// Places tried for all of them: a damaged heap must not cost hours.
const MOST_PLACES_OF_ALL: u64 = 1 << 26;

/// Pages with memory at which pieces without a free chunk are looked for.
const MOST_PAGES: u32 = 1 << 20;

/// What is still to be looked for: each piece may be one of thousands, so the lists are followed once.
pub struct Search {
    /// Chunks that lie in some piece; the highest first.
    anchors: Vec<u64>,
    /// Where the heap begins.
    main_start: Option<u64>,
    places_left: u64,
    /// Where the next piece without a free chunk may begin.
    unseen_from: u64,
    pages_left: u32,
}

impl Search {
    /// Looks for the pieces that hold these chunks.
    pub fn new(anchors: impl Iterator<Item = u64>, main_start: Option<u64>) -> Self {
        let mut anchors: Vec<u64> = anchors.collect();
        anchors.sort_unstable_by(|left, right| right.cmp(left));
        Self { anchors, main_start, places_left: MOST_PLACES_OF_ALL, unseen_from: 0, pages_left: MOST_PAGES }
    }

    /// The start of the piece that holds the lowest chunk outside the pieces known, and the area it lies in.
    pub fn next(&mut self, memory: &dyn Memory, areas: &[Area], known: &[Heap]) -> Option<(u64, Area)> {
        // Pieces come in ascending order, but for the first.
        let around = [known.first(), known.last()];
        let is_known = |address: &u64| {
            around.iter().flatten().any(|heap| (heap.start..heap.start + heap.bytes).contains(address))
        };
        while self.anchors.pop_if(|anchor| is_known(anchor)).is_some() {}
        let anchor = *self.anchors.last()?;
        let area = area_of(areas, anchor).filter(|area| area.is_writable && area.is_anonymous)?;
        let ends = known.iter().map(|heap| heap.start + heap.bytes);
        let low = ends.filter(|end| area.holds(*end) && *end <= anchor).max();
        // Behind memory that others took with `brk` it may begin at any chunk's address, a mapping at a page.
        let is_of_break = self.main_start.is_some_and(|start| area.holds(start));
        let step = if is_of_break && low.is_some() { 16 } else { PAGE_BYTES };
        let mut window = Window::new(memory, area.end);
        let first = low.unwrap_or(area.start).next_multiple_of(step);
        let most = MOST_PLACES.min(self.places_left) as usize;
        let mut places = (first..=anchor).step_by(step as usize).take(most);
        let start = places.find(|start| {
            self.places_left -= 1;
            leads_to(&mut window, *start, anchor)
        });
        Some((start?, area.clone()))
    }

    /// The next piece that was mapped and has no free chunk, of `most_bytes` or less: each page that nobody owns is looked at.
    pub fn next_full(
        &mut self,
        memory: &dyn Memory,
        pages: &mut Pages<'_>,
        areas: &[Area],
        known: &[Heap],
        (top, most_bytes): (u64, u64),
    ) -> Option<(u64, Area)> {
        let mut owned: Vec<(u64, u64)> =
            known.iter().map(|heap| (heap.start, heap.start + heap.bytes)).collect();
        owned.sort_unstable();
        for area in areas.iter().filter(|area| area.is_writable && area.is_anonymous && !area.is_break) {
            let mut at = self.unseen_from.max(area.start);
            while at < area.end && self.pages_left > 0 {
                let behind = owned.partition_point(|(_, end)| *end <= at);
                if let Some((_, end)) = owned.get(behind).filter(|(start, _)| *start <= at) {
                    at = end.next_multiple_of(PAGE_BYTES);
                    continue;
                }
                if pages.state(at / PAGE_BYTES) == Page::Absent {
                    at = memory.next_present(at + PAGE_BYTES, area.end);
                    continue;
                }
                self.pages_left -= 1;
                let limit = owned.get(behind).map_or(area.end, |(start, _)| area.end.min(*start));
                let end = end_of_piece(memory, (at, limit), top);
                if let Some(end) = end.filter(|end| end - at <= most_bytes) {
                    self.unseen_from = end;
                    return Some((at, area.clone()));
                }
                at += PAGE_BYTES;
            }
        }
        self.unseen_from = u64::MAX;
        None
    }
}

fn leads_to(window: &mut Window<'_>, start: u64, anchor: u64) -> bool {
    let mut at = start;
    while at < anchor {
        let Some([size]) = window.words::<1>(at + 8) else { return false };
        let size = SizeWord(size);
        let is_chunk = size.bytes() >= LEAST_CHUNK_BYTES
            && size.bytes().is_multiple_of(16)
            && !size.is_mapping()
            && !size.is_of_thread_arena();
        // The first chunk of a piece always says that the one before it is in use.
        if !is_chunk || (at == start && !size.previous_is_used()) {
            return false;
        }
        at = match at.checked_add(size.bytes()) {
            Some(next) => next,
            None => return false,
        };
    }
    at == anchor
}

/// Where the piece of the main arena ends that begins at `start` and lies below `limit`, if there is one: at its two fenceposts, or
/// at the arena's `top`.
#[must_use]
pub fn end_of_piece(memory: &dyn Memory, (start, limit): (u64, u64), top: u64) -> Option<u64> {
    let mut window = Window::new(memory, limit);
    let [before, size] = window.words::<2>(start)?;
    // What stands before its first chunk is nobody's.
    if before != 0 || size == 0 || !SizeWord(size).previous_is_used() {
        return None;
    }
    // Which chunks lie in fast bins makes no difference to where they lead.
    let piece = Stretch { first: start, end: limit, top, is_of_thread_arena: false, fast: &HashSet::new() };
    let end = chunks::walk(&mut window, &piece, |_, _| {}).ok()?;
    end.is_multiple_of(PAGE_BYTES).then_some(end)
}
