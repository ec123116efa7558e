//! A longer block takes over the pages of free memory that is in shorter pieces.

use super::*;
use crate::granule::{bytes_of, granules_for};
use crate::span_heap::PurgeMode;

const PIECE_BYTES: usize = 1 << 20;
const PIECES: usize = 4;

/// A heap that gives nothing back, with free pieces that have pages between live blocks of tag 9; these, and the pieces.
fn in_pieces(piece_bytes: usize) -> (Box<Heap>, Vec<usize>, Vec<usize>) {
    in_so_many_pieces(PIECES, piece_bytes)
}

fn in_so_many_pieces(count: usize, piece_bytes: usize) -> (Box<Heap>, Vec<usize>, Vec<usize>) {
    let heap = heap();
    heap.spans.set_mode(PurgeMode::Never);
    let pair = || {
        let (piece, live) = (exact(&heap, piece_bytes), exact(&heap, GRANULE_BYTES));
        fill(piece, piece_bytes, 5);
        fill(live, GRANULE_BYTES, 9);
        (live, piece)
    };
    let (live, pieces): (Vec<_>, Vec<_>) = (0..count).map(|_| pair()).unzip();
    pieces.iter().for_each(|&piece| heap.free(None, piece));
    (heap, live, pieces)
}

fn dirty(heap: &Heap) -> u32 {
    heap.spans.counts().dirty
}

fn granules(bytes: usize) -> u32 {
    granules_for(bytes).unwrap()
}

#[test]
fn a_block_longer_than_any_free_piece_has_their_pages_and_leaves_them_zero() {
    let (heap, live, _) = in_pieces(PIECE_BYTES);
    let block = heap.allocate_large(None, PIECES * PIECE_BYTES, 128, Pages::Any);
    assert!(!block.zero && holds(block.address, PIECES * PIECE_BYTES, 5));
    assert_eq!(dirty(&heap), 0);
    assert!(live.iter().all(|&live| holds(live, GRANULE_BYTES, 9)));
    for _ in 0..PIECES {
        let behind = heap.allocate_large(None, PIECE_BYTES, 128, Pages::Zero);
        assert!(behind.zero && holds(behind.address, PIECE_BYTES, 0));
    }
    // As a piece it is one of several mappings, which are no more when its pages are gone.
    let _blocker = exact(&heap, GRANULE_BYTES);
    heap.free(None, block.address);
    let longer = heap.allocate_large(None, 2 * PIECES * PIECE_BYTES, 128, Pages::Any);
    assert!(holds(longer.address, PIECES * PIECE_BYTES, 5) && heap.spans.map.moved_spans() == 1);
    assert_eq!(mappings(block.address + 1, block.address + PIECES * PIECE_BYTES), 0);
    heap.free(None, longer.address);
    heap.trim(None);
    assert_eq!((dirty(&heap), heap.spans.map.moved_spans()), (0, 0));
}

#[test]
fn no_more_is_gathered_than_a_block_is_long() {
    let (heap, ..) = in_pieces(PIECE_BYTES);
    let bytes = PIECE_BYTES + PIECE_BYTES / 2;
    let block = heap.allocate_large(None, bytes, 128, Pages::Any);
    assert!(holds(block.address, bytes, 5));
    assert_eq!(dirty(&heap), granules(PIECES * PIECE_BYTES - bytes));
}

/// Mappings of this process between two addresses.
fn mappings(from: usize, to: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let start_of = |line: &str| usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    maps.lines().map(start_of).filter(|start| (from..to).contains(start)).count()
}

#[test]
fn a_block_is_gathered_of_few_mappings_however_long_it_is() {
    let short = 256 << 10;
    let (heap, ..) = in_so_many_pieces(112, short);
    let mapped = |bytes: usize| {
        let address = heap.allocate_large(None, bytes, 128, Pages::Any).address;
        (address, mappings(address, address + bytes))
    };
    let (long, long_mappings) = mapped(52 << 20);
    assert_eq!((long_mappings, dirty(&heap)), (17, granules(96 * short)), "what is not gathered is one");
    // The first piece is four mappings now, and 9 MiB may be sixteen.
    let (middle, _) = mapped(4 * short);
    let _blocker = exact(&heap, GRANULE_BYTES);
    heap.free(None, middle);
    let (_, longer_mappings) = mapped(9 << 20);
    assert_eq!((longer_mappings, dirty(&heap)), (17, granules(80 * short) - 1), "and the blocker");
    heap.free(None, long);
}

#[test]
fn a_block_of_two_mib_is_gathered_of_eight_pieces() {
    let short = 256 << 10;
    let (heap, ..) = in_so_many_pieces(8, short);
    heap.allocate_large(None, 8 * short, 128, Pages::Any);
    assert_eq!(dirty(&heap), 0);
}

#[test]
fn memory_to_which_pages_were_moved_is_one_mapping_again_when_they_are_gone() {
    let (heap, ..) = in_pieces(PIECE_BYTES);
    let bytes = PIECES * PIECE_BYTES;
    let block = heap.allocate_large(None, bytes, 128, Pages::Any).address;
    let inside = || mappings(block + 1, block + bytes);
    assert!(inside() > 0);
    heap.free(None, block);
    heap.trim(None);
    assert_eq!(inside(), 0);
}

#[test]
fn a_block_of_more_than_four_times_all_free_memory_with_pages_may_stay_untouched_and_gets_none() {
    for (bytes, gathered) in
        [(4 * PIECES * PIECE_BYTES, PIECES), (4 * PIECES * PIECE_BYTES + 4 * GRANULE_BYTES, 0)]
    {
        let (heap, ..) = in_pieces(PIECE_BYTES);
        let block = heap.allocate_large(None, bytes, 128, Pages::Any);
        assert_eq!((block.zero, dirty(&heap)), (gathered == 0, granules((PIECES - gathered) * PIECE_BYTES)));
    }
}

#[test]
fn what_must_be_zero_or_is_short_is_not_gathered() {
    for (piece_bytes, pages) in [(PIECE_BYTES, Pages::Zero), (3 * GRANULE_BYTES, Pages::Any)] {
        let (heap, ..) = in_pieces(piece_bytes);
        let block = heap.allocate_large(None, PIECES * PIECE_BYTES, 128, pages);
        assert!(block.zero && holds(block.address, PIECES * PIECE_BYTES, 0));
        assert_eq!(dirty(&heap), granules(PIECES * piece_bytes));
    }
}

#[test]
fn a_block_that_is_moved_when_it_grows_gathers_what_it_grows_by() {
    let (heap, ..) = in_pieces(PIECE_BYTES);
    let bytes = 16 * PIECE_BYTES;
    let [block, _behind] =
        [bytes, 2 * PIECE_BYTES].map(|bytes| heap.allocate_large(None, bytes, 128, Pages::Zero).address);
    fill(block, bytes, 7);
    let grown = heap.resize_large(None, block, bytes + PIECE_BYTES);
    assert!(grown != block && holds(grown, bytes, 7) && holds(grown + bytes, PIECE_BYTES, 5));
    assert_eq!(dirty(&heap), granules((PIECES - 1) * PIECE_BYTES));
}

#[test]
fn where_pages_cannot_be_moved_nothing_is_gathered_and_a_span_is_lost_at_most_once() {
    for (call, lost) in [(Call::Move, 0), (Call::KeepTarget, granules(PIECES * PIECE_BYTES))] {
        let (heap, ..) = in_pieces(PIECE_BYTES);
        let (used, blocks) = (heap.spans.counts().used, heap.large_totals().blocks);
        for count in 1..3 {
            let block =
                refusing(&[call], || heap.allocate_large(None, PIECES * PIECE_BYTES, 128, Pages::Any));
            assert!(block.zero && holds(block.address, PIECES * PIECE_BYTES, 0));
            assert_eq!(heap.spans.counts().used, used + count * granules(PIECES * PIECE_BYTES) + lost);
            assert_eq!(heap.large_totals().blocks, blocks + count as usize);
        }
        assert_eq!(dirty(&heap), granules(PIECES * PIECE_BYTES));
    }
}

#[test]
fn pieces_that_were_gathered_before_a_move_failed_are_the_blocks_or_given_back() {
    for (call, gathered) in [(Call::Move, PIECE_BYTES), (Call::KeepTarget, 0)] {
        let (heap, live, _) = in_pieces(PIECE_BYTES);
        let bytes = PIECES * PIECE_BYTES;
        MOVES_BEFORE.set(1);
        let block = refusing(&[call], || heap.allocate_large(None, bytes, 128, Pages::Any));
        assert_eq!(MOVES_BEFORE.get(), 0);
        assert_eq!((block.zero, dirty(&heap)), (gathered == 0, granules((PIECES - 1) * PIECE_BYTES)));
        let map = &heap.spans.map;
        let (first, end) = (map.reservation.first_granule(), map.reservation.limit());
        let heap_bytes = bytes_of(end - first);
        let resident = resident_pages(map.address(first), heap_bytes) * os::page_bytes();
        assert_eq!(resident, PIECES * GRANULE_BYTES + (PIECES - 1) * PIECE_BYTES + gathered);
        assert!(holds(block.address, gathered, 5));
        assert!(holds(block.address + gathered, bytes - gathered, 0));
        assert!(live.iter().all(|&live| holds(live, GRANULE_BYTES, 9)));
    }
}

#[test]
fn a_block_that_would_get_huge_pages_gathers_others_if_there_are_enough() {
    for enough in [true, false] {
        let (heap, ..) = in_pieces(PIECE_BYTES);
        let bytes = PIECES * PIECE_BYTES;
        // One is seen filled, and its memory is taken again.
        let filled = heap.allocate_large(None, bytes, 128, Pages::Zero).address;
        fill(filled, bytes, 7);
        heap.free(None, filled);
        assert_eq!(exact(&heap, bytes), filled);
        if !enough {
            exact(&heap, PIECE_BYTES);
        }
        let block = heap.allocate_large(None, bytes, 128, Pages::Any);
        assert!(block.zero != enough && holds(block.address, bytes, if enough { 5 } else { 0 }));
    }
}

/// Mappings of all that a heap has committed.
fn mappings_of(heap: &Heap) -> usize {
    let map = &heap.spans.map;
    let (first, end) = (map.reservation.first_granule(), map.reservation.limit());
    mappings(map.address(first), map.address(end))
}

#[test]
fn targets_of_moves_that_are_refused_late_are_advised_as_before_and_no_mappings_of_their_own() {
    let (heap, ..) = in_pieces(PIECE_BYTES);
    let before = mappings_of(&heap);
    let gathered = refusing(&[Call::MoveLate], || {
        heap.allocate_large(None, PIECES * PIECE_BYTES, 128, Pages::Any).address
    });
    assert!(holds(gathered, PIECES * PIECE_BYTES, 0));
    assert_eq!(mappings_of(&heap), before, "gathered");
    let [block, _behind] = [PIECES * PIECE_BYTES, 2 * PIECE_BYTES]
        .map(|bytes| heap.allocate_large(None, bytes, 128, Pages::Zero).address);
    fill(block, PIECES * PIECE_BYTES, 3);
    let grown = refusing(&[Call::MoveLate], || {
        heap.resize_large(None, block, PIECES * PIECE_BYTES + 2 * GRANULE_BYTES)
    });
    assert!(grown != block && holds(grown, PIECES * PIECE_BYTES, 3));
    assert_eq!(mappings_of(&heap), before, "moved");
}
