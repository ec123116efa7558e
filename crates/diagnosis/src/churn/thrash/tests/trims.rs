//! Trims: those of malloc_trim, and what looks like those of an arena.

use super::*;

#[test]
fn what_the_program_has_malloc_give_back_is_put_down_to_no_threshold_and_to_no_delay() {
    let (heap, pages) = (0x10_0000, 0x7f00_0000_0000);
    let mut program = Program::start();
    program.call(CallKind::Brk, [0; 5], heap);
    for _ in 0..150 {
        program.stack = Some(TakenStack { index: 0, weight: 1 });
        program.call(CallKind::Brk, [heap + MIB, 0, 0, 0, 0], heap + MIB);
        program.stack = Some(TakenStack { index: 1, weight: 1 });
        program.call(CallKind::Brk, [heap, 0, 0, 0, 0], heap);
        program.stack = Some(TakenStack { index: 2, weight: 1 });
        program.call(CallKind::Madvise, [pages, MIB, 4, 0, 0], 0);
    }
    let findings = program.end(&[
        &["brk", "sbrk", "sysmalloc", "malloc", "work", "main"],
        &["brk", "sbrk", "systrim.constprop.0", "__malloc_trim", "give_back", "main"],
        &["madvise", "mtrim", "__malloc_trim", "give_back", "main"],
    ]);
    let [finding] = findings.try_into().unwrap();
    assert_eq!((finding.pattern, finding.times), (Pattern::MallocTrim, 149));
    assert!(finding.sentence.starts_with("the program itself calls malloc_trim"), "{}", finding.sentence);
    assert!(finding.remedy.starts_with("call malloc_trim less often"), "{}", finding.remedy);
    assert_eq!(finding.caller.unwrap().function, "give_back");
}

#[test]
fn a_call_of_malloc_trim_counts_once_however_many_pieces_it_gives_back() {
    let found = |calls: u64, pages: u64| {
        let mut program = Program::start();
        program.stack = Some(TakenStack { index: 0, weight: 1 });
        for _ in 0..calls {
            for piece in 0..120 {
                program.call(CallKind::Madvise, [0x7f00_0000_0000 + piece * MIB, pages << 12, 4, 0, 0], 0);
            }
            program.now_ns += 20_000_000;
        }
        program.end(&[&["madvise", "mtrim", "__malloc_trim", "give_back", "main"]])
    };
    assert_eq!(found(3, 29), [], "as it starts");
    assert_eq!(found(5, 29), [], "as it starts");
    let finding = found(150, 29).remove(0);
    assert_eq!((finding.pattern, finding.times), (Pattern::MallocTrim, 149));
    assert!(finding.sentence.contains("3,480 pages each time; 46 times a second"), "{}", finding.sentence);
}

#[test]
fn what_only_looks_like_an_arenas_heap_is_not_told_as_malloc_where_chains_tell_whose_it_is() {
    let told = |stack: &[&str]| {
        let mut program = Program::start();
        let heap = 0x7f00_0000_0000;
        program.call(CallKind::Mmap, [0, 64 << 20, 0, ANONYMOUS, u64::MAX], heap);
        program.stack = Some(TakenStack { index: 0, weight: 1 });
        for _ in 0..150 {
            program.call(CallKind::Madvise, [heap + 0x1_0000, 1 << 20, 4, 0, 0], 0);
        }
        program.end(&[stack]).remove(0)
    };
    assert_eq!(told(&["__GI_madvise", "heap_trim", "_int_free", "free", "main"]).pattern, Pattern::ArenaTrim);
    let own = told(&["__GI_madvise", "v8::base::OS::SetPermissions(void*, unsigned long)", "main"]);
    assert_eq!(own.pattern, Pattern::Purge, "{}", own.sentence);
    assert!(own.remedy.starts_with("let it keep the pages longer"), "{}", own.remedy);
}
