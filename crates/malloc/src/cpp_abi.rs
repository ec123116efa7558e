//! The C++ allocation functions, by their Itanium ABI names.
//!
//! A failing `operator new` must call the new-handler and throw, and this library cannot throw: unwinding does not work out
//! of an abort-on-panic `no_std` library. So on failure the stack is restored as it was at the call, and the next
//! definition of the same function is *jumped* to, which is libstdc++'s or libc++'s; it tries again, calls the handler
//! and throws as if it had been called in our place. On aarch64 these are left to the C++ library, which calls `malloc`.

use crate::c_abi::free;
#[cfg(target_arch = "x86_64")]
use crate::c_abi::{aligned_alloc, malloc};
use core::ffi::c_void;
#[cfg(target_arch = "x86_64")]
use {
    core::arch::naked_asm,
    faultless_heap::{message, os},
};

#[cfg(target_arch = "x86_64")]
extern "C" fn find(name: *const core::ffi::c_char) -> *mut c_void {
    // SAFETY: the callers below pass C string literals.
    let name = unsafe { core::ffi::CStr::from_ptr(name) };
    let definition = os::find_symbol(os::Search::Next, name);
    if definition.is_null() {
        message::say(format_args!(
            "out of memory in operator new, and no C++ library to throw std::bad_alloc"
        ));
        os::die();
    }
    definition
}

#[cfg(target_arch = "x86_64")]
extern "C" fn aligned(bytes: usize, align: usize) -> *mut c_void {
    aligned_alloc(align, bytes)
}

/// `operator new` forms: try `$try` with the arguments in place; on null jump to the next definition.
#[cfg(target_arch = "x86_64")]
macro_rules! operator_new {
    ($($name:ident = $try:path;)*) => {$(
        /// C++ `operator new`, Itanium ABI.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!(),
            };
            static TEXT: &[u8] = NAME.to_bytes_with_nul();
            // Arguments: rdi bytes, rsi alignment or nothrow tag, rdx nothrow tag. Three pushes keep the stack aligned.
            naked_asm!(
                "push rdi", "push rsi", "push rdx",
                "call {try_}",
                "test rax, rax",
                "je 2f",
                "add rsp, 24",
                "ret",
                "2:",
                "mov rdi, qword ptr [rip + {text}]",
                "call {find}",
                "pop rdx", "pop rsi", "pop rdi",
                // libstdc++ 12 rounds an aligned size near SIZE_MAX up to 0 and succeeds; this one is as impossible.
                "mov rcx, 0x7fffffffffff0000", "cmp rdi, rcx", "cmova rdi, rcx",
                "jmp rax",
                try_ = sym $try, text = sym TEXT, find = sym find,
            )
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
operator_new! {
    _Znwm = malloc;
    _Znam = malloc;
    _ZnwmRKSt9nothrow_t = malloc;
    _ZnamRKSt9nothrow_t = malloc;
    _ZnwmSt11align_val_t = aligned;
    _ZnamSt11align_val_t = aligned;
    _ZnwmSt11align_val_tRKSt9nothrow_t = aligned;
    _ZnamSt11align_val_tRKSt9nothrow_t = aligned;
}

macro_rules! operator_delete {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        /// C++ `operator delete`, Itanium ABI.
        ///
        /// # Safety
        /// As in C++: null or a live block of the matching `operator new`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut c_void $(, $arg: $kind)*) {
            // SAFETY: the caller's contract is the same.
            unsafe { free(block) }
        }
    )*};
}

operator_delete! {
    _ZdlPv();
    _ZdaPv();
    _ZdlPvm(_bytes: usize);
    _ZdaPvm(_bytes: usize);
    _ZdlPvRKSt9nothrow_t(_tag: *const c_void);
    _ZdaPvRKSt9nothrow_t(_tag: *const c_void);
    _ZdlPvSt11align_val_t(_align: usize);
    _ZdaPvSt11align_val_t(_align: usize);
    _ZdlPvmSt11align_val_t(_bytes: usize, _align: usize);
    _ZdaPvmSt11align_val_t(_bytes: usize, _align: usize);
    _ZdlPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void);
    _ZdaPvSt11align_val_tRKSt9nothrow_t(_align: usize, _tag: *const c_void);
}
