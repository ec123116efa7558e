//! Why a task or a check did not pass.

use std::fmt;
use std::path::Path;

/// Why a task or a check did not pass.
#[derive(Debug)]
pub enum Failure {
    /// Something this machine lacks; a check is skipped, a task stops.
    Missing(String),
    /// An expectation that did not hold.
    Wrong(String),
    /// Arguments that mean nothing.
    Usage(String),
}

/// What tasks and checks return.
pub type Result<T> = std::result::Result<T, Failure>;

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Missing(text) | Failure::Wrong(text) | Failure::Usage(text) => formatter.write_str(text),
        }
    }
}

/// A failed expectation, in words.
pub fn wrong<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Wrong(text.into()))
}

/// Arguments that mean nothing, in words.
pub fn usage<T>(text: impl Into<String>) -> Result<T> {
    Err(Failure::Usage(text.into()))
}

/// Checks that `seen` equals `expected`; the failure shows the first line that differs.
pub fn expect_equal(what: &str, expected: &str, seen: &str) -> Result<()> {
    if expected == seen {
        return Ok(());
    }
    let (expected_count, seen_count) = (expected.lines().count(), seen.lines().count());
    let mut lines = expected.lines().zip(seen.lines()).enumerate();
    match lines.find(|(_, (expected, seen))| expected != seen) {
        Some((index, (expected, seen))) => {
            let number = index + 1;
            let (expected, seen) = (clipped(expected), clipped(seen));
            wrong(format!("{what}: line {number}: expected {expected:?}, saw {seen:?}"))
        }
        None => wrong(format!("{what}: expected {expected_count} lines, saw {seen_count}")),
    }
}

fn clipped(line: &str) -> String {
    line.chars().take(100).collect()
}

/// Names the path in an I/O error.
pub trait At<T> {
    /// Turns an I/O error into a [`Failure`] that names `path`.
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|error| Failure::Wrong(format!("{}: {error}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_line_is_named() {
        let failure = expect_equal("sum", "1\n2\n3", "1\n5\n3").unwrap_err();
        assert_eq!(failure.to_string(), "sum: line 2: expected \"2\", saw \"5\"");
    }

    #[test]
    fn a_missing_last_line_is_a_difference() {
        let failure = expect_equal("sum", "1\n2", "1").unwrap_err();
        assert_eq!(failure.to_string(), "sum: expected 2 lines, saw 1");
    }
}
