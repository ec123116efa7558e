//! The threads of a process: names and stack pointers.

use faultless_records::thread::Thread;

use crate::process::{Process, ProcessError};

/// All threads that are still there, ascending.
///
/// Stack pointers need the right to attach; without it they are none.
///
/// # Errors
/// [`ProcessError`] when the process has ended.
pub fn of(process: &Process) -> Result<Vec<Thread>, ProcessError> {
    let mut threads = Vec::new();
    for number in process.threads()? {
        let call = process.text(&format!("task/{number}/syscall")).ok();
        // One that ended meanwhile is passed over.
        let status = process.text(&format!("task/{number}/status")).ok();
        threads.extend(status.and_then(|status| Thread::parse(&status, call.as_deref())));
    }
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_thread_is_seen_with_its_stack_pointer() {
        let (send, receive) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let body = move || {
            let local = 0_u8;
            send.send((nix::unistd::gettid().as_raw(), (&raw const local).addr() as u64)).unwrap();
            let _ = wait.recv();
        };
        let thread = std::thread::Builder::new().name("a waiting one".into()).spawn(body).unwrap();
        let (number, local) = receive.recv().unwrap();
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let seen = loop {
            let threads = of(&own).unwrap();
            let seen = threads.into_iter().find(|thread| thread.number == number).unwrap();
            // It may run for a moment before it waits; where the kernel has no such file there is nothing to see.
            if seen.stack_pointer.is_some()
                || own.text("task/self/syscall").is_err() && own.text("syscall").is_err()
            {
                break seen;
            }
            std::thread::yield_now();
        };
        assert_eq!(seen.name, "a waiting one");
        if let Some(pointer) = seen.stack_pointer {
            assert!(pointer.abs_diff(local) < 64 << 10, "{pointer:#x} {local:#x}");
        }
        drop(done);
        thread.join().unwrap();
    }
}
