//! Two recordings side by side: which functions take more faults now, and which fewer.

use std::collections::{BTreeMap, BTreeSet};

use faultless_records::fault_recording::FaultRecording;

use super::profile::{Function, Profile};

/// A function in both recordings.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Name, or module and offset.
    pub name: String,
    /// File name of its module, in the second recording where that differs.
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
        let before_alone = alone(&first.functions, &second.functions);
        let after_alone = alone(&second.functions, &first.functions);
        for function in &first.functions {
            let name = function.name.as_str();
            let renamed = before_alone.get(name).filter(|alone| alone.module == function.module);
            let same = renamed.and_then(|_| after_alone.get(name)).copied().unwrap_or(function);
            functions.entry((name.into(), same.module.clone())).or_default().0 += function.amount.faults;
        }
        for function in &second.functions {
            functions.entry((function.name.clone(), function.module.clone())).or_default().1 +=
                function.amount.faults;
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

/// Functions whose module is in this recording alone, as a program that was built under a new name or a new version of a
/// library, by name; names that several such modules have are left out.
fn alone<'a>(functions: &'a [Function], other: &[Function]) -> BTreeMap<&'a str, &'a Function> {
    let known: BTreeSet<&Option<String>> = other.iter().map(|function| &function.module).collect();
    let mut alone: BTreeMap<&str, Option<&Function>> = BTreeMap::new();
    for function in functions.iter().filter(|function| !known.contains(&function.module)) {
        let entry = alone.entry(&function.name);
        entry.and_modify(|several| *several = None).or_insert(Some(function));
    }
    alone.into_iter().filter_map(|(name, function)| Some((name, function?))).collect()
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

    #[test]
    fn a_program_that_was_built_under_another_name_is_compared_function_by_function() {
        let before = recording();
        let mut after = recording();
        after.tree.modules[0].path = "/build/chem-5f3a91bc".into();
        assert_eq!(Comparison::of(&before, &after).functions, []);
        after.method.steps[1].minor_faults = 909;
        after.counters.user.minor = 919;
        let functions = Comparison::of(&before, &after).functions;
        let name = "dgemm".to_owned();
        assert_eq!(
            functions,
            [Change { name, module: Some("chem-5f3a91bc".into()), before: 9091.0, after: 910.0 }]
        );
    }
}
