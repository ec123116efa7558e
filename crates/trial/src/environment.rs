//! The environment that a command gets.

use std::ffi::{OsStr, OsString};

/// Variables in the order in which they were set, each name once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// From pairs; the first of two equal names counts, as for getenv(3).
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            if environment.get(&name).is_none() {
                environment.variables.push((name, value));
            }
        }
        environment
    }

    /// Value of a variable.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsString> {
        self.variables.iter().find(|(known, _)| known == name.as_ref()).map(|(_, value)| value)
    }

    /// The same with this variable set.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.variables.iter_mut().find(|(known, _)| *known == name) {
            Some(variable) => variable.1 = value,
            None => self.variables.push((name, value)),
        }
        self
    }

    /// The same without the variables whose names fit.
    #[must_use]
    pub fn without(mut self, fits: impl Fn(&OsStr) -> bool) -> Self {
        self.variables.retain(|(name, _)| !fits(name));
        self
    }

    /// All variables.
    #[must_use]
    pub fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    /// The same with `entry` added to a variable that holds a list separated by commas, as `FAULTLESS` does.
    #[must_use]
    pub fn with_option(self, name: &str, entry: &OsStr) -> Self {
        let value = match self.get(name).filter(|existing| !existing.is_empty()) {
            Some(existing) => {
                let mut value = existing.clone();
                value.push(",");
                value.push(entry);
                value
            }
            None => entry.to_owned(),
        };
        self.with(name, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::new(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn setting_replaces_and_removing_goes_by_name() {
        let changed = environment(&[("A", "1"), ("MALLOC_X", "2")]).with("A", "3").with("B", "4");
        assert_eq!(changed.get("A").unwrap(), "3");
        let changed = changed.without(|name| name.to_string_lossy().starts_with("MALLOC_"));
        assert_eq!(changed, environment(&[("A", "3"), ("B", "4")]));
    }

    #[test]
    fn options_are_added_to_those_the_user_gave() {
        let option = OsStr::new("stats:exit");
        assert_eq!(environment(&[]).with_option("FAULTLESS", option).get("FAULTLESS").unwrap(), "stats:exit");
        let given = environment(&[("FAULTLESS", "decay:1")]).with_option("FAULTLESS", option);
        assert_eq!(given.get("FAULTLESS").unwrap(), "decay:1,stats:exit");
    }

    #[test]
    fn the_first_of_two_equal_names_counts() {
        assert_eq!(environment(&[("A", "1"), ("A", "2")]).get("A").unwrap(), "1");
    }
}
