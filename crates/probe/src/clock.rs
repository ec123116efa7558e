//! The clock that samples are taken by, and what the tool itself uses.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

/// Nanoseconds of the kernel's monotonic clock, which its events carry too.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // A time namespace has an offset that the kernel's events do not have.
    static OFFSET_NS: LazyLock<i64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        monotonic_offset_ns(&text).unwrap_or(0)
    });
    namespace_ns().saturating_add_signed(-*OFFSET_NS)
}

/// The same as processes of our time namespace read it.
#[must_use]
pub fn namespace_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writing during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What a time namespace adds to the monotonic clock. Source: `timens_offsets`, time_namespaces(7).
fn monotonic_offset_ns(text: &str) -> Option<i64> {
    let mut words = text.lines().find_map(|line| line.strip_prefix("monotonic"))?.split_whitespace();
    let (seconds, rest): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(rest)
}

/// Processor time that this process has used.
#[must_use]
pub fn own_processor_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(microseconds).unwrap_or(0))
}

/// Processor time that this thread has used; none where the kernel has no clock for it.
#[must_use]
pub fn thread_processor_time() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

/// A time as recordings have it.
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds of Unix time.
#[must_use]
pub fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Clock ticks a second, the unit of processor times in `/proc`.
#[must_use]
pub fn ticks_per_s() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let text = "monotonic        -1000        5\nboottime             7         0\n";
        assert_eq!(monotonic_offset_ns(text), Some(-999_999_999_995));
        assert_eq!(monotonic_offset_ns("boottime 7 0\n"), None);
    }

    #[test]
    fn both_clocks_go_forward() {
        let (before, used) = (monotonic_ns(), own_processor_time());
        let sum = (0..20_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        assert!(monotonic_ns() > before && own_processor_time() > used, "{sum}");
        assert!(ticks_per_s() >= 1.0);
    }
}
