//! Up to when records are read.

use std::time::Duration;

use crate::clock::{monotonic_ns, nanoseconds};

/// A record's time is taken some moments before the record can be seen.
pub(super) const CLOCK_SLACK: Duration = Duration::from_micros(200);

/// A time up to which records are read, in nanoseconds of the records' clock.
#[derive(Debug, Clone, Copy)]
pub struct Moment(u64);

impl Moment {
    /// When no more can come.
    pub const END: Self = Self(u64::MAX);

    /// The end, or the present as far as it is [settled](Self::settled).
    #[must_use]
    pub fn last_or_settled(is_last: bool) -> Self {
        if is_last { Self::END } else { Self::settled() }
    }

    /// In nanoseconds of the records' clock.
    #[must_use]
    pub fn ns(self) -> u64 {
        self.0
    }

    /// The youngest that all older records can be seen of by now.
    #[must_use]
    pub fn settled() -> Self {
        Self(monotonic_ns().saturating_sub(nanoseconds(CLOCK_SLACK)))
    }
}
