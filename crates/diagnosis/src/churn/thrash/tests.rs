//! Thrash of programs whose calls are made up.

use super::*;
use crate::churn::circumstances::Circumstances;
use crate::churn::tally::Tally;
use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

mod trims;

const ANONYMOUS: u64 = 0x22;

struct Program {
    tally: Tally,
    now_ns: u64,
    stack: Option<TakenStack>,
}

impl Program {
    fn start() -> Self {
        Self { tally: Tally::begin(0), now_ns: 0, stack: None }
    }

    fn call(&mut self, kind: CallKind, arguments: [u64; 5], result: u64) {
        self.now_ns += 16_000;
        let (time_ns, stack) = (self.now_ns, self.stack);
        let call = MemoryCall { time_ns, pid: 1, tid: 1, kind, arguments, result: Ok(result), stack };
        self.tally.take(&MemoryEvent::Call(call));
    }

    fn end(self, stacks: &[&[&str]]) -> Vec<Finding> {
        self.end_seen_by(Mechanism::Seccomp, stacks)
    }

    fn end_seen_by(self, mechanism: Mechanism, stacks: &[&[&str]]) -> Vec<Finding> {
        let stacks = stacks.iter().map(|stack| stack.iter().map(|&name| name.to_owned()).collect()).collect();
        findings(&self.tally.finish(Circumstances {
            mechanism,
            observed_ns: self.now_ns,
            stacks,
            ..Circumstances::default()
        }))
    }
}

#[test]
fn the_articles_threshold_thrash_is_told_in_its_words() {
    let mut program = Program::start();
    program.stack = Some(TakenStack { index: 0, weight: 1 });
    for _ in 0..1000 {
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, u64::MAX], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 135_168, 0, 0, 0], 0);
    }
    let findings = program.end(&[&["mmap", "sysmalloc", "_int_malloc", "malloc", "dgemm", "main"]]);
    assert_eq!(findings.len(), 1);
    assert_eq!(
        findings[0].sentence,
        "blocks of 128 KiB and more go through mmap; each free gives 33 pages back, 16 µs later; 31,200 times a second"
    );
    assert_eq!((findings[0].times, findings[0].range_bytes), (999, (135_168, 135_168)));
}

#[test]
fn what_is_given_back_at_once_and_not_taken_again_is_no_thrash() {
    for flags in [ANONYMOUS, 0x2_0022] {
        let mut program = Program::start();
        let place = |number: u64| 0x7f00_0000_0000 + number * 0x10_0000;
        for number in 0..3000 {
            program.call(CallKind::Mmap, [0, 303_104, 3, flags, u64::MAX], place(number));
        }
        for number in 0..3000 {
            program.call(CallKind::Munmap, [place(number), 303_104, 0, 0, 0], 0);
        }
        // What is taken again is as much as is mapped, in whatever pieces.
        for number in 0..300 {
            program.call(CallKind::Mmap, [0, 2 * 303_104, 3, flags, u64::MAX], place(number));
        }
        let findings = program.end(&[]);
        let times: Vec<(u64, f64)> = findings.iter().map(|one| (one.times, one.pages_each)).collect();
        assert_eq!(times, [(600, 74.0)]);
    }
}

const MIB: u64 = 1 << 20;

/// Times and pages each time of what a program is found to do that maps so many bytes and unmaps these pieces of them, each after so
/// many nanoseconds, again and again.
fn found_of_pieces(bytes: u64, pieces: &[(u64, u64, u64)]) -> Vec<(u64, f64)> {
    let mut program = Program::start();
    for number in 0..200 {
        let start = 0x7f00_0000_0000 + (number << 30);
        program.call(CallKind::Mmap, [0, bytes, 3, ANONYMOUS, u64::MAX], start);
        for (offset, length, after_ns) in pieces {
            program.now_ns += after_ns;
            program.call(CallKind::Munmap, [start + offset, *length, 0, 0, 0], 0);
        }
    }
    program.end(&[]).iter().map(|finding| (finding.times, finding.pages_each)).collect()
}

#[test]
fn a_mapping_that_is_unmapped_in_pieces_is_given_back_once() {
    assert_eq!(found_of_pieces(2 * MIB, &[(0, MIB, 400_000), (MIB, MIB, 0)]), [(199, 512.0)]);
    let quarters = [(0, MIB, 400_000), (3 * MIB, MIB, 50_000), (2 * MIB, MIB, 50_000), (MIB, MIB, 50_000)];
    assert_eq!(found_of_pieces(4 * MIB, &quarters), [(199, 1024.0)]);
}

#[test]
fn what_is_cut_off_a_mapping_to_align_the_rest_is_no_memory_given_back() {
    let aligned = [(0, MIB, 0), (3 * MIB, 3 * MIB, 0), (MIB, 2 * MIB, 400_000)];
    assert_eq!(found_of_pieces(6 * MIB, &aligned), [(199, 512.0)]);
    assert_eq!(found_of_pieces(6 * MIB, &aligned[..2]), [], "the rest is kept");
}

#[test]
fn a_block_that_realloc_makes_smaller_and_larger_again_is_thrash() {
    let start = 0x7f00_0000_0000;
    let run = |stacks: &[&[&str]], flags: u64| {
        let mut program = Program::start();
        program.stack = (!stacks.is_empty()).then_some(TakenStack { index: 0, weight: 1 });
        program.call(CallKind::Mmap, [0, 2 * MIB, 3, flags, u64::MAX], start);
        for _ in 0..200 {
            program.call(CallKind::Mremap, [start, 2 * MIB, 4 * MIB, 1, 0], start);
            program.call(CallKind::Mremap, [start, 4 * MIB, 2 * MIB, 1, 0], start);
        }
        program.end(stacks)
    };
    let finding = run(&[&["mremap", "mremap_chunk", "realloc", "main"]], ANONYMOUS).remove(0);
    assert_eq!((finding.pattern, finding.times, finding.pages_each), (Pattern::Resize, 199, 512.0));
    let expected =
        "mappings are made smaller and larger again 16 µs later, 512 pages each time; 31,000 times a second";
    assert_eq!(finding.sentence, expected);
    assert!(finding.remedy.contains("doctor"), "{}", finding.remedy);
    let own = run(&[&["mremap", "own_buffer", "main"]], ANONYMOUS).remove(0);
    assert_eq!(own.caller.unwrap().function, "own_buffer");
    assert!(own.remedy.starts_with("no setting of malloc reaches it"), "{}", own.remedy);
    assert_eq!(run(&[], 2), [], "a file");
}

#[test]
fn a_buffer_that_grows_by_realloc_takes_again_all_that_it_grows_by() {
    let mut program = Program::start();
    for number in 0..200 {
        let start = 0x7f00_0000_0000 + (number << 30);
        program.call(CallKind::Mmap, [0, MIB, 3, ANONYMOUS, u64::MAX], start);
        for mib in [1, 2, 4] {
            program.call(CallKind::Mremap, [start, mib * MIB, 2 * mib * MIB, 1, 0], start);
        }
        program.call(CallKind::Munmap, [start, 8 * MIB, 0, 0, 0], 0);
    }
    let findings = program.end(&[]);
    let found: Vec<_> = findings.iter().map(|one| (one.pattern, one.times, one.pages_each)).collect();
    assert_eq!(found, [(Pattern::Mapping, 199, 2048.0)]);
}

#[test]
fn shared_memory_that_is_mapped_again_and_again_is_thrash_of_its_own() {
    let mut program = Program::start();
    program.stack = Some(TakenStack { index: 0, weight: 1 });
    for _ in 0..200 {
        program.call(CallKind::Mmap, [0, MIB, 3, 0x21, u64::MAX], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, MIB, 0, 0, 0], 0);
    }
    let finding = program.end(&[&["mmap", "exchange", "main"]]).remove(0);
    assert_eq!((finding.pattern, finding.times, finding.pages_each), (Pattern::Shared, 199, 256.0));
    assert!(finding.sentence.starts_with("shared memory of 1 MiB is mapped"), "{}", finding.sentence);
    assert_eq!(finding.caller.unwrap().function, "exchange");
}

#[test]
fn all_advice_that_takes_pages_away_at_once_is_a_purge() {
    for advice in [4, 9, 24] {
        let mut program = Program::start();
        for _ in 0..150 {
            program.call(CallKind::Madvise, [0x7f00_0000_0000, MIB, advice, 0, 0], 0);
        }
        assert!(program.end(&[]).iter().map(|one| one.pattern).eq([Pattern::Purge]), "advice {advice}");
    }
}

#[test]
fn records_of_new_mappings_accuse_nobody() {
    let mut program = Program::start();
    for _ in 0..1000 {
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, u64::MAX], 0x7f00_0000_0000);
    }
    assert_eq!(program.end_seen_by(Mechanism::MmapRecords, &[]), []);
}

#[test]
fn mappings_that_the_program_makes_itself_are_not_blamed_on_malloc() {
    let run = |bytes, stacks: &[&[&str]]| {
        let mut program = Program::start();
        program.stack = (!stacks.is_empty()).then_some(TakenStack { index: 0, weight: 1 });
        for _ in 0..200 {
            program.call(CallKind::Mmap, [0, bytes, 3, ANONYMOUS, 0], 0x7f00_0000_0000);
            program.call(CallKind::Munmap, [0x7f00_0000_0000, bytes, 0, 0, 0], 0);
        }
        program.end(stacks).remove(0)
    };
    let own = run(MIB, &[&["mmap", "own_pool", "main"]]);
    assert!(own.sentence.starts_with("the program itself maps 1 MiB"), "{}", own.sentence);
    assert!(own.remedy.starts_with("no setting of malloc reaches it"), "{}", own.remedy);
    let unknown = run(MIB, &[]);
    assert!(unknown.sentence.contains("as malloc does") && unknown.remedy.contains("doctor"));
    assert!(run(1 << 16, &[]).sentence.contains("smaller ones than glibc's malloc maps"));
    let cut = run(MIB, &[&["mmap", "0x8ce85b2c289b9488", "[stack cut off]"]]);
    assert_eq!((cut.sentence, cut.caller), (unknown.sentence, None), "as of a libc without tables");
}

#[test]
fn of_many_functions_that_do_the_same_none_is_said_to_do_most() {
    let mut program = Program::start();
    for round in 0..200 {
        program.stack = Some(TakenStack { index: round % 20, weight: 1 });
        program.call(CallKind::Mmap, [0, 1 << 16, 3, ANONYMOUS, 0], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 1 << 16, 0, 0, 0], 0);
    }
    let names: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
    let stacks: Vec<[&str; 2]> = names.iter().map(|name| ["mmap", name.as_str()]).collect();
    let stacks: Vec<&[&str]> = stacks.iter().map(|stack| &stack[..]).collect();
    let finding = program.end(&stacks).remove(0);
    assert_eq!(finding.caller, Some(Foremost { function: "m00".into(), part: 0.05, functions: 20 }));
}

#[test]
fn mappings_of_malloc_and_of_the_program_are_not_told_as_those_of_one() {
    let run = |one_of: u32| {
        let mut program = Program::start();
        for round in 0..200 {
            program.stack = Some(TakenStack { index: u32::from(round % one_of == 0), weight: 1 });
            program.call(CallKind::Mmap, [0, 1 << 20, 3, ANONYMOUS, 0], 0x7f00_0000_0000);
            program.call(CallKind::Munmap, [0x7f00_0000_0000, 1 << 20, 0, 0, 0], 0);
        }
        program.end(&[&["mmap", "own_pool", "main"], &["mmap", "malloc", "load", "main"]]).remove(0)
    };
    let quarter = run(4);
    let sentence = &quarter.sentence;
    assert!(sentence.starts_with("mappings of 1 MiB are made and given back"), "{sentence}");
    assert!(
        sentence.ends_with("(25 % of the mappings are malloc's, the others the program's own)"),
        "{sentence}"
    );
    assert!(quarter.remedy.contains("doctor"), "{}", quarter.remedy);
    // What settings of malloc would reach is hardly worth a setting.
    let little = run(10);
    assert!(little.sentence.contains("(10 % of the mappings are malloc's"), "{}", little.sentence);
    assert!(little.remedy.starts_with("no setting of malloc reaches it"), "{}", little.remedy);
}

#[test]
fn a_heap_that_is_trimmed_and_grown_again_is_trim_thrash() {
    let mut program = Program::start();
    program.call(CallKind::Brk, [0; 5], 0x10_0000);
    program.call(CallKind::Brk, [0x20_0000, 0, 0, 0, 0], 0x20_0000);
    for _ in 0..150 {
        program.call(CallKind::Brk, [0x18_0000, 0, 0, 0, 0], 0x18_0000);
        program.call(CallKind::Brk, [0x20_0000, 0, 0, 0, 0], 0x20_0000);
    }
    let findings = program.end(&[]);
    assert_eq!((findings[0].pattern, findings[0].times), (Pattern::TopTrim, 150));
    assert!(findings[0].sentence.contains("128 pages each time"), "{}", findings[0].sentence);
}

#[test]
fn a_top_that_goes_down_and_up_in_many_steps_is_counted_at_each_of_them() {
    let mut program = Program::start();
    program.call(CallKind::Brk, [0; 5], 0x10_0000);
    let mut move_end = |end: u64| program.call(CallKind::Brk, [end, 0, 0, 0, 0], end);
    move_end(0x20_0000);
    for _ in 0..10 {
        (1..=16).for_each(|step| move_end(0x20_0000 - step * 0x1_0000));
        (1..=4).for_each(|step| move_end(0x10_0000 + step * 0x4_0000));
    }
    // What was given back and not taken again is no fault to come.
    move_end(0x10_0000);
    move_end(0x14_0000);
    move_end(0x18_0000);
    let finding = program.end(&[]).remove(0);
    assert_eq!((finding.pattern, finding.times), (Pattern::TopTrim, 161));
    let pages = finding.pages_each * finding.times as f64;
    assert!((pages - 10.5 * 256.0).abs() < 1e-6, "{pages}");
}

/// What is found of a heap's top that goes up by so many bytes and down again, so many times, with a pause after each.
fn trims(times: u64, bytes: u64, pause_ns: u64) -> Vec<Finding> {
    const START: u64 = 0x10_0000;
    let mut program = Program::start();
    program.call(CallKind::Brk, [0; 5], START);
    for _ in 0..times {
        program.call(CallKind::Brk, [START + bytes, 0, 0, 0, 0], START + bytes);
        program.call(CallKind::Brk, [START, 0, 0, 0, 0], START);
        program.now_ns += pause_ns;
    }
    program.end(&[])
}

#[test]
fn few_large_trims_are_thrash_by_their_pages() {
    let finding = trims(60, 96 << 20, 100_000_000).remove(0);
    assert_eq!((finding.pattern, finding.times), (Pattern::TopTrim, 59));
    assert!(finding.sentence.contains("24,600 pages each time"), "{}", finding.sentence);
    assert_eq!(trims(60, 4 << 20, 100_000_000), [], "10,000 pages a second");
    assert_eq!(trims(60, 2 << 20, 40_000_000).len(), 1, "25 times and 12,800 pages a second, 30,200 in all");
    assert_eq!(trims(60, 1 << 20, 0), [], "15,000 pages");
    assert_eq!(trims(LEAST_LARGE_TIMES, 96 << 20, 0), [], "taken again one time less");
}

#[test]
fn large_memory_that_is_given_back_and_not_taken_again_is_no_thrash() {
    let mut program = Program::start();
    let place = |number: u64| 0x7f00_0000_0000 + (number << 30);
    (0..60).for_each(|number| program.call(CallKind::Mmap, [0, 1 << 28, 3, ANONYMOUS, 0], place(number)));
    (0..60).for_each(|number| program.call(CallKind::Munmap, [place(number), 1 << 28, 0, 0, 0], 0));
    (0..5).for_each(|number| program.call(CallKind::Mmap, [0, 1 << 28, 3, ANONYMOUS, 0], place(number)));
    assert_eq!(program.end(&[]), []);
}

#[test]
fn few_stacks_of_threads_are_no_thrash_however_long_they_are() {
    let mut program = Program::start();
    for _ in 0..60 {
        program.call(CallKind::Mmap, [0, 64 << 20, 0, 0x2_0022, 0], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 64 << 20, 0, 0, 0], 0);
    }
    assert_eq!(program.end(&[]), []);
}

#[test]
fn trims_of_an_arena_are_told_from_purges_of_other_allocators() {
    let purge = |length: u64| {
        let mut program = Program::start();
        let start = 0x7f00_0000_0000;
        program.call(CallKind::Mmap, [0, length, 0, 0x4022, u64::MAX], start);
        for _ in 0..150 {
            program.call(CallKind::Madvise, [start + 0x10_0000, 0x2_0000, 4, 0, 0], 0);
        }
        program.end(&[])[0].pattern
    };
    assert_eq!(purge(64 << 20), Pattern::ArenaTrim);
    assert_eq!(purge(1 << 30), Pattern::Purge);
}

#[test]
fn a_stack_that_is_given_back_when_its_thread_ends_is_no_purge_of_an_allocator() {
    let mut program = Program::start();
    let start = 0x7f00_0000_0000;
    program.call(CallKind::Mmap, [0, 8 << 20, 0, 0x2_0022, u64::MAX], start);
    for _ in 0..150 {
        program.call(CallKind::Madvise, [start, (8 << 20) - 0x8000, 4, 0, 0], 0);
    }
    let [finding] = program.end(&[]).try_into().unwrap();
    assert_eq!((finding.pattern, finding.times), (Pattern::Stack, 149));
    assert_eq!(
        finding.sentence,
        "threads' stacks of 8 MiB are taken and given back 16 µs later; 61,700 times a second"
    );
    assert!(finding.remedy.contains("thread pool"), "{}", finding.remedy);
}

#[test]
fn the_stacks_of_which_little_is_touched_stand_last() {
    let mut program = Program::start();
    let (stack, pool) = (0x7f00_0000_0000, 0x7e00_0000_0000);
    program.call(CallKind::Mmap, [0, 8 << 20, 0, 0x2_0022, u64::MAX], stack);
    for _ in 0..150 {
        program.call(CallKind::Madvise, [stack, (8 << 20) - 0x8000, 4, 0, 0], 0);
        program.call(CallKind::Madvise, [pool, 1 << 20, 4, 0, 0], 0);
    }
    let patterns: Vec<Pattern> = program.end(&[]).iter().map(|finding| finding.pattern).collect();
    assert_eq!(patterns, [Pattern::Purge, Pattern::Stack]);
}

#[test]
fn addresses_without_access_over_the_same_memory_purge_it_as_madvise_does() {
    let mut program = Program::start();
    let heap = 0x7f00_0000_0000;
    program.call(CallKind::Mmap, [0, 1 << 30, 0, ANONYMOUS, u64::MAX], heap);
    for _ in 0..150 {
        program.call(CallKind::Mprotect, [heap, 1 << 20, 3, 0, 0], 0);
        program.call(CallKind::Mmap, [heap, 1 << 20, 0, ANONYMOUS | 0x10, u64::MAX], heap);
    }
    let findings = program.end(&[]);
    assert_eq!(
        findings.iter().map(|finding| (finding.pattern, finding.times)).collect::<Vec<_>>(),
        [(Pattern::Purge, 149)]
    );
}

#[test]
fn what_others_than_malloc_purge_is_not_put_down_to_an_allocators_delay() {
    let run = |stack: &[&str]| {
        let mut program = Program::start();
        program.stack = Some(TakenStack { index: 0, weight: 1 });
        for _ in 0..150 {
            program.call(CallKind::Madvise, [0x7f00_0000_0000, 1 << 20, 4, 0, 0], 0);
        }
        program.end(&[stack]).remove(0)
    };
    let by_malloc = run(&["madvise", "je_pages_purge_forced", "je_arena_decay", "free", "work", "main"]);
    assert!(by_malloc.sentence.starts_with("the same pages are given back again and again"));
    assert!(by_malloc.remedy.starts_with("let the allocator wait longer"), "{}", by_malloc.remedy);
    let own = run(&["madvise", "reset_arena", "main"]);
    assert_eq!((by_malloc.caller, own.caller.unwrap().function.as_str()), (None, "reset_arena"));
    assert!(own.remedy.starts_with("let it keep the pages longer"), "{}", own.remedy);
    let thread_end = run(&["madvise", "start_thread", "clone3"]);
    assert!(thread_end.sentence.starts_with("threads' stacks"), "{}", thread_end.sentence);
    assert!(thread_end.remedy.contains("thread pool"), "{}", thread_end.remedy);
}

#[test]
fn what_gos_run_time_purges_is_told_with_its_own_settings() {
    let mut program = Program::start();
    program.stack = Some(TakenStack { index: 0, weight: 1 });
    for _ in 0..150 {
        program.call(CallKind::Madvise, [0x7f00_0000_0000, 1 << 20, 4, 0, 0], 0);
    }
    let chain = ["runtime.madvise", "runtime.sysUnusedOS", "runtime.sysUnused", "runtime.systemstack"];
    let finding = program.end(&[&chain]).remove(0);
    assert!(finding.sentence.starts_with("Go's run time (its scavenger) gives"), "{}", finding.sentence);
    assert!(finding.remedy.contains("GOGC"), "{}", finding.remedy);
    assert_eq!((finding.pattern, finding.caller), (Pattern::Purge, None));
}

#[test]
fn what_php_and_python_map_for_themselves_is_told_with_their_own_settings() {
    let found = |chain: &[&str]| {
        let mut program = Program::start();
        program.stack = Some(TakenStack { index: 0, weight: 1 });
        for _ in 0..200 {
            program.call(CallKind::Mmap, [0, 1 << 20, 3, ANONYMOUS, u64::MAX], 0x7f00_0000_0000);
            program.call(CallKind::Munmap, [0x7f00_0000_0000, 1 << 20, 0, 0, 0], 0);
        }
        let finding = program.end(&[chain]).remove(0);
        (finding.sentence, finding.remedy, finding.caller.map(|caller| caller.function))
    };
    let (sentence, remedy, caller) = found(&["mmap", "php8.2+0x2d3b57", "execute_ex"]);
    assert!(sentence.starts_with("PHP's memory manager maps 1 MiB and unmaps it"), "{sentence}");
    assert!(remedy.contains("USE_ZEND_ALLOC=0") && caller.is_none(), "{remedy}");
    let (sentence, remedy, _) = found(&["mmap", "_PyObject_ArenaMmap", "new_arena"]);
    assert!(sentence.starts_with("Python's memory manager maps"), "{sentence}");
    assert!(remedy.contains("PYTHONMALLOC=malloc"), "{remedy}");
    let (sentence, _, caller) = found(&["mmap", "pool_grow", "php8.2+0x2d3b57", "execute_ex"]);
    assert!(sentence.starts_with("the program itself maps"), "{sentence}");
    assert_eq!(caller.as_deref(), Some("pool_grow"));
    let (sentence, ..) = found(&["mmap", "sysmalloc", "malloc", "python3.11+0x62d098"]);
    assert!(sentence.starts_with("blocks of "), "malloc's, whoever asked it: {sentence}");
}

#[test]
fn what_is_rare_or_slow_is_quiet() {
    let mut program = Program::start();
    for _ in 0..LEAST_TIMES {
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, 0], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 135_168, 0, 0, 0], 0);
    }
    assert_eq!(program.end(&[]), []);
    let mut program = Program::start();
    for _ in 0..LEAST_TIMES * 2 {
        program.now_ns += 60_000_000;
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, 0], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 135_168, 0, 0, 0], 0);
    }
    assert_eq!(program.end(&[]), []);
    let mut program = Program::start();
    for place in 0..500 {
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, 0], 0x7f00_0000_0000 + place * 0x10_0000);
    }
    assert_eq!(program.end(&[]), [], "what is kept is no churn");
}

#[test]
fn numbers_are_written_as_people_say_them() {
    assert_eq!([0.4, 31_044.0, 987.6, 1_234_567.0].map(whole), ["0", "31,000", "988", "1,230,000"]);
    assert_eq!([33.2, 1.0, 2.5, 3.0].map(pages), ["33 pages", "1 page", "2.5 pages", "3 pages"]);
}

#[test]
fn a_damaged_recording_in_which_the_last_time_comes_before_the_first_ends_nothing() {
    let mut program = Program::start();
    for _ in 0..1000 {
        program.call(CallKind::Mmap, [0, 135_168, 3, ANONYMOUS, u64::MAX], 0x7f00_0000_0000);
        program.call(CallKind::Munmap, [0x7f00_0000_0000, 135_168, 0, 0, 0], 0);
    }
    let mut recording = program.tally.finish(Circumstances::default());
    recording.cycles.iter_mut().for_each(|cycle| cycle.seen_ns = (2, 1));
    assert_eq!(findings(&recording).len(), 1);
}

#[test]
fn what_comes_less_than_once_a_second_is_not_told_as_never() {
    let rates = [0.04, 1.2, 31_250.0].map(rate);
    assert_eq!(rates, ["0.04 times a second", "1.2 times a second", "31,300 times a second"]);
}
