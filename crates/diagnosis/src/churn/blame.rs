//! Whose calls they are: the frames of a call chain that belong to the allocator, and the first one that does not.

use std::collections::BTreeMap;

use faultless_records::churn_recording::{Amount, ChurnRecording};
use faultless_records::memory_call::Operation;

/// Functions by which programs ask an allocator for memory or give it back.
const ENTRANCES: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "operator new",
    "operator delete",
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_memalign",
    "__GI___libc_malloc",
    "__GI___libc_free",
    "__GI___libc_realloc",
    "_Znwm",
    "_Znam",
    "_ZdlPv",
    "_ZdaPv",
];

/// The inside of glibc's malloc and the wrappers of system calls: where a chain ends when its entrance was not seen.
const INSIDES: &[&str] = &[
    "mmap",
    "mmap64",
    "__mmap",
    "munmap",
    "__munmap",
    "brk",
    "__brk",
    "sbrk",
    "__sbrk",
    "mremap",
    "__mremap",
    "madvise",
    "__madvise",
    "mprotect",
    "__mprotect",
    "sysmalloc",
    "sysmalloc_mmap",
    "_int_malloc",
    "_int_free",
    "_int_free_chunk",
    "_int_free_merge_chunk",
    "_int_free_maybe_consolidate",
    "_int_realloc",
    "_int_memalign",
    "systrim",
    "systrim.constprop.0",
    "systrim.isra.0",
    "heap_trim",
    "heap_trim.isra.0",
    "munmap_chunk",
    "mremap_chunk",
    "tcache_init",
    "ptmalloc_init",
    "arena_get2",
    "arena_get2.part.0",
    "new_heap",
    "alloc_new_heap",
    "grow_heap",
    "shrink_heap",
    "malloc_consolidate",
    "__default_morecore",
    "__glibc_morecore",
    "malloc_hook_ini",
    "checked_request2size",
];

/// A frame's function without arguments, template or module.
fn function(frame: &str) -> &str {
    let name = frame.split([' ', '+', '@', '(']).next().unwrap_or(frame);
    if frame.starts_with("operator new") {
        "operator new"
    } else if frame.starts_with("operator delete") {
        "operator delete"
    } else {
        name
    }
}

fn is_entrance(frame: &str) -> bool {
    let name = function(frame);
    ENTRANCES.contains(&name)
        || name.starts_with("_Znwm")
        || name.starts_with("_Znam")
        || name.starts_with("_ZdlPv")
}

fn is_inside(frame: &str) -> bool {
    is_entrance(frame) || INSIDES.contains(&function(frame))
}

/// The first frame, from the innermost, that is not the allocator's or a system call's; the innermost when all are.
#[must_use]
pub fn blamed(stack: &[String]) -> Option<&str> {
    stack.iter().find(|frame| !is_inside(frame)).or_else(|| stack.first()).map(String::as_str)
}

/// Whether a call chain goes through malloc and its family.
#[must_use]
pub fn goes_through_malloc(stack: &[String]) -> bool {
    stack.iter().any(|frame| is_entrance(frame))
}

/// Whether most of these calls were made by malloc; none when no chain of them is known.
#[must_use]
pub fn is_by_malloc(recording: &ChurnRecording, operation: Operation) -> Option<bool> {
    let mut by_malloc = 0;
    let mut all = 0;
    for caller in recording.callers.iter().filter(|caller| caller.operation == operation) {
        let Some(stack) = recording.stacks.get(caller.stack as usize).filter(|stack| !stack.is_empty())
        else {
            continue;
        };
        all += caller.amount.count;
        if goes_through_malloc(stack) {
            by_malloc += caller.amount.count;
        }
    }
    (all > 0).then_some(by_malloc * 2 > all)
}

/// One guilty function and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Its name.
    pub function: String,
    /// Who called it, if that is known.
    pub called_by: Option<String>,
    /// What it had done.
    pub operation: Operation,
    /// How often, and how many bytes.
    pub amount: Amount,
    /// Whether by way of malloc.
    pub through_malloc: bool,
}

/// The functions that calls are blamed on, most calls first.
#[must_use]
pub fn culprits(recording: &ChurnRecording) -> Vec<Culprit> {
    let mut sums: BTreeMap<(&str, Operation, bool), (Amount, Option<&str>)> = BTreeMap::new();
    for caller in &recording.callers {
        let Some(stack) = recording.stacks.get(caller.stack as usize) else { continue };
        let Some(function) = blamed(stack) else { continue };
        let place = stack.iter().position(|frame| frame == function).unwrap_or(0);
        let key = (function, caller.operation, goes_through_malloc(stack));
        let (sum, _) =
            sums.entry(key).or_insert_with(|| (Amount::default(), stack.get(place + 1).map(String::as_str)));
        sum.count += caller.amount.count;
        sum.bytes = sum.bytes.saturating_add(caller.amount.bytes);
    }
    let mut culprits: Vec<Culprit> = sums
        .into_iter()
        .map(|((function, operation, through_malloc), (amount, called_by))| Culprit {
            function: function.to_owned(),
            called_by: called_by.map(str::to_owned),
            operation,
            amount,
            through_malloc,
        })
        .collect();
    culprits.sort_by(|one, other| {
        other.amount.count.cmp(&one.amount.count).then(one.function.cmp(&other.function))
    });
    culprits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|&frame| frame.to_owned()).collect()
    }

    #[test]
    fn the_allocator_is_not_to_blame_for_what_it_was_asked() {
        let chain = stack(&[
            "mmap",
            "sysmalloc",
            "_int_malloc",
            "malloc",
            "operator new(unsigned long)",
            "load",
            "main",
        ]);
        assert_eq!(blamed(&chain), Some("load"));
        assert!(goes_through_malloc(&chain));
        assert_eq!(blamed(&stack(&["munmap", "own_pool"])), Some("own_pool"));
        assert_eq!(blamed(&stack(&["mmap"])), Some("mmap"));
        assert_eq!(blamed(&[]), None);
    }

    #[test]
    fn names_that_only_begin_alike_are_others() {
        assert!(!goes_through_malloc(&stack(&["malloc_like_function", "freeze", "main"])));
        assert!(goes_through_malloc(&stack(&["free+0x10"])));
    }
}
