mod aligned;
mod tables;

use super::*;
use crate::decay::HOLD_MAX_NS;
use crate::granule::bytes_of;
use crate::os;

fn heap() -> (PageMap, SpanHeap) {
    (PageMap::new(), SpanHeap::new())
}

fn purge_all(map: &PageMap, spans: &mut SpanHeap, now: u64) -> u32 {
    let mut due = [Due::NONE; 4];
    let mut total = 0;
    loop {
        let count = spans.take_due(map, true, now, &mut due);
        if count == 0 {
            return total;
        }
        for place in &mut due[..count] {
            let span = std::mem::replace(place, Due::NONE);
            total += span.granules();
            let done = span.purge(map);
            spans.purged(map, span, done);
        }
    }
}

fn touch(map: &PageMap, first: u32) {
    // SAFETY: the test owns the span.
    unsafe { *(map.address(first) as *mut u64) = 7 };
}

#[test]
fn freed_memory_is_used_again_before_fresh_memory() {
    let (map, mut spans) = heap();
    let a = spans.take(&map, 10, 1, false, 0).unwrap();
    let b = spans.take(&map, 1, 1, false, 0).unwrap();
    spans.give(&map, a.first, 10, false, 1);
    let c = spans.take(&map, 10, 1, false, 2).unwrap();
    assert_eq!(c, Taken { first: a.first, zero: false });
    assert_ne!(b.first, c.first);
}

#[test]
fn who_takes_larger_and_larger_spans_brings_in_what_each_is_longer() {
    let (map, mut spans) = heap();
    for granules in [10, 16, 32] {
        let taken = spans.take(&map, granules, 1, false, 0).unwrap();
        let first = map.reservation.first_granule();
        assert_eq!((taken, spans.counts.used), (Taken { first, zero: granules == 10 }, granules));
        assert_eq!((map.record(first).granules.get(), spans.counts.dirty), (granules, 0));
        spans.give(&map, first, granules, false, 1);
    }
    let first = map.reservation.first_granule();
    // Of much more than half nothing is gained; where more than that matters it is as before.
    for (granules, align, prefer_clean) in [(65, 1, false), (40, 8, false), (40, 1, true)] {
        let taken = spans.take(&map, granules, align, prefer_clean, 2).unwrap();
        assert!(taken.zero && taken.first >= first + 32, "{granules}, {align}, {prefer_clean}");
        assert_eq!(spans.counts.dirty, 32);
        spans.give(&map, taken.first, granules, true, 2);
    }
}

#[test]
fn neighbours_of_one_kind_merge_and_the_whole_can_be_taken() {
    let (map, mut spans) = heap();
    let parts: Vec<u32> = (0..6).map(|_| spans.take(&map, 4, 1, false, 0).unwrap().first).collect();
    for i in [1, 3, 5, 0, 4, 2] {
        spans.give(&map, parts[i], 4, false, 1);
    }
    assert_eq!(spans.counts.dirty, 24);
    assert_eq!(spans.take(&map, 24, 1, false, 2).unwrap().first, parts[0]);
    assert_eq!(spans.counts.dirty, 0);
}

#[test]
fn purged_memory_reads_as_zero_and_says_so() {
    let (map, mut spans) = heap();
    let a = spans.take(&map, 16, 1, false, 0).unwrap();
    assert!(a.zero);
    touch(&map, a.first);
    spans.give(&map, a.first, 16, false, 0);
    assert!(spans.is_due(&map, false, 0));
    assert_eq!(purge_all(&map, &mut spans, 0), 16);
    let b = spans.take(&map, 16, 1, true, 0).unwrap();
    assert!(b.zero);
    // SAFETY: the test owns the span.
    assert_eq!(unsafe { *(map.address(b.first) as *const u64) }, 0);
}

#[test]
fn purge_modes_give_back_at_once_or_only_when_asked_whatever_was_missed() {
    let (map, mut spans) = heap();
    for (mode, waits) in [(PurgeMode::Now, 0), (PurgeMode::Never, 64)] {
        spans.mode = mode;
        for now in 1..4 {
            let span = spans.take(&map, 64, 1, false, now).unwrap();
            spans.give(&map, span.first, 64, false, now);
            assert_eq!(spans.is_due(&map, false, now + 100 * HOLD_MAX_NS), waits == 0);
            while spans.is_due(&map, false, now) {
                purge_all(&map, &mut spans, now);
            }
            assert_eq!((spans.counts.dirty, spans.most_held()), (waits, 0));
        }
        assert_eq!(purge_all(&map, &mut spans, 4), waits);
    }
}

#[test]
fn what_is_held_for_large_spans_is_not_cut_for_small_ones_while_the_heap_was_larger() {
    for (has_purger, wanted, cut) in
        [(true, &[1, 7, 7][..], &[false, false, true][..]), (true, &[8], &[true]), (false, &[7], &[true])]
    {
        let (map, mut spans) = heap();
        spans.decay.set_purger(has_purger);
        let [large, more] = [64, 8].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
        spans.give(&map, more, 8, true, 0);
        spans.give(&map, large, 64, false, 0);
        let mut take = |&granules| spans.take(&map, granules, 1, false, 0).unwrap().first;
        let is_cut = |first: u32| (large..large + 64).contains(&first);
        let found: Vec<bool> = wanted.iter().map(|granules| is_cut(take(granules))).collect();
        assert_eq!(found, cut, "{wanted:?}");
    }
}

#[test]
fn a_little_does_not_join_much_that_is_held() {
    for (much_granules, little, joins) in [(512, 1, true), (513, 64, false), (513, 65, true)] {
        let (map, mut spans) = heap();
        spans.decay.set_purger(true);
        let [much, beside, _] =
            [much_granules, little, 1].map(|granules| spans.take(&map, granules, 1, false, 0).unwrap().first);
        spans.give(&map, much, much_granules, false, 0);
        spans.give(&map, beside, little, false, 1);
        let whole = much_granules + if joins { little } else { 0 };
        assert_eq!(map.record(much).granules.get(), whole);
    }
}

#[test]
fn both_parts_of_a_span_that_is_cut_know_that_pages_were_moved_there() {
    let (map, mut spans) = heap();
    let span = spans.take(&map, 16, 1, false, 0).unwrap();
    map.set_moved(span.first, true);
    spans.give(&map, span.first, 16, false, 0);
    let part = spans.take(&map, 4, 1, false, 0).unwrap();
    assert_eq!((part.first, map.moved_spans()), (span.first, 2));
    spans.give(&map, part.first, 4, false, 0);
    purge_all(&map, &mut spans, 0);
    assert_eq!(map.moved_spans(), 0);
}

#[test]
fn a_refused_purge_keeps_the_memory_usable_and_is_not_repeated() {
    let (map, mut spans) = heap();
    let a = spans.take(&map, 16, 1, false, 0).unwrap();
    spans.give(&map, a.first, 16, false, 0);
    let mut due = [Due::NONE; 1];
    assert_eq!(spans.take_due(&map, false, 0, &mut due), 1);
    let [span] = due;
    spans.purged(&map, span, false);
    assert!(!spans.is_due(&map, false, HOLD_MAX_NS));
    assert_eq!(spans.take(&map, 16, 1, false, 0).unwrap(), Taken { first: a.first, zero: false });
}

#[test]
fn after_one_regret_memory_is_held_until_its_time() {
    let (map, mut spans) = heap();
    let mut now = 0;
    for round in 0..3 {
        let a = spans.take(&map, 64, 1, false, now).unwrap();
        now += 1_000_000;
        spans.give(&map, a.first, 64, false, now);
        assert_eq!(spans.is_due(&map, false, now), round == 0, "round {round}");
        if round == 0 {
            purge_all(&map, &mut spans, now);
        }
        now += 10_000;
    }
    assert!(spans.is_due(&map, false, now + HOLD_MAX_NS));
}

#[test]
fn when_a_phase_is_over_what_is_held_goes_with_what_was_freed() {
    let (map, mut spans) = heap();
    let mut take = |granules| spans.take(&map, granules, 1, false, 0).unwrap().first;
    let [held, _, freed] = [64, 1, 17].map(&mut take);
    spans.decay.rescued(64, 0);
    spans.give(&map, held, 64, false, 1);
    assert!(!spans.is_due(&map, true, 1));
    spans.give(&map, freed, 17, false, 2);
    assert_eq!((spans.take_due(&map, false, 2, &mut [Due::NONE; 4]), spans.waiting()), (2, 0));
    spans.decay.reused(0);
    assert_eq!(spans.most_held(), 80, "it was not held in vain");
    let again = spans.take(&map, 16, 1, false, 2).unwrap().first;
    spans.give(&map, again, 16, false, 2);
    assert!(!spans.is_due(&map, true, 2), "freed after the phase, in the same tick of the clock");
}

#[test]
fn the_rest_of_a_span_goes_in_its_turn_and_its_time_between_free_and_reuse_counts() {
    let (map, mut spans) = heap();
    spans.decay.set_purger(true);
    let mut take = |granules| spans.take(&map, granules, 1, false, HOLD_MAX_NS).unwrap().first;
    let [first, _, second, _] = [20, 1, 16, 1].map(&mut take);
    let freed_at = HOLD_MAX_NS + 1;
    spans.give(&map, first, 20, false, freed_at);
    let deadline = map.record(first).free().deadline();
    spans.give(&map, second, 16, false, freed_at + 1);
    assert_eq!(spans.take(&map, 4, 1, false, freed_at + 2).unwrap().first, second);
    spans.give(&map, second, 4, false, freed_at + 2);
    assert_eq!(map.record(second).free().deadline() - deadline, 1, "it is held no longer than before");
    let mut due = [Due::NONE; 4];
    assert_eq!(spans.take_due(&map, false, deadline, &mut due), 1);
    assert_eq!(due[0].span.first, first);
}

#[test]
fn many_small_spans_freed_and_wanted_again_are_held_from_the_second_time_on() {
    let (map, mut spans) = heap();
    let mut now = 0;
    for round in 0..3 {
        let taken: Vec<Taken> = (0..400).map(|_| spans.take(&map, 1, 1, false, now).unwrap()).collect();
        let fresh = taken.iter().filter(|span| span.zero).count();
        assert_eq!(fresh, if round < 2 { 400 } else { 0 }, "round {round}");
        for span in taken {
            now += 1000;
            spans.give(&map, span.first, 1, false, now);
        }
        if spans.is_due(&map, false, now) {
            purge_all(&map, &mut spans, now);
        }
    }
}

#[test]
fn what_was_freed_first_goes_when_more_is_held_than_the_gaps_between_blocks_excuse() {
    let (map, mut spans) = heap();
    spans.decay.set_purger(true);
    let first: Vec<u32> = (0..32).map(|_| spans.take(&map, 16, 1, true, 0).unwrap().first).collect();
    let peak = spans.counts.used;
    // Every second one, so that none are neighbours.
    let freed: Vec<u32> = first.into_iter().step_by(2).collect();
    freed.iter().for_each(|&first| spans.give(&map, first, 16, false, 1));
    let long = spans.take(&map, 256, 1, false, 2).unwrap();
    assert_eq!((spans.counts.used, spans.counts.dirty, long.zero), (peak, 256, true));
    assert!(spans.is_due(&map, false, 2));
    let mut due = [Due::NONE; 16];
    let count = spans.take_due(&map, false, 2, &mut due);
    let gone: Vec<u32> = due[..count].iter().map(|due| due.span.first).collect();
    assert_eq!(gone, freed[..4]);
    assert_eq!(spans.counts.dirty, peak / 8 * 3);
    assert!(!spans.is_due(&map, false, 2));
}

#[test]
fn new_memory_continues_what_is_clean_at_the_end_of_the_heap() {
    let (map, mut spans) = heap();
    let mut committed = 0;
    for granules in (2000..20_000).step_by(2000) {
        let span = spans.take(&map, granules, 1, false, 0).unwrap();
        assert_eq!((span.first, span.zero), (map.reservation.first_granule(), true));
        spans.give(&map, span.first, granules, true, 0);
        committed = map.reservation.limit() - map.reservation.first_granule();
        assert!(committed < granules + 1024, "{committed} granules for {granules}");
    }
    assert_eq!(spans.counts.clean, committed);
    os::REFUSED.set(os::Call::Commit as u32);
    assert_eq!(spans.take(&map, committed + 1, 1, false, 0), None);
    os::REFUSED.set(0);
    assert_eq!(spans.counts.clean, committed);
}

#[test]
fn the_last_span_grows_into_new_memory_unless_it_is_refused_or_memory_with_pages_has_room() {
    let (map, mut spans) = heap();
    let mut take =
        |granules| Span { first: spans.take(&map, granules, 1, false, 0).unwrap().first, granules };
    let [dirty, _, mut last] = [20_000, 1, 3000].map(&mut take);
    let limit = map.reservation.limit();
    assert_eq!(last.first + last.granules, limit);
    assert_eq!(spans.take_behind(&map, dirty, 1, false, 0), None, "not the last");
    os::REFUSED.set(os::Call::Commit as u32);
    assert_eq!(spans.take_behind(&map, last, 2000, false, 0), None, "refused");
    os::REFUSED.set(0);
    assert_eq!((spans.counts.used, map.reservation.limit()), (23_001, limit));
    // Nothing is free behind it, then less than it wants.
    for more in [2000, 1, 1500] {
        let end = last.first + last.granules;
        assert_eq!(spans.take_behind(&map, last, more, false, 0), Some(Taken { first: end, zero: true }));
        last.granules += more;
    }
    assert_eq!((spans.counts.used, spans.counts.clean), (26_502, 2 * 1024 - 1501));
    spans.give(&map, dirty.first, dirty.granules, false, 0);
    assert_eq!(spans.take_behind(&map, last, 1000, false, 0), None, "there is room for both elsewhere");
    assert!(spans.take_behind(&map, last, spans.counts.clean, false, 0).is_some());
}

#[test]
fn a_span_that_grows_by_much_goes_to_memory_with_pages_before_it_takes_such_without_behind_it() {
    let (map, mut spans) = heap();
    let mut take =
        |granules| Span { first: spans.take(&map, granules, 1, false, 0).unwrap().first, granules };
    let [elsewhere, _, block, behind, _] = [80, 1, 60, 40, 1].map(&mut take);
    spans.give(&map, behind.first, behind.granules, true, 0);
    let behind = |zero| Some(Taken { first: behind.first, zero });
    let grow = |spans: &mut SpanHeap, more| {
        let taken = spans.take_behind(&map, block, more, false, 0);
        if let Some(Taken { first, zero }) = taken {
            spans.give(&map, first, more, zero, 0);
        }
        taken
    };
    assert_eq!(grow(&mut spans, 20), behind(true), "there is no memory with pages");
    spans.give(&map, elsewhere.first, elsewhere.granules, false, 0);
    assert_eq!([10, 20].map(|more| grow(&mut spans, more)), [None; 2]);
    assert_eq!(grow(&mut spans, 9), behind(true), "by little");
    assert_eq!(grow(&mut spans, 21), behind(true), "no room for both elsewhere");
    spans.take(&map, 40, 1, true, 0).unwrap();
    spans.give(&map, behind(true).unwrap().first, 40, false, 0);
    assert_eq!(grow(&mut spans, 20), behind(false), "it has pages itself");
}

#[test]
fn alignment_is_by_address() {
    let (map, mut spans) = heap();
    for align in [1u32, 2, 16, 64, 1024] {
        spans.take(&map, 1, 1, false, 0).unwrap();
        let span = spans.take(&map, 3, align, false, 0).unwrap();
        assert!(map.address(span.first).is_multiple_of(bytes_of(align)));
    }
}

#[test]
fn behind_many_that_are_too_short_a_span_is_found_before_the_heap_grows_and_behind_all_when_it_cannot() {
    for (zero, shorter, is_refused) in
        [(true, FEW, false), (false, FEW, false), (true, MANY, true), (false, MANY, true)]
    {
        let (map, mut spans) = heap();
        let lengths: Vec<u32> = std::iter::once(39).chain(std::iter::repeat_n(33, shorter)).collect();
        let mut take = |granules| spans.take(&map, granules, 1, false, 0).unwrap().first;
        let listed: Vec<u32> = lengths.iter().map(|&granules| [take(granules), take(1)][0]).collect();
        let rest = spans.counts.clean;
        spans.take(&map, rest, 1, false, 0).unwrap();
        for (&first, &granules) in listed.iter().zip(&lengths) {
            spans.give(&map, first, granules, zero, 0);
        }
        os::REFUSED.set(if is_refused { os::Call::Commit as u32 } else { 0 });
        let taken = spans.take(&map, 39, 1, false, 0);
        os::REFUSED.set(0);
        assert_eq!(taken, Some(Taken { first: listed[0], zero }), "{shorter}");
    }
}

mod random {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Spans never overlap, keep their contents, and no granule is lost.
        #[test]
        fn no_granule_is_lost_or_given_twice(steps in prop::collection::vec((0u8..5, 1u32..80, 0u32..4, 0u64..50_000_000), 1..200)) {
            let (map, mut spans) = heap();
            let mut live: Vec<(u32, u32, u64)> = Vec::new();
            let (mut now, mut tag) = (0, 0);
            for (what, granules, align, pause) in steps {
                now += pause;
                match what {
                    0 | 1 => {
                        let taken = spans.take(&map, granules, 1 << align, what == 1, now).unwrap();
                        let overlaps = live.iter().any(|&(first, length, _)| {
                            taken.first < first + length && first < taken.first + granules
                        });
                        prop_assert!(!overlaps);
                        tag += 1;
                        for granule in taken.first..taken.first + granules {
                            let word = map.address(granule) as *mut u64;
                            // SAFETY: the test owns the span.
                            unsafe {
                                if taken.zero { prop_assert_eq!(*word, 0); }
                                *word = tag;
                            }
                        }
                        live.push((taken.first, granules, tag));
                    }
                    2 if !live.is_empty() => {
                        let (first, length, tag) = live.swap_remove(granules as usize % live.len());
                        for granule in first..first + length {
                            // SAFETY: the test owns the span.
                            prop_assert_eq!(unsafe { *(map.address(granule) as *const u64) }, tag);
                        }
                        spans.give(&map, first, length, false, now);
                    }
                    // Sometimes by more than is committed at once.
                    3 if !live.is_empty() => {
                        let place = granules as usize % live.len();
                        let (first, length, tag) = live[place];
                        let (end, more) = (first + length, granules << align);
                        if spans.take_behind(&map, Span { first, granules: length }, more, false, now).is_some() {
                            prop_assert!(live.iter().all(|&(first, ..)| first < end || end + more <= first));
                            for granule in end..end + more {
                                // SAFETY: the test owns the span.
                                unsafe { *(map.address(granule) as *mut u64) = tag };
                            }
                            live[place].1 += more;
                        }
                    }
                    _ => { purge_all(&map, &mut spans, now); }
                }
                let used: u32 = live.iter().map(|span| span.1).sum();
                prop_assert_eq!(spans.counts.used, used);
                let all = map.reservation.limit().saturating_sub(map.reservation.first_granule());
                prop_assert_eq!(used + spans.counts.clean + spans.counts.dirty, all);
            }
        }
    }
}

#[test]
fn sizes_by_turns_use_the_memory_of_the_largest() {
    let (map, mut spans) = heap();
    let (mut now, mut fresh) = (1, 0);
    for turn in 0..60 {
        let size = [1, 16, 496][turn % 3];
        let span = spans.take(&map, size, 1, false, now).unwrap();
        fresh += if span.zero { size } else { 0 };
        now += u64::from(size) * 20_000;
        spans.give(&map, span.first, size, false, now);
        if spans.is_due(&map, false, now) {
            purge_all(&map, &mut spans, now);
        }
    }
    assert!(fresh <= 2 * (1 + 16 + 496) + 496, "{fresh} granules were fresh");
}
