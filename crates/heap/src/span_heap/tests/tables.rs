//! What goes back of the page map's tables.

use super::*;
use crate::reservation::{BITMAP_BYTES, RECORD_BYTES};

#[test]
fn bitmaps_of_memory_that_goes_back_piece_by_piece_go_too() {
    let (map, mut spans) = heap();
    let granules = 4 * os::page_bytes() as u32 / BITMAP_BYTES as u32;
    let mut taken: Vec<u32> =
        (0..granules).map(|_| spans.take(&map, 1, 1, false, 0).unwrap().first).collect();
    let behind = spans.take(&map, 1, 1, false, 0).unwrap();
    let bitmap_bytes = granules as usize * BITMAP_BYTES;
    let bitmaps = map.bitmap(taken[0], granules).as_ptr().addr().next_multiple_of(os::page_bytes());
    let resident = || os::resident_pages(bitmaps, bitmap_bytes - os::page_bytes());
    taken.iter().chain([&behind.first]).for_each(|&first| map.bitmap(first, 1)[0].set(7));
    assert_eq!(resident(), 3);
    while let Some(first) = (!taken.is_empty()).then(|| taken.swap_remove(taken.len() / 3)) {
        spans.give(&map, first, 1, false, 0);
        purge_all(&map, &mut spans, 0);
    }
    assert_eq!((resident(), map.bitmap(behind.first, 1)[0].get()), (0, 7));
}

#[test]
fn records_of_memory_that_goes_back_piece_by_piece_go_too() {
    const EACH: u32 = 16;
    let (map, mut spans) = heap();
    let granules = 6 * os::page_bytes() as u32 / RECORD_BYTES as u32;
    let mut take = |granules| spans.take(&map, granules, 1, false, 0).unwrap().first;
    // Some begin with a page of records, and their neighbours' last records lie in the page before.
    let first = take(1);
    take(first.next_multiple_of(EACH) - first + EACH - 1);
    let mut taken: Vec<u32> = (0..granules / EACH).map(|_| take(EACH)).collect();
    take(1);
    let (page, record) = (os::page_bytes(), |granule| (&raw const *map.record(granule)).addr());
    // But for the records of both ends of the whole.
    let (start, end) =
        ((record(taken[0]) + 1).next_multiple_of(page), record(taken[0] + granules - 1) & !(page - 1));
    assert!(os::resident_pages(start, end - start) > 3);
    while let Some(first) = (!taken.is_empty()).then(|| taken.swap_remove(taken.len() / 3)) {
        spans.give(&map, first, EACH, false, 0);
        purge_all(&map, &mut spans, 0);
    }
    assert_eq!(os::resident_pages(start, end - start), 0);
}

#[test]
fn bitmaps_and_huge_pages_of_a_span_that_goes_back_go_with_it() {
    let (map, mut spans) = heap();
    let pages = 3;
    let granules = (pages + 1) * os::page_bytes() as u32 / BITMAP_BYTES as u32;
    let span = spans.take(&map, granules, 1, false, 0).unwrap().first;
    let bitmap = map.bitmap(span, granules);
    let bitmaps = bitmap.as_ptr().addr().next_multiple_of(os::page_bytes());
    bitmap.iter().for_each(|word| word.set(7));
    // The kernel may have none to give; what the map knows of them is enough.
    let is_start = |&granule: &u32| map.address(granule).is_multiple_of(os::HUGE_PAGE_BYTES);
    let starts: Vec<u32> = (span..span + granules).filter(is_start).collect();
    starts.iter().for_each(|&granule| map.set_huge(granule));
    let due = Due { span: Span { first: span, granules }, moved: false };
    assert!(!starts.is_empty() && due.purge(&map));
    assert_eq!(os::resident_pages(bitmaps, pages as usize * os::page_bytes()), 0);
    assert!(starts.iter().all(|&granule| map.record(granule).huge.get() == 0));
}
