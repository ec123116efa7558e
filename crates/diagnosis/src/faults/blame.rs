//! Which function of a call chain is to be named: the innermost of the program's own, not the `memcpy` it called.

use faultless_records::call_tree::{CallFrame, CallTree};

use super::function_name::{has_parentheses, without_answer_type};
use crate::churn::blame::{entrance, is_entrance};

/// Libraries whose functions touch memory on behalf of whoever calls them.
const SERVANTS: &[&str] = &[
    "libc.so",
    "libc-2.",
    "libm.so",
    "libpthread",
    "ld-linux",
    "ld-2.",
    "ld-musl",
    "libc.musl",
    "libstdc++.so",
    "libc++.so",
    "libgcc_s",
    "libgfortran",
    "libfaultless",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libtbbmalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhardened_malloc",
];

/// Starts of functions that compilers and linkers put into programs on behalf of whoever calls them.
const SERVANT_FUNCTIONS: &[&str] = &[
    "std::",
    "__gnu_cxx::",
    "<core::",
    "<alloc::",
    "<std::",
    "operator new",
    "__rust_alloc",
    "__rdl_",
    "<hashbrown::",
    "<str>::",
    // Go's run time. A package of a program has the path of its module before its name.
    "runtime.",
    "internal/",
    // OCaml's run time and library. A function of a program has `caml` and the name of its module before its name.
    "caml_",
    "camlStdlib__",
    "camlStdlib.",
    // Fortran's.
    "_gfortran",
    // Names of the C++ library that could not be demangled.
    "_ZSt",
    "_ZNSt",
    "_ZNKSt",
    "_ZN9__gnu_cxx",
];

/// Starts of functions of Rust's own library; programs of C++ have namespaces of these names.
const RUSTS_FUNCTIONS: &[&str] = &["core::", "alloc::", "hashbrown::"];

/// Starts of functions of those libraries that are all of a thread of the program: its lambda or closure became part of them.
const THREADS: &[&str] = &[
    "std::thread::_State_impl<",
    "std::__1::__thread_proxy",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "std::sys_common::backtrace::__rust_begin_short_backtrace",
];

/// Programs and libraries that run other languages: what they do they do on behalf of a function of that language.
const RUNTIMES: &[&str] = &["libpython", "python", "pypy", "node", "libnode", "libjvm", "libjava", "libjli"];

/// The frames between the fault and the function to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blame<'tree> {
    /// The function to be named.
    pub culprit: &'tree CallFrame,
    /// The innermost frame, when that is another one.
    pub servant: Option<&'tree CallFrame>,
}

/// Looks outwards from the innermost call; none for an empty chain.
///
/// Where there is nothing but servants (a program that starts), the innermost one is named.
#[must_use]
pub fn blame(tree: &CallTree, call: Option<usize>) -> Option<Blame<'_>> {
    let innermost = tree.outwards(call).next()?;
    let names = tree.outwards(call).map(|frame| frame.function.as_deref().unwrap_or_default());
    let inside = entrance(names).unwrap_or(0);
    let mut own = tree.outwards(call).skip(inside).skip_while(|frame| is_servant(tree, frame));
    let culprit = own.next().map(|first| match is_runtime(tree, first) {
        true => own
            .take_while(|frame| {
                is_servant(tree, frame) || is_runtime(tree, frame) || is_compiled(frame) || is_stub(frame)
            })
            .find(|frame| is_compiled(frame))
            .unwrap_or(first),
        false => first,
    });
    Some(match culprit {
        Some(culprit) if !std::ptr::eq(culprit, innermost) => Blame { culprit, servant: Some(innermost) },
        _ => Blame { culprit: innermost, servant: None },
    })
}

fn is_runtime(tree: &CallTree, frame: &CallFrame) -> bool {
    tree.module_name(frame).is_some_and(|name| RUNTIMES.iter().any(|runtime| name.starts_with(runtime)))
}

/// A function of another language that a just-in-time compiler named: `py::f:/srv/a.py`, `JS:*f /srv/a.js:1`,
/// `LazyCompile:*f …`, `long A.f(int)`; not its stubs, such as `Interpreter`.
fn is_compiled(frame: &CallFrame) -> bool {
    let name = frame.function.as_deref().unwrap_or_default();
    let is_method = || name.ends_with(')') && name.split('(').next().is_some_and(|start| start.contains('.'));
    let starts = ["py::", "JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
    frame.module.is_none() && (starts.iter().any(|start| name.starts_with(start)) || is_method())
}

/// What a just-in-time compiler made for the run time itself: `_new_array_Java`. An interpreter stands for a function of its own.
fn is_stub(frame: &CallFrame) -> bool {
    frame.module.is_none() && frame.function.as_deref() != Some("Interpreter")
}

fn is_servant(tree: &CallTree, frame: &CallFrame) -> bool {
    let of_library =
        tree.module_name(frame).is_some_and(|name| SERVANTS.iter().any(|servant| name.starts_with(servant)));
    let function = frame.function.as_deref().unwrap_or_default();
    // Nothing can be said of code without a name and a file, such as a chain that was cut off or unwound wrongly.
    let is_nobody = frame.module.is_none() && (frame.function.is_none() || function.starts_with('['));
    of_library
        || is_nobody
        || is_of_standard_library(function)
        || is_entrance(function)
        || is_copying(function)
}

/// Whether a function is one of C++'s or Rust's own library or of Go's run time, by its name.
pub(crate) fn is_of_standard_library(function: &str) -> bool {
    let bare = without_answer_type(function);
    let starts = |starts: &[&str]| starts.iter().any(|start| bare.starts_with(start));
    starts(SERVANT_FUNCTIONS) && !starts(THREADS)
        || starts(RUSTS_FUNCTIONS) && !has_parentheses(function)
        || is_of_rusts_library(function)
}

/// What Rust's own library does for the language's own types: `<[u8]>::fill`, `<[T] as alloc::slice::Concat<T>>::concat`,
/// `<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem`. A program's own type and its own trait have paths of its own.
fn is_of_rusts_library(function: &str) -> bool {
    let Some((of, then)) = function.strip_prefix('<').and_then(|rest| rest.split_once(" as ")) else {
        return function.starts_with("<[") && function.contains("]>::");
    };
    let is_of_library =
        |path: &str| ["core::", "alloc::", "std::"].iter().any(|start| path.starts_with(start));
    let of = of.trim_start_matches('&');
    let of = of.strip_prefix("mut ").unwrap_or(of);
    is_of_library(then) && (of.starts_with('[') || !of.contains("::") || is_of_library(of))
}

/// Functions of C that are servants even when they are linked into the program.
fn is_copying(function: &str) -> bool {
    let bare = function.trim_start_matches('_');
    ["memcpy", "memmove", "memset", "mempcpy", "strcpy", "strncpy", "bzero", "memclr"]
        .iter()
        .any(|name| bare.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')))
}

#[cfg(test)]
mod tests {
    use super::super::weight::tests::{frame, recording};
    use super::*;

    #[test]
    fn the_caller_of_memcpy_is_named() {
        let tree = recording().tree;
        let found = blame(&tree, Some(2)).unwrap();
        assert_eq!(tree.name(found.culprit), "dgemm");
        assert_eq!(tree.name(found.servant.unwrap()), "memcpy");
        let own = blame(&tree, Some(0)).unwrap();
        assert_eq!((tree.name(own.culprit).as_str(), own.servant), ("main", None));
        assert_eq!(blame(&tree, None), None);
    }

    #[test]
    fn what_an_allocator_inside_the_program_does_is_done_for_its_caller() {
        let mut tree = recording().tree;
        tree.frames[1].function = Some("__libc_calloc".into());
        (tree.frames[2].function, tree.frames[2].module) = (Some("arena_take_run".into()), Some(0));
        let found = blame(&tree, Some(2)).unwrap();
        assert_eq!(tree.name(found.culprit), "main");
        assert_eq!(tree.name(found.servant.unwrap()), "arena_take_run");
    }

    #[test]
    fn a_function_of_another_language_is_named_for_what_its_runtime_does() {
        let mut tree = recording().tree;
        tree.modules[0].path = "/usr/lib/libpython3.12.so.1.0".into();
        tree.frames[0].module = None;
        tree.frames[0].function = Some("py::load:/srv/a.py".into());
        let found = blame(&tree, Some(2)).unwrap();
        assert_eq!(tree.name(found.culprit), "py::load:/srv/a.py");
        tree.frames[0].function = Some("Interpreter".into());
        assert_eq!(tree.name(blame(&tree, Some(2)).unwrap().culprit), "dgemm", "a stub is nobody's function");
        tree.frames[0].function = Some("long A.load(int)".into());
        assert_eq!(tree.name(blame(&tree, Some(2)).unwrap().culprit), "long A.load(int)");
        tree.modules[0].path = "/opt/libmine.so".into();
        assert_eq!(
            tree.name(blame(&tree, Some(2)).unwrap().culprit),
            "dgemm",
            "an extension is named itself"
        );
    }

    #[test]
    fn stubs_between_a_runtime_and_a_compiled_function_are_nobodys() {
        let mut tree = recording().tree;
        tree.modules[0].path = "/opt/jdk/lib/server/libjvm.so".into();
        tree.frames[0] = CallFrame { module: None, ..frame("void A.load()", 0, 1) };
        tree.frames[1] = CallFrame { module: None, ..frame("_new_array_Java", 0, 1) };
        tree.frames[2] = frame("ObjArrayAllocator::initialize(HeapWordImpl**) const", 0, 1);
        let named = |tree: &CallTree| tree.name(blame(tree, Some(2)).unwrap().culprit);
        assert_eq!(named(&tree), "void A.load()");
        tree.frames[1].function = Some("Interpreter".into());
        assert!(named(&tree).starts_with("ObjArrayAllocator"), "what was interpreted is another method");
    }

    #[test]
    fn servants_are_known_by_library_or_name() {
        let mut tree = recording().tree;
        for name in [
            "std::vector<double>::resize(unsigned long)",
            "__memmove_avx_unaligned_erms",
            "memset",
            "operator new(unsigned long)",
            "malloc",
            "caml_make_vect",
            "camlStdlib__Array__init_103",
            "_gfortran_reshape_r8",
            "_gfortrani_pack_r8",
            "void std::__new_allocator<long>::construct<long, long>(long*, long&&)",
            "std::vector<int>& std::vector<int>::emplace_back<int>(int&&)",
            "_ZSt14__relocate_a_1IllENSt9enable_ifIXsrSt24__is_bitwise_relocatableIT_vE5valueEPS2_E4typeES4_S4_S4_RSaIT0_E",
            "_ZN9__gnu_cxx13new_allocatorIlE8allocateEmPKv",
            "<str>::repeat",
            "<[u64]>::to_vec",
            "runtime.memclrNoHeapPointers",
            "runtime.(*mheap).alloc.func1",
            "internal/runtime/maps.newarray",
            "<[alloc::string::String] as alloc::slice::Join<&str>>::join",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<&mut alloc::string::String as core::fmt::Write::write_fmt::SpecWriteFmt>::spec_write_fmt",
            "core::ptr::drop_in_place::<(u8, fn(u8))>",
            "alloc::raw_vec::finish_grow",
        ] {
            assert!(is_servant(&tree, &frame(name, 0, 1)), "{name}");
        }
        for name in [
            "dgemm",
            "memory_pool_grow",
            "memcpy2d",
            "stdx::f",
            "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()",
            "void* std::__1::__thread_proxy[abi:v160006]<std::__1::tuple<main::$_0> >(void*)",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "std::sys::backtrace::__rust_begin_short_backtrace::<shop::main::{closure#0}, ()>",
            "freeze",
            "std::vector<int> load<int>(int)",
            "void fill<std::string>(std::string*)",
            "shop::Name::operator std::string() const",
            "<[u8] as shop::Digest>::digest",
            "<u8 as shop::Digest>::digest",
            "<shop::Name as core::clone::Clone>::clone",
            "<&mut shop::Name as core::fmt::Write>::write_str",
            "_ZN4shop4loadEv",
            "example.org/shop/runtime.load",
            "runtime_load",
            "camlShop__load_12",
            "core::Engine::load(unsigned long)",
            "void core::fill<int>(int*)",
            "alloc::(anonymous namespace)::grow",
        ] {
            assert!(!is_servant(&tree, &frame(name, 0, 1)), "{name}");
        }
        assert!(is_servant(&tree, &frame("anything", 1, 1)));
        tree.modules[1].path = "/opt/libmine.so".into();
        assert!(!is_servant(&tree, &frame("anything", 1, 1)));
    }

    #[test]
    fn where_there_are_only_servants_the_innermost_is_named() {
        let mut tree = recording().tree;
        tree.modules[0].path = "/lib64/ld-linux-x86-64.so.2".into();
        let found = blame(&tree, Some(2)).unwrap();
        assert_eq!((tree.name(found.culprit).as_str(), found.servant), ("memcpy", None));
    }
}
