//! Free memory with pages that is in pieces too short for who wants more: a longer block takes their pages over.

use super::{FEW, SpanHeap};
use crate::granule::Span;
use crate::page_map::{PageMap, State, Waiting};

/// The shortest piece worth moving, in granules. To move 256 KiB costs 6 us alone and 22 us beside another thread, to fault them in 95 and
/// 110 (docs/choices.md).
pub const PIECE_MIN: u32 = 4;

/// A piece on its way: in no list, owned by the caller.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub span: Span,
    waiting: Waiting,
}

impl SpanHeap {
    /// Takes at most `most` granules of dirty memory that lie in one piece, the longest there is, as far as a few looks tell, for a span that
    /// counts as used already. [`SpanHeap::return_piece`] takes it back.
    pub fn take_piece(&mut self, map: &PageMap, most: u32) -> Option<Piece> {
        let whole = self.dirty.best_fit(map, most, FEW);
        // The fresh memory beside it is used in any case.
        let first = whole
            .filter(|&first| !self.is_held_back(map, first, most, 0))
            .or_else(|| self.dirty.longest(map, most, PIECE_MIN, FEW))?;
        let granules = map.record(first).granules.get().min(most);
        let (waiting, _) = self.cut_out(map, first, 0, granules);
        Some(Piece { span: Span { first, granules }, waiting: waiting? })
    }

    /// Takes a piece back that [`SpanHeap::take_piece`] handed out. `zero`: its pages are gone, and its mapping is whole. Else it goes to the
    /// kernel when it would have, and nothing is learnt.
    pub fn return_piece(&mut self, map: &PageMap, piece: Piece, zero: bool, now: u64) {
        let Piece { span, waiting } = piece;
        if zero {
            let gap_ns = now.saturating_sub(map.record(span.first).free().freed_at());
            self.note_reused(waiting, span.granules, gap_ns);
            map.set_moved(span.first, false);
            self.add_clean(map, span);
        } else {
            // Where it was in its list nobody knows any more; in front its own time decides.
            self.merge(map, span, State::Dirty, waiting, 0);
        }
    }

    /// Memory that waited for its purge is used again.
    pub(super) fn note_reused(&mut self, waiting: Waiting, granules: u32, gap_ns: u64) {
        match waiting {
            Waiting::Held => self.decay.reused(gap_ns),
            _ => self.decay.rescued(granules, gap_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Due;
    use super::*;
    use crate::decay::{HOLD_MAX_NS, HOLD_MIN_NS, Verdict};

    /// A heap, maybe with a purger, and free spans with pages of these lengths, freed one ns after the other, each between used ones.
    fn with_pieces(has_purger: bool, lengths: &[u32]) -> (PageMap, SpanHeap, Vec<u32>) {
        let (map, mut spans) = (PageMap::new(), SpanHeap::new());
        spans.decay.set_purger(has_purger);
        let take =
            |spans: &mut SpanHeap, granules: u32| spans.take(&map, granules, 1, false, 0).unwrap().first;
        let pieces: Vec<u32> = lengths
            .iter()
            .map(|&granules| {
                let first = take(&mut spans, granules);
                take(&mut spans, 1);
                first
            })
            .collect();
        for ((now, &first), &granules) in (1..).zip(&pieces).zip(lengths) {
            spans.give(&map, first, granules, false, now);
        }
        (map, spans, pieces)
    }

    #[test]
    fn a_piece_nearly_as_long_as_what_is_wanted_is_the_longest() {
        let (map, mut spans, pieces) = with_pieces(true, &[60, 99]);
        let piece = spans.take_piece(&map, 100).unwrap();
        assert_eq!(piece.span, Span { first: pieces[1], granules: 99 });
    }

    #[test]
    fn what_is_held_for_large_spans_is_not_cut_for_pieces_while_the_heap_was_larger() {
        let (map, mut spans, _) = with_pieces(true, &[64]);
        assert_eq!(spans.take_piece(&map, 7), None);
        let (map, mut spans, pieces) = with_pieces(true, &[64, 8]);
        let taken = |spans: &mut SpanHeap, most: u32| {
            let piece = spans.take_piece(&map, most).unwrap();
            let span = piece.span;
            spans.return_piece(&map, piece, false, 1);
            span
        };
        assert_eq!(taken(&mut spans, 7), Span { first: pieces[1], granules: 7 });
        assert_eq!(taken(&mut spans, 9), Span { first: pieces[0], granules: 9 });
        spans.take(&map, 7, 1, true, 0).unwrap();
        assert_eq!(
            taken(&mut spans, 7),
            Span { first: pieces[1], granules: 7 },
            "what is used was in use before"
        );
        spans.take(&map, 100, 1, true, 0).unwrap();
        spans.take_piece(&map, 8).unwrap();
        assert_eq!(taken(&mut spans, 7), Span { first: pieces[0], granules: 7 }, "the heap was never larger");
    }

    #[test]
    fn a_piece_that_comes_back_with_its_pages_goes_to_the_kernel_when_it_would_have() {
        let late = HOLD_MAX_NS - 1;
        let (map, mut spans, pieces) = with_pieces(true, &[16, 8]);
        let deadline = map.record(pieces[0]).free().deadline();
        let piece = spans.take_piece(&map, 32).unwrap();
        assert_eq!(piece.span.first, pieces[0]);
        spans.return_piece(&map, piece, false, late);
        assert!(spans.is_due(&map, true, deadline) && !spans.is_due(&map, true, deadline - 1));
        let mut due = [Due::NONE; 1];
        assert_eq!(spans.take_due(&map, false, deadline, &mut due), 1);
        let [span] = due;
        assert_eq!(span.granules(), 16);
        spans.purged(&map, span, false);
        let piece = spans.take_piece(&map, 32).unwrap();
        spans.return_piece(&map, piece, false, late);
        assert_eq!(spans.waiting(), 8, "what the kernel refused to take is not asked for again");
    }

    #[test]
    fn pieces_whose_pages_were_moved_are_evidence_and_those_that_came_back_are_none() {
        for (zero, is_held) in [(false, false), (true, true)] {
            let (map, mut spans, _) = with_pieces(false, &[16]);
            let piece = spans.take_piece(&map, 32).unwrap();
            spans.return_piece(&map, piece, zero, 1 + HOLD_MIN_NS);
            assert_eq!(spans.decay.is_releasing(), !is_held);
            let hold = Verdict::HoldUntil(2 * HOLD_MIN_NS);
            assert_eq!(spans.decay.freed(16, 0, 0), if is_held { hold } else { Verdict::Purge });
        }
    }
}
