//! What page faults take of a process's processor time.

use faultless_records::quantity::percent;

use super::Activity;

/// What a page fault takes, in seconds, at least, and at most where it was not measured here: in the virtual machines that the figures of
/// this project are from, 1.6 to 1.8 µs (`docs/decay.md`).
const LEAST_S: f64 = 0.25e-6;
const MOST_S: f64 = 2e-6;

/// What the faults without I/O take of it, which is no more than what it spent in the kernel.
pub(super) fn of(activity: &Activity) -> String {
    let (Some(time), Some(in_kernel)) = (activity.processor_s(), activity.part_of_kernel()) else {
        return String::new();
    };
    let part = |each_s: f64| percent((activity.minor_faults as f64 * each_s / time).min(in_kernel));
    let measured = activity.fault_s.filter(|each_s| *each_s > MOST_S);
    let most = measured.map_or_else(|| "2".into(), |each_s| format!("{:.1}", each_s * 1e6));
    let (least, at_most) = (part(LEAST_S), part(measured.unwrap_or(MOST_S)));
    format!("; at 0.25 to {most} µs each they take {least} to {at_most} of its processor time")
}
