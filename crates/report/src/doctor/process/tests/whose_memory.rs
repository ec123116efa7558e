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
