//! Free memory with pages that is in pieces too short for who wants more: a longer block takes their pages over.

use super::SpanHeap;
use crate::granule::Span;
use crate::page_map::PageMap;

/// The shortest piece worth moving, in granules. To move 256 KiB costs 6 us alone and 22 us beside another thread, to fault them in 95 and
/// 110 (docs/choices.md).
pub const PIECE_MIN: u32 = 4;

/// A piece on its way: in no list, owned by the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub span: Span,
    /// Whether its mapping is split and should be renewed when its pages are gone.
    pub moved: bool,
}

impl SpanHeap {
    /// Takes at most `most` granules of dirty memory that lie in one piece, the longest there is, as far as a few looks tell.
    /// [`SpanHeap::return_piece`] takes it back.
    pub fn take_piece(&mut self, map: &PageMap, most: u32, now: u64) -> Option<Piece> {
        let first =
            self.dirty.best_fit(map, most, super::FEW).or_else(|| self.dirty.longest(most, PIECE_MIN))?;
        let granules = map.record(first).granules.get().min(most);
        self.cut(map, first, 0, granules, now);
        Some(Piece { span: Span { first, granules }, moved: map.record(first).is_moved() })
    }

    /// Takes a piece back that [`SpanHeap::take_piece`] handed out. `zero`: its pages are gone, and its mapping is whole.
    pub fn return_piece(&mut self, map: &PageMap, Piece { span, moved }: Piece, zero: bool, now: u64) {
        if zero {
            map.set_moved(span.first, false);
            self.add_clean(map, span);
        } else {
            map.set_moved(span.first, moved);
            self.put_freed(map, span, now);
        }
    }
}
