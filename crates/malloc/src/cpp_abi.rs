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

use crate::c_abi::{aligned_alloc, free, malloc};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use faultless_heap::{message, os};

const fn terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!(),
    }
}

extern "C" fn find(name: *const c_char) -> *mut c_void {
    // SAFETY: the callers below pass C string literals.
    let name = unsafe { CStr::from_ptr(name) };
    let mut definition = in_any_cpp_library(name);
    if definition.is_null() {
        definition = os::find_symbol(os::Search::Next, name);
    }
    if definition.is_null() {
        message::say(format_args!(
            "out of memory in operator new, and no C++ library to throw std::bad_alloc"
        ));
        os::die();
    }
    definition
}

/// The definition in whichever library can throw, the first in the order of search: one that came with a plugin is in nobody's order but
/// the plugin's. Not by `dlsym`: that takes the loader's lock, which a thread may hold that opens a library and waits for this one.
fn in_any_cpp_library(name: &CStr) -> *mut c_void {
    let own = find as *const () as usize;
    let mut definition = 0;
    os::elf::objects(|object| {
        let can_throw = !object.contains(own) && object.find(c"__cxa_throw").is_some();
        definition = if can_throw { object.find(name).unwrap_or(0) } else { 0 };
        definition != 0
    });
    core::ptr::with_exposed_provenance_mut(definition)
}

/// Forms of `operator new` that others lead to: `$swap`, then try `$try`; on null jump to the next definition.
macro_rules! operator_new {
    ($($name:ident = $swap:literal $try:path;)*) => {$(
        /// C++ `operator new`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            const NAME: &CStr = terminated(concat!(stringify!($name), "\0"));
            static TEXT: &[u8] = NAME.to_bytes_with_nul();
            // Arguments: rdi bytes, rsi alignment. Three pushes keep the stack aligned.
            naked_asm!(
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
                "mov rdi, qword ptr [rip + {text}]",
                "call {find}",
                "pop rdx", "pop rsi", "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                // libstdc++ 12 rounds an aligned size near SIZE_MAX up to 0 and succeeds; this one is as impossible.
                "mov rcx, 0x7fffffffffff0000", "cmp rdi, rcx", "cmova rdi, rcx",
                "jmp rax",
                ".cfi_endproc",
                try_ = sym $try, text = sym TEXT, find = sym find,
            )
        }
    )*};
}

operator_new! {
    _Znwm = "" malloc;
    _ZnwmSt11align_val_t = "xchg rdi, rsi" aligned_alloc;
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
            naked_asm!($place, "jmp {target}", target = sym $target)
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

/// Where a form of `operator new` is that no library has. One that comes later is looked for when memory runs short: it may have a
/// handler for that.
const NOWHERE: *mut c_void = core::ptr::without_provenance_mut(1);

/// Looks for a form and keeps where it is.
#[cold]
fn look_for(name: &CStr, place: &AtomicPtr<c_void>) -> *mut c_void {
    let found = in_any_cpp_library(name);
    let found = if found.is_null() { NOWHERE } else { found };
    // ORDERING: Relaxed; an address of code that was there before it was written.
    place.store(found, Ordering::Relaxed);
    found
}

/// Forms that do not throw: the C++ library's; where there is none, `$otherwise`.
macro_rules! nothrow_new {
    ($($name:ident($($arg:ident: $kind:ty),*) = $otherwise:expr;)*) => {$(
        /// C++ `operator new` with `std::nothrow`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $kind,)* tag: *const c_void) -> *mut c_void {
            static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
            const NAME: &CStr = terminated(concat!(stringify!($name), "\0"));
            // ORDERING: Relaxed; an address of code that was there before it was written, the same whoever finds it.
            let mut next = NEXT.load(Ordering::Relaxed);
            if next.is_null() {
                next = look_for(NAME, &NEXT);
            }
            if next == NOWHERE {
                let block: *mut c_void = $otherwise;
                if !block.is_null() {
                    return block;
                }
                next = look_for(NAME, &NEXT);
                if next == NOWHERE {
                    return block;
                }
            }
            // SAFETY: a function of that name has these arguments and this result.
            unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind,)* *const c_void) -> *mut c_void>(next)(
                    $($arg,)* tag
                )
            }
        }
    )*};
}

nothrow_new! {
    _ZnwmRKSt9nothrow_t(bytes: usize) = malloc(bytes);
    _ZnamRKSt9nothrow_t(bytes: usize) = malloc(bytes);
    _ZnwmSt11align_val_tRKSt9nothrow_t(bytes: usize, align: usize) = aligned_alloc(align, bytes);
    _ZnamSt11align_val_tRKSt9nothrow_t(bytes: usize, align: usize) = aligned_alloc(align, bytes);
}
