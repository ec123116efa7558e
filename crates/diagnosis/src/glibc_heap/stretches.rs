//! Pieces of the main arena that nothing announces: behind memory that others took with `brk`, or mapped where `brk` was refused.
//! A free chunk that lies in no walked piece leads to its piece: the first place from which chunks lead exactly to it.

use faultless_records::glibc_heap::{LEAST_CHUNK_BYTES, SizeWord};

use super::walk::Heap;
use super::window::Window;
use super::{Area, Memory, PAGE_BYTES, area_of};

/// Places tried for one piece: the whole of a 16 MiB gap.
const MOST_PLACES: u64 = 1 << 20;

/// The start of the piece that holds the lowest of `anchors` outside the pieces known, and the area it lies in.
#[must_use]
pub fn next(
    memory: &dyn Memory,
    areas: &[Area],
    known: &[Heap],
    anchors: impl Iterator<Item = u64>,
) -> Option<(u64, Area)> {
    let is_known =
        |address: u64| known.iter().any(|heap| (heap.start..heap.start + heap.bytes).contains(&address));
    let anchor = anchors.filter(|anchor| !is_known(*anchor)).min()?;
    let area = area_of(areas, anchor).filter(|area| area.is_writable && area.is_anonymous)?;
    let ends = known.iter().map(|heap| heap.start + heap.bytes);
    let low = ends.filter(|end| area.holds(*end) && *end <= anchor).max();
    // Behind other memory of the same kind it may begin at any chunk's address, else at a page.
    let step = if low.is_some() { 16 } else { PAGE_BYTES };
    let mut window = Window::new(memory, area.end);
    let mut start = low.unwrap_or(area.start);
    for _ in 0..MOST_PLACES {
        if start > anchor {
            break;
        }
        if leads_to(&mut window, start, anchor) {
            return Some((start, area.clone()));
        }
        start += step;
    }
    None
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
