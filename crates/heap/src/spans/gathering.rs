//! Pages of free spans that are too short go to a block that wants more: their page tables are moved.

use super::Spans;
use crate::granule::{Span, bytes_of};
use crate::os;
use crate::span_heap::PIECE_MIN;

/// Nothing is gathered for more than so many times what could be: of such a block it is not known that it will be filled, and what it has
/// got nobody gives back.
const DIRTY_PART: u32 = 4;

/// How [`Spans::gather`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathered {
    /// Granules from the first on have pages with any content.
    UpTo(u32),
    /// The span is no longer mapped in all its parts, and must not be used again.
    Lost,
}

impl Spans {
    /// Whether so much free memory of a shard's span heap has pages, in however many pieces.
    pub fn has_dirty(&self, shard: usize, granules: u32) -> bool {
        self.has_dirty_in(self.heap_of_shard(shard), granules)
    }

    fn has_dirty_in(&self, place: usize, granules: u32) -> bool {
        self.heap_at(place).lock().counts.dirty >= granules
    }

    /// Moves pages of free spans to a span of the caller's whose granules from `from` on are clean, of which they make `left` mappings at
    /// most.
    pub fn gather(&self, Span { first, granules }: Span, from: u32, mut left: usize) -> Gathered {
        let (mut done, wanted) = (from, granules - from);
        let place = self.heap_of(first);
        if wanted < PIECE_MIN || !self.has_dirty_in(place, wanted / DIRTY_PART) {
            return Gathered::UpTo(done);
        }
        let _gathering = self.gathering.lock();
        while left > 0 {
            let now = os::now_ns();
            let wanted = granules - done;
            let take = || self.with_in(place, now, |heap, map| heap.take_piece(map, wanted));
            let Some(piece) = (wanted >= PIECE_MIN).then(take).flatten() else { break };
            let ((source, bytes), target) = (self.map.range(piece.span), self.map.address(first + done));
            // SAFETY: the piece is in no list and no block lives in it; the target is the caller's, and clean.
            let (moved, end) = unsafe { os::move_pages(source, target, bytes, &mut left) };
            if moved > 0 {
                self.map.set_moved(first, true);
                done += moved.div_ceil(bytes_of(1)) as u32;
            }
            // SAFETY: the piece's pages are gone, and it is in no list yet.
            let renew = || unsafe { self.map.reservation.renew(source, bytes) };
            let is_split = self.map.record(piece.span.first).is_moved();
            let zero = end == os::Moved::Done && (!is_split || renew());
            self.with_in(place, now, |heap, map| heap.return_piece(map, piece, zero, now));
            match end {
                os::Moved::Done => {}
                os::Moved::Refused => {
                    // The target may be a new mapping.
                    self.map.reservation.advise(target, bytes);
                    break;
                }
                os::Moved::TargetLost => {
                    let start = self.map.address(first + from);
                    // SAFETY: the moves mapped it, and the span is nobody's from now on.
                    unsafe { self.map.purge_moved(start, target + moved - start) };
                    return Gathered::Lost;
                }
            }
        }
        Gathered::UpTo(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{Call, REFUSED};
    use crate::span_heap::PurgeMode;
    use std::time::Duration;

    #[test]
    fn who_runs_out_of_memory_waits_for_a_piece_on_its_way() {
        let spans = Spans::new();
        spans.set_mode(PurgeMode::Never);
        let first = spans.take(0, 8, 1, false).unwrap().first;
        spans.give(first, 8, false);
        let rest = spans.with(0, |heap, _| heap.counts.clean);
        spans.take(0, rest, 1, true).unwrap();
        let gathering = spans.gathering.lock();
        let piece = spans.with(0, |heap, map| heap.take_piece(map, 8)).unwrap();
        let taken = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                REFUSED.set(Call::Commit as u32);
                spans.take(0, 8, 1, false)
            });
            // Time for it to find nothing, if it did not wait.
            std::thread::sleep(Duration::from_millis(20));
            spans.with(0, |heap, map| heap.return_piece(map, piece, false, 0));
            drop(gathering);
            other.join().unwrap()
        });
        assert_eq!(taken.map(|taken| taken.first), Some(first));
    }
}
