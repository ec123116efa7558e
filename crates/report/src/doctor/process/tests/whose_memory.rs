//! Whose the memory of a process is, and what would change that.

use super::*;

#[test]
fn a_runtime_that_can_have_malloc_serve_it_is_not_said_to_be_beyond_every_allocator() {
    let of = |kind| {
        let mut seen = with_own_mapping();
        for total in seen.map.totals.iter_mut().filter(|total| total.kind == Kind::OwnMapping) {
            total.kind = kind;
        }
        let elsewhere = seen.findings().into_iter().find(|finding| finding.concern == Concern::Elsewhere);
        elsewhere.unwrap().advice
    };
    assert!(of(Kind::PhpHeap).unwrap().starts_with("PHP heap: USE_ZEND_ALLOC=0 in its environment"));
    assert!(of(Kind::PythonObjects).unwrap().starts_with("Python objects: PYTHONMALLOC=malloc in"));
    assert_eq!(of(Kind::MappedFile), None);
}

#[test]
fn what_huge_pages_of_malloc_hold_is_not_said_to_be_in_use_and_beyond_every_setting() {
    let with = |huge_mib| {
        let heap = Some(with_changed_caches(Source::Process(None), 0));
        let mut seen = ProcessConsultation { heap, ..quiet(100, 2) };
        for total in seen.map.totals.iter_mut().filter(|total| total.kind == Kind::MainHeap) {
            total.usage.anonymous_huge_bytes = huge_mib * MIB;
        }
        seen
    };
    assert!(with(9).text(None).contains("no setting and no other allocator gives that back"));
    let text = with(60).text(None);
    assert!(
        text.contains("of the 100 MiB that malloc has resident is in blocks of the program's, up to 60 MiB of it in huge pages"),
        "{text}"
    );
    assert!(
        text.contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=0") && !text.contains("no other allocator"),
        "{text}"
    );
    assert!(
        text.contains("Verdict: leave its allocator alone, as far as it could be seen: nothing"),
        "{text}"
    );
}

#[test]
fn of_an_allocator_that_is_linked_into_a_library_the_verdict_says_that_its_inside_was_not_seen() {
    let mut seen = mostly(Kind::Allocator(Allocator::Jemalloc));
    let heap = seen.heap.as_mut().unwrap();
    heap.walks = trapped();
    heap.walks[0].total.holding.resident_bytes = MIB;
    heap.walks[0].total.holding.whole_free_bytes = 0;
    for other in [None, Some(("Faultless".into(), Regions::default()))] {
        seen.heap.as_mut().unwrap().other = other;
        let verdict = verdict_of(&seen);
        assert!(verdict.ends_with("what jemalloc has free inside was not seen"), "{verdict}");
        assert!(seen.text(None).contains("100 MiB of what is resident is of jemalloc, linked into"));
        assert_eq!(line_of(&seen), None);
    }
}

#[test]
fn a_tenth_in_swap_is_worth_a_word() {
    let of = |rss_kib: u64, swap_kib: u64| {
        let smaps =
            format!("10000-40000000 rw-p 00000000 00:00 0 [heap]\nRss: {rss_kib} kB\nSwap: {swap_kib} kB\n");
        let mappings =
            mappings::parse(format!("{smaps}50000000-50001000 r--p 0 8:1 7 /a\nRss: 0 kB\n").as_bytes());
        let mappings = mappings.unwrap();
        let parts = classify(&Sight { mappings: &mappings, contents: None, threads: &[] });
        let map = MapView::new("server (7)".into(), Some(7), mappings, parts);
        let findings = ProcessConsultation { map, ..quiet(1, 1) }.findings();
        findings.into_iter().find(|finding| finding.concern == Concern::Swap).map(|finding| finding.sentence)
    };
    let sentence = of(9216, 1024).unwrap();
    assert!(
        sentence.starts_with("1 MiB of it is in swap: each page comes back by a major fault"),
        "{sentence}"
    );
    assert_eq!([of(9216, 1000), of(4, 0), of(0, 0)], [None, None, None]);
}
