//! Waits for whatever comes first: a signal, a key, a message of the kernel, the time of the next sample.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::libc;

use crate::signals::Signals;

/// Most descriptors waited for at once.
const MOST: usize = 8;

/// What ended the waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Woken {
    /// A held signal can be taken.
    pub by_signal: bool,
    /// One bit for each of the other descriptors that can be read.
    readable: u32,
}

impl Woken {
    /// Whether the descriptor at this place can be read.
    #[must_use]
    pub fn by(self, place: usize) -> bool {
        place < MOST && self.readable & (1 << place) != 0
    }
}

/// Makes held signals one of the things that can be waited for.
#[derive(Debug)]
pub struct Wakeup {
    signals: OwnedFd,
}

impl Wakeup {
    /// For the signals that are held back.
    ///
    /// # Errors
    /// When the kernel has no descriptor for us.
    pub fn new(signals: &Signals) -> io::Result<Self> {
        // SAFETY: the set is valid for reading during the call; -1 asks for a new descriptor.
        let descriptor =
            unsafe { libc::signalfd(-1, signals.held().as_ref(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
        Ok(Self { signals: unsafe { OwnedFd::from_raw_fd(descriptor) } })
    }

    /// Waits for at most `limit`: until one of the others can be read, or `writable` be written.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn wait(
        &self,
        others: &[BorrowedFd<'_>],
        writable: Option<BorrowedFd<'_>>,
        limit: Duration,
    ) -> io::Result<Woken> {
        debug_assert!(others.len() + 1 < MOST);
        let readable = std::iter::once(self.signals.as_fd()).chain(others.iter().copied());
        let descriptors: Vec<(BorrowedFd<'_>, libc::c_short)> = readable
            .map(|descriptor| (descriptor, libc::POLLIN))
            .chain(writable.map(|descriptor| (descriptor, libc::POLLOUT)))
            .collect();
        let ready = poll(&descriptors, limit)?;
        Ok(Woken { by_signal: ready & 1 != 0, readable: ready >> 1 })
    }
}

/// Whether the descriptor takes some bytes at once, or refuses them at once: pipes take 4096.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn is_writable(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(poll(&[(descriptor, libc::POLLOUT)], Duration::ZERO)? != 0)
}

/// Whether the descriptor can be read within `limit`.
///
/// # Errors
/// When the kernel refuses to wait.
pub fn readable(descriptor: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    Ok(poll(&[(descriptor, libc::POLLIN)], limit)? != 0)
}

/// One bit for each descriptor that is ready for its events, or is closed at the other end.
fn poll(descriptors: &[(BorrowedFd<'_>, libc::c_short)], limit: Duration) -> io::Result<u32> {
    let mut polled: Vec<libc::pollfd> = descriptors
        .iter()
        .take(MOST)
        .map(|(descriptor, events)| libc::pollfd { fd: descriptor.as_raw_fd(), events: *events, revents: 0 })
        .collect();
    let limit = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the array and its length belong together, the time lives through the call, a null mask changes none.
    let ready = unsafe {
        libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, &raw const limit, std::ptr::null())
    };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) };
    }
    Ok(polled.iter().enumerate().fold(0, |bits, (place, one)| bits | (u32::from(one.revents != 0) << place)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_pipe_wakes_and_silence_ends_in_time() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!readable(reader.as_fd(), Duration::from_millis(1)).unwrap());
        writer.write_all(b"x").unwrap();
        assert!(readable(reader.as_fd(), Duration::from_secs(10)).unwrap());
        assert!(is_writable(writer.as_fd()).unwrap());
    }
}
