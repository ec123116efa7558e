//! Spans for who asks for alignment.

use super::*;

#[test]
fn an_aligned_block_is_made_of_what_one_left_between_others() {
    let (map, mut spans) = heap();
    spans.mode = PurgeMode::Never;
    let [_, left, _] = [(); 3].map(|()| spans.take(&map, 4, 4, false, 0).unwrap().first);
    spans.give(&map, left, 4, false, 1);
    assert_eq!(spans.take_used(&map, 4, 4, 2).map(|taken| taken.first), Some(left));
    spans.give(&map, left, 4, false, 3);
    assert_eq!(spans.take(&map, 4, 4, false, 4).map(|taken| taken.first), Some(left));
    spans.give(&map, left, 4, false, 5);
    assert!(spans.take_used(&map, 4, 8, 6).is_none_or(|taken| map.offset_to(taken.first, 8) == 0));
}

#[test]
fn what_serves_an_aligned_block_behind_many_that_do_not_is_found_before_memory_grows_and_before_there_is_none()
 {
    for (others, is_refused) in [(2 * FEW as u32, false), (2 * MANY as u32, true)] {
        let (map, mut spans) = heap();
        spans.mode = PurgeMode::Never;
        let first = spans.take(&map, 8 * others, 8, false, 0).unwrap().first;
        os::REFUSED.set(os::Call::Commit as u32);
        while spans.take(&map, 1, 1, false, 0).is_some() {}
        spans.give(&map, first, 4, false, 1);
        for other in 1..others {
            spans.give(&map, first + 8 * other + 1, 4, false, 1);
        }
        os::REFUSED.set(if is_refused { os::Call::Commit as u32 } else { 0 });
        let taken = spans.take(&map, 4, 4, false, 2).map(|taken| taken.first);
        os::REFUSED.set(0);
        assert_eq!(taken, Some(first), "{is_refused}");
    }
}
