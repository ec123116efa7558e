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
    assert!(finding.sentence.contains("3,480 pages each time; 45 times a second"), "{}", finding.sentence);
}

#[test]
fn a_top_that_the_program_moves_itself_is_put_down_to_no_threshold() {
    let told = |own: u64| {
        let heap = 0x10_0000;
        let mut program = Program::start();
        program.call(CallKind::Brk, [0; 5], heap);
        for number in 0..150 {
            program.stack = Some(TakenStack { index: u32::from(number < own), weight: 1 });
            for end in [heap + MIB, heap] {
                program.call(CallKind::Brk, [end, 0, 0, 0, 0], end);
            }
        }
        let stacks: [&[&str]; 2] = [
            &["brk", "sbrk", "systrim", "_int_free", "free", "main"],
            &["brk", "sbrk", "pool_reset", "main"],
        ];
        program.end(&stacks).remove(0)
    };
    let (of_malloc, own) = (told(0), told(150));
    assert!(of_malloc.sentence.starts_with("the top of the heap is given back"), "{}", of_malloc.sentence);
    assert!(of_malloc.remedy.contains("doctor"), "{}", of_malloc.remedy);
    assert!(
        own.sentence.starts_with("the program itself gives the top of the heap back"),
        "{}",
        own.sentence
    );
    assert!(own.remedy.starts_with("no setting of malloc reaches it"), "{}", own.remedy);
    assert_eq!(
        (own.caller.as_ref().unwrap().function.as_str(), of_malloc.caller.as_ref()),
        ("pool_reset", None)
    );
    assert_eq!([&of_malloc, &own].map(Finding::is_of_allocator), [true, false]);
    assert_eq!([own.pages_each, own.pages_per_second / own.per_second], [256.0; 2]);
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

/// What is found of heaps of a thread's arena that are made, aligned, opened in two steps of 16 pages and given back, so many times, each
/// time after so many nanoseconds.
fn found_of_heaps(stack: &[&str], times: u64, life_ns: u64) -> Vec<Finding> {
    let (made, heap) = (0x7f00_0100_0000, 0x7f00_0400_0000);
    let mut program = Program::start();
    program.stack = Some(TakenStack { index: 0, weight: 1 });
    for _ in 0..times {
        program.call(CallKind::Mmap, [0, 128 * MIB, 0, 0x4022, u64::MAX], made);
        program.call(CallKind::Munmap, [made, heap - made, 0, 0, 0], 0);
        program.call(CallKind::Munmap, [heap + 64 * MIB, 16 * MIB, 0, 0, 0], 0);
        program.call(CallKind::Mprotect, [heap, 0x1_0000, 3, 0, 0], 0);
        program.call(CallKind::Mprotect, [heap + 0x1_0000, 0x1_0000, 3, 0, 0], 0);
        program.now_ns += life_ns;
        program.call(CallKind::Munmap, [heap, 64 * MIB, 0, 0, 0], 0);
    }
    program.end(&[stack])
}

#[test]
fn a_heap_that_an_arena_takes_and_gives_back_again_and_again_is_thrash_that_the_top_pad_stops() {
    let malloc = ["mmap", "new_heap", "sysmalloc", "malloc", "request", "main"];
    let [finding] = found_of_heaps(&malloc, 200, 1_920_000).try_into().unwrap();
    assert_eq!((finding.pattern, finding.times, finding.pages_each), (Pattern::ArenaHeap, 199, 32.0));
    let expected = "a thread's arena takes another heap of 64 MiB and gives it back 2.0 ms later, up to 32 pages of it used each time \
                    (top pad); 494 times a second";
    assert_eq!(finding.sentence, expected);
    assert!(finding.is_of_allocator() && finding.remedy.contains("MALLOC_TOP_PAD_=67108864"));
    let own = ["mmap", "Pool::reserve(unsigned long)", "main"];
    assert_eq!(found_of_heaps(&own, 200, 1_920_000), [], "addresses that others reserve");
    assert_eq!(found_of_heaps(&malloc, 50, 1_920_000), [], "1,600 pages");
    assert_eq!(found_of_heaps(&malloc, 200, 1_100_000_000), [], "seldom");
}
