//! Threads of ours that are waited for; those of `start_thread` are not.

use super::memory::{Call, refused};
use super::service::{Create, ThreadBody, block_signals, unblock_signals};
use super::thread::found;
use core::arch::asm;
use core::ffi::{c_int, c_void};

type Join = unsafe extern "C" fn(usize, *mut *mut c_void) -> c_int;

/// A running thread, to be joined.
#[derive(Clone, Copy, Debug)]
pub struct Worker(usize);

impl Worker {
    /// Starts a thread that gets no signals; `None` where that is refused or the process has no threads library. May call
    /// `malloc`.
    ///
    /// # Safety
    /// `body` may be called with `argument` on another thread, until the worker is joined.
    pub unsafe fn start(body: ThreadBody, argument: *mut c_void) -> Option<Self> {
        if refused(Call::StartThread) {
            return None;
        }
        // The process's, as `join` calls: a tool that wraps the two knows a thread by both. Other than in `start_thread` no lock is held that
        // a wrapper could wait for.
        let create = found!("pthread_create" as Create)?;
        found!("pthread_join" as Join)?;
        let signals = block_signals();
        let mut thread = 0;
        // SAFETY: the caller's body and argument fit each other, and live until it joins the thread.
        let error = unsafe { create(&mut thread, core::ptr::null(), body, argument) };
        unblock_signals(signals);
        (error == 0).then_some(Self(thread))
    }

    /// Waits for the thread's end. To be called once, in the process that started it.
    pub fn join(self) {
        if let Some(join) = found!("pthread_join" as Join) {
            // SAFETY: the thread was started by `start`, and the caller joins it once.
            unsafe { join(self.0, core::ptr::null_mut()) };
        }
    }
}
