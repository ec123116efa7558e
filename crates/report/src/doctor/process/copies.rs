//! Whether a process copies the pages that it shares since a fork, which its RSS does not show.

use faultless_records::pagemap::PAGE_BYTES;
use faultless_records::quantity::{seconds_of, size};

use super::finding::{Concern, FAULTS, Finding, WATCH};
use super::{Activity, MOST};

/// What is said of it, where it matters. Pages also become its own where the other process ends; it takes no fault for these.
pub(super) fn of(activity: &Activity) -> Option<Finding> {
    let copied = activity.private_growth_bytes?.saturating_sub(activity.growth_bytes());
    let brought_in = activity.minor_faults as f64 * PAGE_BYTES as f64;
    if !activity.is_much_growth(copied) || brought_in < copied as f64 * MOST {
        return None;
    }
    let sentence = format!(
        "{} of pages that it had in common with other processes, as after a fork, became its own in these {} s, beside what RSS shows: \
         each that is written is copied",
        size(copied),
        seconds_of(activity.seconds)
    );
    let advice = "the PSS of watch shows whether that goes on; faults names who writes them (frees and reference counts write, too)";
    Some(Finding::new(Concern::Growth, sentence).advised(advice).told_by(&[WATCH, FAULTS]))
}
