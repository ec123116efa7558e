//! The summary at the end of `faultless run`.

use faultless_records::measurement::{FinalView, Measurement};
use faultless_records::quantity::{count, mebibytes, seconds};
use serde_json::{Value, json};

/// Version of the JSON form, documented in `docs/json.md`.
pub const FORMAT: &str = "faultless-run/1";

/// One line for people, in the words of `time -v`.
#[must_use]
pub fn line(measurement: &Measurement) -> String {
    let final_rss = match (measurement.final_rss_bytes, measurement.final_view) {
        (Some(bytes), FinalView::AtExit) => format!("{} MiB", mebibytes(bytes)),
        (Some(bytes), FinalView::Sampled) => {
            format!("{} MiB (last sample: its exit was not seen)", mebibytes(bytes))
        }
        (None, _) => "unknown (its exit was not seen)".into(),
    };
    let faults = if measurement.has_faults() {
        format!("{} minor {} major", count(measurement.minor_faults), count(measurement.major_faults))
    } else {
        "not counted by this kernel".into()
    };
    format!(
        "user {} s, system {} s, elapsed {} s, faults {faults}, peak RSS {} MiB, final RSS {final_rss}",
        seconds(measurement.user),
        seconds(measurement.system),
        seconds(measurement.elapsed),
        mebibytes(measurement.peak_rss_bytes),
    )
}

/// The same for programs; whether the program `has_own_malloc`, which no library takes the place of.
#[must_use]
pub fn json(measurement: &Measurement, has_own_malloc: bool) -> String {
    let mut value = figures(measurement);
    value["format"] = json!(FORMAT);
    value["own_malloc"] = json!(has_own_malloc);
    format!("{value:#}\n")
}

/// All figures of one run.
#[must_use]
pub fn figures(measurement: &Measurement) -> Value {
    json!({
        "exit_status": measurement.ending.exit_status(),
        "signal": measurement.ending.signal(),
        "user_seconds": measurement.user.as_secs_f64(),
        "system_seconds": measurement.system.as_secs_f64(),
        "elapsed_seconds": measurement.elapsed.as_secs_f64(),
        "minor_faults": measurement.minor_faults,
        "major_faults": measurement.major_faults,
        "waits": measurement.waits,
        "peak_rss_bytes": measurement.peak_rss_bytes,
        "final_rss_bytes": measurement.final_rss_bytes,
        "final_rss_is_sampled": measurement.final_view == FinalView::Sampled,
        "allocator": measurement.allocator().map(|allocator| allocator.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use faultless_records::measurement::Ending;
    use std::time::Duration;

    #[test]
    fn faults_are_told_where_the_kernel_counts_them() {
        let measurement = |minor_faults| Measurement {
            ending: Ending::Exited(0),
            user: Duration::ZERO,
            system: Duration::ZERO,
            elapsed: Duration::ZERO,
            minor_faults,
            major_faults: 0,
            waits: 0,
            peak_rss_bytes: 1 << 20,
            final_rss_bytes: None,
            final_view: FinalView::AtExit,
            mapped_files: Vec::new(),
        };
        assert!(line(&measurement(1_234)).contains("faults 1,234 minor 0 major, peak RSS 1.0 MiB"));
        assert!(line(&measurement(0)).contains("faults not counted by this kernel, peak RSS 1.0 MiB"));
    }
}
