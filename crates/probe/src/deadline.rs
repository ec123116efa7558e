//! When a command that is looked at for so long is asked to end, and when it is killed because it did not.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

/// How long a command has between the request to end and the kill.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// Decides of moments that it is told; it reads no clock and sends nothing.
#[derive(Debug)]
pub struct Deadline {
    at: Option<Instant>,
    passed: Option<Instant>,
    kill_at: Option<Instant>,
}

impl Deadline {
    /// None for a command that may go on to its own end.
    #[must_use]
    pub fn new(at: Option<Instant>) -> Self {
        Self { at, passed: None, kill_at: None }
    }

    /// When it was first seen to have passed.
    #[must_use]
    pub fn passed(&self) -> Option<Instant> {
        self.passed
    }

    /// The signal that the command is due for now: the request to end once, then the kill once.
    pub fn due(&mut self, now: Instant) -> Option<Signal> {
        if self.passed.is_none() && self.at.is_some_and(|at| now >= at) {
            (self.passed, self.kill_at) = (Some(now), Some(now + GRACE));
            return Some(Signal::SIGTERM);
        }
        self.kill_at.take_if(|at| now >= *at).map(|_| Signal::SIGKILL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_asked_to_end_once_and_killed_once_when_it_goes_on() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut deadline = Deadline::new(Some(start + second));
        assert_eq!((deadline.due(start), deadline.passed()), (None, None));
        assert_eq!(deadline.due(start + second * 2), Some(Signal::SIGTERM));
        assert_eq!(deadline.passed(), Some(start + second * 2));
        assert_eq!(deadline.due(start + second * 3), None, "its grace begins when it was asked");
        assert_eq!(deadline.due(start + second * 4), Some(Signal::SIGKILL));
        assert_eq!(deadline.due(start + second * 9), None);
        assert_eq!(deadline.passed(), Some(start + second * 2));
        assert_eq!(Deadline::new(None).due(start + second * 9), None);
    }
}
