//! The clock that samples are taken by, and what the tool itself uses.

use nix::libc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// Nanoseconds of the monotonic clock, which the kernel's events carry too.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writing during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Processor time that this process has used, in s.
#[must_use]
pub fn own_processor_s() -> f64 {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(0.0, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
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
    fn both_clocks_go_forward() {
        let (before, used) = (monotonic_ns(), own_processor_s());
        let sum = (0..20_000_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
        assert!(monotonic_ns() > before && own_processor_s() > used, "{sum}");
        assert!(ticks_per_s() >= 1.0);
    }
}
