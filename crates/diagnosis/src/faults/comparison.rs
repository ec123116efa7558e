//! Two recordings side by side: which functions take more faults now, and which fewer.

use std::collections::BTreeMap;

use faultless_records::fault_recording::FaultRecording;

use super::profile::Profile;

/// A function in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Name, or module and offset.
    pub name: String,
    /// File name of its module.
    pub module: Option<String>,
    /// Faults in the first recording.
    pub before: f64,
    /// Faults in the second.
    pub after: f64,
}

impl Change {
    /// How many more.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }
}

/// How two recordings compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// All faults in the first and in the second.
    pub all: (f64, f64),
    /// Seconds that they took.
    pub seconds: (f64, f64),
    /// Functions, the largest differences first; those without any are left out.
    pub functions: Vec<Change>,
}

impl Comparison {
    /// Compares recordings whose indices were checked.
    #[must_use]
    pub fn of(before: &FaultRecording, after: &FaultRecording) -> Self {
        let (first, second) = (Profile::of(before), Profile::of(after));
        let mut functions: BTreeMap<(String, Option<String>), (f64, f64)> = BTreeMap::new();
        for function in first.functions {
            functions.entry((function.name, function.module)).or_default().0 += function.amount.faults;
        }
        for function in second.functions {
            functions.entry((function.name, function.module)).or_default().1 += function.amount.faults;
        }
        let mut functions: Vec<Change> = functions
            .into_iter()
            .map(|((name, module), (before, after))| Change { name, module, before, after })
            .filter(|change| change.difference() != 0.0)
            .collect();
        functions.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
        Self {
            all: (first.all.faults, second.all.faults),
            seconds: (before.observed_s(), after.observed_s()),
            functions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::weight::tests::recording;
    use super::*;

    #[test]
    fn the_largest_difference_comes_first_and_equals_are_left_out() {
        let before = recording();
        let mut after = recording();
        after.method.steps[1].minor_faults = 909;
        after.counters.user.minor = 919;
        let comparison = Comparison::of(&before, &after);
        let names: Vec<&str> = comparison.functions.iter().map(|change| change.name.as_str()).collect();
        assert_eq!(names, ["dgemm"]);
        assert_eq!(comparison.functions[0].difference(), 910.0 - 9091.0);
        assert_eq!(comparison.all, (9100.0, 919.0));
        assert!(Comparison::of(&before, &before).functions.is_empty());
    }
}
