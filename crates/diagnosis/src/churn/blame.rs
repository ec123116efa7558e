//! Whose calls they are: the frames of a call chain that belong to the allocator, and the first one that does not.

use std::collections::BTreeMap;

use faultless_records::churn_recording::{Amount, ChurnRecording};
use faultless_records::memory_call::Operation;

use crate::faults::blame::is_of_standard_library;

/// Stands for the callers of calls whose chains were lost.
pub const NOT_SEEN: &str = "[callers not seen]";

/// By this a program has malloc give back what it would keep.
pub(super) const MALLOC_TRIM: &str = "malloc_trim";

/// Start of the functions of Go's run time.
pub(super) const GO: &str = "runtime.";

/// Functions by which programs ask an allocator for memory or give it back.
const ENTRANCES: &[&str] = &[
    "malloc",
    "malloc2",
    "calloc",
    "calloc2",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "free_sized",
    "free_aligned_sized",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    MALLOC_TRIM,
    // jemalloc's own.
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
];

/// Starts of functions of allocators that are linked into programs: jemalloc, as Redis and as Rust build it, mimalloc, oneTBB. Their
/// entrances jump to others, so that they are in few chains.
const LINKED: &[&str] = &[
    "je_",
    "rjem_",
    "mi_malloc",
    "mi_zalloc",
    "mi_calloc",
    "mi_realloc",
    "mi_free",
    "mi_heap_",
    "mi_page_",
    "mi_segment_",
    "mi_arena_",
    "mi_os_",
    "scalable_",
];

/// The wrappers of system calls; the last are those of Go programs with C in them.
const CALLS: &[&str] =
    &["mmap", "munmap", "brk", "sbrk", "mremap", "madvise", "mprotect", "x_cgo_mmap", "x_cgo_munmap"];

/// The functions by which Go's run time makes them, and by which it changes to the stack that it makes them on; above that a chain seldom
/// goes. Source: mem.go, mem_linux.go, malloc.go, cgo_mmap.go of Go 1.26.
const GO_CALLS: &[&str] = &[
    "mmap",
    "munmap",
    "madvise",
    "callCgoMmap",
    "callCgoMunmap",
    "sysMmap",
    "sysMunmap",
    "sysAlloc",
    "sysReserve",
    "sysReserveAligned",
    "sysMap",
    "sysUsed",
    "sysUnused",
    "sysFree",
    "sysFault",
    "sysHugePage",
    "sysNoHugePage",
    "sysHugePageCollapse",
    "systemstack",
    "mcall",
];

/// The inside of glibc's malloc. Its entrance is not in every chain: since 2.43 `free` jumps to `_int_free_chunk`.
const INSIDES: &[&str] = &[
    "morecore",
    "glibc_morecore",
    "default_morecore",
    "sysmalloc",
    "sysmalloc_mmap",
    "systrim",
    "heap_trim",
    "munmap_chunk",
    "mremap_chunk",
    "minimal_malloc",
    "tcache_init",
    "tcache_free_init",
    "tcache_key_initialize",
    "ptmalloc_init",
    "arena_get2",
    "arena_get_retry",
    "new_heap",
    "alloc_new_heap",
    "grow_heap",
    "shrink_heap",
    "malloc_consolidate",
    "int_malloc",
    "int_free",
    "int_free_chunk",
    "int_free_create_chunk",
    "int_free_merge_chunk",
    "int_free_maybe_consolidate",
    "int_free_maybe_trim",
    "unlink_chunk",
    "int_realloc",
    "int_memalign",
    "mid_memalign",
    "checked_request2size",
];

/// The inside of musl's malloc (mallocng), in programs that it is linked into. It has no unwind information, so a chain that begins there
/// mostly ends there, too. Names that programs may have as well count only beside the first, which is musl's alone.
const MUSL: &[&str] = &[
    MUSLS_OWN,
    "malloc_alloc_meta",
    "malloc_allzerop",
    "malloc_donate",
    "simple_malloc",
    "default_malloc",
    "activate_group",
    "alloc_group",
    "alloc_slot",
    "donate",
    "enframe",
    "free_group",
    "get_meta",
    "get_nominal_size",
    "get_slot_index",
    "get_stride",
    "nontrivial_free",
    "size_overflows",
    "size_to_class",
    "try_avail",
];
const MUSLS_OWN: &str = "malloc_impl";

/// A function's plain name: without arguments, module, the marks of glibc's own aliases (`__GI___libc_malloc`, `mmap64`) and of
/// the compiler (`systrim.constprop.0`).
pub(super) fn plain_name(frame: &str) -> &str {
    for operator in ["operator new", "operator delete"] {
        if frame.starts_with(operator) {
            return operator;
        }
    }
    let name = frame.split([' ', '+', '@', '(', '.']).next().unwrap_or(frame);
    let name = name.strip_prefix("__GI_").unwrap_or(name).trim_start_matches('_');
    let name = name.strip_prefix("libc_").unwrap_or(name);
    name.strip_suffix("64").unwrap_or(name)
}

/// Whether a function is one by which programs ask an allocator for memory or give it back.
pub(crate) fn is_entrance(frame: &str) -> bool {
    let name = plain_name(frame);
    ENTRANCES.contains(&name) || name.starts_with("operator ") || is_linked(frame)
}

fn is_linked(frame: &str) -> bool {
    let name = plain_name(frame);
    LINKED.iter().any(|start| name.starts_with(start))
}

/// The place in a chain, from the innermost frame, up to which all is the allocator's, whatever its functions are called: an entrance,
/// or the last function of one that is linked into the program.
pub(crate) fn entrance<'frame>(frames: impl Iterator<Item = &'frame str>) -> Option<usize> {
    let mut found = None;
    for (place, frame) in frames.enumerate() {
        if is_linked(frame) || (found.is_none() && is_entrance(frame)) {
            found = Some(place);
        }
    }
    found
}

fn is_of_malloc(frame: &str) -> bool {
    is_entrance(frame) || INSIDES.contains(&plain_name(frame))
}

pub(crate) fn is_inside(frame: &str) -> bool {
    is_of_malloc(frame) || CALLS.contains(&plain_name(frame))
}

fn is_go_call(frame: &str) -> bool {
    let name = frame.strip_prefix(GO).and_then(|name| name.split('.').next());
    name.is_some_and(|name| GO_CALLS.contains(&name.strip_suffix("OS").unwrap_or(name)))
}

/// Python's functions for memory, which ask malloc for what is large.
fn is_of_python(frame: &str) -> bool {
    let name = plain_name(frame);
    let function = name.strip_prefix("PyMem_").or_else(|| name.strip_prefix("PyObject_"));
    function.is_some_and(|function| {
        let function = function.trim_start_matches("Debug").trim_start_matches("Raw");
        ["Malloc", "Calloc", "Alloc", "Realloc", "Free"].contains(&function)
    })
}

/// Nothing can be said of code without a name and a file: the end of a chain that was cut off, or what it was unwound to wrongly.
pub(crate) fn is_nobodys(frame: &str) -> bool {
    frame.starts_with('[') || frame.starts_with("0x")
}

/// The first frame, from the innermost, that is neither the allocator's, nor a system call's, nor of a language's own library, nor
/// nobody's. What lies inside an entrance of malloc is the allocator's, whatever its functions are
/// called. Where nothing else is left, the first that is the library's, which of Go's says what the memory is for; else the innermost.
#[must_use]
pub fn blamed(stack: &[String]) -> Option<&str> {
    let outside = entrance(stack.iter().map(String::as_str)).unwrap_or(0);
    let mut others = stack[outside..].iter().filter(|frame| !is_inside(frame) && !is_nobodys(frame));
    let first = others.clone().find(|frame| !is_go_call(frame)).or(others.clone().next());
    let own = others.find(|frame| !is_of_standard_library(frame) && !is_of_python(frame));
    own.or(first).or(stack.first()).map(String::as_str)
}

/// Who called a function of a chain: the next outside of it that is another one, for a compiler divides functions
/// (`PyUnicode_New.part.0`), and some call themselves.
pub(super) fn caller_of<'stack>(stack: &'stack [String], function: &str) -> Option<&'stack str> {
    stack.iter().map(String::as_str).skip_while(|frame| *frame != function).find(|frame| *frame != function)
}

/// The frames of a chain from whoever asked the allocator, or made the system call: without what lies inside, however the chain
/// was taken. All of it where nothing else is known.
#[must_use]
pub fn from_asker(stack: &[String]) -> &[String] {
    let entrance = entrance(stack.iter().map(String::as_str)).unwrap_or(0);
    let inside = stack[entrance..].iter().take_while(|frame| is_inside(frame)).count();
    match &stack[entrance + inside..] {
        [] => stack,
        rest => rest,
    }
}

/// Whether these chains are of a program that musl's malloc is linked into.
pub(crate) fn has_musls_malloc<'chain>(mut chains: impl Iterator<Item = &'chain [String]>) -> bool {
    chains.any(|chain| chain.iter().any(|frame| plain_name(frame) == MUSLS_OWN))
}

/// In a program that musl's malloc is linked into: whether the function lies inside it.
pub(crate) fn is_inside_musls(frame: &str) -> bool {
    MUSL.contains(&plain_name(frame))
}

/// Whether a call chain goes through malloc and its family.
pub(crate) fn goes_through_malloc(stack: &[String]) -> bool {
    stack.iter().any(|frame| is_of_malloc(frame))
}

/// One guilty function and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Its name.
    pub function: String,
    /// Who called it most, if that is known.
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
    #[derive(Default)]
    struct Sum<'recording> {
        amount: Amount,
        callers: BTreeMap<&'recording str, u64>,
    }
    let mut sums: BTreeMap<(&str, Operation, bool), Sum> = BTreeMap::new();
    for caller in &recording.callers {
        let Some(stack) = recording.stacks.get(caller.stack as usize) else { continue };
        let Some(function) = blamed(stack) else { continue };
        let key = (function, caller.operation, goes_through_malloc(stack));
        let Sum { amount, callers } = sums.entry(key).or_default();
        amount.count += caller.amount.count;
        amount.bytes = amount.bytes.saturating_add(caller.amount.bytes);
        if let Some(outer) = caller_of(stack, function) {
            *callers.entry(outer).or_default() += caller.amount.count;
        }
    }
    let mut culprits: Vec<Culprit> = sums
        .into_iter()
        .map(|((function, operation, through_malloc), Sum { amount, callers })| Culprit {
            function: function.to_owned(),
            called_by: callers
                .into_iter()
                .max_by_key(|(_, count)| *count)
                .map(|(caller, _)| caller.to_owned()),
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
    use crate::churn::circumstances::Circumstances;
    use crate::churn::tally::Tally;
    use faultless_records::memory_call::{CallKind, MemoryCall, MemoryEvent, TakenStack};

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|&frame| frame.to_owned()).collect()
    }

    #[test]
    fn who_calls_a_function_most_is_named_by_however_many_ways() {
        let mut tally = Tally::begin(0);
        for index in [0, 0, 0, 1, 1, 2, 2] {
            tally.take(&MemoryEvent::Call(MemoryCall {
                time_ns: 1,
                pid: 1,
                tid: 1,
                kind: CallKind::Munmap,
                arguments: [0x1000, 4096, 0, 0, 0],
                result: Ok(0),
                stack: Some(TakenStack { index, weight: 1 }),
            }));
        }
        let ways = [["pool_trim", "by_one"], ["pool_trim", "by_two"], ["pool_trim", "by_two"]];
        let stacks = ways.iter().zip(["first", "second", "third"]);
        // A compiler may have divided it in two.
        let stacks =
            stacks.map(|(way, outer)| stack(&["munmap", way[0], way[0], way[1], outer, "main"])).collect();
        let recording = tally.finish(Circumstances { stacks, ..Circumstances::default() });
        let [culprit] = culprits(&recording).try_into().unwrap();
        assert_eq!((culprit.amount.count, culprit.called_by.as_deref()), (7, Some("by_two")));
    }

    #[test]
    fn an_allocator_that_is_linked_into_a_program_works_for_who_called_it() {
        for inside in [
            &["os_pages_map", "arena_new", "mallocx"][..],
            &["os_pages_map", "je_pages_map", "arena_new", "je_malloc_default"],
            &["os_pages_map", "_rjem_je_pages_map", "_rjem_je_malloc_default", "alloc::raw_vec::finish_grow"],
            &[
                "__GI_madvise",
                "unix_madvise",
                "_mi_os_purge",
                "mi_segment_purge",
                "span_free",
                "_mi_page_free",
            ],
        ] {
            let chain = stack(&[inside, &["load", "main"]].concat());
            assert_eq!(blamed(&chain), Some("load"), "{inside:?}");
            assert!(goes_through_malloc(&chain));
        }
        for own in ["jemalloc_test", "mi_open", "heap_grow"] {
            assert!(!is_entrance(own), "{own}");
        }
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
        assert_eq!(blamed(&stack(&["munmap", "0x8ce85b2c289b9488", "[stack cut off]"])), Some("munmap"));
        assert_eq!(blamed(&stack(&["mmap", "0x7f0000001000", "load"])), Some("load"));
        assert_eq!(blamed(&[]), None);
    }

    #[test]
    fn a_chain_from_who_asked_is_the_same_however_deep_it_was_taken() {
        let asker = stack(&["load", "main"]);
        for inside in [
            &[][..],
            &["__GI___libc_malloc"],
            &["operator new(unsigned long)"],
            &["__GI___brk", "__sbrk", "__glibc_morecore", "sysmalloc", "_int_malloc", "__libc_malloc"],
            &["__mmap64"],
            &[
                "os_pages_map",
                "_rjem_je_pages_map",
                "je_large_malloc",
                "malloc",
                "operator new[](unsigned long)",
            ],
        ] {
            assert_eq!(from_asker(&stack(&[inside, &["load", "main"]].concat())), asker, "{inside:?}");
        }
        let nobody = stack(&["madvise", "purge", "free"]);
        assert_eq!(from_asker(&nobody), nobody);
        assert!(from_asker(&[]).is_empty());
    }

    #[test]
    fn what_another_allocator_does_in_malloc_is_done_for_who_called_it() {
        let chain =
            stack(&["os_pages_map", "_rjem_je_pages_map", "je_large_malloc", "malloc", "load", "main"]);
        assert_eq!(blamed(&chain), Some("load"));
        assert_eq!(blamed(&stack(&["madvise", "purge", "free"])), Some("madvise"), "who called is not known");
    }

    #[test]
    fn what_a_languages_library_allocates_is_allocated_for_who_called_it() {
        let vector = [
            "malloc",
            "operator new(unsigned long)",
            "std::__new_allocator<int>::allocate(unsigned long, void const*)",
            "std::vector<int, std::allocator<int> >::resize(unsigned long)",
        ];
        assert_eq!(blamed(&stack(&[&vector[..], &["load", "main"]].concat())), Some("load"));
        assert_eq!(blamed(&stack(&vector)), Some(vector[2]));
        let rust = ["malloc", "alloc::raw_vec::finish_grow", "<alloc::vec::Vec<T>>::push", "shop::load"];
        assert_eq!(blamed(&stack(&rust)), Some("shop::load"));
        let python =
            ["malloc", "_PyMem_RawMalloc", "_PyObject_Malloc", "_PyObject_Malloc.part.0", "list_resize"];
        assert_eq!(blamed(&stack(&python)), Some("list_resize"));
        let pool = ["mmap", "_PyObject_ArenaMmap", "new_arena", "_PyObject_Malloc", "PyList_New"];
        assert_eq!(blamed(&stack(&pool)), Some("_PyObject_ArenaMmap"));
        let go = ["runtime.madvise", "runtime.sysUnused", "runtime.systemstack"];
        assert_eq!(blamed(&stack(&[&go[..], &["main.load"]].concat())), Some("main.load"));
        let cut = ["[stack]", "[stack cut off]"];
        assert_eq!(blamed(&stack(&[&go[..], &cut].concat())), Some(go[0]));
        let grown = [
            "runtime.sysMmap",
            "runtime.mmap",
            "runtime.sysMapOS",
            "runtime.sysMap",
            "runtime.(*mheap).grow",
        ];
        assert_eq!(blamed(&stack(&grown)), Some("runtime.(*mheap).grow"));
        let by_c = ["__GI___mmap64", "x_cgo_mmap", "runtime.callCgoMmap", "runtime.mmap.func1"];
        assert_eq!(blamed(&stack(&[&by_c[..], &grown[1..]].concat())), Some("runtime.(*mheap).grow"));
        let with_c =
            ["runtime.mmap.func1", "runtime.systemstack", "runtime.mmap", "runtime.newMarkBits", "[stack]"];
        assert_eq!(blamed(&stack(&with_c)), Some("runtime.newMarkBits"));
        assert_eq!(blamed(&stack(&[&vector[..], &cut].concat())), Some(vector[2]));
    }

    #[test]
    fn malloc_and_free_of_glibc_2_43_are_known_although_they_jump_to_others() {
        let made =
            stack(&["__GI___mmap64", "sysmalloc_mmap", "sysmalloc", "_int_malloc", "__libc_malloc2", "load"]);
        let given_back = stack(&["__GI_munmap", "_int_free_chunk", "load"]);
        for chain in [made, given_back] {
            assert!(goes_through_malloc(&chain) && blamed(&chain) == Some("load"), "{chain:?}");
        }
        assert!(!goes_through_malloc(&stack(&["__GI___mmap64", "load"])));
    }

    #[test]
    fn aliases_and_copies_of_the_allocators_functions_are_known() {
        for frame in [
            "__GI___libc_malloc",
            "__libc_free",
            "__mmap64",
            "__GI___mmap64",
            "systrim.constprop.0",
            "_int_malloc",
            "__glibc_morecore",
            "operator new(unsigned long)",
            "operator delete[](void*)",
        ] {
            assert_eq!(blamed(&stack(&[frame, "guilty"])), Some("guilty"), "{frame}");
        }
    }

    #[test]
    fn names_that_only_begin_alike_are_others() {
        assert!(!goes_through_malloc(&stack(&["malloc_like_function", "freeze", "main"])));
        assert!(goes_through_malloc(&stack(&["free+0x10"])));
    }
}
