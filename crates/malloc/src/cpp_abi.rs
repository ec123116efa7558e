//! The C++ allocation functions, by their Itanium ABI names, in the shared library on x86-64. Elsewhere those of the C++ library
//! serve, which call `malloc` and `free`.
//!
//! A program may replace any of these functions, or `malloc` and `free`, by its own, and expects the others to follow. So each form
//! leads where the C++ standard says that it does by default, by a name that others may have taken: arrays and sized forms to the
//! plain ones, these to `malloc`, `aligned_alloc` and `free`; and forms that do not throw are the C++ library's, which catches what the
//! plain form throws. Each function has an address of its own, by which valgrind tells them apart.
//!
//! A failing `operator new` must call the new-handler and throw, and this library cannot throw: unwinding does not work out
//! of an abort-on-panic `no_std` library. So on failure the stack is restored as it was at the call, and the next
//! definition of the same function is *jumped* to, which is libstdc++'s or libc++'s; it tries again, calls the handler
//! and throws as if it had been called in our place.

use crate::c_abi::{aligned_alloc, by_name, free, malloc};
use core::arch::{asm, naked_asm};
use core::ffi::{CStr, c_void};
use core::ptr::{null_mut, with_exposed_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering};
use faultless_heap::os::elf::{Object, objects};
use faultless_heap::{message, os};

const fn terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!(),
    }
}

/// A form of `operator new` that the C++ library has, too.
struct Form {
    name: &'static CStr,
    /// Where the C++ library that the process started with has it. That library stays loaded.
    at_start: AtomicPtr<c_void>,
}

impl Form {
    const fn new(name: &'static str) -> Self {
        Self { name: terminated(name), at_start: AtomicPtr::new(null_mut()) }
    }

    fn at_start(&self) -> *mut c_void {
        // ORDERING: Relaxed; an address of code that was there before it was written.
        self.at_start.load(Ordering::Relaxed)
    }
}

static FORMS: [Form; 6] = [
    Form::new("_Znwm\0"),
    Form::new("_ZnwmSt11align_val_t\0"),
    Form::new("_ZnwmRKSt9nothrow_t\0"),
    Form::new("_ZnamRKSt9nothrow_t\0"),
    Form::new("_ZnwmSt11align_val_tRKSt9nothrow_t\0"),
    Form::new("_ZnamSt11align_val_tRKSt9nothrow_t\0"),
];

/// Looks for what the process started with, so that later nothing is asked of the loader: it has a lock, which a thread may hold that
/// waits for this one, or that a forked child does not have.
pub fn find_at_start() {
    let throw: usize;
    // SAFETY: loads the address that the linker found, 0 if none.
    unsafe {
        asm!(".weak __cxa_throw", "mov {}, qword ptr [rip + __cxa_throw@GOTPCREL]", out(reg) throw,
            options(pure, readonly, nostack, preserves_flags));
    }
    if throw == 0 {
        return;
    }
    objects(|object| {
        let is_it = object.contains(throw) && !object.contains(own());
        for form in FORMS.iter().filter(|_| is_it) {
            let place = object.find(form.name).unwrap_or(0);
            // ORDERING: Relaxed, as in `at_start`.
            form.at_start.store(with_exposed_provenance_mut(place), Ordering::Relaxed);
        }
        is_it
    });
}

/// An address in this library.
fn own() -> usize {
    find_at_start as *const () as usize
}

/// The definition to go on with when memory is exhausted, for a call that returns to `caller`.
extern "C" fn find(form: usize, caller: usize) -> *mut c_void {
    let form = &FORMS[form];
    let mut definition = in_cpp_library(form, caller);
    if definition.is_null() {
        definition = os::find_symbol(os::Search::Next, form.name);
    }
    if definition.is_null() {
        message::say(format_args!(
            "out of memory in operator new, and no C++ library to throw std::bad_alloc (with -static-libstdc++ link libfaultless.a)"
        ));
        os::die();
    }
    definition
}

/// The definition in the C++ library that the process started with, or that of the code at `caller`: its own, one that it asks for, or
/// else the first; null if there is none. What is thrown is caught by the library that threw it, and one that came with a plugin
/// is in nobody's order of search but the plugin's. Not by `dlsym`: that takes the loader's lock, which a thread may hold that opens
/// a library and waits for this one.
#[cold]
fn in_cpp_library(form: &Form, caller: usize) -> *mut c_void {
    if !form.at_start().is_null() {
        return form.at_start();
    }
    let can_throw = |object: &Object<'_>| !object.contains(own()) && object.find(c"__cxa_throw").is_some();
    let definition = |object: &Object<'_>| if can_throw(object) { object.find(form.name) } else { None };
    let mut found = None;
    objects(|asking| {
        let is_caller = asking.contains(caller);
        if is_caller {
            found = definition(&asking);
        }
        if is_caller && found.is_none() {
            // What iterates over the objects may do so again inside: its lock is recursive.
            objects(|asked| {
                found = if asking.needs(&asked) { definition(&asked) } else { None };
                found.is_some()
            });
        }
        is_caller
    });
    if found.is_none() {
        objects(|object| {
            found = definition(&object);
            found.is_some()
        });
    }
    with_exposed_provenance_mut(found.unwrap_or(0))
}

/// The name of a function's address that nobody can take.
macro_rules! own_label {
    ($name:ident) => {
        concat!(
            ".globl faultless_own",
            stringify!($name),
            "\n",
            ".hidden faultless_own",
            stringify!($name),
            "\n",
            "faultless_own",
            stringify!($name),
            ":",
        )
    };
}

/// Forms of `operator new` that others lead to: `$swap`, then try `$try`; on null jump to the next definition.
macro_rules! operator_new {
    ($($name:ident = $form:literal $swap:literal $try:path;)*) => {$(
        /// C++ `operator new`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // Arguments: rdi bytes, rsi alignment. Three pushes keep the stack aligned.
            naked_asm!(
                own_label!($name),
                // Where the return address is, for who looks at stacks inside `malloc`.
                ".cfi_startproc",
                "push rdi", "push rsi", "push rdx",
                ".cfi_adjust_cfa_offset 24",
                $swap,
                "call {try_}",
                "test rax, rax",
                "je 2f",
                "add rsp, 24",
                ".cfi_adjust_cfa_offset -24",
                "ret",
                "2:",
                ".cfi_adjust_cfa_offset 24",
                "mov edi, {form}", "mov rsi, qword ptr [rsp + 24]",
                "call {find}",
                "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                // libstdc++ 12 rounds an aligned size near SIZE_MAX up to 0 and succeeds; this one is as impossible.
                "mov rcx, 0x7fffffffffff0000", "cmp rdi, rcx", "cmova rdi, rcx",
                "jmp rax",
                ".cfi_endproc",
                try_ = sym $try, form = const $form, find = sym find,
            )
        }
    )*};
}

operator_new! {
    _Znwm = 0 "" malloc;
    _ZnwmSt11align_val_t = 1 "xchg rdi, rsi" aligned_alloc;
}

/// Forms that call another with the arguments in place, after `$place`.
macro_rules! leads_to {
    ($($name:ident = $place:literal $target:path;)*) => {$(
        /// C++ `operator new` or `operator delete`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(own_label!($name), $place, "jmp {target}", target = sym $target)
        }
    )*};
}

leads_to! {
    _Znam = "" _Znwm;
    _ZnamSt11align_val_t = "" _ZnwmSt11align_val_t;
    _ZdlPv = "" free;
    _ZdaPv = "" _ZdlPv;
    _ZdlPvm = "" _ZdlPv;
    _ZdaPvm = "" _ZdaPv;
    _ZdlPvRKSt9nothrow_t = "" _ZdlPv;
    _ZdaPvRKSt9nothrow_t = "" _ZdaPv;
    _ZdlPvSt11align_val_t = "" free;
    _ZdaPvSt11align_val_t = "" _ZdlPvSt11align_val_t;
    _ZdlPvmSt11align_val_t = "mov rsi, rdx" _ZdlPvSt11align_val_t;
    _ZdaPvmSt11align_val_t = "mov rsi, rdx" _ZdaPvSt11align_val_t;
    _ZdlPvSt11align_val_tRKSt9nothrow_t = "" _ZdlPvSt11align_val_t;
    _ZdaPvSt11align_val_tRKSt9nothrow_t = "" _ZdaPvSt11align_val_t;
}

/// Whether a name leads to the function of that name here, and no other library took it.
macro_rules! is_own {
    ($name:ident) => {{
        let (by_name, own): (usize, usize);
        // SAFETY: loads two addresses, of which the linker found the first.
        unsafe {
            asm!(
                concat!("mov {}, qword ptr [rip + ", stringify!($name), "@GOTPCREL]"),
                concat!("lea {}, [rip + faultless_own", stringify!($name), "]"),
                out(reg) by_name, out(reg) own, options(pure, nomem, nostack, preserves_flags)
            );
        }
        by_name == own
    }};
}

by_name! {
    malloc_by_name(bytes: usize) -> *mut c_void = malloc;
    aligned_alloc_by_name(align: usize, bytes: usize) -> *mut c_void = aligned_alloc;
}

/// Forms that do not throw: `$first` where the forms that they lead to are ours; where those are others', or memory is exhausted,
/// the C++ library's, which catches what they throw.
macro_rules! nothrow_new {
    ($($name:ident($($arg:ident: $kind:ty),*) = $form:literal $caller:literal $first:expr, by $($through:ident)*;)*) => {$(
        /// C++ `operator new` with `std::nothrow`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            extern "C" fn allocate($($arg: $kind,)* tag: *const c_void, caller: usize) -> *mut c_void {
                let is_ours = true $(&& is_own!($through))*;
                // SAFETY: as the C functions, which have no contract.
                let first = || -> *mut c_void { unsafe { $first } };
                if is_ours {
                    let block = first();
                    if !block.is_null() {
                        return block;
                    }
                }
                let next = in_cpp_library(&FORMS[$form], caller);
                if next.is_null() {
                    return if is_ours { null_mut() } else { first() };
                }
                // SAFETY: a function of that name has these arguments and this result.
                unsafe {
                    core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind,)* *const c_void) -> *mut c_void>(next)(
                        $($arg,)* tag
                    )
                }
            }
            naked_asm!($caller, "jmp {allocate}", allocate = sym allocate)
        }
    )*};
}

nothrow_new! {
    _ZnwmRKSt9nothrow_t(bytes: usize) = 2 "mov rdx, qword ptr [rsp]" malloc_by_name(bytes), by _Znwm;
    _ZnamRKSt9nothrow_t(bytes: usize) = 3 "mov rdx, qword ptr [rsp]" malloc_by_name(bytes), by _Znam _Znwm;
    _ZnwmSt11align_val_tRKSt9nothrow_t(bytes: usize, align: usize) = 4 "mov rcx, qword ptr [rsp]"
        aligned_alloc_by_name(align, bytes), by _ZnwmSt11align_val_t;
    _ZnamSt11align_val_tRKSt9nothrow_t(bytes: usize, align: usize) = 5 "mov rcx, qword ptr [rsp]"
        aligned_alloc_by_name(align, bytes), by _ZnamSt11align_val_t _ZnwmSt11align_val_t;
}
