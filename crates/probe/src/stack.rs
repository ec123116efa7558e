//! A stack that is large enough, whatever limit the tool was started under.

use std::io;
use std::panic::resume_unwind;
use std::sync::Barrier;
use std::thread;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::SigSet;

/// What the first thread usually has.
const USUAL_BYTES: usize = 8 << 20;

/// With less than this we do not begin: parsing a command line alone takes more than 128 KiB in a debug build.
const LEAST_BYTES: u64 = 1 << 20;

/// Runs the whole tool: right here, or where the limit (`ulimit -s`) gives the first thread too small a stack, in a thread with
/// one of the usual size. A command finds the limit as it was.
///
/// # Errors
/// When there is no memory for that thread.
pub fn with_enough<T: Send>(run: impl FnOnce() -> T + Send) -> io::Result<T> {
    match getrlimit(Resource::RLIMIT_STACK) {
        Ok((bytes, _)) if bytes < LEAST_BYTES => in_thread(run),
        _ => Ok(run()),
    }
}

fn in_thread<T: Send>(run: impl FnOnce() -> T + Send) -> io::Result<T> {
    let signals_are_its = Barrier::new(2);
    thread::scope(|scope| {
        let work = || {
            signals_are_its.wait();
            run()
        };
        let worker = thread::Builder::new().stack_size(USUAL_BYTES).spawn_scoped(scope, work)?;
        // It has our mask as we found it; a signal for the process is to find it, and never this thread.
        let _ = SigSet::all().thread_block();
        signals_are_its.wait();
        worker.join().or_else(|panic| resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_room_the_signals_as_they_were_and_an_answer() {
        let answer = thread::spawn(|| {
            let found = SigSet::thread_get_mask().unwrap();
            let answer = in_thread(|| {
                let room = [1_u8; 4 << 20];
                let sum: u64 = std::hint::black_box(&room).iter().map(|byte| u64::from(*byte)).sum();
                (sum, SigSet::thread_get_mask().unwrap())
            });
            let (sum, inside) = answer.unwrap();
            (sum, inside == found, SigSet::thread_get_mask().unwrap() == found)
        });
        assert_eq!(answer.join().unwrap(), (4 << 20, true, false));
    }
}
