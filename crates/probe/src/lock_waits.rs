//! For which locks the threads of a process wait, looked up from time to time.

use std::collections::HashMap;

use faultless_records::thread::SystemCall;
use nix::libc;

use crate::process::{Process, ProcessError};

/// What was seen in several looks at all threads of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockWaits {
    looks: u64,
    /// How often a thread was seen to wait, by the address of the futex.
    waits: HashMap<u64, u64>,
}

impl LockWaits {
    /// Looks at each thread once.
    ///
    /// # Errors
    /// [`ProcessError`] when the process has ended, or nothing may be seen of what its threads wait for.
    pub fn look(&mut self, process: &Process) -> Result<(), ProcessError> {
        let (mut seen, mut refused) = (false, None);
        for thread in process.threads()? {
            match process.text(&format!("task/{thread}/syscall")) {
                Ok(call) => {
                    seen = true;
                    if let Some(address) = SystemCall::parse(&call).and_then(awaited) {
                        *self.waits.entry(address).or_default() += 1;
                    }
                }
                // One that ended meanwhile waits for nothing.
                Err(error) => refused = Some(error),
            }
        }
        if let Some(error) = refused.filter(|_| !seen) {
            return Err(error);
        }
        self.looks += 1;
        Ok(())
    }

    /// How many looks there were.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// How often a thread was seen to wait for the lock at this address.
    #[must_use]
    pub fn at(&self, address: u64) -> u64 {
        self.waits.get(&address).copied().unwrap_or(0)
    }
}

/// The address of the futex that a thread waits at. Source: futex(2); locks of glibc's own wait with `FUTEX_WAIT`, others with a bit
/// set, too.
fn awaited(call: SystemCall) -> Option<u64> {
    let [address, operation, ..] = call.arguments;
    let command = operation & !((libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64);
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].map(|command| command as u64);
    (call.number == libc::SYS_futex && waits.contains(&command)).then_some(address)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn only_who_waits_is_seen_to_wait() {
        let call = |number, operation: i32| {
            awaited(SystemCall { number, arguments: [0x7f00, operation as u64, 2, 0, 0, 0] })
        };
        for operation in [0, 128, 9, 9 | 128 | 256] {
            assert_eq!(call(libc::SYS_futex, operation), Some(0x7f00), "{operation}");
        }
        assert_eq!(call(libc::SYS_futex, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG), None);
        assert_eq!(call(libc::SYS_read, 0), None);
    }

    #[test]
    fn a_thread_that_waits_at_a_futex_is_seen_there() {
        static LOCK: AtomicU32 = AtomicU32::new(2);
        let waiting = std::thread::spawn(|| {
            // Relaxed: the value alone decides, nothing is published by it.
            while LOCK.load(Ordering::Relaxed) == 2 {
                // SAFETY: a wait at a static word, without a timeout, reads nothing else.
                unsafe { libc::syscall(libc::SYS_futex, LOCK.as_ptr(), libc::FUTEX_WAIT | 128, 2, 0) };
            }
        });
        let own = Process::open(std::process::id().cast_signed()).unwrap();
        let address = LOCK.as_ptr().expose_provenance() as u64;
        let mut waits = LockWaits::default();
        // Where the kernel has no such file there is nothing to see.
        while waits.look(&own).is_ok() && waits.at(address) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(waits.at(address + 4), 0);
        LOCK.store(0, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, LOCK.as_ptr(), libc::FUTEX_WAKE | 128, 1) };
        waiting.join().unwrap();
    }
}
