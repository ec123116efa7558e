//! Stacks of threads.
//!
//! glibc puts a thread's control block at the upper end of its stack. It begins with a pointer to itself, which it repeats two
//! words on, has the thread's number at a fixed place, and where the stack begins, how long it is and how much of that is
//! guard as three words in a row. So a stack's exact range is known without stopping the thread, also that of a thread that has
//! ended, whose stack libc keeps for the next one. Source: `struct pthread` in glibc's nptl/descr.h, 2.28 to 2.43, x86-64.

use faultless_records::contents::Extent;
use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::thread::Thread;

use super::Sight;
use super::claim::{Claims, Evidence, Strength};
use super::kind::Kind;
use super::loaded::Loaded;
use super::reader::{Reader, extent_of, mapping_at};

/// What proves the stack of a thread that has ended.
pub const OF_ENDED_THREAD: &str = "control block of a thread that has ended";

/// How far above a stack pointer the control block is searched.
const LARGEST_STACK_BYTES: u64 = 64 << 20;

/// How far below the end of a stack the control block of a thread that has ended is searched: thread-local storage of all
/// libraries lies above it only in part.
const TOP_BYTES: u64 = 64 << 10;

/// Largest piece in which the first thread's control block is searched; the loader makes one of a few pages.
const FIRST_BLOCK_MAPPING_BYTES: u64 = 1 << 20;

/// Place of the thread's number in its control block.
const NUMBER: u64 = 0x2d0;

/// Where in the control block the range of the stack is searched, in bytes.
const RANGE_PLACES: std::ops::Range<u64> = 0x580..0xa00;

/// How many words before the range the function that the thread began with is found at most.
const START_ROUTINE_WORDS: u64 = 14;

/// A thread's stack, guard included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stack {
    extent: Extent,
    /// The thread's number; 0 when it has ended.
    number: i32,
    /// Where the range stands.
    range_at: u64,
}

/// Claims all stacks that can be proven, and where only a stack pointer speaks for one, that one, too.
pub fn claim(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    for thread in sight.threads {
        claim_running(sight, reader, loaded, thread, claims);
    }
    claim_kept(sight, reader, loaded, claims);
}

fn claim_running(
    sight: &Sight<'_>,
    reader: &Reader<'_>,
    loaded: &Loaded,
    thread: &Thread,
    claims: &mut Claims,
) {
    let Some(pointer) = thread.stack_pointer else { return };
    let Some(mapping) = mapping_at(sight.mappings, pointer) else { return };
    if !mapping.is_anonymous() || !mapping.is_writable() {
        return;
    }
    let end = sight.end_of_row(pointer).min(pointer.saturating_add(LARGEST_STACK_BYTES));
    let found = control_block(reader, Extent { start: pointer & !4095, end });
    match found.and_then(|block| stack_of(reader, block)) {
        Some(stack) if stack.extent.contains(pointer) => add(reader, loaded, sight, &stack, claims),
        _ => {
            let lower = sight.mappings.iter().find(|lower| lower.end == mapping.start);
            let guard = lower.filter(|lower| lower.is_inaccessible() && lower.bytes() <= 1 << 20);
            let start = guard.map_or(mapping.start, |guard| guard.start);
            let detail = format!("thread {} ({})", thread.number, thread.name);
            let evidence = Evidence::with(Strength::Pointer, "stack pointer of a thread", detail);
            for gap in claims.gaps(Extent { start, end: mapping.end }) {
                claims.add(gap, Kind::ThreadStack, evidence.clone());
            }
        }
    }
}

/// Stacks of threads that have ended or that were running, from the top of what nobody claims downwards.
fn claim_kept(sight: &Sight<'_>, reader: &Reader<'_>, loaded: &Loaded, claims: &mut Claims) {
    let writable = sight.mappings.iter().filter(|mapping| mapping.is_anonymous() && mapping.is_writable());
    for mapping in writable.filter(|mapping| mapping.bytes() >= 4 * PAGE_BYTES) {
        for gap in claims.gaps(extent_of(mapping)) {
            let mut end = gap.end;
            loop {
                let top = Extent { start: gap.start.max(end.saturating_sub(TOP_BYTES)), end };
                let Some(block) = control_block(reader, top) else { break };
                let Some(stack) = stack_of(reader, block).filter(|stack| stack.extent.end <= end) else {
                    break;
                };
                add(reader, loaded, sight, &stack, claims);
                end = stack.extent.start;
                if end <= gap.start {
                    break;
                }
            }
        }
    }
}

/// Claims the small mapping that the loader makes for the first thread's block and static thread-local storage, where it is joined
/// with what else is known.
pub fn claim_first_control_block(sight: &Sight<'_>, reader: &Reader<'_>, claims: &mut Claims) {
    for gap in sight.unclaimed(claims).into_iter().filter(|gap| gap.bytes() <= FIRST_BLOCK_MAPPING_BYTES) {
        if control_block(reader, gap).is_some_and(|block| number_at(reader, block) > 0) {
            let evidence = Evidence::plain(Strength::Contents, "control block of the first thread");
            claims.add(gap, Kind::StaticData, evidence);
        }
    }
}

fn add(reader: &Reader<'_>, loaded: &Loaded, sight: &Sight<'_>, stack: &Stack, claims: &mut Claims) {
    let places = (1..=START_ROUTINE_WORDS).rev();
    let starter = places
        .filter_map(|words| reader.word(stack.range_at.checked_sub(8 * words)?))
        .find_map(|address| loaded.with_code_at(address));
    let starter = starter.map(super::loaded::Object::file_name);
    let is_java = starter.as_deref().is_some_and(|name| name.starts_with("libjvm"));
    let kind = if is_java { Kind::JavaThreadStack } else { Kind::ThreadStack };
    let thread = sight.threads.iter().find(|thread| thread.number == stack.number);
    let started = starter.map(|name| format!(", begun in {name}")).unwrap_or_default();
    let evidence = match thread {
        Some(thread) => Evidence::with(
            Strength::Contents,
            "control block of a thread",
            format!("thread {} ({}){started}", thread.number, thread.name),
        ),
        None => Evidence::with(
            Strength::Contents,
            OF_ENDED_THREAD,
            format!("kept for the next thread, or until it is joined{started}"),
        ),
    };
    claims.add(stack.extent, kind, evidence);
}

/// The lowest control block in a range.
fn control_block(reader: &Reader<'_>, extent: Extent) -> Option<u64> {
    let mut found = None;
    reader.each_page(extent, |page, words| {
        // Control blocks are aligned to 64 bytes.
        for (place, word) in words.iter().enumerate().step_by(8) {
            let address = page + 8 * place as u64;
            if *word == address && reader.word(address + 16) == Some(address) {
                found = Some(address);
                return true;
            }
        }
        false
    });
    found
}

fn number_at(reader: &Reader<'_>, block: u64) -> i32 {
    let number = block.checked_add(NUMBER).and_then(|at| reader.half(at));
    number.and_then(|number| i32::try_from(number).ok()).unwrap_or(0)
}

fn stack_of(reader: &Reader<'_>, block: u64) -> Option<Stack> {
    let at = RANGE_PLACES.start;
    let words = reader.words(block.checked_add(at)?, ((RANGE_PLACES.end - at) / 8) as usize);
    words.windows(3).enumerate().find_map(|(place, window)| {
        let [start, bytes, guard] = *window else { return None };
        let extent = Extent::new(start, bytes);
        let pages = |number: u64| number.is_multiple_of(PAGE_BYTES);
        let fits = start != 0 && pages(start) && pages(guard) && guard < bytes && extent.contains(block);
        let is_at_top = extent.end.checked_sub(block)? <= 4 * TOP_BYTES;
        (fits && is_at_top).then(|| Stack {
            extent: Extent { start, end: extent.end.next_multiple_of(PAGE_BYTES) },
            number: number_at(reader, block),
            range_at: block + at + 8 * place as u64,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::loaded::Object;
    use super::super::reader::made_up::{MadeUp, mapping};
    use super::*;

    const STACK: u64 = 0x7f00_0000_0000;
    const SIZE: u64 = 0x10_0000;

    fn put_block(memory: &mut MadeUp, stack: u64, number: u64, routine: u64) {
        let block = stack + SIZE - 0x980;
        memory.put(block, &[block, 0, block]);
        memory.put(block + NUMBER, &[number]);
        memory.put(block + 0x640, &[routine, 0]);
        memory.put(block + 0x690, &[stack, SIZE, 0x1000]);
        memory.put(stack + SIZE - 0x3000, &[1]);
    }

    fn virtual_machine() -> Loaded {
        let code = vec![Extent::new(0x5000_0000, 0x1000)];
        Loaded { objects: vec![Object { path: b"/jdk/libjvm.so".to_vec(), code, ..Object::default() }] }
    }

    #[test]
    fn a_stack_joined_with_other_memory_is_found_exactly_with_its_thread() {
        let mut memory = MadeUp::default();
        put_block(&mut memory, STACK, 42, 0x5000_0010);
        put_block(&mut memory, STACK - SIZE, 0, 0);
        let mappings = [
            mapping(STACK - SIZE + 0x1000, STACK, b"rw-p", ""),
            mapping(STACK, STACK + 0x1000, b"---p", ""),
            mapping(STACK + 0x1000, STACK + 2 * SIZE, b"rw-p", ""),
        ];
        let pointer = Some(STACK + SIZE - 0x2ff0);
        let threads = [Thread { number: 42, name: "GC Thread#0".into(), stack_pointer: pointer }];
        let sight = Sight { mappings: &mappings, contents: None, threads: &threads };
        let mut claims = Claims::default();
        claim(&sight, &Reader::new(&memory), &virtual_machine(), &mut claims);
        let live = claims.at(STACK).unwrap();
        assert_eq!((live.kind, live.extent), (Kind::JavaThreadStack, Extent::new(STACK, SIZE)));
        assert_eq!(&*live.evidence.detail, "thread 42 (GC Thread#0), begun in libjvm.so");
        let ended = claims.at(STACK - 1).unwrap();
        assert_eq!((ended.kind, ended.extent), (Kind::ThreadStack, Extent::new(STACK - SIZE, SIZE)));
        assert_eq!(claims.at(STACK + SIZE), None, "what lies above is nobody's stack");
    }

    #[test]
    fn what_looks_like_a_control_block_and_states_a_range_up_to_the_last_address_has_no_stack() {
        let mut memory = MadeUp::default();
        put_block(&mut memory, STACK, 7, 0);
        let block = STACK + SIZE - 0x980;
        memory.put(block + 0x690, &[STACK, u64::MAX, 0x1000]);
        assert!(stack_of(&Reader::new(&memory), block).is_none());
    }

    #[test]
    fn a_block_that_the_kernel_joined_with_the_first_threads_control_block_is_not_part_of_that() {
        let mut memory = MadeUp::default();
        memory.put(STACK, &[0, 0x31002]);
        let block = STACK + 0x31000 + 0x740;
        memory.put(block, &[block, 0, block]);
        memory.put(block + NUMBER, &[42]);
        let mappings = [mapping(STACK, STACK + 0x34000, b"rw-p", "")];
        let parts =
            super::super::classify(&Sight { mappings: &mappings, contents: Some(&memory), threads: &[] });
        let seen: Vec<_> = parts.iter().map(|part| (part.kind, part.extent.bytes())).collect();
        assert_eq!(seen, [(Kind::GlibcLargeBlock, 0x31000), (Kind::StaticData, 0x3000)]);
    }

    #[test]
    fn without_a_control_block_only_the_stack_pointer_speaks() {
        let mappings =
            [mapping(STACK - 0x1000, STACK, b"---p", ""), mapping(STACK, STACK + SIZE, b"rw-p", "")];
        let threads = [Thread { number: 7, name: "x".into(), stack_pointer: Some(STACK + 0x8000) }];
        let sight = Sight { mappings: &mappings, contents: None, threads: &threads };
        let mut claims = Claims::default();
        claim(&sight, &Reader::new(&MadeUp::default()), &Loaded::default(), &mut claims);
        let found = claims.at(STACK - 1).unwrap();
        assert_eq!((found.kind, found.evidence.strength), (Kind::ThreadStack, Strength::Pointer));
    }
}
