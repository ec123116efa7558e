//! Programs that leave themselves few system calls (seccomp) and are ended for any other.
//!
//! Such a program lists what libc's allocator calls (chrony, OpenSSH, `file`). From when it says that it is about to do so, no call is made
//! that only this allocator makes: each is answered as by a kernel that refuses it.

use super::errno::Errno;
use super::syscall::syscall;
use super::thread::is_single_threaded;
use core::sync::atomic::{AtomicU8, Ordering};

/// What is known; by whether the process had threads then.
static SANDBOX: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const BEGUN_ALONE: u8 = 1;
const BEGUN_WITH_THREADS: u8 = 2;

/// The program is about to restrict its system calls.
pub fn enter_sandbox() {
    let begun = if is_single_threaded() { BEGUN_ALONE } else { BEGUN_WITH_THREADS };
    // ORDERING: Relaxed, both; other threads are not under the filter before they know of it, or make one call more as they were making.
    let _ = SANDBOX.compare_exchange(NONE, begun, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether it has said so.
pub(super) fn is_in_sandbox() -> bool {
    // ORDERING: Relaxed, as in `enter_sandbox`.
    SANDBOX.load(Ordering::Relaxed) != NONE
}

/// Whether a thread may be started: where there are threads although there were none, the filter lets them be.
pub(super) fn permits_threads() -> bool {
    // ORDERING: Relaxed, as in `enter_sandbox`.
    SANDBOX.load(Ordering::Relaxed) != BEGUN_WITH_THREADS
}

/// [`syscall`], for a call that libc's allocator does not make.
///
/// # Safety
/// As for [`syscall`].
#[inline(never)]
pub(super) unsafe fn optional_call(number: usize, args: [usize; 6]) -> isize {
    if is_in_sandbox() {
        return -Errno::EPERM.0 as isize;
    }
    // SAFETY: the caller's contract is the same.
    unsafe { syscall(number, args) }
}
