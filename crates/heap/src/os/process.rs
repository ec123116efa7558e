//! The process: its number, and its end.

use super::syscall::{number, syscall};
use super::thread::thread_pointer;
use core::sync::atomic::{AtomicUsize, Ordering};

#[link(name = "c")]
unsafe extern "C" {
    fn abort() -> !;
}

/// Number of this process.
pub fn process_id() -> u32 {
    // SAFETY: no argument, no effect.
    unsafe { syscall(number::GETPID, [0; 6]) as u32 }
}

/// The thread pointer of the thread that ends the process, or 0.
static DYING: AtomicUsize = AtomicUsize::new(0);

/// Whether this thread ends the process, and is in a handler of SIGABRT.
pub fn is_dying() -> bool {
    // ORDERING: Relaxed; a thread can only read its own thread pointer here if it wrote it itself.
    DYING.load(Ordering::Relaxed) == thread_pointer()
}

/// Ends the process with SIGABRT.
pub fn die() -> ! {
    // ORDERING: Relaxed, as in `is_dying`.
    DYING.store(thread_pointer(), Ordering::Relaxed);
    // SAFETY: ends the process.
    unsafe { abort() }
}
