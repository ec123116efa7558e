//! glibc's heaps in memory of which any words were changed: the walk ends, and what it found is told of.
//!
//! `cargo +nightly fuzz run glibc_heap`
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use faultless_diagnosis::glibc_heap::choice::Outcome;
use faultless_diagnosis::glibc_heap::made::{HEAP, Made, THREAD_HEAP, chunks_of};
use faultless_records::glibc_heap::LAYOUTS;
use faultless_report::heap::{self, HeapView, Source};
use faultless_report::malloc_info;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Word {
    Any(u64),
    Small(u16),
    InHeap(u16),
    InThreadHeap(u16),
}

impl Word {
    fn bits(&self) -> u64 {
        match *self {
            Self::Any(word) => word,
            Self::Small(word) => word.into(),
            Self::InHeap(offset) => HEAP + u64::from(offset),
            Self::InThreadHeap(offset) => THREAD_HEAP + u64::from(offset),
        }
    }
}

fuzz_target!(|input: (u8, bool, Vec<(u8, u16, Word)>)| {
    let (layout, is_known, damage) = input;
    let layout = &LAYOUTS[usize::from(layout) % LAYOUTS.len()];
    let mut made = Made::new(layout, &chunks_of(layout));
    for (region, place, word) in damage.iter().take(16) {
        made.damage(layout, usize::from(region % 3), usize::from(*place), word.bits());
    }
    let version = is_known.then_some((2, layout.since));
    let Outcome::Walked(walk) = made.walk(version) else { return };
    let view = HeapView {
        pid: Some(1),
        name: "program".to_owned(),
        source: Source::AtExit,
        took: Duration::from_millis(1),
        glibc: version,
        is_static: false,
        counted_rss_bytes: None,
        walks: vec![*walk],
        other: None,
        faultless: None,
        remarks: Vec::new(),
    };
    let _ = (heap::table::text(&view, true, None), heap::json::json(&view));
    let _ = view.walks.iter().map(malloc_info::text).count();
});
