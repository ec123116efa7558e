//! `prctl`: from when a program restricts its system calls, or gives up that new programs gain rights, which it must do before, none is made
//! that libc's allocator does not make.

use crate::libc::returned;
use core::ffi::{c_int, c_ulong};
use faultless_heap::os;

const PR_SET_SECCOMP: c_int = 22;
const PR_SET_NO_NEW_PRIVS: c_int = 38;

/// Linux's `prctl`. Not variadic: which of the arguments count is the kernel's to know, and they are passed alike.
///
/// # Safety
/// As for the kernel's call of that option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if option == PR_SET_SECCOMP || option == PR_SET_NO_NEW_PRIVS {
        os::enter_sandbox();
    }
    let arguments = [option as c_ulong, second, third, fourth, fifth].map(|argument| argument as usize);
    // SAFETY: the caller's contract is the same.
    returned(unsafe { os::control_process(arguments) })
}
