//! The course of time, in equal steps that become longer as it goes on.

use faultless_records::churn_recording::{TIMELINE_STEPS, Timeline};

/// Adds to the step that the time is in; makes steps longer when there are too many.
pub(super) trait Course {
    fn add(&mut self, time_ns: u64, returned_bytes: u64);
}

impl Course for Timeline {
    fn add(&mut self, time_ns: u64, returned_bytes: u64) {
        while time_ns / self.step_ns >= TIMELINE_STEPS as u64 {
            self.step_ns = self.step_ns.saturating_mul(2);
            for steps in [&mut self.calls, &mut self.returned_bytes] {
                *steps = steps.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let step = usize::try_from(time_ns / self.step_ns).unwrap_or(0);
        for steps in [&mut self.calls, &mut self.returned_bytes] {
            steps.resize(steps.len().max(step + 1), 0);
        }
        self.calls[step] += 1;
        self.returned_bytes[step] = self.returned_bytes[step].saturating_add(returned_bytes);
    }
}
